"""What a running party tells whoever watches it: never a secret, never a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from smpc_dp.protocols.contract import Machine

Kind = Literal["connected", "refused", "waiting", "warned", "step", "lost", "done", "failed", "ended"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened to `party` in request number `request` (0: outside of any).

    `step` is what the party waits in and `waiting` for how many others; `detail` is one line of text. The
    last event of a process is "done", with `survivors` and `absent`, or "failed"; of one that could say
    neither the launcher tells "ended", and how in `detail`.
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


def warning(party: str, peer: str) -> Event:
    """Return the event of a peer that says that somebody else has called it with our key."""
    what = f"{peer} says that our key is used twice: another process has tried to connect in our name"
    return Event(party, "warned", detail=what)


def ignore(_event: Event) -> None:
    """Watch nothing."""


def tell(on_event: OnEvent, kind: Kind, request: int, machine: Machine, detail: str = "") -> None:
    """Tell what a machine waits for, or how it ended."""
    on_event(Event(machine.name, kind, request, machine.step, len(machine.waiting_for), detail))
