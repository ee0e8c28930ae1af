"""The session file: one TOML text that all members of a session share.

It names the protocol, its parameters and the roster. It is checked completely before any socket opens, and
all faults are reported at once. `digest` covers everything that members must agree on: protocol, version,
parameters and the roster with its addresses. Timeouts are each member's own and are left out.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, TypeVar, cast

from smpc_dp import extensions
from smpc_dp.decoding import from_base64
from smpc_dp.encoding import shown
from smpc_dp.engine.registry import built_in_protocols, find_protocol, protocol_in, session_protocol
from smpc_dp.engine.session_protocol import RECORDS, CheckedParameters, SessionProtocol, Topology, no_servers
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.files import read_bounded
from smpc_dp.identity.roster import ROLES, Member, Role, Roster, entry_of
from smpc_dp.records.party_names import with_party_names
from smpc_dp.session.toml_text import toml, toml_key
from smpc_dp.values import decoded
from smpc_dp.wire.canonical_session import (
    MAX_DEPTH,
    SURROGATE,
    canonical_session,
    session_digest,
    session_json,
)

__all__ = ["SessionFile", "Timeouts", "load_session", "parse_session", "write_session"]

T = TypeVar("T")

MAX_FILE_BYTES = 64 << 20
MAX_TIMEOUT = 86_400.0
# A file of megabytes may have a fault in every few bytes: about so many are listed.
MAX_FAULTS = 1000
_TOP = ("protocol", "version", "parameters", "timeouts", "roster")
_TIMEOUTS = ("connect", "step", "gather")
_ENTRY = ("name", "role", "address", "public_key", "certificate", "checkpoint_key")
_KINDS: dict[type, str] = {str: "a string", int: "an integer", dict: "a table", list: "an array of tables"}
_SYNTAX = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of a session in seconds: to connect, for each step, and to wait for other parties.

    Attributes:
        connect: the time in which a party tries to connect, and the others wait until all have.
        step: the time that a party has for one step.
        gather: the wait of an early hello until enough others ask to open the request, and then for the rest.
    """

    connect: float = 300.0
    step: float = 30.0
    gather: float = 300.0


@dataclass(frozen=True, slots=True)
class SessionFile:
    """Content of a checked session file: protocol, parameters, members and time limits.

    `parameters` is as written, `checked_parameters` the result of the protocol's checker.
    """

    protocol: str
    version: int
    parameters: Mapping[str, object]
    checked_parameters: CheckedParameters
    timeouts: Timeouts
    roster: Roster
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", session_digest(self.canonical_json()))

    @property
    def described(self) -> SessionProtocol:
        """Description of the session's protocol, as the registry has it."""
        return session_protocol(self.protocol)

    @property
    def topology(self) -> Topology:
        """How the members connect: through an aggregator, directly, as two, or to servers."""
        return self.described.topology(self.parameters)

    @property
    def is_logged(self) -> bool:
        """Whether each run of the session writes a public log."""
        return self.described.is_logged(self.parameters)

    def canonical(self) -> dict[str, object]:
        """Return the session's content that all members must agree on, as JSON types."""
        return canonical_session(self.protocol, self.version, self.parameters, self.roster)

    def canonical_json(self) -> bytes:
        """Return the session's content as canonical JSON bytes, whose hash members compare."""
        return session_json(self.canonical())


def load_session(path: str | os.PathLike[str], *, audited: bool = False) -> SessionFile:
    """Read and check a session file from disk; raise ConfigError that lists all faults.

    `audited`: to check what others have logged; then also one of an earlier version, which nobody runs.

    Raises LocalError when it cannot be read.
    """
    content = read_bounded(path, "the session file", MAX_FILE_BYTES)
    return parse_session(decoded(content, str(path)), str(path), audited=audited)


