"""The board of a session on disk: one log for each request, in a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from smpc_dp.board.log import Entry, Header
from smpc_dp.board.store import Store
from smpc_dp.errors import LocalError
from smpc_dp.files import replace_file


class BoardFolder:
    """Where a relay keeps its logs: `request-N-RUN.board`, RUN the first 16 digits of the run id.

    `session` is the canonical JSON of the session. The folder is made for the first log.
    """

    def __init__(self, folder: str | os.PathLike[str], session: str) -> None:
        self.session = session
        self.folder = Path(folder)
        self.current: Path | None = None
        self._store: Store | None = None
        self._places: dict[int, Path] = {}

    def make(self) -> None:
        """Make the folder if it is not there; raise LocalError if it cannot be."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{self.folder}: cannot make the board's folder ({error.strerror})") from None

    def begin(self, header: Header) -> None:
        """Begin the log of a run."""
        self.close()
        self.make()
        self.current = self.folder / f"request-{header.request}-{header.run_id[:16]}.board"
        self._store = Store.create(self.current, header)
        self._places[header.request] = self.current

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep the next entries; on disk when this returns."""
        if self._store is None:
            raise LocalError(f"{self.folder}: no log was begun")
        self._store.append(entries)

    def lines(self, request: int, first: int, size: int) -> list[bytes]:
        """Return lines of a request's log from `first` on, up to `size` bytes or one; 0 is the header."""
        place = self._places.get(request)
        if place is None:
            return []
        found: list[bytes] = []
        with Store.open(place) as store:
            for line in store.lines(first=first):
                size -= len(line)
                if found and size < 0:
                    break
                found.append(line)
        return found

    def close(self) -> None:
        """Close the log that was begun last, and write it as JSON lines beside it."""
        if self._store is None or self.current is None:
            return
        place = self.current.with_suffix(".jsonl")
        try:
            replace_file(place, self._store.export)
        except OSError as error:
            raise LocalError(f"{place}: cannot write the log ({error.strerror})") from None
        finally:
            self._store.close()
            self._store = None
