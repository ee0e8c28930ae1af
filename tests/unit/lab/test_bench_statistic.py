"""The benchmark of pairwise statistics, on sizes that take no time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp_lab.bench import covert, statistic


@pytest.mark.long
def test_a_pair_and_a_whole_statistic_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistic, "BATCH", 64)
    monkeypatch.setattr(statistic, "FRESH", 3)
    monkeypatch.setattr(statistic, "_mpyc", lambda _python: {})
    monkeypatch.setattr(covert, "COPIES", (2,))
    shown = statistic.run_statistic_bench(1, parties=100).to_json()
    assert shown["bench"] == "pairwise"
    figures = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    # 253 tables of two labels, and both labels of the evaluator's 188 bits, go in any case.
    assert (
        253 * 32 < figures["pair with cached setup, sent"]["median"] < figures["fresh pair, sent"]["median"]
    )
    assert figures["pair, AND gates"]["median"] == 253
    assert figures["fresh pair, garbler"]["target"] == {"of": "ratio_to_peer", "at_least": 1.0}
    assert figures["fresh pair, rounds"]["median"] > figures["pair with cached setup, rounds"]["median"] > 1
    assert all(figure["peer"] is None for figure in figures.values())
    # The bytes are counted, not measured: the floor is below them, and they meet the targets.
    for name in ("fresh covert pair, λ = 2, sent", "a pair of 200, λ = 2, sent"):
        matching = [figure for figure in shown["figures"] if figure["name"] == name]  # type: ignore[attr-defined]
        assert 1 / 1.3 < matching[0]["ratio_to_limit"] < 1
        assert all(figure["met"] for figure in matching)
    for side in ("garbler", "evaluator"):
        for name in (f"fresh pair, {side}", f"a pair of 64 between two hosts, {side}"):
            assert figures[name]["ratio_to_limit"] > 0


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"runs.*parties"):
        statistic.run_statistic_bench(0, parties=1)


def test_a_peer_is_asked_in_its_own_interpreter(tmp_path: Path) -> None:
    """A script that plays an interpreter with mpyc, one that says nothing, and none."""
    reported = {"version": "9.9", "one cpu": 0.5, "many cpu": 0.25}
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho '{json.dumps(reported)}'\n")
    script.chmod(0o755)
    result = statistic._mpyc(str(script))
    peer = statistic._peer([result, result], "many cpu", "mpyc", 3)
    assert peer is not None
    assert (peer.version, peer.median) == ("9.9", 0.75)
    script.write_text("#!/bin/sh\necho nothing\n")
    with pytest.raises(LocalError, match="ended without an answer"):
        statistic._mpyc(str(script))
    with pytest.raises(LocalError, match="cannot be run"):
        statistic._mpyc(str(tmp_path / "none"))
