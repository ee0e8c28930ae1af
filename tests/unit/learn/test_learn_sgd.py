"""Gradient descent over groups: schedule, gradients, a learner against a loop, what is refused."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import Averaged, Groups, PlainAverager, Rows
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.models import Model, clip_rows
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.cli import app
from smpc_dp.errors import Check, ConfigError, VerificationError

RNG = np.random.default_rng(4)
FEATURES = RNG.normal(size=(60, 3))
LABELS = (FEATURES @ [1.0, -2.0, 0.5] > 0).astype(float)
DATA = [np.column_stack([FEATURES, LABELS])[party::6] for party in range(6)]
GIVEN: dict[str, object] = {
    "learner": "block-gossip",
    "features": 3,
    "steps": 12,
    "group": 3,
    "epsilon": 2.0,
    "delta": 1e-5,
    "seed": 5,
}


def faults_of(change: dict[str, object], parties: int = 6) -> dict[str, str]:
    given = {key: value for key, value in (GIVEN | change).items() if value is not None}
    checked, faults = check_learn(given, parties)
    assert (checked is None) == bool(faults)
    return {fault.where: fault.reason for fault in faults}


@pytest.mark.parametrize(("parties", "size", "steps"), [(12, 4, 30), (10, 3, 17), (7, 7, 4)])
def test_groups_share_out_the_steps(parties: int, size: int, steps: int) -> None:
    draws = GroupDraws(parties, size, 3)
    groups = draws.draw(steps)
    assert groups.shape == (steps, size)
    assert all(len(set(group)) == size for group in groups.tolist())
    each = parties // size
    for first in range(0, steps - each + 1, each):
        together = groups[first : first + each].ravel()
        assert len(set(together.tolist())) == len(together)
    assert draws.participations(steps).sum() == steps * size
    np.testing.assert_array_equal(draws.draw(5), groups[:5] if steps >= 5 else draws.draw(5))
    assert (GroupDraws(parties, size, 4).draw(steps) != groups).any() or size == parties


def test_the_schedule_is_pinned() -> None:
    """Processes of different versions must draw the same groups from one seed."""
    np.testing.assert_array_equal(GroupDraws(6, 3, 5).draw(4), [[2, 3, 4], [0, 1, 5], [2, 4, 5], [0, 1, 3]])


@pytest.mark.parametrize("kind", ["logistic", "softmax", "linear"])
def test_gradients_are_those_of_the_loss(kind: str) -> None:
    model = Model(kind, 3, 2)  # type: ignore[arg-type]
    points = model.points([DATA[0], DATA[1][:4]])
    weights = np.random.default_rng(1).normal(size=(2, model.length))

    def loss(weights: np.ndarray) -> np.ndarray:
        scores = model.scores(weights, points.features)
        if kind == "linear":
            each = (scores - points.labels) ** 2 / 2
        elif kind == "logistic":
            each = np.logaddexp(0, scores) - points.labels * scores
        else:
            label = points.labels.astype(int)[..., None]
            each = np.log(np.exp(scores).sum(axis=-1)) - np.take_along_axis(scores, label, -1)[..., 0]
        return np.asarray((each * points.share).sum(axis=1))

    result = model.gradient(weights, points, np.arange(2))
    for index in range(model.length):
        moved = np.zeros(model.length)
        moved[index] = 1e-6
        slope = (loss(weights + moved) - loss(weights - moved)) / 2e-6
        np.testing.assert_allclose(result[:, index], slope, atol=1e-7)


def test_clipping_keeps_direction_and_short_vectors() -> None:
    vectors = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped = clip_rows(vectors, 1.0)
    np.testing.assert_allclose(clipped, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    assert np.linalg.norm(clipped, axis=1).max() <= 1.0


def test_exact_block_gossip_is_the_loop() -> None:
    model, result = Model("logistic", 3), simulate.learn(GIVEN | {"ridge": 0.1}, DATA, fidelity="plain")
    weights = np.zeros((6, 4))
    points = model.points(DATA)
    for group in GroupDraws(6, 3, 5).draw(12):
        start = weights[group].mean(axis=0)
        gradients = model.gradient(np.tile(start, (3, 1)), points, group)
        clipped = [one * min(1, 1 / np.linalg.norm(one)) for one in gradients]
        weights[group] = start - 0.5 * (np.mean(clipped, axis=0) + 0.1 * start)
    np.testing.assert_allclose(result.values, weights, atol=1e-3)
    np.testing.assert_array_equal(result.done, [6] * 6)
    assert result.guarantee is None
    assert "NO PRIVACY" in result.claim


@pytest.mark.parametrize("averager", [{"method": "secagg"}, {"method": "gopa"}, {"method": "local"}])
def test_machines_and_ideal_learn_alike_where_noise_is_small(averager: dict[str, object]) -> None:
    given = GIVEN | {"epsilon": 900.0, "steps": 4, "averager": averager}
    machines = simulate.learn(given, DATA, fidelity="machines", seed_for_simulation=1)
    ideal = simulate.learn(given, DATA, fidelity="ideal", seed_for_simulation=1)
    plain = simulate.learn(given, DATA, fidelity="plain")
    np.testing.assert_allclose(machines.values, plain.values, atol=0.6)
    np.testing.assert_allclose(ideal.values, plain.values, atol=0.6)
    assert ideal.guarantee == machines.guarantee
    assert ideal.guarantee is not None
    assert (ideal.guarantee.epsilon, ideal.guarantee.delta) == (900.0, 1e-5)


def test_federated_descent_keeps_one_model() -> None:
    given = {key: value for key, value in GIVEN.items() if key != "group"} | {"learner": "sgd"}
    result = simulate.learn(given, DATA, seed_for_simulation=2)
    np.testing.assert_array_equal(result.values, np.tile(result.values[0], (6, 1)))
    np.testing.assert_array_equal(result.done, [12] * 6)


def test_descent_learns() -> None:
    given = GIVEN | {"learner": "sgd", "epsilon": 500.0, "steps": 30, "rate": 2.0}
    del given["group"]
    result = simulate.learn(given, DATA, seed_for_simulation=3)
    assert Model("logistic", 3).accuracy(result.values[0], np.concatenate(DATA)) > 0.9


class Lied(PlainAverager):
    """The group's second average fails as it does when a member sends what no vector explains."""

    calls = 0

    async def average(
        self, vector: Rows, weight: np.ndarray | None = None, group: Groups | None = None
    ) -> Averaged:
        self.calls += 1
        if self.calls == 2:
            raise VerificationError(
                "no 3 vectors within the bounds have this sum: somebody lies", Check.OUT_OF_BOUNDS
            )
        return await super().average(vector, weight, group)


