"""Sessions of GOPA without an aggregator whose parties are killed at random times, and started again at once.

`python -m tests.processes.saved_direct_sessions --runs 100` plays so many seeded runs, as `saved_sessions`
does for secure sums.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import smpc_dp

# Loaded before the parties are forked: each would import them for itself.
from smpc_dp.capabilities.gopa import check, direct_params, direct_states  # noqa: F401
from smpc_dp.capabilities.gopa.requests import mesh  # noqa: F401
from smpc_dp.errors import OtherRequestError, SmpcError
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from tests.faults.saved_direct_schedules import GIVEN
from tests.processes.saved_sessions import NAMES, TIMEOUTS, Ended, Members, kill_some

# Seconds a request within which parties are killed, also before they are connected.
SPAN = 1.0


class Parties(Members):
    """The processes of one session, in a folder."""

    helpers = ()

    def create(self, parties: tuple[str, ...]) -> Path:
        """See `Members.create`."""
        given = TIMEOUTS[self.counter]
        return create_local_session(self.folder, parties, GIVEN, protocol="gopa", timeouts=given)

    async def compute(self, name: str) -> None:
        """Take part in the requests that have not ended yet, as a restarted program does."""
        lines = self.results(name)
        written = os.open(self.folder / f"{name}.results", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def write(line: dict[str, Any]) -> None:
            os.write(written, json.dumps(line).encode() + b"\n")

        number = 1 + max((line.get("request", line.get("failed", 0)) for line in lines), default=0)
        options: dict[str, Any] = {"ledger": self.ledger(name), **self.media(name)}
        try:
            async with smpc_dp.connect(self.path, party=name, on_event=_print, **options) as session:
                while number <= self.requests:
                    try:
                        result = await session.average([1.0 + NAMES.index(name)], number=number)
                    except SmpcError as error:
                        write({"failed": number, "error": f"{type(error).__name__}: {error}"})
                        number = error.next if isinstance(error, OtherRequestError) else number + 1
                        continue
                    line = {"value": result.value.tolist(), "survivors": list(result.survivors)}
                    write({"request": number, "resumed": result.resumed, **line})
                    number += 1
        except SmpcError as error:
            # A party that is killed with its last result comes back for others, and these may have left.
            if number <= self.requests:
                write({"error": f"{type(error).__name__}: {error}"})


def _print(event: Event) -> None:
    print(event.text, flush=True)


def play(seed: int, folder: Path, parties: int, requests: int, *, counter: bool) -> Ended:
    """Play one run, in which also two parties are killed at once."""
    drawn = random.Random(seed)
    # Totals are compared, and charges; values have noise.
    ended = Ended(seed, "noisy", NAMES[:parties], requests)
    members = Parties(folder, ended, counter=counter)
    kill_some(members, ended, drawn, SPAN * requests, at_once=(1, 1, 2))
    return ended


def main() -> None:
    """Play seeded runs; the exit code is 0, or 1 where totals differ or a charge is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--parties", type=int, default=len(NAMES), choices=range(3, len(NAMES) + 1))
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--no-counter", action="store_true")
    parser.add_argument("--folder", help="where the parties' files are, and stay where a run has stopped")
    chosen = parser.parse_args()
    stopped = 0
    for seed in range(chosen.first, chosen.first + chosen.runs):
        folder = Path(tempfile.mkdtemp(dir=chosen.folder))
        ended = play(seed, folder, chosen.parties, chosen.requests, counter=not chosen.no_counter)
        print(ended, flush=True)
        ended.check()
        stopped += not ended.went_on
        if ended.went_on or not chosen.folder:
            shutil.rmtree(folder)
    print(f"{chosen.runs - stopped} of {chosen.runs} went on")
    sys.exit(0)


if __name__ == "__main__":
    main()
