"""Personalised models by coordinate descent: minimiser, recursion, rate, noise and refusals."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import PlainExchange, Rows
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective, descend, independent_ticks
from smpc_dp.capabilities.learn.personalized import Personalized
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.record_gradients import (
    GradientNoise,
    PureNoise,
    contributions,
    grid_bits,
    plan_gradient_noise,
    plan_pure_noise,
)

EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [1, 3]]
WEIGHTS = [1.0, 0.5, 2.0, 0.25, 1.0, 0.75]
SIZES = [3, 10, 1, 6, 0]
GIVEN: dict[str, Any] = {
    "learner": "personalized",
    "features": 2,
    "sizes": SIZES,
    "ticks": 200,
    "record_bound": 2.0,
    "topology": EDGES,
    "weights": WEIGHTS,
    "model": "linear",
    "coupling": 2.0,
    "ridge": 0.5,
}
PRIVATE = GIVEN | {"model": "logistic", "epsilon": 4.0, "delta": 1e-6}


def tables(labels: int = 0) -> list[NDArray[np.float64]]:
    """Return records of norm at most 1; `labels`: 0 for any number, else for 0 and 1."""
    rng = np.random.default_rng(5)
    result = []
    for size in SIZES:
        features = rng.uniform(-0.7, 0.7, (size, 2))
        label = rng.normal(size=size) if not labels else rng.integers(0, 2, size).astype(float)
        result.append(np.column_stack([features, label]))
    return result


def learner(change: dict[str, Any] | None = None) -> Personalized:
    checked, issues = check_learn(GIVEN | (change or {}), len(SIZES))
    assert not issues
    assert checked is not None
    assert isinstance(checked.learner, Personalized)
    return checked.learner


def gaussian(settings: Personalized) -> list[GradientNoise]:
    return [one for one in settings.noise or () if isinstance(one, GradientNoise)]


def pure(settings: Personalized) -> list[PureNoise]:
    return [one for one in settings.noise or () if isinstance(one, PureNoise)]


def dense_minimiser(data: list[NDArray[np.float64]], ridge: float = 0.5) -> Rows:
    """Return the minimiser of M for half the squared error from its linear system, written out."""
    n, length = len(SIZES), 3
    w = np.zeros((n, n))
    for (a, b), weight in zip(EDGES, WEIGHTS, strict=True):
        w[a, b] = w[b, a] = weight
    left, right = np.zeros((n * length, n * length)), np.zeros(n * length)
    for u in range(n):
        own = slice(u * length, (u + 1) * length)
        m, degree = SIZES[u], w[u].sum()
        c = max(m, 1) / max(SIZES)
        x = np.column_stack([data[u][:, :2], np.ones(m)])
        curvature = (x.T @ x / m if m else np.zeros((length, length))) + 2 * ridge / max(m, 1) * np.eye(
            length
        )
        left[own, own] = degree * (2.0 * np.eye(length) + c * curvature)
        right[own] = degree * c * (x.T @ data[u][:, 2] / m) if m else 0.0
        for v in range(n):
            left[own, v * length : (v + 1) * length] -= 2.0 * w[u, v] * np.eye(length)
    return np.asarray(np.linalg.solve(left, right).reshape(n, length))


@pytest.mark.long
def test_models_go_to_the_minimiser() -> None:
    data = tables()
    change = {"ticks": 15_000, "ridge": 2.0}
    learned = simulate.learn(GIVEN | change, data, fidelity="plain")
    np.testing.assert_allclose(learned.values, dense_minimiser(data, 2.0), atol=1e-6, rtol=0)


def test_each_tick_is_the_update_of_the_thesis() -> None:
    """(2.3) tick by tick, in a loop over dense arrays, beside the runs of independent ticks."""
    data, settings = tables(), learner()
    learned = simulate.learn(GIVEN, data, fidelity="plain")
    w, objective = settings.objective.weights.toarray(), settings.objective
    models = np.zeros((len(SIZES), 3))
    for u in settings.wakes:
        m, c = SIZES[u], max(SIZES[u], 1) / max(SIZES)
        x = np.column_stack([data[u][:, :2], np.ones(m)])
        slope = 2 * 0.5 / max(m, 1) * models[u]
        if m:
            slope = slope + x.T @ (x @ models[u] - data[u][:, 2]) / m
        alpha = 2.0 / (2.0 + c * (objective.smoothness + 2 * 0.5 / max(m, 1)))
        models[u] = (1 - alpha) * models[u] + alpha * (w[u] @ models / w[u].sum() - c / 2.0 * slope)
    # Each update is rounded to a grid of 2^-30.
    np.testing.assert_allclose(learned.values, models, atol=1e-6, rtol=0)


@pytest.mark.long
def test_the_gap_shrinks_as_proposition_2_1_says() -> None:
    """The bound is on the mean over schedules; the mean of 20 is below it after 50 and after 200 ticks."""
    data, settings = tables(), learner()
    objective = settings.objective
    best = dense_minimiser(data)

    def value(models: Rows) -> float:
        total = 0.0
        for u, size in enumerate(SIZES):
            x = np.column_stack([data[u][:, :2], np.ones(size)])
            loss = 0.5 * np.mean((x @ models[u] - data[u][:, 2]) ** 2) if size else 0.0
            loss += objective.ridges[u] * float(models[u] @ models[u])
            total += objective.degrees[u] * objective.confidence[u] * float(loss)
        for (a, b), weight in zip(EDGES, WEIGHTS, strict=True):
            total += 2.0 / 2 * weight * float(np.sum((models[a] - models[b]) ** 2))
        return total

    least, first = value(best), value(np.zeros((len(SIZES), 3)))
    assert 0 < objective.contraction < 1
    for ticks in (50, 200):
        gaps = []
        for seed in range(20):
            change = {"ticks": ticks, "seed": seed}
            learned = simulate.learn(GIVEN | change, data, fidelity="plain")
            gaps.append(value(learned.values) - least)
        assert np.mean(gaps) <= objective.contraction**ticks * (first - least)
        assert min(gaps) > -1e-6


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_runs_of_ticks_are_of_parties_that_are_no_neighbours_and_keep_their_order(wakes: list[int]) -> None:
    ring = sparse.csr_array(np.roll(np.eye(7), 1, axis=0) + np.roll(np.eye(7), -1, axis=0))
    runs = independent_ticks(np.array(wakes), ring)
    held = [int(tick) for run in runs for tick in run]
    assert sorted(held) == list(range(len(wakes)))
    for run in runs:
        parties = [wakes[tick] for tick in run]
        assert len({*parties}) == len(parties)
        assert not any((a - b) % 7 in (1, 6) for a in parties for b in parties)
    position = {tick: number for number, tick in enumerate(held)}
    for first in range(len(wakes)):
        for second in range(first + 1, len(wakes)):
            if (wakes[first] - wakes[second]) % 7 in (0, 1, 6):
                assert position[first] < position[second]


def neighbouring_gradients(seed: int, records: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the gradients of a party's records, of very different sizes, and the same but for one record."""
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(1, records, 4)) * 10 ** rng.uniform(-6, 6, (1, records, 1))
    other = gradients.copy()
    other[0, 0] = rng.normal(size=4) * 10 ** rng.uniform(-6, 6)
    return gradients, other


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_one_record_moves_the_sum_by_twice_the_bound_at_most(
    seed: int, records: int, clip: float, factor: float
) -> None:
    gradients, other = neighbouring_gradients(seed, records)
    bits = grid_bits(np.array([clip * factor]))
    noise = plan_gradient_noise(1.0, 1e-6, [1.0], clip * factor, bits)
    assert noise.bound >= 1 << 11
    sums = [contributions(each, np.array([factor]), clip, bits)[0] for each in (gradients, other)]
    apart = [int(number) for number in sums[0] - sums[1]]
    assert sum(number**2 for number in apart) <= (2 * noise.bound) ** 2
    alone = contributions(gradients[:, :1], np.array([factor]), clip, bits)[0]
    assert sum(int(number) ** 2 for number in alone) <= noise.bound**2


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_one_record_moves_the_l1_norm_of_the_sum_by_twice_the_bound_at_most(
    seed: int, records: int, clip: float, factor: float
) -> None:
    gradients, other = neighbouring_gradients(seed, records)
    bits = grid_bits(np.array([clip * factor]))
    bound = plan_pure_noise("laplace", 1.0, [1.0], clip * factor, bits).bound
    sums = [contributions(each, np.array([factor]), clip, bits, 1)[0] for each in (gradients, other)]
    assert int(np.abs(sums[0] - sums[1]).sum()) <= 2 * bound


