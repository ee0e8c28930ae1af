"""Robust sampling errors of linear regressions by a second request at public numbers.

In simulations rows and noise are drawn anew each time. Seeds are fixed.
"""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.features import Block
from smpc_dp.records.forecast import Expected
from smpc_dp.records.formula import Design
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.registered import terms_of
from smpc_dp.records.result import Answers, estimate_lines
from smpc_dp.records.sandwich import (
    ABSENT,
    FEW_ROWS,
    GREATEST,
    UNCLEAR,
    PublicRegression,
    SquaredInfluence,
    agree,
    follow_up_text,
)
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, largest_distance, largest_norm, sensitivity_of
from smpc_dp.records.study import forecasts
from smpc_dp.records.table import read_table
from smpc_dp.report.texts import without_numbers
from tests.unit.records.brute_force import rows_of

Rows = dict[str, NDArray[Any]]
COLUMNS: dict[str, Any] = {
    "x": {"lower": 0.0, "upper": 10.0},
    "y": {"lower": -30.0, "upper": 50.0},
    "arm": {"values": ["old", "new"]},
}
ASKED = "regression(y ~ x + arm)"
DELTA = 1e-6


def schema_of(**more: Any) -> Schema:
    return read_schema({"columns": COLUMNS, "max_rows": 200_000, **more})


def planned(text: str, epsilon: float, schema: Schema | None = None, parties: int = 1) -> Plan:
    schema = schema or schema_of()
    return plan_request(schema, [text], epsilon=epsilon, delta=DELTA, parties=parties, laplace=True)


@functools.cache
def first_plan(text: str, epsilon: float) -> Plan:
    return planned(text, epsilon)


def released(plan: Plan, rows: Rows, source: NoiseSource | None = None, present: int = 1) -> Answers:
    """Return answers from the rows of one party, with the noise of one share, or by chance with none."""
    total = plan.vector(read_table(rows, plan.schema))
    total = total + (0 if source is None else plan.mechanism.share.noise(source, plan.length))
    return estimate(plan, total, present)


def followed(
    text: str, rows: Rows, epsilon: float, source: NoiseSource | None = None
) -> tuple[Answers, Answers]:
    """Return the answers of a regression, and of the question that it prints, each with this epsilon."""
    first = released(first_plan(text, epsilon), rows, source)
    (question,) = (one.follow_up for one in first.estimates if one.follow_up)
    return first, released(planned(question, epsilon), rows, source)


def drawn(rng: np.random.Generator, size: int, rare: float = 0.3, times: float = 3.0) -> Rows:
    """Return rows with a group of this share, whose residuals have so many times the deviation."""
    x, arm = rng.uniform(0, 10, size), rng.random(size) < rare
    residual = rng.normal(size=size) * np.where(arm, times, 1.0)
    return {"x": x, "y": 5 + x - 3 * arm + residual, "arm": np.where(arm, "new", "old")}


def hc3(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return coefficients and errors by the textbook's formula [MacKinnon and White 1985, HC3]."""
    design = np.stack([np.ones(len(rows["x"])), rows["x"], rows["arm"] == "new"], axis=1).astype(np.float64)
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ rows["y"]
    leverage = ((design @ inverse) * design).sum(axis=1)
    scores = design * ((rows["y"] - design @ coefficients) / (1 - leverage))[:, np.newaxis]
    return coefficients, np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse))


def test_no_noise_gives_the_errors_of_the_textbook() -> None:
    """Of 40 rows, so that the leverage counts: without it these errors are 3 to 4 % less."""
    rows = drawn(np.random.default_rng(1), 40)
    first, second = followed(ASKED, rows, 100.0)
    coefficients, errors = hc3(rows)
    assert [one.value for one in second.estimates] == pytest.approx(coefficients, rel=1e-3)
    assert [one.standard_error for one in second.estimates] == pytest.approx(
        [one.standard_error for one in first.estimates], rel=1e-8
    )
    for one, error in zip(second.estimates, errors, strict=True):
        plan = planned(next(each.follow_up for each in first.estimates if each.follow_up), 100.0)
        block = terms_of(plan.statistics[0], plan.schema)[second.estimates.index(one)].squares
        (only,) = block
        assert isinstance(only, SquaredInfluence)
        (total,) = only.sums(read_table(rows, plan.schema))
        scale = (40 * 40) * float(only.public(plan.schema).squares[only.at]) / GREATEST
        assert math.sqrt(scale * total) == pytest.approx(error, rel=2e-3)


