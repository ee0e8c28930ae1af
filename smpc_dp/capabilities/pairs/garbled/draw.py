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
    """Return the commitment of a party to its coin of 32 random bytes, for the run that `run` names."""
    return digest(Label.STATISTIC_COIN, run, name.encode(), coin)


def beacon(run: bytes, coins: Sequence[tuple[str, bytes]]) -> bytes:
    """Return the 32-byte seed of all draws: a hash of the coins of all parties, in roster order."""
    parts = [part for name, coin in coins for part in (name.encode(), coin)]
    return digest(Label.STATISTIC_BEACON, run, *parts)


def matchings(seed: bytes, parties: int, partners: int) -> Pairs:
    """Return `partners` independent uniform matchings of parties 0..n-1, shape (partners, n // 2, 2).

    In each the parties 2 u and 2 u + 1 of a permutation are a pair, the first one garbles; of an odd number
    the last one is left out [Bellet 2021, 3.3.4, step 1].
    """
    rounds = [_permutation(seed, number, parties) for number in range(partners)]
    half = parties // 2
    return np.stack([order[: 2 * half].reshape(half, 2) for order in rounds])


def bipartite_matchings(seed: bytes, labels: Sequence[int], partners: int) -> Pairs:
    """Return matchings of the parties of label 1 with those of label 0, shape (partners, pairs, 2).

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
    """Return a permutation of 0..size-1, sorted by keys of 128 random bits."""
    keys = expand(digest(Label.STATISTIC_MATCHING, seed, encode_uint(number)), 2 * size, np.uint64)
    return np.lexsort((keys[0::2], keys[1::2])).astype(np.int64)
