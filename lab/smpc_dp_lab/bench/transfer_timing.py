"""Timing test of oblivious transfer: does its time depend on secrets? By the t-test of `garbling_timing`.

The secrets are the seeds of a setup (the base sender's scalar; the correlation, which is the base receiver's
choices and the path of the trees), the receiver's choices, and the correlation under a chunk. By hand:
`python -m smpc_dp_lab.bench.transfer_timing [MEASUREMENTS]`; above 4.5 something leaks, or the host is
disturbed: repeat it.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from smpc_dp.crypto import ot
from smpc_dp_lab.bench.garbling_timing import Prepare, t_statistic

# Whole tiles of the core, and a part of one.
COUNT = 70 * 128
# Measurements until the setups are made anew: where one lies in memory must not pass for its secret.
RENEWED = 10

Pair = tuple[ot.Sender, ot.Receiver]
Step = Callable[[], object]


def _start(k: int, sender_seed: bytes, receiver_seed: bytes) -> Pair:
    context = bytes(ot.CONTEXT_BYTES)
    return ot.Sender("receiver", context, sender_seed, k), ot.Receiver("sender", context, receiver_seed, k)


def _seed() -> bytes:
    return os.urandom(ot.SEED_BYTES)


def setup_cases(k: int) -> Mapping[str, Prepare]:
    """Return the timed steps of a setup, under one of two seeds of the side that is timed."""
    seeds, other = (_seed(), _seed()), _seed()

    def responding(secret: int) -> Step:
        sender, receiver = _start(k, seeds[secret], other)
        first = receiver.first_message()
        return lambda: sender.respond(first)

    def planting(secret: int) -> Step:
        sender, receiver = _start(k, other, seeds[secret])
        response = sender.respond(receiver.first_message())
        return lambda: receiver.finish_setup(response)

    def puncturing(secret: int) -> Step:
        sender, receiver = _start(k, seeds[secret], other)
        corrections = receiver.finish_setup(sender.respond(receiver.first_message()))
        return lambda: sender.finish_setup(corrections)

    return {"base response": responding, "base keys": planting, "trees": puncturing}


def _steps(pair: Pair, choices: bytes, corrections: ot.Rows, rows: ot.Rows) -> Iterator[Step]:
    """Yield the steps of a chunk; each is taken before the next is asked for."""
    sender, receiver = pair
    messages: list[bytes] = []
    yield lambda: receiver.extend_into(COUNT, choices, corrections)
    yield lambda: messages.append(sender.challenge(COUNT, corrections))
    yield lambda: messages.append(receiver.correlated(messages[0], rows)[0])
    yield lambda: sender.correlated(messages[1], rows)


def chunk_cases(k: int) -> Mapping[str, Prepare]:
    """Return the timed steps of a chunk.

    Of the receiver's steps the choices, all zeros or all ones; of the sender's, one of two correlations.
    """
    choices = bytes(COUNT // 8), b"\xff" * (COUNT // 8)
    chosen = bytearray(COUNT // 8)
    seeds, other = (_seed(), _seed()), _seed()
    pairs: dict[int, Pair] = {}
    rows = np.empty((COUNT, ot.ROW_BYTES), np.uint8)
    corrections = np.empty(_start(k, other, other)[1].corrections_bytes(COUNT), np.uint8)
    begun: Iterator[Step] = iter(())
    taken = 0

    def prepare(number: int, secret: int) -> Step:
        nonlocal begun, taken
        for step in begun:
            step()
        by_choice = number % 2 == 0
        if not pairs or (taken % RENEWED == 0 and not by_choice):
            pairs.clear()
            for which in random.sample((0, 1), 2):
                sender, receiver = pairs[which] = _start(k, seeds[which], other)
                sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
        taken += 1
        chosen[:] = choices[secret if by_choice else 0]
        begun = _steps(pairs[0 if by_choice else secret], bytes(chosen), corrections, rows)
        for _ in range(number):
            next(begun)()
        return next(begun)

    names = ("corrections", "challenge", "response", "check")
    return {name: partial(prepare, number) for number, name in enumerate(names)}


def kernel_cases() -> Mapping[str, Prepare]:
    """Return the timed kernels in each version: columns of zeros or random ones."""
    columns = np.zeros((COUNT // 128 + 1, 128, 16), np.uint8)
    contents = columns.tobytes(), os.urandom(columns.nbytes)
    out = np.empty((COUNT, ot.ROW_BYTES), np.uint8)
    challenge = os.urandom(16)

    def prepare(portable: bool, secret: int) -> Step:
        columns.reshape(-1)[:] = np.frombuffer(contents[secret], np.uint8)
        return lambda: ot.rows_and_hashes(challenge, columns, out, portable=portable)

    return {name: partial(prepare, name == "portable rows") for name in ("fastest rows", "portable rows")}


def main() -> None:
    """Print t for every field size and case."""
    measurements = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for k in ot.FIELD_SIZES:
        # A step of a setup takes hundreds of times as long as one of a chunk.
        for cases, count in ((setup_cases(k), max(100, measurements // 20)), (chunk_cases(k), measurements)):
            for name, prepare in cases.items():
                print(f"{name:13} k = {k}: t = {t_statistic(prepare, count):+.2f} ({count} measurements)")
    for name, prepare in kernel_cases().items():
        print(f"{name:13}: t = {t_statistic(prepare, measurements):+.2f} ({measurements} measurements)")


if __name__ == "__main__":
    main()
