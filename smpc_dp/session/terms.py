"""Terms of a session (its file without members) and the roster entries of members: together the file."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues, LocalError
from smpc_dp.files import read_bounded, replace_file
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member
from smpc_dp.session.session_file import (
    MAX_FILE_BYTES,
    SessionFile,
    parse_session,
    read_member,
    roster_entry,
)
from smpc_dp.values import decoded

# The name that an aggregator has in what `init` writes and advises, so that no party may have it.
AGGREGATOR = "aggregator"
# No session is run with the stand-ins: nobody listens there.
_ADDRESS = "192.0.2.1:1"
_POSITION = re.compile(r"roster\[(\d+)\]")


def check_terms(text: str, parties: Sequence[str]) -> SessionFile:
    """Check a session file without members, adding made-up ones; return the session, or raise ConfigError.

    Raises ConfigError that lists every fault.
    """
    identities = [Identity.generate(name) for name in parties]
    members = [
        Identity.generate(AGGREGATOR).entry("aggregator", _ADDRESS),
        *(one.entry() for one in identities),
    ]
    return parse_session(_with_entries(text, members), "terms")


def assembled(path: str | os.PathLike[str], entries: Iterable[str | os.PathLike[str]]) -> str:
    """Return a checked session file's text, made of terms and entries in files; ConfigError with every fault.

    Raises:
        LocalError: a file cannot be read.
        ConfigError: a file holds anything else than one roster entry, or the session is wrong: every fault,
            one of an entry at its file.
    """
    files = [str(entry) for entry in entries]
    text = decoded(read_bounded(path, "the terms", MAX_FILE_BYTES), str(path))
    result = _with_entries(text, map(read_entry, files))
    try:
        parse_session(result, str(path))
    except ConfigError as error:
        raise ConfigError(_at_files(result, files, error.issues)) from None
    return result


def _at_files(text: str, files: Sequence[str], issues: Iterable[ConfigIssue]) -> Iterator[ConfigIssue]:
    """Yield a session file's faults, with those of added roster entries at the entries' files."""
    for issue in issues:
        named = _POSITION.match(issue.where)
        if named is None:
            yield issue
            continue
        position = int(named[1]) - len(tomllib.loads(text)["roster"])
        yield issue if position < -len(files) else issue._replace(where=f"{files[position]} ({issue.where})")


def read_entry(path: str | os.PathLike[str]) -> Member:
    """Read the single roster entry in a file, as `smpc-dp keygen` prints it; ConfigError for other content.

    Raises:
        LocalError: it cannot be read.
        ConfigError: it holds none, several, or anything else; lists every fault.
    """
    text = decoded(read_bounded(path, "the roster entry", MAX_FILE_BYTES), str(path))
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError.at(str(path), f"no TOML ({error})", ConfigCheck.FORMAT) from None
    issues = Issues()
    for key in document:
        if key != "roster":
            reason = "is no part of a roster entry: terms are in the first file alone"
            issues.add_issue(f"{path}: {key}", reason, ConfigCheck.UNKNOWN_KEY)
    listed = document.get("roster")
    if not isinstance(listed, list) or not listed:
        issues.add_issue(f"{path}: roster", "has no table [[roster]]", ConfigCheck.MISSING)
        listed = []
    if len(listed) > 1:
        # With a second one its sender would have a second member in the session.
        reason = f"has {len(listed)} entries: a file has the one of its sender"
        issues.add_issue(f"{path}: roster", reason, ConfigCheck.CONFLICT)
    members = [
        read_member(f"{path}: roster[{position}]", entry, issues) for position, entry in enumerate(listed)
    ]
    issues.raise_issues()
    [member] = (member for member in members if member is not None)
    return member


def check_new(path: Path) -> None:
    """Raise LocalError if a file exists at this path, or its folder does not exist."""
    if os.path.lexists(path):
        raise LocalError(f"{path}: exists already, and nothing is overwritten")
    if not path.parent.is_dir():
        raise LocalError(f"{path}: cannot write the file (there is no folder {path.parent})")


def write_new(path: Path, text: str) -> None:
    """Write a new file, whole or not at all; raise LocalError if it exists."""
    check_new(path)
    try:
        replace_file(path, lambda file: file.write(text.encode()), new=True)
    except FileExistsError:
        raise LocalError(f"{path}: exists already, and nothing is overwritten") from None
    except OSError as error:
        raise LocalError(f"{path}: cannot write the file ({error.strerror})") from None


def _with_entries(text: str, members: Iterable[Member]) -> str:
    """Return a session file's text with these members' roster entries appended."""
    return "\n\n".join((text.rstrip("\n"), *map(roster_entry, members))) + "\n"