def parse_session(text: str, source: str = "session", *, audited: bool = False) -> SessionFile:
    """Check the text of a session file, and return its content; `source` is named in errors.

    Raises ConfigError that lists every fault with its line (syntax) or key path (content).
    """
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ConfigError.at(source, "nested too deeply", ConfigCheck.FORMAT) from None
    except ValueError as error:
        raise ConfigError([_syntax_issue(error, text, source)]) from None
    return check_document(document, audited=audited)


@dataclass(frozen=True, slots=True)
class Outline:
    """Content of a session file that is checked, except that its parameters are not planned."""

    protocol: str
    version: int
    parameters: Mapping[str, object]
    timeouts: Timeouts
    roster: Roster | None
    # The parties' names, in order; empty where there is nothing to plan.
    names: Sequence[str]


def check_document(document: Mapping[str, object], *, audited: bool = False) -> SessionFile:
    """Check a session given as parsed data, and return its content; raise ConfigError if invalid.

    Raises ConfigError that lists every fault with its key path.
    """
    issues: list[ConfigIssue] = []
    read = _outline(document, issues, audited=audited)
    checked = None
    if read.names:
        checked = plan_parameters(read.protocol, read.version, read.parameters, read.names, issues)
    if issues or read.roster is None:
        raise ConfigError(issues)
    planned = cast("CheckedParameters", checked)
    return SessionFile(read.protocol, read.version, read.parameters, planned, read.timeouts, read.roster)


def check_outline(document: Mapping[str, object]) -> tuple[Outline, Roster]:
    """Check a session's content but for planning; return (outline, roster), or raise ConfigError."""
    issues: list[ConfigIssue] = []
    read = _outline(document, issues, audited=True)
    if issues or read.roster is None:
        raise ConfigError(issues)
    return read, read.roster


def _outline(document: Mapping[str, object], issues: list[ConfigIssue], *, audited: bool) -> Outline:
    """Check a session's content without planning; append faults to `issues`, and return the content."""
    issues += _unknown(document, _TOP, "")
    protocol, version = _protocol(document, issues, audited=audited)
    timeouts = _timeouts(document.get("timeouts", {}), issues)
    members, names = _members(document, issues)
    roster: Roster | None = None
    if members is not None:
        given = document.get("parameters")
        table = given if isinstance(given, dict) else {}
        described, known = find_protocol(protocol), protocol_in(protocol, version)
        needed = known is not None and known.topology(table) == "aggregator"
        roster, result = Roster.checked(members, requires_aggregator=needed)
        issues += result
        issues += (no_servers if described is None else described.roster_issues)(protocol, table, members)
    parameters = read_parameters(document, issues)
    if parameters is None:
        parameters, names = {}, []
    return Outline(protocol, version, parameters, timeouts, roster, names)


