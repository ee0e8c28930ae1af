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
    """Return a float's shortest decimal representation as an exact fraction."""
    return Fraction(repr(float(number)))


def split(number: float, share: float) -> tuple[float, float]:
    """Split a budget into a part (fraction `share`) and the rest, rounded so that the sum is never more."""
    first = _rounded_down(decimal(number) * decimal(share))
    return first, _rounded_down(decimal(number) - decimal(first))


def _rounded_down(exact: Fraction) -> float:
    """Return the greatest float whose shortest decimal is at most a fraction (>= 0)."""
    nearest = float(exact)
    return nearest if decimal(nearest) <= exact else math.nextafter(nearest, 0.0)


def summed(terms: Iterable[tuple[float, int]]) -> float:
    """Return the sum of number * count, as decimals, rounded up; ConfigError for a negative number.

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
