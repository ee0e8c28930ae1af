"""Gradient descent by a token: against a slow loop, its limits, what it refuses, and Proposition 4.1."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp import ball
from smpc_dp.capabilities.learn.averager import Parties
from smpc_dp.capabilities.learn.tokens import PlainTokens
from smpc_dp.capabilities.learn.walk_sgd import SgdNoise, WalkSgd, proposition_4_1
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.network.complete import plan_walk
from smpc_dp.privacy.sampling import NoiseSource, uniform
from smpc_dp_lab.bench.sgd_studies import Logistic, unplanned_noise
from tests.tokens import tokens_apart

Floats = NDArray[np.float64]


def source(*parts: int) -> NoiseSource:
    return NoiseSource.keyed(bytes(32), *(str(part).encode() for part in parts))


@pytest.fixture(scope="module")
def parties() -> Logistic:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 4, 3))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return Logistic(x, np.where(x @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=(20, 4)) > 0, 1.0, -1.0))


def slow_descent(
    parties: Logistic, noise: SgdNoise, size: float, path: list[int], drawn: NDArray[np.int64], radius: float
) -> Floats:
    """Algorithm 4.5, one walk, with scalars."""
    step, token, visits = 2.0**-noise.grid.bits, np.zeros(3), dict.fromkeys(range(20), 0)
    most = noise.limits.contributions
    for t, party in enumerate(path):
        slope = np.zeros(3)
        for x, y in zip(parties.features[party], parties.labels[party], strict=True):
            slope -= y * x / (1 + math.exp(y * float(x @ token))) / 4
        slope *= min(1.0, noise.lipschitz / float(np.linalg.norm(slope)))
        allowed = t > 0 and (most is None or visits[party] < most)
        visits[party] += t > 0
        silent = noise.silent and not allowed
        token = token - size * (np.rint(slope / step) * step * allowed + drawn[t] * step * (not silent))
        token *= min(1.0, radius / max(float(np.linalg.norm(token)), 1e-300))
    return token


@pytest.mark.parametrize(("most", "silent"), [(None, False), (5, False), (5, True)])
def test_walks_side_by_side_are_slow_walks(parties: Logistic, most: int | None, silent: bool) -> None:
    """Two walks of 300 steps, the same draws; gradients may round differently to the grid by a step."""
    noise = unplanned_noise(20, 300, 0.5, lipschitz=0.3, max_contributions=most, silent=silent)
    result = WalkSgd(noise, 0.1, radius=0.4).simulate(parties.gradient, np.zeros(3), source(1), walks=2)
    draws = source(1)
    paths = uniform(draws, 600, 20).reshape(300, 2)
    drawn = noise.draw(draws, 1_800).reshape(300, 2, 3)
    for k in range(2):
        slow = slow_descent(parties, noise, 0.1, paths[:, k].tolist(), drawn[:, k], 0.4)
        np.testing.assert_allclose(result.tokens[k], slow, atol=0.1 * 300 * 2.0**-noise.grid.bits)
    assert np.linalg.norm(result.tokens[0] - result.tokens[1]) > 0.01


def test_a_walk_alone_is_the_same_to_the_last_bit(parties: Logistic) -> None:
    """Each process steps one token, a simulation many: replayed along the path that the parties drew."""
    noise = unplanned_noise(20, 400, 0.0, lipschitz=0.3)
    sgd, path = WalkSgd(noise, 0.5), []

    def gradient(points: Floats, who: Parties) -> Floats:
        path.append(int(who[0]))
        return parties.gradient(points, who)

    async def run() -> list[Floats]:
        indices = tokens_apart(20)
        outcome = await asyncio.gather(
            *(sgd.run(indices[u], gradient, np.zeros(3), source(2, u)) for u in range(20))
        )
        assert all(result.guarantee is None for result in outcome)
        return [result.token for result in outcome]

    outcome = asyncio.run(run())
    token = np.zeros((7, 3))
    for step, party in enumerate(path):
        allowed = np.full(7, step > 0)
        gradients = parties.gradient(token, np.full(7, party))
        token = sgd.move(token, gradients, np.zeros((7, 3), np.int64), allowed, 0.5)
    assert len(path) == 400
    assert all(np.array_equal(result, token[3]) for result in outcome)
    assert float(parties.objective(token)[0]) < 0.55


def test_rows_are_rounded_into_the_ball_as_single_vectors_are() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(200, 5)) * rng.choice([0.01, 1.0, 100.0], size=(200, 1))
    rows[0] = 0
    rows[1] = 1e308, -1e308, 5e307, 1.0, 0.0
    result = ball.rows_on_grid(rows, 0.7, 12)
    limit = ball.squared_limit(0.7, 12)
    assert 0.4 < result[1, 0] * 2.0**-12 < 0.7
    assert (result.astype(object) ** 2).sum(axis=1).max() <= limit
    for row, grid in zip(rows, result, strict=True):
        alone, inside = ball.on_grid(row, 0.7, 12)
        assert np.abs(alone - grid).max() <= (0 if inside and np.linalg.norm(row) < 0.6 else 1)


def test_a_plan_makes_the_claim(parties: Logistic) -> None:
    plan = plan_walk("sgd", 20, 100, 2.0, 1e-4, sensitivity=0.8)
    noise = SgdNoise.of(plan, 0.4)
    assert plan.sigma is not None
    assert plan.sigma <= math.sqrt(float(noise.grid.variance)) * noise.grid.step < plan.sigma * 1.001
    result = asyncio.run(WalkSgd(noise, 0.1).run(PlainTokens(20), parties.gradient, np.zeros(3), source(4)))
    assert result.guarantee is not None
    assert result.guarantee.epsilon == pytest.approx(2.0)
    assert "from whom and to whom" in noise.claim
    assert "NO CLAIM" in unplanned_noise(20, 100, 1.0).claim


def test_proposition_4_1_bounds_the_error(parties: Logistic) -> None:
    """30 walks of 2,000 steps in the ball of diameter 4; their mean is far below the bound."""
    sizes, bound = proposition_4_1(4.0, 1.0, 0.3, 3, 2_000)
    assert sizes[0] == pytest.approx(4 / math.sqrt(1 + 3 * 0.09))
    noise = unplanned_noise(20, 2_000, 0.3)
    start, best = np.zeros(3), np.zeros((1, 3))
    result = WalkSgd(noise, sizes, radius=2.0).simulate(parties.gradient, start, source(5), walks=30)
    for _ in range(3_000):
        best = best - 2.0 * parties.gradient(np.repeat(best, 20, axis=0), np.arange(20)).mean(axis=0)
        best *= min(1.0, 2.0 / float(np.linalg.norm(best)))
    error = float(parties.objective(result.tokens).mean() - parties.objective(best)[0])
    assert 0 < error < bound
    # A tenth of the noise's part of G, and the bound falls by that.
    assert proposition_4_1(4.0, 1.0, 0.0, 3, 2_000)[1] == pytest.approx(bound / math.sqrt(1.27))


@pytest.mark.long
def test_twenty_thousand_steps_reach_a_low_objective() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(2_000, 8, 9))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    parties = Logistic(x, np.sign(x[:, :, 0]))
    result = WalkSgd(unplanned_noise(2_000, 20_000, 1.0), 0.05).simulate(
        parties.gradient, np.zeros(9), source(6)
    )
    assert float(parties.objective(result.tokens)[0]) < 0.6


def test_bad_requests_are_named(parties: Logistic) -> None:
    with pytest.raises(ConfigError, match="amplification by iteration"):
        SgdNoise.of(plan_walk("sgd", 20, 100, 2.0, 1e-4, sensitivity=2.0, paths="known"), 1.0)
    plan = plan_walk("sgd", 20, 100, 2.0, 1e-4, sensitivity=1.0)
    with pytest.raises(ConfigError, match="2 apart, the plan covers 1"):
        SgdNoise.of(plan, 1.0)
    with pytest.raises(ConfigError, match="task sum, the run has sgd"):
        SgdNoise.of(plan_walk("sum", 20, 100, 2.0, 1e-4, sensitivity=1.0), 0.5)
    noise = SgdNoise.of(plan, 0.5)
    for sizes, named in ((np.ones(99), "one or 100"), (0.0, "above 0"), (math.nan, "finite")):
        with pytest.raises(ConfigError, match=named):
            WalkSgd(noise, sizes)
    with pytest.raises(ConfigError, match="radius: must be above 0"):
        WalkSgd(noise, 0.1, radius=-1.0)
    with pytest.raises(ConfigError, match="is for 20 parties, the network has 19"):
        asyncio.run(WalkSgd(noise, 0.1).run(PlainTokens(19), parties.gradient, np.zeros(3), source(7)))
    with pytest.raises(ConfigError, match="start"):
        asyncio.run(WalkSgd(noise, 0.1).run(PlainTokens(20), parties.gradient, np.array([np.nan]), source(7)))
    with pytest.raises(ConfigError, match="step_sizes: the descent diverges: a token of norm"):
        asyncio.run(WalkSgd(noise, 1e15).run(PlainTokens(20), parties.gradient, np.zeros(3), source(7)))
    with pytest.raises(ConfigError, match="a gradient is not finite"):
        WalkSgd(noise, 0.1).simulate(lambda points, _who: points * np.nan, np.zeros(3), source(7))
    with pytest.raises(ConfigError, match="labels -1 or 1"):
        Logistic(np.zeros((2, 1, 1)), np.zeros((2, 1)))
    with pytest.raises(ConfigError, match=r"\(n, m, p\)"):
        Logistic(np.zeros((2, 1)), np.zeros((2, 1)))
