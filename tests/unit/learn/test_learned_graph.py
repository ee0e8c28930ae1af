"""A graph that is learned with the models: the procedure step by step, private losses, traffic, refusals."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.learn.alternating import Alternation, release_shares
from smpc_dp.capabilities.learn.averager import Boxes, PlainExchange, Rows
from smpc_dp.capabilities.learn.boosting import PersonalizedBoosting, _Run, loss_sensitivity
from smpc_dp.capabilities.learn.graph_descent import GraphObjective, descend_graph, draw_steps
from smpc_dp.capabilities.learn.learned_graph import LearnedGraph
from smpc_dp.capabilities.learn.models import RecordGradients
from smpc_dp.capabilities.learn.personalized import Personalized
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.record_gradients import GradientNoise
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]

# Two clusters of four tasks, and one party without records.
TASKS = np.array([[1.0, 0.3], [-1.0, 0.5]])[[0, 0, 0, 0, 1, 1, 1, 1]]
SIZES = [40, 60, 0, 80, 50, 70, 30, 60]
GRAPH: dict[str, Any] = {"alone": 48, "every": 30, "steps": 60, "peers": 3, "density": 0.1}
GIVEN: dict[str, Any] = {
    "learner": "personalized",
    "features": 2,
    "sizes": SIZES,
    "ticks": 70,
    "record_bound": 1.0,
    "coupling": 0.5,
    "graph": GRAPH | {"loss_bound": 2.0},
}
PRIVATE = GIVEN | {"epsilon": 3.0, "delta": 1e-6}
BOOSTED: dict[str, Any] = {
    "learner": "personalized-boosting",
    "features": 2,
    "sizes": SIZES,
    "ticks": 70,
    "beta": 2.0,
    "stumps": 3,
    "graph": GRAPH,
}
PRIVATE_BOOSTED = BOOSTED | {"epsilon": 3.0, "delta": 1e-6}


def tables() -> list[Floats]:
    rng = np.random.default_rng(7)
    drawn = [rng.uniform(-0.7, 0.7, (size, 2)) for size in SIZES]
    return [np.c_[x, x @ task > 0] for x, task in zip(drawn, TASKS, strict=True)]


def learner(change: dict[str, Any]) -> Any:
    checked, issues = check_learn(change, len(SIZES))
    assert not issues
    assert checked is not None
    return checked.learner


def test_the_procedure_is_that_of_the_thesis_step_by_step() -> None:
    """Algorithm 2.1 written out in dense loops: local models, graphs, and (2.3) with the graph so far."""
    data, settings, n = tables(), learner(GIVEN), len(SIZES)
    objective, models, w = settings.objective, np.zeros((n, 3)), np.zeros((n, n))
    confidence, draws = np.maximum(SIZES, 1) / max(SIZES), PublicDraws(1, 1)

    def loss(u: int) -> float:
        if not SIZES[u]:
            return 0.0
        scores = np.c_[data[u][:, :2], np.ones(SIZES[u])] @ models[u]
        each = np.log1p(np.exp(-(2 * data[u][:, 2] - 1) * scores))
        return float(np.minimum(each, 2.0).mean())

    for number, u in enumerate(settings.wakes.tolist()):
        if number in (48, 78, 108):
            costs = np.zeros((n, n))
            for a in range(n):
                for b in range(n):
                    costs[a, b] = confidence[a] * loss(a) + confidence[b] * loss(b)
                    costs[a, b] += 0.5 / 2 * ((models[a] - models[b]) ** 2).sum()
            of = GraphObjective(costs, 0.5, 0.1)
            w = descend_graph(of, w if w.any() else of.uniform(), draw_steps(draws, n, 3, 60))
        m, c = SIZES[u], confidence[u]
        x = np.c_[data[u][:, :2], np.ones(m)]
        slope = 2 / max(m, 1) * models[u]
        if m:
            slope = slope + x.T @ (1 / (1 + np.exp(-x @ models[u])) - data[u][:, 2]) / m
        alpha = 0.5 / (0.5 + c * (objective.smoothness + 2 / max(m, 1)))
        near = w[u] @ models / w[u].sum() if w[u].any() else models[u]
        models[u] = (1 - alpha) * models[u] + alpha * (near - c / 0.5 * slope)
    learned = simulate.learn(GIVEN, data, fidelity="plain")
    np.testing.assert_allclose(learned.values, models, atol=1e-5, rtol=0)
    assert learned.graph is not None
    np.testing.assert_allclose(learned.graph, w, atol=1e-4, rtol=0)
    # The party without records is not counted: its loss says nothing.
    counted = np.array(SIZES) > 0
    own = np.repeat([0, 1], 4)
    shown = learned.graph[np.ix_(counted, counted)]
    assert shown[own[counted][:, None] == own[counted]].sum() > 0.9 * shown.sum()


@pytest.mark.thin(2)
@pytest.mark.parametrize("parameters", [GIVEN, PRIVATE, BOOSTED, PRIVATE_BOOSTED])
def test_parties_that_send_messages_learn_what_one_process_does(parameters: dict[str, Any]) -> None:
    short = {"ticks": 20, "graph": parameters["graph"] | {"alone": 24, "every": 10}}
    parameters = parameters | short
    private = "epsilon" in parameters
    plain = simulate.learn(parameters, tables(), fidelity="plain", seed_for_simulation=1)
    sent = simulate.learn(parameters, tables(), fidelity="machines", seed_for_simulation=1)
    assert sent.graph is not None
    assert plain.graph is not None
    # Each party has its row of one symmetric matrix.
    np.testing.assert_allclose(sent.graph, sent.graph.T, atol=1e-9, rtol=0)
    if not private:
        np.testing.assert_allclose(sent.values, plain.values, atol=1e-6, rtol=0)
        np.testing.assert_allclose(sent.graph, plain.graph, atol=1e-6, rtol=0)
    assert sent.steps.tolist() == plain.steps.tolist()
    assert sent.guarantee == plain.guarantee


class Recorder(PlainExchange):
    """Records who sends to whom."""

    def __init__(self, parties: int) -> None:
        super().__init__(parties)
        self.edges: list[object] = []

    async def mix(self, vector: Rows, weights: Any) -> Rows:
        self.edges.append(sorted(zip(*(ends.tolist() for ends in weights.nonzero()), strict=True)))
        return await super().mix(vector, weights)

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        self.edges.append("all")
        return await super().all_to_all(vectors)


@pytest.mark.parametrize("parameters", [GIVEN, BOOSTED])
def test_who_sends_to_whom_does_not_depend_on_the_data(parameters: dict[str, Any]) -> None:
    seen = []
    for data in (tables(), [np.abs(table) for table in tables()]):
        exchange = Recorder(len(SIZES))
        asyncio.run(learner(parameters).run(LearnerContext(exchange=exchange), data))
        seen.append(exchange.edges)
    assert seen[0] == seen[1]
    assert seen[0].count("all") == 3


def test_all_releases_cost_the_whole_budget_and_no_more() -> None:
    settings = learner(PRIVATE)
    assert isinstance(settings, Personalized)
    event = settings.requirements(len(SIZES)).own
    assert event is not None
    assert event.unit == "record"
    assert 2.99 < Composition([event]).epsilon(1e-6) <= 3.0
    assert settings.noise is not None
    assert settings.graph is not None
    counts = np.bincount(settings.wakes, minlength=len(SIZES))
    shares = release_shares(settings.graph, settings.wakes, len(SIZES))
    for party, (noise, planned) in enumerate(zip(settings.noise, shares, strict=True)):
        assert isinstance(noise, GradientNoise)
        # Three losses beside its models.
        assert len(noise.variances) == len(planned) == counts[party] + 3
        assert sum(planned) == pytest.approx(1.0)
        spent = sum((2 * noise.bound) ** 2 / float(variance) for variance in noise.variances)
        assert 0.999 * noise.mu**2 < spent <= noise.mu**2


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0.1, 5.0), st.integers(1, 1 << 16))
def test_one_record_moves_the_sum_of_losses_by_the_steps_at_most(
    seed: int, records: int, bound: float, steps: int
) -> None:
    """So a mean of clipped losses moves by at most bound/m, on the grid too."""
    rng, settings = np.random.default_rng(seed), learner(GIVEN)
    table = np.c_[rng.uniform(-1, 1, (records, 2)), rng.integers(0, 2, records)]
    other = table.copy()
    other[0] = [*rng.uniform(-1, 1, 2), rng.integers(0, 2)]
    model, sums = 10 ** rng.uniform(-1, 3) * rng.normal(size=(1, 3)), []
    for one in (table, other):
        taken = RecordGradients(settings.loss, settings.loss.points([one]), 1.0)
        sums.append(int(taken.sum_losses(model, np.array([0]), bound, steps)[0]))
    assert abs(sums[0] - sums[1]) <= steps
    assert min(sums) >= 0
    assert max(sums) <= records * steps


async def test_a_loss_has_the_planned_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 releases of one loss beside the exact one; chi-squared, six standard deviations; seed fixed."""
    settings, data, seen = learner(PRIVATE), tables(), []

    class Catcher(PlainExchange):
        async def all_to_all(self, vectors: Boxes) -> Boxes:
            seen.append(vectors[:, 0, 0])
            return await super().all_to_all(vectors)

    noise = settings.noise
    monkeypatch.setattr(LearnedGraph, "learn", lambda *_: None)
    for number in range(600):
        run = Alternation(
            Catcher(len(SIZES)),
            settings.objective,
            RecordGradients(settings.loss, settings.loss.points(data), settings.reach),
            LearnedGraph(settings.graph, settings.objective.confidence, 0.5, 1),
            length=3,
            bits=settings.bits,
            bound=2.0,
            noise=noise,
            source=NoiseSource.keyed(number.to_bytes(32, "big"), b"test"),
        )
        await run._learn_graph()
    values = np.ldexp(np.array(seen), settings.bits)
    # A party without records has a loss of 0, and nothing to hide.
    assert not values[:, 2].any()
    exact = np.floor(np.log(2) / 2 * 2 * noise[3].bound) * SIZES[3]
    # The first release: of zero models each record has the loss log 2.
    variance = float(np.mean((values[:, 3] - exact) ** 2)) / float(noise[3].variances[0])
    assert abs(variance - 1) < 6 * (2 / 600) ** 0.5


