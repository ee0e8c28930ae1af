"""Steps and tables of roles by protocol name; public as `step` and `table` of `smpc_dp.engine`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from smpc_dp.engine import state_table as tables
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.events import Event
from smpc_dp.engine.party import PartyRole
from smpc_dp.engine.registry import built_in_protocols
from smpc_dp.engine.state import Transition
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue

RoleName: TypeAlias = Literal["party", "aggregator"]


def step(role: PartyRole | CollectorRole, member: Any, state: Any, event: Event) -> Transition:
    """Return the next state of a protocol role after an event, and the messages to send.

    A step of a party is pure but for the values that it draws from `member.random`. Take one
    step from each state, never a second one: two messages of one step are evidence against their signer.
    `Run` and `SavedRun` enforce this; a caller of this function must do so itself.

    Args:
        role, member: as in a `Run` (`run.role`, `run.member`).
        state: the newest state (`run.state`).
        event: of `smpc_dp.engine.events`.

    Raises:
        SmpcError: the run cannot go on for this role; only `Cancellation` may follow.
    """
    return role.step(member, state, event)


def table(protocol: str, role: RoleName) -> tuple[tables.Line, ...]:
    """Return a role's state table for documentation, in order of a run; ConfigError for an unknown one.

    Args:
        protocol: "secagg", "gopa", "gopa-verifiable", "exchange", or "pairwise" for pairwise statistics.
        role: "party" or "aggregator".

    Raises:
        ConfigError: there is no such protocol or role.
    """
    stated = {name: roles for one in built_in_protocols() for name, roles in one.tables.items()}
    issues = [
        ConfigIssue(reason, f"must be one of {', '.join(known)}, is {given!r}", ConfigCheck.CHOICE)
        for reason, given, known in (
            ("protocol", protocol, [*stated]),
            ("role", role, ["party", "aggregator"]),
        )
        if given not in known
    ]
    if issues:
        raise ConfigError(issues)
    party, aggregator = stated[protocol]()
    return tables.table(party if role == "party" else aggregator)
