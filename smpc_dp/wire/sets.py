"""Sets and lists of parties on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import Check, PeerFault

# The two encodings of a set.
MEMBERS, OTHERS = b"\0", b"\1"


class PartySet:
    """Immutable set of parties numbered 1 to n, stored as n bits to save memory.

    `packed` is its encoding.
    """

    __slots__ = ("_bits", "_parties", "packed")

    def __init__(self, bits: int, parties: int, packed: bytes) -> None:
        self._bits = bits
        self._parties = parties
        self.packed = packed

    @classmethod
    def of(cls, members: Iterable[int], parties: int) -> PartySet:
        """Return the set of these party numbers, among `parties` in all."""
        return cls.unpack(pack_set(members, parties), parties, "")

    @classmethod
    def unpack(cls, packed: bytes, parties: int, sender: str) -> PartySet:
        """Decode a set from a message; raise PeerFault against the sender if it is not canonical."""
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

    @property
    def parties(self) -> int:
        """Number of all parties n, whether in the set or not."""
        return self._parties

    def __contains__(self, party: object) -> bool:
        if not isinstance(party, int) or not 1 <= party <= self._parties:
            return False
        return bool(self._bits >> (self._parties - party) & 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartySet):
            return NotImplemented
        return (self._parties, self.packed) == (other._parties, other.packed)

    def __hash__(self) -> int:
        return hash((self._parties, self.packed))

    def index(self, party: int) -> int:
        """Return how many members of the set have a smaller number than `party`."""
        return (self._bits >> (self._parties - party + 1)).bit_count()

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __le__(self, other: PartySet) -> bool:
        return self._bits & ~other._bits == 0

    def __iter__(self) -> Iterator[int]:
        """Yield the parties in ascending order."""
        return iter((np.flatnonzero(self.flags()) + 1).tolist())

    def flags(self) -> NDArray[np.bool_]:
        """Return a mask of length n that is true for the parties in the set."""
        padding = -self._parties % 8
        octets = (self._bits << padding).to_bytes((self._parties + 7) // 8, "big")
        return np.unpackbits(np.frombuffer(octets, np.uint8), count=self._parties).astype(np.bool_)


def pack_set(members: Iterable[int], parties: int) -> bytes:
    """Encode a set of parties for a message: as bits, or as the list of absent parties if shorter.

    The shorter form is chosen: in sets of a run only the few parties that dropped out are absent.
    """
    flags = np.zeros(parties, dtype=np.bool_)
    flags[[member - 1 for member in members]] = True
    others = np.flatnonzero(~flags) + 1
    if 2 * len(others) < (parties + 7) // 8:
        return OTHERS + pack_list(others)
    return MEMBERS + np.packbits(flags).tobytes()


def pack_list(members: Iterable[int]) -> bytes:
    """Encode party numbers for a message, 2 bytes each, little-endian."""
    return np.fromiter(members, dtype="<u2").tobytes()


def unpack_list(packed: bytes, parties: int, sender: str) -> tuple[int, ...]:
    """Decode an ascending list of party numbers; raise PeerFault against the sender if malformed."""
    if len(packed) % 2:
        raise PeerFault(sender, "a list of parties has an odd number of bytes", Check.BAD_SET)
    members = np.frombuffer(packed, dtype="<u2")
    if members.size and (members[0] < 1 or members[-1] > parties or (members[1:] <= members[:-1]).any()):
        raise PeerFault(sender, f"a list of parties is not ascending within 1 to {parties}", Check.BAD_SET)
    return tuple(members.tolist())
