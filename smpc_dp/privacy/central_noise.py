"""Noise for one integer that servers add on shares: its coins, its exact distribution, and its privacy.

The integer lies in 0..span and moves by at most `sensitivity` when one record is substituted. Nothing is
reduced modulo anything, so noise of bounded reach alone would cost delta; proofs are in
docs/proofs/servers.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, is_number
from smpc_dp.privacy.central_gaussian import WideGaussian
from smpc_dp.privacy.circuit_gaussian import MAX_EVALUATIONS, TableGaussian
from smpc_dp.privacy.circuit_noise import CONTEXT, LOOKUP_BITS, Coin, CyclicLaplace, Source, laplace_coins

GREATEST_EPSILON = 12.0
LEAST_EPSILON = 1e-6
"""Of one integer, both."""
MAX_BITS = 480
"""Bits of a noisy integer."""
FLOOR_BITS = 40
"""The result is a uniform integer with probability 2**-40."""
# Grid steps of a sensitivity that a table of Gaussian noise is made for where they can be had.
TABLE_STEPS = 8


@dataclass(frozen=True)
class FlooredLaplace:
    """Discrete Laplace noise of bounded reach, sometimes replaced by uniform, for pure epsilon-DP results.

    With `inner` the result is integer + noise, for noise in -reach..reach - 1. But where the coin `floor`
    comes up it is uniform on -reach..2**bits - reach - 1, which covers all sums. So every output has at least
    the probability of the floor under every integer, and epsilon is pure.
    """

    sensitivity: int
    span: int
    epsilon: float
    inner: CyclicLaplace
    floor: Coin
    bits: int
    proven: Fraction
    """An upper bound on the logarithm of any ratio of probabilities; at most `epsilon`."""

    name = "discrete Laplace"

    @classmethod
    def design(cls, sensitivity: int, span: int, epsilon: float) -> FlooredLaplace:
        """Return noise for integers 0..span with which a `sensitivity` move is epsilon-DP, or ConfigError.

        Raises ConfigError for an epsilon outside 1e-6..12, a sensitivity outside 1..span, and for a noisy
        integer of more than 480 bits.
        """
        _check(sensitivity, span, epsilon, "laplace")
        floor = Coin(1, FLOOR_BITS)
        indices = sensitivity.bit_length() + 1
        while True:
            reach = 1 << indices
            bits = (span + 2 * reach - 1).bit_length()
            # Beyond the reach less the sensitivity the highest coin is true: the noise has less than its
            # chance there, which must be lost in the floor.
            with localcontext(CONTEXT):
                room = Decimal(2) ** -(FLOOR_BITS + bits) * (Decimal(epsilon).exp() - 1) / 2
                enough = -(Decimal(epsilon) * (reach // 2) * Decimal("0.999") / sensitivity) < room.ln()
            if bits > MAX_BITS:
                raise ConfigError.at(
                    "epsilon", f"a noisy integer of {bits} bits, not {MAX_BITS}", ConfigCheck.RANGE
                )
            if enough:
                coins, proven = laplace_coins(sensitivity, epsilon, indices)
                inner = CyclicLaplace(sensitivity, epsilon, coins, proven)
                design = cls(sensitivity, span, epsilon, inner, floor, bits, proven)
                if design.edge <= Fraction(math.expm1(epsilon)) * (1 - Fraction(1, 1 << 20)):
                    return design
            indices += 1

    @property
    def reach(self) -> int:
        """Bound on the noise, which lies in -reach..reach - 1."""
        return 1 << (len(self.inner.coins) - 1)

    @property
    def edge(self) -> Fraction:
        """Bound on noise mass over uniform mass at outputs out of a neighbouring integer's reach."""
        highest = self.inner.coins[-2].probability
        return highest * (1 - self.floor.probability) / self.floor.probability * (1 << self.bits)

    @property
    def variance(self) -> float:
        """Upper bound on the variance of a noisy integer."""
        retained = 1 - self.floor.probability
        whole = Fraction(1 << self.bits)
        return float(retained * self.inner.exact_variance + self.floor.probability * whole**2)

    def masses(self, integer: int) -> dict[int, Fraction]:
        """Return the exact probability of each output for one integer; slow, for tests."""
        base = self.floor.probability / (1 << self.bits)
        distribution = {index - self.reach: base for index in range(1 << self.bits)}
        inner = self.inner.masses()
        for index, mass in enumerate(inner):
            noise = index if index < self.reach else index - len(inner)
            distribution[integer + noise] += (1 - self.floor.probability) * mass
        return distribution

    def draw(self, integer: int, source: Source) -> int:
        """Return an integer with noise: what the computing servers would reveal."""
        *indices, sign = [toss(coin, source) for coin in self.inner.coins]
        floored = toss(self.floor, source)
        uniform = _number(self.bits, source)
        noise = sum(coin << index for index, coin in enumerate(indices))
        return uniform - self.reach if floored else integer + (-1 - noise if sign else noise)

    def read(self, result: int) -> Fraction:
        """Convert a revealed output to the noisy integer; its bias is below 2**(bits - 40)."""
        return result - self.inner.mean


