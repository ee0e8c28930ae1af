"""The board of a session on disk: a folder with the log of each run and the session logs."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.files import lock_folder, read_bounded, replace_file
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.checkpoint import sign_checkpoint
from smpc_dp.logs.log import Chain, Entry, Header, encode_line, first_head, next_head, not_next
from smpc_dp.logs.runs import NO_HEAD, CertifiedLine, RunLine, SessionLog, checked_first, decode_later_line
from smpc_dp.logs.signed_note import MAX_BYTES
from smpc_dp.logs.store import Store, is_begun

_LOG = logging.getLogger("smpc_dp.logs")


class FileSessionLog(SessionLog):
    """List of a session's runs in a file of JSON lines, mode 0600, durable at each new line.

    Lines that other processes have added are read before one is written; two processes do not write at once.
    A line that a crash cut is removed: nobody was shown it. Raises LocalError for what the file system
    refuses, and for a file that is another log, or damaged. With the key of its checkpoints the file beside
    it, `.checkpoint`, has the signed checkpoint of all lines.
    """

    def __init__(
        self, path: Path, session: bytes, scope: bytes, checkpoint_identity: Identity | None = None
    ) -> None:
        super().__init__(session, scope)
        self._path, self._checkpoint_identity = path, checkpoint_identity
        _LOG.debug("opens the session log, %s", path.name)
        # Of the lines that were read.
        self._end = 0
        with self._alone():
            if not path.exists():
                replace_file(path, lambda out: out.write(encode_line(self.first) + b"\n"), 0o600)
            self._read()

    def keep(self, line: RunLine | CertifiedLine) -> None:
        """Append a line to the file durably, unless it is there, and renew the log's checkpoint."""
        with self._alone():
            self._read()
            if not self._has(line):
                self._write(encode_line(line))
                self._read()
            self._publish()

    def _publish(self) -> None:
        """Write a signed checkpoint of the log beside it; do nothing without a key, or if it is there."""
        if self._checkpoint_identity is None:
            return
        path, note = self._path.with_suffix(".checkpoint"), sign_checkpoint(self, self._checkpoint_identity)
        if not (path.exists() and read_bounded(path, "the checkpoint", MAX_BYTES).startswith(note)):
            replace_file(path, lambda out: out.write(note))

    def refresh(self) -> None:
        """Read lines that other processes have appended to the session log's file."""
        with self._alone():
            self._read()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder against other processes in the block; raise LocalError for an OSError."""
        try:
            with lock_folder(self._path.parent):
                yield
        except OSError as error:
            raise LocalError(f"{self._path}: cannot use the session log ({error.strerror})") from None

    def _read(self) -> None:
        """Read lines added since the last time; cut off an incomplete one; LocalError if unfit."""
        with self._path.open("rb") as file:
            file.seek(self._end)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    if not self._end and checked_first(line[:-1]) != self.first:
                        raise VerificationError("it is of another session or group", Check.OTHER_SESSION)
                    if self._end:
                        self.take(decode_later_line(line[:-1]))
                except VerificationError as error:
                    raise LocalError(f"{self._path}: not the session log that is due ({error})") from None
                self._end += len(line)
        if not self._end:
            raise LocalError(f"{self._path}: not a session log")
        os.truncate(self._path, self._end)

    def _write(self, line: bytes) -> None:
        """Append a line to the file durably; on failure raise LocalError and undo a partial write."""
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
    """Folder in which an aggregator stores the log of each run, and the list of runs.

    Beside them are the session logs, `session-SCOPE.jsonl` and of groups `group-SCOPE.jsonl`. `session` is
    the canonical JSON of the session, `checkpoint_identity` signs the checkpoints of the session logs. The
    folder is created for the first log.
    """

    def __init__(
        self, folder: str | os.PathLike[str], session: str, checkpoint_identity: Identity | None = None
    ) -> None:
        self.session = session
        self._checkpoint_identity = checkpoint_identity
        self.folder = Path(folder)
        self.current: Path | None = None
        self._store: Store | None = None
        # A step whose wait was cancelled goes on in its thread, in which a store that is closed then crashes.
        self._lock = threading.RLock()
        self._paths: dict[int, Path] = {}
        self._session_logs: dict[bytes, FileSessionLog] = {}
        # The last head of each log written by this process.
        self._heads: dict[str, bytes] = {}

    def runs(self, session: bytes, scope: bytes) -> FileSessionLog:
        """Return the list of runs of a session or group, from its file; LocalError if that is damaged."""
        if scope not in self._session_logs:
            self.make()
            name = f"{'session' if scope == session else 'group'}-{scope.hex()[:16]}.jsonl"
            self._session_logs[scope] = FileSessionLog(
                self.folder / name, session, scope, self._checkpoint_identity
            )
        return self._session_logs[scope]

    def head_of(self, run: RunLine) -> bytes:
        """Return the last hash of an earlier run's log; `NO_HEAD` (zeros) if that has no log."""
        if run.run_id in self._heads:
            return self._heads[run.run_id]
        path = self._path(run.request, run.run_id)
        if not path.is_file() or not is_begun(path):
            return NO_HEAD
        return self._resumed(path).head

    def _resumed(self, path: Path) -> Chain:
        """Return the hash chain of an earlier run's log, read anew; LocalError if it is damaged."""
        with Store.open(path) as store:
            try:
                return store.resume()
            except VerificationError as error:
                raise LocalError(f"{path}: the log of an earlier run is damaged ({error})") from None

    def _path(self, request: int, run_id: str) -> Path:
        """Return the path of a run's log file in this folder."""
        return self.folder / f"request-{request}-{run_id[:16]}.board"

    def make(self) -> None:
        """Create the folder if it does not exist; raise LocalError on failure."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{self.folder}: cannot make the board's folder ({error.strerror})") from None

    def begin(self, header: Header) -> None:
        """Create or reopen a run's log file, and make it current; close, and copy, the one before."""
        path, head = self._path(header.request, header.run_id), first_head(encode_line(header))
        self._go_on(header.request, header.run_id, lambda: Store.begin(path, header), (0, head))

    def resume(self, run: RunLine) -> tuple[int, bytes]:
        """Reopen an interrupted run's log; return its length and last hash; LocalError if it is missing."""
        path = self._path(run.request, run.run_id)
        if not path.is_file() or not is_begun(path):
            raise LocalError(
                f"{path}: is not there; the log of the run was set back, or is on another medium"
            )
        chain = self._resumed(path)
        ends = (chain.length, chain.head)
        self._go_on(run.request, run.run_id, lambda: Store.open(path, writable=True), ends)
        return ends

    def _go_on(
        self, request: int, run_id: str, open_store: Callable[[], Store], ends: tuple[int, bytes]
    ) -> None:
        """Close the log that is open, and make another one, of this request and run, current."""
        with self._lock:
            self.close()
            self.make()
            self._store = open_store()
            self.current, self._run_id = self._path(request, run_id), run_id
            _LOG.info("request %d: its log is %s", request, self.current.name)
            self._length, head = ends
            self._heads, self._paths[request] = {run_id: head}, self.current

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries to the current log durably, but known ones; LocalError if they do not follow."""
        with self._lock:
            if self._store is None:
                raise LocalError(f"{self.folder}: no log was begun")
            added = self._store.missing(entries)
            length, head = self._length, self._heads[self._run_id]
            for entry in entries:
                # Another process may have added those that are there.
                if entry.sequence > length:
                    if (entry.sequence, entry.previous) != (length + 1, head.hex()):
                        raise not_next(self.current, entry)
                    length, head = entry.sequence, next_head(head, [entry.digest()])
            self._store.append(added)
            self._length, self._heads[self._run_id] = length, head

    def lines(self, request: int, first: int, size: int) -> list[bytes]:
        """Return lines of a request's log from `first` on, at least one, to `size` bytes; [] without a log.

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
        """Close the current log, and write a JSON-lines copy beside it; LocalError if that fails."""
        with self._lock:
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
