"""Parameters of a secure aggregation, as in a session file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from smpc_dp.encoding import LARGEST_STEP, LEAST_STEP, MAX_LENGTH, Encoding, encoding_issues
from smpc_dp.engine.phases.parameters import (
    MAX_BY_DEFAULT,
    MAX_CHECKED,
    MAX_PARTIES,
    MOST_SHOWN,
    CheckableParameters,
    SumParameters,
    Total,
)
from smpc_dp.engine.result import Claim
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues
from smpc_dp.privacy.secagg_plan import (
    SecAggPlan,
    default_corrupt,
    default_dropout,
    part_of,
    plan_secagg,
)
from smpc_dp.secagg.claim import sum_claim
from smpc_dp.secagg.versions import EARLIER_VERSION
from smpc_dp.settings import read

if TYPE_CHECKING:
    pass


# Keys that make a sum one with differential privacy (`noisy`).
PRIVACY_KEYS = ("epsilon", "delta", "mechanism", "l2_bound", "complete_graph")
# Key of the rule against differences (`survivors`).
SAME = "same_survivors"
# What is said of a default without which there is a plan: fraction, number, and parties in all.
_DEFAULT = {
    "dropout": "is not given, and no plan tolerates its default, {:g}: {} of {} parties lost; "
    "write dropout = 0.0 to tolerate no loss, or lower corrupt",
    "corrupt": "is not given, and no plan tolerates its default, {:g}: {} of {} parties corrupt; "
    "lower dropout, or write corrupt = 0.0 to tolerate no colluding party",
}
# Keys that a secure sum lacks, with noise or without.
OF_GOPA = {
    key: f"is not for protocol 'secagg': {key} is a parameter of protocol 'gopa'"
    for key in ("on_dropout", "topology", "verifiable")
}


class SecAggParameters(CheckableParameters, frozen=True):
    """Checked parameters of an exact secure sum, maybe over the same survivors in a whole session."""

    group_version: ClassVar[int] = EARLIER_VERSION
    same_survivors: bool = True

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "secagg-checked" if self.is_checked else "secagg"

    @property
    def keeps_survivors(self) -> bool:
        """Whether all sums of a session must include exactly the same parties."""
        return self.same_survivors

    def claim(self, survivors: int) -> Claim:
        """Return the privacy claim of an exact sum: no differential privacy, and what is visible."""
        return sum_claim(
            self.plan,
            survivors,
            same=self.same_survivors,
            checked=self.is_checked,
            by_some=self.has_checkers,
        )


Share = Annotated[float, Meta(ge=0, lt=0.5)]
Bounds = float | int | list[float | int]


Corrupt = Annotated[
    Annotated[float, Meta(ge=0, lt=1)] | None,
    Meta(
        description="fraction that may collude with the aggregator; corrupt + 2 dropout stays below 1",
        extra={"range": "[0, 1)", "default": "0.1, and at least one party"},
    ),
]
Security = Annotated[float, Meta(ge=20, le=128, description="bits for the statistical failures of the plan")]


class SumSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `[parameters]` of a session file that all secure sums have."""

    length: Annotated[int, Meta(ge=1, le=MAX_LENGTH, description="coordinates of a vector")]
    lower: Annotated[
        Bounds | None,
        Meta(
            description="least value of every coordinate, or of each; compared exactly",
            extra={"range": "finite, below `upper`; whole for integers", "default": "needed"},
        ),
    ] = None
    upper: Annotated[
        Bounds | None,
        Meta(
            description="greatest value of every coordinate, or of each",
            extra={"range": "finite; whole for integers", "default": "needed"},
        ),
    ] = None
    kind: Annotated[Literal["real", "integer"], Meta(description="kind of the values")] = "real"
    precision: Annotated[
        Annotated[float, Meta(ge=LEAST_STEP, le=LARGEST_STEP)] | None,
        Meta(
            description="step of a real value, at most",
            extra={"range": "[2^-1000, 2^960]; needed for real, not allowed for integer"},
        ),
    ] = None
    max_weight: Annotated[
        int,
        Meta(ge=0, lt=1 << 62, description="largest secret weight of a party; 0: no weights"),
    ] = 0
    dropout: Annotated[
        Share | None,
        Meta(
            description="fraction of the parties that may disappear; of an exact sum's survivors none from "
            "later ones of the session, unless `same_survivors = false`",
            extra={
                "range": "[0, 0.5)",
                "default": "0.1, and from five parties up at least one party; "
                "0 with `same_survivors = false`",
            },
        ),
    ] = None
    corrupt: Corrupt = None
    security: Security = 40


