"""Private local models to start from: their sensitivity by brute force, and what propagation gives."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.models import RecordGradients, bound_features
from smpc_dp.capabilities.learn.personalized import Personalized
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.warm_start import LocalPlan, local_models, propagated_models
from smpc_dp.errors import ConfigCheck
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.sampling import NoiseSource
from tests.examples import examples

SIZES = [12, 5, 0, 30]
GIVEN: dict[str, Any] = {
    "learner": "personalized",
    "features": 2,
    "sizes": SIZES,
    "ticks": 40,
    "record_bound": 1.0,
    "topology": [[0, 1], [1, 2], [2, 3], [3, 0]],
    "weights": [1.0, 0.5, 2.0, 1.0],
    "start": {"ridge": 0.3, "rounds": 400},
}
PRIVATE = GIVEN | {"epsilon": 4.0, "delta": 1e-6}


def tables(seed: int = 1) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return [np.c_[rng.uniform(-0.7, 0.7, (size, 2)), rng.integers(0, 2, size)] for size in SIZES]


def learner(change: dict[str, Any]) -> Personalized:
    checked, issues = check_learn(change, len(SIZES))
    assert not issues
    assert checked is not None
    assert isinstance(checked.learner, Personalized)
    return checked.learner


def plan_of(given: Personalized) -> LocalPlan:
    assert given.start is not None
    return given.local_plan(given.start)


def planned(change: dict[str, Any]) -> tuple[Personalized, LocalPlan, NDArray[np.float64]]:
    """Return the settings, the plan of their local models, and how far a record is planned to move each."""
    given = learner(change)
    plan = plan_of(given)
    assert given.noise is not None
    assert plan.units is not None
    return given, plan, plan.units * 2 * np.array([noise.bound for noise in given.noise])


def gradients(given: Personalized, data: list[NDArray[np.float64]]) -> RecordGradients:
    bounded = [bound_features(table, given.record_bound) for table in data]
    return RecordGradients(given.loss, given.loss.points(bounded), given.clipped, given.order)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["logistic", "linear"]),
    st.sampled_from(["gaussian", "k-norm", "laplace"]),
    st.floats(0.01, 3.0),
    st.floats(0.05, 4.0),
)
def test_one_record_moves_a_local_model_by_twice_the_bound_of_the_noise_at_most(
    seed: int, model: str, mechanism: str, ridge: float, clip: float
) -> None:
    """Records far beyond every bound, labels too; the bound is nearly attained below."""
    rng = np.random.default_rng(seed)
    change = PRIVATE | {"model": model, "mechanism": mechanism, "clip": clip, "start": {"ridge": ridge}}
    given, plan, apart = planned(change if mechanism == "gaussian" else change | {"delta": None})
    data = tables(seed)
    other = [table.copy() for table in data]
    label = float(rng.integers(0, 2)) if model == "logistic" else rng.normal() * 10.0 ** rng.uniform(-2, 6)
    other[0][0] = [*(rng.normal(size=2) * 10.0 ** rng.uniform(-3, 3)), label]
    everyone = np.arange(len(SIZES))
    assert plan.units is not None
    moved = [
        np.rint(local_models(plan, gradients(given, one), everyone, 3)[0] / plan.units[0])
        for one in (data, other)
    ]
    norm = np.linalg.norm(moved[0] - moved[1], ord=given.order)
    assert norm <= apart[0] / plan.units[0]


def test_the_bound_is_nearly_attained_by_a_linear_loss_far_out() -> None:
    """Clipped gradients of opposite records: the models are clip/(m ridge) apart in the limit."""
    given, plan, planned_for = planned(PRIVATE | {"model": "linear", "clip": 0.01, "start": {"ridge": 0.5}})
    data = [np.zeros((size, 3)) for size in SIZES]
    data[1][:, :2], data[1][:, 2] = 0.7, 1e6
    other = [table.copy() for table in data]
    other[1][0, 2] = -1e6
    models = [local_models(plan, gradients(given, one), np.arange(len(SIZES)), 3)[1] for one in (data, other)]
    apart = np.linalg.norm(models[0] - models[1])
    assert apart == pytest.approx(0.01 / (5 * 0.5), rel=1e-5)
    # What is planned for is above it, by rounding and the grid alone.
    assert apart <= planned_for[1] <= apart * 1.01


def test_with_the_ridge_1_over_m_the_bound_does_not_shrink_with_the_records() -> None:
    for size in (10, 100, 1_000):
        _, _, apart = planned(PRIVATE | {"sizes": [size] * 4, "start": {"ridge": 1 / size}})
        # clip/(m ridge) = clip, the norm of a record with its intercept.
        assert apart[0] == pytest.approx(2**0.5, rel=1e-3)
    chosen = [
        plan_of(learner(PRIVATE | {"sizes": [size] * 4, "start": {}})).ridges[0] * size
        for size in (10, 100, 1_000)
    ]
    # The chosen one falls as m^(-2/3): the bound falls as m^(-1/3).
    assert chosen[1] / chosen[0] == pytest.approx(10 ** (1 / 3), rel=1e-2)
    assert chosen[2] / chosen[1] == pytest.approx(10 ** (1 / 3), rel=1e-2)


def test_local_models_minimise_their_loss_and_propagation_its_objective() -> None:
    """Without noise: (15) of the paper, whose minimiser is a linear system, around exact minimisers."""
    given, data = learner(GIVEN), tables()
    plan, everyone = plan_of(given), np.arange(len(SIZES))
    records = gradients(given, data)
    local = local_models(plan, records, everyone, 3)
    for party in (0, 1, 3):
        features = np.c_[bound_features(data[party], 1.0)[:, :2], np.ones(SIZES[party])]
        signs = 2 * data[party][:, 2] - 1

        def value(theta: Any, features: Any = features, signs: Any = signs) -> float:
            return float(np.logaddexp(0, -signs * (features @ theta)).mean() + 0.3 * theta @ theta)

        best = minimize(value, np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
        np.testing.assert_allclose(local[party], best, atol=1e-5)
    found = asyncio.run(
        propagated_models(PlainExchange(4), given.objective, plan, records, 3, 30, None, None)
    )
    weights, degrees = given.objective.weights.toarray(), given.objective.degrees
    pull = np.diag(degrees * given.objective.confidence * (np.array(SIZES) > 0))
    left = np.diag(degrees) - weights + pull
    np.testing.assert_allclose(found, np.linalg.solve(left, pull @ local), atol=1e-6)


def test_a_plan_has_room_for_floating_point_at_any_clip_and_any_length() -> None:
    """A logistic gradient is off by some 2^-53 of a record's norm in each step, also where clips are tiny."""
    for clip in (1e-6, 1.0):
        change = {"clip": clip, "start": {"ridge": 5.0}, "sizes": [1_000] * 4}
        given, plan, apart = planned(PRIVATE | change)
        assert plan.units is not None
        room = apart[0] - plan.units[0] * 3**0.5 - clip / (5.0 * 1_000)
        assert room > 2 * 2.0**-52 * given.reach / (2 * 5.0)
    change = {
        "mechanism": "laplace",
        "delta": None,
        "features": 10_000,
        "epsilon": 50.0,
        "start": {"ridge": 0.3},
    }
    given, _, apart = planned(PRIVATE | change)
    # Rounding takes one step for each of 10,001 numbers: little of what is planned for.
    assert (apart > 0).all()
    assert (apart < 1.05 * given.reach * 10_001**0.5 / (np.maximum(SIZES, 1) * 0.3)).all()


