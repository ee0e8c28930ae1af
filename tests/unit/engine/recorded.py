"""Every step of every role in a run, and whether it is in the role's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest

from smpc_dp.engine.events import Event, Report, Start
from smpc_dp.engine.party import PartyRole
from smpc_dp.engine.run import Run
from smpc_dp.wire.abort import ABORT, LEAVE
from smpc_dp.wire.envelope import Envelope


class Step(NamedTuple):
    """One step: `sent` on the way from the state `before` to the state `after`."""

    run: Run[Any]
    before: Any
    event: Event
    after: Any
    sent: Sequence[Envelope]


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Return a list that grows with every step that is taken from now on and raises nothing."""
    steps: list[Step] = []
    handle = Run.handle

    def record(run: Run[Any], event: Event) -> Sequence[Envelope]:
        before = run.state
        sent = handle(run, event)
        steps.append(Step(run, before, event, run.state, sent))
        return sent

    monkeypatch.setattr(Run, "handle", record)
    return steps


def assert_in_table(steps: Iterable[Step], beside: frozenset[str] = frozenset()) -> int:
    """Assert that each step is in the table of its role; return how many roles came to an end.

    `beside`: steps of messages that leave a role in its state.
    """
    ended = 0
    for run, before, event, after, sent in steps:
        reported = {envelope.step for envelope in sent} - {ABORT, LEAVE} - beside
        if isinstance(event, Start):
            first = run.role.first if isinstance(run.role, PartyRole) else run.role.rows[0].state
            assert type(before) is first
            assert reported == ({run.role.hello} if isinstance(run.role, PartyRole) else set())
            continue
        if after.run_id == before.run_id and type(after) is type(before):
            assert not reported
            continue
        if isinstance(run.role, PartyRole):
            table = run.role.reports if isinstance(event, Report) else run.role.rows
        else:
            table = run.role.rows
        rows = [row for row in table if row.state is type(before) and type(after) in row.next]
        assert rows, (type(before), event, type(after))
        assert any(reported <= set(row.sends) and bool(reported) == bool(row.sends) for row in rows)
        ended += after.over
    return ended
