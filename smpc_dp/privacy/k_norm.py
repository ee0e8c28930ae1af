"""Noise with a density proportional to exp(-|x|_2 / scale), rounded to integers, sampled exactly.

The K-norm mechanism of the l2 ball [Hardt and Talwar 2010]: |x| is a sum of `length` exponentials, and the
direction is uniform. Here exponentials and points of a disc are known to some binary digits; more are drawn
until every coordinate has one nearest integer. So the result is exactly round(x) for the real x: a function
of the mechanism without rounding, as private as it is. Floating point takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.sampling import NoiseSource, bernoulli_exp, binomial, geometric, uniform

# Binary digits of a disc's coordinates, and of those that are drawn later; of exponentials at first.
_WORD, _FIRST = 62, 50


def k_norm(source: NoiseSource, length: int, scale: int, *, digits: int = _FIRST) -> NDArray[np.int64]:
    """Draw one vector of K-norm noise for the L2 ball (density ~ exp(-|x| / scale)), rounded to integers.

    Args:
        scale: in steps, 1 to 2^50.
        digits: binary digits of all reals at first, 1 to 50; the distribution does not depend on them.

    Raises ConfigError if more than 250 binary digits do not tell: its probability is below 2^-100.
    """
    pairs = -(-length // 2)
    exponentials = geometric(source, pairs + length, Fraction(1, 1 << digits)).tolist()
    signs = 2 * binomial(source, length, 1, Fraction(1, 2)) - 1
    points = [_disc_point(source, digits) for _ in range(pairs)]
    depth = digits
    while (rounded := _rounded(exponentials, points, depth, length, scale)) is None:
        words = uniform(source, 2 * pairs, 1 << _WORD).reshape(pairs, 2).tolist()
        points = [
            ((x << _WORD) + more, (y << _WORD) + other, have + _WORD)
            for (x, y, have), (more, other) in zip(points, words, strict=True)
        ]
        depth += _WORD
        exponentials = [_more(source, one, depth) for one in exponentials]
    return np.asarray(signs * np.array(rounded, dtype=np.int64))


def _disc_point(source: NoiseSource, digits: int) -> tuple[int, int, int]:
    """Return a uniform random point of the unit disc's first quadrant, in binary digits, and how many."""
    while True:
        x, y = uniform(source, 2, 1 << digits).tolist()
        have = digits
        while True:
            if (x + 1) ** 2 + (y + 1) ** 2 <= 1 << 2 * have:
                return x, y, have
            if x**2 + y**2 >= 1 << 2 * have:
                break
            more, other = uniform(source, 2, 1 << _WORD).tolist()
            x, y, have = (x << _WORD) + more, (y << _WORD) + other, have + _WORD


def _more(source: NoiseSource, known: int, depth: int) -> int:
    """Draw one more word of binary digits of an exponential random number whose first digits are known."""
    while True:
        # Within its cell the density falls as exp(-x).
        more = int(uniform(source, 1, 1 << _WORD)[0])
        if bernoulli_exp(source, 1, Fraction(more, 1 << depth))[0]:
            return (known << _WORD) + more


def _rounded(
    exponentials: Sequence[int], points: Sequence[tuple[int, int, int]], depth: int, length: int, scale: int
) -> list[int] | None:
    """Return the absolute values of a noise vector rounded to integers; None if more digits are needed.

    The squares of two normal numbers are 2 e x^2/(x^2 + y^2) and 2 e y^2/(x^2 + y^2), e an exponential.
    """
    low, high = [], []
    for (x, y, _), e in zip(points, exponentials, strict=False):
        least, most = x**2 + y**2, (x + 1) ** 2 + (y + 1) ** 2
        if not least:
            return None
        for one in (x, y):
            low.append((e * one**2 << _WORD) // most)
            high.append(-(-((e + 1) * (one + 1) ** 2 << _WORD) // least))
    del low[length:], high[length:]
    radius, least_sum, most_sum = sum(exponentials[len(points) :]), sum(low), sum(high)
    if not least_sum:
        return None
    # Of 4 |x_i|^2, in steps, times 2^(2 depth).
    under, over = (2 * scale * radius) ** 2, (2 * scale * (radius + length)) ** 2
    result = []
    for least, most in zip(low, high, strict=True):
        rounded = _nearest(under * least // (most_sum << 2 * depth))
        if rounded != _nearest(over * most // (least_sum << 2 * depth)):
            return None
        result.append(rounded)
    return result


def _nearest(square: int) -> int:
    """Return the integer nearest to sqrt(v), from the integer part of 4 v."""
    return (math.isqrt(square) + 1) // 2
