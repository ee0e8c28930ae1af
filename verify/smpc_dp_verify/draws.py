"""How many others each party of a drawn graph draws [protocols/gopa/verifiable.md]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

PART, SPARE, REFUSAL = 1e-3, 4, 2.0**-40
# ln of a probability of which no better bound is needed.
NEGLIGIBLE = -150.0


@dataclass(frozen=True)
class Draws:
    """Plan of a random graph: neighbours that a party draws, may lose, and is drawn by; failure probability.

    `disconnected` is the part of delta.
    """

    degree: int
    losses: int
    drawn_by: int
    disconnected: float


@cache
def plan_draws(parties: int, corrupt: int, lost: int, delta: float) -> Draws | None:
    """Return the plan of a session's random graph; None if all are neighbours; `corrupt` is at least 1."""
    most = (parties - 1) // 2

    def fits(degree: int, losses: int) -> bool:
        return disconnected(parties, corrupt, degree, losses) <= PART * delta

    def fits_planned(degree: int) -> bool:
        return fits(degree, lost_draws(parties, lost, degree) + SPARE)

    low, high = 0, 1
    while high < most and not fits_planned(high):
        low, high = high, min(2 * high, most)
    if not fits_planned(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits_planned(middle) else (middle, high)
    losses = lost_draws(parties, lost, high) + SPARE
    while fits(high, losses + 1):
        losses += 1
    drawn_by = min(drawn_at_most(parties, high) + corrupt, parties - 1)
    return Draws(high, losses, drawn_by, disconnected(parties, corrupt, high, losses))


def disconnected(parties: int, corrupt: int, degree: int, losses: int) -> float:
    """Return an upper bound on the probability that the graph of honest parties is not connected."""
    honest = parties - corrupt
    if losses >= degree or honest < 2:
        return 1.0
    share = losses / degree
    # ln of C(N, s) and of e_s, for each size s of a set.
    ways = [log_choose(honest, s) for s in range(honest + 1)]
    rare = [-s * degree * _divergence(share, (honest - s) / (parties - 1)) for s in range(honest + 1)]
    result = 0.0
    for s in range(1, honest // 2 + 1):
        one = ways[s] + rare[s]
        if s >= share * (parties - 1) - 1 and one > NEGLIGIBLE:
            # C(N - s, t) e_t of all other sides.
            others = [log_choose(honest - s, t) + rare[t] for t in range(s, honest - s + 1)]
            top = max(others)
            one += min(0.0, top + math.log(sum(math.exp(other - top) for other in others)))
        result += math.exp(min(one, 0.0))
    return min(result, 1.0)


def _divergence(share: float, chance: float) -> float:
    """Return the Kullback-Leibler divergence KL(share || chance) of two coins; 0 unless chance > share."""
    if chance <= share:
        return 0.0
    if chance >= 1:
        return math.inf if share < 1 else 0.0
    return (share * math.log(share / chance) if share else 0.0) + (1 - share) * math.log(
        (1 - share) / (1 - chance)
    )


def log_choose(n: int, k: int) -> float:
    """Return the natural logarithm of the binomial coefficient C(n, k)."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def lost_draws(parties: int, lost: int, degree: int) -> int:
    """Return the most of a party's draws that are lost with `lost` parties, but with probability 2^-40."""
    # P[Hyp(n - 1, D, k) > x] <= 2^-40 / n
    others, tail = parties - 1, 0.0
    for hits in range(min(lost, degree), 0, -1):
        if degree - hits <= others - lost:
            ways = log_choose(lost, hits) + log_choose(others - lost, degree - hits)
            tail += math.exp(ways - log_choose(others, degree))
        if tail > REFUSAL / parties:
            return hits
    return 0


def drawn_at_most(parties: int, degree: int) -> int:
    """Return the most honest parties that draw any one party, but with probability 2^-40."""
    others = parties - 1
    chance = degree / others
    for m in range(math.ceil(degree), others):
        share = (m + 1) / others
        rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
        if others * (share * math.log(share / chance) + rest) >= math.log(parties / REFUSAL):
            return m
    return others
