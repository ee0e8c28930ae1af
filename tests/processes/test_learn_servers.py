"""Learners whose averages servers compute on shares: over real sockets, and as processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp.errors import SmpcError
from smpc_dp.learn.groups import GroupDraws
from smpc_dp.learn.needs import Learned
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.runtime.learning import learn
from smpc_dp.runtime.local import create_local_session
from smpc_dp.runtime.servers.learning import serve_learning_shares
from smpc_dp.runtime.session_file import Timeouts

NAMES = ("ann", "bob", "cas", "dan")
SERVERS = ("server1", "server2", "server3")
GIVEN: dict[str, Any] = {
    "learner": "block-gossip",
    "features": 2,
    "steps": 3,
    "group": 3,
    "epsilon": 5.0,
    "delta": 1e-5,
    "seed": 2,
    "averager": {"method": "mpyc"},
}
TIMEOUTS = Timeouts(connect=30.0, gather=30.0, step=20.0)


def table(user: int) -> np.ndarray:
    drawn = np.random.default_rng(user).normal(size=(8 + user, 2))
    return np.column_stack([drawn, (drawn[:, 0] > 0).astype(float)])


def session(folder: Path, change: Mapping[str, object], names: tuple[str, ...] = NAMES) -> Path:
    path = create_local_session(folder, names, GIVEN | dict(change), protocol="learn", timeouts=TIMEOUTS)
    (folder / "inputs").mkdir()
    for user, name in enumerate(names):
        np.save(folder / "inputs" / f"{name}.npy", table(user))
        Ledger.create(
            folder / f"{name}.ledger",
            party=name,
            dataset="d",
            relation="substitution",
            epsilon=5.0,
            delta=1e-5,
        )
    return path


async def one(path: Path, name: str) -> Learned | SmpcError:
    folder = path.parent
    try:
        return await learn(path, name, folder / "inputs" / f"{name}.npy", ledger=folder / f"{name}.ledger")
    except SmpcError as error:
        return error


def test_servers_average_for_groups_and_members_are_charged(tmp_path: Path) -> None:
    path = session(tmp_path, {"weights": "points", "max_points": 20})

    async def everybody() -> tuple[list[Learned | SmpcError], list[dict[int, str]]]:
        serving = [asyncio.create_task(serve_learning_shares(path, name)) for name in SERVERS]
        found = await asyncio.gather(*(one(path, name) for name in NAMES))
        return list(found), [await task for task in serving]

    results, failures = asyncio.run(everybody())
    assert failures == [{}, {}, {}], failures
    groups = GroupDraws(4, 3, 2)
    for user, name in enumerate(NAMES):
        result = results[user]
        assert isinstance(result, Learned), result
        assert result.failures == ()
        assert result.done.tolist() == [groups.participations(3)[user]]
        assert result.guarantee is not None
        assert "compromised" in result.guarantee.assumption
        ledger = Ledger.open(tmp_path / f"{name}.ledger")
        assert len(ledger.entries()) == groups.participations(3)[user]
        spent = ledger.spent().epsilon
        assert spent is not None
        assert 0 < spent <= 5.0
    models = [results[user].values for user in groups.draw(3)[-1]]
    np.testing.assert_array_equal(models, [models[0]] * 3)
