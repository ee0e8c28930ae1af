"""Composition: closed forms, brute force, and the theorems that papers quote."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import msgspec
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom

from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.compose import FFT_ERROR, INTERVAL, Composition
from smpc_dp.privacy.accountant.decimals import summed
from smpc_dp.privacy.accountant.events import (
    AnyDescription,
    Event,
    Gaussian,
    Line,
    Pure,
    RandomisedResponse,
    Renyi,
    Shift,
    Shifts,
    decode_hook,
    encode_hook,
    exact_release,
)
from smpc_dp.privacy.accountant.renyi import INTEGER_ORDERS, FilterPlan, curve, renyi_delta, renyi_epsilon
from smpc_dp.privacy.accountant.theorems import (
    advanced_composition,
    kairouz_oh_viswanath,
    simple_composition,
)
from smpc_dp.privacy.accountant.work import TooMuchWorkError, limit_work
from smpc_dp.privacy.distributions import (
    DiscreteGaussianDistribution,
    DiscreteLaplaceDistribution,
    SkellamDistribution,
)
from smpc_dp.privacy.gaussian import gaussian_delta, gaussian_epsilon


def event(*descriptions: AnyDescription, slack: float = 0.0) -> Event:
    return Event("test", "substitution", descriptions, slack)


def pure_composition_delta(epsilon_0: float, count: int, epsilon: float) -> float:
    """The optimal composition of pure mechanisms [Kairouz, Oh, Viswanath 2015, Theorem 3.3], by its binomial
    sum."""
    heads = np.arange(count + 1)
    loss = (2 * heads - count) * epsilon_0
    mass = binom.pmf(heads, count, 1 / (1 + math.exp(-epsilon_0)))
    return float(np.sum(mass * -np.expm1(np.minimum(0.0, epsilon - loss))))


def test_work_is_counted_also_for_what_was_composed_before() -> None:
    composition = Composition([event(RandomisedResponse(3, Fraction(2)))] * 9 + [event(Gaussian(0.5))])
    once = composition.epsilon(1e-6)
    with limit_work(10), pytest.raises(TooMuchWorkError):
        composition.epsilon(1e-6)
    assert composition.epsilon(1e-6) == once


def test_gaussians_compose_to_a_gaussian() -> None:
    events = [event(Gaussian(0.3)), event(Gaussian(0.4))]
    assert Composition(events).epsilon(1e-6) == pytest.approx(gaussian_epsilon(1e-6, 0.5), rel=1e-9)
    assert Composition(events).delta(1.0) == pytest.approx(gaussian_delta(1.0, 0.5), rel=1e-6)


@pytest.mark.thin(3)
@pytest.mark.parametrize("mu", [0.1, 0.5, 2.0])
def test_the_loss_distribution_of_dp_accounting_agrees_with_the_analytic_gaussian(mu: float) -> None:
    theirs = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    for delta in (1e-3, 1e-6, 1e-9):
        assert theirs.get_epsilon_for_delta(delta) == pytest.approx(gaussian_epsilon(delta, mu), abs=2e-4)
    # and ours, when a Gaussian stands beside something that shows next to nothing
    beside = Composition([event(Gaussian(mu)), event(Pure(1e-9))])
    assert beside.epsilon(1e-6) == pytest.approx(gaussian_epsilon(1e-6, mu), abs=1e-3)
    assert beside.epsilon(1e-6) >= gaussian_epsilon(1e-6, mu) * (1 - 1e-6)


@pytest.mark.parametrize(("epsilon_0", "count"), [(0.1, 30), (0.5, 7), (1.0, 3)])
def test_pure_releases_compose_optimally(epsilon_0: float, count: int) -> None:
    together = Composition([event(Pure(epsilon_0))] * count)
    assert together.epsilon(0) == pytest.approx(count * epsilon_0, rel=1e-12)
    for delta in (1e-3, 1e-6):
        epsilon = together.epsilon(delta)
        assert pure_composition_delta(epsilon_0, count, epsilon) <= delta
        tight = max(0.0, epsilon - 2e-4 * count)
        assert (
            pure_composition_delta(epsilon_0, count, tight) >= delta * 0.999 or epsilon == count * epsilon_0
        )


def test_convolutions_err_less_than_is_allowed_for() -> None:
    """A thousand releases whose losses are on the grid, against a sum of 40 digits."""
    count, cells = 1000, 100
    with mpmath.workdps(40):
        epsilon_0 = mpmath.mpf(cells) * mpmath.mpf(INTERVAL)
        p = mpmath.exp(epsilon_0) / (1 + mpmath.exp(epsilon_0))
        one = pld.PrivacyLossDistribution.create_from_rounded_probability(
            {cells: float(p), -cells: float(1 - p)}, 0.0, INTERVAL
        )
        together = one.self_compose(count)
        for epsilon in (0.5, 1, 2):
            truth = mpmath.fsum(
                mpmath.binomial(count, heads)
                * p**heads
                * (1 - p) ** (count - heads)
                * (1 - mpmath.exp(epsilon - (2 * heads - count) * epsilon_0))
                for heads in range(count + 1)
                if (2 * heads - count) * epsilon_0 > epsilon
            )
            assert abs(float(together.get_delta_for_epsilon(epsilon) - truth)) < FFT_ERROR / 2


def test_losses_that_are_too_large_for_a_grid_leave_the_other_bounds() -> None:
    assert Composition([event(Pure(100.0))] * 1000).epsilon(1e-6) == pytest.approx(1e5, rel=0.1)
    assert Composition([event(Gaussian(100.0)), event(Pure(1.0))]).epsilon(1e-6) < 6000
    bare = event(Shift(DiscreteGaussianDistribution(Fraction(1, 10**6)), 1, 1, 2, 2))
    assert math.isinf(Composition([bare, bare]).epsilon(1e-6))
    assert Composition([bare]).delta(1.0) == 1.0


def test_approximate_releases_add_their_deltas() -> None:
    one = event(Pure(0.5, 1e-4))
    assert Composition([one]).delta(0.5) == pytest.approx(1e-4)
    assert math.isinf(Composition([one]).epsilon(5e-5))
    assert Composition([one, one]).epsilon(2.1e-4) <= 1.0 + 1e-3


def test_randomised_response_closed_forms() -> None:
    one = event(RandomisedResponse(4, Fraction(3)))
    assert Composition([one]).epsilon(0) == pytest.approx(math.log(3))
    assert Composition([one]).delta(0.5) == pytest.approx((3 - math.exp(0.5)) / 6, rel=1e-8)
    # two answers by enumeration of the nine pairs of (true, false-as-the-neighbour, other)
    chances = {math.log(3): 3 / 6, 0.0: 2 / 6, -math.log(3): 1 / 6}
    for epsilon in (0.2, 1.0, 1.5):
        truth = sum(
            p * q * max(0.0, -math.expm1(epsilon - a - b))
            for (a, p), (b, q) in itertools.product(chances.items(), repeat=2)
        )
        two = Composition([event(RandomisedResponse(4, Fraction(3), 2))]).delta(epsilon)
        assert truth * (1 - 1e-9) <= two <= truth + 2e-4


def test_a_truth_less_likely_than_others_costs_as_much() -> None:
    """Of two categories a ratio of 1/2 is a ratio of 2 with the answers exchanged."""
    for values in (1, 2):
        less, more = (event(RandomisedResponse(2, ratio, values)) for ratio in (Fraction(1, 2), Fraction(2)))
        for count in (1, 2):
            few, many = Composition([less] * count), Composition([more] * count)
            assert few.epsilon(0.0) == many.epsilon(0.0) >= 0.69 * values * count
            assert few.epsilon(1e-3) == pytest.approx(many.epsilon(1e-3))
            assert few.delta(0.1) == pytest.approx(many.delta(0.1)) != 0


def test_nothing_gives_back_what_is_spent() -> None:
    with pytest.raises(ConfigError, match="a budget must be 0 or more, is -1"):
        summed([(2.0, 1), (-1.0, 1)])


def test_shifts_of_several_coordinates_by_brute_force() -> None:
    distribution = DiscreteLaplaceDistribution(Fraction(2))
    x = np.arange(-60, 61)
    mass = np.exp(-np.abs(x) / 2)
    mass /= mass.sum()
    loss = np.log(mass[1:] / mass[:-1])
    pairs = loss[:, None] + loss[None, :]
    both = mass[1:, None] * mass[None, 1:]
    two = Composition([event(Shift(distribution, 1, 1, 2, 2))])
    for epsilon in (0.1, 0.5, 0.9):
        truth = float(np.sum(both * np.maximum(0.0, -np.expm1(epsilon - pairs))))
        assert truth * (1 - 1e-9) <= two.delta(epsilon) <= truth + 2e-4


def test_zcdp_and_losses_may_stand_side_by_side() -> None:
    rho = event(Renyi((Line(0.0, 0.02),), all_orders=True))
    shift = event(Shift(DiscreteGaussianDistribution(Fraction(100)), 1, 2))
    together = Composition([rho, shift]).epsilon(1e-6)
    assert together >= max(Composition([rho]).epsilon(1e-6), Composition([shift]).epsilon(1e-6))
    # a Gaussian of the same zCDP and the same shift is a lower bound on what must be claimed
    assert together >= gaussian_epsilon(1e-6, math.sqrt(0.04 + 0.04)) * 0.99
    assert together < Composition([rho]).epsilon(5e-7) + Composition([shift]).epsilon(5e-7) + 1e-3


def test_the_better_of_two_descriptions_is_taken() -> None:
    worse, better = Pure(3.0), Gaussian(0.2)
    for order in ((worse, better), (better, worse)):
        assert Composition([event(*order)]).epsilon(1e-6) <= gaussian_epsilon(1e-6, 0.2) * 1.001


def test_slack_adds_to_delta() -> None:
    shaky = event(Gaussian(0.3), slack=1e-6)
    assert math.isinf(Composition([shaky]).epsilon(1e-6))
    assert Composition([shaky]).epsilon(3e-6) == pytest.approx(gaussian_epsilon(2e-6, 0.3), rel=1e-6)
    assert Composition([shaky, shaky]).delta(1.0) >= 2e-6
    # without slack the release is pure, with it it is not
    assert math.isinf(Composition([event(Pure(1.0), slack=1e-9)]).epsilon(0))


def test_closeness_costs_what_it_says() -> None:
    near = Composition([event(Gaussian(0.5, 0.01))])
    assert near.delta(1.0) == pytest.approx(math.exp(0.01) * gaussian_delta(0.99, 0.5), rel=1e-9)
    # densities within e^0.01 of a Gaussian's: the worst of them, checked on a grid of thresholds
    assert near.epsilon(1e-5) >= gaussian_epsilon(1e-5, 0.5)


def test_exact_releases_have_no_privacy() -> None:
    plain = exact_release("secure sum", "substitution")
    assert math.isinf(Composition([plain]).epsilon(0.5))
    assert Composition([plain]).delta(5.0) == 1.0
    assert Composition([]).epsilon(0) == Composition([]).delta(0) == 0.0


def test_relations_do_not_mix() -> None:
    other = Event("test", "add-remove", (Gaussian(0.1),))
    with pytest.raises(ConfigError, match="different neighbouring relations"):
        Composition([event(Gaussian(0.1)), other])
    assert other.under("substitution").descriptions == (Gaussian(0.2),)
    with pytest.raises(PrivacyError, match="nothing about add-remove"):
        event(Gaussian(0.1)).under("add-remove")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Pure(0.3, 0.01), Pure(0.6, 0.01 * (1 + math.exp(0.3)))),
        (Gaussian(0.3, 0.1), Gaussian(0.6, 0.2)),
        (Renyi((Line(0.0, 0.1),), all_orders=True), Renyi((Line(0.0, 0.4),), all_orders=True)),
        (
            Shift(SkellamDistribution(Fraction(3)), 1, 2, 2, 3),
            Shift(SkellamDistribution(Fraction(3)), 1, 4, 3, 3),
        ),
        (
            Shifts(SkellamDistribution(Fraction(3)), 2, ((1, 4), (5, 1)), 0.1),
            Shifts(SkellamDistribution(Fraction(3)), 2, ((2, 4), (10, 1)), 0.2),
        ),
    ],
)
def test_two_steps_of_a_relation(one: AnyDescription, two: AnyDescription) -> None:
    assert Event("t", "add-remove", (one,)).under("substitution") == Event("t", "substitution", (two,))


def test_two_steps_where_nothing_is_proven() -> None:
    bound = Event("t", "add-remove", (Renyi((Line(0.1, 0.1),)),))
    with pytest.raises(PrivacyError, match="no conversion"):
        bound.under("substitution")
    # what has another description keeps that
    both = Event("t", "add-remove", (Renyi((Line(0.1, 0.1),)), Pure(1.0)))
    assert both.under("substitution").descriptions == (Pure(2.0),)
    with pytest.raises(PrivacyError, match="may fail"):
        Event("t", "add-remove", (Pure(1.0),), slack=1e-6).under("substitution")


def test_the_exact_doubling_of_a_pure_guarantee_is_needed() -> None:
    """Group privacy is tight: two steps of discrete Laplace noise are one of twice the shift."""
    distribution = DiscreteLaplaceDistribution(Fraction(4))
    two_steps = Event("t", "add-remove", (Shift(distribution, 1, 1),)).under("substitution")
    assert Composition([two_steps]).delta(0.25) > Composition([event(Pure(0.25))]).delta(0.25)


# Rényi


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_renyi_divergence_of_two_points(epsilon: float) -> None:
    orders = np.array([2.0, 3.5, 40.0])
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    truth = np.log(p**orders * q ** (1 - orders) + q**orders * p ** (1 - orders)) / (orders - 1)
    assert curve(Pure(epsilon), orders) == pytest.approx(truth, rel=1e-6)
    assert curve(RandomisedResponse(2, Fraction(math.exp(epsilon))), orders) == pytest.approx(truth, rel=1e-6)
    # zCDP of pure privacy [Bun and Steinke 2016, Proposition 3.3]
    assert (truth <= orders * epsilon**2 / 2 + 1e-12).all()


def test_renyi_conversion_is_safe_and_inverts() -> None:
    divergence = INTEGER_ORDERS * 0.125
    epsilon = renyi_epsilon(divergence, INTEGER_ORDERS, 1e-6)
    assert gaussian_epsilon(1e-6, 0.5) < epsilon < 1.2 * gaussian_epsilon(1e-6, 0.5)
    assert renyi_delta(divergence, INTEGER_ORDERS, epsilon) == pytest.approx(1e-6, rel=1e-3)


def test_the_filter_leaves_no_more_than_its_budget() -> None:
    plan = FilterPlan(1.0, 1e-6)
    spent = renyi_epsilon(np.array([plan.radius]), np.array([plan.order]), plan.delta)
    assert 0.999 < spent <= 1.0
    for epsilon, delta in ((1.0, 0.0), (0.0, 1e-6)):
        with pytest.raises(PrivacyError):
            FilterPlan(epsilon, delta)


# theorems


def test_simple_composition() -> None:
    assert simple_composition([(0.1, 0.0), (0.2, 0.01)]) == pytest.approx((0.3, 0.01))


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
@pytest.mark.parametrize("epsilon_0", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("slack", [1e-2, 1e-5, 1e-9])
def test_the_theorems_hold_and_the_accountant_is_never_worse(
    count: int, epsilon_0: float, slack: float
) -> None:
    """Bellet et al. 2018, Theorem 1, is the composition of Kairouz, Oh and Viswanath as they state it.

    Both are compared with the optimal composition of count pure mechanisms.
    """
    together, delta = kairouz_oh_viswanath([(epsilon_0, 0.0)] * count, slack)
    assert delta == pytest.approx(slack)
    assert pure_composition_delta(epsilon_0, count, together) <= slack
    classical, delta = advanced_composition(epsilon_0, 0.0, count, slack)
    assert delta == pytest.approx(slack)
    assert pure_composition_delta(epsilon_0, count, classical) <= slack
    assert together <= min(classical, count * epsilon_0)


def test_kairouz_oh_viswanath_term_by_term() -> None:
    budgets = [(0.1, 0.0), (0.2, 1e-6), (0.4, 0.0)]
    squares = 0.01 + 0.04 + 0.16
    drift = sum(e * (math.exp(e) - 1) / (math.exp(e) + 1) for e, _ in budgets)
    second = drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / 0.3))
    third = drift + math.sqrt(2 * squares * math.log(1 / 0.3))
    epsilon, delta = kairouz_oh_viswanath(budgets, 0.3)
    assert epsilon == pytest.approx(min(0.7, second, third))
    assert delta == pytest.approx(1 - 0.7 * (1 - 1e-6))
    assert kairouz_oh_viswanath(budgets, 0.0) == pytest.approx((0.7, 1e-6))


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, 2000.0])
def test_bad_budgets_are_named(bad: float) -> None:
    for call in (
        lambda: simple_composition([(bad, 0.0)]),
        lambda: advanced_composition(bad, 0.0, 3, 0.1),
        lambda: kairouz_oh_viswanath([(bad, 0.0)], 0.1),
        lambda: Composition([event(Pure(0.1))]).delta(bad),
    ):
        with pytest.raises(ConfigError, match="epsilon"):
            call()


@pytest.mark.parametrize("bad", [-0.1, 1.0, math.nan])
def test_bad_deltas_are_named(bad: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        Composition([event(Pure(0.1))]).epsilon(bad)
    with pytest.raises(ConfigError, match="slack"):
        kairouz_oh_viswanath([(0.1, 0.0)], bad)
    with pytest.raises(ConfigError, match="1e-11"):
        Composition([event(Gaussian(0.1))]).epsilon(1e-15)


def test_different_shifts_are_those_of_each_coordinate() -> None:
    distribution = DiscreteGaussianDistribution(Fraction(100))
    both = Composition([event(Shifts(distribution, 1, ((2, 3), (7, 1))))])
    apart = Composition([event(Shift(distribution, 1, 2, 3, 3)), event(Shift(distribution, 1, 7))])
    assert both.delta(1.0) == apart.delta(1.0)
    assert both.epsilon(1e-5) == apart.epsilon(1e-5)
    alike = Composition([event(Shifts(distribution, 1, ((2, 3),), 0.1))])
    assert alike.epsilon(1e-5) == Composition([event(Shift(distribution, 1, 2, 3, 3, 0.1))]).epsilon(1e-5)
    # A Gaussian is near, of the root of the sum of squares.
    near = Composition([event(Gaussian(math.sqrt(3 * 4 + 49) / 10))]).epsilon(1e-5)
    assert both.epsilon(1e-5) == pytest.approx(near, rel=0.02)


# events as data


def test_events_survive_json() -> None:
    whole = event(
        Shift(DiscreteGaussianDistribution(Fraction(7, 3)), 2, 5, 2, 9, 0.25),
        Renyi((Line(0.5, 0.1),)),
        Pure(0.5, 1e-9),
        RandomisedResponse(5, Fraction(11, 4)),
        slack=1e-9,
    )
    text = msgspec.json.encode(whole, enc_hook=encode_hook)
    assert b'"7/3"' in text
    assert msgspec.json.decode(text, type=Event, dec_hook=decode_hook) == whole
    moves = event(Shifts(DiscreteGaussianDistribution(Fraction(7, 3)), 2, ((5, 2), (1, 9)), 0.25))
    text = msgspec.json.encode(moves, enc_hook=encode_hook)
    assert msgspec.json.decode(text, type=Event, dec_hook=decode_hook) == moves
    for wrong in (b"[]", b"[[0,1]]", b"[[5,0]]", b"[[5]]", b"[[5,2,1]]"):
        changed = text.replace(b"[[5,2],[1,9]]", wrong)
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(changed, type=Event, dec_hook=decode_hook)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"7/3"', b'"14/6"'),
        (b'"7/3"', b'"0/1"'),
        (b'"7/3"', b'"-7/3"'),
        (b'"7/3"', b"2.5"),
        (b'"7/3"', b'"7/0"'),
        (b'"shares":1', b'"shares":0'),
        (b'"shares":1', b'"shares":true'),
        (b'"shares":1', b'"shares":1,"more":1'),
        (b'"kind":"shift"', b'"kind":"other"'),
        (b'"slack":0.0', b'"slack":1.5'),
        (b'"slack":0.0', b'"slack":-1e-9'),
    ],
)
def test_events_are_decoded_strictly(old: bytes, new: bytes) -> None:
    text = msgspec.json.encode(
        event(Shift(DiscreteGaussianDistribution(Fraction(7, 3)), 1, 5)), enc_hook=encode_hook
    )
    assert old in text
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text.replace(old, new), type=Event, dec_hook=decode_hook)
