"""Statistics of records: what the sessions of all protocols that compute them have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar, cast

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
from smpc_dp.privacy.guarantee import LEAST_DELTA
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
    """Settings in a session file's `[parameters]` that say which columns exist and what is asked of them."""

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


# With less no sum with its noise fits into the ring.
LEAST_EPSILON = 1e-9
Epsilon = Annotated[float, Meta(ge=LEAST_EPSILON, le=100, description="of each unit in one request")]
Delta = Annotated[float, Meta(ge=LEAST_DELTA, lt=1)]
SplitOfNoise = Annotated[
    Literal["range", "balanced"],
    Meta(
        description="makes the largest standard error over its range the least, or the largest one over that "
        "of the answer asked for alone ([which](../proofs/records.md#a-balanced-split))"
    ),
]


class RecordSettings(AskSettings, frozen=True, kw_only=True):
    """Settings in a session file's `[parameters]` for statistics with privacy by securely adding up sums."""

    epsilon: Epsilon
    delta: Delta
    split: SplitOfNoise = "range"
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
    """Interface of a planned request: which vector of integers each party makes of its table to be summed."""

    @property
    def schema(self) -> Schema:
        """The declared columns, and whom the request protects."""

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The parsed statistics that are asked for."""

    @property
    def length(self) -> int:
        """The number of entries of each party's vector."""

    @property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value of each entry of a party's vector."""

    def vector(self, table: Table) -> Integers:
        """Return a party's vector of exact integer sums over its table, without noise."""


class RecordParameters(RequestParameters):
    """Base class of a session's parameters, in any protocol, for statistics of parties' tables.

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
        """The declared columns, and whether a record or a person is protected."""
        return self.request.schema

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the statistics that are asked for."""
        return tuple(one.text for one in self.request.statistics)

    def rows_of(self, numbers: Sequence[int]) -> int | None:
        """Return the public number of rows of the parties at these indices, from 0; None if private."""
        return None if self.public_rows is None else sum(self.public_rows[number] for number in numbers)

    def holders_of(self, numbers: Sequence[int]) -> int | None:
        """Return how many of the parties at these indices, from 0, have rows; None if that is private."""
        return None if self.public_rows is None else sum(self.public_rows[at] > 0 for at in numbers)

    @property
    def begins(self) -> tuple[int, ...] | None:
        """The numbers from earlier requests on which a request of several depends; None of a single one."""
        return None

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the operations that parties may request, here one alone."""
        return (KIND,)

    def planned_answers(self, parties: int, error: float = 0.0) -> tuple[list[PlannedAnswer], list[str]]:  # noqa: ARG002
        """Return the planned errors of all answers, and warnings about large errors and unusual bounds."""
        # Not at the top: every session imports this module, and few have columns.
        from smpc_dp.records.published import bound_warnings

        warnings = [*self.warnings(parties), *bound_warnings(self.schema.columns)]
        errors = self.errors(parties)
        known = Counter(one.text for one in errors)
        answers = [
            record_answer(
                replace(one, text=f"{one.asked}: {one.text}")
                if known[one.text] > 1 and one.asked != one.text
                else one
            )
            for one in errors
        ]
        return answers, warnings

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
        """Return the decoded answers of a request's outcome, with who took part and the privacy spent."""
        numbers = [names.index(name) for name in outcome.survivors]
        residual = 0 if outcome.noise is None else outcome.noise.residual_pairs
        parameters = self.leaving(residual)
        answers = parameters.answers(
            outcome.total, numbers, level=level, simultaneous=simultaneous, hide=hide
        )
        return RecordResult.of(outcome, answers, receipt, dropped, hide, resumed=resumed, begins=self.begins)

    def leaving(self, residual_pairs: int) -> Self:  # noqa: ARG002
        """Return the parameters unchanged; overridden where lost parties' noise stays in a sum."""
        return self

    def event(self) -> Event:
        """Return one request's privacy loss for a ledger; this base raises NotImplementedError."""
        raise NotImplementedError

    def errors(self, parties: int) -> list[PlannedError]:  # noqa: ARG002
        """Return the planned standard error of each answer; this base, for exact sums, returns none."""
        return []

    def warnings(self, parties: int) -> list[str]:  # noqa: ARG002
        """Return warnings to read before a request; this base has none."""
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
        """Decode an opened sum into answers; this base raises NotImplementedError.

        `hide`: as of `records.answers.estimate`, in the place of its default, for answers with noise.
        """
        raise NotImplementedError


class PlannedRecordParameters(RecordParameters):
    """Base class of a session's parameters for statistics of tables with errors known before."""

    __slots__ = ()
    request: Plan | SteppedPlan
    # In the digest of the scales; as long as they are planned alike it stays what it is.
    plan_version: ClassVar[int] = 1

    def errors(self, parties: int) -> list[PlannedError]:
        """Return the planned standard error of each answer if so many parties take part."""
        return self.request.errors(parties, self.rows_of(range(parties)))

    def warnings(self, parties: int) -> list[str]:
        """Return a warning for each answer whose planned error is large or unknown."""
        return self.request.warnings(parties, self.rows_of(range(parties)))

    def scales_digest(self) -> str:
        """Return a hash by which parties check that their floating-point plans agree."""
        scaled = self.request.scale_texts()
        bound = self.protocol.encode(), encode_uint(self.plan_version)
        return digest(Label.RECORD_PLAN, *bound, msgspec.json.encode(scaled)).hex()


