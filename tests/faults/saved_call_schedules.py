"""Simulated calls of several requests with saved states, whose members crash before drawn messages.

`python -m tests.faults.saved_call_schedules records --runs 1000` plays so many regressions in simulated time;
`learner`: so many runs of learners. See `saved_session_schedules`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.session.memory.members import SimulatedSession, simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport.memory_connections import MemoryConnections
from tests.faults.saved_session_schedules import Crashing, Kind, drawn_crashes, run_crashing, without_syncs
from tests.unit.records.test_fit import FITS, SCHEMA, hospital

PARTIES, STEPS = 3, 3
TIMEOUTS = Timeouts(connect=60.0, step=60.0, gather=60.0)
FIT: dict[str, object] = {
    "records": {**SCHEMA, "rows_expected": 80_000},
    "ask": FITS["ill"],
    "steps": STEPS,
    "dropout": 0.0,
    "corrupt": 0.0,
}


def regression(shared: OneProcess) -> SimulatedSession:
    """Return a session of an exact logistic regression."""
    return simulated_session("secagg", FIT, PARTIES, seed_for_simulation=1, shared=shared, timeouts=TIMEOUTS)


@dataclass
class Regressing(Crashing):
    """Members of a session in which a regression is asked for twice."""

    calls_of_party = 2

    async def calls(self, session: Session, got: list[Any]) -> None:
        """See `Crashing.calls`."""
        table = hospital(self.simulated.parties.index(session.party), 50)
        for number in range(len(got) + 1, self.calls_of_party + 1):
            result = await session.statistics(table, label=f"fit {number}")
            got.append([one.value for one in result.answers.estimates])


def play_regression(seed: int, folder: Path, crashing: bool = True) -> Crashing:
    """Play one run; raise AssertionError unless all have all answers."""
    (folder / "keys").mkdir(parents=True)
    connections, drawn = MemoryConnections(), random.Random(seed)
    simulated = regression(OneProcess(connections))
    names = (AGGREGATOR, *simulated.parties)
    kind = Kind("secagg", (FIT,), 400, is_exact=True)
    run = Regressing(simulated, folder, kind, drawn_crashes(drawn, names, kind.messages) if crashing else [])
    run_crashing(run, connections)
    return run


def main() -> None:
    """Play seeded runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("records",))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    chosen = parser.parse_args()
    crashed: Counter[str] = Counter()
    stopped = 0
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        wanted: Any = None
        for seed in (0, *range(chosen.first, chosen.first + chosen.runs)):
            folder = Path(tempfile.mkdtemp())
            try:
                run = play_regression(seed, folder / "session", seed > 0)
            finally:
                shutil.rmtree(folder)
            crashed += run.crashed
            if not seed:
                wanted = run.results
                print(run.sent, "messages")
            elif run.results != wanted:
                stopped += 1
                print(f"seed {seed}: {run.crashed}: {run.results}")
    print(
        f"{chosen.runs - stopped} of {chosen.runs} went on, with {crashed.total()} crashes: {dict(crashed)}"
    )


if __name__ == "__main__":
    main()
