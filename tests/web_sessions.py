"""Sessions of tests whose aggregator has an address over HTTPS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts, load_session, write_session


def create_web_session(
    folder: Path,
    parties: Sequence[str],
    parameters: Mapping[str, object],
    port: int,
    *,
    path: str = "/smpc",
    protocol: str = "secagg",
    timeouts: Timeouts | None = None,
) -> Path:
    """Create a session whose aggregator is reached at wss://localhost:PORT/PATH; return its file."""
    file = create_local_session(folder, parties, parameters, protocol=protocol, timeouts=timeouts)
    loaded = load_session(file)
    address = f"wss://localhost:{port}{path}"
    members = [
        replace(member, address=address) if member.role == "aggregator" else member
        for member in loaded.roster
    ]
    write_session(file, loaded.protocol, loaded.version, loaded.parameters, members, loaded.timeouts)
    return file
