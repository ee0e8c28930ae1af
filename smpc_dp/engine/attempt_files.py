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
    """Valid slot of a file: its ordinal from 1 on, its number, and a content of 52 bytes."""

    ordinal: int
    number: int
    content: bytes


class AttemptFile:
    """Open and locked file of an attempt; errors are OSError."""

    def __init__(self, descriptor: int, header: bytes) -> None:
        self._descriptor, self._header = descriptor, header
        self._bytes = os.pread(descriptor, _MOST + 1, 0)
        # A process has ended before it was written as a whole, or while it was removed.
        is_begun = len(self._bytes) < 2 * SLOT_BYTES and header.startswith(self._bytes[:SLOT_BYTES])
        self.is_absent = is_begun or not self._bytes.strip(b"\0")

    @property
    def is_valid(self) -> bool:
        """Whether it is a file of this version with a slot that was written as a whole."""
        is_ours = len(self._bytes) <= _MOST and self._bytes.startswith(self._header)
        return is_ours and bool(self.slots)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots that were written as a whole, by number; one that was not counts as empty."""
        valid = []
        for ordinal in range(1, len(self._bytes) // SLOT_BYTES):
            slot = self._at(ordinal)
            number, content = slot[:8], slot[8:-CHECK_BYTES]
            if slot.strip(b"\0") and slot == self._slot(number, content):
                valid.append(Slot(ordinal, int.from_bytes(number, "big"), content))
        return tuple(sorted(valid, key=lambda slot: slot.number))

    def create(self, number: int, content: bytes) -> None:
        """Write the header and the first slot, durably."""
        self._write(self._header + self._slot(number.to_bytes(8, "big"), content), 0)

    def put(self, ordinal: int, number: int, content: bytes) -> None:
        """Write a slot, over what is there, durably."""
        self._write(self._slot(number.to_bytes(8, "big"), content), ordinal)

    def clear(self, *retained: int) -> None:
        """Overwrite all slots but those whose ordinals are `retained` by zeros, durably."""
        for ordinal in range(1, -(-len(self._bytes) // SLOT_BYTES)):
            if ordinal not in retained and self._at(ordinal).strip(b"\0"):
                self._put(bytes(SLOT_BYTES), ordinal)
        self.sync()

    def erase(self) -> None:
        """Overwrite the whole file by zeros, durably."""
        self._write(bytes(len(self._bytes)), 0)

    def sync(self) -> None:
        """Return when the disk has what any process has written."""
        os.fsync(self._descriptor)

    def renew(self) -> None:
        """Write all bytes again, durably: after a sync that has failed, later ones do not write them."""
        self._write(self._bytes, 0)

    def first_free(self) -> int:
        """Return the first ordinal without a valid slot."""
        taken = {slot.ordinal for slot in self.slots}
        return next(ordinal for ordinal in range(1, len(taken) + 2) if ordinal not in taken)

    def _at(self, ordinal: int) -> bytes:
        """Return the bytes of a slot."""
        return self._bytes[ordinal * SLOT_BYTES :][:SLOT_BYTES]

    def _write(self, content: bytes, ordinal: int) -> None:
        """Write bytes from the beginning of a slot on, durably."""
        self._put(content, ordinal)
        self.sync()

    def _put(self, content: bytes, ordinal: int) -> None:
        if os.pwrite(self._descriptor, content, ordinal * SLOT_BYTES) != len(content):
            # The disk is full.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _slot(self, number: bytes, content: bytes) -> bytes:
        """Return the bytes of a slot: number, content and check."""
        check = zlib.crc32(self._header + number + content).to_bytes(CHECK_BYTES, "big")
        return number + content + check


class AttemptFiles:
    """The files ATTEMPT.SUFFIX in an existing folder; `name` names them in errors ("keys of saved states").

    Raises LocalError on failure.
    """

    def __init__(self, folder: Path, suffix: str, name: str, version: int) -> None:
        self._folder, self._suffix, self._name = folder, suffix, name
        self._title = f"smpc-dp {suffix[1:]} {version}\n".encode().ljust(SLOT_BYTES - 16, b"\0")

    @contextmanager
    def opened(self, attempt: bytes, *, create: bool = False) -> Iterator[AttemptFile | None]:
        """Yield the file of an attempt, locked against other processes; None if there is none.

        `create`: an absent one is yielded, made if need be.
        """
        path = self._path(attempt)
        try:
            descriptor = self._locked(path, create=create)
            if descriptor is None:
                yield None
                return
            try:
                if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
                    raise LocalError(f"{path}: others can read or write it: run chmod 600 on it")
                file = AttemptFile(descriptor, self._title + attempt)
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
        """Overwrite and remove the file, if there is one, durably."""
        path = self._path(attempt)
        try:
            descriptor = self._locked(path)
            if descriptor is None:
                return
            try:
                AttemptFile(descriptor, b"").erase()
                Path(path).unlink()
            finally:
                _unlock(descriptor)
            self._sync()
        except OSError as error:
            raise LocalError(f"{path}: cannot remove the {self._name} ({error.strerror})") from None

    def _path(self, attempt: bytes) -> str:
        """Return the path of an attempt's file."""
        return os.path.join(self._folder, attempt.hex() + self._suffix)

    def _locked(self, path: str, *, create: bool = False) -> int | None:
        """Return the descriptor of a locked file, made if `create`, or None. Raises OSError."""
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
                # A lock on a file that was removed meanwhile excludes nobody.
                if os.fstat(descriptor).st_nlink:
                    return descriptor
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
        """Return when the folder's entries are on disk. Raises OSError."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _unlock(descriptor: int) -> None:
    """Unlock and close a file: if the process was forked meanwhile, the child has the lock too."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
