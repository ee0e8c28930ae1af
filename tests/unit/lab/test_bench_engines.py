"""The benchmark of both engines: what it refuses, and its errors on sizes that take no time."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench import engines
from smpc_dp_lab.bench.servers import Measured


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)runs.*servers.*sizes"):
        engines.run_engines_bench(0, servers=(2, 4), sizes=(5,))


def test_every_figure_stands_beside_the_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    side = {"fresh": 0.01, "bytes": 100, "rounds": 6}
    pair = {"garbler": side, "evaluator": side, "aggregator": {}}
    requested = []

    def measured(terms: Any, records: Any, servers: int, runs: int, **how: Any) -> Measured:
        requested.append((servers, terms.parties, how.get("way")))
        wall = 0.6 if how.get("channels") else 0.5
        return Measured([0], [wall] * runs, [0.1] * runs, [1000] * runs, 30 if how.get("delay") else 0)

    monkeypatch.setattr(engines, "garbled_session", lambda _: pair)
    monkeypatch.setattr(engines, "run_servers", measured)
    monkeypatch.setattr(engines, "DRAWS", 60)
    shown: Any = engines.run_engines_bench(2, servers=(3, 5), sizes=(40,)).to_json()
    assert shown["bench"] == "engines"
    figures = {figure["name"]: figure for figure in shown["figures"]}
    assert {servers for servers, _, _ in requested} == {3, 5}
    assert {way for _, _, way in requested} == {None, "pairs", "counts", "sort"}
    assert figures["mpyc, 5 servers, a pair: processor time"]["peer"]["median"] == 0.02
    assert figures["mpyc, 5 servers, a pair: rounds"]["median"] == 30
    own = figures["mpyc, 3 servers, a user's kernel, all pairs of 30: sent"]
    assert own["peer"]["name"] == "the same kernel compiled from its definition"
    carried = figures["mpyc over our channels, 5 servers, all pairs of 30: wall"]
    assert carried["peer"]["median"] == 0.5
    assert carried["met"]
    # Noise is nearly all: variances 2 (4/(n e))^2 and 2 (2/e)^2 2/n, so the peer's is sqrt(n/4) as far.
    error = figures["error, epsilon 0.1, 40 users"]
    assert 2 < error["ratio_to_peer"] < 5
