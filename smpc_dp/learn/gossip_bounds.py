"""Error bounds of gossip with pairwise objectives: Theorems 3.1 and 3.2 of [Bellet 2021], corrected."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.learn.dual_averaging import StepSize
from smpc_dp.learn.topology import Topology

Floats = NDArray[np.float64]


def gosta_bound(topology: Topology, matrix: Floats, ticks: NDArray[np.integer]) -> Floats:
    """Return a bound on ||E z(t) - U 1||_2 after t ticks of Algorithm 3.1, (3.3), shape of `ticks`.

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
    """Terms of Theorem 3.2's bound on the objective's excess after T ticks of Algorithm 3.2.

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
    """Return the terms of Theorem 3.2.

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
