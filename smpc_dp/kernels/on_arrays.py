"""Kernels on NumPy arrays: of codes, where they give integers 0..steps, or of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from smpc_dp.kernels.definitions import Definition


class OnArrays:
    """The arithmetic of plain numbers: `kernels.definitions.Arithmetic` on arrays, broadcast."""

    def sign(self, x: Any, y: Any) -> Any:
        """Of codes and of values alike."""
        return np.sign(x - y)

    def product(self, s: Any, t: Any) -> Any:
        """Elementwise."""
        return s * t

    def raised(self, s: Any) -> Any:
        """Elementwise."""
        return 1 + s

    def decided(self, s: Any, by: Any) -> Any:
        """Elementwise."""
        return np.where(by != 0, 1 + by * s, 0)

    def equal(self, x: Any, y: Any) -> Any:
        """As integers."""
        return np.equal(x, y).astype(np.int64)

    def distance(self, x: Any, y: Any, limit: int) -> Any:  # noqa: ARG002
        """Without the limit, which is that of codes within their bounds."""
        return np.abs(x - y)

    def square(self, distance: Any) -> Any:
        """Elementwise."""
        return distance * distance


def as_function(definition: Definition) -> Callable[[Any, Any], Any]:
    """Return the kernel on two arrays of records, shape (..., fields), broadcast against each other."""
    return lambda a, b: definition(OnArrays(), np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0))
