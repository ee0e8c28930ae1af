"""`simulate.average`: a whole session of one average in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.encoding import MAX_LENGTH, shown
from smpc_dp.engine.phases.parameters import MAX_PARTIES
from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigCheck, ConfigError, Issues
from smpc_dp.files import write_file
from smpc_dp.report.trace import Trace
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import (
    Simulated,
    SimulatedSession,
    refuse_derived,
    run_members,
    simulated_session,
)
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import draw_kills
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.values import refuse_masked, vector_of

# The protocols whose sums are simulated here.
METHODS = ("secagg", "gopa")
# Keys of one method. Another method accepts them with these values and ignores them.
OPTIONAL = {"topology": "relay", "on_dropout": "keep", "verifiable": False, "mechanism": "discrete-gaussian"}
# All parties ask at once: one that has not asked was killed, and waiting for it is useless.
AT_ONCE = Timeouts(connect=1.0, step=1.0, gather=1.0)
MAX_THREADS = 256
DEFAULT_PRECISION = 1e-6
SESSION_LOG_SUFFIX = ".session.jsonl"
# Eight gigabytes of input.
MAX_VALUES = 1 << 30


def average(
    values: ArrayLike | Sequence[ArrayLike],
    *,
    method: str = "secagg",
    weights: Sequence[int] | None = None,
    kind: Literal["average", "sum"] = "average",
    clip: bool = False,
    dropout: float = 0.0,
    planned_dropout: float = 0.1,
    threads: int = 1,
    board: str | os.PathLike[str] | None = None,
    seed_for_simulation: int | None = None,
    progress: Callable[[str, int], None] | None = None,
    trace: Trace | None = None,
    **parameters: Any,
) -> Result:
    """Simulate a secure average or sum in one process, each row a party's vector; return the result.

    This process holds all vectors and keys: the claim holds for a session between hosts, and not here.

    Args:
        values: shape (parties, length), float64, or integers with `precision=None`.
        method: the protocol, "secagg", the secure sum, or "gopa", gossip noise.
        weights: one secret non-negative integer for each party, or None.
        clip: as of `Session.average`.
        dropout: fraction of the parties that are killed, each before a random message of its own. Without an
            aggregator a coordinator is never killed.
        planned_dropout: what the session is planned for, its key `dropout`; `dropout` above it stops the run.
        threads: threads for the removal of masks.
        board: where the log of a verifiable run is written, as JSON lines for `smpc-dp audit`; the session
            log, of this one run, goes beside it: `x.session.jsonl` for `x.jsonl`.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.
        progress: called with each step of the aggregator and the number of parties that it waits for.
        trace: filled with the computing time of each role by step, the bytes of all messages, and who was
            killed.
        parameters: other keys of the session's `[parameters]`: lower and upper or l2_bound, precision (1e-6
            if it is not given, a coarse grid for a verifiable run; None for integers), epsilon, delta, ...

    Raises:
        ConfigError, PrivacyError: a value or parameter is refused; `threads` is 1 to 256.
        TimeoutFault: too many parties dropped out.
    """
    if method not in METHODS:
        known = ", ".join(map(repr, METHODS))
        raise ConfigError.at("method", f"unknown: {shown(method)} (known: {known})", ConfigCheck.CHOICE)
    vectors = _rows(values)
    check_size(len(vectors), len(vectors[0]), threads)
    _check_fraction("dropout", dropout)
    _check_fraction("planned_dropout", planned_dropout)
    if not 0 <= dropout <= planned_dropout:
        reason = f"must be in [0, {planned_dropout}] as planned, is {dropout}"
        raise ConfigError.at("dropout", reason, ConfigCheck.RANGE)
    if kind not in ("average", "sum"):
        raise ConfigError.at("kind", f"must be 'average' or 'sum', is {kind!r}", ConfigCheck.CHOICE)
    if weights is not None and len(weights) != len(vectors):
        reason = f"{len(weights)} weights for {len(vectors)} parties"
        raise ConfigError.at("weights", reason, ConfigCheck.SHAPE)
    if board is not None and not parameters.get("verifiable"):
        raise ConfigError.at("board", "is for a verifiable run", ConfigCheck.UNSUPPORTED)
    declared = _declared(parameters, weights) | {"length": len(vectors[0]), "dropout": planned_dropout}
    simulated = simulated_session(
        method,
        declared,
        len(vectors),
        seed_for_simulation=seed_for_simulation,
        shared=_observed(threads, trace),
        timeouts=AT_ONCE,
        renamed={"roster": "values", "dropout": "planned_dropout"}
        | ({} if weights is None or "max_weight" in parameters else {"max_weight": "weights"}),
    )
    planned: Any = simulated.session.checked_parameters
    if kind not in planned.operations:
        reason = "with noise are for averages, and not for sums"
        raise ConfigError.at("weights", reason, ConfigCheck.UNSUPPORTED)
    encoded = {
        name: planned.encoding.encode(
            vectors[index], party=name, weight=None if weights is None else weights[index], clip=clip
        )
        for index, name in enumerate(simulated.parties)
    }
    leader, simulated.shared.connections.kill = _draw_kills(simulated, dropout, seed_for_simulation)
    shared: dict[str, Result] = {}

    async def take_part(session: Session) -> Result:
        result = await session.sum_encoded(kind, *encoded[session.party])
        # Each has the names of all parties: ten thousand of them would fill the memory.
        return result if session.party == leader else shared.setdefault(kind, result)

    async def run(folder: Path) -> Simulated[Result]:
        watcher = ignore if progress is None else _steps_of(leader, progress)
        return await run_members(simulated, take_part, folder=folder, on_event=watcher)

    with TemporaryDirectory(prefix="smpc-dp-") as made:
        folder = Path(made)
        ended = run_simulation(lambda: run(folder))
        if board is not None:
            _copy_logs(folder / "board", Path(board))
    result, clipped = ended.result(leader), sum(count for _, count in encoded.values())
    # What the aggregator has, and no single party.
    served = result if ended.served is None else ended.served[0]
    return replace(result, evidence=served.evidence, faults=served.faults, clipped=clipped)


def _declared(parameters: Mapping[str, Any], weights: Sequence[int] | None) -> dict[str, object]:
    """Return session parameters from keyword arguments, as in a session file; ConfigError for `length`."""
    refuse_derived(parameters, {"length"})
    declared = {
        key: value for key, value in parameters.items() if key not in OPTIONAL or value != OPTIONAL[key]
    }
    for key in ("lower", "upper", "l2_bound"):
        refuse_masked("bounds", bound := parameters.get(key))
        if bound is not None and np.ndim(bound):
            declared[key] = np.asarray(bound).tolist()
    if parameters.get("precision", 0) is None:
        declared["kind"] = "integer"
    elif "precision" not in parameters and not parameters.get("verifiable"):
        declared["precision"] = DEFAULT_PRECISION
    if weights is not None:
        declared.setdefault("max_weight", _largest(weights))
    return declared


def _observed(threads: int, trace: Trace | None) -> OneProcess:
    """Return the connections shared by simulated members, which record a trace if one is given."""
    if trace is None:
        return OneProcess(MemoryConnections(), threads=threads)
    trace.unit = "seconds of computing in one process, waiting not included"
    connections = MemoryConnections(
        on_message=lambda envelope, size: trace.count(envelope.sender, envelope.receiver, size),
        on_kill=lambda envelope: trace.lose(
            f"{envelope.sender}: killed before it sent '{envelope.step}'", "the simulation", envelope.step
        ),
    )
    return OneProcess(connections, threads=threads, on_seconds=trace.spend)


def _draw_kills(
    simulated: SimulatedSession, dropout: float, seed: int | None
) -> tuple[str, Mapping[str, int]]:
    """Return the aggregator's or coordinator's name, and by killed party the message before which it dies."""
    names, planned = simulated.parties, cast("Any", simulated.session.checked_parameters)
    steps = len(planned.party_steps)
    aggregator = simulated.session.roster.aggregator
    if aggregator is not None:
        return aggregator.name, draw_kills(names, dropout, seed, steps)
    from smpc_dp.capabilities.gopa.direct_evidence import coordinator_of

    coordinator = names[coordinator_of(1, len(names)) - 1]
    others = [name for name in names if name != coordinator]
    # A message to all is one message to each: a party dies before its step, or in the middle of it.
    messages = len(others) * (steps - 2)
    return coordinator, draw_kills(others, dropout * len(names) / len(others), seed, messages)


def _steps_of(watched: str, progress: Callable[[str, int], None]) -> OnEvent:
    """Return an event handler that calls `progress` once for each step of a member's first request."""
    shown = ""

    def watch(event: Event) -> None:
        nonlocal shown
        # An aggregator is then ready for another request.
        first = event.party == watched and event.request == 1
        if first and event.kind in ("step", "done") and event.step != shown:
            shown = event.step
            progress(event.step, event.waiting)

    return watch


