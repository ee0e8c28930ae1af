"""GOPA for statistics of records: epsilon protects a row, and pairwise noise hides each party's totals.

docs/proofs/records.md has the standard error with which a total stays hidden.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import replace

from smpc_dp.errors import ConfigCheck, ConfigIssue, LocalError
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.protocols import records
from smpc_dp.protocols.gopa.params import MAX_VARIANCE, GopaParameters
from smpc_dp.protocols.gopa.params import REFUSED as REFUSED_GOPA
from smpc_dp.protocols.gopa.plan import plan_session
from smpc_dp.protocols.records import NoisyRecordParameters, RecordSettings, protected
from smpc_dp.protocols.result import Privacy
from smpc_dp.protocols.secagg.noisy import MOST_COMPLETE, check_room

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.plan import Plan
    from smpc_dp.records.schema import Schema

REFUSED = (
    REFUSED_GOPA
    | records.REFUSED
    | records.NO_TABLES
    | {
        "topology": "must be left out: without a relay the noise shared with a lost party stays in the sum, "
        "and what hides totals would hide the answers",
        "verifiable": "must be left out: proofs are about vectors of parties, not about records",
        "complete_graph": "is of protocol 'secagg': here the graph is always complete",
    }
)


class GopaRecordSettings(RecordSettings, frozen=True, kw_only=True):
    """The `[parameters]` of statistics of records by GOPA."""

    hidden_totals: Annotated[
        float,
        Meta(
            ge=0,
            le=1000,
            description="the least standard error with which a party's total is seen beyond the sum, over "
            "`max_rows` times the range of a row, from all numbers of a request together; with 0 pairwise "
            "noise hides one row alone, and party totals are visible",
        ),
    ] = 1.0
    on_dropout: Annotated[
        Literal["roll-back"], Meta(description="the noise shared with a lost party is taken out")
    ] = "roll-back"


class GopaRecordParameters(GopaParameters, NoisyRecordParameters, frozen=True):
    """Checked parameters of a request for statistics of records, by GOPA.

    `hidden_totals`: as in the settings, as it was asked for.
    """

    hides_records: ClassVar[bool] = True
    request: Plan
    public_rows: tuple[int, ...] | None
    hidden_totals: float

    def planned(self) -> str:
        """Return both variances, and the scale of each block."""
        return f"{super().planned()} {self.scales_digest()}"

    def event(self) -> Event:
        """Return what one request is to a ledger: a Gaussian mechanism of one unit, in the worst case."""
        return replace(super().event(), relation=self.schema.relation, unit=self.schema.unit)

    @property
    def total_error(self) -> float:
        """The least standard error of a party's total beyond the sum, over the range of that total."""
        honest, session = self.session.honest, self.session
        information = (1 - 1 / honest) / (session.own_variance + honest * session.pair_variance)
        return 1 / math.sqrt(information) / reach(self.request)

    @property
    def totals(self) -> str:
        """What is seen of a party's total, in words."""
        seen = (
            "to whoever knows the totals of all other honest parties, besides what the answers say, with a "
            f"standard error of at least {self.total_error:.3g} times max_rows times the range of a row in "
            "each request"
        )
        return (
            f"a party's totals are hidden: seen {seen}"
            if self.hidden_totals
            else (f"party totals are visible: {seen}")
        )

    def warnings(self, parties: int) -> list[str]:
        """Return what must not be missed before a request: large noise, and totals that are visible."""
        return [*super().warnings(parties), *(() if self.hidden_totals else (self.totals,))]

    def privacy(self, survivors: int) -> Privacy:
        """Return the claim: (epsilon, delta) of one unit in all that is seen, and what is seen of totals."""
        from smpc_dp.records.answers import not_protected

        vectors, schema, stated = super().privacy(survivors), self.schema, self.request.guarantee()
        if vectors.guarantee is None:
            raise LocalError("GOPA has a guarantee")
        guarantee = replace(
            vectors.guarantee,
            relation=schema.relation,
            protects=schema.unit,
            sensitivity=stated.sensitivity,
            warnings=stated.warnings,
        )
        return Privacy.private(
            guarantee,
            claim=(
                f"{protected(schema)} ({guarantee.epsilon:g}, {guarantee.delta:g})-differentially private "
                f"({schema.relation}) in all that the relay, up to {self.plan.max_corrupt} colluding "
                "parties, or any single curious party see; of a party, either the self-mask or the pairwise "
                f"noise is opened, never both; {self.totals}"
            ),
            assumptions=vectors.assumptions[1:],
            not_protected=(
                *not_protected(self.schema),
                self.totals,
                "the relay may report another sum than that of what was published",
                "who takes part, when, and the length of the vectors are visible",
                "samplers do not run in constant time",
            ),
        )


def check_records(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaRecordParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table (`GopaRecordSettings`); return every fault found."""
    given = {key: value for key, value in parameters.items() if (key, value) not in DEFAULTS}
    checked, issues = records.check_record_settings(
        GopaRecordSettings,
        given,
        parties,
        _planned,
        unknown="unknown parameter of gopa with records",
        refused=REFUSED,
    )
    if parties > MOST_COMPLETE:
        reason = f"statistics of records by GOPA have at most {MOST_COMPLETE} parties, has {parties}"
        return None, [*issues, ConfigIssue("roster", reason, ConfigCheck.TOO_LARGE)]
    return checked, issues


# What a sum by GOPA may state, and statistics of records always are.
DEFAULTS = (("topology", "relay"), ("verifiable", False))


def _planned(plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]) -> GopaRecordParameters:
    """Return the parameters, on the finest grid on which pairwise noise has fewer than 2^44 steps."""
    bits: int | None = None
    while True:
        parameters = _on_grid(records.plan_records(plan, schema, good, bits), plan, good)
        excess = parameters.session.pair_variance / MAX_VARIANCE
        if excess < 1:
            break
        deviation = parameters.request.deviation(plan.parties)
        bits = math.floor(math.log2(deviation)) - math.ceil(math.log2(excess) / 2) - 1
    check_room(parameters.encoding, parameters.greatest_deviation)
    records.check_planned_errors(parameters.request, good, plan.parties)
    return parameters


def reach(request: Plan) -> float:
    """Return how far apart two vectors of a party can be, in L2: all its numbers together tell its totals.

    In a block of several cells all rows may be in one, or in another.
    """
    low, high = request.bounds
    widths = high.astype(float) - low.astype(float)
    square = 0.0
    for one in request.blocks:
        offset, cells = request.offsets[one.block][0], one.block.cells
        square += min(cells, 2) * float(widths[offset : offset + cells].max()) ** 2
    return math.sqrt(square)


def _on_grid(request: Plan, plan: SecAggPlan, good: Mapping[str, Any]) -> GopaRecordParameters:
    """Return the parameters of one plan of the vector, with both noises of GOPA in place of its shares."""
    encoding = records.record_encoding(request, plan.parties)
    _, session = plan_session(
        plan,
        diameter=request.sensitivity.l2,
        length=encoding.length,
        epsilon=good["epsilon"],
        delta=good["delta"],
        roll_back=True,
        hiding=good["hidden_totals"] * reach(request),
    )
    return GopaRecordParameters(
        encoding=encoding,
        plan=plan,
        session=session,
        on_dropout="roll-back",
        request=request.with_variance(Fraction(session.own_variance)),
        public_rows=records.public_rows(good),
        hidden_totals=good["hidden_totals"],
    )
