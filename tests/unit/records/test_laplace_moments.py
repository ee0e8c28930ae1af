"""Variances, correlations, regressions and differences of means under Laplace noise. Seeds are fixed."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.features import Block
from smpc_dp.records.formula import Design
from smpc_dp.records.intervals import (
    NORMAL,
    ErrorDistribution,
    normal_quantile,
    sum_quantile,
    widest_quantile,
)
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.population import first_order
from smpc_dp.records.projected_noise import projected_square
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.regression import chi_square, normal_equations
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import read_table
from tests.unit.records.test_comparisons import Rows, answers, ends, schema_of

# Rows of normal numbers, which the bounds seldom cut: normal theory holds.
MEANS, DEVIATIONS, RATIO = (24.0, 26.0), (6.0, 5.0), 0.5
KNOWN = {
    "variance(x)": {"variance(x)": 36.0},
    "covariance(x, y)": {"covariance(x, y)": 18.0, "covariance(y, y)": 25.0},
    "correlation(x, y)": {"correlation(x, y)": 0.6},
    "regression(y ~ x)": {"slope of x": RATIO, "intercept": 14.0},
    "difference(x) by arm": {"difference": 0.0},
}
FEW, MANY = 40, 10_000
# The deviation of the noise of each sum, in rows; that of a correlation to first order is small in these.
NOISE, OF_CORRELATION = 4.0, 1.5


def people(rng: np.random.Generator, size: int = 1500) -> Rows:
    """Return rows of which y has a half of x, and the variance that makes its deviation 5."""
    x = rng.normal(MEANS[0], DEVIATIONS[0], size)
    y = MEANS[1] + RATIO * (x - MEANS[0]) + rng.normal(0.0, 4.0, size)
    return {"x": x, "y": y, "arm": rng.choice(["old", "new"], size)}


def missed(text: str, repetitions: int) -> dict[str, float]:
    """Return how often the interval of noise and sampling is beside what is true, by number."""
    rng, known = np.random.default_rng(41), KNOWN[text]
    noise = OF_CORRELATION if text.startswith("correlation") else NOISE
    outside: Counter[str] = Counter()
    for seed in range(repetitions):
        for one in answers(text, people(rng), noise, seed, laplace=True):
            part = next((part for part in known if part in one.name), None)
            if part is not None:
                low, high = ends(one)
                outside[part] += not low <= known[part] <= high
    return {part: outside[part] / repetitions for part in known}


@pytest.mark.thin(2)
@pytest.mark.parametrize("text", KNOWN)
def test_intervals_of_a_population_seldom_miss_it(text: str) -> None:
    """Of 40 intervals of level .95 eight or more miss with a chance of 7e-4 for each number."""
    assert max(missed(text, FEW).values()) <= 7 / FEW


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("text", KNOWN)
def test_intervals_of_a_population_have_their_level(text: str) -> None:
    """Three standard errors of a share of 10,000: a false alarm of .3 % for each number."""
    for share in missed(text, MANY).values():
        assert share == pytest.approx(0.05, abs=0.0065)


def test_the_interval_of_a_population_has_the_law_of_its_noise() -> None:
    laplace = ErrorDistribution(1.0)
    made = first_order(1.0, 5.0, 1e-9, 0.05, [(3.0, laplace), (4.0, laplace)])
    normal = first_order(1.0, 5.0, 1e-9, 0.05, [(3.0, NORMAL), (4.0, NORMAL)])
    assert made is not None
    assert normal is not None
    assert made.ends is not None
    assert normal.ends == pytest.approx((1 - 5 * normal_quantile(0.05), 1 + 5 * normal_quantile(0.05)))
    z = sum_quantile([(0.6, laplace), (0.8, laplace)], 0.05)
    assert z > 1.03 * normal_quantile(0.05)
    assert made.ends == pytest.approx((1 - 5 * z, 1 + 5 * z), rel=1e-6)


def test_a_regression_has_the_bound_of_the_law_of_its_noise() -> None:
    """With little noise half the width is the root of the bound times the standard error."""
    rows = people(np.random.default_rng(1))
    for laplace, square in ((False, chi_square(2, 0.05)), (True, projected_square(2, 0.05))):
        one = answers("regression(y ~ x)", rows, 1e-3, 1, laplace=laplace)[-1]
        assert one.low is not None
        assert one.high is not None
        assert one.standard_error is not None
        half = (one.high - one.low) / 2
        assert half == pytest.approx(math.sqrt(square) * one.standard_error, rel=1e-3)


@pytest.mark.parametrize("text", ["regression(y ~ x) by arm", "regression(y ~ x + arm)"])
def test_each_noise_of_a_regression_has_its_law(text: str) -> None:
    """In each group those of its own cells; what is left of the coefficients keeps all of them."""
    rows = people(np.random.default_rng(2))
    asked = schema_of(tuple(rows))
    (one,) = read_ask(text, asked)
    design = Design(one, asked)
    laws = {block: ErrorDistribution(float(place)) for place, block in enumerate(design.factors, 1)}
    blocks = {block: (np.ones(block.cells), 1.0) for block in laws}
    groups = 2 if one.by else 1
    for group in range(groups):
        made = normal_equations(design, NoisySums(asked, blocks, laws, 3), group)
        assert made.distributions == tuple(
            law for block, law in laws.items() for _ in range(block.cells // groups)
        )
        assert len(made.distributions) == len(made.into_square) == len(made.into_right)
        left = made.of([True] + [False] * (len(made.right) - 1))
        assert (len(left.distributions), left.into_right.shape[1]) == (len(made.distributions), 1)


def test_regressions_by_groups_have_the_bound_of_their_own_coefficients() -> None:
    rows = people(np.random.default_rng(1))
    made = answers("regression(y ~ x) by arm", rows, 1e-3, 1, laplace=True)
    assert len(made) == 4
    for one in made:
        assert one.low is not None
        half = ((one.high or 0.0) - one.low) / 2
        expected = math.sqrt(projected_square(2, 0.05)) * (one.standard_error or 0.0)
        assert half == pytest.approx(expected, rel=1e-3)


def schema(rows: str = "private") -> Schema:
    columns = {name: {"lower": 0.0, "upper": 50.0, "missing": False} for name in "xy"}
    return read_schema({"columns": columns, "max_rows": 5000, "rows_expected": 20_000, "rows": rows})


def planned(ask: str, *, laplace: bool = True) -> Plan:
    given = {"epsilon": 1.0, "delta": 1e-6, "parties": 4}
    return plan_request(schema(), ask, **given, laplace=laplace, split="balanced")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["variance(x)", "covariance(x, y)", "correlation(x, y)", "regression(y ~ x)"]
)
def test_an_answer_alone_has_the_smaller_noise(text: str) -> None:
    """By more than a sixth, of three to six sums at epsilon 1."""
    plans = [planned(text, laplace=one) for one in (True, False)]
    assert plans[0].laplace is not None
    assert plans[1].laplace is None
    errors = [one.errors(4)[0].standard_error or math.inf for one in plans]
    assert errors[0] < 0.83 * errors[1]


@pytest.mark.parametrize("text", ["variance(x{})", "covariance(x, y{})", "correlation(x, y{})"])
def test_beside_a_robust_answer_the_plain_one_has_its_noise(text: str) -> None:
    """Both have one law, which is normal; a count of other rows has its own."""
    plain, robust = text.format(""), text.format(", robust")
    plan = planned(f"{plain}; {robust}; count where x > 20")
    of_moments = [one.block for one in plan.blocks if not one.block.where]
    assert len(of_moments) > 2
    assert not plan.laplace_blocks & {*of_moments}
    assert plan.laplace_blocks
    total = plan.vector(read_table(people(np.random.default_rng(4), 4000), plan.schema))
    made = estimate(plan, total, 4)
    for first, second in zip(made.of(plain), made.of(robust), strict=True):
        assert first.value is not None
        assert (first.value, first.low, first.standard_error) == (
            second.value,
            second.low,
            second.standard_error,
        )
        assert second.note != first.note
    assert planned(plain).laplace_blocks


def test_many_sums_have_gaussian_noise() -> None:
    columns = {f"x{index}": {"lower": 0.0, "upper": 1.0, "missing": False} for index in range(8)}
    many = read_schema({"columns": columns, "max_rows": 5000, "rows_expected": 20_000})
    ask = f"covariance({', '.join(columns)})"
    given = {"epsilon": 1.0, "delta": 1e-6, "parties": 4, "laplace": True, "split": "balanced"}
    assert plan_request(many, ask, **given).laplace is None  # type: ignore[arg-type]


@pytest.mark.parametrize("outside", [0.05, 0.01, 1e-4])
def test_no_weighted_sum_has_a_quantile_beyond_the_widest(outside: float) -> None:
    """Of 40 sums of up to 20 noises, some of them normal; a part in a million is the grid's."""
    rng = np.random.default_rng(3)
    for shape in (1.0, 1.3):
        distribution = ErrorDistribution(shape)
        widest = widest_quantile(distribution, outside)
        for _ in range(20):
            weights = rng.standard_gamma(rng.choice([0.1, 1.0, 10.0]), rng.integers(2, 21))
            parts = [(float(one), NORMAL if rng.random() < 0.2 else distribution) for one in weights]
            assert sum_quantile(parts, outside) <= widest * (1 + 1e-5)
    assert widest_quantile(NORMAL, outside) == normal_quantile(outside)


def test_the_error_of_a_correlation_is_that_of_moving_each_sum() -> None:
    """By differences: all sums together, whose noises are independent."""
    rows = people(np.random.default_rng(3))
    schema = schema_of(tuple(rows))
    (one,) = read_ask("correlation(x, y)", schema)
    (term,), table, error = statistic_of(one).terms(one, schema), read_table(rows, schema), 1e-3
    sums = {block: np.array([float(value) for value in block.sums(table)]) for block in term.squares}

    def made(moved: Block | None) -> Estimate:
        size = {block: block.greatest(schema) for block in sums}
        blocks = {
            block: (values + (error * size[block] if block == moved else 0.0), error * size[block])
            for block, values in sums.items()
        }
        return next(statistic_of(one).estimates(one, NoisySums(schema, blocks, {}, 3), Display(0.05, 3.0)))

    own = made(None)
    moves = [(made(block).value or 0.0) - (own.value or 0.0) for block in sums]
    assert own.standard_error == pytest.approx(math.hypot(*moves), rel=1e-3)
