"""Whole releases in one process against the pooled, clipped truth. Seeds are fixed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.errors import ConfigError
from smpc_dp.records.result import Answers, Estimate

SCHEMA: dict[str, object] = {
    "columns": {
        "age": {"lower": 0.0, "upper": 100.0, "step": 1.0, "bins": [20.0, 40.0, 60.0, 80.0]},
        "bmi": {"lower": 10.0, "upper": 50.0},
        "pressure": {"lower": 80.0, "upper": 200.0},
        "ward": {"values": ["a", "b", "c", "d"]},
    },
    "max_rows": 4000,
}
ASK = [
    "count",
    "mean(age)",
    "mean(pressure)",
    "variance(age)",
    "quantile(age, .25, .5, .75)",
    "age x ward",
    "regression(pressure ~ age + bmi)",
    "correlation(age, pressure)",
]

Columns = dict[str, NDArray[Any]]


def hospitals(seed: int, sizes: NDArray[np.int64]) -> list[Columns]:
    rng = np.random.default_rng(seed)
    tables = []
    for size in sizes:
        age = rng.gamma(6, 9, size)
        bmi = rng.normal(27, 7, size)
        pressure = 80 + 0.6 * age + 0.8 * bmi + rng.normal(0, 12, size)
        ward = rng.choice(["a", "b", "c", "d"], size, p=[0.4, 0.3, 0.2, 0.1])
        tables.append({"age": age, "bmi": bmi, "pressure": pressure, "ward": ward})
    return tables


def pooled(tables: list[Columns]) -> Columns:
    """Return all rows, clipped, ages on their grid."""
    rows = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    rows["age"] = np.clip(np.floor(rows["age"] + 0.5), 0, 100)
    rows["bmi"], rows["pressure"] = np.clip(rows["bmi"], 10, 50), np.clip(rows["pressure"], 80, 200)
    return rows


def truth_of(one: Estimate, rows: Columns) -> float:
    """Return the value of an estimate without noise."""
    age, pressure = rows["age"], rows["pressure"]
    design = np.column_stack([np.ones(len(age)), age, rows["bmi"]])
    fit = np.linalg.lstsq(design, pressure, rcond=None)[0]
    if one.cell:
        low, high = one.cell["age"].strip("[])").split(", ")
        top = age <= float(high) if one.cell["age"].endswith("]") else age < float(high)
        return float(np.sum((age >= float(low)) & top & (rows["ward"] == one.cell["ward"])))
    names = {
        "count": float(len(age)),
        "mean(age)": age.mean(),
        "mean(pressure)": pressure.mean(),
        "variance(age)": age.var(),
        "intercept": fit[0],
        "slope of age": fit[1],
        "slope of bmi": fit[2],
        "correlation(age, pressure)": np.corrcoef(age, pressure)[0, 1],
    }
    if one.name.startswith("quantile"):
        return float(np.quantile(age, float(one.name.rstrip(")").split(", ")[1]), method="inverted_cdf"))
    return float(names[one.name])


def contains(one: Estimate, truth: float) -> bool:
    low, high = (math.inf if end is None else end for end in (one.low, one.high))
    return (one.low is None or low <= truth) and (one.high is None or truth <= high)


@pytest.mark.parametrize("rows", ["private", "public"])
def test_ten_hospitals_are_within_simultaneous_intervals_of_the_pooled_truth(rows: str) -> None:
    """Ten hospitals, one lost, epsilon 1, delta 1e-6; false alarms: 1e-6 for each relation."""
    tables = hospitals(1, np.random.default_rng(2).integers(200, 2000, 10))
    answers = smpc_dp.simulate.statistics(
        tables,
        ASK,
        schema={**SCHEMA, "rows": rows},
        epsilon=1.0,
        delta=1e-6,
        lost=1,
        level=1 - 1e-6,
        simultaneous=True,
        hide=0.0,
        seed_for_simulation=3,
    )
    assert (answers.present, answers.counted, answers.unit) == (9, 8, "record")
    truth = pooled(tables[:9])
    assert len(answers.estimates) == 4 + 3 + 20 + 3 + 1
    wrong = [
        (one, truth_of(one, truth)) for one in answers.estimates if not contains(one, truth_of(one, truth))
    ]
    assert not wrong
    slope = next(one for one in answers.estimates if one.name == "slope of age")
    assert slope.value == pytest.approx(0.6, abs=0.2)


def test_a_seed_makes_a_release_reproducible_and_another_one_changes_it() -> None:
    tables = hospitals(4, np.array([50, 60, 70]))

    def release(seed: int | None) -> Answers:
        return smpc_dp.simulate.statistics(
            tables, "mean(age)", schema=SCHEMA, epsilon=1.0, delta=1e-6, corrupt=0.0, seed_for_simulation=seed
        )

    assert release(1) == release(1)
    assert release(1) != release(2)
    assert release(None) != release(None)


def test_twenty_parties_count_all_shares_of_those_that_are_honest_and_stay() -> None:
    tables = hospitals(6, np.full(20, 20))
    answers = smpc_dp.simulate.statistics(
        tables, "mean(age)", schema=SCHEMA, epsilon=1.0, delta=1e-6, seed_for_simulation=1
    )
    assert (answers.present, answers.counted) == (20, 16)


def test_more_lost_parties_than_planned_are_refused() -> None:
    tables = hospitals(6, np.full(10, 20))
    with pytest.raises(ConfigError, match="lost: must be 0 to 1, as planned, is 2"):
        smpc_dp.simulate.statistics(tables, "count", schema=SCHEMA, epsilon=1.0, delta=1e-6, lost=2)


def test_a_party_without_rows_sends_noise_and_equal_rows_give_an_answer() -> None:
    equal = {
        "age": np.full(30, 40.0),
        "bmi": np.full(30, 20.0),
        "pressure": np.full(30, 100.0),
        "ward": ["a"] * 30,
    }
    empty: dict[str, Any] = {name: [] for name in equal}
    answers = smpc_dp.simulate.statistics(
        [equal, empty, equal], ASK, schema=SCHEMA, epsilon=1.0, delta=1e-6, corrupt=0.0, seed_for_simulation=5
    )
    (regression, *_) = answers.of("regression(pressure ~ age + bmi)")
    assert regression.value is None
    assert "least eigenvalue" in regression.note
    assert all(one.low is None or one.high is None or one.low <= one.high for one in answers.estimates)


def test_an_error_above_the_accepted_one_refuses_before_anything_is_drawn() -> None:
    tables = hospitals(4, np.array([50, 60, 70]))
    with pytest.raises(ConfigError, match=r"max_standard_error: mean\(age\): the standard error is"):
        smpc_dp.simulate.statistics(
            tables,
            "mean(age)",
            schema={**SCHEMA, "rows_expected": 180},
            epsilon=0.1,
            delta=1e-6,
            corrupt=0.0,
            max_standard_error=0.1,
        )
    with pytest.raises(ConfigError, match="not known without rows_expected"):
        smpc_dp.simulate.statistics(
            tables, "mean(age)", schema=SCHEMA, epsilon=1.0, delta=1e-6, corrupt=0.0, max_standard_error=0.1
        )
