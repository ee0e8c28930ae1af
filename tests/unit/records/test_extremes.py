"""What is planned has answers after its release, whatever the budget, the bounds and the rows are."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp.engine.registry import checker_of
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.privacy.guarantee import LEAST_DELTA
from smpc_dp.records.intervals import is_positive_definite
from smpc_dp.records.parameters import LEAST_EPSILON
from smpc_dp.records.result import Answers
from smpc_dp.records.table import read_table
from smpc_dp_verify import columns as second
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.session import Session
from smpc_dp_verify.sum_plan import read_shares
from smpc_dp_verify.sums import read_sums

PARTIES = 5
Given = dict[str, Any]
ASK = [
    *("count", "g x h", "sum(a)", "mean(a)", "mean(b) by g", "variance(a) by g", "variance(a, robust)"),
    *("covariance(a, b)", "correlation(a, b)", "correlation(a, b, robust) by g", "histogram(b, 8)"),
    *("quantile(a, 0.1, 0.9)", "median(b) by g", "missing(a)", "missing(g)", "regression(a ~ g * h + b)"),
    *("regression(a ~ b) by g", "survival(t, i) by g", "logrank(t, i) by g x h", "cox(t, i ~ g + h)"),
    *("cox_efron(t, i ~ g)", "cox_breslow(t, i ~ g) by h", "difference(a) by g", "risk(i) by g"),
    *("chi_square(g, h)", "heterogeneity(a)", "table1(a, g) by h", "mean(a) where b > 0"),
]
STEPPED = ("logistic(i ~ a)", "poisson(a ~ b + g)", "random_effects(a, 1)")


def columns(lower: float = 0.0, upper: float = 10.0, groups: int = 2) -> Given:
    width = upper - lower
    number = {"lower": lower, "upper": upper}
    return {
        "a": number | {"bins": [lower + width / 4, lower + width / 2]},
        "b": {"lower": -upper, "upper": upper},
        "t": number | {"bins": [lower + width / 4, lower + width / 2]},
        "i": {"lower": 0, "upper": 1, "step": 1},
        "g": {"values": ["p", "q"]},
        "h": {"values": [f"v{index}" for index in range(groups)]},
    }


def given(ask: str | list[str], **more: Any) -> Given:
    keys = ("columns", "max_rows", "rows", "rows_expected")
    records = {"columns": columns(), "max_rows": 1000} | {key: more.pop(key) for key in keys if key in more}
    return {"epsilon": 1.0, "delta": 1e-6, "ask": ask, "records": records} | more


def planned(parameters: Given) -> tuple[Any, list[ConfigIssue]]:
    return checker_of("secagg", 3)(parameters, PARTIES)


def released(parameters: Given, rows: int, seed: int = 1) -> Answers:
    """Return the answers of a request whose noise is 0, over so many rows of each party."""
    checked, issues = planned(parameters)
    assert not issues
    rng, schema = np.random.default_rng(seed), checked.request.schema
    total = np.zeros(checked.request.length, dtype=np.int64)
    for _ in range(PARTIES):
        table: Given = {}
        for name, column in parameters["records"]["columns"].items():
            if "values" in column:
                table[name] = rng.choice(column["values"], rows)
            else:
                drawn = rng.uniform(column["lower"], column["upper"], rows)
                table[name] = np.round(drawn) if name == "i" else drawn
        total += checked.request.vector(read_table(table, schema))
    answers: Answers = checked.answers(total, [*range(PARTIES)], level=0.95, simultaneous=False)
    return answers


EXTREMES: dict[str, tuple[int, Given]] = {
    "the least delta": (50, {"delta": LEAST_DELTA}),
    "nearly no delta is left": (50, {"delta": 1 - 1e-9}),
    "the least epsilon": (50, {"epsilon": LEAST_EPSILON}),
    "the greatest epsilon": (50, {"epsilon": 100.0}),
    "no rows": (0, {"epsilon": 100.0}),
    "one row": (1, {"epsilon": 100.0, "max_rows": 1}),
    "public rows of nobody": (0, {"rows": "public", "public_rows": [0] * PARTIES, "epsilon": 100.0}),
    "one public row": (1, {"rows": "public", "public_rows": [1] * PARTIES, "epsilon": 100.0}),
    "the greatest bounds": (50, {"columns": columns(0.0, 1e75), "epsilon": 100.0}),
    "the narrowest range": (50, {"columns": columns(0.0, 1e-75), "epsilon": 100.0}),
    "bounds far from 0": (50, {"columns": columns(1e70, 1.001e70), "epsilon": 100.0}),
    "many groups": (50, {"columns": columns(groups=29), "epsilon": 100.0}),
}


# ten seconds of processor time each, of all questions
@pytest.mark.thin(8)
@pytest.mark.parametrize("split", ["range", "balanced"])
@pytest.mark.parametrize("name", EXTREMES)
def test_what_is_planned_has_answers(name: str, split: str) -> None:
    """Of each question no error after the release, and no number that is not finite."""
    rows, more = EXTREMES[name]
    answers = released(given(ASK, split=split, **more), rows)
    assert {one.part_of or one.statistic for one in answers.estimates} == {*ASK}
    for one in answers.estimates:
        numbers = [each for each in msgspec.structs.astuple(one) if isinstance(each, float)]
        assert all(map(math.isfinite, numbers)), one
    assert str(answers)


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("ask", STEPPED)
def test_a_step_that_is_planned_has_answers(name: str, ask: str) -> None:
    rows, more = EXTREMES[name]
    parameters = given(ask, **more)
    _, issues = planned(parameters)
    # so little epsilon, or as much delta, is refused before anything is released
    assert {issue.where for issue in issues} <= {"steps"}
    if not issues:
        assert str(released(parameters, rows))


@pytest.mark.parametrize("ask", ["count", *STEPPED])
@pytest.mark.parametrize("delta", [LEAST_DELTA * (1 - 1e-9), 1e-12, 1e-300])
def test_a_delta_that_the_accountant_does_not_resolve_is_refused_by_its_bound(ask: str, delta: float) -> None:
    _, issues = planned(given(ask, delta=delta))
    [issue] = issues
    assert (issue.where, issue.check) == ("delta", ConfigCheck.RANGE)
    assert "at least 1e-11" in issue.reason
    session = Session(bytes(32), "secagg", 3, given(ask, delta=delta), {}, [*"abcde"], "relay", None)
    with pytest.raises(Refused, match="the parameter delta"):
        read_shares(read_sums(session))


def test_so_small_an_epsilon_is_refused_by_its_bound() -> None:
    for split in ("range", "balanced"):
        for epsilon in (LEAST_EPSILON * (1 - 1e-9), 1e-300):
            [issue] = planned(given(["count", "mean(a)"], epsilon=epsilon, split=split))[1]
            assert (issue.where, issue.check) == ("epsilon", ConfigCheck.RANGE)
    with pytest.raises(Refused, match="epsilon"):
        second.read_budget({"epsilon": LEAST_EPSILON / 2, "delta": 1e-6})
    assert (second.LEAST_EPSILON, second.LEAST_DELTA) == (LEAST_EPSILON, LEAST_DELTA)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_singular_matrix_is_not_taken_for_positive_definite(size: int) -> None:
    """Nor one whose least eigenvalue is a rounding error, or that is not finite."""
    assert is_positive_definite(np.eye(size))
    assert is_positive_definite(np.diag([1e-9, *np.ones(size - 1)]))
    row = np.arange(1.0, size + 1) / 3
    # of rank 1, and of rank 1 but for a part in 2^50
    assert not is_positive_definite(np.outer(row, row))
    assert not is_positive_definite(np.outer(row, row) + 2.0**-50 * np.eye(size))
    assert not is_positive_definite(np.full((size, size), math.nan))


def test_a_noisy_sum_with_such_a_delta_is_refused_too() -> None:
    parameters = {"epsilon": 1.0, "length": 2, "lower": 0, "upper": 1, "precision": 1e-3}
    assert not planned(parameters | {"delta": LEAST_DELTA})[1]
    [issue] = planned(parameters | {"delta": 1e-12})[1]
    assert (issue.where, issue.check) == ("delta", ConfigCheck.RANGE)
