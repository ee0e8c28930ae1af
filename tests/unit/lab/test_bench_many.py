"""`smpc-dp bench many` at small sizes: it ends right, also beside what goes wrong, and tells what is not."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.report.document import render
from smpc_dp_lab.bench import many, provenance
from smpc_dp_lab.bench.figures import Figure, Report, cost
from smpc_dp_lab.bench.many import (
    KINDS,
    LENGTH,
    Case,
    Trouble,
    check_sums,
    figure_name,
    run_many_bench,
)
from smpc_dp_lab.bench.many_worker import Job, Taken, raise_limit, value_file, vector_of
from smpc_dp_lab.bench.page import all_figures, load_results, page
from smpc_dp_lab.bench.performance import performance


def figures_of(report: Report) -> dict[str, float]:
    return {figure.name: figure.median for figure in report.figures}


@pytest.mark.long
def test_sums_of_clients_that_are_killed_at_random_steps_are_exact_and_measured() -> None:
    report = run_many_bench([12, 24], killed=0.09, each=12)
    figures = figures_of(report)
    assert figures.keys() == {figure_name(kind, count, LENGTH) for kind in KINDS for count in (12, 24)}
    assert all(value > 0 for value in figures.values())
    # 24 connections, and those of the event loop.
    assert 24 < figures[figure_name("aggregator open descriptors", 24, LENGTH)] < 60


@pytest.mark.long
@pytest.mark.parametrize("kind", ["slow", "flood", "churn"])
def test_sums_beside_trouble_are_exact(kind: str) -> None:
    report = run_many_bench([30], 500, trouble=Trouble(**{kind: True}), each=15)
    if kind == "slow":
        # The vector of the slow client alone takes so long.
        assert figures_of(report)[figure_name("sum, wall time", 30, 500)] > 10


@pytest.mark.long
def test_sums_beside_all_trouble_at_once_are_exact() -> None:
    run_many_bench([30], 500, trouble=Trouble(slow=True, flood=True, churn=True), each=15, shared_from=30)


@pytest.mark.parametrize(
    ("parties", "length", "killed", "trouble"),
    [
        (4, 10, 0.0, Trouble()),
        (29, 10, 0.0, Trouble(slow=True)),
        (12, 0, 0.0, Trouble()),
        (12, 10, 0.5, Trouble()),
        (12, 10, float("nan"), Trouble()),
    ],
)
def test_sizes_out_of_range_are_refused(parties: int, length: int, killed: float, trouble: Trouble) -> None:
    with pytest.raises(ConfigError):
        run_many_bench([parties], length, killed=killed, trouble=trouble)


def test_more_descriptors_than_the_system_allows_are_refused_with_the_number() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system has no limit")
    with pytest.raises(LocalError, match=f"{hard + 1:,} descriptors are needed, .* allows {hard:,}"):
        raise_limit(hard + 1)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of a commit's code that cost 3 of each unit for a client, and fail for 99 clients."""

    def measure(case: Case) -> list[Figure]:
        if case.parties == 99:
            raise LocalError("p00001 failed")
        return [
            cost(figure_name(kind, case.parties, case.length), unit, [3.0 * case.parties], "processes")
            for kind, unit in KINDS.items()
        ]

    monkeypatch.setattr(many, "measure", measure)
    # That of this checkout may have changes.
    monkeypatch.setattr(provenance, "commit_of", lambda *_: "0" * 40)


def stored_sizes(folder: Path) -> object:
    (result,) = load_results(folder)
    assert {one["name"] for one in result["figures"]} == {
        figure_name(kind, *size) for kind in KINDS for size in result["parameters"]["sizes"]
    }
    return result["parameters"]["sizes"]


@pytest.mark.usefixtures("measured")
def test_each_size_is_stored_when_it_ends_and_added_to_those_of_earlier_runs(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="p00001 failed"):
        run_many_bench([20, 40, 99], out=tmp_path)
    assert stored_sizes(tmp_path) == [[20, LENGTH], [40, LENGTH]]
    run_many_bench([10, 40], 100_000, out=tmp_path)
    run_many_bench([40], out=tmp_path)
    assert stored_sizes(tmp_path) == [[20, LENGTH], [40, LENGTH], [10, 100_000], [40, 100_000]]
    (result,) = load_results(tmp_path)
    assert result["machine"]
    assert 0 <= result["others"] <= 1
    # Of those lengths that have been measured for several numbers of clients, the one that is shown.
    assert {one["figure"]: round(one["b"], 6) for one in result["parameters"]["growth"]} == dict.fromkeys(
        KINDS, 1
    )


