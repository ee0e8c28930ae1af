"""Reproducible randomness, for simulations and tests only: the seed determines every secret."""

from __future__ import annotations

import hashlib
from numbers import Integral

from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError


class SeededRandomnessForSimulation:
    """Deterministic source of random bytes from a seed and a name; never for a real run."""

    def __init__(self, seed_for_simulation: int, name: str) -> None:
        self._prefix = f"smpc-dp simulation {checked_seed(seed_for_simulation)} {name} ".encode()
        self._counter = 0

    def bytes(self, n: int) -> bytes:
        """Return `n` bytes that follow from seed, name and the number of the call."""
        self._counter += 1
        return hashlib.shake_256(self._prefix + self._counter.to_bytes(8, "big")).digest(n)


def checked_seed(seed: int | None) -> int | None:
    """Return the seed as an int, or None as it is; raise ConfigError unless it is in [0, 2^64)."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < 1 << 64:
        reason = f"must be an integer in [0, 2^64), is {shown(seed)}"
        raise ConfigError.at("seed_for_simulation", reason, ConfigCheck.RANGE)
    return int(seed)


def randomness_of(seed_for_simulation: int | None, name: str) -> Randomness:
    """Return the randomness of a named role: seeded, or the operating system's if the seed is None."""
    if seed_for_simulation is None:
        return SystemRandomness()
    return SeededRandomnessForSimulation(seed_for_simulation, name)
