"""Bounds on the norm of a vector, and on each coordinate: what is accepted, and how far it can move."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.ball import on_grid, squared_limit
from smpc_dp.capabilities.gopa.params import check_parameters as check_gopa
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.secagg.noisy import check_noisy, mechanism_of
from smpc_dp.secagg.params import check_parameters as check_exact
from tests.examples import examples

BALL = {"length": 3, "l2_bound": 1.0, "epsilon": 1.0, "delta": 1e-6}
BOX = {"length": 3, "lower": [0.0, -2.0, 5.0], "upper": [1.0, 2.0, 5.5], "epsilon": 1.0, "delta": 1e-6}


Reals = NDArray[np.float64]


def norm_squared(grid: NDArray[np.generic]) -> int:
    return sum(int(value) ** 2 for value in grid)


@settings(max_examples=examples(300))
@given(
    st.integers(1, 40).flatmap(lambda n: arrays(np.float64, n, elements=st.floats(-1e3, 1e3))),
    st.floats(0.01, 1e3),
    st.integers(0, 40),
)
def test_no_vector_leaves_the_ball_on_the_grid(vector: Reals, bound: float, bits: int) -> None:
    """Exactly: squared norms and their limit are integers. Inside, rounding moves less than a step."""
    limit = squared_limit(bound, bits)
    assume(limit > 0)
    assert limit <= (Fraction(bound) * 2**bits) ** 2 < limit + 1
    grid, inside = on_grid(vector, bound, bits)
    assert norm_squared(grid) <= limit
    exact = [Fraction(value) * 2**bits for value in vector]
    square = sum(value * value for value in exact)
    if square <= limit:
        assert inside
        assert all(abs(value - int(near)) < 1 for value, near in zip(exact, grid, strict=True))
    if square > limit * Fraction(1 + 1e-8) ** 2:
        assert not inside
        # The direction is kept: each coordinate is within a step of the vector scaled to the surface.
        factor = math.sqrt(limit / square)
        scaled = [float(value) * factor for value in exact]
        assert all(
            abs(value - near) <= 1 + 1e-6 * (1 + abs(value))
            for value, near in zip(scaled, grid.tolist(), strict=True)
        )


def test_rounding_to_nearest_alone_would_leave_the_ball() -> None:
    """What the exact rounding is for: 100 coordinates of 0.0999.. go up, and the norm with them."""
    vector = np.full(100, 0.0999)
    bits = 4
    nearest = np.rint(vector * 2**bits)
    assert norm_squared(nearest) > squared_limit(1.0, bits) >= norm_squared(on_grid(vector, 1.0, bits)[0])


def test_a_vector_of_the_bound_itself_is_no_fault() -> None:
    """Scaled to the bound in float64 the norm may be a few units above it."""
    for seed in range(200):
        vector = np.random.default_rng(seed).normal(size=50)
        vector *= 1.0 / np.linalg.norm(vector)
        grid, inside = on_grid(vector, 1.0, 30)
        assert inside
        assert norm_squared(grid) <= squared_limit(1.0, 30)


@pytest.mark.parametrize("kind", ["real", "integer"])
def test_a_vector_outside_is_refused_or_scaled(kind: str) -> None:
    precision = 2.0**-20 if kind == "real" else None
    encoding = Encoding.plan(length=2, l2_bound=10.0, precision=precision, parties=3)
    outside = np.array([30, 40]) if kind == "integer" else np.array([30.0, 40.0])
    with pytest.raises(PrivacyError, match=r"alice: the L2 norm is above 10\.0$"):
        encoding.encode(outside, party="alice")
    ring_vector, clipped = encoding.encode(outside, party="alice", clip=True)
    grid = ring_vector.astype(np.int64) + encoding.lowest
    np.testing.assert_allclose(grid * encoding.step, [6, 8], atol=encoding.step)
    assert clipped == 2
    ring_vector, clipped = encoding.encode(outside // 5, party="alice")
    assert clipped == 0
    np.testing.assert_array_equal((ring_vector.astype(np.int64) + encoding.lowest) * encoding.step, [6, 8])


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_vector_that_has_no_norm_is_refused(value: float, clip: bool) -> None:
    encoding = Encoding.plan(length=3, l2_bound=10.0, precision=2.0**-20, parties=3)
    with pytest.raises(PrivacyError, match=r"alice: vector\[1\] must be finite$"):
        encoding.encode(np.array([30.0, value, value]), party="alice", clip=clip)


def test_huge_and_tiny_vectors_are_scaled_without_overflow() -> None:
    encoding = Encoding.plan(length=2, l2_bound=1.0, precision=2.0**-10, parties=3)
    with pytest.raises(PrivacyError, match="is above 1"):
        encoding.encode(np.array([1e300, -1e300]), party="a")
    ring_vector, _ = encoding.encode(np.array([1e300, -1e300]), party="a", clip=True)
    np.testing.assert_array_equal(ring_vector.astype(np.int64) + encoding.lowest, [724, -724])


@pytest.mark.parametrize("check", [check_gopa, check_noisy])
def test_the_ball_is_less_than_its_box(check: object) -> None:
    """Sensitivity 2 B, where the box of the same bounds has 2 B sqrt(length): three times the variance."""
    precision = {"precision": 2.0**-16}
    ball, faults = check(BALL | precision, 10)  # type: ignore[operator]
    assert ball is not None, faults
    box = {"length": 3, "lower": -1.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
    wide, _ = check(box | precision, 10)  # type: ignore[operator]
    assert ball.encoding.diameter == pytest.approx(2 * 2**16)
    assert ball.privacy(10).guarantee.sensitivity["l2"] == pytest.approx(2 * 2**16)
    assert wide.noise(10, 0).total / ball.noise(10, 0).total == pytest.approx(math.sqrt(3), rel=1e-3)


def test_skellam_counts_the_ball_in_every_norm() -> None:
    parameters, faults = check_noisy(BALL | {"precision": 2.0**-10, "mechanism": "skellam"}, 10)
    assert parameters is not None, faults
    result = mechanism_of(parameters).share.sensitivity
    assert result.l2 == pytest.approx(2048)
    assert result.linf == 2048
    assert result.l1 == pytest.approx(2048 * math.sqrt(3), rel=1e-3)


def test_the_box_may_differ_from_coordinate_to_coordinate() -> None:
    """The diameter is the diagonal, and each coordinate has bounds of its own."""
    parameters, faults = check_gopa(BOX | {"precision": 2.0}, 10)
    assert parameters is None
    parameters, faults = check_gopa(BOX | {"precision": 2.0**-10}, 10)
    assert parameters is not None, faults
    encoding = parameters.encoding
    assert encoding.widths == [1024, 4096, 512]
    assert encoding.diameter == pytest.approx(math.hypot(1024, 4096, 512))
    with pytest.raises(PrivacyError, match=r"vector\[2\] is outside \[5.0, 5.5\]$"):
        encoding.encode(np.array([0.5, 1.5, 4.5]), party="alice")
    ring_vector, clipped = encoding.encode(np.array([0.5, 3.0, 4.5]), party="alice", clip=True)
    np.testing.assert_array_equal((ring_vector.astype(np.int64) + encoding.lowest) / 1024, [0.5, 2.0, 5.0])
    assert clipped == 2


def test_a_box_of_integers_and_an_exact_sum() -> None:
    given = {"length": 2, "lower": [0, -7], "upper": [1, 9], "kind": "integer", "corrupt": 0.0}
    parameters, faults = check_exact(given, 4)
    assert parameters is not None, faults
    rows = [np.array(row) for row in ([0, -7], [1, 9], [1, 0], [0, 3])]
    ring_vector = [parameters.encoding.encode(row, party="p")[0] for row in rows]
    total = np.asarray(np.sum(ring_vector, axis=0, dtype=ring_vector[0].dtype))
    assert parameters.encoding.decode(total, 4)[0].tolist() == [2, 5]
    with pytest.raises(PrivacyError, match=r"vector\[0\] is outside \[0, 1\]$"):
        parameters.encoding.encode(np.array([2, 0]), party="p")


@pytest.mark.parametrize(
    ("given", "where", "reason"),
    [
        (BALL | {"l2_bound": 0.0}, "l2_bound", "above 0"),
        (BALL | {"l2_bound": math.inf}, "l2_bound", "must be a number or an integer, finite, is inf"),
        (BALL | {"l2_bound": "1"}, "l2_bound", "must be a number or an integer, is '1'"),
        (BALL | {"l2_bound": 1 << 2000}, "l2_bound", "integer, below 2^1023, is an integer of 2001 bits"),
        (BALL | {"lower": 0.0}, "lower", "not for vectors with an l2_bound"),
        (BALL | {"precision": 1.0, "l2_bound": 0.6}, "precision", "wider"),
        (BALL | {"precision": 3.0}, "precision", "wider"),
        (BOX | {"lower": [0.0, 1.0]}, "lower", "has 2 numbers, vectors have 3"),
        (BOX | {"lower": [0.0, 2.0, 5.0]}, "lower", "below upper = 2.0"),
        (BOX | {"lower": [0.0, math.nan, 5.0]}, "lower", "finite, is [0.0, nan, 5.0]"),
        (BOX | {"lower": [0.0, "a", 5.0]}, "lower", "element 1 must be a number"),
        (BOX | {"upper": [1.0, 2.0, 1 << 3000]}, "upper", ", below 2^1023, is "),
        (BOX | {"lower": []}, "lower", "has 0 numbers"),
    ],
)
@pytest.mark.parametrize("check", [check_gopa, check_noisy])
def test_bad_bounds_are_named(check: object, given: dict[str, object], where: str, reason: str) -> None:
    parameters, faults = check({"precision": 2.0**-10} | given, 10)  # type: ignore[operator]
    assert parameters is None
    assert any(fault.where == where and reason in fault.reason for fault in faults), faults


@pytest.mark.parametrize(("lower", "upper"), [([], []), ([], [1.0, 2.0]), ([0.0, 1.0], [1.0, 2.0, 3.0])])
def test_bounds_without_a_length_are_no_crash(lower: list[float], upper: list[float]) -> None:
    given = {"lower": lower, "upper": upper, "precision": 0.1, "epsilon": 1.0, "delta": 1e-6}
    _, faults = check_gopa(given, 10)
    assert any(fault.where == "length" for fault in faults), faults


def test_an_exact_sum_has_no_norm_bound() -> None:
    _, faults = check_exact({"length": 3, "l2_bound": 1.0, "precision": 0.1}, 10)
    assert any(fault.where == "l2_bound" for fault in faults)
    with pytest.raises(ConfigError, match="epsilon"):
        simulate.average(np.zeros((5, 2)), l2_bound=1.0)


@pytest.mark.parametrize("method", ["gopa", "secagg"])
def test_simulation_with_a_norm_bound(method: str) -> None:
    """Eight standard errors: 1e-15 for each of 20 numbers."""
    values = np.full((8, 20), 1 / math.sqrt(20))
    result = simulate.average(values, l2_bound=1.0, method=method, epsilon=4.0, delta=1e-5)
    assert np.abs(result.value - values[0]).max() < 8 * result.standard_error
    assert result.clipped == 0
    clipped = simulate.average(
        3 * values, l2_bound=1.0, method=method, epsilon=4.0, delta=1e-5, clip=True, seed_for_simulation=1
    )
    assert np.abs(clipped.value - values[0]).max() < 8 * result.standard_error
    assert clipped.clipped == values.size
    with pytest.raises(PrivacyError, match="L2 norm"):
        simulate.average(3 * values, l2_bound=1.0, method=method, epsilon=4.0, delta=1e-5)


def test_default_precision_is_that_of_the_widest_coordinate() -> None:
    """And not of the distance between coordinates."""
    given = BOX | {"lower": [0.0, 1e6, 0.0], "upper": [1.0, 1e6 + 4, 0.5]}
    parameters, faults = check_gopa(given, 10)
    assert parameters is not None, faults
    assert parameters.encoding.step == 4 / 2**20
    mixed, faults = check_gopa(BOX | {"lower": -3.0}, 10)
    assert mixed is not None, faults
    assert mixed.encoding.widths[0] * mixed.encoding.step == 4.0
    assert mixed.encoding.step == 2.0**-17


def test_simulation_with_a_box() -> None:
    values = np.tile([0.5, 100.0], (8, 1))
    result = simulate.average(
        values, lower=(0.0, 90.0), upper=[1.0, 110.0], method="gopa", epsilon=8.0, delta=1e-5
    )
    assert np.abs(result.value - values[0]).max() < 8 * result.standard_error
