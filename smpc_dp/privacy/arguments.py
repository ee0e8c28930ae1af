"""Checks that the planners share: each fault names the argument and its bound, and all are told at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from smpc_dp.errors import ConfigError, Fault

GREATEST_EPSILON = 100.0
# Numerical methods convolve probabilities in floating point; below this their rounding would count.
LEAST_NUMERICAL_DELTA = 1e-10


class Arguments:
    """Collects faults; `done` raises them together."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def fault(self, name: str, what: str) -> None:
        """Note a fault that was found elsewhere."""
        self.faults.append(Fault(name, what))

    def positive(self, name: str, value: object, most: float = 1e12) -> None:
        """Note a fault unless 0 < value <= most."""
        if not _is_number(value) or not 0 < value <= most:  # type: ignore[operator]
            self.fault(name, f"{value!r} is not a number above 0 and at most {most:g}")

    def within(self, name: str, value: object, low: float, high: float) -> None:
        """Note a fault unless low <= value <= high."""
        if not _is_number(value) or not low <= value <= high:  # type: ignore[operator]
            self.fault(name, f"{value!r} is not a number in [{low:g}, {high:g}]")

    def integer(self, name: str, value: object, low: int, high: int) -> None:
        """Note a fault unless value is an integer in low..high."""
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fault(name, f"{value!r} is not an integer in {low}..{high}")

    def choice(self, name: str, value: object, among: Sequence[str], where: str = "") -> None:
        """Note a fault unless value is one of a few names; `where` they are meant is said behind them."""
        if value not in among:
            self.fault(name, f"{value!r} is not one of {', '.join(among)}{where}")

    def budget(self, epsilon: object, delta: object | None = None, *, least: float = 1e-300) -> None:
        """Note faults unless 0 < epsilon <= 100 and, where given, least <= delta < 1."""
        self.positive("epsilon", epsilon, GREATEST_EPSILON)
        if delta is not None and (not _is_number(delta) or not least <= delta < 1):  # type: ignore[operator]
            self.fault("delta", f"{delta!r} is not a number in [{least:g}, 1)")

    def done(self) -> None:
        """Raise ConfigError if there are faults."""
        if self.faults:
            raise ConfigError(self.faults)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def delta_warnings(delta: float, parties: int) -> list[str]:
    """A line if delta exceeds 1/n: a mechanism that publishes one random user's data would satisfy it."""
    if delta <= 1 / parties:
        return []
    return [
        f"delta {delta:g} is above 1/parties = {1 / parties:g}: "
        "publishing a random user's data would satisfy it"
    ]


def least_sufficient(
    sufficient: Callable[[float], bool], start: float, *, tolerance: float = 1e-4, name: str = "sigma"
) -> float:
    """The least x > 0 that is `sufficient`, for a predicate that stays true as x grows, rounded up.

    The number returned has passed `sufficient` itself; a number smaller by more than the relative `tolerance`
    has not. Raises ConfigError, naming `name`, if nothing up to 1e12 suffices.
    """
    low, high = 0.0, start
    while not sufficient(high):
        low, high = high, 2 * high
        if high > 1e12:
            raise ConfigError([Fault(name, "nothing up to 1e12 suffices for this epsilon and delta")])
    while low == 0.0:
        half = high / 2
        if half < 1e-9:
            return high
        low, high = (0.0, half) if sufficient(half) else (half, high)
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if sufficient(middle) else (middle, high)
    return high
