"""Randomisers: noise inside a circuit, made from bits that both parties have drawn.

Each takes `joint` bits, every one the XOR of a bit of either party: fair if one of them drew its bit fairly,
and then unknown to the other. The numbers (thresholds, cuts) come from `privacy.circuit_noise`, which has the
distributions.
"""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.capabilities.pairs.circuits.builder import ZERO, Bit, Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import (
    add,
    bitwise_not,
    bitwise_xor,
    less_than_constant,
    multiplex,
    popcount,
)
from smpc_dp.errors import ConfigCheck, ConfigError


def randomise(
    builder: Builder,
    integer: Sequence[Bit],
    joint: Sequence[Bit],
    kind: str,
    coins: Sequence[tuple[int, int]],
    bits: int,
) -> Bits:
    """Add gates that randomise an integer by noise of the named kind, drawn from both parties' coins.

    Raises ConfigError for an unknown kind or invalid coins.
    """
    thresholds = [threshold for threshold, _ in coins]
    match kind:
        case "laplace":
            return add_cyclic_laplace(builder, integer, joint, coins)
        case "gaussian":
            return add_table_gaussian(builder, integer, joint, thresholds, bits)
        case "randomised_response":
            return randomised_response(builder, integer, joint, coins[0], thresholds[1:])
    raise ConfigError.at("noise", f"{kind!r} is no randomiser", ConfigCheck.CHOICE)


def biased_coin(builder: Builder, joint: Sequence[Bit], threshold: int) -> Bit:
    """Add gates that toss a coin from n random bits: the result is 1 with probability threshold / 2**n."""
    return less_than_constant(builder, joint, threshold)


def add_cyclic_laplace(
    builder: Builder, integer: Sequence[Bit], joint: Sequence[Bit], coins: Sequence[tuple[int, int]]
) -> Bits:
    """Add gates that add two-sided geometric noise modulo 2**len(coins), drawn from random joint bits.

    AND: the coins', and n - 1 for the sum. Raises ConfigError for an integer of more than n bits, or another
    number of joint bits than the coins have.
    """
    *indices, sign = _coins(builder, joint, coins)
    if len(integer) > len(coins):
        raise ConfigError.at(
            "integer", f"{len(integer)} bits, more than {len(coins)} of the noise", ConfigCheck.RANGE
        )
    # -1 - G is the complement of G.
    noise = (*(builder.xor(bit, sign) for bit in indices), sign)
    return add(builder, zero_extend(integer, len(coins)), noise)


def randomised_response(
    builder: Builder,
    integer: Sequence[Bit],
    joint: Sequence[Bit],
    exchange: tuple[int, int],
    cuts: Sequence[int],
) -> Bits:
    """Add gates that replace the integer by a random rank among `cuts` if the coin `exchange` is 1.

    The random one is the number of `cuts` that the number in the remaining joint bits reaches. AND: the
    comparisons', the count's, and one for each bit of the integer.
    """
    coin = biased_coin(builder, joint[: exchange[1]], exchange[0])
    other = _rank(builder, joint[exchange[1] :], cuts)
    return multiplex(builder, coin, zero_extend(integer, len(other)), other)


def add_table_gaussian(
    builder: Builder, integer: Sequence[Bit], joint: Sequence[Bit], cuts: Sequence[int], width: int
) -> Bits:
    """Add gates that add Gaussian noise by table lookup; return integer + noise + len(cuts).

    The last joint bit is the sign's, the others make the number that is looked up. AND: one comparison for
    each cut, their count, and 2 (width - 1).
    """
    sign = joint[-1]
    magnitude = zero_extend(_rank(builder, joint[:-1], cuts), width)
    negated = tuple(builder.xor(bit, sign) for bit in magnitude)
    offset = builder.constant(len(cuts), width)
    return add(builder, add(builder, zero_extend(integer, width), offset), negated, carry=sign)


def joint_bits(builder: Builder, first: Sequence[Bit], second: Sequence[Bit]) -> Bits:
    """Return the XOR of the random bits of both parties, which neither of them alone determines."""
    return bitwise_xor(builder, first, second)


def zero_extend(value: Sequence[Bit], width: int) -> Bits:
    """Return an unsigned value extended to `width` bits by constant zeros."""
    return (*value, *[ZERO] * (width - len(value)))


def _coins(builder: Builder, joint: Sequence[Bit], coins: Sequence[tuple[int, int]]) -> list[Bit]:
    """Toss each biased coin (threshold, bits) from the next of the joint random bits; return the results."""
    if len(joint) != sum(bits for _, bits in coins):
        raise ConfigError.at(
            "joint", f"{len(joint)} bits, the coins take {sum(b for _, b in coins)}", ConfigCheck.SHAPE
        )
    tossed, start = [], 0
    for threshold, bits in coins:
        tossed.append(biased_coin(builder, joint[start : start + bits], threshold))
        start += bits
    return tossed


def _rank(builder: Builder, number: Sequence[Bit], cuts: Sequence[int]) -> Bits:
    """Return, as bits, how many of the public thresholds `cuts` a secret number reaches."""
    if len(cuts) + 1 == 1 << len(number):
        return tuple(number)
    reached = [bitwise_not(builder, [less_than_constant(builder, number, cut)])[0] for cut in cuts]
    return popcount(builder, reached)
