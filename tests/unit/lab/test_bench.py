"""The benchmarks' report: its shape, its ratios and its targets, on a size that takes no time."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.privacy.secagg_plan import check_plan, communication
from smpc_dp.secagg.params import check_parameters
from smpc_dp_lab.bench.figures import Figure, Limit, Peer, Report, Target, alternate
from smpc_dp_lab.bench.gopa import run_gopa_bench
from smpc_dp_lab.bench.peer import FlowerPeer
from smpc_dp_lab.bench.recording import record_sample
from smpc_dp_lab.bench.secagg import run_secagg_bench

FIGURE_KEYS = {
    "name",
    "unit",
    "better",
    "runs",
    "min",
    "median",
    "max",
    "peer",
    "limit",
    "ratio_to_peer",
    "ratio_to_limit",
    "target",
    "met",
    "note",
}


def figure(values: list[float], better: str, of: str, at_least: float) -> Figure:
    return Figure(
        name="work",
        unit="s",
        values=values,
        better="higher" if better == "higher" else "lower",
        note="",
        peer=Peer("other", "1.0", 20.0),
        limit=Limit("machine", 2.0),
        target=Target("ratio_to_peer" if of == "peer" else "ratio_to_limit", at_least),
    )


@pytest.fixture(scope="module")
def absent_peer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that answers like one without Flower."""
    script = tmp_path_factory.mktemp("peer") / "python"
    script.write_text('#!/bin/sh\necho \'{"absent": "no flwr"}\'\n')
    script.chmod(0o700)
    return str(script)


@pytest.fixture(scope="module")
def small(absent_peer: str) -> Report:
    return run_secagg_bench(12, 200, 2, peer_python=absent_peer)


@pytest.mark.parametrize(
    ("better", "of", "at_least", "ratio", "met"),
    [
        ("lower", "peer", 5.0, 5.0, True),
        ("lower", "peer", 5.1, 5.0, False),
        ("lower", "limit", 0.5, 0.5, True),
        ("lower", "limit", 0.51, 0.5, False),
        ("higher", "peer", 0.2, 0.2, True),
        ("higher", "peer", 0.21, 0.2, False),
        ("higher", "limit", 2.0, 2.0, True),
        ("higher", "limit", 2.1, 2.0, False),
    ],
)
def test_a_target_is_met_only_by_a_ratio_that_reaches_it(
    better: str, of: str, at_least: float, ratio: float, met: bool
) -> None:
    shown = figure([4.0, 3.0, 9.0], better, of, at_least).to_json()
    assert shown["median"] == 4.0
    assert (shown["runs"], shown["min"], shown["max"]) == (3, 3.0, 9.0)
    assert shown[f"ratio_to_{of}"] == pytest.approx(ratio)
    assert shown["met"] is met


def test_what_was_not_measured_is_null_and_not_met_by_default() -> None:
    alone = Figure("work", "s", [1.0], "lower", "", target=Target("ratio_to_peer", 10.0)).to_json()
    assert [alone[key] for key in ("peer", "limit", "ratio_to_peer", "ratio_to_limit", "met")] == [None] * 5
    assert alone["target"] == {"of": "ratio_to_peer", "at_least": 10.0}


def test_measurements_alternate_and_leave_out_what_is_absent() -> None:
    calls: list[str] = []

    def measure(name: str, value: float | None) -> float | None:
        calls.append(name)
        return value

    rounds: list[None] = []
    taken = alternate(
        2,
        {"ours": lambda: measure("ours", 1.0), "peer": lambda: measure("peer", None)},
        lambda: rounds.append(None),
    )
    assert calls == ["ours", "peer", "peer", "ours"]
    assert taken == {"ours": [1.0, 1.0], "peer": []}
    assert len(rounds) == 2


def test_the_report_has_the_documented_shape(small: Report) -> None:
    shown = json.loads(json.dumps(small.to_json(), allow_nan=False))
    assert set(shown) == {"bench", "commit", "machine", "others", "versions", "parameters", "figures"}
    assert shown["bench"] == "secagg"
    assert shown["machine"]["cores"] >= 1
    assert shown["parameters"]["dropouts"] == 1
    for item in shown["figures"]:
        assert set(item) == FIGURE_KEYS
        assert item["min"] <= item["median"] <= item["max"]
        assert item["min"] > 0
        assert item["better"] in ("higher", "lower")
        assert (item["met"] is None) == (item["target"] is None or item[item["target"]["of"]] is None)
    names = [item["name"] for item in shown["figures"]]
    assert len(set(names)) == len(names) == 9


def test_an_absent_peer_is_null_everywhere(small: Report) -> None:
    assert small.versions["flwr"] is None
    for item in small.figures:
        assert item.peer is None
        assert item.ratio_to_peer is None
        if item.target is not None and item.target.of == "ratio_to_peer":
            assert item.met is None


