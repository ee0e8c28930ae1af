"""Regressions and learners with saved states whose members are killed, and started again at once.

`python -m tests.processes.saved_calls --runs 20` plays so many seeded runs; see `saved_sessions`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import smpc_dp
from smpc_dp.capabilities.learn.requests import learning
from smpc_dp.errors import SmpcError
from smpc_dp.records import fit, step_sums  # noqa: F401 - loaded before the members are forked
from smpc_dp.session.local import create_local_session
from tests.faults.saved_call_schedules import OWN, START
from tests.processes.saved_sessions import NAMES, TIMEOUTS, Ended, Members, kill_some
from tests.unit.records.test_fit import hospital
from tests.unit.session.test_saved_calls import FIT

PARTIES = NAMES[:3]
CALLS: Mapping[str, tuple[str, Mapping[str, object]]] = {"fit": ("secagg", FIT), "learner": ("learn", OWN)}
# Seconds within which members are killed.
SPAN = 1.5


class Calling(Members):
    """The processes of a session in which each party makes one call of several requests."""

    def create(self, parties: tuple[str, ...]) -> Path:
        """See `Members.create`."""
        protocol, given = CALLS[self.kind]
        return create_local_session(
            self.folder, parties, given, protocol=protocol, timeouts=TIMEOUTS[self.counter]
        )

    async def serve(self, name: str) -> None:
        """See `Members.serve`."""
        if self.kind == "learner":
            await learning.serve_learning(self.path, **self.media(name))
        else:
            await super().serve(name)

    async def compute(self, name: str) -> None:
        """Make the call, unless its result is written."""
        if self.results(name):
            return
        written = os.open(self.folder / f"{name}.results", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        line: dict[str, Any]
        try:
            async with smpc_dp.connect(self.path, party=name, **self.media(name)) as session:
                result: Any
                if self.kind == "learner":
                    point = float(PARTIES.index(name))
                    result = await session.learn(point, model=START, gradient=lambda at, of: at - of)
                    value = [result.values.tobytes().hex(), result.done.tolist(), list(result.failures)]
                else:
                    table = hospital(PARTIES.index(name), 50)
                    result = await session.statistics(table, label="fit")
                    value = [[one.value for one in result.answers.estimates], list(result.survivors)]
                line = {"value": value, "resumed": result.resumed}
                os.write(written, json.dumps(line).encode() + b"\n")
        except SmpcError as error:
            os.write(written, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")


def play(seed: int, folder: Path, kind: str, span: float = SPAN) -> Ended:
    """Play one run, with kills within so many seconds; return what became of it."""
    ended = Ended(seed, kind, PARTIES, 1)
    kill_some(Calling(folder, ended, counter=True), ended, random.Random(seed), span)
    return ended


def values(ended: Ended) -> dict[str, list[Any]]:
    """Return the value that each party has."""
    return {name: [one.get("value", one) for one in lines] for name, lines in ended.results.items()}


def main() -> None:
    """Play seeded runs; the exit code is 1 if one has stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--span", type=float, default=SPAN, help="seconds within which members are killed")
    chosen = parser.parse_args()
    stopped, wanted = 0, dict[str, Any]()
    for seed in range(chosen.first, chosen.first + chosen.runs):
        folder, kind = Path(tempfile.mkdtemp()), [*CALLS][seed % len(CALLS)]
        ended = play(seed, folder, kind, chosen.span)
        got = values(ended)
        resumed = sum(one.get("resumed", False) for lines in ended.results.values() for one in lines)
        wanted.setdefault(kind, got["alice"])
        went_on = all(one == wanted[kind] for one in got.values())
        stopped += not went_on
        became = f"{resumed} resumed" if went_on else f"stopped: {got}"
        print(f"seed {seed} ({kind}): killed {dict(ended.kills)}: {became}", flush=True)
        shutil.rmtree(folder)
    print(f"{chosen.runs - stopped} of {chosen.runs} went on")
    sys.exit(int(stopped > 0))


if __name__ == "__main__":
    main()
