"""Gossip dual averaging as a learner: settings, data, grids of messages, the aggregator's part."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from smpc_dp.capabilities.learn import topology
from smpc_dp.capabilities.learn.averager import Boxes, Parties, PlainExchange, Rows
from smpc_dp.capabilities.learn.dual_averaging import dual_averaging, inverse_root
from smpc_dp.capabilities.learn.pair_descent import DualAveraging, DualAveragingReports, PairDescent
from smpc_dp.capabilities.learn.pairwise_losses import l1, logistic_auc, logistic_metric
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.capabilities.learn.schedule import EdgeClock
from smpc_dp.capabilities.learn.simulation.learning import learn
from smpc_dp.capabilities.pairs.kernels.fields import nearest_codes
from smpc_dp.errors import ConfigError
from tests.reference.learn_gossip_twin import objective

SETTINGS: dict[str, Any] = {"learner": "dual-averaging", "features": 2, "record_bound": 6.0, "ticks": 600}
REPORTS: dict[str, Any] = {
    "learner": "dual-averaging-reports",
    "features": 2,
    "lower": -4.0,
    "upper": 6.0,
    "bins": 5,
    "epsilon": 60.0,
    "ticks": 200,
}
RNG = np.random.default_rng(4)
LABELS = (np.arange(12) % 2) * 1.0
DATA = [np.append(RNG.normal(size=2) + np.array([1.5, 0]) * label, label)[None] for label in LABELS]
# A ring with a chord.
EDGES = [[party, (party + 1) % 12] for party in range(12)] + [[0, 5]]


@pytest.mark.parametrize("graph", ["ring", "complete", EDGES])
def test_grids_of_messages_hardly_matter(graph: object) -> None:
    settings = SETTINGS | {"topology": graph}
    plain, ideal = (learn(settings, DATA, fidelity=how, seed_for_simulation=1) for how in ("plain", "ideal"))
    np.testing.assert_allclose(plain.values, ideal.values, atol=1e-5)
    assert not np.array_equal(plain.values, ideal.values)
    assert plain.values.shape == (12, 2)
    assert plain.values[:, 0].min() > 0.2
    assert ideal.guarantee is None
    assert "NO PRIVACY between parties" in ideal.claim
    assert ideal.steps.sum() == 1_200


@pytest.mark.thin(3)
@pytest.mark.parametrize("clock", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("loss", ["auc", "metric"])
@pytest.mark.parametrize("settings", [SETTINGS, REPORTS], ids=["clear", "reports"])
def test_both_losses_are_learnt_by_both_clocks(settings: dict[str, Any], loss: str, clock: str) -> None:
    """At epsilon 60 a report lies with chance 1e-24: what is left is that records are cells."""
    given = settings | {"loss": loss, "clock": clock, "ticks": 200, "topology": EDGES}
    if loss == "metric":
        given["rate"] = 0.1
    result = learn(given, DATA, fidelity="plain", seed_for_simulation=1)
    judged = logistic_auc() if loss == "auc" else logistic_metric()
    records = np.concatenate(DATA)
    start = objective(judged, np.zeros((1, result.values.shape[1])), records)[0]
    assert objective(judged, result.values, records).mean() < 0.8 * start
    assert len(result.names) == result.values.shape[1] == (2 if loss == "auc" else 4)


def test_settings_are_those_of_the_algorithm() -> None:
    given = SETTINGS | {"clock": "synchronous", "ticks": 80, "seed": 7, "rate": 0.5, "regulariser": "l1"}
    result = learn(given | {"weight": 0.03, "topology": "ring"}, DATA, fidelity="plain")
    expected = asyncio.run(
        dual_averaging(
            PlainExchange(12),
            np.concatenate(DATA),
            logistic_auc().gradient,
            EdgeClock(topology.ring(12), 7),
            80,
            dimension=2,
            step_size=inverse_root(0.5),
            prox=l1(0.03),
        )
    )
    np.testing.assert_allclose(result.values, expected.final, atol=1e-8)


@pytest.mark.parametrize("labels", ["private", "public"])
def test_only_reports_are_sent(labels: str) -> None:
    """At epsilon 0.01 what is sent hardly tells the two records that there are."""
    sent: list[Rows] = []

    class Watched(PlainExchange):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            sent.append(vector.copy())
            return await super().exchange(vector, partner)

    learner = DualAveragingReports(
        features=1,
        lower=0.0,
        upper=1.0,
        bins=2,
        epsilon=0.01,
        ticks=12_000,
        labels="public" if labels == "public" else "private",
    )
    required = learner.requirements(1_000)
    assert required.exchange is not None
    assert required.own is not None
    data = [np.array([[0.0, 1.0]])] * 1_000
    result = asyncio.run(learner.run(LearnerContext(exchange=Watched(1_000)), data))
    cells = 2 if labels == "public" else 4
    answers = sent[0][:, 1]
    # Each answer with chance 1/cells, but for epsilon: within 6 deviations, 2e-9.
    assert abs(float(np.mean(answers == 0)) - 1 / cells) < 6 * np.sqrt(0.25 / 1_000) + 0.01
    assert answers.max() == cells - 1
    assert max(float(np.linalg.norm(rows, axis=1).max()) for rows in sent) <= required.exchange.l2_bound
    assert result.guarantee is not None
    assert result.guarantee.epsilon == pytest.approx(0.01)
    assert result.guarantee.delta == 0
    assert sent[0].shape[1] == required.exchange.length == (4 if labels == "public" else 3)


def test_cells_stand_for_their_records() -> None:
    learner = DualAveragingReports(features=2, lower=-1.0, upper=1.0, bins=4, epsilon=1.0, ticks=9, classes=2)
    records = np.random.default_rng(1).uniform(-1, 1, size=(50, 3))
    records[:, 2] = np.arange(50) % 2
    records[0, :2] = 1.0
    quantiser = learner.quantiser
    stand = quantiser.points()[quantiser.categorise(nearest_codes(quantiser.fields, records))]
    assert np.abs(stand[:, :2] - records[:, :2]).max() <= 0.25
    np.testing.assert_array_equal(stand[:, 2], records[:, 2])


def largest_message(settings: PairDescent, data: list[np.ndarray]) -> float:
    seen = []

    class Watched(PlainExchange):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            seen.append(np.linalg.norm(vector, axis=1).max())
            return await super().exchange(vector, partner)

    assert isinstance(settings, (DualAveraging, DualAveragingReports))
    asyncio.run(settings.run(LearnerContext(exchange=Watched(6)), data))
    return float(max(seen))


@pytest.mark.parametrize("clock", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("loss", ["auc", "metric"])
def test_no_message_exceeds_its_bound(loss: Any, clock: Any) -> None:
    """At the largest step sizes and records, within the bound that messages are planned for."""
    given: dict[str, Any] = {"features": 1, "ticks": 200, "topology": "ring", "rate": 100.0, "loss": loss}
    data = [np.array([[(-1.0) ** index, float(index % 2)]]) for index in range(6)]
    clear = DualAveraging(record_bound=1.0, clock=clock, **given)
    reports = DualAveragingReports(lower=-1.0, upper=1.0, bins=4, epsilon=0.5, clock=clock, **given)
    for settings, length in ((clear, 3), (reports, 3)):
        required = settings.requirements(6).exchange
        assert required is not None
        assert largest_message(settings, data) <= required.l2_bound
        assert required.length == length
        assert required.participations.sum() == 400


def test_the_hub_makes_the_same_calls_without_rows() -> None:
    partners: dict[str, list[list[int]]] = {"all": [], "hub": []}

    class Aggregator:
        parties, here, claim = 12, np.zeros(0, dtype=np.intp), "hub"

        def name_of(self, party: int) -> str:
            return f"party {party}"

        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            assert vector.shape == (0, 5)
            partners["hub"].append(partner.tolist())
            return vector

        async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
            raise NotImplementedError

        async def all_to_all(self, vectors: Boxes) -> Boxes:
            raise NotImplementedError

    class Everybody(PlainExchange):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            partners["all"].append(partner.tolist())
            return await super().exchange(vector, partner)

    learner = DualAveraging(features=2, record_bound=6.0, ticks=100)
    asyncio.run(learner.run(LearnerContext(exchange=Everybody(12)), DATA))
    result = asyncio.run(learner.run(LearnerContext(exchange=Aggregator()), []))
    assert partners["hub"] == partners["all"]
    assert result.values.shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"features": 0}, "features"),
        ({"ticks": 0}, "ticks"),
        ({"ticks": 3}, "ticks: 3 are too few: party"),
        ({"record_bound": -1.0}, "record_bound"),
        ({"topology": "star"}, "topology"),
        ({"topology": [[0, 1], [2, 3]]}, "topology: the graph is disconnected: 10 components"),
        ({"topology": [[0, 12]]}, "topology[0]: 0, 12 leads out of 0..11"),
        ({"topology": [[3, 3]]}, "topology[0]: 3, 3 is a loop"),
        ({"topology": [[0, 1, 2]]}, "topology"),
        ({"regulariser": "psd"}, "regulariser"),
        ({"classes": 3}, "classes"),
        ({"loss": "metric", "features": 2_000}, "features: 2000 are too many for a metric"),
        # Sums of up to 1e13 travel in 2^40 steps: labels would be lost.
        ({"ticks": 1_000_000, "record_bound": 1e6}, "records are rounded away"),
        ({"neighbours": 3}, "neighbours: unknown key"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, object], named: str) -> None:
    checked, faults = check_learn(SETTINGS | changes, 12)
    assert checked is None
    assert named in "; ".join(map(str, faults))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"bins": 16}, "bins: 16 for each of 2 features are more than 256 cells, labels counted"),
        ({"bins": 17, "labels": "public"}, "more than 256 cells"),
        ({"upper": -4.0}, "upper"),
        ({"epsilon": 1e-4, "ticks": 100_000}, "epsilon: 0.0001 is too small for 100000 ticks"),
        ({"ticks": 3}, "ticks: 3 are too few: party"),
        ({"topology": [[0, 1]]}, "topology: the graph is disconnected"),
    ],
)
def test_bad_settings_of_reports_are_refused(changes: dict[str, object], named: str) -> None:
    checked, faults = check_learn(REPORTS | changes, 12)
    assert checked is None
    assert named in "; ".join(map(str, faults))


def test_a_ring_needs_three_users() -> None:
    assert check_learn(SETTINGS | {"topology": "ring"}, 2)[1][0].where == "parties"


def test_divergence_names_rate_tick_and_bound() -> None:
    far = SETTINGS | {"regulariser": "none", "rate": 1e6, "record_bound": 1e6}
    data = [table * np.array([1e5, 1e5, 1.0]) for table in DATA]
    with pytest.raises(
        ConfigError, match=r"rate: the run diverges: theta of party \d+ exceeds 1e\+08 at tick \d"
    ):
        learn(far, data)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (np.zeros((2, 3)), "one record of 2 features"),
        (np.zeros((1, 2)), "one record of 2 features"),
        (np.array([[1.0, np.nan, 1.0]]), "not finite"),
        (np.array([[1.0, 2.0, 2.0]]), "label must be an integer from 0 to 1, is 2"),
        (np.array([[1.0, 2.0, np.nan]]), "the label is missing"),
        (np.array([[10.0, 2.0, 1.0]]), r"exceeds 6|outside \[-4, 6\]"),
    ],
)
@pytest.mark.parametrize("settings", [SETTINGS, REPORTS], ids=["clear", "reports"])
def test_bad_data_are_refused(settings: dict[str, Any], table: np.ndarray, named: str) -> None:
    with pytest.raises(ConfigError, match=f"party 3: .*({named})"):
        learn(settings, [*DATA[:3], table, *DATA[4:]], fidelity="plain")
