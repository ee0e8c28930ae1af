"""Counts of one request that agree: a slow reference, what they gain, their intervals, and their limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.consistency import Agreement, Margin, reconciled
from smpc_dp.records.exact import NOT_SHOWN, plan_tables
from smpc_dp.records.features import Lacking, Selector, product, selector
from smpc_dp.records.intervals import (
    NORMAL,
    ErrorDistribution,
    SumDistribution,
    distribution_of,
    sum_outside,
)
from smpc_dp.records.noisy import NoisySums
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.quantiles import _interpolated
from smpc_dp.records.result import PROJECTED, Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import read_table
from smpc_dp.records.terms import count_selectors
from tests.examples import examples

Floats = NDArray[np.float64]
ASK = ("count", "ward", "sex", "ward x sex")
SHAPES: dict[str, Any] = {
    "ward": {"values": ["a", "b", "c", "rest"], "other": "rest", "missing": False},
    "sex": {"values": ["f", "m", "x"], "other": "x", "missing": False},
}


def schema_of(columns: dict[str, Any] | None = None, **more: Any) -> Schema:
    return read_schema({"columns": columns or SHAPES, "max_rows": 5000, "rows_expected": 8000} | more)


def design_of(margin: Margin, axes: Sequence[Selector]) -> Floats:
    """Return which cells of the table of all axes are in each cell of a margin."""
    sides = [np.eye(one.cells) if one in margin.axes else np.ones((1, one.cells)) for one in axes]
    design: Floats = np.ones((1, 1))
    for side in sides:
        design = np.asarray(np.kron(design, side), dtype=np.float64)
    order = [one for one in axes if one in margin.axes]
    cells = np.arange(len(design)).reshape([one.cells for one in order])
    return np.asarray(design[cells.transpose([order.index(one) for one in margin.axes]).ravel()])


def dense_fit(
    target: Margin,
    margins: Sequence[Margin],
    counts: Sequence[Floats],
    axes: Sequence[Selector],
    rows: float | None,
) -> tuple[Floats, Floats]:
    """Return the generalised least-squares estimate of the target's cells, and its covariance."""
    design = np.concatenate([design_of(each, axes) for each in margins])
    spread = np.concatenate(
        [np.full(len(own), each.deviation) for each, own in zip(margins, counts, strict=True)]
    )
    values, start = np.concatenate(counts), np.zeros(design.shape[1])
    free = np.eye(len(start))
    if rows is not None:
        start += rows / len(start)
        free = np.vstack([free[:-1, :-1], -np.ones(len(start) - 1)])
    scaled = design @ free / spread[:, None]
    inverse = np.linalg.pinv(scaled.T @ scaled)
    fitted = start + free @ (inverse @ (scaled.T @ ((values - design @ start) / spread)))
    into = design_of(target, axes) @ free
    return design_of(target, axes) @ fitted, into @ inverse @ into.T


@st.composite
def margins_of(draw: st.DrawFn) -> tuple[list[Margin], list[Selector], int]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axes = [Selector(f"column {index}", size) for index, size in enumerate(sizes)]
    chosen = draw(
        st.lists(
            st.lists(st.sampled_from(axes), unique=True, max_size=3),
            min_size=1,
            max_size=5,
            unique_by=frozenset,
        )
    )
    deviations = [draw(st.floats(0.1, 10.0)) for _ in chosen]
    made = [Margin((*own,), each, NORMAL) for own, each in zip(chosen, deviations, strict=True)]
    return made, axes, draw(st.integers(0, 2**32 - 1))