@pytest.mark.parametrize("mechanism", ["k-norm", "laplace"])
def test_pure_noise_spends_its_epsilon_and_no_delta(mechanism: str) -> None:
    settings = learner(PRIVATE | {"delta": None, "mechanism": mechanism})
    claim, event = settings.guarantee, settings.requirements(len(SIZES)).own
    assert claim is not None
    assert event is not None
    assert (claim.epsilon, claim.delta) == (4.0, 0.0)
    assert Composition([event]).epsilon(0.0) == 4.0
    norm, clip = ("l2", math.sqrt(5.0)) if mechanism == "k-norm" else ("l1", math.sqrt(15.0))
    reached = max(settings.objective.reaches) * clip * 2**settings.bits
    assert claim.sensitivity == {norm: pytest.approx(2 * reached, abs=2.0)}
    for noise, count in zip(pure(settings), np.bincount(settings.wakes), strict=True):
        assert noise.releases == count
        spent = sum(Fraction(2 * noise.bound, scale) for scale in noise.scales)
        assert 0.999 * 4 < spent <= 4
    learned = simulate.learn(
        PRIVATE | {"delta": None, "mechanism": mechanism}, tables(1), fidelity="plain", seed_for_simulation=1
    )
    assert learned.guarantee == claim


@pytest.mark.parametrize("mechanism", ["gaussian", "k-norm", "laplace"])
def test_each_party_is_charged_for_its_own_number_of_releases(mechanism: str) -> None:
    """A pure epsilon in fewer releases is less private when runs are composed by zCDP."""
    delta = 1e-6 if mechanism == "gaussian" else None
    settings = learner(PRIVATE | {"epsilon": 1.0, "delta": delta, "mechanism": mechanism})
    required = settings.requirements(len(SIZES))
    assert required.own is not None
    most = Composition([required.own] * 8).epsilon(1e-6)
    spent = []
    for party, noise in enumerate(settings.noise or ()):
        event = required.own_of(party)
        assert event is not None
        spent.append(Composition([event] * 8).epsilon(1e-6))
        if isinstance(noise, PureNoise):
            rho = sum(Fraction(2 * noise.bound, scale) ** 2 for scale in noise.scales) / 2
            assert rho <= Fraction(noise.rho) <= rho * (1 + Fraction(1, 10**9))
        assert spent[-1] == Composition([noise.event()] * 8).epsilon(1e-6)
    assert most == max(spent)
    assert (len(set(spent)) > 1) == (mechanism != "gaussian")


