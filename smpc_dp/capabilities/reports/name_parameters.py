"""The `[parameters]` of a session with protocol "reports" in which parties release undeclared categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from smpc_dp.capabilities.reports.local_names import REPORT_BYTES, LocalNames
from smpc_dp.capabilities.reports.reports import MAX_BYTES, ReportRequest
from smpc_dp.engine.phases.cost import Cost
from smpc_dp.engine.phases.parameters import RequestParameters
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.identity.roster import Roster
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.records.schema import read_schema
from smpc_dp.records.table import Source
from smpc_dp.settings import read

# More rows than one over so many times delta may bring a name of one row by chance.
RARE = 1000


class NameSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `[parameters]` table of a session file whose reports release names of categories."""

    records: Annotated[
        dict[str, Any],
        Meta(description="the columns, and whom epsilon protects, as of the statistics that follow"),
    ]
    undeclared: Annotated[
        list[str], Meta(min_length=1, description="the columns of which undeclared categories are released")
    ]
    epsilon: Annotated[
        Annotated[float, Meta(gt=0, le=100)], Meta(description="of each unit, for all columns together")
    ]
    delta: Annotated[
        Annotated[float, Meta(gt=0, lt=1)],
        Meta(description="as epsilon; about the chance that a name of one row is released"),
    ]
    label: Annotated[
        str,
        Meta(max_length=500, description="printable ASCII; another one is another request, charged anew"),
    ] = ""


@dataclass(frozen=True)
class NameParameters(RequestParameters):
    """Checked parameters of a session whose reports release names of undeclared categories."""

    # As of `ReportParameters`.
    reads_table: ClassVar[bool] = True
    plan: LocalNames
    parties: int
    label: str
    labels: None = None

    @property
    def tolerated(self) -> tuple[int, int, int]:
        """Numbers of all parties, of those that may be lost, and of those that may collude."""
        return self.parties, self.parties - 1, self.parties - 1

    def largest_message(self, _servers: int) -> int:
        """Return an upper bound in bytes on the message that carries a report."""
        return 2 * MAX_BYTES

    def request(self, roster: Roster) -> ReportRequest:
        """Return the analyst's request for names, for the parties of a roster."""
        return ReportRequest(self.plan, roster, self.label)

    def event(self) -> Event:
        """Return the privacy event that a ledger charges for one report."""
        return self.plan.event

    def clipped(self, record: Source | None, party: str) -> tuple[dict[str, Counter[str]], int]:
        """Return (counts of undeclared values, 0: none clipped); ConfigError if the record is None."""
        if record is None:
            raise ConfigError.at("record", f"{party}: no report is stored", ConfigCheck.MISSING)
        return self.plan.counts(record, party), 0

    def cost(self) -> Cost:
        """Return the predicted size of a report, and how likely names are released."""
        plan, selection = self.plan, self.plan.selection
        notes = (
            f"a name of {selection.even} rows in a party is released with a chance of a half at least, "
            f"one of {selection.certain} always, one of a single row with {selection.single:.2g}",
        )
        rows = plan.schema.max_rows
        many = f"delta times max_rows is {selection.delta * rows:.2g}: a smaller delta keeps names of one row"
        return Cost(
            unit=plan.event.unit,
            relation=plan.event.relation,
            epsilon=selection.epsilon,
            delta=selection.delta,
            counted=None,
            factor=None,
            answers=(),
            sent=REPORT_BYTES,
            received=350,
            steps=1,
            warnings=(many,) if selection.delta * rows * RARE > 1 else (),
            notes=notes,
        )


def check_names(
    parameters: Mapping[str, object], parties: int
) -> tuple[NameParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table (`NameSettings`); return parameters, or None and every fault found."""
    good, issues = read(NameSettings, parameters, unknown="unknown parameter of reports of names")
    label, schema = good.get("label", ""), None
    if not (label.isascii() and (label.isprintable() or not label)):
        issues.append(ConfigIssue("label", "must be printable ASCII", ConfigCheck.FORMAT))
    if "records" in good:
        try:
            schema = read_schema(good["records"])
        except ConfigError as error:
            issues += error.issues
    if issues or schema is None:
        return None, issues
    try:
        plan = LocalNames.plan(schema, good["undeclared"], good["epsilon"], good["delta"])
    except ConfigError as error:
        return None, list(error.issues)
    return NameParameters(plan, parties, label), []
