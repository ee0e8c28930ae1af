"""Load a member of a session of any protocol that can be run, whether there is an aggregator or servers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from smpc_dp.encoding import Encoding
from smpc_dp.protocols.names import has_servers
from smpc_dp.runtime.member import Membership
from smpc_dp.runtime.session_file import load_session

if TYPE_CHECKING:
    from smpc_dp.runtime.servers.shared import SharedMembership


def load_member(
    session: str | os.PathLike[str],
    name: str,
    key: str | os.PathLike[str] | None = None,
    role: str = "party",
) -> Membership | SharedMembership:
    """Load a member of a session of any protocol that can be run; arguments as of `Membership.load`."""
    loaded = load_session(session)
    if has_servers(loaded.protocol, loaded.parameters):
        # Programs on shares are loaded by sessions with servers alone.
        from smpc_dp.runtime.servers.shared import SharedMembership

        return SharedMembership.load(session, name, key, role, loaded)
    return Membership.load(session, name, key, role, loaded)


def encoding_of(membership: Membership | SharedMembership) -> Encoding:
    """Return the encoding of a session's vectors; raise ConfigError if it has none."""
    return membership.encoding
