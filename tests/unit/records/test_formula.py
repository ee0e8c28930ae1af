"""Formulas of regressions: what is read and refused, design, sensitivity, estimates and intervals."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.features import product
from smpc_dp.records.fit import COEFFICIENT, plan_fit
from smpc_dp.records.fit_answers import fitted
from smpc_dp.records.formula import Design
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.registered import terms_of
from smpc_dp.records.regression import NO_SAMPLING, REFUSED
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, largest_distance, largest_norm
from smpc_dp.records.table import read_table
from smpc_dp_verify.asked import all_terms
from smpc_dp_verify.asked import read_ask as read_again
from smpc_dp_verify.columns import read_table as read_columns
from tests.unit.records.brute_force import features, largest, rows_of

Floats = NDArray[np.float64]
SCHEMA: dict[str, Any] = {
    "columns": {
        "pressure": {"lower": 80.0, "upper": 200.0},
        "age": {"lower": 20.0, "upper": 90.0, "step": 1.0},
        "bmi": {"lower": 15.0, "upper": 45.0, "step": 0.5},
        "arm": {"values": ["a", "b", "c"], "reference": "b"},
        "sex": {"values": ["f", "m"]},
        "one": {"values": ["only"]},
        "fine": {"lower": 0.0, "upper": 1.0},
        "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0},
    },
    "max_rows": 100_000,
    "rows_expected": 50,
}
FORMULA = "regression(pressure ~ arm * sex + age * bmi)"


def schema_of(**changes: Any) -> Schema:
    return read_schema(SCHEMA | {"rows_expected": 20_000} | changes)


@pytest.mark.parametrize(
    ("formula", "products"),
    [
        ("pressure ~ age", ["age"]),
        ("pressure ~ arm * sex + age", ["arm", "sex", "age", "arm:sex"]),
        ("pressure ~ age:bmi + age + bmi", ["age", "bmi", "age:bmi"]),
        ("pressure ~ arm * sex + age * arm", ["arm", "sex", "age", "arm:sex", "age:arm"]),
        (
            "pressure ~ age * arm * sex",
            ["age", "arm", "sex", "age:arm", "age:sex", "arm:sex", "age:arm:sex"],
        ),
        ("pressure ~ age + bmi + sex * age:bmi + sex:age + sex:bmi", None),
    ],
)
def test_star_stands_for_all_products_and_colon_binds_first(formula: str, products: list[str] | None) -> None:
    (one,) = read_ask([f"regression({formula})"], schema_of())
    if products is None:
        products = ["age", "bmi", "sex", "age:bmi", "sex:age", "sex:bmi", "sex:age:bmi"]
    assert [":".join(product) for product in one.products] == products
    assert one.columns == ("pressure", *dict.fromkeys(itertools.chain(*one.products)))


def test_each_category_but_the_reference_has_a_coefficient() -> None:
    schema = schema_of()
    (one,) = read_ask(["regression(pressure ~ arm * age)"], schema)
    design = Design(one, schema)
    assert [design.label(each) for each in design.coefficients] == [
        "intercept",
        "arm = a against b",
        "arm = c against b",
        "slope of age",
        "slope of age, arm = a against b",
        "slope of age, arm = c against b",
    ]


MANY = " + ".join(f"v{index}" for index in range(10_000))


@pytest.mark.parametrize(
    ("formula", "check", "part"),
    [
        ("pressure ~ weight", ConfigCheck.UNKNOWN_NAME, "no column 'weight'"),
        ("sex ~ age", ConfigCheck.TYPE, "column 'sex' has categories"),
        ("pressure ~ pressure", ConfigCheck.CONFLICT, "the response 'pressure' is among its regressors"),
        ("pressure ~ age + age", ConfigCheck.DUPLICATE, "age is there twice"),
        ("pressure ~ age * sex + sex * age", ConfigCheck.DUPLICATE, "age:sex is there twice"),
        ("pressure ~ age * age", ConfigCheck.DUPLICATE, "a column is twice in the product age:age"),
        ("pressure ~ age:sex + sex", ConfigCheck.MISSING, "age:sex needs each product of fewer"),
        ("pressure ~ age - sex", ConfigCheck.FORMAT, "'- sex)' cannot be read"),
        ("pressure ~ age ^ 2", ConfigCheck.FORMAT, "'^ 2"),
        ("pressure ~ age + 1", ConfigCheck.FORMAT, "a column is expected, not 1"),
        ("pressure ~ (age + sex) * arm", ConfigCheck.FORMAT, "a column is expected, not ("),
        ("pressure ~ " + "(" * 100_000, ConfigCheck.FORMAT, "a column is expected, not ("),
        ("pressure ~ __import__", ConfigCheck.UNKNOWN_NAME, "no column '__import__'"),
        ("pressure ~", ConfigCheck.FORMAT, "a column is expected, not )"),
        ("pressure", ConfigCheck.FORMAT, "~ is expected, not )"),
        (f"pressure ~ {MANY}", ConfigCheck.TOO_LARGE, "at most 100 products of columns"),
        (f"pressure ~ {MANY.replace('+', '*')}", ConfigCheck.TOO_LARGE, "a product of at most 3 columns"),
        (f"pressure ~ {MANY.replace('+', ':')}", ConfigCheck.TOO_LARGE, "a product of at most 3 columns"),
        ("pressure ~ one", ConfigCheck.RANGE, "column 'one' has one category"),
        ("pressure ~ fine * age", ConfigCheck.TOO_LARGE, "the squares of fine:age have 60.3 bits"),
        ("pressure ~ age) by (sex", ConfigCheck.FORMAT, "a column is expected, not ("),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_a_wrong_formula_is_refused_with_its_bound(formula: str, check: ConfigCheck, part: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_ask([f"regression({formula})"], schema_of())
    (issue,) = raised.value.issues
    assert issue.check == check
    assert part in issue.reason
    assert len(issue.where) < 200


def test_too_many_coefficients_are_refused() -> None:
    wide = {"values": [str(index) for index in range(60)]}
    columns = SCHEMA["columns"] | {"ward": wide, "hall": wide}
    with pytest.raises(ConfigError, match="119 coefficients, at most 60"):
        read_ask("regression(pressure ~ ward + hall)", schema_of(columns=columns))
    with pytest.raises(ConfigError, match="60 coefficients, more than rows_expected = 50"):
        read_ask("regression(pressure ~ ward)", read_schema(SCHEMA | {"columns": columns}))
    with pytest.raises(ConfigError, match="60 coefficients, more than rows_expected = 50"):
        read_ask("logistic(ill ~ ward)", read_schema(SCHEMA | {"columns": columns}))
    many = {f"c{index}": {"values": ["no", "yes"]} for index in range(59)}
    with pytest.raises(ConfigError, match="6963 cells of sums, at most 4096"):
        read_ask(f"regression(pressure ~ {' + '.join(many)})", schema_of(columns=SCHEMA["columns"] | many))


def test_a_reference_that_is_no_category_is_refused() -> None:
    columns = {"arm": {"values": ["a", "b"], "reference": "z"}}
    with pytest.raises(ConfigError, match=r"columns\.arm\.reference: 'z' is none of `values`: a, b$"):
        read_schema({"columns": columns, "max_rows": 5})


@pytest.mark.parametrize(
    ("by", "check", "part"),
    [
        ("age", ConfigCheck.MISSING, "column 'age' needs `bins`"),
        ("sex", ConfigCheck.DUPLICATE, "column 'sex' is in the formula, and makes groups"),
        ("arm x arm", ConfigCheck.DUPLICATE, "a column is there twice"),
        ("weight", ConfigCheck.UNKNOWN_NAME, "no column 'weight'"),
        ("arm", ConfigCheck.RANGE, "9 coefficients of all groups, more than rows_expected = 8"),
    ],
)
def test_wrong_groups_of_a_regression_are_refused(by: str, check: ConfigCheck, part: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_ask([f"regression(pressure ~ sex + bmi) by {by}"], schema_of(rows_expected=8))
    (issue,) = raised.value.issues
    assert issue.check == check
    assert part in issue.reason


def test_a_loop_of_requests_has_no_groups() -> None:
    with pytest.raises(ConfigError, match="a logistic has no groups"):
        read_ask(["logistic(ill ~ age) by sex"], schema_of())


def trial(rows: int, seed: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    age, bmi = rng.integers(20, 91, rows).astype(float), rng.integers(30, 91, rows) / 2
    arm, sex = rng.choice(["a", "b", "c"], rows), rng.choice(["f", "m"], rows)
    mean = 120 + 4 * (arm == "a") - 3 * (sex == "m") + 6 * ((arm == "c") & (sex == "m"))
    mean = mean + 0.2 * (age - 55) + 0.4 * (bmi - 30) + 0.01 * (age - 55) * (bmi - 30)
    ill = (rng.random(rows) < 1 / (1 + np.exp(-(mean - 125) / 10))).astype(float)
    pressure = np.clip(rng.normal(mean, 8), 80, 200)
    return {"pressure": pressure, "age": age, "bmi": bmi, "arm": arm, "sex": sex, "ill": ill}


def textbook(table: dict[str, NDArray[Any]]) -> tuple[Floats, Floats]:
    """Return the coefficients of FORMULA by least squares, and their usual standard errors."""
    a, c, m = (table["arm"] == "a"), (table["arm"] == "c"), (table["sex"] == "m")
    age, bmi = table["age"], table["bmi"]
    parts = [np.ones(len(age)), a, c, m, age, bmi, a & m, c & m, age * bmi]
    x = np.stack([np.asarray(part, float) for part in parts], axis=1)
    y = table["pressure"]
    beta, *_ = np.linalg.lstsq(x, y, rcond=None)
    variance = ((y - x @ beta) ** 2).sum() / (len(y) - x.shape[1])
    return beta, np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))


def planned(schema: Schema, ask: str = FORMULA, epsilon: float = 8.0, parties: int = 2) -> Plan:
    return plan_request(schema, ask, epsilon=epsilon, delta=1e-6, parties=parties, corrupt=0)


@pytest.mark.parametrize("rows", ["private", "public"])
def test_sums_without_noise_give_the_least_squares_of_complete_rows(rows: str) -> None:
    """Coefficients and standard errors of the pooled rows that have all columns."""
    schema = schema_of(rows=rows)
    tables = [trial(4000, 1), trial(5000, 2)]
    tables[0]["arm"][:300] = ""
    tables[0]["age"][200:400] = np.nan
    tables[1]["sex"][:100] = "undeclared"
    extra = {"one": np.array([""] * 4000), "fine": np.zeros(4000)}
    plan = planned(schema, epsilon=100.0)
    total = np.zeros(plan.length, dtype=np.int64)
    for table in tables:
        more = {name: np.resize(values, len(table["age"])) for name, values in extra.items()}
        total += plan.vector(read_table(table | more, schema))
    answers = estimate(plan, total, 2, rows=9000 if rows == "public" else None)
    kept = [
        {name: values[400 if index == 0 else 100 :] for name, values in table.items()}
        for index, table in enumerate(tables)
    ]
    pooled = {name: np.concatenate([table[name] for table in kept]) for name in kept[0]}
    beta, errors = textbook(pooled)
    values = np.array([one.value for one in answers.estimates])
    assert np.abs(values - beta).max() < 1e-3 * np.abs(errors).min()
    assert [one.sampling_error for one in answers.estimates] == pytest.approx(errors.tolist(), rel=2e-3)
    assert answers.estimates[0].over == pytest.approx(8500)


GROUPS = ["f", "m"]


def of_groups(rows: dict[str, NDArray[Any]]) -> list[tuple[Floats, Floats]]:
    """Return for each sex the least squares of pressure ~ arm * age, and their usual standard errors."""
    result = []
    for sex in GROUPS:
        own = {name: values[rows["sex"] == sex] for name, values in rows.items()}
        a, c = (np.asarray(own["arm"] == arm, float) for arm in "ac")
        x = np.stack([np.ones(len(a)), a, c, own["age"], a * own["age"], c * own["age"]], axis=1)
        beta, *_ = np.linalg.lstsq(x, own["pressure"], rcond=None)
        variance = ((own["pressure"] - x @ beta) ** 2).sum() / (len(a) - 6)
        result.append((beta, np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))))
    return result


def all_columns(rows: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    count = len(rows["age"])
    return rows | {"one": np.full(count, "only"), "fine": np.zeros(count)}


@pytest.mark.parametrize("rows", ["private", "public"])
def test_each_group_has_the_least_squares_of_its_own_rows(rows: str) -> None:
    """A row without a sex is in no group, one without a value of the formula does not count."""
    schema, table = schema_of(rows=rows), trial(9000, 1)
    table["sex"][:200] = ""
    table["age"][100:400] = np.nan
    plan = planned(schema, "regression(pressure ~ arm * age) by sex", epsilon=100.0)
    total = plan.vector(read_table(all_columns(table), schema))
    estimates = estimate(plan, total, 2, rows=9000 if rows == "public" else None).estimates
    assert [one.cell for one in estimates] == [{"sex": sex} for sex in GROUPS for _ in range(6)]
    kept = {name: values[400:] for name, values in table.items()}
    for index, (beta, errors) in enumerate(of_groups(kept)):
        own = estimates[6 * index : 6 * index + 6]
        assert np.abs(np.array([one.value for one in own]) - beta).max() < 2e-3 * np.abs(errors).max()
        assert [one.sampling_error for one in own] == pytest.approx(errors.tolist(), rel=5e-3)
        assert own[0].over == pytest.approx(np.sum(kept["sex"] == GROUPS[index]))


@pytest.mark.parametrize("by", ["sex", "sex x one"])
def test_both_auditors_spread_the_rows_over_groups(by: str) -> None:
    ask, given = f"regression(pressure ~ arm + age) by {by}", SCHEMA | {"rows_expected": 20_000}
    (term,) = (term for one in read_ask([ask], schema_of()) for term in terms_of(one, schema_of()))
    table = read_columns(given)
    (other,) = all_terms(read_again([ask], table), table)
    assert (other.text, other.range, other.groups) == (term.text, term.range, term.groups) == (ask, 1.0, 2)
    assert [*other.factors.values()] == [*term.squares.values()]
    assert [block.cells for block in other.factors] == [block.cells for block in term.squares]


def test_groups_share_one_budget() -> None:
    """A row is in one group: the bound on a row, and the noise of a sum, are those without groups."""
    schema = schema_of()
    whole, apart = (planned(schema, f"regression(pressure ~ arm + age){by}") for by in ("", " by sex"))
    assert apart.length == 2 * whole.length
    for plan in (whole, apart):
        square = sum(one.square(schema) for one in plan.blocks)
        assert largest_norm(plan.blocks, schema) == pytest.approx(square, rel=1e-8)
    first, second = ([plan.deviation_of(one.block, 2) for one in plan.blocks] for plan in (whole, apart))
    assert second == pytest.approx(first, rel=0.03)
    assert apart.errors(2)[0].relative == pytest.approx(2 * (whole.errors(2)[0].relative or 0.0), rel=0.03)


@pytest.mark.thin(2)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_intervals_of_groups_cover_their_rows_and_the_population(epsilon: float) -> None:
    """Of twelve coefficients, as of one regression above: .033 is a false alarm in 300."""
    schema, rng, rows = schema_of(), np.random.default_rng(14), 12_000
    plan = planned(schema, "regression(pressure ~ arm * age) by sex", epsilon=epsilon)
    made = trial(rows, 13)
    table = read_table(all_columns(made), schema)
    truth = {"f": np.array([109.0, 4.0, 0.0, 0.2, 0.0, 0.0]), "m": np.array([106.0, 4.0, 6.0, 0.2, 0.0, 0.0])}
    a, c = (np.asarray(made["arm"] == arm, float) for arm in "ac")
    x = np.stack([np.ones(rows), a, c, made["age"], a * made["age"], c * made["age"]], axis=1)
    where = {sex: made["sex"] == sex for sex in GROUPS}
    means = sum(where[sex] * (x @ truth[sex]) for sex in GROUPS)
    inside, draws, column = np.zeros((2, 12)), 150, schema.number("pressure", "pressure")
    for _ in range(draws):
        pressure = rng.normal(means, 8)
        table.codes["pressure"][:] = 2 * column.points(pressure) - column.steps
        noise = np.rint(rng.normal(0, plan.deviation(2), plan.length)).astype(np.int64)
        estimates = estimate(plan, plan.vector(table) + noise, 2).estimates
        beta = [np.linalg.lstsq(x[where[sex]], pressure[where[sex]], rcond=None)[0] for sex in GROUPS]
        for index, (one, fit, mean) in enumerate(
            zip(estimates, np.concatenate(beta), np.concatenate([*truth.values()]), strict=True)
        ):
            assert one.low is not None
            assert one.high is not None
            assert one.population_low is not None
            assert one.population_high is not None
            inside[0, index] += one.low <= fit <= one.high
            inside[1, index] += one.population_low <= mean <= one.population_high
    assert inside[0].min() / draws > 0.95
    assert abs(inside[1].mean() / draws - 0.95) < 0.033


def small(rows: str) -> Schema:
    columns = {
        "y": {"lower": -1.0, "upper": 1.0, "step": 1.0, "missing": False},
        "a": {"lower": 0.0, "upper": 1.0, "step": 0.5},
        "b": {"lower": 0.0, "upper": 1.0, "step": 1.0, "missing": False},
        "c": {"values": ["p", "q", "r"]},
        "d": {"values": ["s", "t"]},
        "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0, "missing": False},
        "party": {"kind": "party", "values": ["u", "v"]},
    }
    return read_schema({"columns": columns, "max_rows": 50, "rows": rows})


@pytest.mark.parametrize("rows", ["private", "public"])
@pytest.mark.parametrize(
    "formula",
    [
        "y ~ a * b)",
        "y ~ c * a)",
        "y ~ c + d + a)",
        "y ~ a * b * d)",
        "a ~ c * d)",
        "y ~ a) by c",
        "y ~ a + d) by c",
        "y ~ a + party)",
        "y ~ a) by party",
    ],
)
def test_no_rows_are_further_apart_than_the_bound_of_a_formula(formula: str, rows: str) -> None:
    """All rows, or all pairs of rows, of a small schema; of rows that are added the bound is attained."""
    schema = small(rows)
    (one,) = read_ask([f"regression({formula}"], schema)
    rng = np.random.default_rng(7)
    blocks = [block for block in Design(one, schema).factors if block.columns]
    used = replace(schema, columns={name: schema.columns[name] for name in (*one.columns, *one.by)})
    for _ in range(3):
        scaled = [Scaled(block, Fraction(int(rng.integers(1, 10)), 3)) for block in blocks]
        vectors = np.array([[float(value) for value in features(scaled, used, row)] for row in rows_of(used)])
        vectors = np.unique(vectors, axis=0)
        if rows == "private":
            longest = float((vectors**2).sum(axis=1).max())
            assert largest_norm(scaled, schema) == pytest.approx(longest, rel=1e-8)
        else:
            square = (vectors**2).sum(axis=1)
            furthest = float((square[:, None] + square[None] - 2 * vectors @ vectors.T).max())
            assert largest_distance(scaled, schema) >= furthest * (1 - 1e-9)
            assert largest_distance(scaled, schema) <= 2.0 * furthest


@pytest.mark.parametrize("powers", [["aabb"], ["aabb", "aa"], ["aab", "bb"], ["aab", "aabb", "b"]], ids=str)
def test_products_with_squares_move_no_further_than_the_bound(powers: list[str]) -> None:
    """Of squares alone rows differ by their sizes, and not by a sign."""
    number = {"lower": 0.0, "upper": 1.0, "step": 0.5, "missing": False}
    schema = read_schema({"columns": {"a": number, "b": number}, "max_rows": 5, "rows": "public"})
    scaled = [Scaled(product(schema, *one), Fraction(index + 2, 3)) for index, one in enumerate(powers)]
    assert largest_distance(scaled, schema) >= float(largest(scaled, schema)) * (1 - 1e-9)


LEVELS = (("arm", "a"), ("arm", "c"), ("sex", "m"))
COVERED = "regression(pressure ~ arm * sex + age)"


@pytest.mark.thin(2)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_intervals_cover_the_pooled_rows_and_the_population(epsilon: float) -> None:
    """Responses and noise drawn anew: mostly of noise at epsilon 1, of sampling at 8.

    The mean coverage of seven coefficients, of a standard error of .011 at most, is within three of these:
    a false alarm in 300. Of the noise alone the level is a lower bound, of all coefficients at once.
    """
    schema, rng, rows = schema_of(), np.random.default_rng(4), 4000
    plan = planned(schema, COVERED, epsilon=epsilon)
    made = trial(rows, 3)
    table = read_table(made | {"one": np.full(rows, "only"), "fine": np.zeros(rows)}, schema)
    a, c, m = (np.asarray(made[name] == level, float) for name, level in LEVELS)
    x = np.stack([np.ones(rows), a, c, m, made["age"], a * m, c * m], axis=1)
    truth = np.array([109.0, 4.0, 0.0, -3.0, 0.2, 0.0, 6.0])
    fit, inside, draws = np.linalg.pinv(x), np.zeros((2, 7)), 150
    column = schema.number("pressure", "pressure")
    for _ in range(draws):
        pressure = rng.normal(x @ truth, 8)
        table.codes["pressure"][:] = 2 * column.points(pressure) - column.steps
        noise = np.rint(rng.normal(0, plan.deviation(2), plan.length)).astype(np.int64)
        estimates = estimate(plan, plan.vector(table) + noise, 2).estimates
        beta = fit @ pressure
        for index, one in enumerate(estimates):
            assert one.low is not None
            assert one.high is not None
            assert one.population_low is not None
            assert one.population_high is not None
            inside[0, index] += one.low <= beta[index] <= one.high
            inside[1, index] += one.population_low <= truth[index] <= one.population_high
    assert inside[0].min() / draws > 0.95
    assert abs(inside[1].mean() / draws - 0.95) < 0.033


@pytest.mark.parametrize("rows", ["private", "public"])
def test_no_row_moves_a_step_of_a_formula_further_than_the_sensitivity(rows: str) -> None:
    """All rows of a small schema, at many coefficients; tight to a tenth for rows that are added."""
    schema = small(rows)
    plan = plan_fit(schema, "logistic(ill ~ c * a)", steps=5, budget=(1.0, 1e-6), parties=4)
    names = ("ill", "a", "c")
    listed = [*itertools.product([0.0, 1.0], [0.0, 0.5, 1.0], ["p", "q", "r"])]
    columns: dict[str, Any] = {name: np.array([row[i] for row in listed]) for i, name in enumerate(names)}
    spare = {"y": columns["a"], "b": columns["ill"], "d": np.full(len(listed), "s")}
    table, furthest = read_table(columns | spare, schema, member="u"), 0.0
    size, rng = plan.size, np.random.default_rng(1)
    scales = np.repeat([float(scale) for scale in plan.scales], [size, plan.length - size])
    starts = [np.zeros(size), *(8 * rng.choice([-1.0, 0.0, 1.0], (60, size)))]
    for start in starts:
        step = dataclasses.replace(plan, at=tuple(np.rint(start / COEFFICIENT).astype(int).tolist()))
        vectors = np.vstack([step.features(table), np.zeros((1, plan.length))]) * scales
        distances = np.linalg.norm(vectors, axis=1)
        if rows == "public":
            distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
        furthest = max(furthest, float(distances.max()))
    assert furthest + math.sqrt(plan.length) <= plan.sensitivity.l2 * (1 + 1e-12)
    assert furthest >= (0.9 if rows == "private" else 0.6) * plan.sensitivity.l2


def test_exact_steps_reach_the_fit_of_a_formula() -> None:
    """Log odds of the pooled rows, and their usual standard errors, by Newton's method on the design."""
    tables = [trial(400, 5), trial(300, 6), trial(300, 7)]
    ask = "logistic(ill ~ arm * sex + age)"
    columns = {name: SCHEMA["columns"][name] for name in ("ill", "arm", "sex", "age")}
    given = [{name: table[name] for name in columns} for table in tables]
    schema = {"columns": columns, "max_rows": 5000}
    answers = smpc_dp.simulate.statistics(given, ask, schema=schema, corrupt=0.0, steps=8)
    pooled = {name: np.concatenate([table[name] for table in tables]) for name in columns}
    a, c, m = (np.asarray(pooled[name] == level, float) for name, level in LEVELS)
    x = np.stack([np.ones(len(a)), a, c, m, pooled["age"], a * m, c * m], axis=1)
    beta = np.zeros(7)
    for _ in range(30):
        mean = 1 / (1 + np.exp(-x @ beta))
        information = x.T @ (x * (mean * (1 - mean))[:, None])
        beta = beta + np.linalg.solve(information, x.T @ (pooled["ill"] - mean))
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    assert [one.value for one in answers.estimates] == pytest.approx(beta.tolist(), rel=1e-4)
    assert [one.sampling_error for one in answers.estimates] == pytest.approx(errors.tolist(), rel=1e-4)
    assert [one.unit for one in answers.estimates][4] == "log odds / age"


