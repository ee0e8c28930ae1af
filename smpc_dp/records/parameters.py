"""Statistics of records: what the sessions of all protocols that compute them have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, TypeVar, cast

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases.cost import PlannedAnswer, record_answer
from smpc_dp.engine.phases.parameters import MAX_PARTIES, RequestParameters
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.session_protocol import RECORDS
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.records.record_result import KIND, RecordResult
from smpc_dp.secagg.noisy import MOST_COMPLETE, noise_counts
from smpc_dp.secagg.params import Corrupt, Security, Share, plan_graph
from smpc_dp.settings import read

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.accountant.receipt import Receipt
    from smpc_dp.records.asked import Statistic
    from smpc_dp.records.fit import FitPlan
    from smpc_dp.records.plan import Plan, PlannedError
    from smpc_dp.records.result import Answers
    from smpc_dp.records.schema import Schema
    from smpc_dp.records.steps import SteppedPlan
    from smpc_dp.records.table import Dropped, Integers, Table

_STATED = "is not for statistics of records: the columns and what is asked state it"
# Keys of sums that statistics of records lack.
REFUSED = dict.fromkeys(("length", "lower", "upper", "kind", "precision", "l2_bound", "max_weight"), _STATED)
# What a plan calls otherwise than a session file.
SESSION_KEYS = {"weights": "answer_weights"}
# Keys of exact tables, which only servers compute.
NO_TABLES = dict.fromkeys(
    ("smallest_count", "dataset"),
    "is of protocol 'mpyc': here every cell that is added up is opened, and none can be compared before",
)


class AskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the `[parameters]` of statistics of records say in every protocol."""

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
            description="a greater one is refused: a share of every answer's range, or by its text a "
            "standard error",
            extra={"range": "above 0"},
        ),
    ] = None
    public_rows: Annotated[
        list[Annotated[int, Meta(ge=0)]] | None,
        Meta(description='rows of each party, in the order of the roster, for `rows = "public"`'),
    ] = None


Epsilon = Annotated[float, Meta(gt=0, le=100, description="of each unit in one request")]
Delta = Annotated[float, Meta(gt=0, lt=1)]


class RecordSettings(AskSettings, frozen=True, kw_only=True):
    """The `[parameters]` of statistics of records that parties add up."""

    epsilon: Epsilon
    delta: Delta
    dropout: Annotated[
        Share | None,
        Meta(
            description="fraction of the parties that may disappear",
            extra={"range": "[0, 0.5)", "default": "0.1, and from five parties up at least one party"},
        ),
    ] = None
    corrupt: Corrupt = None
    security: Security = 40


class Request(Protocol):
    """What is asked of a party's rows: a vector of integers, of which the sum is opened."""

    @property
    def schema(self) -> Schema: ...

    @property
    def statistics(self) -> tuple[Statistic, ...]: ...

    @property
    def length(self) -> int: ...

    @property
    def bounds(self) -> tuple[Integers, Integers]: ...

    def vector(self, table: Table) -> Integers: ...


class RecordParameters(RequestParameters):
    """What the parameters of any protocol have for statistics of records: a base without fields.

    Attributes:
        request: the vector of a party.
        public_rows: rows of each party in roster order; None where they are private.
    """

    __slots__ = ()
    request: Request
    public_rows: tuple[int, ...] | None
    encoding: Encoding

    @property
    def schema(self) -> Schema:
        """The columns, and the unit."""
        return self.request.schema

    @property
    def texts(self) -> tuple[str, ...]:
        """What is asked for."""
        return tuple(one.text for one in self.request.statistics)

    def rows_of(self, numbers: Sequence[int]) -> int | None:
        """Return the public number of rows of the parties at these places; None if it is private."""
        return None if self.public_rows is None else sum(self.public_rows[number] for number in numbers)

    def holders_of(self, numbers: Sequence[int]) -> int | None:
        """Return how many of the parties at these places have rows; None if that is private."""
        return None if self.public_rows is None else sum(self.public_rows[at] > 0 for at in numbers)

    @property
    def operations(self) -> tuple[str, ...]:
        """What parties may ask of a request."""
        return (KIND,)

    def planned_answers(self, parties: int, error: float = 0.0) -> tuple[list[PlannedAnswer], list[str]]:  # noqa: ARG002
        """Return the errors of all answers over so many parties, and what is to be warned of."""
        return [*map(record_answer, self.errors(parties))], self.warnings(parties)

    def result(
        self,
        outcome: Outcome,
        names: tuple[str, ...],
        *,
        level: float = 0.95,
        simultaneous: bool = False,
        hide: float | None = None,
        receipt: Receipt | None = None,
        dropped: Dropped | None = None,
        resumed: bool = False,
    ) -> RecordResult:
        """Return the answers that an outcome gives; `names`: the parties, in the roster's order."""
        numbers = [names.index(name) for name in outcome.survivors]
        residual = 0 if outcome.noise is None else outcome.noise.residual_pairs
        parameters = self.leaving(residual)
        answers = parameters.answers(
            outcome.total, numbers, level=level, simultaneous=simultaneous, hide=hide
        )
        return RecordResult.of(outcome, answers, receipt, dropped, hide, resumed=resumed)

    def leaving(self, residual_pairs: int) -> Self:  # noqa: ARG002
        """Return the parameters of a sum in which the noise of so many pairs is left."""
        return self

    def event(self) -> Event:
        """Return what one request is to a privacy ledger."""
        raise NotImplementedError

    def errors(self, parties: int) -> list[PlannedError]:  # noqa: ARG002
        """Return the standard error of each answer over so many parties; none for exact ones."""
        return []

    def warnings(self, parties: int) -> list[str]:  # noqa: ARG002
        """Return what must not be missed before a request over so many parties."""
        return []

    def answers(
        self,
        total: NDArray[np.int64],
        numbers: Sequence[int],
        *,
        level: float,
        simultaneous: bool,
        hide: float | None = None,
    ) -> Answers:
        """Return the answers that a sum over the parties at these places gives.

        `hide`: as of `records.answers.estimate`, in the place of its default, for answers with noise.
        """
        raise NotImplementedError


