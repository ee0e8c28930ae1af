"""The groups that a learner draws from its public seed [docs/proofs/learning.md, "Verifiable groups"]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from smpc_dp_verify.errors import required

STREAM = 9
# Most places in all groups together that an audit draws.
MOST_MEMBERS = 1 << 22
_WORD, _WIDE = (1 << 32) - 1, (1 << 128) - 1
_FACTOR = 0x2360ED051FC65DA44385DF649FCCF645


class _Hash:
    """Hash function of numpy's SeedSequence, called with 32-bit words; each call changes its constant."""

    def __init__(self, constant: int, factor: int) -> None:
        self._constant, self._factor = constant, factor

    def __call__(self, value: int) -> int:
        value ^= self._constant
        self._constant = self._constant * self._factor & _WORD
        value = value * self._constant & _WORD
        return value ^ value >> 16


def _mix(x: int, y: int) -> int:
    value = 0xCA01F9DD * x - 0x4973F715 * y & _WORD
    return value ^ value >> 16


def seeded(*entropy: int) -> tuple[int, int]:
    """Return the two 128-bit integers that numpy's SeedSequence generates from these integers."""
    words: list[int] = []
    for number in entropy:
        words += [number >> 32 * i & _WORD for i in range(max(1, -(-number.bit_length() // 32)))]
    hashed = _Hash(0x43B0D7E5, 0x931E8875)
    pool = [hashed(words[i] if i < len(words) else 0) for i in range(4)]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = _mix(pool[target], hashed(pool[source]))
    for word in words[4:]:
        for target in range(4):
            pool[target] = _mix(pool[target], hashed(word))
    last = _Hash(0x8B51F9DD, 0x58F38DED)
    state = [last(word) for word, _ in zip(cycle(pool), range(8), strict=False)]
    wide = [state[2 * i] | state[2 * i + 1] << 32 for i in range(4)]
    return wide[0] << 64 | wide[1], wide[2] << 64 | wide[3]


def pcg64(seed: int, stream: int) -> Iterator[int]:
    """Yield the 64-bit words of numpy's generator PCG64 with this seed [O'Neill 2014, XSL RR 128/64]."""
    start, sequence = seeded(seed, stream)
    increment = (sequence << 1 | 1) & _WIDE
    state = ((increment + start) * _FACTOR + increment) & _WIDE
    while True:
        state = (state * _FACTOR + increment) & _WIDE
        word, by = (state >> 64 ^ state) & (1 << 64) - 1, state >> 122
        yield (word >> by | word << (64 - by)) & (1 << 64) - 1


def group_of(parameters: dict[str, Any], parties: int, request: int) -> tuple[list[int], int]:
    """Return the parties (from 0) of a request's group, and the most groups that any party is in."""
    learner, steps = parameters["learner"], parameters["steps"]
    size = parties if learner == "sgd" else parameters["group"]
    required(type(steps) is int and 2 <= size <= parties, "a learner without verifiable averages")
    required(steps * max(size, parties + 1) <= MOST_MEMBERS, "a schedule that is too long")
    # In a step all its groups average what is public, then all what is private.
    each = 1 if learner in ("sgd", "block-gossip") else parties // size
    step, rest = divmod(request - 1, 2 * each)
    required(rest >= each and 0 <= step < steps, "a request without an average")
    if learner == "sgd":
        return [*range(parties)], steps
    index, count = step * each + rest - each, steps * each
    groups: list[list[int]] = []
    draws = pcg64(parameters.get("seed", 0), STREAM)
    while len(groups) < count:
        keys = [next(draws) >> 11 for _ in range(parties)]
        order = sorted(range(parties), key=keys.__getitem__)
        groups += [sorted(order[i : i + size]) for i in range(0, parties // size * size, size)]
    taken = Counter(party for group in groups[:count] for party in group)
    return groups[index], max(taken.values())
