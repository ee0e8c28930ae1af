"""Noise on shares: the designs of `privacy.central_noise` as a program's terms, and as programs."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from smpc_dp.capabilities.servers.kernels.share_gadgets import Shared, below, below_each, number
from smpc_dp.capabilities.servers.secret_sharing.terms import NoiseTerms
from smpc_dp.capabilities.servers.statistics.wide import wide_noise, wide_reach, wide_terms
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.central_gaussian import WideGaussian
from smpc_dp.privacy.central_noise import CentralNoise, FlooredLaplace
from smpc_dp.privacy.circuit_noise import LOOKUP_BITS, Coin
from smpc_dp.privacy.distributions import DiscreteLaplaceDistribution


def noise_terms(design: CentralNoise) -> NoiseTerms:
    """Return the terms from which servers draw the noise of this design: coins, thresholds and bits.

    Laplace: the coins of G, the lowest bit first, of the sign, and of the floor; `bits` are those of the
    uniform integer. Gaussian: the table's cuts; `bits` are those that the integer loses.
    """
    if isinstance(design, FlooredLaplace):
        coins = (*design.inner.coins, design.floor)
        scale = DiscreteLaplaceDistribution.for_epsilon(design.sensitivity, design.epsilon).scale
        return NoiseTerms(
            distribution="laplace", parameter=str(scale), bits=design.bits, cuts=encode_coins(coins)
        )
    if isinstance(design, WideGaussian):
        return wide_terms(design)
    spread = Fraction(design.table.sigma) ** 2 * 4**design.drop
    cuts = encode_coins(design.table.randomiser.coins)
    return NoiseTerms(distribution="gaussian", parameter=str(spread), bits=design.drop, cuts=cuts)


def encode_coins(coins: Iterable[Coin]) -> tuple[str, ...]:
    """Encode biased coins (threshold, bits) as hexadecimal numbers 2**bits + threshold."""
    return tuple(f"{(1 << coin.bits) + coin.threshold:x}" for coin in coins)


def read_coins(terms: NoiseTerms) -> list[Coin]:
    """Decode the biased coins of noise terms; raise ConfigError for invalid ones."""
    coins = []
    for text in terms.cuts:
        code = int(text, 16)
        bits = code.bit_length() - 1
        coin = Coin(code - (1 << bits), bits)
        if bits < 1 or coin.threshold < 1:
            raise ConfigError.at("noise.cuts", f"0x{text} is no threshold", ConfigCheck.FORMAT)
        coins.append(coin)
    if len(coins) < (3 if terms.distribution == "laplace" else 1):
        raise ConfigError.at(
            "noise.cuts", f"{len(coins)} of them for {terms.distribution} noise", ConfigCheck.SHAPE
        )
    compared = {"gaussian": LOOKUP_BITS, "pair_gaussian": LOOKUP_BITS, "randomised_response": terms.bits}
    expected = compared.get(terms.distribution)
    if expected and any(
        coin.bits != expected for coin in coins[terms.distribution == "randomised_response" :]
    ):
        raise ConfigError.at("noise.cuts", f"not all of {expected} bits", ConfigCheck.RANGE)
    return coins


def width(terms: NoiseTerms) -> int:
    """Return the most bits of the noise under these terms; for Laplace and pairs, of the noisy integer."""
    if terms.paired:
        return terms.bits
    if terms.distribution == "wide-gaussian":
        return wide_reach(terms).bit_length() + 1
    return terms.bits + 1 if terms.distribution == "laplace" else len(terms.cuts).bit_length() + 1


async def add_noise(mpc: Any, secint: Any, integers: Shared, terms: NoiseTerms, span_bits: int) -> Shared:
    """Return shared integers, none negative, plus noise drawn on shares; a Gaussian's are on a coarser grid.

    `span_bits` bounds their bits; the Gaussian's program decomposes them.
    """
    count = integers.shape[0]
    if terms.distribution == "wide-gaussian":
        return integers + await wide_noise(mpc, secint, count, terms)
    coins = read_coins(terms)
    if terms.distribution == "gaussian":
        fair = mpc.np_random_bits(secint, count * (LOOKUP_BITS + 1)).reshape(count, LOOKUP_BITS + 1)
        reached = 1 - below_each(fair[:, :LOOKUP_BITS], [coin.threshold for coin in coins])
        magnitude = np.sum(reached, axis=-1)
        noise = magnitude - 2 * fair[:, LOOKUP_BITS] * magnitude
        return _floor(mpc, integers, terms.bits, span_bits) + noise + len(coins)
    tossed_bits = sum(coin.bits for coin in coins)
    fair = mpc.np_random_bits(secint, count * (tossed_bits + terms.bits))
    fair = fair.reshape(count, tossed_bits + terms.bits)
    tossed = below(fair[:, :tossed_bits], coins)
    indices = len(coins) - 2
    geometric = number(tossed[:, :indices])
    sign, floored = tossed[:, indices], tossed[:, indices + 1]
    noisy = integers + geometric - sign * (2 * geometric + 1)
    uniform = number(fair[:, tossed_bits:]) - (1 << indices)
    return noisy + floored * (uniform - noisy)


def _floor(mpc: Any, integers: Shared, drop: int, span_bits: int) -> Shared:
    """Return shared integers divided by 2**drop, rounded down."""
    if not drop:
        return integers
    return number(mpc.np_to_bits(integers, max(span_bits, drop + 1))[:, drop:])
