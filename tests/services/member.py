"""Party that takes part in a sum for each line of its standard input: `member.py SESSION NAME CA PING`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import smpc_dp


def say(**content: object) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


async def main() -> None:
    path, name, ca, ping = sys.argv[1:]
    web = smpc_dp.WebSettings(ca_file=Path(ca), ping=float(ping))
    async with smpc_dp.connect(path, party=name, web=web) as session:
        say(clock=time.time())
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                result = await session.sum([int(line)])
            except smpc_dp.SmpcError as error:
                say(error=str(error))
            else:
                say(total=int(result.value[0]), survivors=list(result.survivors))


asyncio.run(main())
