"""In-memory network with a seeded scheduler and injectable faults, for thousands of roles."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from smpc_dp.errors import PeerFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode_envelope, encode_envelope


@dataclass(frozen=True, slots=True)
class Faults:
    """Settings of simulated network faults: chances to lose or change messages, and parties that die.

    Attributes:
        drop, delay, duplicate, corrupt: a delayed message is held back until no other is under way, or until
            after a
            deadline; a corrupted one has one bit flipped.
        reorder: deliver messages under way in random order, otherwise first in, first out.
        kill: the party goes silent for good instead of sending its message number k (1 is its first).
    """

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    reorder: bool = False
    kill: Mapping[str, int] = field(default_factory=dict)

    @property
    def touches_messages(self) -> bool:
        """Whether single messages may be lost, delayed, repeated or changed."""
        return bool(self.drop or self.delay or self.duplicate or self.corrupt)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Message that a simulated network delivers: the envelope, or the fault of one that is damaged."""

    sender: str
    receiver: str
    envelope: Envelope | PeerFault


class MemoryNetwork:
    """Simulated network in memory that carries messages between roles, with seeded random faults."""

    def __init__(self, faults: Faults | None = None, seed: int = 0) -> None:
        self._faults = faults or Faults()
        self._random = random.Random(seed)  # noqa: S311  # schedules messages, keeps no secret
        self._queue: deque[Delivery] = deque()
        self._held: list[Delivery] = []
        self._sent: dict[str, int] = {}
        self.killed: list[str] = []
        self._dead: set[str] = set()
        self.messages = 0

    def send(self, envelope: Envelope) -> None:
        """Queue a message for delivery; a simulated fault may drop, delay, repeat or change it."""
        faults, sender = self._faults, envelope.sender
        if sender in faults.kill:
            count = self._sent[sender] = self._sent.get(sender, 0) + 1
            if count >= faults.kill[sender]:
                if count == faults.kill[sender]:
                    self.killed.append(sender)
                    self._dead.add(sender)
                return
        self.messages += 1
        delivery = Delivery(sender, envelope.receiver, envelope)
        if not faults.touches_messages:
            self._queue.append(delivery)
            return
        if self._hits(faults.drop):
            return
        copies = 2 if self._hits(faults.duplicate) else 1
        for _ in range(copies):
            copy = self._corrupted(envelope) if self._hits(faults.corrupt) else delivery
            if self._hits(faults.delay):
                self._held.append(copy)
            else:
                self._queue.append(copy)

    def take(self) -> Delivery | None:
        """Remove and return the next message, or a random one (`reorder`); None if none is under way."""
        if not self._queue:
            return None
        if self._faults.reorder:
            index = self._random.randrange(len(self._queue))
            self._queue[0], self._queue[index] = self._queue[index], self._queue[0]
        return self._queue.popleft()

    def release(self) -> bool:
        """Put one random held-back message under way; return False if there is none."""
        if not self._held:
            return False
        self._queue.append(self._held.pop(self._random.randrange(len(self._held))))
        return True

    def choose(self, options: int) -> int:
        """Return a random number below `options`, from the network's seed."""
        return self._random.randrange(options)

    def is_dead(self, name: str) -> bool:
        """Tell whether the simulation has killed this party."""
        return name in self._dead

    def _hits(self, chance: float) -> bool:
        """Tell, by a seeded random draw, whether a fault of this probability happens now."""
        return chance > 0 and self._random.random() < chance

    def _corrupted(self, envelope: Envelope) -> Delivery:
        """Return the delivery of a message with one flipped bit, or the fault of decoding it."""
        data = bytearray(encode_envelope(envelope))
        bit = self._random.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        try:
            received: Envelope | PeerFault = decode_envelope(bytes(data), envelope.sender)
        except PeerFault as fault:
            received = fault
        return Delivery(envelope.sender, envelope.receiver, received)
