"""The header of a log, read without holding it: a session with 10,000 certificates has megabytes.

The line is put aside, and read in blocks. What is held of it is the header without its session, and the
session's text is read again, in blocks, by whoever needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import Digest
from smpc_dp.errors import VerificationError
from smpc_dp.files import Spool
from smpc_dp.log.log import (
    FORMAT,
    VERSION,
    Header,
    checked_header,
    decode_line,
    encode_line,
    first_head,
    read_header,
)

# A line that is no longer is read as it is.
WHOLE_BYTES = 1 << 18
_EMPTY = Header(FORMAT, VERSION, "", 0, "", 1, "0" * 64, "0" * 64, b"", b"", "0" * 64)
# As the line of every header begins, up to its session.
_START = encode_line(_EMPTY).partition(b'"session":"')
_PREFIX = b"".join(_START[:2])
# How msgspec spells what ASCII text the JSON of a session has: two escapes, and no control characters.
_SPELT = re.compile(rb'(?:[ !#-\[\]-\x7f]++|\\["\\])*+')


class SessionText:
    """The canonical JSON of a log's session, from memory or from the line that was put aside."""

    def __init__(self, text: str | None, line: Spool | None = None, end: int = 0) -> None:
        self._text, self._line, self._end = text, line, end

    @property
    def long(self) -> bool:
        """Whether it is not held."""
        return self._text is None

    def whole(self) -> str:
        """Return all of it."""
        if self._text is not None:
            return self._text
        return b"".join(self.blocks()).decode("ascii")

    def blocks(self) -> Iterator[bytes]:
        """Yield it, some at a time."""
        if self._line is None:
            yield (self._text or "").encode()
            return
        for spelt in _spelt(self._line, self._end):
            yield spelt.replace(b'\\"', b'"').replace(b"\\\\", b"\\")


class ReadHeader:
    """A header, its session apart, and the head that it makes.

    Args:
        line: the whole line without its line feed; it is kept while the session's text is needed.

    Raises VerificationError if it is no header.
    """

    def __init__(self, line: Spool) -> None:
        session_end = None if line.length <= WHOLE_BYTES else _session_end(line)
        header = None if session_end is None else _without_session(line, session_end)
        if session_end is None or header is None:
            whole = line.read(0, line.length)
            header = read_header(whole)
            self.session, self.head = SessionText(header.session), first_head(whole)
            self.header = header
            return
        self.header = header
        self.session = SessionText(None, line, session_end)
        head = Digest(Label.BOARD_HEADER)
        head.add_long(line.length, line.blocks())
        self.head = head.value()


def _session_end(line: Spool) -> int | None:
    """Return where the session ends; None if the line is not as that of a right header begins."""
    if line.read(0, len(_PREFIX)) != _PREFIX:
        return None
    end = len(_PREFIX) + sum(map(len, _spelt(line, line.length)))
    return end if line.read(end, 1) == b'"' else None


def _without_session(line: Spool, end: int) -> Header | None:
    """Return the header but for its session; None if it is none: whoever holds all of it can say where."""
    try:
        return checked_header(decode_line(_PREFIX + line.read(end, line.length - end), Header))
    except VerificationError:
        return None


def _spelt(line: Spool, end: int) -> Iterator[bytes]:
    """Yield the session as it is spelt in the line, as far as that is ASCII text rightly spelt."""
    left = b""
    for block in line.blocks(len(_PREFIX), end):
        piece = left + block
        result = _SPELT.match(piece)
        stop = 0 if result is None else result.end()
        yield piece[:stop]
        left = piece[stop:]
        if left not in (b"", b"\\"):
            return
