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
from smpc_dp.logs.runs import NO_HEAD, CertifiedLine, MemorySessionLog, RunLine, SessionLog, read_line

Line = RunLine | CertifiedLine | Header | Entry
"""What a step adds: a line of the session log, or of the log of the run."""


class Board(Protocol):
    """Where a log is kept. Each method returns when it is, durably if that is what it is for.

    What is there already is kept once; another header or entry in its place is a LocalError.
    """

    @property
    def session(self) -> str:
        """Canonical JSON of the session, for the header."""

    def runs(self, session: bytes, scope: bytes) -> SessionLog:
        """Return the session log of a scope; `session` is the session digest."""

    def head_of(self, run: RunLine) -> bytes:
        """Return the last head of the log of an earlier run, `logs.runs.NO_HEAD` if there is none."""

    def begin(self, header: Header) -> None:
        """Keep the header of a new log, and go on with it."""

    def resume(self, run: RunLine) -> tuple[int, bytes]:
        """Go on with the log of the run; return how many entries it has, and its head.

        Raises LocalError if there is none.
        """

    def append(self, entries: Sequence[Entry]) -> None:
        """Store the next entries."""


def read(line: bytes) -> Line:
    """Read a line of a session log, or of the log of a run; raise VerificationError if it is neither."""
    if line.startswith(b'{"sequence"'):
        return decode_line(line, Entry)
    return read_header(line) if line.startswith(b'{"format"') else read_line(line)


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
        """Begin a log, unless it was begun."""
        line = encode_line(header)
        if [line] == self.lines[:1]:
            return
        self.lines = [line]
        self._run_id = header.run_id
        self._heads[self._run_id] = first_head(line)

    def resume(self, run: RunLine) -> tuple[int, bytes]:
        """See `Board.resume`."""
        if run.run_id != self._run_id:
            raise LocalError("the board has no log of this run")
        return len(self.lines) - 1, self._heads[self._run_id]

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep the next entries, those that are there once."""
        for entry in entries:
            line, head = encode_line(entry), self._heads[self._run_id]
            if self.lines[entry.sequence : entry.sequence + 1] == [line]:
                continue
            if entry.sequence != len(self.lines) or entry.previous != head.hex():
                raise not_next("the board", entry)
            self.lines.append(line)
            self._heads[self._run_id] = next_head(head, [entry.digest()])

    def export(self) -> bytes:
        """Return the log as JSON lines."""
        return b"".join(line + b"\n" for line in self.lines)
