"""The aggregator's process: serves one request, and writes down all that it saw of the lenders' vectors.

python -m smpc_dp.demo.aggregator SESSION NAME --out SEEN.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import smpc_dp
from smpc_dp.encoding import Lanes
from smpc_dp.runtime.events import Event
from smpc_dp.runtime.launcher import print_event, run_child


def main() -> int:
    """Run the aggregator, print its events for the launcher, and write `{"received", "sum"}`.

    "received" has for each lender the masked vector that came from it, "sum" what was left of their sum when
    the masks were removed.
    """
    parser = argparse.ArgumentParser(description="The aggregator of the demonstration.")
    parser.add_argument("session", type=Path, help="the session file")
    parser.add_argument("name", help="the aggregator's name in it")
    parser.add_argument("--out", type=Path, required=True, help="where what it saw goes, JSON")
    arguments = parser.parse_args()
    received: dict[str, list[int]] = {}

    def watch(lender: str, lanes: Lanes) -> None:
        received[lender] = lanes.tolist()

    async def act() -> int:
        try:
            (ended,) = await smpc_dp.serve(
                arguments.session, name=arguments.name, requests=1, on_event=print_event, watch=watch
            )
            if isinstance(ended, smpc_dp.SmpcError):
                raise ended
            if not isinstance(ended, smpc_dp.Result):
                raise smpc_dp.LocalError("the lenders have asked for something else than a sum")
            seen = {"received": received, "sum": ended.fixed_point.tolist()}
            arguments.out.write_text(json.dumps(seen) + "\n", "utf-8")
        except (smpc_dp.SmpcError, OSError) as error:
            print_event(Event(arguments.name, "failed", detail=str(error)))
            return 1
        return 0

    return run_child(act, supervised=True)


if __name__ == "__main__":
    sys.exit(main())
