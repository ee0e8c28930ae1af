"""Random matchings of parties, drawn from coins of all parties, which all parties can check.

Each party commits to a coin, and opens it when all commitments are known; the beacon is a hash of all coins.
The matchings are uniform if one party's coin is random, except that a party that withholds its coin forces
another draw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.prg import expand
from smpc_dp.crypto.transcript import digest, encode_uint

Pairs = NDArray[np.int64]
COIN_BYTES = 32


def commit(run: bytes, name: str, coin: bytes) -> bytes:
    """Return a party's hash commitment to its 32-byte random coin for drawing pairs in a run."""
    return digest(Label.STATISTIC_COIN, run, name.encode(), coin)


def beacon(run: bytes, coins: Sequence[tuple[str, bytes]]) -> bytes:
    """Return the 32-byte public seed from which pairs are drawn: a hash of all parties' coins."""
    parts = [part for name, coin in coins for part in (name.encode(), coin)]
    return digest(Label.STATISTIC_BEACON, run, *parts)


def matchings(seed: bytes, parties: int, partners: int) -> Pairs:
    """Return `partners` pseudorandom pairings of parties 0..n-1, shape (partners, n // 2, 2), by a seed.

    In each the parties 2 u and 2 u + 1 of a permutation are a pair, the first one garbles; of an odd number
    the last one is left out [Bellet 2021, 3.3.4, step 1].
    """
    rounds = [_permutation(seed, number, parties) for number in range(partners)]
    half = parties // 2
    return np.stack([order[: 2 * half].reshape(half, 2) for order in rounds])


def bipartite_matchings(seed: bytes, labels: Sequence[int], partners: int) -> Pairs:
    """Return pseudorandom matchings of parties labelled 1 with parties labelled 0, `partners` of them.

    The first of each pair has label 1. In each matching every party of the rarer label has one partner.
    """
    sides = [np.flatnonzero(np.array(labels) == label) for label in (1, 0)]
    fewer = min(len(side) for side in sides)
    columns = [
        [side[_permutation(seed, 2 * number + which, len(side))][:fewer] for number in range(partners)]
        for which, side in enumerate(sides)
    ]
    return np.stack([np.stack(column) for column in columns], axis=-1)


def _permutation(seed: bytes, number: int, size: int) -> Pairs:
    """Return a pseudorandom permutation of 0..size-1 that depends on the public seed and a number."""
    keys = expand(digest(Label.STATISTIC_MATCHING, seed, encode_uint(number)), 2 * size, np.uint64)
    return np.lexsort((keys[0::2], keys[1::2])).astype(np.int64)
