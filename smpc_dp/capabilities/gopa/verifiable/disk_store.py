"""An auditor's data of each party, stored on disk until they are needed again.

They are dictionaries by party, with one byte of each party in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.crypto.commit import POINT_BYTES
from smpc_dp.files import Records

_REASON = "what an audit keeps of each party"
COIN_BYTES = 32


def flags_of(members: Iterable[int], parties: int) -> NDArray[np.bool_]:
    """Return an array with True at each member's number, for parties 1 to `parties`; index 0 is unused."""
    flags = np.zeros(parties + 1, dtype=np.bool_)
    for party in members:
        flags[party] = True
    return flags


class StoredBytes(MutableMapping[int, bytes]):
    """Dictionary, on disk once large, of byte strings of one size, by party; threads may share one."""

    def __init__(self, parties: int, size: int) -> None:
        self._records = Records(_REASON, size)
        self._there = np.zeros(parties + 1, dtype=np.bool_)

    def __contains__(self, party: object) -> bool:
        return isinstance(party, int) and 0 < party < len(self._there) and bool(self._there[party])

    def __getitem__(self, party: int) -> bytes:
        if party not in self:
            raise KeyError(party)
        return self._records[party]

    def __setitem__(self, party: int, retained: bytes) -> None:
        self._records[party] = retained
        self._there[party] = True

    def __delitem__(self, party: int) -> None:
        if party not in self:
            raise KeyError(party)
        self._there[party] = False

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._there).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._there))

    def clear(self) -> None:
        """Remove all stored byte strings; the store can be filled anew."""
        self._there[:] = False


class StoredCommits(MutableMapping[int, v.Commit]):
    """Dictionary, on disk once large, of parties' commitments: points and coins, no proofs and edges."""

    def __init__(self, parties: int) -> None:
        self._retained = StoredBytes(parties, 2 * POINT_BYTES + COIN_BYTES)

    def __contains__(self, party: object) -> bool:
        return party in self._retained

    def __getitem__(self, party: int) -> v.Commit:
        retained = self._retained[party]
        value, secret = retained[:POINT_BYTES], retained[POINT_BYTES : 2 * POINT_BYTES]
        return v.Commit(value, b"", secret, retained[2 * POINT_BYTES :], b"", b"")

    def __setitem__(self, party: int, message: v.Commit) -> None:
        self._retained[party] = message.value + message.noise_secret + message.coin

    def __delitem__(self, party: int) -> None:
        del self._retained[party]

    def __iter__(self) -> Iterator[int]:
        return iter(self._retained)

    def __len__(self) -> int:
        return len(self._retained)


class Sequences:
    """Store of log entries' sequence numbers by (party, kind), on disk once large; only [] and []=."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._retained: dict[str, StoredBytes] = {}

    def __setitem__(self, entry: tuple[int, str], sequence: int) -> None:
        party, kind = entry
        if kind not in self._retained:
            self._retained[kind] = StoredBytes(self._parties, 8)
        self._retained[kind][party] = sequence.to_bytes(8, "big")

    def __getitem__(self, entry: tuple[int, str]) -> int:
        party, kind = entry
        return int.from_bytes(self._retained[kind][party], "big")
