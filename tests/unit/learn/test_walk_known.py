"""Gradient descent on known paths: the lattice, what its steps do to distances, and its noise."""

from __future__ import annotations

import asyncio
import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.models import Model
from smpc_dp.capabilities.learn.tokens import PlainTokens
from smpc_dp.capabilities.learn.walk_known import DEFECT, KnownWalkSgd
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.network.complete import plan_walk
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.sampling import NoiseSource
from tests.examples import examples

Integers = NDArray[np.int64]
BOUND = 2.0
REACH = math.hypot(BOUND, 1.0)
CLIP, RATE, RADIUS, STEPS = REACH * 1.01, 8 / REACH**2, 4.0, 100


def planned(**more: object) -> NetworkPlan:
    given: dict[str, object] = {"sensitivity": 2 * CLIP, "paths": "known", "max_contributions": 8} | more
    return plan_walk("sgd", 20, STEPS, 5.0, 1e-4, **given)


@functools.cache
def usual_plan() -> NetworkPlan:
    return planned()


@functools.cache
def usual_sgd() -> KnownWalkSgd:
    return KnownWalkSgd(usual_plan(), CLIP, length=3, rate=RATE, radius=RADIUS)


MODEL = Model("logistic", 2)


def source(*parts: int) -> NoiseSource:
    return NoiseSource.keyed(bytes(32), *(str(part).encode() for part in parts))


