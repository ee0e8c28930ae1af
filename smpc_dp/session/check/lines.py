"""Lines of a check: what was checked, its state, and what to do about it."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

State = Literal["ok", "note", "fix", "skipped"]
# Of this host, and of the connection to each member that this one calls, in the order of a check.
HostCheck = Literal[
    "session",
    "clock",
    "key",
    "key folder",
    "ledger folder",
    "ledger",
    "state",
    "counter",
    "logs",
    "temporary files",
    "port",
]
ConnectionCheck = Literal[
    "name", "tcp", "proxy", "outer TLS", "upgrade", "channel", "versions", "digest", "clock", "connection"
]
# Of an address `wss://host/path` alone.
HTTPS_CHECKS = frozenset({"proxy", "outer TLS", "upgrade"})

SKIPPED = "not checked: correct the lines above first"


def connection_checks(*, is_web: bool) -> list[ConnectionCheck]:
    """Return the names of the steps that connecting consists of, in order; more for a web address."""
    checks: tuple[ConnectionCheck, ...] = get_args(ConnectionCheck)
    return [check for check in checks if is_web or check not in HTTPS_CHECKS]


class Line(msgspec.Struct, frozen=True):
    """Result of one check on a member's host or connection: state, text, and what to do about it.

    Attributes:
        check: what was checked.
        state: "ok"; "note": runs go on with it; "fix": they do not; "skipped": not checked.
        text: the result.
        todo: what to do, in one or two sentences; empty if that is nothing.
        member: the other end of the connection; empty for this host.
    """

    check: HostCheck | ConnectionCheck
    state: State
    text: str
    todo: str = ""
    member: str = ""


class FailedCheck(Exception):
    """Exception that ends the diagnosis of a connection at the step that failed, with advice."""

    def __init__(self, check: ConnectionCheck, text: str, todo: str) -> None:
        super().__init__(text)
        self.check, self.text, self.todo = check, text, todo


def brief(content: bytes) -> str:
    """Return the first 16 hexadecimal digits of a key or digest, for display."""
    return f"{content.hex()[:16]}…"
