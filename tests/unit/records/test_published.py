"""Published ranges: bounds that are suggested by a column's name, and bounds that do not suit the name."""

from __future__ import annotations

import math

import pytest

from smpc_dp.records.published import KNOWN_NAMES, bound_warnings, published_range
from smpc_dp.records.schema import Number, read_schema


def warning(name: str, lower: float, upper: float) -> str:
    lines = bound_warnings({name: Number(lower=lower, upper=upper)})
    assert len(lines) < 2
    return "".join(lines)


@pytest.mark.parametrize(
    ("name", "unit", "lower", "upper"),
    [
        ("age", "years", 0, 122),
        ("age_months", "months", 0, 1464),
        ("BMI", "kg/m2", 11.9, 92.3),
        ("height", "cm", 78.3, 199.6),
        ("body_height_m", "m", 0.783, 1.996),
        ("weight_lb", "pounds", 7.055, 560.6),
        ("body_temp_f", "degrees F", 78.8, 113),
        # as the survey states them in these units itself, with fewer digits
        ("cholesterol_mmol", "mmol/L", 1.84, 11.53),
        ("hdl_mmol_l", "mmol/L", 0.13, 4.89),
        ("glucose_mmol", "mmol/L", 2.61, 29.1),
        # by https://ngsp.org/ifcc.asp: (NGSP - 2.152) / 0.09148
        ("hba1c_mmol", "mmol/mol", (2.8 - 2.152) / 0.09148, (16.2 - 2.152) / 0.09148),
    ],
)
def test_a_column_s_name_says_quantity_and_unit(name: str, unit: str, lower: float, upper: float) -> None:
    found = published_range(name)
    assert found is not None
    assert found.unit == unit
    assert found.lower == pytest.approx(lower, rel=0.005, abs=0.05)
    assert found.upper == pytest.approx(upper, rel=0.005)


def test_each_range_has_a_source_and_suits_its_own_column() -> None:
    for name in KNOWN_NAMES:
        found = published_range(name)
        assert found is not None
        assert "https://" in found.source
        assert math.isfinite(found.width)
        assert not warning(name, found.lower, found.upper)


@pytest.mark.parametrize("name", ["ages", "house_age", "height_of_house", "cost", "age_", "_age", "bmi_cm"])
def test_another_name_has_no_range_and_no_warning(name: str) -> None:
    assert published_range(name) is None
    assert not warning(name, -1e9, 1e9)


def test_bounds_that_do_not_suit_a_name_are_named_with_the_source() -> None:
    assert warning("sbp", 0, 346.1).startswith(
        "sbp: bounds from 0 to 346.1 are 2 times as far apart as published values, and noise grows in "
        "proportion to the width: systolic blood pressure in mmHg is from 52 to 225 (NHANES"
    )
    assert not warning("sbp", 0, 345.9)
    assert "bmi: bounds from 20 to 40 are 4.02 times as close together" in warning("bmi", 20, 40)
    assert not warning("bmi", 20, 40.2)
    assert "have no value of the published range between them" in warning("age", 150, 220)
    # in no known unit, however far apart
    assert "have no value of the published range between them" in warning("sbp", 1000, 9000)
    assert "right only if rows have no others: a value beyond" in warning("weight_kg", 0.5, 6)


def test_the_ages_that_rows_are_chosen_by_are_no_mistake() -> None:
    for name, lower, upper in (("age", 0, 18), ("age", 65, 90), ("age_months", 0, 36)):
        assert not warning(name, lower, upper)
    assert "times as far apart" in warning("age", 0, 300)


def test_a_name_without_a_unit_allows_each_for_a_part_of_a_population_too() -> None:
    """Temperatures without fever in degrees F, and children's heights in m."""
    assert "body temperature in degrees F is" in warning("body_temp", 97, 100)
    assert not warning("height", 0.4, 1.2)
    assert "have no value of the published range between them" in warning("weight", 500, 6000)
    assert not warning("weight_g", 3000, 150_000)
    assert "fasting glucose in mmol/L is" in warning("glucose", 2, 8)


def test_bounds_in_another_unit_than_the_name_says_are_named() -> None:
    line = warning("height_cm", 1.0, 2.2)
    assert "height_cm: bounds from 1 to 2.2 are as in m, the column's name says cm: body height" in line
    assert "are as in mg/dL, the column's name says mmol/L" in warning("glucose_mmol", 50, 400)
    # a name without a unit allows each
    assert not warning("height", 1.0, 2.2)
    assert not warning("hba1c", 20, 130)
    # pounds and kilograms are too alike to tell
    assert not warning("weight_kg", 60, 440)


def test_categories_and_columns_of_0_and_1_have_no_warning() -> None:
    columns = {"age": {"values": ["young", "old"]}, "hdl": {"lower": 0, "upper": 1, "step": 1}}
    assert bound_warnings(read_schema({"columns": columns, "max_rows": 9}).columns) == []
