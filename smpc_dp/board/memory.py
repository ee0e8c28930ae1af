"""A board that keeps its log in memory."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.board.log import Entry, Header, encode_line


class MemoryBoard:
    """The lines of one log, without line feeds, header first; of the last log, if several are begun."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.lines: list[bytes] = []

    def begin(self, header: Header) -> None:
        """Begin a log."""
        self.lines = [encode_line(header)]

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep the next entries."""
        self.lines += [encode_line(entry) for entry in entries]

    def export(self) -> bytes:
        """Return the log as JSON lines."""
        return b"".join(line + b"\n" for line in self.lines)
