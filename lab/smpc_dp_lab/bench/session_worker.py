"""One member of a session that averages a model: `python -m ... ROLE ARGUMENTS`.

It imports the project from wherever PYTHONPATH says, and calls only what the public modules have: another
version of the project runs the same member. ROLE is:

- `create FOLDER PARTIES LENGTH`: writes a session into the folder; prints its file and the project's folder;
- `aggregator SESSION`: serves one request;
- `party SESSION INDEX PARTIES LENGTH`: averages its model, once all parties are connected.

Members print their measurements as JSON: `cpu` is all processor time but that of drawing the model, `busy`
that of the request and of closing, imports of first uses included.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.session.events import Event
from smpc_dp.session.local import Timeouts, create_local_session
from smpc_dp_lab.bench.resident import usage

# Values of a leaf.
LEAF = 1_000_000
PRECISION = 1e-6
# Of many processes on few cores the last one connects late.
TIMEOUTS = Timeouts(connect=900.0, gather=900.0, step=900.0)
CONNECTED = "connected"
POLL_SECONDS = 0.1


def parameters_of(length: int) -> dict[str, object]:
    """Return the parameters of a session that averages a model of so many values."""
    # One commitment to a long vector takes longer than all the rest; by default long totals are not checked.
    bounds = {"lower": -1.0, "upper": 1.0, "precision": PRECISION}
    return {"length": length, **bounds, "corrupt": 0.0, "total": "unchecked"}


def leaves_of(index: int, length: int) -> Iterator[NDArray[np.float32]]:
    """Yield the leaves of a party's model, drawn by its number: a million values each, the last one fewer."""
    draws = np.random.default_rng(index)
    for start in range(0, length, LEAF):
        yield draws.uniform(-1, 1, min(LEAF, length - start)).astype(np.float32)


def model_of(index: int, length: int) -> dict[str, NDArray[np.float32]]:
    """Return a party's random model as a dict from layer name to array."""
    return {f"layer{number:03}": leaf for number, leaf in enumerate(leaves_of(index, length))}


def largest_difference(average: dict[str, NDArray[np.float64]], parties: int, length: int) -> float:
    """Return the greatest absolute difference of `average` from the models' plain mean."""
    models = [leaves_of(index, length) for index in range(parties)]
    worst = 0.0
    for leaf in average.values():
        plain = np.zeros(leaf.shape)
        for model in models:
            plain += next(model)
        worst = max(worst, float(np.max(np.abs(leaf - plain / parties))))
    return worst


def create(folder: Path, parties: int, length: int) -> dict[str, object]:
    """Write a session; return its file, and the folder that the project was imported from."""
    names = [f"party{index}" for index in range(parties)]
    path = create_local_session(folder, names, parameters_of(length), timeouts=TIMEOUTS)
    (folder / CONNECTED).mkdir()
    return {"session": str(path), "root": str(Path(smpc_dp.__file__).resolve().parents[1])}


async def serve(path: Path) -> dict[str, object]:
    """Serve one request as aggregator; return memory, processor time, and that of serving alone."""
    starting = time.process_time()
    for ended in await smpc_dp.serve(path, requests=1):
        if isinstance(ended, smpc_dp.SmpcError):
            raise ended
    measured = usage()
    return {**measured, "busy": measured["cpu"] - starting}


async def take_part(path: Path, index: int, parties: int, length: int) -> dict[str, object]:
    """Average a model; return a party's measurements, and of the first one the difference to the average."""
    sent = received = 0

    def count(event: Event) -> None:
        nonlocal sent, received
        if event.kind == "traffic":
            sent, received = sent + event.sent, received + event.received

    before = time.process_time()
    model = model_of(index, length)
    drawing = time.process_time() - before
    async with smpc_dp.connect(path, party=f"party{index}", on_event=count) as session:
        await _all_connected(path.parent / CONNECTED, index, parties)
        begun, starting = time.monotonic(), time.process_time()
        result = await session.average(model)
        ended = time.monotonic()
    measured = usage()
    return {
        **measured,
        "cpu": measured["cpu"] - drawing,
        "busy": measured["cpu"] - starting,
        "begun": begun,
        "ended": ended,
        "sent": sent,
        "received": received,
        "plain_bytes": sum(leaf.sent_bytes for leaf in result.leaves),
        "error": largest_difference(result.tree, parties, length) if index == 0 else 0.0,
    }


async def _all_connected(folder: Path, index: int, parties: int) -> None:
    """Wait until all parties' processes are connected, so that the average alone is measured."""
    (folder / str(index)).touch()
    while len(os.listdir(folder)) < parties:
        await asyncio.sleep(POLL_SECONDS)


def main(role: str, folder: str, *numbers: str) -> dict[str, object]:
    """Act as aggregator, party, or creator of the session; return what is printed."""
    path, values = Path(folder), [int(number) for number in numbers]
    if role == "create":
        return create(path, *values)
    return asyncio.run(serve(path) if role == "aggregator" else take_part(path, *values))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
