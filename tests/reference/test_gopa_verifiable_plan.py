"""The privacy of verifiable averaging, against the whole view of three parties, enumerated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.gopa.verifiable import VerifiablePlan, greatest_bias, plan_verifiable

Floats = NDArray[np.float64]
PARTIES = 3
GRAPHS = {"path": [(0, 1), (1, 2)], "triangle": [(0, 1), (1, 2), (2, 0)]}
EPSILONS = (0.2, 0.5, 1.0, 1.5)
MARGIN = 4


def _pairwise(edges: list[tuple[int, int]], sigma: float) -> Floats:
    """The distribution of the first two coordinates of B Delta, centred; what is cut off is below 1e-17."""
    reach = math.ceil(9 * sigma)
    steps = np.arange(-reach, reach + 1)
    masses = np.exp(-(steps**2) / (2 * sigma**2))
    size = 4 * reach + 2 * MARGIN + 1
    distribution = np.zeros((size, size))
    centre = size // 2
    first, second, weight = np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1)
    for u, v in edges:
        moved = []
        for party, old in ((0, first), (1, second)):
            sign = (u == party) - (v == party)
            moved.append((old[:, None] + sign * steps).ravel())
        first, second = moved
        weight = (weight[:, None] * masses).ravel()
    np.add.at(distribution, (first + centre, second + centre), weight)
    normal: Floats = distribution / distribution.sum()
    return normal


def _view(pairwise: Floats, bits: int, value: int, party: int) -> Floats:
    """The distribution of (total, first, second) if `party` has `value` and the others 0."""
    half = bits // 2
    eta = {k - half: math.comb(bits, k) / 2**bits for k in range(bits + 1)}
    totals = PARTIES * half + MARGIN
    view = np.zeros((2 * totals + 1, *pairwise.shape))
    for drawn in itertools.product(eta, repeat=PARTIES):
        published = list(drawn)
        published[party] += value
        moved = np.roll(pairwise, (published[0], published[1]), axis=(0, 1))
        view[sum(published) + totals] += math.prod(eta[k] for k in drawn) * moved
    return view


def _delta(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def _bound(pairwise: Floats, bits: int, value: int, party: int, epsilon: float) -> float:
    """The theorem as it is proven: the total, then the worst move that makes up for it."""
    trials = PARTIES * bits
    total = [math.comb(trials, k) / 2**trials for k in range(trials + 1)]
    moves = []
    for others in itertools.combinations_with_replacement(range(PARTIES), value):
        move = [value * (party == index) - others.count(index) for index in (0, 1)]
        moves.append(np.roll(pairwise, move, axis=(0, 1)))
    bound = 0.0
    for k, mass in enumerate(total):
        if k < value:
            bound += mass
            continue
        loss = math.log(mass / total[k - value])
        bound += mass * max(_delta(pairwise, moved, epsilon - loss) for moved in moves)
    return bound


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("sigma", [0.8, 5.0])
def test_the_whole_view_is_bounded(graph: str, sigma: float) -> None:
    """At small sigma the rest of the view shows much, at large sigma next to nothing."""
    pairwise = _pairwise(GRAPHS[graph], sigma)
    for value, party in itertools.product((1, 2), range(PARTIES)):
        there, away = _view(pairwise, 2, value, party), _view(pairwise, 2, 0, party)
        total_alone = _view(np.pad([[1.0]], MARGIN), 2, 0, party).sum(axis=(1, 2))
        moved_total = np.roll(total_alone, value)
        for epsilon in EPSILONS:
            exact = max(_delta(there, away, epsilon), _delta(away, there, epsilon))
            assert exact <= _bound(pairwise, 2, value, party, epsilon) * (1 + 1e-9)
            assert exact >= _delta(total_alone, moved_total, epsilon) * (1 - 1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_plan_holds_for_the_whole_view(graph: str) -> None:
    pairwise = _pairwise(GRAPHS[graph], 5.0)
    for value, epsilon in itertools.product((1, 2), EPSILONS):
        plan = plan_verifiable(
            parties=3, honest=3, epsilon=epsilon, delta=0.5, steps=value, bits=2, sigma_delta=5.0
        )
        for party in range(PARTIES):
            there, away = _view(pairwise, 2, value, party), _view(pairwise, 2, 0, party)
            exact = max(_delta(there, away, epsilon), _delta(away, there, epsilon))
            assert exact <= plan.delta


def test_large_pairwise_noise_costs_next_to_nothing() -> None:
    plan = plan_verifiable(parties=3, honest=3, epsilon=1.0, delta=0.1, steps=1, bits=4)
    trials = 12
    total = np.array([math.comb(trials, k) / 2**trials for k in range(trials + 1)])
    alone = _delta(np.pad(total, (0, 1)), np.pad(total, (1, 0)), 1.0)
    assert alone <= plan.delta <= alone + 0.002


@pytest.mark.parametrize("rounding", ["stochastic", "nearest"])
@pytest.mark.parametrize(("parties", "honest", "length"), [(10_000, 5_000, 1), (100, 90, 1), (200, 180, 3)])
def test_what_is_planned(rounding: str, parties: int, honest: int, length: int) -> None:
    plan = plan_verifiable(
        parties=parties,
        honest=honest,
        epsilon=1.0,
        delta=1e-6,
        length=length,
        rounding=rounding,  # type: ignore[arg-type]
    )
    assert plan.delta <= 1e-6
    assert plan.variance_rounding <= 0.05 * plan.variance_gaussian
    # (m R)^2 for noise multiplier m; the curator's noise is on R sqrt(length).
    needed = (plan.steps * math.sqrt(length) / gaussian_mu(1.0, 1e-6)) ** 2
    assert needed == pytest.approx(plan.variance_gaussian)
    assert plan.bits == pytest.approx(4 * needed / honest, rel=0.15, abs=2)
    assert plan.variance_honest == honest * plan.bits / 4
    fewer = plan_verifiable(
        parties=parties,
        honest=honest,
        epsilon=1.0,
        delta=1e-6,
        length=length,
        steps=plan.steps,
        bits=plan.bits - 2,
    )
    assert fewer.delta > 1e-6
    both = Composition(plan.events())
    assert plan.delta * 0.5 < both.delta(1.0) < 1.1e-6


@pytest.mark.parametrize("honest", [500, 700, 880])
def test_a_drawn_graph_may_be_a_path_of_all_who_stay(honest: int) -> None:
    """Of 1,000 parties 900 are honest, and all may lie between two; the plan counts on the noise of fewer."""

    def planned(bits: int | None = None, sigma_delta: float | None = None) -> VerifiablePlan:
        return plan_verifiable(
            parties=1000,
            honest=honest,
            epsilon=1.0,
            delta=1e-6,
            steps=10,
            degree=150,
            lost=50,
            corrupt=100,
            bits=bits,
            sigma_delta=sigma_delta,
        )

    plan = planned()
    mu = 10 * math.sqrt(899) / plan.sigma_delta
    assert plan.epsilon_pairwise >= mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / plan.delta_pairwise))
    # What smooths the lattice of flows, of rank 899 * 898 / 2 on the complete graph of all of them.
    least = 6 * math.sqrt(900 * 899 * 898 / 2 / (2 * math.pi))
    with pytest.raises(ConfigError, match="sigma_delta"):
        planned(plan.bits, least * 0.99)


def test_bad_draws_count() -> None:
    plan = plan_verifiable(parties=500, honest=400, epsilon=1.0, delta=1e-5, degree=15, lost=1)
    assert 1e-9 < plan.disconnected < plan.delta <= 1e-5
    assert plan.release().slack == pytest.approx(plan.disconnected + plan.delta_pairwise)
    with pytest.raises(ConfigError, match="draw more"):
        plan_verifiable(parties=500, honest=400, epsilon=1.0, delta=1e-5, degree=15, lost=8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parties", 1),
        ("honest", 51),
        ("honest", 1),
        ("epsilon", 0.0),
        ("delta", 0.0),
        ("length", 0),
        ("steps", 0),
        ("bits", 3),
        ("sigma_delta", 10.0),
        ("degree", 0),
        ("degree", 50),
        ("lost", 49),
        ("corrupt", 0),
    ],
)
def test_out_of_range(name: str, value: float) -> None:
    numbers = {"parties": 50, "honest": 40, "epsilon": 1.0, "delta": 1e-5} | {name: value}
    with pytest.raises(ConfigError, match=name):
        plan_verifiable(**numbers)  # type: ignore[arg-type]


def test_out_of_reach() -> None:
    with pytest.raises(ConfigError, match="bits: more than"):
        plan_verifiable(parties=4, honest=2, epsilon=0.01, delta=1e-9, steps=1000)


def _binomial(coins: int) -> Floats:
    return np.array([math.comb(coins, k) / 2**coins for k in range(coins + 1)])


@pytest.mark.parametrize(("bits", "squared"), [(60, 2), (200, 4)])
def test_a_bound_on_the_norm_covers_every_move(bits: int, squared: int) -> None:
    """The totals of three parties in two coordinates, moved by every difference of vectors in the ball."""
    coins, most = 3 * bits, 2 * math.isqrt(squared)
    there = np.outer(padded := np.pad(_binomial(coins), most), padded)
    for epsilon in (0.5, 1.0, 2.0):
        plan = plan_verifiable(
            parties=3, honest=3, epsilon=epsilon, delta=1e-3, length=2, bound_squared=squared, bits=bits
        )
        worst = 0.0
        for move in itertools.product(range(-most, most + 1), repeat=2):
            if 0 < move[0] ** 2 + move[1] ** 2 <= 4 * squared:
                moved = np.roll(there, move, axis=(0, 1))
                worst = max(worst, _delta(there, moved, epsilon), _delta(moved, there, epsilon))
        assert worst <= plan.delta
        # Not vacuous, beside the tail and what pairwise noise has.
        assert plan.delta < 50 * worst + 1e-4


def test_a_norm_costs_what_a_gaussian_does_and_a_fifth_more() -> None:
    plan = plan_verifiable(parties=100, honest=90, epsilon=1.0, delta=1e-5, length=10, bound_squared=36)
    assert plan.variance_gaussian == pytest.approx((12 / gaussian_mu(1.0, 1e-5)) ** 2)
    assert 1.0 < plan.variance_honest / plan.variance_gaussian < 1.25
    assert plan.delta <= 1e-5
    # A box that holds the ball takes ten times as much.
    box = plan_verifiable(parties=100, honest=90, epsilon=1.0, delta=1e-5, length=10, steps=12)
    assert box.bits > 8 * plan.bits


@pytest.mark.parametrize(("bits", "widths"), [(60, (1, 3)), (40, (2, 1))])
def test_a_box_covers_every_move(bits: int, widths: tuple[int, int]) -> None:
    """The totals of three parties in two coordinates, moved by every difference of two vectors in the box."""
    there = np.outer(padded := np.pad(_binomial(3 * bits), max(widths)), padded)
    for epsilon in (0.5, 1.0, 2.0):
        plan = plan_verifiable(
            parties=3, honest=3, epsilon=epsilon, delta=1e-3, length=2, steps=widths, bits=bits
        )
        assert (plan.steps, plan.widths) == (max(widths), widths)
        result = {}
        for move in itertools.product(*(range(-width, width + 1) for width in widths)):
            moved = np.roll(there, move, axis=(0, 1))
            result[move] = max(_delta(there, moved, epsilon), _delta(moved, there, epsilon))
        worst = max(result.values())
        assert result[widths] == pytest.approx(worst, rel=1e-9)
        # Beside what pairwise noise has, and the grid of losses, it is exact.
        assert worst <= plan.delta < 1.02 * worst + 1e-5


@pytest.mark.thin(2)
@pytest.mark.parametrize("widths", [(8, 3, 3), (1, 1, 40), tuple(range(1, 18))])
def test_a_box_costs_what_its_diagonal_does(widths: tuple[int, ...]) -> None:
    def planned(steps: int | tuple[int, ...]) -> VerifiablePlan:
        return plan_verifiable(
            parties=100, honest=90, epsilon=1.0, delta=1e-5, length=len(widths), steps=steps
        )

    plan = planned(widths)
    squared = sum(width * width for width in widths)
    assert plan.reach.squared == squared
    assert plan.variance_gaussian == pytest.approx(squared / gaussian_mu(1.0, 1e-5) ** 2)
    # Up to 16 widths are composed exactly, more of them by the bound for a ball.
    assert 1.0 < plan.variance_honest / plan.variance_gaussian < (1.25 if len(widths) > 16 else 1.1)
    assert plan.bits < planned(max(widths)).bits
    # Pairwise noise hides a move of the whole diagonal on the longest path.
    assert plan.epsilon_pairwise <= 1.01e-3
    release = Composition([plan.release()])
    assert release.epsilon(1e-5) <= 1.0
    assert release.delta(1.0) <= 1e-5
    assert Composition([plan.release()] * 5).epsilon(1e-4) < 5.0


def test_ranges_that_are_alike_are_one_range() -> None:
    numbers = {"parties": 20, "honest": 15, "epsilon": 1.0, "delta": 1e-5, "length": 3}
    one = plan_verifiable(**numbers, steps=4)  # type: ignore[arg-type]
    each = plan_verifiable(**numbers, steps=(4, 4, 4))  # type: ignore[arg-type]
    assert one == each
    for steps in ((4, 4), (4, 0, 4), (4, 4, (1 << 30) + 1), ()):
        with pytest.raises(ConfigError, match="steps"):
            plan_verifiable(**numbers, steps=steps)  # type: ignore[arg-type]


def test_one_coordinate_of_bounded_norm_is_a_range() -> None:
    numbers = {"parties": 20, "honest": 15, "epsilon": 1.0, "delta": 1e-5}
    ball = plan_verifiable(**numbers, bound_squared=5)  # type: ignore[arg-type]
    box = plan_verifiable(**numbers, steps=4)  # type: ignore[arg-type]
    assert (ball.bits, ball.delta, ball.sigma_delta) == (box.bits, box.delta, box.sigma_delta)


def test_a_ledger_is_charged_for_a_norm() -> None:
    plan = plan_verifiable(parties=20, honest=15, epsilon=1.0, delta=1e-5, length=4, bound_squared=9)
    assert Composition([plan.release()]).epsilon(1e-5) <= 1.0
    assert 1.0 < Composition([plan.release()] * 10).epsilon(1e-4) < 6.0
    assert Composition([plan.release()]).delta(1.0) >= Composition(plan.events()).delta(1.0) * 0.5


def test_too_few_bits_for_a_norm() -> None:
    with pytest.raises(ConfigError, match="too few"):
        plan_verifiable(
            parties=3, honest=3, epsilon=1.0, delta=1e-3, length=2, bound_squared=4, bits=4, sigma_delta=1e4
        )
    with pytest.raises(ConfigError, match="bound_squared"):
        plan_verifiable(parties=3, honest=3, epsilon=1.0, delta=1e-3, steps=3, bound_squared=4)


@pytest.mark.parametrize(
    ("bits", "corrupt", "tries"), [(4, 1, 1), (4, 1, 5), (12, 2, 1), (12, 2, 50), (6, 4, 1000)]
)
def test_the_best_that_cheats_can_keep_is_below_the_bias(bits: int, corrupt: int, tries: int) -> None:
    """Exactly: the greatest of so many sums of max(0, eta), which is the best strategy there is."""
    eta = np.maximum(np.arange(bits + 1) - bits // 2, 0)
    retained = np.bincount(eta, weights=_binomial(bits))
    distribution = np.ones(1)
    for _ in range(corrupt):
        distribution = np.convolve(distribution, retained)
    best = np.diff(np.cumsum(distribution) ** tries, prepend=0.0) @ np.arange(len(distribution))
    bound = greatest_bias(bits, corrupt, tries)
    assert best <= bound
    # The square root of c and ln T is right: not more than twice and a half too much.
    assert bound < 2.5 * best + 0.5


def test_the_bias_of_a_plan() -> None:
    plan = plan_verifiable(parties=10, honest=8, epsilon=1.0, delta=1e-5, steps=8)
    s = math.sqrt(plan.bits) / 2
    assert plan.bias == pytest.approx(s + s * math.sqrt(4 * math.log(1000)))
    assert plan_verifiable(parties=10, honest=10, epsilon=1.0, delta=1e-5, steps=8).bias == 0
