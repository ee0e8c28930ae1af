"""Text of a statistic of pairs, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smpc_dp.report.texts import logged_lines
from smpc_dp.summary import PAIRS_COVERED


def statistic_text(result: Mapping[str, Any]) -> str:
    """Return a pairwise statistic, given as its JSON data, as a few lines of text for a person."""
    error = result["standard_error"]
    shown = "" if error is None else f", standard error {error:.2g}"
    lines = [f"{result['kernel']}: {result['value']:.6g}{shown}"]
    if result["interval"] is not None:
        low, high = result["interval"]
        lines.append(f"{100 * result['level']:g}% interval: {low:.6g} to {high:.6g}, {PAIRS_COVERED}")
    privacy = result["privacy"]
    failed = f", {result['failed']} failed" if result["failed"] else ""
    lines += [
        f"over {result['pairs']} pairs of {result['parties']} parties{failed}",
        f"standard error of the noise alone: {result['noise_error']:.2g}",
        *([f"without: {', '.join(result['absent'])}"] if result["absent"] else []),
        *(f"fault: {line}" for line in result["faults"]),
        f"epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g} for each record, all its pairs together",
        f"privacy: {privacy['claim']}",
        *(f"not protected: {line}" for line in privacy["not_protected"]),
        *logged_lines(result),
    ]
    return "\n".join(lines)
