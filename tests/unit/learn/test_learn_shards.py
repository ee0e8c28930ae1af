"""Groups of a learner have the same averages on any executor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.simulation.averagers import SharesAverager
from tests.executors import Backwards


def drawn(_averaging: object, vectors: Any, request: int, seed: int) -> tuple[Any, int]:
    return vectors.mean(axis=0) + np.random.default_rng([request, seed]).normal(scale=1e-3), len(vectors)


def test_groups_have_the_averages_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """mpyc draws real random bits with a seed too: in its place stands what the seed determines."""
    monkeypatch.setattr(SharesAverager, "average_group", staticmethod(drawn))
    given = {
        "learner": "block-gossip",
        "features": 1,
        "steps": 2,
        "group": 3,
        "epsilon": 20.0,
        "delta": 1e-5,
        "rate": 0.5,
        "seed": 1,
        "averager": {"method": "mpyc"},
    }
    tables = [np.array([[0.1 * party, party % 2], [0.5, 1.0]]) for party in range(6)]
    backwards = Backwards()
    with ThreadPoolExecutor(2) as threads:
        alone, *others = (
            simulate.learn(given, tables, fidelity="machines", seed_for_simulation=1, executor=executor)
            for executor in (None, backwards, threads)
        )
    assert backwards.ran == 4
    assert alone.values.std() > 0
    for other in others:
        assert other.values.tolist() == alone.values.tolist()
