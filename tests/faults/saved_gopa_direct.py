"""A party of GOPA without an aggregator that dies, forks and is set back; the others are in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_states import COORDINATOR, PARTY, party
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.events import Message, PeersLost, Start
from smpc_dp.engine.peers import PeerRole
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.run import Run
from smpc_dp.engine.saved import SavedRun
from smpc_dp.engine.state import State
from smpc_dp.wire.abort import LEAVE
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import encode_envelope
from tests.faults.gopa_direct_simulated import DirectRow

LOST = "p4"
# What a party says, in order, to all or to the coordinator, and what it is told then.
REPORTED: dict[str, tuple[str, ...]] = {
    m.HELLO: (m.HELLO, d.START),
    m.ADVERTISE: (m.ADVERTISE, d.MERKLE_COMMITMENT),
    m.REVEAL: (m.REVEAL, d.PARTICIPANTS),
    m.ATTEST_PARTICIPANTS: (m.ATTEST_PARTICIPANTS,),
    PUBLISH: (PUBLISH, d.HELD),
    d.HELD: (d.FORWARD, d.PUBLISHED),
    d.ATTEST_TOTAL: (d.ATTEST_TOTAL,),
}


class Others:
    """All parties but one; copied before each answer, which can so be given again."""

    def __init__(
        self, runs: Sequence[Run[Any]], claimed: Sequence[Envelope], held: Sequence[Envelope] = ()
    ) -> None:
        self.runs = {run.name: run for run in runs}
        self._claimed = claimed
        # What the party is told later: so that no answer leads over two steps.
        self._held = held

    def copy(self) -> Others:
        """Return others that go on by themselves."""
        runs = []
        for run in self.runs.values():
            codec = Codec.of_peer(run.role)
            runs.append(Run[Any](run.role, run.member, codec.decode(codec.encode(run.state))[0]))
        return Others(runs, self._claimed, self._held)

    def answer(self, sent: Sequence[Envelope], step: str, *, loses: bool) -> list[Envelope | PeersLost]:
        """Return what the party gets after it has sent this step; `loses`: a party is lost before."""
        queue, mine = deque([*self._claimed, *sent]), [*self._held]
        self._claimed = ()
        if loses:
            for name in self.runs.keys() - {LOST}:
                queue.extend(self.runs[name].handle(PeersLost((LOST,))))
        while queue:
            claimed = queue.popleft()
            if loses and LOST in (claimed.sender, claimed.receiver):
                continue
            if claimed.receiver in self.runs:
                queue.extend(self.runs[claimed.receiver].handle(Message(claimed)))
            else:
                mine.append(claimed)
        self._held = [claimed for claimed in mine if claimed.step not in REPORTED[step]]
        reported = [claimed for claimed in mine if claimed.step in REPORTED[step]]
        return [PeersLost((LOST,)), *reported] if loses else [*reported]


class DirectScene:
    """A party that does not coordinate the run; `variant` 1 is a run that loses a party at this step."""

    name: ClassVar[str] = "p3"
    role: ClassVar[PeerRole] = PARTY
    codec = Codec.of_peer(PARTY)
    states = 9
    steps: ClassVar[list[str]] = [*REPORTED]

    def __init__(self) -> None:
        self._simulated = DirectRow(parties=5)
        self._number = self._simulated.number(self.name) - 1
        ring_vector, _ = self._simulated.encoding.encode(
            self._simulated.vectors[self._number], party=self.name
        )
        self._ring_vector, self.input = ring_vector, ring_vector.tobytes()
        others = [run for run in self._simulated.parties.values() if run.name != self.name]
        self._first = Others(others, [claimed for run in others for claimed in run.handle(Start())])
        # By what the party has sent and the variant, the answers and the others after them.
        self._reported: dict[tuple[bytes, int], tuple[str, list[Envelope | PeersLost], Others]] = {}

    def process(self) -> tuple[PeerRole, Any, State]:
        simulated = self._simulated
        run = party(
            simulated.context, simulated.parameters, simulated.signers[self.name], self._ring_vector.copy()
        )
        return run.role, run.member, run.state

    def answer(self, sent: Sequence[Envelope], variant: int = 0) -> Sequence[Envelope | PeersLost]:
        claimed = [envelope for envelope in sent if envelope.step != LEAVE]
        if not claimed:
            return ()
        # An `abort` to a party that was lost comes before it, and is signed under the session's digest.
        newest = max(
            (envelope for envelope in claimed if envelope.step in REPORTED),
            key=lambda envelope: self.steps.index(envelope.step),
        )
        step = newest.step
        key = (b"".join(map(encode_envelope, claimed)), variant)
        if key not in self._reported:
            others = self._before(step, newest.run_id).copy()
            self._reported[key] = (step, others.answer(claimed, step, loses=bool(variant)), others)
        return self._reported[key][1]

    def _before(self, step: str, run_id: bytes) -> Others:
        """Return the others whose answer leads to a step; without a loss, if there are such."""
        if step == self.steps[0]:
            return self._first
        before = self.steps[self.steps.index(step) - 1]
        result = {
            variant: others
            for (_, variant), (claimed, _, others) in self._reported.items()
            if claimed == before and {run_id, b""} & {run.run_id for run in others.runs.values()}
        }
        return result[min(result)]

    def check(self, run: SavedRun[Any]) -> None:
        assert run.result.survivors == self._simulated.names
        [*_, others] = [others for (_, variant), (_, _, others) in self._reported.items() if not variant]
        for other in others.runs.values():
            assert run.result.total.tolist() == other.result.total.tolist()


class CoordinatorScene(DirectScene):
    """The party that coordinates the run."""

    name = "p1"
    role = COORDINATOR
    codec = Codec.of_peer(COORDINATOR)
    states = 8
    steps: ClassVar[list[str]] = [step for step in REPORTED if step != d.HELD]
