"""What single parties see of gossip and of walks on known routes, and the Gaussian mechanism that it equals.

The messages are m_t = F(W_t m_(t-1)) + x_t, where x_t are contributions with noise. Two accounts, for two
kinds of contributions; both assume known W_t. Proofs and a counterexample to what is neither:
docs/proofs/factorisation.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.factorisation import Factorisation

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Contributions = Literal["convex", "fixed"]

# Exchanges of a search for the least shifts; those without progress; what counts as below 0.
_PIVOTS, _PATIENCE, _TINY = 100, 20, 1e-8

MAX_SIZE = 5_000
"""Most parties times steps of a view."""


@dataclass(frozen=True, eq=False)
class View:
    """What colluding observers see of noisy messages in decentralised learning, to compute their mu.

    Attributes:
        mixing: T - 1 matrices of shape (n, n), not negative, with rows that add up to 1 at most.
        active: shape (T, n): who adds noise at a step; only these contribute.
        observed: shape (T, n): whose message of a step the observers see, of active parties.
        colluding: shape (n,): the observers, who know their own noise and contributions.
        retained: the factor of the own model in an update.
    """

    mixing: Sequence[sparse.csr_array]
    active: Flags
    observed: Flags
    colluding: Flags
    retained: float = 1.0

    def __post_init__(self) -> None:
        if self.active.size > MAX_SIZE:
            reason = f"{self.active.shape[1]} parties times {len(self.active)} steps, at most {MAX_SIZE:,}"
            raise ConfigError.at("steps", reason, ConfigCheck.TOO_LARGE)

    @cached_property
    def _responses(self) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
        """Observed messages as a matrix over independent noises, with step and party of each column."""
        steps, parties = self.active.shape
        times, who = np.nonzero(self.active & ~self.colluding)
        rows, state = [], np.zeros((parties, len(times)))
        for step in range(steps):
            if step:
                state = self.retained * (self.mixing[step - 1] @ state)
            own = np.flatnonzero(times == step)
            state[who[own], own] += 1
            rows.append(state[self.observed[step] & ~self.colluding])
        return np.concatenate(rows), times, who

    def fixed_gram(self, party: int, factorisation: Factorisation | None = None) -> tuple[Floats, Floats]:
        """Return (Gram matrix that tells a party's contributions apart, their steps), or ConfigError.

        Contributions that differ by D tell the observers as much as a Gaussian mechanism of squared distance
        tr(D^T H D), for noise C^-1 Z of all parties; None: C = I. For contributions that do not depend on
        messages which the observers do not see.
        """
        from scipy.linalg import cho_factor, cho_solve

        response, times, who = self._responses
        noise = response
        if factorisation is not None:
            if not self.active.all():
                reason = "correlated noise is of parties that are active at every step"
                raise ConfigError.at("active", reason, ConfigCheck.UNSUPPORTED)
            noise = np.empty_like(response)
            for other in np.unique(who):
                noise[:, who == other] = response[:, who == other] @ factorisation.inverse
        own = response[:, who == party]
        # Each observed message has fresh noise of its own, so that the covariance is invertible.
        gram = own.T @ cho_solve(cho_factor(noise @ noise.T), own) if len(response) else own.T @ own
        return np.asarray(gram), times[who == party].astype(np.float64)

    def fixed_sensitivity(self, party: int, batches: int = 1) -> float:
        """Return a bound on mu of one record, for moves of 1, unit noise and fixed contributions.

        An upper bound, for `fixed_gram`. A record contributes at every `batches`-th step.
        """
        gram, times = self.fixed_gram(party)
        most = 0.0
        for first in range(batches):
            part = gram[np.ix_(times % batches == first, times % batches == first)]
            if len(part):
                spread = len(part) * float(np.linalg.eigvalsh(part)[-1])
                most = max(most, min(float(np.abs(part).sum()), spread))
        return math.sqrt(most) * (1 + 1e-9)

    def convex_sensitivity(self, party: int, batches: int = 1) -> float:
        """Return a bound on mu of one record, for moves of 1, unit noise, convex steps; infinite if none.

        For gradient steps that bring no two models further apart (convex losses, whose smoothness s and the
        step size obey rate s <= 2 retained, gradients that are not clipped), which may depend on all
        messages. An upper bound.
        """
        return max(self._shifted(party, first, batches) for first in range(batches))

    @cached_property
    def _moves(self) -> sparse.csr_array:
        """Sparse matrix of how distances of models at a step shift those at later steps, (T n, T n)."""
        from scipy import sparse

        steps, parties = self.active.shape
        later = [sparse.coo_array(matrix) for matrix in self.mixing]
        rows = np.concatenate([np.arange(steps * parties), *_offset([one.row for one in later], parties, 1)])
        columns = np.concatenate(
            [np.arange(steps * parties), *_offset([one.col for one in later], parties, 0)]
        )
        values = np.concatenate([np.ones(steps * parties), *(-self.retained * one.data for one in later)])
        return sparse.csr_array((values, (rows, columns)), shape=(steps * parties, steps * parties))

    @cached_property
    def _hidden(self) -> Flags:
        """Mask of messages that no observer sees, where models may differ, shape (T n,)."""
        return np.asarray(self.active & ~self.observed & ~self.colluding).ravel()

    @cached_property
    def _hidden_gram(self) -> sparse.csr_array:
        """Gram matrix of the shifts at unobserved messages, for the choice of distances."""
        moves = self._moves[:, self._hidden]
        return (moves.T @ moves).tocsr()

    def _shifted(self, party: int, first: int, batches: int) -> float:
        """Return the norm of noise shifts that hide a record used from step `first`; infinite if none."""
        steps, parties = self.active.shape
        moved = np.zeros((steps, parties))
        moved[first::batches, party] = self.active[first::batches, party]
        distances = np.zeros(steps * parties)
        if self._hidden.any():
            pulled = (moved.ravel() @ self._moves)[self._hidden]
            distances[self._hidden] = least_squares_above_zero(self._hidden_gram, pulled)
        shift = np.maximum(moved.ravel() - self._moves @ distances, 0.0).reshape(steps, parties)
        if (shift[~self.active] > 0).any() or (shift[:, self.colluding] > 0).any():
            # Nobody's noise hides it: no account.
            return math.inf
        # Any distances prove the bound; the search only makes it small.
        return math.sqrt(float((shift**2).sum())) * (1 + 1e-9)

    def sensitivity(self, contributions: Contributions, party: int, batches: int = 1) -> float:
        """Return a bound on mu of one record towards the observers, by the analysis of its contributions."""
        if contributions == "convex":
            return self.convex_sensitivity(party, batches)
        return self.fixed_sensitivity(party, batches)


def _offset(numbers: Sequence[NDArray[np.intp]], parties: int, later: int) -> list[NDArray[np.intp]]:
    """Return party numbers of each step as indices into arrays over steps and parties, from step `later`."""
    return [one.astype(np.intp) + (step + later) * parties for step, one in enumerate(numbers)]


def least_squares_above_zero(gram: sparse.csr_array, pulled: Floats) -> Floats:
    """Return x >= 0 that minimises x' G x/2 - p' x for sparse positive definite G, or comes near that.

    By block principal pivoting [Portugal, Judice and Vicente 1994]; after `_PIVOTS` exchanges what there is.
    """
    from scipy.sparse.linalg import splu

    free, fewest, patience = np.ones(len(pulled), dtype=bool), len(pulled) + 1, _PATIENCE
    result = np.zeros(len(pulled))
    for _ in range(_PIVOTS):
        result[:] = 0
        if free.any():
            result[free] = splu(gram[free][:, free].tocsc()).solve(pulled[free])
        slope = gram @ result - pulled
        wrong = np.flatnonzero(np.where(free, result, slope) < -_TINY)
        if not len(wrong):
            break
        if len(wrong) < fewest:
            fewest, patience = len(wrong), _PATIENCE
        else:
            patience -= 1
        # Exchanging all is quick; one at a time comes to an end.
        exchanged = wrong if patience > 0 else wrong[-1:]
        free[exchanged] = ~free[exchanged]
    return np.maximum(result, 0.0)


def gossip_view(
    weights: sparse.csr_array, steps: int, observers: Sequence[int], retained: float = 1.0
) -> View:
    """Return what colluding observers see of gossip learning: all messages of their neighbours."""
    parties = weights.shape[0]
    colluding = np.zeros(parties, dtype=bool)
    colluding[list(observers)] = True
    seen = np.asarray(weights[list(observers)].sum(axis=0)).ravel() > 0
    active = np.ones((steps, parties), dtype=bool)
    observed = np.broadcast_to(seen & ~colluding, active.shape)
    return View([weights] * (steps - 1), active, observed, colluding, retained)


def walk_view(route: Sequence[int], parties: int, observers: Sequence[int], retained: float = 1.0) -> View:
    """Return what colluding observers see of a token on a known route: tokens they get, and the last."""
    from scipy import sparse

    holders, steps = np.array(route, dtype=np.intp), len(route)
    colluding = np.zeros(parties, dtype=bool)
    colluding[list(observers)] = True
    active = np.zeros((steps, parties), dtype=bool)
    active[np.arange(steps), holders] = True
    seen = np.append(colluding[holders[1:]], True)
    mixing = [
        sparse.csr_array(([1.0], ([following], [holder])), shape=(parties, parties))
        for holder, following in pairwise(route)
    ]
    return View(mixing, active, active & seen[:, None] & ~colluding, colluding, retained)
