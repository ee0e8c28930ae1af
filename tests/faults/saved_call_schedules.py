"""Simulated calls of several requests with saved states, whose members crash before drawn messages.

`python -m tests.faults.saved_call_schedules records --runs 1000` plays so many regressions in simulated time,
with `learner` so many runs of learners. See `saved_session_schedules`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from smpc_dp.capabilities.learn.requests.learning import serve_steps
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.errors import SmpcError
from smpc_dp.session.aggregator import log_folder, open_aggregator
from smpc_dp.session.memory.members import simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import AGGREGATOR, party_names
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport.memory_connections import MemoryConnections
from tests.faults.saved_session_schedules import Crashing, Kind, drawn_crashes, run_crashing, without_syncs
from tests.unit.records.test_fit import hospital
from tests.unit.session.test_saved_calls import FIT, STEPS

C = TypeVar("C", bound=Crashing)
PARTIES, CALLS = 3, 2
# Before one of so many messages members crash; a run has at least as many.
MESSAGES = 288
TIMEOUTS = Timeouts(connect=60.0, step=60.0, gather=60.0)
UNCHECKED: dict[str, object] = {"averager": {"total": "unchecked"}}
OWN: dict[str, object] = {
    "learner": "sgd",
    "model": "own",
    "length": 2,
    "steps": STEPS,
    "rate": 0.5,
    "clip": 9.0,
    **UNCHECKED,
}
START = np.array([0.3, -1.7])
# Exact: noise is drawn anew in a run that is begun anew.
LEARNERS: tuple[dict[str, object], ...] = (
    OWN,
    {"learner": "sgd", "features": 1, "steps": STEPS, "metric_every": 2, "metric_upper": 2.0},
    {"learner": "block-gossip", "features": 1, "steps": 2 * STEPS, "group": 3, "seed": 3} | UNCHECKED,
    {"learner": "diffusion", "features": 1, "steps": STEPS, "group": 3, "seed": 1} | UNCHECKED,
    {"learner": "diffusion", "features": 1, "steps": STEPS, "noise": "none"},
)


class Regressing(Crashing):
    """Members of a session in which a regression is asked for twice."""

    async def calls(self, session: Session, got: list[Any]) -> None:
        """See `Crashing.calls`."""
        table = hospital(self.simulated.parties.index(session.party), 50)
        for number in range(len(got) + 1, CALLS + 1):
            result = await session.statistics(table, label=f"fit {number}")
            got.append([one.value for one in result.answers.estimates])


@dataclass
class Learning(Crashing):
    """Members of a session that learns.

    Attributes:
        learned: by party, its result.
        failures: that the aggregator has served.
    """

    learned: dict[str, Learned] = field(default_factory=dict)
    failures: Mapping[int, str] | None = None

    def gradient(self, _party: str, model: Any, data: float) -> Any:
        """Return the gradient of the squared distance to a party's point."""
        return model - data

    async def calls(self, session: Session, got: list[Any]) -> None:
        """See `Crashing.calls`."""
        number = self.simulated.parties.index(session.party)
        if self.simulated.session.parameters.get("model") == "own":
            gradient = partial(self.gradient, session.party)
            learned = await session.learn(float(number), model=START, gradient=gradient)
        else:
            learned = await session.learn(np.array([[0.5 * number, number % 2], [1.0, 1.0 - number % 2]]))
        self.learned[session.party] = learned
        # Whoever crashes between its last step and its end has the same model again.
        got.append((learned.values.tobytes(), learned.done.tolist(), learned.failures, learned.metrics))
        assert got == got[:1] * len(got), got
        del got[1:]

    async def serve(self, name: str) -> None:
        """See `Crashing.serve`."""
        membership, state = self.simulated.membership(name, self.folder), self.state(name)
        try:
            logs = log_folder(membership, self.folder / "session.toml", None)
            opening = open_aggregator(membership, logs=logs, state=state)
            self.failures = await serve_steps(membership, opening)
        finally:
            state.close()


def regression(seed: int, folder: Path, *, crashing: bool = True) -> Crashing:
    """Play regressions, with crashes or without."""
    drawn = drawn_crashes(random.Random(seed), names_of(PARTIES), MESSAGES) if crashing else []
    return played(Regressing, "secagg", FIT, folder, drawn, seed=seed)


def learner(seed: int, folder: Path, *, crashing: bool = True) -> Crashing:
    """Play the run of a learner, with crashes or without."""
    given = LEARNERS[seed % len(LEARNERS)]
    parties = 5 if given["learner"] in ("block-gossip", "diffusion") else PARTIES
    # Nobody is away at the end of the last request, after which the aggregator waits for nobody else.
    messages = 50 if given.get("noise") else MESSAGES
    drawn = drawn_crashes(random.Random(seed), names_of(parties), messages) if crashing else []
    return played(Learning, "learn", given, folder, drawn, seed=seed, parties=parties)


def names_of(parties: int) -> tuple[str, ...]:
    """Return the members of a simulated session."""
    return (AGGREGATOR, *party_names(parties))


def played(
    kind: Callable[..., C],
    protocol: str,
    given: Mapping[str, object],
    folder: Path,
    crashes: list[tuple[int, str, float]],
    *,
    seed: int = 1,
    parties: int = PARTIES,
) -> C:
    """Return the members of a session with these parameters, after it has ended."""
    (folder / "keys").mkdir(parents=True)
    connections = MemoryConnections()
    shared = OneProcess(connections)
    simulated = simulated_session(
        protocol, given, parties, seed_for_simulation=seed, shared=shared, timeouts=TIMEOUTS
    )
    run = kind(simulated, folder, Kind(protocol, ()), crashes)
    run_crashing(run, connections)
    return run


def all_have_results(run: Crashing) -> bool:
    """Return whether all have a result, and one that was away lacks a step.

    A learner's average is lost to who comes back when a later request of another group has ended.
    """
    results = [one for got in run.results.values() for one in got]
    if "group" not in run.simulated.session.parameters or any(isinstance(one, SmpcError) for one in results):
        return False
    return any(failures for _, _, failures, _ in results)


PLAYED: Mapping[str, Callable[..., Crashing]] = {"records": regression, "learner": learner}


def main() -> None:
    """Play seeded runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=(*PLAYED,))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    chosen = parser.parse_args()
    crashed: Counter[str] = Counter()
    stopped = late = 0
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        wanted: dict[int, Any] = {}
        for seed in range(chosen.first, chosen.first + chosen.runs):
            folder = Path(tempfile.mkdtemp())
            try:
                kind = seed % len(LEARNERS) if chosen.kind == "learner" else 0
                if kind not in wanted:
                    whole = PLAYED[chosen.kind](kind, folder / "whole", crashing=False)
                    wanted[kind] = whole.results
                    print(f"{whole.sent} messages without crashes")
                run = PLAYED[chosen.kind](seed, folder / "session")
            finally:
                shutil.rmtree(folder)
            crashed += run.crashed
            if run.results != wanted[kind] and all_have_results(run):
                late += 1
            elif run.results != wanted[kind]:
                stopped += 1
                print(f"seed {seed}: {dict(run.crashed)}: {run.results}", flush=True)
    count = chosen.runs - stopped - late
    print(f"{count} of {chosen.runs} went on, with {crashed.total()} crashes: {dict(crashed)}")
    print(f"{late} went on without a step of a party that was away, {stopped} stopped")
    sys.exit(int(stopped > 0))


if __name__ == "__main__":
    main()
