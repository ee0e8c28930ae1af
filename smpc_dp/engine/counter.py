"""The counter of saved states: the newest state of each attempt, on a medium that is never restored.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from smpc_dp.engine.attempt_files import CONTENT_BYTES, AttemptFile, AttemptFiles
from smpc_dp.errors import LocalError


class Entry(msgspec.Struct, frozen=True):
    """Entry of a counter against rollback: number and digest of the newest saved state of a run."""

    number: int
    digest: bytes


class Counter(Protocol):
    """Interface of a counter that detects restored old states: stores the newest entry of each run.

    It only grows, whatever happens to other media.
    """

    def read(self, attempt: bytes) -> Entry | None:
        """Return the newest entry of an attempt of a run; None if the counter has no entry of the attempt."""

    def advance(self, attempt: bytes, before: Entry | None, after: Entry) -> None:
        """Replace entry `before` by `after`, atomically and on disk; do nothing if `after` is there already.

        Raises LocalError if another entry is there, or on failure.
        """


class FileCounter:
    """Counter that detects restored old states, in a folder with a file per attempt of a run.

    It is as safe against restoring as the folder. The slot with the greatest number has the newest entry: the
    next one is written over the other slot.
    """

    def __init__(self, folder: Path) -> None:
        self._files = AttemptFiles(folder, ".counter", "counter of saved states", 2)

    def read(self, attempt: bytes) -> Entry | None:
        """Return the newest entry of an attempt of a run; None if the attempt has no file or an empty one."""
        with self._files.opened(attempt) as file:
            return _entry(file)

    def advance(self, attempt: bytes, before: Entry | None, after: Entry) -> None:
        """Replace entry `before` by `after` on disk; LocalError if the entry is neither of them."""
        with self._files.opened(attempt, create=before is None) as file:
            entry = _entry(file)
            if file is None or entry not in (before, after):
                raise LocalError(
                    f"the counter is not at {before and before.number}: the state is not the newest"
                )
            if entry == after:
                # A process that was killed may have written it, and not brought it to the disk.
                file.renew()
            elif entry is None:
                file.create(after.number, _packed(after))
            else:
                file.put(2 if file.slots[-1].ordinal == 1 else 1, after.number, _packed(after))

    def remove(self, attempt: bytes) -> None:
        """Remove the counter's entry of an attempt that will never be restored."""
        self._files.remove(attempt)


def _packed(entry: Entry) -> bytes:
    """Return a counter entry's digest, with its length in front, as the content of a file's slot."""
    return (bytes([len(entry.digest)]) + entry.digest).ljust(CONTENT_BYTES, b"\0")


def _entry(file: AttemptFile | None) -> Entry | None:
    """Return the newest counter entry in a file; None without a file, or if the file has no entry yet."""
    if file is None or file.is_absent:
        return None
    _, number, content = file.slots[-1]
    return Entry(number, content[1 : 1 + content[0]])
