"""Parties of a session, or its aggregator: `python -m ... SESSION TASK NAME...`.

Without a name it is the aggregator. With `simulate PARTIES DROPOUT` it simulates a sum. It prints what it has
measured as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import numpy as np

import smpc_dp
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.errors import ConfigError
from smpc_dp.secagg.noisy import check_noisy
from smpc_dp.session.events import Event
from smpc_dp_lab.bench.recording import record_sample
from smpc_dp_lab.bench.resident import peak_bytes
from smpc_dp_lab.bench.scenarios import EPSILON, LENGTH, SAMPLE, WHOLE, noisy_sum

INTEGERS = Field(-(1 << 31), (1 << 31) - 1)


async def add(session: smpc_dp.Session, draws: np.random.Generator) -> None:
    """Take part in one sum, with a random vector."""
    await session.sum(draws.uniform(-1, 1, LENGTH))


async def correlate(session: smpc_dp.Session, draws: np.random.Generator) -> None:
    """Take part in one private Kendall's tau with one partner, with a random record."""
    record = tuple(int(value) for value in draws.integers(-(1 << 31), 1 << 31, 2))
    await session.pairwise(kendall_tau(INTEGERS, INTEGERS), record, EPSILON, 1)


TASKS: dict[str, Callable[[smpc_dp.Session, np.random.Generator], Awaitable[None]]] = {
    "sum": add,
    "pairwise": correlate,
}


class Party:
    """One party: when its request began and ended, and the bytes of its connections."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name
        self.begun = self.ended = 0.0
        self.sent = self.received = 0

    def watch(self, event: Event) -> None:
        """Add the bytes of a connection that has ended to the party's counters."""
        if event.kind == "traffic":
            self.sent += event.sent
            self.received += event.received

    async def take_part(self, task: str) -> None:
        """Connect the party, make its request, and record when that began and ended."""
        draws = np.random.default_rng(int(self._name.removeprefix("party")))
        ledger = self._path.parent / f"{self._name}.ledger"
        connected = smpc_dp.connect(self._path, party=self._name, ledger=ledger, on_event=self.watch)
        async with connected as session:
            # The same clock in all processes.
            self.begun = time.monotonic()
            await TASKS[task](session, draws)
            self.ended = time.monotonic()


async def main(path: Path, task: str, names: list[str]) -> dict[str, float]:
    """Run these parties (the aggregator if there are none); return times, memory and bytes."""
    used = time.process_time()
    parties = [Party(path, name) for name in names]
    if names:
        await asyncio.gather(*(party.take_part(task) for party in parties))
    else:
        for ended in await smpc_dp.serve(path, requests=1):
            if isinstance(ended, smpc_dp.SmpcError):
                raise ended
    return {
        "cpu": time.process_time() - used,
        "peak": peak_bytes(),
        "begun": max((party.begun for party in parties), default=0.0),
        "ended": max((party.ended for party in parties), default=0.0),
        "sent": sum(party.sent for party in parties),
        "received": sum(party.received for party in parties),
    }


def simulate(parties: int, dropout: float) -> dict[str, float]:
    """Simulate a private sum in this process; return its times and bytes."""
    parameters, issues = check_noisy(noisy_sum(dropout), parties)
    if parameters is None:
        raise ConfigError(issues)
    begun = time.monotonic()
    sampled = record_sample(parameters, SAMPLE, 1)
    return {
        "wall time": time.monotonic() - begun,
        "party: processor time": median(sampled.seconds),
        "aggregator: processor time": sampled.aggregator_seconds,
        "party: sent": median(sampled.up),
        "party: received": median(sampled.down),
        WHOLE: peak_bytes(),
    }


def called(first: str, second: str, *others: str) -> dict[str, float]:
    """Run the simulation or the members that the arguments name; return the measurements."""
    if first == "simulate":
        return simulate(int(second), float(others[0]))
    return asyncio.run(main(Path(first), second, list(others)))


if __name__ == "__main__":
    print(json.dumps(called(*sys.argv[1:])))
