"""One lender's process in a verifiable run. A cheat is a lender that runs another program than it should.

python -m smpc_dp.demo.verifiable_lender SESSION NAME SHARD.csv --out RESULT.json [--cheat KIND]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import smpc_dp
from smpc_dp.demo.cheating_lender import ROLES
from smpc_dp.demo.lenders import read_loans
from smpc_dp.demo.verifiable import lender_values
from smpc_dp.protocols.registry import make_party
from smpc_dp.runtime.events import Event
from smpc_dp.runtime.launcher import print_event, run_child


def main() -> int:
    """Run one lender, print its events for the launcher, and write its result."""
    parser = argparse.ArgumentParser(description="One lender of the verifiable demonstration.")
    parser.add_argument("session", type=Path, help="the session file")
    parser.add_argument("name", help="the lender's name in it")
    parser.add_argument("shard", type=Path, help="the lender's loans, CSV")
    parser.add_argument("--out", type=Path, required=True, help="where the result goes, JSON")
    parser.add_argument("--cheat", choices=sorted(ROLES), help="what to do wrong")
    arguments = parser.parse_args()
    role = ROLES[arguments.cheat] if arguments.cheat else make_party

    async def act() -> int:
        try:
            vector = lender_values(read_loans(arguments.shard))
            async with smpc_dp.connect(
                arguments.session, party=arguments.name, on_event=print_event, role=role
            ) as session:
                result = await session.average(vector, method="gopa", verifiable=True)
            arguments.out.write_text(json.dumps(result.to_json(), allow_nan=False) + "\n", "utf-8")
        except (smpc_dp.SmpcError, OSError) as error:
            print_event(Event(arguments.name, "failed", detail=str(error)))
            return 1
        return 0

    return run_child(act, supervised=True)


if __name__ == "__main__":
    sys.exit(main())
