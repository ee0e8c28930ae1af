"""Shards on a cluster of Ray: two nodes with a processor each, and one without that leads them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs ray: make test-flower")

from ray.cluster_utils import Cluster

from smpc_dp import simulate
from smpc_dp.errors import LocalError
from smpc_dp.executors.build import build
from smpc_dp.executors.ray import RayExecutor
from smpc_dp.executors.shards import run_shards
from smpc_dp.simulate import statistic
from tests.flower.ray_shards import die, die_once, wait_long

ROOT = Path(__file__).resolve().parents[2]
STORE = 80 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    small = {"object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=STORE)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def executor(cluster: Cluster) -> Iterator[RayExecutor]:
    with RayExecutor(cluster.address) as made:
        assert made.workers == 2
        yield made


def test_pairs_have_the_values_of_one_process(executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistic, "CHUNK", 4)
    data = np.random.default_rng(1).integers(0, 100, (20, 2))
    alone, spread = (
        simulate.pairwise("kendall_tau", data, 1.0, seed_for_simulation=3, executor=one)
        for one in (None, executor)
    )
    assert alone == spread


def test_values_come_in_order_and_errors_as_they_were_raised(executor: RayExecutor) -> None:
    assert list(run_shards(executor, math.factorial, [(n,) for n in range(9)], "number")) == [
        math.factorial(n) for n in range(9)
    ]
    with pytest.raises(ValueError, match="negative"):
        list(run_shards(executor, math.factorial, [(1,), (-1,)], "number"))


def test_a_shard_whose_worker_is_killed_is_repeated(executor: RayExecutor, tmp_path: Path) -> None:
    calls = [(str(tmp_path / "died"), number) for number in range(4)]
    assert list(run_shards(executor, die_once, calls, "square")) == [0, 1, 4, 9]
    assert (tmp_path / "died").exists()


def test_a_shard_that_kills_each_worker_is_named(executor: RayExecutor) -> None:
    with pytest.raises(LocalError, match=r"^square 1: a worker of the cluster of Ray was lost.*3 times$"):
        list(run_shards(executor, die, [(1,)], "square"))


def test_values_larger_than_the_object_store_are_right(executor: RayExecutor) -> None:
    (value,) = run_shards(executor, bytes, [(STORE + 1,)], "value")
    assert len(value) == STORE + 1


def test_nothing_answers(tmp_path: Path) -> None:
    code = "from smpc_dp.executors.ray import RayExecutor; RayExecutor('127.0.0.1:1')"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert "LocalError: no cluster of Ray can be reached at 127.0.0.1:1" in ended.stderr


OTHER = """
import importlib.abc, importlib.util, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "smpc_dp.executors.build":
            return importlib.util.spec_from_file_location(name, {path!r})
sys.meta_path.insert(0, Finder())
"""


def test_a_node_with_another_version_is_refused_before_any_work(
    cluster: Cluster, executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (ROOT / "smpc_dp/executors/build.py").read_text()
    changed = source.replace('{"code": _digest()}', '{"code": "other"}')
    assert changed != source
    (tmp_path / "build.py").write_text(changed)
    (tmp_path / "sitecustomize.py").write_text(OTHER.format(path=str(tmp_path / "build.py")))
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE, env_vars={"PYTHONPATH": path})
    own = build()["code"]
    with pytest.raises(LocalError, match=rf"has another version: code other, and {own} here$"):
        RayExecutor(cluster.address)
    # One that came after the first look is refused by its workers.
    with pytest.raises(LocalError, match="a worker of the cluster of Ray has another version"):
        list(run_shards(executor, time.sleep, [(1,) for _ in range(12)], "nap"))
    cluster.remove_node(node)


def test_a_cluster_that_loses_its_nodes_ends_with_an_error(
    cluster: Cluster, executor: RayExecutor, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    future = executor.submit(wait_long, str(begun))
    while not begun.exists():
        time.sleep(0.1)
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node, allow_graceful=False)
    with pytest.raises(LocalError, match=r"no node of the cluster of Ray is left|was lost"):
        future.result(timeout=300)
