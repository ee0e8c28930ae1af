"""The secure sum for statistics of records: noise for one record or person, shared by the parties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.privacy.secagg_plan import SecAggPlan, default_dropout
from smpc_dp.protocols.names import RECORDS
from smpc_dp.protocols.phases.parameters import MAX_PARTIES
from smpc_dp.protocols.result import Privacy
from smpc_dp.protocols.secagg.claim import privacy_of
from smpc_dp.protocols.secagg.noisy import (
    MOST_COMPLETE,
    NoisySumParameters,
    check_room,
    counted_shares,
    noise_counts,
)
from smpc_dp.protocols.secagg.noisy import REFUSED as REFUSED_NOISY
from smpc_dp.protocols.secagg.params import Corrupt, Security, Share, plan_graph
from smpc_dp.settings import read

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.plan import Plan
    from smpc_dp.records.schema import Schema

_STATED = "is not for statistics of records: the columns and what is asked state it"
REFUSED = REFUSED_NOISY | dict.fromkeys(
    ("length", "lower", "upper", "kind", "precision", "l2_bound", "max_weight"), _STATED
)


class RecordSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `[parameters]` of statistics of records."""

    epsilon: Annotated[float, Meta(gt=0, lt=1000, description="of each unit in one request")]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    records: Annotated[
        dict[str, Any],
        Meta(description="the columns, and whom epsilon protects ([below](#statistics-of-records))"),
    ]
    ask: Annotated[
        str | list[str],
        Meta(description="what is computed ([forms](../guides/record-statistics.md#what-to-ask))"),
    ]
    answer_weights: Annotated[
        dict[str, float] | None,
        Meta(description="by the text of an answer: how much its squared error counts beside that of others"),
    ] = None
    max_standard_error: Annotated[
        float | dict[str, float] | None,
        Meta(
            description="a greater one is refused: a share of the range of every answer, or by its text a "
            "standard error",
            extra={"range": "above 0"},
        ),
    ] = None
    public_rows: Annotated[
        list[Annotated[int, Meta(ge=0)]] | None,
        Meta(description='rows of each party, in the order of the roster, for `rows = "public"`'),
    ] = None
    dropout: Annotated[
        Share | None,
        Meta(
            description="fraction of the parties that may disappear",
            extra={"range": "[0, 0.5)", "default": "0.1, and from five parties up at least one party"},
        ),
    ] = None
    corrupt: Corrupt = 0.1
    security: Security = 40


class RecordSumParameters(NoisySumParameters, frozen=True):
    """Checked parameters of a request for statistics of records.

    Attributes:
        request: the vector of a party, its sensitivity and its noise.
        public_rows: rows of each party in roster order; None where they are private.
    """

    request: Plan
    public_rows: tuple[int, ...] | None

    @property
    def schema(self) -> Schema:
        """The columns, and the unit."""
        return self.request.schema

    @property
    def texts(self) -> tuple[str, ...]:
        """What is asked for."""
        return tuple(one.text for one in self.request.statistics)

    def rows_of(self, numbers: list[int]) -> int | None:
        """Return the public number of rows of the parties at these places; None if it is private."""
        return None if self.public_rows is None else sum(self.public_rows[number] for number in numbers)

    def planned(self) -> str:
        """Return the variance of a share, and the scale of each block: all that is derived with floats."""
        scaled = [
            (one.block, f"{one.scale.numerator:x}/{one.scale.denominator:x}") for one in self.request.blocks
        ]
        bound = self.protocol.encode(), encode_uint(self.version)
        plan = digest(Label.RECORD_PLAN, *bound, msgspec.json.encode(scaled))
        return f"{super().planned()} {plan.hex()}"

    def event(self) -> Event:
        """Return what one request is to a privacy ledger."""
        return self.request.event()

    def privacy(self, survivors: int) -> Privacy:
        """Return the claim: that of the secure sum, and (epsilon, delta) of one unit for what it releases."""
        from smpc_dp.records.answers import not_protected

        exact, schema = privacy_of(self.plan, survivors), self.schema
        guarantee = replace(self.request.guarantee(), assumption=self.assumption)
        return Privacy.private(
            guarantee,
            claim=(
                f"{protected(schema)} ({self.epsilon:g}, {self.delta:g})-differentially private "
                f"({schema.relation}) in what is released, given {self.known_noise}: "
                f"{exact.claim.replace('an exact', 'a noisy', 1)}"
            ),
            assumptions=exact.assumptions,
            not_protected=(
                *not_protected(self.request),
                *exact.not_protected[2:],
                "samplers do not run in constant time",
            ),
        )


