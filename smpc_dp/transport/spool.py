"""Spools: where a large message is stored while it arrives.

An aggregator stores the large messages of all parties in files without a name, in one folder. So its memory
does not grow with them. A file has the bytes that have come, and is gone when nothing refers to its message.
"""

from __future__ import annotations

import io
import mmap
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import IO, Protocol

from smpc_dp.decoding import Buffer
from smpc_dp.errors import LocalError


class Spool(Protocol):
    """Interface of the store for one message while it is received, in memory or in a file."""

    def write(self, piece: Buffer, /) -> object:
        """Append received bytes to the stored message."""

    def content(self) -> Buffer:
        """Return the whole message; raise LocalError if storing it has failed."""

    def close(self) -> None:
        """Free the storage, unless `content` has returned the message."""


class MemorySpool:
    """Store of a message in memory, which grows only as bytes are received."""

    def __init__(self) -> None:
        # It gives its buffer away in getvalue(): a message is not copied a second time.
        self._message = io.BytesIO()
        self.write, self.close = self._message.write, self._message.close

    def content(self) -> bytes:
        """Return the whole message as bytes."""
        return self._message.getvalue()


class FileSpool:
    """Store of a large message in a temporary file without a name.

    Where a write fails it drops this message and what follows of it: the messages behind it can be read.
    """

    def __init__(self, folder: str, total: int) -> None:
        self._folder, self._total = folder, total
        self._file: IO[bytes] | None = None
        self._failure: OSError | None = None
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - see `close`
        except OSError as error:
            self._failure = error

    def write(self, piece: Buffer, /) -> None:
        """Append bytes to the file; if that fails, drop all bytes and raise nothing until `content`."""
        rest = memoryview(piece)
        try:
            while self._file is not None and rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._failure = error
            self.close()

    def content(self) -> memoryview:
        """Return the message as a memory map of the file; LocalError if a write has failed."""
        try:
            if self._failure is None and self._file is not None:
                return memoryview(mmap.mmap(self._file.fileno(), self._total, access=mmap.ACCESS_READ))
        except OSError as error:
            self._failure = error
        why = "closed" if self._failure is None else self._failure.strerror
        reason = f"cannot store a message of {self._total} bytes in a file: {why}"
        raise LocalError(f"{self._folder}: {reason} (TMPDIR names another folder)")

    def close(self) -> None:
        """Close the file, and delete its content unless `content` has returned it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


@dataclass(frozen=True, slots=True)
class SpoolFolder:
    """Folder in which large messages are stored in temporary files while they are received."""

    path: str

    @classmethod
    def of_system(cls) -> SpoolFolder:
        """Return the folder for temporary files: TMPDIR, or the system's default.

        `tempfile` would take another one, which may be in memory, where files cannot be written to the named.
        """
        try:
            return cls(os.path.abspath(os.environ.get("TMPDIR") or tempfile.gettempdir()))
        except OSError as error:
            raise LocalError(f"no folder for large messages: {error.strerror}; set TMPDIR") from None

    def spool(self, total: int) -> FileSpool:
        """Return a file store for a message of `total` bytes."""
        return FileSpool(self.path, total)

    def check_room(self, needed: int) -> None:
        """Raise LocalError unless the folder is writable and has `needed` bytes free."""
        try:
            with tempfile.TemporaryFile(dir=self.path):
                free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise LocalError(f"{self.path}: cannot store large messages: {error.strerror}") from None
        if free < needed:
            raise LocalError(
                f"{self.path}: large messages need {needed} bytes of disk while they arrive, {free} are free "
                "(TMPDIR names another folder)"
            )
