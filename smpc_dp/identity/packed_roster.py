"""Compact roster: names of up to 10,000 parties, their keys and the digest, without certificates."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import Digest
from smpc_dp.errors import Check, VerificationError
from smpc_dp.identity.roster import PUBLIC_KEY_BYTES, Member, check_member, digest_parts

# Longest name.
_NAME_BYTES = 63
_HASH_BYTES = 32


class Names(Sequence[str]):
    """Sequence of ASCII names, not checked for repetitions, in one NumPy byte array, for long rosters.

    Each name takes the bytes of the longest one, and 8 for the search by name.
    """

    def __init__(self, names: NDArray[np.bytes_]) -> None:
        self._names = names
        self._order = np.argsort(names)

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Return these names as a packed sequence."""
        return cls(np.array([name.encode() for name in names], dtype=np.bytes_))

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Names: ...
    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return Names(self._names[index])
        return str(self._names[index], "ascii")

    def __contains__(self, name: object) -> bool:
        return self._find(name) is not None

    def index(self, name: object, start: int = 0, stop: int | None = None) -> int:
        """Return the index of a name, from 0; raise ValueError for an unknown name."""
        index = self._find(name)
        if index is None or not start <= index < (len(self) if stop is None else stop):
            raise ValueError(f"{name} is not among them")
        return index

    def _find(self, name: object) -> int | None:
        """Return the index of a name by binary search, or None if the sequence lacks it."""
        if not isinstance(name, str):
            return None
        wanted = name.encode()
        rank = bisect.bisect_left(self._order, wanted, key=self._names.item)
        if rank == len(self) or self._names.item(index := int(self._order[rank])) != wanted:
            return None
        return index


class Keys(Mapping[str, bytes]):
    """Mapping of member names to public keys: the parties' packed in bytes, and one other member's."""

    def __init__(self, names: Names, packed: bytes, other: str, others: bytes) -> None:
        self._names, self._packed, self._other, self._others = names, packed, other, others

    def __len__(self) -> int:
        return len(self._names) + 1

    def __iter__(self) -> Iterator[str]:
        yield from self._names
        yield self._other

    def __getitem__(self, name: str) -> bytes:
        if name == self._other:
            return self._others
        try:
            start = PUBLIC_KEY_BYTES * self._names.index(name)
        except ValueError:
            raise KeyError(name) from None
        return self._packed[start : start + PUBLIC_KEY_BYTES]


class RosterPacker:
    """Builder of a compact roster: takes members one at a time, then checks the roster as a whole.

    `check` finishes it and raises VerificationError unless `Roster` accepts the same members; then `names`
    are the parties', `keys` those of all members, `digest` the roster's.
    """

    def __init__(self) -> None:
        self._digest = Digest(Label.ROSTER)
        self._names, self._keys, self._addresses = bytearray(), bytearray(), bytearray()
        self._aggregator: Member | None = None

    def add(self, member: Member) -> None:
        """Append a member; VerificationError if it is invalid, a server, or a second aggregator."""
        faults = check_member("", member)
        aggregator = member.role == "aggregator"
        if faults or not (member.role == "party" or (aggregator and self._aggregator is None)):
            raise VerificationError("no roster of parties and one aggregator", Check.BAD_SESSION)
        self._digest.add(*digest_parts(member))
        if member.address is not None:
            self._addresses += hashlib.sha256(member.address.encode()).digest()
        if aggregator:
            self._aggregator = member
        else:
            self._names += member.name.encode().ljust(_NAME_BYTES, b"\0")
            self._keys += member.public_key

    def check(self) -> None:
        """Set `names`, `keys` and `digest`; VerificationError if two members clash or a role is missing."""
        aggregator = self._aggregator
        if aggregator is None or not self._keys:
            raise VerificationError("no aggregator, or no parties", Check.BAD_SESSION)
        names = np.frombuffer(self._names, dtype=f"S{_NAME_BYTES}")
        # As short as the longest name; then the collected bytes can be freed.
        longest = int(np.char.str_len(names).max())
        names, self._names = names.astype(f"S{longest}"), bytearray()
        self.names = Names(names)
        checkpoints = aggregator.checkpoint_key or b""
        keys = np.frombuffer(self._keys + aggregator.public_key + checkpoints, dtype=f"S{PUBLIC_KEY_BYTES}")
        addresses = np.frombuffer(self._addresses, dtype=f"S{_HASH_BYTES}")
        if aggregator.name in self.names or any(map(_repeats, (names, keys, addresses))):
            raise VerificationError("two members share a name, a key or an address", Check.BAD_SESSION)
        self.keys = Keys(self.names, bytes(self._keys), aggregator.name, aggregator.public_key)
        self.aggregator, self.checkpoint_key = aggregator.name, aggregator.checkpoint_key
        self.digest = self._digest.value()


def _repeats(entries: NDArray[np.bytes_]) -> bool:
    """Tell whether two entries of an array of byte strings are equal."""
    entries = np.sort(entries)
    return bool((entries[1:] == entries[:-1]).any())
