"""Spools: where a large message is stored while it arrives.

An aggregator stores the large messages of all parties in files without a name, in one folder. So its memory
does not grow with them. A file has the bytes that have come, and is gone when nothing refers to its message.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from smpc_dp.decoding import Buffer
from smpc_dp.errors import LocalError


class Spool(Protocol):
    """Interface of the store of one message; `close` drops it, and after `content` does nothing."""

    def write(self, piece: bytes, /) -> object:
        """Append the next bytes; LocalError where there is no room for them."""

    def content(self) -> Buffer:
        """Return the whole message, which does not change any more."""

    def close(self) -> None: ...


class MemorySpool:
    """Store in memory, which grows with the received bytes and not with the announced length."""

    def __init__(self) -> None:
        # It gives its buffer away in getvalue(): a message is not copied a second time.
        self._message = io.BytesIO()
        self.write, self.close = self._message.write, self._message.close

    def content(self) -> bytes:
        """See `Spool.content`."""
        return self._message.getvalue()


class FileSpool:
    """Store of `total` bytes in a file without a name in `folder`."""

    def __init__(self, folder: str, total: int) -> None:
        self._folder, self._total = folder, total
        with self._naming():
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - see `close`

    def write(self, piece: bytes, /) -> None:
        """See `Spool.write`."""
        rest = memoryview(piece)
        with self._naming():
            while rest:
                rest = rest[self._file.write(rest) :]

    def content(self) -> memoryview:
        """Return a view of the file, which lives as long as the view."""
        with self._naming(), self._file:
            return memoryview(mmap.mmap(self._file.fileno(), self._total, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """See `Spool`."""
        self._file.close()

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Raise LocalError that names the folder for an error of the file."""
        try:
            yield
        except OSError as error:
            reason = f"cannot store a message of {self._total} bytes in a file: {error.strerror}"
            raise LocalError(f"{self._folder}: {reason} (TMPDIR names another folder)") from None


@dataclass(frozen=True, slots=True)
class SpoolFolder:
    """Folder for the spools of large messages."""

    path: str

    @classmethod
    def of_system(cls) -> SpoolFolder:
        """Return the folder that TMPDIR names, or else the system's for temporary files."""
        try:
            return cls(tempfile.gettempdir())
        except OSError as error:
            raise LocalError(f"no folder for large messages: {error.strerror}; set TMPDIR") from None

    def spool(self, total: int) -> FileSpool:
        """Return the spool of a message of `total` bytes; raise LocalError if it cannot be made."""
        return FileSpool(self.path, total)

    def check_room(self, needed: int) -> None:
        """Raise LocalError unless the folder has room for `needed` bytes."""
        try:
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise LocalError(f"{self.path}: cannot store large messages: {error.strerror}") from None
        if free < needed:
            raise LocalError(
                f"{self.path}: large messages need {needed} bytes of disk while they arrive, {free} are free "
                "(TMPDIR names another folder)"
            )
