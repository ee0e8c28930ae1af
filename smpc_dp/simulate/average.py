"""`simulate.average`: the roles of a whole session in one process, without sockets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.box import Bound
from smpc_dp.capabilities.gopa.check import check_gopa
from smpc_dp.capabilities.gopa.simulation.direct import run_direct
from smpc_dp.encoding import MAX_LENGTH, Encoding, shown
from smpc_dp.engine.phases.parameters import MAX_PARTIES, SumParameters
from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues, SmpcError
from smpc_dp.files import write_file
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.report.trace import Trace
from smpc_dp.secagg.noisy import check_noisy
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.randomness import checked_seed
from smpc_dp.session.memory.roles import sum_roles
from smpc_dp.session.memory.simulated_run import AGGREGATOR, draw_kills
from smpc_dp.session.memory.tracing import traced
from smpc_dp.transport.memory import Faults
from smpc_dp.values import refuse_masked, vector_of
from smpc_dp.wire.signing import Context

MAX_THREADS = 256
DEFAULT_PRECISION = 1e-6
SESSION_LOG_SUFFIX = ".session.jsonl"
# Eight gigabytes of input.
MAX_VALUES = 1 << 30


class _Method(NamedTuple):
    """What a method is beside the other: the settings that it alone has, and the check of its noise.

    Attributes:
        settings: names of arguments of `average`.
        check: checks the parameters of sums with noise, and their number of parties.
        is_exact: whether sums may have no noise.
        dropout: what `smpc-dp simulate` plans for, as a fraction.
    """

    settings: frozenset[str]
    check: Callable[[Mapping[str, object], int], tuple[SumParameters | None, list[ConfigIssue]]]
    is_exact: bool
    dropout: float


METHODS: Mapping[str, _Method] = MappingProxyType(
    {
        "secagg": _Method(frozenset({"mechanism"}), check_noisy, True, 0.1),
        "gopa": _Method(frozenset({"on_dropout", "topology", "verifiable"}), check_gopa, False, 0.01),
    }
)


def average(  # noqa: PLR0913 - the keys of a session file, and what a simulation has beside them
    values: ArrayLike | Sequence[ArrayLike],
    *,
    lower: Bound | None = None,
    upper: Bound | None = None,
    l2_bound: float | None = None,
    precision: float | None = DEFAULT_PRECISION,
    method: str = "secagg",
    weights: Sequence[int] | None = None,
    kind: str = "average",
    dropout: float = 0.0,
    planned_dropout: float = 0.1,
    corrupt: float = 0.1,
    security: float = 40,
    clip: bool = False,
    threads: int = 1,
    epsilon: float | None = None,
    delta: float | None = None,
    on_dropout: str = "keep",
    topology: str = "relay",
    mechanism: str = "discrete-gaussian",
    verifiable: bool = False,
    board: str | os.PathLike[str] | None = None,
    seed_for_simulation: int | None = None,
    progress: Callable[[str, int], None] | None = None,
    trace: Trace | None = None,
) -> Result:
    """Average (or, with `kind="sum"`, add) the rows of `values` as a session of as many parties would.

    Args:
        values: shape (parties, length), float64, or integers with `precision=None`.
        lower, upper, precision: bounds and step of every coordinate, as in a session file.
        l2_bound: in the place of lower and upper a bound on the norm of a vector, with epsilon and delta.
        method: "secagg", the secure sum, or "gopa", gossip noise.
        weights: one secret non-negative integer for each party, or None.
        dropout: fraction of the parties that are killed, each before a random message of its own.
        planned_dropout, corrupt, security: what the session is planned for; `dropout` above it stops the run.
        threads: threads for the removal of masks.
        epsilon, delta: for differential privacy, as in a session file; needed for gopa.
        on_dropout, topology: of gopa, mechanism: of a secure sum with epsilon and delta; as in a session
            file. Without an aggregator a coordinator is never killed.
        verifiable: of gopa: with commitments, proofs and a log. The default precision is then a coarse grid.
        board: where the log of a verifiable run is written, as JSON lines for `smpc-dp audit`; the session
            log, of this one run, goes beside it: `x.session.jsonl` for `x.jsonl`.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.
        progress: called with each step of the aggregator and the number of parties that it waits for.
        trace: filled with the computing time of each role by step, the bytes of all messages, and who was
            killed; to encode all messages once more takes time.

    Raises:
        ConfigError, PrivacyError: a value or parameter is refused; `threads` is 1 to 256.
        TimeoutFault: too many parties dropped out.
    """
    chosen = _checked_method(method, topology, kind)
    vectors = _rows(values)
    check_size(len(vectors), len(vectors[0]), threads)
    seed_for_simulation = checked_seed(seed_for_simulation)
    _check_fraction("dropout", dropout)
    _check_fraction("planned_dropout", planned_dropout)
    if weights is not None and len(weights) != len(vectors):
        raise ConfigError.at(
            "weights", f"{len(weights)} weights for {len(vectors)} parties", ConfigCheck.SHAPE
        )
    if not 0 <= dropout <= planned_dropout:
        raise ConfigError.at(
            "dropout", f"must be in [0, {planned_dropout}] as planned, is {dropout}", ConfigCheck.RANGE
        )
    if verifiable and "verifiable" not in chosen.settings:
        raise ConfigError.at("verifiable", "is for method 'gopa'", ConfigCheck.UNSUPPORTED)
    if board is not None and not verifiable:
        raise ConfigError.at("board", "is for a verifiable run", ConfigCheck.UNSUPPORTED)
    parameters: Any
    declared: dict[str, object] = {}
    if not chosen.is_exact or not epsilon is delta is l2_bound is None:
        if weights is not None and (verifiable or topology == "direct" or kind == "sum"):
            reason = "with noise are for averages through an aggregator that are not verifiable"
            raise ConfigError.at("weights", reason, ConfigCheck.UNSUPPORTED)
        own: dict[str, object] = {
            "on_dropout": on_dropout,
            "topology": topology,
            "mechanism": mechanism,
            "verifiable": True if verifiable else None,
        }
        given: dict[str, object] = {
            "kind": "integer" if precision is None else "real",
            "precision": precision,
            "epsilon": epsilon,
            "delta": delta,
            "lower": _listed(lower),
            "upper": _listed(upper),
            "l2_bound": l2_bound,
            **{key: value for key, value in own.items() if key in chosen.settings},
            "max_weight": None if weights is None else _largest(weights),
        }
        if verifiable and precision == DEFAULT_PRECISION:
            given["precision"] = None
        given |= {"length": len(vectors[0]), "dropout": planned_dropout}
        given |= {"corrupt": corrupt, "security": security}
        declared = {key: value for key, value in given.items() if value is not None}
        parameters = _noisy_parameters(chosen, declared, len(vectors))
    else:
        parameters = SecAggParameters(
            encoding=Encoding.plan(
                length=len(vectors[0]),
                lower=_listed(lower),
                upper=_listed(upper),
                precision=precision,
                parties=len(vectors),
                max_weight=0 if weights is None else _largest(weights),
            ),
            plan=plan_secagg(len(vectors), dropout=planned_dropout, corrupt=corrupt, security=security),
        )
    if topology == "direct":
        return run_direct(
            parameters,
            vectors,
            kind,
            dropout=dropout,
            clip=clip,
            seed_for_simulation=seed_for_simulation,
            progress=progress,
            trace=trace,
        )
    roles, clipped = sum_roles(
        parameters,
        vectors,
        weights=weights,
        clip=clip,
        threads=threads,
        seed_for_simulation=seed_for_simulation,
        declared=declared,
    )
    kills = draw_kills(roles.context.names, dropout, seed_for_simulation, len(parameters.party_steps))
    network, make = traced(trace, Faults(kill=kills), seed_for_simulation or 0)
    errors = drive(roles.machines, network, AGGREGATOR, progress, make=make)
    if board is not None and roles.board is not None:
        _write_logs(Path(board), roles.board, roles.context)
    _raise_first(errors)
    outcome = roles.aggregator.result
    return Result.of(outcome, kind, clipped, distributions=parameters.noise_distributions)


def check_size(parties: int, length: int, threads: int) -> None:
    """Raise ConfigError for a simulation that is too large, before anything of that size is made."""
    issues = Issues()
    for name, number, low, high in (
        ("parties", parties, 3, MAX_PARTIES),
        ("length", length, 1, MAX_LENGTH),
        ("threads", threads, 1, MAX_THREADS),
    ):
        if isinstance(number, bool) or not isinstance(number, Integral) or not low <= number <= high:
            issues.add_issue(
                name, f"must be an integer from {low} to {high}, is {shown(number)}", ConfigCheck.RANGE
            )
    if not issues and parties * length > MAX_VALUES:
        issues.add_issue(
            "length",
            f"{parties} parties times {length} is more than {MAX_VALUES} values",
            ConfigCheck.TOO_LARGE,
        )
    issues.raise_issues()


def _checked_method(method: str, topology: str, kind: str) -> _Method:
    """Return the method; raise ConfigError unless method, topology and kind are known and fit each other."""
    if method not in METHODS:
        raise ConfigError.at("method", f"unknown: {method!r} (known: 'secagg', 'gopa')", ConfigCheck.CHOICE)
    if topology != "relay" and "topology" not in METHODS[method].settings:
        raise ConfigError.at(
            "topology", "is for gopa: a secure sum has an aggregator", ConfigCheck.UNSUPPORTED
        )
    if kind not in ("average", "sum"):
        raise ConfigError.at("kind", f"must be 'average' or 'sum', is {kind!r}", ConfigCheck.CHOICE)
    return METHODS[method]


def _check_fraction(name: str, number: float) -> None:
    """Raise ConfigError unless the number is a fraction from 0 to 1."""
    if isinstance(number, bool) or not isinstance(number, Real):
        raise ConfigError.at(name, f"must be a number, is {shown(number)}", ConfigCheck.TYPE)
    if not 0 <= number < 1:
        raise ConfigError.at(name, f"must be in [0, 1), is {number}", ConfigCheck.RANGE)


def _noisy_parameters(method: _Method, declared: Mapping[str, object], parties: int) -> SumParameters:
    """Return the parameters of a differentially private sum; raise ConfigError with all their faults."""
    checked, issues = method.check(declared, parties)
    if checked is None:
        raise ConfigError(issues)
    return checked


def _write_logs(path: Path, board: MemoryBoard, context: Context) -> None:
    """Write the log of a run, and the session log that lists it."""
    write_file(path, board.export(), "the log")
    session_log = board.runs(context.session_digest, context.scope)
    write_file(path.with_suffix(SESSION_LOG_SUFFIX), session_log.export(), "the session log")


def _largest(weights: Sequence[int]) -> int:
    """Return the largest weight, at least 1, for which the encoding is made."""
    for index, weight in enumerate(weights):
        if isinstance(weight, bool) or not isinstance(weight, Integral):
            raise ConfigError.at(
                f"weights[{index}]", f"must be an integer, is {shown(weight)}", ConfigCheck.TYPE
            )
    return max(1, *map(int, weights))


def _listed(bound: Bound | None) -> Bound | None:
    """Return bounds of each coordinate as the list that a session file has; raise PrivacyError if masked."""
    refuse_masked("bounds", bound)
    return bound if bound is None or np.ndim(bound) == 0 else list(np.asarray(bound).tolist())


def _rows(values: ArrayLike | Sequence[ArrayLike]) -> Sequence[NDArray[np.generic]]:
    """Return values as rows; raise ConfigError unless they have the shape (parties, length)."""
    array = vector_of(values, "values")
    if array.ndim != 2 or 0 in array.shape:
        raise ConfigError.at(
            "values", f"shape must be (parties, length), is {array.shape}", ConfigCheck.SHAPE
        )
    return list(array)


def _raise_first(errors: Mapping[str, SmpcError]) -> None:
    """Raise the aggregator's error if there is one, since it explains the others; else the first error."""
    if AGGREGATOR in errors:
        raise errors[AGGREGATOR]