@dataclass(frozen=True)
class CoarseGaussian:
    """Discrete Gaussian noise from a table, added to an integer without its lowest `drop` bits.

    The result is floor(integer / 2**drop) + noise + len(cuts). The floor moves by at most
    ceil(sensitivity / 2**drop). The guarantee is for all `evaluations` integers of a record together.
    """

    sensitivity: int
    span: int
    drop: int
    table: TableGaussian

    name = "discrete Gaussian"

    @classmethod
    def design(
        cls, sensitivity: int, span: int, epsilon: float, delta: float, evaluations: int = 1
    ) -> CoarseGaussian:
        """Return the least (epsilon, delta)-DP noise on the finest grid; ConfigError if none.

        Raises ConfigError for arguments out of range, and for an epsilon too small for any grid.
        """
        _check(sensitivity, span, epsilon, "gaussian")
        if not 1 <= evaluations <= MAX_EVALUATIONS:
            reason = f"{evaluations} integers, Gaussian noise is for at most {MAX_EVALUATIONS}"
            raise ConfigError.at("noise", reason, ConfigCheck.TOO_LARGE)
        drop = max(0, (sensitivity - 1).bit_length() - TABLE_STEPS.bit_length() + 1)
        while True:
            steps = -(-sensitivity >> drop)
            try:
                return cls(sensitivity, span, drop, TableGaussian.design(steps, epsilon, delta, evaluations))
            except ConfigError:
                if steps == 1:
                    raise
            drop += 1

    @property
    def variance(self) -> float:
        """Variance of an estimate, with rounding error as if the dropped bits were uniform."""
        return (self.table.variance + 1 / 12) * 4.0**self.drop

    def masses(self, integer: int) -> dict[int, Fraction]:
        """Return the exact probability of each output for one integer."""
        edges = (0, *self.table.cuts, 1 << LOOKUP_BITS)
        middle = (integer >> self.drop) + len(self.table.cuts)
        distribution: dict[int, Fraction] = {}
        for magnitude, (low, high) in enumerate(itertools.pairwise(edges)):
            for result in (middle - magnitude, middle + magnitude):
                distribution[result] = distribution.get(result, Fraction(0)) + Fraction(
                    high - low, 1 << LOOKUP_BITS + 1
                )
        return distribution

    def draw(self, integer: int, source: Source) -> int:
        """Return the noisy output for an integer: what the computing servers would reveal."""
        number, sign = _number(LOOKUP_BITS, source), _number(1, source)
        magnitude = sum(number >= cut for cut in self.table.cuts)
        return (integer >> self.drop) + len(self.table.cuts) + (-magnitude if sign else magnitude)

    def read(self, result: int) -> Fraction:
        """Convert a revealed output to an estimate of the integer, mid-interval of the rounding."""
        return (result - len(self.table.cuts)) * (1 << self.drop) + Fraction((1 << self.drop) - 1, 2)


CentralNoise = FlooredLaplace | CoarseGaussian | WideGaussian


def toss(coin: Coin, source: Source) -> int:
    """Return one toss (0 or 1) of a biased coin, from a source of random bytes."""
    return int(_number(coin.bits, source) < coin.threshold)


def _number(bits: int, source: Source) -> int:
    """Return a uniform random integer of `bits` bits."""
    count = -(-bits // 8)
    return int.from_bytes(source.bytes(count), "little") >> (8 * count - bits)


def _check(sensitivity: int, span: int, epsilon: float, distribution: str) -> None:
    """Raise ConfigError unless the arguments of a noise design are in range."""
    checks = ArgumentChecks()
    if not is_number(epsilon) or not LEAST_EPSILON <= epsilon <= GREATEST_EPSILON:
        limits = f"{LEAST_EPSILON:g}..{GREATEST_EPSILON:g}"
        reason = f"{epsilon!r} is not a number in {limits}, for {distribution} noise"
        checks.add_issue("epsilon", reason, ConfigCheck.RANGE)
    if not 1 <= sensitivity <= span:
        checks.add_issue("sensitivity", f"{sensitivity} is not 1 to the range's {span}", ConfigCheck.RANGE)
    checks.raise_issues()
