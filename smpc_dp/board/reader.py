"""Reads a log as it streams in: one line at a time, of bounded length, and errors that give the place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from smpc_dp.board.log import (
    FORMAT,
    MAX_LINE_BYTES,
    Chain,
    Check,
    Entry,
    Header,
    checked_header,
    decode_line,
)
from smpc_dp.errors import SmpcError, VerificationError

_STORE = b"SQLite format 3"
_PREFIX = b'{"format":"' + FORMAT.encode() + b'"'


class BadLog(VerificationError):
    """A log is not one: `line` counts from 1, `byte` from 0 and is where that line begins."""

    def __init__(self, line: int, byte: int, what: str) -> None:
        self.line, self.byte = line, byte
        super().__init__(f"line {line}, byte {byte}: {what}")


class LogReader:
    """The header of a log, and then its entries in order, each checked against the chain.

    Holds one line at a time: memory does not grow with the log. Raises BadLog for whatever is no log; at once
    if the first line is no header.

    Args:
        stream: the bytes, from their beginning; read to their end and not closed.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.line = 0
        self.byte = 0
        self._next_byte = 0
        start = stream.read(len(_PREFIX))
        if start != _PREFIX:
            what = "not a log of smpc-dp" if start else "the log is empty"
            if start.startswith(_STORE):
                what = "a board's own store, not its log: give the .jsonl beside it (smpc-dp board export)"
            raise BadLog(1, 0, what)
        line = self._line(start)
        if line is None:
            raise BadLog(1, 0, "the log is empty")
        try:
            self.header: Header = checked_header(decode_line(line, Header))
        except VerificationError as error:
            raise BadLog(1, 0, str(error)) from None
        self.chain = Chain(self.header)

    def fault(self, what: str | SmpcError) -> BadLog:
        """Return an error about the line that was read last."""
        return BadLog(self.line, self.byte, str(what))

    def entries(self, check: Check | None = None) -> Iterator[Entry]:
        """Yield the entries; raise BadLog at the first that is wrong."""
        while (line := self._line()) is not None:
            try:
                entry = decode_line(line, Entry)
                self.chain.follow(entry, check)
            except SmpcError as error:
                raise self.fault(error) from None
            yield entry

    @property
    def bytes_read(self) -> int:
        """How many bytes have been read."""
        return self._next_byte

    def _line(self, start: bytes = b"") -> bytes | None:
        """Return the next line without its line feed, or None at the end."""
        self.line, self.byte = self.line + 1, self._next_byte
        line = start + self._stream.readline(MAX_LINE_BYTES + 1 - len(start))
        self._next_byte += len(line)
        if not line:
            return None
        if not line.endswith(b"\n"):
            if len(line) > MAX_LINE_BYTES:
                raise self.fault(f"longer than {MAX_LINE_BYTES} bytes")
            raise self.fault("the log ends within a line: it was cut")
        return line[:-1]
