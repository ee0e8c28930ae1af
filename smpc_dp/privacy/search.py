"""Search where a predicate changes: of real numbers, of integers, and from a start to any size."""

from __future__ import annotations

import math
from collections.abc import Callable

from smpc_dp.errors import ConfigCheck, ConfigError


def bisect(holds: Callable[[float], bool], low: float, high: float, rounds: int = 100) -> tuple[float, float]:
    """Return (low, high) halved `rounds` times, `holds` being true at low and false at high."""
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def first_integer(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least integer at which `holds` is true, which is false at low and true at high."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_sufficient(
    sufficient: Callable[[float], bool], start: float, *, tolerance: float = 1e-4, name: str = "sigma"
) -> float:
    """Return the least x > 0, rounded up, for which a monotone predicate is true; `name` is for errors.

    The number returned has passed `sufficient` itself; a number smaller by more than the relative `tolerance`
    has not. Raises ConfigError, naming `name`, if nothing up to 1e12 suffices.
    """
    low, high = 0.0, start
    while not sufficient(high):
        low, high = high, 2 * high
        if high > 1e12:
            raise ConfigError.at(
                name, "nothing up to 1e12 suffices for this epsilon and delta", ConfigCheck.INFEASIBLE
            )
    while low == 0.0:
        half = high / 2
        if half < 1e-9:
            return high
        low, high = (0.0, half) if sufficient(half) else (half, high)
    return narrowed(sufficient, low, high, tolerance)[1]


def narrowed(
    sufficient: Callable[[float], bool], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """Return (low, high) bisected geometrically, to a relative tolerance; high suffices, low > 0 does not."""
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if sufficient(middle) else (middle, high)
    return low, high
