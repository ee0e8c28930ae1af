"""Progress of a call that takes several requests: a regression by steps, or a learner.

Specification: protocols/saved-states/sessions.md, "Calls of several requests".
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from smpc_dp.decoding import decode_msgpack
from smpc_dp.errors import LocalError
from smpc_dp.files import read_bounded, replace_file

FORMAT: Literal["smpc-dp progress of a call"] = "smpc-dp progress of a call"


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """File content: the progress of a call that makes several requests."""

    format: Literal["smpc-dp progress of a call"]
    version: int
    owner: str
    call: str
    first: int
    state: bytes
    results: dict[int, bytes]


class Progress:
    """Interface of the saved results of a call that makes several requests; here nothing is saved.

    Attributes:
        call: what the caller asks for; "" before the first call.
        first: the number of its first request; 0 before the first call.
        state: what the caller kept last; empty without.
        results: of the requests since then, by number.
    """

    def __init__(self) -> None:
        self.call, self.first, self.state = "", 0, b""
        self.results: dict[int, bytes] = {}

    @property
    def has_failed(self) -> bool:
        """Whether the call has ended because one of its requests failed."""
        return b"" in self.results.values()

    def begin(self, call: str, first: int) -> None:
        """Start to save results of a call from this request number on; does nothing in this base class."""

    def add(self, number: int, result: bytes) -> None:
        """Save the result of one request, b"" for an error; does nothing in this base class."""

    def keep(self, state: bytes) -> None:
        """Save a state in place of all results so far; does nothing in this base class."""

    def missing(self, number: int) -> LocalError:
        """Return the error for a request that has ended, but whose result was not kept."""
        return LocalError(f"the result of request {number} was not kept")


class SavedProgress(Progress):
    """Results so far of a call that makes several requests, kept in a file after every change.

    It reads and writes files: call it in a thread beside an event loop.
    """

    def __init__(self, path: Path, owner: str) -> None:
        """Read the file at `path`, if there is one; raise LocalError for one that cannot be read.

        `owner`: what the folder's file `owner` has for itself; a file of another one is refused.
        """
        super().__init__()
        self.path, self._owner = path, owner
        if not path.exists():
            return
        content = read_bounded(path, "the progress of a call", path.stat().st_size, regular=True)
        try:
            saved: _Saved = decode_msgpack(content, _Saved)
        except msgspec.DecodeError:
            raise LocalError(f"{path}: is damaged, or no progress of a call") from None
        if saved.version != 1:
            raise LocalError(f"{path}: is a progress of version {saved.version}; this release reads 1")
        if saved.owner != owner:
            raise LocalError(f"{path}: is of another folder: of another member, or another session")
        self.call, self.first, self.state = saved.call, saved.first, saved.state
        self.results = saved.results

    def begin(self, call: str, first: int) -> None:
        """Start a call whose first request has this number, in the file; forget the call before."""
        self._write(call, first, b"", {})

    def add(self, number: int, result: bytes) -> None:
        """Store one request's result in the file; b"" means that an error ended the call."""
        self._write(self.call, self.first, self.state, self.results | {number: result})

    def keep(self, state: bytes) -> None:
        """Replace all stored results by a state that summarises them, in the file."""
        self._write(self.call, self.first, state, {})

    def missing(self, number: int) -> LocalError:
        """Return the error for a request that has ended, but whose result is not in the file."""
        reason = f"the result of request {number}, which is over, is not there: the file was set back"
        return LocalError(f"{self.path}: {reason}")

    def _write(self, call: str, first: int, state: bytes, results: dict[int, bytes]) -> None:
        """Replace the file with a call's progress, durably; raise LocalError if that fails."""
        content = msgspec.msgpack.encode(_Saved(FORMAT, 1, self._owner, call, first, state, results))
        try:
            replace_file(self.path, lambda file: file.write(content), 0o600)
        except OSError as error:
            raise LocalError(f"{self.path}: cannot be written ({error.strerror})") from None
        self.call, self.first, self.state, self.results = call, first, state, results
