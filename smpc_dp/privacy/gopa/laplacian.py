"""Two-sided bounds on (A^-1)_uu for A = s I + L, L the Laplacian of a connected graph; no n x n matrix.

On the constant vector A is s, so (A^-1)_uu = 1/(n s) + b' A^-1 b with b = e_u - 1/n, and there L is at least
lambda_2. For every vector x, with r = b - A x,

    b' A^-1 b = 2 b'x - x'Ax + r' A^-1 r,   0 <= r' A^-1 r <= |r|^2 / (s + lambda_2),

whatever made x (here conjugate gradients, in `diagonal`): an upper and a lower bound. A lower bound on
lambda_2 comes from Chebyshev polynomials (`connectivity`); 0 is always one. docs/proofs/gopa-plan.md has the
proofs.
"""

from __future__ import annotations

import math
import os

import msgspec
import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import SuperLU, splu

from smpc_dp.privacy.gopa.graphs import Floats, HonestGraph, Randomness

# The unit roundoff of float64.
_U = 2.0**-53
# Up to so many parties lambda_2 is bounded with all unit vectors and no chance; above, by random probes.
ALL_VECTORS = 512
PROBES = 64
# The random bound fails with probability at most 2 to this, over the prober's own coins.
PROBE_FAILURE_LOG2 = -128
_BLOCK = 64
_LONGEST = 1024


class Laplacian:
    """Laplacian matrix L of a connected graph, kept as sparse adjacency matrix and degrees."""

    def __init__(self, graph: HonestGraph) -> None:
        self.n = graph.size
        self.adjacency: csr_array = graph.adjacency
        self.degrees: Floats = graph.degrees.astype(np.float64)
        ends = self.degrees[graph.edges]
        self.edges = len(graph.edges)
        self._factors: tuple[float, SuperLU] | None = None
        # [Anderson and Morley 1985]; and L is at most that of the complete graph.
        self.greatest = min(float(self.n), float(ends.sum(axis=1).max())) if self.edges else 0.0

    def factors(self, s: float) -> SuperLU:
        """Return the sparse LU factors of s I + L, cached for the last s."""
        if self._factors is None or self._factors[0] != s:
            matrix = diags_array(self.degrees + s) - self.adjacency
            self._factors = (s, splu(matrix.tocsc()))
        return self._factors[1]

    def apply(self, x: Floats) -> Floats:
        """Return the product L x for x of shape (n, columns)."""
        return np.asarray(self.degrees[:, None] * x - self.adjacency @ x)


class Connectivity(msgspec.Struct, frozen=True):
    """Certified lower bound on lambda_2, the algebraic connectivity of a graph."""

    lower: float
    failure_log2: float | None
    """log2 of the probability that the bound is wrong, over the prober's coins; None: it is certain."""
    estimate: float
    """An upper bound, a Rayleigh quotient (no certificate rests on it)."""


def connectivity(laplacian: Laplacian, randomness: Randomness = os.urandom) -> Connectivity:
    """Return a certified lower bound on a graph's algebraic connectivity, by Chebyshev iterations.

    p is a Chebyshev polynomial, within [-1, 1] on [a, greatest] and growing below a. If v is an eigenvector
    of an eigenvalue x <= t < a, then |p(L) Z|^2 >= p(t)^2 |Z'v|^2. With Z all unit vectors |Z'v| is 1; with
    Z uniform on [-1, 1]^(n x 64), from the operating system, |Z'v|^2 >= q except with probability 2^-128,
    by Ball's bound of sqrt(2)/2 on the density of each entry. So |p(L) Z|^2 < p(t)^2 q shows lambda_2 > t.
    """
    n, top = laplacian.n, laplacian.greatest
    a = float(laplacian.degrees.min())
    if laplacian.edges == n * (n - 1) // 2 or a >= top:
        return Connectivity(float(n), None, float(n))
    certain = n <= ALL_VECTORS
    if certain:
        starts = [np.eye(n, min(_BLOCK, n - at), -at) for at in range(0, n, _BLOCK)]
        q, failure = 1.0, None
    else:
        half = PROBES / 2
        log_q = (PROBE_FAILURE_LOG2 * math.log(2) + math.lgamma(half + 1)) / half - math.log(math.pi / 2)
        raw = np.frombuffer(randomness(8 * n * PROBES), dtype="<u8") >> np.uint64(11)
        starts = [raw.astype(np.float64).reshape(n, PROBES) / 2.0**52 - 1.0]
        q, failure = math.exp(log_q), float(PROBE_FAILURE_LOG2)
    chains = [_Chebyshev(laplacian, a, top, start) for start in starts]
    steps = 32
    while True:
        for chain in chains:
            chain.advance(steps)
        estimate = min(chain.quotient() for chain in chains)
        lower = _certified(chains, steps, math.sqrt(q) / 2)
        if lower >= 0.8 * estimate or steps >= _LONGEST:
            return Connectivity(lower, failure, estimate)
        steps *= 2


