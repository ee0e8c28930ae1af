"""`smpc-dp plan check`: an empirical lower bound on the epsilon of a mechanism's implementation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

import typer

from smpc_dp.console.output import print_as, print_table
from smpc_dp.console.progress import Bar
from smpc_dp.console.workers import Ray
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.executors.opened import open_executor

if TYPE_CHECKING:
    from concurrent.futures import Executor

MechanismName = Literal[
    "laplace",
    "gaussian",
    "discrete-laplace",
    "discrete-gaussian",
    "skellam",
    "binomial",
    "randomised-response",
    "distributed-discrete-laplace",
    "distributed-discrete-gaussian",
    "distributed-skellam",
    "distributed-binomial",
]


# What takes the time.
DRAWS = "draws releases"


class PrintedFinding(TypedDict):
    """JSON output: the lower bound on epsilon found for one claim and one order of the two inputs."""

    epsilon: float
    delta: float
    epsilon_lower: float
    event: str
    hits: tuple[int, int]
    counted: int


class PrintedAudit(TypedDict):
    """JSON output: the comparison of a mechanism's samples with its claimed epsilon."""

    mechanism: str
    epsilon: float
    delta: float
    samples: int
    epsilon_lower: float
    violation: bool
    false_alarm: float
    tested: int
    strongest: PrintedFinding


class PrintedReleaseAudit(TypedDict):
    """JSON output: the audit of a session's noisy release, by sampling, against its claim."""

    epsilon: float
    delta: float
    samples: int
    violation: bool
    violations: list[str]
    false_alarm: float
    tested: int
    strongest: PrintedFinding
    moved: float
    counted: NotRequired[int]
    variance: NotRequired[float]
    least_variance: NotRequired[float]


