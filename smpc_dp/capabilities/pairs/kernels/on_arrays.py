"""Kernels on NumPy arrays: on codes, where they give integers 0..steps, or on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from smpc_dp.capabilities.pairs.kernels.definitions import Definition


class OnArrays:
    """Implementation of kernel arithmetic on plain numbers and NumPy arrays, elementwise."""

    def sign(self, x: Any, y: Any) -> Any:
        """Return the sign of x - y elementwise, on codes or real values."""
        return np.sign(x - y)

    def product(self, s: Any, t: Any) -> Any:
        """Return the elementwise product of two arrays of signs."""
        return s * t

    def raised(self, s: Any) -> Any:
        """Return 1 + s, which is 0, 1 or 2, for each sign s (-1, 0 or 1) of an array."""
        return 1 + s

    def decided(self, s: Any, by: Any) -> Any:
        """Return elementwise 1 + by * s where the sign `by` is not 0, else 0."""
        return np.where(by != 0, 1 + by * s, 0)

    def equal(self, x: Any, y: Any) -> Any:
        """Return 1 where elements of two arrays are equal, else 0."""
        return np.equal(x, y).astype(np.int64)

    def distance(self, x: Any, y: Any, limit: int) -> Any:  # noqa: ARG002
        """Return |x - y| elementwise; ignores `limit`, which codes within their bounds never exceed."""
        return np.abs(x - y)

    def square(self, distance: Any) -> Any:
        """Return the square of each element of an array of distances."""
        return distance * distance


def as_function(definition: Definition) -> Callable[[Any, Any], Any]:
    """Return a kernel's definition as a function of two arrays of records, shape (..., fields)."""
    return lambda a, b: definition(OnArrays(), np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0))
