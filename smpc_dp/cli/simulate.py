"""`smpc-dp simulate`: many parties in one process."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import typer

from smpc_dp.cli.reporting import Reporting, ReportPath, make_report
from smpc_dp.console.options import option, with_settings
from smpc_dp.console.output import console, print_json
from smpc_dp.console.progress import Bar
from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.engine.phases.messages import PARTY_STEPS
from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.extensions import imported
from smpc_dp.secagg.noisy import PrivateSettings

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
NO_PRIVACY = "no differential privacy; gopa needs epsilon and delta"

app = typer.Typer(name="simulate", help="Run many parties in one process.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
@with_settings(Settings, ("lower", "upper", "kind", "precision", "max_weight", "verifiable"), length=1_000)
def average(
    parties: Annotated[int, typer.Option(help="How many parties.")] = 100,
    dropout: Annotated[float, typer.Option(help="Fraction that is killed at random steps.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option("--seed-for-simulation", help="Make the run reproducible.")
    ] = None,
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
    of the parties to drop out, with gopa for a hundredth, or for --dropout if that is more.
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
    values = np.random.default_rng(seed).uniform(-1.0, 1.0, (parties, length))
    if l2_bound is not None:
        values *= l2_bound / np.linalg.norm(values, axis=1, keepdims=True)
    bound = None if l2_bound is not None else 1.0
    begun = time.perf_counter()
    others = {key for keys in OWN.values() for key in keys} - OWN[method]
    if "topology" in others and given["topology"] != "relay":
        reason = "is for gopa: a secure sum has an aggregator"
        raise ConfigError.at("topology", reason, ConfigCheck.UNSUPPORTED)
    given = {key: value for key, value in given.items() if key not in others and value is not None}
    steps = _steps(given)
    with Bar("steps", quiet=as_json) as bar:

        def show(step: str, waiting: int) -> None:
            if step == "done":
                bar.show(step, len(steps), len(steps))
            else:
                bar.show(f"{step} ({waiting} parties)", steps.index(step), len(steps))

        result = simulation.average(
            values,
            lower=None if bound is None else -bound,
            upper=bound,
            l2_bound=l2_bound,
            dropout=dropout,
            planned_dropout=max(dropout, PLANNED[method]),
            method=method,
            epsilon=epsilon,
            delta=delta,
            threads=threads,
            seed_for_simulation=seed,
            progress=show,
            trace=None if reporting is None else reporting.trace,
            **given,
        )
    seconds = time.perf_counter() - begun
    encoding = Encoding.plan(length=length, lower=-1.0, upper=1.0, precision=1e-6, parties=parties)
    absent = set(result.absent)
    names = sorted(absent.union(result.survivors))
    survivors = [values[index] for index, name in enumerate(names) if name not in absent]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    private = result.noise is not None
    exact = None if private else bool((fixed_point_sum(encoding, survivors) == result.fixed_point).all())
    error = float(np.abs(result.value - np.mean(survivors, axis=0)).max())
    verdict = (
        f"is {error:.3g} off their average in the worst coordinate (standard error "
        f"{result.standard_error:.3g}, a trusted curator's {result.curator_standard_error:.3g})"
        if private
        else f"{'equals' if exact else 'DIFFERS FROM'} the fixed-point sum of their vectors"
    )
    if as_json:
        print_json(
            {
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
                "peak_bytes": peak,
            }
        )
    else:
        console().print(
            f"{len(result.survivors)} of {parties} parties survived; the result {verdict}; "
            f"{seconds:.1f} s, peak memory {peak / 1e9:.2f} GB"
        )
    if reporting is not None:
        _write_report(reporting, result, method, given, seconds, f"The result {verdict}.")
    if exact is False:
        raise typer.Exit(1)


def _steps(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the steps that a bar shows, for the settings of a method."""
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
    """Write the report of a run; `given`: settings of its method; `compared`: with the plain average."""
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
    reporting.write(make_report("Simulated average", "The simulation ended with a result.", facts, parts))
