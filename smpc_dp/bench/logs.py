"""Logs of whole verifiable runs: what making them takes, and what auditing them takes, in time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np

from smpc_dp.bench.figures import Figure
from smpc_dp.board.log import Entry
from smpc_dp.board.reader import LogReader
from smpc_dp.errors import LocalError
from smpc_dp.simulate.average import average

THREADS = 2
STEPS = 50
"""Grid steps of a value's range."""
EPSILON, DELTA, CORRUPT = 1.0, 1e-6, 0.1

Progress = Callable[[str, int, int], None]


def log_figures(users: Sequence[int], runs: int, progress: Progress | None = None) -> list[Figure]:
    """Make a log of each number of users, by simulation, and audit it `runs` times in fresh processes."""
    figures: list[Figure] = []
    for count in users:
        with TemporaryDirectory() as folder:
            figures += _figures(Path(folder) / "board.jsonl", count, runs, progress)
    return figures


def _figures(path: Path, users: int, runs: int, progress: Progress | None) -> list[Figure]:
    name = f"log of {users} users"
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(name, done, runs + 1)

    begun = time.perf_counter()
    make_log(path, users)
    making = time.perf_counter() - begun
    step()
    said, neighbours = _sizes(path)
    taken = []
    for _ in range(runs):
        taken.append(audit_apart(path))
        step()
    note = (
        f"length 1, values of 0 to {STEPS} grid steps, epsilon {EPSILON:g}, delta {DELTA:g}, "
        f"{CORRUPT:g} of the users corrupt, {neighbours:.1f} neighbours on average"
    )
    audited = f"{note}; {THREADS} threads, a fresh process"
    return [
        Figure(f"{name}: make", "s", [making], "lower", f"{note}; all users and the relay in one thread"),
        Figure(f"{name}: bytes", "B", [float(path.stat().st_size)], "lower", note),
        Figure(f"{name}: a user's messages", "B", [said], "lower", f"{note}; payloads, without signatures"),
        Figure(f"{name}: audit", "s", [one["seconds"] for one in taken], "lower", f"{audited}, by the clock"),
        Figure(f"{name}: audit, processor", "s", [one["processor"] for one in taken], "lower", audited),
        Figure(
            f"{name}: audit, memory",
            "B",
            [one["peak"] for one in taken],
            "lower",
            f"{audited}; at most, of which the program itself {taken[0]['before'] / 1e6:.0f} MB",
        ),
    ]


def make_log(path: Path, users: int) -> None:
    """Write the log of a simulated run, with real randomness."""
    values = np.random.default_rng(users).random((users, 1))
    average(
        values,
        lower=0,
        upper=1,
        precision=1 / STEPS,
        method="gopa",
        epsilon=EPSILON,
        delta=DELTA,
        planned_dropout=0.0,
        corrupt=CORRUPT,
        verifiable=True,
        board=path,
    )


def _sizes(path: Path) -> tuple[float, float]:
    """Return the bytes that a user says, and its neighbours, on average."""
    said = neighbours = users = 0
    with path.open("rb") as stream:
        reader = LogReader(stream)
        parties = msgspec.json.decode(reader.session.whole())["roster"]
        for entry in reader.entries():
            if any(entry.kind == kind for kind in ("commit", "coin", "publish")):
                said += len(entry.payload)
            if entry.kind == "commit":
                users += 1
                neighbours += _neighbours(entry)
    if users != len(parties) - 1:
        raise LocalError(f"{path}: {users} of {len(parties) - 1} users have committed")
    return said / users, neighbours / users


def _neighbours(entry: Entry) -> int:
    return len(msgspec.msgpack.decode(entry.payload)[4]) // 2


def audit_apart(path: Path) -> dict[str, float]:
    """Audit a log in a process of its own, and return what it says of itself."""
    command = [sys.executable, "-m", "smpc_dp.bench.audit_worker", str(path), str(THREADS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise LocalError(f"the audit of {path} failed: {ended.stderr[-500:]}")
    answer: dict[str, float] = json.loads(ended.stdout)
    if not answer["ok"]:
        raise LocalError(f"{path}: the audit says that the log does not hold")
    return answer
