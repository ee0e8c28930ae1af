"""The registered gossip learner: settings, data, and the hub's part without rows."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from smpc_dp.errors import ConfigError
from smpc_dp.learn.averager import Boxes, PlainExchange, Rows, Users
from smpc_dp.learn.gossip_auc import GossipAuc
from smpc_dp.learn.needs import Means
from smpc_dp.learn.registry import check_learn
from smpc_dp.simulate.learning import learn

SETTINGS: dict[str, Any] = {"learner": "gossip-auc", "features": 2, "record_bound": 6.0, "ticks": 600}
RNG = np.random.default_rng(4)
LABELS = (np.arange(12) % 2) * 1.0
DATA = [np.append(RNG.normal(size=2) + np.array([1.5, 0]) * label, label)[None] for label in LABELS]


@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_grids_of_messages_hardly_matter(graph: str) -> None:
    settings = SETTINGS | {"topology": graph}
    plain, ideal = (learn(settings, DATA, fidelity=how, seed_for_simulation=1) for how in ("plain", "ideal"))
    np.testing.assert_allclose(plain.values, ideal.values, atol=1e-5)
    assert not np.array_equal(plain.values, ideal.values)
    assert plain.values.shape == (12, 2)
    assert plain.values[:, 0].min() > 0.2
    assert ideal.guarantee is None
    assert "NO PRIVACY between users" in ideal.claim
    assert ideal.steps.sum() == 1_200


@pytest.mark.parametrize("error", [1e-9, -1e-9])
def test_labels_that_were_rounded_on_their_way_stay_labels(error: float) -> None:
    class Rounding(PlainExchange):
        async def exchange(self, vector: Rows, partner: Users) -> Rows:
            received = await super().exchange(vector, partner)
            met = partner != np.arange(self.users)
            received[met] *= 1 + error
            return received

    learner = GossipAuc(features=2, record_bound=6.0, ticks=300)
    rounded = asyncio.run(learner.run(Means(exchange=Rounding(12)), DATA))
    exact = asyncio.run(learner.run(Means(exchange=PlainExchange(12)), DATA))
    np.testing.assert_allclose(rounded.values, exact.values, atol=1e-6)


def test_no_message_exceeds_its_bound() -> None:
    """At the largest step sizes and records, within the bound that messages are planned for."""
    settings = GossipAuc(features=1, record_bound=1.0, ticks=200, topology="ring", rate=100.0, radius=50.0)
    need = settings.needs(6).exchange
    assert need is not None
    seen = []

    class Watched(PlainExchange):
        async def exchange(self, vector: Rows, partner: Users) -> Rows:
            seen.append(np.linalg.norm(vector, axis=1).max())
            return await super().exchange(vector, partner)

    data = [np.array([[(-1.0) ** place, float(place % 2)]]) for place in range(6)]
    asyncio.run(settings.run(Means(exchange=Watched(6)), data))
    assert max(seen) <= need.l2_bound
    assert need.length == 3
    assert need.participations.sum() == 400


def test_the_hub_makes_the_same_calls_without_rows() -> None:
    partners: dict[str, list[list[int]]] = {"all": [], "hub": []}

    class Hub:
        users, here, claim = 12, np.zeros(0, dtype=np.intp), "hub"

        async def exchange(self, vector: Rows, partner: Users) -> Rows:
            assert vector.shape == (0, 5)
            partners["hub"].append(partner.tolist())
            return vector

        async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
            raise NotImplementedError

        async def all_to_all(self, vectors: Boxes) -> Boxes:
            raise NotImplementedError

    class Everybody(PlainExchange):
        async def exchange(self, vector: Rows, partner: Users) -> Rows:
            partners["all"].append(partner.tolist())
            return await super().exchange(vector, partner)

    learner = GossipAuc(features=2, record_bound=6.0, ticks=100)
    asyncio.run(learner.run(Means(exchange=Everybody(12)), DATA))
    found = asyncio.run(learner.run(Means(exchange=Hub()), []))
    assert partners["hub"] == partners["all"]
    assert found.values.shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"features": 0}, "features"),
        ({"ticks": 0}, "ticks"),
        ({"record_bound": -1.0}, "record_bound"),
        ({"topology": "star"}, "topology"),
        # Sums of up to 1e13 travel in 2^40 steps: labels would be lost.
        ({"ticks": 1_000_000, "record_bound": 1e6}, "records are rounded away"),
        ({"neighbours": 3}, "neighbours: unknown key"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, object], named: str) -> None:
    checked, faults = check_learn(SETTINGS | changes, 12)
    assert checked is None
    assert named in "; ".join(map(str, faults))


def test_a_ring_needs_three_users() -> None:
    assert check_learn(SETTINGS | {"topology": "ring"}, 2)[1][0].where == "users"


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (np.zeros((2, 3)), "one record of 2 features"),
        (np.zeros((1, 2)), "one record of 2 features"),
        (np.array([[1.0, np.nan, 1.0]]), "not finite"),
        (np.array([[1.0, 2.0, 2.0]]), "label must be 0 or 1"),
        (np.array([[10.0, 2.0, 1.0]]), "exceeds 6"),
    ],
)
def test_bad_data_are_refused(table: np.ndarray, named: str) -> None:
    with pytest.raises(ConfigError, match=f"user 3: .*{named}"):
        learn(SETTINGS, [*DATA[:3], table, *DATA[4:]], fidelity="plain")
