"""Mechanisms: sensitivities, guarantees against brute force, calibration, releases."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, cast

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.events import Gaussian as GaussianDescription
from smpc_dp.privacy.accountant.events import Renyi
from smpc_dp.privacy.accountant.renyi import curve
from smpc_dp.privacy.distributions import DiscreteGaussianDistribution, hockey_stick
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.mechanisms import (
    AdditiveNoise,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedSum,
    Gaussian,
    KaryRandomisedResponse,
    Laplace,
    Sensitivity,
    Skellam,
)
from smpc_dp.privacy.mechanisms.smoothing import kairouz_liu_steinke_zcdp, ripple, sum_ripple
from smpc_dp.privacy.sampling import NoiseSource
from tests.examples import examples
from tests.reference import privacy_twin as twin

ONE = Sensitivity.on_integers("substitution", l1=1)
KINDS: list[type[AdditiveNoise]] = [DiscreteLaplace, DiscreteGaussian, Skellam, Binomial]


@pytest.fixture(scope="module", autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(twin.DIGITS):
        yield


def source(name: str) -> NoiseSource:
    return NoiseSource.keyed(hashlib.sha256(name.encode()).digest())


# sensitivity


@settings(max_examples=examples(200))
@given(
    st.lists(st.integers(-6, 6), min_size=1, max_size=6).filter(any), st.sampled_from(("l1", "l2", "linf"))
)
def test_the_other_norms_follow_for_every_integer_difference(difference: list[int], norm: str) -> None:
    norms = {
        "l1": float(sum(map(abs, difference))),
        "l2": math.sqrt(sum(x * x for x in difference)),
        "linf": float(max(map(abs, difference))),
    }
    given_one: dict[str, Any] = {norm: norms[norm]}
    bounds = Sensitivity.on_integers("substitution", dimension=len(difference), **given_one)
    for name, value in bounds.norms().items():
        assert value >= norms[name] * (1 - 1e-12)
    assert bounds.coordinates >= sum(x != 0 for x in difference)
    assert bounds.shift >= norms["linf"]


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=5),
    st.sampled_from((2.0**-3, 0.5, 1.0)),
)
def test_rounding_stays_within_the_sensitivity_on_the_grid(
    pairs: list[tuple[float, float]], step: float
) -> None:
    one, two = np.array(pairs).T
    apart = one - two
    if np.abs(apart).max() == 0:
        return
    real = Sensitivity.on_reals(
        "substitution",
        dimension=len(pairs),
        l1=max(1e-300, float(np.abs(apart).sum())),
        l2=max(1e-300, float(np.linalg.norm(apart))),
        linf=max(1e-300, float(np.abs(apart).max())),
    )
    moved = np.rint(one / step) - np.rint(two / step)
    grid = real.on_grid(step)
    assert np.abs(moved).sum() <= grid.l1
    assert np.linalg.norm(moved) <= grid.l2 * (1 + 1e-12)
    assert np.abs(moved).max() <= grid.linf


def test_rounding_is_counted_where_it_matters() -> None:
    # 0.49 and 0.51 round to 0 and 1: a distance of 0.02 steps becomes a whole one
    grid = Sensitivity.on_reals("substitution", dimension=3, linf=0.02).on_grid(1.0)
    assert (grid.linf, grid.l1) == (1.0, 3.0)
    assert grid.l2 == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({}, "sensitivity"),
        ({"l1": 0}, "l1"),
        ({"l1": -1}, "l1"),
        ({"l2": 0.5}, "l2"),
        ({"linf": math.nan}, "linf"),
        ({"l1": math.inf}, "l1"),
        ({"l1": 1, "dimension": 0}, "dimension"),
        ({"l1": 1, "dimension": 1 << 40}, "dimension"),
        ({"l1": 1, "dimension": True}, "dimension"),
    ],
)
def test_absurd_sensitivities_are_named(arguments: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        Sensitivity.on_integers("substitution", **arguments)


def test_an_unknown_relation_is_named() -> None:
    with pytest.raises(ConfigError, match="relation"):
        Sensitivity.on_integers("swap", l1=1)  # type: ignore[arg-type]


# discrete Gaussians against the continuous one, and their sums


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(1), Fraction(9, 4)])
def test_the_ripple_bounds_the_sum_of_a_gaussian_over_the_integers(variance: Fraction) -> None:
    v = mpmath.mpf(variance.numerator) / variance.denominator
    sums = [
        mpmath.fsum(mpmath.exp(-((y - mpmath.mpf(a) / 40) ** 2) / (2 * v)) for y in range(-50, 52))
        for a in range(41)
    ]
    result = float(mpmath.log(max(sums) / min(sums)))
    assert result <= ripple(float(variance)) <= result * (1 + 1e-6)


@pytest.mark.parametrize("shares", [2, 3, 6])
@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(1)])
def test_a_sum_is_as_near_to_a_discrete_gaussian_as_stated(variance: Fraction, shares: int) -> None:
    total = twin.summed(twin.discrete_gaussian(variance, 24), shares)
    single = twin.discrete_gaussian(variance * shares, 80)
    logs = [mpmath.log(total[x] / single[x]) for x in range(-12, 13)]
    result = float(max(logs) - min(logs))
    assert 0 < result <= sum_ripple(float(variance), shares)
    # one folding is met exactly; the errors of several do not all add up, and are counted as if they did
    if shares == 2:
        assert sum_ripple(float(variance), shares) < 1.01 * result


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("shares", [1, 2, 4])
@pytest.mark.parametrize("shift", [1, 3])
def test_sums_of_discrete_gaussians_by_convolution(variance: Fraction, shares: int, shift: int) -> None:
    exact = twin.summed(twin.discrete_gaussian(variance, 24), shares)
    bounds = Sensitivity.on_integers("substitution", l1=shift)
    made = DistributedSum(DiscreteGaussian(bounds, variance), shares)
    for epsilon in (0.5, 1.0, 2.0):
        truth = float(twin.delta(exact, shift, epsilon))
        assert truth <= made.delta(epsilon)
        if variance >= 1:
            # a shift of one step in noise of one step: the explicit error counts, a little
            assert made.delta(epsilon) <= truth * 1.05 + 1e-6


@pytest.mark.parametrize(("variance", "shares"), [(Fraction(1), 1), (Fraction(1), 3), (Fraction(3), 2)])
def test_renyi_bounds_of_discrete_gaussians(variance: Fraction, shares: int) -> None:
    exact = twin.summed(twin.discrete_gaussian(variance, 24), shares)
    for shift in (1, 2):
        made = DiscreteGaussian(Sensitivity.on_integers("substitution", l1=shift), variance)
        for order in (2, 3, 5):
            truth = float(twin.renyi(exact, shift, order))
            for known in made.descriptions(shares):
                bound = curve(known, np.array([float(order)]))
                assert bound is None or bound[0] >= truth * (1 - 1e-9)
    # zCDP of one discrete Gaussian is met with equality at integer shifts [CKS 2020, Theorem 4]
    if shares == 1:
        assert truth == pytest.approx(order * shift**2 / (2 * float(variance)), rel=1e-6)


def test_the_printed_bound_for_sums_is_near_ours() -> None:
    """[Kairouz, Liu, Steinke 2021, Proposition 14]: both are a hair above the Gaussian's rho."""
    printed = kairouz_liu_steinke_zcdp(variance=4.0, shares=10, dimension=1, l1=3.0, l2=3.0)
    assert printed == pytest.approx(9 / 80, rel=1e-9)
    assert printed > 9 / 80
    # shares of little variance do not add up to a Gaussian: at 1/4 the error is as large as the claim
    assert kairouz_liu_steinke_zcdp(variance=0.25, shares=10, dimension=1, l1=1.0, l2=1.0) > 1.5 * 1 / 5
    assert math.isinf(kairouz_liu_steinke_zcdp(variance=0.2, shares=10, dimension=1, l1=1.0, l2=1.0))