@pytest.mark.parametrize("mechanism", ["k-norm", "laplace"])
def test_a_grid_has_steps_for_each_of_many_coordinates(mechanism: str) -> None:
    """A record of 10,000 equal features, in the norm of the mechanism, does not vanish by truncation."""
    change = {"features": 10_000, "delta": None, "mechanism": mechanism, "model": "logistic", "epsilon": 50.0}
    settings = learner(PRIVATE | change)
    length, party = settings.loss.length, 0
    gradient = np.full((1, 1, length), settings.reach / math.sqrt(length))
    reach = settings.objective.reaches[[party]]
    steps = contributions(gradient, reach, settings.clipped, settings.bits, settings.order)[0]
    np.testing.assert_allclose(np.ldexp(steps, -settings.bits), gradient[0, 0] * reach, rtol=1 / 40)


def test_late_shares_are_the_best_for_the_corrected_bound() -> None:
    """No other split of 2,000 has a smaller sum of C^(T-1-t) times the variance of tick t."""
    rng = np.random.default_rng(3)
    change = PRIVATE | {"split": "late", "ticks": 60, "ridge": 40.0}
    for mechanism, delta, power in (("gaussian", 1e-6, 1), ("k-norm", None, 2)):
        settings = learner(change | {"mechanism": mechanism, "delta": delta})
        party, decay = 2, settings.objective.contraction
        ticks = np.flatnonzero(settings.wakes == party)
        pull = decay ** (settings.ticks - 1.0 - ticks)
        if mechanism == "gaussian":
            shares = 1 / np.array([float(one) for one in gaussian(settings)[party].variances])
        else:
            shares = 1 / np.array(pure(settings)[party].scales, dtype=float)
        shares /= shares.sum()

        def bound(shares: Any, pull: Any = pull, power: int = power) -> float:
            return float((pull / shares**power).sum())

        assert bound(shares) < 0.999 * bound(np.full(len(shares), 1 / len(shares)))
        for _ in range(2_000):
            other = shares * np.exp(rng.normal(size=len(shares)) * 10 ** rng.uniform(-2, 0))
            # Scales are whole numbers.
            assert bound(shares) <= bound(other / other.sum()) * (1 + 1e-6)


