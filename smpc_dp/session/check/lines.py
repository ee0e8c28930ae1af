"""Lines of a check: what was checked, its state, and what to do about it."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

State = Literal["ok", "note", "fix", "skipped"]
# Of this host, and of the connection to each member that this one calls, in the order of a check.
HostCheck = Literal[
    "session", "clock", "key", "key folder", "ledger folder", "ledger", "logs", "temporary files", "port"
]
ConnectionCheck = Literal["name", "tcp", "channel", "versions", "digest", "clock", "connection"]
CONNECTION_CHECKS: tuple[ConnectionCheck, ...] = get_args(ConnectionCheck)

SKIPPED = "not checked: correct the lines above first"


class Line(msgspec.Struct, frozen=True):
    """One line of a check.

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


def brief(content: bytes) -> str:
    """Return the first 16 digits of a key or digest, where the whole is elsewhere."""
    return f"{content.hex()[:16]}…"
