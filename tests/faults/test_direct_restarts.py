"""GOPA without a relay: processes that call again or start again are honest, and nobody calls them liars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.events import Message, PeersLost, Start
from smpc_dp.protocols.gopa import direct_messages as d
from smpc_dp.protocols.gopa.direct_states import party
from smpc_dp.protocols.phases import messages as m
from smpc_dp.protocols.sets import PartySet
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation
from tests.faults.direct_stage import DirectStage

COORDINATOR, AGAIN = "p1", "p3"


def hello_of_another_process(stage: DirectStage, name: str) -> Sequence[Envelope]:
    """Return what another process of this user says: the same question, with another nonce."""
    lanes, _ = stage.encoding.encode(stage.vectors[0], party=name)
    randomness = SeededRandomnessForSimulation(9, name)
    process = party(stage.context, stage.parameters, stage.signers[name], lanes, randomness)
    return process.handle(Start())


@pytest.mark.parametrize("name", [AGAIN, COORDINATOR])
def test_who_starts_again_before_the_run_takes_part(name: str) -> None:
    stage = DirectStage()
    for envelope in hello_of_another_process(stage, name):
        stage.users[envelope.receiver].handle(Message(envelope))
    stage.play()
    stage.assert_published(*stage.names)
    assert all(outcome.faults == () for outcome in stage.outcomes().values())


def test_who_calls_again_before_the_run_takes_part() -> None:
    stage = DirectStage()
    coordinator = stage.users[COORDINATOR]
    coordinator.handle(Start())
    sent: Sequence[Envelope] = ()
    for name in (AGAIN, *(name for name in stage.names if name not in (AGAIN, COORDINATOR))):
        hellos = stage.users[name].handle(Start())
        [hello] = [envelope for envelope in hellos if envelope.receiver == COORDINATOR]
        sent = coordinator.handle(Message(hello))
        if name == AGAIN:
            coordinator.handle(PeersLost((AGAIN,)))
            assert coordinator.handle(Message(hello)) == []
    [start] = {envelope.body for envelope in sent if envelope.step == d.START}
    present = stage.read(next(envelope for envelope in sent if envelope.body == start)).present
    assert list(PartySet.unpack(present, len(stage.names), COORDINATOR)) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("name", [AGAIN, COORDINATOR])
def test_who_starts_again_in_the_run_is_lost_and_no_liar(name: str) -> None:
    stage = DirectStage()
    hello = {envelope.receiver: envelope for envelope in hello_of_another_process(stage, name)}

    def restart(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.sender != name or envelope.step in (m.HELLO, d.START):
            return (envelope,)
        again = hello.pop(envelope.receiver, None)
        return () if again is None else (again,)

    stage.play(restart)
    if name == COORDINATOR:
        for other in stage.names[1:]:
            stage.assert_missing(other, COORDINATOR)
        return
    stage.assert_published(*(other for other in stage.names if other != name))
    for outcome in stage.outcomes().values():
        assert f"{name}: started again after the run had begun" in outcome.faults
        assert not any("two different" in fault for fault in outcome.faults)
