"""`smpc-dp bench session`: its figures from given measurements, what it refuses, and a small run."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.secagg.params import SecAggParameters, check_parameters
from smpc_dp_lab.bench import plain_worker, session, session_runs
from smpc_dp_lab.bench.control_group import ControlGroup
from smpc_dp_lab.bench.session import FEW, run_session_bench
from smpc_dp_lab.bench.session_limit import aggregator_work, limit_parts, party_work
from smpc_dp_lab.bench.session_runs import Average, Checkout, plain_average
from smpc_dp_lab.bench.session_worker import PRECISION, largest_difference, model_of, parameters_of
from tests.snippets import ROOT


def average_of(seconds: float, size: int, group: ControlGroup | None = None) -> Average:
    """Return measurements of three parties that take 0, 1 and 2 seconds longer than `seconds`."""
    parties = [
        {
            **{"cpu": seconds + 1 + late, "busy": seconds + late, "peak": 100.0 + late, "written": 10.0},
            **{"begun": 50.0 + late, "ended": 50.0 + late + seconds, "sent": size + 5, "received": size + 7},
            **{"plain_bytes": size, "error": 1e-7},
        }
        for late in range(3)
    ]
    aggregator = {"cpu": 2 * seconds + 1, "busy": 2 * seconds, "peak": 300.0, "written": 20.0}
    return Average(aggregator, parties, group)


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give measurements in the place of those of processes: ours, another checkout's, plain ones."""

    def average(checkout: Checkout, parties: int, length: int) -> Average:
        assert parties == 3
        times = 1.0 if checkout.root == ROOT else 2.0
        return average_of(times * (1.0 if length == FEW else 8.0), length)

    def parts(_: SecAggParameters, work: Any) -> dict[str, float]:
        return {"first": 0.5, "second": 0.25 * work.sent}

    monkeypatch.setattr(Checkout, "average", average)
    monkeypatch.setattr(session, "plain_average", lambda _, length: average_of(length / 1_000, length))
    monkeypatch.setattr(session, "limit_parts", parts)


