"""Boosting by Frank-Wolfe: steps, rate, brute-forced sensitivities, private choices, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.boosting import (
    PersonalizedBoosting,
    _Run,
    loss_sensitivity,
    score_sensitivity,
)
from smpc_dp.capabilities.learn.exchanges import request_of
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.errors import Check, ConfigError, PeerFault
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.noisy_choice import choose, plan_choices
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import Faults
from smpc_dp_lab.bench.recording import CountingNetwork
from tests import exchanges

Floats = NDArray[np.float64]

SIZES = [12, 30, 0, 20]
EDGES = [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]
WEIGHTS = [1.0, 0.5, 2.0, 0.25, 1.5]
GIVEN: dict[str, Any] = {
    "learner": "personalized-boosting",
    "features": 3,
    "sizes": SIZES,
    "ticks": 80,
    "beta": 1.5,
    "topology": EDGES,
    "weights": WEIGHTS,
    "coupling": 0.4,
}
PRIVATE = GIVEN | {"epsilon": 2.0, "delta": 1e-6}


def tables() -> list[Floats]:
    rng = np.random.default_rng(7)
    result = []
    for size in SIZES:
        features = rng.uniform(-1, 1, (size, 3))
        result.append(np.c_[features, features @ [1.0, -0.5, 0.1] > 0])
    return result


def learner(change: dict[str, Any] | None = None) -> PersonalizedBoosting:
    checked, issues = check_learn(GIVEN | (change or {}), len(SIZES))
    assert not issues
    assert checked is not None
    assert isinstance(checked.learner, PersonalizedBoosting)
    return checked.learner


PLANNED = learner(PRIVATE)


def value(models: Floats, data: list[Floats]) -> float:
    """Return M(Theta), written out."""
    w = np.zeros((4, 4))
    for (a, b), weight in zip(EDGES, WEIGHTS, strict=True):
        w[a, b] = w[b, a] = weight
    total = 0.0
    for u, table in enumerate(data):
        if len(table):
            margins = (2 * table[:, -1:] - 1) * table[:, :-1]
            total += w[u].sum() * len(table) / max(SIZES) * math.log(np.exp(-margins @ models[u]).sum())
    for (a, b), weight in zip(EDGES, WEIGHTS, strict=True):
        total += 0.4 / 2 * weight * float(((models[a] - models[b]) ** 2).sum())
    return total


def test_each_tick_is_the_update_of_the_thesis() -> None:
    """(2.5) by differences of M, and (2.6), tick by tick."""
    data, settings, models = tables(), learner(), np.zeros((4, 3))
    for t, u in enumerate(settings.wakes, 1):
        slope = np.zeros(3)
        for k in range(3):
            step = np.zeros((4, 3))
            step[u, k] = 1e-6
            slope[k] = (value(models + step, data) - value(models - step, data)) / 2e-6
        # Where all vertices are alike, the first is taken.
        slope[np.abs(slope) < 1e-7] = 0.0
        k = int(np.abs(slope).argmax())
        gamma = 2 * 4 / (t + 2 * 4)
        models[u] *= 1 - gamma
        models[u, k] -= gamma * 1.5 * (1 if slope[k] > 0 else -1)
    learned = simulate.learn(GIVEN, data, fidelity="plain")
    np.testing.assert_allclose(learned.values, models, atol=1e-9, rtol=0)
    assert float(np.abs(models).sum(axis=1).max()) <= 1.5 * (1 + 1e-12)


@pytest.mark.long
def test_the_gap_shrinks_as_proposition_2_2_says() -> None:
    """M - M* <= 6 n (C + p0) / T in the mean of 8 schedules; M* is taken from 6,000 ticks."""
    data, settings = tables(), learner()
    best = value(simulate.learn(GIVEN | {"ticks": 6_000}, data, fidelity="plain").values, data)
    first = value(np.zeros((4, 3)), data)
    objective = settings.objective
    norms = np.array([float(np.linalg.norm(table[:, :-1], 2)) ** 2 if len(table) else 0.0 for table in data])
    curvature = 4 * 1.5**2 * float((objective.degrees * (objective.confidence * norms + 0.4)).sum())
    for ticks in (40, 400):
        gaps = [
            value(simulate.learn(GIVEN | {"ticks": ticks, "seed": seed}, data, fidelity="plain").values, data)
            - best
            for seed in range(8)
        ]
        assert np.mean(gaps) <= 6 * 4 * (curvature + first - best) / ticks
        assert np.mean(gaps) <= 60 * (first - best) / ticks


@given(st.integers(0, 2**32), st.integers(1, 8), st.floats(0.1, 4.0))
def test_one_record_moves_scores_and_loss_within_their_sensitivities(
    seed: int, records: int, beta: float
) -> None:
    """Random records and models at the edge of the domain, and the worst case at the end."""
    rng = np.random.default_rng(seed)
    model = rng.normal(size=3)
    model *= beta / np.abs(model).sum()
    first = rng.choice([-1.0, 1.0, 0.0], (records, 3), p=[0.4, 0.4, 0.2])
    second = first.copy()
    second[0] = rng.uniform(-1, 1, 3)

    def scores(margins: Floats) -> Floats:
        share = np.exp(-margins @ model)
        return np.asarray(share / share.sum() @ margins)

    def loss(margins: Floats) -> float:
        return math.log(np.exp(-margins @ model).sum())

    assert np.abs(scores(first) - scores(second)).max() <= score_sensitivity(records, beta) * (1 + 1e-9)
    assert abs(loss(first) - loss(second)) <= loss_sensitivity(records, beta) * (1 + 1e-9)


@pytest.mark.parametrize("records", [1, 2, 10, 1_000])
@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_the_sensitivities_are_reached(records: int, beta: float) -> None:
    """All others at margin 1 for the model's predictor; the record at -1 there, and at 1 or -1 in another."""
    margins = np.ones((records, 2))
    margins[:, 1] = 0.3
    margins[0] = [-1.0, 1.0]
    other = margins.copy()
    other[0, 1] = -1.0
    model = np.array([beta, 0.0])

    def share(rows: Floats) -> Floats:
        weights = np.exp(-rows @ model)
        return np.asarray(weights / weights.sum())

    moved = float(abs(share(margins) @ margins[:, 1] - share(other) @ other[:, 1]))
    assert moved == pytest.approx(score_sensitivity(records, beta), rel=1e-9)
    right = margins.copy()
    right[0, 0] = 1.0
    losses = [math.log(np.exp(-rows @ model).sum()) for rows in (margins, right)]
    assert losses[0] - losses[1] == pytest.approx(loss_sensitivity(records, beta), rel=1e-9)