def test_a_private_graph_finds_the_clusters_of_large_tables() -> None:
    rng = np.random.default_rng(2)
    drawn = rng.uniform(-0.7, 0.7, (8, 400, 2))
    data = [np.c_[x, x @ task > 0] for x, task in zip(drawn, TASKS, strict=True)]
    change = {"sizes": [400] * 8, "ticks": 160, "epsilon": 4.0, "delta": 1e-6}
    change["graph"] = GIVEN["graph"] | {"alone": 80, "every": 40, "steps": 200}
    learned = simulate.learn(GIVEN | change, data, fidelity="plain", seed_for_simulation=1)
    own = np.repeat([0, 1], 4)
    assert learned.graph is not None
    assert learned.graph[own[:, None] == own].sum() > 0.95 * learned.graph.sum()
    assert learned.guarantee is not None
    assert learned.guarantee.protects == "record"
    assert "or losses" in learned.guarantee.mechanism


def test_choices_and_losses_of_boosting_cost_the_whole_budget_and_no_more() -> None:
    settings = learner(PRIVATE_BOOSTED)
    assert isinstance(settings, PersonalizedBoosting)
    required = settings.requirements(len(SIZES))
    assert required.own_by_party is not None
    assert required.exchange is not None
    counts = np.bincount(settings.wakes, minlength=len(SIZES))
    # Three losses beside its choices.
    assert required.exchange.participations.tolist() == (counts + 3).tolist()
    assert settings.plans is not None
    for event, plan, count in zip(required.own_by_party, settings.plans, counts, strict=True):
        assert 2.99 < Composition([event]).epsilon(1e-6) <= 3.0
        assert (plan.choices, plan.values) == (count, 3)
        assert plan.choices * plan.each**2 / 8 == pytest.approx(0.9 * plan.rho)
        assert plan.rho == pytest.approx(settings.plans[0].rho)
    assert settings.guarantee is not None
    assert "discrete Gaussian noise on 3 losses" in settings.guarantee.mechanism


