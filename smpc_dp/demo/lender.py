"""One lender's process; `contribute` is the whole secure computation: connect, and request the sum.

python -m smpc_dp.demo.lender SESSION NAME SHARD.csv --out RESULT.json
"""

from __future__ import annotations

import argparse
import select
import sys
from pathlib import Path

import smpc_dp
from smpc_dp.demo.lenders import lender_vector, read_loans
from smpc_dp.demo.process import parser, run_member
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.launcher import print_event

# A held lender goes on after this time if nobody kills it; the demonstration then fails.
HOLD_SECONDS = 10.0


async def contribute(session_file: Path, name: str, shard: Path, on_event: OnEvent) -> smpc_dp.Result:
    """Compute this lender's statistics from its own loans and return their sum over all lenders.

    Raises `smpc_dp.SmpcError` for a fault of the file, a value, the connection or a peer.
    """
    vector = lender_vector(read_loans(shard))
    async with smpc_dp.connect(session_file, party=name, on_event=on_event) as session:
        return await session.sum(vector)


def main() -> int:
    """Run one lender, print its events for the launcher, and write its result."""
    parsed = parser("One lender of the demonstration.")
    parsed.add_argument("--hold-at", default="", help=argparse.SUPPRESS)
    arguments = parsed.parse_args()

    def notify(event: Event) -> None:
        print_event(event)
        if event.kind == "step" and event.step == arguments.hold_at:
            # Wait, so that the launcher can kill this process in this step. Standard input is
            # readable as soon as the launcher is gone.
            select.select([sys.stdin], [], [], HOLD_SECONDS)

    async def act() -> object:
        result = await contribute(arguments.session, arguments.name, arguments.shard, notify)
        return result.to_json()

    return run_member(arguments, act)


if __name__ == "__main__":
    sys.exit(main())
