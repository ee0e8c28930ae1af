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
    """Content of the file; `owner`: of which folder it is."""

    format: Literal["smpc-dp progress of a call"]
    version: int
    owner: str
    call: str
    first: int
    state: bytes
    results: dict[int, bytes]


class Progress:
    """Results of the requests of one call, and what its caller made of earlier ones: here nothing is kept.

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
        """Whether the call has ended by an error of one of its requests."""
        return b"" in self.results.values()

    def begin(self, call: str, first: int) -> None:
        """Begin a call whose first request has this number; what is kept of the last call is dropped."""

    def add(self, number: int, result: bytes) -> None:
        """Keep the result of a request, before the next one begins; b"": its error has ended the call."""

    def keep(self, state: bytes) -> None:
        """Keep what follows from all results so far, in their place."""

    def missing(self, number: int) -> LocalError:
        """Return the error of a request that is over, and whose result is not kept."""
        return LocalError(f"the result of request {number} was not kept")


class SavedProgress(Progress):
    """Progress in a file, which is replaced as a whole; each change is on disk when its method returns.

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
        """See `Progress.begin`."""
        self._write(call, first, b"", {})

    def add(self, number: int, result: bytes) -> None:
        """See `Progress.add`."""
        self._write(self.call, self.first, self.state, self.results | {number: result})

    def keep(self, state: bytes) -> None:
        """See `Progress.keep`."""
        self._write(self.call, self.first, state, {})

    def missing(self, number: int) -> LocalError:
        """See `Progress.missing`."""
        reason = f"the result of request {number}, which is over, is not there: the file was set back"
        return LocalError(f"{self.path}: {reason}")

    def _write(self, call: str, first: int, state: bytes, results: dict[int, bytes]) -> None:
        content = msgspec.msgpack.encode(_Saved(FORMAT, 1, self._owner, call, first, state, results))
        try:
            replace_file(self.path, lambda file: file.write(content), 0o600)
        except OSError as error:
            raise LocalError(f"{self.path}: cannot be written ({error.strerror})") from None
        self.call, self.first, self.state, self.results = call, first, state, results