def test_a_sum_of_tiny_discrete_gaussians_is_no_discrete_gaussian() -> None:
    """The trap: shares of variance 0.1 give a sum that shows more than a discrete Gaussian of the total."""
    shares, variance = 8, Fraction(1, 10)
    exact = twin.summed(twin.discrete_gaussian(variance, 8), shares)
    naive = hockey_stick(DiscreteGaussianDistribution(variance * shares), 1, 1, 1.0)
    assert float(twin.delta(exact, 1, 1.0)) > 1.2 * naive
    assert DistributedSum(DiscreteGaussian(ONE, Fraction(1, 2)), shares).delta(1.0) >= 0
    with pytest.raises(ConfigError, match="too little"):
        DistributedSum(DiscreteGaussian(ONE, variance), shares).delta(1.0)


def test_many_coordinates_cost_hardly_more_than_the_continuous_gaussian() -> None:
    bounds = Sensitivity.on_integers("substitution", dimension=1000, l2=100)
    made = DiscreteGaussian.calibrate(1.0, 1e-6, bounds)
    continuous = (100 / gaussian_mu(1.0, 1e-6)) ** 2
    assert continuous < made.variance < continuous * 1.0001
    assert isinstance(made.event().descriptions[0], GaussianDescription)


def test_the_smoothed_description_covers_two_coordinates_by_brute_force() -> None:
    """delta of (3, 6) in noise of variance 30, summed over the plane, against the claim for l2 = sqrt(45)."""
    x = np.arange(-80, 81)
    mass = np.exp(-(x**2) / 60.0)
    mass /= mass.sum()
    bounds = Sensitivity.on_integers("substitution", dimension=2, l2=math.sqrt(45))
    made = DiscreteGaussian(bounds, Fraction(30))
    plane = np.outer(mass, mass)
    moved = np.outer(np.roll(mass, 3), np.roll(mass, 6))
    for epsilon in (0.5, 1.0, 2.0):
        truth = float(np.maximum(0.0, plane - math.exp(epsilon) * moved).sum())
        assert truth <= made.delta(epsilon) <= 1.7 * truth


