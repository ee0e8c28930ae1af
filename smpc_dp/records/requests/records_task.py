"""The task "records": statistics of records, in one request or in steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, OtherRequestError
from smpc_dp.secagg.requests.vector_task import VectorTask
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import SUM_OPTIONS, AuditedRelease, GivenInputs, Json

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from smpc_dp.engine.result import Outcome
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.empirical import Progress
    from smpc_dp.records.parameters import RecordParameters
    from smpc_dp.records.requests.record_requests import ReadyRows
    from smpc_dp.records.table import Table
    from smpc_dp.report.document import Section
    from smpc_dp.session.host import HostMember
    from smpc_dp.session.member import Membership


class RecordsTask(VectorTask):
    """Task of sessions and commands: statistics of the parties' tables by secure sums."""

    name: ClassVar[str] = "records"
    is_long_to_plan: ClassVar[bool] = True
    refused: ClassVar[frozenset[str]] = (SUM_OPTIONS - {"--number"}) | {"--audit"}
    refusal: ClassVar[str] = "is not for statistics of records"
    refused_together: ClassVar[frozenset[str]] = frozenset({"--statistic"})
    agreed: ClassVar[tuple[str, ...]] = ("estimates",)

    def error_of_other_request(self, _session: SessionFile) -> ConfigError:
        """Return the error for a request of a plain sum in a session for statistics."""
        reason = "the session asks statistics of records: call statistics"
        return ConfigError.at("records", reason, ConfigCheck.UNSUPPORTED)

    def error_in_other_session(self, _session: SessionFile) -> ConfigError:
        """Return the error for a request of statistics in a session without them."""
        reason = "the session file has no records: it asks no statistics of them"
        return ConfigError.at("records", reason, ConfigCheck.UNSUPPORTED)

    def check_ledger(self, ledger: Ledger, membership: Membership) -> None:
        """Raise PrivacyError or ConfigError unless the ledger affords all requests of the statistics."""
        ledger.check([membership.event()] * membership.parameters.steps)

    def suffixes(self, _session: SessionFile) -> tuple[str, ...]:
        """Return the file suffixes that a party's table may have."""
        from smpc_dp.session.inputs import TABLE_SUFFIXES

        return TABLE_SUFFIXES

    def check_inputs(self, session: SessionFile, given: GivenInputs) -> None:
        """Read all parties' tables, as a check before a run; raise ConfigError for unfit ones."""
        from smpc_dp.records.requests.record_requests import read_rows

        checked = cast("RecordParameters", session.checked_parameters)
        for name, file in given.files.items():
            read_rows(file, checked, given.membership(name)).check_rows(name)

    def steps(self, session: SessionFile) -> int:
        """Return the number of requests that the session's statistics take."""
        return cast("RecordParameters", session.checked_parameters).steps

    async def contribute(
        self, host: HostMember, membership: Membership, options: Mapping[str, Any], results: list[Any]
    ) -> None:
        """Read the host's table, tell its owner what is dropped; append the answers to `results`."""
        rows = load_rows(host, membership)
        number, following = options["--number"], options["--number"]
        if number is None and host.state is not None:
            following = host.state.following_call("", membership.parameters.steps)
        async with host.connect() as opened:
            while True:
                try:
                    results.append(await opened.statistics(rows, number=following))
                    return
                except OtherRequestError as error:
                    # Where it is saved, and no number is given, it joins what the others ask for.
                    if number is not None or host.state is None:
                        raise
                    following = error.next

    def read_numbers(self, stored: Json) -> Any:
        """Return the estimates that a stored JSON result holds."""
        from smpc_dp.results.numbers import read_estimates

        return read_estimates(stored)

    def check_numbers(
        self,
        numbers: Any,
        parameters: Any,
        outcome: Outcome,
        operation: str,
        names: Sequence[str],
    ) -> None:
        """Raise VerificationError unless a result's estimates follow from the request's outcome."""
        from smpc_dp.results.numbers import check_estimates

        check_estimates(numbers, parameters, outcome, operation, names)

    def text(self, results: Mapping[str, Json]) -> str:
        """Return the answers as lines for a terminal."""
        return records_text(next(iter(results.values())))

    def title(self, _result: Json) -> str:
        """Return the title of the report on statistics, the same for all results."""
        return "Statistics of records"

    def own_sections(self, _session: SessionFile, result: Json) -> list[Section]:
        """Return the report's section with the estimates and their intervals."""
        from smpc_dp.report.sections import statistics_section

        return statistics_section(result, exact=result["privacy"]["epsilon"] is None)

    def audit_release(
        self,
        session: SessionFile,
        samples: int | None,
        epsilon: float | None,
        delta: float | None,
        progress: Progress,
        executor: Executor | None,
    ) -> AuditedRelease:
        """Run a simulated privacy audit of the session's noisy sums, and return its findings."""
        from smpc_dp.records.record_audit import audit_records

        result = audit_records(
            session.checked_parameters,
            samples,
            epsilon=epsilon,
            delta=delta,
            progress=progress,
            executor=executor,
        )
        return AuditedRelease(
            result,
            f"the sums and the noise of {result.counted} parties, those that count",
            (
                (
                    "variance of the noise",
                    f"{result.variance:.6g} of that claimed, {result.least:.6g} at least",
                ),
                ("neighbours", f"{result.moved:.6g} of the sensitivity apart, 1 at most"),
            ),
        )


