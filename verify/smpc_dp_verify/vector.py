"""Commitments to long vectors: generators by hash, and whether a total opens a sum of commitments.

Specification: protocols/secagg/checked.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from Crypto.Hash import TupleHash256

from smpc_dp_verify import ristretto
from smpc_dp_verify.ristretto import IDENTITY, Point, add, double, is_same, negate

# Binary digits of a window, and windows of an element of 64 bits.
WINDOW, WINDOWS = 8, 8
# Seconds between two lines of progress.
PACE = 10.0


def generator(kind: str, number: int) -> Point:
    """Return the curve generator of element `number` ("value"), or of the blinding ("blinding", 0)."""
    state = TupleHash256.new(digest_bytes=64, custom=b"smpc-dp/1/vector-generator")
    state.update(kind.encode())
    state.update(number.to_bytes(4, "big"))
    wide = state.digest()
    return add(ristretto.map_to_group(wide[:32]), ristretto.map_to_group(wide[32:]))


def opens(total: Sequence[int], blinding: int, points: Sequence[Point]) -> bool:
    """Tell whether `points` sum to the commitment to `total`, of absolute values below 2^64."""
    expected = IDENTITY
    for point in points:
        expected = add(expected, point)
    opened = ristretto.times(blinding, generator("blinding", 0))
    return is_same(add(opened, _commitment(total)), expected)


def _commitment(total: Sequence[int]) -> Point:
    """Return the sum of generators, each times its element, computed digit by digit."""
    sums = [[IDENTITY] * (1 << WINDOW) for _ in range(WINDOWS)]
    for number, value in _with_progress(total):
        if not value:
            continue
        point, magnitude = generator("value", number), abs(value)
        point = point if value > 0 else negate(point)
        for window in sums:
            digit, magnitude = magnitude % (1 << WINDOW), magnitude >> WINDOW
            if digit:
                window[digit] = add(window[digit], point)
    result = IDENTITY
    for window in reversed(sums):
        for _ in range(WINDOW):
            result = double(result)
        beyond = IDENTITY
        for point in reversed(window[1:]):
            # Point number d is added d times.
            beyond = add(beyond, point)
            result = add(result, beyond)
    return result


def _with_progress(total: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (index, element) pairs; every ten seconds print to stderr how many are done."""
    printed = time.monotonic()
    for number, value in enumerate(total):
        if number % 256 == 0 and time.monotonic() - printed > PACE:
            printed = time.monotonic()
            print(f"element {number} of {len(total)}", file=sys.stderr, flush=True)
        yield number, value