# errata: the second tests, with the code


@pytest.mark.parametrize(("epsilon", "delta"), [(10.0, 1e-5), (10.0, 1e-8)])
def test_calibrated_noise_holds_where_the_classical_formula_fails(epsilon: float, delta: float) -> None:
    """Bellet 2021, Theorem A.5, beyond its range; sensitivity 100, so that the grid hardly matters."""
    bounds = Sensitivity.on_integers("substitution", dimension=2, l2=100)
    classical = Fraction(2 * math.log(1.25 / delta) * (100 / epsilon) ** 2)
    assert DiscreteGaussian(bounds, classical).delta(epsilon) > delta
    made = DiscreteGaussian.calibrate(epsilon, delta, bounds)
    assert made.delta(epsilon) <= delta
    assert made.variance > classical


def test_an_l2_bound_costs_laplace_noise_the_root_of_the_dimension() -> None:
    """Vlaski and Sayed 2020, (27): noise for an l2 bound in each of 25 coordinates is too little by 5."""
    bounds = Sensitivity.on_integers("substitution", dimension=25, l2=40)
    assert bounds.l1 == pytest.approx(200)
    assert DiscreteLaplace(bounds, Fraction(40)).epsilon(0.0) == pytest.approx(5.0)
    # and no bound is loose: a difference of 8 in each coordinate has these norms, and loses 25 * 8/40
    x = np.full(25, 1000)
    assert (np.abs(x) - np.abs(x - 8)).sum() / 40 == 5.0


# Skellam


@pytest.mark.parametrize("variance", [Fraction(1), Fraction(5)])
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_the_skellam_renyi_bound_holds_where_it_can_be_summed(variance: Fraction, shift: int) -> None:
    exact = twin.skellam(variance, 60)
    made = Skellam(Sensitivity.on_integers("substitution", l1=shift), variance)
    (known,) = (known for known in made.descriptions(1) if isinstance(known, Renyi))
    for order in (2, 3, 4, 8):
        bound = curve(known, np.array([float(order)]))
        assert bound is not None
        truth = float(twin.renyi(exact, shift, order))
        assert truth <= bound[0]
        if variance == 5 and shift == 1:
            assert bound[0] < 2 * truth


def test_skellam_and_binomial_shares_are_as_good_as_one_noise() -> None:
    for kind, whole, part in ((Skellam, Fraction(12), Fraction(3)), (Binomial, 400, 100)):
        one = kind(ONE, whole)  # type: ignore[arg-type]
        four = DistributedSum(kind(ONE, part), parties=6, missing=1, corrupt=1)  # type: ignore[arg-type]
        assert four.delta(1.0) == pytest.approx(one.delta(1.0))


# calibration


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (2.0, 1e-3)])
def test_calibration_is_enough_and_hardly_more(
    kind: type[AdditiveNoise], epsilon: float, delta: float
) -> None:
    bounds = Sensitivity.on_integers("substitution", l1=3)
    made = kind.calibrate(epsilon, delta, bounds)
    assert made.delta(epsilon) <= delta
    assert made.epsilon(delta) <= epsilon * (1 + 1e-9)
    less: AdditiveNoise
    match made:
        case DiscreteLaplace():
            less = DiscreteLaplace(bounds, made.scale * Fraction(999, 1000))
        case DiscreteGaussian():
            less = DiscreteGaussian(bounds, made.variance * Fraction(999, 1000))
        case Skellam():
            less = Skellam(bounds, made.variance * Fraction(999, 1000))
        case Binomial():
            less = Binomial(bounds, made.trials - 4)
    assert less.delta(epsilon) > delta


