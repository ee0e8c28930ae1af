"""Logs of whole verifiable runs: the time and memory to make and to audit them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from smpc_dp.errors import LocalError
from smpc_dp.logs.log import Entry
from smpc_dp.logs.reader import LogReader
from smpc_dp_lab.bench.figures import Figure, Progress, Steps, cost
from smpc_dp_lab.bench.workers import together

THREADS = 2
STEPS = 50
"""Grid steps of a value's range."""
EPSILON, DELTA, CORRUPT = 1.0, 1e-6, 0.1

_Taken = dict[str, float]


def log_figures(parties: Sequence[int], runs: int, progress: Progress | None = None) -> list[Figure]:
    """Make a log of each number of parties, by simulation, and audit it `runs` times, in fresh processes."""
    figures: list[Figure] = []
    peaks: dict[int, float] = {}
    for count in sorted({*parties}):
        with TemporaryDirectory() as folder:
            more = _figures(Path(folder) / "board.jsonl", count, runs, progress)
        figures += more
        peaks[count] = next(figure.median for figure in more if figure.name.endswith(": audit, memory"))
    first, *others = peaks or [0]
    for count in others:
        growth = (peaks[count] - peaks[first]) / (count - first)
        note = f"the difference of the two peaks for each user more than {first}; they vary by megabytes"
        name = f"logs of {first} and {count} users: audit, memory a user more"
        figures.append(cost(name, "B", [growth], note))
    return figures


def _figures(path: Path, parties: int, runs: int, progress: Progress | None) -> list[Figure]:
    name = f"log of {parties} users"
    step = Steps(progress, name, runs + 1)
    given = (STEPS, EPSILON, DELTA, CORRUPT)
    made = _apart("make", str(path), str(parties), *map(str, given))
    step()
    payload_bytes, neighbours = _sizes(path)
    taken = []
    for _ in range(runs):
        taken.append(_apart("audit", str(path), str(THREADS)))
        step()
    note = (
        f"length 1, values of 0 to {STEPS} grid steps, epsilon {EPSILON:g}, delta {DELTA:g}, "
        f"{CORRUPT:g} of the users corrupt, {neighbours:.1f} neighbours on average"
    )
    making = f"{note}; all users and the relay in one thread of a fresh process"
    auditing = f"{note}; {THREADS} threads, a fresh process"

    def figures(title: str, runs: Sequence[_Taken], note: str) -> list[Figure]:
        own = f"{note}; at most, of which the program itself {runs[0]['before'] / 1e6:.0f} MB"
        return [
            cost(f"{name}: {title}", "s", [one["seconds"] for one in runs], f"{note}, by the clock"),
            cost(f"{name}: {title}, processor", "s", [one["processor"] for one in runs], note),
            cost(f"{name}: {title}, memory", "B", [one["peak"] for one in runs], own),
        ]

    return [
        *figures("make", [made], making),
        cost(f"{name}: bytes", "B", [path.stat().st_size], note),
        cost(f"{name}: a user's messages", "B", [payload_bytes], f"{note}; payloads, without signatures"),
        *figures("audit", taken, auditing),
    ]


def _sizes(path: Path) -> tuple[float, float]:
    """Return the average bytes of a party's messages, and of its neighbours'."""
    payload_bytes = neighbours = party_count = 0
    with path.open("rb") as stream:
        reader = LogReader(stream)
        parties = msgspec.json.decode(reader.session.whole())["roster"]
        for entry in reader.entries():
            if any(entry.kind == kind for kind in ("commit", "coin", "publish")):
                payload_bytes += len(entry.payload)
            if entry.kind == "commit":
                party_count += 1
                neighbours += _neighbours(entry)
    if party_count != len(parties) - 1:
        raise LocalError(f"{path}: {party_count} of {len(parties) - 1} users have committed")
    return payload_bytes / party_count, neighbours / party_count


def _neighbours(entry: Entry) -> int:
    return len(msgspec.msgpack.decode(entry.payload)[4]) // 2


def _apart(task: str, *arguments: str) -> _Taken:
    """Make or audit a log in a process of its own, and return the measurements that it prints."""
    [printed] = together("log_worker", [[task, *arguments]], f"{task} {arguments[0]}")
    answer: _Taken = json.loads(printed)
    if not answer["ok"]:
        raise LocalError(f"{arguments[0]}: the audit says that the log does not hold")
    return answer
