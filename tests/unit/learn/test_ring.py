"""Sums and histograms on a ring: exact, unbiased, with the planned noise, nothing bare at the end."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.ring import RingHistogram, RingSum, TokenSum
from smpc_dp.capabilities.learn.tokens import PlainTokens, Token
from smpc_dp.errors import ConfigError, PeerFault, PrivacyError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.network.grid import Grid
from smpc_dp.privacy.network.histogram import plan_ring_histogram
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.network.ring import plan_ring_sum
from smpc_dp.privacy.sampling import NoiseSource
from tests.tokens import TokensApart, tokens_apart


def source(*parts: int) -> NoiseSource:
    return NoiseSource.keyed(bytes(32), *(str(part).encode() for part in parts))


def apart(ring: RingSum, values: NDArray[np.float64], seed: int) -> tuple[list[TokenSum], list[list[Token]]]:
    """Run one task for each party; return the results and the tokens that each passed on."""
    parties = len(values)
    indices = tokens_apart(parties)
    passed: list[list[Token]] = [[] for _ in indices]

    class Watched(TokensApart):
        async def pass_on(self, sender: int, receiver: int, token: Token) -> None:
            passed[sender].append(token)
            await super().pass_on(sender, receiver, token)

    async def run() -> list[TokenSum]:
        for index in indices:
            index.__class__ = Watched
        return await asyncio.gather(
            *(ring.run(indices[u], values[u : u + 1], source(seed, u)) for u in range(parties))
        )

    return asyncio.run(run()), passed


@pytest.mark.parametrize("noise", ["single", "distributed"])
def test_without_noise_the_sum_is_exact(noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grid, "noise", lambda _self, _source, count, **_share: np.zeros(count, np.int64))
    plan = plan_ring_sum(7, 3, 1.0, 1e-5, sensitivity=2.0, noise=noise)
    ring = RingSum(plan, -1.0, 1.0)
    values = np.random.default_rng(1).integers(-8, 9, (7, 3)) / 8  # on the grid
    assert asyncio.run(ring.run(PlainTokens(7), values, source(0))).value == values.sum()
    outcome, _ = apart(ring, values, 0)
    assert [result.value for result in outcome] == [values.sum()] * 7


@pytest.mark.parametrize(
    ("n", "rounds", "noise", "colluding"),
    [
        (3, 1, "single", 1),
        (5, 2, "single", 1),
        (5, 5, "single", 1),
        (6, 4, "distributed", 1),
        (6, 4, "distributed", 2),
    ],
)
def test_noise_is_where_the_plan_counts_it(n: int, rounds: int, noise: str, colluding: int) -> None:
    plan = plan_ring_sum(n, rounds, 1.0, 1e-5, sensitivity=1.0, noise=noise, colluding=colluding)
    full, shares = RingSum(plan, 0.0, 1.0).noises(np.arange(n * rounds))
    assert full[0] == full[-1] == 1
    variance = float(full.sum()) + float(shares.sum()) / (n - 1)
    assert plan.sigma is not None
    assert plan.sigma * math.sqrt(variance) == pytest.approx(plan.error_std)


def test_sums_are_unbiased_with_the_planned_deviation() -> None:
    """400 runs: the mean within 5 standard errors, the deviation within 18 % (5 of its own): 1e-6."""
    plan = plan_ring_sum(20, 4, 1.0, 1e-5, sensitivity=1.0)
    ring = RingSum(plan, 0.0, 1.0)
    values = np.random.default_rng(2).random((20, 4))
    errors = [
        asyncio.run(ring.run(PlainTokens(20), values, source(k))).value - values.sum() for k in range(400)
    ]
    assert abs(np.mean(errors)) < 5 * plan.error_std / 20
    assert abs(np.std(errors) / plan.error_std - 1) < 0.18


def printed_algorithm(values: NDArray[np.float64], sigma: float, rng: np.random.Generator) -> list[float]:
    """Algorithm 4.2 as printed: the token after each hop; the last one is published."""
    n, rounds = values.shape
    token, wait, seen = 0.0, 0, []
    for k in range(rounds):
        for u in range(n):
            token += values[u, k]
            if wait == 0:
                token += rng.normal(0, sigma)
                wait = n - 2
            else:
                wait -= 1
            seen.append(token)
    return seen


def test_a_neighbour_subtracts_its_token_from_the_sum_and_has_noise_here_a_value_as_printed() -> None:
    """K = 2: party n - 1 knows what it passed on; 200 deviations within 25 % (5 of theirs) of sigma: 1e-6."""
    values = np.random.default_rng(3).random((5, 2))
    seen = printed_algorithm(values, 10.0, np.random.default_rng(4))
    assert seen[-1] - seen[-2] == pytest.approx(values[4, 1], abs=1e-9)
    plan = plan_ring_sum(5, 2, 1.0, 1e-5, sensitivity=1.0)
    ring, learnt = RingSum(plan, 0.0, 1.0), []
    for run in range(200):
        result, passed = apart(ring, values, run)
        token = int(passed[3][1].values[0]) * ring.grid.step
        learnt.append(result[3].value - token - values[4, 1])
    assert plan.sigma is not None
    assert abs(np.std(learnt) / plan.sigma - 1) < 0.25


def test_two_neighbours_who_pool_need_a_plan_for_two() -> None:
    """What party 0 passed on and party 2 received differ by party 1's contribution: bare, or under sigma.

    100 deviations within 36 % (5 of theirs) of sigma: 1e-6.
    """
    values = np.random.default_rng(6).integers(0, 9, (5, 2)) / 8
    one = RingSum(plan_ring_sum(5, 2, 1.0, 1e-5, sensitivity=1.0), 0.0, 1.0)
    plan = plan_ring_sum(5, 2, 1.0, 1e-5, sensitivity=1.0, noise="distributed", colluding=2)
    two = RingSum(plan, 0.0, 1.0)

    def pooled(ring: RingSum, seed: int) -> float:
        _, passed = apart(ring, values, seed)
        return (int(passed[1][0].values[0]) - int(passed[0][0].values[0])) * ring.grid.step

    assert pooled(one, 1) == values[1, 0]
    learnt = [pooled(two, seed) - values[1, 0] for seed in range(100)]
    assert plan.sigma is not None
    assert abs(np.std(learnt) / plan.sigma - 1) < 0.36


def test_grid_noise_suffices_for_another_accountant() -> None:
    """K contributions, each under one discrete Gaussian; with an eighth less noise it does not suffice."""
    plan = plan_ring_sum(50, 4, 1.0, 1e-5, sensitivity=1.0)
    ring = RingSum(plan, 0.0, 1.0)
    width = round(1.0 / ring.grid.step)
    bounds = Sensitivity.on_integers("substitution", l1=float(width))
    event = DiscreteGaussian(bounds, ring.grid.variance).event()
    assert Composition([event] * 4).delta(1.0) <= 1e-5 * (1 + 1e-3)
    less = DiscreteGaussian(bounds, ring.grid.variance * 49 / 64).event()
    assert Composition([less] * 4).delta(1.0) > 1e-5
    claim = asyncio.run(ring.run(PlainTokens(50), np.zeros((50, 4)), source(1))).guarantee
    assert (claim.epsilon, claim.delta) == pytest.approx((1.0, 1e-5))
    assert claim.epsilon >= 1.0
    assert "private" in claim.assumption


def test_shares_of_noise_are_fine_enough_to_add_up() -> None:
    plan = plan_ring_sum(1_000, 2, 1.0, 1e-5, sensitivity=1.0, noise="distributed")
    grid = RingSum(plan, 0.0, 1.0).grid
    assert float(grid.share) ** 0.5 > 8_000
    assert grid.closeness < 1e-25


@pytest.fixture(scope="module")
def histogram() -> NetworkPlan:
    return plan_ring_histogram(40, 2, 3, 2.0, 1e-4)


def test_histograms_are_unbiased(histogram: NetworkPlan) -> None:
    """300 runs: 3 means within 5 standard errors of the planned deviation: 2e-6."""
    values = np.random.default_rng(5).choice(3, (40, 2), p=[0.7, 0.3, 0.0])
    ring = RingHistogram(histogram, 3)
    truth = np.bincount(values.ravel(), minlength=3)
    counts = np.array([asyncio.run(ring.run(PlainTokens(40), values, source(k))).counts for k in range(300)])
    assert np.all(np.abs(counts.mean(axis=0) - truth) < 5 * histogram.error_std / math.sqrt(300))
    assert counts.sum(axis=1) == pytest.approx(np.full(300, 80.0))


def test_users_apart_make_one_histogram(histogram: NetworkPlan) -> None:
    values = np.zeros((40, 2), np.int64)
    ring = RingHistogram(histogram, 3)

    async def run() -> list[NDArray[np.float64]]:
        indices = tokens_apart(40)
        outcome = await asyncio.gather(
            *(ring.run(indices[u], values[u : u + 1], source(9, u)) for u in range(40))
        )
        return [result.counts for result in outcome]

    outcome = asyncio.run(run())
    assert all(np.array_equal(counts, outcome[0]) for counts in outcome)
    assert outcome[0].sum() == pytest.approx(80)
    assert abs(outcome[0][0] - 80) < 6 * histogram.error_std


def test_bad_requests_are_named(histogram: NetworkPlan) -> None:
    plan = plan_ring_sum(5, 2, 1.0, 1e-5, sensitivity=1.0)
    with pytest.raises(ConfigError, match="2 apart, the plan covers 1"):
        RingSum(plan, -1.0, 1.0)
    with pytest.raises(ConfigError, match="task sum, the run has histogram"):
        RingHistogram(plan, 3)
    with pytest.raises(ConfigError, match="task histogram"):
        RingSum(histogram, 0.0, 1.0)
    ring = RingSum(plan, 0.0, 1.0)
    with pytest.raises(ConfigError, match="parties 5, the run has 6"):
        asyncio.run(ring.run(PlainTokens(6), np.zeros((6, 2)), source(1)))
    with pytest.raises(ConfigError, match=r"contributions: shape must be \(5, 2\)"):
        asyncio.run(ring.run(PlainTokens(5), np.zeros((5, 3)), source(1)))
    for bad in (1.5, math.nan):
        with pytest.raises(PrivacyError, match=r"outside \[0, 1\]"):
            asyncio.run(ring.run(PlainTokens(5), np.full((5, 2), bad), source(1)))
    with pytest.raises(PrivacyError, match=r"outside \[0, 3\)"):
        asyncio.run(RingHistogram(histogram, 3).run(PlainTokens(40), np.full((40, 2), 3), source(1)))
    with pytest.raises(ConfigError, match="do not fit 63 bits"):
        RingSum(plan_ring_sum(5, 2, 1.0, 1e-5, sensitivity=1.0), 2.0**50, 2.0**50 + 1)


@pytest.mark.parametrize(
    ("token", "named"),
    [
        (Token(3, np.zeros(1, np.int64)), "step 3, expected 1"),
        (Token(1, np.zeros(2, np.int64)), "expected int64"),
        (Token(1, np.zeros(1)), "expected int64"),
        (Token(1, np.array([1 << 62])), "no 1 steps make the token"),
        (Token(1, np.array([-(1 << 63)])), "no 1 steps make the token"),
    ],
)
def test_a_wrong_token_has_a_culprit(token: Token, named: str) -> None:
    ring = RingSum(plan_ring_sum(3, 1, 1.0, 1e-5, sensitivity=1.0), 0.0, 1.0)

    async def run() -> None:
        indices = tokens_apart(3)
        await indices[0].pass_on(0, 1, token)
        await ring.run(indices[1], np.zeros((1, 1)), source(1))

    with pytest.raises(PeerFault, match=named) as raised:
        asyncio.run(run())
    assert raised.value.culprit == "party 0"


@pytest.mark.parametrize("change", [[1, 0, 0], [-1, 0, 0], [-1000, 999, 1], [1 << 62, -(1 << 62), 0]])
def test_a_token_of_other_than_all_answers_has_a_culprit(histogram: NetworkPlan, change: list[int]) -> None:
    """Before anything is added to it."""

    async def run() -> None:
        indices = tokens_apart(40)
        ring = RingHistogram(histogram, 3)
        honest = np.array([ring.random + 1, 0, 0])
        await indices[0].pass_on(0, 1, Token(1, honest + np.array(change)))
        await ring.run(indices[1], np.zeros((1, 2), np.int64), source(1))

    with pytest.raises(PeerFault, match="party 0: no 1 steps make the token"):
        asyncio.run(run())
