"""The check of one member: of its host, then of its connection to each member that it calls."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.identity.address import is_web_address
from smpc_dp.identity.roster import Member
from smpc_dp.session.check.connection import Inquirer
from smpc_dp.session.check.host import Host, HostOptions
from smpc_dp.session.check.lines import SKIPPED, Line, brief, connection_checks
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.transport.endpoint import Endpoint
from smpc_dp.web_settings import DEFAULT


async def check_member(path: Path, name: str, options: HostOptions) -> list[Line]:
    """Run all checks of a member's host and connections, return their results; ConfigError for wrong options.

    Raises ConfigError for a name that is not in the roster, and for options that do not fit the session.
    """
    try:
        # Nobody may ever write into one, and opening it would wait for that.
        if stat.S_ISFIFO((await asyncio.to_thread(path.stat)).st_mode):
            return [_unreadable(f"{path}: is a pipe, not a file")]
        session = await asyncio.to_thread(load_session, path)
    except ConfigError as error:
        return [_unusable(path, str(issue)) for issue in error.issues]
    except LocalError as error:
        return [_unreadable(str(error))]
    except OSError as error:
        return [_unreadable(f"{path}: cannot read the session file ({error.strerror})")]
    aggregator = session.roster.aggregator
    if options.web is not None and not is_web_address((aggregator and aggregator.address) or ""):
        reason = "is for an aggregator at wss://, which this session has not"
        raise ConfigError.at("--ca", reason, ConfigCheck.CONFLICT)
    host = Host(path, session, _member_of(session, name, path), options)
    terms = f"{session.protocol} {session.version}, {len(session.roster)} members"
    text = f"{path}: {terms}, digest {brief(session.digest)}"
    lines = [Line("session", "ok", text), *await asyncio.to_thread(lambda: [*host.lines()])]
    can_call = all(line.state != "fix" for line in lines if line.check in ("key", "clock"))
    endpoint = _endpoint(host) if can_call else None
    if host.member.address is not None:
        lines.append(await _port(host, endpoint))
    connections = [_connection(host, endpoint, peer) for peer in called_members(session, host.member)]
    for result in await asyncio.gather(*connections):
        lines += result
    return lines


def called_members(session: SessionFile, member: Member) -> list[Member]:
    """Return the members that this member connects to when a session begins."""
    roster = session.roster
    if session.topology == "aggregator" and roster.aggregator not in (None, member):
        return [other for other in roster if other == roster.aggregator]
    if session.topology == "servers":
        return [server for server in roster.servers if server != member]
    if session.topology == "direct":
        return list(roster.parties[: roster.parties.index(member)])
    return []


def _member_of(session: SessionFile, name: str, path: Path) -> Member:
    """Return the roster's entry of this name; raise ConfigError if there is none."""
    names = [member.name for member in session.roster]
    if name not in names:
        reason = f"{name!r} is not in the roster of {path}: {', '.join(names[:20])}"
        raise ConfigError.at("--as", reason, ConfigCheck.UNKNOWN_NAME)
    return session.roster.member(name)


def _unusable(path: Path, fault: str) -> Line:
    """Return the line that says that a session file has a fault, and what to do."""
    todo = f"Correct it, for all members alike: `smpc-dp roster {path}` must print them."
    return Line("session", "fix", fault, todo)


def _unreadable(fault: str) -> Line:
    """Return the line that says that a session file cannot be read, and what to do."""
    todo = "Name the session file that all members have, as a file that this user (`id -un`) may read."
    return Line("session", "fix", fault, todo)


def _endpoint(host: Host) -> Endpoint:
    """Return the endpoint with which the check connects to other members."""
    session = host.session
    return Endpoint(
        identity=host.membership().identity,
        roster=session.roster,
        session_digest=session.digest,
        session=session.canonical,
        web=host.options.web or DEFAULT,
    )


async def _port(host: Host, endpoint: Endpoint | None) -> Line:
    """Return the result of checking the member's port, which this member's own process may use."""
    line, is_used = await asyncio.to_thread(host.port)
    if not is_used or endpoint is None:
        return line
    member = host.member
    if member.role == "party" and host.session.topology != "direct":
        return Line("port", "note", line.text, "Right while this party runs. Otherwise: " + line.todo)
    # Behind a web server the listener itself speaks no TLS: it is called as others call it.
    address = None if is_web_address(member.address or "") else host.options.listen
    own = Inquirer(endpoint, host.session, member, host.path.name, address)
    states = {one.check: one for one in await own.lines()}
    address = host.options.listen or member.address
    if (digest := states.get("digest")) is None:
        return line
    listens = f"{address}: '{member.name}' listens there"
    if digest.state == "ok":
        return Line("port", "ok", f"{listens}, with this session file")
    return Line("port", "fix", f"{listens}: {digest.text}", digest.todo)


async def _connection(host: Host, endpoint: Endpoint | None, peer: Member) -> list[Line]:
    """Return the results of trying to connect to one other member."""
    lines: list[Line] = []
    if endpoint is not None:
        lines = await Inquirer(endpoint, host.session, peer, host.path.name).lines()
    checked = {line.check for line in lines}
    checks = connection_checks(is_web=is_web_address(peer.address or ""))
    rest = [check for check in checks if check not in checked]
    return [*lines, *(Line(check, "skipped", SKIPPED, member=peer.name) for check in rest)]
