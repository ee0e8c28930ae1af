"""Sources of random bytes: injected into every protocol; real runs use the operating system's."""

from __future__ import annotations

import secrets
from typing import Protocol


class Randomness(Protocol):
    """Interface of a source of random bytes: the operating system's, or a seeded one in simulations."""

    def bytes(self, n: int) -> bytes:
        """Return the next `n` random bytes of this source."""
        ...


class SystemRandomness:
    """Source of random bytes that takes them from the operating system."""

    def bytes(self, n: int) -> bytes:
        """Return `n` fresh random bytes of the operating system."""
        return secrets.token_bytes(n)
