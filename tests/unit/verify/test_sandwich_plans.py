"""The second auditor plans the noise of questions for robust errors of regressions as sessions do."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.records.ask import read_ask
from smpc_dp.records.sandwich import SquaredInfluence
from smpc_dp.records.schema import read_schema
from smpc_dp_verify.asked import read_ask as read_again
from smpc_dp_verify.columns import read_table
from smpc_dp_verify.errors import Refused
from tests.unit.verify.test_sum_plans import COLUMNS, PERSON, find_the_same, planned, refused, shares_of

ASKED = (
    "sandwich(bmi ~ age + sex, [-1.06, -0.39, 0.48], [0.65, 0.7, 0.29], "
    "[0.075, -0.003, 0.061, 0.053, -0.006, 0.112], 4, 2218197475)"
)
OTHER = (
    "sandwich(weight ~ ward, [-0.66, -0.67, 0.38, -0.11], [0.5, 0.49, 0.5, 0.96], [0.09, -0.036, -0.022, "
    "-0.007, 0.048, 0.006, 0.02, 0.055, 0.021, 0.076], 4, 1045831809) where age > 20"
)
PUBLIC = {"rows": "public"}
ROWS = {"public_rows": [15, 0, 20, 4]}
NORM = {"norm": {"columns": ["age", "bmi"], "bound": 0.9}}


@pytest.mark.parametrize("split", ["range", "balanced"])
@pytest.mark.parametrize(
    "ask", [[ASKED], [ASKED, OTHER], [OTHER, "mean(bmi) by sex", "regression(bmi ~ age + sex)"]]
)
@pytest.mark.parametrize("records", [{"rows_expected": 5000}, PUBLIC, PERSON, NORM, PUBLIC | NORM])
def test_both_plan_the_same(records: dict[str, Any], ask: list[str], split: str) -> None:
    """The noise, its law, and the digest of the scales, which has the public numbers."""
    given: dict[str, Any] = {
        "records": {"max_rows": 20, "columns": COLUMNS, **records},
        "ask": ask,
        "split": split,
    }
    given |= {"epsilon": 1.5, "delta": 1e-7} | (ROWS if "rows" in records else {})
    checked = planned(given, 4)
    assert any(isinstance(one.block, SquaredInfluence) for one in checked.request.blocks)
    shares, question = shares_of(given, 4), f"statistics {checked.planned()}"
    assert shares.check(question) == checked.variance
    assert (shares.counted, shares.length) == (checked.honest, checked.request.length)
    find_the_same(checked, shares, 4, 3)
    other = (
        ask[0]
        .replace("0.48", "0.49")
        .replace("0.38", "0.39")
        .replace("2218197475", "1")
        .replace("1045831809", "1")
    )
    with pytest.raises(Refused, match="the checksum of a regression"):
        shares_of(given | {"ask": [other, *ask[1:]]}, 4)


def test_one_sum_of_few_coefficients_has_laplace_noise_in_both() -> None:
    given: dict[str, Any] = {"records": {"max_rows": 20, "columns": COLUMNS}, "ask": [ASKED]}
    checked = planned(given | {"epsilon": 1.0, "delta": 1e-6}, 4)
    assert checked.request.laplace is not None


def test_no_norm_bounds_gaussian_noise_in_either() -> None:
    """With a large delta the noise is Gaussian, whose variance has the longest row."""
    given: dict[str, Any] = {"records": {"max_rows": 20, "columns": COLUMNS, **NORM}, "ask": [ASKED, OTHER]}
    given |= {"epsilon": 1.0, "delta": 1e-2}
    checked, plain = (
        planned({**given, "records": given["records"] | more}, 4) for more in ({}, {"norm": None})
    )
    assert checked.request.laplace is None
    assert checked.variance == plain.variance
    assert shares_of(given, 4).check(f"statistics {checked.planned()}") == checked.variance


def test_the_digest_has_the_public_numbers() -> None:
    """Two regressions whose noise is the same are different requests."""
    given: dict[str, Any] = {"records": {"max_rows": 20, "columns": COLUMNS}, "epsilon": 1.0, "delta": 1e-6}
    again = ASKED.replace("0.48", "0.49").replace("2218197475", "1323601772")
    questions = [f"statistics {planned(given | {'ask': [text]}, 4).planned()}" for text in (ASKED, again)]
    assert questions[0] != questions[1]
    assert not refused(shares_of(given | {"ask": [ASKED]}, 4), questions[0])
    assert refused(shares_of(given | {"ask": [ASKED]}, 4), questions[1])


@pytest.mark.parametrize(
    "text",
    [
        ASKED.replace("0.65, ", ""),
        ASKED.replace("-1.06", "1e10"),
        ASKED.replace("0.65", "-0.65"),
        ASKED.replace("0.65", "1e151"),
        ASKED.replace("[0.075", "[0"),
        ASKED.replace("0.112", "-0.112"),
        ASKED.replace("0.112", "1e999"),
        ASKED.replace("0.112", "nan"),
        ASKED.replace("2218197475", "2218197474"),
        ASKED.replace("2218197475", "2218197475.5"),
        ASKED.replace(" 4, 2218197475", " 4.5, 2218197475"),
        ASKED.replace(" 4, 2218197475", " 1e999, 2218197475"),
        ASKED.replace("age + sex", "sex + age"),
        f"{ASKED} by ward",
        f"{ASKED} where age > 20",
    ],
)
def test_both_refuse_the_same(text: str) -> None:
    records = {"max_rows": 20, "columns": COLUMNS}
    assert read_ask([ASKED], read_schema(records))
    assert read_again([ASKED], read_table(records))
    with pytest.raises(ConfigError):
        read_ask([text], read_schema(records))
    with pytest.raises(Refused):
        read_again([text], read_table(records))
