"""Sums of budgets as they are written: three times 0.1 is 0.3, and 1 with 1e-17 is more than 1.

A float stands for its shortest decimal, that which `repr` gives; the two differ by at most half a unit in the
last place. Decimals of floats are in the order of the floats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from fractions import Fraction

from smpc_dp.errors import ConfigCheck, ConfigError


@functools.lru_cache(maxsize=4096)
def decimal(number: float) -> Fraction:
    """Return the shortest decimal that reads as a finite number."""
    return Fraction(repr(float(number)))


def split(number: float, share: float) -> tuple[float, float]:
    """Return a share of a budget, `share` in [0, 1), and the rest: their decimals add up to it at most."""
    first = _rounded_down(decimal(number) * decimal(share))
    return first, _rounded_down(decimal(number) - decimal(first))


def _rounded_down(exact: Fraction) -> float:
    """Return the greatest float whose decimal is at most `exact`, which is 0 or more."""
    nearest = float(exact)
    return nearest if decimal(nearest) <= exact else math.nextafter(nearest, 0.0)


def summed(terms: Iterable[tuple[float, int]]) -> float:
    """Return the sum of (finite number >= 0, count): the least float whose decimal is no less than it.

    Raises ConfigError for a negative number: no release gives back what another one has spent.
    """
    exact = Fraction()
    for number, count in terms:
        if number < 0:
            raise ConfigError(f"a budget must be 0 or more, is {number}", ConfigCheck.RANGE)
        exact += decimal(number) * count
    try:
        result = float(exact)
    except OverflowError:
        return math.inf
    below = math.nextafter(result, -math.inf)
    if decimal(result) < exact:
        return math.nextafter(result, math.inf)
    return below if decimal(below) >= exact else result
