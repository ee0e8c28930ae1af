"""Check of the `[parameters]` of a session whose servers compute on shares, of every kind."""

from __future__ import annotations

from collections.abc import Mapping

from smpc_dp.capabilities.servers.secret_sharing.params import SharedParameters, check_parameters
from smpc_dp.engine.session_protocol import RECORDS
from smpc_dp.errors import ConfigIssue
from smpc_dp.privacy.guarantee import BUDGET


def check_session(
    parameters: Mapping[str, object], parties: int
) -> tuple[SharedParameters | None, list[ConfigIssue]]:
    """Check the parameters of a session with computing servers; return them, or None with the faults."""
    # Of the modules below a session needs one alone.
    if RECORDS not in parameters:
        return check_parameters(parameters, parties)
    if "smallest_count" in parameters:
        from smpc_dp.capabilities.servers.secret_sharing.tables import check_tables

        return check_tables(parameters, parties)
    from smpc_dp.capabilities.servers.secret_sharing.records import check_records

    if BUDGET in parameters:
        from smpc_dp.privacy.budget import check_with_budget

        return check_with_budget(check_records, parameters, parties)
    return check_records(parameters, parties)
