"""One server of the measurements of `smpc-dp bench engines`: `python -m smpc_dp.bench.servers_worker`.

It is told all on standard input and answers on standard output. Its connections to the other servers are
sockets that it was started with.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import msgspec

from smpc_dp.protocols.mpyc.sharing import mpyc_arguments
from smpc_dp.protocols.mpyc.terms import ProgramTerms
from smpc_dp.runtime.servers.wiring import bytes_sent, connect_peers, drain
from smpc_dp.statistics.shared.program import run_program


def main() -> None:
    """Run a program as often as it says, after once to warm up; print one JSON object."""
    asked = json.load(sys.stdin)
    terms = msgspec.json.decode(json.dumps(asked["terms"]), type=ProgramTerms)
    parties = len(asked["sockets"])
    options = (f"-M{parties}", f"-I{asked['place']}", f"-K{terms.security}", "--no-uvloop")
    with mpyc_arguments(*options):
        from mpyc.runtime import mpc
    sys.stdout.write(json.dumps(mpc.run(_measure(mpc, asked, terms))) + "\n")


async def _measure(mpc: Any, asked: dict[str, Any], terms: ProgramTerms) -> dict[str, Any]:
    shares = [[int(share, 16) for share in row] for row in asked["shares"]]
    await connect_peers(mpc, asked["sockets"])
    bursts = _Bursts(asked["delay"]) if asked["delay"] else None
    opened = await run_program(mpc, terms, shares, asked["way"])
    seconds, sizes, rounds = [], [], []
    for _ in range(asked["runs"]):
        await mpc.transfer(b"ready")
        first = bursts.count if bursts else 0
        began, before, busy = time.perf_counter(), bytes_sent(mpc), time.process_time()
        opened = await run_program(mpc, terms, shares, asked["way"])
        seconds.append((time.perf_counter() - began, time.process_time() - busy))
        sizes.append(bytes_sent(mpc) - before)
        rounds.append(bursts.count - first if bursts else 0)
    await drain(mpc)
    # Nobody leaves before everybody has all messages.
    await mpc.transfer(b"done")
    await drain(mpc)
    return {"opened": opened, "seconds": seconds, "bytes": sizes, "rounds": rounds}


class _Bursts:
    """Lets every message arrive later, and counts how often messages come after a pause: the rounds."""

    def __init__(self, delay: float) -> None:
        from mpyc.asyncoro import MessageExchanger

        loop = asyncio.get_running_loop()
        at_once = MessageExchanger.data_received
        self.count = 0
        self._last = loop.time()

        def arrive(exchanger: Any, data: bytes) -> None:
            now = loop.time()
            self.count += now - self._last > delay / 2
            self._last = now
            at_once(exchanger, data)

        def later(exchanger: Any, data: bytes) -> None:
            loop.call_later(delay, arrive, exchanger, data)

        MessageExchanger.data_received = later


if __name__ == "__main__":
    main()
