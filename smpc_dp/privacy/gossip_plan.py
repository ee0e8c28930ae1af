"""Plan Gaussian noise for gradient descent by gossip: what all messages cost, and what single parties see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.factorisation import check_accountable, factorise, gossip_gram, independent
from smpc_dp.privacy.gaussian import gaussian_epsilon, gaussian_mu
from smpc_dp.privacy.network_views import Contributions, gossip_view

if TYPE_CHECKING:
    from scipy import sparse

# Distances from the observer that a plan has.
_DISTANCES = 6


class SeenBy(msgspec.Struct, frozen=True):
    """Privacy of one record towards observers at a distance in the network: the party, mu and epsilon."""

    distance: int
    party: int
    mu: float
    epsilon: float


class GossipPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of noise in gossip learning over T steps, for a record that moves an update by 1.

    Attributes:
        mu: of Gaussian DP, all messages together; `epsilon`, `delta` are those that count.
        even: the standard deviation of independent noise, the same at each step.
        fresh: the standard deviations of the fresh part of correlated noise, shape (T,).
        even_error, error: the variance of the noise in a model, per coordinate, mean over steps and parties.
        seen: of independent noise, towards single parties; not charged.
    """

    parties: int
    steps: int
    batches: int
    epsilon: float
    delta: float
    mu: float
    even: float
    fresh: tuple[float, ...]
    even_error: float
    error: float
    contributions: str
    seen: tuple[SeenBy, ...] = ()
    relation: str = "substitution of one record, in the batch that it is in"


@checks_numbers
def plan_gossip(
    weights: sparse.csr_array,
    steps: int,
    batches: int,
    epsilon: float,
    delta: float,
    *,
    retained: float = 1.0,
    observers: tuple[int, ...] = (),
    contributions: Contributions = "convex",
    noise: str = "gaussian",
    routes: str = "known",
) -> GossipPlan:
    """Plan the noise of gossip learning for a privacy budget; ConfigError for settings without a proof.

    Args:
        weights: W, symmetric. retained: the public factor of the own model in an update.
        observers: parties who pool what they see, for `seen`: the first party at each distance.
        contributions: see `network_views.View`.
    """
    check_accountable(noise, routes)
    checks = ArgumentChecks()
    checks.require_budget(epsilon, delta)
    for observer in observers:
        checks.require_integer("observer", observer, 0, weights.shape[0] - 1)
    checks.raise_issues()
    chosen, mu = factorise(weights, steps, batches, retained), gaussian_mu(epsilon, delta)
    same, gram = independent(steps, batches), gossip_gram(weights, steps, retained)
    deviation = 1 / mu
    even = deviation / float(same.matrix[0, 0])
    seen = []
    if observers:
        from scipy.sparse.csgraph import shortest_path

        away = np.min(np.atleast_2d(shortest_path(weights > 0, unweighted=True, indices=observers)), axis=0)
        view = gossip_view(weights, steps, observers, retained)
        for distance in range(1, _DISTANCES + 1):
            for party in np.flatnonzero(away == distance)[:1].tolist():
                least = min(mu, view.sensitivity(contributions, party, batches) / even)
                seen.append(SeenBy(distance, party, least, gaussian_epsilon(delta, least)))
    return GossipPlan(
        parties=weights.shape[0],
        steps=steps,
        batches=batches,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        even=even,
        fresh=tuple((deviation / np.diag(chosen.matrix)).tolist()),
        even_error=same.mean_square(gram) * deviation**2,
        error=chosen.mean_square(gram) * deviation**2,
        contributions=contributions,
        seen=tuple(seen),
    )