def test_noise_and_grid_are_those_of_the_proof() -> None:
    """Shifts of D + 2 rho T in place of D; one bit less of grid would be too coarse."""
    step, sigma = usual_sgd().grid.step, usual_plan().sigma
    assert sigma is not None
    widest = 2 * CLIP + 2 * DEFECT * math.sqrt(3) * STEPS * step
    without_smoothing = math.sqrt(float(usual_sgd().grid.variance - 4)) * step
    assert without_smoothing / widest >= sigma / (2 * CLIP)
    assert without_smoothing / widest < 1.001 * sigma / (2 * CLIP)
    assert 2.0**-11 < widest / (2 * CLIP) - 1 <= 2.0**-10
    assert float(usual_sgd().grid.variance) ** 0.5 > 1e6


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 2**32),
    near=st.sampled_from([1.0, 1e-3, 1e-7]),
    scale=st.sampled_from([0.1, 1.0, 1.5]),
)
def test_a_step_takes_two_tokens_no_further_apart_than_rounding_does(
    seed: int, near: float, scale: float
) -> None:
    """The same party and noise: no more than twice the defect further apart, inside the ball or beyond it."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(1, 5, 2))
    points *= BOUND / np.linalg.norm(points, axis=2, keepdims=True)
    table = np.concatenate([points[0], rng.integers(0, 2, (5, 1))], axis=1)
    shaped = MODEL.points([table])

    def gradient(token: Integers) -> NDArray[np.float64]:
        return np.asarray(MODEL.gradient(usual_sgd().point(token)[None], shaped, np.array([0]))[0])

    drawn = rng.normal(size=3)
    first = np.rint(drawn / np.linalg.norm(drawn) * scale * RADIUS / usual_sgd().unit).astype(np.int64)
    second = first + np.rint(rng.normal(size=3) * near * RADIUS / usual_sgd().unit).astype(np.int64)
    noise = np.rint(rng.normal(size=3) * 100).astype(np.int64)
    moved = [usual_sgd().move(token, gradient(token), noise, True) for token in (first, second)]
    before = float(np.linalg.norm((first - second).astype(np.float64)))
    after = float(np.linalg.norm((moved[0] - moved[1]).astype(np.float64)))
    # Of the defect 64 are random rounding, which is none here.
    assert after <= before + 2 * (DEFECT - 64) * math.sqrt(3)


def test_too_long_a_step_does_take_them_apart() -> None:
    """Twice the greatest step size, a flat ball far away: what the bound on the rate is for."""
    sgd = KnownWalkSgd(usual_plan(), CLIP, length=3, rate=2.5 * RATE, radius=100.0)
    table = np.array([[0.0, BOUND, 1.0]])
    shaped = MODEL.points([table])
    tokens = [np.array([0, sign * 1000, 0]) for sign in (1, -1)]
    moved = [
        sgd.move(token, MODEL.gradient(sgd.point(token)[None], shaped, np.array([0]))[0], token * 0, True)
        for token in tokens
    ]
    distance = float(np.linalg.norm((moved[0] - moved[1]).astype(np.float64)))
    assert distance > 2000 + 2 * (DEFECT - 64) * math.sqrt(3)


def test_tokens_are_projected_in_integers() -> None:
    most = int(RADIUS / usual_sgd().unit)
    rng = np.random.default_rng(2)
    for _ in range(200):
        token = np.rint(rng.normal(size=3) * 2 * most).astype(np.int64)
        moved = usual_sgd().move(token, np.zeros(3), np.zeros(3, np.int64), True)
        square = sum(int(value) ** 2 for value in token)
        if square <= most * most:
            assert (moved == token).all()
            continue
        assert sum(int(value) ** 2 for value in moved) <= most * most
        for value, result in zip(token, moved, strict=True):
            exact = Fraction(int(value)) * most / Fraction(math.sqrt(square))
            assert abs(exact - int(result)) <= 2
            assert abs(int(result)) <= abs(int(value))


def test_noise_alone_leaves_the_gradient_out() -> None:
    noise = np.array([5, -7, 0])
    token = np.array([100, 100, 100])
    assert usual_sgd().move(token, np.ones(3), noise, False).tolist() == [95, 107, 100]
    assert (usual_sgd().move(token, np.ones(3), noise, True) < [95, 107, 100]).all()


def test_a_gradient_that_would_be_clipped_is_refused() -> None:
    with pytest.raises(ConfigError, match="a gradient is not below"):
        usual_sgd().move(np.zeros(3, np.int64), np.array([CLIP, 0.0, 0.0]), np.zeros(3, np.int64), True)
    with pytest.raises(ConfigError, match="a gradient is not below"):
        usual_sgd().move(np.zeros(3, np.int64), np.full(3, np.nan), np.zeros(3, np.int64), True)


def test_a_walk_learns_and_makes_the_plans_claim() -> None:
    """Little noise: 20 parties whose label is the first feature's sign."""
    rng = np.random.default_rng(5)
    points = rng.uniform(-1, 1, (20, 6, 2))
    tables = [np.column_stack([p, p[:, 0] > 0]) for p in points]
    plan = plan_walk("sgd", 20, 400, 100.0, 1e-2, sensitivity=2 * CLIP, paths="known")
    sgd = KnownWalkSgd(plan, CLIP, length=3, rate=0.3, radius=6.0)
    shaped = MODEL.points(tables)
    result = asyncio.run(
        sgd.run(PlainTokens(20), lambda at, parties: MODEL.gradient(at, shaped, parties), source(1))
    )
    assert result.guarantee is not None
    assert result.guarantee.epsilon == pytest.approx(100.0)
    assert "the whole path" in result.guarantee.assumption
    assert "at most 2/s" in result.guarantee.assumption
    assert MODEL.accuracy(result.token, np.concatenate(tables)) > 0.75


def test_plans_for_something_else_are_refused() -> None:
    with pytest.raises(ConfigError, match="not for known paths"):
        KnownWalkSgd(
            planned(paths="neighbours", max_contributions=None), CLIP, length=3, rate=0.1, radius=1.0
        )
    with pytest.raises(ConfigError, match="apart, the plan covers"):
        KnownWalkSgd(usual_plan(), 2 * CLIP, length=3, rate=0.1, radius=1.0)
    with pytest.raises(ConfigError, match="too fine"):
        KnownWalkSgd(usual_plan(), CLIP, length=3, rate=1e-9, radius=1e3)
    with pytest.raises(ConfigError, match=r"(?s)rate: must be.*radius: must be"):
        KnownWalkSgd(usual_plan(), CLIP, length=3, rate=0.0, radius=math.inf)
    with pytest.raises(ConfigError, match="parties 20, the run has 5"):
        asyncio.run(usual_sgd().run(PlainTokens(5), lambda at, _parties: at, source(2)))
