"""Random graphs that keep the honest parties connected, however some of their draws are voided.

Each of n parties draws k of the others. An aggregator that passes draws and commitments on can void edges,
and parties drop out; but a party goes on only if k - `lost` of those that it drew take part and share an edge
with it that counts. So if honest parties S share no edge with the other honest ones that take part, T, at
most lost |S| draws of S lead to honest parties outside of S, and at most lost |T| of T to those outside of
T. There are such S and T with probability `failure` at most, whatever is voided and whoever drops out.
Proof: docs/proofs/verifiable-plan.md.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from scipy.special import gammaln

from smpc_dp.privacy.arguments import checks_numbers
from smpc_dp.privacy.gopa.graphs import Floats
from smpc_dp.privacy.gopa.own_draws import SLACK, lost_draws, most_drawn_by
from smpc_dp.privacy.search import first_integer

CONNECTED_PART = 1e-3
"""The part of delta that a graph that is not connected may have, where a degree is planned."""
SPARE = 4
"""Draws that corrupt parties may void, beyond those that are lost, before a party leaves."""
REFUSAL = 2.0**-40
"""An honest run has a party that refuses its place with at most this probability, for each of two reasons."""
# ln of a probability that no sum needs a better bound of.
_NEGLIGIBLE = -150.0


class Draws(msgspec.Struct, frozen=True):
    """Plan of random neighbours in GOPA: each party draws `degree` others, so that honest parties connect.

    At most `drawn_by` parties draw any one party. `failure` bounds the probability that the honest parties
    are not connected all the same.
    """

    degree: int
    lost: int
    drawn_by: int
    failure: float


def disconnected(parties: int, degree: int, *, corrupt: int, lost: int) -> float:
    """Return an upper bound on the probability that the graph of the honest parties is not connected.

    Args:
        parties: n; each draws `degree` of the n - 1 others, uniformly.
        corrupt: parties, 1 or more, fixed before anybody draws; all draws to them may count for nothing.
        lost: own draws that each of the others may lose, by the choice of somebody who knows the graph.
    """
    honest = parties - corrupt
    if lost >= degree or honest < 2:
        return 1.0
    # Sums of hypergeometric variables: the binomial's Chernoff bound, exp(-s k KL) [Hoeffding 1963].
    sizes = np.arange(honest + 1, dtype=np.float64)
    share, chance = lost / degree, (honest - sizes) / (parties - 1)
    above = (chance > share) & (sizes > 0)
    rare = np.zeros(honest + 1)
    rare[above] = degree * sizes[above] * _divergence(share, chance[above])
    ways = gammaln(sizes + 1)
    logs = (ways[honest] - ways - ways[::-1] - rare)[1 : honest // 2 + 1]
    # From here on the draws of the other side count as well: of all sides that there may be.
    for s in range(max(1, math.floor(share * (parties - 1))), honest // 2 + 1):
        if logs[s - 1] > _NEGLIGIBLE:
            t = slice(s, honest - s + 1)
            both = ways[honest] - ways[s] - ways[t] - ways[: honest - 2 * s + 1][::-1] - rare[s] - rare[t]
            logs[s - 1] = min(logs[s - 1], float(np.logaddexp.reduce(both)))
    slack = 1e-10 * honest + SLACK
    return float(min(1.0, math.exp(min(0.0, float(np.logaddexp.reduce(logs + slack))))))


def _divergence(share: float, chance: Floats) -> Floats:
    """Return the Kullback-Leibler divergence KL(share || chance) of two coins."""
    left = (1 - share) * np.log((1 - share) / (1 - chance))
    return np.asarray(left if share == 0 else left + share * np.log(share / chance))


@checks_numbers
def plan_draws(parties: int, *, corrupt: int, dropouts: int, delta: float) -> Draws | None:
    """Plan the fewest drawn neighbours that connect honest parties; None if only the complete graph does.

    Args:
        parties, corrupt: as of `disconnected`.
        dropouts: parties who may be lost without regard to the draws, in a run without cheats.
        delta: a thousandth of it may be spent.
    """
    budget = CONNECTED_PART * delta
    # A party that draws half of the others has three quarters of them for neighbours.
    most = (parties - 1) // 2

    def tried(degree: int) -> int | None:
        """Return how many draws of this degree a party may lose, or None if the bound is not met."""
        lost = lost_draws(parties, dropouts, degree, REFUSAL) + SPARE
        return lost if disconnected(parties, degree, corrupt=corrupt, lost=lost) <= budget else None

    low, high = 0, 1
    while high < most and tried(high) is None:
        low, high = high, min(2 * high, most)
    if most < 1 or tried(high) is None:
        return None
    high = first_integer(lambda degree: tried(degree) is not None, low, high)
    lost = tried(high) or 0
    # What is proven of more lost draws lets more corrupt parties spoil edges before anybody leaves.
    while disconnected(parties, high, corrupt=corrupt, lost=lost + 1) <= budget:
        lost += 1
    others = parties - 1
    drawn_by = min(most_drawn_by(others, high / others, REFUSAL / parties) + corrupt, others)
    failure = disconnected(parties, high, corrupt=corrupt, lost=lost)
    return Draws(high, lost, drawn_by, failure)
