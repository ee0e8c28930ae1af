"""Live progress of the processes of a session: one line a party."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from smpc_dp.cli.output import progress_console
from smpc_dp.protocols.secagg.messages import AGGREGATOR_STEPS, PARTY_STEPS
from smpc_dp.runtime.events import Event

_STATES = {"connected": "connected", "refused": "refused", "lost": "lost", "done": "done", "failed": "failed"}
_STYLES = {"done": "green", "failed": "red", "lost": "yellow", "refused": "red"}


class LiveBoard:
    """A table that follows the events of every member; plain lines where there is no terminal."""

    def __init__(self, names: Sequence[str], quiet: bool = False) -> None:
        self._console = progress_console()
        self._names = list(names)
        self._last: dict[str, Event] = {}
        self._notes: dict[str, str] = {}
        self._quiet = quiet
        self._live: Live | None = None
        self._printed: dict[str, str] = {}
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=10)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, event: Event) -> None:
        """Take one event."""
        if event.kind in ("refused", "lost"):
            self._notes[event.party] = f"{event.kind} {event.detail}"
        else:
            self._last[event.party] = event
        if self._live is None and not self._quiet:
            self._print(event)

    def note(self, party: str, text: str) -> None:
        """Show a remark beside a party."""
        self._notes[party] = text
        if self._live is None and not self._quiet:
            self._console.print(f"{party}: {text}")

    def _print(self, event: Event) -> None:
        """Print what changed; a step is printed once, not for each message that it waits for."""
        text = event.step if event.kind == "step" else f"{_STATES[event.kind]} {event.detail}".strip()
        if self._printed.get(event.party) != text:
            self._printed[event.party] = text
            self._console.print(f"{event.party}: {text}")

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("member", "progress", "state", ""):
            table.add_column(heading)
        for name in self._names:
            event = self._last.get(name)
            note = self._notes.get(name, "")
            if event is None:
                table.add_row(name, _bar(0), "starting", Text(note))
                continue
            state = event.step if event.kind == "step" else _STATES[event.kind]
            if event.kind == "step" and event.waiting:
                state += f" (waits for {event.waiting})"
            style = _STYLES.get(event.kind, "")
            detail = event.detail if event.kind == "failed" else note
            table.add_row(name, _bar(_place(event)), state, Text(detail[:80]), style=style)
        return table


def _place(event: Event) -> int:
    for steps in (PARTY_STEPS, AGGREGATOR_STEPS):
        if event.step in steps:
            return steps.index(event.step)
    return len(PARTY_STEPS) if event.kind == "done" else 0


def _bar(done: int) -> str:
    return "■" * done + "·" * (len(PARTY_STEPS) - done)
