"""Wide discrete Gaussian noise on shares: its tables, distribution, accounting and program."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from smpc_dp.capabilities.servers.simulation.shared import run_alone, run_ideal
from smpc_dp.capabilities.servers.statistics import wide
from smpc_dp.capabilities.servers.statistics.noise import noise_terms, width
from smpc_dp.capabilities.servers.statistics.plan import wide_sum_program
from smpc_dp.capabilities.servers.statistics.wide import product, wide_reach
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Gaussian
from smpc_dp.privacy.central_gaussian import (
    DISTANCE,
    GREATEST_EPSILON,
    MOST_VARIANCE,
    NUMBER_BITS,
    SLOTS,
    WHOLE_BITS,
    WideGaussian,
    table_of,
)
from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

# The chance that a sound implementation fails one of the chi-square tests.
FALSE_ALARM = 1e-6
BOUNDS = Sensitivity.on_integers("substitution", dimension=10, l2=8192.0)
# Its two levels are not smooth: a distribution that shows each of them.
SMALL = WideGaussian(1, 2.0, 2.0, 2.0, Fraction(9, 4), 3, 2)


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(31, 7), Fraction(MOST_VARIANCE)])
def test_a_table_is_the_discrete_gaussian_within_its_distance(variance: Fraction) -> None:
    masses, thresholds, aliases = table_of(variance)
    drawn = [0] * SLOTS
    for index, (cut, alias) in enumerate(zip(thresholds, aliases, strict=True)):
        assert 0 <= cut <= 1 << NUMBER_BITS
        drawn[index] += cut
        drawn[alias] += (1 << NUMBER_BITS) - cut
    assert drawn == list(masses)
    assert sum(masses) == 1 << WHOLE_BITS
    with localcontext(Context(prec=80)):
        rate = Decimal(variance.denominator) / (2 * Decimal(variance.numerator))
        bell = {x: (-rate * x * x).exp() for x in range(-700, 701)}
        whole = sum(bell.values())
        own = {index - SLOTS // 2: Decimal(mass) / (1 << WHOLE_BITS) for index, mass in enumerate(masses)}
        off = sum(abs(mass / whole - own.get(x, Decimal(0))) for x, mass in bell.items()) / 2
    assert off < DISTANCE


def distribution_of(design: WideGaussian, ideal: bool) -> dict[int, float]:
    """Return the masses of a draw, from its table or from exact discrete Gaussians."""
    half = SLOTS // 2
    if ideal:
        x = np.arange(-half, half)
        masses = np.exp(-(x.astype(float) ** 2) / (2 * float(design.variance_0)))
        masses /= masses.sum()
    else:
        masses = np.array([mass / 2**WHOLE_BITS for mass in table_of(design.variance_0)[0]])
    distribution = {0: 1.0}
    for level in range(design.levels):
        step = design.factor**level
        parts: dict[int, float] = {}
        for value, mass in distribution.items():
            for index in np.flatnonzero(masses > 1e-40):
                moved = value + int(index - half) * step
                parts[moved] = parts.get(moved, 0.0) + mass * masses[index]
        distribution = parts
    return distribution


@pytest.mark.parametrize(
    ("variance", "factor", "levels"), [("1", 2, 2), ("3/2", 2, 3), ("3", 3, 2), ("2", 2, 4)]
)
def test_a_sum_of_scaled_draws_is_within_its_ripples(variance: str, factor: int, levels: int) -> None:
    """The proof's bound, where it is far above rounding: it holds, and is not five times too large."""
    design = WideGaussian(1, 1.0, 1.0, 1.0, Fraction(variance), factor, levels)
    distribution = distribution_of(design, ideal=True)
    total = float(design.parameter)
    # Not so far out that the tables' ends are seen.
    near = [x for x in distribution if abs(x) < 5 * math.sqrt(total)]
    logs = [math.log(distribution[x]) + x * x / (2 * total) for x in near]
    spread = max(logs) - min(logs)
    assert 1e-8 < spread <= design.closeness * (1 + 1e-6)
    assert design.closeness < 5 * spread


@pytest.mark.parametrize("variance", [1, 400, 10**4, 10**6, 10**9, 10**13])
def test_levels_reach_every_width_and_are_smooth(variance: int) -> None:
    bounds = Sensitivity.on_integers("substitution", dimension=3, l2=math.sqrt(variance))
    design = WideGaussian.calibrate(4.0, 1e-5, bounds)
    wanted = DiscreteGaussian.calibrate(4.0, 1e-5, bounds).variance
    assert wanted <= design.parameter <= wanted * 1.01 + Fraction(1, 100)
    assert design.closeness < 1e-13
    assert table_of(design.variance_0)


@pytest.mark.parametrize(
    ("dimension", "l2", "epsilon", "delta"),
    [(2, 3.0, 6.8435523, 1.6373e-10), (100, 10000.5, 0.1567, 1.57e-10)],
)
def test_a_release_is_within_its_own_budget_slack_included(
    dimension: int, l2: float, epsilon: float, delta: float
) -> None:
    """With a curator's variance alone these are above it, the first by three hundredths."""
    bounds = Sensitivity.on_integers("substitution", dimension=dimension, l2=l2)
    design = WideGaussian.calibrate(epsilon, delta, bounds)
    assert Composition([design.event()]).epsilon(delta) <= epsilon
    assert design.parameter <= DiscreteGaussian.calibrate(epsilon, delta, bounds).variance * 11 / 10


def test_noise_that_is_too_wide_is_refused() -> None:
    wide = Sensitivity.on_integers("substitution", dimension=1, l2=1e14)
    with pytest.raises(ConfigError, match="wider than tables on shares"):
        WideGaussian.calibrate(1e-3, 1e-9, wide)


