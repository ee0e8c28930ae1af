"""The mixing of disjoint random groups, against all groupings; the bounds against runs."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.learn.averager import ALONE, Averaged, Groups, PlainAverager, Rows
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.diffusion import diffuse_in_groups
from smpc_dp.capabilities.learn.dual_averaging import dual_averaging_in_groups, inverse_root
from smpc_dp.capabilities.learn.gossip_bounds import (
    GroupMixing,
    dual_averaging_terms,
    group_disagreement,
    group_terms,
)
from smpc_dp.capabilities.learn.group_plan import plan_groups
from smpc_dp.capabilities.learn.group_steps import GroupRun
from smpc_dp.capabilities.learn.methods import AveragerTable
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.topology import complete
from smpc_dp.cli import app
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.gaussian import gaussian_mu

SIZES = [(3, 2), (4, 2), (5, 2), (5, 3), (6, 2), (6, 3), (6, 4), (6, 6), (7, 3)]


def matrices(parties: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the matrix of every grouping, as often as orders give it, and who is in a group."""
    result = {}
    cut = parties // size * size
    for order in permutations(range(parties)):
        groups = frozenset(frozenset(order[start : start + size]) for start in range(0, cut, size))
        if groups in result:
            continue
        matrix, member = np.eye(parties), np.zeros(parties)
        for group in map(sorted, groups):
            matrix[group] = 0
            matrix[np.ix_(group, group)] = 1 / size
            member[group] = 1
        result[groups] = matrix, member
    return list(result.values())


@pytest.mark.parametrize(("parties", "size"), SIZES)
def test_the_gap_is_that_of_all_groupings(parties: int, size: int) -> None:
    mixing, drawn = GroupMixing(parties, size), matrices(parties, size)
    mean = np.mean([matrix for matrix, _ in drawn], axis=0)
    np.testing.assert_allclose(mean.sum(axis=0), 1)
    np.testing.assert_allclose(mean.sum(axis=1), 1)
    assert 1 - np.linalg.eigvalsh(mean)[-2] == pytest.approx(mixing.gap)
    assert np.mean([member for _, member in drawn]) == pytest.approx(mixing.share)
    state = np.random.default_rng(parties).normal(size=parties)
    state -= state.mean()
    after = np.mean([np.square(matrix @ state).sum() for matrix, _ in drawn])
    assert after == pytest.approx((1 - mixing.gap) * np.square(state).sum())


@pytest.mark.parametrize(("parties", "size"), SIZES)
def test_the_spread_is_the_greatest_of_all_changes(parties: int, size: int) -> None:
    """A mean squared distance is a quadratic form of the changes: with signs of ones it is the greatest."""
    mixing, form = GroupMixing(parties, size), np.zeros((parties, parties))
    drawn = matrices(parties, size)
    centred = np.eye(parties) - 1 / parties
    for matrix, member in drawn:
        moved = centred @ matrix @ np.diag(member / mixing.share)
        form += moved.T @ moved / (parties * len(drawn))
    # Of vectors in more than one dimension of norm at most 1: the Gram matrix has at most ones.
    eigenvalues = np.linalg.eigvalsh(form)
    assert eigenvalues[-1] * parties == pytest.approx(mixing.spread)


def test_the_draws_are_those_groupings() -> None:
    """Each pair of parties meets in a group as often as the mean matrix has it: within 5 deviations."""
    draws, together = GroupDraws(7, 3, 4), np.zeros((7, 7))
    for group in draws.rounds(1_000):
        assert sorted(np.bincount(group[group > ALONE])) == [3, 3]
        together += (group[:, None] == group) & (group > ALONE)
    chance = 2 * 3 * 2 / (7 * 6)
    deviation = np.sqrt(chance * (1 - chance) / 1_000)
    pairs = together[~np.eye(7, dtype=bool)] / 1_000
    assert np.abs(pairs - chance).max() < 5 * deviation


@pytest.mark.parametrize(("parties", "size"), [(7, 3), (4, 4)])
def test_records_are_passed_on_within_a_group_from_anybody_alike(parties: int, size: int) -> None:
    """The mean matrix is (1 - q) I + q (J - I)/(n - 1), within 5 deviations; a matrix is a permutation."""
    draws = GroupDraws(parties, size, 4)
    senders, met = draws.senders(1_000), np.zeros((parties, parties))
    for group, before in zip(draws.rounds(1_000), senders, strict=True):
        assert sorted(before) == list(range(parties))
        np.testing.assert_array_equal(group[before], group)
        np.testing.assert_array_equal(before == np.arange(parties), group == ALONE)
        met[np.arange(parties), before] += 1
    chance = draws.share / (parties - 1)
    apart = met[~np.eye(parties, dtype=bool)] / 1_000 - chance
    assert np.abs(apart).max() < 5 * np.sqrt(chance * (1 - chance) / 1_000)


