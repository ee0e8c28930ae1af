"""One member of a session that averages a model: `python -m ... SESSION PARTY LENGTH PARTIES`.

PARTY is empty for the aggregator. It prints what it has measured as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

import numpy as np
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.session.events import Event
from smpc_dp_lab.bench.resident import peak_bytes

# Values of a leaf.
LEAF = 1_000_000


def model_of(index: int, length: int) -> dict[str, NDArray[np.float32]]:
    """Return a party's model, drawn by its number: leaves of a million values."""
    draws = np.random.default_rng(index)
    sizes = [min(LEAF, length - start) for start in range(0, length, LEAF)]
    return {
        f"layer{number:03}": draws.uniform(-1, 1, size).astype(np.float32)
        for number, size in enumerate(sizes)
    }


async def take_part(path: str, name: str, length: int, parties: int) -> dict[str, float]:
    """Average a model; return seconds, bytes and, of the first party, the difference to the plain average."""
    traffic = [0, 0]

    def on_event(event: Event) -> None:
        if event.kind == "traffic":
            traffic[0] += event.sent
            traffic[1] += event.received

    model = model_of(int(name.removeprefix("party")), length)
    async with smpc_dp.connect(path, party=name, on_event=on_event) as session:
        begun = time.perf_counter()
        result = await session.average(model)
        seconds = time.perf_counter() - begun
    measured = usage()
    error = 0.0
    if name == "party0":
        plain = {leaf: np.zeros(len(values)) for leaf, values in model.items()}
        for index in range(parties):
            for leaf, values in model_of(index, length).items():
                plain[leaf] += values / parties
        error = max(float(np.max(np.abs(result.tree[leaf] - plain[leaf]))) for leaf in plain)
    sent = sum(leaf.sent_bytes for leaf in result.leaves)
    own = {
        "seconds": seconds,
        "sent": traffic[0],
        "received": traffic[1],
        "plain_bytes": sent,
        "error": error,
    }
    return measured | own


def usage() -> dict[str, float]:
    """Return this process's processor time in seconds and its peak resident memory in bytes, so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": used.ru_utime + used.ru_stime, "peak": peak_bytes()}


async def main(path: str, name: str, length: int, parties: int) -> None:
    """Run the member, and print its measurements."""
    if name:
        print(json.dumps(await take_part(path, name, length, parties)))
        return
    ended = await smpc_dp.serve(path, requests=1)
    for one in ended:
        if isinstance(one, smpc_dp.SmpcError):
            raise one
    print(json.dumps(usage()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
