"""Where noise comes from: keyed streams, each call of a sampler with a stream of its own.

`smpc_dp.privacy.sampling` has the samplers; `docs/sampling.md` says what they read.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto import noise_slow
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint

KEY_BYTES = 32


class NoiseSource:
    """A secret key and the number of calls made so far."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._calls = 0

    def __repr__(self) -> str:
        return f"NoiseSource(calls={self._calls})"

    @classmethod
    def system(cls) -> NoiseSource:
        """Return a source with a fresh 32-byte key of the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def keyed(cls, key: bytes, *context: bytes) -> NoiseSource:
        """Return the source that `key` (32 secret bytes) and `context` determine.

        Equal arguments give equal sources: two parties derive the same noise. Raises ValueError for a key of
        another length, TypeError for anything that is not `bytes`.
        """
        if len(key) != KEY_BYTES:
            raise ValueError(f"key: {len(key)} bytes, not {KEY_BYTES}")
        return cls(digest(Label.NOISE_KEY, key, *context))

    def draw(self, law: str, count: int, parameters: Sequence[Fraction], threads: int) -> NDArray[np.int64]:
        """Return the next `count` values of `law`."""
        terms = [term for value in parameters for term in (value.numerator, value.denominator)]
        encoded = [term.to_bytes(-(-term.bit_length() // 8), "big") for term in terms]
        key = digest(Label.NOISE_CALL, self._key, encode_uint(self._calls), law.encode(), *encoded)
        self._calls += 1
        return np.array(noise_slow.values(key, law, count, *parameters), np.int64)
