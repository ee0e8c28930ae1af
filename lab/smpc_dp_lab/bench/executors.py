"""Benchmark of executors: runs of a simulated average in several processes, beside one process."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median

import numpy as np

from smpc_dp import simulate
from smpc_dp.errors import LocalError
from smpc_dp.executors.opened import MAX_WORKERS, open_executor
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench.figures import (
    Limit,
    Peer,
    Progress,
    Report,
    Steps,
    alternate,
    cost,
    refuse,
    versions,
    within,
)

REPETITIONS, PARTIES, LENGTH = 8, 100, 1_000


def run_executors_bench(
    runs: int = 3,
    progress: Progress | None = None,
    *,
    workers: int | None = None,
    repetitions: int = REPETITIONS,
    parties: int = PARTIES,
    length: int = LENGTH,
) -> Report:
    """Measure `repetitions` averages with noise, in one process and in `workers`; None: one for each core.

    Raises:
        ConfigError: a number is out of range.
        LocalError: the values depend on the number of processes.
    """
    workers = max(2, len(os.sched_getaffinity(0))) if workers is None else workers
    refuse(
        within("runs", runs, 1),
        within("workers", workers, 2, MAX_WORKERS),
        within("repetitions", repetitions, 1),
    )
    calls = [(parties, length, seed) for seed in range(repetitions)]
    averages: list[Sequence[Sequence[float]]] = []

    def seconds(processes: int) -> float:
        """Return the time by the clock, with the start and the end of the processes."""
        begun = time.perf_counter()
        with open_executor(processes) as executor:
            averages.append(list(run_shards(executor, _average, calls, "run")))
        return time.perf_counter() - begun

    measures = {"one": lambda: seconds(1), "several": lambda: seconds(workers)}
    taken = alternate(runs, measures, Steps(progress, "averages", runs))
    if any(values != averages[0] for values in averages):
        raise LocalError(f"{workers} processes have found other values than one")
    name = f"{repetitions} averages of {parties} parties"
    one = median(taken["one"])
    peer = Peer.of("the same in one process", version("smpc-dp"), taken["one"])
    return Report(
        "executors",
        [
            cost(f"{name}: one process", "s", taken["one"], "by the clock, one thread"),
            cost(
                f"{name}: {workers} processes",
                "s",
                taken["several"],
                "by the clock, with the start of the processes; the same values, which is checked",
                peer=peer,
                limit=Limit("one process's time over the number of processes", one / workers),
            ),
        ],
        versions("numpy"),
        {
            "runs": runs,
            "workers": workers,
            "repetitions": repetitions,
            "parties": parties,
            "length": length,
        },
    )


def _average(parties: int, length: int, seed: int) -> list[float]:
    """Return the average, with noise, of uniform random vectors that `seed` draws, by simulation."""
    values = np.random.default_rng(seed).uniform(-1.0, 1.0, (parties, length))
    average = simulate.average(
        values, lower=-1.0, upper=1.0, epsilon=1.0, delta=1e-5, seed_for_simulation=seed
    )
    averaged: list[float] = average.value.tolist()
    return averaged
