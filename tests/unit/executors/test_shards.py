"""Shards have the same values on any executor: those of figures, runs, pairs, groups and logs."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp import simulate
from smpc_dp.cli import app
from smpc_dp.errors import Check, ConfigError, LocalError, PeerFault, TimeoutFault, VerificationError
from smpc_dp.executors.opened import open_executor
from smpc_dp.executors.shards import run_shards
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.privacy import empirical
from smpc_dp.privacy.empirical import Claim, audit_mechanism
from smpc_dp.privacy.mechanisms import DiscreteGaussian, Sensitivity
from smpc_dp.records.record_audit import audit_records
from smpc_dp.secagg.records import check_records
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.simulate import statistic
from smpc_dp_lab.bench import homomorphic, kendall, local_auc, private_boosting, tradeoff
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.run import Audit
from tests.executors import Backwards, noise_of_blocks

VECTORS = Path(__file__).resolve().parents[3] / "protocols/gopa/vectors"


@pytest.fixture(scope="module")
def executors() -> Iterator[list[Executor | None]]:
    """Processes of this machine, one to three, and two that run shards in other orders."""
    with ExitStack() as stack:
        processes = [stack.enter_context(open_executor(count)) for count in (1, 2, 3)]
        yield [*processes, Backwards(), stack.enter_context(ThreadPoolExecutor(2))]


def same(executors: list[Executor | None], compute: Callable[[Executor | None], Any]) -> Any:
    """Return the value that a function has with all executors, but for the time."""
    values = [msgspec.to_builtins(compute(executor)) for executor in executors]
    for value in values:
        value.pop("seconds", None)
        assert value == values[0]
    return values[0]


def test_one_worker_is_this_process(executors: list[Executor | None]) -> None:
    assert executors[0] is None


@pytest.mark.parametrize(
    "figure",
    [
        lambda executor: tradeoff.gopa_tradeoff(parties=(5, 8, 10), repetitions=100, executor=executor),
        lambda executor: kendall.kendall_errors(
            parties=40, epsilons=(1.0,), repetitions=3, executor=executor
        ),
        lambda executor: homomorphic.homomorphic_deviation(steps=10, repetitions=2, executor=executor),
        lambda executor: private_boosting.private_boosting(
            (20,), (1.0,), (1.0,), problems=2, executor=executor
        ),
        lambda executor: local_auc.auc_errors(
            positives=20,
            negatives=60,
            epsilons=(1.0,),
            bins=(2, 4),
            levels=(2,),
            repetitions=2,
            executor=executor,
        ),
    ],
    ids=["gopa-tradeoff", "kendall", "homomorphic", "private-boosting", "auc"],
)
def test_figures(executors: list[Executor | None], figure: Callable[[Executor | None], Any]) -> None:
    assert same(executors, figure)


def test_pairs_of_a_statistic(executors: list[Executor | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistic, "CHUNK", 4)
    data, done = np.random.default_rng(1).integers(0, 100, (20, 2)), list[int]()
    results = [
        simulate.pairwise(
            "kendall_tau", data, 1.0, seed_for_simulation=3, executor=executor, on_pairs=done.append
        )
        for executor in executors
    ]
    assert all(result == results[0] for result in results)
    assert done == [4, 8, 10] * len(executors)


RUNS = ["simulate", "average", *("--parties", "6", "--length", "40", "--dropout", "0.2")]
NOISE = ["--epsilon", "1", "--delta", "1e-5"]


def simulated(*options: str, code: int = 0) -> dict[str, Any]:
    """Return what a simulation prints, but for its schema, time and memory."""
    done = CliRunner().invoke(app, [*RUNS, "--seed-for-simulation", "3", *options, "--json"])
    assert done.exit_code == code, done.exception
    printed: dict[str, Any] = json.loads(done.stdout)
    del printed["schema"], printed["schema_version"]
    for run in [printed, *printed.get("runs", [])]:
        run.pop("seconds", None)
        run.pop("peak_bytes", None)
    return printed


def test_runs_of_an_average() -> None:
    printed = simulated("--runs", "5", *NOISE, "--workers", "1")
    assert printed == simulated("--runs", "5", *NOISE, "--workers", "2")
    seeds = [run.pop("seed_for_simulation") for run in printed["runs"]]
    assert (seeds[0], len({*seeds})) == (3, 5)
    # Each is the run that its seed makes alone.
    assert printed["runs"][0] == simulated(*NOISE)
    assert printed["runs"][4] == simulated(*NOISE, "--seed-for-simulation", str(seeds[4]))
    assert len({run["error"] for run in printed["runs"]}) == 5
    # 200 coordinates: off by a twentieth, typically.
    assert printed["error_deviation"] == pytest.approx(printed["standard_error"], rel=0.2)
    assert abs(printed["mean_error"]) < 4 * printed["standard_error"] / math.sqrt(200)


def test_exact_runs_of_an_average(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = simulated("--runs", "2", "--workers", "1")
    assert (printed["exact"], printed["standard_error"]) == (True, 0)
    assert 0 < printed["error_deviation"] < 1e-6
    done = CliRunner().invoke(app, [*RUNS, "--seed-for-simulation", "3", "--runs", "2", "--workers", "1"])
    assert done.stdout.startswith("run 1: 5 of 6 parties survived; the result equals")
    assert "2 runs: the error of a coordinate has mean" in " ".join(done.stdout.split())
    # One that differs from the sum is told.
    monkeypatch.setattr("smpc_dp.cli.simulate.fixed_point_sum", lambda *_: np.zeros(40, np.int64))
    assert simulated("--runs", "2", "--workers", "1", code=1)["exact"] is False


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--runs", "0"], "runs: must be 1 to 10000, is 0"),
        (["--runs", "10001"], "runs: must be 1 to 10000, is 10001"),
        (["--workers", "2"], "workers: is for several runs"),
        (["--ray", "auto"], "ray: is for several runs"),
        (["--runs", "2", "--report", "r.html"], "report: is for one run"),
        (["--runs", "2", "--workers", "0"], "workers: must be 1 to 256, is 0"),
    ],
)
def test_wrong_options_of_runs(options: list[str], reason: str) -> None:
    error = CliRunner().invoke(app, [*RUNS, *options]).exception
    assert isinstance(error, ConfigError)
    assert str(error) == reason


def test_results_of_runs_are_taken_from_another_process() -> None:
    result = simulate.average(np.eye(3), lower=0, upper=1, epsilon=1.0, delta=1e-5, seed_for_simulation=1)
    other = pickle.loads(pickle.dumps(result))  # noqa: S301 - its own
    assert (other.value.tolist(), other.to_json()) == (result.value.tolist(), result.to_json())


MECHANISM = DiscreteGaussian.calibrate(1.0, 1e-5, Sensitivity.on_integers("substitution", l1=1))
COLUMNS = {"max_rows": 100, "columns": {"ward": {"values": ["north", "south"]}}}
RECORDS: Any = check_records(
    {"records": COLUMNS, "ask": "ward", "epsilon": 1.0, "delta": 1e-6, "dropout": 0.0}, 4
)[0]


AUDITS = pytest.mark.parametrize(
    "audited",
    [
        lambda *asked: audit_mechanism(MECHANISM, Claim(1.0, 1e-5), 20_001, asked[0], executor=asked[1]),
        lambda *asked: audit_records(RECORDS, 20_001, asked[0], executor=asked[1]),
    ],
    ids=["mechanism", "records"],
)


@AUDITS
def test_releases_of_an_audit(
    executors: list[Executor | None], audited: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(empirical, "BLOCK", 3_000)

    def findings(executor: Executor | None) -> Any:
        return audited(SeededRandomnessForSimulation(1, "audit"), executor).to_json()

    assert same(executors, findings)["violation"] is False


@AUDITS
def test_no_two_blocks_of_an_audit_have_the_same_noise(
    audited: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = noise_of_blocks(monkeypatch, lambda: audited(SeededRandomnessForSimulation(1, "noise"), None))
    # Halves of 10,000 and 10,001 releases on two inputs, for one or two pairs of them.
    assert len(noise) in (16, 32)
    assert len({*noise}) == len(noise)


def test_blocks_of_releases_are_drawn_with_keys_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empirical, "BLOCK", 1_000)
    calls: list[tuple[int, int, bytes]] = []

    def sample(*call: Any) -> np.ndarray[Any, Any]:
        calls.append(call)
        return np.zeros((call[1], 1))

    empirical.audit(sample, [Claim(1.0, 0.0)], 10_001)
    drawn = [[(which, 1_000)] * 5 for which in (0, 1, 0, 1)]
    assert [call[:2] for call in calls] == [*drawn[0], *drawn[1], *drawn[2], (0, 1), *drawn[3], (1, 1)]
    assert len({key for *_, key in calls}) == len(calls)


@pytest.mark.parametrize("more", [-1, 1])
def test_blocks_of_more_or_fewer_releases_are_no_releases(more: int) -> None:
    """Counted as if all were there, they would refute a right claim."""
    with pytest.raises(LocalError, match=f"^a block of 5000 releases has {5_000 + more}$"):
        empirical.audit(lambda _which, count, _key: np.zeros((count + more, 1)), [Claim(1.0, 0.0)], 10_000)


LOGS = [
    "\n".join([*json.loads((VECTORS / name).read_text("utf-8"))["log"], ""])
    for name in ("verifiable-run-honest.json", "verifiable-run-false-openings.json")
]


@pytest.mark.parametrize("log", LOGS, ids=["honest", "false openings"])
def test_signatures_and_proofs_of_a_log(executors: list[Executor | None], log: str) -> None:
    def audited(executor: Executor | None) -> Any:
        return audit_stream(io.BytesIO(log.encode()), threads=1, executor=executor)

    assert same(executors, audited)["code"] == 3
    # A signature of the last entry but one: found by whoever checks it.
    lines = log.splitlines()
    lines[2] = re.sub(r'(?<="signature":")..', lambda old: "00" if old[0] != "00" else "01", lines[2])
    log = "\n".join([*lines, ""])
    assert same(executors, audited)["check"] == "bad-signature"


@pytest.mark.parametrize("log", LOGS, ids=["honest", "false openings"])
def test_proofs_of_a_log_by_the_second_auditor(executors: list[Executor | None], log: str) -> None:
    def audited(executor: Executor | None) -> dict[str, object]:
        audit = Audit(log.splitlines(), {"ann"}, executor)
        return {"total": audit.total, "excluded": audit.excluded, "by": audit.shown_by, "head": audit.head}

    assert same(executors[:1] + executors[2:], audited)["total"]


def test_checks_of_a_log_that_is_refused_are_cancelled() -> None:
    executor = Backwards()
    with pytest.raises(Refused, match="no end"):
        Audit(LOGS[0].splitlines()[:6], None, executor)
    assert executor.calls
    assert all(future.cancelled() for future, _ in executor.calls)


class Losing(Executor):
    """Computes, and returns None."""

    def submit(self, function: Callable[..., Any], /, *call: Any, **named: Any) -> Future[Any]:
        function(*call, **named)
        future = Future[Any]()
        future.set_result(None)
        return future


@pytest.mark.parametrize(
    "audited",
    [
        lambda log, executor: audit_stream(io.BytesIO(log.encode()), executor=executor),
        lambda log, executor: Audit(log.splitlines(), {"ann"}, executor),
    ],
    ids=["first", "second"],
)
def test_no_auditor_takes_no_value_for_a_right_one(audited: Callable[[str, Executor], Any]) -> None:
    with pytest.raises(TypeError):
        audited(LOGS[0], Losing())


def test_shards_are_submitted_ahead_and_not_all_at_once() -> None:
    executor = Backwards()
    shards = run_shards(executor, abs, ((-number,) for number in range(10)), "number", ahead=4)
    assert next(shards) == 0
    assert executor.ran == 4
    assert list(shards) == [*range(1, 10)]


def test_what_waits_after_an_error_is_cancelled() -> None:
    executor = Backwards()
    with pytest.raises(ZeroDivisionError):
        list(run_shards(executor, divmod, [(1, 1), (1, 0)], "division"))
    with ThreadPoolExecutor(1) as threads, pytest.raises(ZeroDivisionError):
        list(run_shards(threads, divmod, [(1, 0), (1, 1)], "division"))


def test_a_process_that_is_killed_is_told_with_its_shard() -> None:
    with open_executor(2) as executor:
        shards = run_shards(executor, os._exit, [(1,)], "problem")
        with pytest.raises(LocalError, match=r"^problem 1: a process that computes has ended"):
            list(shards)
        # The pool is broken for good.
        with pytest.raises(LocalError, match=r"^problem 1: "):
            list(run_shards(executor, abs, [(1,)], "problem"))


def say_pid(folder: str) -> None:
    """Say which process this is, and take longer than any test."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)


