"""Opens the connection of a party to the members that its session needs."""

from __future__ import annotations

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.net.connection import AggregatorConnection, Connection
from smpc_dp.net.events import OnEvent
from smpc_dp.net.member import Membership
from smpc_dp.protocols.session_protocol import MakeParty


async def open_connection(
    membership: Membership,
    on_event: OnEvent,
    listen_on: str | None = None,
    role: MakeParty | None = None,
) -> Connection:
    """Return a party's connection; arguments and errors as of `connect`."""
    if role is not None and membership.session.roster.aggregator is None:
        raise ConfigError.at(
            "role", "is for sessions with an aggregator: here there is none", ConfigCheck.UNSUPPORTED
        )
    topology = membership.session.topology
    if topology == "direct":
        # Other kinds of connections are loaded only by their sessions.
        from smpc_dp.net.mesh import Mesh

        return await Mesh.open(membership, on_event, listen_on)
    if listen_on is not None:
        raise ConfigError.at(
            "listen_on", "is for the direct topology: here others listen", ConfigCheck.UNSUPPORTED
        )
    if topology == "servers":
        from smpc_dp.net.servers.connection import ServersConnection

        return await ServersConnection.open(membership, on_event)
    return await AggregatorConnection.open(membership, membership.endpoint(), on_event, role)
