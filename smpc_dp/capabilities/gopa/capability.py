"""GOPA as a protocol of sessions: through an aggregator, direct, or verifiable."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from smpc_dp.capabilities.gopa.versions import (
    AUDITED_VERSIONS,
    EARLIER_VERSION,
    GOPA,
    PLAIN_VERSION,
    VERSION,
    is_direct,
    is_verifiable,
)
from smpc_dp.engine.averaging import Averaging
from smpc_dp.engine.session_protocol import (
    Audit,
    Roles,
    SessionProtocol,
    Topology,
    corrupt_as_written,
    no_servers,
    no_unsaved_reason,
)
from smpc_dp.errors import ConfigCheck, ConfigIssue, Issues
from smpc_dp.identity.roster import Member

if TYPE_CHECKING:
    from smpc_dp.capabilities.gopa.params import GopaParameters
    from smpc_dp.engine.run import Run
    from smpc_dp.logs.auditing import LogAuditor
    from smpc_dp.logs.audits.log_watch import LogView
    from smpc_dp.logs.log import Header
    from smpc_dp.session.connection import Connection
    from smpc_dp.session.events import OnEvent
    from smpc_dp.session.member import Membership
    from smpc_dp.session.session_state import SessionState
    from smpc_dp.wire.signing import Context


def _check(
    version: int, parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check a GOPA session's `[parameters]` by a protocol version; return them, or None with the faults."""
    from smpc_dp.capabilities.gopa.check import check_for_version

    return check_for_version(version, parameters, parties)


def _topology(parameters: Mapping[str, object]) -> Topology:
    """Return how the parties connect: "direct" (to each other) or "aggregator", as the parameters ask."""
    return "direct" if is_direct(parameters) else "aggregator"


def _roster_issues(
    protocol: str, parameters: Mapping[str, object], members: Sequence[Member]
) -> list[ConfigIssue]:
    """Return the faults of a roster for GOPA: servers; if direct, an aggregator or a missing address."""
    issues = Issues()
    for index, member in enumerate(members if is_direct(parameters) else ()):
        if member.role == "aggregator":
            issues.add_issue(
                f"roster[{index}].role", "there is no aggregator in the direct topology", ConfigCheck.CONFLICT
            )
        elif member.address is None:
            reason = f"'{member.name}' needs an address, host:port, in the direct topology"
            issues.add_issue(f"roster[{index}].address", reason, ConfigCheck.MISSING)
    return [*issues, *no_servers(protocol, parameters, members)]


async def _open_direct(
    membership: Membership, on_event: OnEvent, listen_on: str | None, state: SessionState | None
) -> Connection:
    """Open the network connections of a party to all parties with which it exchanges messages directly."""
    from smpc_dp.capabilities.gopa.requests.mesh import Mesh

    return await Mesh.open(membership, on_event, listen_on, state)


def _states(parameters: GopaParameters) -> Any:
    """Return the module whose `party` and `aggregator` make the state machines for these parameters."""
    if parameters.is_logged:
        from smpc_dp.capabilities.gopa.verifiable import states as verifiable

        return verifiable
    if parameters.on_dropout == "keep":
        from smpc_dp.capabilities.gopa import states

        return states
    from smpc_dp.secagg.protocol import states_of

    return states_of(parameters)


def _party(context: Context, parameters: GopaParameters, *arguments: Any, **named: Any) -> Run[Any]:
    """Return the party's state machine for one request, of the protocol in the parameters."""
    run: Run[Any] = _states(parameters).party(context, parameters, *arguments, **named)
    return run


def _aggregator(context: Context, parameters: GopaParameters, *arguments: Any, **named: Any) -> Run[Any]:
    """Return the aggregator's state machine for one request, of the protocol in the parameters."""
    run: Run[Any] = _states(parameters).aggregator(context, parameters, *arguments, **named)
    return run


def _tables() -> Roles:
    """Import and return the state tables of GOPA's party and aggregator (imported only when needed)."""
    from smpc_dp.capabilities.gopa import states

    return states.PARTY, states.AGGREGATOR


def _verifiable_tables() -> Roles:
    """Import and return the state tables of the party and the aggregator of verifiable GOPA."""
    from smpc_dp.capabilities.gopa.verifiable import states

    return states.PARTY, states.AGGREGATOR


def _check_run_id(context: Context, header: Header) -> None:
    """Raise VerificationError unless the run id in a log's header is the one derived from the context."""
    from smpc_dp.capabilities.gopa.verifiable.audit import check_run_id

    check_run_id(context, header)


def _auditor(*arguments: Any) -> LogAuditor:
    """Return an object that checks the log of a verifiable GOPA run entry by entry."""
    from smpc_dp.capabilities.gopa.verifiable.audit import auditor

    return auditor(*arguments)


def _view() -> LogView:
    """Return the texts and tables with which log pages show a verifiable GOPA run."""
    from smpc_dp.capabilities.gopa.log_view import VerifiableView

    return VerifiableView()


AUDIT = Audit(
    check_run_id=_check_run_id,
    auditor=_auditor,
    view=_view,
    certifies=tuple((GOPA, number) for number in (VERSION, EARLIER_VERSION, *AUDITED_VERSIONS)),
)
"""Of verifiable averages, also of learners'."""


def _steps() -> tuple[tuple[str, ...], ...]:
    """Return the names of the protocol steps without an aggregator: a party's, and the coordinator's."""
    from smpc_dp.capabilities.gopa.direct_messages import COORDINATED_STEPS, COORDINATOR_STEPS

    return COORDINATED_STEPS, COORDINATOR_STEPS


PROTOCOLS = (
    SessionProtocol(
        name=GOPA,
        versions={n: functools.partial(_check, n) for n in (VERSION, EARLIER_VERSION)},
        audited={n: functools.partial(_check, n) for n in (PLAIN_VERSION, *AUDITED_VERSIONS)},
        topology=_topology,
        is_logged=is_verifiable,
        roster_issues=_roster_issues,
        connections={"direct": _open_direct},
        party=_party,
        aggregator=_aggregator,
        unsaved=no_unsaved_reason,
        averaging=Averaging(settings=frozenset({"verifiable", "on_dropout", "total"})),
        audit=AUDIT,
        most_corrupt=functools.partial(corrupt_as_written, VERSION),
        tables={"gopa": _tables, "gopa-verifiable": _verifiable_tables},
        steps=_steps,
        vectors=("gopa",),
    ),
)
