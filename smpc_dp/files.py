"""File access: reading of bounded length, and writing of the whole file or nothing."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import stat
import tempfile
import threading
import tokenize
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import LocalError

# Bytes of a spool in memory, and bytes read from it at a time.
SPOOL_MEMORY, SPOOL_BLOCK = 1 << 18, 1 << 16

_LOG = logging.getLogger("smpc_dp")


class Spool:
    """Temporary store of bytes: in memory while they are few, then in a private file without a name.

    It is deleted with its last reference, or by `close()`. Threads may share one. Raises LocalError for
    errors of the disk, in which `name` names the content. `length` is the end of the last byte.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._file = tempfile.SpooledTemporaryFile(SPOOL_MEMORY)  # noqa: SIM115
        self.close = weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        self.length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, content: bytes) -> None:
        """Append bytes to this temporary store."""
        with self._lock:
            self._write(self.length, content)

    def write(self, offset: int, content: bytes) -> None:
        """Write bytes at byte `offset` of this store; earlier bytes never written read as zeros."""
        with self._lock:
            self._write(offset, content)

    def _write(self, offset: int, content: bytes) -> None:
        """Write bytes at `offset` under the caller's lock; raise LocalError if the disk is full."""
        end = offset + len(content)
        try:
            if end > SPOOL_MEMORY:
                # Moved to the file before the write: memory would hold all bytes up to a distant offset.
                self._file.rollover()
            self._file.seek(offset)
            self._file.write(content)
        except OSError as error:
            raise self._failed(error) from None
        self.length = max(self.length, end)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from byte `offset` on, fewer only at the end; LocalError if the disk fails."""
        try:
            with self._lock:
                self._file.seek(offset)
                return self._file.read(size)
        except OSError as error:
            raise self._failed(error) from None

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the stored bytes from `start` to before `end` (or to the end), in blocks."""
        end = self.length if end is None else min(end, self.length)
        for offset in range(start, end, SPOOL_BLOCK):
            yield self.read(offset, min(SPOOL_BLOCK, end - offset))

    def _failed(self, error: OSError) -> LocalError:
        """Return the LocalError that reports an OSError of the disk."""
        return LocalError(
            f"cannot put {self._name} aside ({error.strerror}): is there room in {tempfile.gettempdir()}?"
        )


class Records:
    """Array of byte records of fixed size in a temporary store; records never written are zeros."""

    def __init__(self, name: str, size: int) -> None:
        self._spool, self._size = Spool(name), size

    def __setitem__(self, number: int, record: bytes) -> None:
        if len(record) != self._size:
            raise ValueError(f"a record of {len(record)} bytes, {self._size} are due")
        self._spool.write(self._size * number, record)

    def __getitem__(self, number: int) -> bytes:
        return self._spool.read(self._size * number, self._size).ljust(self._size, b"\0")


def log_opening(path: str | os.PathLike[str], name: str) -> None:
    """Write to the program's log that a file is opened: its name without folder, and kind `name`."""
    if _LOG.isEnabledFor(logging.DEBUG):
        _LOG.debug("opens %s, %s", name, os.path.basename(path))


def read_bounded(path: str | os.PathLike[str], name: str, most: int, *, regular: bool = False) -> bytes:
    """Return the content of a file; raise LocalError if it is unreadable or above `most` bytes.

    A device or a pipe that never ends is read no further; with `regular` any that is no regular file is
    refused, without waiting for it. Raises LocalError when the file cannot be read or is longer.
    """
    log_opening(path, name)
    try:
        with open(path, "rb", opener=_open_at_once if regular else None) as file:
            if regular and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LocalError(f"{path}: not a regular file")
            content = file.read(most + 1)
    except OSError as error:
        raise LocalError(f"{path}: cannot read {name} ({error.strerror})") from None
    if len(content) > most:
        raise LocalError(f"{path}: cannot read {name} (longer than {most} bytes)")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open a file and return its descriptor; do not block on a named pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_private(path: Path, name: str, kind: str, most: int, *, alone: bool = False) -> bytes:
    """Return the content of a private file; LocalError if other users have a right to it, or it is too long.

    `name` ("the identity") and `kind` ("an identity file") name it in errors. `alone`: also refuse a symbolic
    link, and a file with a second name. Raises LocalError, also for more than `most` bytes.
    """
    # O_NONBLOCK: opening a named pipe in place of the file must not block.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if alone else 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        reason = error.strerror
        if alone and error.errno == errno.ELOOP and path.is_symlink():
            reason = "it is a symbolic link: name the file itself"
        raise LocalError(f"{path}: cannot read {name} ({reason})") from None
    try:
        # The open file is checked, not its path: the file cannot be exchanged in between.
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode):
            raise LocalError(f"{path}: not a regular file")
        if alone and status.st_nlink != 1:
            raise LocalError(f"{path}: has a second name (hard link): each would be used by itself")
        if mode & 0o077:
            raise LocalError(f"{path}: mode {mode:04o} lets others at {name}: run chmod 600 on it")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise LocalError(f"{path}: cannot read {name} ({error.strerror})") from None
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise LocalError(f"{path}: not {kind} (longer than {most} bytes)")
    return content


def read_npy(file: BinaryIO) -> NDArray[Any]:
    """Read the array of an open `.npy` file; raise ValueError if it holds none, or objects."""
    try:
        with warnings.catch_warnings(action="ignore"):
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    # The header is a Python literal: numpy does not catch the errors of its parser, or of a wrong type in it.
    except (
        ArithmeticError,
        EOFError,
        LookupError,
        MemoryError,
        RecursionError,
        SyntaxError,
        TypeError,
        tokenize.TokenError,
    ) as error:
        raise ValueError(str(error)) from None
    return array


@contextmanager
def lock_folder(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold an exclusive lock on a folder in the block; wait for other processes. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def write_file(path: str | os.PathLike[str], content: bytes, name: str) -> None:
    """Overwrite a file, not atomically; raise LocalError, naming the kind of file `name`, on failure."""
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise LocalError(f"{path}: cannot write {name} ({error.strerror})") from None


def replace_file(
    path: str | os.PathLike[str],
    write: Callable[[BinaryIO], object],
    mode: int = 0o666,
    *,
    beside: Path | None = None,
    new: bool = False,
) -> None:
    """Write a file atomically: `write` fills a temporary file, which then replaces the file at `path`.

    `mode`: the most permissive mode of the file. `beside`: path of the temporary file, if no other process
    writes there at the same time; remains of a crash are removed. `new`: FileExistsError is raised for an
    existing file. The file is on disk when this returns. Raises OSError, and the errors of `write`; nothing
    is left behind then.
    """
    offset = Path(path)
    draft = beside or offset.with_name(f".{offset.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        if beside is not None:
            beside.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.link(draft, offset)
            draft.unlink()
        else:
            os.replace(draft, offset)
        folder = os.open(offset.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        draft.unlink(missing_ok=True)
