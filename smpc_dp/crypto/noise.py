"""Where noise comes from: a secret key, and a stream of its own for each call of a sampler.

`smpc_dp.privacy.sampling` has the samplers; `protocols/sampling/README.md` says which bytes they read.
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
    """A secret key, held in the core and overwritten there at the end, and the number of calls made so far.

    Make one with `system` or `keyed`. Calls are numbered as they come, so threads that share a source do not
    know which of them gets which noise. It cannot be pickled.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.NoiseKey) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"NoiseSource(calls={self.calls})"

    @classmethod
    def system(cls) -> NoiseSource:
        """Return a source with a fresh key of the operating system, which never leaves the core.

        A forked process draws a new key with its first call. Raises OSError if there is no randomness.
        """
        return cls(_core.NoiseKey.system())

    @classmethod
    def keyed(cls, key: bytes, *context: bytes) -> NoiseSource:
        """Return the source that `key` (32 secret bytes) and `context` determine.

        Two parties that give equal arguments, and then make the same calls in the same order, get the same
        noise; whoever else knows the key has it too. Another context gives an unrelated source. The same
        arguments again start again: never for two releases. Raises ConfigError for a key of another length,
        and for anything that is not `bytes`.
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
        """How many calls have been made."""
        return self._core.calls

    def draw(
        self, distribution: str, count: int, parameters: Sequence[Fraction], threads: int
    ) -> NDArray[np.int64]:
        """Return `count` values of the distribution of that name; what `smpc_dp.privacy.sampling` calls.

        Raises ValueError for an unknown distribution or wrong parameters, OverflowError for a value beyond
        int64.
        """
        terms = [_encode(term) for value in parameters for term in (value.numerator, value.denominator)]
        return self._core.draw(distribution, terms, count, threads)


def _encode(term: int) -> bytes:
    """The big-endian bytes of `term`, as few as hold it; none for 0."""
    return term.to_bytes(-(-term.bit_length() // 8), "big")