@given(margins_of(), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_counts_are_those_of_generalised_least_squares(
    drawn: tuple[list[Margin], list[Selector], int], is_known: bool
) -> None:
    margins, axes, seed = drawn
    rng = np.random.default_rng(seed)
    counts = [rng.normal(100, 50, math.prod(one.cells for one in each.axes)) for each in margins]
    rows = 321.0 if is_known else None
    fitted = {}
    for margin in margins:
        agreement = Agreement(margin.axes, (*margins,), is_known)
        values, covariance = dense_fit(margin, margins, counts, axes, rows)
        fitted[margin.axes] = agreement.values(counts, rows)
        assert fitted[margin.axes] == pytest.approx(values, abs=1e-6)
        assert agreement.deviation**2 == pytest.approx(np.diag(covariance), rel=1e-6, abs=1e-12)
        assert agreement.deviation <= margin.deviation * (1 + 1e-12)
    for first, second in ((first, second) for first in fitted for second in fitted if {*second} <= {*first}):
        table = fitted[first].reshape([one.cells for one in first])
        summed = table.sum(axis=tuple(index for index, one in enumerate(first) if one not in second))
        left = [one for one in first if one in second]
        assert summed.transpose([left.index(one) for one in second]).ravel() == pytest.approx(fitted[second])


def planned(schema: Schema, ask: tuple[str, ...] = ASK, **more: Any) -> Plan:
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "parties": 10, "missing": 1, "corrupt": 1}
    return plan_request(schema, ask, **(settings | {"laplace": True} | more))


def rows_of(size: int, seed: int, columns: Sequence[str] = ("ward", "sex")) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    given = {
        "ward": rng.choice(["a", "b", "c", "d", ""], size, p=[0.4, 0.3, 0.2, 0.05, 0.05]),
        "sex": rng.choice(["f", "m", ""], size, p=[0.5, 0.45, 0.05]),
        "x": np.where(rng.random(size) < 0.1, np.nan, rng.random(size)),
    }
    return {name: given[name] for name in columns}


class Release:
    """Releases of one request over ten parties with the same rows each, and their exact counts."""

    def __init__(self, schema: Schema, plan: Plan, seed: int = 1) -> None:
        self.table = read_table(rows_of(700, 1, [*schema.columns]), schema)
        self.plan, self.rng = plan, np.random.default_rng(seed)
        self.exact = 10 * plan.vector(self.table)
        self.rows = 10 * self.table.rows if schema.rows == "public" else None
        share = plan.laplace
        # discrete Laplace noises and their sums are as fine as continuous ones here
        self.deviations = np.concatenate(
            [np.full(one.cells, plan.deviation_of(one, 10)) for one in plan.offsets]
        )
        self.scales = np.concatenate(
            [np.full(one.cells, float(scale)) for one, (_, scale) in plan.offsets.items()]
        )
        self.shape = None if share is None else 10 / share.parts

    def drawn(self, *, hide: float = 0.0, noise: float = 1.0) -> list[Estimate]:
        spread = (
            np.ones(len(self.exact))
            if self.shape is None
            else self.rng.gamma(self.shape, 1 / self.shape, len(self.exact))
        )
        added = self.deviations * np.sqrt(spread) * self.rng.normal(0, noise, len(self.exact)) * self.scales
        total = self.exact + np.rint(added).astype(np.int64)
        return [*estimate(self.plan, total, 10, rows=self.rows, hide=hide).estimates]

    def truth(self, one: Estimate) -> float:
        """Return the count of the rows in a cell."""
        rows = np.ones(self.table.rows, dtype=bool)
        for name, value in one.cell.items():
            rows &= self.table.codes[name] == SHAPES[name]["values"].index(value)
        return 10.0 * int(rows.sum())


def cell_of(one: Estimate) -> tuple[str, ...]:
    return (one.statistic, *one.cell.values())


@pytest.mark.parametrize("rows", ["private", "public"])
def test_tables_of_a_release_agree_and_say_what_was_released(rows: str) -> None:
    schema = schema_of(rows=rows)
    release = Release(schema, planned(schema))
    made = {cell_of(one): one for one in release.drawn()}
    values = {cell: one.value or math.nan for cell, one in made.items()}
    whole = values["count",]
    for name in ("ward", "sex"):
        assert sum(value for cell, value in values.items() if cell[0] == name) == pytest.approx(
            whole, abs=1e-8
        )
    for (statistic, *cell), value in values.items():
        if statistic in ("ward", "sex"):
            inner = [each for key, each in values.items() if key[0] == "ward x sex" and cell[0] in key]
            assert len(inner) == (3 if statistic == "ward" else 4)
            assert sum(inner) == pytest.approx(value, abs=1e-8)
    released = {cell: one.unreconciled for cell, one in made.items()}
    if rows == "public":
        assert (whole, released.pop(("count",))) == (float(release.rows or 0), None)
    assert all(value is not None for value in released.values())
    moved = [abs((released[cell] or 0.0) - values[cell]) for cell in released]
    assert 1.0 < max(moved) < 200


