"""Selects names by their counts alone: a stability threshold, in its optimal form.

A name is released with a chance that its count decides, and that no step of one makes e^epsilon times as
large, delta apart. No other rule with the same guarantee releases a name of any count more often
[Desfontaines, Voss, Gipson, Mandayam 2022]; docs/proofs/records.md has the proof for several changes.
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy import sampling
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.sampling import NoiseSource

# Chances are multiples of its inverse.
ONE = 1 << 62
# Of e^epsilon, rounded down by more than the rounding of its float.
RATIO_BITS = 40
MAX_COUNTS = 1 << 20
MAX_CHANGES = 1 << 40


@dataclass(frozen=True)
class NameSelection:
    """Private selection of names by count: table of the probability that a name is released.

    Attributes:
        epsilon, delta: for inputs that are `changes` steps apart, each of which moves one count by one.
        chances: for each count from 0 the chance of a release, in units of 2^-62; the last one, which is 1,
            is that of all greater counts.
    """

    epsilon: float
    delta: float
    changes: int
    chances: tuple[int, ...]

    @classmethod
    def plan(cls, epsilon: float, delta: float, changes: int = 1) -> Self:
        """Return the greatest release probabilities by count that are (epsilon, delta)-DP.

        Args:
            epsilon: above 0, at most 100; delta: above 0, below 1; changes: 1 to 2^40.

        Raises ConfigError for one that is out of range, or too small for a table of 2^20 counts.
        """
        checks = ArgumentChecks()
        checks.require_budget(epsilon, delta)
        checks.require_integer("changes", changes, 1, MAX_CHANGES)
        checks.raise_issues()
        return cls(epsilon, delta, changes, _chances(epsilon, delta, changes))

    @property
    def even(self) -> int:
        """Least count whose name is released with a probability of at least 1/2."""
        return bisect.bisect_left(self.chances, ONE // 2)

    @property
    def certain(self) -> int:
        """Least count whose name is always released."""
        return len(self.chances) - 1

    @property
    def single(self) -> float:
        """Probability that a name with count 1 is released."""
        return self.chances[1] / ONE

    def released(self, counts: NDArray[np.int64], source: NoiseSource) -> NDArray[np.bool_]:
        """Draw at random which names to release, given their counts; return a mask."""
        table = np.array(self.chances, dtype=np.int64)
        chances = table[np.minimum(counts, len(table) - 1)]
        return sampling.uniform(source, len(counts), ONE) < chances


@functools.lru_cache(maxsize=16)
def _chances(epsilon: float, delta: float, changes: int) -> tuple[int, ...]:
    """Return the greatest private release chance of each count, in units of 2^-62; ConfigError if none."""
    one_step = epsilon / changes
    # Group privacy: k steps have delta times the sum of e^(i one_step) over i < k.
    share = delta * math.expm1(one_step) / math.expm1(epsilon)
    below, scale = 1 - 2.0**-RATIO_BITS, 1 << RATIO_BITS
    step, ratio = math.floor(share * below * ONE), math.floor(math.exp(one_step) * below * scale)
    if step < 1 or ratio <= scale:
        where = "delta" if step < 1 else "epsilon"
        raise ConfigError.at(where, f"is too small for {changes} changes of counts", ConfigCheck.INFEASIBLE)
    chances = [0]
    while chances[-1] < ONE:
        last = chances[-1]
        # Released: at most ratio times as likely as before. Not released: before at most ratio times.
        more = last * ratio // scale + step
        least = max(0, ONE - last - step)
        fewer = ONE - -(-least * scale // ratio)
        chances.append(min(more, fewer, ONE))
        if len(chances) > MAX_COUNTS:
            reason = f"is too small: names of {MAX_COUNTS} rows would not be released for certain"
            raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
    return tuple(chances)
