"""Derived columns: their bounds, which values rows have, how far one row moves sums, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.records.derived import function_codes
from smpc_dp.records.odd_values import odd_values
from smpc_dp.records.plan import plan_request
from smpc_dp.records.schema import Category, Function, Number, Schema, read_schema
from smpc_dp.records.table import read_table

COLUMNS = {
    "income": {"lower": 1.0, "upper": 100.0},
    "change": {"lower": -4.0, "upper": 2.0, "step": 1.0},
    "score": {"lower": 2.0, "upper": 6.0, "step": 1.0, "missing": False},
}
DERIVED = {
    "log_income": {"function": "log", "of": "income", "bins": [2.0]},
    "squared": {"function": "square", "of": "change"},
    "score2": {"function": "square", "of": "score"},
    "band": {"of": "age", "edges": [30, 60], "reference": "[30, 60)"},
    "age": {"unit": "years", "start": "born", "end": "seen", "lower": 18, "upper": 90},
    "stay": {"unit": "days", "start": "seen", "end": "2026-07-01", "lower": 0, "upper": 365},
    "age2": {"function": "square", "of": "age"},
}
ROWS: dict[str, list[Any]] = {
    "income": [1.0, 10.0, 1000.0, None],
    "change": [-4.0, 2.0, 9.0, "?"],
    "score": [2.0, 6.0, 3.0, None],
    "born": ["1996-02-29", "1980-07-02", "2020-01-01T10:00", "1990-02-30"],
    "seen": ["2026-02-28", "2026-07-02", "2026-06-30 09:00", "2026-01-01"],
}


def schema(rows: str = "private") -> Schema:
    return read_schema({"columns": COLUMNS, "derived": DERIVED, "max_rows": 100, "rows": rows})


def test_bounds_and_categories_follow_from_those_of_the_source() -> None:
    columns = schema().columns
    assert columns["log_income"] == Number(lower=0.0, upper=math.log(100.0), bins=(2.0,))
    assert columns["squared"] == Number(lower=0.0, upper=16.0)
    assert columns["score2"] == Number(lower=4.0, upper=36.0, missing=False)
    assert columns["age"] == Number(lower=18.0, upper=90.0, step=1.0)
    assert columns["age2"] == Number(lower=324.0, upper=8100.0)
    assert columns["band"] == Category(values=("[18, 30)", "[30, 60)", "[60, 90]"), reference="[30, 60)")
    assert (list(schema().given), schema().dates) == ([*COLUMNS], ("born", "seen"))


def values(name: str) -> list[float]:
    column = schema().number(name, name)
    return [column.edge(point) for point in read_table(ROWS, schema()).grid(name).tolist()]


def test_values_follow_from_the_clipped_ones_of_the_row_and_are_missing_with_them() -> None:
    table = read_table(ROWS, schema())
    steps = 1 << 24
    assert values("log_income")[:3] == pytest.approx([0, math.log(10), math.log(100)], abs=5 / steps)
    assert values("squared")[:3] == pytest.approx([16, 4, 4], abs=16 / steps)
    assert values("age")[:3] == [29, 46, 18]
    assert values("age2")[:2] == pytest.approx([29**2, 46**2], abs=8100 / steps)
    assert values("stay") == [123, 0, 1, 181]
    assert table.codes["band"].tolist() == [0, 1, 0, -1]
    for name in ("log_income", "squared", "age", "band", "age2"):
        assert table.given[name].tolist() == table.present[name].tolist() == [True] * 3 + [False]
        assert table.codes[name][3] == (-1 if name == "band" else 0)
    # a missing value counts as the middle of the derived range, not as the function of the source's middle
    assert (table.codes["score2"][3], table.present["score2"][3], table.given["score2"][3]) == (
        0,
        True,
        False,
    )
    # what was changed is told with the source; a negative stay and an early age are clipped
    assert table.dropped.clipped == {"income": 1, "change": 1, "age": 1, "stay": 1}
    assert table.dropped.missing == {"income": 1, "change": 1, "score": 1, "age": 1}
    assert table.above["log_income"].tolist() == [False, False, True, False]
    assert not table.above["squared"].any()


@pytest.mark.parametrize(
    ("born", "seen", "years"),
    [
        ("2000-02-29", "2018-02-28", 17),
        ("2000-02-29", "2018-03-01", 18),
        ("2000-02-29", "2020-02-29", 20),
        ("1950-12-31", "1999-12-30", 48),
        ("1950-12-31", "1999-12-31", 49),
        ("1969-06-01", "1970-05-31", 0),
    ],
)
def test_a_year_is_complete_on_its_day(born: str, seen: str, years: int) -> None:
    derived = {"age": {"unit": "years", "start": "born", "end": seen, "lower": 0, "upper": 110}}
    known = read_schema({"columns": {"x": COLUMNS["income"]}, "derived": derived, "max_rows": 9})
    for given in (born, np.datetime64(born), f"{born} 00:00:00"):
        table = read_table({"x": [1.0], "born": np.array([given])}, known)
        assert table.grid("age").tolist() == [years]


def test_one_row_alone_decides_its_value_within_the_bounds() -> None:
    """Values in the middle, out of bounds and missing."""
    known = schema()
    numbers: dict[str, list[Any]] = {"income": [-1.0, 7.0, 1e9, None], "change": [-9.0, 0.0, 9.0, None]}
    numbers |= {"score": [0.0, 4.0, 9.0, None], "born": ["0001-01-01", "1990-05-05", "9999-12-31", "x"]}
    numbers["seen"] = ["2000-01-01", "2026-01-01", "2026-06-30", ""]
    others = {name: [each[1]] * 3 for name, each in numbers.items()}
    before, moved = read_table(others, known), dict.fromkeys(DERIVED, False)
    for row in ({name: value} for name, each in numbers.items() for value in each):
        changed = {name: [each[0], row.get(name, each[1]), each[2]] for name, each in others.items()}
        table = read_table(changed, known)
        for name in DERIVED:
            differs = table.codes[name] != before.codes[name]
            assert not differs[[0, 2]].any()
            column = known.columns[name]
            most = column.steps if isinstance(column, Number) else len(column.values) - 1
            assert (np.abs(table.codes[name]) <= most).all()
            moved[name] |= bool(differs[1])
    assert all(moved.values())


@pytest.mark.parametrize("rows", ["private", "public"])
def test_one_row_moves_the_sums_no_further_than_the_sensitivity(rows: str) -> None:
    known = schema(rows)
    ask = ["mean(log_income)", "variance(squared) by band", "covariance(score2, log_income)", "band"]
    plan = plan_request(known, ask, epsilon=1.0, delta=1e-6, parties=3)
    choices: dict[str, list[Any]] = {
        "income": [1.0, 30.0, 100.0, None],
        "change": [-4.0, 0.0, 2.0],
        "score": [2.0, 6.0, None],
    }
    choices |= {"born": ["1930-01-01", "2005-01-01", "x"], "seen": ["2026-01-01"]}
    vectors = [
        plan.vector(read_table({name: [value] for name, value in zip(choices, row, strict=True)}, known))
        for row in itertools.product(*choices.values())
    ]
    if rows == "private":
        vectors.append(np.zeros_like(vectors[0]))
        pairs = [(one, vectors[-1]) for one in vectors]
    else:
        pairs = list(itertools.combinations(vectors, 2))
    squares = [float(((one - other).astype(np.float64) ** 2).sum()) for one, other in pairs]
    assert 0.5 * plan.sensitivity.l2 <= math.sqrt(max(squares)) <= plan.sensitivity.l2


@pytest.mark.parametrize("direction", [-math.inf, math.inf])
def test_logarithms_have_one_point_on_all_machines(direction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that differ in the last bit; of 2^16 values some would have other points."""
    source = Number(lower=1e6, upper=1e6 + 1000)
    one = Function(function="log", of="x")
    column = one.column(source, "x")
    assert isinstance(column, Number)
    codes = 2 * np.arange(0, source.steps, source.steps >> 16) - source.steps
    exact = function_codes(one, source, column, codes)
    log = np.log
    points = {
        factor: column.points(
            np.nextafter(log(1e6 + (codes + source.steps) / 2 * 1000 / source.steps), factor)
        )
        for factor in (-math.inf, math.inf)
    }
    assert (points[math.inf] != points[-math.inf]).any()
    monkeypatch.setattr(np, "log", lambda values: np.nextafter(log(values), direction))
    assert (function_codes(one, source, column, codes) == exact).all()


