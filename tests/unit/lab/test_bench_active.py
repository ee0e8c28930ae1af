"""The benchmark of evaluations that are secure against both sides, at sizes that take little time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp_lab.bench import active
from smpc_dp_lab.bench.active import run_active_bench


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)runs.*evaluations.*ands"):
        run_active_bench(0, evaluations=0, ands=999)


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """The figures of one round at small sizes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(active, "FRESH", 1)
        shown: Any = run_active_bench(1, evaluations=3, ands=5_000).to_json()
    assert shown["bench"] == "active"
    return {figure["name"]: figure for figure in shown["figures"]}


def test_every_size_stands_beside_the_semi_honest_one_or_a_bound(figures: dict[str, Any]) -> None:
    with_target = {name: figure["limit"]["name"] for name, figure in figures.items() if figure["target"]}
    assert with_target == {
        "fresh pair, 253 ANDs": "semi-honest",
        "fresh pair, 253 ANDs, sent": "bound",
        "an evaluation of 3": "semi-honest",
        "an evaluation of 3, sent": "semi-honest",
        "4,965 ANDs": "bound",
    }
    fresh = figures["fresh pair, 253 ANDs"]
    assert fresh["met"] == (fresh["median"] <= 4 * fresh["limit"]["median"])
    assert figures["fresh pair, 253 ANDs, sent"]["met"]


def test_rounds_are_those_of_the_specification(figures: dict[str, Any]) -> None:
    # Hello and start 2, setup 3, transfers 3, triples 6, openings, inputs, tables, masked, macs and outputs.
    rounds = 2 + 3 + 3 + 6 + 5
    assert figures["fresh pair, 253 ANDs, rounds"]["median"] == rounds
    clock = figures["fresh pair, 253 ANDs, round trip of 50 ms"]
    spent = figures["fresh pair, 253 ANDs"]["median"] / 2
    assert clock["median"] == pytest.approx(spent + rounds * 0.025)


def test_the_bytes_of_the_formula_are_what_the_roles_send(figures: dict[str, Any]) -> None:
    # B = 4 and k = 4. Inputs, outputs, setups, padding of chunks and signed messages are not in the formula.
    sent = figures["4,965 ANDs, sent"]
    assert sent["limit"]["median"] == pytest.approx(4 * (24 + 32.25) + 0.75 + 8 + 32.75)
    assert 1 < sent["median"] / sent["limit"]["median"] < 1.1


COSTS = {"garbler": ("s", 2.0), "evaluator": ("s", 4.0), "wall": ("s", 8.0), "sent": ("B", 600.0)}
# By driver, the name it gives and how many times COSTS it takes.
DRIVERS = {"emp_ag2pc": ("emp-ag2pc", 1), "emp_ag2pc_dev": ("emp-ag2pc-dev", 10)}


def play(folder: Path, driver: str) -> None:
    """Write a program that plays a driver, keeps the circuit that it is given, and logs its arguments."""
    name, times = DRIVERS[driver]
    figures = {
        f"{when} {figure}": {"unit": unit, "value": value * times * (1 if when == "last" else 7)}
        for when in ("first", "last")
        for figure, (unit, value) in COSTS.items()
    }
    printed = json.dumps({"name": name, "version": f"1 {name}", "checksum": "0", "figures": figures})
    keep = f'cp "$1" {folder}/$(basename "$1"); echo "{driver} $(basename "$1") $2 $3" >> {folder}/log'
    program = folder / driver
    program.write_text(f'#!/bin/sh\n{keep}\ncat <<"END"\n{printed}\nEND\n')
    program.chmod(0o700)


def test_each_size_stands_beside_both_versions_of_the_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active, "FRESH", 1)
    for driver in DRIVERS:
        play(tmp_path, driver)
    shown: Any = run_active_bench(1, None, str(tmp_path), evaluations=3, ands=5_000).to_json()
    beside = {figure["name"]: figure["peer"] for figure in shown["figures"] if figure["peer"]}
    medians = {name: peer["median"] for name, peer in beside.items()}
    development = {
        name.removesuffix(", beside the development branch"): median
        for name, median in medians.items()
        if name.endswith(", beside the development branch")
    }
    released = {name: median for name, median in medians.items() if "development" not in name}
    # Both sides' processor time of the last evaluation, a share of it for each evaluation, or as a rate.
    assert released == {
        "fresh pair, 253 ANDs": 6,
        "fresh pair, 253 ANDs, sent": 600,
        "an evaluation of 3": 2,
        "an evaluation of 3, sent": 200,
        "4,965 ANDs": pytest.approx(2 * 4_965 / 6),
        "4,965 ANDs, sent": pytest.approx(600 / 4_965),
    }
    assert development == {
        name: pytest.approx(median / 10 if name == "4,965 ANDs" else median * 10)
        for name, median in released.items()
    }
    for name, peer in beside.items():
        is_development = name.endswith("development branch")
        assert peer["name"].startswith("emp-ag2pc-dev, " if is_development else "emp-ag2pc, ")
    assert shown["versions"]["emp-ag2pc"] == "1 emp-ag2pc"
    assert shown["versions"]["emp-ag2pc-dev"] == "1 emp-ag2pc-dev"
    arguments = ["fresh.txt 1 4", "batch.txt 3 1", "large.txt 5 1"]
    assert sorted((tmp_path / "log").read_text().splitlines()) == sorted(
        f"{driver} {argument}" for driver in DRIVERS for argument in arguments
    )
    circuits = Path(__file__).parents[3] / "circuits"
    for given, published in {"fresh": active.PAIR, "batch": active.PAIR, "large": active.LARGE}.items():
        assert (tmp_path / f"{given}.txt").read_bytes() == (circuits / f"{published}.txt").read_bytes()


def test_without_drivers_there_is_no_peer(figures: dict[str, Any]) -> None:
    assert all(figure["peer"] is None for figure in figures.values())


def test_a_missing_driver_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    play(tmp_path, "emp_ag2pc")
    with pytest.raises(LocalError, match="no program 'emp_ag2pc_dev'"):
        run_active_bench(1, None, str(tmp_path), evaluations=3, ands=5_000)
    assert not (tmp_path / "log").exists()