@given(st.integers(0, 2**32))
def test_one_record_moves_a_score_on_the_grid_by_the_planned_steps_at_most(seed: int) -> None:
    rng, settings, data = np.random.default_rng(seed), PLANNED, tables()
    model = rng.normal(size=3)
    model *= settings.beta / np.abs(model).sum()
    other = [table.copy() for table in data]
    other[1][4] = [*rng.choice([-1.0, 1.0], 3), rng.integers(0, 2)]
    bits, sensitivity = settings.grid(1)
    steps = []
    for tried in (data, other):
        run = _Run(settings, PlainExchange(4), tried, NoiseSource.system())
        run.models[1] = model
        local, public = run.gradient(1, 1)
        steps.append(np.rint(np.ldexp(local, bits)) + np.rint(np.ldexp(public, bits)))
    assert np.abs(steps[0] - steps[1]).max() <= sensitivity
    assert sensitivity < 1.001 * math.ldexp(settings.objective.degrees[1] * score_sensitivity(30, 1.5), bits)


def chances(scores: NDArray[np.int64], sensitivity: int, epsilon: float) -> Floats:
    weights = np.exp(epsilon * (scores - scores.max()) / (2 * sensitivity))
    return np.asarray(weights / weights.sum())


def test_choices_have_the_chances_of_the_exponential_mechanism() -> None:
    """2,000 choices; a deviation is at most .0112: six of them, and the seed is fixed."""
    scores, source = np.array([0, 5, 9, 10, -200]), NoiseSource.keyed(bytes(32), b"test")
    drawn = [choose(scores, 4, 2.0, source) for _ in range(2_000)]
    measured = np.bincount(drawn, minlength=5) / 2_000
    assert np.abs(measured - chances(scores, 4, 2.0)).max() < 0.067
    with pytest.raises(ConfigError, match="there is no candidate"):
        choose(np.zeros(0, np.int64), 1, 1.0, source)


