"""What is asked of records: both auditors read the same questions, and take the same sums from them."""

from __future__ import annotations

import functools
from typing import Any

from smpc_dp.errors import ConfigError
from smpc_dp.records.ask import read_ask
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp_verify.asked import LOOPS, terms_of
from smpc_dp_verify.asked import read_ask as read_again
from smpc_dp_verify.columns import Table
from smpc_dp_verify.columns import read_table as read_columns
from smpc_dp_verify.errors import Refused
from tests.fuzz.target import Target

SETTINGS: dict[str, Any] = {
    "columns": {
        "y": {"lower": 0.0, "upper": 10.0},
        "a": {"lower": 0.0, "upper": 1.0, "step": 1.0},
        "b": {"lower": -5.0, "upper": 5.0, "step": 0.5, "missing": False},
        "c": {"values": ["p", "q", "r"], "reference": "q"},
        "d": {"values": ["s", "t"]},
    },
    "max_rows": 100,
    "rows_expected": 20,
}
SEEDS = (
    b"regression(y ~ a * c + b)",
    b"regression(y ~ a + b + a:b + c + d + c:d)",
    b"regression(y ~ c * d:a + d + a)",
    b"regression(y ~ c + d)",
    b"covariance(y, b, robust)",
    b"correlation(y, a, b, robust) by c",
    b"variance(y, robust)",
    b"sandwich(y ~ b, [0.28, -0.55], [0.56, 0.15], [0.051, 0.017, 0.053], 3, 2655250527) where d = s",
    b"logistic(a ~ b * c * d)",
    b"mean(y) by c x d",
    b"quantile(b, .25, .5) by c",
    b"regression(y ~ b * c) by d",
    b"cox_efron(b, a ~ d) by c",
)


@functools.cache
def _columns() -> tuple[Schema, Table]:
    return read_schema(SETTINGS), read_columns(SETTINGS)


def _cells(block: Any) -> list[tuple[str, int]]:
    return [(one.column, one.cells) for one in block.selectors]


def _question(content: bytes) -> None:
    """Read one answer that is asked for: both take it, with the same blocks and factors, or refuse it."""
    text = content.decode("utf-8", "replace")
    schema, table = _columns()
    try:
        (one,) = read_ask([text], schema)
    except ConfigError as error:
        try:
            read_again([text], table)
        except Refused:
            raise error from None
        raise AssertionError("the second auditor takes what is refused") from error
    if one.kind in (*LOOPS, "random_effects"):
        # Verifiable runs, which alone the second auditor plans, have no such answers.
        try:
            read_again([text], table)
        except Refused:
            return
        raise AssertionError("the second auditor takes what a verifiable run has not")
    (other,) = read_again([text], table)
    factors = [
        [(block.powers, block.present, *_cells(block), factor) for block, factor in term.every.items()]
        for term in statistic_of(one).terms(one, schema)
    ]
    assert one.products == other.products
    assert factors == [
        [(block.powers, block.present, *_cells(block), factor) for block, factor in term.factors.items()]
        for term in terms_of(other, table)
    ]


def targets() -> list[Target]:
    """Return the target of this file."""
    return [Target("question", _question, SEEDS, "text", cost=10)]