@given(st.integers(0, 2**32), st.sampled_from([0.2, 1.0, 3.0]))
def test_one_record_moves_a_loss_of_boosting_by_the_planned_steps_at_most(seed: int, beta: float) -> None:
    rng, settings = np.random.default_rng(seed), learner(PRIVATE_BOOSTED | {"beta": beta})
    party = int(rng.choice([0, 1, 7]))
    data = [np.c_[rng.uniform(-1, 1, (size, 2)), rng.integers(0, 2, size)] for size in SIZES]
    other = [table.copy() for table in data]
    other[party][0] = [*rng.uniform(-1, 1, 2), rng.integers(0, 2)]
    model, steps = rng.normal(size=6) * rng.integers(0, 2, 6), []
    model *= beta / max(np.abs(model).sum(), 1e-9)
    bits, sensitivity = settings.loss_grid(party)
    for one in (data, other):
        run = _Run(settings, PlainExchange(8), one, NoiseSource.system())
        run.models[party] = model
        steps.append(round(np.ldexp(run._loss(party, party), bits)))
    assert abs(steps[0] - steps[1]) <= sensitivity
    assert sensitivity <= 1.001 * np.ldexp(loss_sensitivity(SIZES[party], beta), bits)


async def test_a_loss_of_boosting_is_sent_with_the_planned_noise() -> None:
    """600 losses beside the exact one; chi-squared, six standard deviations; the seed is fixed."""
    settings, data, seen = learner(PRIVATE_BOOSTED), tables(), []

    class Catcher(PlainExchange):
        async def all_to_all(self, vectors: Boxes) -> Boxes:
            seen.append(vectors[:, 0, 0])
            return await super().all_to_all(vectors)

    run = _Run(settings, Catcher(len(SIZES)), data, NoiseSource.keyed(bytes(32), b"test"))
    run.models[:, 0] = 0.7
    with patch.object(LearnedGraph, "learn"):
        for _ in range(600):
            await run.learn_graph()
    bits, sensitivity = settings.loss_grid(3)
    values = np.ldexp(np.array(seen), 16)
    assert not values[:, 2].any()
    exact = np.ldexp(np.log(np.exp(-0.7 * settings.margins(data[3])[:, 0]).sum()), bits)
    assert settings.plans is not None
    planned = sensitivity**2 / (2 * settings.plans[3].each_value)
    assert abs(np.mean((values[:, 3] - exact) ** 2) / planned - 1) < 6 * (2 / 600) ** 0.5