@pytest.mark.parametrize("shares", [[1.0], [1.0] * 30, [1.0, 2.0, 4.0, 100.0]])
def test_all_releases_together_have_the_planned_rho(shares: list[float]) -> None:
    noise = plan_gradient_noise(1.0, 1e-6, shares, 3.0, 20)
    spent = [(2 * noise.bound) ** 2 / (2 * float(variance)) for variance in noise.variances]
    assert math.fsum(spent) <= noise.rho * (1 + 1e-12)
    assert math.fsum(spent) >= noise.rho * 0.999
    np.testing.assert_allclose(np.array(spent) / spent[0], np.array(shares) / shares[0], rtol=1e-3)


@pytest.mark.parametrize("budget", [(0.1, 1e-6), (1.0, 1e-6), (10.0, 1e-9)])
def test_all_releases_cost_the_whole_budget_and_no_more(budget: tuple[float, float]) -> None:
    """By the Gaussian part of the event alone, and by the whole event."""
    epsilon, delta = budget
    event = plan_gradient_noise(epsilon, delta, [1.0, 3.0] * 20, 3.0, 20).event()
    gaussian = Event(event.mechanism, event.relation, event.descriptions[:1])
    for one in (event, gaussian):
        assert epsilon * 0.9999 <= Composition([one]).epsilon(delta) <= epsilon


def test_an_update_has_the_planned_noise() -> None:
    """250 first updates of a party without records are noise alone; false alarm below 1e-8 (seeds fixed)."""
    settings = learner({"model": "logistic", "epsilon": 1.0, "delta": 1e-6, "ticks": 200})
    noise = gaussian(settings)
    planned = float(noise[4].variances[0])
    first = int(np.flatnonzero(settings.wakes == 4)[0])
    drawn = []
    for seed in range(250):
        seen: list[Rows] = []
        simulate_with(settings, seed, seen, first)
        drawn.append(seen[0][4])
    units = np.ldexp(np.array(drawn).ravel(), noise[0].bits)
    variance = float(np.mean(units**2)) / planned
    # Chi-squared of 750 degrees: six standard deviations are 0.31; their tail is skewed.
    assert abs(variance - 1) < 0.32


def simulate_with(settings: Personalized, seed: int, seen: list[Rows], tick: int) -> None:
    """Run only party 4's first update, with noise of this seed."""
    from smpc_dp.capabilities.learn.models import RecordGradients
    from smpc_dp.privacy.sampling import NoiseSource

    empty = [np.zeros((0, 3)) for _ in SIZES]
    gradients = RecordGradients(settings.loss, settings.loss.points(empty), settings.reach)
    asyncio.run(
        descend(
            PlainExchange(len(SIZES)),
            settings.objective,
            gradients,
            3,
            settings.wakes[tick : tick + 1],
            settings.bits,
            noise=settings.noise,
            source=NoiseSource.keyed(seed.to_bytes(32, "big"), b"test"),
            watch=lambda _ticks, models: seen.append(models),
        )
    )


def test_a_private_run_says_what_it_protects_and_charges_that() -> None:
    learned = simulate.learn(PRIVATE, tables(1), fidelity="plain", seed_for_simulation=1)
    assert learned.guarantee is not None
    assert (learned.guarantee.epsilon, learned.guarantee.delta) == (4.0, 1e-6)
    assert learned.guarantee.protects == "record"
    event = learner(PRIVATE).requirements(len(SIZES)).own
    assert event is not None
    assert (event.relation, event.unit) == ("substitution", "record")
    assert 3.9 < Composition([event]).epsilon(1e-6) <= 4.0 * (1 + 1e-9)


def test_a_guarantee_states_the_most_of_any_party() -> None:
    settings = learner(PRIVATE)
    noise, guarantee = gaussian(settings), settings.guarantee
    assert guarantee is not None
    assert guarantee.sensitivity == {"l2": 2.0 * max(one.bound for one in noise)}
    releases = max(len(one.variances) for one in noise)
    assert f"at most {releases} sums" in guarantee.mechanism
    event = settings.requirements(len(SIZES)).own
    assert event is not None
    assert event.mechanism == guarantee.mechanism


