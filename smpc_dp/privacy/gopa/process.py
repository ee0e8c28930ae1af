"""The privacy of drawing a random k-out graph and running GOPA on it, corrupt parties fixed before the draw.

Only the party whose input differs counts, and the graph does not depend on the inputs, so

    delta <= E[ delta_gauss(theta bound of that party's degree) ] + P[ the graph is not well connected ].

"Well connected" is a bound phi on the conductance, which gives the spectral gap by Cheeger's inequality, and
least degrees of the party's neighbours and of all parties. Every probability is bounded by a formula; nothing
is sampled. Proofs in docs/proofs/gopa-plan.md.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from smpc_dp.privacy.gopa.graphs import Floats
from smpc_dp.privacy.gopa.lattice import Smoothing
from smpc_dp.privacy.gopa.own_draws import SLACK, log_choose
from smpc_dp.privacy.search import bisect

# Exponents that Chernoff's bound is tried with; each is valid, a finer grid is only a little tighter.
_EXPONENTS = np.concatenate([np.linspace(0.02, 1.5, 38), np.geomspace(1.6, 40.0, 22)])
# The tail may take these parts of the delta that is asked for; the best result is kept.
BUDGETS = (1e-1, 1e-2, 1e-3, 1e-5)


class Connected(msgspec.Struct, frozen=True, kw_only=True):
    """Proven conductance, gap and degrees of a random graph of honest parties; failure probability."""

    honest: int
    removed: int
    phi: float
    """Conductance, at least."""
    gap: float
    """Of the spectrum of the normalised Laplacian, at least, by Cheeger's inequality."""
    neighbour_degree: int
    """Least degree among the neighbours of the party, before the deletions."""
    least_degree: int
    """Least degree of all honest parties, before the deletions."""
    failure: float
    """The probability that a random graph is not so, at most."""

    def theta(self, degrees: Floats, sigma_eta_squared: float, sigma_delta: float) -> Floats:
        """Return upper bounds on theta (mu^2 for inputs at distance 1) for parties of these degrees."""
        left = self.honest - self.removed
        value = 1 / (left * sigma_eta_squared) + self._entry(degrees) / sigma_delta**2
        return np.asarray(np.minimum(np.where(degrees > self.removed, value, np.inf), 1 / sigma_eta_squared))

    def _entry(self, degrees: Floats) -> Floats:
        """Return the pairwise part of the bounds on theta, times sigma_delta^2."""
        n, c = self.honest - self.removed, self.removed
        near, least = self.neighbour_degree - c, self.least_degree - c
        own = np.maximum(degrees - c, 1e-9)
        return np.asarray(1 / own + (1 / (own * near) + 1 / (n * least)) / self.gap)


class ProcessPrivacy(msgspec.Struct, frozen=True):
    """Proven privacy of GOPA as a whole: drawing a random k-out graph, and the run on the graph."""

    degrees: tuple[float, ...]
    """P[degree = d] for d = 0, 1, ..., the last for that degree or more; rounded up."""
    choices: tuple[Connected, ...]

    def delta(
        self, epsilon: float, *, diameter: float, sigma_eta: float, sigma_delta: float, smoothing: Smoothing
    ) -> tuple[float, Connected]:
        """Return the least delta at epsilon over all proven graph bounds, and the bounds that give it."""
        degrees = np.arange(len(self.degrees), dtype=np.float64)

        def of(choice: Connected) -> float:
            """Return delta of one choice."""
            theta = choice.theta(degrees, sigma_eta**2 - smoothing.s**2, sigma_delta)
            total = choice.failure
            for weight, value in zip(self.degrees, theta.tolist(), strict=True):
                if weight > 0:
                    total += weight * smoothing.delta(epsilon, diameter * math.sqrt(value) * (1 + 1e-12))
            return min(1.0, total * (1 + 1e-9))

        return min(((of(choice), choice) for choice in self.choices), key=lambda one: one[0])