def load_rows(host: HostMember, membership: Membership) -> ReadyRows:
    """Read and encode the host's table, telling its owner alone what is dropped; ConfigError if too long.

    Raises ConfigError for more rows than `max_rows`, besides the errors of `read_rows`.
    """
    from smpc_dp.records.requests.record_requests import ready_rows, record_parameters
    from smpc_dp.session.inputs import TABLE_SUFFIXES

    path = host.input_among(TABLE_SUFFIXES)
    ready = ready_rows(path, record_parameters(membership), membership)
    # Of a table that is refused nothing counts.
    ready.table.check_rows(host.name)
    for line in dropped_lines(ready.table):
        host.note(line)
    return ready


def dropped_lines(rows: Table) -> list[str]:
    """Return lines that tell a party what in its table is missing, clipped or ignored."""
    dropped = rows.dropped
    lines: list[str] = []
    lines += [
        f"{name}: {count} values are missing{_or_none(name, rows)}" for name, count in dropped.missing.items()
    ]
    for counts, words in (
        (dropped.clipped, "outside the bounds, and clipped"),
        (dropped.undeclared, "no declared category"),
    ):
        lines += [f"{name}: {count} values are {words}" for name, count in counts.items()]
    if dropped.unclosed:
        lines.append(
            f"{dropped.unclosed} lines have a quote that does not close on them: all of their values are "
            "missing (cells with line breaks need a Parquet file)"
        )
    if dropped.ragged:
        lines.append(
            f"{dropped.ragged} lines have other cells than the header: of longer ones (a decimal comma?) all "
            "values are missing, of shorter ones the last"
        )
    if dropped.shortened:
        lines.append(f"{dropped.shortened} rows are longer than the bound of the norm, and shortened")
    lines += [_without(name, rows) for name in dropped.without_values()]
    if dropped.beyond_person:
        filled = f", but as the middle of {', '.join(rows.schema.filled)}" if rows.schema.filled else ""
        reason = f"rows without an id, or beyond rows_per_person, do not count{filled}"
        lines.append(f"{dropped.beyond_person} {reason}")
    return [f"{dropped.rows} rows" + ("" if lines or not dropped.rows else ", all of which count"), *lines]


def check_columns(rows: Table) -> None:
    """Raise ConfigError for a table without rows, or naming each column without a usable value."""
    if not rows.dropped.rows:
        raise ConfigError.at("table", "has no rows", ConfigCheck.SHAPE)
    names = rows.dropped.without_values()
    if names:
        raise ConfigError([ConfigIssue(name, _without(name, rows), ConfigCheck.TYPE) for name in names])


def _without(name: str, rows: Table) -> str:
    """Return the message that no row has a usable value in a column, naming the kind of value it needs."""
    kind = _counted(name, rows) or "declared category"
    return f"no row has a {kind} in column {name!r}: is it of another type, or under another name?"


def _or_none(name: str, rows: Table) -> str:
    """Return words to add that a value may be of a wrong type; an empty text for a column of categories."""
    kind = _counted(name, rows)
    return f", or no {kind}" if kind else ""


def _counted(name: str, rows: Table) -> str:
    """Return which values a column of numbers or dates needs; an empty text for a column of categories."""
    from smpc_dp.records.schema import Elapsed, Number

    column, derived = rows.schema.columns[name], rows.schema.derived.get(name)
    if isinstance(derived, Elapsed):
        return f"date as 2026-01-31 ({' and '.join(derived.dates)})"
    if not isinstance(column, Number):
        return ""
    return "value 0 or 1" if column.is_indicator else "number"


def records_text(result: Json) -> str:
    """Return a JSON result of statistics as text lines, with absent parties, faults and privacy."""
    from smpc_dp.records.record_result import residual_lines
    from smpc_dp.records.result import estimate_lines, level_line
    from smpc_dp.report.texts import logged_lines, privacy_lines

    survivors, absent = result["survivors"], result["absent"]
    exact = result["privacy"]["epsilon"] is None
    about = "exact: no differential privacy" if exact else level_line(result["level"], result["simultaneous"])
    lines = [
        f"statistics over {len(survivors)} of {len(survivors) + len(absent)} parties",
        *(f"  {line}" for line in estimate_lines(result["estimates"], exact=exact)),
        about,
        f"without: {', '.join(absent)}" if absent else "nobody was missing",
        *residual_lines(result["residual_pairs"]),
        *(f"fault: {line}" for line in result["faults"]),
        *privacy_lines(result),
        *logged_lines(result),
    ]
    return "\n".join(lines)


TASKS = (RecordsTask(),)
