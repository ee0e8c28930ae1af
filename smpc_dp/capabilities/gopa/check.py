"""Check of the `[parameters]` of a session of GOPA, of every kind."""

from __future__ import annotations

from collections.abc import Mapping

from smpc_dp.capabilities.gopa import direct_params
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.capabilities.gopa.versions import (
    AUDITED_VERSIONS,
    EARLIER_VERSION,
    VERSION,
    is_verifiable,
)
from smpc_dp.encoding import shown
from smpc_dp.engine.session_protocol import RECORDS, with_earlier_defaults
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.privacy.guarantee import BUDGET


def check_for_version(
    version: int, parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of a GOPA session by a version's rules; return them, or None with the faults."""
    if version == VERSION:
        return check_gopa(parameters, parties)
    logged = version in AUDITED_VERSIONS
    if version != EARLIER_VERSION and is_verifiable(parameters) != logged:
        needed = "true" if logged else "false"
        reason = f"must be {needed} in version {version} of 'gopa', an earlier one: write version = {VERSION}"
        return None, [ConfigIssue("verifiable", reason, ConfigCheck.CONFLICT)]
    return check_gopa(with_earlier_defaults(parameters), parties)


def check_gopa(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of a GOPA session; return them with planned noise, or None with every fault."""
    verifiable = is_verifiable(parameters)
    # Of the modules below a session needs one alone.
    if BUDGET in parameters and not verifiable:
        from smpc_dp.privacy.budget import check_with_budget

        return check_with_budget(check_gopa, parameters, parties)
    if RECORDS in parameters:
        from smpc_dp.capabilities.gopa.records import check_records

        return check_records(parameters, parties)
    if not verifiable:
        return direct_params.check_parameters(parameters, parties)
    from smpc_dp.capabilities.gopa.verifiable.params import check_parameters

    checked, issues = check_parameters(parameters, parties)
    if parameters.get("topology", "relay") != "relay":
        given = shown(parameters["topology"])
        reason = f"must be 'relay' where verifiable = true, since the aggregator keeps the log; is {given}"
        return None, [*issues, ConfigIssue("topology", reason, ConfigCheck.CONFLICT)]
    return checked, issues
