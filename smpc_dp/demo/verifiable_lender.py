"""One lender's process in a verifiable run. A cheat is a lender that runs another program than it should.

python -m smpc_dp.demo.verifiable_lender SESSION NAME SHARD.csv --out RESULT.json [--cheat KIND]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import smpc_dp
from smpc_dp.board.runs import NOTHING_SEEN, Seen
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.demo.lenders import read_loans
from smpc_dp.demo.verifiable import CHEATS, lender_values
from smpc_dp.encoding import Lanes
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.runtime import line as runtime
from smpc_dp.runtime.events import Event
from smpc_dp.runtime.launcher import print_event, run_child
from smpc_dp.simulate.vectors.verifiable_runs import Cheater, Tamper
from smpc_dp.simulate.vectors.verifiable_users import out_of_range, with_noise


def _tamper(kind: str, lanes: Lanes, parameters: VerifiableParameters) -> Tamper:
    if kind == "range":
        loans, *rest = (int(value) for value in lanes)
        return out_of_range((-max(loans, 1), *rest))
    return with_noise(lambda _user: (0, parameters.bits // 2))


def cheat(kind: str) -> None:
    """Have this process's machines cheat from now on."""

    def machine(
        context: Context,
        parameters: Any,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
        fixed: object = None,  # noqa: ARG001 - of other protocols
        seen: Seen = NOTHING_SEEN,
    ) -> Cheater:
        made = Cheater(context, parameters, identity, lanes, randomness, seen)
        made.tamper = _tamper(kind, lanes, parameters)
        return made

    # A program that is not the one that was agreed on: nobody else can prevent it, only see it.
    vars(runtime)["group_machine"] = machine


def main() -> int:
    """Run one lender, print its events for the launcher, and write its result."""
    parser = argparse.ArgumentParser(description="One lender of the verifiable demonstration.")
    parser.add_argument("session", type=Path, help="the session file")
    parser.add_argument("name", help="the lender's name in it")
    parser.add_argument("shard", type=Path, help="the lender's loans, CSV")
    parser.add_argument("--out", type=Path, required=True, help="where the result goes, JSON")
    parser.add_argument("--cheat", choices=sorted(CHEATS), help="what to do wrong")
    arguments = parser.parse_args()
    if arguments.cheat:
        cheat(arguments.cheat)

    async def act() -> int:
        try:
            vector = lender_values(read_loans(arguments.shard))
            async with smpc_dp.connect(
                arguments.session, party=arguments.name, on_event=print_event
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