def figures_of(**given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures by name, and the parameters, of two rounds of 3 parties and 1,000 values."""
    shown: Any = run_session_bench(3, 1_000, 2, **given).to_json()
    assert shown["bench"] == "session"
    figures = {figure["name"]: figure for figure in shown["figures"]}
    assert len(figures) == len(shown["figures"])
    return figures, shown["parameters"]


def checkout_at(folder: Path) -> str:
    """Make a folder that looks like a compiled checkout; return its path."""
    (folder / "smpc_dp").mkdir(parents=True)
    for name in ("__init__.py", "_core.abi3.so"):
        (folder / "smpc_dp" / name).touch()
    return str(folder)


@pytest.mark.usefixtures("_measured")
def test_a_member_stands_beside_its_limit_and_the_other_checkout(tmp_path: Path) -> None:
    figures, parameters = figures_of(before=checkout_at(tmp_path / "old"))
    assert parameters["control_group"] is None
    assert (parameters["runs"], parameters["masks"]) == (2, 3)
    party = figures["party: processor time of the model"]
    # The slowest party takes 2 seconds longer in both averages.
    assert (party["runs"], party["median"], party["limit"]["median"]) == (2, 7.0, 0.75)
    assert party["limit"]["name"] == "first, second; each alone"
    assert (party["peer"]["name"], party["peer"]["version"], party["peer"]["median"]) == ("before", "old", 14)
    assert party["target"] == {"of": "ratio_to_limit", "at_least": pytest.approx(1 / 3)}
    assert not party["met"]
    assert figures["party: processor time"]["median"] == 11
    assert figures["party: processor time of imports and set-up"]["median"] == 4
    aggregator = figures["aggregator: processor time of the model"]
    assert (aggregator["median"], aggregator["limit"]["median"]) == (14, 1.25)
    assert figures["limit of the aggregator: second"]["median"] == 0.75
    wall = figures["average of a tree: wall time"]
    assert (wall["median"], wall["peer"]["median"]) == (10, 18)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert wall["limit"]["median"] == pytest.approx((3 * 0.75 + 1.25) / cores)
    assert figures["all processes: written to disk"]["median"] == 50
    assert figures["party: sent"]["limit"]["median"] == 1_000


@pytest.mark.usefixtures("_measured")
def test_the_price_of_security_is_the_ratio_to_the_plain_average() -> None:
    figures, _ = figures_of()
    # The plain average of 1,000 values takes 1 s, of few 0.01 s.
    busy = "processor time of the model, party"
    assert figures[f"security: {busy}"]["peer"]["median"] == pytest.approx(0.99)
    assert figures[f"times a plain average: {busy}"]["median"] == pytest.approx(7 / 0.99)
    assert figures["times a plain average: wall time"]["median"] == pytest.approx(10 / 3)
    assert figures["times a plain average: processor time, aggregator"]["median"] == pytest.approx(17 / 3)
    assert figures["party: processor time"]["peer"] is None


@pytest.mark.usefixtures("_measured")
def test_a_control_group_adds_the_memory_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ControlGroup(2, lambda: None, peak=9_000, anonymous=5_000, cache=3_000)
    monkeypatch.setattr(Checkout, "average", lambda *_: average_of(1.0, 1_000, group))
    figures, parameters = figures_of()
    assert parameters["control_group"] == 2
    found = [
        figures[f"all processes: {name}"]["median"]
        for name in ("peak memory", "peak memory of their own", "peak page cache")
    ]
    assert found == [9_000, 5_000, 3_000]


@pytest.mark.parametrize(("parties", "length", "runs"), [(2, 10, 1), (3, 0, 1), (3, 10, 0)])
def test_sizes_out_of_range_are_refused(parties: int, length: int, runs: int) -> None:
    with pytest.raises(ConfigError):
        run_session_bench(parties, length, runs)


def test_a_checkout_without_package_or_core_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"before: .* has no package smpc_dp"):
        run_session_bench(3, 10, before=str(tmp_path))
    compiled = checkout_at(tmp_path)
    (tmp_path / "smpc_dp" / "_core.abi3.so").unlink()
    with pytest.raises(ConfigError, match=r"before: .*has no compiled core, _core\.abi3\.so: build it"):
        run_session_bench(3, 10, before=compiled)


def test_a_project_from_elsewhere_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    created = b'{"session": "session.toml", "root": "/elsewhere"}'
    monkeypatch.setattr(session_runs, "together", lambda *_, **__: [created])
    with pytest.raises(LocalError, match="imported from /elsewhere, not from"):
        Checkout.at(checkout_at(tmp_path)).average(3, 10)


def test_the_parts_of_the_limit_follow_the_plan() -> None:
    parameters, _ = check_parameters(parameters_of(500), 10)
    assert parameters is not None
    party, aggregator = party_work(parameters), aggregator_work(parameters)
    # Nine neighbours and the self-mask; nobody is lost, so ten self-masks are removed.
    assert (party.masks, party.sent, party.received) == (10, 1, 1)
    assert (aggregator.masks, aggregator.sent, aggregator.received, aggregator.added) == (10, 10, 10, 10)
    kinds = [limit_parts(parameters, work) for work in (party, aggregator)]
    assert [len(parts) for parts in kinds] == [5, 4]
    assert all(seconds > 0 for parts in kinds for seconds in parts.values())
    assert "masks 10" in party.described


def test_the_difference_is_the_largest_of_all_leaves() -> None:
    models = [model_of(index, 1_500_000) for index in range(3)]
    average = {leaf: np.stack([model[leaf] for model in models]).mean(0, float) for leaf in models[0]}
    assert [values.size for values in average.values()] == [1_000_000, 500_000]
    assert largest_difference(average, 3, 1_500_000) < 1e-12
    average["layer001"][7] += 0.25
    assert largest_difference(average, 3, 1_500_000) == pytest.approx(0.25)


def test_plain_clients_get_the_average() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, served = listener.getsockname()[1], []
        descriptor = os.dup(listener.fileno())
        server = threading.Thread(target=lambda: served.append(plain_worker.serve(descriptor, 1, 1_000)))
        server.start()
        measured = plain_worker.take_part(port, 4, 1_000)
        server.join()
    mean = np.mean(np.random.default_rng(4).uniform(-1, 1, 1_000))
    assert measured["mean"] == pytest.approx(mean, abs=1e-6)
    assert {"cpu", "busy", "peak", "written"} <= served[0].keys() & measured.keys()


def test_an_array_that_ends_early_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(bytes(7))
        with pytest.raises(EOFError, match="before the array was complete"):
            plain_worker.receive(ours, np.empty(2, np.float32))


@pytest.mark.long
def test_it_averages_exactly_and_counts_bytes(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "smpc_dp", tmp_path / "old" / "smpc_dp")
    report = run_session_bench(3, 1_000, before=str(tmp_path / "old"))
    figures = {figure.name: figure for figure in report.figures}
    assert 0 < figures["largest difference to the plain average"].median <= PRECISION
    sent = figures["party: sent"]
    assert sent.limit is not None
    assert sent.limit.median == 3_000 < sent.median < 6_000
    memory = figures["aggregator: peak memory"]
    assert memory.median > 1 << 20
    assert memory.peer is not None
    assert memory.peer.name == "before"
    assert memory.peer.median > 1 << 20
    if report.parameters["control_group"] is not None:
        assert figures["all processes: peak memory"].median > memory.median


@pytest.mark.long
def test_plain_processes_average() -> None:
    measured = plain_average(3, 1_000)
    plain = np.mean([np.random.default_rng(index).uniform(-1, 1, 1_000) for index in range(3)])
    assert [party["mean"] for party in measured.parties] == [pytest.approx(plain, abs=1e-6)] * 3
    assert measured.wall > 0
