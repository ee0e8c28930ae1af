"""Privacy by a party's own draws, when the aggregator may hide them from the parties drawn.

An aggregator that passes on who drew whom can withhold an opening: then the drawn party leaves out the noise
of an edge that the drawing one puts in. So of the edges at a party only those count that it drew itself, and
of the others only that whoever drew puts the noise in. For every choice of what is hidden and which
`removed` parties are left out, with M as in docs/proofs/gopa-plan.md, s = sigma_eta^2 / sigma_delta^2 and
n_H parties left,

    sigma_delta^2 (M^-1)_uu <= 1/(s (n_H - spared)) + entry

unless the graph or the party's draws are bad, which is bounded by `failure`. Proofs are there too.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from smpc_dp.privacy.gopa.graphs import Floats, Ints
from smpc_dp.privacy.hypergeometric import LogBinomials

# Exponents that Chernoff's bound is tried with; each is valid, a finer grid is only a little tighter.
_EXPONENTS = np.concatenate([np.linspace(0.03, 1.5, 26), np.geomspace(1.6, 30.0, 14)])
# Expansions that are tried, as parts of the degree; the first says no more than that some draw is there.
_PARTS = np.arange(0, 22) / 28
# The part of delta that each of four tails may take.
_TAIL = 1e-3
# Parties of the highest potential that are given up, and the part of all parties whose own noise is.
_ISOLATED = (0, 1, 2, 5, 10, 20, 40)
_SPARED = (0.0, 0.001, 0.0025, 0.005, 0.01)
# ln of what rounding can do to a sum of log-gammas, generously.
SLACK = 1e-7


class Spread(msgspec.Struct, frozen=True):
    """One form of a privacy bound: how many parties' own noise it gives up, and its pairwise term."""

    spared: int
    entry: float


class OwnDraws(msgspec.Struct, frozen=True):
    """Result: proven privacy bounds for graphs in which each party draws `degree` neighbours itself."""

    degree: int
    spreads: tuple[Spread, ...]
    failure: float

    @property
    def least_entry(self) -> float:
        """Least pairwise term of the bound over all choices of its parameters."""
        return min(spread.entry for spread in self.spreads)


def own_draws(
    parties: int, degree: int, *, corrupt: int, removed: int, lost: int, delta: float
) -> OwnDraws | None:
    """Return proven privacy bounds for graphs in which each party draws neighbours; None if unproven.

    Args:
        parties: n; each draws `degree` of the n - 1 others, uniformly.
        corrupt: parties that pool what they know, 1 or more, fixed before anybody draws.
        removed: honest parties that somebody who knows the graph may choose to be left out.
        lost: how many of the own draws of the party in question may be among them.
        delta: each of four bad events may have 1/1000 of it.
    """
    honest, budget = parties - corrupt, _TAIL * delta
    if honest - removed < 4:
        return None
    counted = degree - lost - _first_below(parties, corrupt, degree, budget)
    drawn_by = most_drawn_by(honest - 1, degree / (parties - 1), budget / honest)
    cuts = _Cuts(parties, honest, degree, removed + 1, drawn_by, math.log(budget))
    outwards = []
    for isolated in _ISOLATED:
        expansion = cuts.outward_expansion(isolated)
        if expansion and counted > isolated:
            outwards.append((_connectivity(degree, expansion), counted - isolated))
    spreads = []
    for spared in sorted({int(part * (honest - removed)) for part in _SPARED}):
        expansion = cuts.inward_expansion(spared)
        if expansion:
            inwards = _connectivity(drawn_by, min(expansion, drawn_by))
            spreads += [Spread(spared, entry(min(inwards, out), left)) for out, left in outwards]
        if cuts.closed_sets_are_rare(spared):
            spreads.append(Spread(spared, float(honest - removed)))
    return OwnDraws(degree, tuple(spreads), 4 * budget) if spreads else None


def entry(connectivity: float, counted: int) -> float:
    """Return the privacy bound's pairwise term for a party that has `counted` own draws left."""
    return (1 + 1 / connectivity) / counted


def most_drawn_by(others: int, chance: float, probability: float) -> int:
    """Return the least m that a sum of `others` coins is proven to exceed with at most `probability`.

    By Chernoff's bound exp(-others KL((m + 1)/others, chance)).
    """
    for m in range(math.ceil(others * chance), others):
        share = (m + 1) / others
        divergence = share * math.log(share / chance)
        if share < 1:
            divergence += (1 - share) * math.log((1 - share) / (1 - chance))
        if -others * divergence + SLACK <= math.log(probability):
            return m
    return others


