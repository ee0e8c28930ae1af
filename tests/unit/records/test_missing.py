"""Counts of rows that lack a value: beside a count of all rows they cost next to nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.features import Block, Lacking
from smpc_dp.records.intervals import ErrorDistribution, sum_outside
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, l1_moves, l1_sensitivity, largest_norm
from smpc_dp.records.table import read_table
from smpc_dp.records.terms import with_lacking
from tests.unit.records.brute_force import features, largest, rows_of

ASK = ["count", "mean(x)", "sum(y)", "mean(x) by ward", "ward"]


def schema(*, missing: bool = True, **more: Any) -> Schema:
    columns: dict[str, Any] = {
        "x": {"lower": -1.0, "upper": 1.0, "step": 0.5, "missing": missing},
        "y": {"lower": 0.0, "upper": 4.0, "step": 2.0, "missing": missing},
        "ward": {"values": ["a", "b"]},
    }
    return read_schema({"columns": columns, "max_rows": 1000, "rows_expected": 3000} | more)


def planned(ask: list[str], known: Schema, **more: Any) -> Plan:
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "parties": 4, "laplace": True}
    return plan_request(known, ask, **(given | {"split": "balanced"} | more))


def blocks_of(ask: list[str], known: Schema) -> list[Block]:
    """Return the blocks of answers, where answers without squares may have Laplace noise."""
    statistics = [(statistic_of(one), one) for one in read_ask(ask, known)]
    answers = [kind.terms(one, known) for kind, one in statistics]
    terms = itertools.chain.from_iterable(with_lacking(answers, [kind.any_noise for kind, _ in statistics]))
    return list(dict.fromkeys(block for term in terms for block in term.squares))


def number_of_lacking(blocks: Iterable[Block]) -> int:
    return sum(isinstance(block, Lacking) for block in blocks)


@pytest.mark.parametrize("factor", [1, 9])
def test_no_row_is_longer_than_the_bounds_with_counts_of_missing_values(factor: int) -> None:
    """All rows, with scales of these counts below and above those of the sums; the bounds are attained."""
    known = schema()
    blocks = blocks_of(ASK, known)
    assert number_of_lacking(blocks) == 3
    scaled = [
        Scaled(block, Fraction((factor if isinstance(block, Lacking) else 1) * (3 + index)))
        for index, block in enumerate(blocks)
    ]
    rows = [features(scaled, known, row) for row in rows_of(known)]
    assert l1_sensitivity(scaled, known).l1 == max(sum(map(abs, row)) for row in rows)
    assert largest_norm(scaled, known) == pytest.approx(float(largest(scaled, known)), rel=1e-6)
    moves = l1_moves(scaled, known)
    assert moves is not None
    sides = [sorted((abs(value) for value in row if value), reverse=True) for row in rows]
    greatest = [max(each) for each in itertools.zip_longest(*sides, fillvalue=Fraction(0))]
    assert greatest == sorted(moves, reverse=True)[: len(greatest)]
    person = schema(unit="person", id="who", rows_per_person=2, parties_per_person=1)
    both = max(sum(abs(a + b) for a, b in zip(one, two, strict=True)) for one in rows for two in rows)
    assert both <= l1_sensitivity(scaled, person).l1


def test_counts_of_missing_values_give_the_answers_of_the_rows() -> None:
    known, plan = schema(), planned(ASK, schema())
    assert number_of_lacking(one.block for one in plan.blocks) == 3
    x, y = [0.5, None, -1.0, 1.0, None, 0.5], [4.0, 2.0, None, None, None, 0.0]
    table = read_table({"x": x, "y": y, "ward": ["a", "a", "b", "b", "b", None]}, known)
    answers = estimate(plan, 150 * plan.vector(table), 4, hide=0.0)
    values = {f"{one.name} {one.cell.get('ward', '')}".strip(): one.value for one in answers.estimates}
    expected = {"count": 900, "mean(x)": 0.25, "sum(y)": 900, "mean(x) a": 0.5, "mean(x) b": 0.0}
    assert values == pytest.approx(expected | {"count a": 300, "count b": 450}, abs=1e-2)


@pytest.mark.parametrize("ask", [["missing(x)", "missing(y)"], ["missing(x)", "count"], ["missing(x)"]])
def test_numbers_of_missing_values_have_the_noise_of_their_counts(ask: list[str]) -> None:
    """Incomplete rows are counted: one sum for each answer."""
    known, plan = schema(), planned(ask, schema())
    table = read_table({"x": [0.5, None, -1.0], "y": [4.0, None, None], "ward": ["a", "a", "b"]}, known)
    answers, errors = estimate(plan, 200 * plan.vector(table), 4), plan.errors(4)
    values = {one.name: one.value for one in answers.estimates}
    expected = {"missing(x)": 200, "missing(y)": 400, "count": 600}
    assert values == pytest.approx({text: expected[text] for text in ask}, abs=1e-2)
    for one, error in zip(answers.estimates, errors, strict=True):
        assert one.noise == "laplace"
        assert one.standard_error == pytest.approx(error.standard_error, rel=1e-6)
        assert one.high is not None
        assert one.value is not None
        assert one.high - one.value > 2 * (one.standard_error or 0)
    assert errors[0].standard_error == pytest.approx(len(ask) * math.sqrt(2), rel=0.05)


@pytest.mark.parametrize(
    ("ask", "counted"),
    [
        (["mean(x)"], 0),
        (["mean(x)", "count"], 1),
        (["mean(x)", "mean(y)"], 2),
        (["mean(x)", "variance(x)", "count"], 1),
        (["missing(x)", "count"], 1),
        (["missing(x)", "missing(y)"], 2),
        (["missing(x)"], 1),
        (["mean(x)", "heterogeneity(x)", "count"], 0),
        (["mean(x)", "heterogeneity(x)", "mean(y)", "count"], 1),
    ],
)
def test_missing_values_are_counted_where_that_takes_no_more_counts(ask: list[str], counted: int) -> None:
    assert number_of_lacking(blocks_of(ask, schema())) == counted
    if not any("missing" in text for text in ask):
        assert number_of_lacking(blocks_of(ask, schema(missing=False))) == 0


def test_other_splits_protocols_and_public_rows_count_values() -> None:
    for more, rows in (({"split": "range"}, "private"), ({"laplace": False}, "private"), ({}, "public")):
        plan = planned(["mean(x)", "mean(y)"], schema(rows=rows), **more)
        assert number_of_lacking(one.block for one in plan.blocks) == 0


@pytest.mark.parametrize("ask", [["count", "mean(x)"], ["count", "ward", "mean(x)", "mean(y)"]])
def test_missing_values_cost_other_answers_a_twentieth(ask: list[str]) -> None:
    """Counts, with a column that may lack values over without; a count of each column costs 1.45 times."""
    with_, without = (planned(ask, schema(missing=one)).errors(4) for one in (True, False))
    for one, other in zip(with_, without, strict=True):
        most = 1.05 if not one.text.startswith("mean") else 1.28
        assert (one.standard_error or 0) < most * (other.standard_error or 0)


@pytest.mark.parametrize("at", [-0.1, -2.0, -9.0])
def test_the_law_of_a_difference_of_two_counts(at: float) -> None:
    """Of two Laplace noises of deviations .8 and .6, in closed form."""
    a, b = 0.8 / math.sqrt(2), 0.6 / math.sqrt(2)
    exact = (a * a * math.exp(at / a) - b * b * math.exp(at / b)) / (2 * (a * a - b * b))
    both = ErrorDistribution(1.0, (0.8, 0.6))
    assert both.log_below(at) == pytest.approx(math.log(exact), abs=1e-5)
    assert np.exp(both.log_below(-both.quantile(0.01))) == pytest.approx(0.005, rel=1e-5)
    assert sum_outside([(3.0, both)], -at) == pytest.approx(2 * exact, rel=1e-6)


def test_two_equal_parts_are_twice_as_many_shares() -> None:
    """In a sum with normal noise and in the fourth moment; of two Laplace noises that is 1.5 above 3."""
    parts, shares = ErrorDistribution(1.0, (math.sqrt(0.5), math.sqrt(0.5))), ErrorDistribution(2.0)
    first, second = (sum_outside([(2.0, one), (1.0, ErrorDistribution())], 3.0) for one in (parts, shares))
    assert first == pytest.approx(second, rel=1e-9)
    assert parts.excess_kurtosis == pytest.approx(shares.excess_kurtosis) == 1.5
    assert ErrorDistribution().excess_kurtosis == 0


@pytest.mark.parametrize("rows", ["private", "public"])
def test_rows_that_lack_a_value_are_counted_by_groups(rows: str) -> None:
    """Their error is the planned one: of both counts, of a category one for each category."""
    expected: dict[str, dict[tuple[str, ...], float]] = {
        "missing(x)": {(): 2.0},
        "missing(y) by ward": {("a",): 0.0, ("b",): 3.0},
        "missing(ward)": {(): 1.0},
        "missing(x) where ward = a": {(): 1.0},
    }
    known = schema(rows=rows)
    plan = planned([*expected], known, split="range")
    x, y = [0.5, None, -1.0, 1.0, None, 0.5], [4.0, 2.0, None, None, None, 0.0]
    table = read_table({"x": x, "y": y, "ward": ["a", "a", "b", "b", "b", None]}, known)
    public = 900 if rows == "public" else None
    answers = estimate(plan, 150 * plan.vector(table), 4, rows=public)
    errors = {one.text: one.standard_error for one in plan.errors(4, public)}
    for text, values in expected.items():
        ones = answers.of(text)
        assert {tuple(one.cell.values()): one.value for one in ones} == pytest.approx(
            {cell: 150 * value for cell, value in values.items()}, abs=1e-2
        )
        assert [one.standard_error for one in ones] == pytest.approx([errors[text]] * len(ones))
        assert all((one.low or 0.0) <= (one.value or 0.0) <= (one.high or 0.0) for one in ones)


def test_counts_of_missing_values_use_the_sums_of_a_count_and_a_mean() -> None:
    ask = ["count by ward", "mean(x) by ward"]
    alone, more = (planned(each, schema(), split="range") for each in (ask, [*ask, "missing(x) by ward"]))
    assert [one.block for one in alone.blocks] == [one.block for one in more.blocks]


@pytest.mark.parametrize(
    ("ask", "missing", "reason"),
    [
        ("missing(x)", False, "column 'x' has missing = false: its missing values are not counted"),
        ("missing(ward) by ward", True, "a column is there twice"),
        ("missing(x, y)", True, "\\) is expected, not ,"),
        ("missing(age)", True, "no column 'age'"),
    ],
)
def test_what_is_never_missing_is_not_counted(ask: str, missing: bool, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_ask([ask], schema(missing=missing))


def test_rows_of_persons_that_do_not_count_are_not_said_to_lack_a_value() -> None:
    known = schema(rows="public", unit="person", id="who", rows_per_person=1, parties_per_person=1)
    with pytest.raises(ConfigError, match="a public number of rows has those that do not count"):
        read_ask(["missing(x)"], known)
    plan = planned(["missing(x) by ward", "missing(x) where ward = a"], known, split="range")
    table = read_table({"x": [0.5, 0.5], "y": [1.0, 1.0], "ward": ["a", "a"], "who": ["p", "p"]}, known)
    answers = estimate(plan, 150 * plan.vector(table), 4, rows=900)
    assert [one.value for one in answers.estimates] == pytest.approx([0.0] * 3, abs=1e-2)
