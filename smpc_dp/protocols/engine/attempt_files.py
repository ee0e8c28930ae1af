"""Small private files, one for each attempt, that change one process at a time and are each whole on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    """The files ATTEMPT.SUFFIX in a folder, which must be there; `what` they are ("keys of saved states").

    Raises LocalError for what cannot be done.
    """

    def __init__(self, folder: Path, suffix: str, what: str, kind: type[T]) -> None:
        self._folder, self._suffix, self._what, self._kind = folder, suffix, what, kind

    def read(self, attempt: bytes) -> T | None:
        """Return what is kept of an attempt, or None."""
        path = self._path(attempt)
        if not path.exists():
            return None
        content = read_bounded(path, f"the {self._what}", _MOST)
        try:
            if path.stat().st_mode & 0o077:
                raise LocalError(f"{path}: others can read or write it: run chmod 600 on it")
            found = decode_msgpack(content, self._kind)
        except (msgspec.DecodeError, OSError):
            found = None
        if found is None or msgspec.msgpack.encode(found) != content:
            raise LocalError(f"{path}: is damaged, or of another version")
        return found

    @contextmanager
    def held(self, attempt: bytes) -> Iterator[T | None]:
        """Keep other processes from changing anything in the folder, and give what is kept of an attempt."""
        path = self._path(attempt)
        with locked(self._folder / "attempts"):
            for draft in self._folder.glob(f".{path.name}.*"):
                # Of a process that has ended in the middle of a write.
                self._remove(draft)
            yield self.read(attempt)

    def write(self, attempt: bytes, content: T) -> None:
        """Write the file as a whole, and overwrite what was there; only while it is held."""
        path = self._path(attempt)
        try:
            with path.open("r+b") if path.exists() else nullcontext() as old:
                replace_file(path, lambda file: file.write(msgspec.msgpack.encode(content)), 0o600)
                if old is not None:
                    _overwrite(old.fileno())
        except OSError as error:
            raise LocalError(f"{path}: cannot write the {self._what} ({error.strerror})") from None

    def remove(self, attempt: bytes) -> None:
        """Overwrite the file and remove it; nothing if there is none."""
        with self.held(attempt):
            self._remove(self._path(attempt))

    def _path(self, attempt: bytes) -> Path:
        if not self._folder.is_dir():
            raise LocalError(f"{self._folder}: no such folder for {self._what}")
        return self._folder / f"{attempt.hex()}{self._suffix}"

    def _remove(self, path: Path) -> None:
        try:
            if path.exists():
                with path.open("r+b") as file:
                    _overwrite(file.fileno())
                path.unlink()
        except OSError as error:
            raise LocalError(f"{path}: cannot remove the {self._what} ({error.strerror})") from None


def _overwrite(descriptor: int) -> None:
    """Write zeros over an open file."""
    os.pwrite(descriptor, bytes(os.fstat(descriptor).st_size), 0)
    os.fsync(descriptor)