def test_late_shares_that_vanish_are_refused_by_name() -> None:
    settings = Personalized(
        features=1,
        sizes=(5, 5),
        ticks=4000,
        record_bound=1.0,
        topology=((0, 1),),
        ridge=1000.0,
        epsilon=1.0,
        delta=1e-6,
        split="late",
    )
    [issue] = settings.issues(2)
    assert (issue.where, issue.check) == ("split", ConfigCheck.INFEASIBLE)


def test_late_shares_grow_with_the_tick() -> None:
    noise = gaussian(learner(PRIVATE | {"split": "late", "ticks": 400}))
    variances = [float(variance) for variance in noise[1].variances]
    assert variances == sorted(variances, reverse=True)
    assert variances[0] > 1.2 * variances[-1]


@pytest.mark.parametrize("private", [False, True])
def test_parties_that_send_messages_learn_what_one_process_does(private: bool) -> None:
    """Without noise the same model; with noise the messages pass and the guarantee is the same."""
    change, labels = (PRIVATE, 1) if private else (GIVEN, 0)
    settings = change | {"ticks": 30}
    plain = simulate.learn(settings, tables(labels), fidelity="plain", seed_for_simulation=1)
    sent = simulate.learn(settings, tables(labels), fidelity="machines", seed_for_simulation=1)
    if not private:
        np.testing.assert_allclose(sent.values, plain.values, atol=1e-9, rtol=0)
    assert sent.steps.tolist() == plain.steps.tolist() == sent.done.tolist()
    assert sent.guarantee == plain.guarantee


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"sizes": [1, 2]}, "sizes"),
        ({"sizes": [0, 0, 0, 0, 0]}, "sizes"),
        ({"sizes": [1, 2, 3, 4, -1]}, "sizes"),
        ({"weights": [1.0]}, "weights"),
        ({"weights": [-1.0, *WEIGHTS[1:]]}, "weights"),
        ({"topology": "ring"}, "weights"),
        ({"topology": [[0, 1], [2, 3], [3, 4]], "weights": [1.0, 1.0, 1.0]}, "topology"),
        ({"topology": [*EDGES[:5], [1, 0]]}, "topology"),
        ({"ticks": 3}, "ticks"),
        ({"coupling": 0.0}, "coupling"),
        ({"epsilon": 1.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1e-6}, "clip"),
        ({"clip": 1.0}, "clip"),
        ({"split": "late"}, "split"),
        ({"mechanism": "k-norm"}, "mechanism"),
        ({"mechanism": "laplace", "model": "logistic", "epsilon": 1.0, "delta": 1e-6}, "delta"),
        ({"mechanism": "laplace", "model": "logistic", "epsilon": 1e-9}, "epsilon"),
        ({"mechanism": "cauchy"}, "mechanism"),
        ({"model": "logistic", "epsilon": 1e-9, "delta": 1e-11}, "epsilon"),
        ({"model": "softmax"}, "model"),
        ({"record_bound": None}, "record_bound"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], where: str) -> None:
    checked, issues = check_learn(GIVEN | change, len(SIZES))
    assert checked is None
    assert where in {issue.where.partition("[")[0] for issue in issues}


def test_a_party_with_another_number_of_records_is_named() -> None:
    data = tables()
    data[1] = data[1][:-1]
    with pytest.raises(ConfigError, match=r"sizes: party 1 has 9 records, not 10"):
        simulate.learn(GIVEN, data, fidelity="plain")


@pytest.mark.parametrize(
    "weights",
    [
        np.array([[0.0, 1.0], [2.0, 0.0]]),
        np.array([[0.0, -1.0], [-1.0, 0.0]]),
        np.array([[1.0, 1.0], [1.0, 0.0]]),
        np.array([[0.0, math.nan], [math.nan, 0.0]]),
        np.zeros((2, 2)),
        np.zeros((3, 3)),
    ],
)
def test_weights_that_are_no_graph_are_refused(weights: NDArray[np.float64]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        PersonalizedObjective(sparse.csr_array(weights), np.array([1, 1]), 1.0, np.ones(2), 1.0)


def test_wakes_are_public_and_the_same_everywhere() -> None:
    assert learner().wakes.tolist() == PublicDraws(1).below(5, 200).tolist()