def test_pairs_mix_as_gossip_does_on_the_complete_graph() -> None:
    """One pair a round: the contraction of mean squares is that in the corrected Theorem 3.2."""
    graph = complete(3)
    rate = 1 - graph.spectral_gap / (2 * len(graph.edges))
    assert 1 - GroupMixing(3, 2).gap == pytest.approx(rate)
    optimum, ticks = np.ones(2), 50
    gossip = dual_averaging_terms(graph, optimum, 1.0, inverse_root(), ticks)
    groups = group_terms(GroupMixing(3, 3), float(np.linalg.norm(optimum)), 1.0, inverse_root(), ticks)
    assert groups.network == 0
    assert groups.centralised == pytest.approx(gossip.centralised, rel=0.2)
    with pytest.raises(ConfigError, match="steps"):
        group_terms(GroupMixing(3, 3), 1.0, 1.0, inverse_root(), 0)
    with pytest.raises(ConfigError, match="group: must be 2 to the parties, 3, is 4"):
        GroupMixing(3, 4)


def test_the_bound_of_one_matrix_fails_for_the_mean_of_random_ones() -> None:
    """All second moments of four models with constant gradients of opposite signs, over all groupings."""
    drawn, step = [matrix for matrix, _ in matrices(4, 2)], np.array([1.0, 1.0, -1.0, -1.0])
    mean, moment = np.zeros(4), np.zeros((4, 4))
    for _ in range(200):
        before = moment + np.outer(mean, step) + np.outer(step, mean) + np.outer(step, step)
        moment = np.mean([matrix @ before @ matrix for matrix in drawn], axis=0)
        mean = np.mean(drawn, axis=0) @ (mean + step)
    exact, mixing = np.trace(moment) / 4, GroupMixing(4, 2)
    second = 1 - mixing.gap
    assert exact == pytest.approx(second * (1 + second) / mixing.gap**2)
    assert exact > 3.9 * (second / mixing.gap) ** 2
    assert exact <= group_disagreement(mixing, 1.0, 1.0)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_models_of_diffusion_stay_within_the_bound(noise: float) -> None:
    """Signs are gradients of norm 1; seven parties in groups of three, one sits out."""
    rng, squares, mixing = np.random.default_rng(5), [], GroupMixing(7, 3)

    class Noisy(PlainAverager):
        async def average(self, vector: Rows, weight: Any = None, group: Groups | None = None) -> Averaged:
            result = await super().average(vector, weight, group)
            assert group is not None
            drawn = rng.normal(scale=noise, size=(8, 1))
            return Averaged(result.values + drawn[group] * (group > ALONE)[:, None], result.weights)

    aims = np.arange(7.0)[:, None] * 5
    for seed in range(5):
        draws = GroupDraws(7, 3, seed)
        run = GroupRun(Noisy(7), PlainAverager(7), draws, 40, 1e9, factor=-0.5)

        def watch(_step: int, models: Rows) -> None:
            squares.append(np.square(models - models.mean(axis=0)).sum(axis=1).mean())

        asyncio.run(
            diffuse_in_groups(run, lambda models, _step: np.sign(models - aims), np.zeros((7, 1)), watch)
        )
    largest = np.reshape(squares, (5, 40)).mean(axis=0).max()
    bound = group_disagreement(mixing, 0.5, 1.0, noise**2)
    assert bound / 50 < largest <= bound


