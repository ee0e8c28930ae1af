"""Check of the `[parameters]` of a session of GOPA, of every kind."""

from __future__ import annotations

from collections.abc import Mapping

from smpc_dp.capabilities.gopa import direct_params
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.capabilities.gopa.versions import (
    VERIFIABLE_VERSION,
    VERSION,
    has_version,
    is_verifiable,
    version_of,
)
from smpc_dp.encoding import shown
from smpc_dp.engine.session_protocol import RECORDS
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.privacy.guarantee import BUDGET


def check_for_version(
    version: int, parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check the parameters of a session of this protocol version, as `check_gopa` does."""
    verifiable = is_verifiable(parameters)
    if not has_version(version, verifiable=verifiable):
        why = (
            f"needs version {VERIFIABLE_VERSION} of 'gopa', which has the session log"
            if verifiable
            else f"must be true in version {version} of 'gopa'; without it the version is {VERSION}"
        )
        expected = version_of(verifiable=verifiable)
        reason = f"{why}: write version = {expected} in the place of version = {version}"
        return None, [ConfigIssue("verifiable", reason, ConfigCheck.CONFLICT)]
    return check_gopa(parameters, parties)


def check_gopa(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table of GOPA, verifiable or not; return every fault found."""
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
