"""Sums of budgets as they are written: three times 0.1 is 0.3, and 1 with 1e-17 is more than 1.

A float stands for its shortest decimal, that which `repr` gives; the two differ by at most half a unit in the
last place. Decimals of floats are in the order of the floats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from fractions import Fraction


@functools.lru_cache(maxsize=4096)
def decimal(number: float) -> Fraction:
    """Return the shortest decimal that reads as a finite number."""
    return Fraction(repr(float(number)))


def summed(terms: Iterable[tuple[float, int]]) -> float:
    """Return the sum of (finite number >= 0, count): the least float whose decimal is no less than it."""
    exact = sum((decimal(number) * count for number, count in terms), start=Fraction())
    try:
        result = float(exact)
    except OverflowError:
        return math.inf
    below = math.nextafter(result, -math.inf)
    if decimal(result) < exact:
        return math.nextafter(result, math.inf)
    return below if decimal(below) >= exact else result
