"""State that a party stores about the session logs of its session, and bounds on what it is shown.

It is a module of its own, so that a party whose runs have no log loads nothing of logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest

MOST_BEHIND = 10_000
"""Lines that a party may have missed, at most: they go in one message."""
LINE_BYTES = 96
"""Of one line in a message, at most."""


def scope_of_group(session_digest: bytes, names: Sequence[str]) -> bytes:
    """Return the digest that identifies a group of parties in a session, from the names of its members."""
    return digest(Label.SUB_SESSION, session_digest, *(name.encode() for name in names))


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State of a session log as a member has seen it: the last run it signed, the last one it saw closed."""

    number: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    head: bytes = b""
    closed: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    closed_head: bytes = b""


NOTHING_SEEN = Seen()