class NoisyRecordParameters(PlannedRecordParameters):
    """Base class of a session's parameters for statistics of tables in one request with noise."""

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
        """Decode an opened noisy sum of these parties into answers with intervals."""
        from smpc_dp.records.answers import DEFAULT_HIDE, estimate

        return estimate(
            self.request,
            total,
            len(numbers),
            rows=self.rows_of(numbers),
            holders=self.holders_of(numbers),
            lost=self.schema.lost_parties(numbers),
            level=level,
            simultaneous=simultaneous,
            hide=DEFAULT_HIDE if hide is None else hide,
        )


class SteppedRecordParameters(PlannedRecordParameters):
    """Base class of a session's parameters for a statistic that takes several requests."""

    __slots__ = ()
    request: SteppedPlan

    @property
    def steps(self) -> int:
        """The number of requests that the statistic takes, one after the other."""
        return self.request.steps

    @property
    def begins(self) -> tuple[int, ...] | None:
        """The numbers from earlier requests on which this one depends."""
        return self.request.begins

    def beginning(self, begins: Sequence[int]) -> Self:
        """Return the parameters of a request that depends on these numbers; ConfigError if not so many."""
        return cast(Self, replace(cast(Any, self), request=self.request.beginning(begins)))

    def following(self, last: Answers) -> Self:
        """Return the parameters of the next request, which depends on this one's answers."""
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
        """Decode a step's opened sum of these parties into the estimates that are known after."""
        from smpc_dp.records.effects import EffectsPlan
        from smpc_dp.records.effects_answers import effects
        from smpc_dp.records.fit_answers import fitted

        request, present = self.request, len(numbers)
        if isinstance(request, EffectsPlan):
            holders = self.holders_of(numbers)
            return effects(request, total, present, holders=holders, level=level, simultaneous=simultaneous)
        return fitted(cast("FitPlan", request), total, numbers, level=level, simultaneous=simultaneous)


def asked(ask: str | Sequence[str]) -> tuple[str, ...]:
    """Return the texts of single statistics, stripped, given one text with semicolons or a sequence."""
    return tuple(text.strip() for text in (ask.split(";") if isinstance(ask, str) else ask))


def protected(schema: Schema, *, honest: bool = True) -> str:
    """Return the start of a privacy claim's sentence, "each record of an honest party is" or that of persons.

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
    """Parse a session's `[parameters]`; return (schema or None, the valid settings, all faults)."""
    from smpc_dp.records.schema import read_schema

    good, issues = read(settings, parameters, unknown=unknown, refused=refused)
    schema: Schema | None = None
    if isinstance(good.get(RECORDS), dict):
        try:
            schema = read_schema(good[RECORDS], "records.")
        except ConfigError as error:
            issues += error.issues
    if schema is not None:
        issues += row_issues(schema, good.get("public_rows"), parties) + _party_issues(schema, parties)
    return schema, good, issues


def _party_issues(schema: Schema, parties: int) -> list[ConfigIssue]:
    """Return the fault of a column of parties that has not as many as the roster."""
    name = schema.party_column
    lost = len(schema.lost_parties(()))
    if name is None or lost == parties:
        return []
    reason = f"has {lost} parties, the roster {parties}"
    return [ConfigIssue(f"records.columns.{name}.values", reason, ConfigCheck.SHAPE)]


def planned_or_issues(plan: Callable[[], T]) -> tuple[T | None, list[ConfigIssue]]:
    """Call a planner and return its plan, or None with its privacy and configuration errors as faults."""
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
    """Check a session's `[parameters]` and plan its request; return the plan or None, and all faults.

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
    """Return faults of the declared public row counts: missing, superfluous, wrong in number or too large."""
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
    return [
        ConfigIssue(
            "public_rows",
            f"{number}, of party {index} of the roster, is above max_rows = {schema.max_rows}",
            ConfigCheck.RANGE,
        )
        for index, number in enumerate(rows, 1)
        if number > schema.max_rows
    ]


def plan_records(
    plan: SecAggPlan,
    schema: Schema,
    good: Mapping[str, Any],
    max_bits: float | None = None,
    *,
    laplace: bool = False,
    replaced: bool = False,
) -> Plan:
    """Plan a request with noise from checked settings, counting the noise shares of a secure sum.

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
        split=good["split"],
    )


def check_planned_errors(request: Plan | SteppedPlan, good: Mapping[str, Any], parties: int) -> None:
    """Raise ConfigError, naming each answer whose standard error is above `max_standard_error` or unknown."""
    rows = good["public_rows"]
    if (most := good["max_standard_error"]) is not None:
        request.check_errors(most, parties, None if rows is None else sum(rows))


def public_rows(good: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return each party's public number of rows from the settings, None where they are private."""
    rows = good["public_rows"]
    return None if rows is None else tuple(rows)


def record_encoding(request: Request, parties: int) -> Encoding:
    """Return the encoding of a party's vector for the secure sum, in elements of 64 bits."""
    low, high = request.bounds
    encoding = Encoding.plan(
        length=request.length, lower=low.tolist(), upper=high.tolist(), precision=None, parties=parties
    )
    return replace(encoding, element_bytes=8)
