"""A log that grows, as a stream: a reader waits at its end until there is more, or nothing more is to come.

The file is only read: of a store each reading is a short transaction of its own, so that the writer never
waits.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from smpc_dp.errors import LocalError
from smpc_dp.logs.store import Store, is_store

# Seconds between two looks at the end of a log.
POLL_SECONDS = 0.2
_BLOCK = 1 << 16
# Bytes that are read from a store at a time, or one line if that is more.
_STORED_BYTES = 1 << 20


class GrowingLog(io.RawIOBase):
    """Raw binary stream of a log that another process may still append to; reading waits for more.

    Args:
        path: the log.
        finished: the stream ends where the log ends, once this is set; None: it does not wait at all.
        wait: waits for so many seconds, or until that is set; None: it does nothing else.

    Raises LocalError if the log cannot be read, or is shorter than it was.
    """

    def __init__(
        self, path: Path, finished: threading.Event | None, wait: Callable[[float], object] | None = None
    ) -> None:
        super().__init__()
        self._path, self._finished, self._wait = path, finished, wait
        self._stored = is_store(path)
        self._next, self._pending, self._offset = 0, memoryview(b""), 0
        # Opened once: a file that is put in its place later is another log.
        self._file = None if self._stored else _open(path)

    def close(self) -> None:
        """Close the log's file, if it is open; a database is closed after each reading."""
        if not self.closed and self._file is not None:
            os.close(self._file)
        super().close()

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read next bytes into a buffer, waiting if there are none yet; return how many, 0 at the end."""
        while True:
            finished = self._finished is None or self._finished.is_set()
            content = self._more(len(buffer))
            if content or finished or self._finished is None:
                buffer[: len(content)] = content
                return len(content)
            (self._wait or self._finished.wait)(POLL_SECONDS)

    def _more(self, most: int) -> bytes | memoryview:
        """Return up to `most` of the log's next bytes; empty if there are none yet."""
        if self._file is not None:
            return self._from_file(self._file, most)
        if not self._pending:
            lines = bytearray()
            with Store.open(self._path) as store:
                for line in store.lines(first=self._next):
                    lines += line + b"\n"
                    self._next += 1
                    if len(lines) >= _STORED_BYTES:
                        break
            self._pending = memoryview(lines)
        content, self._pending = self._pending[:most], self._pending[most:]
        return content

    def _from_file(self, file: int, most: int) -> bytes:
        """Return up to `most` bytes from a log file; raise LocalError if the file has become shorter."""
        try:
            content = os.pread(file, most, self._offset)
            if not content and os.fstat(file).st_size < self._offset:
                raise LocalError(f"{self._path}: is shorter than it was: it is another log")
        except OSError as error:
            raise LocalError(f"{self._path}: cannot read the log ({error.strerror})") from None
        self._offset += len(content)
        return content


@contextmanager
def open_growing(
    path: Path, finished: threading.Event | None = None, wait: Callable[[float], object] | None = None
) -> Iterator[BinaryIO]:
    """Context manager of a log's stream, which waits for more until `finished`; None: not at all."""
    with io.BufferedReader(GrowingLog(path, finished, wait), _BLOCK) as stream:
        yield cast("BinaryIO", stream)


def read_line(path: Path, number: int, byte: int, most: int) -> bytes:
    """Return the line at offset `byte` of a log, or its first `most` bytes; LocalError if unreadable."""
    if is_store(path):
        with Store.open(path) as store:
            return next(store.lines(first=number, last=number), b"")[:most]
    try:
        with path.open("rb") as file:
            file.seek(byte)
            return file.readline(most).removesuffix(b"\n")
    except OSError as error:
        raise LocalError(f"{path}: cannot read the log ({error.strerror})") from None


def _open(path: Path) -> int:
    """Open a log file for reading and return its descriptor; raise LocalError on failure."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LocalError(f"{path}: cannot read the log ({error.strerror})") from None