@pytest.mark.parametrize("seed", range(4))
def test_exact_sums_of_dependent_columns_are_refused(seed: int) -> None:
    """The information is singular, but rounding may make its least eigenvalue positive."""
    schema, table = schema_of(), trial(450, seed)
    table["sex"] = np.where(table["arm"] == "c", "m", "f")
    rows = read_table(table | {"one": np.full(450, "only"), "fine": np.zeros(450)}, schema)
    plan = plan_fit(schema, "logistic(ill ~ arm * age + sex)", steps=5, budget=None, parties=1)
    answers = fitted(plan, plan.vector(rows), [0])
    assert {(one.value, one.note) for one in answers.estimates} == {(None, REFUSED)}


def test_no_sampling_error_is_shown_where_residuals_are_within_the_noise() -> None:
    """The interval for the population then takes a variance that is two standard errors larger."""
    schema = schema_of()
    plan = planned(schema, "regression(pressure ~ sex)", epsilon=4.0)
    table = trial(3000, 8)
    table["pressure"] = np.where(table["sex"] == "m", 130.0, 140.0)
    rows = read_table(table | {"one": np.full(3000, "only"), "fine": np.zeros(3000)}, schema)
    intercept, difference = estimate(plan, plan.vector(rows), 2).estimates
    assert (intercept.sampling_error, intercept.note) == (None, NO_SAMPLING)
    assert difference.value == pytest.approx(-10.0, abs=1e-4)
    assert difference.population_low is not None
    assert difference.population_low < -10 < (difference.population_high or 0.0)
