"""What results say of themselves in a line: for commands, `print` and notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# What an interval of a statistic of pairs covers.
PAIRS_COVERED = "for the noise and the records as a sample"
# How many coordinates of a value are shown.
SHOWN_VALUES = 8


def value_text(
    values: Sequence[float], length: int, kind: str, standard_error: float, resolution: float
) -> str:
    """Format a vector's first values as text, rounded to meaningful digits; `length`: of the whole vector."""
    values = rounded(values, kind, standard_error, resolution)
    more = f", … ({length} values)" if length > len(values) else ""
    return f"[{', '.join(map(str, values))}{more}]"


def rounded(values: Sequence[float], kind: str, standard_error: float, resolution: float) -> Sequence[float]:
    """Round values to the digits that their standard error leaves meaningful; exact sums are left unchanged.

    Sums, which are integers or grid points, are left as they are; averages get the digits of `resolution`,
    the grid's step divided by the weight; noisy values two digits of their error: more would be noise.
    """
    if standard_error:
        digits = max(0, 1 - math.floor(math.log10(standard_error)))
        # Not -0.0.
        return [round(value, digits) + 0.0 for value in values]
    if kind == "average":
        digits = max(6, math.ceil(-math.log10(resolution)))
        return [round(value, digits) for value in values]
    return values


def spent_text(receipt: Mapping[str, Any]) -> str:
    """Format what a privacy ledger has spent after a release, and its budget, from its receipt."""
    spent, budget = receipt["spent"]["epsilon"], receipt["budget_epsilon"]
    amount = "no bound" if spent is None else f"epsilon = {spent:.6g}"
    limit = "no limit" if budget is None else f"{budget:.6g}"
    return f"ledger of {receipt['party']}: {amount} of {limit} spent at delta = {receipt['budget_delta']:g}"