class PlannedRecordParameters(RecordParameters):
    """What the parameters of any protocol have for a request whose errors are planned."""

    __slots__ = ()
    request: Plan | SteppedPlan
    # In the digest of the scales; as long as they are planned alike it stays what it is.
    plan_version: ClassVar[int] = 1

    def errors(self, parties: int) -> list[PlannedError]:
        """Return the standard error of each answer over so many parties."""
        return self.request.errors(parties, self.rows_of(range(parties)))

    def warnings(self, parties: int) -> list[str]:
        """Return what must not be missed before a request: answers whose noise is large."""
        return self.request.warnings(parties, self.rows_of(range(parties)))

    def scales_digest(self) -> str:
        """Return a digest of what of the plan is derived with floating point."""
        scaled = self.request.scale_texts()
        bound = self.protocol.encode(), encode_uint(self.plan_version)
        return digest(Label.RECORD_PLAN, *bound, msgspec.json.encode(scaled)).hex()


class NoisyRecordParameters(PlannedRecordParameters):
    """What the parameters of any protocol have for statistics of records with differential privacy."""

    __slots__ = ()
    request: Plan

    def answers(
        self,
        total: NDArray[np.int64],
        numbers: Sequence[int],
        *,
        level: float,
        simultaneous: bool,
        hide: float | None = None,
    ) -> Answers:
        """Return the answers that a sum over the parties at these places gives, with intervals."""
        from smpc_dp.records.answers import DEFAULT_HIDE, estimate

        return estimate(
            self.request,
            total,
            len(numbers),
            rows=self.rows_of(numbers),
            holders=self.holders_of(numbers),
            level=level,
            simultaneous=simultaneous,
            hide=DEFAULT_HIDE if hide is None else hide,
        )


class SteppedRecordParameters(PlannedRecordParameters):
    """What the parameters of any protocol have for an answer that takes several requests."""

    __slots__ = ()
    request: SteppedPlan

    @property
    def steps(self) -> int:
        """The requests that the answers take, one after the other."""
        return self.request.steps

    def following(self, last: Answers) -> Self:
        """Return the parameters of the next request, given the answers of this one."""
        return cast(Self, replace(cast(Any, self), request=self.request.following(last)))

    def answers(
        self,
        total: NDArray[np.int64],
        numbers: Sequence[int],
        *,
        level: float,
        simultaneous: bool,
        hide: float | None = None,  # noqa: ARG002
    ) -> Answers:
        """Return what is known after the step that a sum over the parties at these places gives."""
        from smpc_dp.records.effects import EffectsPlan
        from smpc_dp.records.effects_answers import effects
        from smpc_dp.records.fit_answers import fitted

        request, present = self.request, len(numbers)
        if isinstance(request, EffectsPlan):
            holders = self.holders_of(numbers)
            return effects(request, total, present, holders=holders, level=level, simultaneous=simultaneous)
        return fitted(cast("FitPlan", request), total, present, level=level, simultaneous=simultaneous)


def asked(ask: str | Sequence[str]) -> tuple[str, ...]:
    """Return the texts of what is asked for, given one text or many."""
    return tuple(text.strip() for text in (ask.split(";") if isinstance(ask, str) else ask))


