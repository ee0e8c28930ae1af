"""Wide discrete Gaussian noise on shares: `privacy.central_gaussian` as a program and its terms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.servers.kernels.share_gadgets import Public, Shared, is_less, one_hot, public
from smpc_dp.capabilities.servers.secret_sharing.terms import NoiseTerms
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.central_gaussian import (
    MOST_LEVELS,
    NUMBER_BITS,
    SLOT_BITS,
    SLOTS,
    WHOLE_BITS,
    WideGaussian,
    powers,
    table_of,
)

AT_ONCE = 1024
"""Draws from tables that are under way together: about 0.1 GB."""


def wide_terms(design: WideGaussian) -> NoiseTerms:
    """Return the terms (sampling table, in hex) from which servers draw wide Gaussian noise.

    k, J, then for each place alias * 2^87 + threshold.
    """
    _, thresholds, aliases = table_of(design.variance_0)
    codes = [(alias << NUMBER_BITS) + cut for cut, alias in zip(thresholds, aliases, strict=True)]
    cuts = tuple(f"{code:x}" for code in (design.factor, design.levels, *codes))
    return NoiseTerms(
        distribution="wide-gaussian", parameter=str(design.parameter), bits=NUMBER_BITS, cuts=cuts
    )


def wide_reach(terms: NoiseTerms) -> int:
    """Return the greatest absolute value that wide noise can take; raise ConfigError if invalid."""
    factor, levels, _, _ = _read(terms)
    return (SLOTS // 2) * sum(powers(factor, levels))


async def wide_noise(mpc: Any, secint: Any, count: int, terms: NoiseTerms) -> Shared:
    """Return `count` shared draws of wide Gaussian noise, drawn in parts to bound the memory.

    Unit vectors choose threshold and alias from public tables, which costs no message.
    """
    at_once = max(1, AT_ONCE // _read(terms)[1])
    parts = []
    for start in range(0, count, at_once):
        part = _draws(mpc, secint, min(at_once, count - start), terms)
        # Waiting bounds the number of pending operations, and so the memory.
        await mpc.gather(part)
        parts.append(part)
    return np.concatenate(parts)


def _draws(mpc: Any, secint: Any, count: int, terms: NoiseTerms) -> Shared:
    """Return `count` shared noise draws, each a weighted sum of alias-table draws, one per level."""
    factor, levels, thresholds, aliases = _read(terms)
    fair = mpc.np_random_bits(secint, count * levels * WHOLE_BITS).reshape(count * levels, WHOLE_BITS)
    units = one_hot(fair[:, :SLOT_BITS])
    indices = np.arange(SLOTS)
    digits = np.array([[cut >> index & 1 for index in range(NUMBER_BITS)] for cut in thresholds])
    own, moves = (indices - SLOTS // 2)[:, None], (np.array(aliases) - indices)[:, None]
    chosen = _choose(mpc, units, np.concatenate([own, moves, digits], axis=1))
    retained = is_less(fair[:, SLOT_BITS:], chosen[:, 2:])
    drawn = chosen[:, 0] + (1 - retained) * chosen[:, 1]
    return np.sum(drawn.reshape(count, levels) * public(powers(factor, levels)), axis=-1)


def _choose(mpc: Any, units: Shared, table: NDArray[np.int64]) -> Shared:
    """Return the rows of a public table that shared unit vectors select (their matrix product).

    mpyc's own product is far slower.
    """
    # Not at the top: mpyc is optional.
    from mpyc.asyncoro import mpc_coro

    # No annotations: mpyc interprets them as its own types.
    @mpc_coro
    async def choose(units):  # type: ignore[no-untyped-def]
        field = type(units).sectype.field
        await mpc.returnType((type(units), (units.shape[0], table.shape[1])))
        shares = (await mpc.gather(units)).value
        return field.array(product(shares, table, field.modulus))

    return choose(units)


def product(numbers: Public, table: NDArray[np.int64], modulus: int) -> Public:
    """Return the matrix product of large Python integers with a small table, exactly, by floats.

    In limbs of 32 bits, so that floating point is exact: 2^32 times 2^10 times 2^9 rows is below 2^53.
    """
    limbs = -(-modulus.bit_length() // 32)
    packed = b"".join(int(number).to_bytes(4 * limbs, "little") for number in numbers.flat)
    parts = np.frombuffer(packed, "<u4").reshape(*numbers.shape, limbs).astype(np.float64)
    total = public(np.zeros((numbers.shape[0], table.shape[1]), dtype=np.int64))
    for index in range(limbs):
        exact = (parts[:, :, index] @ table.astype(np.float64)).astype(np.int64)
        total = total + (exact.astype(object) << (32 * index))
    return np.asarray(total)


def _read(terms: NoiseTerms) -> tuple[int, int, list[int], list[int]]:
    """Return (factor, levels, thresholds, aliases) of wide noise terms; raise ConfigError if invalid."""
    codes = [int(text, 16) for text in terms.cuts]
    if len(codes) != SLOTS + 2 or terms.bits != NUMBER_BITS:
        raise ConfigError.at("noise.cuts", f"{len(codes)} of them for wide Gaussian noise", ConfigCheck.SHAPE)
    factor, levels, *indices = codes
    aliases = [code >> NUMBER_BITS for code in indices]
    if not (1 <= factor < SLOTS and 1 <= levels <= MOST_LEVELS) or max(aliases) >= SLOTS:
        raise ConfigError.at("noise.cuts", "no table of wide Gaussian noise", ConfigCheck.FORMAT)
    return factor, levels, [code & ((1 << NUMBER_BITS) - 1) for code in indices], aliases
