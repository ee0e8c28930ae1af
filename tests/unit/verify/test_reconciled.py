"""The second auditor reconciles counts by its own code, as the product does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.records.consistency import Agreement, Margin
from smpc_dp.records.features import Selector
from smpc_dp.records.noisy import laplace_distribution
from smpc_dp_verify import columns
from smpc_dp_verify.distributions import NORMAL
from smpc_dp_verify.distributions import laplace_distribution as second_laplace
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.reconciled import Noisy, distribution_in_cell, is_count, needed, reconciled
from tests.examples import examples
from tests.unit.records.test_consistency import margins_of


def second(axes: tuple[Selector, ...]) -> tuple[columns.Selector, ...]:
    return tuple(columns.Selector(one.column, one.cells) for one in axes)


@given(margins_of(), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_both_reconcile_the_same(drawn: tuple[list[Margin], list[Selector], int], is_known: bool) -> None:
    margins, _, seed = drawn
    rng, rows = np.random.default_rng(seed), 321.0 if is_known else None
    counts = [rng.normal(100, 50, math.prod(one.cells for one in each.axes)) for each in margins]
    noisy = [
        Noisy(second(each.axes), own.tolist(), each.deviation)
        for each, own in zip(margins, counts, strict=True)
    ]
    for margin in margins:
        agreement = Agreement(margin.axes, (*margins,), is_known)
        values, deviation = reconciled(second(margin.axes), noisy, rows)
        assert values == pytest.approx(agreement.values(counts, rows), rel=1e-10, abs=1e-9)
        assert deviation == pytest.approx(agreement.deviation, rel=1e-10, abs=1e-12)


@given(margins_of(), st.booleans(), st.sampled_from([1.25, 10.0]))
@settings(max_examples=examples(12), deadline=None)
def test_both_have_the_same_law_of_a_reconciled_count(
    drawn: tuple[list[Margin], list[Selector], int], is_known: bool, shape: float
) -> None:
    normal, _, _ = drawn
    margins = [Margin(each.axes, each.deviation, laplace_distribution(shape)) for each in normal]
    noisy = [Noisy(second(each.axes), [], each.deviation, second_laplace(shape)) for each in margins]
    plain = [Noisy(second(each.axes), [], each.deviation) for each in margins]
    assert distribution_in_cell(plain[0].selectors, plain, is_known=is_known) == NORMAL
    axes = margins[0].axes
    agreement = Agreement(axes, (*margins,), is_known)
    if agreement.deviation > 0:
        law = distribution_in_cell(second(axes), noisy, is_known=is_known)
        assert law.quantile(0.05) == pytest.approx(agreement.distribution.quantile(0.05), rel=1e-9)


def test_rows_are_the_same_where_no_column_may_be_missing() -> None:
    given: dict[str, dict[str, Any]] = {
        "x": {"lower": 0.0, "upper": 1.0, "bins": [0.5], "missing": False},
        "y": {"lower": 0.0, "upper": 1.0, "bins": [0.5]},
        "sex": {"values": ["f", "m"], "other": "m", "missing": False},
        "ward": {"values": ["a", "b"], "other": "b"},
    }
    table = columns.read_table({"columns": given, "max_rows": 9})
    block = table.block(by=tuple(map(table.selector, given)))
    assert is_count(block)
    assert needed(block, table) == {"y", "ward"}
    assert not is_count(table.block("x"))
    survival = columns.Block((), ("x", "y"), (table.selector("x"), table.selector("y")))
    assert not is_count(survival)
    del given["sex"]["other"]
    with pytest.raises(Refused):
        columns.read_table({"columns": given, "max_rows": 9})