def test_a_sum_that_nothing_explains_costs_a_step_and_not_the_run() -> None:
    checked, _ = check_learn(GIVEN, 6)
    assert checked is not None
    result = asyncio.run(checked.learner.run(LearnerContext(Lied(6), PlainAverager(6)), DATA))
    assert (result.steps - result.done).sum() == 3
    assert result.failures == ("no 3 vectors within the bounds have this sum: somebody lies",)


def test_a_rate_that_diverges_is_stopped() -> None:
    given = GIVEN | {"model": "linear", "rate": 1000.0, "radius": 50.0}
    with pytest.raises(ConfigError, match=r"rate: 1000 diverges: a coordinate .* beyond 50 in step"):
        simulate.learn(given, DATA, seed_for_simulation=1)
    assert "below 2" in faults_of({"rate": 3.0, "ridge": 1.0})["rate"]


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        ({"learner": "sdg"}, "learner", "known: sgd"),
        ({"learner": None}, "learner", "missing"),
        ({"features": None}, "features", "missing"),
        ({"colour": 1}, "colour", "unknown"),
        ({"epsilon": -1.0}, "epsilon", "above 0"),
        ({"delta": 1}, "delta", "above 0 and below 1"),
        ({"group": 7}, "group", "6 parties"),
        ({"averager": 3}, "averager", "table"),
        ({"averager": {"method": "magic"}}, "averager.method", "magic"),
        ({"averager": {"method": "mpyc", "missing": 2}}, "averager.missing", "must leave 2"),
        ({"averager": {"method": "mpyc"}, "epsilon": 21.0}, "epsilon", "at most 20 with averages on shares"),
        ({"weights": "points"}, "max_points", "above 0"),
        ({"max_points": 5}, "max_points", "for that alone"),
        ({"averager": {"method": "gopa", "verifiable": True}, "epsilon": 0.1}, "epsilon", "fewer steps"),
        ({"averager": {"colluders": 3}}, "averager.colluders", "no honest"),
        ({"averager": {"colluders": 2}}, "averager.method", "'local'"),
        ({"averager": {"method": "pair"}}, "averager.method", "groups of 2"),
        ({"averager": {"secret": 1}}, "averager.secret", "unknown"),
    ],
)
def test_bad_settings_are_refused_by_key(change: dict[str, object], key: str, reason: str) -> None:
    assert reason in faults_of(change)[key]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (np.zeros((3, 3)), "has 3 columns, needs 3 features and a label"),
        (np.full((2, 4), [0, 0, 0, np.nan]), "the label of point 0 is missing"),
        (np.full((2, 4), [0, np.inf, 0, 1]), "a feature of point 0 is not finite"),
        (np.full((2, 4), [0, 0, 0, 2.0]), "must be an integer from 0 to 1"),
        (np.zeros((0, 4)), "has no points"),
        (np.full((2, 4), [0, 1e200, 0, 1]), "a feature of point 0 is not finite, or beyond 1e+50"),
    ],
)
def test_bad_data_are_refused_by_user(table: np.ndarray, reason: str) -> None:
    with pytest.raises(ConfigError, match="party 2") as caught:
        simulate.learn(GIVEN, [*DATA[:2], table, *DATA[3:]])
    assert reason in str(caught.value)