@given(st.integers(0, 2**32), st.floats(0.05, 6.0))
def test_a_choice_is_pure_and_zero_concentrated(seed: int, epsilon: float) -> None:
    """epsilon-DP, and epsilon^2/8-zCDP at orders 1.1 to 64, for neighbouring scores."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-20, 20, 6)
    p, q = np.log(chances(scores, 3, epsilon)), np.log(chances(scores + rng.integers(-3, 4, 6), 3, epsilon))
    assert float(np.abs(p - q).max()) <= epsilon * (1 + 1e-9)
    for order in (1.1, 2.0, 8.0, 64.0):
        divergence = float(np.logaddexp.reduce(order * p + (1 - order) * q)) / (order - 1)
        assert divergence <= order * epsilon**2 / 8 * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("choices", [1, 5, 400])
def test_choices_cost_the_whole_budget_and_no_more(choices: int) -> None:
    plan = plan_choices(1.0, 1e-6, choices)
    assert 0.999 < Composition([plan.event()]).epsilon(1e-6) <= 1.0
    # For few choices simple composition leaves more to each.
    assert (plan.each * choices == pytest.approx(1.0)) == (choices <= 5)
    assert plan.each * choices >= 1.0 - 1e-9


def test_a_private_run_says_what_it_protects_and_learns_with_many_records() -> None:
    rng = np.random.default_rng(3)
    features = rng.uniform(-1, 1, (4, 4_000, 2))
    data = [np.c_[rows, rows[:, 0] > 0.2] for rows in features]
    given = {
        "learner": "personalized-boosting",
        "features": 2,
        "sizes": [4_000] * 4,
        "ticks": 40,
        "beta": 1.0,
    }
    given |= {"stumps": 9, "topology": "ring", "epsilon": 1.0, "delta": 1e-6}
    learned = simulate.learn(given, data, fidelity="ideal", seed_for_simulation=1)
    assert learned.guarantee is not None
    assert (learned.guarantee.epsilon, learned.guarantee.protects) == (1.0, "record")
    checked, _ = check_learn(given, 4)
    assert checked is not None
    assert isinstance(checked.learner, PersonalizedBoosting)
    for table, model in zip(data, learned.values, strict=True):
        assert float((checked.learner.margins(table) @ model > 0).mean()) > 0.9


def bytes_of_tick(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the bytes that each role sends in a tick of party 1, whose neighbours are 0 and 2."""
    checked, issues = check_learn(parameters, len(SIZES))
    assert checked is not None, issues
    assert checked.exchange is not None
    exchange, involved = request_of(checked.exchange.parameters, {1: [0, 2]})
    networks: list[CountingNetwork] = []

    def network(**_seed: int) -> CountingNetwork:
        networks.append(CountingNetwork(Faults()))
        return networks[-1]

    monkeypatch.setattr(exchanges, "MemoryNetwork", network)
    vector = exchange.encoding.encode(np.zeros(exchange.encoding.length), party="a party")[0]
    vectors = [vector for _ in involved]
    parties, errors = exchanges.drive_exchange(exchange, vectors, seed=1)
    assert not errors
    assert len(parties) == 3
    return networks[0].up


