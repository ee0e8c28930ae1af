"""What a running party tells whoever watches it, and its log: never a secret, never a value."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from smpc_dp.errors import Code, SmpcError

if TYPE_CHECKING:
    from smpc_dp.protocols.engine.run import Machine

Kind = Literal["connected", "refused", "waiting", "warned", "step", "lost", "done", "failed", "ended"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened to `party` in request number `request` (0: outside of any).

    `step` is what the party waits in and `waiting` for how many others; `detail` is one line of text. The
    last event of a process is "done", with `survivors` and `absent`, or "failed"; of one that could say
    neither the launcher tells "ended", and how in `detail`. `code`: of the error with which a request failed.
    """

    party: str
    kind: Kind
    request: int = 0
    step: str = ""
    waiting: int = 0
    detail: str = ""
    code: str = ""
    survivors: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What happened, in words, without party and request."""
        return {
            "connected": f"connected to {self.detail}",
            "refused": f"refused {self.detail}",
            "waiting": f"waits for {self.detail}",
            "warned": self.detail,
            "step": f"{self.step}: waits for {self.waiting}" if self.waiting else self.step,
            "lost": f"lost {self.detail}",
            "done": "done",
            "failed": f"failed with code {self.code}" if self.code else "failed",
            "ended": self.detail,
        }[self.kind]


OnEvent = Callable[[Event], None]

_LOG = logging.getLogger("smpc_dp.net")
_LEVELS: dict[Kind, int] = {
    "connected": logging.INFO,
    "refused": logging.WARNING,
    "waiting": logging.INFO,
    "warned": logging.WARNING,
    "step": logging.DEBUG,
    "lost": logging.WARNING,
    "done": logging.INFO,
    "failed": logging.ERROR,
    "ended": logging.ERROR,
}


def warning(party: str, peer: str) -> Event:
    """Return the event of a peer that says that somebody else has called it with our key."""
    reason = f"{peer} says that our key is used twice: another process has tried to connect in our name"
    return Event(party, "warned", detail=reason)


def ignore(_event: Event) -> None:
    """Watch nothing."""


def logged(on_event: OnEvent) -> OnEvent:
    """Return what logs each event of one member, and that a request begins, before it tells `on_event`."""
    begun = 0

    def watch(event: Event) -> None:
        nonlocal begun
        if event.kind == "step" and event.request > begun:
            begun = event.request
            _LOG.info("%s: request %d: begins", event.party, event.request)
        _log(event)
        on_event(event)

    return watch


def _log(event: Event) -> None:
    request = f"request {event.request}: " if event.request else ""
    more = ""
    if event.kind == "done":
        more = f", {len(event.survivors)} took part" if event.survivors else ""
        more += f", without {', '.join(event.absent)}" if event.absent else ""
    # What depends on the member's own files and data is said by the error alone, to who has called.
    if event.kind in ("step", "done", "failed") and event.detail and event.code != Code.OWN:
        more += f": {event.detail}"
    _LOG.log(_LEVELS[event.kind], "%s: %s%s%s", event.party, request, event.text, more)


def notify(
    on_event: OnEvent, kind: Kind, request: int, machine: Machine, detail: str | SmpcError = ""
) -> None:
    """Tell what a machine waits for, or with which error it failed."""
    code = detail.code if isinstance(detail, SmpcError) else ""
    on_event(Event(machine.name, kind, request, machine.step, len(machine.waiting_for), str(detail), code))