def lost_draws(parties: int, dropouts: int, degree: int, probability: float) -> int:
    """Return how many draws any party loses at most to dropouts that do not depend on the draws.

    More are with at most this probability, over all parties.
    """
    return _first_below(parties, dropouts, degree, probability / parties)


def _first_below(parties: int, marked: int, degree: int, probability: float) -> int:
    """Return the least x that a hypergeometric number of marked draws exceeds with `probability` at most."""
    x = np.arange(0, min(marked, degree) + 1, dtype=np.int64)
    tails = LogBinomials(parties).tail(parties - 1, marked, degree, x + 1)
    return int(x[tails <= math.log(probability)][0])


def _connectivity(most: int, expansion: float) -> float:
    """Return a lower bound on graph connectivity from vertex expansion and a bound on draws per party.

    It is (sqrt(m) - sqrt(m - psi))^2.
    """
    return (math.sqrt(most) - math.sqrt(most - expansion)) ** 2 * (1 - 1e-12)


class _Cuts:
    """Bounds on the probability that some set of honest parties has few draws out of or into the set.

    Sets are of at most half of the parties, and `gone` others are left out, by choice.
    """

    def __init__(
        self, parties: int, honest: int, degree: int, gone: int, drawn_by: int, log_budget: float
    ) -> None:
        self._degree, self._log_budget = degree, log_budget
        s = np.arange(1, honest // 2 + 1, dtype=np.float64)[:, None]
        self._size, self._beta = s, _EXPONENTS[None, :]
        self._sets = log_choose(honest, s[:, 0])
        # Either the draws that the parties left out could take away, or the choice of those parties, is
        # counted.
        self._choices = float(log_choose(honest, np.array(float(gone))))
        rest, less = honest - s, np.maximum(honest - s - gone, 0.0)
        y, others = -np.expm1(-self._beta), parties - 1
        taken = [self._beta * np.minimum(gone * s, gone * most) for most in (drawn_by, degree)]
        self._outwards = (
            taken[0] + degree * s * np.log1p(-rest / others * y),
            degree * s * np.log1p(-less / others * y),
        )
        self._inwards = (
            taken[1] + degree * rest * np.log1p(-s / others * y),
            degree * less * np.log1p(-s / others * y),
        )
        self._result: dict[str, Floats] = {}

    def outward_expansion(self, above: int) -> float:
        """Return psi: each set of more than `above` parties has psi draws out of it a party; 0: unproven."""
        return self._expansion("out", self._outwards, above)

    def inward_expansion(self, above: int) -> float:
        """Return psi: each set of more than `above` parties has psi draws into it a party; 0: unproven."""
        return self._expansion("in", self._inwards, above)

    def closed_sets_are_rare(self, above: int) -> bool:
        """Tell whether sets of parties without draws out, or (above `above`) into them, are proven rare.

        A part of at most half of the parties has draws out of it; one of more than `above` has draws into it.
        """
        proven = self._proven("out", self._outwards, 0), self._proven("in", self._inwards, above)
        return all(bool(parts[0]) for parts in proven)

    def _expansion(self, which: str, logs: tuple[Floats, Floats], above: int) -> float:
        """Return the greatest proven expansion of sets of more than `above` parties; 0 if none."""
        return float(_PARTS[self._proven(which, logs, above)].max(initial=0.0)) * self._degree

    def _proven(self, which: str, logs: tuple[Floats, Floats], above: int) -> NDArray[np.bool_]:
        """Tell, for each candidate expansion, whether all sets of more than `above` parties have it."""
        if which not in self._result:
            self._result[which] = np.array([self._tails(logs, part * self._degree) for part in _PARTS])
        if above >= len(self._size):
            return np.zeros(len(_PARTS), dtype=np.bool_)
        return np.asarray(self._result[which][:, above] <= self._log_budget)

    def _tails(self, logs: tuple[Floats, Floats], expansion: float) -> Floats:
        """Return ln of bounds on the chance that a set of more than 0, 1, ... parties has too few draws."""
        tilt = self._beta * (expansion * self._size)
        direct, chosen = ((tilt + log).min(axis=1) for log in logs)
        terms = self._sets + np.minimum(direct, chosen + self._choices + SLACK)
        terms += 1e-10 * self._size[:, 0] + SLACK
        return np.asarray(np.logaddexp.accumulate(terms[::-1])[::-1])


def log_choose(n: int, r: Floats | Ints | int) -> Floats:
    """Return ln of the binomial coefficient C(n, r), with an error of at most `SLACK`."""
    return np.asarray(gammaln(n + 1) - gammaln(np.add(r, 1)) - gammaln(np.subtract(n + 1, r)), np.float64)
