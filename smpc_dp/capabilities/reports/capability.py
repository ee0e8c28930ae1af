"""Signed local reports as a protocol of sessions: each party sends one to the analyst, the aggregator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.net.session_file import SessionFile
from smpc_dp.net.tasks import Task
from smpc_dp.protocols.session_protocol import SessionProtocol

if TYPE_CHECKING:
    from smpc_dp.net.party_requests import PartyRequests
    from smpc_dp.protocols.phases.cost import Cost
    from smpc_dp.statistics.report_parameters import AnyReport
    from smpc_dp.statistics.reports import SentReport


def _check(parameters: Mapping[str, object], parties: int) -> tuple[AnyReport | None, list[ConfigIssue]]:
    from smpc_dp.statistics.report_parameters import check_reports

    return check_reports(parameters, parties)


def _task(_parameters: Mapping[str, object]) -> str:
    return "report"


def _cost(parameters: Any, servers: int) -> Cost:
    from smpc_dp.statistics.report_parameters import cost_of_report

    return cost_of_report(parameters, servers)


PROTOCOLS = (SessionProtocol(name="reports", versions={1: _check}, task=_task, cost=_cost),)


class ReportTask(Task):
    """A signed report of each party on its record."""

    name: ClassVar[str] = "report"
    has_vectors: ClassVar[bool] = False

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> SentReport:
        """Send a party's report to the analyst; see `Session.report`."""
        from smpc_dp.net.reporting import send_report

        requests.number += 1
        return await send_report(requests.connection, requests.ledger, *arguments, **named)

    def other(self, _session: SessionFile) -> ConfigError:
        """Return the error of a request for a sum."""
        reason = (
            "'reports' has no sums: parties call Session.report, and smpc-dp party or "
            "smpc_dp.net.reporting.collect_reports runs the analyst"
        )
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    def lacking(self, session: SessionFile) -> ConfigError:
        """Return the error of a report in another session."""
        return ConfigError.at("protocol", f"is '{session.protocol}', not 'reports'", ConfigCheck.UNSUPPORTED)


TASKS = (ReportTask(),)
