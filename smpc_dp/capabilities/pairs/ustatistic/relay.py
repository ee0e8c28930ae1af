"""The aggregator's relay of encrypted frames between partners: in order, without storing any.

Each direction of a pair has at most WINDOW frames under way; a further one is its sender's fault. The
aggregator cannot read a frame, nor change, repeat or exchange one undetected: see `garbled.relay`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from smpc_dp.capabilities.pairs.covert.terms import EVALUATORS
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.terms import Draw
from smpc_dp.errors import Check, PeerFault

# Bytes of an evaluation that do not grow with its gates and inputs, each way: setup and signed messages.
_FIXED_BYTES = 1 << 18
# For each AND gate, input bit and random bit, each way: tables, labels, columns of the transfers.
_BYTES_A_WIRE = 64
# The same with security against malicious garblers: triples in buckets of 8 at most, with transfers for each.
_ACTIVE_BYTES_A_WIRE = 512
# For each copy of a covert evaluation, each way, and for each input bit of it: setup, columns.
_COPY_BYTES, _COPY_BYTES_AN_INPUT = 1 << 14, 8
# Messages of a copy, each way at most; each has a frame of its own, however short it is.
_COPY_MESSAGES = len(EVALUATORS)


@dataclass(slots=True)
class _Way:
    """Counters of one direction between two parties of a pair: frames forwarded, and frames used."""

    sent: int = 0
    taken: int = 0


@dataclass(slots=True)
class _PairRelay:
    """State of the relay between the two parties of one pair: counters each way, and whether it is over."""

    ways: dict[str, _Way] = field(default_factory=dict)
    over: bool = False


class PairRelays:
    """The aggregator's relays of encrypted frames between the two parties of each pair of a run."""

    def __init__(self, plan: StatisticPlan, result: Draw) -> None:
        self._draw = result
        self._most = most_frames(plan)
        self._relays: dict[tuple[int, tuple[str, str]], _PairRelay] = {}

    def forward(self, sender: str, message: m.Relay) -> str | None:
        """Check and count a frame to relay; return its receiver, or None if the pair is over; or PeerFault.

        Raises PeerFault for an unexpected frame.
        """
        pair, peer = self._pair(sender, message.matching)
        relay = self._relay_of(message.matching, pair)
        own, other = relay.ways[sender], relay.ways[peer]
        if message.number != own.sent:
            raise PeerFault(
                sender,
                f"sent frame {message.number} of a relayed pair where {own.sent} is due",
                Check.OUT_OF_SEQUENCE,
            )
        if not other.taken <= message.taken <= other.sent:
            raise PeerFault(
                sender, "says that it has taken frames of a relayed pair that it has not", Check.WRONG_COUNT
            )
        if not message.content:
            if message.taken == other.taken:
                raise PeerFault(sender, "sent a frame of a relayed pair that is empty", Check.WRONG_LENGTH)
        elif own.sent >= self._most:
            raise PeerFault(sender, "sent more frames of a relayed pair than are due", Check.TOO_MANY)
        elif own.sent - own.taken >= m.WINDOW or (own.sent and not other.sent):
            raise PeerFault(
                sender, "sent frames of a relayed pair before there was room for them", Check.TOO_MANY
            )
        else:
            own.sent += 1
        other.taken = message.taken
        return None if relay.over else peer

    def end(self, sender: str, message: m.RelayEnd) -> str | None:
        """Mark a pair as ended by `sender`; return the partner to tell, or None if it had ended.

        Raises PeerFault for an unknown pair.
        """
        pair, peer = self._pair(sender, message.matching)
        relay = self._relay_of(message.matching, pair)
        reported, relay.over = relay.over, True
        return None if reported else peer

    def lost(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield (partner, matching) of a lost party's pairs that were not over, marking each as over."""
        for matching in range(len(self._draw.pairs)):
            pair = self._draw.partner(name, matching)
            if pair is not None and not (relay := self._relay_of(matching, pair)).over:
                relay.over = True
                yield pair[pair[0] == name], matching

    def _pair(self, sender: str, matching: int) -> tuple[tuple[str, str], str]:
        """Return (both names of the sender's pair in a matching, its partner's), or raise PeerFault."""
        pair = self._draw.partner(sender, matching) if matching < len(self._draw.pairs) else None
        if pair is None:
            raise PeerFault(
                sender, f"sent a frame of a pair in matching {matching}, where it has none", Check.NOT_PRESENT
            )
        return pair, pair[pair[0] == sender]

    def _relay_of(self, matching: int, pair: tuple[str, str]) -> _PairRelay:
        """Return the state of the relay between a pair of a matching, created if there is none."""
        return self._relays.setdefault((matching, pair), _PairRelay({name: _Way() for name in pair}))


def most_frames(plan: StatisticPlan) -> int:
    """Return an upper bound on the frames that one direction of a pair's evaluation takes."""
    wires = plan.circuit.and_count + plan.circuit.n_inputs
    copies = plan.covert * (_COPY_BYTES + _COPY_BYTES_AN_INPUT * plan.circuit.n_inputs)
    each = _ACTIVE_BYTES_A_WIRE if plan.malicious else _BYTES_A_WIRE
    messages = 64 + _COPY_MESSAGES * plan.covert
    return messages + 2 * (_FIXED_BYTES + each * wires + copies) // m.MAX_FRAME_BYTES
