"""Wide discrete Gaussian noise on shares: `privacy.central_gaussian` as terms, and as a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.central_gaussian import (
    MOST_LEVELS,
    NUMBER_BITS,
    PLACE_BITS,
    PLACES,
    WHOLE_BITS,
    WideGaussian,
    powers,
    table_of,
)
from smpc_dp.protocols.mpyc.terms import NoiseTerms
from smpc_dp.statistics.shared.arithmetic import Shared, half, one_hot, public, sign


def wide_terms(design: WideGaussian) -> NoiseTerms:
    """Return what a program draws from: k, J, then for each place alias * 2^87 + threshold; in hex."""
    _, thresholds, aliases = table_of(design.variance_0)
    codes = [(alias << NUMBER_BITS) + cut for cut, alias in zip(thresholds, aliases, strict=True)]
    cuts = tuple(f"{code:x}" for code in (design.factor, design.levels, *codes))
    return NoiseTerms(law="wide-gaussian", parameter=str(design.parameter), bits=NUMBER_BITS, cuts=cuts)


def wide_reach(terms: NoiseTerms) -> int:
    """Return the greatest absolute value of a draw. Raises ConfigError for terms that are none."""
    factor, levels, _, _ = _read(terms)
    return (PLACES // 2) * sum(powers(factor, levels))


def wide_noise(mpc: Any, secint: Any, count: int, terms: NoiseTerms) -> Shared:
    """Return so many draws, shape (count,): for each level 512 products, and 4 for each bit of a number.

    Unit vectors choose threshold and alias from public tables, which costs no message.
    """
    factor, levels, thresholds, aliases = _read(terms)
    fair = mpc.np_random_bits(secint, count * levels * WHOLE_BITS).reshape(count * levels, WHOLE_BITS)
    units = one_hot(fair[:, :PLACE_BITS])
    own = np.arange(PLACES) - PLACES // 2
    digits = [[cut >> place & 1 for place in range(NUMBER_BITS)] for cut in thresholds]
    columns = np.concatenate(
        [own[:, None], np.array(aliases)[:, None] - np.arange(PLACES)[:, None], digits], 1
    )
    chosen = units @ public(columns.tolist())
    order = sign(fair[:, PLACE_BITS:], chosen[:, 2:])
    # 1 where the number is below the threshold: (s^2 - s) / 2.
    kept = half(order * (order - 1))
    drawn = chosen[:, 0] + (1 - kept) * chosen[:, 1]
    return np.sum(drawn.reshape(count, levels) * public(powers(factor, levels)), axis=-1)


def _read(terms: NoiseTerms) -> tuple[int, int, list[int], list[int]]:
    codes = [int(text, 16) for text in terms.cuts]
    if len(codes) != PLACES + 2 or terms.bits != NUMBER_BITS:
        raise ConfigError([Fault("noise.cuts", f"{len(codes)} of them for wide Gaussian noise")])
    factor, levels, *places = codes
    aliases = [code >> NUMBER_BITS for code in places]
    if not (1 <= factor < PLACES and 1 <= levels <= MOST_LEVELS) or max(aliases) >= PLACES:
        raise ConfigError([Fault("noise.cuts", "no table of wide Gaussian noise")])
    return factor, levels, [code & ((1 << NUMBER_BITS) - 1) for code in places], aliases
