"""States and steps of secure aggregation and GOPA: tables, purity, linearity, and what is forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from smpc_dp.capabilities.gopa import states as gopa
from smpc_dp.engine.events import Cancellation, Deadline, Event, Message, PeersLost, Start
from smpc_dp.engine.party import PartyRole, Stopped
from smpc_dp.engine.phases import key_graph
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.run import Run
from smpc_dp.errors import LocalError, TimeoutFault
from smpc_dp.secagg import states as secagg
from smpc_dp.wire.envelope import Envelope
from smpc_dp_lab.vectors import gopa_runs, runs

SCENARIOS = [*runs.SCENARIOS, *gopa_runs.SCENARIOS]


def steps(scenario: runs.Scenario) -> Iterator[tuple[Run[Any], Any, Event, Any, tuple[Envelope, ...]]]:
    """Play a run without losses, and yield each step: the run, state, event, next state and what was sent."""
    new_run = runs.new_run(scenario)
    machines: Mapping[str, Run[Any]] = {**new_run.parties, runs.AGGREGATOR: new_run.aggregator}
    queue: deque[tuple[str, Event]] = deque((name, Start()) for name in machines)
    while queue:
        name, event = queue.popleft()
        run = machines[name]
        before = run.state
        sent = tuple(run.handle(event))
        queue.extend((envelope.receiver, Message(envelope)) for envelope in sent)
        yield run, before, event, run.state, sent


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_step_is_in_the_table(scenario: runs.Scenario) -> None:
    ended = 0
    for run, before, event, after, sent in steps(scenario):
        reported = {envelope.step for envelope in sent}
        if isinstance(event, Start):
            first = run.role.first if isinstance(run.role, PartyRole) else run.role.rows[0].state
            assert type(before) is first
        elif type(after) is type(before):
            assert not sent
        else:
            row = run.role.row(before)
            assert row is not None
            assert type(after) in row.next
            assert reported == set(row.sends)
            ended += after.over
    assert ended == len(scenario.names) + 1


@pytest.mark.parametrize(
    "scenario", [SCENARIOS[0], gopa_runs.SCENARIOS[0]], ids=lambda scenario: scenario.name
)
def test_a_step_of_a_party_changes_nothing_in_the_state_before(scenario: runs.Scenario) -> None:
    """The same step from the same state, with the same random bytes, gives the same messages."""
    for run, before, event, after, sent in steps(scenario):
        if isinstance(run.role, PartyRole) and isinstance(event, Message) and not needs_randomness(before):
            again = run.role.step(run.member, before, event)
            assert tuple(again.messages) == sent
            assert type(again.state) is type(after)


def needs_randomness(state: object) -> bool:
    """Tell whether a state's step draws random bytes, which the source of a vector gives only once."""
    drawing = (key_graph.Ready, key_graph.AwaitStart, key_graph.AwaitNeighbours, gopa.AwaitParticipants)
    return isinstance(state, drawing)


def test_a_second_step_from_one_state_is_refused() -> None:
    new_run = runs.new_run(runs.SCENARIOS[0])
    party = new_run.parties[runs.SCENARIOS[0].names[0]]
    first = party.state
    party.handle(Start())
    with pytest.raises(LocalError, match="a second step from one state"):
        party.step_from(first, Start())
    [hello] = new_run.parties[runs.SCENARIOS[0].names[1]].handle(Start())
    collecting = new_run.aggregator.state
    new_run.aggregator.handle(Message(hello))
    role, member = new_run.aggregator.role, new_run.aggregator.member
    with pytest.raises(LocalError, match="a second step from one state of 'hello'"):
        role.step(member, collecting, Message(hello))


def test_what_must_be_forgotten_is_in_no_later_state() -> None:
    """By the bytes of the secrets, in all fields of all states of a party."""
    secrets: dict[str, tuple[bytes, type]] = {}
    name = runs.SCENARIOS[0].names[0]
    seen: list[Any] = []
    for run, _before, _event, after, _sent in steps(runs.SCENARIOS[0]):
        if run.name == name:
            seen.append(after)
            if isinstance(after, secagg.AwaitDelivery):
                secrets["sealing"] = (after.sealing.secret, secagg.AwaitParticipants)
                secrets["masking"] = (after.graph.mask_secret, secagg.AwaitSurvivors)
                secrets["self-mask"] = (after.self_seed, secagg.AwaitSurvivors)
            if isinstance(after, secagg.AwaitParticipants):
                share = next(iter(after.delivered.held.values()))
                secrets["share"] = (share.mask_share, secagg.AwaitResult)
    assert len(secrets) == 4
    for secret, gone in secrets.values():
        first = next(position for position, state in enumerate(seen) if isinstance(state, gone))
        assert secret in contents(seen[first - 1])
        assert not any(secret in contents(state) for state in seen[first:])


def contents(value: Any) -> bytes:
    """Return all bytes in a value, one after the other."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, msgspec.Struct):
        return b"".join(contents(getattr(value, field)) for field in value.__struct_fields__)
    if isinstance(value, Mapping):
        return b"".join(contents(part) for pair in value.items() for part in pair)
    if isinstance(value, tuple | list):
        return b"".join(map(contents, value))
    return value.tobytes() if hasattr(value, "tobytes") else b""


def test_states_do_not_show_their_fields() -> None:
    for run, before, _event, after, _sent in steps(runs.SCENARIOS[0]):
        for state in (before, after, run):
            assert len(repr(state)) < 100


def test_an_error_ends_a_run_with_one_leave() -> None:
    party = runs.new_run(runs.SCENARIOS[0]).parties[runs.SCENARIOS[0].names[0]]
    party.handle(Start())
    assert party.handle(PeersLost(("nobody",))) == ()
    with pytest.raises(TimeoutFault) as caught:
        party.handle(Deadline())
    assert party.finished
    assert party.handle(Deadline()) == ()
    [leave] = party.handle(Cancellation(caught.value))
    assert leave.step == "leave"
    assert isinstance(party.state, Stopped)
    assert not hasattr(party.state, "vector")
    assert party.handle(Cancellation(caught.value)) == ()
    with pytest.raises(LocalError, match="has no result"):
        _ = party.result


def test_a_party_that_has_opened_its_shares_does_not_leave() -> None:
    name = runs.SCENARIOS[0].names[0]
    for run, _before, _event, after, sent in steps(runs.SCENARIOS[0]):
        if run.name == name and isinstance(after, secagg.AwaitResult):
            assert [envelope.step for envelope in sent] == [m.UNMASK]
            assert run.handle(Cancellation(LocalError("over"))) == ()
            return
    pytest.fail("no party came so far")