def test_four_tables_have_three_quarters_of_the_error_of_each_alone() -> None:
    """With equal noise in 1 + 4 + 3 + 12 cells each has the variance over 1 + 1/4 + 1/3 + 1/12."""
    schema = schema_of()
    plan = planned(schema)
    (alone,) = {round(plan.deviation_of(block, 10), 9) for block in plan.offsets}
    for one in Release(schema, plan).drawn():
        assert one.standard_error == pytest.approx(alone / math.sqrt(1 + 1 / 4 + 1 / 3 + 1 / 12), rel=1e-9)


def checked_coverage(repetitions: int, slack: float) -> None:
    """Check estimates without bias, their errors, and how often intervals have the truth."""
    schema = schema_of()
    release = Release(schema, planned(schema))
    errors: dict[tuple[str, ...], list[float]] = {}
    inside: dict[tuple[str, ...], int] = {}
    stated: dict[tuple[str, ...], float] = {}
    for _ in range(repetitions):
        for one in release.drawn():
            cell = cell_of(one)
            truth = release_truth(release, one, cell)
            errors.setdefault(cell, []).append((one.value or 0.0) - truth)
            inside[cell] = inside.get(cell, 0) + ((one.low or 0.0) <= truth <= (one.high or math.inf))
            stated[cell] = one.standard_error or 0.0
    many = slack / math.sqrt(repetitions)
    for cell, moved in errors.items():
        assert abs(np.mean(moved)) <= many * stated[cell]
        # a squared error of Laplace noises has a relative deviation of at most sqrt(5)
        assert np.mean(np.square(moved)) == pytest.approx(stated[cell] ** 2, rel=many * math.sqrt(5))
        assert abs(inside[cell] / repetitions - 0.95) <= many * math.sqrt(0.95 * 0.05)


_TRUTHS: dict[tuple[str, ...], float] = {}


def release_truth(release: Release, one: Estimate, cell: tuple[str, ...]) -> float:
    if cell not in _TRUTHS:
        _TRUTHS[cell] = release.truth(one)
    return _TRUTHS[cell]


def test_counts_that_agree_are_unbiased_and_have_intervals_of_their_level() -> None:
    """Of 20 cells, three checks each: another seed fails with a chance below 0.4 %."""
    checked_coverage(200, 4.0)


@pytest.mark.long
def test_counts_that_agree_have_intervals_of_their_level() -> None:
    """10,000 releases, three Monte Carlo errors (0.65 % of coverage): a false alarm with one below 16 %."""
    checked_coverage(10_000, 3.0)


def test_counts_without_noise_and_hidden_counts_are_refused() -> None:
    """Totals would reveal hidden cells of exact tables."""
    axes = (Selector("ward", 3),)
    with pytest.raises(ConfigError, match="exact counts are not reconciled"):
        Margin(axes, 0.0, NORMAL)
    agreement = Agreement(axes, (Margin(axes, 1.0, NORMAL), Margin((), 1.0, NORMAL)), False)
    with pytest.raises(ConfigError, match="hidden cells are not reconciled"):
        agreement.values([np.array([5.0, math.nan, 7.0]), np.array([20.0])])


def test_exact_tables_with_a_smallest_count_are_left_as_they_are() -> None:
    """Only the two-way table has a hidden cell: neither margin through it is shown, nor any other changed."""
    plan = plan_tables(schema_of(), ["ward", "sex", "ward x sex"], 10)
    shown = np.array([12, 30, 10, NOT_SHOWN, *range(20, 28)])
    made = {cell_of(one): one for one in plan.answers(shown, 0.95).estimates}
    assert all(one.unreconciled is None for one in made.values())
    counts = np.array([math.nan if count == NOT_SHOWN else count for count in shown.tolist()]).reshape(4, 3)
    for (statistic, *cell), one in made.items():
        rows = SHAPES["ward"]["values"].index(cell[0]) if "ward" in statistic else slice(None)
        columns = SHAPES["sex"]["values"].index(cell[-1]) if "sex" in statistic else slice(None)
        total = float(np.sum(counts[rows, columns]))
        assert one.value == (None if math.isnan(total) else total)


