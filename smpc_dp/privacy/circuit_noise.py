"""Noise that a Boolean circuit makes from fair bits: its coins, its exact distribution, and its privacy.

A design is a list of coins, each true with a probability that is a multiple of 2**-bits. Its epsilon is
proven from those probabilities, not from the ones that they are close to. Proofs are in
docs/proofs/statistics.md; `capabilities.pairs.circuits.randomisers` has the circuits.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.response import ResponseDistribution

Integers = NDArray[np.int64]
Raw = NDArray[np.uint64]
NoiseKind = Literal["laplace", "gaussian", "randomised_response"]
# The same on shares, where other noise may be added to a sum over the pairs.
PairDistribution = Literal["pair_laplace", "pair_gaussian", "randomised_response"]

GREATEST_EPSILON = 12.0
LEAST_EPSILON = 1e-6
"""Of one evaluation, both: coins have at most 63 bits.

A coin with the odds exp(-x) needs x / ln 2 bits and some for precision, and x is up to WRAP_LOG + epsilon:
at 12 that is 55, from 19 on it is more than 63 on some grids. At 12 a kernel of two values gets noise once in
80,000 evaluations, so there is no use for more.
"""
# Fair bits of the number that a Gaussian's table is asked for; a magnitude's chance is off by 2**-63 at most.
LOOKUP_BITS = 63
MAX_NOISE_BITS = 40
MAX_CATEGORIES = 64
# The noise wraps around with a probability of about e^-20 an evaluation: that costs accuracy, not privacy.
WRAP_LOG = 20
# What of epsilon is given up so that coins may have few bits.
SLACK = Decimal(2) ** -10
# Coins have odds of at least exp(-this); those of designs have exp(-800) and more.
_MOST_LOG = 1000
# What of epsilon randomised response makes use of, at least.
LEAST_USED = Decimal("0.9")
CONTEXT = Context(prec=80)
# Above the rounding of a few hundred operations at 80 digits.
_ROUNDING = Decimal(10) ** -70


class Source(Protocol):
    """Interface of a source of random bytes, from which noise is drawn."""

    def bytes(self, n: int) -> bytes:
        """Return `n` random bytes."""


class Coin(NamedTuple):
    """Biased coin, true with probability threshold / 2**bits, made from `bits` fair bits in a circuit."""

    threshold: int
    bits: int

    @classmethod
    def near(cls, probability: Decimal, precision: int) -> Coin:
        """Return a coin close to this probability, to `precision` significant bits."""
        bits = precision
        while probability * (1 << bits) < 1 << precision:
            bits += 1
        threshold = int((probability * (1 << bits)).to_integral_value())
        while threshold and not threshold & 1:
            threshold, bits = threshold >> 1, bits - 1
        return cls(threshold, bits)

    @property
    def probability(self) -> Fraction:
        """Exact probability that the coin is true: threshold / 2^bits."""
        return Fraction(self.threshold, 1 << self.bits)

    def toss(self, count: int, source: Source) -> NDArray[np.bool_]:
        """Return `count` independent tosses of this coin."""
        words = np.frombuffer(source.bytes(8 * count), "<u8") >> np.uint64(64 - self.bits)
        return words < np.uint64(self.threshold)


class Randomiser(NamedTuple):
    """Description of the part of a circuit that draws noise: kind of noise, biased coins, number of bits.

    `capabilities.pairs.circuits.randomisers.randomise` builds it. Laplace: the coins of G, the lowest bit
    first, and of the sign. Randomised response: the coin that exchanges, and the cuts of `bits` each.
    Gaussian: the table's cuts, of `LOOKUP_BITS` each.
    """

    kind: NoiseKind
    coins: tuple[Coin, ...]
    bits: int
    """Of an output, or of the number that randomised response compares with its cuts."""

    @property
    def joint_bits(self) -> int:
        """Number of fair random bits that one evaluation uses."""
        if self.kind == "laplace":
            return sum(coin.bits for coin in self.coins)
        # The number that is looked up and the sign; the coin and the number.
        return LOOKUP_BITS + 1 if self.kind == "gaussian" else self.coins[0].bits + self.bits

    def output_bits(self, steps: int) -> int:
        """Return the number of bits of a noisy output, for integers 0..steps."""
        return steps.bit_length() if self.kind == "randomised_response" else self.bits


class Noise(Protocol):
    """Interface of integer noise for pairwise statistics that a circuit or secret sharing can draw.

    It takes a kernel's integer, 0..steps, and gives a raw output, an unsigned integer of `output_bits`.
    """

    name: ClassVar[str]
    steps: int

    def __hash__(self) -> int:
        return hash(self.randomiser)

    @property
    def randomiser(self) -> Randomiser:
        """Description of the part of a circuit that draws this noise."""

    @property
    def joint_bits(self) -> int:
        """Number of random bits that one evaluation takes from each of the two parties."""
        return self.randomiser.joint_bits

    @property
    def output_bits(self) -> int:
        """Number of bits of a noisy output."""
        return self.randomiser.output_bits(self.steps)

    @property
    def variance(self) -> float:
        """Greatest variance of an estimate over all true integers, in squared grid steps."""

    @property
    def least_variance(self) -> float:
        """Least variance of an estimate over all true integers, in squared grid steps."""
        return self.variance

    def draw(self, integers: Integers, source: Source) -> Raw:
        """Return noisy outputs for these integers, drawn in Python as the circuit would."""

    def read(self, raw: Raw) -> NDArray[np.float64]:
        """Convert noisy outputs to estimates of the integers, unbiased unless a design says otherwise."""

    def terms(self) -> dict[str, object]:
        """Return the noise's parameters as JSON data, which two parties compare before a run."""


