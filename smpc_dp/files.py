"""Files: read no further than was said, where somebody else decides the size; written whole or not at all."""

from __future__ import annotations

import errno
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
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import LocalError

# Of a spool, what is kept in memory; and what is read of it at a time.
SPOOL_MEMORY, SPOOL_BLOCK = 1 << 18, 1 << 16

_LOG = logging.getLogger("smpc_dp")


class Spool:
    """Bytes that are put aside: in memory while they are few, then in a file of ours alone, without a name.

    They are gone when nobody has it any more, or after `close()`. Threads may share one. Raises LocalError
    where the disk refuses, with `name` they are. `length` is where the last byte ends.
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
        """Write behind the last byte."""
        with self._lock:
            self._write(self.length, content)

    def write(self, offset: int, content: bytes) -> None:
        """Write from byte `offset` on; what was never written before it reads as zeros."""
        with self._lock:
            self._write(offset, content)

    def _write(self, offset: int, content: bytes) -> None:
        end = offset + len(content)
        try:
            if end > SPOOL_MEMORY:
                # Before it is written: all up to a place far behind the last byte would be in memory.
                self._file.rollover()
            self._file.seek(offset)
            self._file.write(content)
        except OSError as error:
            raise self._failed(error) from None
        self.length = max(self.length, end)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from byte `offset` on, less only where the spool ends."""
        try:
            with self._lock:
                self._file.seek(offset)
                return self._file.read(size)
        except OSError as error:
            raise self._failed(error) from None

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield what is from `start` to before `end`, some at a time."""
        end = self.length if end is None else min(end, self.length)
        for offset in range(start, end, SPOOL_BLOCK):
            yield self.read(offset, min(SPOOL_BLOCK, end - offset))

    def _failed(self, error: OSError) -> LocalError:
        return LocalError(
            f"cannot put {self._name} aside ({error.strerror}): is there room in {tempfile.gettempdir()}?"
        )


class Records:
    """As many records of `size` bytes as are asked for, in a spool: those never written are zeros."""

    def __init__(self, name: str, size: int) -> None:
        self._spool, self._size = Spool(name), size

    def __setitem__(self, number: int, record: bytes) -> None:
        if len(record) != self._size:
            raise ValueError(f"a record of {len(record)} bytes, {self._size} are due")
        self._spool.write(self._size * number, record)

    def __getitem__(self, number: int) -> bytes:
        return self._spool.read(self._size * number, self._size).ljust(self._size, b"\0")


def log_opened(path: str | os.PathLike[str], name: str) -> None:
    """Log that a file is opened: its name, without the folder, and `name` it is ("the graph")."""
    _LOG.debug("opens %s, %s", name, Path(path).name)


def read_bounded(path: str | os.PathLike[str], name: str, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes; `name` names it in errors ("the graph").

    A device or a pipe that never ends is left after as many bytes. Raises LocalError when the file cannot be
    read or is longer.
    """
    log_opened(path, name)
    try:
        with Path(path).open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise LocalError(f"{path}: cannot read {name} ({error.strerror})") from None
    if len(content) > most:
        raise LocalError(f"{path}: cannot read {name} (longer than {most} bytes)")
    return content


def read_private(path: Path, name: str, kind: str, most: int, *, alone: bool = False) -> bytes:
    """Return the content of a regular file that nobody else can read or write.

    `name` ("the identity") and `kind` ("an identity file") name it in errors. `alone`: nor is its path a
    symbolic link, nor has it a second name. Raises LocalError, also for more than `most` bytes.
    """
    # O_NONBLOCK: a named pipe in the place of the file must not hang us.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if alone else 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        reason = error.strerror
        if alone and error.errno == errno.ELOOP and path.is_symlink():
            reason = "it is a symbolic link: name the file itself"
        raise LocalError(f"{path}: cannot read {name} ({reason})") from None
    try:
        # The open file is checked, not its path: the two cannot be exchanged in between.
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
    """Return the array in an open `.npy` file; raise ValueError if it holds none, or objects."""
    try:
        with warnings.catch_warnings(action="ignore"):
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    # The header is a Python literal: numpy lets through what its parser and a wrong type in it raise.
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


def write_file(path: str | os.PathLike[str], content: bytes, name: str) -> None:
    """Write a file, over an existing one; raise LocalError, with `name` it was, when that fails."""
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
    """Write a file as a whole or not at all: `write` fills another one beside it, which then takes its place.

    `mode`: what others may do with it, at most. `beside`: that other file, where nobody else writes it at the
    same time; what a crash left there is removed. `new`: FileExistsError is raised for an existing file. On
    disk when this returns. Raises OSError, and what `write` raises; nothing is left behind then.
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
