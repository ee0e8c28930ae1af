"""GOPA without a relay: processes that call again or start again are honest, and nobody calls them liars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_states import party
from smpc_dp.engine.events import Message, PeersLost, Start
from smpc_dp.engine.phases import messages as m
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from tests.faults.gopa_direct_simulated import DirectRow

COORDINATOR, AGAIN = "p1", "p3"


def hello_of_another_process(simulated: DirectRow, name: str) -> Sequence[Envelope]:
    """Return what another process of this party says: the same question, with another nonce."""
    ring_vector, _ = simulated.encoding.encode(simulated.vectors[0], party=name)
    randomness = SeededRandomnessForSimulation(9, name)
    process = party(simulated.context, simulated.parameters, simulated.signers[name], ring_vector, randomness)
    return process.handle(Start())


@pytest.mark.parametrize("name", [AGAIN, COORDINATOR])
def test_who_starts_again_before_the_run_takes_part(name: str) -> None:
    simulated = DirectRow()
    for envelope in hello_of_another_process(simulated, name):
        simulated.parties[envelope.receiver].handle(Message(envelope))
    simulated.execute()
    simulated.assert_published(*simulated.names)
    assert all(outcome.faults == () for outcome in simulated.outcomes().values())


def test_who_calls_again_before_the_run_takes_part() -> None:
    simulated = DirectRow()
    coordinator = simulated.parties[COORDINATOR]
    coordinator.handle(Start())
    sent: Sequence[Envelope] = ()
    for name in (AGAIN, *(name for name in simulated.names if name not in (AGAIN, COORDINATOR))):
        hellos = simulated.parties[name].handle(Start())
        [hello] = [envelope for envelope in hellos if envelope.receiver == COORDINATOR]
        sent = coordinator.handle(Message(hello))
        if name == AGAIN:
            coordinator.handle(PeersLost((AGAIN,)))
            assert coordinator.handle(Message(hello)) == []
    [start] = {envelope.body for envelope in sent if envelope.step == d.START}
    present = simulated.read(next(envelope for envelope in sent if envelope.body == start)).present
    assert list(PartySet.unpack(present, len(simulated.names), COORDINATOR)) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("name", [AGAIN, COORDINATOR])
def test_who_starts_again_in_the_run_is_lost_and_no_liar(name: str) -> None:
    simulated = DirectRow()
    hello = {envelope.receiver: envelope for envelope in hello_of_another_process(simulated, name)}

    def restart(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.sender != name or envelope.step in (m.HELLO, d.START):
            return (envelope,)
        again = hello.pop(envelope.receiver, None)
        return () if again is None else (again,)

    simulated.execute(restart)
    if name == COORDINATOR:
        for other in simulated.names[1:]:
            simulated.assert_missing(other, COORDINATOR)
        return
    simulated.assert_published(*(other for other in simulated.names if other != name))
    for outcome in simulated.outcomes().values():
        assert f"{name}: started again after the run had begun" in outcome.faults
        assert not any("two different" in fault for fault in outcome.faults)
