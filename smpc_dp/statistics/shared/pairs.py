"""Pairs one by one on shares: each has noise of its own, by the randomiser that two parties would garble.

The circuit of kernel and noise is that of `statistics.compiled`, with random bits that no t servers know in
the place of the XOR of both parties'. So an output has the very law that it has there; all are opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from smpc_dp.circuits import randomisers
from smpc_dp.circuits.builder import Builder
from smpc_dp.circuits.circuit import Circuit
from smpc_dp.circuits.layers import Layers, layers_of
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.kernels.share_gadgets import Shared, public
from smpc_dp.privacy.circuit_gaussian import LOOKUP_BITS, TableGaussian
from smpc_dp.privacy.circuit_noise import Coin, CyclicLaplace, Noise, RandomisedResponse
from smpc_dp.protocols.mpyc.terms import NoiseLaw, NoiseTerms
from smpc_dp.protocols.pairwise.draw import Pairs
from smpc_dp.statistics.compiled import NoiseKind
from smpc_dp.statistics.shared.kernels import CHUNK
from smpc_dp.statistics.shared.noise import read_coins

PairLaw = Literal["pair_laplace", "pair_gaussian", "randomised_response"]
PAIR_LAWS: Mapping[str, NoiseKind] = {
    "pair_laplace": "laplace",
    "pair_gaussian": "gaussian",
    "randomised_response": "randomised_response",
}
MAX_PARTNERS = 32
"""Pairs of each user whose outputs are opened one by one, at most: all of them are told to everybody."""


def pair_terms(design: Noise) -> NoiseTerms:
    """Return what each pair draws from; coins and cuts as of `shared.noise.noise_terms`.

    Laplace: the coins of G, the lowest bit first, and of the sign. Randomised response: the coin that
    exchanges, and the cuts. Gaussian: the table's cuts. `bits` are those of an output, or of the number that
    randomised response compares with its cuts; `parameter` is the variance of an output as it is read.
    """
    law: NoiseLaw
    match design:
        case CyclicLaplace():
            law, coins, bits = "pair_laplace", design.coins, design.output_bits
        case RandomisedResponse():
            cuts = (Coin(cut, design.bits) for cut in design.cuts)
            law, coins, bits = "randomised_response", (design.exchange, *cuts), design.bits
        case TableGaussian():
            coins = tuple(Coin(cut, LOOKUP_BITS) for cut in design.cuts)
            law, bits = "pair_gaussian", design.output_bits
        case _:
            raise ConfigError([Fault("noise", f"no program for {type(design).__name__}")])
    written = tuple(f"{(1 << coin.bits) + coin.threshold:x}" for coin in coins)
    return NoiseTerms(law=law, parameter=str(Fraction(design.variance)), bits=bits, cuts=written)


def output_bits(terms: NoiseTerms, steps: int) -> int:
    """Return the bits of an opened output."""
    return steps.bit_length() if terms.law == "randomised_response" else terms.bits


@lru_cache(maxsize=16)
def pair_circuit(kernel: Kernel, terms: NoiseTerms) -> Circuit:
    """Return the circuit from the fields of two records and joint bits to an output. Raises ConfigError."""
    if kernel.gadget is None:
        raise ConfigError([Fault("kernel", f"'{kernel.name}' has no circuit")])
    coins, builder = read_coins(terms), Builder()
    x, y = ([builder.input(field.bits) for field in kernel.fields] for _ in range(2))
    match terms.law:
        case "pair_laplace":
            joint = builder.input(sum(coin.bits for coin in coins))
            integer = kernel.gadget(builder, x, y)
            builder.output(randomisers.add_cyclic_laplace(builder, integer, joint, coins))
        case "randomised_response":
            exchange, cuts = coins[0], [coin.threshold for coin in coins[1:]]
            joint = builder.input(exchange.bits + terms.bits)
            integer = kernel.gadget(builder, x, y)
            builder.output(randomisers.randomised_response(builder, integer, joint, exchange, cuts))
        case "pair_gaussian":
            joint = builder.input(LOOKUP_BITS + 1)
            cuts = [coin.threshold for coin in coins]
            integer = kernel.gadget(builder, x, y)
            builder.output(randomisers.add_table_gaussian(builder, integer, joint, cuts, terms.bits))
        case _:
            raise ConfigError([Fault("noise", f"{terms.law!r} is not of single pairs")])
    circuit = builder.build()
    due = output_bits(terms, kernel.steps)
    if circuit.outputs != (due,):
        raise ConfigError([Fault("noise", f"gives {circuit.outputs[0]} bits, {due} are due")])
    return circuit


@lru_cache(maxsize=16)
def pair_layers(kernel: Kernel, terms: NoiseTerms) -> Layers:
    """Return that circuit as layers of products."""
    return layers_of(pair_circuit(kernel, terms))


def each_pair(
    mpc: Any, secint: Any, kernel: Kernel, terms: NoiseTerms, bits: Sequence[Shared], pairs: Pairs
) -> Iterator[Shared]:
    """Yield the outputs of chunks of pairs, shape (pairs,): noisy, what is opened."""
    layers, joint = pair_layers(kernel, terms), pair_circuit(kernel, terms).inputs[-1]
    whole = np.concatenate(list(bits), axis=1) if len(bits) > 1 else bits[0]
    size = max(1, CHUNK // layers.widest)
    for start in range(0, len(pairs), size):
        first, second = pairs[start : start + size].T
        fair = mpc.np_random_bits(secint, joint * len(first)).reshape(len(first), joint)
        found = layers.evaluate(np.concatenate((whole[first], whole[second], fair), axis=1).T)
        yield np.sum(found.T * public([1 << place for place in range(found.shape[0])]), axis=1)
