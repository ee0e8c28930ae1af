"""Accuracies of methods over problems or runs: collected, and written as the points of a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
import numpy as np


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and standard deviation of a method's accuracy; `protected`: whether epsilon holds for a record."""

    method: str
    epsilon: float | None
    protected: bool
    accuracy: float
    deviation: float


P = TypeVar("P")


class Measured:
    """Collector of measured values, grouped by the fields that each value is added with."""

    def __init__(self) -> None:
        self._values: dict[tuple[tuple[str, object], ...], list[float]] = {}

    def add(self, value: float, **of: object) -> None:
        """Add a measured value to the group with these fields, in the order of first use."""
        self._values.setdefault(tuple(of.items()), []).append(value)

    def points(self, make: Callable[..., P], mean: str = "accuracy") -> tuple[P, ...]:
        """Return a point for each group: its fields, the mean of its values and their deviation."""
        return tuple(
            make(**dict(key) | {mean: float(np.mean(values)), "deviation": float(np.std(values))})
            for key, values in self._values.items()
        )