@pytest.mark.usefixtures("measured")
def test_a_size_is_not_added_to_a_result_that_was_measured_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_many_bench([20], out=tmp_path)
    with pytest.raises(LocalError, match="has another killed, seed: remove it"):
        run_many_bench([20], killed=0.01, seed=1, out=tmp_path)
    monkeypatch.setattr(many, "machine", lambda: {"processor": "Another 9000"})
    with pytest.raises(LocalError, match="has another machine: remove it"):
        run_many_bench([20], out=tmp_path)
    assert stored_sizes(tmp_path) == [[20, LENGTH]]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("commit", [None, "0" * 40 + provenance.CHANGED])
def test_a_size_of_code_that_is_no_commits_is_not_added(
    commit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "commit_of", lambda *_: commit)
    run_many_bench([20, 40], out=tmp_path)
    with pytest.raises(LocalError, match="has sizes, and this code is not that of a commit: remove it"):
        run_many_bench([60], out=tmp_path)
    assert stored_sizes(tmp_path) == [[20, LENGTH], [40, LENGTH]]


@pytest.mark.usefixtures("measured")
def test_pages_show_the_stored_sizes(tmp_path: Path) -> None:
    run_many_bench([200, 1_000], out=tmp_path)
    run_many_bench([1_000], 100_000, out=tmp_path)
    results = load_results(tmp_path)
    assert "| 1,000 clients, 100,000 numbers |" in all_figures(results)
    assert "1,000 clients, 100,000 numbers: client sends" in render(page(results))
    root = Path(__file__).resolve().parents[3]
    others = [one for one in load_results(root / "benchmarks") if one["bench"] != "many"]
    opening = "Of 1,000 clients over mutual TLS on loopback, "
    assert opening not in performance(others)
    sentences = performance([*others, *results]).partition(opening)[2].partition("\n")[0]
    assert "for a sum of 100,000 numbers. A client receives 3 kB" in sentences
    assert "these three costs grow as n^1, n^1, n^1" in sentences


class Ended:
    """What the members of a right sum of five clients, of whom one is killed, have measured."""

    def __init__(self, folder: Path) -> None:
        self.case = Case(5, 3, 0.0, 7)
        path = str(folder / "session.toml")
        killed = {"p00004": (1, "start")}
        shared = {"session": path, "length": 3, "seed": 7, "requests": 1, "processes": 1, "seconds": 1.0}
        self.jobs = [
            Job(**shared, number=0),  # type: ignore[arg-type]
            Job(**shared, number=1, parties=tuple(self.case.names), killed=killed),  # type: ignore[arg-type]
        ]
        self.survivors = tuple(self.case.names[:4])
        self.aggregator = Taken(moments={}, results=[{"aggregator": "d"}], survivors={1: self.survivors})
        self.clients = Taken(moments={}, results=[dict.fromkeys(self.survivors, "d")])
        self.store(sum(vector_of(name, 3, 8) for name in self.survivors))

    def store(self, value: object) -> None:
        np.save(value_file(self.jobs[0].session, 1), np.asarray(value))

    def check(self) -> None:
        check_sums(self.case, self.jobs, self.aggregator, [self.clients])


def test_a_right_sum_is_accepted(tmp_path: Path) -> None:
    Ended(tmp_path).check()


def test_a_sum_that_is_not_exact_is_told(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    ended.store(sum(vector_of(name, 3, 8) for name in ended.survivors) + 2.0**-20)
    with pytest.raises(LocalError, match="not the plain sum"):
        ended.check()


def test_a_client_with_another_result_is_told(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    ended.clients.results[0]["p00002"] = "e"
    with pytest.raises(LocalError, match="different results"):
        ended.check()


def test_a_client_without_a_result_is_told(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    del ended.clients.results[0]["p00002"]
    with pytest.raises(LocalError, match="1 clients, p00002 too, have no result"):
        ended.check()


def test_a_client_that_is_lost_without_a_kill_is_told(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    ended.aggregator.survivors[1] = ended.survivors[:3]
    with pytest.raises(LocalError, match="p00003 too, have no part in it"):
        ended.check()


def test_the_error_of_a_client_is_told(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    ended.clients.failed["p00001"] = "TimeoutFault: late"
    with pytest.raises(LocalError, match="p00001 failed: TimeoutFault: late"):
        ended.check()
