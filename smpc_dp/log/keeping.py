"""Interface of a store for logs of runs and their session logs, and its implementation in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from smpc_dp.log.log import Entry, Header, encode_line, first_head, next_head
from smpc_dp.log.runs import NO_HEAD, MemorySessionLog, RunLine, SessionLog


class Board(Protocol):
    """Interface of a store for logs.

    Methods that store return when the data are stored, durably where needed.
    """

    @property
    def session(self) -> str:
        """Canonical JSON of the session, for the header."""

    def runs(self, session: bytes, scope: bytes) -> SessionLog:
        """Return the session log of a scope; `session` is the session digest."""

    def head_of(self, run: RunLine) -> bytes:
        """Return the last head of the log of an earlier run, `log.runs.NO_HEAD` if there is none."""

    def begin(self, header: Header) -> None:
        """Store the header of a new log."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Store the next entries."""


class MemoryBoard:
    """Board in memory: the lines of one log, without line feeds, header first; a new log replaces it."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.lines: list[bytes] = []
        self._session_logs: dict[bytes, MemorySessionLog] = {}
        self._heads: dict[str, bytes] = {}
        self._run_id = ""

    def runs(self, session: bytes, scope: bytes) -> MemorySessionLog:
        """Return the session log of a scope."""
        return self._session_logs.setdefault(scope, MemorySessionLog(session, scope))

    def head_of(self, run: RunLine) -> bytes:
        """Return the last head of the log of a run, `NO_HEAD` if there is none."""
        return self._heads.get(run.run_id, NO_HEAD)

    def begin(self, header: Header) -> None:
        """Store the header of a new log."""
        self.lines = [encode_line(header)]
        self._run_id = header.run_id
        self._heads[self._run_id] = first_head(self.lines[0])

    def append(self, entries: Sequence[Entry]) -> None:
        """Store the next entries."""
        self.lines += [encode_line(entry) for entry in entries]
        digests = [entry.digest() for entry in entries]
        self._heads[self._run_id] = next_head(self._heads[self._run_id], digests)

    def export(self) -> bytes:
        """Return the log as JSON lines."""
        return b"".join(line + b"\n" for line in self.lines)
