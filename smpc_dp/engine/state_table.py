"""The table of a role's states, as the specifications show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from smpc_dp.engine.collector import CollectorRole, CollectorRow
from smpc_dp.engine.party import PartyRole, Row
from smpc_dp.engine.peers import PeerRole, Phase


class Line(NamedTuple):
    """Line of a protocol's documented state table: state, event, next states, and steps sent.

    `ends`: the possibilities that end with it.
    """

    state: str
    event: str
    next: tuple[str, ...]
    sends: tuple[str, ...]
    ends: str


def table(role: PartyRole | CollectorRole | PeerRole) -> tuple[Line, ...]:
    """Return the lines of a role's documented state table, in the order of a run.

    Besides, an error or a cancellation leads from every state to `Stopped`: a party sends `leave`, a
    collecting role `abort` to all parties. A collecting role stays in its state on the message, the loss or
    the conviction of one party, and on messages beside its step; so does a peer.
    """
    if isinstance(role, PartyRole):
        rows = [line for row in role.rows for line in _lines(role, row)]
        return (_first(role, rows[0]), *rows)
    if isinstance(role, PeerRole):
        phases = [_line(phase, f"`{phase.state.expects}` of {phase.wait.of}") for phase in role.phases]
        return (_first(role, phases[0]), *phases)
    return tuple(
        _line(collected, f"`{collected.state.expects}` of all {collected.state.awaits} that are left")
        for collected in role.rows
    )


def _first(role: PartyRole | PeerRole, begun: Line) -> Line:
    """Return the line of the state table for the beginning of a run."""
    return Line(role.first.__name__, "the run begins", (begun.state,), (role.hello,), "")


def _lines(role: PartyRole, row: Row) -> Iterator[Line]:
    """Yield the documentation lines of a table's row: for its message, and for finished work."""
    yield _line(row, f"`{row.instead or row.state.expects}` of the aggregator")
    for report in role.reports:
        if report.state is row.state and not row.instead:
            yield _line(report, "the holder's report")


def _line(row: Row | CollectorRow | Phase, event: str) -> Line:
    """Return the documentation line for one row of a role's state table and one event."""
    return Line(row.state.__name__, event, tuple(after.__name__ for after in row.next), row.sends, row.ends)
