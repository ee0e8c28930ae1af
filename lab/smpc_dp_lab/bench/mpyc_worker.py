"""The peer of the benchmark of pairwise statistics: mpyc computes the same noisy kernel among three parties.

Run as a script by whichever Python has `mpyc`, so it must not import anything of ours; `-M3` makes it start
the other two parties. Kendall's tau of records of two integers, and discrete Laplace noise from coins that
are joint random bits below public thresholds; the sum is opened to one party.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


async def noisy_tau(mpc: Any, secint: Any, coins: list[list[int]], x: list[Any], y: list[Any]) -> Any:
    """Return a share of Kendall's kernel of two shared records, plus discrete Laplace noise."""
    integer = 1 + mpc.sgn(x[0] - y[0]) * mpc.sgn(x[1] - y[1])
    tossed = [mpc.from_bits(mpc.random_bits(secint, bits)) < threshold for threshold, bits in coins]
    geometric = sum(coin * (1 << index) for index, coin in enumerate(tossed[:-1]))
    return integer + geometric - tossed[-1] * (2 * geometric + 1)


async def main() -> None:
    """Evaluate as often as the arguments say, after one warm-up; party 0 prints one JSON object."""
    requested = json.loads(sys.argv[1])
    try:
        # By name: mpyc may be in another environment than the one that checks our types.
        mpc = importlib.import_module("mpyc.runtime").mpc
    except ImportError as error:
        sys.stdout.write(json.dumps({"absent": str(error)}) + "\n")
        return
    secint = mpc.SecInt(requested["width"] + 8)
    began = time.perf_counter()
    await mpc.start()
    started = time.perf_counter()
    result: dict[str, object] = {"version": importlib.import_module("mpyc").__version__}
    for name, count in (("first", 1), ("one", 1), ("many", requested["instances"])):
        clock, cpu = time.perf_counter(), time.process_time()
        shares = []
        for number in range(count):
            (x0, x1), (y0, y1) = (
                mpc.input([secint(5 + number), secint(5)], senders=sender) for sender in (0, 1)
            )
            shares.append(await noisy_tau(mpc, secint, requested["coins"], [x0, x1], [y0, y1 - 1]))
        await mpc.output(shares, receivers=0)
        await mpc.barrier()
        result[name] = (time.perf_counter() - clock) / count
        result[f"{name} cpu"] = (time.process_time() - cpu) / count
    result["start"] = started - began
    await mpc.shutdown()
    if mpc.pid == 0:
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    # mpyc reads the rest of the arguments when it is imported.
    importlib.import_module("asyncio").run(main())
