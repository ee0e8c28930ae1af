"""Disk and memory that an aggregator needs, from the plan, and what its machine has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from smpc_dp.errors import LocalError
from smpc_dp.transport.spool import SpoolFolder

# Vectors in memory at a time, in the bytes of a message: the total and the result that is made of it.
TOTALS = 2
_SYSTEM = Path("/")


def check_room(spools: SpoolFolder, spooled: int, largest: int) -> None:
    """Raise LocalError unless disk and memory have room for the session's large messages.

    `spooled`: the most bytes that arrive at a time; one more message is used meanwhile.
    """
    spools.check_room(spooled + largest)
    needed, available = TOTALS * largest, available_memory()
    if available is not None and available < needed:
        raise LocalError(f"totals of this session need {needed} bytes of memory, {available} are available")


def available_memory(root: Path = _SYSTEM) -> int | None:
    """Return how many bytes of memory this process may still use, or None if unknown.

    `root`: the folder with the system's `proc` and `sys`. The control groups of the process count, version 2.
    """
    return min((*_of_machine(root / "proc/meminfo"), *_of_groups(root)), default=None)


def _of_machine(table: Path) -> Iterator[int]:
    """Yield the machine's available memory in bytes, if the kernel reports it."""
    with contextlib.suppress(OSError, ValueError):
        for line in table.read_text().splitlines():
            name, _, amount = line.partition(":")
            if name == "MemAvailable":
                yield int(amount.split()[0]) << 10


def _of_groups(root: Path) -> Iterator[int]:
    """Yield the bytes that each control group (cgroup) with a memory limit still allows."""
    with contextlib.suppress(OSError):
        paths = [
            line[3:] for line in (root / "proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"
        ]
        for path in paths:
            own = root / "sys/fs/cgroup" / path.strip("/")
            for folder in (own, *own.parents):
                with contextlib.suppress(OSError, ValueError):
                    limit = int((folder / "memory.max").read_text())
                    used = int((folder / "memory.current").read_text())
                    rows = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                    yield max(0, limit - used + int(rows.get("inactive_file", 0)))
