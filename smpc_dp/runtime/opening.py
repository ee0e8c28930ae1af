"""Open the line of a party: load what its session needs, and connect it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.protocols.registry import MakeParty, make_party
from smpc_dp.runtime.events import OnEvent
from smpc_dp.runtime.line import HubLine, Line
from smpc_dp.runtime.member import Membership
from smpc_dp.runtime.servers.member import load_member

if TYPE_CHECKING:
    from smpc_dp.runtime.servers.shared import SharedMembership


def load_party(
    session: str | os.PathLike[str], party: str, key: str | os.PathLike[str] | None
) -> Membership | SharedMembership:
    """Load a party of a session that has sums; arguments and errors as of `connect`."""
    membership = load_member(session, party, key)
    if isinstance(membership, Membership):
        membership.refuse_learning()
    return membership


async def open_line(
    membership: Membership | SharedMembership,
    on_event: OnEvent,
    listen_on: str | None,
    role: MakeParty | None,
) -> tuple[Line, HubLine | None]:
    """Return a party's line, twice if it is one to an aggregator; arguments and errors as of `connect`."""
    direct = membership.direct_parameters if isinstance(membership, Membership) else None
    if role is not None and (direct is not None or not isinstance(membership, Membership)):
        raise ConfigError([Fault("role", "is for sessions with an aggregator: here there is none")])
    if isinstance(membership, Membership) and direct is not None:
        # The other kinds of lines are loaded by their sessions alone.
        from smpc_dp.runtime.mesh import Mesh

        return await Mesh.open(membership, on_event, listen_on), None
    if listen_on is not None:
        raise ConfigError([Fault("listen_on", "is for the direct topology: here others listen")])
    if isinstance(membership, Membership):
        hub = await HubLine.open(membership, membership.endpoint(), on_event, role or make_party)
        return hub, hub
    from smpc_dp.runtime.servers.line import ServersLine

    return await ServersLine.open(membership, on_event), None