def _copy_logs(folder: Path, path: Path) -> None:
    """Copy a run's log, and the session log that lists the run, from the aggregator's folder to `path`."""
    # None of both where the run stopped before it had a log.
    for log in folder.glob("request-*.jsonl"):
        write_file(path, log.read_bytes(), "the log")
    for session_log in folder.glob("session-*.jsonl"):
        write_file(path.with_suffix(SESSION_LOG_SUFFIX), session_log.read_bytes(), "the session log")


def check_size(parties: int, length: int, threads: int) -> None:
    """Raise ConfigError unless parties, length and threads are in range and the values fit in memory."""
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


def _check_fraction(name: str, number: float) -> None:
    """Raise ConfigError unless the named number is in [0, 1)."""
    if isinstance(number, bool) or not isinstance(number, Real):
        raise ConfigError.at(name, f"must be a number, is {shown(number)}", ConfigCheck.TYPE)
    if not 0 <= number < 1:
        raise ConfigError.at(name, f"must be in [0, 1), is {number}", ConfigCheck.RANGE)


def _largest(weights: Sequence[int]) -> int:
    """Return the largest weight, at least 1, which the encoding must hold; ConfigError for a non-integer."""
    for index, weight in enumerate(weights):
        if isinstance(weight, bool) or not isinstance(weight, Integral):
            raise ConfigError.at(
                f"weights[{index}]", f"must be an integer, is {shown(weight)}", ConfigCheck.TYPE
            )
    return max(1, *map(int, weights))


def _rows(values: ArrayLike | Sequence[ArrayLike]) -> Sequence[NDArray[np.generic]]:
    """Return the parties' vectors as rows; raise ConfigError unless the shape is (parties, length)."""
    array = vector_of(values, "values")
    if array.ndim != 2 or 0 in array.shape:
        raise ConfigError.at(
            "values", f"shape must be (parties, length), is {array.shape}", ConfigCheck.SHAPE
        )
    return list(array)
