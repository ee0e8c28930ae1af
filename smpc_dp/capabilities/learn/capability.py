"""Learning as a protocol of sessions, whose averages and messages are requests by other protocols."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from smpc_dp.capabilities.gopa.capability import AUDIT
from smpc_dp.capabilities.servers import capability as servers
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.identity.roster import Member
from smpc_dp.net.session_file import SessionFile
from smpc_dp.net.tasks import Task
from smpc_dp.protocols.gopa.versions import AUDITED_VERSION, GOPA, VERIFIABLE_VERSION, VERSION, version_of
from smpc_dp.protocols.session_protocol import SessionProtocol, Topology, no_servers

if TYPE_CHECKING:
    from smpc_dp.learn.registry import LearnParameters
    from smpc_dp.learn.requirements import Learned
    from smpc_dp.log.log import Header
    from smpc_dp.net.log_session import LogSession
    from smpc_dp.net.party_requests import PartyRequests


def _check(
    version: int, parameters: Mapping[str, object], names: Sequence[str]
) -> tuple[LearnParameters | None, list[ConfigIssue]]:
    # Learners take long to load: only sessions that learn load them.
    from smpc_dp.learn.registry import check_learn_as

    return check_learn_as(version, parameters, names)


def _averager(parameters: Mapping[str, object]) -> Mapping[str, object]:
    averager = parameters.get("averager")
    return averager if isinstance(averager, Mapping) else {}


def _is_logged(parameters: Mapping[str, object]) -> bool:
    return _averager(parameters).get("verifiable") is True


def _version(parameters: Mapping[str, object]) -> int:
    return version_of(verifiable=_is_logged(parameters))


def _topology(parameters: Mapping[str, object]) -> Topology:
    return "servers" if _averager(parameters).get("method") == "mpyc" else "aggregator"


def _roster_issues(
    protocol: str, parameters: Mapping[str, object], members: Sequence[Member]
) -> list[ConfigIssue]:
    check = servers.roster_issues if _topology(parameters) == "servers" else no_servers
    return check(protocol, parameters, members)


def _check_requests(parameters: Mapping[str, object], planned: Sequence[Any]) -> None:
    if _topology(parameters) == "servers":
        servers.check_requests(parameters, planned)


def _task(_parameters: Mapping[str, object]) -> str:
    return "learner"


def _check_logged(parameters: Mapping[str, object], members: int) -> None:
    from smpc_dp.net.log_groups import check_schedule

    check_schedule(parameters, members)


def _group_of(session: LogSession, planned: Any, header: Header) -> tuple[tuple[str, ...], Any]:
    from smpc_dp.net.log_groups import group_of

    return group_of(session, planned, header.request, header.operation)


def _is_group(session: SessionFile, scope: str) -> bool:
    from smpc_dp.net.log_groups import is_group

    return is_group(session, scope)


def _cost(_parameters: Any, _servers: int) -> None:
    return None


PROTOCOLS = (
    SessionProtocol(
        name="learn",
        versions={number: functools.partial(_check, number) for number in (VERSION, VERIFIABLE_VERSION)},
        audited={AUDITED_VERSION: functools.partial(_check, AUDITED_VERSION)},
        named=True,
        chosen=_version,
        topology=_topology,
        is_logged=_is_logged,
        task=_task,
        roster_issues=_roster_issues,
        check_requests=_check_requests,
        audit=replace(
            AUDIT,
            protocol=GOPA,
            certifies=(),
            check_session=_check_logged,
            group_of=_group_of,
            is_group=_is_group,
        ),
        cost=_cost,
    ),
)


class LearnerTask(Task):
    """A learner, whose averages and messages are requests of the session."""

    name: ClassVar[str] = "learner"

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> Learned:
        """Run the learner of a party; see `Session.learn`."""
        from smpc_dp.net.learning import learn_once

        return await learn_once(requests, *arguments, **named)

    def other(self, _session: SessionFile) -> ConfigError:
        """Return the error of a request for a sum."""
        reason = (
            "'learn' has no sums: parties call Session.learn, and smpc-dp party or "
            "smpc_dp.net.learning.serve_learning runs the aggregator"
        )
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    def lacking(self, session: SessionFile) -> ConfigError:
        """Return the error of learning in another session."""
        return ConfigError.at("protocol", f"is '{session.protocol}', not 'learn'", ConfigCheck.UNSUPPORTED)


TASKS = (LearnerTask(),)
