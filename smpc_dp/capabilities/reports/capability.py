"""Signed local reports as a protocol of sessions: each party sends one to the analyst, the aggregator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from smpc_dp.engine.session_protocol import SessionProtocol
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import SUM_OPTIONS, AuditedRelease, GivenInputs, Json, Task

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from smpc_dp.capabilities.reports.name_parameters import NameParameters
    from smpc_dp.capabilities.reports.report_parameters import AnyReport
    from smpc_dp.capabilities.reports.reports import SentReport
    from smpc_dp.engine.phases.cost import Cost
    from smpc_dp.identity.roster import Role
    from smpc_dp.privacy.empirical import Progress
    from smpc_dp.session.host import HostMember
    from smpc_dp.session.member import Membership
    from smpc_dp.session.party_requests import PartyRequests


def _check(parameters: Mapping[str, object], parties: int) -> tuple[AnyReport | None, list[ConfigIssue]]:
    """Check the parameters of local reports; return them, or None with the issues found."""
    from smpc_dp.capabilities.reports.report_parameters import check_reports

    return check_reports(parameters, parties)


def _task(_parameters: Mapping[str, object]) -> str:
    """Return "report", the kind of request of a reports session, whatever the parameters."""
    return "report"


def _cost(parameters: Any, servers: int) -> Cost:
    """Return the predicted cost of a local report with these parameters."""
    from smpc_dp.capabilities.reports.report_parameters import cost_of_report

    return cost_of_report(parameters, servers)


PROTOCOLS = (SessionProtocol(name="reports", versions={1: _check}, task=_task, cost=_cost),)


class ReportTask(Task):
    """Kind of session in which each party sends one signed, randomised report on its record."""

    name: ClassVar[str] = "report"
    has_vectors: ClassVar[bool] = False
    refused: ClassVar[frozenset[str]] = SUM_OPTIONS | {
        "--requests",
        "--statistic",
        "--labels",
        "--audit",
        "--report",
    }
    refusal: ClassVar[str] = "is not for a session of reports"
    without_ledgers: ClassVar[str] = "reports need one of each party"

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> SentReport:
        """Count the request; send a party's report, drawn only once, to the analyst; return what was sent."""
        from smpc_dp.capabilities.reports.requests.reporting import send_report

        requests.number += 1
        return await send_report(requests.connection, requests.ledger, *arguments, **named)

    def error_of_other_request(self, _session: SessionFile) -> ConfigError:
        """Return the ConfigError for asking a reports session for a sum."""
        reason = (
            "'reports' has no sums: parties call Session.report, and smpc-dp party or "
            "smpc_dp.capabilities.reports.requests.reporting.collect_reports runs the analyst"
        )
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    def error_in_other_session(self, session: SessionFile) -> ConfigError:
        """Return the ConfigError for sending a report in a session of another kind."""
        return ConfigError.at("protocol", f"is '{session.protocol}', not 'reports'", ConfigCheck.UNSUPPORTED)

    def suffixes(self, session: SessionFile) -> tuple[str, ...]:
        """Return the file suffixes of input files: of record files, or of tables for names."""
        from smpc_dp.session.inputs import TABLE_SUFFIXES

        return TABLE_SUFFIXES if _parameters(session).reads_table else super().suffixes(session)

    def check_inputs(self, session: SessionFile, given: GivenInputs) -> None:
        """Raise an error unless every party's input file holds a valid record or table."""
        parameters = _parameters(session)
        for name, file in given.files.items():
            parameters.clipped(_record(parameters, file), name)

    def members_with_result(self, session: SessionFile) -> list[str]:
        """Return the analyst's name; all parties' names in a session without an analyst."""
        aggregator = session.roster.aggregator
        return super().members_with_result(session) if aggregator is None else [aggregator.name]

    async def serve(
        self, host: HostMember, _role: Role, _requests: int | None, results: list[Any]
    ) -> list[str]:
        """Collect all parties' reports as the analyst; append the estimate to `results`; return no error."""
        from smpc_dp.capabilities.reports.requests.reporting import collect_reports

        estimate = await collect_reports(
            host.session,
            name=host.name,
            key=host.key,
            listen_on=host.listen,
            on_event=host.watch,
            folder=host.board,
            web=host.web,
        )
        results.append(estimate)
        return []

    async def contribute(
        self, host: HostMember, membership: Membership, _options: Mapping[str, Any], results: list[Any]
    ) -> None:
        """Check the record unless a report is stored; send the report; append what was sent to `results`."""
        from smpc_dp.capabilities.reports.requests.reporting import is_reported

        record = None
        if not is_reported(membership):
            # Whether the record is one is better known before anybody is called.
            parameters = _parameters(membership.session)
            record = _record(parameters, host.input_among(self.suffixes(membership.session)))
            parameters.clipped(record, host.name)
        if host.ledger is None:
            raise ConfigError.at("--ledger", "a report needs one: it is charged once", ConfigCheck.MISSING)
        async with host.connect() as session:
            results.append(await session.report(record))

    def text(self, results: Mapping[str, Json]) -> str:
        """Return the result (what was sent, estimated or released), given as JSON, as lines of text."""
        from smpc_dp.capabilities.reports.commands.reports import report_text

        return report_text(next(iter(results.values())))

    def audit_release(
        self,
        session: SessionFile,
        samples: int | None,
        epsilon: float | None,
        delta: float | None,
        progress: Progress,
        executor: Executor | None,
    ) -> AuditedRelease:
        """Empirically audit the release of names in reports; raise ConfigError for other reports."""
        if not _parameters(session).reads_table:
            return super().audit_release(session, samples, epsilon, delta, progress, executor)
        from smpc_dp.capabilities.reports.simulation.name_audit import audit_names

        plan = cast("NameParameters", session.checked_parameters).plan
        result = audit_names(
            plan, samples, epsilon=epsilon, delta=delta, progress=progress, executor=executor
        )
        moved = f"one {plan.schema.unit} moves counts by {result.moved:.6g} of what is planned, 1 at most"
        release = "which of the names of a few rows are there, and of many"
        return AuditedRelease(result, release, (("neighbours", moved),))


def _parameters(session: SessionFile) -> AnyReport:
    """Return the local reports' parameters of a checked session file."""
    return cast("AnyReport", session.checked_parameters)


def _record(parameters: AnyReport, file: Path) -> Any:
    """Read a party's record from its file; return the path itself where the file is a table."""
    from smpc_dp.session.inputs import read_vector

    return file if parameters.reads_table else read_vector(file)


TASKS = (ReportTask(),)
