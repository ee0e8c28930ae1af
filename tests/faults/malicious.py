"""An aggregator that shows different parties different sets, and takes all that it is given for it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto import shamir
from smpc_dp.crypto.prg import add_masks
from smpc_dp.engine.events import Message, Start
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import SmpcError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list, pack_set, unpack_list
from smpc_dp.wire.signing import decode
from tests.faults.simulated import AGGREGATOR, SimulatedRun

Sets = Mapping[str, frozenset[int]]


class SplitViewAggregator:
    """Honest until everyone has dealt; then each party is told what `participants` and `survivors` say.

    Every certificate is the best that it can make: all attestations of the very set that it shows.
    """

    def __init__(self, simulated: SimulatedRun) -> None:
        self.simulated = simulated
        self.errors = simulated.errors
        self._attested: dict[str, tuple[bytes, bytes]] = {}
        self._unmasks: dict[str, m.Unmask] = {}
        self.masked: dict[str, m.Masked] = {}
        self._delivers: dict[str, Envelope] = {}
        self._deal()

    def _deal(self) -> None:
        simulated = self.simulated
        to_aggregator = [
            envelope for party in simulated.parties.values() for envelope in party.handle(Start())
        ]
        while True:
            simulated.sent += to_aggregator
            answers = [
                answer
                for envelope in to_aggregator
                for answer in simulated.aggregator.handle(Message(envelope))
            ]
            if answers[0].step == m.DELIVER:
                break
            to_aggregator = [
                e for answer in answers for e in simulated.parties[answer.receiver].handle(Message(answer))
            ]
        self._delivers = {envelope.receiver: envelope for envelope in answers}
        self.run_id = answers[0].run_id
        self.drawn = {
            name: unpack_list(simulated.body_of(m.REVEAL, name).neighbours, len(simulated.names), name)
            for name in simulated.names
        }
        self.mask_keys = {name: simulated.body_of(m.REVEAL, name).mask_key for name in simulated.names}

    def neighbours(self, name: str) -> frozenset[int]:
        """Return who shares a mask with a party."""
        number = self.simulated.number(name)
        drew = {self.simulated.number(other) for other, drawn in self.drawn.items() if number in drawn}
        return frozenset(drew | set(self.drawn[name]))

    def _notify(self, name: str, envelope: Envelope) -> Envelope | None:
        """Give one party a message; return its answer, or None if it has refused."""
        if name in self.errors:
            return None
        try:
            [answer] = self.simulated.parties[name].handle(Message(envelope))
        except SmpcError as error:
            self.errors[name] = error
            return None
        self.simulated.sent.append(answer)
        return answer

    def _say(self, step: str, name: str, message: msgspec.Struct) -> Envelope | None:
        [envelope] = self.simulated.context.write(
            self.simulated.signers[AGGREGATOR], self.run_id, step, (name,), message
        )
        return self._notify(name, envelope)

    def show_participants(self, views: Sets) -> None:
        """Tell each party who takes part, certify it as well as possible, and collect masked vectors."""
        for name, view in views.items():
            message = decode(self._delivers[name].body, m.Deliver, AGGREGATOR)
            dealers = unpack_list(message.dealers, len(self.simulated.names), AGGREGATOR)
            retained = [(d, sealed) for d, sealed in zip(dealers, message.sealed, strict=True) if d in view]
            deliver = m.Deliver(
                pack_set(view, len(self.simulated.names)),
                pack_list(d for d, _ in retained),
                [s for _, s in retained],
            )
            self._note(name, self._say(m.DELIVER, name, deliver))
        for name, view in views.items():
            answer = self._say(m.PARTICIPANTS, name, self._certificate(name, view))
            if answer is not None:
                self.masked[name] = decode(answer.body, m.Masked, name)

    def show_survivors(self, views: Sets) -> None:
        """Tell each party who survived, certify it as well as possible, and collect what it reveals."""
        self._attested.clear()
        self.views = views
        for name, view in views.items():
            packed = pack_set(view, len(self.simulated.names))
            self._note(name, self._say(m.SURVIVORS, name, m.Survivors(packed)))
        for name, view in views.items():
            answer = self._say(m.SURVIVORS_CERTIFICATE, name, self._certificate(name, view))
            if answer is not None:
                self._unmasks[name] = decode(answer.body, m.Unmask, name)

    def _note(self, name: str, answer: Envelope | None) -> None:
        if answer is not None:
            digest = decode(answer.body, m.Attestation, name).set_digest
            self._attested[name] = (digest, answer.signature)

    def _certificate(self, name: str, view: frozenset[int]) -> m.Certificate:
        if name not in self._attested:
            return m.Certificate(b"", b"")
        digest = self._attested[name][0]
        signatures = {
            self.simulated.number(other): signature
            for other, (shown, signature) in sorted(self._attested.items())
            if shown == digest and self.simulated.number(other) in view
        }
        ordered = sorted(signatures)
        packed = pack_set(ordered, len(self.simulated.names))
        return m.Certificate(packed, b"".join(signatures[number] for number in ordered))

    def secret(self, dealer: str, *, survived: bool) -> bytes:
        """Combine what holders gave of a dealer: the self-mask seed if told that it survived, else the key.

        Raises:
            ValueError: fewer shares than the threshold.
        """
        number, shares = self.simulated.number(dealer), {}
        for holder, unmask in self._unmasks.items():
            if (number in self.views[holder]) is survived:
                dealers = unpack_list(unmask.dealers, len(self.simulated.names), holder)
                if number in dealers:
                    index = 32 * dealers.index(number)
                    shares[self.simulated.number(holder)] = unmask.shares[index : index + 32]
        return shamir.combine(shares, self.simulated.plan.threshold)

    def open_vector(self, victim: str, masked_with: frozenset[int]) -> NDArray[np.int64]:
        """Take every mask off one party's vector."""
        simulated = self.simulated
        ring_vector = simulated.encoding.unpack(self.masked[victim].vector).copy()
        own = self.secret(victim, survived=True)
        seeds = [keys.self_mask_seed(simulated.context, self.run_id, victim, own)]
        signs = [-1]
        for number in sorted(masked_with):
            peer = simulated.names[number - 1]
            seeds.append(
                keys.pair_mask_seed(
                    simulated.context,
                    self.run_id,
                    self.secret(peer, survived=False),
                    peer,
                    victim,
                    self.mask_keys[victim],
                )
            )
            signs.append(-1 if simulated.number(victim) < number else 1)
        add_masks(ring_vector, seeds, signs)
        return simulated.encoding.decode(ring_vector, 1)[0]
