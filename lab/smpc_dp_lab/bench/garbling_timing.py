"""Timing test of garbling: does its time depend on secrets? A t-test in the manner of dudect.

[Reparaz, Balasch, Verbauwhede 2017]: one of two fixed secrets is drawn for each measurement; Welch's t
between the two samples, their slowest part cut off, stays small if time does not depend on the secret. By
hand: `python -m smpc_dp_lab.bench.garbling_timing [MEASUREMENTS]`; above 4.5 something leaks, or the host
is disturbed: repeat it.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from smpc_dp.crypto import garble

# What is slower than this part of all measurements is an interrupt or another process.
RETAINED = 0.9

# Prepares a measurement with secret 0 or 1; returns what is timed.
Prepare = Callable[[int], Callable[[], object]]


def welch(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Welch's t of two samples; 0 if neither varies and their means agree."""
    means, errors = [], 0.0
    for sample in (first, second):
        mean = math.fsum(sample) / len(sample)
        variance = math.fsum((x - mean) ** 2 for x in sample) / (len(sample) - 1)
        means.append(mean)
        errors += variance / len(sample)
    difference = means[0] - means[1]
    if errors == 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / math.sqrt(errors)


def t_statistic(prepare: Prepare, measurements: int) -> float:
    """Return t between the times with secret 0 and with secret 1, drawn anew for each measurement."""
    times: list[tuple[float, int]] = []
    for _ in range(measurements):
        secret = random.getrandbits(1)
        work = prepare(secret)
        start = time.perf_counter_ns()
        work()
        times.append((float(time.perf_counter_ns() - start), secret))
    limit = sorted(times)[int(RETAINED * (measurements - 1))][0]
    samples = [[t for t, of in times if of == secret and t <= limit] for secret in (0, 1)]
    return welch(samples[0], samples[1])


def cases(circuit: garble.GarblingCircuit, run: garble.Run) -> Iterator[tuple[str, Prepare]]:
    """Yield the timed cases: garbling under two seeds, encoding and evaluating two inputs."""
    seeds = (bytes(32), os.urandom(32))
    shape = (circuit.n_inputs, run.n_instances)
    inputs = (np.zeros(shape, dtype=np.uint8), np.ones(shape, dtype=np.uint8))
    buffer = np.empty(circuit.table_bytes(run.n_instances), dtype=np.uint8)

    def garbling(secret: int) -> Callable[[], object]:
        garbler = garble.Garbler(circuit, run, seeds[secret])
        return lambda: garbler.fill(buffer)

    yield "garble", garbling

    fixed = garble.Garbler(circuit, run, seeds[1])
    bits = np.empty(shape, dtype=np.uint8)

    def encoding(secret: int) -> Callable[[], object]:
        np.copyto(bits, inputs[secret])
        return lambda: fixed.encode(0, bits)

    yield "encode", encoding

    tables = np.empty_like(buffer)
    fixed.fill(tables)
    labels = [fixed.encode(0, chosen) for chosen in inputs]
    active = np.empty_like(labels[0])

    def evaluating(secret: int) -> Callable[[], object]:
        np.copyto(active, labels[secret])
        evaluator = garble.Evaluator(circuit, run)
        evaluator.set_input_labels(0, active)
        return lambda: evaluator.feed(tables)

    yield "evaluate", evaluating


def chain(bits: int = 64) -> garble.GarblingCircuit:
    """Return a chain of the shape of a comparison: one AND gate a bit, each on the last one's output."""
    gates: list[tuple[int, int, int]] = []

    def gate(op: int, a: int, b: int) -> int:
        gates.append((op, a, b))
        return 2 * bits + len(gates) - 1

    carry = gate(1, 0, bits)
    for bit in range(1, bits):
        both = gate(1, gate(0, bit, carry), gate(0, bits + bit, carry))
        carry = gate(0, both, carry)
    op, a, b = np.array(gates, dtype=np.uint32).T.copy()
    out = np.arange(2 * bits, 2 * bits + len(gates), dtype=np.uint32)
    return garble.compile_circuit(
        *(op.astype(np.uint8), a, b, out),
        n_wires=2 * bits + len(gates),
        n_inputs=2 * bits,
        outputs=np.array([carry], dtype=np.uint32),
    )


def main() -> None:
    """Print t for every mode, tile and case."""
    measurements = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    circuit = chain()
    for mode in garble.Mode:
        for tile in (1, 16):
            run = garble.Run(os.urandom(16), mode, tile, 16)
            for name, prepare in cases(circuit, run):
                print(f"{name:8} {mode.value:6} tile {tile:2}: t = {t_statistic(prepare, measurements):+.2f}")


if __name__ == "__main__":
    main()
