"""One member's process: a lender, whose `contribute` is the whole secure computation, or the aggregator.

python -m smpc_dp.demo.member SESSION NAME --out RESULT.json [--loans SHARD.csv]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import smpc_dp
from smpc_dp.demo.lenders import read_loans, rows, statistics
from smpc_dp.encoding import RingVector
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.launcher import print_event, run_child
from smpc_dp.session.planned import UnchargedWarning


async def contribute(session_file: Path, name: str, shard: Path, on_event: OnEvent) -> smpc_dp.Result:
    """Take part in the demonstration's sum as one lender, with statistics of its loans; return the sum.

    Raises `smpc_dp.SmpcError` for a fault of the file, a value, the connection or a peer.
    """
    vector = statistics(rows(read_loans(shard, name)))
    async with smpc_dp.connect(session_file, party=name, on_event=on_event) as session:
        return await session.sum(vector)


async def aggregate(session_file: Path, name: str) -> dict[str, object]:
    """Run the demonstration's aggregator; return masked vectors received and the sum, or raise its error.

    Raises `smpc_dp.SmpcError` as `contribute`.
    """
    received: dict[str, list[int]] = {}

    def watch(lender: str, ring_vector: RingVector) -> None:
        received[lender] = ring_vector.tolist()

    (ended,) = await smpc_dp.serve(session_file, name=name, requests=1, on_event=print_event, watch=watch)
    if isinstance(ended, smpc_dp.SmpcError):
        raise ended
    return {"received": received, "sum": cast("smpc_dp.Result", ended).fixed_point.tolist()}


def run_member(name: str, out: Path, act: Callable[[], Awaitable[object]]) -> int:
    """Run a member's work and write its result as JSON to `out`; return the exit code 0 or 1."""
    # The loans are public: no ledger is charged for them.
    warnings.simplefilter("ignore", UnchargedWarning)

    async def supervised() -> int:
        try:
            text = json.dumps(await act(), allow_nan=False) + "\n"
            out.write_text(text, "utf-8")
        except (smpc_dp.SmpcError, OSError) as error:
            print_event(Event(name, "failed", detail=str(error)))
            return 1
        return 0

    return run_child(supervised, supervised=True)


def main() -> int:
    """Run one member of the demonstration, print its events for the launcher, and write its result."""
    parser = argparse.ArgumentParser(description="One member of the demonstration.")
    parser.add_argument("session", type=Path, help="the session file")
    parser.add_argument("name", help="the member's name in it")
    parser.add_argument("--out", type=Path, required=True, help="where the result goes, JSON")
    parser.add_argument("--loans", type=Path, help="the lender's loans, CSV; none for the aggregator")
    parser.add_argument("--crash-at", default="", help="kill this process with SIGKILL in this step")
    given = parser.parse_args()

    def notify(event: Event) -> None:
        print_event(event)
        if event.kind == "step" and event.step == given.crash_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def act() -> object:
        if given.loans is None:
            return await aggregate(given.session, given.name)
        return (await contribute(given.session, given.name, given.loans, notify)).to_json()

    return run_member(given.name, given.out, act)


if __name__ == "__main__":
    sys.exit(main())
