"""Scenes of real sums: the party that dies is p1, the others live in one process that does not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import SmpcError
from smpc_dp.protocols.abort import LEAVE
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.codec import Codec
from smpc_dp.protocols.engine.events import Message, Start
from smpc_dp.protocols.engine.saved import SavedRun
from smpc_dp.protocols.engine.state import State
from smpc_dp.protocols.envelope import decode, encode_envelope
from smpc_dp.protocols.registry import make_party
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import PartySet, pack_list, pack_set, unpack_list
from smpc_dp.protocols.secagg.states import PARTY
from tests.faults.stage import KINDS, LENGTH, Stage

ME = "p1"


class SumScene:
    """A secure sum of five, on the stage of attacks: the aggregator may show p1 another set than others."""

    codec = Codec.of_party(PARTY)
    states = 10

    def __init__(self) -> None:
        self.stage = Stage(5, run=None)
        self.lanes, _ = self.stage.encoding.encode(self.stage.vectors[0], party=ME)
        self.input = self.lanes.tobytes()
        self._answers: dict[bytes, list[Envelope]] = {}
        self._waiting: list[Envelope] = []
        for name in self.stage.names[1:]:
            self._waiting += self.stage.parties[name].handle(Start())

    def process(self) -> tuple[Any, Any, State]:
        stage = self.stage
        run = make_party(
            stage.context, stage.parameters, stage.signers[ME], self.lanes.copy(), SystemRandomness()
        )
        return run.role, run.member, run.state

    def answer(self, sent: Sequence[Envelope], variant: int = 0) -> Sequence[Envelope]:
        answers = [answer for envelope in sent if envelope.step != LEAVE for answer in self._told(envelope)]
        return [self._other(answer) if variant else answer for answer in answers]

    def _told(self, envelope: Envelope) -> list[Envelope]:
        """Deliver what p1 has said, once, and play all others until they wait for it."""
        known = self._answers.get(encode_envelope(envelope))
        if known is not None:
            return known
        stage, mine = self.stage, []
        queue = deque([*self._waiting, envelope])
        self._waiting = []
        while queue:
            under_way = queue.popleft()
            if under_way.receiver == ME:
                mine.append(under_way)
                continue
            receiver = stage.parties.get(under_way.receiver, stage.aggregator)
            try:
                queue.extend(receiver.handle(Message(under_way)))
            except SmpcError:
                continue
        self._answers[encode_envelope(envelope)] = mine
        return mine

    def _other(self, envelope: Envelope) -> Envelope:
        """Return another message of the same step, signed by the aggregator; p1 takes it, if it can be."""
        stage, last = self.stage, 5
        if envelope.step not in KINDS or not isinstance(
            message := decode(envelope.body, KINDS[envelope.step], envelope.sender), m.Deliver | m.Survivors
        ):
            return stage.context.write(
                stage.signers[envelope.sender], envelope.run_id, envelope.step, (ME,), m.Survivors(b"")
            )[0]
        if isinstance(message, m.Survivors):
            return stage.change(envelope, survivors=self._without(message.survivors, last))
        dealers = unpack_list(message.dealers, 5, "")
        kept = [(dealer, box) for dealer, box in zip(dealers, message.sealed, strict=True) if dealer != last]
        return stage.change(
            envelope,
            participants=self._without(message.participants, last),
            dealers=pack_list(dealer for dealer, _ in kept),
            sealed=[box for _, box in kept],
        )

    def _without(self, packed: bytes, party: int) -> bytes:
        members: Iterable[int] = PartySet.unpack(packed, 5, "")
        return pack_set((member for member in members if member != party), 5)

    def check(self, run: SavedRun[Any]) -> None:
        stage = self.stage
        expected = sum((stage.grid(name) for name in stage.names), np.zeros(LENGTH, np.int64))
        np.testing.assert_array_equal(run.result.total, expected)
        np.testing.assert_array_equal(stage.aggregator.result.total, expected)
