"""`smpc-dp bench session --grid`: a small round."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("flwr", reason="needs flwr: make test-flower")

from smpc_dp_lab.bench.grid import _worker
from smpc_dp_lab.bench.parts import REST
from smpc_dp_lab.bench.session_worker import PRECISION


def test_a_round_is_exact_and_its_parts_are_measured() -> None:
    timed = _worker(sys.executable, 3, 1_000)
    assert 0 < timed["error"] <= PRECISION
    node, server = timed["seconds"]["node"], timed["seconds"]["server"]
    assert 0 < node["database of saved states"] < sum(node.values())
    assert node[REST] < 0.5 * sum(node.values())
    assert server["vectors added"] > 0
    assert "vectors added" not in node
    assert not timed["copied"]


def test_the_memory_of_parts_is_traced() -> None:
    # 1.2 MB a model: above all that is not of its size.
    copied = _worker(sys.executable, 3, 300_000, "memory")["copied"]["node"]
    assert 0.9 < copied["vector masked"] / 1.2e6 < 2
    assert copied["tree flattened"] < 0.5e6
