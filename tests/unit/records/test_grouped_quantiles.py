"""Quantiles of groups: estimates, intervals, and groups within the noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.records.answers import estimate
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.quantiles import NO_RANKS
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import read_table

ASK = "quantile(age, 0.25, 0.5) by sex x ward"
SIZES = {("f", "a"): 3000, ("f", "b"): 2000, ("m", "a"): 2500, ("m", "b"): 0}


def planned(schema: Schema, *asked: str) -> Plan:
    return plan_request(schema, [ASK, *asked], epsilon=2.0, delta=1e-6, parties=2, corrupt=0)


@pytest.fixture(scope="module")
def schema() -> Schema:
    columns = {
        "age": {"lower": 0.0, "upper": 256.0, "step": 1.0},
        "sex": {"values": ["f", "m"]},
        "ward": {"values": ["a", "b"]},
    }
    return read_schema({"columns": columns, "max_rows": 20_000})


def rows() -> dict[str, NDArray[np.generic]]:
    """Return groups whose ages are about 40, 80, 120; rows without a ward are in no group."""
    rng = np.random.default_rng(3)
    ages = [rng.normal(40 * (index + 1), 8, size) for index, size in enumerate(SIZES.values())]
    names = [np.repeat([one[at] for one in SIZES], [*SIZES.values()]) for at in (0, 1)]
    none = np.full(500, "")
    return {
        "age": np.rint(np.concatenate([*ages, np.full(500, 200.0)])),
        "sex": np.concatenate([names[0], np.full(500, "f")]),
        "ward": np.concatenate([names[1], none]),
    }


@pytest.mark.parametrize("more", [(), ("mean(age) by sex x ward",)], ids=["alone", "with counts"])
def test_intervals_hold_the_quantile_of_each_group(schema: Schema, more: tuple[str, ...]) -> None:
    """Forty draws of the noise, with at most 5 % of the intervals wrong: bands over all edges hold far more.

    The empty group is shown if its count is above three deviations: in four draws or more once in a million.
    """
    plan, table = planned(schema, *more), rows()
    sums = plan.vector(read_table(table, schema))
    rng, missed, shown, hidden = np.random.default_rng(5), 0, 0, 0
    for _ in range(40):
        noise = np.rint(rng.normal(0, plan.deviation(2), plan.length)).astype(np.int64)
        for one in estimate(plan, sums + noise, 2).of(ASK):
            inside = (table["sex"] == one.cell["sex"]) & (table["ward"] == one.cell["ward"])
            if not inside.any():
                hidden += (one.value, one.note) == (None, NO_RANKS)
                continue
            level = float(one.name.split(",")[1].rstrip(")"))
            truth = float(np.quantile(table["age"][inside].astype(float), level, method="inverted_cdf"))
            assert one.value is not None
            assert one.low is not None
            assert one.high is not None
            assert abs(one.value - truth) < 12
            shown += 1
            missed += not one.low <= truth <= one.high
    assert shown == 40 * 3 * 2
    assert hidden >= 40 * 2 - 6
    assert missed <= 12


def test_without_noise_each_group_has_its_own_quantile(schema: Schema) -> None:
    plan, table = planned(schema), rows()
    estimates = estimate(plan, plan.vector(read_table(table, schema)), 2).of(ASK)
    assert [(one.cell, one.name) for one in estimates] == [
        ({"sex": sex, "ward": ward}, f"quantile(age, {level})")
        for sex, ward in SIZES
        for level in (0.25, 0.5)
    ]
    for one in estimates[:6]:
        inside = (table["sex"] == one.cell["sex"]) & (table["ward"] == one.cell["ward"])
        level = float(one.name.split(",")[1].rstrip(")"))
        own = table["age"][inside].astype(float)
        assert one.value == pytest.approx(np.quantile(own, level), abs=1.5)
        assert None not in (one.value, one.population_low, one.population_high)
        least, most = np.quantile(own, [level - 0.1, level + 0.1])
        ends = [least, one.population_low, one.value, one.population_high, most]
        assert ends == sorted(ends)
        assert one.population_low != one.population_high
        assert one.over == pytest.approx(inside.sum(), abs=1)
