"""Fixed-point encoding of real or integer vectors, whose sum over all parties cannot overflow.

A value x in [lower, upper] becomes round(x * 2^f) - round(lower * 2^f), a non-negative integer. The modulus
is 2^(8 w) with w the fewest bytes that hold the largest possible sum, so the sum cannot overflow for the
number of parties (and the largest weight) of the encoding. Nothing is clipped in silence.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeGuard

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp import ball, fixed_point
from smpc_dp.box import Bound, as_tuple, bounds_of, fractional_bits_of, on_grid, round_inward
from smpc_dp.errors import (
    Check,
    ConfigCheck,
    ConfigError,
    ConfigIssue,
    Issues,
    PrivacyError,
    VerificationError,
)
from smpc_dp.fixed_point import EXACT_FLOAT, Averages, Faults, GridTotal, Map, sides_in, slices_of
from smpc_dp.values import vector_of

# uint32 or uint64, according to the encoding.
RingVector = NDArray[np.unsignedinteger[Any]]

MAX_LENGTH = 1 << 26
# So that every sum of 64 bits is a float64, neither infinite nor rounded to 0.
LEAST_STEP, LARGEST_STEP = 2.0**-1000, 2.0**960


class Encoding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fixed-point encoding of a session's vectors as integers modulo a power of two, for secure sums.

    `lower` and `upper` are the widest bounds of any coordinate; `box` has those of each, where given.
    """

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
    box: tuple[tuple[float | int, ...], tuple[float | int, ...]] | None = None
    l2_bound: float | None = None

    @classmethod
    def plan(
        cls,
        *,
        length: int,
        lower: Bound | None = None,
        upper: Bound | None = None,
        precision: float | None,
        parties: int,
        max_weight: int = 0,
        l2_bound: float | None = None,
    ) -> Encoding:
        """Return the encoding for these bounds, whose modulus fits all parties' sum; ConfigError if none.

        Args:
            length: coordinates a vector, 1 to 2^26.
            lower, upper: bounds of every coordinate, both included; or a list of `length` for each.
            l2_bound: in their place a bound on the L2 norm of a vector.
            precision: None for integer vectors; for `float64` the step is the largest power of two up to it.
            parties: the largest number of vectors in a sum.
            max_weight: 0 for sums of plain vectors; w > 0 when each party scales its vector by a secret
                integer weight in [0, w], which is sent as one more coordinate.

        Raises:
            ConfigError: names each parameter out of range, or a sum of more than 64 bits.
        """
        issues = encoding_issues(
            integer=precision is None,
            length=length,
            lower=lower,
            upper=upper,
            precision=precision,
            parties=parties,
            max_weight=max_weight,
            l2_bound=l2_bound,
        )
        given = {"length": length, "max_weight": max_weight, "lower": lower, "upper": upper}
        expected = list(given)[: 4 if l2_bound is None else 2]
        issues += [
            ConfigIssue(name, "is missing", ConfigCheck.MISSING) for name in expected if given[name] is None
        ]
        if issues:
            raise ConfigError(issues)
        lowers, uppers = (as_tuple(bound) for bound in bounds_of(lower, upper, l2_bound))
        alike = len(lowers) == len(uppers) == 1
        box = None if alike else (lowers * (length // len(lowers)), uppers * (length // len(uppers)))
        lower, upper = min(lowers), max(uppers)
        bits = 0 if precision is None else fractional_bits_of(precision)
        lowest, highest = on_grid(lower, bits), on_grid(upper, bits)
        scale = parties * max(1, max_weight)
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
            box=box,
            l2_bound=None if l2_bound is None else float(l2_bound),
        )

    @property
    def bounds(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Least and greatest value of each coordinate, as int64 or float64; 0-d if all are alike.

        No float64 lies between these and the declared bounds, so comparing with them is exact.
        """
        if not self.integer:
            return self.real_bounds
        low, high = self.box or (self.lower, self.upper)
        return np.asarray(low, np.int64), np.asarray(high, np.int64)

    @property
    def real_bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least and greatest float64 within the declared bounds of each coordinate; 0-d if all are alike."""
        low, high = self.box or (self.lower, self.upper)
        return round_inward(low, math.inf), round_inward(high, -math.inf)

    @property
    def bounds_of_each(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Lower and upper bounds as 1-d arrays, of length 1 if all coordinates have one pair of bounds."""
        low, high = self.bounds
        return np.atleast_1d(low), np.atleast_1d(high)

    @property
    def sides(self) -> tuple[list[int], list[int]]:
        """Least and greatest encoded integer of each coordinate; lists of length 1 if all are alike."""
        box, bits = self.box or ((self.lower,), (self.upper,)), self.fractional_bits
        lows, highs = ([on_grid(bound, bits) - self.lowest for bound in side] for side in box)
        return lows, highs

    @property
    def widths(self) -> list[int]:
        """Width of each coordinate's range, in grid steps; of length 1 if all coordinates are alike."""
        if self.l2_bound is not None:
            return [2 * math.isqrt(ball.squared_limit(self.l2_bound, self.fractional_bits))]
        return [high - low for low, high in zip(*self.sides, strict=True)]

    @property
    def diameter(self) -> float:
        """Largest L2 distance between two permitted vectors, in grid steps, rounded up."""
        widths = self.widths
        square = sum(width * width for width in widths) * (self.length // len(widths))
        if self.l2_bound is not None:
            square = 4 * ball.squared_limit(self.l2_bound, self.fractional_bits)
        return math.sqrt(square) * (1 + 1e-15)

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations that this encoding supports: sum and average."""
        return ("sum", "average")

    def average_error(self, error: float) -> tuple[float, float, str]:
        """Return an average's standard error (`error` itself), its widest coordinate's range, and "".

        `error`: of the noise in the sum over the number of vectors, in the caller's unit.
        """
        return error, max(self.widths) * self.step, ""

    @property
    def step(self) -> float:
        """Distance of neighbouring grid points in the caller's unit: 2^-fractional_bits."""
        return math.ldexp(1.0, -self.fractional_bits)

    @property
    def ring_length(self) -> int:
        """Number of ring elements of an encoded vector: `length`, and one more if vectors have weights."""
        return self.length + (1 if self.max_weight else 0)

    @property
    def dtype(self) -> type[np.uint32] | type[np.uint64]:
        """NumPy type in which encoded elements are added: uint32 or uint64."""
        return np.uint32 if self.element_bytes <= 4 else np.uint64

    def zeros(self) -> RingVector:
        """Return a new ring vector of zeros, from which a sum of encoded vectors starts."""
        return np.zeros(self.ring_length, dtype=self.dtype)

    @property
    def modulus_bits(self) -> int:
        """Binary logarithm of the modulus of encoded elements."""
        return 8 * self.element_bytes

    @property
    def coordinates(self) -> Encoding:
        """Encoding of the coordinates alone, to which a weight may be added later; here this encoding."""
        return self

    def encode(
        self, vector: ArrayLike, *, party: str, weight: float | None = None, clip: bool = False
    ) -> tuple[RingVector, int]:
        """Encode one party's vector for a secure sum; return it and the number of clipped values.

        A value up to half a step beyond a bound is put on it: rounding to the grid moves others as far.

        Raises:
            PrivacyError: a value is NaN, infinite or out of bounds (unless `clip`), or the weight is.
            ConfigError: wrong length, shape or dtype.
        """
        values = self._checked(vector, party)
        given = self.coordinates
        ring_vector = np.empty(given.ring_length, given.dtype)
        elements = ring_vector[: self.length]
        if given.l2_bound is None:
            clipped = given.clipped_of(given.write(values, elements, given.bounds_of_each), party, clip=clip)
        else:
            clipped = given._write_in_ball(values, elements, party, clip)
        return self.weigh(ring_vector, weight, party), clipped

    def write(self, values: NDArray[Any], elements: RingVector, sides: Any, own: Map | None = None) -> Faults:
        """Write coordinates, clipped to `sides`, to `elements`; return counts and first index of faults."""
        if self.integer:
            return fixed_point.encode_integers(values, elements, sides, self.lowest)
        return fixed_point.encode_reals(values, elements, sides, self.fractional_bits, self.lowest, own)

    def clipped_of(self, faults: Faults, party: str, *, clip: bool) -> int:
        """Return how many values were clipped; PrivacyError for infinite ones, or any without `clip`."""
        if (index := faults.infinite) is not None:
            raise PrivacyError(f"{party}: vector[{index}] must be finite")
        if (index := faults.first) is not None and not clip:
            low, high = (
                (self.lower, self.upper) if self.box is None else (side[index] for side in self.bounds)
            )
            raise PrivacyError(
                f"{party}: vector[{index}] is outside [{low}, {high}]"
                + (f" ({faults.outside} values are)" if faults.outside > 1 else "")
            )
        return faults.outside

    def weigh(self, ring_vector: RingVector, weight: float | None, party: str) -> RingVector:
        """Scale an encoded vector in place by its weight, and store that last; unchanged without weights."""
        if self.max_weight:
            scale = self._checked_weight(weight, party)
            ring_vector[:-1] *= self.dtype(scale)
            ring_vector[-1] = scale
        elif weight is not None:
            raise ConfigError.at(
                "weight", f"{party}: this session has no weights (max_weight = 0)", ConfigCheck.UNSUPPORTED
            )
        return ring_vector

    def _write_in_ball(self, values: NDArray[Any], elements: RingVector, party: str, clip: bool) -> int:
        """Encode a vector, scaled into the ball (`clip`) or PrivacyError; return how many values changed."""
        values = values.astype(np.int64 if self.integer else np.float64)
        if not np.isfinite(values).all():
            self.clipped_of(Faults(int(np.isfinite(values).argmin())), party, clip=clip)
        grid, inside = ball.on_grid(values, self.l2_bound or 0.0, self.fractional_bits)
        if not inside and not clip:
            raise PrivacyError(f"{party}: the L2 norm is above {self.l2_bound}")
        elements[:] = (grid - np.int64(self.lowest)).view(np.uint64)
        return 0 if inside else int(np.count_nonzero(values))

    def _checked(self, vector: ArrayLike, party: str) -> NDArray[Any]:
        """Return a vector as an array; ConfigError for shape or dtype, PrivacyError if masked or too big."""
        array = vector_of(vector, "vector", party)
        if array.shape != (self.length,):
            raise ConfigError.at(
                "vector", f"{party}: shape must be ({self.length},), is {array.shape}", ConfigCheck.SHAPE
            )
        if self.integer:
            if array.dtype.kind not in "iu":
                raise ConfigError.at(
                    "vector", f"{party}: dtype must be an integer, is {array.dtype}", ConfigCheck.TYPE
                )
            if array.dtype.kind == "u" and array.max() > np.uint64((1 << 63) - 1):
                first = int((array > np.uint64((1 << 63) - 1)).argmax())
                raise PrivacyError(f"{party}: vector[{first}] is outside [{self.lower}, {self.upper}]")
            return array
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise ConfigError.at(
                "vector", f"{party}: dtype must be float64, is {array.dtype}", ConfigCheck.TYPE
            )
        if (
            array.dtype.kind in "iu"
            and not -EXACT_FLOAT <= int(array.min()) <= int(array.max()) <= EXACT_FLOAT
        ):
            raise ConfigError.at(
                "vector",
                f"{party}: an integer beyond 2^53 would be rounded; use kind 'integer'",
                ConfigCheck.TOO_LARGE,
            )
        return array

    def _checked_weight(self, weight: float | None, party: str) -> int:
        """Return the weight as an int; ConfigError if missing or not whole, PrivacyError out of its range."""
        if weight is None:
            raise ConfigError.at(
                "weight", f"{party}: needed, an integer in [0, {self.max_weight}]", ConfigCheck.RANGE
            )
        if not (_is_whole(weight) or (_is_finite(weight) and float(weight).is_integer())):
            reason = f"must be an integer in [0, {self.max_weight}]"
            raise ConfigError.at("weight", f"{party}: {reason}", ConfigCheck.RANGE)
        if not 0 <= int(weight) <= self.max_weight:
            raise PrivacyError(f"{party}: the weight is outside [0, {self.max_weight}]")
        return int(weight)

    def pack(self, ring_vector: RingVector) -> bytes:
        """Return ring elements as bytes for a message: little-endian, `element_bytes` each."""
        return self.packed(ring_vector).tobytes()

    def packed(self, ring_vector: RingVector) -> memoryview:
        """Return ring elements as little-endian bytes, without a copy where their memory has this form."""
        alike = self.element_bytes == ring_vector.dtype.itemsize and sys.byteorder == "little"
        elements = ring_vector if alike else ring_vector.copy()
        return elements.view(np.uint8)[: self.pack_overwriting(elements)].data

    def pack_overwriting(self, ring_vector: RingVector) -> int:
        """Write ring elements as message bytes over their own memory; return the number of bytes."""
        size, width = ring_vector.dtype.itemsize, self.element_bytes
        if sys.byteorder == "big":
            ring_vector.byteswap(inplace=True)
        octets = ring_vector.view(np.uint8)
        for part in slices_of(len(ring_vector)) if width < size else ():
            block = octets[part.start * size : part.stop * size].reshape(-1, size)[:, :width].copy()
            octets[part.start * width : part.stop * width] = block.reshape(-1)
        return len(ring_vector) * width

    def unpack(self, packed: bytes | memoryview) -> RingVector:
        """Decode the bytes of a message to ring elements; raise ValueError for a wrong length.

        Where elements have the bytes of `dtype` these are those of `packed`, and read-only.
        """
        self.check_packed(packed)
        if self.element_bytes == np.dtype(self.dtype).itemsize:
            stored = np.frombuffer(packed, np.dtype(self.dtype).newbyteorder("<"))
            return stored.astype(self.dtype, copy=False)
        ring_vector = self.zeros()
        fixed_point.add_packed(ring_vector, packed, self.element_bytes)
        return ring_vector

    def add_packed(self, total: RingVector, packed: bytes | memoryview) -> None:
        """Add a message's packed ring elements to a total in place; raise ValueError for a wrong length."""
        self.check_packed(packed)
        fixed_point.add_packed(total, packed, self.element_bytes)

    def check_packed(self, packed: bytes | memoryview) -> None:
        """Raise ValueError unless packed ring elements have the length of one encoded vector."""
        size = memoryview(packed).nbytes
        if size != self.ring_length * self.element_bytes:
            raise ValueError(f"{size} bytes where {self.ring_length * self.element_bytes} are due")

    def decode(self, ring_vector: RingVector, contributors: int) -> tuple[NDArray[np.int64], int]:
        """Decode a sum: return its grid integers and total weight; VerificationError if it is impossible."""
        total, weight = self.decoded(ring_vector, contributors)
        return total.values, weight

    def decoded(self, ring_vector: RingVector, contributors: int) -> tuple[GridTotal, int]:
        """Return a sum as grid integers, decoded when read, and total weight, or raise VerificationError.

        `ring_vector` is the sum of `contributors` encoded vectors modulo 2^modulus_bits, and must not change
        any more. Without weights the second value is `contributors`.

        Raises:
            VerificationError: no vectors and weights within their bounds have this sum.
        """
        modulus = 1 << self.modulus_bits
        weight = int(ring_vector[-1]) % modulus if self.max_weight else contributors
        if weight <= contributors * max(1, self.max_weight):
            # Modulo 2^64, as the values are; a sum that is possible is below 2^63, and no other one is alike.
            total = GridTotal(ring_vector[: self.length], weight * self.lowest, self.modulus_bits)
            if self._is_possible(total, weight):
                return total, weight
        raise VerificationError(
            f"no {contributors} vectors within the bounds have this sum: an input or the sum is a lie",
            Check.OUT_OF_BOUNDS,
        )

    def _is_possible(self, total: GridTotal, weight: int) -> bool:
        """Tell whether vectors within the bounds, of this total weight, can have this sum."""
        # No product is beyond 63 bits, since the weight is at most that of all parties.
        least, most = (self._rounded(side) * np.int64(weight) for side in self.bounds_of_each)
        for part in slices_of(self.length):
            grid, (low, high) = total[part], sides_in((least, most), part)
            if not ((grid >= low).all() and (grid <= high).all()):
                return False
        if self.l2_bound is None:
            return True
        limit = ball.squared_limit(self.l2_bound, self.fractional_bits)
        return ball.fits(total.values, weight * weight * limit)

    def _rounded(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Round values within the bounds to integers of the grid."""
        scaled = values if self.integer else np.rint(np.ldexp(values, self.fractional_bits))
        return scaled.astype(np.int64)

    def real(self, grid: NDArray[np.int64]) -> NDArray[np.float64]:
        """Convert grid integers to float64 in the caller's unit, correctly rounded."""
        return np.ldexp(grid.astype(np.float64), -self.fractional_bits)

    def average(self, grid: NDArray[np.int64], weight: int, *, noisy: bool) -> NDArray[np.float64]:
        """Return a sum on the grid divided by `weight` (> 0), in the caller's unit, correctly rounded.

        Bounds are rounded to the grid: without noise an average beyond them is put on them.
        """
        return self.averages(GridTotal.of(grid), weight, noisy=noisy)[:]

    def averages(self, total: GridTotal, weight: int, *, noisy: bool) -> Averages | NDArray[np.float64]:
        """Return a grid sum divided by `weight`, maybe computed when read; PrivacyError if that is 0."""
        if weight <= 0:
            raise PrivacyError("the weights of the survivors sum to zero: there is no average")
        low, high = map(np.atleast_1d, self.real_bounds)
        return Averages(total, weight, self.fractional_bits, None if noisy else (low, high))

    def put_within(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return vectors with each coordinate clipped to its bounds; coordinates are the last axis."""
        return np.clip(values, *self.real_bounds)


def encoding_issues(
    *,
    integer: bool,
    length: object = None,
    lower: object = None,
    upper: object = None,
    precision: object = None,
    parties: int,
    max_weight: object = 0,
    l2_bound: object = None,
) -> list[ConfigIssue]:
    """Return every fault of an encoding's parameters, for a configuration error; empty if all are valid.

    A parameter that is None is unknown: neither it nor what depends on it is checked. `integer` is the kind.
    """
    issues = Issues()
    if length is not None and not (_is_whole(length) and 1 <= length <= MAX_LENGTH):
        issues.add_issue(
            "length", f"must be between 1 and {MAX_LENGTH}, is {shown(length)}", ConfigCheck.RANGE
        )
    radius: float | None = None
    if l2_bound is not None:
        radius, result = _check_ball(lower, upper, l2_bound)
        issues += result
        lower = upper = None
    bounds, result = _check_sides(lower, upper, length, integer=integer)
    issues += result
    step: float | None = None
    if precision is not None:
        if _is_finite(precision) and LEAST_STEP <= precision <= LARGEST_STEP:
            step = float(precision)
        else:
            issues.add_issue(
                "precision",
                f"must be a number in [2^-1000, 2^960], is {shown(precision)}",
                ConfigCheck.RANGE,
            )
    weight = max_weight if _is_whole(max_weight) and 0 <= max_weight < 1 << 62 else None
    if max_weight is not None and weight is None:
        issues.add_issue(
            "max_weight", f"must be an integer in [0, 2^62), is {shown(max_weight)}", ConfigCheck.RANGE
        )
    if radius is not None:
        bounds = [as_tuple(side) for side in bounds_of(None, None, radius)]
    widest = max(map(len, bounds), default=0)
    if len(bounds) < 2 or {*map(len, bounds)} - {1, widest or 1}:
        return issues
    lowers, uppers = (side * (widest // len(side)) for side in bounds)
    if (unordered := _empty_bounds_issue(lowers, uppers, integer=integer)) is not None:
        issues.append(unordered)
    elif integer or step is not None:
        bits = 0 if step is None else fractional_bits_of(step)
        if _is_narrow(lowers, uppers, bits) or (
            radius is not None and ball.squared_limit(uppers[0], bits) == 0
        ):
            issues.add_issue("precision", f"is wider than [lower, upper]: {precision}", ConfigCheck.RANGE)
        elif weight is not None:
            lowest, highest = on_grid(min(lowers), bits), on_grid(max(uppers), bits)
            issues += _overflow_issues(lowest, highest, parties, weight, integer=integer)
    return issues


def _check_ball(lower: object, upper: object, l2_bound: object) -> tuple[float | None, list[ConfigIssue]]:
    """Return the valid bound on the L2 norm of a vector (None if it is wrong), and the faults found."""
    issues = [
        ConfigIssue(name, "is not for vectors with an l2_bound", ConfigCheck.CONFLICT)
        for name, bound in (("lower", lower), ("upper", upper))
        if bound is not None
    ]
    if not _is_finite(l2_bound) or not l2_bound > 0:
        issues.append(
            ConfigIssue(
                "l2_bound", f"must be a finite number above 0, is {shown(l2_bound)}", ConfigCheck.RANGE
            )
        )
    elif float(l2_bound) != l2_bound:
        issues.append(
            ConfigIssue("l2_bound", f"{shown(l2_bound)} is no float64; write it as one", ConfigCheck.TYPE)
        )
    else:
        return l2_bound, issues
    return None, issues


def _check_sides(
    lower: object, upper: object, length: object, *, integer: bool
) -> tuple[list[tuple[float | int, ...]], list[ConfigIssue]]:
    """Return those of the lower and upper bounds that are valid, and the faults of the others."""
    bounds: list[tuple[float | int, ...]] = []
    issues = Issues()
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound is None:
            continue
        each: Sequence[Any] = bound if isinstance(bound, list | tuple) else [bound]
        if each is bound and _is_whole(length) and len(each) != length:
            issues.add_issue(name, f"has {len(each)} numbers, vectors have {length}", ConfigCheck.SHAPE)
        elif wrong := [value for value in each if not _is_finite(value)]:
            issues.add_issue(name, f"must be a finite number, is {shown(wrong[0])}", ConfigCheck.RANGE)
        elif integer and (wrong := [value for value in each if not float(value).is_integer()]):
            issues.add_issue(
                name, f"must be a whole number for integer vectors, is {shown(wrong[0])}", ConfigCheck.TYPE
            )
        else:
            bounds.append(as_tuple(each))
    return bounds, issues


def _empty_bounds_issue(
    lowers: Sequence[float | int], uppers: Sequence[float | int], *, integer: bool
) -> ConfigIssue | None:
    """Return the fault of the first coordinate with no value between its bounds; None if all have one."""
    if wrong := [(low, high) for low, high in zip(lowers, uppers, strict=True) if not low < high]:
        return ConfigIssue(
            "lower", f"must be below upper = {shown(wrong[0][1])}, is {shown(wrong[0][0])}", ConfigCheck.RANGE
        )
    if (
        not integer
        and (empty := np.flatnonzero(round_inward(lowers, math.inf) > round_inward(uppers, -math.inf))).size
    ):
        low, high = lowers[empty[0]], uppers[empty[0]]
        return ConfigIssue(
            "lower",
            f"no float64 is between {low} and upper = {high}; use kind 'integer'",
            ConfigCheck.UNSUPPORTED,
        )
    return None


def _is_narrow(lowers: Sequence[float | int], uppers: Sequence[float | int], bits: int) -> bool:
    """Tell whether the two bounds of some coordinate round to one grid point, so that it has no range."""
    return any(on_grid(low, bits) == on_grid(high, bits) for low, high in zip(lowers, uppers, strict=True))


def _overflow_issues(
    lowest: int, highest: int, parties: int, max_weight: int, *, integer: bool
) -> list[ConfigIssue]:
    """Return a fault if a sum of all parties' grid values in [lowest, highest] can exceed 64 bits."""
    scale = parties * max(1, max_weight)
    needed = max(
        (scale * (highest - lowest)).bit_length(),
        (scale * max(abs(lowest), abs(highest))).bit_length() + 1,
        scale.bit_length() + 1,
    )
    if needed <= 64:
        return []
    advice = "tighten the bounds or lower max_weight"
    return [
        ConfigIssue(
            "upper" if integer else "precision",
            f"sums of {parties} vectors need {needed} bits, at most 64 are there: "
            + (advice if integer else f"widen the precision, {advice}"),
            ConfigCheck.TOO_LARGE,
        )
    ]


def shown(value: object) -> str:
    """Return a value as text for an error message, shortened; works for integers of any length."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return str(value) if isinstance(value, Real) else repr(value)[:80]


def _is_whole(value: object) -> TypeGuard[int]:
    """Tell whether a value is an integer of any library (not a bool)."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_finite(value: object) -> TypeGuard[float | int]:
    """Tell whether a value is a real number (not a bool) that a finite float can hold."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def fixed_point_sum(encoding: Encoding, vectors: Sequence[ArrayLike]) -> NDArray[np.int64]:
    """Return the exact fixed-point sum of plain vectors, real ones clipped to the encoding's bounds."""
    total = np.zeros(encoding.length, dtype=np.int64)
    for vector in vectors:
        values = np.asarray(vector)
        if not encoding.integer:
            within = encoding.put_within(values.astype(np.float64))
            values = np.rint(np.ldexp(within, encoding.fractional_bits))
        total += values.astype(np.int64)
    return total
