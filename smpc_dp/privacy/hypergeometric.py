"""Upper bounds on hypergeometric tails, in natural logarithms, rounded upwards.

X ~ Hypergeom(N, K, k) counts the marked items among k drawn without replacement from N, K of them marked.
Every function broadcasts over integer arrays. The ratio used below:
P[X = j + 1] / P[X = j] = (K - j)(k - j) / ((j + 1)(N - K - k + j + 1)), which falls as j grows.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
IntLike = int | Ints

# After this many exact terms the rest of a tail is bounded by a geometric series, which only adds to it.
_EXACT_TERMS = 512


class LogBinomials:
    """Table of log factorials, from which binomials and hypergeometric probabilities are computed.

    `slack` allows for all rounding in one tail or one coefficient. A tail adds nine entries of the table.
    With each entry off by at most 16 ulp (lgamma stays well within) and the additions, the error is below
    2**-44 of the largest entry; the ratios add less than 2**-36.
    """

    def __init__(self, top: int) -> None:
        self.table: Floats = np.array([math.lgamma(m + 1.0) for m in range(top + 1)], dtype=np.float64)
        self.slack: float = math.ldexp(float(self.table[-1]), -44) + math.ldexp(1.0, -36)

    def choose(self, n: IntLike, r: IntLike) -> Floats:
        """Return ln of the binomial coefficient C(n, r), not rounded upwards (add `slack`)."""
        f = self.table
        return np.asarray(f[n] - f[r] - f[np.subtract(n, r)], dtype=np.float64)

    def pmf(self, population: int, marked: IntLike, draws: IntLike, x: IntLike) -> Floats:
        """Return ln of the hypergeometric probability of x marked draws, not rounded upwards."""
        big_k, k, j = _together(marked, draws, x)
        low = np.maximum(0, k + big_k - population)
        high = np.minimum(k, big_k)
        inside = (low <= j) & (j <= high)
        j = np.clip(j, low, high)
        value = self.choose(big_k, j) + self.choose(population - big_k, k - j) - self.choose(population, k)
        return np.where(inside, value, -np.inf)

    def tail(self, population: int, marked: IntLike, draws: IntLike, x: IntLike) -> Floats:
        """Return an upper bound on ln P(X >= x), X a hypergeometric count of marked draws; 0 up to the mode.

        0 where x is at most the mode (no attempt is made there), -inf where X >= x is impossible; in between
        within `slack` and a relative 2**-36 of the exact value unless the tail is longer than 512 terms.
        """
        big_k, k, x = _together(marked, draws, x)
        counted = above_mode(population, big_k, k, x)
        rest = population - big_k - k
        total = np.ones(x.shape, dtype=np.float64)
        term = total.copy()
        for j in range(_EXACT_TERMS):
            at = x + j
            ratio = _ratio(big_k, k, rest, at)
            term = term * ratio
            total = total + term
            # Later ratios are no larger, so what is left is at most term * (ratio + ratio**2 + ...).
            left = term * ratio / np.maximum(1.0 - ratio, 1e-300)
            if not np.any((left > total * 2.0**-40) & counted):
                break
        value = np.minimum(self.pmf(population, big_k, k, x) + np.log(total + left) + self.slack, 0.0)
        return np.where(counted, value, 0.0)


def mode(population: int, marked: IntLike, draws: IntLike) -> Ints:
    """Return the most likely number of marked draws without replacement (the larger of two)."""
    big_k, k, _ = _together(marked, draws, 0)
    return np.asarray((k + 1) * (big_k + 1) // (population + 2), dtype=np.int64)


def above_mode(population: int, marked: IntLike, draws: IntLike, x: IntLike) -> npt.NDArray[np.bool_]:
    """Tell whether x is above the mode of a hypergeometric distribution, where probabilities fall."""
    return np.asarray(np.asarray(x) > mode(population, marked, draws))


def _together(marked: IntLike, draws: IntLike, x: IntLike) -> tuple[Ints, ...]:
    """Return three arguments as integer arrays of a common shape."""
    return np.broadcast_arrays(*(np.asarray(a, dtype=np.int64) for a in (marked, draws, x)))


def _ratio(big_k: Ints, k: Ints, rest: Ints, at: Ints) -> Floats:
    """Return P[X = at + 1] / P[X = at] of a hypergeometric X, clipped to [0, 1]."""
    above = np.maximum(big_k - at, 0) * np.maximum(k - at, 0)
    below = np.maximum(at + 1, 1) * np.maximum(rest + at + 1, 1)
    return np.asarray(np.minimum(above / below, 1.0), dtype=np.float64)
