"""Uniform draws of distinct parties and indices."""

from __future__ import annotations

from smpc_dp.crypto.randomness import Randomness


def draw_neighbours(index: int, parties: int, degree: int, randomness: Randomness) -> tuple[int, ...]:
    """Return `degree` distinct parties other than `index` (from 1), uniformly, ascending; all if too few."""
    others = parties - 1
    if degree >= others:
        return tuple(party for party in range(1, parties + 1) if party != index)
    drawn = draw_indices(others, degree, randomness)
    return tuple(other + 1 if other + 1 < index else other + 2 for other in drawn)


def draw_indices(size: int, count: int, randomness: Randomness) -> tuple[int, ...]:
    """Return `count` distinct indices from 0 to `size` - 1, uniformly, in ascending order.

    Floyd's algorithm on words without modulo bias (rejection), so each set has the same probability.
    """
    chosen: set[int] = set()
    for top in range(size - count, size):
        draw = _below(top + 1, randomness)
        chosen.add(top if draw in chosen else draw)
    return tuple(sorted(chosen))


def _below(bound: int, randomness: Randomness) -> int:
    """Return a uniformly random integer from 0 to `bound` - 1."""
    limit = (1 << 64) - (1 << 64) % bound
    while True:
        word = int.from_bytes(randomness.bytes(8), "little")
        if word < limit:
            return word % bound