def test_the_accountant_is_told_a_curators_noise_and_the_tables_distance() -> None:
    design = WideGaussian.calibrate(1.0, 1e-6, BOUNDS)
    event = design.event()
    curator = DiscreteGaussian(BOUNDS, design.parameter).event()
    for count in (1, 30):
        spent = Composition([event] * count).epsilon(1e-6)
        alone = Composition([curator] * count).epsilon(1e-6)
        assert alone <= spent <= alone * (1 + 1e-6)
    assert Composition([event]).epsilon(1e-6) <= 1.0
    assert event.slack >= (1 + math.exp(GREATEST_EPSILON)) * DISTANCE * 10 * design.levels
    loose = WideGaussian(10, BOUNDS.l1, BOUNDS.l2, BOUNDS.linf, Fraction(2), 2, 3)
    known = loose.event().descriptions[0]
    plain = DiscreteGaussian(BOUNDS, loose.parameter).event().descriptions[0]
    assert isinstance(known, Gaussian)
    assert isinstance(plain, Gaussian)
    assert known.closeness == pytest.approx(plain.closeness + 10 * loose.closeness)
    assert loose.closeness > 1e-4


def chi_square(drawn: NDArray[np.int64], distribution: dict[int, float]) -> float:
    """Return the p-value of draws, all outcomes that are rarely expected taken together."""
    values = sorted(x for x, mass in distribution.items() if mass * len(drawn) >= 10)
    expected = [distribution[x] * len(drawn) for x in values]
    observed = [int(np.sum(drawn == x)) for x in values]
    rest = len(drawn) - sum(expected)
    return float(stats.chisquare([*observed, len(drawn) - sum(observed)], [*expected, rest]).pvalue)


@pytest.mark.long
def test_programs_and_simulations_draw_the_law_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program draws in parts: here 200 levels at once, which are 100 of the 300 draws."""
    monkeypatch.setattr(wide, "AT_ONCE", 200)
    distribution = distribution_of(SMALL, ideal=False)
    drawn = SMALL.draws(SeededRandomnessForSimulation(1, "wide"), 40_000)
    assert chi_square(drawn, distribution) > FALSE_ALARM
    program = wide_sum_program(2, [(0, 3)] * 300, SMALL, 1.0, 1e-6)
    records = np.stack([np.full(300, 2), np.full(300, 1)])
    # Real random bits: a sound program fails once in a million runs.
    shared = np.array(run_alone(program, records.tolist())) - 3
    assert chi_square(shared, distribution) > FALSE_ALARM
    ideal = run_ideal(program, records, SeededRandomnessForSimulation(2, "wide"))
    assert chi_square(np.array(ideal) - 3, distribution) > FALSE_ALARM


class Words:
    """Gives the words that make these draws: (place, number of 87 bits)."""

    def __init__(self, draws: list[tuple[int, int]]) -> None:
        self.content = b"".join(
            (index | (number & ((1 << 24) - 1)) << 40).to_bytes(8, "little")
            + (number >> 24 << 1).to_bytes(8, "little")
            for index, number in draws
        )

    def bytes(self, n: int) -> bytes:
        assert n == len(self.content)
        return self.content


def test_a_simulated_draw_is_exact_at_every_threshold() -> None:
    """To the last of 87 bits: just below it the place itself, from it on its alias."""
    design = WideGaussian(1, 1.0, 1.0, 1.0, Fraction(77, 3), 1, 1)
    _, thresholds, aliases = table_of(design.variance_0)
    requested, expected = [], []
    for index, (cut, alias) in enumerate(zip(thresholds, aliases, strict=True)):
        for number, value in ((0, index if cut else alias), (cut - 1, index), (cut, alias)):
            if 0 <= number < 1 << NUMBER_BITS:
                requested.append((index, number))
                expected.append(value - SLOTS // 2)
    assert design.draws(Words(requested), len(requested)).tolist() == expected


def test_products_with_a_table_are_exact() -> None:
    generator = np.random.default_rng(3)
    modulus = (1 << 521) - 1
    numbers = np.array([[modulus - 1 - int(x) for x in row] for row in generator.integers(0, 99, (3, SLOTS))])
    table = generator.integers(-511, 512, (SLOTS, 4))
    expected = numbers.astype(object) @ table.astype(object)
    assert (product(numbers.astype(object), table, modulus) == expected).all()


def test_a_program_keeps_the_sum_in_its_field_and_names_who_is_out_of_bounds() -> None:
    design = WideGaussian.calibrate(1.0, 1e-6, BOUNDS)
    program = wide_sum_program(3, [(0, 8192)] * 2, design, 1.0, 1e-6)
    terms = program.terms
    assert wide_reach(terms.noise[0]) == design.reach
    assert width(terms.noise[0]) == design.reach.bit_length() + 1
    assert 1 << (terms.bits - 1) > 3 * 8192 + design.reach
    *opened, refused = run_alone(program, [[1, 2], [8193, 0], [3, 8192]])
    assert refused == 1
    deviation = math.sqrt(design.variance)
    # Beyond seven standard deviations once in 4e11.
    assert all(
        abs(value - expected) < 7 * deviation for value, expected in zip(opened, (4, 8194), strict=True)
    )


@pytest.mark.parametrize("cuts", [("1", "1"), ("0", "2", *["0"] * SLOTS), ("3", "99", *["0"] * SLOTS)])
def test_terms_of_no_table_are_refused(cuts: tuple[str, ...]) -> None:
    terms = msgspec.structs.replace(noise_terms(SMALL), cuts=cuts)
    with pytest.raises(ConfigError, match="wide Gaussian noise"):
        wide_reach(terms)
