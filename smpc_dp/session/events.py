"""Events of a running party for its watcher and its log: never a secret, never a value."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from smpc_dp.errors import MOST_ERROR, MOST_TEXT, Code, SmpcError, printable

if TYPE_CHECKING:
    from smpc_dp.engine.run import RunningRole

__all__ = ["Event", "Kind", "OnEvent"]

Kind = Literal[
    "connected", "refused", "waiting", "warned", "step", "lost", "traffic", "done", "failed", "ended"
]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Event that a member reports to its watcher: what happened, in which request, to whom.

    `step` is the step in which the party waits and `waiting` for how many others; `detail` is one line of
    text. Both are made `printable`. The last event of a process is "done", with `survivors` and `absent`, or
    "failed"; of a process that could send neither the launcher reports "ended", with the way in `detail`.
    `until`: of "waiting", the local time at which the wait ends. `code`: of the error of a failed request.
    A connection that ends is "traffic", also after the last event:
    bytes of whole messages `sent` to and `received` from the member in `detail`.
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
    sent: int = 0
    received: int = 0
    until: str = ""

    def __post_init__(self) -> None:
        # Both may quote another member; what is decoded may be of another process.
        for name, most in (("step", MOST_TEXT), ("detail", MOST_ERROR)):
            if (shown := printable(text := getattr(self, name), most)) is not text:
                msgspec.structs.force_setattr(self, name, shown)

    @property
    def text(self) -> str:
        """Return a sentence that says what happened, without naming member and request."""
        return {
            "connected": f"connected to {self.detail}",
            "refused": f"refused {self.detail}",
            "waiting": f"waits for {self.detail}{self._wait_text}",
            "warned": self.detail,
            "step": f"{self.step}: waits for {self.waiting}" if self.waiting else self.step,
            "lost": f"lost {self.detail}",
            "traffic": f"sent {self.sent} bytes to {self.detail}, received {self.received}",
            "done": "done",
            "failed": f"failed with code {self.code}" if self.code else "failed",
            "ended": self.detail,
        }[self.kind]

    @property
    def _wait_text(self) -> str:
        """Text on the step that is waited for, and until when; "" if unknown."""
        if not self.until:
            return ""
        step = f"in step '{self.step}'" if self.step else "to connect"
        return f" {step}, until {self.until}"


OnEvent = Callable[[Event], None]

_LOG = logging.getLogger("smpc_dp.session")
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
    """Return the event that warns that another process has used this member's key."""
    reason = f"{peer} says that our key is used twice: another process has tried to connect in our name"
    return Event(party, "warned", detail=reason)


def ignore(_event: Event) -> None:
    """Do nothing with an event: the default when nobody watches."""


def both(first: OnEvent, second: OnEvent) -> OnEvent:
    """Return a function that passes each event to both of two watchers."""

    def watch(event: Event) -> None:
        first(event)
        second(event)

    return watch


def with_logging(on_event: OnEvent) -> OnEvent:
    """Return a watcher that also writes each event, except traffic, to the program's log.

    It also logs the beginning of requests.
    """
    begun = 0

    def watch(event: Event) -> None:
        nonlocal begun
        if event.kind == "step" and event.request > begun:
            begun = event.request
            _LOG.info("%s: request %d: begins", event.party, event.request)
        if event.kind != "traffic":
            _log(event)
        on_event(event)

    return watch


def _log(event: Event) -> None:
    """Write an event to the program's log."""
    request = f"request {event.request}: " if event.request else ""
    more = ""
    if event.kind == "done":
        more = f", {len(event.survivors)} took part" if event.survivors else ""
        more += f", without {', '.join(event.absent)}" if event.absent else ""
    # Only the error, raised to the caller, has details of the member's own files and data.
    if event.kind in ("step", "done", "failed") and event.detail and event.code != Code.OWN:
        more += f": {event.detail}"
    _LOG.log(_LEVELS[event.kind], "%s: %s%s%s", event.party, request, event.text, more)


def notify(
    on_event: OnEvent, kind: Kind, request: int, machine: RunningRole, detail: str | SmpcError = ""
) -> None:
    """Report to a watcher a run's step, how many members it waits for, and a detail or an error."""
    code = detail.code if isinstance(detail, SmpcError) else ""
    on_event(Event(machine.name, kind, request, machine.step, machine.waiting_count, str(detail), code))