def test_the_errors_are_those_of_the_residuals_and_not_of_one_variance() -> None:
    rows = drawn(np.random.default_rng(2), 50_000)
    first, second = followed(ASKED, rows, 50.0)
    _, errors = hc3(rows)
    assert [one.sampling_error for one in second.estimates] == pytest.approx(errors, rel=0.01)
    # of the group with three times the deviation the model's error is too small
    assert (first.estimates[2].sampling_error or 0.0) < 0.75 * errors[2]
    assert [one.name for one in second.estimates] == [one.name for one in first.estimates]
    assert [one.unit for one in second.estimates] == [one.unit for one in first.estimates]


def test_a_regression_prints_the_follow_up_text() -> None:
    rows = drawn(np.random.default_rng(3), 5000)
    first = released(planned("regression(y ~ x * arm) where x > 2", 50.0), rows)
    questions = [one.follow_up for one in first.estimates]
    assert questions[0].startswith("sandwich(y ~ x + arm + x:arm, [")
    assert without_numbers([{"statistic": questions[0]}]) == {
        questions[0]: "sandwich(y ~ x + arm + x:arm) where x > 2"
    }
    assert questions[0].endswith(" where x > 2")
    assert questions[1:] == [""] * 3
    lines = estimate_lines([one.to_json() for one in first.estimates], exact=False)
    assert lines[-1] == f"for robust sampling errors ask next: {questions[0]}"
    (one,) = read_ask([questions[0]], schema_of())
    assert [len(each) for each in one.numbers] == [4, 4, 10, 2]
    names = [each.name for each in released(planned(questions[0], 50.0), rows).estimates]
    assert names == [each.name for each in first.estimates]


def test_groups_and_refused_regressions_have_no_follow_up_text() -> None:
    rows = drawn(np.random.default_rng(3), 5000)
    for text, few in (("regression(y ~ x) by arm", 5000), (ASKED, 2)):
        first = released(
            planned(text, 0.5 if few == 2 else 50.0), {name: one[:few] for name, one in rows.items()}
        )
        assert [one.follow_up for one in first.estimates] == [""] * len(first.estimates)


def test_questions_agree_that_differ_by_rounding_alone() -> None:
    text = "sandwich(y ~ x1, [0.5, -2e-09], [0.25, 0.1], [1, 0.5, 2], 3, 123) where g = '[1, 2], 3)'"
    rounded = text.replace("[0.5, -2e-09]", "[0.500000001, 3e-09]").replace("123", "45")
    assert agree(text, text)
    assert agree(rounded, text)
    assert agree("", "")
    for old, new in [
        ("0.25", "0.2501"),
        ("x1", "x2"),
        ("[1, 0.5, 2]", "[1, 0.5]"),
        ("'[1, 2], 3)'", "'[1, 2], 4)'"),
        (", [1, 0.5, 2]", ""),
        ("0.25", "nan"),
        ("0.25", "a"),
        (" 3,", " 4,"),
        (text, ""),
    ]:
        assert not agree(text.replace(old, new), text), new


def question_of(
    text: str, schema: Schema, coefficients: list[float], inverse: NDArray[np.float64] | None = None
) -> str:
    (one,) = read_ask([text], schema)
    size = len(Design(one, schema).coefficients)
    given = np.array((coefficients * size)[:size])
    return follow_up_text(
        Design(one, schema), given, np.full(size, 0.5), np.eye(size) if inverse is None else inverse, 1
    )


