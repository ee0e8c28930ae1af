"""Numbers of a stored result: those that follow from the outcome of its run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from smpc_dp.engine.result import Outcome, Result
from smpc_dp.errors import Check, ConfigError, PrivacyError, VerificationError
from smpc_dp.records.sandwich import agree
from smpc_dp.results.stored import convert_fields

# Values are compared to this part of them: some are computed with sums that depend on the machine.
CLOSE = 1e-12
# The field of an estimate with the question that follows on it.
FOLLOW_UP = "follow_up"


class StoredPrivacy(msgspec.Struct, frozen=True):
    """Numbers of a privacy claim (unit, epsilon, delta), read from a result file."""

    unit: str | None
    epsilon: float | None
    delta: float | None


class StoredTotal(msgspec.Struct, frozen=True):
    """Numbers of a sum or an average, read from a result file."""

    value: list[int | float]
    fixed_point: list[int]
    step: float
    weight: int
    standard_error: float
    curator_standard_error: float
    bias: float | None
    privacy: StoredPrivacy


class StoredEstimates(msgspec.Struct, frozen=True):
    """Numbers of statistics of records, read from a result file, and how they were made."""

    level: Annotated[float, Meta(gt=0, lt=1)]
    simultaneous: bool
    estimates: Any
    rows: Any
    present: Any
    counted: Any
    privacy: StoredPrivacy
    hide: Annotated[float, Meta(ge=0)] | None
    begins: list[int] | None = None


def read_total(fields: Mapping[str, Any]) -> StoredTotal:
    """Read the numbers of a sum or average from a result's JSON data; VerificationError if malformed."""
    total: StoredTotal = convert_fields(fields, StoredTotal)
    return total


def check_total(total: StoredTotal, outcome: Outcome, kind: str) -> None:
    """Raise VerificationError unless a result file's sum or average is that of the signed total."""
    try:
        expected = Result.of(outcome, kind)
    except PrivacyError as error:
        raise VerificationError(str(error), Check.WRONG_RESULT) from None
    for name in ("step", "weight", "standard_error", "curator_standard_error", "bias"):
        given, right = getattr(total, name), getattr(expected, name)
        if not _are_close(given, right):
            raise VerificationError(f"{name} is {given}, of the signed total {right}", Check.WRONG_RESULT)
    _check_privacy(total.privacy, outcome)
    if total.fixed_point != expected.fixed_point.tolist():
        raise VerificationError("fixed_point is not the signed total", Check.WRONG_RESULT)
    if not _are_close(total.value, expected.value.tolist()):
        raise VerificationError("value is not that of the signed total", Check.WRONG_RESULT)


def read_estimates(fields: Mapping[str, Any]) -> StoredEstimates:
    """Read the numbers of statistics from a result's JSON data; VerificationError if malformed."""
    estimates: StoredEstimates = convert_fields(fields, StoredEstimates)
    return estimates


def check_estimates(
    stored: StoredEstimates, parameters: Any, outcome: Outcome, operation: str, names: Sequence[str]
) -> None:
    """Raise VerificationError unless statistics, if of one request, and their privacy are the outcome's.

    The last of several requests gives no estimates by itself: these are not checked.
    """
    _check_privacy(stored.privacy, outcome)
    parameters = _begun(parameters, stored.begins)
    planned = parameters.planned()
    if planned and not operation.endswith(f" {planned}"):
        reason = "the question has other noise or scales than the session's"
        raise VerificationError(reason, Check.WRONG_RESULT)
    if parameters.steps > 1:
        counted = 0 if outcome.noise is None else outcome.noise.honest
        _check_shown(stored, {"rows": None, "present": len(outcome.survivors), "counted": counted})
        return
    result = parameters.result(
        outcome, names, level=stored.level, simultaneous=stored.simultaneous, hide=stored.hide
    )
    expected = json.loads(msgspec.json.encode(result.to_json()))
    _check_shown(stored, {name: expected[name] for name in ("estimates", "rows", "present", "counted")})


def _begun(parameters: Any, begins: Sequence[int] | None) -> Any:
    """Return the parameters of the request that begins so; VerificationError if none of the session does."""
    if (parameters.begins is None) != (begins is None):
        raise VerificationError("begins is not that of the session's requests", Check.WRONG_RESULT)
    if begins is None:
        return parameters
    try:
        return parameters.beginning(begins)
    except ConfigError as error:
        raise VerificationError(str(error), Check.WRONG_RESULT) from None


def _check_shown(stored: StoredEstimates, expected: Mapping[str, Any]) -> None:
    """Raise VerificationError unless fields of a result file are those recomputed."""
    for name, right in expected.items():
        if not _are_close(getattr(stored, name), right):
            raise VerificationError(f"{name} are not those of the signed total", Check.WRONG_RESULT)


def _check_privacy(stored: StoredPrivacy, outcome: Outcome) -> None:
    """Raise VerificationError unless a result file's privacy numbers are those recomputed."""
    claimed = outcome.privacy
    for name in ("unit", "epsilon", "delta"):
        if not _are_close(getattr(stored, name), getattr(claimed, name)):
            raise VerificationError(f"privacy.{name} is not that of the session", Check.WRONG_RESULT)


def _are_close(given: Any, expected: Any) -> bool:
    """Tell whether two JSON values are equal but for rounding of numbers."""
    match given, expected:
        case [[*ones], [*others]]:
            return len(ones) == len(others) and all(map(_are_close, ones, others))
        case [{**one}, {**other}]:
            return one.keys() == other.keys() and all(
                _are_follow_ups(one[key], other[key])
                if key == FOLLOW_UP
                else _are_close(one[key], other[key])
                for key in one
            )
        case [float() | int(), float()]:
            try:
                return math.isclose(given, expected, rel_tol=CLOSE)
            except OverflowError:
                # An integer that is no float64.
                return False
    # 4.0 and true are equal to the integers 4 and 1
    return type(given) is type(expected) and bool(given == expected)


def _are_follow_ups(given: Any, expected: Any) -> bool:
    """Tell whether two questions agree: the last digits of their numbers depend on the machine."""
    return isinstance(given, str) and isinstance(expected, str) and agree(given, expected)
