"""`smpc-dp simulate`: many parties in one process."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import numpy as np
import typer

from smpc_dp.cli.reporting import Reporting, ReportPath, make_report
from smpc_dp.console.options import option, with_settings
from smpc_dp.console.output import console, print_as
from smpc_dp.console.progress import Bar
from smpc_dp.console.workers import Ray, Workers
from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.engine.phases.messages import PARTY_STEPS
from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.executors.opened import open_executor
from smpc_dp.executors.shards import run_shards
from smpc_dp.extensions import imported
from smpc_dp.secagg.noisy import PrivateSettings

if TYPE_CHECKING:
    from smpc_dp.report.trace import Trace

# Of sums with noise, and GOPA's own where it is in this installation.
_gopa = imported("smpc_dp.capabilities.gopa.params")
Settings: type[PrivateSettings] = PrivateSettings if _gopa is None else _gopa.GopaSettings
Method = Literal["secagg", "gopa"]
# The settings that a method alone has, and the dropouts that a run is planned for.
OWN: Mapping[Method, frozenset[str]] = {
    "secagg": frozenset({"mechanism"}),
    "gopa": frozenset({"on_dropout", "topology"}),
}
PLANNED: Mapping[Method, float] = {"secagg": 0.1, "gopa": 0.01}
MAX_RUNS = 10_000
NO_PRIVACY = "no differential privacy; gopa needs epsilon and delta"

app = typer.Typer(name="simulate", help="Run many parties in one process.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Do nothing: group of the commands that simulate runs (`smpc-dp simulate ...`)."""
    pass


