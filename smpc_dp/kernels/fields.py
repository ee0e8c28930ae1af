"""Fields of a record: values on a declared grid, and their codes, the numbers of the grid points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

MAX_BITS = 32
"""Bits of one value of a record on its grid, at most."""


@dataclass(frozen=True)
class Field:
    """One value of a record: a number from `low` to `high` on a grid of width `step`.

    Values are rounded to the grid, or with `exact` refused unless they lie on it. `low`, `high` and `step`
    are taken as the decimals that they are written as. Raises ConfigError unless they are finite, low < high,
    step > 0, and (high - low) / step is an integer below 2**32.
    """

    low: float
    high: float
    step: float = 1.0
    name: str = "value"
    exact: bool = False

    def __post_init__(self) -> None:
        self._check_bounds()
        steps = (_exact(self.high) - _exact(self.low)) / _exact(self.step)
        if steps.denominator != 1 or steps >= 1 << MAX_BITS:
            reason = f"{self.step} does not divide high - low = {self.high - self.low:g} into an integer"
            raise ConfigError.at(
                f"{self.name}.step", f"{reason} of steps below 2**{MAX_BITS}", ConfigCheck.RANGE
            )

    def _check_bounds(self) -> None:
        """Raise ConfigError unless bounds and step are finite and fit each other."""
        numbers = {"low": self.low, "high": self.high, "step": self.step}
        for key, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigError.at(
                    f"{self.name}.{key}", f"{value!r} is not a finite number", ConfigCheck.RANGE
                )
        if not self.low < self.high:
            raise ConfigError.at(
                f"{self.name}.high", f"{self.high} is not above low = {self.low}", ConfigCheck.RANGE
            )
        if not self.step > 0:
            raise ConfigError.at(f"{self.name}.step", f"{self.step} is not above 0", ConfigCheck.RANGE)

    @property
    def steps(self) -> int:
        """The greatest code: the number of grid points less one."""
        return int((_exact(self.high) - _exact(self.low)) / _exact(self.step))

    @property
    def bits(self) -> int:
        """The number of bits of a code."""
        return max(1, self.steps.bit_length())

    def codes(self, values: ArrayLike) -> Codes:
        """Return the nearest grid point of each value as an integer 0..steps, of the shape of `values`.

        Raises PrivacyError for a value out of bounds, not a finite number, or with `exact` off the grid;
        nothing is clipped.
        """
        codes = self.nearest(values)
        if self.exact:
            off = np.abs((np.asarray(values, dtype=np.float64) - self.low) / self.step - codes) > 1e-9
            if off.any():
                raise PrivacyError(
                    f"{self.name}: {int(off.sum())} of {off.size} values are no multiples of {self.step:g} "
                    f"from {self.low:g} to {self.high:g}"
                )
        return codes

    def nearest(self, values: ArrayLike) -> Codes:
        """Return the nearest codes, off the grid too, for values that are no records; raise PrivacyError."""
        return np.asarray(np.rint((self._within(values) - self.low) / self.step), dtype=np.int64)

    def _within(self, values: ArrayLike) -> Floats:
        """Return values as an array; raise PrivacyError unless all are within bounds."""
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise PrivacyError(f"{self.name}: not an array of numbers") from None
        bad = ~((array >= self.low) & (array <= self.high))
        if bad.any():
            reason = "not a number" if np.isnan(array[bad]).any() else "out of bounds"
            first = f", the first is number {1 + int(np.flatnonzero(bad)[0])}" if bad.size > 1 else ""
            raise PrivacyError(
                f"{self.name}: {int(bad.sum())} of {bad.size} values are {reason}{first}; "
                f"the domain is {self.low:g} to {self.high:g}"
            )
        return array

    def values(self, codes: NDArray[Any]) -> Floats:
        """Return the values of codes, or of positions between them."""
        return self.low + self.step * codes.astype(np.float64)

    def terms(self) -> dict[str, object]:
        """Return the parameters that two sides compare, as plain data."""
        return {
            "name": self.name,
            "low": repr(float(self.low)),
            "high": repr(float(self.high)),
            "step": repr(float(self.step)),
            "exact": self.exact,
        }


@dataclass(frozen=True)
class Cells(Field):
    """One value of a record: any number from `low` to `high`, which is cut into `bins` equal cells.

    A code is a cell's number and stands for its centre; `step` is a cell's width. Raises ConfigError unless
    the bounds are finite, low < high, and bins are 2 to 2**32.
    """

    step: float = field(init=False)
    exact: bool = field(init=False, default=False)
    bins: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if type(self.bins) is not int or not 2 <= self.bins <= 1 << MAX_BITS:
            raise ConfigError.at(
                f"{self.name}.bins", f"{self.bins!r} is not 2 to 2**{MAX_BITS}", ConfigCheck.RANGE
            )
        object.__setattr__(self, "step", (self.high - self.low) / self.bins)
        self._check_bounds()

    @property
    def steps(self) -> int:
        """The greatest code."""
        return self.bins - 1

    def nearest(self, values: ArrayLike) -> Codes:
        """Return the cell of each value; `high` is in the last one. Raises PrivacyError out of bounds."""
        indices = (self._within(values) - self.low) / (self.high - self.low) * self.bins
        return np.minimum(np.floor(indices).astype(np.int64), self.steps)

    def values(self, codes: NDArray[Any]) -> Floats:
        """Return the centres of cells."""
        return self.low + (self.high - self.low) * (codes.astype(np.float64) + 0.5) / self.bins

    def terms(self) -> dict[str, object]:
        """Return the parameters that two sides compare, as plain data."""
        return {**super().terms(), "bins": self.bins}


def nearest_codes(fields: Sequence[Field], values: Any) -> Codes:
    """Return the codes nearest to values, both of shape (..., fields). Raises PrivacyError."""
    return np.stack([field.nearest(values[..., index]) for index, field in enumerate(fields)], axis=-1)


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array; raise ConfigError, naming them, for ragged lists."""
    try:
        return np.asarray(values)
    except ValueError:
        raise ConfigError.at(name, "its rows are not equally long", ConfigCheck.SHAPE) from None


def checked_labels(labels: ArrayLike | None, count: int) -> Codes:
    """Return labels as integers, (n,); raise ConfigError unless all are 0 or 1, and both occur."""
    if labels is None:
        raise ConfigError.at(
            "labels", "public labels are needed, 0 or 1 for each record", ConfigCheck.MISSING
        )
    array = as_array("labels", labels)
    if array.shape != (count,):
        raise ConfigError.at("labels", f"shape {array.shape}, not ({count},)", ConfigCheck.SHAPE)
    if array.dtype.kind not in "iufb" or not np.isin(array, (0, 1)).all():
        raise ConfigError.at("labels", "must all be 0 or 1", ConfigCheck.RANGE)
    if len(np.unique(array)) < 2:
        raise ConfigError.at(
            "labels", "all are the same: there is no pair to compare", ConfigCheck.INFEASIBLE
        )
    return array.astype(np.int64)


def _exact(value: float) -> Fraction:
    """Return the decimal that a number is written as, such as 1/10 for 0.1."""
    return Fraction(str(value))
