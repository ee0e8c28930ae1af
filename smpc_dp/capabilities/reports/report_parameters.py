"""The `[parameters]` of a session with protocol "reports": what each party reports under local DP."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from smpc_dp.capabilities.pairs.kernels.fields import Field, Floats, as_array
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import find_kernel, requires_fields
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.capabilities.reports.local_auc import LocalAuc
from smpc_dp.capabilities.reports.name_parameters import NameParameters, check_names
from smpc_dp.capabilities.reports.reports import MAX_BYTES, ReportRequest
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.phases.cost import LARGE, Cost, PlannedAnswer
from smpc_dp.engine.phases.parameters import RequestParameters
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.identity.roster import Roster
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.local_auc import exact_variance
from smpc_dp.privacy.local_pairwise import variance_bound
from smpc_dp.settings import read

# Leaves of the tree: the error is planned over all of them.
MAX_LEVELS = 20
EVEN = "scores that are spread evenly, whatever their label"

# Of a signed report in its envelope, or of its confirmation, about.
REPORT_BYTES = 350


class FieldTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table of a session file for one value of a party's record: bounds, step, and whether exact."""

    lower: float
    upper: float
    step: float = 1.0
    exact: bool = False


class ReportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `[parameters]` table of a session file for locally private reports."""

    kernel: Annotated[str, Meta(description='a name of a kernel on pairs of records: "gini", "auc", …')]
    epsilon: Annotated[
        Annotated[float, Meta(gt=0, le=100)], Meta(description="of each party's report; there is no `delta`")
    ]
    fields: Annotated[
        list[FieldTable],
        Meta(
            description="of each value of a record `lower`, `upper`, and `step` (1) of its grid; values "
            "outside are clipped, with `exact = true` values off the grid refused"
        ),
    ] = []
    label: Annotated[
        str,
        Meta(
            max_length=500,
            description="printable ASCII; another one is another request, charged anew",
        ),
    ] = ""
    bins: Annotated[
        list[Annotated[int, Meta(ge=1)]] | None,
        Meta(
            description="cells of each value, to which it is rounded",
            extra={"default": "chosen for the least error"},
        ),
    ] = None
    rounding: Annotated[
        Literal["simple", "randomised"], Meta(description="of a value to its cell, or to one of two")
    ] = "simple"
    levels: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_LEVELS)] | None,
        Meta(
            description='of kernel "auc", in the place of `bins`: levels of the tree of the hierarchical '
            "private AUC"
        ),
    ] = None
    labels: Annotated[
        list[Annotated[int, Meta(ge=0, le=1)]] | None,
        Meta(description='of kernel "auc": public, 0 or 1 for each party in roster order'),
    ] = None
    max_standard_error: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="over the range: more is refused"),
    ] = None


@dataclass(frozen=True)
class ReportParameters(RequestParameters):
    """Checked parameters of a session of local reports: the plan of reports, and public labels."""

    # Whether a record is the file of a table.
    reads_table: ClassVar[bool] = False
    plan: LocalPairwise | LocalAuc
    parties: int
    label: str
    labels: tuple[int, ...] | None

    @property
    def tolerated(self) -> tuple[int, int, int]:
        """Numbers of all parties, of those that may be lost, and of those that may collude."""
        least = 3
        if self.labels is not None:
            each = 1 if isinstance(self.plan, LocalAuc) else 2
            smaller = min(self.labels.count(0), self.labels.count(1))
            least = max(least, self.parties - (smaller - each))
        return self.parties, self.parties - least, self.parties - 1

    def largest_message(self, _servers: int) -> int:
        """Return an upper bound in bytes on the message that carries a report."""
        return 2 * MAX_BYTES

    def request(self, roster: Roster) -> ReportRequest:
        """Return the analyst's request for reports, for the parties of a roster."""
        return ReportRequest(self.plan, roster, self.label)

    def event(self) -> Event:
        """Return the privacy event that a ledger charges for one report."""
        return self.plan.event

    @property
    def kernel(self) -> str:
        """The name of the kernel whose mean over pairs is estimated."""
        return "auc" if isinstance(self.plan, LocalAuc) else self.plan.kernel.name

    @property
    def width(self) -> float:
        """The difference between the greatest and the least value of the kernel."""
        return 1.0 if isinstance(self.plan, LocalAuc) else self.plan.kernel.width

    def error(self) -> tuple[float, str]:
        """Return (planned standard error if all parties report, text on what it assumes).

        For a kernel without public labels a proven bound, whatever the records; the sampling of records is
        in it.
        """
        plan = self.plan
        if self.labels is None and isinstance(plan, LocalPairwise):
            bound = variance_bound(self.parties, plan.quantiser.categories, plan.epsilon)
            return plan.kernel.width * math.sqrt(bound), "whatever the records"
        up, down = (float((self.labels or ()).count(label)) for label in (1, 0))
        if isinstance(plan, LocalAuc):
            even = np.full(1 << plan.tree.levels, 1 / (1 << plan.tree.levels))
            variance = exact_variance(up * even, down * even, plan.tree.epsilon, split="users", ties=0.5)
            return math.sqrt(variance), EVEN
        categories = plan.quantiser.categories
        even = np.full(categories, 1 / categories)
        return plan.exact_response_error(up * even, down * even), EVEN

    def clipped(self, record: ArrayLike | None, party: str) -> tuple[Floats, int]:
        """Return (record clipped to its fields' bounds, number of values that were clipped).

        Raises:
            PrivacyError: a value is missing or, where that is asked for, off its grid: the party must not
                take part. ConfigError: not a record.
        """
        if record is None:
            raise ConfigError.at("record", f"{party}: no report is stored", ConfigCheck.MISSING)
        plan = self.plan
        fields = (plan.score,) if isinstance(plan, LocalAuc) else plan.kernel.fields
        values = np.atleast_1d(as_array("record", record))
        if values.shape != (len(fields),) or values.dtype.kind not in "iufb":
            reason = f"{party}: {values.dtype} {values.shape}, not the numbers of one record, {len(fields)}"
            raise ConfigError.at("record", reason, ConfigCheck.SHAPE)
        within = np.clip(values, [one.low for one in fields], [one.high for one in fields])
        try:
            for value, one in zip(within, fields, strict=True):
                one.codes(value)
        except PrivacyError as error:
            raise PrivacyError(f"{party}: {error}", code=error.code) from None
        return within, int((within != values).sum())