CheckedTotal = Annotated[
    Total | None,
    Meta(
        description="whether each receiver checks the total against commitments to all vectors "
        "([below](#checked-totals)), or takes the aggregator's word",
        extra={
            "range": f'`"checked"`, of at most {MAX_CHECKED:,} elements, or `"unchecked"`',
            "default": f'`"checked"` up to {MOST_SHOWN:,} parties and {MAX_BY_DEFAULT:,} elements '
            'where totals can be checked, else `"unchecked"`',
        },
    ),
]


class ExactSettings(SumSettings, frozen=True, kw_only=True):
    """The `[parameters]` of a session file for exact secure sums."""

    same_survivors: Annotated[
        bool,
        Meta(
            description="exact sums of a session must be over the same survivors "
            "([below](#the-rule-against-differences))"
        ),
    ] = True
    total: CheckedTotal = None


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[SecAggParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of an exact secure sum; return (parameters, []), or (None, all faults).

    Source: [Bell et al. 2020, section 3].
    """
    # Without the rule a lost party may reveal its vector: only a session that asks for that tolerates it.
    loss = 0.0 if parameters.get(SAME, True) is False else None
    checked, good, issues = check_sum(
        ExactSettings, parameters, parties, explained=PRIVACY_KEYS, refused=OF_GOPA, loss=loss
    )
    if checked is None:
        return None, issues
    try:
        total = resolve_total(
            good["total"], checked.encoding.ring_length, parties, least=checked.plan.least_to_check
        )
    except ConfigError as error:
        return None, list(error.issues)
    return SecAggParameters(checked.encoding, checked.plan, same_survivors=good[SAME], total=total), []


def check_sum(
    settings: type[SumSettings],
    parameters: Mapping[str, object],
    parties: int,
    *,
    protocol: str = SumParameters.protocol,
    explained: Collection[str] = (),
    refused: Mapping[str, str] | None = None,
    complete: bool = False,
    loss: float | None = None,
) -> tuple[SumParameters | None, dict[str, Any], list[ConfigIssue]]:
    """Check the settings of a sum; return its parameters or None, the valid settings, and every fault.

    `explained` are keys that only an error mentions: with them it would be another kind of sum. `refused` are
    keys of other kinds of sums, each with the combination that this one does not have. `l2_bound`, where it
    is one of the settings, stands in the place of the bounds of coordinates. `complete`: everyone is
    everyone's neighbour, however many there are. `loss`: the default of `dropout`, `default_dropout` if None.
    That of `corrupt` is `default_corrupt`.
    """
    unknown = f"unknown parameter of {protocol}"
    good, issues = read(settings, parameters, unknown=unknown, refused=refused, explained=explained)
    if good.get("l2_bound", None) is None and "l2_bound" not in {issue.where for issue in issues}:
        issues += [
            ConfigIssue(key, "is missing", ConfigCheck.MISSING)
            for key in ("lower", "upper")
            if key not in parameters
        ]
    if parties > MAX_PARTIES:
        issues.append(
            ConfigIssue("roster", f"at most {MAX_PARTIES} parties, has {parties}", ConfigCheck.TOO_LARGE)
        )
    issues += _encoding_issues(good, min(parties, MAX_PARTIES))
    plan: SecAggPlan | None = None
    if parties <= MAX_PARTIES:
        plan, more = plan_graph(good, parties, complete, loss)
        issues += more
    if issues or plan is None:
        return None, good, issues
    precision = good["precision"]
    encoding = Encoding.plan(
        length=good["length"],
        lower=good["lower"],
        upper=good["upper"],
        l2_bound=good.get("l2_bound"),
        precision=None if precision is None else float(precision),
        parties=parties,
        max_weight=good["max_weight"],
    )
    return SumParameters(encoding=encoding, plan=plan), good, issues


def resolve_total(
    total: Total | None, elements: int, parties: int, unsupported: str | None = None, *, least: int
) -> Total:
    """Return "checked" or "unchecked" for totals: as set, or by default; ConfigError if it cannot be had.

    Args:
        total: the setting; None if the session lacks it: then what is within the bounds of the default, and
            can be checked, is checked.
        unsupported: the form of the protocol whose totals nobody can check, with the reason; None for others.
        least: the parties that are needed for enough honest ones to be left where some check for all.

    Raises:
        ConfigError: "checked" is asked for, and cannot be had.
    """
    if total is None:
        by_default = elements <= MAX_BY_DEFAULT and parties <= MOST_SHOWN and unsupported is None
        return "checked" if by_default else "unchecked"
    if total == "unchecked":
        return total
    if unsupported is not None:
        raise ConfigError.at("total", f"'checked' is not for {unsupported}", ConfigCheck.CONFLICT)
    if elements > MAX_CHECKED:
        reason = (
            f"'checked' is for at most {MAX_CHECKED:,} elements, this session has {elements:,}: write "
            "'unchecked'"
        )
        raise ConfigError.at("total", reason, ConfigCheck.TOO_LARGE)
    if MOST_SHOWN < parties < least:
        reason = (
            f"'checked' needs {least:,} parties with this 'corrupt' and 'dropout', for c + 1 honest ones to "
            f"be left in any case, this session has {parties:,}: write 'unchecked'"
        )
        raise ConfigError.at("total", reason, ConfigCheck.INFEASIBLE)
    return total


def plan_graph(
    good: Mapping[str, Any], parties: int, complete: bool, loss: float | None = None
) -> tuple[SecAggPlan | None, list[ConfigIssue]]:
    """Return the plan of neighbours and thresholds for valid settings, or None; and all faults.

    `dropout` and `corrupt` have their defaults where they are None: `loss` as of `check_sum`.
    """
    defaults = {
        "dropout": default_dropout(parties) if loss is None else loss,
        "corrupt": default_corrupt(parties),
    }
    # A value that is no number is replaced by the one that affects a plan least: only certain faults are
    # named.
    given = {key: good.get(key, 0.0) for key in defaults}
    unwritten = [key for key, value in given.items() if value is None]
    asked = {key: float(defaults[key] if key in unwritten else given[key]) for key in defaults}

    def planned(dropout: float, corrupt: float) -> SecAggPlan:
        return plan_secagg(
            parties,
            dropout=dropout,
            corrupt=corrupt,
            security=float(good.get("security", 40)),
            least_degree=parties - 1 if complete else 2,
        )

    try:
        return planned(**asked), []
    except ConfigError as error:
        # The number of parties is not a parameter: it is the roster's.
        issues = [
            ConfigIssue("roster" if where == "parties" else where, reason, check)
            for where, reason, check in error.issues
        ]
    for key in unwritten:
        if _succeeds(functools.partial(planned, **(asked | {key: 0.0}))):
            count = part_of(parties, asked[key])
            issues.append(
                ConfigIssue(key, _DEFAULT[key].format(asked[key], count, parties), ConfigCheck.INFEASIBLE)
            )
    return None, issues


def _succeeds(planned: Callable[[], SecAggPlan]) -> bool:
    """Tell whether a planning function returns without an error."""
    try:
        planned()
    except ConfigError:
        return False
    return True


def _encoding_issues(good: Mapping[str, Any], parties: int) -> list[ConfigIssue]:
    """Return the faults of the valid settings for the fixed-point encoding."""
    issues = Issues()
    kind = good.get("kind")
    if kind == "integer" and good.get("precision") is not None:
        issues.add_issue("precision", "is not for kind 'integer'", ConfigCheck.CONFLICT)
    if kind == "real" and "precision" in good and good["precision"] is None:
        issues.add_issue("precision", "is needed for kind 'real'", ConfigCheck.MISSING)
    return issues + encoding_issues(
        integer=kind == "integer",
        length=good.get("length"),
        lower=good.get("lower"),
        upper=good.get("upper"),
        precision=None if kind == "integer" else good.get("precision"),
        parties=parties,
        max_weight=good.get("max_weight"),
        l2_bound=good.get("l2_bound"),
    )