GOOD = "[0.5, 0.25, -1], [0.5, 0.5, 0.5], [1, 0, 0, 1, 0, 1]"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"sandwich(y ~ x + arm, {GOOD}, 3, 1)", "the numbers are of another formula"),
        (f"sandwich(y ~ x, {GOOD}, 3, 1)", "3 numbers of coefficients, for 2 coefficients 2 are needed"),
        ("sandwich(y ~ x, [1, 1], [0], [1, 0, 1], 3, 1)", "1 numbers of deviations"),
        (
            "sandwich(y ~ x, [1, 1], [0, 0], [1, 0], 3, 1)",
            "2 numbers of inverse, for 2 coefficients 3 are needed",
        ),
        ("sandwich(y ~ x, [1, 1], [0, 0], [1, 0, 0], 3, 1)", "0 on its diagonal"),
        ("sandwich(y ~ x, [1, 1], [0, 0], [-1, 0, 1], 3, 1)", "-1 on its diagonal"),
        ("sandwich(y ~ x, [1, 1e999], [0, 0], [1, 0, 1], 3, 1)", "must be in .*one is inf"),
        (
            "sandwich(y ~ x, [1, 1e10], [0, 0], [1, 0, 1], 3, 1)",
            r"coefficients must be in \[-1e\+09, 1e\+09\]",
        ),
        ("sandwich(y ~ x, [1, 1], [0, -1], [1, 0, 1], 3, 1)", "deviations must be in .*one is -1"),
        ("sandwich(y ~ x, [1, nan], [0, 0], [1, 0, 1], 3, 1)", "one is nan"),
        ("sandwich(y ~ x, [1, 1], [0, 0], [1, 0, 1])", "expected"),
        ("sandwich(y ~ x, [1, 1], [0, 0], [1, 0, 1], 3, 1.5)", "the checksum must be an integer"),
        ("sandwich(y ~ x, [1, 1], [0, 0], [1, 0, 1], 3, 1) by arm", "a sandwich has no groups"),
        ("sandwich(y ~ x)", "expected"),
        ("logistic(y ~ x, [1, 1], [0, 0], [1, 0, 1], 3, 1)", "expected"),
    ],
)
def test_other_numbers_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read_ask([text], schema_of())


@pytest.mark.parametrize(
    "change",
    [
        {"x": {"lower": 0.0, "upper": 11.0}},
        {"x": {"lower": -1.0, "upper": 10.0}},
        {"x": {"lower": 0.0, "upper": 10.0, "missing": False}},
        {"arm": {"values": ["new", "old"]}},
        {"arm": {"values": ["old", "new"], "reference": "new"}},
    ],
)
def test_numbers_of_other_columns_are_refused(change: dict[str, Any]) -> None:
    question = question_of("regression(y ~ x + arm)", schema_of(), [0.5])
    assert read_ask([question], schema_of())
    for text in (question.replace("0.5", "0.4", 1), f"{question} where x > 2"):
        with pytest.raises(ConfigError, match="the numbers are of another formula"):
            read_ask([text], schema_of())
    with pytest.raises(ConfigError, match="with other bounds or categories"):
        read_ask([question], read_schema({"columns": COLUMNS | change, "max_rows": 10}))


def test_too_many_combinations_of_categories_are_refused() -> None:
    columns: dict[str, Any] = {f"c{at}": {"values": [*map(str, range(18))]} for at in range(3)}
    schema = read_schema({"columns": COLUMNS | columns, "max_rows": 10})
    with pytest.raises(ConfigError, match="5832 combinations of categories, at most 4096"):
        read_ask([question_of("regression(y ~ c0 + c1 + c2)", schema, [0.5])], schema)


def small(rows: str = "private", **more: Any) -> Schema:
    return read_schema(
        {
            "columns": {
                "a": {"lower": 0.0, "upper": 3.0, "step": 1.0},
                "b": {"lower": -1.0, "upper": 1.0, "step": 1.0, "missing": False},
                "c": {"values": ["p", "q", "r"], "reference": "q"},
            },
            "max_rows": 5,
            "rows": rows,
            **more,
        }
    )


class Small(NamedTuple):
    """Rows of a small schema, one in a table each, and what each of them adds to blocks."""

    schema: Schema
    added: list[list[int]]


def added_by_each(schema: Schema, blocks: list[Block]) -> list[list[int]]:
    """Return what every single row of a schema adds to blocks of one cell, and an empty table."""
    added = [[0] * len(blocks)]
    for row in rows_of(schema):
        values: dict[str, Any] = {
            "a": np.array([math.nan if row["a"] is None else float(row["a"])]),
            "b": np.array([math.nan if row["b"] is None else row["b"] - 1.0]),
            "c": np.array([None if row["c"] is None else "pqr"[row["c"]]], dtype=object),
        }
        table = read_table(values, schema)
        added.append([int(total) for block in blocks for total in block.sums(table)])
    return added


FORMULAS = ("a ~ b", "b ~ a * c", "a ~ c + b", "b ~ c")


