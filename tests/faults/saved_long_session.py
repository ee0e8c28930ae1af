"""A simulated session of many requests with saved states, whose members are started again all the time.

`python -m tests.faults.saved_long_session --requests 2000` prints, after some of the requests, what the
process and the folders have: resident memory, open files, files and bytes. All members are in one process.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from smpc_dp.session.memory.members import simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import AGGREGATOR, party_names
from smpc_dp.session.session import Session
from smpc_dp.transport.memory_connections import MemoryConnections
from tests.faults.saved_session_schedules import (
    EXACT,
    KINDS,
    PARTIES,
    TIMEOUTS,
    UNCHECKED,
    Crashing,
    run_crashing,
    without_syncs,
)

MEMBERS = (AGGREGATOR, *party_names(PARTIES))
# Messages of a request, and of how many requests a member crashes in one unless it is given.
MESSAGES, EVERY = 45, 25


class Held(NamedTuple):
    """What the process and the folders have after a request."""

    request: int
    crashes: int
    resident: int
    descriptors: int
    files: int
    stored: int


@dataclass
class Long(Crashing):
    """Members of a session of many requests, each of whose results is checked and forgotten.

    Attributes:
        requests: how many there are.
        marks: the requests after which `held` gets what is there.
    """

    requests: int = 0
    marks: Sequence[int] = ()
    held: list[Held] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)

    async def calls(self, session: Session, _got: list[Any]) -> None:
        """See `Crashing.calls`."""
        name = session.party
        while (number := self.done.get(name, 0) + 1) <= self.requests:
            result = await session.sum([number], label=f"round {number}")
            assert (result.value.tolist(), len(result.survivors)) == ([PARTIES * number], PARTIES), number
            self.done[name] = number
            if number in self.marks and all(self.done.get(one) == number for one in self.simulated.parties):
                self.held.append(self._measured(number))

    def _measured(self, number: int) -> Held:
        gc.collect()
        paths = [one for part in ("states", "counters") for one in (self.folder / part).rglob("*")]
        sizes = [one.stat().st_size for one in paths if one.is_file()]
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return Held(
            number,
            self.crashed.total(),
            pages * os.sysconf("SC_PAGE_SIZE"),
            len(os.listdir("/proc/self/fd")),
            len(sizes),
            sum(sizes),
        )


def play(folder: Path, requests: int, marks: Sequence[int], every: int = EVERY) -> Long:
    """Play one session, and return what was there after the requests `marks`."""
    (folder / "keys").mkdir(parents=True)
    connections, drawn = MemoryConnections(), random.Random(1)
    shared = OneProcess(connections)
    simulated = simulated_session(
        "secagg", EXACT | UNCHECKED, PARTIES, seed_for_simulation=1, shared=shared, timeouts=TIMEOUTS
    )
    messages = MESSAGES * every
    crashes = [
        (drawn.randrange(first, first + messages), drawn.choice(MEMBERS), drawn.uniform(0.0, 2.0))
        for first in range(1, MESSAGES * requests, messages)
    ]
    run = Long(simulated, folder, KINDS["exact"], crashes, requests=requests, marks=marks)
    run_crashing(run, connections)
    assert all(run.results[name] == [] for name in simulated.parties), run.results
    assert set(run.done.values()) == {requests}
    return run


def main() -> None:
    """Play a session, and print what it has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    chosen = parser.parse_args()
    marks = sorted({1, *(chosen.requests * part // 20 for part in (1, 5, 10, 15, 20))})
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        without_syncs(patch)
        run = play(Path(folder), chosen.requests, marks)
    print(f"{run.sent} messages, {dict(run.crashed)} crashes")
    print(f"{'request':>8} {'crashes':>8} {'MB':>8} {'open':>6} {'files':>6} {'bytes':>8}")
    for one in run.held:
        print(
            f"{one.request:8} {one.crashes:8} {one.resident / 1e6:8.1f} {one.descriptors:6} {one.files:6} "
            f"{one.stored:8}"
        )


if __name__ == "__main__":
    main()
