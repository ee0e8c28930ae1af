"""Sources of random bytes: injected into every protocol; real runs use the operating system's."""

from __future__ import annotations

import secrets
from typing import Protocol


class Randomness(Protocol):
    """Interface of a source of random bytes."""

    def bytes(self, n: int) -> bytes:
        """Return the next `n` random bytes."""
        ...


class SystemRandomness:
    """Source of random bytes of the operating system."""

    def bytes(self, n: int) -> bytes:
        """Return `n` fresh random bytes."""
        return secrets.token_bytes(n)
