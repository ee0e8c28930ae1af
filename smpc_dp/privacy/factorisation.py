"""Noise that is correlated over the steps of decentralised learning, accounted by matrix factorisation.

Each party adds C^-1 Z to its T updates, C lower triangular and Z Gaussian, independent of other parties'
[Bellet and others 2026, arXiv 2510.17480: C_local x I]. Observers see all messages of all parties, which are
as informative as C G + Z for the G of each party. Proofs: docs/proofs/factorisation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.record_gradients import CLOSENESS, SMOOTHING, grid_bits, planned_mu, record_guarantee
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian

if TYPE_CHECKING:
    from scipy import sparse

    from smpc_dp.privacy.accountant.events import Event

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_STEPS = 1_000
# Parties whose graph's eigenvalues are computed; beyond that noise is optimised for the mean model.
_DENSE = 2_000
# Bands of C at most: more lower the error by less than a part in a hundred.
_MOST_BANDS = 64
_ITERATIONS = 15
# Grid steps in the contribution of one record, at least; in a standard deviation, at most.
_FINE, _MOST_DEVIATION = 1 << 18, 1 << 36
_ASSUMPTION = (
    "the party follows the protocol and draws its noise honestly; others may see all messages of all "
    "parties, and know all records but one; how many records each party has, and which batch is used when, "
    "is public"
)


@dataclass(frozen=True, eq=False)
class Factorisation:
    """Matrix C for correlated noise C^-1 Z over the steps of learning, scaled to sensitivity 1.

    Attributes:
        matrix: C, shape (T, T), lower triangular, with a positive diagonal.
        batches: b: a record contributes at steps j, j + b, j + 2b, ... for one j, and at no others.
    """

    matrix: Floats
    batches: int

    @cached_property
    def inverse(self) -> Floats:
        """Inverse of the matrix C, shape (T, T), which turns fresh into correlated noise."""
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(self.matrix, np.eye(len(self.matrix)), lower=True))

    @property
    def bands(self) -> int:
        """Number of nonzero diagonals of C, the main one included."""
        rows, columns = np.nonzero(self.matrix)
        return int((rows - columns).max()) + 1

    def mean_square(self, gram: Floats) -> float:
        """Return the mean noise variance in a model per coordinate, over steps and parties.

        For contributions that move by 1 and one standard deviation of Z; `gram` as of `gossip_gram`.
        """
        # C^-1 C^-T = (C^T C)^-1.
        return float(np.einsum("ij,jk,ik->", gram, self.inverse, self.inverse)) / len(gram)


def sensitivity(matrix: Floats, batches: int) -> float:
    """Return a bound on the L2 sensitivity of C times a record's contributions, every `batches` steps.

    Rows of D have L2 norms of at most 1 at the record's steps, and are zero elsewhere. The bound is
    max_j sqrt(sum_{s, t in j} |C^T C|_st); it is attained where no entry of C^T C is negative
    [Choquette-Choo and others 2023].
    """
    moved = np.abs(matrix.T @ matrix)
    steps = len(matrix)
    most = max(float(moved[first::batches, first::batches].sum()) for first in range(min(batches, steps)))
    return math.sqrt(most) * (1 + 1e-9)


def scaled(matrix: Floats, batches: int) -> Factorisation:
    """Return a lower triangular matrix as a factorisation, scaled so that its sensitivity is 1."""
    return Factorisation(matrix / sensitivity(matrix, batches), batches)


def independent(steps: int, batches: int) -> Factorisation:
    """Return the factorisation without correlation (C = I, scaled): independent noise at each step."""
    return scaled(np.eye(steps), batches)


def gossip_gram(weights: sparse.csr_array | None, steps: int, retained: float = 1.0) -> Floats:
    """Return the matrix Q by which tr(Q (C^T C)^-1) is the total noise in the models of all gossip steps.

    It is the sum over steps and the mean over parties, per coordinate, for unit noise. The noise of step s is
    in the models after step t by `retained`^(t-s) W^(t-s+1).

    Args:
        weights: W, symmetric, the same at each step; None: of a mean model, without graph.
        retained: the public factor of the own model in an update, above 0 and at most 1.
    """
    values = np.ones(1)
    if weights is not None and weights.shape[0] <= _DENSE:
        values = np.linalg.eigvalsh(weights.toarray())
    lags, power = np.zeros(2 * steps), values**2
    for lag in range(2 * steps):
        lags[lag] = power.mean()
        power = power * values * retained
    gram = np.zeros((steps + 1, steps + 1))
    for step in range(steps - 1, -1, -1):
        others = np.arange(steps)
        # The term of the last step, whose lags add up to this.
        last = 2 * (steps - 1) - step - others
        gram[step, :steps] = lags[last] + gram[step + 1, 1:]
    return gram[:steps, :steps]


def optimise(gram: Floats, batches: int) -> Factorisation:
    """Return the factorisation C of sensitivity 1 with little total noise tr(Q (C^T C)^-1).

    A record that contributes at every step (b = 1) gets the exact optimum, which is diagonal. Else C has at
    most b bands, so that steps of one record do not share noise and the sensitivity is exact.
    """
    from scipy.optimize import minimize

    steps = len(gram)
    if batches == 1:
        roots = np.sqrt(np.diag(gram))
        return scaled(np.diag(np.sqrt(roots / roots.sum())), 1)
    bands = min(batches, steps, _MOST_BANDS)
    # Row k of `below` is the k-th diagonal, by columns.
    column = np.arange(steps)
    inside = column[None] + np.arange(bands)[:, None] < steps
    rows, columns = (column[None] + np.arange(bands)[:, None])[inside], np.broadcast_to(column, inside.shape)
    columns = columns[inside]
    member = np.zeros((min(batches, steps), steps))
    member[column % batches, column] = 1

    def build(vector: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return C, its unscaled unit columns' entries, the norms before, and the shares of each column."""
        below = np.zeros((bands, steps))
        below[inside] = vector[steps:]
        norms = np.linalg.norm(below, axis=0)
        powers = np.exp(vector[:steps] - vector[:steps].max())
        shares = powers / (powers @ member.T @ member)
        matrix = np.zeros((steps, steps))
        matrix[rows, columns] = (below / norms * np.sqrt(shares))[inside]
        return matrix, below / norms, norms, shares

    def loss(vector: Floats) -> tuple[float, Floats]:
        """Return log tr(Q (C^T C)^-1) and its gradient."""
        matrix, units, norms, shares = build(vector)
        inverse = Factorisation(matrix, batches).inverse
        middle = inverse.T @ (gram @ inverse)
        total = float(np.trace(middle))
        slope = np.zeros((bands, steps))
        for band in range(bands):
            ends = steps - band
            slope[band, :ends] = -2 * np.einsum("ij,ij->i", middle[band:], inverse[:ends])
        along = (slope * units).sum(axis=0)
        per_unit = (slope - along * units) * np.sqrt(shares) / norms
        weighed = along * np.sqrt(shares) / 2
        per_share = weighed - shares * (weighed @ member.T @ member)
        return math.log(total), np.concatenate([per_share, per_unit[inside]]) / total

    # The square root of the sum's matrix, cut to the bands [Kalinin and Lampert 2024].
    first = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, bands))])
    start = np.broadcast_to(first[:, None], inside.shape)[inside]
    solution = minimize(
        loss,
        np.concatenate([np.zeros(steps), start]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS},
    )
    matrix = build(solution.x)[0]
    # Noise is C^-1 Z: the sign of a column is that of its Z.
    return scaled(matrix * np.sign(np.diag(matrix)), batches)


