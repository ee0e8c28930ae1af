"""A party's record of the data sets whose exact tables were opened: a small file beside its key.

Two exact tables of the same rows share their total at least, so that a cell that one does not show may be
worked out from both. The record holds no secret; who deletes it gives up what it is for.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from smpc_dp.database import Database, Kind
from smpc_dp.errors import PrivacyError

if TYPE_CHECKING:
    from smpc_dp.session.member import Membership

SUFFIX = ".tables"
# "SDPT": distinguishes it from other databases.
_KIND = Kind(
    "opened tables",
    0x53445054,
    1,
    ("CREATE TABLE opened (dataset TEXT PRIMARY KEY, asked TEXT NOT NULL, run BLOB NOT NULL) STRICT",),
)


class OpenedTables:
    """A party's file of exact tables that were opened: it allows one request for each data set.

    `dataset` names the rows of one request, `asked` what it asks for.
    """

    def __init__(self, path: Path, party: str, dataset: str, asked: str) -> None:
        self.path, self._party = path, party
        self._dataset, self._asked = dataset, asked
        self._database = Database(path, _KIND)

    def check(self) -> None:
        """Raise PrivacyError if a table of the data set was opened before; else do nothing."""
        if self.path.exists():
            with self._database.reading() as connection:
                self._refuse_second(connection)

    def add(self, run_id: bytes) -> None:
        """Record the request in the file, before counts are sent; raise PrivacyError for a second."""
        with self._database.changing() as connection:
            self._refuse_second(connection)
            values = (self._dataset, self._asked, run_id)
            connection.execute("INSERT INTO opened VALUES (?, ?, ?)", values)

    def _refuse_second(self, connection: sqlite3.Connection) -> None:
        """Raise PrivacyError if the file has an opened table of this data set."""
        query = "SELECT asked FROM opened WHERE dataset = ?"
        for (before,) in connection.execute(query, (self._dataset,)).fetchall():
            raise PrivacyError(
                f"{self._party}: exact tables of {self._dataset!r} were opened before ({before}); a second "
                f"request ({self._asked}) overlaps it, and cells that are not shown could be worked out: "
                f"{self.path}"
            )


def opened_tables(membership: Membership, dataset: str) -> OpenedTables:
    """Return the party's file of opened exact tables for this data set, stored beside its key."""
    path = membership.key_file.with_name(membership.name + SUFFIX)
    return OpenedTables(path, membership.name, dataset, "; ".join(membership.parameters.texts))
