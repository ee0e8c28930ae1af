"""Interface of a store for logs of runs and their session logs, and its implementation in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from smpc_dp.errors import LocalError
from smpc_dp.logs.log import (
    Entry,
    Header,
    decode_line,
    encode_line,
    first_head,
    next_head,
    not_next,
    read_header,
)
from smpc_dp.logs.runs import NO_HEAD, CertifiedLine, MemorySessionLog, RunLine, SessionLog, decode_later_line

Line = RunLine | CertifiedLine | Header | Entry
"""What a step adds: a line of the session log, or of the log of the run."""


class Board(Protocol):
    """Interface of storage for the logs of an aggregator's runs; its methods return once data is stored.

    What is there already is kept once; another header or entry in its place is a LocalError.
    """

    @property
    def session(self) -> str:
        """Canonical JSON of the session, which goes into each log's header."""

    def runs(self, session: bytes, scope: bytes) -> SessionLog:
        """Return the list of all runs of a session, or of a group in the session, given by digest `scope`."""

    def head_of(self, run: RunLine) -> bytes:
        """Return the last hash of an earlier run's log; `logs.runs.NO_HEAD` if that has no log."""

    def begin(self, header: Header) -> None:
        """Store the header of a new run's log, which becomes current: entries are appended to that log."""

    def resume(self, run: RunLine) -> tuple[int, bytes]:
        """Make an interrupted run's log current again; return its number of entries and last hash.

        Raises LocalError if there is none.
        """

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries to the current log; return when they are stored."""


def read(line: bytes) -> Line:
    """Decode any line of a session log or of a run's log; raise VerificationError if it is neither."""
    if line.startswith(b'{"sequence"'):
        return decode_line(line, Entry)
    return read_header(line) if line.startswith(b'{"format"') else decode_later_line(line)


class MemoryBoard:
    """Storage of logs in memory for tests and simulations: it holds the lines of the current log."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.lines: list[bytes] = []
        self._session_logs: dict[bytes, MemorySessionLog] = {}
        self._heads: dict[str, bytes] = {}
        self._run_id = ""

    def runs(self, session: bytes, scope: bytes) -> MemorySessionLog:
        """Return the in-memory list of the runs of a scope (session or group)."""
        return self._session_logs.setdefault(scope, MemorySessionLog(session, scope))

    def head_of(self, run: RunLine) -> bytes:
        """Return the last hash of a run's log; `NO_HEAD` if that has no log."""
        return self._heads.get(run.run_id, NO_HEAD)

    def begin(self, header: Header) -> None:
        """Start a new log in memory with this header; keep the present log if it has this header."""
        line = encode_line(header)
        if [line] == self.lines[:1]:
            return
        self.lines = [line]
        self._run_id = header.run_id
        self._heads[self._run_id] = first_head(line)

    def resume(self, run: RunLine) -> tuple[int, bytes]:
        """Continue the log of a run; return its length and last hash; LocalError if it is another run's."""
        if run.run_id != self._run_id:
            raise LocalError("the board has no log of this run")
        return len(self.lines) - 1, self._heads[self._run_id]

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries to the log; skip those it already has, and raise LocalError for others."""
        for entry in entries:
            line, head = encode_line(entry), self._heads[self._run_id]
            if self.lines[entry.sequence : entry.sequence + 1] == [line]:
                continue
            if entry.sequence != len(self.lines) or entry.previous != head.hex():
                raise not_next("the board", entry)
            self.lines.append(line)
            self._heads[self._run_id] = next_head(head, [entry.digest()])

    def export(self) -> bytes:
        """Return the current log as JSON lines."""
        return b"".join(line + b"\n" for line in self.lines)
