"""Statistics of pairs with saved states whose members are killed, and started again at once.

`python -m tests.processes.saved_pairs --runs 20` plays so many seeded runs: two statistics with a sum between
them, pairs by direct channels or relayed; see `saved_sessions`.
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
from smpc_dp.capabilities.pairs.requests import statistic  # noqa: F401 - before the members are forked
from smpc_dp.errors import SmpcError
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.processes.saved_sessions import EXACT, NAMES, Ended, Members, audit, kill_some

LABELS = ("first", "sum", "second")
# Whether pairs have direct channels.
KINDS: Mapping[str, bool] = {"relayed": False, "direct": True}
# A party waits for its partner for `gather`, and for others' pairs.
TIMEOUTS = Timeouts(connect=20.0, step=20.0, gather=5.0)
# Seconds within which members are killed.
SPAN = 5.0


class Estimating(Members):
    """The processes of a session in which each party makes three calls."""

    def create(self, parties: tuple[str, ...]) -> Path:
        """See `Members.create`."""
        given = EXACT | {"length": 1, "total": "unchecked"}
        return create_local_session(
            self.folder, parties, given, timeouts=TIMEOUTS, addresses=KINDS[self.kind]
        )

    async def compute(self, name: str) -> None:
        """Make the calls whose results are not written yet, as a restarted program does."""
        written = os.open(self.folder / f"{name}.results", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            async with smpc_dp.connect(self.path, party=name, **self.media(name)) as session:
                for label in LABELS[len(self.results(name)) :]:
                    line = await call(session, name, label)
                    os.write(written, json.dumps(line).encode() + b"\n")
        except SmpcError as error:
            os.write(written, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")


async def call(session: smpc_dp.Session, name: str, label: str) -> dict[str, Any]:
    """Return what a call gives, as JSON."""
    if label == "sum":
        total = await session.sum([1], label=label)
        return {"value": total.value.tolist(), "survivors": total.survivors, "resumed": total.resumed}
    try:
        found = await session.pairwise("collision", NAMES.index(name) % 2, 4.0, 2, label=label, covert=0)
    except smpc_dp.TimeoutFault:
        connection: Any = session._requests.connection
        if not connection.live:
            raise
        return {"value": None, "survivors": (), "resumed": False}
    head = "" if found.evidence is None or found.evidence.log is None else found.evidence.log.head.hex()
    return {
        "value": found.value,
        "survivors": found.survivors,
        "pairs": (found.pairs, found.failed),
        "head": head,
        "resumed": found.resumed,
    }


def play(seed: int, folder: Path, kind: str) -> Ended:
    """Play one run; return what became of it. Raises AssertionError for differing results."""
    ended = Ended(seed, kind, NAMES, len(LABELS))
    kill_some(Estimating(folder, ended, counter=True), ended, random.Random(seed), SPAN)
    for number in range(len(LABELS)):
        lines = (got[number] for got in ended.results.values() if len(got) > number)
        there = [one for one in lines if "value" in one]
        results = [{key: one[key] for key in one if key != "resumed"} for one in there]
        assert all(one == results[0] for one in results), ended.results
        if "head" in next(iter(results), {}):
            audit(folder, number + 1, results[0]["head"])
    return ended


def main() -> None:
    """Play seeded runs; the exit code is 1 if one has stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    chosen = parser.parse_args()
    stopped = 0
    for seed in range(chosen.first, chosen.first + chosen.runs):
        folder, kind = Path(tempfile.mkdtemp()), [*KINDS][seed % len(KINDS)]
        ended = play(seed, folder, kind)
        lines = next(iter(ended.results.values()))
        pairs = [one.get("pairs", "none") for one in lines[::2]]
        went_on = not ended.errors and all(len(got) == len(LABELS) for got in ended.results.values())
        stopped += not went_on
        became = f"pairs {pairs}" if went_on else f"stopped: {ended.errors}"
        killed = f"seed {seed} ({kind}): killed {dict(ended.kills)}"
        print(f"{killed}: {became} ({ended.seconds:.1f} s)", flush=True)
        shutil.rmtree(folder)
    print(f"{chosen.runs - stopped} of {chosen.runs} went on")
    sys.exit(int(stopped > 0))


if __name__ == "__main__":
    main()
