"""Error bounds of gossip: Theorems 3.1 and 3.2 of [Bellet 2021], corrected, and those of steps in groups.

For groups see docs/proofs/gossip.md, "In groups".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.dual_averaging import StepSize
from smpc_dp.capabilities.learn.topology import Topology
from smpc_dp.errors import ConfigCheck, ConfigError

Floats = NDArray[np.float64]


def gosta_bound(topology: Topology, matrix: Floats, ticks: NDArray[np.integer]) -> Floats:
    """Return the bound (3.3) on the error of the expected gossip estimates after given numbers of ticks.

    As printed, but for ||H - h 1'||: it must be the Frobenius norm; for the spectral norm the bound is false
    (docs/proofs/errata.md). A graph may be bipartite if it has more than two parties.

    Args:
        matrix: H, shape (n, n): h(x_u, x_v). ticks: t >= 1.

    Raises:
        ConfigError: the graph is disconnected, or the matrix does not go with it.
    """
    topology.require_connected()
    if matrix.shape != (topology.parties, topology.parties):
        raise ConfigError.at("matrix", f"shape must be (n, n) with n = {topology.parties}", ConfigCheck.SHAPE)
    rate = topology.spectral_gap / len(topology.edges)
    means = matrix.mean(axis=1)
    across = float(np.linalg.norm(means - means.mean()))
    within = float(np.linalg.norm(matrix - means[:, None]))
    time = rate * np.asarray(ticks, dtype=np.float64)
    return np.asarray(across / time + (2 / time + np.exp(-time)) * within)


@dataclass(frozen=True, slots=True)
class ErrorTerms:
    """Result: the terms of the bound on the excess of gossip dual averaging after T ticks [Theorem 3.2].

    Attributes:
        centralised: C1. network: C2, proven for the mean over the parties. printed_network: C2 as printed.
        bias: C3, the mean over t of (theta* - pi_t(bar z))' bar epsilon, measured; None if it was not. The
            paper prints the opposite sign.
    """

    centralised: float
    network: float
    printed_network: float
    bias: float | None


def dual_averaging_terms(
    topology: Topology,
    optimum: Floats,
    lipschitz: float,
    step_size: StepSize,
    ticks: int,
    bias: float | None = None,
) -> ErrorTerms:
    """Return the terms of the error bound of gossip dual averaging after T ticks [Theorem 3.2].

    Averaging over a random edge contracts mean squares by 1 - beta_G/(2|E|); the printed C2 has 1 -
    beta_G/|E|, and is for each party, whose distance from the mean may be greater (docs/proofs/errata.md).

    Args:
        optimum: theta*, shape (p,). lipschitz: L_h. ticks: T, above 1.
        bias: C3, measured.

    Raises:
        ConfigError: the graph is disconnected, or T is below 2.
    """
    topology.require_connected()
    if ticks < 2:
        raise ConfigError.at("ticks", f"must be at least 2, is {ticks}", ConfigCheck.RANGE)
    steps = step_size(np.arange(1, ticks + 1, dtype=np.float64))
    summed, last = float(steps[:-1].sum()), float(steps[-1])
    rate = topology.spectral_gap / len(topology.edges)

    def network(contraction: float) -> float:
        """Return C2 for this contraction of mean squares per tick."""
        return 3 * lipschitz**2 * summed / (ticks * (1 - math.sqrt(contraction)))

    centralised = float(optimum @ optimum) / (2 * ticks * last) + lipschitz**2 * summed / (2 * ticks)
    return ErrorTerms(centralised, network(1 - rate / 2), network(max(0.0, 1 - rate)), bias)


@dataclass(frozen=True, slots=True)
class GroupMixing:
    """Mixing of states by averages in disjoint random groups of s of n parties: spectral gap, distances.

    The matrix W of a round is a symmetric projection with rows and columns that add up to 1. Its mean has
    1 - gap in all directions that are orthogonal to the average, so a round multiplies the expected squared
    distance of states from their average by exactly that.

    Attributes:
        parties: n, 2 or more. size: s, 2 to n.
    """

    parties: int
    size: int

    def __post_init__(self) -> None:
        """Raise ConfigError unless a group of this size can be drawn."""
        if not 2 <= self.size <= self.parties:
            reason = f"must be 2 to the parties, {self.parties}, is {self.size}"
            raise ConfigError.at("group", reason, ConfigCheck.RANGE)

    @property
    def groups(self) -> int:
        """The number k of disjoint groups in one round."""
        return self.parties // self.size

    @property
    def share(self) -> float:
        """The probability q that a given party is in some group of a round."""
        return self.groups * self.size / self.parties

    @property
    def gap(self) -> float:
        """The spectral gap of a round's mean matrix, k (s - 1)/(n - 1); for one pair 1/(n - 1)."""
        return self.groups * (self.size - 1) / (self.parties - 1)

    @property
    def spread(self) -> float:
        """Bound on parties' mean squared distance from the mean that one step's group averages cause.

        Members give 1/q times a vector of norm at most 1, and take their group's average. Where all take part
        it is 1 - gap.
        """
        n, s, k = self.parties, self.size, self.groups
        own, pair = n - s, n * (s - 1) - s * (k * s - 1)
        return max(own + pair, own - pair / (n - 1), 0.0) / (k * s * s)

    def distance(self, bound: float, variance: float = 0.0) -> float:
        """Return a bound on the root mean square distance of parties' states from their mean.

        Args:
            bound: of the norm of a party's change, times 1/q in a state. variance: of the noise in a group's
                average of changes, summed over the coordinates.
        """
        contraction = math.sqrt(max(0.0, 1 - self.gap))
        noise = math.sqrt(variance * (1 / self.share - 1 / self.groups))
        return (math.sqrt(self.spread) * bound + noise) / (1 - contraction)


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """Result: the terms of the bound on the excess of dual averaging in groups after T steps.

    Attributes:
        centralised: C1. network: C2, for the mean over the parties; 0 where one group has all of them.
    """

    centralised: float
    network: float


