"""Many coins of one bias from a stream of fair bits: a rival of one comparison a coin.

A comparison of w bits is decided by the first bit that differs from the threshold, after two bits on average
[Champion, Shelat, Ullman 2019]. The stream is read bit by bit; a counter holds the place in the threshold's
expansion; decided coins are moved to the front, and where they stood stays in the circuit. This is their idea
with an order-preserving compaction in place of their oblivious stacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from smpc_dp.capabilities.pairs.circuits.builder import ONE, ZERO, Bit, Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import equal_constant, select
from smpc_dp.capabilities.pairs.circuits.randomisers import biased_coin

# The chance, as a power of 2, that a stream has too few decided coins.
FAILURE_BITS = 40


def stream_length(coins: int, failure_bits: int = FAILURE_BITS) -> int:
    """Return how many fair bits decide `coins` coins but with probability 2**-failure_bits at most.

    A bit decides with probability at least 1/2; Hoeffding.
    """
    slack = failure_bits * math.log(2)
    return math.ceil(2 * coins + slack + math.sqrt(slack**2 + 4 * coins * slack)) + 1


def streamed_coins(
    builder: Builder, joint: Sequence[Bit], threshold: int, width: int, count: int
) -> tuple[Bits, Bit]:
    """Return `count` coins of probability threshold / 2**width, and whether the stream was long enough.

    Coins beyond those that were decided are 0. The threshold is expanded from its highest bit.
    """
    indices = max(1, (width - 1).bit_length())
    expansion = [threshold >> (width - 1 - index) & 1 for index in range(width)]
    table = [(ONE if bit else ZERO,) for bit in (*expansion, *[0] * ((1 << indices) - width))]
    index: Bits = (ZERO,) * indices
    decided, coins = [], []
    for bit in joint:
        (expected,) = select(builder, index, table)
        differs = builder.xor(bit, expected)
        last = equal_constant(builder, index, width - 1)
        # The number is below the threshold where the threshold has the 1; equal numbers are not below.
        coins.append(builder.and_(expected, differs))
        decided.append(builder.or_(differs, last))
        index = _next(builder, index, decided[-1])
    front = _compact(builder, decided, coins, count)
    return tuple(coin for _, coin in front), front[-1][0]


def coin_gates(width: int, threshold: int, count: int) -> tuple[int, int]:
    """Return the AND gates for `count` coins: by comparisons, and from a stream."""
    compared = Builder()
    inputs = [compared.input(width) for _ in range(count)]
    compared.output([biased_coin(compared, bits, threshold) for bits in inputs])
    streamed = Builder()
    coins, enough = streamed_coins(
        streamed, streamed.input(max(width, stream_length(count))), threshold, width, count
    )
    streamed.output((*coins, enough))
    return compared.build().and_count, streamed.build().and_count


def _next(builder: Builder, index: Bits, reset: Bit) -> Bits:
    """Return place + 1, or 0."""
    carry, result = ONE, []
    go_on = builder.not_(reset)
    for bit in index:
        result.append(builder.and_(go_on, builder.xor(bit, carry)))
        carry = builder.and_(bit, carry)
    return tuple(result)


def _compact(
    builder: Builder, valid: Sequence[Bit], coins: Sequence[Bit], count: int
) -> list[tuple[Bit, Bit]]:
    """Move valid coins to the front in order; return the first `count` (valid, coin)."""
    levels = len(valid).bit_length()
    before: Bits = (ZERO,) * levels
    items: list[list[Bit]] = []
    for flag, coin in zip(valid, coins, strict=True):
        # How far it moves; an item that is not valid is all zeros.
        items.append([flag, builder.and_(flag, coin), *(builder.and_(flag, bit) for bit in before)])
        carry, counted = builder.not_(flag), []
        for bit in before:
            counted.append(builder.xor(bit, carry))
            carry = builder.and_(bit, carry)
        before = tuple(counted)
    for level in range(levels):
        # The lowest bit of the distance first: then no two items meet.
        going = [[builder.and_(item[2], part) for part in item] for item in items]
        moved = []
        for here, item in enumerate(items):
            stays = [builder.xor(part, gone) for part, gone in zip(item, going[here], strict=True)]
            there = here + (1 << level)
            comes = going[there] if there < len(items) else [ZERO] * len(item)
            both = [builder.xor(a, b) for a, b in zip(stays, comes, strict=True)]
            moved.append([*both[:2], *both[3:]])
        items = moved
    return [(item[0], item[1]) for item in items[:count]]