def write_session(
    path: str | os.PathLike[str],
    protocol: str,
    version: int,
    parameters: Mapping[str, object],
    members: Iterable[Member],
    timeouts: Timeouts | None = None,
) -> None:
    """Check a session's content, and write it to a file, over an existing one; raise an error on failure.

    Raises ConfigError when the content is wrong, LocalError when it cannot be written.
    """
    text = session_text(protocol, version, parameters, members, timeouts)
    parse_session(text, str(path))
    try:
        Path(path).write_bytes(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise ConfigError.at(
            "parameters", "a string holds what Unicode cannot carry", ConfigCheck.FORMAT
        ) from None
    except OSError as error:
        raise LocalError(f"{path}: cannot write the session file ({error.strerror})") from None


def session_text(
    protocol: str,
    version: int,
    parameters: Mapping[str, object],
    members: Iterable[Member] = (),
    timeouts: Timeouts | None = None,
    comments: Mapping[str, str] | None = None,
) -> str:
    """Return the TOML text of a session file, unchecked, with optional comments on keys."""
    lines = [
        f"protocol = {toml(protocol, 'protocol')}",
        f"version = {toml(version, 'version')}",
        *_table_lines("parameters", parameters, "", comments or {}),
    ]
    if timeouts is not None:
        lines += ["", "[timeouts]  # seconds"]
        lines += [f"{key} = {getattr(timeouts, key)!r}" for key in _TIMEOUTS]
    for member in members:
        lines += ["", roster_entry(member)]
    return "\n".join(lines) + "\n"


def _table_lines(
    name: str, table: Mapping[str, object], within: str, comments: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of a TOML table, and of the tables nested in it."""
    yield from ("", f"[{name}]")
    inner = {
        key: value
        for key, value in table.items()
        if isinstance(value, Mapping) and any(isinstance(one, Mapping) for one in value.values())
    }
    for key, value in table.items():
        if key not in inner:
            comment = comments.get(f"{within}{key}")
            line = f"{toml_key(key)} = {toml(value, f'parameters.{within}{key}')}"
            yield line if comment is None else f"{line}  # {comment}"
    for key, value in inner.items():
        yield from _table_lines(f"{name}.{toml_key(key)}", value, f"{within}{key}.", comments)


def roster_entry(member: Member) -> str:
    """Return a member's `[[roster]]` table as TOML text for a session file."""
    lines = [f"{key} = {toml(value, f'roster.{key}')}" for key, value in entry_of(member).items()]
    return "\n".join(["[[roster]]", *lines])


def _syntax_issue(error: ValueError, text: str, source: str) -> ConfigIssue:
    """Return the fault of a TOML syntax error, with its line number."""
    match = _SYNTAX.fullmatch(str(error))
    if "set_int_max_str_digits" in str(error):
        return ConfigIssue(source, "an integer has too many digits", ConfigCheck.FORMAT)
    if match is None:
        return ConfigIssue(source, str(error), ConfigCheck.FORMAT)
    line = match[2] or str(text.count("\n") + 1)
    return ConfigIssue(f"{source}:{line}", match[1], ConfigCheck.FORMAT)


def _protocol(document: Mapping[str, object], issues: list[ConfigIssue], *, audited: bool) -> tuple[str, int]:
    """Return (protocol, version) that a session names; append faults for unknown ones."""
    protocol = _required(document, "protocol", str, "", issues)
    version = _required(document, "version", int, "", issues)
    if protocol is not None and version is not None:
        check_protocol(protocol, version, issues, audited=audited)
    return protocol or "", version or 0


def check_protocol(protocol: str, version: int, issues: list[ConfigIssue], *, audited: bool) -> None:
    """Append a fault to `issues` if the protocol or its version is unknown or cannot be run."""
    described = find_protocol(protocol)
    if described is None or not described.versions:
        known = ", ".join(
            f"{name} {number}"
            for name, number in sorted(
                (one.name, number) for one in built_in_protocols() for number in one.versions
            )
        )
        others = extensions.describe_others(extensions.Group.PROTOCOLS)
        reason = f"{protocol!r} is unknown, the known ones are {known}{others}"
        issues.append(ConfigIssue("protocol", reason, ConfigCheck.CHOICE))
    elif described.checker(version) is None or (version in described.audited and not audited):
        issues.append(ConfigIssue("version", _other_version(described, version), ConfigCheck.CHOICE))


def _other_version(described: SessionProtocol, version: int) -> str:
    """Return text on why this version of a protocol cannot be run."""
    if 0 < version < described.version:
        audited = "logs of it can be audited, " if version in described.audited else ""
        return (
            f"{version} is of an earlier release: {audited}no session of it is run; write version = "
            f"{described.version} of '{described.name}', when all members have this release"
        )
    versions = " or ".join(map(str, sorted(described.versions)))
    return f"{shown(version)} is unknown; this release reads version {versions} of '{described.name}'"


def _timeouts(table: object, issues: list[ConfigIssue]) -> Timeouts:
    """Return the time limits of a session file; append faults for invalid ones."""
    if not isinstance(table, dict):
        issues.append(ConfigIssue("timeouts", "not a table", ConfigCheck.TYPE))
        return Timeouts()
    values: dict[str, float] = {}
    for key, value in table.items():
        if key not in _TIMEOUTS:
            issues.append(
                ConfigIssue(
                    f"timeouts.{key}",
                    f"unknown key, the known ones are {', '.join(_TIMEOUTS)}",
                    ConfigCheck.UNKNOWN_KEY,
                )
            )
        elif isinstance(value, bool) or not isinstance(value, int | float):
            issues.append(
                ConfigIssue(f"timeouts.{key}", f"not a number of seconds: {value!r}", ConfigCheck.TYPE)
            )
        elif not 0 < value <= MAX_TIMEOUT:
            issues.append(
                ConfigIssue(
                    f"timeouts.{key}",
                    f"{shown(value)} is not above 0 and at most {MAX_TIMEOUT:.0f} seconds",
                    ConfigCheck.TOO_LARGE,
                )
            )
        else:
            values[key] = float(value)
    return Timeouts(**values)


def read_parameters(document: Mapping[str, object], issues: list[ConfigIssue]) -> Mapping[str, object] | None:
    """Return a session's parameters as written, or None with faults appended if malformed."""
    table = _required(document, "parameters", dict, "", issues)
    if table is None:
        return None
    parameters = cast("dict[str, object]", table)
    unfit = [*itertools.islice(_not_json("parameters", parameters), MAX_FAULTS)]
    if len(parameters) > MAX_FAULTS:
        unfit.append(
            ConfigIssue(
                "parameters", f"has {len(parameters)} keys, more than {MAX_FAULTS}", ConfigCheck.TOO_LARGE
            )
        )
    issues += unfit
    return None if unfit else parameters


def plan_parameters(
    protocol: str,
    version: int,
    parameters: Mapping[str, object],
    names: Sequence[str],
    issues: list[ConfigIssue],
) -> Any:
    """Return a session's checked and planned parameters, or None with faults appended to `issues`.

    Returns None if they are wrong, or the protocol is unknown; `issues` has the faults. This can take
    seconds.
    """
    described = find_protocol(protocol)
    check = None if described is None else described.checker(version)
    if described is None or check is None:
        return None
    if RECORDS in parameters:
        filled, faults = with_party_names(parameters[RECORDS], names, f"parameters.{RECORDS}")
        issues += faults
        parameters = {**parameters, RECORDS: filled}
    checked, result = check(parameters, names if described.named else len(names))
    issues += [
        ConfigIssue(where if where == "roster" else f"parameters.{where}", reason, check)
        for where, reason, check in result
    ]
    return checked


def _members(
    document: Mapping[str, object], issues: list[ConfigIssue]
) -> tuple[list[Member] | None, list[str]]:
    """Return (roster's members, None if any is malformed; parties' names); append faults to `issues`."""
    listed = _required(document, "roster", list, "", issues)
    if listed is None:
        return None, []
    members: list[Member | None] = []
    for position, entry in enumerate(listed):
        members.append(read_member(f"roster[{position}]", entry, issues))
        if len(issues) >= MAX_FAULTS:
            issues.append(ConfigIssue("roster", "what else is wrong is not listed", ConfigCheck.MORE))
            return None, []
    entries = [entry for entry in listed if isinstance(entry, dict)]
    names = [str(entry.get("name")) for entry in entries if entry.get("role") == "party"]
    complete = [member for member in members if member is not None]
    return (complete if len(complete) == len(members) else None), names


def read_member(where: str, entry: object, issues: list[ConfigIssue]) -> Member | None:
    """Convert a roster entry to a member; None, with faults appended, if it is malformed."""
    if not isinstance(entry, dict):
        issues.append(ConfigIssue(where, "not a table: write [[roster]]", ConfigCheck.TYPE))
        return None
    before = len(issues)
    issues += _unknown(entry, _ENTRY, where)
    name = _required(entry, "name", str, where, issues)
    role = _required(entry, "role", str, where, issues)
    address = _required(entry, "address", str, where, issues) if "address" in entry else None
    key_text = _required(entry, "public_key", str, where, issues)
    certificate_text = _required(entry, "certificate", str, where, issues)
    if role is not None and role not in ROLES:
        issues.append(
            ConfigIssue(f"{where}.role", f"{role!r} is none of {', '.join(ROLES)}", ConfigCheck.CHOICE)
        )
    public_key = None if key_text is None else _key(f"{where}.public_key", key_text, issues)
    certificate = checkpoint_key = None
    if "checkpoint_key" in entry:
        checkpoint_text = _required(entry, "checkpoint_key", str, where, issues)
        if checkpoint_text is not None:
            checkpoint_key = _key(f"{where}.checkpoint_key", checkpoint_text, issues)
    if certificate_text is not None:
        certificate = from_base64(certificate_text)
        if certificate is None:
            issues.append(ConfigIssue(f"{where}.certificate", "not base64", ConfigCheck.FORMAT))
    if len(issues) > before or name is None or public_key is None or certificate is None:
        return None
    return Member(name, cast("Role", role), address, public_key, certificate, checkpoint_key)


def _key(where: str, text: str, issues: list[ConfigIssue]) -> bytes | None:
    """Decode a public key from hex; append a fault and return None for other text."""
    if re.fullmatch(r"[0-9a-f]{64}", text):
        return bytes.fromhex(text)
    issues.append(ConfigIssue(where, "not 64 lower-case hex digits", ConfigCheck.FORMAT))
    return None


def _unknown(table: Mapping[str, object], known: Sequence[str], where: str) -> list[ConfigIssue]:
    """Return a fault for each key of a table that is not among the known ones."""
    reason = f"unknown key, the known ones are {', '.join(known)}"
    keys = itertools.islice((key for key in table if key not in known), MAX_FAULTS)
    return [ConfigIssue(f"{where}.{key}" if where else key, reason, ConfigCheck.UNKNOWN_KEY) for key in keys]


def _required(
    table: Mapping[str, object], key: str, kind: type[T], where: str, issues: list[ConfigIssue]
) -> T | None:
    """Return a table's required value of this type; append a fault and return None without one."""
    path = f"{where}.{key}" if where else key
    value = table.get(key)
    if key not in table:
        issues.append(ConfigIssue(path, "missing", ConfigCheck.MISSING))
    elif not isinstance(value, kind) or isinstance(value, bool):
        issues.append(
            ConfigIssue(path, f"{_KINDS[kind]} is needed, not {type(value).__name__}", ConfigCheck.TYPE)
        )
    else:
        return value
    return None


def _not_json(where: str, value: object, depth: int = 0) -> Iterator[ConfigIssue]:
    """Yield a fault for each nested value that canonical JSON cannot represent."""
    if depth > MAX_DEPTH:
        yield ConfigIssue(
            where, f"more than {MAX_DEPTH} tables and arrays within each other", ConfigCheck.TOO_LARGE
        )
    elif isinstance(value, float) and not math.isfinite(value):
        yield ConfigIssue(where, f"{value} is not a finite number", ConfigCheck.RANGE)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if SURROGATE.search(key):
                yield ConfigIssue(where, f"the key {key!r} is no Unicode text", ConfigCheck.FORMAT)
            else:
                yield from _not_json(f"{where}.{key}", inner, depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _not_json(f"{where}[{index}]", inner, depth + 1)
    elif isinstance(value, str):
        if SURROGATE.search(value):
            yield ConfigIssue(where, f"{value[:40]!r} is no Unicode text", ConfigCheck.FORMAT)
    elif not isinstance(value, int | float):
        quoted = ": write it in quotes" if isinstance(value, date) else ""
        reason = f"a {type(value).__name__} cannot be a parameter{quoted}"
        yield ConfigIssue(where, reason, ConfigCheck.TYPE)
