"""Check of the `[parameters]` of a session of secure sums, of every kind."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.session_protocol import RECORDS
from smpc_dp.errors import ConfigIssue
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.secagg.noisy import check_noisy
from smpc_dp.secagg.params import PRIVACY_KEYS, check_parameters
from smpc_dp.secagg.records import RecordSumParameters, asks_steps, check_records

# With more requests Gaussian noise is smaller, at any delta that a budget may have and epsilon up to 100.
MOST_PURE = 64


def check_session(
    parameters: Mapping[str, object], parties: int
) -> tuple[SumParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of any secure sum; return (parameters, []), or (None, all faults)."""
    if BUDGET in parameters and not asks_steps(parameters):
        # Not at the top: it loads the accountant.
        from smpc_dp.privacy.budget import check_with_budget

        if RECORDS in parameters:
            return _check_record_budget(parameters, parties)
        return check_with_budget(check_session, parameters, parties)
    if RECORDS in parameters:
        return check_records(parameters, parties)
    check = check_noisy if set(PRIVACY_KEYS) & set(parameters) else check_parameters
    return check(parameters, parties)


def _check_record_budget(
    parameters: Mapping[str, object], parties: int
) -> tuple[SumParameters | None, list[ConfigIssue]]:
    """Check private statistics of records with a budget; return (parameters, []), or (None, all faults).

    Laplace noise has an equal part of the pure epsilon in each request, to which a better composition adds
    less than a part in a hundred where it is smaller than Gaussian noise: for one table at epsilon 1 up to
    eight requests.
    """
    from smpc_dp.privacy.accountant.compose import Composition
    from smpc_dp.privacy.budget import check_with_budget, read_budget

    normal, issues = check_with_budget(functools.partial(check_records, laplace=False), parameters, parties)
    budget, _ = read_budget(parameters)
    if budget is None or budget.requests > MOST_PURE:
        return normal, issues
    rest = {key: value for key, value in parameters.items() if key != BUDGET}
    part = {"epsilon": budget.epsilon / budget.requests, "delta": budget.delta}
    pure, _ = check_records({**rest, **part}, parties)
    if not isinstance(pure, RecordSumParameters) or pure.request.laplace is None:
        return normal, issues
    if isinstance(normal, RecordSumParameters):
        weights = normal.request.weights
        if normal.request.worst() <= pure.request.worst(weights):
            return normal, issues
    fits = Composition([pure.event()] * budget.requests).delta(budget.epsilon) <= budget.delta
    return (pure, []) if fits else (normal, issues)
