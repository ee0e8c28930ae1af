"""One lender's process in a verifiable run; a cheat runs another program than agreed.

python -m smpc_dp.demo.verifiable_lender SESSION NAME SHARD.csv --out RESULT.json [--cheat KIND]
"""

from __future__ import annotations

import sys

import smpc_dp
from smpc_dp.demo.cheating_lender import ROLES
from smpc_dp.demo.process import parser, run_member
from smpc_dp.engine.registry import make_party
from smpc_dp.session.launcher import print_event


def main() -> int:
    """Run one lender, print its events for the launcher, and write its result."""
    parsed = parser("One lender of the verifiable demonstration.")
    parsed.add_argument("--cheat", choices=sorted(ROLES), help="what to do wrong")
    arguments = parsed.parse_args()
    role = ROLES[arguments.cheat] if arguments.cheat else make_party

    async def act() -> object:
        async with smpc_dp.connect(
            arguments.session,
            party=arguments.name,
            table=arguments.shard,
            on_event=print_event,
            role=role,
        ) as session:
            result = await session.statistics(expect={"protocol": "gopa", "verifiable": True})
        return result.to_json()

    return run_member(arguments, act)


if __name__ == "__main__":
    sys.exit(main())
