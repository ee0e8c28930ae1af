"""Walks on the complete graph: paths and their limits, sums, histograms and their planner."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from smpc_dp.capabilities.learn.tokens import PlainTokens
from smpc_dp.capabilities.learn.walk import Limits, Path, Visit, WalkHistogram, WalkSum, walk
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.network.complete import plan_walk
from smpc_dp.privacy.network.grid import Grid
from smpc_dp.privacy.network.histogram import local_delta
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.network.walk_histogram import (
    plan_walk_histogram,
    response_curve,
    sampled_response,
    seen_responses,
)
from smpc_dp.privacy.sampling import NoiseSource, uniform
from tests.tokens import tokens_apart


def source(*parts: int) -> NoiseSource:
    return NoiseSource.keyed(bytes(32), *(str(part).encode() for part in parts))


def slow_contributions(path: list[int], limits: Limits) -> list[bool]:
    """Who contributes, step by step."""
    visits: Counter[int] = Counter()
    edges: Counter[tuple[int, int]] = Counter()
    result = []
    for t, party in enumerate(path):
        last = t == len(path) - 1
        allowed = t > 0
        if limits.contributions is not None and visits[party] >= limits.contributions:
            allowed = False
        if limits.edge is not None and (last or edges[party, path[t + 1]] >= limits.edge):
            allowed = False
        result.append(allowed)
        if t:
            visits[party] += 1
        if not last and path[t + 1] != party:
            edges[party, path[t + 1]] += 1
    return result


@pytest.mark.parametrize("limits", [Limits(), Limits(3), Limits(None, 1), Limits(5, 2)])
def test_limits_are_those_of_a_loop(limits: Limits) -> None:
    for seed in range(5):
        path = uniform(source(seed), 60, 4)
        result = Path.along(path, 4, limits)
        assert result.contributes.tolist() == slow_contributions(path.tolist(), limits)
        for party in range(4):
            visits = result.visits[1:][path[1:] == party]
            assert visits.tolist() == list(range(len(visits)))


@pytest.mark.parametrize("limits", [Limits(), Limits(4, 1)])
def test_users_apart_keep_to_the_same_limits(limits: Limits) -> None:
    """The path that the holders drew, replayed: the same steps contribute, and each party counts alone."""
    seen: list[Visit] = []

    class Recorder:
        def hold(self, values: NDArray[np.int64], visit: Visit) -> NDArray[np.int64]:
            seen.append(visit)
            return values + 1

        def possible(self, values: NDArray[np.int64], steps: int) -> bool:
            return bool(values[0] == steps)

    async def run() -> list[int]:
        indices = tokens_apart(4)
        result = await asyncio.gather(
            *(
                walk(indices[u], Recorder(), np.zeros(1, np.int64), 80, limits, source(7, u))  # type: ignore[arg-type]
                for u in range(4)
            )
        )
        return [int(values[0]) for values in result]

    assert asyncio.run(run()) == [80] * 4
    path = [visit.party for visit in seen]
    assert [visit.step for visit in seen] == list(range(80))
    assert [visit.contributes for visit in seen] == slow_contributions(path, limits)
    assert [v.before for v in seen] == Path.along(np.array(path), 4, limits).visits.tolist()
    # 4 counts of Bin(80, 1/4) within 5 deviations: 2e-6
    assert np.all(np.abs(np.bincount(path, minlength=4) - 20) < 20)


@pytest.fixture(scope="module")
def plan() -> NetworkPlan:
    return plan_walk("sum", 30, 200, 2.0, 1e-4, sensitivity=1.0)


def test_sums_are_unbiased_with_the_planned_noise(plan: NetworkPlan) -> None:
    """300 runs: the mean within 5 standard errors, the deviation within 21 % (5 of its own): 1e-6."""
    values = np.random.default_rng(1).random((30, 1))
    ring = WalkSum(plan, 0.0, 1.0)
    outcome = [asyncio.run(ring.run(PlainTokens(30), values, source(k))) for k in range(300)]
    sums = np.array([result.value for result in outcome])
    assert outcome[0].contributions == 199
    expected = math.hypot(plan.error_std, math.sqrt(199) * values.std())
    assert abs(sums.mean() - 199 * values.mean()) < 5 * expected / math.sqrt(300)
    assert abs(sums.std() / expected - 1) < 0.21


def test_without_noise_the_sum_is_that_of_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits and growing contributions: each party's k-th is counted once, in simulation and apart."""
    monkeypatch.setattr(Grid, "noise", lambda _self, _source, count, **_share: np.zeros(count, np.int64))
    limited = plan_walk(
        "sum", 5, 40, 1.0, 1e-4, sensitivity=8.0, paths="known", max_contributions=6, edge_cap=2
    )
    values = np.arange(5.0)[:, None] + np.arange(6)[None, :] / 2
    ring = WalkSum(limited, 0.0, 8.0)
    path = Path.draw(5, 40, Limits(6, 2), source(3))
    wanted = values[path.parties[path.contributes], path.visits[path.contributes]].sum()
    outcome = asyncio.run(ring.run(PlainTokens(5), values, source(3)))
    assert outcome.value == wanted
    assert outcome.contributions is None

    async def run() -> set[float]:
        indices = tokens_apart(5)
        outcome = await asyncio.gather(
            *(ring.run(indices[u], values[u : u + 1], source(4, u)) for u in range(5))
        )
        return {result.value for result in outcome}

    sums = asyncio.run(run())
    assert len(sums) == 1
    assert 0 < sums.pop() <= values.sum()


