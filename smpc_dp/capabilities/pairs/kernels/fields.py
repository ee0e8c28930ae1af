"""Fields of a record: values on a declared grid, and their codes, the numbers of the grid points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.values import refuse_masked

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

MAX_BITS = 32
"""Bits of one value of a record on its grid, at most."""

_NUMBERS = (Integral, float, np.floating, Decimal, Fraction)

# Up to this numerator float64 arithmetic finds the nearest code of a value, and the value of a code, exactly.
_EXACT_IN_FLOATS = 1 << 44


@dataclass(frozen=True)
class Field:
    """Domain of one value of a record: numbers from `low` to `high` on a grid of width `step`, as codes.

    Values are rounded to the grid, or with `exact` refused unless they lie on it. `low`, `high`, `step` and
    values are taken as the decimals that they are written as. Raises ConfigError unless the three are finite,
    low < high, step > 0, (high - low) / step is an integer below 2**32, and float64 has different values for
    all points of the grid.
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
        self._check_float64()

    def _check_float64(self) -> None:
        """Raise ConfigError unless float64 holds the bounds, and tells all grid points apart."""
        greatest = max(abs(self.low), abs(self.high))
        whole = self._grid[2] == 1 and greatest <= 1 << 53
        if not whole and not math.ulp(greatest) < self.step:
            reason = f"float64 cannot tell points at a distance of {self.step:g} apart near {greatest:g}"
            raise ConfigError.at(
                f"{self.name}.step", f"{reason}: subtract an offset from values and bounds", ConfigCheck.RANGE
            )
        for key, value in (("low", self.low), ("high", self.high)):
            if float(value) != value:
                raise ConfigError.at(f"{self.name}.{key}", f"float64 cannot hold {value}", ConfigCheck.RANGE)

    def _check_bounds(self) -> None:
        """Raise ConfigError unless bounds and step are finite and fit; convert NumPy numbers."""
        for key in ("low", "high", "step"):
            value = getattr(self, key)
            if isinstance(value, np.integer | np.floating):
                value = int(value) if isinstance(value, np.integer) else float(str(value))
                object.__setattr__(self, key, value)
            if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
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
        """The greatest code of a value: the number of grid points less one."""
        return int((_exact(self.high) - _exact(self.low)) / _exact(self.step))

    @property
    def bits(self) -> int:
        """The number of bits of an encoded value of the field."""
        return max(1, self.steps.bit_length())

    @cached_property
    def _grid(self) -> tuple[int, int, int]:
        """Integers (first, stride, unit), by which grid point k is (first + k * stride) / unit."""
        low, step = _exact(self.low), _exact(self.step)
        unit = math.lcm(low.denominator, step.denominator)
        return int(low * unit), int(step * unit), unit

    def codes(self, values: ArrayLike) -> Codes:
        """Return values as codes 0..steps; PrivacyError out of bounds, or off the grid if `exact`.

        With `exact` a value is on the grid if it is a point, or in an array of floats the float nearest to
        one and to no other. Raises PrivacyError for a value out of bounds, masked, not a finite number, or
        with `exact` off the grid; nothing is clipped.
        """
        array = self._within(values)
        codes = self._nearest(array)
        if self.exact:
            off = ~self._is_point(array, codes)
            if off.any():
                reason = f"are no multiples of {self.step:g} from {self.low:g} to {self.high:g}"
                if array.dtype.kind == "f" and array.dtype.itemsize < 8:
                    reason += f", or {array.dtype} does not tell which: give float64"
                raise PrivacyError(f"{self.name}: {int(off.sum())} of {off.size} values {reason}")
        return codes

    def nearest(self, values: ArrayLike) -> Codes:
        """Return values as nearest codes, also off the grid if `exact`; PrivacyError out of bounds."""
        return self._nearest(self._within(values))

    def _nearest(self, array: NDArray[Any]) -> Codes:
        """Return each number's nearest code, where numbers are within bounds; ties give even codes."""
        if array.dtype.kind == "f" and self._small:
            floats = array.astype(np.float64, copy=False)
            return np.asarray(np.rint((floats - self.low) / self.step), dtype=np.int64)
        stride = self._grid[1]
        numerators = self._numerators(array)
        codes, rest = numerators // stride, numerators % stride
        up = (2 * rest > stride) | ((2 * rest == stride) & (codes % 2 == 1))
        return np.asarray(codes + up, dtype=np.int64)

    def _is_point(self, array: NDArray[Any], codes: Codes) -> NDArray[np.bool_]:
        """Return whether each number is its code's grid point, or as a float the nearest to it alone."""
        if array.dtype.kind != "f":
            return np.asarray(self._numerators(array) == codes.astype(object) * self._grid[1], dtype=np.bool_)
        here, below, above = (self._floats(codes + k).astype(array.dtype) for k in (0, -1, 1))
        return np.asarray((array == here) & (below != here) & (above != here))

    @property
    def _small(self) -> bool:
        """Whether grid numbers are so small that float64 arithmetic is exact but for one rounding."""
        first, stride, unit = self._grid
        last = first + stride * self.steps
        return max(abs(first), abs(last), unit) < _EXACT_IN_FLOATS

    def _numerators(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return (value - low) * unit exactly, where integers and decimals count as they are written."""
        first, _, unit = self._grid
        if array.dtype.kind in "iu" and self._small and array.size:
            limit = (1 << 62) // unit
            if -limit < int(array.min()) and int(array.max()) < limit:
                return array.astype(np.int64) * unit - first
        exact = np.empty(array.size, dtype=object)
        exact[:] = [_exact(value) * unit - first for value in array.flat]
        return exact.reshape(array.shape)

    def _floats(self, codes: Codes) -> Floats:
        """Return the float64 that is nearest to the grid point of each code."""
        first, stride, unit = self._grid
        numerators = codes.astype(np.int64 if self._small else object) * stride + first
        return np.asarray(numerators / unit, dtype=np.float64)

    def _within(self, values: ArrayLike) -> NDArray[Any]:
        """Return values as an array of numbers; raise PrivacyError unless all are within bounds."""
        array = _as_numbers(self.name, values)
        bad = ~np.asarray((array >= self.low) & (array <= self.high), dtype=np.bool_)
        if bad.any():
            numbers = array[bad]
            reason = "not a number" if (numbers != numbers).any() else "out of bounds"  # noqa: PLR0124
            first = f", the first is number {1 + int(np.flatnonzero(bad)[0])}" if bad.size > 1 else ""
            raise PrivacyError(
                f"{self.name}: {int(bad.sum())} of {bad.size} values are {reason}{first}; "
                f"the domain is {self.low:g} to {self.high:g}"
            )
        return array

    def values(self, codes: NDArray[Any]) -> Floats:
        """Return the real values of integer codes, or of fractional positions between two codes."""
        return self.low + self.step * codes.astype(np.float64)

    def terms(self) -> dict[str, object]:
        """Return the field's name, bounds and grid as plain data, which members compare."""
        return {
            "name": self.name,
            "low": repr(float(self.low)),
            "high": repr(float(self.high)),
            "step": repr(float(self.step)),
            "exact": self.exact,
        }


@dataclass(frozen=True)
class Cells(Field):
    """Domain of one value of a record: any number from `low` to `high`, encoded as one of `bins` equal cells.

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
        """The greatest code of a value: the number of cells less one."""
        return self.bins - 1

    def _nearest(self, array: NDArray[Any]) -> Codes:
        """Return the number of the cell in which each value lies; `high` is in the last cell."""
        indices = (array.astype(np.float64) - self.low) / (self.high - self.low) * self.bins
        return np.minimum(np.floor(indices).astype(np.int64), self.steps)

    def values(self, codes: NDArray[Any]) -> Floats:
        """Return the centre of each cell, given by its number."""
        return self.low + (self.high - self.low) * (codes.astype(np.float64) + 0.5) / self.bins

    def terms(self) -> dict[str, object]:
        """Return the name, bounds and number of cells as plain data, which members compare."""
        return {**super().terms(), "bins": self.bins}


def nearest_codes(fields: Sequence[Field], values: Any) -> Codes:
    """Return the code nearest to each value, field by field; raise PrivacyError for values out of bounds."""
    return np.stack([field.nearest(values[..., index]) for index, field in enumerate(fields)], axis=-1)


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array; raise ConfigError for ragged lists, PrivacyError for masked values."""
    refuse_masked(name, values)
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


def _as_numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return values as an array of integers, floats or numbers; raise PrivacyError for anything else."""
    refuse_masked(name, values)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise PrivacyError(f"{name}: not an array of numbers") from None
    kind = array.dtype.kind
    objects = kind == "O" and all(isinstance(v, _NUMBERS) for v in array.flat)
    if kind not in "iufb" and not objects:
        raise PrivacyError(f"{name}: not an array of numbers")
    return array.astype(np.int64) if kind == "b" else array


def _is_finite(value: float) -> bool:
    """Return whether a number is finite; false too for an integer that is too large for a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _exact(value: Any) -> Fraction:
    """Return a number as the exact fraction of its printed decimal, such as 1/10 for 0.1."""
    return Fraction(str(value))
