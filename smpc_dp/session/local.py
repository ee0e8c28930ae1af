"""Sessions on this machine alone: fresh identities, a free port and a session file in one folder."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from smpc_dp.engine.registry import find_protocol
from smpc_dp.errors import LocalError
from smpc_dp.identity.address import split_address
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Role
from smpc_dp.session.member import default_key
from smpc_dp.session.session_file import Timeouts, write_session
from smpc_dp.transport.accept_loop import listening

__all__ = ["Timeouts", "create_local_session"]

AGGREGATOR = "aggregator"
# Where all processes start together none has to wait for minutes for one that has failed.
ON_ONE_MACHINE = Timeouts(connect=30.0)
_FIRST_PORT, _LAST_PORT = 16_384, 32_768


def create_local_session(
    folder: str | os.PathLike[str],
    parties: Sequence[str],
    parameters: Mapping[str, object],
    *,
    protocol: str = "secagg",
    aggregator: str = AGGREGATOR,
    addresses: bool = False,
    timeouts: Timeouts | None = None,
    servers: int = 3,
) -> Path:
    """Write a session file and all members' keys into a folder, for trials; return the file's path.

    For trials and tests: all secret keys are on one machine. Between hosts each member runs `smpc-dp keygen`
    and sends the others only its output.

    Args:
        folder: created if it does not exist; existing keys are never overwritten.
        parties: names of the parties.
        parameters: the `[parameters]` of the protocol, for instance length, lower, upper, precision.
        protocol: "secagg", the exact sum, "gopa", "mpyc" or "learn".
        aggregator: its name; it gets a free port of 127.0.0.1. In the direct topology there is none, and in
            "mpyc", or where a learner's averages are by that method, there are in its place server1, ...
        addresses: give every party an address too, for evaluations between two of them; in the direct
            topology all have one.
        timeouts: by default those of a session file, but with 30 seconds to connect.
        servers: how many, where there are any.

    Raises:
        ConfigError: a name or parameter is wrong; lists every fault.
        LocalError: a file cannot be written, or no port is free.
    """
    path = Path(folder) / "session.toml"
    members = []
    try:
        default_key(path, aggregator).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"{folder}: cannot make the folder ({error.strerror})") from None
    described = find_protocol(protocol)
    topology = "aggregator" if described is None else described.topology(parameters)
    direct = topology == "direct"
    roles: dict[str, Role] = {aggregator: "aggregator"} if topology in ("aggregator", "two") else {}
    if topology == "servers":
        roles |= {f"server{number}": "server" for number in range(1, servers + 1)}
    for name in (*roles, *parties):
        identity = Identity.generate(name)
        role = roles.get(name, "party")
        address = f"127.0.0.1:{free_port()}" if role != "party" or addresses or direct else None
        members.append((identity, identity.entry(role, address)))
    version = 1 if described is None else described.version
    entries = [entry for _, entry in members]
    write_session(path, protocol, version, parameters, entries, timeouts or ON_ONE_MACHINE)
    for identity, _ in members:
        identity.save(default_key(path, identity.name))
    return path


def check_free(address: str) -> None:
    """Raise LocalError if no process can listen on `host:port` now; else do nothing."""
    listening(*split_address(address)).close()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which no process listens now; LocalError if there is none.

    It is below the range of ports for outgoing connections (from 32768 on Linux), so that none of them takes
    it first. Ports are tried from a random one on, so that processes that search at the same time rarely find
    the same.
    """
    for port in itertools.islice(_PORTS, _LAST_PORT - _FIRST_PORT):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise LocalError(f"no free port on 127.0.0.1 from {_FIRST_PORT} to {_LAST_PORT - 1}")


def _ports() -> Iterator[int]:
    """Yield port numbers of this machine to try, beginning with a random one."""
    count = _LAST_PORT - _FIRST_PORT
    for index in itertools.count(secrets.randbelow(count)):
        yield _FIRST_PORT + index % count


_PORTS = _ports()
