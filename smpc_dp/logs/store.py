"""Durable store of a board's log: one SQLite file, in which every append is whole and on disk, or absent."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self

from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.logs.log import Chain, Entry, Header, decode_line, encode_line, not_next, read_header

# "SDPB": distinguishes a board from other databases.
APPLICATION_ID = 0x53445042
# Version of the tables; SQLite's 0 means 1. The log in them has a version of its own.
VERSION = 1
_SCHEMA = "CREATE TABLE log (sequence INTEGER PRIMARY KEY, line BLOB NOT NULL) STRICT"
_BUSY_SECONDS = 10.0
MAX_SEQUENCE = (1 << 63) - 1
_MAGIC = b"SQLite format 3\x00"


def is_store(path: Path) -> bool:
    """Tell whether a file begins as an SQLite database; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def is_begun(path: Path) -> bool:
    """Tell whether a log's SQLite file has a header, which it lacks after a crash at its creation."""
    if not path.stat().st_size:
        return False
    connection = _connect(path, "ro")
    try:
        return connection.execute("PRAGMA application_id").fetchall() != [(0,)]
    except sqlite3.Error as error:
        raise LocalError(f"{path}: the board cannot be used ({error})") from None
    finally:
        connection.close()
        _remove_empty_journal(path)


class Store:
    """SQLite file that holds the log of one run: header and entries; appends are durable.

    SQLite in WAL mode with synchronous=FULL: a crash at any moment leaves a prefix of the log that ends with
    a whole append. Another process may read at the same time. Raises LocalError for errors of the file system
    and of SQLite.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, writable: bool) -> None:
        self._path = path
        self._connection = connection
        self._writable = writable

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Header) -> Self:
        """Create a new log file with this header, mode 0600; raise LocalError if the file exists."""
        file = Path(path)
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise LocalError(f"{file}: exists already, and a board is never overwritten") from None
        except OSError as error:
            raise LocalError(f"{file}: cannot make the board ({error.strerror})") from None
        store = cls(file, _connect(file, "rwc"), writable=True)
        try:
            store._connection.execute("PRAGMA journal_mode = WAL")
            store._connection.execute("PRAGMA synchronous = FULL")
            with store._connection:
                store._connection.execute("BEGIN IMMEDIATE")
                store._connection.execute(_SCHEMA)
                store._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                store._insert([(0, encode_line(header))])
        except sqlite3.Error as error:
            raise store._failed(error) from None
        return store

    @classmethod
    def begin(cls, path: Path, header: Header) -> Self:
        """Open the log file with this header, made if missing or without any; LocalError for another one."""
        if not path.exists() or not is_begun(path):
            path.unlink(missing_ok=True)
            return cls.create(path, header)
        store = cls.open(path, writable=True)
        if [*store.lines(0)] != [encode_line(header)]:
            store.close()
            raise LocalError(f"{path}: is the log of another run, and a board is never overwritten")
        return store

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, writable: bool = False) -> Self:
        """Open an existing log file, by default read-only, unchecked; LocalError if it is no log's file.

        Raises LocalError if the file is no board.
        """
        file = Path(path)
        if not file.is_file():
            raise LocalError(f"{file}: no such board")
        store = cls(file, _connect(file, "rw" if writable else "ro"), writable=writable)
        try:
            store._connection.execute("PRAGMA synchronous = FULL")
            [(kind,)] = store._connection.execute("PRAGMA application_id").fetchall()
            [(version,)] = store._connection.execute("PRAGMA user_version").fetchall()
        except sqlite3.Error as error:
            raise store._failed(error) from None
        if kind != APPLICATION_ID:
            store.close()
            raise LocalError(f"{file}: not a board")
        if (version or VERSION) != VERSION:
            store.close()
            raise LocalError(f"{file}: is a board's store of version {version}; this release reads {VERSION}")
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a writer first moves all entries from SQLite's journal into it.

        The last connection leaves no journal beside it.
        """
        if self._writable:
            # The last connection does this by itself, but not that of a reader, which may not write.
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._connection.close()
        if not self._writable:
            _remove_empty_journal(self._path)

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries in one durable transaction, all or none; LocalError if they do not follow.

        Raises LocalError if the log does not end just before them.
        """
        if not entries:
            return
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                last = self._last()
                if entries[0].sequence != last + 1:
                    raise LocalError(
                        f"{self._path}: ends with {last}, entry {entries[0].sequence} cannot follow"
                    )
                self._insert([(entry.sequence, encode_line(entry)) for entry in entries])
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def missing(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return those of the entries that the log lacks; LocalError if it has others in their place."""
        try:
            last = self._last()
        except sqlite3.Error as error:
            raise self._failed(error) from None
        there = [entry for entry in entries if entry.sequence <= last]
        for entry in there:
            if [*self.lines(entry.sequence, entry.sequence)] != [encode_line(entry)]:
                raise not_next(self._path, entry)
        return entries[len(there) :]

    def extent(self) -> tuple[int, int]:
        """Return the number of the last entry, and the log's size as JSON lines; LocalError if unreadable."""
        try:
            [(last, size)] = self._connection.execute(
                "SELECT max(sequence), sum(length(line) + 1) FROM log"
            ).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from None
        return last or 0, size or 0

    def lines(self, last: int = MAX_SEQUENCE, first: int = 0) -> Iterator[bytes]:
        """Yield the JSON lines of entries `first` to `last`, inclusive; 0 is the header; or LocalError."""
        query = "SELECT line FROM log WHERE sequence BETWEEN ? AND ? ORDER BY sequence"
        try:
            for (line,) in self._connection.execute(query, (first, last)):
                if not isinstance(line, bytes):
                    raise LocalError(f"{self._path}: not a board")
                yield line
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def export(self, out: BinaryIO) -> int:
        """Write the log as JSON lines to a file; return the number of bytes written."""
        return sum(out.write(line + b"\n") for line in self.lines())

    def resume(self) -> Chain:
        """Check the log's hash chain, no signatures; return it to go on with; VerificationError if wrong.

        Raises:
            VerificationError: the file does not hold a valid log.
        """
        lines = self.lines()
        header = next(lines, None)
        if header is None:
            raise VerificationError(f"{self._path}: the log is empty", Check.LOG_CUT)
        chain = Chain(read_header(header))
        for line in lines:
            chain.follow(decode_line(line, Entry))
        return chain

    def _last(self) -> int:
        """Return the number of the last stored log entry; 0 if there is only the header."""
        [(last,)] = self._connection.execute("SELECT max(sequence) FROM log").fetchall()
        return int(last or 0)

    def _insert(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Insert lines with these entry numbers, in the transaction of the caller."""
        self._connection.executemany("INSERT INTO log VALUES (?, ?)", rows)

    def _failed(self, error: sqlite3.Error) -> LocalError:
        """Close the store after an SQLite error; return the LocalError that reports it."""
        self.close()
        return LocalError(f"{self._path}: the board cannot be used ({error})")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open the SQLite file of a log in mode `ro`, `rw` or `rwc`; raise LocalError if that fails."""
    try:
        # Python's own transaction handling is off; an aggregator appends from any of its threads.
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise LocalError(f"{path}: cannot open the board ({error})") from None


def _remove_empty_journal(path: Path) -> None:
    """Delete SQLite's empty journal file that a reader left beside a log; keep one with entries.

    SQLite removes it when the last connection closes that may write, so of a log in use nothing changes. A
    journal with entries, of a process that crashed, stays for who goes on with the log.
    """
    journal = path.with_name(f"{path.name}-wal")
    with contextlib.suppress(OSError, sqlite3.Error, LocalError):
        if journal.stat().st_size == 0:
            with contextlib.closing(_connect(path, "rw")) as connection:
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("PRAGMA application_id").fetchall()