@pytest.mark.long
def test_local_scale_goes_from_local_to_curator(tmp_path: object) -> None:
    """At epsilon 8 one secure group of all is far ahead of local DP; the curator's noise is the least."""
    arguments = "reproduce local-scale --json --parties 12 --size 2 --size 4 --size 12 --participations 6"
    run = CliRunner().invoke(app, [*arguments.split(), "--repetitions", "3", "--epsilon", "8", "--rate", "1"])
    assert run.exit_code == 0, run.output
    result = json.loads(run.output)
    noise = {(point["kind"], point["size"]): point["noise"] for point in result["points"]}
    # sigma sqrt(s / (s - c)) / s, with sigma that of a curator for the sum.
    sigma = noise["curator", 12] * 12
    assert noise["local", 2] == pytest.approx(sigma / np.sqrt(2), rel=0.01)
    assert noise["secagg", 4] == pytest.approx(sigma * np.sqrt(4 / 3) / 4, rel=0.01)
    assert noise["secagg", 12] == pytest.approx(sigma * np.sqrt(12 / 11) / 12, rel=0.01)
    accuracy = {(point["kind"], point["size"]): point["accuracy"] for point in result["points"]}
    assert accuracy["secagg", 12] > accuracy["local", 2] + 0.05
    assert [point["steps"] for point in result["points"]] == [36, 36, 18, 18, 6, 6, 6]


def test_local_scale_wants_divisors() -> None:
    run = CliRunner().invoke(app, ["reproduce", "local-scale", "--json", "--parties", "12", "--size", "5"])
    assert isinstance(run.exception, ConfigError)
    assert "5 does not divide 12" in str(run.exception)