def inverse_of(seed: int, size: int) -> NDArray[np.float64]:
    """Return the inverse of the second moments of a few random rows."""
    rows = np.random.default_rng(seed).normal(size=(size + 4, size))
    return np.asarray(np.linalg.inv(rows.T @ rows), np.float64)


def questions_of(formula: str, seed: int, schema: Schema) -> list[Block]:
    (one,) = read_ask([f"regression({formula})"], schema)
    size = len(Design(one, schema).coefficients)
    coefficients = np.random.default_rng(seed).normal(size=size).round(3).tolist()
    question = question_of(f"regression({formula})", schema, coefficients, inverse_of(seed, size))
    return [
        block
        for asked in read_ask([question], schema)
        for term in terms_of(asked, schema)
        for block in term.squares
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("formula", FORMULAS)
def test_of_all_rows_nothing_is_cut(formula: str, seed: int) -> None:
    """Of every row of a small schema, with the leverage at its greatest: that is the schema's own bound."""
    schema = small()
    for block in questions_of(formula, seed, schema):
        assert isinstance(block, SquaredInfluence)
        public, largest = block.public(schema), 0.0
        for row in rows_of(schema):
            if any(row[name] is None for name in block.columns):
                continue
            values: dict[str, Any] = {"a": [float(row["a"] or 0)], "b": [(row["b"] or 0) - 1.0]}
            table = read_table({**values, "c": np.array(["pqr"[row["c"] or 0]], dtype=object)}, schema)
            largest = max(largest, float(public.parts(block.at, table, np.array([0]))[0]))
        assert 0.1 < largest <= 1 + 1e-12


@pytest.mark.parametrize("rows", ["private", "public"])
@pytest.mark.parametrize("norm", [None, {"columns": ["a", "b"], "bound": 0.7}])
@pytest.mark.parametrize("formula", FORMULAS)
def test_no_rows_are_further_apart_than_the_bound(formula: str, norm: Any, rows: str) -> None:
    """Beside sums of squares and products, in which two rows may be the nearer the farther they are here."""
    schema = small(rows, **({} if norm is None else {"norm": norm}))
    asked = read_ask(["covariance(a, b)"], schema)
    others = dict.fromkeys(block for one in asked for term in terms_of(one, schema) for block in term.squares)
    for share in (Fraction(1), Fraction(1, 9)):
        own = [Scaled(block, share) for block in questions_of(formula, 1, schema)]
        scaled = own + [
            Scaled(block, Fraction(GREATEST, block.greatest(schema)))
            for block in others
            if rows == "private" or block.columns
        ]
        added = added_by_each(schema, [one.block for one in scaled])
        vectors = np.array(
            [[float(one.scale * value) for one, value in zip(scaled, each, strict=True)] for each in added]
        )
        if rows == "private":
            furthest, bound = float((vectors**2).sum(axis=1).max()), largest_norm(scaled, schema)
        else:
            pairs = itertools.combinations(vectors[1:], 2)
            furthest = max(float(((one - other) ** 2).sum()) for one, other in pairs)
            bound = largest_distance(scaled, schema)
        assert furthest <= bound * (1 + 1e-9)
        assert sensitivity_of(scaled, schema).l2 >= math.sqrt(furthest)


def test_a_bound_of_the_norm_does_not_bound_what_a_row_adds() -> None:
    """A row in the middle of all numbers has nearly the greatest influence, with an intercept far off."""
    columns = {"a": COLUMNS["x"], "b": COLUMNS["y"], "d": {"values": ["p", "q"]}}
    norm = {"columns": ["a", "b"], "bound": 0.7}
    schema = read_schema({"columns": columns, "max_rows": 5, "norm": norm})
    inverse = np.array([[1.0, -0.9], [-0.9, 1.0]])
    text = question_of("regression(a ~ d)", schema, [-20.0, 0.0], inverse)
    scaled = [
        Scaled(block, Fraction(1))
        for one in read_ask([text], schema)
        for term in terms_of(one, schema)
        for block in term.squares
    ]
    row = read_table({"a": [5.0], "b": [10.0], "d": np.array(["p"], dtype=object)}, schema)
    added = [float(total) / GREATEST for one in scaled for total in one.block.sums(row)]
    assert added == pytest.approx([(20 / 21) ** 2] * 2, rel=1e-6)
    assert largest_norm(scaled, schema) == pytest.approx(2 * GREATEST**2)


def test_where_the_noise_hides_the_squares_the_interval_is_wide_and_says_so() -> None:
    """Of 15 sums each is by chance above two deviations of its noise once in 30, and printed then.

    The coefficients themselves have little noise: the width is that of the noise of the squares.
    """
    rows, notes = drawn(np.random.default_rng(5), 500), []
    _, errors = hc3(rows)
    first = released(first_plan(ASKED, 100.0), rows)
    plan = planned(first.estimates[0].follow_up, 1.0)
    for seed in range(5):
        second = released(plan, rows, NoiseSource.keyed(bytes([seed] * 32), b"hidden"))
        for one, plain, error in zip(second.estimates, first.estimates, errors, strict=True):
            notes.append(one.note)
            assert (one.sampling_error is None) == (one.note == UNCLEAR)
            assert one.value == pytest.approx(plain.value, rel=1e-6)
            half = ((one.population_high or 0.0) - (one.population_low or 0.0)) / 2
            assert half > 2 * math.hypot(one.standard_error or 0.0, error)
    assert {*notes} <= {UNCLEAR, ""}
    assert notes.count(UNCLEAR) >= 12


def test_without_a_party_the_errors_are_withheld() -> None:
    """Its rows may be in the coefficients, and their squares would be missing."""
    rows = drawn(np.random.default_rng(6), 50_000)
    first = released(planned(ASKED, 50.0, parties=3), rows, present=3)
    question = first.estimates[0].follow_up
    for parties, present, note in (
        (3, 3, ""),
        (3, 2, ABSENT),
        (2, 2, ABSENT),
        (4, 4, ABSENT),
        (4, 3, ABSENT),
    ):
        plan = planned(question, 50.0, parties=parties)
        for one in released(plan, rows, present=present).estimates:
            assert one.note == note
            assert (one.sampling_error is None, one.population_low is None) == (bool(note), bool(note))


def test_a_category_of_a_row_has_no_errors() -> None:
    """Its residual is 0 whatever its deviation is: the design says so without any sum."""
    rows = drawn(np.random.default_rng(7), 3000)
    rows["arm"] = np.where(np.arange(3000) == 17, "new", "old")
    _, second = followed(ASKED, rows, 100.0)
    assert [one.note for one in second.estimates][2] == FEW_ROWS
    assert second.estimates[2].population_low is None
    assert second.estimates[1].population_low is not None


@pytest.mark.parametrize(("rows_of_group", "withheld"), [(2, [1, 3]), (3, [3]), (4, [])])
def test_categories_with_as_many_rows_as_coefficients_have_no_errors(
    rows_of_group: int, withheld: list[int]
) -> None:
    """Two rows of a category with a slope of its own have residuals of 0, as one row without a slope has."""
    columns, size = COLUMNS | {"x": {"lower": -1.0, "upper": 1.0}}, 400
    schema = read_schema({"columns": columns, "max_rows": size})
    ends = np.array({2: [-1.0, 1.0], 3: [-1.0, 1.0, 0.0], 4: [-1.0, 1.0, -1.0, 1.0]}[rows_of_group])
    inside = np.random.default_rng(9).uniform(-1, 1, size - len(ends))
    rows = {
        "x": np.concatenate([ends, inside]),
        "y": np.full(size, 10.0),
        "arm": np.where(np.arange(size) < len(ends), "new", "old"),
    }
    (one,) = read_ask(["regression(y ~ arm * x)"], schema)
    x = Design(one, schema).matrix(read_table(rows, schema), np.arange(size))
    text = question_of(
        "regression(y ~ arm * x)", schema, [0.5], np.asarray(np.linalg.inv(x.T @ x), np.float64)
    )
    found = released(planned(text, 50.0, schema), rows).estimates
    assert [at for at, one in enumerate(found) if one.note == FEW_ROWS] == withheld
    assert [at for at, one in enumerate(found) if one.population_low is None] == withheld


def test_a_plan_forecasts_the_interval_that_a_run_prints() -> None:
    rows = drawn(np.random.default_rng(8), 20_000, times=1.0)
    first = released(planned(ASKED, 4.0), rows)
    plan = planned(first.estimates[0].follow_up, 4.0, schema_of(rows_expected=20_000))
    (answers, bare) = (forecasts(plan, 1, 20_000, expected) for expected in ({"y": Expected(10.0, 1.0)}, {}))
    made = released(plan, rows).estimates
    assert [one.name for one in answers] == [one.name for one in made]
    for one, least, found in zip(answers, bare, made, strict=True):
        assert one.text == "sandwich(y ~ x + arm)"
        assert one.both is not None
        assert least.both is not None
        half = ((found.population_high or 0.0) - (found.population_low or 0.0)) / 2
        assert one.both == pytest.approx(half, rel=0.05)
        assert least.both < one.both
        assert least.assumed.startswith("at least")


class Law(NamedTuple):
    """How rows are drawn: number, share of the second group, and its deviation in those of the others."""

    size: int
    rare: float
    times: float


LAWS = {
    "one deviation": Law(2000, 0.3, 1.0),
    "a large group": Law(2000, 0.3, 4.0),
    "a rare group": Law(2000, 0.02, 6.0),
    "a very rare group": Law(2000, 0.01, 10.0),
}
RUNS = 400


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [2.0, 100.0])
@pytest.mark.parametrize("name", LAWS)
def test_intervals_contain_the_population_s_coefficients(name: str, epsilon: float) -> None:
    """Each of three numbers fails by chance once in 740 where the level is exact; here it is exceeded."""
    law, truth = LAWS[name], (5.0, 1.0, -3.0)
    held, model = np.zeros(3), np.zeros(3)
    made = 0
    for run in range(RUNS):
        rows = drawn(np.random.default_rng([run, 45]), *law)
        source = NoiseSource.keyed(bytes([run % 256, run // 256] * 16), b"run")
        first = released(first_plan(ASKED, epsilon), rows, source)
        if not first.estimates[0].follow_up:
            # refused: the rows of the category are within the noise
            continue
        second, made = released(planned(first.estimates[0].follow_up, epsilon), rows, source), made + 1
        for counts, answers in ((held, second), (model, first)):
            counts += [
                (one.population_low or 0.0) <= true <= (one.population_high or 0.0)
                for one, true in zip(answers.estimates, truth, strict=True)
            ]
    assert made > RUNS / 2
    assert (held / made).min() >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / made)
    if law.times > 1 and epsilon == 100.0:
        # of a group with a larger deviation the model's interval is too narrow
        assert model[2] / made < 0.9


def test_a_public_regression_of_one_row_has_the_influence_of_the_formula() -> None:
    schema = small()
    (one,) = read_ask(["regression(b ~ a * c)"], schema)
    design = Design(one, schema)
    inverse = inverse_of(4, 6)
    public = PublicRegression.of(
        design, [0.5, -0.2, 0.1, 0.3, 0.2, -0.4], inverse[np.triu_indices(6)].tolist()
    )
    table = read_table({"a": [2.0], "b": [1.0], "c": np.array(["r"], dtype=object)}, schema)
    # a = 2 of 0 to 3 is 1/3 of the half range above its middle; the categories are p and r, against q
    row = np.array([1.0, 1 / 3, 0.0, 1.0, 0.0, 1 / 3])
    residual = 1.0 - row @ public.coefficients
    factor = 1 - min(row @ inverse @ row, 0.5)
    expected = (design.contrasts() @ inverse @ row * residual / factor) ** 2
    found = [public.parts(at, table, np.array([0]))[0] * public.squares[at] for at in range(6)]
    assert found == pytest.approx(expected, rel=1e-9)


def test_columns_of_tiny_bounds_add_no_more_than_the_greatest_value() -> None:
    """Contrasts of a product of three are beyond 10^225, and their squares beyond all floats."""
    tiny = {"lower": 0.0, "upper": 1e-75, "step": 1e-76}
    schema = read_schema({"columns": {"y": COLUMNS["y"], "a": tiny, "b": tiny, "c": tiny}, "max_rows": 10})
    (one,) = read_ask([question_of("regression(y ~ a * b * c)", schema, [0.5])], schema)
    rows = {"y": [50.0, -30.0], "a": [0.0, 1e-75], "b": [0.0, 1e-75], "c": [0.0, 1e-75]}
    with np.errstate(all="ignore"):
        for term in terms_of(one, schema):
            for block in term.squares:
                (total,) = block.sums(read_table(rows, schema))
                assert 0 <= total <= 2 * GREATEST
        plan = planned(one.text, 5.0, schema)
        found = estimate(plan, np.zeros(plan.length, dtype=np.int64), 1).estimates
    assert {one.note for one in found} == {FEW_ROWS}
