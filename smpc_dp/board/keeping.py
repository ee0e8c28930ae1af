"""What keeps logs: of runs, and the session logs that list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from smpc_dp.board.log import Entry, Header
from smpc_dp.board.runs import RunLine, SessionLog


class Board(Protocol):
    """Where a log is kept. Each method returns when it is, durably if that is what it is for."""

    @property
    def session(self) -> str:
        """The canonical JSON of the session, for the header."""

    def runs(self, session: bytes, scope: bytes) -> SessionLog:
        """Return the session log of a scope; `session` is the session digest."""

    def head_of(self, run: RunLine) -> bytes:
        """Return the last head of the log of an earlier run, `board.runs.NO_HEAD` if there is none."""

    def begin(self, header: Header) -> None:
        """Keep the header of a new log."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep the next entries."""