def test_counts_of_rows_that_may_differ_are_not_reconciled() -> None:
    """A row may lack a sex: it is in the count and in a ward, and in no cell of the other two tables."""
    columns = {**SHAPES, "sex": {"values": ["f", "m", "x"], "other": "x"}}
    schema = schema_of(columns)
    plan = planned(schema)
    made = {cell_of(one): one for one in Release(schema, plan).drawn()}
    alone = plan.deviation_of(product(schema), 10)
    assert made["count",].standard_error == pytest.approx(alone / math.sqrt(1 + 1 / 4), rel=1e-9)
    assert made["sex", "f"].standard_error == pytest.approx(alone * math.sqrt(4 / 5), rel=1e-9)
    sexes = sum(one.value or 0.0 for (statistic, *_), one in made.items() if statistic == "sex")
    assert (made["count",].value or 0.0) - sexes > 100
    alone_schema = schema_of({"ward": SHAPES["ward"], "sex": columns["sex"]})
    apart = Release(alone_schema, planned(alone_schema, ("count", "sex"))).drawn()
    assert all(one.unreconciled is None for one in apart)
    person = schema_of(rows="public", unit="person", id="who", rows_per_person=2, parties_per_person=1)
    blocks = {product(person): (np.array([100.0]), 0.0)}
    ward = product(person, by=[selector(person, "ward")])
    blocks[ward] = np.full(4, 20.0), 3.0
    assert reconciled(ward, NoisySums(person, blocks, {}, 3)) is None
    record = schema_of(rows="public")
    fitted = reconciled(ward, NoisySums(record, blocks, {}, 3))
    assert fitted is not None
    assert fitted.values == pytest.approx([25.0] * 4)
    assert fitted.deviation == pytest.approx(3.0 * math.sqrt(3 / 4))


def test_counts_with_a_noise_in_common_are_not_averaged() -> None:
    """Rows with a value of x are all in its bins less those without one, of which there are none in a bin."""
    schema = schema_of({"x": {"lower": 0.0, "upper": 1.0, "bins": [0.5]}, "ward": SHAPES["ward"]})
    ask = ("count by x", "mean(x) by x", "count by x x ward", "mean(x) by x x ward")
    plan = planned(schema, ask, split="balanced")
    assert sum(isinstance(block, Lacking) for block in plan.offsets) == 2
    blocks = [product(schema, by=[selector(schema, name) for name in by]) for by in (("x",), ("x", "ward"))]
    own, fine = (plan.deviation_of(block, 10) for block in blocks)
    made = [one for one in Release(schema, plan).drawn() if one.statistic == "count by x"]
    expected = 1 / math.sqrt(1 / own**2 + 1 / (4 * fine**2))
    assert [one.standard_error for one in made] == [pytest.approx(expected, rel=1e-9)] * 2


def test_tables_of_many_columns_are_not_reconciled() -> None:
    """Sets of 9 columns would be as many components as cells."""
    columns = {f"c{index}": {"values": ["a", "b"], "other": "b", "missing": False} for index in range(9)}
    schema, blocks = schema_of(columns), {}
    for size in (0, 8, 9):
        by = [selector(schema, name) for name in [*columns][:size]]
        blocks[product(schema, by=by)] = np.ones(2**size), 1.0
    noisy = NoisySums(schema, blocks, {}, 3)
    made = [reconciled(block, noisy) for block in blocks]
    assert [one is None for one in made] == [False, False, True]


