"""Sets and lists of parties on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import Check, PeerFault

# The two encodings of a set.
MEMBERS, OTHERS = b"\0", b"\1"


class PartySet:
    """Immutable set of parties 1 to n in n bits, so that thousands of roles can each hold several.

    `packed` is its encoding.
    """

    __slots__ = ("_bits", "_parties", "packed")

    def __init__(self, bits: int, parties: int, packed: bytes) -> None:
        self._bits = bits
        self._parties = parties
        self.packed = packed

    @classmethod
    def of(cls, members: Iterable[int], parties: int) -> PartySet:
        """Return the set of `members` among the parties 1 to `parties`."""
        return cls.unpack(pack_set(members, parties), parties, "")

    @classmethod
    def unpack(cls, packed: bytes, parties: int, sender: str) -> PartySet:
        """Decode a set; raise PeerFault for bytes that `pack_set` does not produce."""
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
        """The number of all parties."""
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
        """Return the number of members with a smaller number than `party`."""
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
    """Encode a set of parties: a byte for the form, then a bit for each party or the absent parties.

    The shorter form is chosen: in sets of a run only the few parties that dropped out are absent.
    """
    flags = np.zeros(parties, dtype=np.bool_)
    flags[[member - 1 for member in members]] = True
    others = np.flatnonzero(~flags) + 1
    if 2 * len(others) < (parties + 7) // 8:
        return OTHERS + pack_list(others)
    return MEMBERS + np.packbits(flags).tobytes()


def pack_list(members: Iterable[int]) -> bytes:
    """Encode parties as 2-byte little-endian numbers."""
    return np.fromiter(members, dtype="<u2").tobytes()


def unpack_list(packed: bytes, parties: int, sender: str) -> tuple[int, ...]:
    """Decode a strictly ascending list of parties; raise PeerFault for other bytes."""
    if len(packed) % 2:
        raise PeerFault(sender, "a list of parties has an odd number of bytes", Check.BAD_SET)
    members = np.frombuffer(packed, dtype="<u2")
    if members.size and (members[0] < 1 or members[-1] > parties or (members[1:] <= members[:-1]).any()):
        raise PeerFault(sender, f"a list of parties is not ascending within 1 to {parties}", Check.BAD_SET)
    return tuple(members.tolist())