@dataclass(frozen=True)
class CyclicLaplace(Noise):
    """Discrete Laplace noise that a circuit adds to an integer modulo 2**output_bits.

    With q = exp(-epsilon / steps) a geometric variable G has independent bits, the i-th true with odds
    q**(2**i) [Dwork et al. 2006, section 4]. The noise is G, or with odds q: -1 - G, which is the complement
    of G's bits: a two-sided distribution of ratio q without a rejected zero. Modulo 2**output_bits
    neighbouring values have the ratio q everywhere, the wrap included, so epsilon is pure.

    `coins` are those of the bits of G, the lowest first, and that of the sign.
    """

    steps: int
    epsilon: float
    coins: tuple[Coin, ...]
    proven: Fraction
    """An upper bound on the logarithm of any ratio of probabilities, from the coins; at most `epsilon`."""

    name = "discrete Laplace"

    @classmethod
    def design(cls, steps: int, epsilon: float) -> CyclicLaplace:
        """Return noise that makes one evaluation on 0..steps epsilon-DP; ConfigError if none.

        Raises ConfigError for an epsilon that is not above 0 or above 12, or too small for the grid; then it
        says which is the smallest.
        """
        _check_epsilon(epsilon)
        room = (1 << MAX_NOISE_BITS) - steps
        least = max(LEAST_EPSILON, WRAP_LOG * steps / room) if room > 0 else math.inf
        if epsilon < least:
            works = "none works" if least > GREATEST_EPSILON else f"the smallest that works is {least:.3g}"
            reason = f"{epsilon:g} is too small for {steps} grid steps; {works}"
            raise ConfigError.at(
                "epsilon", f"of one evaluation, {reason}; or take a coarser grid", ConfigCheck.INFEASIBLE
            )
        bits = max(1, math.ceil(math.log2(WRAP_LOG * steps / epsilon + steps)))
        coins, proven = laplace_coins(steps, epsilon, bits)
        return cls(steps, epsilon, coins, proven)

    @property
    def randomiser(self) -> Randomiser:
        """The circuit's description of this noise: biased coins, and output bits."""
        return Randomiser("laplace", self.coins, len(self.coins))

    @property
    def mean(self) -> Fraction:
        """Exact mean of the noise, near 0, which `read` subtracts from outputs."""
        *indices, sign = (coin.probability for coin in self.coins)
        geometric = sum((p * (1 << index) for index, p in enumerate(indices)), Fraction(0))
        return (1 - sign) * geometric - sign * (geometric + 1)

    @property
    def exact_variance(self) -> Fraction:
        """Exact variance of the noise before reduction modulo 2**output_bits."""
        *indices, sign = (coin.probability for coin in self.coins)
        first = sum((p * (1 << index) for index, p in enumerate(indices)), Fraction(0))
        spread = sum((p * (1 - p) * (1 << 2 * index) for index, p in enumerate(indices)), Fraction(0))
        second = spread + first**2
        return (1 - sign) * second + sign * (second + 2 * first + 1) - self.mean**2

    @property
    def variance(self) -> float:
        """Variance of the noise, in squared grid steps."""
        return float(self.exact_variance)

    def masses(self) -> list[Fraction]:
        """Return the exact probability of each noise value modulo 2**output_bits; slow, for tests."""
        *indices, sign = (coin.probability for coin in self.coins)
        geometric = [Fraction(1)]
        for p in indices:
            # Higher bits later: the second half has the bit set.
            geometric = [m * (1 - p) for m in geometric] + [m * p for m in geometric]
        return [m * (1 - sign) for m in geometric] + [m * sign for m in reversed(geometric)]

    def draw(self, integers: Integers, source: Source) -> Raw:
        """Return integers plus this noise modulo 2^output_bits, as the circuit would output them."""
        *indices, sign = self.coins
        count = len(integers)
        noise = np.zeros(count, np.int64)
        for index, coin in enumerate(indices):
            noise += coin.toss(count, source).astype(np.int64) << index
        noise = np.where(sign.toss(count, source), -1 - noise, noise)
        return ((integers + noise) & ((1 << self.output_bits) - 1)).astype(np.uint64)

    def read(self, raw: Raw) -> NDArray[np.float64]:
        """Convert outputs modulo 2^output_bits to noisy integers around the middle of 0..steps.

        The bias is below 2**output_bits times the chance of a wrap, about e^-20.
        """
        whole = 1 << self.output_bits
        lowest = self.steps // 2 - whole // 2
        lifted = (raw.astype(np.int64) - lowest) % whole + lowest
        centred: NDArray[np.float64] = lifted.astype(np.float64) - float(self.mean)
        return centred

    def terms(self) -> dict[str, object]:
        """Return the noise's parameters as JSON data, which two parties compare before a run."""
        return {"noise": "laplace", "coins": [list(coin) for coin in self.coins]}


