"""Encodings: what is accepted, what is refused and in which words, and the widest sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.simulation.averagers import grid_rows
from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.errors import ConfigError, PrivacyError, VerificationError


def real(**changes: Any) -> Encoding:
    return Encoding.plan(
        **{"length": 3, "lower": -2.0, "upper": 2.0, "precision": 0.01, "parties": 4, **changes}
    )


def integers(**changes: Any) -> Encoding:
    return Encoding.plan(**{"length": 2, "lower": -5, "upper": 5, "precision": None, "parties": 4, **changes})


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"length": 0}, "length"),
        ({"length": (1 << 26) + 1}, "length"),
        ({"lower": float("nan")}, "lower"),
        ({"upper": float("inf")}, "upper"),
        ({"lower": 2.0}, "lower"),
        ({"lower": 3.0}, "lower"),
        ({"precision": 0.0}, "precision"),
        ({"precision": -0.5}, "precision"),
        ({"precision": float("nan")}, "precision"),
        ({"precision": 64.0}, "precision"),
        ({"precision": 1e300, "lower": -1e308, "upper": 1e308}, "precision"),
        ({"precision": 2.0**-61}, "precision"),
        ({"max_weight": -1}, "max_weight"),
        ({"max_weight": 1 << 62}, "max_weight"),
    ],
)
def test_refused_parameters(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as raised:
        real(**changes)
    assert where in [fault.where for fault in raised.value.issues]


def test_integer_bounds_must_be_whole() -> None:
    with pytest.raises(ConfigError, match="lower: must be a whole number"):
        integers(lower=-0.5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("clip", [False, True])
def test_not_finite(value: float, clip: bool) -> None:
    with pytest.raises(PrivacyError, match=r"ann: vector\[1\] must be finite$"):
        real().encode([0.0, value, 0.0], party="ann", clip=clip)


@pytest.mark.parametrize("value", [2.1250000000000004, -2.1250000000000004, 1e308])
def test_out_of_bounds(value: float) -> None:
    """A step is a quarter: half of one beyond a bound is the bound."""
    with pytest.raises(PrivacyError, match=r"ann: vector\[2\] is outside \[-2.0, 2.0\]$"):
        real().encode([0.0, 0.0, value], party="ann")
    ring_vector, clipped = real().encode([0.0, 0.0, value], party="ann", clip=True)
    assert clipped == 1
    assert ring_vector[2] == (real().highest - real().lowest if value > 0 else 0)


@pytest.mark.parametrize("vector", [[], [0.0], [[0.0] * 3], 1.0, [0.0] * 4])
def test_wrong_shape(vector: Any) -> None:
    with pytest.raises(ConfigError, match=r"ann: shape must be \(3,\)"):
        real().encode(vector, party="ann")


@pytest.mark.parametrize("dtype", ["complex128", "bool", "U3", "O", "longdouble"])
def test_wrong_dtype(dtype: str) -> None:
    with pytest.raises(ConfigError, match="ann: dtype must be float64"):
        real().encode(np.ones(3, dtype=dtype), party="ann")


def test_the_largest_sum_is_a_number() -> None:
    widest = real(precision=2.0**960, lower=-(2.0**1018), upper=2.0**1018)
    with np.errstate(over="raise"):
        assert np.isfinite(widest.real(np.array([(1 << 63) - 1, -(1 << 63)]))).all()


def test_masked_values_and_truths_are_refused() -> None:
    with pytest.raises(PrivacyError, match="ann: vector: 1 values are masked"):
        real().encode(np.ma.masked_equal([0.0, 1.0, 2.0], 1.0), party="ann")
    with pytest.raises(ConfigError, match="ann: true and false are no numbers"):
        real().encode([0.0, True, 0.5], party="ann")


def test_ragged_is_no_array() -> None:
    with pytest.raises(ConfigError, match="ann: not an array"):
        real().encode([[1.0], [1.0, 2.0], []], party="ann")


def test_floats_are_no_integers() -> None:
    with pytest.raises(ConfigError, match="dtype must be an integer, is float64"):
        integers().encode([1.0, 2.0], party="ann")


@pytest.mark.parametrize("value", [1 << 63, (1 << 64) - 5])
def test_unsigned_that_would_wrap(value: int) -> None:
    with pytest.raises(PrivacyError, match=r"ann: vector\[1\] is outside"):
        integers().encode(np.array([0, value], dtype=np.uint64), party="ann")


def test_the_first_integer_outside_is_named_and_all_are_counted() -> None:
    encoding = integers(length=70_000, lower=-3, upper=7)
    values = np.zeros(70_000, np.int16)
    values[[65_537, 69_999]] = 8, -4
    with pytest.raises(PrivacyError, match=r"ann: vector\[65537\] is outside \[-3, 7\] \(2 values are\)$"):
        encoding.encode(values, party="ann")
    ring_vector, clipped = encoding.encode(values, party="ann", clip=True)
    assert (clipped, ring_vector[[0, 65_537, 69_999]].tolist()) == (2, [3, 10, 0])


def test_integer_bounds_are_exact_beyond_float64() -> None:
    """Bounds written as floats are compared as integers: 2^60 + 1 is not 2^60."""
    encoding = integers(length=1, lower=0.0, upper=2.0**60, parties=3)
    with pytest.raises(PrivacyError, match="outside"):
        encoding.encode(np.array([(1 << 60) + 1]), party="ann")
    ring_vector, clipped = encoding.encode(np.array([(1 << 60) + 1]), party="ann", clip=True)
    assert (int(ring_vector[0]), clipped) == (1 << 60, 1)


WIDE = 1 << 53


@pytest.mark.parametrize(
    ("lower", "upper", "least", "greatest"),
    [
        (0, WIDE + 1, 0.0, 2.0**53),
        (0, WIDE + 3, 0.0, 2.0**53 + 2),
        (-WIDE - 3, 0, -(2.0**53) - 2, 0.0),
        (WIDE + 1, WIDE + 101, 2.0**53 + 2, 2.0**53 + 100),
        (-WIDE - 101, -WIDE - 1, -(2.0**53) - 100, -(2.0**53) - 2),
        (0, (1 << 60) + 255, 0.0, 2.0**60),
    ],
)
def test_a_real_value_is_within_integer_bounds_exactly_or_refused(
    lower: int, upper: int, least: float, greatest: float
) -> None:
    encoding = real(length=1, lower=lower, upper=upper, precision=1.0)
    for value in (least, greatest):
        ring_vector, _ = encoding.encode([value], party="alice")
        assert encoding.decode(ring_vector, 1)[0].tolist() == [int(value)]
    for value in (
        min(np.nextafter(least, -np.inf), least - 0.75),
        max(np.nextafter(greatest, np.inf), greatest + 0.75),
    ):
        with pytest.raises(PrivacyError, match=rf"outside \[{lower}, {upper}\]"):
            encoding.encode([value], party="alice")
        ring_vector, clipped = encoding.encode([value], party="alice", clip=True)
        assert clipped == 1
        assert encoding.decode(ring_vector, 1)[0].tolist() == [int(least if value < least else greatest)]


def test_rows_on_the_grid_are_within_integer_bounds_exactly() -> None:
    encoding = real(length=1, lower=0, upper=WIDE + 3, precision=1.0)
    assert grid_rows(encoding, np.array([[2.0**53 + 2]])).tolist() == [[WIDE + 2]]
    with pytest.raises(PrivacyError, match="outside"):
        grid_rows(encoding, np.array([[2.0**53 + 4]]))


def test_each_coordinate_has_exact_integer_bounds() -> None:
    encoding = real(length=2, lower=[0, -WIDE - 1], upper=[WIDE + 3, 0], precision=1.0)
    assert encoding.encode([2.0**53 + 2, -(2.0**53)], party="alice")[0].tolist() == [2 * WIDE + 3, 1]
    for vector in ([2.0**53 + 4, 0.0], [0.0, -(2.0**53) - 2]):
        with pytest.raises(PrivacyError, match="outside"):
            encoding.encode(vector, party="alice")


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        (
            {"lower": 2 * WIDE + 1, "upper": 2 * WIDE + 3},
            "lower",
            f"{2 * WIDE + 1} and upper = {2 * WIDE + 3}",
        ),
        ({"lower": None, "upper": None, "l2_bound": WIDE + 1}, "l2_bound", f"{WIDE + 1} is no float64"),
    ],
)
def test_bounds_without_a_float64_are_refused_by_name(
    changes: dict[str, Any], where: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        real(precision=1.0, **changes)
    assert [fault.where for fault in caught.value.issues] == [where]


@pytest.mark.parametrize("value", [WIDE + 1, -WIDE - 1, -(1 << 63)])
def test_an_integer_that_float64_would_round_is_refused(value: int) -> None:
    encoding = real(length=1, lower=-(1 << 59), upper=1 << 59, precision=1.0)
    with pytest.raises(ConfigError, match="beyond 2\\^53"):
        encoding.encode(np.array([value]), party="alice")


@pytest.mark.parametrize(
    ("weight", "error", "words"),
    [
        (None, ConfigError, r"needed, an integer in \[0, 7\]"),
        (1.5, ConfigError, r"must be an integer in \[0, 7\]$"),
        (float("nan"), ConfigError, r"must be an integer in \[0, 7\]$"),
        (float("inf"), ConfigError, r"must be an integer in \[0, 7\]$"),
        (True, ConfigError, r"must be an integer in \[0, 7\]$"),
        (np.bool_(True), ConfigError, r"must be an integer in \[0, 7\]$"),
        ("3", ConfigError, r"must be an integer in \[0, 7\]$"),
        (8.0, PrivacyError, r"the weight is outside \[0, 7\]$"),
        (1 << 2000, PrivacyError, r"the weight is outside \[0, 7\]$"),
        (-1, PrivacyError, r"the weight is outside \[0, 7\]$"),
        (8, PrivacyError, r"the weight is outside \[0, 7\]$"),
    ],
)
def test_wrong_weight(weight: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"ann: {words}"):
        real(max_weight=7).encode([0.0] * 3, party="ann", weight=weight)


@pytest.mark.parametrize("weight", [7, np.int8(7), 7.0, np.float64(7.0), np.float32(7.0)])
def test_a_whole_number_is_a_weight_whatever_its_type(weight: Any) -> None:
    ring_vector, _ = real(max_weight=7).encode([0.0] * 3, party="ann", weight=weight)
    assert ring_vector[-1] == 7


def test_weight_without_weights() -> None:
    with pytest.raises(ConfigError, match="has no weights"):
        real().encode([0.0] * 3, party="ann", weight=1)


def test_two_thousand_parties_at_22_bits() -> None:
    """The sum needs 33 bits; the modulus has 40, and the sum is right where 32 bits would have wrapped."""
    top, parties = (1 << 22) - 1, 2000
    encoding = integers(lower=0, upper=top, parties=parties)
    assert (encoding.modulus_bits, encoding.dtype) == (40, np.uint64)
    ring_vector, _ = encoding.encode(np.array([top, 1]), party="ann")
    total = np.zeros_like(ring_vector)
    for _ in range(parties):
        total += ring_vector
    grid, weight = encoding.decode(encoding.unpack(encoding.pack(total)), parties)
    assert (grid.tolist(), weight) == ([parties * top, parties], parties)
    assert parties * top > 1 << 32


def test_sum_that_nobody_can_have_is_refused() -> None:
    encoding = integers(lower=-5, upper=5, parties=4)
    most = np.array([40, 0], dtype=np.uint32)
    assert encoding.decode(most, 4)[0].tolist() == [20, -20]
    with pytest.raises(VerificationError, match="no 4 vectors"):
        encoding.decode(most + np.uint32(1), 4)
    with pytest.raises(VerificationError, match="no 3 vectors"):
        encoding.decode(most, 3)


@pytest.mark.parametrize("weights", [0, 5])
def test_a_sum_that_one_coordinate_can_not_have_is_refused(weights: int) -> None:
    """Within the widest bounds of all, and beyond its own: an average of it must not be put on the bound."""
    given: dict[str, Any] = {"precision": 1e-3, "parties": 4, "max_weight": weights, "length": 2}
    encoding = Encoding.plan(lower=[0.0, -50.0], upper=[1.0, 100.0], **given)
    weight = weights or None
    highest, _ = encoding.encode([1.0, 100.0], party="ann", weight=weight)
    lowest, _ = encoding.encode([0.0, -50.0], party="ann", weight=weight)
    units: Any = np.eye(2, encoding.ring_length).astype(encoding.dtype)
    for vector in (highest, lowest):
        encoding.decode(3 * vector, 3)
        for beyond in units:
            with pytest.raises(VerificationError, match="no 3 vectors"):
                encoding.decode(3 * vector + (beyond if vector is highest else -beyond), 3)


def test_a_sum_that_no_vectors_of_a_ball_have_is_refused() -> None:
    encoding = Encoding.plan(length=4, l2_bound=1.0, precision=1e-6, parties=4)
    vector, _ = encoding.encode([0.6, 0.8, 0.0, 0.0], party="ann")
    encoding.decode(4 * vector, 4)
    far = encoding.encode([0.0, 1.0, 0.0, 0.0], party="ann")[0]
    encoding.decode(4 * far, 4)
    aside: Any = np.array([encoding.highest, 0, 0, 0]).astype(encoding.dtype)
    with pytest.raises(VerificationError, match="no 4 vectors"):
        encoding.decode(4 * far + aside, 4)


@pytest.mark.parametrize("weight", [31, (1 << 63) + 1, (1 << 64) - 1])
def test_weight_that_nobody_can_have_is_refused(weight: int) -> None:
    encoding = integers(length=1, lower=0, upper=1 << 56, parties=3, max_weight=10)
    assert encoding.element_bytes == 8
    with pytest.raises(VerificationError, match="no 3 vectors"):
        encoding.decode(np.array([5, weight], dtype=np.uint64), 3)


@pytest.mark.parametrize("size", [0, 5, 7])
def test_unpack_needs_the_length(size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes where 6 are due"):
        real().unpack(bytes(size))
    with pytest.raises(ValueError, match=f"{size} bytes where 6 are due"):
        real().add_packed(real().zeros(), memoryview(bytes(size)))


@pytest.mark.parametrize("weight", [1, 3, (1 << 53) - 1, (1 << 53) + 1, (1 << 61) + 1])
@pytest.mark.parametrize(("least", "below"), [(1, 1 << 53), (1 << 53, 1 << 62), (1 << 40, 1 << 54)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_averages_of_large_sums_and_weights_are_correctly_rounded(
    sign: int, least: int, below: int, weight: int
) -> None:
    draw = np.random.default_rng(weight).integers(least, below, 200)
    grid = np.append(sign * draw, [sign * least, sign * (least + 1), sign, 0])
    expected = [float(Fraction(int(total), weight * 512)) for total in grid]
    encoding = real(length=len(grid), precision=2.0**-9)
    assert encoding.average(grid, weight, noisy=True).tolist() == expected
    assert encoding.average(grid, weight, noisy=False).tolist() == [min(max(x, -2.0), 2.0) for x in expected]


def test_average_is_correctly_rounded() -> None:
    encoding = integers(length=1, lower=0, upper=1 << 60, parties=3)
    grid = np.array([(1 << 60) + 1])
    assert encoding.average(grid, 3, noisy=False)[0] == float(Fraction((1 << 60) + 1, 3))
    with pytest.raises(PrivacyError, match="no average"):
        encoding.average(grid, 0, noisy=False)


@pytest.mark.parametrize(
    "bounds",
    [
        {"lower": -0.1, "upper": 0.1},
        {"lower": -1e-9, "upper": 1 / 3},
        {"lower": [-0.1, 0.7], "upper": [0.1, 0.9]},
        {"lower": 0, "upper": (1 << 53) + 3, "precision": 1.0},
    ],
)
def test_an_exact_average_is_within_the_bounds_and_an_input_of_the_next_round(bounds: dict[str, Any]) -> None:
    encoding = real(**{"length": 2, "precision": 1e-6} | bounds)
    for side in encoding.bounds:
        vector = np.broadcast_to(side, 2).astype(np.float64)
        ring_vector, clipped = encoding.encode(vector, party="ann")
        average = encoding.average(encoding.decode(ring_vector, 1)[0], 1, noisy=False)
        assert not clipped
        assert ((encoding.bounds[0] <= average) & (average <= encoding.bounds[1])).all()
        again, clipped = encoding.encode(average, party="ann")
        assert (again.tolist(), clipped) == (ring_vector.tolist(), 0)


def test_an_average_with_noise_is_not_put_on_the_bounds() -> None:
    encoding = real(length=1, lower=-0.1, upper=0.1, precision=1e-6)
    assert encoding.average(np.array([3 << 20]), 3, noisy=True).tolist() == [1.0]


def test_half_a_step_beyond_a_bound_is_the_bound_and_not_clipped() -> None:
    encoding = real(length=2, lower=-0.1, upper=0.1, precision=1e-6)
    on_bounds, _ = encoding.encode([-0.1, 0.1], party="ann")
    for beyond in (
        np.array([-0.1, 0.1], np.float32),
        [-0.1 - 0.49 * encoding.step, 0.1 + 0.49 * encoding.step],
    ):
        ring_vector, clipped = encoding.encode(beyond, party="ann")
        assert (ring_vector.tolist(), clipped) == (on_bounds.tolist(), 0)
        assert fixed_point_sum(encoding, [beyond]).tolist() == encoding.decode(ring_vector, 1)[0].tolist()
    with pytest.raises(PrivacyError, match=r"vector\[1\] is outside"):
        encoding.encode([0.0, 0.1 + 0.51 * encoding.step], party="ann")


def test_fixed_point_sum_rounds_half_to_even() -> None:
    encoding = real(length=4, precision=1.0, lower=-4.0, upper=4.0)
    assert fixed_point_sum(encoding, [[0.5, 1.5, -0.5, -1.5]]).tolist() == [0, 2, 0, -2]
