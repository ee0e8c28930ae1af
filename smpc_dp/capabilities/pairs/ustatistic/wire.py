"""A party's messages beside the steps of a pairwise statistic: those of its evaluations, in order."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

import msgspec

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.conviction import accusation, convict
from smpc_dp.capabilities.pairs.ustatistic.terms import Draw, pair_context
from smpc_dp.engine.party import Member
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode

B = TypeVar("B", bound=msgspec.Struct)


class PairWire:
    """A party's codec of pair messages with the aggregator: numbers, signs, checks and opens each.

    Frames for a partner go the same way; a `SealedConnection` counts them.

    Attributes:
        is_lossy: whether messages of the aggregator may have been lost with an earlier connection of this
            party, or an earlier process.
    """

    is_lossy = False

    def __init__(self, member: Member[Any]) -> None:
        self._member = member
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()

    @property
    def aggregator(self) -> str:
        """The name of the aggregator that relays the pairs' messages."""
        return self._member.context.aggregator

    def context(self, run_id: bytes, matching: int, plan: Plan) -> Context:
        """Return the context (session, names, run) of one pair's evaluation."""
        pair = (plan.parameters.garbler, plan.parameters.evaluator)
        return pair_context(self._member.context, run_id, matching, pair, plan.protocol)

    def write_pair(self, run_id: bytes, matching: int, content: bytes) -> Envelope:
        """Return the signed, numbered envelope of a pair's message to the aggregator."""
        number = self._sent[matching]
        self._sent[matching] += 1
        return self._member.write(run_id, m.PAIR, m.Pair(matching, number, content))

    def gap_before(self, run_id: bytes, envelope: Envelope) -> int | None:
        """Return the matching of a message if others before it were lost with a connection, else None."""
        message = self._open(run_id, envelope, m.Pair)
        is_late = message.number > self._received[message.matching]
        return message.matching if self.is_lossy and is_late else None

    def open_pair(self, run_id: bytes, envelope: Envelope) -> tuple[int, bytes]:
        """Check the aggregator's next message in a pair; return (matching, content), or raise PeerFault.

        Raises PeerFault for an unexpected one.
        """
        message = self._open(run_id, envelope, m.Pair)
        expected = self._received[message.matching]
        if message.number != expected:
            raise self._refuse(
                f"sent message {message.number} of a pair where {expected} is due", Check.OUT_OF_SEQUENCE
            )
        if expected >= m.MAX_PAIR_MESSAGES:
            raise self._refuse("sent more messages of a pair than are due", Check.TOO_MANY)
        self._received[message.matching] += 1
        return message.matching, message.content

    def write_relay(self, run_id: bytes, message: m.Relay | m.RelayEnd) -> Envelope:
        """Return the signed envelope of a frame to the partner, or of the end of the frames."""
        step = m.RELAY if isinstance(message, m.Relay) else m.RELAY_END
        return self._member.write(run_id, step, message)

    def open_relay(self, run_id: bytes, envelope: Envelope) -> m.Relay | m.RelayEnd:
        """Check and decode a frame that the aggregator relays; raise PeerFault if it is invalid."""
        if envelope.step == m.RELAY:
            return self._open(run_id, envelope, m.Relay)
        return self._open(run_id, envelope, m.RelayEnd)

    def write_conviction(self, run_id: bytes, matching: int, certificate: bytes) -> Envelope:
        """Return the signed envelope that shows the aggregator a certificate of cheating."""
        return self._member.write(run_id, m.CONVICTION, accusation(matching, certificate))

    def open_conviction(
        self, run_id: bytes, drawn: Draw, circuit: Circuit, envelope: Envelope
    ) -> tuple[str, bytes]:
        """Check the aggregator's accusation; return (convicted party, certificate), or raise PeerFault.

        Raises PeerFault for an unexpected message, and for a certificate that convicts nobody.
        """
        message, name = self._open(run_id, envelope, m.Conviction), self._member.name
        paired = drawn.pairs[message.matching] if message.matching < len(drawn.pairs) else ()
        for pair in paired:
            try:
                return pair[0], convict(self._member.context, run_id, circuit, pair, message)
            except VerificationError as error:
                if error.check != Check.OTHER_RUN:
                    raise self._refuse(f"told {name} of a conviction: {error}", error.check) from None
        raise self._refuse(f"told {name} of a conviction of no pair", Check.OTHER_RUN)

    def _open(self, run_id: bytes, envelope: Envelope, kind: type[B]) -> B:
        """Check and decode a pair's message from the aggregator; raise PeerFault if it is invalid."""
        name, aggregator = self._member.name, self.aggregator
        if (envelope.sender, envelope.receiver, envelope.run_id) != (aggregator, name, run_id):
            raise self._refuse(
                "sent a message of a pair for somebody else, or of another run", Check.OTHER_RUN
            )
        self._member.context.check(envelope)
        return decode(envelope.body, kind, aggregator)

    def _refuse(self, reason: str, check: Check) -> PeerFault:
        """Return the PeerFault that blames the aggregator for relaying something invalid."""
        return self._member.refuse(reason, check)
