"""Kernel of the cosine of two vectors, for two parties that compare their models or data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.builder import ZERO, Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import add, multiplex, multiply, subtract
from smpc_dp.capabilities.pairs.kernels.fields import Codes, Field
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.on_bits import Record, minimum
from smpc_dp.errors import ConfigCheck, ConfigError

MAX_LENGTH, MAX_LEVELS = 10_000, 127


def cosine(length: int, levels: int = 7) -> Kernel:
    """Return the cosine kernel of vectors of `length` integers from -levels to levels; or ConfigError.

    The integer is cut to its range in the circuit, whatever a partner puts in. Raises ConfigError for a
    length or levels out of range.
    """
    for name, value, most in (("length", length, MAX_LENGTH), ("levels", levels, MAX_LEVELS)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise ConfigError.at(name, f"{value!r} is not 1 to {most}", ConfigCheck.RANGE)
    one = levels * levels

    def integer(x: Codes, y: Codes) -> Codes:
        products = ((x - levels) * (y - levels)).sum(axis=-1) + one
        return np.asarray(np.clip(products, 0, 2 * one), dtype=np.int64)

    def gadget(builder: Builder, x: Record, y: Record) -> Bits:
        width = (length * (4 * levels + 1) ** 2).bit_length() + 2
        total = builder.constant(one, width)
        for first, second in zip(x, y, strict=True):
            total = add(builder, total, _product(builder, first, second, levels, width))
        # Below the range: 0.
        positive = multiplex(builder, total[-1], total[:-1], builder.constant(0, width - 1))
        return minimum(builder, positive, 2 * one)

    return Kernel(
        name=f"cosine_{length}_{levels}",
        fields=tuple(Field(-levels, levels, 1, f"x{index}") for index in range(length)),
        low=-1.0,
        unit=1 / one,
        steps=2 * one,
        function=lambda x, y: np.clip((x * y).sum(axis=-1) / one, -1.0, 1.0),
        integer=integer,
        gadget=gadget,
        symmetric=True,
    )


def _product(builder: Builder, x: Bits, y: Bits, levels: int, width: int) -> Bits:
    """Add gates that multiply two signed values, encoded as codes that are `levels` too large."""
    wide = 2 * (len(x) + 1)

    def signed(code: Bits) -> Bits:
        less = subtract(builder, (*code, ZERO), builder.constant(levels, len(code) + 1))
        return (*less, *[less[-1]] * (wide - len(less)))

    product = multiply(builder, signed(x), signed(y))
    return (*product, *[product[-1]] * (width - wide))[:width]


def unit_codes(vectors: NDArray[np.float64], levels: int) -> Codes:
    """Scale vectors of shape (n, length) to norm 1, round toward zero, and return their integer codes.

    So a code's norm is at most `levels`, and no cosine is cut. A vector of zeros stays one.

    Raises:
        ConfigError: a number is not finite.
    """
    if not np.isfinite(vectors).all():
        raise ConfigError.at("vector", "has a number that is not finite", ConfigCheck.RANGE)
    # By the largest entry first: squares must not overflow.
    scaled = vectors / np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-300)
    norms = np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-300)
    codes: Codes = np.trunc(scaled / norms * levels * (1 - 1e-12)).astype(np.int64) + levels
    return codes
