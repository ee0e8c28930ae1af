"""Two tables in ten parts, what is asked of them, and the exact answers of the pooled rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.capabilities.learn.data import california_houses
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import Table, read_columns, read_table

PARTIES = 10
LENDING = Path(smpc_dp.__file__).parent / "demo/data/lending_club.csv"
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Study:
    """A data set for the records benchmark: rows, declared columns, and statistics to ask for.

    Attributes:
        rows: all rows, clipped to the declared bounds.
        declared: the columns as a session declares them.
        ask: the statistics of one request.
        tests: those of another request, of rows that are drawn anew each time.
        drawn: columns that are permuted in each draw, so that no test has anything to find.
        crossed: two columns of categories, one of them in `drawn`, whose cells are small in a draw of few
            rows; none: no such table.
    """

    name: str
    rows: Columns
    declared: Mapping[str, Mapping[str, object]]
    ask: tuple[str, ...]
    tests: tuple[str, ...]
    drawn: tuple[str, ...]
    crossed: tuple[str, ...] = ()

    def schema(self, rows: int) -> Schema:
        """Return the schema in which ten parties hold together about `rows` rows."""
        return read_schema({"columns": self.declared, "max_rows": rows, "rows_expected": rows})

    @property
    def size(self) -> int:
        """The number of rows of the table."""
        return len(next(iter(self.rows.values())))

    def parts(self, schema: Schema) -> list[Table]:
        """Return the rows divided at random, but always alike, among ten parties."""
        order = np.random.default_rng(1).permutation(self.size)
        return [
            read_table({name: column[chosen] for name, column in self.rows.items()}, schema)
            for chosen in np.array_split(order, PARTIES)
        ]

    def resampled(self, table: Table, rng: np.random.Generator, size: int) -> Table:
        """Return so many independent draws of the rows of a table that has all of them.

        The columns `drawn` are drawn without the others, so they do not depend on them.
        """
        own = {name: rng.integers(0, self.size, size) for name in ("", *self.drawn)}
        read: dict[str, Any] = {
            key: {name: values[own.get(name, own[""])] for name, values in getattr(table, key).items()}
            for key in ("codes", "present", "given", "above")
        }
        return replace(table, **read, counted=table.counted[:size], rows=size)

    def exact(self, one: Estimate) -> float:
        """Return an answer of the pooled rows without noise, computed here and not by the product."""
        rows, kind = self.rows, one.statistic.split("(")[0].strip()
        if kind == "regression":
            response, regressors = one.statistic.removeprefix("regression(").rstrip(")").split(" ~ ")
            names = regressors.split(" + ")
            design = np.column_stack([np.ones(self.size), *(rows[name] for name in names)])
            fit = np.linalg.lstsq(design, rows[response], rcond=None)[0]
            return float(fit[["intercept", *(f"slope of {name}" for name in names)].index(one.name)])
        inside = np.ones(self.size, dtype=bool)
        for name, label in one.cell.items():
            inside &= _in_cell(rows[name], label)
        if one.name == "count":
            return float(inside.sum())
        column = rows[one.statistic.split("(")[1].split(")")[0].split(",")[0]][inside]
        if kind == "quantile":
            level = float(one.name.rstrip(")").split(", ")[1])
            return float(np.quantile(column, level, method="inverted_cdf"))
        numbers: dict[str, Callable[[], Any]] = {"mean": column.mean, "variance": column.var}
        return float(numbers[kind]())

    def population(self, one: Estimate) -> float | None:
        """Return the true value if `drawn` columns are independent of others; None for other estimates."""
        if one.name.startswith(("difference", "risk difference", "correlation")):
            return 0.0
        if one.name.startswith(("risk ratio", "odds ratio")):
            return 1.0
        if one.name.startswith("risk of"):
            return float(self.rows[one.statistic.split("(")[1].split(")")[0]].mean())
        return None


def _in_cell(column: NDArray[Any], label: str) -> NDArray[np.bool_]:
    """Tell which values are in a category, or in a bin [a, b) or [a, b]."""
    if not label.startswith("["):
        return np.asarray(column == label)
    low, high = (float(end) for end in label[1:-1].split(", "))
    return np.asarray((column >= low) & ((column <= high) if label.endswith("]") else (column < high)))


def houses(path: Path) -> Study:
    """Return the 20,640 block groups of California, values in thousands of dollars."""
    table = california_houses(path).table
    longitude, latitude, age, income = (table[:, index] for index in (0, 1, 2, 7))
    value = 100 * table[:, 8]
    rng = np.random.default_rng(2)
    north, west = latitude >= 36, longitude + latitude < -84
    rows: Columns = {
        "age": np.clip(age, 0, 60),
        "income": np.clip(income, 0, 16),
        "value": np.clip(value, 0, 500),
        "region": np.where(north, np.where(west, "nw", "ne"), np.where(longitude < -118.2, "sw", "se")),
        "dear": (value > 300) * 1.0,
        "arm": rng.choice(["a", "b"], len(age), p=[0.4, 0.6]),
    }
    declared: dict[str, dict[str, object]] = {
        "age": {"lower": 0.0, "upper": 60.0, "step": 1.0, "missing": False},
        "income": {"lower": 0.0, "upper": 16.0, "missing": False},
        "value": {"lower": 0.0, "upper": 500.0, "missing": False},
        "region": {"values": ["nw", "ne", "sw", "se"]},
        "dear": {"lower": 0.0, "upper": 1.0, "step": 1.0, "missing": False},
        "arm": {"values": ["a", "b"]},
    }
    ask = (
        "count",
        "mean(value)",
        "variance(income)",
        "mean(income) by region",
        "histogram(age, 10)",
        "quantile(income, 0.25, 0.5, 0.75)",
        "regression(value ~ income + age)",
    )
    tests = (
        "difference(income) by arm",
        "risk(dear) by arm",
        "chi_square(arm, region)",
        "correlation(income, age)",
    )
    return Study("California houses", rows, declared, ask, tests, ("arm", "age"), ("arm", "region"))


def lending(path: Path = LENDING) -> Study:
    """Return the 9,857 loans, amounts and incomes in thousands of dollars."""
    names = ["funded_amnt", "int_rate", "annual_inc", "sub_grade", "term", "Class"]
    read = read_columns(path, names, path.name).values
    amount, rate, income, grade, term, quality = (np.array(list(read[name])) for name in names)
    rng = np.random.default_rng(3)
    rows: Columns = {
        "amount": np.clip(amount.astype(float) / 1000, 0, 40),
        "rate": np.clip(rate.astype(float), 5, 31),
        "income": np.clip(income.astype(float) / 1000, 0, 300),
        "grade": np.array([label[0] for label in grade]),
        "term": term,
        "bad": (quality == "bad") * 1.0,
        "arm": rng.choice(["a", "b"], len(rate), p=[0.4, 0.6]),
    }
    declared: dict[str, dict[str, object]] = {
        "amount": {"lower": 0.0, "upper": 40.0, "missing": False},
        "rate": {"lower": 5.0, "upper": 31.0, "missing": False},
        "income": {"lower": 0.0, "upper": 300.0, "missing": False},
        "grade": {"values": sorted({*rows["grade"].tolist()})},
        "term": {"values": sorted({*term.tolist()})},
        "bad": {"lower": 0.0, "upper": 1.0, "step": 1.0, "missing": False},
        "arm": {"values": ["a", "b"]},
    }
    ask = (
        "count",
        "mean(rate)",
        "variance(amount)",
        "mean(amount) by term",
        "histogram(rate, [8, 11, 14, 17, 20, 25, 28.5])",
        "quantile(income, 0.25, 0.5, 0.75)",
        "regression(rate ~ amount + income)",
    )
    tests = (
        "difference(rate) by arm",
        "risk(bad) by arm",
        "chi_square(arm, grade)",
        "correlation(rate, amount)",
    )
    return Study("lending", rows, declared, ask, tests, ("arm", "amount"), ("arm", "grade"))