def check_accountable(noise: str, routes: str) -> None:
    """Raise ConfigError for noise or routes that matrix factorisation has no privacy analysis for."""
    checks = ArgumentChecks()
    if noise != "gaussian":
        reason = (
            f"{noise!r} is not Gaussian: the account rests on the rotations of Gaussian noise; Laplace "
            "diffusion has its own, docs/proofs/diffusion.md"
        )
        checks.add_issue("noise", reason, ConfigCheck.UNSUPPORTED)
    if routes != "known":
        reason = (
            f"{routes!r}: a hidden route protects by the observer's uncertainty about the matrices, which "
            "here are known; smpc-dp plan network --topology complete has that account"
        )
        checks.add_issue("routes", reason, ConfigCheck.UNSUPPORTED)
    checks.raise_issues()


@lru_cache(maxsize=16)
def _optimised(key: bytes, steps: int, batches: int) -> Factorisation:
    """Return the optimised factorisation for a matrix Q given as bytes, cached."""
    return optimise(np.frombuffer(key).reshape(steps, steps), batches)


@checks_numbers
def factorise(
    weights: sparse.csr_array | None, steps: int, batches: int, retained: float = 1.0
) -> Factorisation:
    """Return the factorisation optimised for gossip with these weights, cached; ConfigError if too large."""
    checks = ArgumentChecks()
    checks.require_integer("steps", steps, 1, MAX_STEPS)
    if not checks:
        checks.require_integer("batches", batches, 1, steps)
    checks.raise_issues()
    if not 0 < retained <= 1:
        raise ConfigError.at("retained", f"must be in (0, 1], is {retained:g}", ConfigCheck.RANGE)
    return _optimised(gossip_gram(weights, steps, retained).tobytes(), steps, batches)