def test_bytes_and_memory_are_at_least_the_vector(small: Report) -> None:
    by_name = {item.name: item for item in small.figures}
    packed = 200 * 4
    for name in ("bytes up of one party", "bytes down of one party"):
        assert by_name[name].limit == Limit("the vector alone, packed", packed)
        assert packed < by_name[name].median < 100 * packed
    client, whole = by_name["peak memory of a client"], by_name["peak memory of a whole run in one process"]
    assert packed < client.median < whole.median


@pytest.mark.long
def test_a_peer_that_answers_is_measured_in_the_same_run(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import sys\n"
        'print(\'{"version": "9.9"}\', flush=True)\n'
        "for line in sys.stdin:\n"
        "    print('{\"seconds\": 1000.0}', flush=True)\n"
    )
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {worker}\n")
    script.chmod(0o700)
    report = run_secagg_bench(12, 50, 1, peer_python=str(script))
    recovery = next(item for item in report.figures if item.name.startswith("aggregator recovery"))
    assert recovery.peer == Peer("flwr secaggplus functions", "9.9", 1000.0)
    assert recovery.ratio_to_peer == pytest.approx(1000.0 / recovery.median)
    assert recovery.met is True


def test_a_peer_that_cannot_be_run_is_an_error() -> None:
    with pytest.raises(LocalError, match="no-such-python: cannot be run"):
        FlowerPeer("no-such-python")
    with pytest.raises(LocalError, match="ended without an answer"):
        FlowerPeer(shutil.which("true"))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"runs": 0}, "runs"),
        ({"dropout": 0.0}, "dropout"),
        ({"length": 0}, "length"),
        ({"parties": 2}, "parties"),
    ],
)
def test_bad_numbers_are_refused(changed: dict[str, Any], field: str) -> None:
    good: dict[str, Any] = {"parties": 12, "length": 50, "runs": 1}
    with pytest.raises(ConfigError) as caught:
        run_secagg_bench(**{**good, **changed})
    assert [fault.where for fault in caught.value.issues] == [field]


@pytest.mark.long
def test_gopa_is_measured_beside_both_graphs() -> None:
    """What is measured, and bytes roughly: of runs without an aggregator no message is counted again here."""
    report = run_gopa_bench((10, 50), 1, direct=(5,))
    shown = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert shown["bench"] == "gopa"
    assert set(shown["parameters"]) == {"length", "lost", "dropout", "sample", "plans"}
    plans = shown["parameters"]["plans"]
    # Five cases for a tenth of so few parties, and two for none of them.
    assert [plan["max_dropouts"] for plan in plans] == [1] * 5 + [0] * 2 + [5] * 5 + [0] * 2
    assert len(shown["figures"]) == 2 * 7 * 4 + 4
    up, down, coordinator = (figure.median for figure in report.figures[-3:])
    assert 4 * 8 < up < down
    # Every message for all goes to each of four, and the lists of all four times too.
    assert coordinator > 2 * up
    median = {item["name"]: item["median"] for item in shown["figures"]}
    for n in (10, 50):
        retained, summed = (
            median[f"{name}, {n} users, {n // 10} may be lost: bytes up of a user"]
            for name in ("GOPA, keep", "secure sum, sparse graph")
        )
        assert retained < summed
    for item in shown["figures"]:
        assert item["runs"] == 1
        assert item["min"] > 0


@pytest.mark.long
def test_bytes_of_a_party_grow_like_a_logarithm() -> None:
    """As planned for a given degree and number of dropouts; and a run has what is planned."""

    def planned(parties: int) -> int:
        return communication(check_plan(parties, 8, 5, dropout=10 / parties), 1, 4)["down"]["total"]

    sizes = [planned(10**power) for power in (3, 4, 5, 6)]
    steps = [after - before for before, after in pairwise(sizes)]
    # What is linear would make each of these ten times the one before.
    assert max(steps) < 1.1 * min(steps) + 1_000
    parties = 200
    given: dict[str, object] = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.5}
    # A checked total has a commitment of each party.
    base, _ = check_parameters(given | {"dropout": 10 / parties, "total": "unchecked"}, parties)
    assert base is not None
    plan = check_plan(parties, 8, 5, dropout=10 / parties)
    sample = record_sample(msgspec.structs.replace(base, plan=plan), 20, seed=1)
    assert sum(sample.down) / 20 == pytest.approx(planned(parties), rel=0.05)


@pytest.mark.parametrize(
    ("parties", "runs", "field"), [((9,), 1, "parties"), ((10_001,), 1, "parties"), ((10,), 0, "runs")]
)
def test_gopa_refuses_bad_sizes(parties: tuple[int, ...], runs: int, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_gopa_bench(parties, runs)
    assert [fault.where for fault in caught.value.issues] == [field]
