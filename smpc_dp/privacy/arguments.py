"""Checks that the planners share: each fault names the argument and its bound, and all are told at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue

GREATEST_EPSILON = 100.0
# Numerical methods convolve probabilities in floating point; below this their rounding would count.
LEAST_NUMERICAL_DELTA = 1e-10


class Arguments:
    """Collects faults; `done` raises them together. `where` goes behind what a fault says."""

    def __init__(self) -> None:
        self.issues: list[ConfigIssue] = []

    def issue(self, name: str, reason: str, check: ConfigCheck) -> None:
        """Note a fault that was found elsewhere."""
        self.issues.append(ConfigIssue(name, reason, check))

    def positive(self, name: str, value: object, most: float = 1e12, where: str = "") -> None:
        """Note a fault unless 0 < value <= most."""
        if not is_number(value) or not 0 < value <= most:
            self.issue(
                name, f"{value!r} is not a number above 0 and at most {most:g}{where}", ConfigCheck.RANGE
            )

    def within(self, name: str, value: object, low: float, high: float) -> None:
        """Note a fault unless low <= value <= high."""
        if not is_number(value) or not low <= value <= high:
            self.issue(name, f"{value!r} is not a number in [{low:g}, {high:g}]", ConfigCheck.RANGE)

    def integer(self, name: str, value: object, low: int, high: int, where: str = "") -> None:
        """Note a fault unless value is an integer in low..high."""
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.issue(name, f"{value!r} is not an integer in {low}..{high}{where}", ConfigCheck.RANGE)

    def choice(self, name: str, value: object, among: Sequence[str], where: str = "") -> None:
        """Note a fault unless value is one of a few names."""
        if value not in among:
            self.issue(name, f"{value!r} is not one of {', '.join(among)}{where}", ConfigCheck.CHOICE)

    def budget(self, epsilon: object, delta: object | None = None, *, least: float = 1e-300) -> None:
        """Note faults unless 0 < epsilon <= 100 and, where given, least <= delta < 1."""
        self.positive("epsilon", epsilon, GREATEST_EPSILON)
        if delta is not None and (not is_number(delta) or not least <= delta < 1):
            self.issue("delta", f"{delta!r} is not a number in [{least:g}, 1)", ConfigCheck.RANGE)

    def done(self) -> None:
        """Raise ConfigError if there are faults."""
        if self.issues:
            raise ConfigError(self.issues)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def delta_warnings(delta: float, parties: int) -> list[str]:
    """A line if delta exceeds 1/n: a mechanism that publishes one random party's data would satisfy it."""
    if delta <= 1 / parties:
        return []
    return [
        f"delta {delta:g} is above 1/parties = {1 / parties:g}: "
        "publishing a random user's data would satisfy it"
    ]
