"""A board that keeps its log in memory."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.board.log import Entry, Header, encode_line, first_head, next_head
from smpc_dp.board.runs import NO_HEAD, MemorySessionLog, RunLine


class MemoryBoard:
    """The lines of one log, without line feeds, header first; of the last log, if several are begun."""

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
        """Begin a log."""
        self.lines = [encode_line(header)]
        self._run_id = header.run_id
        self._heads[self._run_id] = first_head(self.lines[0])

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep the next entries."""
        self.lines += [encode_line(entry) for entry in entries]
        digests = [entry.digest() for entry in entries]
        self._heads[self._run_id] = next_head(self._heads[self._run_id], digests)

    def export(self) -> bytes:
        """Return the log as JSON lines."""
        return b"".join(line + b"\n" for line in self.lines)
