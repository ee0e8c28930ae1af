"""Personalised models over a known graph by decentralised coordinate descent [Bellet 2021, Algorithm 2.2].

Minimises M(Theta) = sum_u d_u c_u F_u(theta_u) + lambda_1/2 sum_{u<v} w_uv |theta_u - theta_v|^2, where F_u
is the mean loss of party u's records plus ridge_u |theta|^2. At each tick one party updates its model by
(2.3), or with noise by (2.9), and sends the change to its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Parties, PeerExchange, Rows, check_rows
from smpc_dp.capabilities.learn.schedule import by_level
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.record_gradients import Integers, RecordNoise
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float64]
Watch = Callable[[int, Rows], None]


class Gradients(Protocol):
    """Interface of the local parties' data: gradients of their records' losses at given models."""

    def mean(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return the gradient of each party's mean loss at its model, without the ridge penalty."""
        ...

    def contributions(self, models: Rows, rows: NDArray[np.intp], factor: Floats, bits: int) -> Integers:
        """Return each party's sum of clipped gradients times a factor, as integers on a grid."""
        ...


@dataclass(frozen=True, eq=False)
class PersonalizedObjective:
    """Objective that all parties' models minimise: own losses, and distances between neighbours.

    Attributes:
        weights: w, shape (n, n), symmetric, not negative, without a diagonal; each party has a neighbour.
        sizes: m_u, shape (n,): records of each party; public.
        coupling: lambda_1 > 0: how much models of neighbours are pulled together.
        ridges: shape (n,), of the penalties ridge_u |theta_u|^2.
        smoothness: of one record's loss: the Lipschitz constant of its gradient, from public numbers alone.
    """

    weights: sparse.csr_array
    sizes: NDArray[np.intp]
    coupling: float
    ridges: Floats
    smoothness: float

    def __post_init__(self) -> None:
        issues = []
        n = len(self.sizes)
        if self.weights.shape != (n, n):
            reason = f"shape must be ({n}, {n}), is {self.weights.shape}"
            raise ConfigError.at("weights", reason, ConfigCheck.SHAPE)
        fault = _fault_of(self.weights)
        if fault is not None:
            issues.append(fault)
        elif not self.degrees.all():
            reason = f"party {int(self.degrees.argmin())} has no neighbour"
            issues.append(ConfigIssue("weights", reason, ConfigCheck.MISSING))
        if not (self.sizes >= 0).all() or not self.sizes.any():
            issues.append(ConfigIssue("sizes", "must be 0 or more, and not all 0", ConfigCheck.RANGE))
        if not 0 < self.coupling < np.inf:
            issues.append(ConfigIssue("coupling", f"must be above 0, is {self.coupling}", ConfigCheck.RANGE))
        if not (self.ridges >= 0).all() or not self.smoothness >= 0:
            issues.append(ConfigIssue("ridges", "and smoothness must not be negative", ConfigCheck.RANGE))
        if issues:
            raise ConfigError(issues)

    @cached_property
    def degrees(self) -> Floats:
        """The sum d_u of the edge weights of each party in the graph, shape (n,)."""
        return np.asarray(self.weights.sum(axis=1)).ravel()

    @cached_property
    def confidence(self) -> Floats:
        """Weights c_u of parties by their numbers of records, at most 1, shape (n,)."""
        return np.asarray(np.maximum(self.sizes, 1) / self.sizes.max(), dtype=np.float64)

    @cached_property
    def alpha(self) -> Floats:
        """Step sizes alpha_u = lambda_1 / (lambda_1 + c_u L_u) of the parties, shape (n,)."""
        return self.coupling / (self.coupling + self.confidence * (self.smoothness + 2 * self.ridges))

    @cached_property
    def factors(self) -> Floats:
        """Factors alpha_u c_u / lambda_1 by which updates multiply gradients of F_u."""
        return self.alpha * self.confidence / self.coupling

    @cached_property
    def reaches(self) -> Floats:
        """Factors by which each party's update multiplies the gradient of one record, shape (n,)."""
        return self.factors / np.maximum(self.sizes, 1)

    @property
    def contraction(self) -> float:
        """Factor C of Proposition 2.1: a tick multiplies the expected excess by C at most."""
        scaled = self.degrees * self.confidence
        return float(1 - (scaled * 2 * self.ridges).min() / (len(self.sizes) * self.blocks.max()))

    @cached_property
    def blocks(self) -> Floats:
        """Lipschitz constants L_u of the objective's gradient in one party's model, shape (n,)."""
        return self.degrees * (self.coupling + self.confidence * (self.smoothness + 2 * self.ridges))


def _fault_of(weights: sparse.csr_array) -> ConfigIssue | None:
    """Return the first reason why weights are not those of an undirected graph, or None."""
    entries, apart = weights.tocoo(), (weights - weights.T).tocoo()
    looped = (entries.row == entries.col) & (entries.data != 0)
    for matrix, wrong, reason, check in (
        # Written so that NaN fails.
        (entries, ~((entries.data >= 0) & (entries.data < np.inf)), "not negative", ConfigCheck.RANGE),
        (entries, looped, "0 between a party and itself", ConfigCheck.CONFLICT),
        (apart, apart.data != 0, "the same both ways", ConfigCheck.CONFLICT),
    ):
        if wrong.any():
            first, second = (int(ends[wrong.argmax()]) for ends in (matrix.row, matrix.col))
            entry = f"is {weights[first, second]:g} between parties {first} and {second}"
            return ConfigIssue("weights", f"must be finite and {reason}, {entry}", check)
    return None


