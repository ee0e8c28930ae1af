"""Benchmark of saved sessions: the same secure sums with a state and without."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smpc_dp_lab.bench.figures import (
    Peer,
    Progress,
    Report,
    Steps,
    Target,
    alternate,
    cost,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.workers import together

PARTIES, LENGTH, REQUESTS = 100, 10_000, 2
# The most processor time beside that of sessions without a state.
AT_MOST = 1.3
SECONDS = 900.0
WITHOUT, COUNTER = "without", "counter"
# What is kept: nothing; a folder and a counter; a folder alone.
WAYS = {WITHOUT: "without a state", COUNTER: "with a state and a counter", "folder": "with a state alone"}
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
            numbers = [str(number) for number in (parties, length, requests)]
            (output,) = together("state_worker", [[folder, way, *numbers]], f"sums {WAYS[way]}", SECONDS)
        taken: dict[str, Any] = json.loads(output)
        return float(taken["seconds"])

    taken = alternate(runs, {way: partial(seconds, way) for way in WAYS}, Steps(progress, "sessions", runs))
    peer = Peer.of("the same without a state", version("smpc-dp"), taken[WITHOUT])
    name = f"{requests} sums of {parties} parties, {length:,} elements"
    note = "processor time of all members in one process, connections and files in memory"
    figures = [
        cost(
            f"{name}: {described}",
            "s",
            taken[way],
            note,
            peer=None if way == WITHOUT else peer,
            target=Target("ratio_to_peer", 1 / AT_MOST) if way == COUNTER else None,
        )
        for way, described in WAYS.items()
    ]
    known = versions("pynacl", "msgspec", sqlite=sqlite3.sqlite_version)
    return Report(
        "state", figures, known, {"runs": runs, "parties": parties, "length": length, "requests": requests}
    )
