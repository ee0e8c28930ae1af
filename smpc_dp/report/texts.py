"""Results, as JSON data, in lines for a person."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from smpc_dp.summary import SHOWN_VALUES, spent_text, value_text

# The least p-value that is printed, and that tests with Laplace noise give: theirs may be smaller.
LEAST_P_VALUE = 1e-10
# What is printed of a p-value that is not above the least one.
AT_MOST = f"<= {LEAST_P_VALUE:g}"
# The numbers in a question for robust sampling errors, which no reader needs to tell its answers.
_NUMBERS = re.compile(r"(sandwich\([^,]+), \[.*?\](?:, \d+){2}\)")


def result_text(result: Mapping[str, Any]) -> str:
    """Format a result (JSON data) as a few lines of text for a person."""
    error = result.get("standard_error", 0.0)
    shown = value_text(
        result["value"][:SHOWN_VALUES],
        len(result["value"]),
        result["kind"],
        error,
        result["step"] / (result["weight"] or 1),
    )
    survivors, absent = result["survivors"], result["absent"]
    lines = [
        f"{result['kind']} over {len(survivors)} of {len(survivors) + len(absent)} parties: {shown}",
        *([_noise(result)] if error else []),
        f"without: {', '.join(absent)}" if absent else "nobody was missing",
        *(f"fault: {line}" for line in result["faults"]),
        *privacy_lines(result),
        *logged_lines(result),
    ]
    return "\n".join(lines)


def privacy_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines of text on a result's privacy, its cost, and what is not protected."""
    privacy = result["privacy"]
    return [
        f"privacy: {privacy['claim']}",
        *_unit(privacy),
        *_budget(privacy),
        *_spent(privacy.get("receipt")),
        *(f"not protected: {line}" for line in privacy["not_protected"]),
    ]


def logged_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines of text that identify the log of a result for an auditor; none without a log."""
    log = result["evidence"].get("log") if result.get("evidence") else None
    return [] if log is None else [f"the log of the run ends with head {log['head']}"]


def _noise(result: Mapping[str, Any]) -> str:
    """Return words on the noise in a result: its standard error, pairs' noise left in it, and bias."""
    error, curator = result["standard_error"], result["curator_standard_error"]
    residual = result["residual_pairs"]
    left = f"; noise of {residual} pairs is left in it" if residual else ""
    bias = result["bias"]
    moved = (
        ""
        if bias is None
        else f"; cheats who see their noise first can move it by {bias:.2g} at most, in expectation"
    )
    beside = (
        ""
        if error == curator
        else f" (a trusted curator over only the honest parties counted on: {curator:.2g})"
    )
    return f"standard error: {error:.2g} in each coordinate{beside}{left}{moved}"


def _budget(privacy: Mapping[str, Any]) -> list[str]:
    """Return a line on what a request cost of the session's budget and what is left; [] without a budget."""
    budget = privacy.get("budget")
    if budget is None:
        return []
    spent = "more than any" if budget["spent"] is None else f"{budget['spent']:.6g}"
    return [
        f"budget of the session: this request epsilon = {budget['epsilon']:.6g}, all {budget['requests']} "
        f"{spent} of {budget['budget']:g} at delta = {budget['delta']:g}; left: {budget['left']} requests"
    ]


def _unit(privacy: Mapping[str, Any]) -> list[str]:
    """Return a line on whom the privacy protects (party, record or person); [] for exact results."""
    unit = privacy.get("unit")
    return [] if unit is None else [f"unit: epsilon and delta protect one {unit}"]


def _spent(receipt: Mapping[str, Any] | None) -> list[str]:
    """Return a line on what a ledger has spent of its budget; none without a receipt."""
    return [] if receipt is None else [spent_text(receipt)]


def follow_up_lines(estimates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line with the question for robust sampling errors of each linear regression."""
    texts = (one.get("follow_up") for one in estimates)
    return [f"for robust sampling errors ask next: {text}" for text in texts if text]


def without_numbers(estimates: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return each question without the numbers of `sandwich`, unchanged if two would be the same."""
    short = {one["statistic"]: _NUMBERS.sub(r"\1)", one["statistic"], count=1) for one in estimates}
    often = Counter(short.values())
    return {text: one if often[one] == 1 else text for text, one in short.items()}