def asked(ask: str | Sequence[str]) -> tuple[str, ...]:
    """Return the texts of what is asked for, given one text or many."""
    return tuple(text.strip() for text in (ask.split(";") if isinstance(ask, str) else ask))


def protected(schema: Schema) -> str:
    """Return whom the guarantee protects, as the subject of a claim."""
    if schema.unit == "record":
        return "each record of an honest party is"
    return (
        f"all records of one person, at most {schema.person_factor} in each of at most {schema.party_factor} "
        "parties that are honest, are together"
    )


def check_records(
    parameters: Mapping[str, object], parties: int
) -> tuple[RecordSumParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table (`RecordSettings`); return every fault found.

    Up to `MOST_COMPLETE` parties the graph is complete, so that every honest share that stays counts.
    """
    from smpc_dp.records.schema import read_schema

    unknown = "unknown parameter of secagg with records"
    good, issues = read(RecordSettings, parameters, unknown=unknown, refused=REFUSED)
    schema: Schema | None = None
    if isinstance(good.get(RECORDS), dict):
        try:
            schema = read_schema(good[RECORDS], "records.")
        except ConfigError as error:
            issues += error.issues
    if parties > MAX_PARTIES:
        reason = f"at most {MAX_PARTIES} parties, has {parties}"
        return None, [*issues, ConfigIssue("roster", reason, ConfigCheck.TOO_LARGE)]
    if "dropout" in good and good["dropout"] is None:
        good["dropout"] = default_dropout(parties)
    plan, more = plan_graph(good, parties, parties <= MOST_COMPLETE, "dropout" in parameters)
    issues += more
    if schema is not None:
        issues += _row_issues(schema, good.get("public_rows"), parties)
    if issues or plan is None or schema is None:
        return None, issues
    try:
        return _planned(plan, schema, good), []
    except ConfigError as error:
        return None, list(error.issues) or [ConfigIssue("ask", str(error), ConfigCheck.INFEASIBLE)]
    except PrivacyError as error:
        return None, [ConfigIssue("epsilon", str(error), ConfigCheck.INFEASIBLE)]


def _row_issues(schema: Schema, rows: list[int] | None, parties: int) -> list[ConfigIssue]:
    """Return what is wrong with the public numbers of rows."""
    if schema.rows == "private":
        if rows is None:
            return []
        return [
            ConfigIssue("public_rows", "is for rows = 'public': here they are private", ConfigCheck.CONFLICT)
        ]
    if rows is None:
        return [ConfigIssue("public_rows", "is needed: rows are public", ConfigCheck.MISSING)]
    if len(rows) != parties:
        reason = f"has {len(rows)} numbers, the roster has {parties} parties"
        return [ConfigIssue("public_rows", reason, ConfigCheck.SHAPE)]
    if max(rows) > schema.max_rows:
        reason = f"{max(rows)} is above max_rows = {schema.max_rows}"
        return [ConfigIssue("public_rows", reason, ConfigCheck.RANGE)]
    return []


def _planned(plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]) -> RecordSumParameters:
    from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
    from smpc_dp.records.plan import plan_request

    parties, missing, looking = noise_counts(plan)
    request = plan_request(
        schema,
        good["ask"],
        epsilon=good["epsilon"],
        delta=good["delta"],
        parties=parties,
        missing=missing,
        corrupt=looking,
        weights=good["answer_weights"],
    )
    rows = good["public_rows"]
    if (most := good["max_standard_error"]) is not None:
        request.check_errors(most, parties, None if rows is None else sum(rows))
    low, high = request.bounds
    encoding = Encoding.plan(
        length=request.length, lower=low.tolist(), upper=high.tolist(), precision=None, parties=parties
    )
    encoding = replace(encoding, element_bytes=8)
    check_room(encoding, math.isqrt(math.ceil(parties * request.variance)) + 1)
    curator = DiscreteGaussian.calibrate(good["epsilon"], good["delta"], request.sensitivity)
    return RecordSumParameters(
        encoding=encoding,
        plan=plan,
        epsilon=good["epsilon"],
        delta=good["delta"],
        mechanism="discrete-gaussian",
        variance=request.variance,
        honest=counted_shares(plan),
        curator_deviation=math.sqrt(curator.variance),
        request=request,
        public_rows=None if rows is None else tuple(rows),
    )
