"""Measure the AND gates a second that the core garbles and evaluates, in memory."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass

import numpy as np

from smpc_dp.crypto import garble


@dataclass(frozen=True)
class Rates:
    """Seconds of garbling and of evaluation in each run, for `gates` AND gates in each."""

    gates: int
    garble: tuple[float, ...]
    evaluate: tuple[float, ...]

    def per_second(self) -> tuple[float, float]:
        """Return the median rates: AND gates garbled per second, and evaluated per second."""
        return self.gates / statistics.median(self.garble), self.gates / statistics.median(self.evaluate)


def rates(
    circuit: garble.GarblingCircuit,
    n_instances: int,
    *,
    mode: garble.Mode,
    tile: int | None = None,
    threads: int = 1,
    kernel: str | None = None,
    runs: int = 21,
) -> Rates:
    """Time `runs` garblings and evaluations of `circuit` for `n_instances`, into and out of one buffer.

    Garbling includes making labels and offsets from the seed; neither includes moving labels between the
    two sides. Raises ValueError for a wrong parameter, VerificationError if an output label is not one of its
    wire's two.
    """
    chosen = circuit.suggest_tile(n_instances) if tile is None else tile
    run = garble.Run(os.urandom(16), mode, chosen, n_instances, threads=threads, kernel=kernel)
    # Touched beforehand: fresh pages cost as much as the garbling.
    tables = np.full(circuit.table_bytes(n_instances), 1, dtype=np.uint8)
    bits = np.zeros((circuit.n_inputs, n_instances), dtype=np.uint8)
    garbled, evaluated = [], []
    for _ in range(runs):
        garbler, evaluator = garble.Garbler(circuit, run, os.urandom(32)), garble.Evaluator(circuit, run)
        evaluator.set_input_labels(0, garbler.encode(0, bits))
        start = time.perf_counter()
        garbler.fill(tables)
        garbled.append(time.perf_counter() - start)
        start = time.perf_counter()
        evaluator.feed(tables)
        evaluated.append(time.perf_counter() - start)
        garble.check_labels(evaluator.output_labels(), garbler.output_hashes(), run)
    return Rates(circuit.n_and * n_instances, tuple(garbled), tuple(evaluated))
