"""What a party's own draws prove: whatever is hidden on small graphs, dense inverses, exact chances."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom

from smpc_dp.capabilities.gopa.plan import plan_session
from smpc_dp.privacy.gopa.own_draws import (
    _connectivity,
    _Cuts,
    entry,
    lost_draws,
    most_drawn_by,
    own_draws,
)
from smpc_dp.privacy.secagg_plan import plan_secagg
from tests.examples import examples

Draws = NDArray[np.bool_]
Floats = NDArray[np.float64]


def covariance(draws: Draws, hidden: Draws, s: float) -> Floats:
    """M / sigma_delta^2 from its definition: a pair that both know, or a term that one puts in alone.

    draws[v, w]: v drew w; hidden[v, w]: w is not told.
    """
    one_sided = draws & ~draws.T & hidden
    known = (draws & ~one_sided) | (draws & ~one_sided).T
    laplacian = np.diag(known.sum(axis=1)) - known.astype(np.float64)
    return np.asarray(s * np.eye(len(draws)) + laplacian + np.diag(one_sided.sum(axis=1)))


def expansions(draws: Draws, party: int, isolated: int, spared: int) -> tuple[float, float]:
    """The least draws a party out of, and into, sets of the others that are at most half of them."""
    others = [v for v in range(len(draws)) if v != party]
    out = into = math.inf
    for size in range(1, len(others) // 2 + 1):
        for inside in itertools.combinations(others, size):
            rest = [v for v in others if v not in inside]
            if size > isolated:
                out = min(out, draws[np.ix_(inside, rest)].sum() / size)
            if size > spared:
                into = min(into, draws[np.ix_(rest, inside)].sum() / size)
    return out, into


@st.composite
def drawn_graphs(draw: st.DrawFn) -> tuple[Draws, Draws, float]:
    n = draw(st.integers(4, 8))
    bits = draw(st.lists(st.booleans(), min_size=2 * n * n, max_size=2 * n * n))
    table = np.array(bits).reshape(2, n, n)
    draws = table[0] | (np.eye(n, k=1) > 0) if draw(st.booleans()) else table[0]
    draws[np.eye(n) > 0] = False
    return draws, table[1], draw(st.sampled_from([1e-3, 0.05, 1.0]))


@settings(max_examples=examples(400))
@given(drawn_graphs(), st.integers(0, 2), st.integers(0, 2))
def test_the_bound_holds_whatever_is_hidden(
    graph: tuple[Draws, Draws, float], isolated: int, spared: int
) -> None:
    draws, hidden, s = graph
    n = len(draws)
    theta = np.linalg.inv(covariance(draws, hidden, s)).diagonal()
    for party in range(n):
        out, into = expansions(draws, party, isolated, spared)
        counted = int(draws[party].sum()) - isolated
        rest = np.delete(np.delete(draws, party, 0), party, 1)
        most_out, most_in = (int(rest.sum(axis=axis).max()) for axis in (1, 0))
        if counted < 1 or min(out, into) <= 0:
            continue
        result = min(
            _connectivity(most, min(value, most)) if value < math.inf else math.inf
            for most, value in ((most_out, out), (most_in, into))
        )
        assume(result > 0)
        assert theta[party] <= (1 / (s * (n - spared)) + entry(result, counted)) * (1 + 1e-9)


@settings(max_examples=examples(400))
@given(drawn_graphs(), st.integers(0, 2))
def test_without_closed_sets_the_bound_holds_whatever_is_hidden(
    graph: tuple[Draws, Draws, float], spared: int
) -> None:
    """Every part of at most half has a draw out of it, every larger part than `spared` a draw into it."""
    draws, hidden, s = graph
    n = len(draws)
    for size in range(1, n // 2 + 1):
        for inside in itertools.combinations(range(n), size):
            rest = [v for v in range(n) if v not in inside]
            if not draws[np.ix_(inside, rest)].any():
                return
            if size > spared and not draws[np.ix_(rest, inside)].any():
                return
    theta = np.linalg.inv(covariance(draws, hidden, s)).diagonal()
    assert theta.max() <= (1 / (s * (n - spared)) + n) * (1 + 1e-9)


def test_what_hidden_edges_change() -> None:
    """Everybody drew the victim, who drew one: hidden, that is its one edge, and counting more is wrong.

    In a planned session, own noise small, the relay loses by it: the terms that it left one-sided stay in the
    total. Where own noise is not small it gains.
    """
    n = 8
    draws = np.zeros((n, n), dtype=np.bool_)
    draws[1:, 0] = True
    draws[0, 1] = True
    for v in range(1, n):
        draws[v, 1 + v % (n - 1)] = True
    hidden = np.zeros_like(draws)
    hidden[:, 0] = True
    for s, gains in ((0.01, False), (2.0, True)):
        shown, retained_back = (
            float(np.linalg.inv(covariance(draws, relay, s))[0, 0]) for relay in (hidden & False, hidden)
        )
        assert (retained_back > 1.3 * shown) is gains
        assert (shown > 1.3 * retained_back) is not gains


def draw_graph(parties: int, honest: int, degree: int, generator: np.random.Generator) -> Draws:
    draws = np.zeros((honest, parties), dtype=np.bool_)
    for v in range(honest):
        others = np.delete(np.arange(parties), v)
        draws[v, generator.choice(others, degree, replace=False)] = True
    return draws[:, :honest]


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("parties", "honest", "degree", "gone"), [(10, 9, 7, 1), (10, 8, 8, 0), (10, 10, 8, 2)]
)
def test_bad_cuts_are_as_rare_as_bounded(parties: int, honest: int, degree: int, gone: int) -> None:
    """80 graphs, every set, every choice of who is left out; alarm: five deviations, 3e-7 each."""
    generator = np.random.default_rng(7)
    graphs = [draw_graph(parties, honest, degree, generator) for _ in range(80)]
    cuts = _Cuts(parties, honest, degree, gone, honest - 1, 0.0)
    worst: dict[tuple[str, int], list[float]] = {}
    for draws in graphs:
        for size in range(1, honest // 2 + 1):
            least = {"out": math.inf, "in": math.inf}
            for inside in itertools.combinations(range(honest), size):
                rest = [v for v in range(honest) if v not in inside]
                out_of = np.sort(draws[np.ix_(inside, rest)].sum(axis=0))[::-1]
                out_to = np.sort(draws[np.ix_(rest, inside)].sum(axis=1))[::-1]
                least["out"] = min(least["out"], out_of[gone:].sum() / size)
                least["in"] = min(least["in"], out_to[gone:].sum() / size)
            for which, value in least.items():
                worst.setdefault((which, size), []).append(float(value))
    checked = 0
    for expansion in np.arange(0, 20) / 20 * degree:
        for which, logs in (("out", cuts._outwards), ("in", cuts._inwards)):
            tails = np.exp(cuts._tails(logs, float(expansion)))
            for size in range(1, honest // 2 + 1):
                bound = float(tails[size - 1])
                if bound >= 1:
                    continue
                checked += 1
                result = np.min([worst[which, more] for more in range(size, honest // 2 + 1)], axis=0)
                bad = np.mean(result < expansion if expansion else result <= 0)
                assert bad <= bound + 5 * math.sqrt(bound / len(graphs)), (which, size, expansion)
    assert checked > 5


@pytest.mark.parametrize(("others", "chance"), [(20, 0.3), (199, 0.24), (999, 0.05), (999, 0.5)])
@pytest.mark.parametrize("probability", [1e-3, 1e-15])
def test_in_degrees_are_bounded(others: int, chance: float, probability: float) -> None:
    most = most_drawn_by(others, chance, probability)
    assert binom.sf(most, others, chance) <= probability
    # and not wastefully: one of nearly the same chance is exceeded more often
    least = int(binom.isf(probability, others, chance))
    assert most <= least + 3 + 0.35 * (least - others * chance)


@pytest.mark.parametrize(("parties", "dropouts", "degree"), [(100, 10, 30), (1000, 100, 134), (50, 0, 20)])
def test_lost_draws_are_bounded(parties: int, dropouts: int, degree: int) -> None:
    most = lost_draws(parties, dropouts, degree, 2.0**-40)
    tail = [parties * float(hypergeom.sf(x, parties - 1, dropouts, degree)) for x in (most, most - 1)]
    assert tail[0] <= 2.0**-40
    assert most == 0 or tail[1] > 2.0**-40


@pytest.mark.parametrize(
    ("parties", "dropout", "corrupt", "roll_back"),
    [(150, 0.0, 0.1, False), (200, 0.02, 0.1, False), (200, 0.02, 0.05, True)],
)
def test_the_plan_holds_on_drawn_graphs_under_attack(
    parties: int, dropout: float, corrupt: float, roll_back: bool
) -> None:
    """A relay hides who drew the victim, or everybody's draws, and leaves out the victim's neighbours.

    A bound that is proven for all choices must hold for these; corrupt parties know their own noise.
    """
    plan, noise = plan_session(
        plan_secagg(parties, dropout=dropout, corrupt=corrupt),
        diameter=1e7,
        length=1,
        epsilon=1.0,
        delta=1e-6,
        roll_back=roll_back,
    )
    assert not plan.complete
    honest = parties - max(plan.max_corrupt, 1)
    generator = np.random.default_rng(11)
    s = noise.own_variance / noise.pair_variance
    worst = 0.0
    for _ in range(3):
        whole = draw_graph(parties, honest, plan.degree, generator)
        for victim in generator.choice(honest, 4, replace=False):
            gone = np.flatnonzero(whole[victim])[: plan.max_dropouts]
            left = np.setdiff1d(np.arange(honest), gone)
            draws, neighbourhood = whole[np.ix_(left, left)], int(np.searchsorted(left, victim))
            nothing, to_victim, all_hidden = (np.zeros_like(draws) for _ in range(3))
            to_victim[:, neighbourhood] = True
            all_hidden[:] = True
            inwards = draws & ~draws.T & (generator.random(draws.shape) < 0.5)
            for hidden in (nothing, to_victim, all_hidden, inwards):
                theta = (
                    np.linalg.inv(covariance(draws, hidden, s))[neighbourhood, neighbourhood]
                    / noise.pair_variance
                )
                worst = max(worst, float(theta))
    assert 1e7 * math.sqrt(worst) <= noise.mu
    assert 1e7 * math.sqrt(worst) > noise.mu / 2, "the attack is too weak to test anything"


@pytest.mark.parametrize(
    ("parties", "dropout", "corrupt"), [(1000, 0.1, 0.1), (300, 0.05, 0.1), (200, 0.02, 0.1)]
)
def test_honest_runs_meet_no_refusal(parties: int, dropout: float, corrupt: float) -> None:
    """Corrupt parties all draw everybody, as many are lost as may be: nobody refuses (2^-39 for each run)."""
    plan, noise = plan_session(
        plan_secagg(parties, dropout=dropout, corrupt=corrupt),
        diameter=1e7,
        length=1,
        epsilon=1.0,
        delta=1e-6,
        roll_back=False,
    )
    assert not plan.complete
    neighbourhood = noise.neighbourhood
    assert neighbourhood.most_drawn_by < parties - 1
    assert neighbourhood.least_own <= plan.degree
    generator = np.random.default_rng(3)
    for _ in range(5):
        draws = draw_graph(parties, parties, plan.degree, generator)
        lost = generator.choice(parties, plan.max_dropouts, replace=False)
        stay = np.setdiff1d(np.arange(parties), lost)
        draws[: plan.max_corrupt] = True
        np.fill_diagonal(draws, val=False)
        own = draws[np.ix_(stay, stay)].sum(axis=1)[stay >= plan.max_corrupt]
        assert own.min() >= neighbourhood.least_own
        assert draws[np.ix_(stay, stay)].sum(axis=0).max() <= neighbourhood.most_drawn_by


def test_nothing_is_proven_where_nothing_holds() -> None:
    assert own_draws(20, 2, corrupt=2, removed=2, lost=2, delta=1e-6) is None
    assert own_draws(200, 3, corrupt=20, removed=0, lost=0, delta=1e-6) is None
    assert own_draws(200, 60, corrupt=20, removed=60, lost=60, delta=1e-6) is None
    result = own_draws(200, 80, corrupt=20, removed=4, lost=4, delta=1e-6)
    assert result is not None
    assert result.failure <= 4.1e-9
    # More of everything that an adversary has: never better.
    for more in ({"corrupt": 25}, {"removed": 8}, {"lost": 8}):
        less = own_draws(200, 80, **({"corrupt": 20, "removed": 4, "lost": 4} | more), delta=1e-6)
        assert less is None or less.least_entry >= result.least_entry
