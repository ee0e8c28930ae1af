"""A private start between processes: noisy local models, propagated, and one charge for all releases."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.simulation.learning import learn as simulated_learn
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.record_gradients import GradientNoise
from smpc_dp.privacy.sampling import NoiseSource
from tests.command import smpc_dp
from tests.processes.learn_supply import create_ledgers
from tests.processes.test_learn_diffusion import everybody_in
from tests.processes.test_learn_gossip import EDGES, PARTIES, session

SIZES = [50, 40, 0, 60]
STARTED: dict[str, Any] = {
    "learner": "personalized",
    "features": 2,
    "sizes": SIZES,
    "ticks": 8,
    "record_bound": 2.0,
    "topology": EDGES,
    "start": {"share": 0.4, "ridge": 0.5, "rounds": 3},
    "seed": 2,
}
PRIVATE = STARTED | {"epsilon": 2.0, "delta": 1e-6}
RNG = np.random.default_rng(1)
TABLES = [np.c_[RNG.uniform(-1, 1, (size, 2)), RNG.integers(0, 2, size)] for size in SIZES]


def started_at_zero(parameters: dict[str, Any]) -> np.ndarray:
    without = {name: value for name, value in parameters.items() if name != "start"}
    return simulated_learn(without, TABLES, fidelity="ideal", seed_for_simulation=1).values


def test_sockets_start_from_the_models_of_the_simulation(tmp_path: Path) -> None:
    path = session(tmp_path, STARTED, TABLES)
    results, failures = asyncio.run(everybody_in(path, names=PARTIES))
    assert failures == {}
    simulated = simulated_learn(STARTED, TABLES, fidelity="ideal", seed_for_simulation=1)
    for party, result in enumerate(results):
        np.testing.assert_array_equal(result.values[0], simulated.values[party])
    assert np.abs(simulated.values - started_at_zero(STARTED)).max() > 0.01


def check_charges(folder: Path) -> None:
    """Check that each party paid once, for its local model and its updates together."""
    for name in PARTIES:
        ledger = Ledger.open(folder / f"{name}.ledger")
        [entry] = ledger.entries()
        assert "local models" in entry.event.mechanism
        spent = ledger.spent().epsilon
        assert spent is not None
        assert 1.99 < spent <= 2.0


def test_equal_noise_gives_equal_bits_and_its_first_draw_is_of_the_local_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise of the planned deviation, a function of the release and of the party, known by its bound."""
    drawn: dict[int, list[int]] = defaultdict(list)

    def draw(noise: GradientNoise, source: NoiseSource, length: int, release: int) -> np.ndarray:
        assert source is not None
        drawn[noise.bound].append(release)
        rng = np.random.default_rng([noise.bound, release])
        return np.rint(rng.normal(0, float(noise.variances[release]) ** 0.5, length)).astype(np.int64)

    monkeypatch.setattr(GradientNoise, "draw", draw)
    path = session(tmp_path, PRIVATE, TABLES)
    create_ledgers(tmp_path, PARTIES, 2.0, 1e-6, "record")
    results, _ = asyncio.run(everybody_in(path, tmp_path, PARTIES))
    over_sockets = {bound: list(releases) for bound, releases in drawn.items()}
    drawn.clear()
    simulated = simulated_learn(PRIVATE, TABLES, fidelity="ideal", seed_for_simulation=1)
    assert over_sockets == dict(drawn)
    # The three parties with records release a local model; each party's updates follow in order.
    assert sorted(releases[0] for releases in over_sockets.values()) == [0, 0, 0, 1]
    assert all(releases == sorted(releases) for releases in over_sockets.values())
    for party, result in enumerate(results):
        np.testing.assert_array_equal(result.values[0], simulated.values[party])
        assert result.guarantee == simulated.guarantee
    assert np.abs(simulated.values - started_at_zero(PRIVATE)).max() > 0.01
    check_charges(tmp_path)


@pytest.mark.long
def test_processes_start_privately_and_are_charged_once(tmp_path: Path) -> None:
    path = session(tmp_path, PRIVATE, TABLES)
    create_ledgers(tmp_path, PARTIES, 2.0, 1e-6, "record")
    done = smpc_dp("run", str(path), "--ledgers", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    for result in json.loads(done.stdout)["parties"].values():
        assert (result["guarantee"]["protects"], result["guarantee"]["epsilon"]) == ("record", 2.0)
    check_charges(tmp_path)
