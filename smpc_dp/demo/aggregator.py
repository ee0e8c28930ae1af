"""The aggregator's process: serves one request, and records its view of the lenders' vectors.

python -m smpc_dp.demo.aggregator SESSION NAME --out SEEN.json
"""

from __future__ import annotations

import sys
from typing import cast

import smpc_dp
from smpc_dp.demo.process import parser, run_member
from smpc_dp.encoding import RingVector
from smpc_dp.session.launcher import print_event
from smpc_dp.session.session_file import load_session
from smpc_dp.session.tasks import checked_for, task_of


def main() -> int:
    """Run the aggregator, print its events for the launcher, and write `{"received", "sum"}`.

    "received" has the masked vector of each lender, "sum" their sum without the masks.
    """
    arguments = parser("The aggregator of the demonstration.", shard=False).parse_args()
    received: dict[str, list[int]] = {}

    def watch(lender: str, ring_vector: RingVector) -> None:
        received[lender] = ring_vector.tolist()

    async def act() -> object:
        session = load_session(arguments.session)
        checked_for(session, "vector")
        (ended,) = await smpc_dp.serve(
            arguments.session, name=arguments.name, requests=1, on_event=print_event, watch=watch
        )
        if isinstance(ended, smpc_dp.SmpcError):
            raise ended
        if ended.task != task_of(session).name:
            raise smpc_dp.LocalError("the lenders have asked for something else than a sum")
        result = cast("smpc_dp.Result", ended)
        return {"received": received, "sum": result.fixed_point.tolist()}

    return run_member(arguments, act)


if __name__ == "__main__":
    sys.exit(main())