def degree_probabilities(parties: int, honest: int, k: int) -> Floats:
    """Return bounds on the chances that an honest party has 0, 1, ... honest neighbours; the last: or more.

    Rounded up. Its own picks that are honest are hypergeometric; each other honest party picks it with
    probability k/(n-1).
    """
    others, friends = parties - 1, honest - 1
    q = k / others
    mean = k * friends / others * (2 - q)
    cap = min(friends, math.ceil(mean + 8 * math.sqrt(mean) + 8))
    own = np.arange(max(0, k - (others - friends)), min(k, friends) + 1, dtype=np.int64)
    log_own = log_choose(friends, own) + log_choose(others - friends, k - own) - log_choose(others, k)
    total = np.zeros(cap + 1)
    for x, log_x in zip(own.tolist(), log_own.tolist(), strict=True):
        if x > cap:
            continue
        y = np.arange(0, min(cap - x, friends - x) + 1, dtype=np.int64)
        if q < 1:
            log_y = log_choose(friends - x, y) + y * math.log(q) + (friends - x - y) * math.log1p(-q)
        else:
            log_y = np.where(y == friends - x, 0.0, -np.inf)
        total[x + y] += np.exp(log_x + log_y + SLACK)
    below = float(total[:cap].sum())
    total[cap] = min(1.0, max(total[cap], 1 - below * (1 - 2 * SLACK)) + SLACK)
    return total


def log_bad_cut(parties: int, honest: int, k: int, phi: float, removed: int) -> float:
    """Return ln of a bound on the probability that the honest graph has conductance below phi.

    Sets of at most half of the honest parties. Also after any `removed` deletions: e(S) are inner and x(S)
    outer edges of S, and the bad event is (1 - phi) (x(S) - removed |S|) <= 2 phi e(S).
    """
    s = np.arange(1, honest // 2 + 1, dtype=np.float64)[:, None]
    t, others, q = honest - s, parties - 1, k / (parties - 1)
    beta = _EXPONENTS[None, :]
    x = -np.expm1(-beta)
    inner = np.exp(np.minimum(2 * phi / (1 - phi) * beta, 600.0))
    mean = ((s - 1) * inner + t * np.exp(-beta + q * x) + (parties - honest)) / others
    log_psi = removed * beta - q * x * t + k * np.log(mean)
    least = s[:, 0] * (log_psi.min(axis=1) + 1e-12)
    terms = log_choose(honest, s[:, 0]) + least + SLACK
    return float(np.logaddexp.reduce(terms))


def cheeger_gap(phi: float) -> float:
    """Return a lower bound on the spectral gap of a graph of conductance phi [Chung 1997, Theorem 2.3]."""
    return 1 - math.sqrt(1 - phi * phi)


def analyse_process(
    parties: int,
    honest: int,
    k: int,
    *,
    removed: int,
    delta: float,
    budgets: tuple[float, ...] = BUDGETS,
) -> ProcessPrivacy | str:
    """Return the proven privacy of GOPA on random k-out graphs, or words on why there is no proof.

    Args:
        parties, honest: n and the honest parties among them, fixed before anybody draws.
        k: others that each party draws.
        removed: honest parties whom somebody may choose, knowing the graph, to be left out.
        delta: how much may be lost to bad graphs is measured by this.
        budgets: parts of delta that each of three tails may take; each gives a choice.
    """
    if honest - removed < 2:
        return "fewer than two honest parties stay"
    degrees = degree_probabilities(parties, honest, k)
    below = np.concatenate([[0.0], np.cumsum(degrees)])[: len(degrees)]  # P[degree < d]
    counts = np.arange(len(degrees))
    choices = []
    for part in budgets:
        budget = part * delta
        # Neighbours of a party of degree below d: in the mean E[degree, if below d] <= (d - 1) P[degree < d].
        near_tail, least_tail = np.maximum(counts - 1, 0) * below, honest * below
        near = int(counts[near_tail <= budget].max())
        least = int(counts[least_tail <= budget].max())
        if least <= removed or near <= removed:
            continue
        phi = _largest_phi(parties, honest, k, removed, math.log(budget))
        if phi is None:
            continue
        cut = math.exp(log_bad_cut(parties, honest, k, phi, removed))
        choices.append(
            Connected(
                honest=honest,
                removed=removed,
                phi=phi,
                gap=cheeger_gap(phi),
                neighbour_degree=near,
                least_degree=least,
                failure=float(near_tail[near] + least_tail[least] + cut) * (1 + 1e-6),
            )
        )
    if not choices:
        return (
            f"not proven for k = {k} with {honest} of {parties} parties honest"
            + (f" and {removed} chosen to drop out" if removed else "")
            + ": the bound on badly connected graphs is not below delta; draw more neighbours"
        )
    return ProcessPrivacy(tuple(map(float, degrees)), tuple(choices))


def _largest_phi(parties: int, honest: int, k: int, removed: int, log_budget: float) -> float | None:
    """Return about the largest conductance, up to 0.5, proven but for the budgeted chance; None if none."""

    def rare(phi: float) -> bool:
        """Return whether sets of conductance below phi are rare enough."""
        return log_bad_cut(parties, honest, k, phi, removed) <= log_budget

    return bisect(rare, 0.01, 0.5, 9)[0] if rare(0.01) else None