def check(
    mechanism: Annotated[
        MechanismName | None, typer.Argument(help="The mechanism; none with --session.")
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option(
            help="A session file for statistics of records or names, whose release is audited as it is."
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Claimed epsilon: a mechanism is calibrated to it (default 1); the release of a "
            "session, whose noise is its own, is tested for it (default its own, over the whole profile)."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Claimed delta; default 0 for Laplace and responses, the session's, else 1e-5."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Releases on each of two neighbouring inputs; default 1,000,000, of a session as many as "
            "show a missing share of noise."
        ),
    ] = None,
    dimension: Annotated[int, typer.Option(help="Coordinates of a value.")] = 1,
    sensitivity: Annotated[
        float, typer.Option(help="l1 for Laplace, else l2; grid steps if discrete.")
    ] = 1.0,
    parties: Annotated[int, typer.Option(help="Parties of a distributed sum.")] = 5,
    missing: Annotated[int, typer.Option(help="Parties of it that may vanish.")] = 0,
    corrupt: Annotated[int, typer.Option(help="Parties of it that may be corrupt.")] = 0,
    categories: Annotated[int, typer.Option(help="Categories of randomised response.")] = 3,
    workers: Annotated[
        int | None, typer.Option(help="Processes that draw releases. Left out: one.", show_default=False)
    ] = None,
    ray: Ray = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for a violation of the claimed privacy of a mechanism, or of a session's release.

    Calibrates the mechanism, draws many real releases on neighbouring inputs and prints the largest epsilon
    that they show. Exit code 1 if that refutes the claim. Finding nothing is no proof.
    """
    # Most audits take less time than processes take to start.
    opened = open_executor(1 if workers is None and ray is None else workers, ray)
    if session is not None and mechanism is None:
        with opened as executor:
            _check_session(session, samples, epsilon, delta, executor, as_json=as_json)
        return
    if session is not None or mechanism is None:
        raise ConfigError.at("MECHANISM", "either a mechanism is needed, or --session", ConfigCheck.CONFLICT)
    samples = 1_000_000 if samples is None else samples
    epsilon = 1.0 if epsilon is None else epsilon
    # Loading these takes longer than starting all other commands.
    from smpc_dp.encoding import Encoding
    from smpc_dp.privacy import empirical, mechanisms
    from smpc_dp.privacy.mechanisms.additive import FAMILIES

    name = mechanism.removeprefix("distributed-")
    pure = name in ("laplace", "discrete-laplace", "randomised-response")
    delta = (0.0 if pure else 1e-5) if delta is None else delta
    norm = "l1" if "laplace" in name else "l2"
    bound: dict[str, float] = {norm: sensitivity}
    made: mechanisms.Mechanism
    if name == "randomised-response":
        made = mechanisms.KaryRandomisedResponse.calibrate(epsilon, delta, categories)
    elif name in ("laplace", "gaussian"):
        if not 0 < sensitivity <= 1e6:
            raise ConfigError.at(
                "--sensitivity", f"must be above 0 and at most 1e6, is {sensitivity}", ConfigCheck.RANGE
            )
        encoding = Encoding.plan(
            length=dimension, lower=0.0, upper=2 * sensitivity, precision=sensitivity / 1000, parties=1
        )
        real = mechanisms.Sensitivity.on_reals("substitution", dimension=dimension, **bound)
        kind = mechanisms.Laplace if name == "laplace" else mechanisms.Gaussian
        made = kind.calibrate(epsilon, delta, real, encoding)
    else:
        grid = mechanisms.Sensitivity.on_integers("substitution", dimension=dimension, **bound)
        if mechanism.startswith("distributed-"):
            made = mechanisms.DistributedSum.calibrate(
                FAMILIES[name], epsilon, delta, grid, parties=parties, missing=missing, corrupt=corrupt
            )
        else:
            made = FAMILIES[name].calibrate(epsilon, delta, grid)
    claim = empirical.Claim(epsilon, delta)
    with opened as executor, Bar("releases", quiet=as_json) as bar:
        result = empirical.audit_mechanism(
            made, claim, samples, progress=partial(bar.show, DRAWS), executor=executor
        )
    if as_json:
        print_as("plan-check", result.to_json())
    else:
        worst = result.findings[0]
        verdict = "no violation found, which is no proof that there is none"
        rows = [
            ("claimed", f"epsilon = {epsilon:g} at delta = {delta:g}, substitution"),
            ("shown by the samples", f"epsilon >= {result.lower:.6g} at that delta"),
            ("strongest of all tests", f"{worst.shown}, where {worst.claim.epsilon:.6g} is claimed"),
            ("by the event", f"{worst.event}: {worst.hits} against {worst.neighbour_hits} times"),
            ("releases", f"{samples} on each input, half of them to choose the events"),
            ("verdict", "VIOLATION: the claim is false" if result.refuted else verdict),
            ("false alarms", f"at most {empirical.FALSE_ALARM:g} for a claim that is right"),
        ]
        print_table(f"{mechanism}: {made.name}", ("what", "value"), rows)
    if result.refuted:
        raise typer.Exit(1)


def _check_session(
    path: Path,
    samples: int | None,
    epsilon: float | None,
    delta: float | None,
    executor: Executor | None,
    *,
    as_json: bool,
) -> None:
    """Audit the release of a session file, and print the result; exit code 1 for a violation."""
    from smpc_dp.session.session_file import load_session
    from smpc_dp.session.tasks import task_of

    loaded = load_session(path)
    with Bar("releases", quiet=as_json) as bar:
        audited = task_of(loaded).audit_release(
            loaded, samples, epsilon, delta, partial(bar.show, DRAWS), executor
        )
    result = audited.audit
    if as_json:
        print_as("plan-check-session", result.to_json())
    else:
        worst = result.findings[0]
        rows = [
            ("claimed", f"epsilon = {result.epsilon:g} at delta = {result.delta:g}"),
            ("in the release", audited.release),
            (
                "strongest of all tests",
                f"{worst.shown}, where {worst.claim.epsilon:.6g} is claimed",
            ),
            *audited.rows,
            ("releases", f"{result.samples} on each input, half of them to choose the events"),
            *(("VIOLATION", text) for text in result.violations),
            *([] if result.violations else [("verdict", "no violation found, which is no proof")]),
        ]
        print_table(str(path), ("what", "value"), rows)
    if result.violations:
        raise typer.Exit(1)