def cost_of_report(parameters: AnyReport, _servers: int = 0) -> Cost:
    """Return the predicted cost of local reports: privacy budget, sizes, and for values the planned error."""
    if isinstance(parameters, NameParameters):
        return parameters.cost()
    error, assumed = parameters.error()
    relative = error / parameters.width
    answer = PlannedAnswer(
        text=parameters.kernel,
        standard_error=error,
        range=parameters.width,
        relative=relative,
        assumed=assumed,
    )
    event = parameters.event()
    helps = (
        f"the standard error of {answer.text} is {100 * relative:.3g} % of its range; more parties, a larger "
        "epsilon or fewer bins help, and garbled or shared statistics of pairs need less noise"
    )
    return Cost(
        unit=event.unit,
        relation=event.relation,
        epsilon=parameters.plan.privacy.epsilon,
        delta=0.0,
        counted=None,
        factor=None,
        answers=(answer,),
        sent=REPORT_BYTES,
        received=REPORT_BYTES,
        steps=1,
        warnings=() if relative <= LARGE else (helps,),
    )


AnyReport = ReportParameters | NameParameters


def check_reports(
    parameters: Mapping[str, object], parties: int
) -> tuple[AnyReport | None, list[ConfigIssue]]:
    """Check a `[parameters]` table of reports; return (parameters, []), or (None, every fault found)."""
    if "undeclared" in parameters:
        return check_names(parameters, parties)
    good, issues = read(ReportSettings, parameters, unknown="unknown parameter of reports")
    label, labels = good.get("label", ""), good.get("labels")
    if not (label.isascii() and (label.isprintable() or not label)):
        issues.append(ConfigIssue("label", "must be printable ASCII", ConfigCheck.FORMAT))
    if labels is not None and len(labels) != parties:
        reason = f"has {len(labels)} entries for {parties} parties"
        issues.append(ConfigIssue("labels", reason, ConfigCheck.SHAPE))
    if issues:
        return None, issues
    settings = ReportSettings(**good)
    try:
        plan, public = _plan(settings, parties)
        checked = ReportParameters(plan, parties, label, None if labels is None else tuple(labels))
    except ConfigError as error:
        return None, list(error.issues)
    issues = _label_issues(checked, public) or _error_issues(checked, settings.max_standard_error)
    return (None if issues else checked), issues


def _error_issues(checked: ReportParameters, most: float | None) -> list[ConfigIssue]:
    """Return a fault if the planned standard error is above `most` of the range, else nothing."""
    planned, assumed = checked.error()
    relative = planned / checked.width
    if most is None or relative <= most:
        return []
    reason = (
        f"the standard error of {checked.kernel} would be {relative:.3g} of its range ({assumed}), above "
        f"{most:g}"
    )
    return [ConfigIssue("max_standard_error", reason, ConfigCheck.INFEASIBLE)]


def _plan(settings: ReportSettings, parties: int) -> tuple[LocalPairwise | LocalAuc, bool]:
    """Return (plan of reports of these settings, whether labels are public); ConfigError if none fits."""
    fields = [
        Field(float(one.lower), float(one.upper), float(one.step), f"fields[{index}]", one.exact)
        for index, one in enumerate(settings.fields)
    ]
    if not fields and requires_fields(settings.kernel):
        reason = f"'{settings.kernel}' needs the bounds of its values"
        raise ConfigError.at("fields", reason, ConfigCheck.MISSING)
    kernel: Kernel = find_kernel(settings.kernel, *fields)
    public = kernel.labels == "public"
    if settings.levels is None:
        plan = LocalPairwise.plan(
            kernel, settings.epsilon, parties=parties, bins=settings.bins, rounding=settings.rounding
        )
        return plan, public
    if kernel.name != "auc" or settings.bins is not None or settings.rounding != "simple":
        reason = 'is for kernel "auc", without bins and rounding'
        raise ConfigError.at("levels", reason, ConfigCheck.CONFLICT)
    if not fields:
        raise ConfigError.at("fields", "the tree needs the bounds of a score", ConfigCheck.MISSING)
    # Public, and independent of all records: of the label alone.
    coins = digest(Label.LOCAL_COINS, settings.label.encode("utf-8"))
    return LocalAuc.plan(fields[0], settings.epsilon, levels=settings.levels, coins=coins), public


def _label_issues(checked: ReportParameters, public: bool) -> list[ConfigIssue]:
    """Return the faults of public labels: missing, unexpected, or too few 0s or 1s."""
    labels = checked.labels
    if (labels is not None) != public:
        reason = "are needed, 0 or 1 for each party" if public else f"'{checked.kernel}' has no public labels"
        return [ConfigIssue("labels", reason, ConfigCheck.MISSING if public else ConfigCheck.UNSUPPORTED)]
    least = 1 if isinstance(checked.plan, LocalAuc) else 2
    if labels is not None and min(labels.count(0), labels.count(1)) < least:
        return [ConfigIssue("labels", f"at least {least} of each are needed", ConfigCheck.RANGE)]
    return []
