"""What the second auditor finds in a log, and whether the first one found the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

# By name what the two auditors have found.
Findings: TypeAlias = dict[str, tuple[object, object]]
# By how much figures may differ, relatively, and delta, beside that, where both convolve losses.
ROUNDED, CONVOLVED = 1e-9, 2e-12


class SecondAnswer(msgspec.Struct, frozen=True):
    """Result of the second auditor for one statistic: the values and standard errors of its cells."""

    statistic: str
    values: tuple[float | None, ...]
    errors: tuple[float | None, ...]


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """Result that the independent second auditor prints on a log: exit code, reason, and what it found.

    `statistic` is the verdict on a statistic of pairs, as plain data.
    """

    code: int
    reason: str
    line: int | None = None
    session: str | None
    run_id: str | None
    head: str | None
    session_head: str | None
    corrupt: int | None = None
    entries: int
    counted: tuple[str, ...]
    excluded: tuple[tuple[str, int, str], ...]
    silent: tuple[str, ...]
    void: tuple[tuple[str, str], ...]
    average: tuple[float, ...]
    answers: tuple[SecondAnswer, ...] | None
    standard_error: float | None
    bias: float | None
    epsilon: float | None
    delta: float | None
    position: int | None
    tries: int | None
    statistic: dict[str, Any] | None
    receipt: tuple[str, int, bool] | None


def differing_answers(answers: Mapping[str, Any] | None, second: Sequence[SecondAnswer] | None) -> Findings:
    """Return those of the second auditor's statistics on which the two differ, with both numbers."""
    if answers is None or second is None:
        return {"kind of answers": (answers is None, second is None)}
    own: dict[str, tuple[list[float | None], list[float | None]]] = {}
    for one in answers["estimates"]:
        values, errors = own.setdefault(one["statistic"], ([], []))
        values.append(one["value"])
        errors.append(one["standard_error"])
    differing: Findings = {}
    for answer in second:
        values, errors = own.get(answer.statistic, ([], []))
        if not _all_near(errors, answer.errors):
            differing[f"standard errors of {answer.statistic}"] = (tuple(errors), answer.errors)
        if not _all_near(values, answer.values, errors):
            differing[f"values of {answer.statistic}"] = (tuple(values), answer.values)
    return differing


def _all_near(
    first: Sequence[float | None], second: Sequence[float | None], errors: Sequence[float | None] = ()
) -> bool:
    """Tell whether two lists of numbers agree, within rounding or a small part of the standard errors."""
    if len(first) != len(second):
        return False
    slack = [ROUNDED * (error or 0.0) for error in errors] or [0.0] * len(first)
    return all(
        is_near(one, other, ROUNDED) or (one is not None and other is not None and abs(one - other) <= each)
        for one, other, each in zip(first, second, slack, strict=True)
    )


def is_near(one: float | None, other: float | None, far: float) -> bool:
    """Tell whether two numbers are equal or within relative tolerance `far`; None equals only None."""
    return one == other or (one is not None and other is not None and math.isclose(one, other, rel_tol=far))
