"""Measuring process of `bench state`: all members of one session in memory, with states or without."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp.session.aggregator import log_folder, open_aggregator, serve_requests
from smpc_dp.session.events import ignore
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import SimulatedSession, simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.session.opening import open_connection
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.session.session import Session
from smpc_dp.transport.memory_connections import MemoryConnections


def measure(folder: Path, way: str, parties: int, length: int, requests: int) -> float:
    """Return the processor time of a session of sums, from opening to closing its members' sessions."""
    simulated = simulated_session(
        "secagg",
        {
            "length": length,
            "lower": 0.0,
            "upper": 1.0,
            "precision": 1e-3,
            "dropout": 0.0,
            "corrupt": 0.0,
        },
        parties,
        shared=OneProcess(MemoryConnections()),
    )
    begun = time.process_time()
    results = run_simulation(lambda: _session(simulated, folder, way, length, requests))
    taken = time.process_time() - begun
    if any(abs(float(result.value[-1]) - parties / 2) > 1e-3 * parties for result in results):
        raise RuntimeError("a wrong sum")
    return taken


async def _session(
    simulated: SimulatedSession, folder: Path, way: str, length: int, requests: int
) -> list[Any]:
    """Run aggregator and all parties for these requests; return all parties' results."""
    serving = asyncio.ensure_future(_serve(simulated, folder, way, requests))
    results = await asyncio.gather(
        *(_compute(simulated, folder, way, name, length, requests) for name in simulated.parties)
    )
    await serving
    return [result for each in results for result in each]


async def _serve(simulated: SimulatedSession, folder: Path, way: str, requests: int) -> None:
    state = _state(simulated, folder, way, AGGREGATOR)
    membership = simulated.membership(AGGREGATOR, folder)
    logs = log_folder(membership, folder / "session.toml", None)
    await serve_requests(membership, open_aggregator(membership, logs=logs, state=state), requests)
    if state is not None:
        state.close()


async def _compute(
    simulated: SimulatedSession, folder: Path, way: str, name: str, length: int, requests: int
) -> list[Any]:
    state = _state(simulated, folder, way, name)
    membership = simulated.membership(name, folder)
    session = Session(membership, await open_connection(membership, ignore, state=state), ignore)
    vector = np.full(length, 0.5)
    results = [await session.sum(vector, number=number) for number in range(1, requests + 1)]
    await session.close()
    if state is not None:
        state.close()
    return results


def _state(simulated: SimulatedSession, folder: Path, way: str, name: str) -> SavedSessionState | None:
    """Return a member's folder of saved state, with or without a rollback counter; None for "without"."""
    if way == "without":
        return None
    counter = None
    if way == "counter":
        counter = folder / "counters" / name
        counter.mkdir(parents=True)
    return SavedSessionState(simulated.membership(name, folder), folder / "states" / name, counter)


def main() -> None:
    """Measure the session that the arguments describe, and print its processor time as JSON."""
    folder, way, *numbers = sys.argv[1:]
    parties, length, requests = map(int, numbers)
    # What a process does once: imports, and the first use of each type.
    measure(Path(folder) / "first", way, 3, length, 1)
    print(json.dumps({"seconds": measure(Path(folder) / "measured", way, parties, length, requests)}))


if __name__ == "__main__":
    main()
