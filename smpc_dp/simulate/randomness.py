"""Reproducible randomness, for simulations and tests only: the seed determines every secret."""

from __future__ import annotations

import hashlib

from smpc_dp.crypto.randomness import Randomness, SystemRandomness


class SeededRandomnessForSimulation:
    """Deterministic randomness: SHAKE256 in counter mode over (seed, name); never for a real run."""

    def __init__(self, seed_for_simulation: int, name: str) -> None:
        self._prefix = f"smpc-dp simulation {seed_for_simulation} {name} ".encode()
        self._counter = 0

    def bytes(self, n: int) -> bytes:
        """Return the next `n` bytes."""
        self._counter += 1
        return hashlib.shake_256(self._prefix + self._counter.to_bytes(8, "big")).digest(n)


def randomness_of(seed_for_simulation: int | None, name: str) -> Randomness:
    """Return the randomness of a role or purpose: that of the operating system without a seed."""
    if seed_for_simulation is None:
        return SystemRandomness()
    return SeededRandomnessForSimulation(seed_for_simulation, name)
