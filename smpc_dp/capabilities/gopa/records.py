"""Parameters of GOPA for statistics of records, through an aggregator or without one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from smpc_dp.capabilities.gopa.direct_params import DirectParameters, direct_plan, size_issues
from smpc_dp.capabilities.gopa.params import MAX_VARIANCE, GopaParameters
from smpc_dp.capabilities.gopa.params import REFUSED as REFUSED_GOPA
from smpc_dp.capabilities.gopa.plan import plan_session
from smpc_dp.capabilities.gopa.record_claims import GopaRecords, of_request, reach
from smpc_dp.engine.result import Claim
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.records import parameters as records
from smpc_dp.records.parameters import RecordSettings
from smpc_dp.secagg.noisy import MOST_COMPLETE, check_room

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.plan import Plan
    from smpc_dp.records.schema import Schema

REFUSED = (
    REFUSED_GOPA
    | records.REFUSED
    | records.NO_TABLES
    | {
        "complete_graph": "is of protocol 'secagg': here the graph is always complete",
        "total": "is of protocol 'secagg': statistics of records by GOPA have no totals that parties check",
    }
)


class GopaRecordSettings(RecordSettings, frozen=True, kw_only=True):
    """The `[parameters]` of a session file for statistics of records by GOPA."""

    hidden_totals: Annotated[
        float,
        Meta(
            ge=0,
            le=1000,
            description="the least standard error with which a party's total is seen beyond the sum, over "
            "`max_rows` times the range of a row, from all numbers of a request; with 0 party totals are "
            "visible",
        ),
    ] = 1.0
    on_dropout: Annotated[
        Literal["roll-back", "keep"] | None,
        Meta(
            description="the noise shared with a lost party is taken out, or stays in",
            extra={"default": '`"keep"` where verifiable or direct, which have no other, else `"roll-back"`'},
        ),
    ] = None
    topology: Annotated[
        Literal["relay", "direct"],
        Meta(description="through an aggregator, or over channels between all parties"),
    ] = "relay"
    verifiable: Annotated[
        bool,
        Meta(description="parties commit and prove, on a logged board (experimental)"),
    ] = False


class GopaRecordParameters(GopaParameters, GopaRecords, frozen=True):
    """Checked parameters of a request for statistics of records, by GOPA through an aggregator."""

    request: Plan
    public_rows: tuple[int, ...] | None
    hidden_totals: float

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "gopa-records"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for reports: the cost of one lost party, and whether parties check the total."""
        return (*self.loss_notes, *super().notes)

    def planned(self) -> str:
        """Return, as text, both noise variances and a digest of the blocks' scales."""
        return f"{super().planned()} {self.scales_digest()}"

    def event(self) -> Event:
        """Return the privacy event of one request for a ledger: a Gaussian mechanism, in the worst case."""
        return self.of_unit(super().event())

    def claim(self, survivors: int) -> Claim:
        """Return the claim: (epsilon, delta) of a row or person, and what is seen of parties' totals."""
        return self.about_records(super().claim(survivors))


class DirectRecordParameters(GopaRecordParameters, DirectParameters, frozen=True):
    """Checked parameters of a request for statistics of records, by GOPA without an aggregator."""

    seen_by: ClassVar[str] = (
        "up to {corrupt} colluding parties, the coordinator among them or not, or any single curious party "
        "see: every party's noisy sums and the total"
    )

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "gopa-direct-records"


def check_records(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of records by GOPA; return them with planned noise, or None with every fault."""
    checked, issues = records.check_record_settings(
        GopaRecordSettings,
        parameters,
        parties,
        _planned,
        unknown="unknown parameter of gopa with records",
        refused=REFUSED,
    )
    if parties > MOST_COMPLETE:
        reason = f"statistics of records by GOPA have at most {MOST_COMPLETE} parties, has {parties}"
        return None, [*issues, ConfigIssue("roster", reason, ConfigCheck.TOO_LARGE)]
    return checked, [issue._replace(where=KEYS.get(issue.where, issue.where)) for issue in issues]


# Keys of sums that a fault of the plan may name, and those that state the same of records.
KEYS = {"precision": "max_rows", "length": "ask"}


def _planned(plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]) -> GopaParameters:
    """Plan a request for records; return parameters for the form of GOPA that the settings ask for."""
    _check_forms(good)
    if not good["verifiable"]:
        return _plan_on_finest(plan, schema, good)
    # Not at the top: other sessions prove nothing.
    from smpc_dp.capabilities.gopa.verifiable.records import plan_verifiable_records

    return plan_verifiable_records(plan, schema, good)


def _check_forms(good: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings of statistics of records that exclude each other."""
    is_direct, keeps = good["topology"] == "direct", good["verifiable"] or good["topology"] == "direct"
    if good["verifiable"] and is_direct:
        reason = "must be 'relay' where verifiable = true, since the aggregator keeps the log; is 'direct'"
        raise ConfigError.at("topology", reason, ConfigCheck.CONFLICT)
    expected = "keep" if keeps else "roll-back"
    if good["on_dropout"] not in (None, expected):
        where = "where verifiable, or without an aggregator" if keeps else "through an aggregator"
        reason = f"must be '{expected}' {where}, is '{good['on_dropout']}'"
        raise ConfigError.at("on_dropout", reason, ConfigCheck.CONFLICT)


def _plan_on_finest(plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]) -> GopaRecordParameters:
    """Return parameters on the finest grid with pairwise noise below 2^44 steps; or raise ConfigError."""
    # Not at the top: every session of GOPA imports this module.
    from smpc_dp.records.plan import LEAST_BITS, no_room

    bits: float | None = None
    while True:
        parameters = _on_grid(records.plan_records(plan, schema, good, bits), plan, good)
        excess = parameters.session.pair_variance / MAX_VARIANCE
        if excess < 1:
            break
        deviation = parameters.request.deviation(plan.parties)
        bits = math.floor(math.log2(deviation)) - math.ceil(math.log2(excess) / 2) - 1
        if bits < LEAST_BITS:
            raise no_room(plan.parties, schema)
    check_room(parameters.encoding, parameters.greatest_deviation)
    if isinstance(parameters, DirectRecordParameters) and (issues := size_issues(parameters.encoding)):
        raise ConfigError(issues)
    records.check_planned_errors(parameters.request, good, plan.parties)
    return parameters


def _on_grid(request: Plan, plan: SecAggPlan, good: Mapping[str, Any]) -> GopaRecordParameters:
    """Return GOPA's parameters for a request on its grid, with own and pairwise noise planned."""
    is_direct = good["topology"] == "direct"
    encoding = records.record_encoding(request, plan.parties)
    plan, session = plan_session(
        plan,
        diameter=request.sensitivity.l2,
        length=encoding.length,
        epsilon=good["epsilon"],
        delta=good["delta"],
        roll_back=not is_direct,
        hiding=good["hidden_totals"] * reach(request),
    )
    if is_direct:
        plan, session = direct_plan(plan, session)
    return (DirectRecordParameters if is_direct else GopaRecordParameters)(
        encoding=encoding,
        plan=plan,
        session=session,
        on_dropout="keep" if is_direct else "roll-back",
        **of_request(request, session, good),
    )
