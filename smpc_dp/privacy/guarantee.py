"""The differential privacy guarantee of a result: one frozen value, complete enough to be quoted."""

from __future__ import annotations

from numbers import Real
from typing import Literal

import msgspec

from smpc_dp.errors import ConfigCheck, Issues

# substitution: one unit's data is exchanged for other data; add-remove: one unit's data is there or is not.
Relation = Literal["substitution", "add-remove"]
# Whose data are exchanged, or added or removed: one row; all rows of one person; all that one party has.
Unit = Literal["record", "person", "party"]
# The least delta above 0 at which the accountant states an epsilon.
LEAST_DELTA = 1e-11
# The key of `[parameters]` for what all requests of a session may cost together (`smpc_dp.privacy.budget`).
BUDGET = "budget"


class PlainStruct(msgspec.Struct, frozen=True):
    """Base class of structs with JSON-compatible fields, with a method that returns them as JSON data."""

    def to_json(self) -> dict[str, object]:
        """Return the fields of the struct as JSON data."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built


class PrivacyGuarantee(PlainStruct, frozen=True, forbid_unknown_fields=True):
    """Statement of (epsilon, delta)-DP of a release, with relation, unit, assumption and proof.

    Attributes:
        epsilon, delta: for every pair of neighbouring inputs and every set of outputs, rounded up.
        relation: which inputs are neighbours.
        sensitivity: how far apart the exact values of neighbours can be, by norm, in `unit`s.
        unit: of the sensitivity: 'grid step', 'category', or the caller's.
        mechanism: which noise, with its parameters.
        assumption: which parties must be honest and what each observer sees.
        proof: how the numbers come about: the theorem or the computation.
        warnings: what a reader should be told, such as a delta above 1/n.
        protects: the unit whose data differ between neighbours.
    """

    epsilon: float
    delta: float
    relation: Relation
    sensitivity: dict[str, float]
    unit: str
    mechanism: str
    assumption: str
    proof: str
    warnings: tuple[str, ...] = ()
    protects: Unit = "party"


def delta_warnings(delta: float, units: int | None) -> tuple[str, ...]:
    """Return a warning if delta is above 1/units; nothing if it is not, or units is None."""
    if units is not None and units >= 1 and delta > 1 / units:
        return (
            f"delta = {delta:g} is above 1/n = {1 / units:g}: publishing one of {units} inputs at random "
            "would be allowed",
        )
    return ()


def check_budget(epsilon: float, delta: float) -> None:
    """Raise ConfigError unless 0 <= epsilon <= 1000 and 0 <= delta < 1."""
    issues = Issues()
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, Real):
            issues.add_issue(name, f"must be a number, is {value!r:.80}", ConfigCheck.TYPE)
    issues.raise_issues()
    # Written so that NaN fails.
    if not 0 <= epsilon <= 1000:
        issues.add_issue("epsilon", f"must be between 0 and 1000, is {epsilon}", ConfigCheck.RANGE)
    if not 0 <= delta < 1:
        issues.add_issue("delta", f"must be at least 0 and below 1, is {delta}", ConfigCheck.RANGE)
    issues.raise_issues()
