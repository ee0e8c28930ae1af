"""Fills in the parties of a session where a column of records is declared to be the party itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigIssue

# As the session file has it: `hospital = { kind = "party" }`.
PARTY = "party"


def with_party_names(records: object, names: Sequence[str], where: str) -> tuple[object, list[ConfigIssue]]:
    """Return `[parameters.records]` with these names as the values of columns of parties, and faults.

    Anything else, malformed settings too, is returned as it is. A fault is a list of other values.
    """
    columns = records.get("columns") if isinstance(records, Mapping) else None
    if not isinstance(records, Mapping) or not isinstance(columns, Mapping):
        return records, []
    issues: list[ConfigIssue] = []
    filled, parties = dict(columns), list(names)
    for name, column in columns.items():
        if not isinstance(column, Mapping) or column.get("kind") != PARTY:
            continue
        given = column.get("values", parties)
        if not isinstance(given, list | tuple) or list(given) != parties:
            reason = f"are the parties of the roster, in its order: leave them out, instead of {shown(given)}"
            issues.append(ConfigIssue(f"{where}.columns.{name}.values", reason, ConfigCheck.DIFFERS))
        filled[name] = {**column, "values": parties}
    return {**records, "columns": filled}, issues