def test_a_private_graph_of_boosting_finds_the_clusters_of_large_tables() -> None:
    """Equal weights would have 3/7 within the clusters."""
    rng = np.random.default_rng(2)
    drawn = rng.uniform(-1, 1, (8, 2_000, 2))
    data = [np.c_[x, x @ task > 0] for x, task in zip(drawn, TASKS, strict=True)]
    change = {"sizes": [2_000] * 8, "ticks": 40, "epsilon": 4.0, "coupling": 1.0}
    change["graph"] = GRAPH | {"alone": 40, "every": 20, "steps": 200}
    learned = simulate.learn(PRIVATE_BOOSTED | change, data, fidelity="plain", seed_for_simulation=1)
    own = np.repeat([0, 1], 4)
    assert learned.graph is not None
    assert learned.graph[own[:, None] == own].sum() > 0.7 * learned.graph.sum()


@pytest.mark.parametrize(
    ("given", "change", "where"),
    [
        (GIVEN, {"topology": "ring"}, "topology"),
        (GIVEN, {"topology": [[0, 1], [1, 2]], "weights": [1.0, 2.0]}, "weights"),
        (GIVEN, {"graph": GRAPH}, "graph.loss_bound"),
        (GIVEN, {"graph": GIVEN["graph"] | {"peers": 8}}, "graph.peers"),
        (GIVEN, {"graph": GIVEN["graph"] | {"density": 0.0}}, "graph.density"),
        (GIVEN, {"graph": {"every": 3}}, "graph.steps"),
        (GIVEN, {"graph": GIVEN["graph"] | {"regulariser": "cube"}}, "graph.regulariser"),
        (GIVEN, {"features": 10_000, "sizes": [5] * 200, "ticks": 4_000}, "graph"),
        (PRIVATE, {"split": "late"}, "split"),
        (BOOSTED, {"graph": GIVEN["graph"]}, "graph.loss_bound"),
        (BOOSTED, {"epsilon": 1e-9, "delta": 1e-6}, "epsilon"),
    ],
)
def test_bad_settings_are_named(given: dict[str, Any], change: dict[str, Any], where: str) -> None:
    parameters = given | change
    checked, issues = check_learn(parameters, len(parameters["sizes"]))
    assert checked is None
    assert where in {issue.where for issue in issues}
