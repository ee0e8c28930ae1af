"""The table of GOPA without an aggregator: what runs do is in it, and what is forgotten stays forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_agreement import AwaitStart, CertifyParticipants, Ready
from smpc_dp.capabilities.gopa.direct_publication import Finished
from smpc_dp.capabilities.gopa.direct_states import COORDINATOR, PARTY
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.engine.events import Cancellation, Deadline, Event, Start
from smpc_dp.engine.peers import Peer, PeerRole, PeerState
from smpc_dp.engine.state import State, Transition
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.wire.abort import ABORT, LEAVE
from tests.faults.gopa_direct_simulated import DirectRow

SECRETS = {"vector", "drawn", "advertised", "graph"}


def acts(role: PeerRole, seen: list[tuple[type[State], Transition]]) -> PeerRole:
    """Return the role that writes down what each of its states does."""

    def watched(phase_number: int) -> PeerRole:
        phase = role.phases[phase_number]

        def act(peer: Peer[Any], state: PeerState[Any]) -> Transition:
            answer = phase.act(peer, state)
            seen.append((phase.state, answer))
            return answer

        phases = [*role.phases]
        phases[phase_number] = replace(phase, act=act)
        return replace(role, phases=tuple(phases))

    for phase_number in range(len(role.phases)):
        role = watched(phase_number)
    return role


def later(role: PeerRole, first: type[State]) -> Iterator[type[State]]:
    """Return the states that may follow a state, at once or later."""
    for phase in role.phases:
        if phase.state is first:
            for state in phase.next:
                yield state
                yield from later(role, state)


@pytest.mark.parametrize("name", ["p1", "p2"])
def test_a_run_goes_as_the_table_says(name: str) -> None:
    row, seen = DirectRow(), list[tuple[type[State], Transition]]()
    run = row.parties[name]
    role = COORDINATOR if name == "p1" else PARTY
    assert run.role is role
    run.role = acts(role, seen)
    row.execute()
    row.assert_published(*row.names)
    assert [state for state, _ in seen] == [phase.state for phase in role.phases]
    for phase, (_, answer) in zip(role.phases, seen, strict=True):
        assert type(answer.state) in phase.next
        sent = {envelope.step for envelope in answer.messages} - {d.WITNESS, ABORT}
        assert sent | {d.FORWARD} == {*phase.sends, d.FORWARD}
    assert [phase.state.phase for phase in role.phases] == sorted(phase.state.phase for phase in role.phases)


@pytest.mark.parametrize("role", [PARTY, COORDINATOR])
def test_secrets_are_forgotten_when_a_vector_is_published(role: PeerRole) -> None:
    [releases] = [phase.state for phase in role.phases if phase.state.releases]
    assert releases is CertifyParticipants
    behind = set(later(role, releases))
    assert Finished in behind
    for state in behind:
        assert not SECRETS & set(state.__struct_fields__), state
    assert "inbox" not in Finished.__struct_fields__


def test_only_the_newest_state_takes_a_step() -> None:
    row = DirectRow()
    run = row.parties["p2"]
    ready = run.state
    assert isinstance(ready, Ready)
    run.handle(Start())
    assert isinstance(run.state, AwaitStart)
    with pytest.raises(LocalError, match="a second step from one state"):
        run.role.step(run.member, ready, Deadline())
    with pytest.raises(LocalError, match="step 'hello' was sent before"):
        run.handle(Start())


def test_who_has_left_says_nothing_more() -> None:
    row = DirectRow()
    run = row.parties["p2"]
    sent = run.handle(Cancellation(ConfigError("no input", ConfigCheck.MISSING)))
    assert {(envelope.step, envelope.receiver) for envelope in sent} == {
        (LEAVE, name) for name in row.names if name != "p2"
    }
    events: list[Event] = [Start(), Deadline(), Cancellation(ConfigError("no input", ConfigCheck.MISSING))]
    assert [[*run.handle(event)] for event in events] == [[], [], []]


def test_a_result_stays_after_a_cancellation() -> None:
    row = DirectRow().execute()
    run = row.parties["p2"]
    assert not run.handle(Cancellation(ConfigError("later", ConfigCheck.MISSING)))
    assert run.result is row.parties["p2"].result
    assert any(envelope.step == PUBLISH for envelope in row.sent)
