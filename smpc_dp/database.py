"""Small private SQLite files with durable commits."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from smpc_dp.errors import LocalError

BUSY_SECONDS = 10.0
# With FULL the removal of the journal is not synced: a power failure may then undo a commit.
SYNCHRONOUS = "EXTRA"


class Kind(NamedTuple):
    """Kind of database file: its content ("runs seen"), application id, version, and tables."""

    name: str
    application_id: int
    version: int
    schema: tuple[str, ...]


@contextmanager
def open_database(path: Path, kind: Kind) -> Iterator[sqlite3.Connection]:
    """Open a file of a kind, created with mode 0600; roll back what is not committed.

    Raises LocalError for an error of the system or of SQLite, another kind or version of file, and a file
    that others can write.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            mode = os.fstat(descriptor).st_mode & 0o777
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LocalError(f"{path}: cannot open the {kind.name} ({error.strerror})") from None
    if mode & 0o022:
        raise LocalError(f"{path}: mode {mode:04o} lets others write it: run chmod 600 on it")
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        connection.execute("PRAGMA secure_delete = ON")
        _check(connection, path, kind)
        yield connection
    except sqlite3.Error as error:
        raise LocalError(f"{path}: the {kind.name} cannot be used ({error})") from None
    finally:
        connection.close()


def _check(connection: sqlite3.Connection, path: Path, kind: Kind) -> None:
    """Create the tables of a new file; raise LocalError for another database or version."""
    [(result,)] = connection.execute("PRAGMA application_id").fetchall()
    if result == kind.application_id:
        # SQLite's 0 means 1.
        [(version,)] = connection.execute("PRAGMA user_version").fetchall()
        if (version or 1) != kind.version:
            raise LocalError(
                f"{path}: is a file of {kind.name} of version {version}; this release reads {kind.version}"
            )
        return
    connection.execute("BEGIN IMMEDIATE")
    [(result,)] = connection.execute("PRAGMA application_id").fetchall()
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if result != kind.application_id:
        if tables:
            raise LocalError(f"{path}: not the file of {kind.name}")
        for statement in kind.schema:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {kind.application_id}")
        connection.execute(f"PRAGMA user_version = {kind.version}")
    connection.execute("COMMIT")
