"""Differences between parties: the sensitivity of S^2/n, and Q and I² against their formulas."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.features import party_squares
from smpc_dp.records.heterogeneity import NEAR_ZERO_Q, NOT_CLEAR
from smpc_dp.records.plan import plan_request
from smpc_dp.records.result import NEAR_ZERO, WITHIN_NOISE
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, sensitivity_of
from smpc_dp.records.table import read_table

UNIT = st.fractions(-1, 1, max_denominator=8)


def schema(rows: str) -> Schema:
    return read_schema({"columns": {"v": {"lower": 0.0, "upper": 1.0}}, "max_rows": 5000, "rows": rows})


def squares(rows: list[Fraction]) -> Fraction:
    return sum(rows, Fraction(0)) ** 2 / len(rows) if rows else Fraction(0)


@given(st.lists(UNIT, max_size=8), UNIT, UNIT)
def test_a_row_moves_the_squared_sum_over_the_number_by_at_most_the_bound(
    rows: list[Fraction], row: Fraction, other: Fraction
) -> None:
    assert -3 < squares([*rows, row]) - squares(rows) <= 1
    assert abs(squares([*rows, row]) - squares([*rows, other])) < 4


@pytest.mark.parametrize(("rows", "most"), [("private", 3), ("public", 4)])
def test_the_sensitivity_is_that_bound(rows: str, most: int) -> None:
    known = schema(rows)
    block = party_squares(known, "v")
    bound = sensitivity_of([Scaled(block, Fraction(1000, block.greatest(known)))], known)
    assert bound.l2 == pytest.approx(1000 * most, rel=1e-6)
    assert bound.linf == 1000 * most


def sites(spread: float) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [
        np.clip(rng.normal(0.5 + spread * rng.normal(), 0.15, n), 0, 1) for n in (800, 1500, 3000, 700, 2000)
    ]


def textbook(tables: list[np.ndarray]) -> tuple[float, float]:
    everything = np.concatenate(tables)
    inside = sum(((table - table.mean()) ** 2).sum() for table in tables) / (len(everything) - len(tables))
    q = float(sum(len(table) * (table.mean() - everything.mean()) ** 2 for table in tables) / inside)
    return q, max(0.0, 1 - (len(tables) - 1) / q)


@pytest.mark.thin(3)
@pytest.mark.parametrize("spread", [0.0, 0.05])
@pytest.mark.parametrize("rows", ["private", "public"])
def test_q_and_i_squared_are_those_of_the_sites(rows: str, spread: float) -> None:
    """Exact without noise; of 300 releases at least 91 % of the intervals hold: false alarms below 1e-3."""
    known, tables = schema(rows), sites(spread)
    number = sum(map(len, tables)) if rows == "public" else None
    q, share = textbook(tables)
    plans = [
        plan_request(known, "heterogeneity(v)", epsilon=epsilon, delta=1e-6, parties=5, corrupt=1)
        for epsilon in (100.0, 2.0)
    ]
    read = [read_table({"v": table}, known) for table in tables]
    exact = np.sum([plans[0].vector(table) for table in read], axis=0)
    values = [one.value for one in estimate(plans[0], exact, 5, rows=number).estimates]
    assert values == pytest.approx([q, share], rel=1e-2, abs=0.01)
    plan = plans[1]
    exact = np.sum([plan.vector(table) for table in read], axis=0)
    source = NoiseSource.keyed(hashlib.sha256(f"{rows} {spread}".encode()).digest(), b"sites")
    inside = 0
    for _ in range(300):
        noise = plan.mechanism.share.noise(source, 5 * plan.length).reshape(5, -1).sum(axis=0)
        first, second = estimate(plan, exact + noise, 5, rows=number).estimates
        assert first.low is not None
        assert second.low is not None
        high, most = (math.inf if one.high is None else one.high for one in (first, second))
        inside += first.low <= q <= high and second.low <= share <= most
    assert inside >= 0.91 * 300


def test_the_standard_error_of_q_counts_the_noise_of_the_variance_within() -> None:
    """Most of it where parties differ much; of 300 draws the spread is within a fifth, five deviations."""
    known, tables = schema("private"), sites(0.3)
    plan = plan_request(known, "heterogeneity(v)", epsilon=4.0, delta=1e-6, parties=5, corrupt=1)
    exact = np.sum([plan.vector(read_table({"v": table}, known)) for table in tables], axis=0)
    source = NoiseSource.keyed(hashlib.sha256(b"error of Q").digest(), b"sites")
    drawn, stated = [], []
    for _ in range(300):
        noise = plan.mechanism.share.noise(source, 5 * plan.length).reshape(5, -1).sum(axis=0)
        first, _ = estimate(plan, exact + noise, 5).estimates
        drawn.append(first.value or 0.0)
        stated.append(first.standard_error or 0.0)
    assert np.std(drawn) == pytest.approx(np.mean(stated), rel=0.2)


def test_q_is_shown_only_where_the_variance_within_is_clear_of_its_noise() -> None:
    """With three deviations of its noise most Q would be off by more than half: these are not shown.

    With nine Q is always shown, off by what is stated to within a third. 150 and 60 draws, seeded.
    """
    known, tables = schema("private"), sites(0.3)
    for epsilon, draws in ((0.15, 150), (0.45, 60)):
        plan = plan_request(known, "heterogeneity(v)", epsilon=epsilon, delta=1e-6, parties=5, corrupt=1)
        exact = np.sum([plan.vector(read_table({"v": table}, known)) for table in tables], axis=0)
        (true, _) = estimate(plan, exact, 5, hide=0.0).estimates
        source = np.random.default_rng(1)
        off, errors, wild = [], [], 0
        for _ in range(draws):
            total = exact + np.rint(source.normal(0, plan.deviation(5), plan.length)).astype(np.int64)
            q, share = estimate(plan, total, 5).estimates
            assert (q.value is None) == (share.value is None)
            assert (NOT_CLEAR in q.note) == (NOT_CLEAR in share.note) == (q.value is None)
            assert WITHIN_NOISE not in q.note
            if q.value is None:
                (hidden, _) = estimate(plan, total, 5, hide=0.0).estimates
                wild += (hidden.value or 0.0) > 4 * (true.value or 0.0)
            else:
                assert q.standard_error is not None
                off.append(q.value - (true.value or 0.0))
                errors.append(q.standard_error)
        if epsilon < 0.2:
            assert wild > 2
            assert len(off) < 5
        else:
            assert len(off) > 55
            assert np.sqrt(np.mean(np.square(off))) == pytest.approx(np.median(errors), rel=1 / 3)


def test_q_and_i_squared_within_their_noise_say_so_and_not_that_they_are_too_large() -> None:
    known, tables = schema("private"), sites(0.0)
    plan = plan_request(known, "heterogeneity(v)", epsilon=2.0, delta=1e-6, parties=5, corrupt=1)
    total = np.sum([plan.vector(read_table({"v": table}, known)) for table in tables], axis=0)
    both = estimate(plan, total, 5).estimates
    assert all(NEAR_ZERO_Q in one.note and NEAR_ZERO not in one.note for one in both)
    assert all(one.value is not None for one in both)
    few = estimate(plan, np.zeros_like(total), 5).estimates
    assert all(WITHIN_NOISE in one.note and one.value is None for one in few)


def test_a_party_without_rows_counts_only_where_rows_are_private() -> None:
    tables = [*sites(0.05), np.array([])]
    for rows, holders, most in (("public", 5, 5), ("private", None, 6)):
        known = schema(rows)
        plan = plan_request(known, "heterogeneity(v)", epsilon=100.0, delta=1e-6, parties=6, corrupt=1)
        exact = np.sum([plan.vector(read_table({"v": table}, known)) for table in tables], axis=0)
        number = sum(map(len, tables)) if rows == "public" else None
        q, share = estimate(plan, exact, 6, rows=number, holders=holders).estimates
        assert share.value == pytest.approx(1 - (most - 1) / (q.value or 0), rel=1e-3)
        assert f"for {most} parties" in share.note
        assert ("one that has none makes I^2 too small" in share.note) == (rows == "private")


@pytest.mark.parametrize("rows", ["private", "public"])
def test_rows_beyond_those_of_a_person_count_as_the_middle_where_the_number_is_public(rows: str) -> None:
    """A public number of rows has them; a number with noise has not. Exact without noise."""
    tables = sites(0.1)
    column = {"lower": 0.0, "upper": 1.0, "missing": False}
    given = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
    known = read_schema({"columns": {"v": column}, "max_rows": 5000, "rows": rows, **given})
    plan = plan_request(known, "heterogeneity(v)", epsilon=100.0, delta=1e-6, parties=5, corrupt=1)
    # A third of the rows are further ones of a person.
    people = [np.where(np.arange(len(table)) % 3, np.arange(len(table)), 0) for table in tables]
    read = [read_table({"v": v, "who": who}, known) for v, who in zip(tables, people, strict=True)]
    counted = [table.counted for table in read]
    assert sum((~each).sum() for each in counted) > 2000
    if rows == "public":
        meant = [np.where(each, table, 0.5) for table, each in zip(tables, counted, strict=True)]
    else:
        meant = [table[each] for table, each in zip(tables, counted, strict=True)]
    exact = np.sum([plan.vector(table) for table in read], axis=0)
    number = sum(map(len, tables)) if rows == "public" else None
    values = [one.value for one in estimate(plan, exact, 5, rows=number).estimates]
    assert values == pytest.approx(textbook(meant), rel=1e-2, abs=0.01)