def group_terms(
    mixing: GroupMixing,
    norm: float,
    lipschitz: float,
    step_size: StepSize,
    steps: int,
    variance: float = 0.0,
) -> GroupTerms:
    """Return the terms of the error bound of dual averaging in random groups after T steps.

    Args:
        norm: ||theta*||. lipschitz: L, of each party's gradients, which are not clipped below it.
        steps: T, 1 or more.
        variance: as of `GroupMixing.distance`.

    Raises:
        ConfigError: T is below 1.
    """
    if steps < 1:
        raise ConfigError.at("steps", f"must be at least 1, is {steps}", ConfigCheck.RANGE)
    sizes = step_size(np.arange(1, steps + 1, dtype=np.float64))
    summed = float(sizes.sum())
    squared = lipschitz**2 + variance / mixing.groups
    centralised = norm**2 / (2 * steps * float(sizes[-1]))
    centralised += squared * (float(sizes[0]) + summed) / (2 * steps)
    distance = mixing.distance(lipschitz, variance)
    return GroupTerms(centralised, 3 * lipschitz * distance * summed / steps)


def group_disagreement(
    mixing: GroupMixing, step_size: float, l2_bound: float, variance: float = 0.0
) -> float:
    """Return a bound on models' mean squared distance from their mean, in diffusion by groups.

    That of (28) [Vlaski and Sayed 2020] with the root of the contraction of mean squares in the place of
    lambda_2: (28) is for one matrix, and false for random ones with the lambda_2 of their mean.

    Args:
        step_size: mu. l2_bound: G, of the norm of a gradient, with that of the regulariser.
        variance: as of `GroupMixing.distance`.
    """
    # Here changes are not multiplied by 1/q.
    return (step_size * mixing.share * mixing.distance(l2_bound, variance)) ** 2