def _certified(chains: list[_Chebyshev], steps: int, half_root_q: float) -> float:
    """Return the largest lower bound on lambda_2 that these Chebyshev iterations prove; 0 if none."""
    log_size = 0.5 * float(np.logaddexp.reduce([2 * chain.log_sizes[-1] for chain in chains]))
    log_p = max(0.0, log_size - math.log(half_root_q)) + 1e-9
    # arccosh(y) <= ln(2 y), and is less only where y is small
    growth = log_p + math.log(2) if log_p > 20 else math.acosh(math.exp(log_p))
    a, top = chains[0].a, chains[0].top
    lower = (top + a - math.cosh(growth / steps) * (top - a)) / 2 * (1 - 1e-9)
    error = sum(chain.error(growth / steps) for chain in chains)
    return lower if lower > 0 and error < half_root_q - chains[0].laplacian.n * 2.0**-52 else 0.0


class _Chebyshev:
    """Chebyshev iteration with a graph's Laplacian on given start vectors, to bound its connectivity."""

    def __init__(self, laplacian: Laplacian, a: float, top: float, start: Floats) -> None:
        self.laplacian, self.a, self.top = laplacian, a, top
        self.now = start - start.mean(axis=0)
        self.before: Floats | None = None
        self.log_scale = 0.0
        self.log_sizes: list[float] = []
        self._note_size()

    def _note_size(self) -> None:
        """Record the logarithm of the iterate's norm; rescale a large iterate against overflow."""
        # Not by BLAS, whose threads wait for each other on a busy machine.
        size = math.sqrt(float(np.square(self.now).sum()))
        if size > 1e100 and self.before is not None:
            self.before, self.now = self.before / size, self.now / size
            self.log_scale, size = self.log_scale + math.log(size), 1.0
        self.log_sizes.append(math.log(max(size, 1e-300)) + self.log_scale)

    def error(self, rate: float) -> float:
        """Return a bound on the rounding error in the iterate's product with eigenvectors that grow fast.

        An error made at step j is multiplied by U_(m-j) <= (m-j+1) T_(m-j) <= (m-j+1) T_m / T_j afterwards.
        """
        steps, most = len(self.log_sizes), float(self.laplacian.degrees.max())
        unit = 4 * (most + 8) * _U * (self.top + self.a + 4 * most) / (self.top - self.a)
        return (
            steps
            * unit
            * sum(2 * math.exp(min(size - j * rate, 700)) for j, size in enumerate(self.log_sizes))
        )

    def advance(self, steps: int) -> None:
        """Run the Chebyshev iteration on, up to step number `steps`."""
        while len(self.log_sizes) <= steps:
            image = (self.top + self.a) * self.now - 2 * self.laplacian.apply(self.now)
            image /= self.top - self.a
            following = image if self.before is None else 2 * image - self.before
            # The constant vector would outgrow everything: its rounding errors are taken out at once.
            following -= following.mean(axis=0)
            self.before, self.now = self.now, following
            self._note_size()

    def quotient(self) -> float:
        """Return the least Rayleigh quotient of the columns: an upper estimate of lambda_2."""
        norms = (self.now**2).sum(axis=0)
        return float(((self.now * self.laplacian.apply(self.now)).sum(axis=0) / norms).min())
