"""Outputs of single pairs on shares, each with noise of its own, by the randomiser of the two-party protocol.

The circuit of kernel and noise is that of `capabilities.pairs.statistics.compiled`, with random bits that no
t servers know in the place of the XOR of both parties'. So an output has the same distribution as there; all
outputs are opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np

from smpc_dp.capabilities.pairs.circuits.builder import Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.circuits.layers import Layers, layers_of
from smpc_dp.capabilities.pairs.circuits.randomisers import randomise
from smpc_dp.capabilities.pairs.garbled.draw import Pairs
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.servers.kernels.share_gadgets import Shared, join_bits, number
from smpc_dp.capabilities.servers.secret_sharing.terms import NoiseTerms
from smpc_dp.capabilities.servers.statistics.kernels import CHUNK
from smpc_dp.capabilities.servers.statistics.noise import encode_coins, read_coins
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.circuit_noise import Noise, NoiseKind, PairDistribution, Randomiser

PAIR_DISTRIBUTIONS: Mapping[str, NoiseKind] = {
    "pair_laplace": "laplace",
    "pair_gaussian": "gaussian",
    "randomised_response": "randomised_response",
}


def pair_terms(design: Noise) -> NoiseTerms:
    """Return the terms from which servers draw the noise of each single pair.

    `parameter` is the variance of an output as it is read.
    """
    kind, coins, bits = design.randomiser
    distribution = cast(
        "PairDistribution",
        next(distribution for distribution, garbled in PAIR_DISTRIBUTIONS.items() if garbled == kind),
    )
    return NoiseTerms(
        distribution=distribution,
        parameter=str(Fraction(design.variance)),
        bits=bits,
        cuts=encode_coins(coins),
    )


def randomiser_of(terms: NoiseTerms) -> Randomiser:
    """Return the randomiser (kind, coins, bits) of these terms; ConfigError if not of single pairs."""
    if not terms.paired:
        raise ConfigError.at(
            "noise", f"{terms.distribution!r} is not of single pairs", ConfigCheck.UNSUPPORTED
        )
    return Randomiser(PAIR_DISTRIBUTIONS[terms.distribution], tuple(read_coins(terms)), terms.bits)


@lru_cache(maxsize=16)
def pair_circuit(kernel: Kernel, terms: NoiseTerms) -> Circuit:
    """Return the circuit from two records and random bits to a kernel's noisy output; or ConfigError."""
    if kernel.gadget is None:
        raise ConfigError.at("kernel", f"'{kernel.name}' has no circuit", ConfigCheck.UNSUPPORTED)
    randomiser, builder = randomiser_of(terms), Builder()
    x, y = ([builder.input(field.bits) for field in kernel.fields] for _ in range(2))
    joint = builder.input(randomiser.joint_bits)
    integer = kernel.gadget(builder, x, y)
    builder.output(randomise(builder, integer, joint, *randomiser))
    circuit, expected = builder.build(), randomiser.output_bits(kernel.steps)
    if circuit.outputs != (expected,):
        raise ConfigError.at(
            "noise", f"gives {circuit.outputs[0]} bits, {expected} are due", ConfigCheck.SHAPE
        )
    return circuit


@lru_cache(maxsize=16)
def pair_layers(kernel: Kernel, terms: NoiseTerms) -> Layers:
    """Return the noisy circuit of one pair as rounds of multiplications on shares."""
    return layers_of(pair_circuit(kernel, terms))


def each_pair(
    mpc: Any, secint: Any, kernel: Kernel, terms: NoiseTerms, bits: Sequence[Shared], pairs: Pairs
) -> Iterator[Shared]:
    """Yield the shared noisy outputs of single pairs, in chunks, to be opened."""
    layers, joint = pair_layers(kernel, terms), pair_circuit(kernel, terms).inputs[-1]
    whole = join_bits(bits)
    size = max(1, CHUNK // layers.widest)
    for start in range(0, len(pairs), size):
        first, second = pairs[start : start + size].T
        fair = mpc.np_random_bits(secint, joint * len(first)).reshape(len(first), joint)
        result = layers.evaluate(np.concatenate((whole[first], whole[second], fair), axis=1).T)
        yield number(result.T)
