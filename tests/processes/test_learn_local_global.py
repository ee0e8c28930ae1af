"""A local and a global model over real sockets: the bits of the simulation, and a charge of one epsilon."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.processes.learn_supply import create_ledgers

NAMES = ("ann", "ben", "cat")
GIVEN: dict[str, object] = {
    "learner": "local-global",
    "features": 2,
    "rounds": 3,
    "batch": 4,
    "record_bound": 1.0,
    "chance": 0.5,
}
PRIVATE: dict[str, object] = {
    "chance": 1.0,
    "policy": "threshold",
    "threshold": 0.6,
    "epsilon": 2.0,
    "delta": 1e-6,
    "policy_epsilon": 0.5,
}


@pytest.mark.parametrize("private", [False, True])
def test_parties_hand_the_global_model_on(tmp_path: Path, private: bool) -> None:
    rng = np.random.default_rng(1)
    tables = [np.c_[rng.normal(size=(12, 2)), rng.integers(0, 2, 12)] for _ in NAMES]
    given = GIVEN | (PRIVATE if private else {})
    timeouts = Timeouts(connect=20.0, step=10.0, gather=10.0)
    path = create_local_session(tmp_path, NAMES, given, protocol="learn", timeouts=timeouts)
    for name, table in zip(NAMES, tables, strict=True):
        np.save(tmp_path / f"{name}.npy", table)
        if private:
            create_ledgers(tmp_path, [name], 2.0, 1e-6, "record")

    async def everybody() -> list[Learned]:
        serving = asyncio.create_task(serve_learning(path))
        parties = [
            learn(
                path, name, tmp_path / f"{name}.npy", ledger=tmp_path / f"{name}.ledger" if private else None
            )
            for name in NAMES
        ]
        results = await asyncio.gather(*parties)
        assert await serving == {}
        return results

    results = asyncio.run(everybody())
    for result in results:
        np.testing.assert_array_equal(result.values, results[0].values)
    if private:
        spent = [Ledger.open(tmp_path / f"{name}.ledger").spent().epsilon for name in NAMES]
        assert spent == pytest.approx([2.0] * 3, rel=1e-3)
        assert results[0].guarantee is not None
        assert results[0].guarantee.epsilon == 2.0
    else:
        np.testing.assert_array_equal(
            results[0].values, simulate.learn(given, tables, fidelity="plain").values[:1]
        )
