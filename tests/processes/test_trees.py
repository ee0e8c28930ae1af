"""Averages of trees over real sockets: trees that are alike, one that differs, one that is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.engine.result import Result
from smpc_dp.errors import Code
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts

PARTIES = ("alice", "bob", "carol", "dave")
REAL: dict[str, object] = {
    "length": 4,
    "lower": -10.0,
    "upper": 10.0,
    "precision": 1e-6,
    "dropout": 0.25,
    "corrupt": 0.0,
    "same_survivors": False,
}
FAST = Timeouts(connect=8.0, step=20.0)
BOUNDS = {"['bias']": (-1.0, 1.0), "['weight']": (-10.0, 10.0)}


def tree_of(index: int) -> dict[str, Any]:
    return {"weight": np.full((1, 3), float(index), np.float32), "bias": index / 4}


async def execute(
    path: Path, trees: dict[str, dict[str, Any]], **options: Any
) -> dict[str, Result | BaseException]:
    """Average once, each party its tree; return how that ended for each member."""

    async def party(name: str) -> Result:
        ledger = path.parent / f"{name}.ledger"
        Ledger.create(ledger, party=name, dataset="d", relation="substitution", epsilon=None, delta=1e-4)
        async with smpc_dp.connect(path, party=name, ledger=ledger) as session:
            return await session.average(trees[name], **options)

    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    ended = await asyncio.gather(*map(party, PARTIES), return_exceptions=True)
    (served,) = await serving
    assert isinstance(served, Result)
    return dict(zip((*PARTIES, "aggregator"), (*ended, served), strict=True))


def charged(path: Path, name: str) -> int:
    return len(Ledger.open(path.parent / f"{name}.ledger", party=name).entries())


@pytest.mark.parametrize("bounds", [None, BOUNDS])
async def test_trees_are_averaged(tmp_path: Path, bounds: Any) -> None:
    path = create_local_session(tmp_path, PARTIES, {**REAL, "max_weight": 10}, timeouts=FAST)
    trees = {name: tree_of(index) for index, name in enumerate(PARTIES)}
    served = await execute(path, trees, weight=2, bounds=bounds)
    assert served.pop("aggregator").faults == ()  # type: ignore[union-attr]
    for ended in served.values():
        assert isinstance(ended, Result)
        assert list(ended.tree) == ["weight", "bias"]
        assert ended.tree["weight"].dtype == np.float32
        np.testing.assert_allclose(ended.tree["weight"], np.full((1, 3), 1.5), atol=1e-6)
        assert ended.tree["bias"] == pytest.approx(1.5 / 4, abs=1e-6)
        assert [leaf.path for leaf in ended.leaves] == ["['bias']", "['weight']"]
        assert ended.weight == 8


async def test_a_party_with_another_tree_is_named_with_the_path_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    trees = {name: tree_of(index) for index, name in enumerate(PARTIES)}
    trees["bob"] = {"weight": np.full(3, 1.0, np.float32), "bias": 0.25}
    served = await execute(path, trees, label="round 7")
    aggregated = served.pop("aggregator")
    assert isinstance(aggregated, Result)
    (fault,) = aggregated.faults
    assert fault.startswith("bob: asks \"average round 7 tree:['bias'] float[] in [-10.0, 10.0]; ")
    assert fault.index("['weight'] float32[3]") < fault.index("the others ask") < fault.index("float32[1x3]")
    refused = served.pop("bob")
    assert isinstance(refused, smpc_dp.PeerFault)
    assert (refused.culprit, refused.code) == ("bob", Code.OPERATION)
    for ended in served.values():
        assert isinstance(ended, Result)
        assert (ended.absent, ended.tree["bias"]) == (("bob",), pytest.approx(5 / 12, abs=1e-6))
    assert (charged(path, "bob"), charged(path, "alice")) == (0, 1)


@pytest.mark.parametrize(
    ("value", "reason"), [(np.nan, "must be finite"), (10.5, "is outside [-10.0, 10.0]")], ids=["nan", "far"]
)
async def test_a_tree_that_is_refused_is_not_sent(value: float, reason: str, tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    trees = {name: tree_of(index) for index, name in enumerate(PARTIES)}
    trees["bob"]["weight"][0, 1] = value
    served = await execute(path, trees)
    del served["aggregator"]
    refused = served.pop("bob")
    assert isinstance(refused, smpc_dp.PrivacyError)
    assert str(refused) == f"bob: ['weight'][0, 1] {reason}"
    assert charged(path, "bob") == 0
    for ended in served.values():
        assert isinstance(ended, Result)
        assert ended.absent == ("bob",)


async def test_bounds_of_a_vector_and_long_labels_of_trees_are_refused(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    serving = asyncio.create_task(smpc_dp.serve(path))
    async with smpc_dp.connect(path, "alice") as session:
        with pytest.raises(smpc_dp.ConfigError, match="bounds: is for trees"):
            await session.average([1.0] * 4, bounds=(0.0, 1.0))
        with pytest.raises(smpc_dp.ConfigError, match="label: at most 64 characters, has 65"):
            await session.average(tree_of(0), label="x" * 65)
        other = "tree:['bias'] float[] in [-10.0, 10.0]; ['w'] float32[1x3] in [-10.0, 10.0]"
        assert session.compare(tree_of(0), other).startswith("ours has ['weight'] float32[1x3]")
    await serving