def test_the_owner_is_told_of_repeated_dates_out_of_bounds() -> None:
    given = ROWS | {"born": ["1900-01-01"] * 4}
    assert [line for line in odd_values(given, schema()) if "extreme value" not in line] == [
        "age: numbers out of bounds that repeat, with their rows: 126 (4): of a code for a missing value "
        "leave the cell empty"
    ]
    numbers = read_schema({"columns": {"income": COLUMNS["income"]}, "max_rows": 9})
    assert list(odd_values({"income": [7.0]}, numbers)) == []


FAULTS: dict[str, tuple[Any, str]] = {
    "a logarithm of a number that may be 0": (
        {"function": "log", "of": "zero"},
        "records.derived.x.of: lower of 'zero' must be above 0 for a logarithm, is 0",
    ),
    "an unknown source": (
        {"function": "log", "of": "nothing"},
        "records.derived.x.of: 'nothing' is no column of numbers (columns: zero)",
    ),
    "a source of categories": (
        {"function": "square", "of": "sex"},
        "records.derived.x.of: 'sex' is no column of numbers (columns: zero)",
    ),
    "an unknown function": (
        {"function": "cube", "of": "zero"},
        "records.derived.x.function: must be 'log' or 'square', is 'cube'",
    ),
    "an edge at a bound": (
        {"of": "zero", "edges": [9.0]},
        "records.derived.x.edges: must be inner edges, between the bounds 0 and 9: 9 is not",
    ),
    "an unknown reference": (
        {"of": "zero", "edges": [5], "reference": "low"},
        "records.derived.x.reference: 'low' is none of `values`: [0, 5), [5, 9]",
    ),
    "no date": (
        {"unit": "days", "start": "born", "end": "2026-02-30", "lower": 0, "upper": 9},
        "records.derived.x.end: '2026-02-30' is neither a column nor a date as 2026-01-31",
    ),
    "two dates": (
        {"unit": "days", "start": "2026-01-01", "end": "2026-01-02", "lower": 0, "upper": 9},
        "records.derived.x.start: needs one column of dates at least, and two different ends",
    ),
    "dates in a column of numbers": (
        {"unit": "days", "start": "zero", "end": "2026-01-02", "lower": 0, "upper": 9},
        "records.derived.x.start: 'zero' is one of `columns`: a column of dates is none of these",
    ),
    "no range": (
        {"unit": "days", "start": "born", "end": "2026-01-02", "lower": 9, "upper": 9},
        "records.derived.x.lower: 9 is not below upper 9, both within 1e+75",
    ),
    "no unit": (
        {"start": "born", "end": "2026-01-02", "lower": 0, "upper": 9},
        "records.derived.x.unit: is missing",
    ),
    "an unknown kind": ({"kind": "sum", "of": "zero"}, "records.derived.x.kind: must be 'function' or "),
    "a text": ("log(zero)", "records.derived.x: must be a table, is 'log(zero)'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_derived_is_refused_with_its_name(name: str) -> None:
    given, reason = FAULTS[name]
    columns = {"zero": {"lower": 0.0, "upper": 9.0}, "sex": {"values": ["f", "m"]}}
    with pytest.raises(ConfigError) as refused:
        read_schema({"columns": columns, "derived": {"x": given}, "max_rows": 9})
    assert str(refused.value).startswith(reason)


def test_a_derived_column_has_a_name_of_its_own() -> None:
    given = {"columns": {"a": COLUMNS["income"]}, "max_rows": 9}
    for name, reason in (
        ("a", "records.derived.a: is one of `columns` too"),
        ("a b", "must be a letter or _"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read_schema(given | {"derived": {name: {"function": "log", "of": "a"}}})
