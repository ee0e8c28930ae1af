"""The bound on draws that do not connect honest parties: against all pairs of sets, and adversaries."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.special import comb

from smpc_dp.privacy.gopa.connected import CONNECTED_PART, SPARE, Draws, disconnected, plan_draws

Graph = list[set[int]]


def drawn(parties: int, degree: int, source: random.Random) -> Graph:
    """Whom each of the parties, from 0, draws."""
    return [set(source.sample([v for v in range(parties) if v != u], degree)) for u in range(parties)]


def bad_pairs(draws: Graph, honest: int, lost: int) -> bool:
    """Whether there are two sets of honest parties without a common one, both with too few draws out of them.

    Out of a set: to honest parties outside of it, at most `lost` for each of the set.
    """
    drew = np.array([[v in own for v in range(honest)] for own in draws[:honest]], dtype=np.int64)
    sets = (np.arange(1, 1 << honest)[:, None] >> np.arange(honest)) & 1
    outwards = ((sets @ drew) * (1 - sets)).sum(axis=1)
    bad = [int(index) + 1 for index in np.flatnonzero(outwards <= lost * sets.sum(axis=1))]
    return any(not first & second for first, second in itertools.combinations(bad, 2))


@pytest.mark.parametrize(("corrupt", "degree", "lost"), [(1, 5, 0), (1, 6, 0), (1, 7, 1), (2, 8, 1)])
def test_bad_pairs_are_no_likelier_than_the_bound(corrupt: int, degree: int, lost: int) -> None:
    """400 draws of 12 parties; a true bound is passed by four standard deviations once in 30,000."""
    source, parties, trials = random.Random(degree), 12, 400
    bad = sum(bad_pairs(drawn(parties, degree, source), parties - corrupt, lost) for _ in range(trials))
    bound = disconnected(parties, degree, corrupt=corrupt, lost=lost)
    assert bad / trials <= bound + 4 * math.sqrt(bound / trials)


@pytest.mark.parametrize(
    ("parties", "corrupt", "degree", "lost"), [(9, 1, 5, 1), (240, 20, 100, 40), (240, 20, 52, 18)]
)
def test_the_bound_is_that_of_all_pairs(parties: int, corrupt: int, degree: int, lost: int) -> None:
    """Summed over the sizes of both sides; or, where that is less, of the smaller side alone."""
    honest = parties - corrupt

    def retained(size: int) -> float:
        p, share = (honest - size) / (parties - 1), lost / degree
        if p <= share:
            return 1.0
        divergence = share * math.log(share / p) + (1 - share) * math.log((1 - share) / (1 - p))
        return math.exp(-size * degree * divergence)

    total = 0.0
    for s in range(1, honest // 2 + 1):
        others = [math.comb(honest - s, t) * retained(t) for t in range(s, honest - s + 1)]
        total += math.comb(honest, s) * retained(s) * min(1.0, math.fsum(others))
    assert disconnected(parties, degree, corrupt=corrupt, lost=lost) == pytest.approx(
        min(1.0, total), rel=1e-6
    )


def test_the_bound_is_near_the_truth_where_single_users_decide() -> None:
    """With few corrupt parties, who is cut off is alone: all of its draws but `lost` went to them."""
    parties, corrupt, degree, lost = 1000, 100, 12, 2
    chances = [
        comb(corrupt, degree - x) * comb(parties - corrupt - 1, x) / comb(parties - 1, degree)
        for x in range(lost + 1)
    ]
    alone = (parties - corrupt) * sum(chances)
    assert alone < disconnected(parties, degree, corrupt=corrupt, lost=lost) < 20 * alone


def test_without_a_bad_pair_no_adversary_cuts_the_graph() -> None:
    """It removes parties and voids draws as it likes; whoever loses more than it may is removed as well."""
    source = random.Random(3)
    tried = went_on = 0
    while tried < 40:
        draws = drawn(9, 5, source)
        if bad_pairs(draws, 8, 1):
            continue
        tried += 1
        for _ in range(50):
            there = set(source.sample(range(8), source.randrange(6, 9)))
            some = source.sample(sorted(there), source.randrange(4))
            void = {frozenset((u, v)) for u in some for v in source.sample(sorted(draws[u]), 1) if v < 8}
            while leaving := {u for u in there if not _accepts(draws[u], u, there, void)}:
                there -= leaving
            ends = sorted(there)
            matrix = np.array(
                [[(v in draws[u] or u in draws[v]) and {u, v} not in void for v in ends] for u in ends]
            )
            assert len(ends) < 2 or connected_components(matrix, directed=False)[0] == 1
            went_on += len(ends) > 1
    assert went_on > 100


def _accepts(own: set[int], party: int, there: set[int], void: set[frozenset[int]]) -> bool:
    """Whether four of a party's draws count; party 8 is corrupt."""
    return sum(v == 8 or (v in there and frozenset((party, v)) not in void) for v in own) >= 4


def test_a_plan_spends_what_it_may_and_a_smaller_degree_does_not_do() -> None:
    plan = plan_draws(10_000, corrupt=1000, dropouts=0, delta=1e-6)
    assert plan is not None
    assert plan == Draws(22, SPARE, plan.drawn_by, plan.failure)
    assert plan.failure <= CONNECTED_PART * 1e-6
    assert disconnected(10_000, 21, corrupt=1000, lost=SPARE) > CONNECTED_PART * 1e-6
    assert disconnected(10_000, 22, corrupt=1000, lost=SPARE + 1) > CONNECTED_PART * 1e-6


def test_more_is_lost_and_more_is_drawn() -> None:
    degrees = []
    for dropouts in (0, 10, 100):
        plan = plan_draws(1000, corrupt=100, dropouts=dropouts, delta=1e-6)
        assert plan is not None
        degrees.append(plan.degree)
    assert degrees == sorted(degrees)
    assert plan_draws(20, corrupt=2, dropouts=2, delta=1e-6) is None


def test_what_cannot_be_is_certain() -> None:
    assert disconnected(100, 5, corrupt=10, lost=5) == 1.0
    assert disconnected(4, 2, corrupt=3, lost=0) == 1.0
