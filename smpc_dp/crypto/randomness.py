"""Where random bytes come from: injected into every protocol, the operating system's in a real run."""

from __future__ import annotations

import secrets
from typing import Protocol


class Randomness(Protocol):
    """A source of random bytes."""

    def bytes(self, n: int) -> bytes:
        """Return the next `n` random bytes."""
        ...


class SystemRandomness:
    """The operating system's cryptographic generator."""

    def bytes(self, n: int) -> bytes:
        """Return `n` fresh random bytes."""
        return secrets.token_bytes(n)
