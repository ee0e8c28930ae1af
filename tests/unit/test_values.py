"""Values as people and programs write them: one normalisation for all that is read."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.values import category_of, cells_of, decoded, number_of, parse_number, plain_value, vector_of

ONE = [
    1,
    1.0,
    "1",
    "1.0",
    "1.00",
    " 1 ",
    "1.",
    np.int8(1),
    np.float32(1),
    np.float64(1),
    Decimal("1.00"),
    "1e+00",
]
MISSING = [
    None,
    math.nan,
    "",
    " ",
    "nan",
    "NaN",
    "NaT",
    "<NA>",
    np.float32("nan"),
    Decimal("NaN"),
    np.ma.masked,
]


@pytest.mark.parametrize("value", ONE, ids=repr)
def test_one_is_one_however_it_is_written(value: Any) -> None:
    assert (number_of(value), category_of(value)) == (1.0, "1")


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_a_missing_value_is_missing_of_any_type(value: Any) -> None:
    number = number_of(value)
    assert number is not None
    assert math.isnan(number)
    assert category_of(value) is None


@pytest.mark.parametrize(
    "value", ["1_0", "0x10", "1,5", "--1", "a", "none", [1], {}, b"1", 1j, np.zeros(1)], ids=repr
)
def test_what_is_no_number_is_none(value: Any) -> None:
    assert number_of(value) is None
    assert category_of(value) == str(value).strip()


@pytest.mark.parametrize(
    ("value", "number", "category"),
    [
        (True, 1.0, "true"),
        ("FALSE", 0.0, "false"),
        (np.bool_(False), 0.0, "false"),
        ("-0.0", 0.0, "0"),
        ("01", 1.0, "01"),
        ("1E10", 1e10, "1E10"),
        ("1e+16", 1e16, "10000000000000000"),
        (1e16, 1e16, "10000000000000000"),
        ("-1.50", -1.5, "-1.5"),
        ("-.50", -0.5, "-0.5"),
        (1.5e-07, 1.5e-07, "0.00000015"),
        ("1.5e-07", 1.5e-07, "0.00000015"),
        ("-inf", -math.inf, "-inf"),
        (10**400, math.inf, "1" + "0" * 400),
        ("1e+400", math.inf, "1" + "0" * 400),
        (-(10**5000), -math.inf, hex(-(10**5000))),
        (Decimal("sNaN"), math.nan, "sNaN"),
    ],
    ids=lambda value: str(value)[:20] if not isinstance(value, int) or value.bit_length() < 99 else "large",
)
def test_numbers_truths_and_codes(value: Any, number: float, category: str) -> None:
    assert number_of(value) == pytest.approx(number, rel=0, nan_ok=True)
    assert category_of(value) == category


def test_words_of_vectors_are_numbers_alone() -> None:
    assert [parse_number(word) for word in ("1_0", "true", "", "1e3")] == [None, None, None, 1000.0]


def test_marks_of_utf_8_are_dropped_and_others_named() -> None:
    assert decoded("a".encode("utf-8-sig"), "f") == "a"
    for name in ("utf-16", "utf-32"):
        with pytest.raises(ConfigError, match=rf"f: begins with a byte order mark of {name.upper()}"):
            decoded("a".encode(name), "f")
    with pytest.raises(ConfigError, match="f:2: not UTF-8 text"):
        decoded(b"a\n\xff", "f")


@pytest.mark.parametrize(
    ("line", "cells", "closed"),
    [
        ("a,,b", ["a", "", "b"], True),
        ('"a,b",c', ["a,b", "c"], True),
        ('"a ""b""",6" c', ['a "b"', '6" c'], True),
        ('a,"6 ft,b', ["a", "6 ft,b\n"], False),
        ('"', ["\n"], False),
        ('""', [""], True),
    ],
)
def test_a_quote_that_does_not_close_is_told(line: str, cells: list[str], closed: bool) -> None:
    read, whole = cells_of(line)
    assert whole == closed
    if closed:
        assert read == cells


HIDDEN = np.ma.masked_equal(np.array([3.0, 99.0]), 99.0)


@pytest.mark.parametrize("values", [HIDDEN, [1.0, np.ma.masked], [[1.0, 2.0], HIDDEN], ([HIDDEN],)], ids=repr)
def test_masked_values_of_vectors_are_refused(values: Any) -> None:
    with pytest.raises(PrivacyError, match="ann: vector: 1 values are masked"):
        vector_of(values, "vector", "ann")


def test_a_mask_that_hides_nothing_is_none() -> None:
    assert vector_of(np.ma.array([1.0, 2.0]), "vector").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("values", [[True, 0.5], [[1, np.bool_(False)]]])
def test_truths_in_vectors_are_refused(values: Any) -> None:
    with pytest.raises(ConfigError, match="true and false are no numbers of a vector"):
        vector_of(values, "vector")


def test_settings_of_numpy_are_those_of_python() -> None:
    given = {"a": np.float64(0.5), "b": np.array([1, 2]), "c": [np.int8(1)], "d": (np.bool_(True),), "e": "x"}
    plain = plain_value(given)
    assert plain == {"a": 0.5, "b": [1, 2], "c": [1], "d": (True,), "e": "x"}
    assert {type(value) for value in (plain["a"], *plain["b"], *plain["c"], *plain["d"])} == {
        float,
        int,
        bool,
    }
    assert plain_value(HIDDEN) is HIDDEN
