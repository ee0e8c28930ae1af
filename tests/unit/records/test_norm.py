"""Rows that are clipped in L2: no row exceeds the bound, the sensitivity of moments, answers, refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.engine.registry import checker_of
from smpc_dp.errors import ConfigError
from smpc_dp.records import table as tables
from smpc_dp.records.features import product
from smpc_dp.records.plan import plan_request
from smpc_dp.records.record_audit import audit_records
from smpc_dp.records.schema import RowNorm, Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, sensitivity_of
from smpc_dp.records.table import Table, read_table
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

NAMES = ("a", "b", "c")


def settings(bound: float, rows: str = "private", step: float | None = None) -> dict[str, Any]:
    column: dict[str, Any] = {"lower": -1.0, "upper": 1.0} | ({} if step is None else {"step": step})
    columns = {name: column for name in (*NAMES, "other")}
    return {
        "columns": columns,
        "max_rows": 1000,
        "rows": rows,
        "norm": {"columns": list(NAMES), "bound": bound},
    }


def norms(table: Table) -> list[Fraction]:
    """Return the exact squared norm of each row, in half ranges."""
    steps = [table.schema.number(name, name).steps for name in NAMES]
    codes = [table.codes[name].tolist() for name in NAMES]
    return [
        sum((Fraction(code, count) ** 2 for code, count in zip(row, steps, strict=True)), Fraction(0))
        for row in zip(*codes, strict=True)
    ]


@pytest.mark.parametrize("step", [None, 0.125])
@pytest.mark.parametrize("bound", [0.3, 1.0, 1.6])
def test_no_row_exceeds_the_bound_and_a_shorter_one_is_as_it_was(bound: float, step: float | None) -> None:
    rng = np.random.default_rng(1)
    rows = dict(zip((*NAMES, "other"), rng.uniform(-1.2, 1.2, (4, 800)), strict=True))
    rows["b"][:9] = np.nan
    schema = read_schema(settings(bound, step=step))
    bounded, free = read_table(rows, schema), read_table(rows, replace(schema, norm=None))
    assert max(norms(bounded)) <= Fraction(bound) ** 2
    long = np.array([square > Fraction(bound) ** 2 for square in norms(free)])
    clear = np.array([square < Fraction(bound) ** 2 * Fraction(999_999, 1_000_000) for square in norms(free)])
    assert bounded.dropped.shortened == long.sum() > 0
    for name in NAMES:
        assert (bounded.codes[name][clear] == free.codes[name][clear]).all()
        # in the direction of the row, to within a step
        after, before = bounded.codes[name][long], free.codes[name][long]
        assert (after * before >= 0).all()
        assert (np.abs(after) <= np.abs(before)).all()
    assert (bounded.codes["other"] == free.codes["other"]).all()
    if step is None:
        after = np.array([float(square) for square in norms(bounded)])
        assert after[long].min() > 0.999 * bound**2


def scaled(schema: Schema, rng: np.random.Generator) -> list[Scaled]:
    """Return all moments of three columns and one that is not bounded, with scales of their own."""
    names = (*NAMES, "other")
    powers = [(), *((name,) for name in names), *itertools.combinations_with_replacement(names, 2)]
    blocks = [product(schema, *power, over=names) for power in powers]
    chosen = [block for block in blocks if not block.powers or rng.random() < 0.7]
    return [
        Scaled(block, Fraction(int(rng.integers(1, 20) * 1000), block.greatest(schema))) for block in chosen
    ]


def features(blocks: list[Scaled], table: Table) -> NDArray[np.float64]:
    """Return what each row adds to the scaled sums."""
    columns = []
    for one in blocks:
        value = np.full(table.rows, float(one.scale))
        for name in one.block.powers:
            value = value * table.codes[name]
        for name in one.block.present:
            value = value * table.present[name]
        columns.append(value)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("rows", ["private", "public"])
@pytest.mark.parametrize("bound", [0.5, 1.0, 1.4])
def test_no_row_and_no_pair_of_rows_is_further_apart_than_the_sensitivity(bound: float, rows: str) -> None:
    """Rows on the sphere, within it, and at the corners of the box, with ten choices of blocks."""
    rng = np.random.default_rng(2)
    directions = rng.normal(size=(400, 4))
    directions[:200] = np.sign(directions[:200]) * (rng.random((200, 4)) < 0.5)
    directions[rng.random(directions.shape) < 0.05] = np.nan
    given = dict(zip((*NAMES, "other"), (directions * 3).T, strict=True))
    schema = read_schema(settings(bound, rows))
    table, nearest = read_table(given, schema), 0.0
    for _ in range(10):
        blocks = scaled(schema, rng)
        vectors = np.vstack([features(blocks, table), np.zeros((1, len(blocks)))])
        if rows == "private":
            furthest = float(np.linalg.norm(vectors, axis=1).max())
        else:
            furthest = float(np.linalg.norm(vectors[:, None] - vectors[None], axis=2).max())
        limit = sensitivity_of(blocks, schema).l2
        assert furthest <= limit
        nearest = max(nearest, furthest / limit)
        # never worse than without it
        assert limit <= sensitivity_of(blocks, replace(schema, norm=None)).l2
    assert nearest > 0.7


@pytest.mark.parametrize("bound", [0.5, 1.0, 1.6])
def test_second_moments_have_the_sensitivity_of_the_proof(bound: float) -> None:
    """R^2 under add-remove, and sqrt(2) R^2 under substitution, in the Frobenius norm."""
    for rows, factor in (("private", 1.0), ("public", math.sqrt(2))):
        schema = read_schema(settings(bound, rows))
        pairs = itertools.combinations_with_replacement(NAMES, 2)
        blocks = [
            Scaled(
                product(schema, *pair),
                Fraction(1000 if pair[0] == pair[1] else round(1000 * math.sqrt(2)), 1 << 48),
            )
            for pair in pairs
        ]
        schema = replace(
            schema, columns={name: replace(one, missing=False) for name, one in schema.columns.items()}
        )
        blocks = [Scaled(replace(one.block, present=()), one.scale) for one in blocks]
        rounding = math.sqrt(6)
        expected = 1000 * factor * bound**2
        assert sensitivity_of(blocks, schema).l2 == pytest.approx(expected + rounding, rel=2e-3)


def test_errors_are_smaller_and_answers_are_those_of_the_shortened_rows() -> None:
    """Ten columns of which a row has a norm of about 1.2: the error is a third, the bias as documented.

    55 estimates within 6 standard errors of their noise; false alarms: 1.1e-7.
    """
    names = [f"x{index}" for index in range(10)]
    rng = np.random.default_rng(4)
    common = rng.normal(size=(3000, 1))
    rows = np.clip(0.2 * common + 0.3 * rng.normal(size=(3000, 10)), -1, 1)
    given = {
        "columns": {name: {"lower": -1.0, "upper": 1.0, "missing": False} for name in names},
        "max_rows": 3000,
        "rows_expected": 3000,
    }
    ask = f"covariance({', '.join(names)})"
    bounded = {**given, "norm": {"columns": names, "bound": 1.2}}
    errors = [
        plan_request(read_schema(one), ask, epsilon=1.0, delta=1e-6, parties=3).errors(3)[0].standard_error
        or 0.0
        for one in (given, bounded)
    ]
    assert errors[1] < 0.35 * errors[0]
    parts = [dict(zip(names, part.T, strict=True)) for part in np.split(rows, 3)]
    answers = smpc_dp.simulate.statistics(
        parts, ask, schema=bounded, epsilon=50.0, delta=1e-6, corrupt=0.0, seed_for_simulation=1
    )
    short = rows * np.minimum(1.0, 1.2 / np.linalg.norm(rows, axis=1))[:, None]
    truth = np.cov(short.T, bias=True)
    for one in answers.estimates:
        first, second = one.name[len("covariance(") : -1].split(", ")
        value = float(truth[names.index(first), names.index(second)])
        assert one.value == pytest.approx(value, abs=6 * (one.standard_error or 0.0))
    assert truth[0, 1] < 0.8 * np.cov(rows.T, bias=True)[0, 1]


def test_rows_that_are_not_shortened_are_found_by_an_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "records": settings(0.5),
        "ask": "covariance(a, b, c)",
        "epsilon": 1.0,
        "delta": 1e-6,
        "corrupt": 0.0,
    }
    checked, issues = checker_of("secagg", 2)(given, 5)
    assert issues == []
    right = audit_records(checked, 20_000, SeededRandomnessForSimulation(1, "audit"))
    assert not right.violations
    assert right.moved > 0.6
    monkeypatch.setattr(tables, "_shorten", lambda codes, schema: 0)  # noqa: ARG005
    wrong = audit_records(checked, 20_000, SeededRandomnessForSimulation(1, "audit"))
    assert wrong.moved > 2
    assert wrong.findings[0].refuted


@pytest.mark.parametrize(
    ("norm", "reason"),
    [
        ({"columns": ["a"], "bound": 0.5}, "records.norm.columns"),
        ({"columns": ["a", "z"], "bound": 0.5}, "records.norm.columns: 'z' is no column of numbers"),
        ({"columns": ["a", "a"], "bound": 0.5}, "records.norm.columns: has a column twice"),
        ({"columns": ["a", "b"], "bound": 1.5}, "records.norm.bound: must be below sqrt(2) = 1.414"),
        ({"columns": ["a", "b"], "bound": 0.0}, "records.norm.bound"),
        ({"columns": ["a", "b"], "bound": math.nan}, "records.norm.bound"),
        ({"columns": ["a", "b"]}, "records.norm"),
        (1.0, "records.norm"),
    ],
)
def test_a_wrong_bound_is_refused_by_its_key(norm: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_schema({**settings(0.5), "norm": norm})
    assert any(reason in f"{issue.where}: {issue.reason}" for issue in caught.value.issues), caught.value


def test_a_schema_with_a_bound_reads_what_it_writes() -> None:
    schema = read_schema(settings(0.5))
    assert schema.norm == RowNorm(columns=NAMES, bound=0.5)
    assert read_schema(schema.to_json()) == schema