def test_bins_of_a_column_agree_with_the_count_of_its_values() -> None:
    """Rows that lack a value are subtracted from all: what is left has noise of both."""
    columns: dict[str, Any] = {"x": {"lower": 0.0, "upper": 1.0}, "ward": SHAPES["ward"]}
    schema = schema_of(columns)
    ask = ("count", "mean(x)", "histogram(x, 4)", "ward", "mean(x) by ward")
    plan = planned(schema, ask, split="balanced")
    assert any(isinstance(block, Lacking) for block in plan.offsets)
    made = [one for one in Release(schema, plan).drawn() if one.name == "count"]
    assert all(one.unreconciled is not None for one in made)
    bins = [one for one in made if one.statistic == "histogram(x, 4)"]
    every, lacking, own = (
        plan.deviation_of(block, 10) ** 2
        for block in (
            product(schema),
            Lacking((), ("x",), ()),
            product(schema, by=count_selectors(read_ask(ask, schema)[2], schema)),
        )
    )
    by_ward = [selector(schema, "ward")]
    each = sum(
        plan.deviation_of(block, 10) ** 2
        for block in (product(schema, by=by_ward), Lacking((), ("x",), (*by_ward,)))
    )
    total = 1 / (1 / (every + lacking) + 1 / (4 * own) + 1 / (4 * each))
    assert bins[0].standard_error == pytest.approx(math.sqrt(own * 3 / 4 + total / 16), rel=1e-9)


def test_the_law_of_a_sum_of_noises_is_that_of_its_mixture() -> None:
    """1.96 deviations cover 93.7 % of one Laplace draw, and more of a sum of several."""
    laplace = ErrorDistribution(1.0)
    two = distribution_of([(3.0, laplace), (4.0, laplace)])
    mixed = ErrorDistribution(1.0, (0.6, 0.8))
    assert isinstance(two, SumDistribution)
    for value in (-5.0, -1.0, 0.0, 0.5, 4.0):
        assert two.log_below(value) == pytest.approx(mixed.log_below(value), rel=1e-6)
    assert two.quantile(0.05) == pytest.approx(mixed.quantile(0.05), rel=1e-5)
    assert 1 - math.exp(-1.96 * math.sqrt(2)) == pytest.approx(0.937, abs=5e-4)
    assert sum_outside([(1.0, laplace)], 1.96) == pytest.approx(0.0625, abs=2e-4)
    assert laplace.quantile(0.05) > two.quantile(0.05) > 1.96


def test_what_is_printed_is_at_least_0_and_what_was_released_stays() -> None:
    schema = schema_of()
    release = Release(schema, planned(schema))
    release.exact = np.zeros_like(release.exact)
    made = release.drawn()
    assert {one.value for one in made} > {0.0}
    assert all((one.value or 0.0) >= 0 and (one.low or 0.0) >= 0 for one in made)
    assert any((one.unreconciled or 0.0) < 0 for one in made)
    assert all(one.note == (PROJECTED if one.value == 0 else "") for one in made)
    # of rows whose number is public no count is above it
    known = schema_of(rows="public")
    few = Release(known, planned(known))
    few.exact, few.rows = np.zeros_like(few.exact), 3
    assert max(one.high or math.inf for one in few.drawn() if one.cell) == 3


@pytest.mark.parametrize("text", ["true", "", "d"])
def test_a_missing_value_counts_as_other_where_each_row_has_a_category(text: str) -> None:
    table = read_table({"ward": ["a", text], "sex": ["f", text]}, schema_of())
    assert table.codes["ward"].tolist() == [0, 3]
    assert table.dropped.missing == ({"ward": 1, "sex": 1} if not text else {})
    lacking = schema_of({"sex": {"values": ["f", "x"], "other": "x"}})
    assert read_table({"sex": ["f", ""]}, lacking).codes["sex"].tolist() == [0, -1]
    with pytest.raises(ConfigError, match="missing = false needs `other`"):
        schema_of({"sex": {"values": ["f", "x"], "missing": False}})


@given(
    st.lists(st.floats(-50, 100), min_size=2, max_size=20),
    st.lists(st.floats(0.01, 0.99), min_size=2, max_size=6),
)
@settings(max_examples=examples(200), deadline=None)
def test_quantiles_of_one_column_rise_with_their_levels(leaves: list[float], levels: list[float]) -> None:
    """Also where noise is larger than the counts of bins: a group whose count is below it shows none."""
    assume(sum(leaves) > 0)
    edges = np.arange(len(leaves) + 1, dtype=np.float64)
    values = [_interpolated(edges, np.array(leaves), level) for level in sorted(levels)]
    assert values == sorted(values)
