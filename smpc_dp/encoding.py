"""Real or integer vectors as fixed-point integers whose sum over all parties cannot overflow.

A value x in [lower, upper] becomes round(x * 2^f) - round(lower * 2^f), a non-negative integer. The modulus
is 2^(8 w) with w the fewest bytes that hold the largest possible sum, so an overflow is impossible for the
number of parties (and the largest weight) that the encoding was made for. Nothing is clipped in silence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.errors import ConfigError, Fault, PrivacyError, VerificationError

# uint32 or uint64, whichever the encoding uses.
Lanes = NDArray[np.unsignedinteger[Any]]

MAX_LENGTH = 1 << 26
# Up to here every integer is a float64.
EXACT_FLOAT = 1 << 53


class Encoding(msgspec.Struct, frozen=True):
    """How the vectors of one session become integers; made by `Encoding.plan`."""

    length: int
    integer: bool
    lower: float | int
    upper: float | int
    fractional_bits: int
    max_weight: int
    parties: int
    lowest: int
    highest: int
    element_bytes: int

    @classmethod
    def plan(
        cls,
        *,
        length: int,
        lower: float | int,
        upper: float | int,
        precision: float | None,
        parties: int,
        max_weight: int = 0,
    ) -> Encoding:
        """Derive the step and the modulus.

        Args:
            length: coordinates a vector, 1 to 2^26.
            lower, upper: bounds of every coordinate, both included.
            precision: None for integer vectors; for `float64` the step is the largest power of two up to it.
            parties: most vectors that are ever summed.
            max_weight: 0 for sums of plain vectors; w > 0 when each party scales its vector by a secret
                integer weight in [0, w], which travels as one more coordinate.

        Raises:
            ConfigError: naming each parameter that is out of range, or that the sum would need over 63 bits.
        """
        faults: list[Fault] = []
        if not 1 <= length <= MAX_LENGTH:
            faults.append(Fault("length", f"must be between 1 and {MAX_LENGTH}, is {length}"))
        for field, bound in (("lower", lower), ("upper", upper)):
            if not math.isfinite(bound):
                faults.append(Fault(field, f"must be finite, is {bound}"))
            elif precision is None and not float(bound).is_integer():
                faults.append(Fault(field, f"must be a whole number for integer vectors, is {bound}"))
        if precision is not None and not (math.isfinite(precision) and 2.0**-1000 <= precision <= 2.0**1000):
            faults.append(Fault("precision", f"must be a positive finite number, is {precision}"))
        if not 0 <= max_weight < 1 << 62:
            faults.append(Fault("max_weight", f"must be between 0 and 2^62, is {max_weight}"))
        if faults:
            raise ConfigError(faults)
        if not lower < upper:
            raise ConfigError([Fault("lower", f"must be below upper = {upper}, is {lower}")])
        bits = 0 if precision is None else -math.frexp(precision)[1] + 1
        lowest, highest = _grid(lower, bits), _grid(upper, bits)
        if precision is not None and highest == lowest:
            raise ConfigError([Fault("precision", f"is wider than [lower, upper]: {precision}")])
        scale = parties * max(1, max_weight)
        needed = max(
            (scale * (highest - lowest)).bit_length(),
            (scale * max(abs(lowest), abs(highest))).bit_length() + 1,
            scale.bit_length() + 1,
        )
        if needed > 64:
            raise ConfigError(
                [
                    Fault(
                        "precision" if precision is not None else "upper",
                        f"sums of {parties} vectors need {needed} bits, at most 64 are there: "
                        "widen the precision, tighten the bounds or lower max_weight",
                    )
                ]
            )
        largest = max(scale * (highest - lowest), scale if max_weight else 0)
        return cls(
            length=length,
            integer=precision is None,
            lower=lower,
            upper=upper,
            fractional_bits=bits,
            max_weight=max_weight,
            parties=parties,
            lowest=lowest,
            highest=highest,
            element_bytes=(largest.bit_length() + 7) // 8,
        )

    @property
    def step(self) -> float:
        """The distance between neighbouring values: 2^-fractional_bits."""
        return math.ldexp(1.0, -self.fractional_bits)

    @property
    def lanes(self) -> int:
        """Coordinates that travel: one more than `length` when weights are used."""
        return self.length + (1 if self.max_weight else 0)

    @property
    def dtype(self) -> type[np.uint32] | type[np.uint64]:
        """The lane that arithmetic is done in."""
        return np.uint32 if self.element_bytes <= 4 else np.uint64

    @property
    def modulus_bits(self) -> int:
        """Sums are taken modulo 2 to this power."""
        return 8 * self.element_bytes

    def encode(
        self, vector: ArrayLike, *, party: str, weight: int | None = None, clip: bool = False
    ) -> tuple[Lanes, int]:
        """Return the lanes of one party's vector, shape (lanes,), and how many values were clipped.

        Raises:
            PrivacyError: a value is NaN, infinite or out of bounds (unless `clip`), or the weight is.
            ConfigError: wrong length, shape or dtype.
        """
        values = self._checked(vector, party)
        clipped = 0
        # For integers the bounds are compared as integers: a float bound would be compared in float64.
        lower, upper = (self.lowest, self.highest) if self.integer else (self.lower, self.upper)
        outside = (values < lower) | (values > upper)
        if outside.any():
            if not clip:
                first = int(np.flatnonzero(outside)[0])
                raise PrivacyError(
                    f"{party}: vector[{first}] = {values[first]} is outside [{self.lower}, {self.upper}]"
                    + (f" ({int(outside.sum())} values are)" if outside.sum() > 1 else "")
                )
            clipped = int(outside.sum())
            values = np.clip(values, lower, upper)
        if self.integer:
            grid = values.astype(np.int64)
        else:
            grid = np.rint(np.ldexp(values, self.fractional_bits)).astype(np.int64)
        offset = (grid - np.int64(self.lowest)).astype(np.uint64)
        if self.max_weight:
            scale = self._checked_weight(weight, party)
            offset = np.append(offset * np.uint64(scale), np.uint64(scale))
        elif weight is not None:
            raise ConfigError([Fault("weight", f"{party}: this session has no weights (max_weight = 0)")])
        lanes: Lanes = offset.astype(self.dtype)
        return lanes, clipped

    def _checked(self, vector: ArrayLike, party: str) -> NDArray[Any]:
        try:
            array = np.asarray(vector)
        except ValueError as error:
            raise ConfigError([Fault("vector", f"{party}: not an array ({error})")]) from None
        if array.shape != (self.length,):
            raise ConfigError([Fault("vector", f"{party}: shape must be ({self.length},), is {array.shape}")])
        if self.integer:
            if array.dtype.kind not in "iu":
                raise ConfigError([Fault("vector", f"{party}: dtype must be an integer, is {array.dtype}")])
            if array.dtype.kind == "u" and (array > np.uint64((1 << 63) - 1)).any():
                raise PrivacyError(f"{party}: a value is outside [{self.lower}, {self.upper}]")
            return array.astype(np.int64)
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise ConfigError([Fault("vector", f"{party}: dtype must be float64, is {array.dtype}")])
        values = array.astype(np.float64)
        if array.dtype.kind in "iu" and (np.abs(values) > EXACT_FLOAT).any():
            raise ConfigError(
                [Fault("vector", f"{party}: an integer beyond 2^53 would be rounded; use kind 'integer'")]
            )
        if not np.isfinite(values).all():
            first = int(np.flatnonzero(~np.isfinite(values))[0])
            raise PrivacyError(f"{party}: vector[{first}] is {values[first]}, must be finite")
        return values

    def _checked_weight(self, weight: int | None, party: str) -> int:
        if weight is None:
            raise ConfigError([Fault("weight", f"{party}: needed, an integer in [0, {self.max_weight}]")])
        if isinstance(weight, bool) or not isinstance(weight, (int, np.integer)):
            raise ConfigError([Fault("weight", f"{party}: must be an integer, is {weight!r}")])
        if not 0 <= int(weight) <= self.max_weight:
            raise PrivacyError(f"{party}: weight {weight} is outside [0, {self.max_weight}]")
        return int(weight)

    def pack(self, lanes: Lanes) -> bytes:
        """Return the lanes modulo 2^modulus_bits, little-endian, element_bytes each."""
        size = lanes.dtype.itemsize
        if size == self.element_bytes:
            return lanes.astype(lanes.dtype.newbyteorder("<"), copy=False).tobytes()
        octets = lanes.astype(lanes.dtype.newbyteorder("<"), copy=False).view(np.uint8)
        return octets.reshape(-1, size)[:, : self.element_bytes].tobytes()

    def unpack(self, packed: bytes) -> Lanes:
        """Invert `pack`; raise ValueError on a wrong length."""
        if len(packed) != self.lanes * self.element_bytes:
            raise ValueError(f"{len(packed)} bytes where {self.lanes * self.element_bytes} are due")
        octets = np.zeros((self.lanes, np.dtype(self.dtype).itemsize), dtype=np.uint8)
        octets[:, : self.element_bytes] = np.frombuffer(packed, dtype=np.uint8).reshape(self.lanes, -1)
        lanes: Lanes = octets.reshape(-1).view(np.dtype(self.dtype).newbyteorder("<")).astype(self.dtype)
        return lanes

    def decode(self, lanes: Lanes, contributors: int) -> tuple[NDArray[np.int64], int]:
        """Return (sum on the integer grid, shape (length,); sum of weights, without them `contributors`).

        `lanes` is the sum of `contributors` encoded vectors modulo 2^modulus_bits.

        Raises:
            VerificationError: no vectors and weights within their bounds have this sum.
        """
        mask = np.uint64((1 << self.modulus_bits) - 1)
        values = lanes.astype(np.uint64) & mask
        weight = int(values[-1]) if self.max_weight else contributors
        largest = int(values[: self.length].max())
        if weight > contributors * max(1, self.max_weight) or largest > weight * (self.highest - self.lowest):
            raise VerificationError(
                f"no {contributors} vectors within the bounds have this sum: an input or the sum is a lie"
            )
        total = values[: self.length].astype(np.int64) + np.int64(weight) * np.int64(self.lowest)
        return total, weight

    def real(self, grid: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return grid values as float64 in the caller's unit, correctly rounded."""
        return np.ldexp(grid.astype(np.float64), -self.fractional_bits)

    def average(self, grid: NDArray[np.int64], weight: int) -> NDArray[np.float64]:
        """Return grid / weight in the caller's unit, each coordinate correctly rounded; weight > 0."""
        if weight <= 0:
            raise PrivacyError("the weights of the survivors sum to zero: there is no average")
        averages = np.ldexp(grid.astype(np.float64) / weight, -self.fractional_bits)
        # Below 2^53 one float64 division is correctly rounded; above, go through fractions.
        large = np.flatnonzero(np.abs(grid) >= EXACT_FLOAT) if weight < EXACT_FLOAT else range(len(grid))
        for index in large:
            averages[index] = float(Fraction(int(grid[index]), weight) / Fraction(2) ** self.fractional_bits)
        return averages


def _grid(value: float | int, fractional_bits: int) -> int:
    """Return value * 2^fractional_bits rounded half to even, exactly."""
    return round(Fraction(value) * Fraction(2) ** fractional_bits)


def fixed_point_sum(encoding: Encoding, vectors: Sequence[ArrayLike]) -> NDArray[np.int64]:
    """Return the exact fixed-point sum of plain vectors: what a trusted party would compute."""
    total = np.zeros(encoding.length, dtype=np.int64)
    for vector in vectors:
        values = np.asarray(vector)
        total += (
            values.astype(np.int64)
            if encoding.integer
            else np.rint(np.ldexp(values.astype(np.float64), encoding.fractional_bits)).astype(np.int64)
        )
    return total