def test_the_plan_has_gap_noise_and_bound() -> None:
    """Noise of a group of four with one colluder: three honest shares suffice, and four are drawn."""
    arguments = "plan groups --parties 12 --group 4 --steps 30 --length 3 --rate 2 --norm 1.5 --clip 0.5"
    private = " --epsilon 8 --delta 1e-5"
    exact, noisy = (
        json.loads(CliRunner().invoke(app, [*(arguments + more).split(), "--json"]).output)
        for more in ("", private)
    )
    mixing = GroupMixing(12, 4)
    assert exact["gap"] == noisy["gap"] == mixing.gap
    assert exact["averages"] == 90
    assert exact["together"] == pytest.approx(3 / 11)
    assert (exact["noise"], exact["epsilon"]) == (0, None)
    terms = group_terms(mixing, 1.5, 0.5, inverse_root(2.0), 30)
    assert (exact["centralised"], exact["network"]) == (terms.centralised, terms.network)
    # 30 averages of a party, each with a Gaussian of sensitivity 1 at most shared by three: rounding adds.
    sigma = 1 / (gaussian_mu(8.0, 1e-5) / np.sqrt(30))
    assert noisy["noise"] == pytest.approx(sigma * np.sqrt(4 / 3) / 4, rel=0.01)
    assert noisy["distance"] == mixing.distance(0.5, 3 * noisy["noise"] ** 2)
    shown = CliRunner().invoke(app, (arguments + private).split()).output
    assert "(8, 1e-05)-DP for each party's data" in shown
    assert f"{mixing.gap:.6g}" in shown
    refused = CliRunner().invoke(app, ["plan", "groups", "--parties", "9", "--group", "2", "--steps", "3"])
    assert "groups of 3" in str(refused.exception)


def test_the_plan_is_that_of_the_session_with_this_seed() -> None:
    """Of five parties in threes the busiest has 4 of 6 steps with seed 1, and all with seed 3."""
    given = {"learner": "dual-averaging-groups", "features": 3, "steps": 6, "group": 3}
    noises = []
    for seed, most in ((1, 4), (3, 6)):
        planned = plan_groups(5, 3, 6, length=4, epsilon=4.0, delta=1e-5, seed=seed, averager=AveragerTable())
        checked, _ = check_learn(given | {"epsilon": 4.0, "delta": 1e-5, "seed": seed}, 5)
        assert checked is not None
        assert checked.average is not None
        shares = checked.average.plan(3).noise(3, 0)
        assert shares is not None
        assert planned.participations == checked.average.participations == most
        assert planned.noise == shares.total / 3
        noises.append(planned.noise)
    assert noises[0] < noises[1]


@pytest.mark.parametrize(("parties", "size", "noise"), [(6, 2, 0.0), (7, 3, 0.5), (4, 4, 0.5)])
def test_runs_stay_within_the_bounds(parties: int, size: int, noise: float) -> None:
    """Objectives |theta - x_u| have gradients of norm 1 at most; means over 5 seeds."""
    rng = np.random.default_rng(7)
    aims, steps, runs = rng.normal(size=(parties, 2)), 30, 5
    optimum = np.zeros(2)
    for _ in range(300):
        distances = np.maximum(np.linalg.norm(aims - optimum, axis=1), 1e-9)
        optimum = (aims / distances[:, None]).sum(axis=0) / (1 / distances).sum()

    def objective(points: Rows) -> np.ndarray:
        return np.asarray(np.linalg.norm(points[:, None] - aims, axis=2).mean(axis=1))

    class Noisy(PlainAverager):
        async def average(self, vector: Rows, weight: Any = None, group: Groups | None = None) -> Averaged:
            result = await super().average(vector, weight, group)
            assert group is not None
            drawn = rng.normal(scale=noise, size=(parties + 1, 2))
            return Averaged(result.values + drawn[group] * (group > ALONE)[:, None], result.weights)

    mixing, squares, excess = GroupMixing(parties, size), [], []
    for seed in range(runs):
        draws = GroupDraws(parties, size, seed)
        run = GroupRun(Noisy(parties), PlainAverager(parties), draws, steps, 1e9, factor=1 / draws.share)

        async def slopes(thetas: Rows, rows: np.ndarray, _group: Groups, _step: int) -> Rows:
            apart = thetas[rows] - aims[rows]
            return np.asarray(apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-9))

        def watch(_step: int, _averages: Rows, duals: Rows) -> None:
            squares.append(np.square(duals - duals.mean(axis=0)).sum(axis=1).mean())

        values, outcome = asyncio.run(dual_averaging_in_groups(run, slopes, dimension=2, watch=watch))
        assert outcome.done.sum() == steps * size * (parties // size)
        excess.append(objective(values).mean() - objective(optimum[None])[0])
    variance = 2 * noise**2
    bound = mixing.distance(1.0, variance)
    largest = np.sqrt(np.reshape(squares, (runs, steps)).mean(axis=0).max())
    assert largest <= bound + 1e-9
    terms = group_terms(mixing, float(np.linalg.norm(optimum)), 1.0, inverse_root(), steps, variance)
    assert np.mean(excess) <= terms.centralised + terms.network
    if size < parties:
        # The bound on the distance says something: a run has a tenth of it at least.
        assert largest > bound / 10
