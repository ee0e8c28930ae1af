"""Live progress: a table of a session's processes, one line per party, and a bar for a single process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from smpc_dp.console.output import progress_console
from smpc_dp.engine.phases.messages import AGGREGATOR_STEPS, ATTEST_TOTAL, PARTY_STEPS
from smpc_dp.engine.registry import built_in_protocols
from smpc_dp.session.events import Event

_WAITS = "waits for "
_STYLES = {"done": "green", "failed": "red", "ended": "red", "lost": "yellow", "refused": "red"}


class LiveBoard:
    """Terminal display of all members' progress in a run: a live table, or plain lines without terminal.

    The first of `names` is the aggregator or coordinates: of it the lines tell every step, of others how they
    end.
    """

    def __init__(self, names: Sequence[str], quiet: bool = False) -> None:
        self._console = progress_console()
        self._names = list(names)
        self._last: dict[str, Event] = {}
        self._notes: dict[str, str] = {}
        self._quiet = quiet
        self._live: Live | None = None
        self._printed: dict[str, str] = {}
        self._steps: set[tuple[int, str]] = set()
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
        """Show an event of a member in the display; events about traffic are ignored."""
        if event.kind == "traffic":
            return
        if event.kind in ("refused", "lost", "warned", "waiting"):
            self._notes[event.party] = _inbound(event)
        else:
            self._last[event.party] = event
            if self._notes.get(event.party, "").startswith(_WAITS):
                del self._notes[event.party]
        if self._live is None and not self._quiet:
            self._print(event)

    def begin(self, heading: str) -> None:
        """Clear the display of progress for another run, and print a heading unless quiet."""
        self._last.clear()
        self._notes.clear()
        self._printed.clear()
        self._steps.clear()
        if not self._quiet:
            self._console.print(heading)

    def _print(self, event: Event) -> None:
        """Print the change that an event brings as a line; a step only of the first member, and once."""
        if event.party != self._names[0] and event.kind in ("step", "connected", "waiting"):
            return
        text = _inbound(event)
        if event.kind == "step":
            # "done" follows as an event of its own.
            if event.step == "done" or (event.request, event.step) in self._steps:
                return
            self._steps.add((event.request, event.step))
            text = event.step
        if self._printed.get(event.party) != text:
            self._printed[event.party] = text
            self._console.print(f"{event.party}: {text}")

    def _table(self) -> Table:
        """Return the table of all members and their present steps, to draw in the terminal."""
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("member", "progress", "state", ""):
            table.add_column(heading)
        for name in self._names:
            event = self._last.get(name)
            note = self._notes.get(name, "")
            if event is None:
                table.add_row(name, _bar(0), "starting", Text(note))
                continue
            state = event.step if event.kind == "step" else event.kind
            if event.kind == "step" and event.waiting:
                state += f" (waits for {event.waiting})"
            style = _STYLES.get(event.kind, "")
            detail = event.detail if event.kind in ("failed", "ended") and not note else note
            table.add_row(name, _bar(_index(event)), state, Text(detail[:80]), style=style)
        return table


def _inbound(event: Event) -> str:
    """Return an event that is no step as a short text."""
    if event.kind == "warned":
        return event.detail
    if event.kind == "waiting":
        return _WAITS + event.detail
    return f"{event.kind}{':' if event.kind in ('failed', 'ended') else ''} {event.detail}".strip()


def _index(event: Event) -> int:
    """Return an event's step's index in its list of steps; if in none, the bar's length if done, else 0."""
    for steps in _step_lists():
        if event.step in steps:
            return steps.index(event.step)
    return len(PARTY_STEPS) if event.kind == "done" else 0


def _step_lists() -> Iterator[Sequence[str]]:
    """Yield lists of step names in order: of sums through an aggregator, then of other protocols."""
    yield from ((*PARTY_STEPS, ATTEST_TOTAL), AGGREGATOR_STEPS)
    for protocol in built_in_protocols():
        yield from protocol.steps()


def _bar(done: int) -> str:
    """Return a text bar that shows how many steps of the protocol are done."""
    return "■" * done + "·" * (len(PARTY_STEPS) - done)