@dataclass(frozen=True)
class RandomisedResponse(Noise):
    """Randomised response on an integer 0..steps in a circuit, for few steps [Bellet 2021, 3.3.4].

    With the probability of the first coin the integer is replaced by one of all k = steps + 1, drawn by
    comparing one number of `bits` fair bits with `cuts`.
    """

    steps: int
    epsilon: float
    exchange: Coin
    cuts: tuple[int, ...]
    bits: int
    proven: Fraction

    name = "randomised response"

    @classmethod
    def design(cls, steps: int, epsilon: float) -> RandomisedResponse:
        """Return an epsilon-DP response on 0..steps; ConfigError if epsilon or steps do not fit.

        Raises ConfigError for an epsilon out of range, and for more than 64 integers.
        """
        _check_epsilon(epsilon)
        if epsilon < LEAST_EPSILON:
            reason = (
                f"{epsilon:g} of one evaluation is too small; the smallest that works is {LEAST_EPSILON:g}"
            )
            raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
        if steps + 1 > MAX_CATEGORIES:
            reason = f"randomised response is for at most {MAX_CATEGORIES} values, the kernel has {steps + 1}"
            raise ConfigError.at("noise", reason, ConfigCheck.TOO_LARGE)
        k = steps + 1
        even = k & (k - 1) == 0
        with localcontext(CONTEXT):
            budget = Decimal(epsilon)
            precision = 12
            while True:
                bits = k.bit_length() - 1 if even else precision + k.bit_length()
                cuts = tuple(round(Fraction(index << bits, k)) for index in range(1, k))
                target = budget * (1 - SLACK)
                exchange = Coin.near(ResponseDistribution.of_gain(k, target.exp() - 1).beta, precision)
                design = cls(steps, epsilon, exchange, cuts, bits, Fraction(0))
                # The greatest ratio of probabilities of one output under two inputs.
                lie = exchange.probability * min(design.chances)
                ratio = (1 - exchange.probability + lie) / lie
                proven = (Decimal(ratio.numerator) / ratio.denominator).ln() + _ROUNDING
                # A coin of few bits may keep far too seldom, or never.
                if budget * LEAST_USED <= proven <= budget:
                    return replace(design, proven=Fraction(proven))
                precision += 1

    @property
    def randomiser(self) -> Randomiser:
        """The circuit's description of this response: biased coins, and output bits."""
        cuts = (Coin(cut, self.bits) for cut in self.cuts)
        return Randomiser("randomised_response", (self.exchange, *cuts), self.bits)

    @property
    def chances(self) -> list[Fraction]:
        """Exact probability of each integer as a random replacement."""
        edges = (0, *self.cuts, 1 << self.bits)
        return [Fraction(b - a, 1 << self.bits) for a, b in itertools.pairwise(edges)]

    def masses(self, integer: int) -> list[Fraction]:
        """Return the exact probability of each output for one true integer."""
        beta = self.exchange.probability
        return [(j == integer) * (1 - beta) + beta * p for j, p in enumerate(self.chances)]

    @property
    def variance(self) -> float:
        """Variance of an estimate, in squared steps, for the integer where it is greatest."""
        return max(self._variances())

    @property
    def least_variance(self) -> float:
        """Variance of an estimate, in squared steps, for the integer where it is least."""
        return min(self._variances())

    def _variances(self) -> list[float]:
        """Return the variance of an estimate for each true integer, in squared steps."""
        retained = 1 - self.exchange.probability

        def spread(masses: list[Fraction]) -> Fraction:
            mean = sum((j * m for j, m in enumerate(masses)), Fraction(0))
            return sum((j * j * m for j, m in enumerate(masses)), Fraction(0)) - mean**2

        return [float(spread(self.masses(h)) / retained**2) for h in range(self.steps + 1)]

    def draw(self, integers: Integers, source: Source) -> Raw:
        """Return integers of which some are replaced at random, as the circuit would output them."""
        count = len(integers)
        exchanged = self.exchange.toss(count, source)
        number = np.frombuffer(source.bytes(8 * count), "<u8") >> np.uint64(64 - self.bits)
        other = np.searchsorted(np.array(self.cuts, np.uint64), number, side="right")
        return np.where(exchanged, other, integers).astype(np.uint64)

    def read(self, raw: Raw) -> NDArray[np.float64]:
        """Convert outputs to unbiased estimates of the integers."""
        beta = self.exchange.probability
        other = sum((j * p for j, p in enumerate(self.chances)), Fraction(0))
        return (raw.astype(np.float64) - float(beta * other)) / float(1 - beta)

    def terms(self) -> dict[str, object]:
        """Return the response's parameters as JSON data, which two parties compare before a run."""
        return {"noise": "randomised_response", "exchange": list(self.exchange), "cuts": list(self.cuts)}


