"""Computation on shares by servers as a protocol of sessions: sums, statistics of records, exact tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from smpc_dp.errors import ConfigIssue, SmpcError
from smpc_dp.identity.roster import Member
from smpc_dp.net.tasks import Task
from smpc_dp.protocols.session_protocol import SessionProtocol, Topology

if TYPE_CHECKING:
    from smpc_dp.net.connection import Connection
    from smpc_dp.net.events import OnEvent
    from smpc_dp.net.member import Membership
    from smpc_dp.net.opened_tables import OpenedTables
    from smpc_dp.net.party_requests import PartyRequests
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.protocols.phases.cost import Cost
    from smpc_dp.protocols.secret_sharing.agreement import Opened
    from smpc_dp.protocols.secret_sharing.params import SharedParameters
    from smpc_dp.protocols.ustatistic.result import StatisticResult


def _check(
    parameters: Mapping[str, object], parties: int
) -> tuple[SharedParameters | None, list[ConfigIssue]]:
    from smpc_dp.protocols.secret_sharing.check import check_session

    return check_session(parameters, parties)


def _topology(_parameters: Mapping[str, object]) -> Topology:
    return "servers"


def roster_issues(
    _protocol: str, _parameters: Mapping[str, object], members: Sequence[Member]
) -> list[ConfigIssue]:
    """Return the faults of a roster that prevent computations on shares."""
    from smpc_dp.protocols.secret_sharing.params import roster_issues

    return roster_issues(members)


def check_requests(_parameters: Mapping[str, object], planned: Sequence[Any]) -> None:
    """Raise ConfigError for sums that are impossible."""
    from smpc_dp.net.servers.shared import check_programs

    check_programs(planned)


async def _open_servers(membership: Membership, on_event: OnEvent, _listen_on: str | None) -> Connection:
    from smpc_dp.net.servers.connection import ServersConnection

    return await ServersConnection.open(membership, on_event)


CONNECTIONS: Mapping[Topology, Callable[..., Awaitable[Connection]]] = {"servers": _open_servers}


async def _serve(*arguments: Any, **named: Any) -> list[Opened | SmpcError]:
    from smpc_dp.net.servers.computing_server import serve_shares

    return await serve_shares(*arguments, **named)


def _opened_once(membership: Membership) -> OpenedTables | None:
    parameters: SharedParameters = membership.parameters
    if parameters.opened_once is None:
        return None
    from smpc_dp.net.opened_tables import opened_tables

    return opened_tables(membership, parameters.opened_once)


def _event(parameters: Any) -> Event:
    from smpc_dp.net.servers.shared import sum_event

    return sum_event(parameters)


def _cost(parameters: Any, servers: int) -> Cost | None:
    from smpc_dp.protocols.secret_sharing.cost import cost_on_shares

    return cost_on_shares(parameters, servers)


PROTOCOLS = (
    SessionProtocol(
        name="mpyc",
        versions={1: _check},
        topology=_topology,
        roster_issues=roster_issues,
        check_requests=check_requests,
        connections=CONNECTIONS,
        serving={"server": _serve},
        opened_once=_opened_once,
        event=_event,
        cost=_cost,
        vectors=("mpyc",),
    ),
)


class SharedPairsTask(Task):
    """A statistic of pairs of records, computed on shares."""

    name: ClassVar[str] = "pairs-on-shares"

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> StatisticResult:
        """Run one request for a statistic; see `Session.pairwise`."""
        from smpc_dp.net.servers.statistic_requests import request_statistic

        return await request_statistic(requests, *arguments, **named)


TASKS = (SharedPairsTask(),)