def response(beta: float, d: int, value: int) -> NDArray[np.float64]:
    distribution = np.full(d, beta / d)
    distribution[value] += 1 - beta
    return distribution


@pytest.mark.parametrize(("beta", "d"), [(0.3, 3), (0.6, 2)])
def test_response_curves_bound_enumerated_laws(beta: float, d: int) -> None:
    epsilons = np.array([0.0, 0.2, 0.7, 1.5])
    one, two = response(beta, d, 0), response(beta, d, 1)

    def delta(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([np.maximum(0, p - math.exp(e) * q).sum() for e in epsilons])

    for answers in (1, 3):
        p, q = (
            np.array([math.prod(distribution[list(a)]) for a in itertools.product(range(d), repeat=answers)])
            for distribution in (one, two)
        )
        np.testing.assert_allclose(
            response_curve(beta, d, answers)(epsilons), delta(p, q), rtol=1e-9, atol=1e-15
        )
    for e in (0.7, 1.5):
        assert response_curve(beta, d, 3)(np.array([e]))[0] == pytest.approx(
            local_delta(e, beta, 3, d), rel=1e-3
        )
    # Another of 4 parties answers with chance 3/4, whatever those hold.
    for others in itertools.product(range(d), repeat=3):
        mixed = sum(response(beta, d, value) for value in others) / 4
        for p, q in ((one, two), (two, one)):
            assert np.all(
                delta(mixed + p / 4, mixed + q / 4) <= sampled_response(0.25, beta, d)(epsilons) + 1e-12
            )
    mean = sum(
        math.comb(4, s) * 0.2**s * 0.8 ** (4 - s) * response_curve(beta, d, s)(epsilons) for s in range(5)
    )
    np.testing.assert_allclose(seen_responses(4, 0.2, beta, d)(epsilons), mean, rtol=1e-9, atol=1e-12)


def test_many_seen_answers_are_grouped_upwards() -> None:
    """So that a plan for hundreds of them takes seconds."""
    beta, epsilons = 0.98, np.array([0.0, 0.3, 1.0])
    exact = sum(float(binom.pmf(s, 600, 0.2)) * response_curve(beta, 3, s)(epsilons) for s in range(60, 190))
    result = seen_responses(600, 0.2, beta, 3)(epsilons)
    assert (exact * (1 - 1e-9) <= result).all()
    assert (result <= 1.1 * exact).all()


@pytest.mark.long
def test_histogram_plans_are_ordered() -> None:
    betas = [
        plan_walk_histogram(100, 400, 3, epsilon, 1e-5, paths=paths, colluding=colluding).beta or 0
        for epsilon, paths, colluding in (
            (2.0, "hidden", 1),
            (2.0, "neighbours", 1),
            (2.0, "neighbours", 3),
            (1.0, "neighbours", 3),
        )
    ]
    assert 0 < betas[0] < betas[1] < betas[2] < betas[3] < 1
    assert plan_walk_histogram(100, 400, 3, 2.0, 1e-5).local > betas[1]


def test_histograms_are_unbiased() -> None:
    """100 runs: 3 means within 5 standard errors: 2e-6."""
    plan = plan_walk_histogram(30, 200, 3, 3.0, 1e-4)
    values = np.random.default_rng(2).choice(3, 30, p=[0.7, 0.3, 0.0])
    ring = WalkHistogram(plan, 3)
    counts = np.array([asyncio.run(ring.run(PlainTokens(30), values, source(k))).counts for k in range(100)])
    truth = np.bincount(values, minlength=3) / 30 * 199
    spread = math.hypot(plan.error_std, math.sqrt(199) / 2)
    assert np.all(np.abs(counts.mean(axis=0) - truth) < 5 * spread / math.sqrt(100))
    assert counts.sum(axis=1) == pytest.approx(np.full(100, 199.0))

    async def run() -> list[NDArray[np.float64]]:
        indices = tokens_apart(30)
        outcome = await asyncio.gather(
            *(ring.run(indices[u], values[u : u + 1], source(5, u)) for u in range(30))
        )
        return [result.counts for result in outcome]

    outcome = asyncio.run(run())
    assert all(np.array_equal(counts, outcome[0]) for counts in outcome)
    assert outcome[0].sum() == pytest.approx(199)


def test_a_hidden_path_is_refused_where_neighbours_see_each_other() -> None:
    plan = plan_walk("sum", 5, 20, 1.0, 1e-4, sensitivity=1.0, paths="hidden")
    ring = WalkSum(plan, 0.0, 1.0)
    with pytest.raises(ConfigError, match=r"hidden path.*--paths neighbours"):
        asyncio.run(ring.run(tokens_apart(5)[0], np.zeros((1, 1)), source(1)))
    asyncio.run(ring.run(PlainTokens(5), np.zeros((5, 1)), source(1)))


def test_bad_requests_are_named(plan: NetworkPlan) -> None:
    ring = WalkSum(plan, 0.0, 1.0)
    with pytest.raises(ConfigError, match="parties 30, the run has 6"):
        asyncio.run(ring.run(PlainTokens(6), np.zeros((6, 1)), source(1)))
    with pytest.raises(
        ConfigError, match=r"contributions: must be one of each party, the same at each visit"
    ):
        asyncio.run(ring.run(PlainTokens(30), np.zeros((30, 2)), source(1)))
    known = plan_walk("sum", 30, 200, 2.0, 1e-4, sensitivity=1.0, paths="known")
    with pytest.raises(ConfigError, match=r"contributions: party .* has 2 and is to contribute once more"):
        asyncio.run(WalkSum(known, 0.0, 1.0).run(PlainTokens(30), np.zeros((30, 2)), source(1)))
    with pytest.raises(PrivacyError, match="outside"):
        asyncio.run(ring.run(PlainTokens(30), np.full((30, 1), 2.0), source(1)))
    with pytest.raises(ConfigError, match="shape must be"):
        asyncio.run(ring.run(PlainTokens(30), np.zeros((29, 1)), source(1)))
    with pytest.raises(ConfigError, match="task sum, the run has histogram"):
        WalkHistogram(plan, 3)
    for change, named in (
        ({"paths": "known"}, "paths"),
        ({"steps": 1}, "steps"),
        ({"categories": 1}, "categories"),
        ({"colluding": 29}, "colluding"),
        ({"epsilon": 0.0}, "epsilon"),
    ):
        request = {"parties": 30, "steps": 50, "categories": 3, "epsilon": 1.0, "delta": 1e-4} | change
        with pytest.raises(ConfigError, match=named):
            plan_walk_histogram(**request)
