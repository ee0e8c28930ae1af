"""Sources of an audit's log: a file, a URL or a pipe; and a second reading of it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from smpc_dp.errors import LocalError
from smpc_dp.files import Spool
from smpc_dp.logs.log_http import open_url

# Most bytes of an unseekable log that are stored: a second reading needs its beginning.
STORED_BYTES = 1 << 32

# Opens a log at its beginning.
Reopen = Callable[[], contextlib.AbstractContextManager[BinaryIO]]


def make_rereadable(stream: BinaryIO) -> tuple[BinaryIO, Reopen]:
    """Return a stream to read a log from, and a function that opens the log again from the start."""
    if stream.seekable():
        first = stream.tell()
        return stream, lambda: _sought(stream, first)
    retained = _StoringReader(stream)
    return cast("BinaryIO", retained), retained.again


@contextlib.contextmanager
def _sought(stream: BinaryIO, first: int) -> Iterator[BinaryIO]:
    """Yield a seekable stream set to byte `first`; restore its position afterwards."""
    index = stream.tell()
    stream.seek(first)
    try:
        yield stream
    finally:
        stream.seek(index)


class _StoringReader:
    """Reader of a stream that can be read only once, which stores the bytes for reading them again."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.spool = Spool("the log")
        # The reason why bytes after the spool cannot be read again.
        self.lost = ""

    def read(self, size: int) -> bytes:
        """Read and store up to `size` bytes, all that are left if negative."""
        return self._keep(self._stream.read(size))

    def readline(self, most: int) -> bytes:
        """Read and store one line, or `most` bytes of a longer one."""
        return self._keep(self._stream.readline(most))

    def _keep(self, piece: bytes) -> bytes:
        """Store bytes just read, unless the limit of the store is reached; return the bytes."""
        if not self.lost:
            if self.spool.length + len(piece) > STORED_BYTES:
                self.lost = f"is longer than {STORED_BYTES} bytes"
            else:
                try:
                    self.spool.add(piece)
                except LocalError as error:
                    self.lost = f"cannot be kept: {error}"
        return piece

    @contextlib.contextmanager
    def again(self) -> Iterator[BinaryIO]:
        """Yield a stream of the stored bytes, from the start."""
        with io.BufferedReader(_StoredStream(self)) as stream:
            yield stream


class _StoredStream(io.RawIOBase):
    """Raw stream of a log's stored bytes; raises LocalError where the store was full."""

    def __init__(self, retained: _StoringReader) -> None:
        super().__init__()
        self._retained, self._index = retained, 0

    def readable(self) -> bool:
        """Return True: the stored log can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next stored bytes to a buffer; LocalError where the log was too long to be stored."""
        piece = self._retained.spool.read(self._index, len(buffer))
        if not piece and self._retained.lost:
            raise LocalError(
                f"the log must be read twice, is no file that can be, and {self._retained.lost}; give a file"
            )
        buffer[: len(piece)] = piece
        self._index += len(piece)
        return len(piece)


@contextlib.contextmanager
def open_log(source: str | os.PathLike[str], seconds: float) -> Iterator[tuple[BinaryIO, int | None]]:
    """Context manager of a log's stream from a file, URL or stdin ("-"); yields it, and its size or None.

    A URL must be read within `seconds`. Raises LocalError if it cannot be read, now or later.
    """
    text = os.fspath(source)
    if text == "-":
        try:
            yield sys.stdin.buffer, None
        except OSError as error:
            raise LocalError(f"standard input: cannot read the log ({error.strerror})") from None
        return
    if text.lower().startswith(("http://", "https://")):
        with open_url(text, seconds) as (stream, size):
            yield stream, size
        return
    try:
        with Path(text).open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size or None
    except OSError as error:
        raise LocalError(f"{text}: cannot read the log ({error.strerror})") from None
    except ValueError:
        raise LocalError(f"{text!r}: cannot read the log (no name of a file)") from None
