"""The planner beside slow, obvious twins: exact fractions, every graph of tiny sessions, simulated draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from smpc_dp.privacy import hypergeometric
from smpc_dp.privacy.hypergeometric import LogBinomials, mode
from smpc_dp.privacy.secagg_plan import check_plan, plan_secagg

Graph = tuple[frozenset[int], ...]


def exact_tail(population: int, marked: int, draws: int, x: int) -> Fraction:
    """P[Hypergeom >= x] by counting; math.comb is 0 where there is nothing to choose."""
    ways = sum(
        math.comb(marked, j) * math.comb(population - marked, draws - j) for j in range(max(x, 0), draws + 1)
    )
    return Fraction(ways, math.comb(population, draws))


def exact_bounds(n: int, c: int, d: int, k: int, t: int) -> tuple[Fraction, Fraction, Fraction]:
    """The three bounds of docs/proofs/secagg-plan.md."""
    holders = n * exact_tail(n - 1, c, k, 2 * t - k)
    shares = n * exact_tail(n - 1, d, k, k - t + 1)
    graph = sum(
        (
            math.comb(n, s) * exact_tail(n - 1, min(c + s - 1, (n + c) // 2 - 1), k, t) ** s
            for s in range(1, n // 2 + 1)
        ),
        start=Fraction(0),
    )
    return holders, shares, graph


def log2(x: Fraction) -> float:
    """log2 of a positive fraction too small or too long for a float."""
    shift = x.numerator.bit_length() - x.denominator.bit_length()
    return math.log2(float(x / Fraction(2) ** shift)) + shift


@pytest.mark.parametrize(("population", "marked"), [(30, 0), (30, 7), (30, 15), (61, 13), (200, 90)])
def test_tail_is_above_the_exact_one_and_close_to_it(population: int, marked: int) -> None:
    logs = LogBinomials(population)
    compared = 0
    for draws in (1, 2, 9, population // 2, population):
        for x in range(-1, draws + 2):
            bound = float(logs.tail(population, marked, draws, x)) / math.log(2)
            exact = exact_tail(population, marked, draws, x)
            if exact == 0:
                assert bound == -math.inf
            elif x <= mode(population, marked, draws):
                assert bound == 0.0
            else:
                compared += 1
                assert log2(exact) <= bound <= log2(exact) + 1e-9
    assert compared > 10 or marked == 0


def test_long_tail_cut_by_the_geometric_bound_stays_above_the_exact_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # From just above the mode 32 terms get less than one deviation far: the rest is bounded, not summed.
    monkeypatch.setattr(hypergeometric, "_EXACT_TERMS", 32)
    population, marked, draws, x = 40_000, 20_000, 20_000, 10_001
    bound = float(LogBinomials(population).tail(population, marked, draws, x)) / math.log(2)
    way = math.comb(marked, x) * math.comb(population - marked, draws - x)
    ways = 0
    for j in range(x, draws + 1):
        ways += way
        way = way * (marked - j) * (draws - j) // ((j + 1) * (population - marked - draws + j + 1))
        if way << 200 < ways:
            break
    exact = log2(Fraction(ways, math.comb(population, draws)))
    assert exact + 0.01 < bound <= exact + 1.5


@pytest.mark.parametrize("n", [10, 33, 60])
@pytest.mark.parametrize(
    ("dropout", "corrupt"), [(0.1, 0.1), (0.0, 0.2), (0.2, 0.0), (0.0, 0.0), (0.25, 0.3)]
)
def test_bounds_are_the_formulas_rounded_upwards(n: int, dropout: float, corrupt: float) -> None:
    seen = 0
    for k in sorted({2, 3, n // 3, n // 2, n - 2, n - 1}):
        for t in range(max(2, k // 2 + 1), k + 1):
            plan = check_plan(n, k, t, dropout=dropout, corrupt=corrupt)
            c, d = plan.max_corrupt, plan.max_dropouts
            exact = exact_bounds(n, c, d, k, t)
            got = (plan.holders_log2, plan.shares_log2, plan.graph_log2)
            rare = (
                2 * t - k > mode(n - 1, c, k),
                k - t + 1 > mode(n - 1, d, k),
                # The last s has the most marked: if its tail is taken in full, all are.
                t > mode(n - 1, (n + c) // 2 - 1, k),
            )
            for bound, truth, in_full in zip(got, exact, rare, strict=True):
                if truth == 0:
                    assert bound is None
                    continue
                assert bound is not None
                assert bound >= min(log2(truth), 0.0)
                if in_full:
                    assert bound <= min(log2(truth), 0.0) + 1e-8
                seen += 1
            whole = sum(exact)
            if whole == 0:
                assert plan.failure_bits is None
            else:
                assert plan.failure_bits is not None
                assert plan.failure_bits <= max(-log2(Fraction(whole)), 0.0)
    assert seen > 0


@pytest.mark.parametrize(("dropout", "corrupt"), [(0.1, 0.1), (0.0, 0.1), (0.15, 0.0), (0.2, 0.15)])
def test_no_smaller_degree_satisfies_the_exact_bound(dropout: float, corrupt: float) -> None:
    n, security = 90, 22
    plan = plan_secagg(n, dropout=dropout, corrupt=corrupt, security=security)
    allowed = Fraction(1, 2**security)
    d, c = plan.max_dropouts, plan.max_corrupt
    assert not plan.complete
    assert sum(exact_bounds(n, c, d, plan.degree, plan.threshold)) <= allowed
    for k in range(2, plan.degree):
        for t in range(max(2, k // 2 + 1), k + 1):
            # The two cheap bounds first; the third only where they leave it open.
            holders, shares = exact_tail(n - 1, c, k, 2 * t - k), exact_tail(n - 1, d, k, k - t + 1)
            if n * (holders + shares) <= allowed:
                assert sum(exact_bounds(n, c, d, k, t)) > allowed


def graphs(n: int, honest: int, k: int) -> Iterator[Graph]:
    """Every choice of k holders by each of the parties 0..honest-1, all equally likely."""
    choices = [
        [frozenset(out) for out in itertools.combinations([v for v in range(n) if v != u], k)]
        for u in range(honest)
    ]
    return itertools.product(*choices)


def opened_components(graph: Graph, survivors: frozenset[int], corrupt: frozenset[int], t: int) -> list[int]:
    """Sizes of the components of the honest survivors' mask graph whose self-masks can all be opened.

    The adversary has every survivor reveal and all that the corrupt hold.
    """
    left, sizes = set(survivors), []
    while left:
        component, fresh = set(), {left.pop()}
        while fresh:
            component |= fresh
            fresh = {
                v for v in survivors - component if any(v in graph[u] or u in graph[v] for u in component)
            }
        left -= component
        if all(len(graph[u] & (survivors | corrupt)) >= t for u in component):
            sizes.append(len(component))
    return sizes


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("n", "c", "k", "t"), [(5, 1, 2, 2), (5, 1, 3, 2), (5, 2, 2, 2), (6, 2, 2, 2), (6, 2, 4, 3), (6, 3, 3, 2)]
)
def test_attack_on_every_graph_succeeds_no_more_often_than_the_bound(n: int, c: int, k: int, t: int) -> None:
    honest = n - c
    corrupt = frozenset(range(honest, n))
    subsets = [frozenset(s) for r in range(1, honest + 1) for s in itertools.combinations(range(honest), r)]
    won = total = 0
    for graph in graphs(n, honest, k):
        total += 1
        sizes = [size for s in subsets for size in opened_components(graph, s, corrupt, t)]
        won += any(2 * size <= honest for size in sizes)
        # One group's members each drew t of the others in it and of the corrupt.
        assert all(size >= t - c + 1 for size in sizes)
    assert total == math.comb(n - 1, k) ** honest
    bound = check_plan(n, k, t, dropout=0, corrupt=c / n).graph_log2
    truth = Fraction(won, total)
    if bound is None:
        assert truth == 0
    else:
        assert truth > 0
        assert bound >= min(log2(truth), 0.0)


@pytest.mark.long
def test_graph_bound_is_met_by_the_attack_where_it_is_small() -> None:
    """12 parties, one of them corrupt, in 40,000 seeded graphs: the rate of groups that can be opened alone.

    A right bound is rejected with probability below 1e-6 (five standard deviations), and the seed is fixed.
    """
    n, c, k, t, runs = 12, 1, 4, 3, 40_000
    honest = n - c
    rng = np.random.default_rng(5)
    order = np.argsort(rng.random((runs, honest, n - 1)), axis=2)[:, :, :k]
    drew = np.zeros((runs, honest, n), dtype=bool)
    for u in range(honest):
        others = np.array([v for v in range(n) if v != u])
        np.put_along_axis(drew[:, u, :], others[order[:, u, :]], True, axis=1)
    won = np.zeros(runs, dtype=bool)
    for size in range(t - c + 1, honest // 2 + 1):
        for group in itertools.combinations(range(honest), size):
            inside = drew[:, group, :][:, :, [*group, honest]].sum(axis=2)
            won |= (inside >= t).all(axis=1)
    rate = float(won.mean())
    bound = check_plan(n, k, t, dropout=0, corrupt=c / n).graph_log2
    assert bound is not None
    assert 0 < rate <= 2**bound + 5 * math.sqrt(2**bound / runs)


@pytest.mark.long
def test_holders_and_shares_bounds_hold_in_simulated_draws() -> None:
    """20,000 seeded sessions of 40 parties, with 6 corrupt and 6 dropped.

    Each rate is compared with its bound plus five standard deviations: a right bound is rejected with
    probability below 1e-6. The bounds are small, so the union over parties is nearly exact and rates far
    below them would show a wrong formula too.
    """
    n, k, runs = 40, 12, 20_000
    high, low = (check_plan(n, k, t, dropout=0.15, corrupt=0.15) for t in (9, 7))
    c, d = high.max_corrupt, high.max_dropouts
    assert (c, d, high.corrupt_holders) == (6, 6, 5)
    rng = np.random.default_rng(11)
    holders = shares = 0
    for _ in range(runs):
        order = np.argsort(rng.random((n, n - 1)), axis=1)[:, :k]
        drawn = order + (order >= np.arange(n)[:, None])
        # The first c are corrupt, the last d drop out.
        holders += bool(((drawn[c:] < c).sum(axis=1) > high.corrupt_holders).any())
        shares += bool(((drawn < n - d).sum(axis=1) < low.threshold).any())
    for rate, bound in ((holders / runs, high.holders_log2), (shares / runs, low.shares_log2)):
        assert bound is not None
        p = 2**bound
        assert p < 1
        assert 0.3 * p < rate <= p + 5 * math.sqrt(p / runs)
