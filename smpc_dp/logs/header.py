"""Reads the header of a log in blocks: that of a session with 10,000 certificates has megabytes.

The line is stored in a spool. The header without its session is held in memory; the session's text is read
again, in blocks, when it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import Digest
from smpc_dp.errors import VerificationError
from smpc_dp.files import Spool
from smpc_dp.logs.log import (
    FORMAT,
    VERSION,
    Header,
    checked_header,
    decode_line,
    encode_line,
    first_head,
    read_header,
)

# A shorter line is read as a whole.
WHOLE_BYTES = 1 << 18
_EMPTY = Header(FORMAT, VERSION, "", 0, "", 1, "0" * 64, "0" * 64, b"", b"", "0" * 64)
# Beginning of every header's line, up to its session.
_START = encode_line(_EMPTY).partition(b'"session":"')
_PREFIX = b"".join(_START[:2])
# How msgspec writes the ASCII text of the session's JSON: two escapes, and no control characters.
_SPELT = re.compile(rb'(?:[ !#-\[\]-\x7f]++|\\["\\])*+')


class SessionText:
    """Canonical JSON of the session in a log's header, held in memory or read from a file if long."""

    def __init__(self, text: str | None, line: Spool | None = None, end: int = 0) -> None:
        self._text, self._line, self._end = text, line, end

    @property
    def long(self) -> bool:
        """Whether the session's text is too long to be held in memory."""
        return self._text is None

    def whole(self) -> str:
        """Return the session's JSON text as a whole, also if it is long."""
        if self._text is not None:
            return self._text
        return b"".join(self.blocks()).decode("ascii")

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the session's text in blocks, to limit memory."""
        if self._line is None:
            yield (self._text or "").encode()
            return
        for spelt in _session_blocks(self._line, self._end):
            yield spelt.replace(b'\\"', b'"').replace(b"\\\\", b"\\")


class ReadHeader:
    """Parsed header of a log: the header, the session's text kept apart, and the log's first hash.

    Args:
        line: the whole line without its line feed; it is needed as long as the session's text.

    Raises VerificationError if the line is no header.
    """

    def __init__(self, line: Spool) -> None:
        session_end = None if line.length <= WHOLE_BYTES else _session_end(line)
        header = None if session_end is None else _header_without_session(line, session_end)
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
    """Return the offset of the quote after the session in a header line; None if the line is no header."""
    if line.read(0, len(_PREFIX)) != _PREFIX:
        return None
    end = len(_PREFIX) + sum(map(len, _session_blocks(line, line.length)))
    return end if line.read(end, 1) == b'"' else None


def _header_without_session(line: Spool, end: int) -> Header | None:
    """Parse a header line except for its session, which is set to ""; return None if it is invalid.

    The caller then reads the whole line, to give the reason.
    """
    try:
        return checked_header(decode_line(_PREFIX + line.read(end, line.length - end), Header))
    except VerificationError:
        return None


def _session_blocks(line: Spool, end: int) -> Iterator[bytes]:
    """Yield the text of the session in a header line, unescaped; stop at a byte not in canonical JSON."""
    left = b""
    for block in line.blocks(len(_PREFIX), end):
        piece = left + block
        result = _SPELT.match(piece)
        stop = 0 if result is None else result.end()
        yield piece[:stop]
        left = piece[stop:]
        if left not in (b"", b"\\"):
            return
