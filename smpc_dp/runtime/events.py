"""What a running party tells whoever watches it: never a secret, never a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

Kind = Literal["connected", "refused", "step", "lost", "done", "failed"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened to `party` in request number `request` (0: outside of any).

    `step` is what the party waits in and `waiting` for how many others; `detail` is one line of text. The
    last event of a process is "done", with `survivors` and `absent`, or "failed".
    """

    party: str
    kind: Kind
    request: int = 0
    step: str = ""
    waiting: int = 0
    detail: str = ""
    survivors: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


OnEvent = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Watch nothing."""