def independent_ticks(wakes: NDArray[np.intp], weights: sparse.csr_array) -> list[NDArray[np.intp]]:
    """Return tick numbers in batches that can run in parallel, as if one by one in the given order.

    No party of a run is in it twice or beside a neighbour; each party and its neighbours tick in order.
    """
    near = np.split(weights.indices, weights.indptr[1:-1])
    neighbours = [[party, *of.tolist()] for party, of in enumerate(near)]
    level, last = np.empty(len(wakes), dtype=np.intp), [0] * len(neighbours)
    for tick, party in enumerate(wakes.tolist()):
        level[tick] = last[party] = 1 + max([last[one] for one in neighbours[party]])
    return by_level(level)


async def descend(
    exchange: PeerExchange,
    objective: PersonalizedObjective,
    gradients: Gradients,
    length: int,
    wakes: NDArray[np.intp],
    bits: int,
    *,
    start: Rows | None = None,
    noise: Sequence[RecordNoise] | None = None,
    source: NoiseSource | None = None,
    watch: Watch | None = None,
) -> Rows:
    """Run coordinate descent (Algorithm 2.2), with `noise` by (2.9); return the local parties' models.

    Args:
        exchange: how changes travel; each tick's party sends one vector to all its neighbours.
        length: numbers of a model.
        wakes: shape (T,): the party of each tick.
        bits: models are on the grid of steps 2^-bits; with noise that of the noise.
        start: shape (rows, length), which each party first sends to its neighbours; None: zeros, and nothing
            is sent. With noise it must have that of each party's release 0: see `warm_start`.
        noise: of each of the n parties; None: nothing is protected.
        source: `NoiseSource.system()` in a real run; needed with noise.
        watch: called with the number of runs of ticks done and the models here after each; for studies.

    Raises:
        ConfigError: an argument is refused, or a model is no longer finite.
    """
    # Not at the top: what only reads a session file needs no scipy.
    from scipy import sparse

    n, here = exchange.parties, exchange.here
    row_of = np.full(n, -1)
    row_of[here] = np.arange(len(here))
    first_models = np.zeros((len(here), length)) if start is None else check_rows(exchange, start)
    own: Integers = np.rint(np.ldexp(first_models, bits)).astype(np.int64)
    if (noise is None) != (source is None):
        raise ConfigError.at("source", "is needed with noise, and with noise alone", ConfigCheck.MISSING)
    columns = objective.weights.tocsc()
    degrees, releases = objective.degrees[here][:, None], np.full(n, 0 if start is None else 1)
    # sum_v w_uv theta_v of each party here.
    around = np.zeros((len(here), length))
    if start is not None:
        around += await exchange.mix(np.ldexp(own.astype(np.float64), -bits), objective.weights)
    for done, ticks in enumerate(independent_ticks(wakes, objective.weights), 1):
        parties = wakes[ticks]
        rows, change = row_of[parties], np.zeros_like(own)
        rows = rows[rows >= 0]
        if len(rows):
            models = np.ldexp(own[rows].astype(np.float64), -bits)
            moved = pulled_models(objective, models, around[rows] / degrees[rows], here[rows])
            if noise is None or source is None:
                moved -= objective.factors[here[rows]][:, None] * gradients.mean(models, rows)
                moved = np.rint(np.ldexp(moved, bits))
            else:
                taken = gradients.contributions(models, rows, objective.reaches[here[rows]], bits)
                moved = np.rint(np.ldexp(moved, bits)) - taken
                for index, party in enumerate(here[rows]):
                    moved[index] -= noise[party].draw(source, own.shape[1], int(releases[party]))
            change[rows] = integer_models(moved, int(ticks[0])) - own[rows]
        releases[parties] += 1
        sent = columns[:, parties]
        spread = sparse.csr_array((sent.data, (sent.indices, parties[_columns(sent)])), shape=(n, n))
        around += await exchange.mix(np.ldexp(change.astype(np.float64), -bits), spread)
        own += change
        if watch is not None:
            watch(done, np.ldexp(own.astype(np.float64), -bits))
    return np.ldexp(own.astype(np.float64), -bits)


def pulled_models(objective: PersonalizedObjective, models: Rows, neighbours: Rows, parties: Parties) -> Rows:
    """Return the part of the model update (2.3) that depends on no record: own and neighbours' models.

    Args:
        neighbours: weighted means of the neighbours' models.
        parties: whose rows they are.
    """
    alpha, factor = objective.alpha[parties], objective.factors[parties]
    pulled = (1 - alpha)[:, None] * models + alpha[:, None] * neighbours
    return np.asarray(pulled - (factor * 2 * objective.ridges[parties])[:, None] * models)


def integer_models(moved: Rows, tick: int) -> Integers:
    """Return models in grid steps as integers; raise ConfigError if a model has diverged."""
    if not (np.abs(moved) < 2.0**52).all():
        raise ConfigError.at("coupling", f"the descent diverges at tick {tick}", ConfigCheck.INFEASIBLE)
    result: Integers = moved.astype(np.int64)
    return result


def _columns(matrix: sparse.csc_array) -> NDArray[np.intp]:
    """Return the column number of each stored entry of a sparse matrix in compressed columns."""
    return np.repeat(np.arange(matrix.shape[1]), np.diff(matrix.indptr))
