"""Small private files, one for each attempt: written whole, durably, by one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from smpc_dp.decoding import decode_msgpack
from smpc_dp.errors import LocalError
from smpc_dp.files import read_bounded, replace_file
from smpc_dp.privacy.accountant.store import locked

T = TypeVar("T", bound=msgspec.Struct)

_MOST = 1 << 20


class AttemptFiles(Generic[T]):
    """The files ATTEMPT.SUFFIX in an existing folder; `name` names them in errors ("keys of saved states").

    Raises LocalError on failure.
    """

    def __init__(self, folder: Path, suffix: str, name: str, kind: type[T]) -> None:
        self._folder, self._suffix, self._name, self._kind = folder, suffix, name, kind

    def read(self, attempt: bytes) -> T | None:
        """Return the content for an attempt, or None."""
        path = self._path(attempt)
        if not path.exists():
            return None
        content = read_bounded(path, f"the {self._name}", _MOST)
        if content and not content.strip(b"\0"):
            # A process has ended between overwriting and removing it.
            return None
        try:
            if path.stat().st_mode & 0o077:
                raise LocalError(f"{path}: others can read or write it: run chmod 600 on it")
            result = decode_msgpack(content, self._kind)
        except (msgspec.DecodeError, OSError):
            result = None
        if result is None or msgspec.msgpack.encode(result) != content:
            raise LocalError(f"{path}: is damaged, or of another version")
        return result

    @contextmanager
    def held(self, attempt: bytes) -> Iterator[T | None]:
        """Lock the folder against other processes, and yield the content for an attempt."""
        path = self._path(attempt)
        with locked(self._folder / "attempts"):
            # Of a process that ended in the middle of a write.
            drafts = [*self._folder.glob(f".{path.name}.*")]
            if drafts:
                # The file that replaced an old one must stay when the old one is overwritten.
                self._sync()
            for draft in drafts:
                self._remove(draft, path)
            yield self.read(attempt)

    def write(self, attempt: bytes, content: T) -> None:
        """Write the file as a whole, and overwrite the old content; only under the lock."""
        path = self._path(attempt)
        # A name under which the old file is found if this process ends before it is overwritten.
        old = path.with_name(f".{path.name}.old")
        try:
            if path.exists():
                os.link(path, old)
            replace_file(path, lambda file: file.write(msgspec.msgpack.encode(content)), 0o600)
        except OSError as error:
            raise LocalError(f"{path}: cannot write the {self._name} ({error.strerror})") from None
        self._remove(old, path)

    def remove(self, attempt: bytes) -> None:
        """Overwrite and remove the file, if there is one."""
        with self.held(attempt):
            self._remove(self._path(attempt))

    def _path(self, attempt: bytes) -> Path:
        """Return the path of an attempt's file."""
        if not self._folder.is_dir():
            raise LocalError(f"{self._folder}: no such folder, for the {self._name}")
        return self._folder / f"{attempt.hex()}{self._suffix}"

    def _remove(self, path: Path, retained: Path | None = None) -> None:
        """Overwrite and remove a file, durably; one that is also named `retained` loses only this name."""
        try:
            if not path.exists():
                return
            if retained is None or not retained.exists() or not path.samefile(retained):
                with path.open("r+b") as file:
                    _overwrite(file.fileno())
            path.unlink()
        except OSError as error:
            raise LocalError(f"{path}: cannot remove the {self._name} ({error.strerror})") from None
        self._sync()

    def _sync(self) -> None:
        """Return when the folder's entries are on disk."""
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise LocalError(f"{self._folder}: cannot write the {self._name} ({error.strerror})") from None


def _overwrite(descriptor: int) -> None:
    """Write zeros over an open file."""
    os.pwrite(descriptor, bytes(os.fstat(descriptor).st_size), 0)
    os.fsync(descriptor)
