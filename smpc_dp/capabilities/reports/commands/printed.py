"""Types of what local reports print as JSON, from which their schemas are made."""

from __future__ import annotations

from typing import TypedDict

from smpc_dp.results.printed import PrintedPrivacy


class PrintedSent(TypedDict):
    """JSON output of a party: the hashes in hexadecimal of the request and the report that it has sent."""

    party: str
    analyst: str
    request: str
    report: str
    again: bool
    clipped: int
    privacy: PrintedPrivacy


class PrintedEstimate(TypedDict):
    """JSON output of the analyst: an estimate from the reports that have arrived."""

    statistic: str
    value: float
    standard_error: float
    standard_error_bound: float | None
    bias_bound: float | None
    confidence: float
    interval: tuple[float, float]
    reports: int
    categories: int
    visited: int | None
    privacy: PrintedPrivacy
    reported: list[str]
    missing: list[str]
    faults: list[str]


class PrintedNames(TypedDict):
    """JSON output of the analyst: the released names of categories, and the values of each column."""

    names: dict[str, list[str]]
    values: dict[str, list[str]]
    reported: list[str]
    missing: list[str]
    left_out: int
    faults: list[str]
    privacy: PrintedPrivacy
