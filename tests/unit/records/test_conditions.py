"""Conditions of questions: what is read, which rows satisfy them, what they cost, and what is refused."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.asked import Condition
from smpc_dp.records.exact import plan_tables
from smpc_dp.records.features import Lacking
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.registered import terms_of
from smpc_dp.records.result import estimate_lines
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, l1_sensitivity, largest_norm, sensitivity_of
from smpc_dp.records.table import read_table
from smpc_dp.records.terms import with_lacking
from tests.unit.records.brute_force import features, largest, rows_of


def schema(rows: str = "private") -> Schema:
    columns = {
        "x": {"lower": -1.0, "upper": 1.0, "step": 0.5},
        "y": {"lower": 0.0, "upper": 4.0, "step": 2.0, "missing": False},
        "z": {"lower": 0.0, "upper": 8.0},
        "ward": {"values": ["a b", "c", "3"], "other": "c"},
    }
    given = {"columns": columns, "max_rows": 1000, "rows": rows}
    return read_schema(given | ({"rows_expected": 3000} if rows == "private" else {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x >= 0.5", {"x": ((3, 4),)}),
        ("x > -1 and x<.5", {"x": ((1, 2),)}),
        ("x = 0", {"x": ((2, 2),)}),
        ("x != 0", {"x": ((0, 1), (3, 4))}),
        ("x != 0 and x <= 0.5", {"x": ((0, 1), (3, 3))}),
        ("z <= 4", {"z": ((0, 1 << 23),)}),
        ("z < 8", {"z": ((0, (1 << 24) - 1),)}),
        ("ward = 'a b'", {"ward": ((0, 0),)}),
        ('ward != "c"', {"ward": ((0, 0), (2, 2))}),
        ("ward = 3.00", {"ward": ((2, 2),)}),
        ("ward != c and ward != 3", {"ward": ((0, 0),)}),
        ("y > 0 and ward = c", {"ward": ((1, 1),), "y": ((1, 2),)}),
    ],
)
def test_a_condition_is_a_set_of_values_of_each_column(text: str, expected: dict[str, Any]) -> None:
    (one,) = read_ask([f"mean(x) by ward where {text}"], schema())
    assert one.where == tuple(Condition(name, ranges) for name, ranges in expected.items())
    assert (one.columns, one.by) == (("x",), ("ward",))


FAULTS = {
    "ward = d": "column 'ward' has no category 'd' (categories: a b, c, 3)",
    "ward < c": "column 'ward' has categories: they are compared with = or !=, not with <",
    "x = 0.3": "column 'x' has the step 0.5: 0.3 is none of its values",
    "z = 4": "column 'z' has no `step`: it is compared with < <= > or >=, not with =",
    "x > 1.5": "column 'x' is within [-1, 1]: 1.5 is not",
    "z < inf": "column 'z' is within [0, 8]: inf is not",
    "x < low": "column 'x' has numbers: it cannot be compared with 'low'",
    "x < -1": "no row satisfies x < -1",
    "x > 0 and ward = c and x < 0": "no row satisfies x < 0 together with the comparisons before",
    "w = 3": "no column 'w' (columns: x, y, z, ward)",
    "": "condition '': more is expected, not the end (known: a = b, ",
    "x": "condition 'x': more is expected, not the end (known: a = b, ",
    "x <": "condition 'x <': more is expected, not the end (known: a = b, ",
    "x > 0 or x < 0": "condition 'x > 0 or x < 0': 'or' is not expected (known: a = b, ",
    "x > 0 and": "condition 'x > 0 and': more is expected, not the end (known: a = b, ",
    "x == 0": "condition 'x == 0': a category or a number is expected, not = (known: a = b, ",
    "x, y": "condition 'x, y': one of = != < <= > >= is expected after 'x', not , (known: a = b, ",
    "x 0": "condition 'x 0': one of = != < <= > >= is expected after 'x', not 0 (known: a = b, ",
    "x > 0 by ward": "condition 'x > 0 by ward': 'by' is not expected (known: a = b, ",
    "'x' > 0": "condition \"'x' > 0\": a column is expected, not 'x' (known: a = b, ",
    "ward = 'c": 'condition "ward = \'c": "\'c" cannot be read (known: a = b, ',
    "__import__('os') = 3": "no column '__import__'",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_condition_that_cannot_be_is_refused_with_its_question(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_ask([f"count where {text}"], schema())
    (issue,) = refused.value.issues
    assert issue.where.startswith("ask: ")
    assert text.partition(" ")[0] in issue.where
    assert issue.reason.startswith(FAULTS[text])
    # statistics are no help with a condition
    assert "regression" not in issue.reason


def test_only_an_error_in_the_condition_names_the_condition() -> None:
    for asked in ("mean(x where y > 0", "average(x) where y > 0", "mean(x) % where y > 0"):
        with pytest.raises(ConfigError, match=r"\(known: count, sum\(a\)") as refused:
            read_ask([asked], schema())
        assert "condition" not in refused.value.issues[0].reason


@pytest.mark.parametrize(
    "asked", ["heterogeneity(x) where y > 0", "logistic(y ~ x) where x > 0", "random_effects(x) where x > 0"]
)
def test_answers_that_need_the_number_of_parties_or_several_requests_have_none(asked: str) -> None:
    with pytest.raises(ConfigError, match="has no condition"):
        read_ask([asked], schema())


def test_exact_tables_have_no_condition() -> None:
    """With a table of all rows, that of some would give the rest."""
    with pytest.raises(ConfigError, match="has a condition: cells that are not shown could be worked out"):
        plan_tables(schema(), ["ward", "ward where y > 0"], 10)


ROWS: dict[str, list[Any]] = {
    "x": [1.0, -1.0, None, 0.5, 0.5],
    "y": [4.0, 4.0, 4.0, None, 0.0],
    "z": [1.0, 2.0, 3.0, 4.0, None],
    "ward": ["a b", "a b", "c", "?", None],
}


def planned(ask: list[str], rows: str = "private", **more: Any) -> Plan:
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "parties": 4}
    return plan_request(schema(rows), ask, **(given | more))


@pytest.mark.parametrize("rows", ["private", "public"])
def test_answers_are_over_the_rows_that_satisfy_the_condition(rows: str) -> None:
    """A missing value satisfies none; where it counts as the middle of the range it satisfies as that."""
    expected: dict[str, float] = {
        "count": 5,
        "count where x > -1": 3,
        "count where x != 0.5": 2,
        "count where y = 2": 1,
        "count where ward != c": 2,
        "count where ward = c": 2,
        "mean(x) where ward = 'a b' and x > 0": 1.0,
        "mean(y) where z < 3.5": 4.0,
        "mean(y)": 2.8,
        "sum(z) where x < 1": 6.0,
    }
    plan = planned([*expected], rows)
    table = read_table(ROWS, plan.schema)
    public = 5000 if rows == "public" else None
    answers = estimate(plan, 1000 * plan.vector(table), 4, hide=0.0, rows=public)
    for text, value in expected.items():
        (one,) = answers.of(text)
        assert one.name == text
        whole = one.value if text.startswith("mean") else (one.value or 0.0) / 1000
        assert whole == pytest.approx(value, abs=2e-3)
        assert (one.standard_error == 0) == (rows == "public" and text == "count")


def test_numbers_of_an_answer_have_its_condition_in_their_names() -> None:
    plan = planned(["correlation(x, y) where z<4 and ward = c", "correlation(x, y)"])
    names = ["correlation(x, y) where z < 4 and ward = c", "correlation(x, y)"]
    assert [one.text for one in plan.errors(4)] == names
    assert plan.errors(4)[0].assumed.endswith("a quarter of the ranges, if all rows satisfy the condition")
    answers = estimate(plan, 100 * plan.vector(read_table(ROWS, plan.schema)), 4)
    assert [one.name for one in answers.estimates] == names
    assert estimate_lines([answers.estimates[0].to_json()], exact=False)[0].startswith(f"{names[0]}: ")


@pytest.mark.parametrize("rows", ["private", "public"])
@pytest.mark.parametrize(
    "ask",
    [
        ["count where ward = c", "count where ward != c", "count"],
        ["mean(x) where x >= 0.5 and ward = c", "mean(x)", "variance(y) where x < 0"],
        ["covariance(x, y) where ward = 3", "sum(y) where x != 0"],
        ["ward where x > 0", "count by ward where y = 0"],
    ],
    ids=str,
)
def test_no_row_moves_further_than_the_sensitivity(rows: str, ask: list[str]) -> None:
    """Of all rows, and all pairs where one is exchanged: also one that satisfies a condition for one not."""
    columns = {name: one for name, one in schema().columns.items() if name != "z"}
    known = read_schema({"columns": columns, "max_rows": 1000, "rows": rows})
    plan = plan_request(known, ask, epsilon=1.0, delta=1e-6, parties=4)
    scaled = [Scaled(one.block, Fraction(3 + index)) for index, one in enumerate(plan.blocks)]
    truth = float(largest(scaled, known)) ** 0.5
    assert 0.7 * sensitivity_of(scaled, known).l2 <= truth <= sensitivity_of(scaled, known).l2


def test_an_exchanged_row_that_no_longer_counts_moves_the_number_of_rows() -> None:
    """Where rows are public their number is known, and that of the rows with a condition is not."""
    plan = planned(["mean(y) where ward = c", "mean(y)"], "public")
    counts = [one.block for one in plan.blocks if not one.block.powers]
    assert [block.where for block in counts] == [(Condition("ward", ((1, 1),)),)]
    moves = {one.block: float(one.scale) for one in plan.blocks if one.block in counts}
    assert plan.sensitivity.l2 >= min(moves.values())


def test_rows_that_lack_a_value_are_counted_among_those_with_the_condition() -> None:
    """The bounds on a row, which has a value or lacks it, are attained."""
    ask = ["count where ward = c", "mean(x) where ward = c", "mean(x)"]
    columns = {name: one for name, one in schema().columns.items() if name != "z"}
    known = read_schema({"columns": columns, "max_rows": 1000})
    answers = with_lacking([terms_of(one, known) for one in read_ask(ask, known)], [True] * 3)
    blocks = list(dict.fromkeys(block for terms in answers for term in terms for block in term.squares))
    (lacking,) = (block for block in blocks if isinstance(block, Lacking))
    assert (lacking.present, lacking.where) == (("x",), (Condition("ward", ((1, 1),)),))
    assert lacking.sums(read_table(ROWS, known)) == [1]
    scaled = [Scaled(block, Fraction(3 + index)) for index, block in enumerate(blocks)]
    listed = [features(scaled, known, row) for row in rows_of(known)]
    assert l1_sensitivity(scaled, known).l1 == max(sum(map(abs, row)) for row in listed)
    assert largest_norm(scaled, known) == pytest.approx(float(largest(scaled, known)), rel=1e-6)


def test_the_sums_of_one_condition_are_shared_whatever_its_order() -> None:
    texts = ["mean(x) where y > 0 and ward = c", "sum(x) where ward = 'c' and y >= 2"]
    assert len(planned(texts).blocks) == len(planned(texts[:1]).blocks) == 2
    both = itertools.product((">= 2", "> 0"), repeat=2)
    wheres = {read_ask([f"count where y {one} and y {other}"], schema())[0].where for one, other in both}
    assert len(wheres) == 1
