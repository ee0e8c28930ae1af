"""The benchmark of proofs: its report, on sizes that take no time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench import logs, proofs
from smpc_dp_lab.bench.drivers import DRIVERS
from smpc_dp_lab.cli import bench as cli


def _execute(folder: Path, driver: str, seconds: float, size: float) -> None:
    figures = {name: {"unit": "s", "value": seconds} for name in ("prove", "verify", "batch")}
    answer = {
        "name": DRIVERS[driver],
        "version": "9.9",
        "checksum": "00ff",
        "figures": figures | {"bytes": {"unit": "B", "value": size}},
    }
    program = folder / driver
    program.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    program.chmod(0o700)


def test_figures_stand_beside_the_fastest_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "PEER_BATCH", 2)
    _execute(tmp_path, "bulletproofs_plus", 2000.0, 700.0)
    _execute(tmp_path, "bulletproofs", 1000.0, 800.0)
    rounds: list[tuple[str, int, int]] = []
    report = proofs.run_proofs_bench(
        2,
        lambda name, done, of: rounds.append((name, done, of)),
        str(tmp_path),
        lengths=(1, 2),
        batch=3,
    )
    shown = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert shown["bench"] == "proofs"
    assert shown["versions"]["tari_bulletproofs_plus"] == shown["versions"]["bulletproofs"] == "9.9"
    figures = {figure["name"]: figure for figure in shown["figures"]}
    assert len(figures) == len(shown["figures"]) == 4 + 2 * 5
    assert [name for name, done, of in rounds if done == of] == [
        "64-bit range proof",
        "user of length 1",
        "user of length 2",
    ]
    prove = figures["64-bit range proof: prove"]
    assert prove["peer"] == {
        "name": "bulletproofs, 64 bits, its own interface",
        "version": "9.9",
        "median": 1000.0,
    }
    assert prove["met"] is True
    assert prove["runs"] == 2
    assert figures["64-bit range proof: bytes"]["median"] == 576
    assert figures["64-bit range proof: bytes"]["peer"]["median"] == 700.0
    # Commitments to value, bits, noise and 40 edges; proofs; blinding; the published value.
    assert figures["user of length 1: bytes"]["median"] == 43 * 32 + 384 + 544 + 32 + 8
    for name in ("prove", "verify alone", "verify in a batch of 2, each"):
        assert figures[f"64-bit range proof: {name}"]["ratio_to_limit"] > 0


def test_an_absent_peer_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "PEER_BATCH", 2)
    report = proofs.run_proofs_bench(1, lengths=(1,), batch=1)
    assert report.versions["bulletproofs"] is None
    assert all(figure.peer is None for figure in report.figures)
    assert report.figures[0].met is None


@pytest.mark.long
def test_logs_are_made_and_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    # As coarse as can be: the noise of few parties has many bits.
    monkeypatch.setattr(logs, "STEPS", 1)
    rounds: list[tuple[str, int, int]] = []
    result = logs.log_figures((6, 5, 6), 1, lambda *step: rounds.append(step))
    assert rounds == [(f"log of {n} users", done, 2) for n in (5, 6) for done in (1, 2)]
    kinds = ["make", "make, processor", "make, memory", "bytes", "a user's messages"]
    kinds += ["audit", "audit, processor", "audit, memory"]
    names = [f"log of {n} users: {kind}" for n in (5, 6) for kind in kinds]
    assert [figure.name for figure in result] == [
        *names,
        "logs of 5 and 6 users: audit, memory a user more",
    ]
    assert all(figure.median > 0 for figure in result[:-1])


def test_bad_numbers_and_missing_drivers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="runs"):
        proofs.run_proofs_bench(0)
    result = CliRunner().invoke(cli.app, ["proofs", "--drivers", str(tmp_path), "--json"])
    assert result.exit_code != 0
    assert "no program 'bulletproofs_plus'" in str(result.exception)
