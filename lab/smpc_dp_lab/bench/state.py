"""Benchmark of saved sessions: the same secure sums with a state and without."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from smpc_dp_lab.bench.figures import Progress, Report, Steps, refuse, versions, within
from smpc_dp_lab.bench.ways import Way, compare_ways, measured_seconds

PARTIES, LENGTH, REQUESTS = 100, 10_000, 2
# The most processor time beside that of sessions without a state.
AT_MOST = 1.3
_NOTE = "processor time of all members in one process, connections and files in memory"
# What is kept: nothing; a folder and a counter; a folder alone.
WAYS = {
    "without": Way("without a state", _NOTE),
    "counter": Way("with a state and a counter", _NOTE, AT_MOST),
    "folder": Way("with a state alone", _NOTE, AT_MOST),
}
# Files in memory: the disk is not measured.
MEMORY = Path("/dev/shm")  # noqa: S108


def run_state_bench(
    runs: int = 5,
    progress: Progress | None = None,
    *,
    parties: int = PARTIES,
    length: int = LENGTH,
    requests: int = REQUESTS,
) -> Report:
    """Measure the processor time of all members of a session, with a state and without.

    Raises:
        ConfigError: a number is out of range.
        LocalError: a run failed.
    """
    refuse(
        within("runs", runs, 1),
        within("parties", parties, 3, 200),
        within("length", length, 1),
        within("requests", requests, 1, 100),
    )
    beside = MEMORY if MEMORY.is_dir() else None

    def seconds(way: str) -> float:
        """Return the processor time of a session, from opening to closing it."""
        with tempfile.TemporaryDirectory(dir=beside) as folder:
            arguments = [folder, way, *map(str, (parties, length, requests))]
            return measured_seconds("state_worker", arguments, f"sums {WAYS[way].described}")

    name = f"{requests} sums of {parties} parties, {length:,} elements"
    steps = Steps(progress, "sessions", runs)
    figures = compare_ways(name, "the same without a state", WAYS, seconds, runs, steps)
    known = versions("pynacl", "msgspec", sqlite=sqlite3.sqlite_version)
    return Report(
        "state", figures, known, {"runs": runs, "parties": parties, "length": length, "requests": requests}
    )
