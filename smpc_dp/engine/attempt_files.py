"""Small private files of slots, one for each attempt: changed in place, durably, by one process at a time.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from smpc_dp.errors import LocalError
from smpc_dp.files import log_opening

# No slot crosses a sector of a disk.
SLOT_BYTES, CONTENT_BYTES, CHECK_BYTES = 64, 52, 4
LOCK_SECONDS = 30.0
_POLL_SECONDS = 0.02
_MOST = 1 << 20


class Slot(NamedTuple):
    """One valid entry of a file of saved attempts: its position, a number, and 52 bytes of content."""

    ordinal: int
    number: int
    content: bytes


class AttemptFile:
    """An open and locked file of fixed-size slots that belongs to an attempt of a run."""

    def __init__(self, descriptor: int, size: int, header: bytes) -> None:
        self._descriptor, self._header, self._header_check = descriptor, header, zlib.crc32(header)
        # No more than there is: a large buffer costs more than all else of a small file.
        self._bytes = os.pread(descriptor, min(size, _MOST) + 1, 0)
        # A process has ended before it was written as a whole, or while it was removed.
        is_begun = len(self._bytes) < 2 * SLOT_BYTES and header.startswith(self._bytes[:SLOT_BYTES])
        self.is_absent = is_begun or not self._bytes.strip(b"\0")

    @property
    def is_valid(self) -> bool:
        """Whether the file has this version's header, and a slot that was written completely."""
        is_ours = len(self._bytes) <= _MOST and self._bytes.startswith(self._header)
        return is_ours and bool(self.slots)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The valid slots when the file was opened, by number; one written in part counts as empty."""
        valid = []
        for ordinal in range(1, len(self._bytes) // SLOT_BYTES):
            slot = self._at(ordinal)
            if slot.strip(b"\0") and slot[-CHECK_BYTES:] == self._check(slot[:-CHECK_BYTES]):
                valid.append(Slot(ordinal, int.from_bytes(slot[:8], "big"), slot[8:-CHECK_BYTES]))
        return tuple(sorted(valid, key=lambda slot: slot.number))

    def create(self, number: int, *contents: bytes) -> None:
        """Write a new file's header and first slots, numbered from `number`, and sync to disk."""
        slots = (self._slot(at, content) for at, content in enumerate(contents, number))
        self._write(self._header + b"".join(slots), 0)

    def put(self, ordinal: int, number: int, content: bytes) -> None:
        """Overwrite the slot at a position with a number and content, and sync to disk."""
        self._write(self._slot(number, content), ordinal)

    def clear(self, *retained: int) -> None:
        """Overwrite all slots with zeros but those at the `retained` positions, and sync to disk.

        Nothing is written where they are zeros.
        """
        slots = range(1, -(-len(self._bytes) // SLOT_BYTES))
        filled = [one for one in slots if one not in retained and self._at(one).strip(b"\0")]
        for ordinal in filled:
            self._put(bytes(SLOT_BYTES), ordinal)
        if filled:
            self.sync()

    def erase(self) -> None:
        """Overwrite the whole file with zeros, and sync to disk."""
        self._write(bytes(len(self._bytes)), 0)

    def sync(self) -> None:
        """Wait until all that any process has written to the file is on disk."""
        os.fsync(self._descriptor)

    def renew(self) -> None:
        """Write all bytes of the file again and sync: after a failed sync a later one would skip them."""
        self._write(self._bytes, 0)

    def first_free(self) -> int:
        """Return the lowest position, from 1, whose slot is empty or invalid."""
        taken = {slot.ordinal for slot in self.slots}
        return next(ordinal for ordinal in range(1, len(taken) + 2) if ordinal not in taken)

    def _at(self, ordinal: int) -> bytes:
        """Return the bytes of the slot at this position."""
        return self._bytes[ordinal * SLOT_BYTES :][:SLOT_BYTES]

    def _write(self, content: bytes, ordinal: int) -> None:
        """Write bytes to the file from the start of the slot at this position, and sync to disk."""
        self._put(content, ordinal)
        self.sync()

    def _put(self, content: bytes, ordinal: int) -> None:
        """Write the bytes of the slot at this position; raise OSError if the disk is full."""
        if os.pwrite(self._descriptor, content, ordinal * SLOT_BYTES) != len(content):
            # The disk is full.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _slot(self, number: int, content: bytes) -> bytes:
        """Return a slot's bytes: number, content, and a check value (CRC)."""
        begun = number.to_bytes(8, "big") + content
        return begun + self._check(begun)

    def _check(self, begun: bytes) -> bytes:
        """Return the check value (CRC) of a header or of a slot's number and content."""
        return zlib.crc32(begun, self._header_check).to_bytes(CHECK_BYTES, "big")


class AttemptFiles:
    """A folder of files with one file per attempt of a run, each locked while it is in use.

    Raises LocalError on failure.
    """

    def __init__(self, folder: Path, suffix: str, name: str, version: int) -> None:
        self._folder, self._suffix, self._name = folder, suffix, name
        # Joined once: that costs more than to open a file.
        self._beginning = os.path.join(folder, "")
        self._title = f"smpc-dp {suffix[1:]} {version}\n".encode().ljust(SLOT_BYTES - 16, b"\0")

    @contextmanager
    def opened(self, attempt: bytes, *, create: bool = False) -> Iterator[AttemptFile | None]:
        """Within the block: the attempt's locked file; None if missing, unless `create`; or LocalError.

        `create`: an absent one is yielded, made if need be.
        """
        path = self._path(attempt)
        try:
            locked = self._locked(path, create=create)
            if locked is None:
                yield None
                return
            descriptor, status = locked
            try:
                if stat.S_IMODE(status.st_mode) & 0o077:
                    raise LocalError(f"{path}: others can read or write it: run chmod 600 on it")
                file = AttemptFile(descriptor, status.st_size, self._title + attempt)
                if file.is_absent:
                    if create:
                        # Also of a process that was killed when it had made the file.
                        self._sync()
                    yield file if create else None
                    return
                if not file.is_valid:
                    raise LocalError(f"{path}: is damaged, or of another version")
                yield file
            finally:
                _unlock(descriptor)
        except OSError as error:
            raise LocalError(f"{path}: cannot use the {self._name} ({error.strerror})") from None

    def remove(self, attempt: bytes) -> None:
        """Overwrite and remove the file of an attempt durably, if it exists; LocalError if that fails."""
        path = self._path(attempt)
        try:
            locked = self._locked(path)
            if locked is None:
                return
            descriptor, status = locked
            try:
                AttemptFile(descriptor, status.st_size, b"").erase()
                Path(path).unlink()
            finally:
                _unlock(descriptor)
            self._sync()
        except OSError as error:
            raise LocalError(f"{path}: cannot remove the {self._name} ({error.strerror})") from None

    def _path(self, attempt: bytes) -> str:
        """Return the path of the file that belongs to an attempt."""
        return f"{self._beginning}{attempt.hex()}{self._suffix}"

    def _locked(self, path: str, *, create: bool = False) -> tuple[int, os.stat_result] | None:
        """Open and lock a file; return descriptor and status, None if missing; LocalError if held long."""
        log_opening(path, self._name)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                descriptor = os.open(path, flags)
            except FileNotFoundError:
                if not self._folder.is_dir():
                    raise LocalError(f"{self._folder}: no such folder, for the {self._name}") from None
                if not create:
                    return None
                descriptor = os.open(path, flags | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(descriptor)
                # A lock on a file that was removed meanwhile excludes nobody.
                if status.st_nlink:
                    return descriptor, status
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise LocalError(f"{path}: another process has held it for {LOCK_SECONDS:g} s") from None
                time.sleep(_POLL_SECONDS)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _sync(self) -> None:
        """Wait until the names of the folder's files are on disk; raises OSError."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _unlock(descriptor: int) -> None:
    """Unlock and close a file, also for child processes that were forked while it was locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
