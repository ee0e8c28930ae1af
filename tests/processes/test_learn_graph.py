"""A learned graph between processes: the bits of the simulation, and one charge that covers the graph."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.capabilities.learn.simulation.learning import learn as simulated_learn
from smpc_dp.privacy.accountant.ledger import Ledger
from tests.command import smpc_dp
from tests.processes.learn_supply import create_ledgers
from tests.processes.test_learn_gossip import PARTIES, session

GRAPH: dict[str, Any] = {"alone": 8, "every": 5, "steps": 12, "peers": 2, "density": 0.3}
LINEAR: dict[str, Any] = {
    "learner": "personalized",
    "features": 2,
    "sizes": [5, 4, 0, 6],
    "ticks": 8,
    "record_bound": 2.0,
    "graph": GRAPH | {"loss_bound": 2.0},
    "seed": 2,
}
BOOSTED: dict[str, Any] = {
    "learner": "personalized-boosting",
    "features": 2,
    "sizes": [5, 4, 0, 6],
    "ticks": 8,
    "beta": 2.0,
    "stumps": 3,
    "graph": GRAPH,
    "seed": 2,
}
RNG = np.random.default_rng(1)
TABLES = [np.c_[RNG.uniform(-1, 1, (size, 2)), RNG.integers(0, 2, size)] for size in LINEAR["sizes"]]


@pytest.mark.long
@pytest.mark.parametrize("parameters", [LINEAR, BOOSTED], ids=["descent", "boosting"])
def test_processes_learn_the_graph_of_the_simulation(tmp_path: Path, parameters: dict[str, Any]) -> None:
    """Each party by itself learns its row of the same graph; the aggregator learns none."""
    path = session(tmp_path, parameters, TABLES)
    done = smpc_dp("run", str(path), "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["parties"]
    simulated = simulated_learn(parameters, TABLES, fidelity="ideal", seed_for_simulation=1)
    assert simulated.graph is not None
    assert simulated.graph.any()
    for party, name in enumerate(PARTIES):
        np.testing.assert_allclose(results[name]["values"][0], simulated.values[party], atol=1e-6, rtol=0)
        np.testing.assert_allclose(results[name]["graph"][0], simulated.graph[party], atol=1e-6, rtol=0)
        assert "NO PRIVACY" in results[name]["claim"]


@pytest.mark.thin(2)
@pytest.mark.parametrize("parameters", [BOOSTED, LINEAR], ids=["boosting", "descent"])
async def test_a_private_graph_is_charged_once_with_its_models(
    tmp_path: Path, parameters: dict[str, Any]
) -> None:
    path = session(tmp_path, parameters | {"epsilon": 2.0, "delta": 1e-6}, TABLES)
    create_ledgers(tmp_path, PARTIES, 2.0, 1e-6, "record")
    serving = asyncio.create_task(serve_learning(path))
    inputs = tmp_path / "inputs"
    results = await asyncio.gather(
        *(learn(path, name, inputs / f"{name}.npy", ledger=tmp_path / f"{name}.ledger") for name in PARTIES)
    )
    assert await serving == {}
    for name, result in zip(PARTIES, results, strict=True):
        assert isinstance(result, Learned)
        assert result.guarantee is not None
        assert (result.guarantee.protects, result.guarantee.epsilon) == ("record", 2.0)
        ledger = Ledger.open(tmp_path / f"{name}.ledger")
        assert len(ledger.entries()) == 1
        spent = ledger.spent().epsilon
        assert spent is not None
        assert 1.99 < spent <= 2.0
    rows = np.concatenate([result.graph for result in results if result.graph is not None])
    np.testing.assert_allclose(rows, rows.T, atol=1e-12, rtol=0)
