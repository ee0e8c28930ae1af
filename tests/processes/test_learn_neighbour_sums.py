"""Personalised models by secure sums over real sockets: the simulation's models."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from smpc_dp import simulate
from tests.processes.test_learn_diffusion import everybody_in, start, tables

PARAMETERS: dict[str, object] = {
    "learner": "personalized",
    "features": 2,
    "sizes": [40] * 4,
    "ticks": 8,
    "record_bound": 1.0,
    "seed": 3,
    "sum_bound": 20.0,
}


def test_sums_over_sockets_give_the_models_of_the_simulation(tmp_path: Path) -> None:
    path, _ = start(tmp_path, 1.0, PARAMETERS)
    results, failures = asyncio.run(everybody_in(path))
    assert failures == {}
    simulated = simulate.learn(PARAMETERS, tables(), fidelity="plain")
    for party, result in enumerate(results):
        assert np.allclose(result.values[0], simulated.values[party], atol=1e-6)
        assert result.confidential is True
        assert result.guarantee is None
