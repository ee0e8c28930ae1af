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

MAX_SIZE = 5_000
"""Most parties times steps of a view."""


@dataclass(frozen=True, eq=False)
class View:
    """What observers see of T steps of n parties.

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
        """Return the observed messages as linear functions of noise, and step and party of each column."""
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
        """Return H, shape (k, k), of the k steps of a party's contributions, and these steps.

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

    def fixed_sensitivity(
        self, party: int, batches: int = 1, factorisation: Factorisation | None = None
    ) -> float:
        """Return the mu of one record of a party that moves its contributions by 1 at unit noise.

        An upper bound, for `fixed_gram`. A record contributes at every `batches`-th step.
        """
        gram, times = self.fixed_gram(party, factorisation)
        most = 0.0
        for first in range(batches):
            part = gram[np.ix_(times % batches == first, times % batches == first)]
            if len(part):
                spread = len(part) * float(np.linalg.eigvalsh(part)[-1])
                most = max(most, min(float(np.abs(part).sum()), spread))
        return math.sqrt(most) * (1 + 1e-9)

    def convex_sensitivity(self, party: int, batches: int = 1) -> float:
        """Return the mu of one record of a party that moves its updates by 1 at unit, independent noise.

        For gradient steps that bring no two models further apart (convex losses, whose smoothness s and the
        step size obey rate s <= 2 retained, gradients that are not clipped), which may depend on all
        messages. An upper bound.
        """
        return max(self._shifted(party, first, batches) for first in range(batches))

    def _shifted(self, party: int, first: int, batches: int) -> float:
        """Return the least norm found of shifts that make all observed messages equal."""
        from scipy.optimize import minimize

        steps, parties = self.active.shape
        moved = np.zeros((steps, parties))
        moved[first::batches, party] = self.active[first::batches, party]
        # A distance that shifts may leave: of messages that nobody observes.
        hidden = self.active & ~self.observed & ~self.colluding
        steps_back = [matrix.T.tocsr() for matrix in self.mixing]

        def shifts(distances: Floats) -> Floats:
            needed = moved - distances
            for step in range(1, steps):
                needed[step] += self.retained * (self.mixing[step - 1] @ distances[step - 1])
            return np.maximum(needed, 0.0)

        def loss(vector: Floats) -> tuple[float, Floats]:
            distances = np.zeros((steps, parties))
            distances[hidden] = vector
            shift = shifts(distances)
            slope = -2 * shift
            for step in range(1, steps):
                slope[step - 1] += 2 * self.retained * (steps_back[step - 1] @ shift[step])
            return float((shift**2).sum()), slope[hidden]

        count = int(hidden.sum())
        distances = np.zeros((steps, parties))
        if count:
            options = {"maxiter": 2_000, "maxfun": 4_000, "ftol": 1e-10}
            solution = minimize(
                loss,
                np.zeros(count),
                jac=True,
                method="L-BFGS-B",
                bounds=[(0, None)] * count,
                options=options,
            )
            distances[hidden] = np.maximum(solution.x, 0.0)
        shift = shifts(distances)
        if (shift[~self.active] > 0).any() or (shift[:, self.colluding] > 0).any():
            # Nobody's noise hides it: no account.
            return math.inf
        # Any distances prove the bound; the search only makes it small.
        return math.sqrt(float((shift**2).sum())) * (1 + 1e-9)

    def sensitivity(self, contributions: Contributions, party: int, batches: int = 1) -> float:
        """Return the mu of one record at unit, independent noise, by the account for these contributions."""
        if contributions == "convex":
            return self.convex_sensitivity(party, batches)
        return self.fixed_sensitivity(party, batches)


def gossip_view(
    weights: sparse.csr_array, steps: int, observers: Sequence[int], retained: float = 1.0
) -> View:
    """Return the view of colluding observers in gossip: all messages of their neighbours."""
    parties = weights.shape[0]
    colluding = np.zeros(parties, dtype=bool)
    colluding[list(observers)] = True
    seen = np.asarray(weights[list(observers)].sum(axis=0)).ravel() > 0
    active = np.ones((steps, parties), dtype=bool)
    observed = np.broadcast_to(seen & ~colluding, active.shape)
    return View([weights] * (steps - 1), active, observed, colluding, retained)


def walk_view(route: Sequence[int], parties: int, observers: Sequence[int], retained: float = 1.0) -> View:
    """Return the view of colluding observers on a known route: the tokens that they get, and the last one."""
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
