"""Sets and lists of parties on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import Check, PeerFault

# The two forms of a set on the wire.
MEMBERS, OTHERS = b"\0", b"\1"


class PartySet:
    """An immutable set of parties 1 to n in n bits, so that thousands of machines can each hold several.

    `packed` is how it travels.
    """

    __slots__ = ("_bits", "_parties", "packed")

    def __init__(self, bits: int, parties: int, packed: bytes) -> None:
        self._bits = bits
        self._parties = parties
        self.packed = packed

    @classmethod
    def of(cls, members: Iterable[int], parties: int) -> PartySet:
        """Return the set of these parties among 1 to `parties`."""
        return cls.unpack(pack_set(members, parties), parties, "")

    @classmethod
    def unpack(cls, packed: bytes, parties: int, sender: str) -> PartySet:
        """Return the set that travels as `packed`; raise PeerFault on anything but what `pack_set` gives."""
        form, content = packed[:1], packed[1:]
        octets = (parties + 7) // 8
        if form == MEMBERS:
            if len(content) != octets:
                raise PeerFault(sender, f"a set of {parties} parties has {len(content)} bytes", Check.BAD_SET)
            padding = -parties % 8
            bits = int.from_bytes(content, "big")
            if bits & ((1 << padding) - 1):
                raise PeerFault(sender, "a set of parties has padding that is not zero", Check.BAD_SET)
            members = cls(bits >> padding, parties, packed)
            if 2 * (parties - len(members)) < octets:
                raise PeerFault(
                    sender,
                    "a set of parties has its members where the others would be shorter",
                    Check.BAD_SET,
                )
            return members
        if form != OTHERS:
            raise PeerFault(sender, "a set of parties has neither of the two forms", Check.BAD_SET)
        others = unpack_list(content, parties, sender)
        if len(content) >= octets:
            raise PeerFault(
                sender, "a set of parties has the others where its members would be shorter", Check.BAD_SET
            )
        bits = (1 << parties) - 1
        for party in others:
            bits ^= 1 << (parties - party)
        return cls(bits, parties, packed)

    def __contains__(self, party: object) -> bool:
        if not isinstance(party, int) or not 1 <= party <= self._parties:
            return False
        return bool(self._bits >> (self._parties - party) & 1)

    def index(self, party: int) -> int:
        """Return how many members have a smaller number than `party`."""
        return (self._bits >> (self._parties - party + 1)).bit_count()

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __le__(self, other: PartySet) -> bool:
        return self._bits & ~other._bits == 0

    def __iter__(self) -> Iterator[int]:
        """Yield the parties in ascending order."""
        return iter((np.flatnonzero(self.flags()) + 1).tolist())

    def flags(self) -> NDArray[np.bool_]:
        """Return for each party, 1 to n, whether it is in the set."""
        padding = -self._parties % 8
        octets = (self._bits << padding).to_bytes((self._parties + 7) // 8, "big")
        return np.unpackbits(np.frombuffer(octets, np.uint8), count=self._parties).astype(np.bool_)


def pack_set(members: Iterable[int], parties: int) -> bytes:
    """Return a set of parties: one byte for the form, then as bits who is in it, or as a list who is not.

    The list is taken where it is shorter. Sets of a run only lack those who dropped out: few.
    """
    flags = np.zeros(parties, dtype=np.bool_)
    flags[[member - 1 for member in members]] = True
    others = np.flatnonzero(~flags) + 1
    if 2 * len(others) < (parties + 7) // 8:
        return OTHERS + pack_list(others)
    return MEMBERS + np.packbits(flags).tobytes()


def pack_list(members: Iterable[int]) -> bytes:
    """Return parties as 2-byte little-endian numbers."""
    return np.fromiter(members, dtype="<u2").tobytes()


def unpack_list(packed: bytes, parties: int, sender: str) -> tuple[int, ...]:
    """Return a strictly ascending list of parties; raise PeerFault on anything else."""
    if len(packed) % 2:
        raise PeerFault(sender, "a list of parties has an odd number of bytes", Check.BAD_SET)
    members = np.frombuffer(packed, dtype="<u2")
    if members.size and (members[0] < 1 or members[-1] > parties or (members[1:] <= members[:-1]).any()):
        raise PeerFault(sender, f"a list of parties is not ascending within 1 to {parties}", Check.BAD_SET)
    return tuple(members.tolist())
