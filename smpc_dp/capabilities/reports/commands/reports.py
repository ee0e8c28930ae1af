"""Local reports on the command line: how their results are printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from smpc_dp.report.texts import privacy_lines


def report_text(result: Mapping[str, Any]) -> str:
    """Return the JSON result of a party or the analyst as a few lines of text, whichever kind it is."""
    if "names" in result:
        return names_text(result)
    return reported_text(result) if "reported" in result else sent_text(result)


def sent_text(result: Mapping[str, Any]) -> str:
    """Return what a party has sent as lines of text, from the JSON data of a `SentReport`."""
    how = "sent again, byte for byte" if result["again"] else "drawn, charged and sent"
    lines = [f"report of {result['party']} to {result['analyst']}: {how}"]
    if result["clipped"]:
        lines.append(f"clipped: {result['clipped']} values of {result['party']}")
    return "\n".join([*lines, *privacy_lines(result)])


def reported_text(result: Mapping[str, Any]) -> str:
    """Return an estimate from reports as lines of text, from the JSON data of a `ReportedEstimate`."""
    from smpc_dp.capabilities.reports.reports import FEW

    low, high = result["interval"]
    count = len(result["reported"]) + len(result["missing"])
    estimated, bound = f"{result['standard_error']:.2g}", result["standard_error_bound"]
    error = f", standard error {estimated}"
    # No number of the result says so: those of each public label, which decide, are not in it.
    if FEW in result["privacy"]["not_protected"]:
        known = "not known" if bound is None else f"at most {bound:.2g}"
        error = (
            f", standard error {known} (estimated {estimated}, which can be far too small from "
            f"{result['reports']} reports)"
        )
    lines = [
        f"{result['statistic']}: {result['value']:.6g}{error}",
        f"{100 * result['confidence']:g}% interval: {low:.6g} to {high:.6g}, {_covered(result)}",
        f"from {result['reports']} reports of {count} parties",
    ]
    if bound is not None:
        lines.append(f"standard error at most {bound:.2g}, whatever the records")
    if result["missing"]:
        lines.append(f"without, as lost sample: {', '.join(result['missing'])}")
    lines += [f"fault: {line}" for line in result["faults"]]
    return "\n".join([*lines, *privacy_lines(result)])


def _covered(result: Mapping[str, Any]) -> str:
    """Return the words on what the interval of an estimate from reports covers, and what it does not."""
    is_sampled = result["visited"] is None
    covered = "the responses and the records as a sample" if is_sampled else "the responses of these parties"
    bias = result["bias_bound"]
    if bias is None:
        return f"for {covered}; not for the rounding to {result['categories']} categories"
    return f"for {covered}" + (f", a bias of {bias:.2g} at most included" if bias else "")


def names_text(result: Mapping[str, Any]) -> str:
    """Return released names as lines of text, from the JSON data of the analyst's result."""
    count = len(result["reported"]) + len(result["missing"])
    lines = [f"names from {len(result['reported'])} of {count} parties"]
    # As a session file has them.
    lines += [
        f"{column}: values = {json.dumps(values, ensure_ascii=False)}"
        for column, values in result["values"].items()
    ]
    if result["missing"]:
        lines.append(f"without: {', '.join(result['missing'])}")
    if result["left_out"]:
        lines.append(f"left out, since reports were full: {result['left_out']}")
    lines += [f"fault: {line}" for line in result["faults"]]
    return "\n".join([*lines, *privacy_lines(result)])