@app.command()
@with_settings(Settings, ("lower", "upper", "kind", "precision", "max_weight", "verifiable"), length=1_000)
def average(
    parties: Annotated[int, typer.Option(help="How many parties.")] = 100,
    dropout: Annotated[float, typer.Option(help="Fraction that is killed at random steps.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option("--seed-for-simulation", help="Make the run reproducible.")
    ] = None,
    runs: Annotated[
        int, typer.Option(help="How many runs, each with its own vectors, seed and dropouts.")
    ] = 1,
    workers: Workers = None,
    ray: Ray = None,
    threads: Annotated[int, typer.Option(help="Threads that the aggregator removes masks with.")] = 2,
    method: Annotated[Method, typer.Option(help="Secure sum, or gossip noise.")] = "secagg",
    epsilon: Annotated[float | None, option(Settings, "epsilon", default=NO_PRIVACY)] = None,
    delta: Annotated[float | None, option(Settings, "delta", default=NO_PRIVACY)] = None,
    l2_bound: Annotated[
        float | None, option(Settings, "l2_bound", default="vectors within bounds -1 and 1")
    ] = None,
    report: ReportPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **given: Any,
) -> None:
    """Average random vectors, and compare with the plain average.

    The vectors are uniform in [-1, 1]; the machines of all parties run in this process. Planned for a tenth
    of the parties to drop out, with gopa for a hundredth, or for --dropout if that is more. Several runs are
    computed by several processes, and have the same values with any number of them.
    """
    # They load all capabilities; the options here are those of GOPA too.
    simulation = imported("smpc_dp.simulate.average")
    if simulation is None or _gopa is None:
        raise LocalError("simulations need all capabilities, of which one is not in this installation")
    from smpc_dp.session.memory.randomness import checked_seed

    reporting = Reporting.of(report)
    length = given.pop("length")
    simulation.check_size(parties, length, threads)
    checked_seed(seed)
    _check_runs(runs, {"workers": workers, "ray": ray} if runs == 1 else {"report": report})
    others = {key for keys in OWN.values() for key in keys} - OWN[method]
    if "topology" in others and given["topology"] != "relay":
        reason = "is for gopa: a secure sum has an aggregator"
        raise ConfigError.at("topology", reason, ConfigCheck.UNSUPPORTED)
    given = {key: value for key, value in given.items() if key not in others and value is not None}
    bound = None if l2_bound is not None else 1.0
    settings = {
        "lower": None if bound is None else -bound,
        "upper": bound,
        "l2_bound": l2_bound,
        "dropout": dropout,
        "planned_dropout": max(dropout, PLANNED[method]),
        "method": method,
        "epsilon": epsilon,
        "delta": delta,
        "threads": threads,
        **given,
    }
    if runs > 1:
        calls = [(parties, length, settings, _seed_of_run(seed, number)) for number in range(runs)]
        compared = []
        with open_executor(workers, ray) as executor, Bar("runs", quiet=as_json) as bar:
            for run in run_shards(executor, _compared_run, calls, "run"):
                compared.append(run)
                bar.show("simulates", len(compared), runs)
        _print_runs(compared, [call[-1] for call in calls], as_json=as_json)
        return
    steps = _steps(given)
    with Bar("steps", quiet=as_json) as bar:

        def show(step: str, waiting: int) -> None:
            if step == "done":
                bar.show(step, len(steps), len(steps))
            else:
                bar.show(f"{step} ({waiting} parties)", steps.index(step), len(steps))

        trace = None if reporting is None else reporting.trace
        result, run = _simulate(parties, length, settings, seed, progress=show, trace=trace)
    if as_json:
        print_as("simulate-average", run.printed)
    else:
        console().print(run.text)
    if reporting is not None:
        _write_report(reporting, result, method, given, run.printed["seconds"], f"The result {run.verdict}.")
    if run.printed["exact"] is False:
        raise typer.Exit(1)


class PrintedRun(TypedDict):
    """JSON output: the result of one simulated run, compared with the plain average."""

    exact: bool | None
    error: float
    standard_error: float
    curator_standard_error: float
    epsilon: float | None
    delta: float | None
    parties: int
    survivors: int
    length: int
    seconds: float
    peak_bytes: int


class PrintedSeededRun(PrintedRun):
    """JSON output: one of several simulated runs, with its seed and errors."""

    seed_for_simulation: int | None


class PrintedRuns(TypedDict):
    """JSON output: several simulated runs, and the errors of all of them."""

    exact: bool | None
    mean_error: float
    error_deviation: float
    standard_error: float
    curator_standard_error: float
    runs: list[PrintedSeededRun]


@dataclass(frozen=True, slots=True)
class _Compared:
    """Result of a simulated run with its error against the plain average of the survivors' vectors.

    `printed`: its JSON data; `mean`, `square`: of the errors of all coordinates, and of their squares.
    """

    printed: Mapping[str, Any]
    verdict: str
    mean: float
    square: float

    @property
    def text(self) -> str:
        """A line of text on the run: survivors, agreement with the exact result, time and memory."""
        return (
            f"{self.printed['survivors']} of {self.printed['parties']} parties survived; the result "
            f"{self.verdict}; {self.printed['seconds']:.1f} s, "
            f"peak memory {self.printed['peak_bytes'] / 1e9:.2f} GB"
        )


def _check_runs(runs: int, useless: Mapping[str, object]) -> None:
    """Raise ConfigError for an impossible number of runs, or an option of `useless` that was given."""
    if not 1 <= runs <= MAX_RUNS:
        raise ConfigError.at("runs", f"must be 1 to {MAX_RUNS}, is {runs}", ConfigCheck.RANGE)
    for name, option_value in useless.items():
        if option_value is not None:
            reason = "is for several runs" if runs == 1 else "is for one run"
            raise ConfigError.at(name, reason, ConfigCheck.CONFLICT)


def _seed_of_run(seed: int | None, number: int) -> int | None:
    """Return a run's seed: `seed` itself for number 0, else one derived from both; None without a seed.

    The drawn ones have 48 bits: any reader of JSON takes them as they are.
    """
    from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

    if seed is None or number == 0:
        return seed
    return int.from_bytes(SeededRandomnessForSimulation(seed, f"run {number}").bytes(6), "big")


def _compared_run(parties: int, length: int, settings: Mapping[str, Any], seed: int | None) -> _Compared:
    """Simulate one average of random vectors, and return its result compared with the plain average."""
    return _simulate(parties, length, settings, seed)[1]


def _simulate(
    parties: int,
    length: int,
    settings: Mapping[str, Any],
    seed: int | None,
    *,
    progress: Callable[[str, int], None] | None = None,
    trace: Trace | None = None,
) -> tuple[Result, _Compared]:
    """Average random vectors in a simulated run; return (result, its comparison with the plain average)."""
    from smpc_dp.simulate.average import average as simulate_average

    values = np.random.default_rng(seed).uniform(-1.0, 1.0, (parties, length))
    if settings["l2_bound"] is not None:
        values *= settings["l2_bound"] / np.linalg.norm(values, axis=1, keepdims=True)
    begun = time.perf_counter()
    result = simulate_average(values, seed_for_simulation=seed, progress=progress, trace=trace, **settings)
    seconds = time.perf_counter() - begun
    encoding = Encoding.plan(length=length, lower=-1.0, upper=1.0, precision=1e-6, parties=parties)
    absent = set(result.absent)
    names = sorted(absent.union(result.survivors))
    survivors = [values[index] for index, name in enumerate(names) if name not in absent]
    private = result.noise is not None
    exact = None if private else bool((fixed_point_sum(encoding, survivors) == result.fixed_point).all())
    errors = result.value - np.mean(survivors, axis=0)
    error = float(np.abs(errors).max())
    verdict = (
        f"is {error:.3g} off their average in the worst coordinate (standard error "
        f"{result.standard_error:.3g}, a trusted curator's {result.curator_standard_error:.3g})"
        if private
        else f"{'equals' if exact else 'DIFFERS FROM'} the fixed-point sum of their vectors"
    )
    printed = {
        "exact": exact,
        "error": error,
        "standard_error": result.standard_error,
        "curator_standard_error": result.curator_standard_error,
        "epsilon": result.privacy.epsilon,
        "delta": result.privacy.delta,
        "parties": parties,
        "survivors": len(result.survivors),
        "length": length,
        "seconds": seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    return result, _Compared(printed, verdict, float(np.mean(errors)), float(np.mean(errors**2)))


def _print_runs(runs: Sequence[_Compared], seeds: Sequence[int | None], *, as_json: bool) -> None:
    """Print several runs and their errors; exit with code 1 if an exact result differs from the sum."""
    mean = math.fsum(run.mean for run in runs) / len(runs)
    deviation = math.sqrt(max(0.0, math.fsum(run.square for run in runs) / len(runs) - mean**2))
    # Where parties are lost it differs from run to run.
    stated = {
        key: math.sqrt(math.fsum(run.printed[key] ** 2 for run in runs) / len(runs))
        for key in ("standard_error", "curator_standard_error")
    }
    exact = None if runs[0].printed["exact"] is None else all(run.printed["exact"] for run in runs)
    if as_json:
        seeded = [{"seed_for_simulation": seed, **run.printed} for seed, run in zip(seeds, runs, strict=True)]
        errors = {"mean_error": mean, "error_deviation": deviation}
        print_as("simulate-averages", {"exact": exact, **errors, **stated, "runs": seeded})
    else:
        for number, run in enumerate(runs, 1):
            console().print(f"run {number}: {run.text}")
        noise = (
            f" (standard error {stated['standard_error']:.3g}, a trusted curator's "
            f"{stated['curator_standard_error']:.3g})"
        )
        console().print(
            f"{len(runs)} runs: the error of a coordinate has mean {mean:.3g} and standard deviation "
            f"{deviation:.3g}{noise if exact is None else ''}"
        )
    if exact is False:
        raise typer.Exit(1)


def _steps(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the protocol steps that a progress bar shows, for a method's settings."""
    if given.get("topology") == "direct":
        from smpc_dp.capabilities.gopa.direct_messages import COORDINATOR_STEPS

        return COORDINATOR_STEPS
    if given.get("on_dropout") == "keep":
        from smpc_dp.capabilities.gopa.messages import PARTY_STEPS as PUBLISHING_STEPS

        return PUBLISHING_STEPS
    return PARTY_STEPS


def _write_report(
    reporting: Reporting,
    result: Result,
    method: str,
    given: Mapping[str, Any],
    seconds: float,
    compared: str,
) -> None:
    """Write the report of a simulated run to a file."""
    from smpc_dp.cli.run_report import privacy_facts
    from smpc_dp.report import sections
    from smpc_dp.report.document import Text, section
    from smpc_dp.report.table import Table

    printed: Any = result.to_json()
    trace = reporting.trace
    view = "secagg" if result.noise is None else "secagg-noisy"
    if "topology" in given:
        view = "gopa-direct" if given["topology"] == "direct" else f"gopa-{given['on_dropout']}"
    if result.evidence.checked:
        view += "-checked"
    present, absent = len(result.survivors), len(result.absent)
    interval = None if result.noise is None else (float(result.interval().upper[0] - result.value[0]), 0.95)
    settings = [("method", method), *((key, sections.written(value)) for key, value in given.items())]
    simulated = ["A simulation: one process held all vectors and keys, and drew the vectors at random."]
    facts = [("parties in it", f"{present:,} of {present + absent:,}"), *privacy_facts(printed["privacy"])]
    facts += [("time", f"{seconds:.1f} s"), ("sent in all", sections.amount(trace.total))]
    parts = [
        *sections.vector_section(printed, interval),
        *section("compared", "Compared with the vectors themselves", [Text(compared)]),
        *sections.privacy_section(printed["privacy"], {}),
        *sections.limits_section([*simulated, *printed["privacy"]["not_protected"]]),
        *sections.roles_section([view], simulated, network=False),
        *sections.losses_section(result.absent, result.faults, trace),
        *sections.times_section(trace),
        *sections.traffic_section(trace),
        *section("asked", "Settings", [Table("Settings", (("setting", ""), ("value", "")), tuple(settings))]),
    ]
    conclusion = "The simulation ended with a result."
    reporting.write(make_report("Simulated average", conclusion, facts, parts, privacy=printed["privacy"]))
