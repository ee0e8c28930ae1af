"""The board of a session on disk: a folder with the log of each run and the session logs."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.files import replace_file
from smpc_dp.log.log import Entry, Header, encode_line, first_head, next_head
from smpc_dp.log.runs import NO_HEAD, RunLine, SessionLog, checked_first, read_line
from smpc_dp.log.store import Store, is_begun

_LOG = logging.getLogger("smpc_dp.net")


class FileSessionLog(SessionLog):
    """Session log in a file of JSON lines, mode 0600; a line is on disk when `begin` or `certify` returns.

    A line cut by a crash is removed: no party was shown it. Raises LocalError for errors of the file system,
    and for a file that is another log, or damaged.
    """

    def __init__(self, path: Path, session: bytes, scope: bytes) -> None:
        super().__init__(session, scope)
        self._path = path
        _LOG.debug("opens the session log, %s", path.name)
        try:
            if path.exists():
                self._read()
            else:
                replace_file(path, lambda out: out.write(encode_line(self.first) + b"\n"), 0o600)
        except OSError as error:
            raise LocalError(f"{path}: cannot use the session log ({error.strerror})") from None

    def _read(self) -> None:
        """Read the file, and remove a line cut by a crash."""
        end, first = 0, True
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    if first and checked_first(line[:-1]) != self.first:
                        raise VerificationError("it is of another session or group", Check.OTHER_SESSION)
                    if not first:
                        self.take(read_line(line[:-1]))
                except VerificationError as error:
                    raise LocalError(f"{self._path}: not the session log that is due ({error})") from None
                end, first = end + len(line), False
        if first:
            raise LocalError(f"{self._path}: not a session log")
        os.truncate(self._path, end)

    def _keep(self, line: bytes) -> None:
        try:
            # Without a buffer: a line left in it would be written again when the file is closed.
            with self._path.open("ab", buffering=0) as file:
                end = file.tell()
                try:
                    if file.write(line + b"\n") <= len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except OSError:
                    # No party was shown the line, and the next one has its number.
                    file.truncate(end)
                    raise
        except OSError as error:
            raise LocalError(f"{self._path}: cannot write the session log ({error.strerror})") from None


class BoardFolder:
    """Folder of an aggregator's logs: `request-N-RUN.board`, RUN the first 16 digits of the run id.

    Beside them are the session logs, `session-SCOPE.jsonl` and of groups `group-SCOPE.jsonl`. `session` is
    the canonical JSON of the session. The folder is created for the first log.
    """

    def __init__(self, folder: str | os.PathLike[str], session: str) -> None:
        self.session = session
        self.folder = Path(folder)
        self.current: Path | None = None
        self._store: Store | None = None
        self._paths: dict[int, Path] = {}
        self._session_logs: dict[bytes, FileSessionLog] = {}
        # The last head of each log written by this process.
        self._heads: dict[str, bytes] = {}

    def runs(self, session: bytes, scope: bytes) -> FileSessionLog:
        """Return the session log of a scope, from its file; raise LocalError if it is damaged."""
        if scope not in self._session_logs:
            self.make()
            name = f"{'session' if scope == session else 'group'}-{scope.hex()[:16]}.jsonl"
            self._session_logs[scope] = FileSessionLog(self.folder / name, session, scope)
        return self._session_logs[scope]

    def head_of(self, run: RunLine) -> bytes:
        """Return the last head of the log of an earlier run, `NO_HEAD` if there is none."""
        if run.run_id in self._heads:
            return self._heads[run.run_id]
        path = self._path(run.request, run.run_id)
        if not path.is_file() or not is_begun(path):
            return NO_HEAD
        with Store.open(path) as store:
            try:
                return store.resume().head
            except VerificationError as error:
                raise LocalError(f"{path}: the log of an earlier run is damaged ({error})") from None

    def _path(self, request: int, run_id: str) -> Path:
        """Return the path of a run's log."""
        return self.folder / f"request-{request}-{run_id[:16]}.board"

    def make(self) -> None:
        """Create the folder if it does not exist; raise LocalError on failure."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{self.folder}: cannot make the board's folder ({error.strerror})") from None

    def begin(self, header: Header) -> None:
        """Create the log of a run."""
        self.close()
        self.make()
        self.current = self._path(header.request, header.run_id)
        _LOG.info("request %d: its log is %s", header.request, self.current.name)
        self._store = Store.create(self.current, header)
        self._run_id = header.run_id
        self._heads = {self._run_id: first_head(encode_line(header))}
        self._paths[header.request] = self.current

    def append(self, entries: Sequence[Entry]) -> None:
        """Store the next entries; they are on disk when this returns."""
        if self._store is None:
            raise LocalError(f"{self.folder}: no log was begun")
        self._store.append(entries)
        digests = [entry.digest() for entry in entries]
        self._heads[self._run_id] = next_head(self._heads[self._run_id], digests)

    def lines(self, request: int, first: int, size: int) -> list[bytes]:
        """Return lines of a request's log from `first` on, up to `size` bytes but at least one.

        Line 0 is the header.
        """
        path = self._paths.get(request)
        if path is None:
            return []
        result: list[bytes] = []
        with Store.open(path) as store:
            for line in store.lines(first=first):
                size -= len(line)
                if result and size < 0:
                    break
                result.append(line)
        return result

    def close(self) -> None:
        """Close the current log, and write it as JSON lines beside it."""
        if self._store is None or self.current is None:
            return
        path = self.current.with_suffix(".jsonl")
        try:
            replace_file(path, self._store.export)
        except OSError as error:
            raise LocalError(f"{path}: cannot write the log ({error.strerror})") from None
        finally:
            self._store.close()
            self._store = None
