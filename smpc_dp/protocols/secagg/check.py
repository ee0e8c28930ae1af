"""Check of the `[parameters]` of a session of secure sums, of every kind."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from smpc_dp.errors import ConfigIssue
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.protocols.names import RECORDS
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.secagg.noisy import check_noisy
from smpc_dp.protocols.secagg.params import PRIVACY_KEYS, check_parameters
from smpc_dp.protocols.secagg.records import asks_steps, check_records


def check_session(
    parameters: Mapping[str, object], parties: int
) -> tuple[SumParameters | None, list[ConfigIssue]]:
    """Check an exact sum, one with noise (epsilon, delta or a mechanism), or statistics of records."""
    if BUDGET in parameters and not asks_steps(parameters):
        # Not at the top: it loads the accountant.
        from smpc_dp.privacy.budget import check_with_budget

        # Of several requests together Gaussian noise is smaller than Laplace noise.
        records = functools.partial(check_records, laplace=False)
        return check_with_budget(records if RECORDS in parameters else check_session, parameters, parties)
    if RECORDS in parameters:
        return check_records(parameters, parties)
    check = check_noisy if set(PRIVACY_KEYS) & set(parameters) else check_parameters
    return check(parameters, parties)
