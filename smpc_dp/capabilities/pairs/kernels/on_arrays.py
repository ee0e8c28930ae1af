"""Kernels on NumPy arrays: on codes, where they give integers 0..steps, or on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from smpc_dp.capabilities.pairs.kernels.definitions import Definition


class OnArrays:
    """Arithmetic of plain numbers: `kernels.definitions.Arithmetic` on arrays, broadcast."""

    def sign(self, x: Any, y: Any) -> Any:
        """Return the sign of differences, of codes or of values."""
        return np.sign(x - y)

    def product(self, s: Any, t: Any) -> Any:
        """Return the elementwise product of signs."""
        return s * t

    def raised(self, s: Any) -> Any:
        """Return 1 + s, elementwise."""
        return 1 + s

    def decided(self, s: Any, by: Any) -> Any:
        """Return 1 + by s where `by` is not 0, else 0, elementwise."""
        return np.where(by != 0, 1 + by * s, 0)

    def equal(self, x: Any, y: Any) -> Any:
        """Return equality as integers 0 or 1."""
        return np.equal(x, y).astype(np.int64)

    def distance(self, x: Any, y: Any, limit: int) -> Any:  # noqa: ARG002
        """Return |x - y|; the limit holds for codes within their bounds."""
        return np.abs(x - y)

    def square(self, distance: Any) -> Any:
        """Return the square, elementwise."""
        return distance * distance


def as_function(definition: Definition) -> Callable[[Any, Any], Any]:
    """Return the kernel on two arrays of records, shape (..., fields), broadcast against each other."""
    return lambda a, b: definition(OnArrays(), np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0))