@pytest.mark.parametrize("kind", KINDS)
def test_distributed_calibration_counts_honest_shares_only(kind: type[AdditiveNoise]) -> None:
    made = DistributedSum.calibrate(kind, 1.0, 1e-5, ONE, parties=10, missing=2, corrupt=3)
    assert made.honest == 5
    assert made.delta(1.0) <= 1e-5
    # all ten shares would be more than is needed
    assert DistributedSum(made.share, 10).delta(1.0) < 1e-5
    assert DistributedSum(made.share, 10, corrupt=6).delta(1.0) > 1e-5


def test_pure_laplace() -> None:
    bounds = Sensitivity.on_integers("add-remove", dimension=4, l1=5)
    made = DiscreteLaplace.calibrate(0.5, 0.0, bounds)
    assert made.scale == 10
    assert made.epsilon(0.0) == 0.5
    assert made.delta(0.5) == 0.0
    assert DistributedSum(made, 3).epsilon(0.0) == 0.5
    for kind in (DiscreteGaussian, Skellam, Binomial):
        with pytest.raises(ConfigError, match="delta"):
            kind.calibrate(0.5, 0.0, bounds)


@pytest.mark.parametrize("categories", [2, 3, 100])
def test_randomised_response(categories: int) -> None:
    made = KaryRandomisedResponse.calibrate(1.0, 0.0, categories)
    assert 0.999999 < made.epsilon(0.0) <= 1.0
    # [Kairouz, Oh, Viswanath 2014]: truth e^eps times as likely as each lie
    truth = made.ratio / (made.ratio + categories - 1)
    assert float(truth) == pytest.approx(math.e / (math.e + categories - 1), rel=1e-6)
    loose = KaryRandomisedResponse.calibrate(1.0, 1e-3, categories)
    assert loose.ratio > made.ratio
    assert 0.99e-3 < loose.delta(1.0) <= 1e-3
    twice = KaryRandomisedResponse.calibrate(1.0, 0.0, categories, changed=2)
    assert 0.999999 < twice.epsilon(0.0) <= 1.0 + 1e-12


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: DiscreteGaussian(ONE, Fraction(0)), "variance"),
        (lambda: DiscreteGaussian(ONE, cast(Fraction, 2.5)), "variance"),
        (lambda: DiscreteLaplace(ONE, Fraction(-1)), "scale"),
        (lambda: Skellam(ONE, cast(Fraction, True)), "variance"),
        (lambda: Binomial(ONE, 7), "trials"),
        (lambda: Binomial(ONE, 0), "trials"),
        (lambda: KaryRandomisedResponse(1, Fraction(2)), "categories"),
        (lambda: KaryRandomisedResponse(3, Fraction(1)), "ratio"),
        (lambda: DistributedSum(Skellam(ONE, Fraction(1)), 3, missing=2, corrupt=1), "no honest share"),
        (lambda: DistributedSum(Skellam(ONE, Fraction(1)), 3, missing=-1), "missing"),
        (lambda: DiscreteGaussian(Sensitivity.on_reals("substitution", l1=1), Fraction(1)), "sensitivity"),
        (lambda: DiscreteGaussian.calibrate(0.0, 1e-6, ONE), "epsilon"),
        (lambda: DiscreteGaussian.calibrate(math.nan, 1e-6, ONE), "epsilon"),
        (lambda: DiscreteGaussian.calibrate(1.0, 1.0, ONE), "delta"),
        (lambda: KaryRandomisedResponse.calibrate(0.0, 0.0, 3), "epsilon"),
    ],
)
def test_absurd_parameters_are_named(make: Any, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        make()


# releases


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_is_the_value_and_the_noise_of_the_sampler(kind: type[AdditiveNoise]) -> None:
    bounds = Sensitivity.on_integers("substitution", dimension=3, linf=1)
    made = kind(bounds, 40 if kind is Binomial else Fraction(40))  # type: ignore[call-arg]
    released = made.release([5, -7, 0], source(kind.__name__))
    assert released.dtype == np.int64
    assert (released == np.array([5, -7, 0]) + made.noise(source(kind.__name__), 3)).all()


def test_a_distributed_release_adds_every_honest_share() -> None:
    share = Skellam(ONE, Fraction(4))
    made = DistributedSum(share, parties=5, missing=1, corrupt=1)
    drawn = source("shares")
    noise = sum(int(share.noise(drawn, 1)[0]) for _ in range(3))
    assert made.release([10], source("shares"))[0] == 10 + noise
    many = made.release_many([10], source("many"), 20_000)
    # the variance of 12 has a standard error of 12 sqrt(2/20,000) = 0.12; five of them: alarm 6e-7
    assert abs(float(many.var()) - 12) < 0.6


def test_randomised_responses_have_the_frequencies_stated() -> None:
    made = KaryRandomisedResponse(5, Fraction(3))
    answers = made.release(np.full(70_000, 2), source("answers"))
    counts = np.bincount(answers, minlength=5)
    # truth 3/7, each lie 1/7; five standard errors each, alarm 3e-6 together
    for answer, count in enumerate(counts):
        chance = 3 / 7 if answer == 2 else 1 / 7
        assert abs(count - 70_000 * chance) < 5 * math.sqrt(70_000 * chance * (1 - chance))
    with pytest.raises(PrivacyError, match="outside"):
        made.release([5], source("answers"))
    with pytest.raises(ConfigError, match="values"):
        made.release([0.5], source("answers"))


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_real_values_go_through_the_grid(kind: type[Laplace] | type[Gaussian]) -> None:
    encoding = Encoding.plan(length=4, lower=-1.0, upper=1.0, precision=1e-4, parties=1)
    bounds = Sensitivity.on_reals("substitution", dimension=4, linf=2.0)
    made = kind.calibrate(1.0, 0.0 if kind is Laplace else 1e-6, bounds, encoding)
    released = made.release([0.25, -1.0, 1.0, 0.0], source(kind.__name__))
    assert (released / encoding.step == np.rint(released / encoding.step)).all()
    with pytest.raises(PrivacyError, match="outside"):
        made.release([1.5, 0.0, 0.0, 0.0], source("x"))
    guarantee = made.guarantee(0.0 if kind is Laplace else 1e-6)
    assert guarantee.epsilon <= 1.0 + 1e-9
    assert guarantee.sensitivity["linf"] == 2.0
    if isinstance(made, Laplace):
        # l1 = 8, and 4 steps of rounding
        assert made.scale == pytest.approx(8 + 4 * encoding.step, rel=1e-6)
    else:
        assert made.sigma == pytest.approx(4 / gaussian_mu(1.0, 1e-6), rel=1e-3)
        assert made.sigma > (4 + 2 * encoding.step) / gaussian_mu(1.0, 1e-6)


def test_real_mechanisms_refuse_what_does_not_fit() -> None:
    encoding = Encoding.plan(length=4, lower=-1.0, upper=1.0, precision=1e-4, parties=1)
    whole = Encoding.plan(length=4, lower=0, upper=9, precision=None, parties=1)
    weighted = Encoding.plan(length=4, lower=-1.0, upper=1.0, precision=1e-4, parties=1, max_weight=2)
    reals = Sensitivity.on_reals("substitution", dimension=4, l2=1.0)
    for bounds, grid, where in (
        (reals, whole, "integers"),
        (reals, weighted, "weights"),
        (Sensitivity.on_reals("substitution", dimension=3, l2=1.0), encoding, "coordinates"),
        (Sensitivity.on_integers("substitution", dimension=4, l2=1.0), encoding, "reals"),
    ):
        with pytest.raises(ConfigError, match=where):
            Gaussian.calibrate(1.0, 1e-6, bounds, grid)
    forgotten = DiscreteGaussian(Sensitivity.on_integers("substitution", dimension=4, l2=1.0), Fraction(100))
    with pytest.raises(ConfigError, match="rounded"):
        Gaussian(encoding, reals, forgotten)


@pytest.mark.parametrize("values", [[1, 2], [[1]], [0.5], ["a"], [1 << 63]])
def test_values_that_do_not_fit_are_refused(values: Any) -> None:
    with pytest.raises((ConfigError, PrivacyError)):
        DiscreteGaussian(ONE, Fraction(4)).release(values, source("x"))


def test_values_near_the_end_of_int64_are_refused() -> None:
    with pytest.raises(PrivacyError, match=r"2\^62"):
        DiscreteGaussian(ONE, Fraction(4)).release([(1 << 62) + 1], source("x"))


def test_a_guarantee_says_all_that_it_depends_on() -> None:
    made = DistributedSum.calibrate(DiscreteGaussian, 1.0, 1e-3, ONE, parties=4, corrupt=1)
    reported = made.guarantee(1e-3, units=100_000)
    assert isinstance(reported, PrivacyGuarantee)
    assert reported.epsilon <= 1.0
    assert "3 honest shares" in reported.mechanism
    assert "1 collude" in reported.assumption
    assert "Kairouz" in reported.proof
    assert reported.relation == "substitution"
    (warning,) = reported.warnings
    assert "above 1/n" in warning
    assert made.guarantee(1e-3, units=10).warnings == ()
    assert set(reported.to_json()) == set(PrivacyGuarantee.__struct_fields__)
    with pytest.raises(PrivacyError, match="no epsilon"):
        DiscreteGaussian(ONE, Fraction(4)).guarantee(0.0)