OPENERS = {
    "first": "from smpc_dp.executors.opened import open_executor as opened",
    "second auditor": "from smpc_dp_verify.workers import open_processes as opened",
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
def test_processes_end_with_the_one_that_started_them(opener: str, tmp_path: Path) -> None:
    code = f"""
from concurrent.futures import wait
{opener}
from tests.unit.executors.test_shards import say_pid
if __name__ == "__main__":
    with opened(2) as executor:
        # Calls that have not begun when the executor is closed are cancelled.
        wait([executor.submit(say_pid, {str(tmp_path)!r}) for _ in range(2)])
"""
    (tmp_path / "main.py").write_text(code)
    started = subprocess.Popen([sys.executable, tmp_path / "main.py"])
    try:
        until(lambda: len([*tmp_path.glob("[0-9]*")]) == 2)
        pids = [int(path.name) for path in tmp_path.glob("[0-9]*")]
    finally:
        started.kill()
        started.wait()
    until(lambda: not any(map(runs, pids)))


def until(happened: Callable[[], bool]) -> None:
    """Wait until something has happened; fail after two minutes."""
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError("it has not happened")


def runs(pid: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def too_much() -> None:
    raise MemoryError


def test_exhausted_memory_is_told_with_its_shard() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(LocalError, match=r"^run 1: memory is exhausted$"):
        list(run_shards(executor, too_much, [()], "run"))


@pytest.mark.parametrize(("workers", "ray"), [(0, None), (257, None), (2, "auto")])
def test_wrong_options(workers: int, ray: str | None) -> None:
    with pytest.raises(ConfigError, match="workers"), open_executor(workers, ray):
        pass


@pytest.mark.parametrize(
    "error",
    [
        LocalError("disk"),
        PeerFault("bob", "lies", Check.BAD_PROOF, {"signed": b"1"}, accuser="carol"),
        VerificationError("false", Check.BAD_PROOF),
        TimeoutFault(["bob"], "masked", number=3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_another_process_are_as_they_were_raised(error: Exception) -> None:
    other = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))
