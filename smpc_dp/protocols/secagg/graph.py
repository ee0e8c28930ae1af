"""Sets and lists of parties on the wire, and the draw of a party's neighbours."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.errors import PeerFault

PartySet = NDArray[np.bool_]


def draw_neighbours(index: int, parties: int, degree: int, randomness: Randomness) -> tuple[int, ...]:
    """Return `degree` distinct parties other than `index`, uniformly, in ascending order.

    Floyd's algorithm on words without modulo bias (rejection), so each set has the same probability.
    """
    others = parties - 1
    if degree >= others:
        return tuple(party for party in range(1, parties + 1) if party != index)
    chosen: set[int] = set()
    for top in range(others - degree, others):
        draw = _below(top + 1, randomness)
        chosen.add(top if draw in chosen else draw)
    return tuple(sorted(other + 1 if other + 1 < index else other + 2 for other in chosen))


def _below(bound: int, randomness: Randomness) -> int:
    limit = (1 << 64) - (1 << 64) % bound
    while True:
        word = int.from_bytes(randomness.bytes(8), "little")
        if word < limit:
            return word % bound


def pack_set(members: Iterable[int], parties: int) -> bytes:
    """Return a set of parties as ceil(parties / 8) bytes."""
    flags = np.zeros(parties, dtype=np.bool_)
    flags[[member - 1 for member in members]] = True
    return np.packbits(flags).tobytes()


def unpack_set(packed: bytes, parties: int, sender: str) -> tuple[int, ...]:
    """Return the parties of a packed set in ascending order; raise PeerFault on a wrong length or padding."""
    if len(packed) != (parties + 7) // 8:
        raise PeerFault(sender, f"a set of {parties} parties has {len(packed)} bytes")
    flags = np.unpackbits(np.frombuffer(packed, dtype=np.uint8))
    if flags[parties:].any():
        raise PeerFault(sender, "a set of parties has padding that is not zero")
    return tuple((np.flatnonzero(flags) + 1).tolist())


def pack_list(members: Iterable[int]) -> bytes:
    """Return parties as 2-byte little-endian numbers."""
    return np.fromiter(members, dtype="<u2").tobytes()


def unpack_list(packed: bytes, parties: int, sender: str) -> tuple[int, ...]:
    """Return a strictly ascending list of parties; raise PeerFault on anything else."""
    if len(packed) % 2:
        raise PeerFault(sender, "a list of parties has an odd number of bytes")
    members = np.frombuffer(packed, dtype="<u2").astype(np.int64)
    if members.size and (members[0] < 1 or members[-1] > parties or (np.diff(members) <= 0).any()):
        raise PeerFault(sender, f"a list of parties is not ascending within 1 to {parties}")
    return tuple(members.tolist())
