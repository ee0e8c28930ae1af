"""Exact tables of counts on shares, without differential privacy: cells of few records are not opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from smpc_dp.capabilities.servers.secret_sharing.claims import EXACT_ON_SHARES, with_servers
from smpc_dp.capabilities.servers.secret_sharing.params import (
    MPYC,
    Dropout,
    Program,
    Seconds,
    SharedParameters,
    party_issues,
)
from smpc_dp.encoding import Encoding
from smpc_dp.engine.result import Claim, Privacy
from smpc_dp.errors import ConfigIssue
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.secagg_plan import part_of
from smpc_dp.records import parameters as records
from smpc_dp.records.parameters import AskSettings, RecordParameters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.exact import ExactTables
    from smpc_dp.records.result import Answers
    from smpc_dp.records.schema import Schema

_EXACT = "is not for exact tables, which have no noise"
REFUSED = records.REFUSED | dict.fromkeys(
    ("epsilon", "delta", "mechanism", "split", "answer_weights", "max_standard_error", "corrupt", "security"),
    _EXACT,
)
# Cells of fewer records than this, of three parties, may be of one record each.
LEAST_COUNT = 3


class TableSettings(AskSettings, frozen=True, kw_only=True):
    """The `[parameters]` table of a session file for exact tables that hide cells with small counts."""

    smallest_count: Annotated[
        int,
        Meta(
            ge=LEAST_COUNT,
            le=1 << 40,
            description="a cell of fewer records, or of records of fewer than three parties, is not opened",
        ),
    ]
    dataset: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=100,
            description="a name of the rows: a party gives each data set to exact tables once",
        ),
    ]
    dropout: Dropout = None
    seconds: Seconds = 600.0


class TableParameters(SharedParameters, RecordParameters, frozen=True):
    """Checked parameters of exact tables that servers open, but for cells with small counts."""

    program: ClassVar[Program] = "tables"
    encoding: Encoding
    request: ExactTables
    public_rows: tuple[int, ...] | None
    dataset: str

    @property
    def opened_once(self) -> str:
        """Name of the data set whose tables may be opened by one request only."""
        return self.dataset

    def warnings(self, parties: int) -> list[str]:  # noqa: ARG002
        """Return the warning that exact tables have no differential privacy."""
        return [f"exact tables have no differential privacy: a disclosure rule shows {self.request.rule}"]

    def event(self) -> Event:
        """Return the event that a ledger records for exact tables, which no epsilon covers."""
        # Not at the top: a session without a ledger needs no accountant.
        from smpc_dp.privacy.accountant.events import exact_release

        return exact_release("exact tables", self.schema.relation)

    def answers(
        self,
        total: NDArray[np.int64],
        numbers: Sequence[int],  # noqa: ARG002
        *,
        level: float,
        simultaneous: bool,  # noqa: ARG002
        hide: float | None = None,  # noqa: ARG002
    ) -> Answers:
        """Return the tables that follow from the opened cells of the finest table."""
        return self.request.answers(total, level)

    def privacy(self, servers: int) -> Privacy:
        """Return the claim of exact tables: no differential privacy, but hidden small cells."""
        clauses = NamedSentences.of(
            shared=f"counts of rows are shared among {servers} servers",
            learned=f"any {(servers - 1) // 2} of them together learn nothing but which cells are shown, and "
            f"these: {self.request.rule}. This is a disclosure rule, and not differential privacy",
        )
        return with_servers(
            Claim(clauses=clauses, premises=EXACT_ON_SHARES, limits=self.request.not_protected)
        )


def check_tables(
    parameters: Mapping[str, object], parties: int
) -> tuple[TableParameters | None, list[ConfigIssue]]:
    """Check a table of `TableSettings`; return (parameters, []), or (None, every fault found)."""
    from smpc_dp.records.exact import LEAST_PARTIES

    schema, good, issues = records.read_records(
        TableSettings,
        parameters,
        parties,
        unknown=f"unknown parameter of {MPYC} with smallest_count",
        refused=REFUSED,
    )
    issues += party_issues(parties, LEAST_PARTIES)
    if issues or schema is None:
        return None, issues
    columns = schema
    return records.planned_or_issues(lambda: _planned(columns, good, parties))


def _planned(schema: Schema, good: Mapping[str, Any], parties: int) -> TableParameters:
    """Return checked parameters for exact tables in which cells below the smallest count stay hidden."""
    from smpc_dp.records.exact import LEAST_PARTIES, plan_tables

    request = plan_tables(schema, good["ask"], good["smallest_count"])
    dropout = 0.1 if good["dropout"] is None else good["dropout"]
    return TableParameters(
        parties=parties,
        fewest=max(LEAST_PARTIES, parties - part_of(parties, dropout)),
        encoding=records.record_encoding(request, parties),
        epsilon=None,
        delta=0.0,
        mechanism="laplace",
        seconds=good["seconds"],
        request=request,
        public_rows=None,
        dataset=good["dataset"],
    )
