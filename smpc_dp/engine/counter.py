"""The counter of saved states: the newest state of each attempt, on a medium that is never restored.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import msgspec

from smpc_dp.engine.attempt_files import AttemptFiles
from smpc_dp.errors import LocalError


class Entry(msgspec.Struct, frozen=True):
    """Number and digest of the newest state of an attempt."""

    number: int
    digest: bytes


class Counter(Protocol):
    """Interface of a counter: the newest entry of each attempt.

    It only grows, whatever happens to other media.
    """

    def read(self, attempt: bytes) -> Entry | None:
        """Return the newest entry; None if there is none."""

    def advance(self, attempt: bytes, before: Entry | None, after: Entry) -> None:
        """Replace `before` by `after`, durably and atomically; do nothing if `after` is there already.

        Raises LocalError if another entry is there, or on failure.
        """


class _Marked(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Content of a counter's file."""

    version: Literal[1]
    number: int
    digest: bytes


class FileCounter:
    """Counter in a folder, one file for each attempt.

    It is as safe against restoring as the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._files = AttemptFiles(folder, ".counter", "counter of saved states", _Marked)

    def read(self, attempt: bytes) -> Entry | None:
        """See `Counter.read`."""
        return _entry(self._files.read(attempt))

    def advance(self, attempt: bytes, before: Entry | None, after: Entry) -> None:
        """See `Counter.advance`."""
        with self._files.held(attempt) as result:
            entry = _entry(result)
            if entry == after:
                return
            if entry != before:
                raise LocalError(
                    f"the counter is not at {before and before.number}: the state is not the newest"
                )
            self._files.write(attempt, _Marked(1, after.number, after.digest))

    def remove(self, attempt: bytes) -> None:
        """Remove the entry of an attempt whose request is never restored again."""
        self._files.remove(attempt)


def _entry(result: _Marked | None) -> Entry | None:
    """Return the entry of a file's content."""
    return None if result is None else Entry(result.number, result.digest)