@checks_numbers
def laplace_coins(steps: int, epsilon: float, bits: int) -> tuple[tuple[Coin, ...], Fraction]:
    """Return coins that draw two-sided geometric noise, and a proven bound on epsilon of a move by `steps`.

    `bits` coins are those of G, the lowest bit first, the last one is the sign: odds q**(2**i), and q, for a
    q a little above exp(-epsilon / steps). The second value, at most `epsilon`, bounds the logarithm of the
    ratio of two nonzero probabilities of values `steps` apart; the coins' own rounding is in it.

    Raises ConfigError for arguments out of range, and for so many bits that a coin is true with less than
    e^-1000.
    """
    checks = ArgumentChecks()
    checks.require_integer("steps", steps, 1, 1 << 128)
    checks.require_within("epsilon", epsilon, LEAST_EPSILON, GREATEST_EPSILON)
    checks.raise_issues()
    most = math.floor(math.log2(_MOST_LOG * steps / epsilon)) + 1
    checks.require_integer("bits", bits, 1, min(most, 256), f", at epsilon {epsilon:g} and {steps} steps")
    checks.raise_issues()
    with localcontext(CONTEXT):
        budget = Decimal(epsilon)
        slope = budget * (1 - SLACK) / steps
        powers = [*(1 << index for index in range(bits)), 1]
        # A coin that is true needs odds q**power; ln of the odds against it is slope * power.
        chances = [1 / (1 + (slope * power).exp()) for power in powers]
        precision = 8
        while True:
            coins = tuple(Coin.near(chance, precision) for chance in chances)
            # Between two outputs the bits that differ contribute their errors, each at most once.
            proven = slope * steps + _ROUNDING
            for coin, power in zip(coins, powers, strict=True):
                against = Decimal((1 << coin.bits) - coin.threshold) / coin.threshold
                proven += abs(against.ln() - slope * power) + _ROUNDING
            if proven <= budget:
                return coins, Fraction(proven)
            precision += 1


def _check_epsilon(epsilon: object) -> None:
    """Raise ConfigError unless epsilon is above 0 and at most 12."""
    checks = ArgumentChecks()
    checks.require_positive("epsilon", epsilon, GREATEST_EPSILON, ", for one evaluation")
    checks.raise_issues()
