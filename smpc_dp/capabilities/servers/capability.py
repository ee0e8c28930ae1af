"""Computation on shares by servers as a protocol of sessions: sums, statistics of records, exact tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from smpc_dp.engine.averaging import Averaging, OnShares
from smpc_dp.engine.session_protocol import SessionProtocol, Topology
from smpc_dp.errors import ConfigIssue, SmpcError
from smpc_dp.identity.roster import Member
from smpc_dp.session.tasks import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
    from smpc_dp.capabilities.servers.requests.opened_tables import OpenedTables
    from smpc_dp.capabilities.servers.secret_sharing.agreement import Opened
    from smpc_dp.capabilities.servers.secret_sharing.params import SharedParameters, VectorParameters
    from smpc_dp.encoding import Encoding
    from smpc_dp.engine.phases.cost import Cost
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.session.connection import Connection
    from smpc_dp.session.events import OnEvent
    from smpc_dp.session.member import Membership
    from smpc_dp.session.party_requests import PartyRequests
    from smpc_dp.session.session_state import SessionState


def _check(
    parameters: Mapping[str, object], parties: int
) -> tuple[SharedParameters | None, list[ConfigIssue]]:
    """Check the parameters of a session on shares; return them, or None with the issues found."""
    from smpc_dp.capabilities.servers.secret_sharing.check import check_session

    return check_session(parameters, parties)


def _topology(_parameters: Mapping[str, object]) -> Topology:
    """Return "servers": parties connect to the computing servers, whatever the parameters."""
    return "servers"


def _roster_issues(
    _protocol: str, _parameters: Mapping[str, object], members: Sequence[Member]
) -> list[ConfigIssue]:
    """Return the faults in a roster's computing servers, such as too few of them."""
    from smpc_dp.capabilities.servers.secret_sharing.params import roster_issues

    return roster_issues(members)


def _check_requests(_parameters: Mapping[str, object], planned: Sequence[Any]) -> None:
    """Raise ConfigError if any planned request cannot be computed by servers on shares."""
    from smpc_dp.capabilities.servers.requests.shared import check_programs

    check_programs(planned)


async def _open_servers(
    membership: Membership, on_event: OnEvent, _listen_on: str | None, _state: SessionState | None
) -> Connection:
    """Connect a party to all computing servers; return the connection."""
    from smpc_dp.capabilities.servers.requests.connection import ServersConnection

    return await ServersConnection.open(membership, on_event)


async def _serve(*arguments: Any, **named: Any) -> list[Opened | SmpcError]:
    """Run one computing server until all requests have ended; return their results or errors."""
    from smpc_dp.capabilities.servers.requests.computing_server import serve_shares

    return await serve_shares(*arguments, **named)


def _opened_once(membership: Membership) -> OpenedTables | None:
    """Return a party's record of opened exact tables, or None if the session opens none."""
    parameters: SharedParameters = membership.parameters
    if parameters.opened_once is None:
        return None
    from smpc_dp.capabilities.servers.requests.opened_tables import opened_tables

    return opened_tables(membership, parameters.opened_once)


def _event(parameters: Any) -> Event:
    """Return the privacy event that a ledger charges for a sum or statistics of records by servers."""
    from smpc_dp.capabilities.servers.requests.shared import sum_event

    return sum_event(parameters)


def _cost(parameters: Any, servers: int) -> Cost | None:
    """Return the predicted cost of statistics or exact tables that servers compute; None for sums."""
    from smpc_dp.capabilities.servers.secret_sharing.cost import cost_on_shares

    return cost_on_shares(parameters, servers)


def _check_epsilon(epsilon: float) -> None:
    """Raise ConfigError for an epsilon that is too large for noise drawn by the servers."""
    from smpc_dp.capabilities.servers.averages import check_epsilon

    check_epsilon(epsilon)


def _plan_average(encoding: Encoding, missing: int, budget: tuple[float, float] | None) -> VectorParameters:
    """Return the parameters of an average that servers compute, noisy if a budget is given."""
    from smpc_dp.capabilities.servers.averages import plan_vectors

    return plan_vectors(encoding, missing, budget)


def _assumption() -> str:
    """Return the sentence that says how many servers must be honest."""
    from smpc_dp.capabilities.servers.secret_sharing.claims import HONEST_SERVERS

    return HONEST_SERVERS


def _open_server(*arguments: Any, **named: Any) -> AbstractAsyncContextManager[Any]:
    """Return a context manager that opens a computing server, and closes it at the end."""
    from smpc_dp.capabilities.servers.requests.computing_server import open_computing_server

    return open_computing_server(*arguments, **named)


def _simulate_average(*arguments: Any, **named: Any) -> tuple[NDArray[np.float64], int]:
    """Simulate in one process an average that servers compute; return (average, number of survivors)."""
    from smpc_dp.capabilities.servers.simulation.servers import average_on_shares

    return average_on_shares(*arguments, **named)


def _steps() -> tuple[tuple[str, ...], ...]:
    """Return the protocol's step names: those of a server, and those of a party."""
    from smpc_dp.capabilities.servers.secret_sharing.messages import EVERY_PARTY_STEPS, SERVER_STEPS

    return SERVER_STEPS, EVERY_PARTY_STEPS


PROTOCOLS = (
    SessionProtocol(
        name="mpyc",
        versions={1: _check},
        topology=_topology,
        roster_issues=_roster_issues,
        check_requests=_check_requests,
        connections={"servers": _open_servers},
        serving={"server": _serve},
        opened_once=_opened_once,
        averaging=Averaging(
            is_exact=True,
            on_shares=OnShares(
                check_epsilon=_check_epsilon,
                plan=_plan_average,
                assumption=_assumption,
                open_server=_open_server,
                simulate=_simulate_average,
            ),
        ),
        event=_event,
        cost=_cost,
        steps=_steps,
        vectors=("mpyc",),
    ),
)


class SharedPairsTask(Task):
    """Kind of request of a session: a pairwise statistic that servers compute on secret shares."""

    name: ClassVar[str] = "pairs-on-shares"

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> StatisticResult:
        """Run a party's request for a pairwise statistic that servers compute; return the result."""
        from smpc_dp.capabilities.servers.requests.statistic_requests import request_statistic

        return await request_statistic(requests, *arguments, **named)


TASKS = (SharedPairsTask(),)
