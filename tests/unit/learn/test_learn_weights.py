"""Averages on shares, and weights in private averages: sensitivity, noise, accounting, learners with them."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import PlainAverager
from smpc_dp.capabilities.learn.methods import AveragerTable, PlannedAverages, plan_private
from smpc_dp.capabilities.learn.registry import LEARNERS, check_learn
from smpc_dp.capabilities.learn.requirements import PrivateAverages
from smpc_dp.capabilities.learn.simulation.averagers import IdealAverager, SharesAverager
from smpc_dp.capabilities.learn.weighted import Weighting
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.secagg.noisy import sensitivity_of
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

GROUP = np.array([0, 1, 0, 1, -1, 0, 1, 1, 0])
METHODS = ("secagg", "gopa", "local", "mpyc")


def private(
    method: str,
    count: int = 1,
    length: int = 3,
    epsilon: float = 4.0,
    weights: tuple[float, float] | None = None,
    size: int = 4,
) -> PlannedAverages:
    required = PrivateAverages(length, 1.0, frozenset({size}), np.full(9, count), epsilon, 1e-5, weights)
    return plan_private(AveragerTable(method=method), required, 9)  # type: ignore[arg-type]


def vectors(length: int = 3) -> np.ndarray:
    drawn = np.random.default_rng(6).normal(size=(9, length))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


# On shares


@pytest.mark.parametrize("count", [1, 40])
def test_servers_add_what_a_curator_would_for_all_participations(count: int) -> None:
    averaging = private("mpyc", count)
    planned = averaging.plan_shared(4)
    assert planned.noise is not None
    event = planned.event()
    assert 3.9 < Composition([event] * count).epsilon(1e-5) <= 4.0
    # A curator's noise with a little less variance would not do.
    less = DiscreteGaussian(sensitivity_of(planned.sum_encoding), planned.noise.parameter * 95 / 100)
    assert Composition([less.event()] * count).epsilon(1e-5) > 4.0
    assert averaging.guarantee is not None
    assert "none about other parties" in averaging.guarantee.assumption
    assert "shared among servers" in averaging.claim


def test_noise_on_shares_does_not_depend_on_who_is_honest_or_how_many_there_are() -> None:
    few = AveragerTable(method="mpyc", colluders=1).plan(2, 3, 1.0, 1.0, 1e-6)
    many = AveragerTable(method="mpyc", colluders=7, missing=2).plan(8, 3, 1.0, 1.0, 1e-6)
    assert few.event() == many.event()
    assert AveragerTable(method="mpyc", colluders=7, missing=2).issues(8) == []


@pytest.mark.parametrize("made", ["ideal", pytest.param("machines", marks=pytest.mark.long)])
def test_averages_on_shares_have_the_planned_noise(made: str) -> None:
    """Variances within 5 standard errors: a false alarm below 1e-5; machines have real random bits."""
    averaging = private("mpyc", length=40)
    noise = averaging.plan_shared(4).noise
    assert noise is not None
    vector = vectors(40)
    coins = SeededRandomnessForSimulation(3, "coins")
    averager = (
        IdealAverager(9, averaging, coins=coins) if made == "ideal" else SharesAverager(9, averaging, 3)
    )
    result = asyncio.run(averager.average(vector, group=GROUP)).values
    exact = asyncio.run(PlainAverager(9).average(vector, group=GROUP)).values
    off = (result - exact)[[0, 1]].ravel() * 4 / averaging.encoding(4).step
    assert abs(off.var() / noise.variance - 1) < 5 * math.sqrt(2 / len(off))
    assert abs(off.mean()) < 5 * math.sqrt(noise.variance / len(off))
    np.testing.assert_array_equal(result[4], vector[4])


@pytest.mark.parametrize(("features", "group"), [(12_000, 3), (1_000, 300)])
def test_vectors_that_servers_would_not_finish_in_time_are_refused_before_anybody_pays(
    features: int, group: int
) -> None:
    given = {
        "learner": "block-gossip", "features": features, "steps": 3, "epsilon": 1.0, "delta": 1e-5,
        "group": group, "averager": {"method": "mpyc"},
    }  # fmt: skip
    _, faults = check_learn(given, 300)
    assert (
        f"vectors of {features + 1} in groups of {group}"
        in {fault.where: fault.reason for fault in faults}["features"]
    )
    checked, faults = check_learn(given | {"features": 2_000, "group": 5}, 300)
    assert checked is not None, faults


def test_learners_without_averages_have_no_servers() -> None:
    given = {
        "learner": "ring-sum", "rounds": 2, "lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-5,
        "averager": {"method": "mpyc"},
    }  # fmt: skip
    assert given["learner"] in LEARNERS
    checked, faults = check_learn(given, 6)
    assert checked is None
    assert "need an aggregator" in {fault.where: fault.reason for fault in faults}["averager.method"]


# Weights


def test_what_travels_is_within_the_bound_of_vectors_alone() -> None:
    """At every weight; it is reached at both ends, and by two parties as far apart as vectors can be."""
    weighting = Weighting(0.0, 20.0, 3.0)
    weight = np.linspace(0, 20, 41)
    vector = np.tile([[1.8, 2.4]], (41, 1))
    there = weighting.extend(vector, weight)
    norms = np.linalg.norm(there, axis=1)
    assert (norms <= 3.0 * (1 + 1e-12)).all()
    assert norms[[0, -1]] == pytest.approx(3.0)
    assert norms.min() == pytest.approx(3 / math.sqrt(2))
    opposite = weighting.extend(-vector, weight)
    assert np.linalg.norm(there[-1] - opposite[-1]) == pytest.approx(6.0)


def test_means_of_what_travels_give_the_weighted_average() -> None:
    weighting = Weighting(1.0, 20.0, 1.0)
    weight = np.random.default_rng(1).integers(1, 21, 9).astype(float)
    mean = weighting.extend(vectors(), weight).mean(axis=0)[None]
    values, weights = weighting.split(mean)
    np.testing.assert_allclose(values[0], (weight @ vectors()) / weight.sum(), atol=1e-12)
    assert weights[0] == pytest.approx(weight.mean())


def test_noise_in_the_denominator_does_no_more_than_a_wrong_average() -> None:
    weighting = Weighting(1.0, 10.0, 2.0)
    noisy = np.array([[5.0, -4.0, -9.0], [0.1, 0.1, 40.0]])
    values, weights = weighting.split(noisy)
    assert (np.linalg.norm(values, axis=1) <= 2.0 * (1 + 1e-12)).all()
    assert weights.tolist() == [1.0, 10.0]


@pytest.mark.parametrize("method", METHODS)
def test_private_averages_are_weighted_by_every_method(method: str) -> None:
    """What is averaged has a mean that gives the weighted average: 2,000 groups, seeded, within 0.1."""
    weights, epsilon = (1.0, 10.0), 20.0
    averaging = private(method, epsilon=epsilon, weights=weights)
    source, coins = NoiseSource.keyed(bytes(32), b"weights"), SeededRandomnessForSimulation(1, "weights")
    averager = IdealAverager(9, averaging, source, coins)
    weight = np.array([1, 10, 1, 1, 1, 1, 1, 1, 10], dtype=np.float64)
    vector = vectors()
    exact = asyncio.run(PlainAverager(9).average(vector, weight, GROUP))
    unweighted = asyncio.run(PlainAverager(9).average(vector, None, GROUP)).values
    result = asyncio.run(averager.average(vector, weight, GROUP))
    assert result.values.shape == (9, 3)
    assert (result.weights[[0, 2, 5, 8]] == result.weights[0]).all()
    for label in (0, 1):
        rows = np.flatnonzero(label == GROUP)
        sent = averaging.encode_vectors(vector, weight)[rows]
        mean = averager._groups(4, np.tile(sent, (2000, 1, 1))).mean(axis=0)[None]
        values, total = averaging.decode_averages(mean, 4)
        assert np.abs(values[0] - exact.values[rows[0]]).max() < 0.1
        assert np.abs(values[0] - unweighted[rows[0]]).max() > 0.15
        assert total[0] == pytest.approx(exact.weights[rows[0]], abs=1.0)
    assert averaging.guarantee is not None
    # The weight is one more coordinate, and makes nothing larger.
    plain = private(method, epsilon=epsilon)
    assert plain.guarantee is not None
    assert averaging.guarantee.sensitivity == plain.guarantee.sensitivity
    assert averaging.encoding(4).step == plain.encoding(4).step


@pytest.mark.parametrize("made", [IdealAverager, SharesAverager])
def test_weights_out_of_bounds_and_unplanned_ones_are_refused(
    made: type[IdealAverager] | type[SharesAverager],
) -> None:
    weight = np.ones(9)
    weight[3] = 11
    with pytest.raises(ConfigError, match=r"weight: 11 is outside 1\.\.10"):
        asyncio.run(made(9, private("mpyc", weights=(1.0, 10.0))).average(vectors(), weight, GROUP))
    with pytest.raises(ConfigError, match="no weights are planned"):
        asyncio.run(made(9, private("mpyc")).average(vectors(), weight, GROUP))


def test_descent_weighted_by_points_goes_where_all_points_together_would() -> None:
    """One party has most points. Without noise: the model of one party that has all of them."""
    generator = np.random.default_rng(2)
    features = generator.normal(size=(60, 2))
    points = np.column_stack([features, features[:, 0] > 0.3])
    data = [points[:50], points[50:54], points[54:]]
    given = {
        "learner": "sgd", "features": 2, "steps": 15, "epsilon": 8.0, "delta": 1e-5, "rate": 0.5,
        "clip": 100.0, "averager": {"method": "mpyc"},
    }  # fmt: skip
    weighted = given | {"weights": "points", "max_points": 50}
    together = simulate.learn(given, [points, points, points], fidelity="plain").values[0]
    result = simulate.learn(weighted, data, fidelity="plain").values[0]
    np.testing.assert_allclose(result, together, atol=1e-9)
    equal = simulate.learn(given, data, fidelity="plain").values[0]
    assert np.abs(equal - together).max() > 0.05
    # Who has more counts as `max_points`.
    capped = simulate.learn(given | {"weights": "points", "max_points": 4}, data, fidelity="plain").values[0]
    np.testing.assert_allclose(capped, equal, atol=1e-9)
    noisy = simulate.learn(weighted, data, seed_for_simulation=1)
    assert noisy.guarantee is not None
    assert noisy.guarantee.epsilon == 8.0
    again = simulate.learn(weighted, data, seed_for_simulation=1)
    np.testing.assert_array_equal(noisy.values, again.values)
