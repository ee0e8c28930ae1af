"""Sources of noise: a secret key, and an independent stream for each call of a sampler.

`smpc_dp.privacy.sampling` has the samplers; `protocols/sampling/README.md` specifies which bytes they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.errors import ConfigCheck, ConfigError

KEY_BYTES = 32


class NoiseSource:
    """Secret key from which noise is drawn in native code, which erases the key at the end.

    Make one with `system` or `keyed`. Calls are numbered in the order of arrival: threads that share a source
    do not know which call gets which noise. It cannot be pickled.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.NoiseKey) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"NoiseSource(calls={self.calls})"

    @classmethod
    def system(cls) -> NoiseSource:
        """Return a source of noise with a fresh key from the operating system.

        A forked process draws a new key with its first call. Raises OSError if there is no randomness.
        """
        return cls(_core.NoiseKey.system())

    @classmethod
    def keyed(cls, key: bytes, *context: bytes) -> NoiseSource:
        """Return a noise source determined by a 32-byte key and context bytes; ConfigError for anything else.

        Two parties that give equal arguments, and then make the same calls in the same order, get the same
        noise; so does anyone else with the key. Another context gives an unrelated source. Equal arguments
        restart the same stream: never use them for two releases. Raises ConfigError for a key of another
        length, and for arguments that are not `bytes`.
        """
        # Never the values: they may be secret.
        if not isinstance(key, bytes):
            raise ConfigError.at("key", f"must be bytes, is {type(key).__name__}", ConfigCheck.TYPE)
        if len(key) != KEY_BYTES:
            raise ConfigError.at("key", f"{len(key)} bytes, not {KEY_BYTES}", ConfigCheck.SHAPE)
        for index, part in enumerate(context):
            if not isinstance(part, bytes):
                raise ConfigError.at(
                    f"context[{index}]", f"must be bytes, is {type(part).__name__}", ConfigCheck.TYPE
                )
        return cls(_core.NoiseKey.keyed(key, context))

    @property
    def calls(self) -> int:
        """Number of times that noise was drawn from the source."""
        return self._core.calls

    def draw(
        self, distribution: str, count: int, parameters: Sequence[Fraction], threads: int
    ) -> NDArray[np.int64]:
        """Return `count` new integers of a named noise distribution, counted as one call; or ValueError.

        Raises ValueError for an unknown distribution or wrong parameters, OverflowError for a value beyond
        int64.
        """
        terms = [_encode(term) for value in parameters for term in (value.numerator, value.denominator)]
        return self._core.draw(distribution, terms, count, threads)


def _encode(term: int) -> bytes:
    """Return `term` as big-endian bytes without leading zeros; 0 is empty."""
    return term.to_bytes(-(-term.bit_length() // 8), "big")