def protected(schema: Schema, *, honest: bool = True) -> str:
    """Return whom the guarantee protects, as the subject of a claim.

    `honest`: the claim is about honest parties' data alone.
    """
    if schema.unit == "record":
        return "each record of an honest party is" if honest else "each record is"
    return (
        f"all records of one person, at most {schema.person_factor} in each of at most {schema.party_factor} "
        f"parties {'that are honest, ' if honest else ''}are together"
    )


T = TypeVar("T")


def read_records(
    settings: type[AskSettings],
    parameters: Mapping[str, object],
    parties: int,
    *,
    unknown: str,
    refused: Mapping[str, str],
) -> tuple[Schema | None, dict[str, Any], list[ConfigIssue]]:
    """Return the columns, if they are valid, the valid settings, and every fault found."""
    from smpc_dp.records.schema import read_schema

    good, issues = read(settings, parameters, unknown=unknown, refused=refused)
    schema: Schema | None = None
    if isinstance(good.get(RECORDS), dict):
        try:
            schema = read_schema(good[RECORDS], "records.")
        except ConfigError as error:
            issues += error.issues
    if schema is not None:
        issues += row_issues(schema, good.get("public_rows"), parties)
    return schema, good, issues


def planned_or_issues(plan: Callable[[], T]) -> tuple[T | None, list[ConfigIssue]]:
    """Return what is planned, or the faults that prevent it."""
    try:
        return plan(), []
    except ConfigError as error:
        issues = [issue._replace(where=SESSION_KEYS.get(issue.where, issue.where)) for issue in error.issues]
        return None, issues or [ConfigIssue("ask", str(error), ConfigCheck.INFEASIBLE)]
    except PrivacyError as error:
        return None, [ConfigIssue("epsilon", str(error), ConfigCheck.INFEASIBLE)]


def check_record_settings(
    settings: type[AskSettings],
    parameters: Mapping[str, object],
    parties: int,
    planner: Callable[[SecAggPlan, Schema, Mapping[str, Any]], T],
    *,
    unknown: str,
    refused: Mapping[str, str],
) -> tuple[T | None, list[ConfigIssue]]:
    """Check a `[parameters]` table of statistics of records, and plan it; return every fault found.

    Up to `MOST_COMPLETE` parties the graph is complete, so that every honest share that stays counts.
    """
    schema, good, issues = read_records(settings, parameters, parties, unknown=unknown, refused=refused)
    if parties > MAX_PARTIES:
        reason = f"at most {MAX_PARTIES} parties, has {parties}"
        return None, [*issues, ConfigIssue("roster", reason, ConfigCheck.TOO_LARGE)]
    plan, more = plan_graph(good, parties, parties <= MOST_COMPLETE)
    issues += more
    if issues or plan is None or schema is None:
        return None, issues
    return planned_or_issues(lambda: planner(plan, schema, good))


def row_issues(schema: Schema, rows: list[int] | None, parties: int) -> list[ConfigIssue]:
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


def plan_records(
    plan: SecAggPlan,
    schema: Schema,
    good: Mapping[str, Any],
    max_bits: float | None = None,
    *,
    laplace: bool = False,
    replaced: bool = False,
) -> Plan:
    """Return the request of checked settings, with the shares of noise that count in a secure sum.

    The last three arguments are those of `plan_request`.
    """
    from smpc_dp.records.plan import MOST_BITS, plan_request

    parties, missing, looking = noise_counts(plan)
    return plan_request(
        schema,
        good["ask"],
        epsilon=good["epsilon"],
        delta=good["delta"],
        parties=parties,
        missing=missing,
        corrupt=looking,
        weights=good["answer_weights"],
        max_bits=MOST_BITS if max_bits is None else max_bits,
        laplace=laplace,
        replaced=replaced,
    )


def check_planned_errors(request: Plan | SteppedPlan, good: Mapping[str, Any], parties: int) -> None:
    """Raise ConfigError for each answer whose standard error is above `max_standard_error`."""
    rows = good["public_rows"]
    if (most := good["max_standard_error"]) is not None:
        request.check_errors(most, parties, None if rows is None else sum(rows))


def public_rows(good: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the public numbers of rows, None where they are private."""
    rows = good["public_rows"]
    return None if rows is None else tuple(rows)


def record_encoding(request: Request, parties: int) -> Encoding:
    """Return the encoding of a party's vector of sums, in elements of 64 bits."""
    low, high = request.bounds
    encoding = Encoding.plan(
        length=request.length, lower=low.tolist(), upper=high.tolist(), precision=None, parties=parties
    )
    return replace(encoding, element_bytes=8)