@pytest.mark.parametrize("mechanism", ["gaussian", "k-norm", "laplace"])
def test_a_start_is_paid_from_the_budget_of_the_party(mechanism: str) -> None:
    change = PRIVATE | {"mechanism": mechanism, "delta": 1e-6 if mechanism == "gaussian" else None}
    given, without = learner(change), learner({**change, "start": None})
    assert given.noise is not None
    assert without.noise is not None
    for one, other in zip(given.noise, without.noise, strict=True):
        assert one.releases == other.releases + 1
        # Updates have 0.9 of the budget.
        grown = one.mean_square(3, 1) / other.mean_square(3, 0)
        assert grown == pytest.approx(1 / 0.9 if mechanism == "gaussian" else 1 / 0.81, rel=1e-2)
    event = given.requirements(4).own
    assert event is not None
    delta = 1e-6 if mechanism == "gaussian" else 0.0
    assert 3.9 < Composition([event]).epsilon(delta) <= 4.0 * (1 + 1e-9)
    learned = simulate.learn(change, tables(), fidelity="plain", seed_for_simulation=1)
    assert learned.guarantee is not None
    assert learned.guarantee.epsilon == 4.0
    assert "local models" in learned.guarantee.mechanism


def test_a_released_local_model_has_the_planned_noise() -> None:
    """Party 3 alone, 300 starts; chi-squared of 900 degrees is within .29 but once in 1e9."""
    given, plan, _ = planned(PRIVATE | {"start": {"ridge": 0.3, "rounds": 1, "pull": 1e6}})
    records = gradients(given, tables())
    exact = local_models(plan, records, np.arange(4), 3)[3]
    assert given.noise is not None
    assert plan.units is not None
    drawn = []
    for seed in range(300):
        source = NoiseSource.keyed(seed.to_bytes(32, "big"), b"start")
        running = propagated_models(
            PlainExchange(4), given.objective, plan, records, 3, given.bits, given.noise, source
        )
        drawn.append((asyncio.run(running)[3] - exact) / plan.units[3])
    expected = given.noise[3].mean_square(1, 0)
    assert abs(float(np.mean(np.square(drawn))) / expected - 1) < 0.29


def test_parties_that_send_messages_start_as_one_process_does() -> None:
    short = GIVEN | {"ticks": 10, "start": {"ridge": 0.3, "rounds": 30}}
    plain = simulate.learn(short, tables(), fidelity="plain")
    sent = simulate.learn(short, tables(), fidelity="machines", seed_for_simulation=1)
    np.testing.assert_allclose(sent.values, plain.values, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("change", "where", "check"),
    [
        ({"start": {"share": 1.0}}, "start.share", ConfigCheck.RANGE),
        ({"start": {"ridge": 0.0}}, "start.ridge", ConfigCheck.RANGE),
        ({"start": {"rounds": 0}}, "start.rounds", ConfigCheck.RANGE),
        ({"start": {"ridge": 1e-9}}, "start", ConfigCheck.INFEASIBLE),
        ({"sum_bound": 2.0}, "start", ConfigCheck.CONFLICT),
        (
            {
                "topology": "complete",
                "weights": [],
                "graph": {"alone": 20, "every": 10, "steps": 5, "peers": 2, "loss_bound": 2.0},
            },
            "start",
            ConfigCheck.CONFLICT,
        ),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], where: str, check: ConfigCheck) -> None:
    checked, issues = check_learn(PRIVATE | {"topology": "complete", "weights": []} | change, len(SIZES))
    assert checked is None
    assert (where, check) in {(issue.where, issue.check) for issue in issues}