@dataclass(frozen=True, eq=False)
class CorrelatedNoise:
    """Plan and sampler of one party's correlated discrete noise over all steps of learning.

    Attributes:
        factorisation: C. bits: of the grid.
        bound: B, the l2 norm of a record's contribution to one step, in grid steps.
        variances: of the fresh noise of each step, in squared grid steps.
        mu: all messages are as private as one Gaussian mechanism with means mu deviations apart.
        epsilon, delta: what mu was planned for.
    """

    factorisation: Factorisation
    bits: int
    bound: int
    variances: tuple[Fraction, ...]
    mu: float
    epsilon: float
    delta: float

    def draw(self, earlier: list[Integers], length: int, source: NoiseSource) -> Integers:
        """Return the next step's noise, from fresh noise and all earlier steps' noise, left unchanged."""
        step, matrix = len(earlier), self.factorisation.matrix
        drawn = discrete_gaussian(source, length, self.variances[step])
        first = max(0, step + 1 - self.factorisation.bands)
        if first == step:
            return drawn
        shared = (matrix[step, first:step] / matrix[step, step]) @ np.array(earlier[first:], np.float64)
        rounded: Integers = np.rint(shared).astype(np.int64)
        return np.asarray(drawn - rounded)

    @property
    def reach(self) -> float:
        """Upper bound on the deviation, in grid steps, of a coordinate of noise summed over steps."""
        summed = np.cumsum(self.factorisation.inverse, axis=0)
        largest = math.sqrt(float((summed**2).sum(axis=1).max()))
        scale = math.sqrt(float(self.variances[0])) * float(self.factorisation.matrix[0, 0])
        return 2 * scale * largest

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """Privacy guarantee for one record of the party, over all its messages together."""
        return record_guarantee(
            self.epsilon,
            self.delta,
            self.bound,
            mechanism=f"discrete Gaussian noise, correlated over {len(self.variances)} steps",
            assumption=_ASSUMPTION,
            proof=f"{self.mu:.6g}-Gaussian DP of all messages: docs/proofs/factorisation.md",
        )

    def event(self) -> Event:
        """Return the release of all messages together as one event for a ledger."""
        # Not at the top: the accountant loads scipy.
        from smpc_dp.privacy.accountant.events import Event, Gaussian, Pure

        claim = self.guarantee
        known = (Gaussian(self.mu, CLOSENESS), Pure(self.epsilon, self.delta))
        return Event(claim.mechanism, claim.relation, known, unit="record")


def fine_bits(reaches: Floats) -> int:
    """Return the bits of a grid so fine that each of these contributions spans at least 2^18 steps."""
    return grid_bits(reaches, _FINE)


@checks_numbers
def plan_correlated_noise(
    epsilon: float, delta: float, factorisation: Factorisation, reach: float, bits: int, length: int
) -> CorrelatedNoise:
    """Return a party's correlated noise for (epsilon, delta)-DP of all its messages, or ConfigError.

    Args:
        epsilon, delta: of all messages, for one record.
        reach: the l2 norm of a record's contribution to one step, in the caller's unit.
        bits: of the grid; see `fine_bits`. length: coordinates of a message.

    Raises:
        ConfigError: an argument is out of range, or the noise is too large for the grid.
    """
    bound, mu = math.ceil(Fraction(reach) * Fraction(2) ** bits), planned_mu(epsilon, delta)
    own = np.diag(factorisation.matrix)
    # |C D| for D of one record, and the rounding of the earlier noise: 2 steps in each coordinate.
    moved = 2 * bound * sensitivity(factorisation.matrix, factorisation.batches)
    moved += 2 * math.sqrt(length) * float(np.linalg.norm(own))
    if not mu > 0 or moved / mu / own.min() > _MOST_DEVIATION:
        steps = len(own)
        reason = f"{epsilon:g} for {steps} steps needs too much noise"
        raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
    variances = tuple(Fraction(math.ceil((moved / mu / one) ** 2 * (1 + 1e-9)) + SMOOTHING) for one in own)
    return CorrelatedNoise(factorisation, bits, bound, variances, mu, epsilon, delta)