def test_messages_are_two_numbers_whatever_the_predictors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, counted: 3,000 predictors have the 545 of 3; a model of 3,001 numbers 24 kB more a neighbour."""
    few, many = (bytes_of_tick(GIVEN | {"stumps": stumps}, monkeypatch) for stumps in (1, 1_000))
    assert few == many
    dense = {"learner": "personalized", "features": 3_000, "sizes": SIZES, "ticks": 80, "record_bound": 1.0}
    model = bytes_of_tick(dense | {"topology": EDGES}, monkeypatch)
    sender = max(model, key=lambda name: model[name] if name != AGGREGATOR else 0)
    # The party seals its vector for each of two neighbours, and the aggregator hands both on.
    for role in (sender, AGGREGATOR):
        assert model[role] - few[role] == pytest.approx(2 * 8 * 2_999, rel=0.01)
    assert few[sender] == 545


def test_stumps_are_thresholds_between_public_bounds() -> None:
    settings = learner({"stumps": 3, "lower": 0.0, "upper": 4.0})
    margins = settings.margins(np.array([[0.5, 2.5, 3.5, 1.0], [0.5, 2.5, 3.5, 0.0]]))
    np.testing.assert_array_equal(margins[0], [-1, -1, -1, 1, 1, -1, 1, 1, 1])
    np.testing.assert_array_equal(margins[1], -margins[0])


@pytest.mark.thin(2)
@pytest.mark.parametrize("given", [GIVEN, PRIVATE])
def test_parties_that_send_messages_learn_what_one_process_does(given: dict[str, Any]) -> None:
    plain = simulate.learn(given, tables(), fidelity="plain", seed_for_simulation=1)
    sent = simulate.learn(given, tables(), fidelity="machines", seed_for_simulation=1)
    if given is GIVEN:
        np.testing.assert_array_equal(sent.values, plain.values)
    assert sent.steps.tolist() == plain.steps.tolist() == sent.done.tolist()
    assert sent.guarantee == plain.guarantee


@pytest.mark.parametrize("signed", [0.0, 4.0, 1.5])
async def test_an_impossible_message_is_a_fault_of_its_sender(
    signed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _Run(learner(), PlainExchange(4), tables(), NoiseSource.system())
    monkeypatch.setattr(run, "_choose", lambda _row, _party: signed)
    with pytest.raises(PeerFault) as raised:
        await run.tick(1, 2)
    assert (raised.value.culprit, raised.value.check) == ("party 2", Check.OUT_OF_BOUNDS)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"sizes": [1, 2]}, "sizes"),
        ({"sizes": [0, 0, 0, 0]}, "sizes"),
        ({"weights": [1.0]}, "weights"),
        ({"weights": [-1.0, *WEIGHTS[1:]]}, "weights"),
        ({"topology": [[0, 1], [2, 3]], "weights": [1.0, 1.0]}, "topology"),
        ({"ticks": 2}, "ticks"),
        ({"beta": 0.0}, "beta"),
        ({"stumps": 2, "lower": 1.0, "upper": 1.0}, "upper"),
        ({"epsilon": 1.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1e-12}, "delta"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], where: str) -> None:
    checked, issues = check_learn(GIVEN | change, len(SIZES))
    assert checked is None
    assert where in {issue.where.partition("[")[0] for issue in issues}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([0.1, 0.2, 1.5, 1.0], "outside"),
        ([0.1, 0.2, 0.3, 0.5], "neither 0 nor 1"),
        ([0.1, 0.2, 1.0], "4 columns"),
    ],
)
def test_bad_records_are_named(row: list[float], reason: str) -> None:
    data = tables()
    data[0] = np.tile(row, (12, 1))
    with pytest.raises(ConfigError, match=f"party 0.*{reason}"):
        simulate.learn(GIVEN, data, fidelity="plain")
