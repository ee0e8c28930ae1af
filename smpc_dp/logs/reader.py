"""Reads a log as a stream: one line of bounded length at a time, with errors that give line and byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Self

from smpc_dp.errors import Check, LocalError, SmpcError, VerificationError, check_of
from smpc_dp.files import SPOOL_BLOCK, Spool
from smpc_dp.logs.header import ReadHeader, SessionText
from smpc_dp.logs.log import FORMAT, MAX_LINE_BYTES, Chain, Entry, EntryCheck, Header, decode_line

_STORE = b"SQLite format 3"
# Upper bounds on the bytes of an entry's line before its payload, and after it.
_BEGINNING, _REST = 512, 256
_KIND = re.compile(
    rb'\{"sequence":\d+,"previous":"[0-9a-f]*","party":"[^"]*","kind":"([a-z0-9_.-]+)","payload":"'
)
_PREFIX = b'{"format":"' + FORMAT.encode() + b'"'

# Returns the greatest length in bytes of the payload of an entry of this kind.
Longest = Callable[[str], int]


class BadLog(VerificationError):
    """Error: a log is invalid; `line` counts from 1, and `byte`, from 0, is where that line begins."""

    def __init__(self, line: int, byte: int, reason: str, check: Check) -> None:
        self.line, self.byte = line, byte
        super().__init__(f"line {line}, byte {byte}: {reason}", check)


class LogReader:
    """Reader of a run's log: its header, then its entries in order, each checked against the hash chain.

    It holds one line at a time, and only a block of a long header: memory does not grow with the log. Raises
    BadLog for an invalid line, at once for an invalid header. A context manager: the header may be in a
    temporary file meanwhile.

    Args:
        stream: the bytes, from their beginning; read to their end and not closed.

    Attributes:
        header: that of the log; its session is empty where it is long.
        session: its text, of any length, until the reader is closed.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.line = 0
        self.byte = 0
        self._next_byte = 0
        start = stream.read(len(_PREFIX))
        if start != _PREFIX:
            reason = "not a log of smpc-dp" if start else "the log is empty"
            if start.startswith(_STORE):
                reason = "a board's own store, not its log: give the .jsonl beside it (smpc-dp board export)"
            raise BadLog(1, 0, reason, Check.UNKNOWN_FORMAT if start else Check.LOG_CUT)
        self._first = Spool("the header of the log")
        try:
            self._store_first_line(start)
            read = ReadHeader(self._first)
        except SmpcError as error:
            self.close()
            if isinstance(error, LocalError | BadLog):
                raise
            raise BadLog(1, 0, str(error), check_of(error, Check.BAD_SESSION)) from None
        self.header: Header = read.header
        self.session: SessionText = read.session
        self.chain = Chain(read.header, read.head)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the stored header; a long session cannot be read after this."""
        self._first.close()

    def _store_first_line(self, start: bytes) -> None:
        """Read the log's first line, which may be long, into a temporary store; BadLog if too long."""
        self.line = 1
        piece = start
        while not piece.endswith(b"\n"):
            self._first.add(piece)
            left = MAX_LINE_BYTES + 1 - self._first.length
            piece = self._stream.readline(min(SPOOL_BLOCK, left))
            if not piece:
                raise self._length_error(left == 0)
        self._first.add(piece[:-1])
        self._next_byte = self._first.length + 1

    def locate(self, error: SmpcError) -> BadLog:
        """Return a BadLog that says that this error was found in the line read last."""
        return BadLog(self.line, self.byte, str(error), check_of(error, Check.BAD_SESSION))

    def entries(self, check: EntryCheck | None = None, longest: Longest | None = None) -> Iterator[Entry]:
        """Yield the log's entries in order; raise BadLog at the first invalid one.

        `longest` bounds the payload of an entry by its kind: no more of a line is read.
        """
        while (line := self._line(longest)) is not None:
            try:
                entry = decode_line(line, Entry)
                self.chain.follow(entry, check)
            except SmpcError as error:
                raise self.locate(error) from None
            yield entry

    @property
    def bytes_read(self) -> int:
        """Number of bytes of the log read so far."""
        return self._next_byte

    def _line(self, longest: Longest | None) -> bytes | None:
        """Return the log's next line without line feed, None at the end; BadLog if cut or too long."""
        self.line, self.byte = self.line + 1, self._next_byte
        line = self._stream.readline(_BEGINNING)
        most = len(line)
        if len(line) == _BEGINNING and not line.endswith(b"\n"):
            most = self._line_limit(line, longest)
            line += self._stream.readline(most + 1 - len(line))
        self._next_byte += len(line)
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise self._length_error(len(line) > most, most)
        return line[:-1]

    @staticmethod
    def _line_limit(beginning: bytes, longest: Longest | None) -> int:
        """Return the greatest permitted length in bytes of a log line with this beginning."""
        if longest is None:
            return MAX_LINE_BYTES
        result = _KIND.match(beginning)
        payload = 0 if result is None else longest(result[1].decode("ascii"))
        return min(MAX_LINE_BYTES, _BEGINNING + _REST + -(-payload // 3) * 4)

    def _length_error(self, long: bool, most: int = MAX_LINE_BYTES) -> BadLog:
        """Return the BadLog for a line that is too long, or for an incomplete last line."""
        reason = f"longer than {most} bytes" if long else "the log ends within a line: it was cut"
        return BadLog(self.line, self.byte, reason, Check.TOO_LONG if long else Check.LOG_CUT)
