"""One party of a pairwise statistic as a process: prints its result; may die amid its first relayed pair."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import smpc_dp
from smpc_dp.capabilities.pairs.requests.relay import RelayedChannel

DIES_AT = 4


def die_amid_a_pair() -> None:
    frame = RelayedChannel._frame

    async def fatal(self: RelayedChannel, content: bytes) -> None:
        if self._sent == DIES_AT:
            os._exit(9)
        await frame(self, content)

    RelayedChannel._frame = fatal  # type: ignore[method-assign]


async def main(session: str, name: str, fate: str) -> None:
    if fate == "dies":
        die_amid_a_pair()
    ledger = Path(session).parent / f"{name}.ledger"
    async with smpc_dp.connect(session, party=name, ledger=ledger) as opened:
        result = await opened.pairwise("collision", 7, 12.0, 1)
    sys.stdout.write(json.dumps(result.to_json()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
