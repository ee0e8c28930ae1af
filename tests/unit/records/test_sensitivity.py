"""Sensitivities against all rows, and all pairs of rows, of small schemas."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.records.ask import read_ask
from smpc_dp.records.features import Block, product
from smpc_dp.records.plan import round_half_up
from smpc_dp.records.registered import terms_of
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, largest_distance, largest_norm, row_moves, sensitivity_of
from smpc_dp.records.table import read_table
from smpc_dp.records.terms import is_public
from tests.examples import examples
from tests.unit.records.brute_force import features, largest, rows_of

ASKS = [
    "count",
    "sum(a)",
    "mean(a)",
    "mean(b)",
    "variance(a)",
    "covariance(a, b)",
    "covariance(a, b) by c",
    "correlation(a, b)",
    "histogram(a, 3)",
    "quantile(b, .5)",
    "median(b) by c",
    "a x c",
    "mean(a) by c",
    "variance(b) by c",
    "count by c x d",
    "regression(a ~ b)",
    "regression(b ~ a * c)",
    "regression(a ~ b) by c",
    "missing(d) by c",
    "variance(a, robust)",
    "variance(b, robust) by c",
    "covariance(a, b, robust)",
    "correlation(a, b, robust) by c",
    # the longest row of all others satisfies each condition
    "count where a >= 1",
    "mean(a) where c = x",
    "covariance(a, b) where b <= 0 and c = x",
    "variance(b) by c where a > 0",
]


def small(rows: str, missing: tuple[bool, bool] = (True, True), **more: object) -> Schema:
    return read_schema(
        {
            "columns": {
                "a": {"lower": 0.0, "upper": 3.0, "step": 1.0, "missing": missing[0], "bins": [2.0]},
                "b": {"lower": -1.0, "upper": 1.0, "step": 1.0, "missing": missing[1]},
                "c": {"values": ["x", "y"]},
                "d": {"values": ["only"]},
            },
            "max_rows": 5,
            "rows": rows,
            **more,
        }
    )


def blocks_of(schema: Schema, asked: list[str]) -> list[Block]:
    terms = [term for one in read_ask(asked, schema) for term in terms_of(one, schema)]
    blocks = dict.fromkeys(block for term in terms for block in term.squares)
    return [block for block in blocks if not is_public(block, schema)]


SCALES = st.sampled_from([Fraction(1), Fraction(2), Fraction(1, 3), Fraction(7, 4), Fraction(5)])


@pytest.mark.thin(2)
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
@pytest.mark.parametrize("rows", ["private", "public"])
def test_no_rows_are_further_apart_than_the_bound(rows: str, data: st.DataObject) -> None:
    schema = small(rows, data.draw(st.tuples(st.booleans(), st.booleans())))
    asked = data.draw(st.lists(st.sampled_from(ASKS), min_size=1, max_size=4, unique=True))
    blocks = blocks_of(schema, asked)
    if not blocks:
        return
    scaled = [Scaled(block, data.draw(SCALES)) for block in blocks]
    truth = float(largest(scaled, schema))
    if rows == "private":
        assert largest_norm(scaled, schema) == pytest.approx(truth, rel=1e-8)
    else:
        assert largest_distance(scaled, schema) >= truth * (1 - 1e-12)


@settings(max_examples=examples(8), deadline=None)
@given(st.data())
@pytest.mark.parametrize("rows", ["private", "public"])
def test_no_row_moves_more_coordinates_or_any_further_than_is_said(rows: str, data: st.DataObject) -> None:
    """What one row changes, the largest first, against the moves: rounded sums move by the next integer."""
    schema = small(rows, data.draw(st.tuples(st.booleans(), st.booleans())))
    asked = data.draw(st.lists(st.sampled_from(ASKS), min_size=1, max_size=3, unique=True))
    scaled = [Scaled(block, data.draw(SCALES)) for block in blocks_of(schema, asked)]
    if not scaled:
        return
    moves = row_moves(scaled, schema)
    assert moves is not None
    vectors = {tuple(features(scaled, schema, row)) for row in rows_of(schema)}
    none = (Fraction(0),) * len(next(iter(vectors)))
    others = vectors if rows == "public" else {none}
    most = sorted(moves, reverse=True)
    for one in vectors:
        for other in others:
            changed = sorted(
                (math.ceil(abs(a - b)) for a, b in zip(one, other, strict=True) if a != b), reverse=True
            )
            assert len(changed) <= len(most)
            assert all(a <= b for a, b in zip(changed, most, strict=False)), (one, other)


@pytest.mark.parametrize(
    "asked",
    [
        ["mean(a)"],
        ["sum(a)", "mean(b)"],
        ["variance(b)"],
        ["mean(a)", "mean(a) by c"],
        ["count by c x d"],
        ["histogram(a, 3)", "mean(a)"],
        ["count where c = x"],
        ["mean(a) where c = x", "count"],
    ],
    ids=str,
)
@pytest.mark.parametrize("missing", [True, False])
def test_substitution_is_exact_where_choices_are_consistent(asked: list[str], missing: bool) -> None:
    schema = small("public", (missing, missing))
    scaled = [Scaled(block, Fraction(index + 2, 2)) for index, block in enumerate(blocks_of(schema, asked))]
    assert largest_distance(scaled, schema) == pytest.approx(float(largest(scaled, schema)), rel=1e-8)


def second_moments(columns: int, rows: str) -> tuple[list[Scaled], Schema]:
    """All second moments of columns in [-1, 1], weighted as in the Frobenius norm."""
    names = [f"v{index}" for index in range(columns)]
    schema = read_schema(
        {
            "columns": {name: {"lower": -1.0, "upper": 1.0, "missing": False} for name in names},
            "max_rows": 100,
            "rows": rows,
        }
    )
    scaled = []
    for first, second in itertools.combinations_with_replacement(names, 2):
        block = product(schema, first, second)
        weight = 1.0 if first == second else math.sqrt(2)
        scaled.append(Scaled(block, Fraction(weight) / block.greatest(schema)))
    return scaled, schema


@pytest.mark.parametrize("columns", [2, 6, 12, 50])
def test_all_second_moments_have_the_norms_of_the_proof(columns: int) -> None:
    private, schema = second_moments(columns, "private")
    assert math.sqrt(largest_norm(private, schema)) == pytest.approx(columns, rel=1e-6)
    public, schema = second_moments(columns, "public")
    assert math.sqrt(largest_distance(public, schema)) == pytest.approx(math.sqrt(2) * columns, rel=1e-6)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
@pytest.mark.parametrize("rows", ["private", "public"])
def test_rounded_and_clamped_sums_move_by_at_most_the_sensitivity(rows: str, data: st.DataObject) -> None:
    """Two tables that differ in one row, with more rows than `max_rows` where that is allowed."""
    schema = small(rows)
    blocks = blocks_of(schema, ["mean(a)", "variance(b)", "a x c", "covariance(a, b)"])
    scaled = [Scaled(block, data.draw(SCALES) / 3) for block in blocks]
    row = st.tuples(
        st.sampled_from([0.0, 1.0, 2.0, 3.0, math.nan]),
        st.sampled_from([-1.0, 0.0, 1.0, math.nan]),
        st.sampled_from(["x", "y", "?"]),
    )
    table = data.draw(st.lists(row, min_size=1, max_size=5 if rows == "public" else 9))
    index = data.draw(st.integers(0, len(table) - 1))
    other = table[:index] + table[index + 1 :]
    if rows == "public":
        other.insert(index, data.draw(row))
    first, second = (vector(scaled, schema, each) for each in (table, other))
    bound = sensitivity_of(scaled, schema)
    difference = np.abs(np.array(first) - np.array(second))
    assert math.sqrt(float(difference @ difference)) <= bound.l2
    assert difference.max() <= bound.linf
    assert difference.sum() <= bound.l1


def vector(scaled: list[Scaled], schema: Schema, rows: list[tuple[float, float, str]]) -> list[int]:
    columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate(("a", "b"))}
    columns |= {"c": np.array([row[2] for row in rows], dtype=object), "d": np.array(["only"] * len(rows))}
    table = read_table(columns, schema)
    result = []
    for one in scaled:
        low, high = (
            schema.max_rows * value * one.scale
            for value in (one.block.least(schema), one.block.greatest(schema))
        )
        for total in one.block.sums(table):
            result.append(min(max(round_half_up(total * one.scale), round_half_up(low)), round_half_up(high)))
    return result


def test_a_person_costs_the_rows_and_parties_of_one() -> None:
    schema = small("private")
    scaled = [Scaled(block, Fraction(3)) for block in blocks_of(schema, ["mean(a)", "a x c"])]
    one = sensitivity_of(scaled, schema)
    person = small("private", unit="person", id="who", rows_per_person=3, parties_per_person=2)
    whole = sensitivity_of(scaled, person)
    assert whole.l2 == pytest.approx(6 * one.l2, rel=1e-6)
    assert whole.linf == pytest.approx(6 * one.linf, rel=1e-6)
