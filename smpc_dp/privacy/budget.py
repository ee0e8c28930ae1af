"""Plans equal requests that share one budget: what each may cost, and what is spent after some of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Protocol, TypeVar

import msgspec
from msgspec import Meta

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.accountant.receipt import SpentBudget
from smpc_dp.privacy.gaussian import gaussian_epsilon, gaussian_mu
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.settings import read

# Shares of the noise's mean shift that are tried in turn: the first does for noise that is all but Gaussian.
_SHARES = (1 - 1e-6, 1 - 1e-4, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The `[parameters.budget]` table: what all requests of a session may cost together."""

    epsilon: Annotated[float, Meta(gt=0, lt=1000, description="of all requests together")]
    delta: Annotated[float, Meta(ge=1e-11, lt=1, description="of all requests together, and of each")]
    requests: Annotated[
        int, Meta(ge=1, le=1_000_000, description="requests of one connection, also those that fail")
    ]


class Released(Protocol):
    """Parameters of a request that a ledger can be charged."""

    def event(self) -> Event: ...


def too_little(budget: Budget) -> ConfigIssue:
    """Return the fault of a budget whose parts are below what noise can be planned for."""
    reason = f"{budget.requests} requests leave each too little of it"
    return ConfigIssue(f"{BUDGET}.requests", reason, ConfigCheck.INFEASIBLE)


T = TypeVar("T", bound=Released)
Checker = Callable[[Mapping[str, object], int], tuple[T | None, list[ConfigIssue]]]


def read_budget(parameters: Mapping[str, object]) -> tuple[Budget | None, list[ConfigIssue]]:
    """Return the budget in a `[parameters]` table, and every fault of it."""
    given = parameters.get(BUDGET)
    if not isinstance(given, Mapping):
        return None, [ConfigIssue(BUDGET, "is not a table", ConfigCheck.TYPE)]
    good, issues = read(Budget, given, f"{BUDGET}.")
    issues += [
        ConfigIssue(key, "is not for a session with a budget, which states it", ConfigCheck.CONFLICT)
        for key in ("epsilon", "delta")
        if key in parameters
    ]
    return (None if issues else Budget(**good)), issues


def checked_budget(given: Mapping[str, object]) -> Budget:
    """Return a budget; raise ConfigError with every fault."""
    budget, issues = read_budget({BUDGET: given})
    if budget is None:
        raise ConfigError(issues)
    return budget


def request_epsilons(budget: Budget) -> Iterator[float]:
    """Yield epsilons of one request at the budget's delta, the best first; equal requests split it best."""
    mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(budget.requests)
    for share in _SHARES:
        epsilon = gaussian_epsilon(budget.delta, share * mu)
        if epsilon > 0:
            yield epsilon


def check_with_budget(
    check: Checker[T], parameters: Mapping[str, object], parties: int
) -> tuple[T | None, list[ConfigIssue]]:
    """Check parameters with a budget: each request gets the greatest epsilon with which all fit into it."""
    budget, issues = read_budget(parameters)
    if budget is None:
        return None, issues
    rest = {key: value for key, value in parameters.items() if key != BUDGET}
    for epsilon in request_epsilons(budget):
        checked, issues = check({**rest, "epsilon": epsilon, "delta": budget.delta}, parties)
        if checked is None:
            return None, [_of_budget(issue) for issue in issues]
        if Composition([checked.event()] * budget.requests).delta(budget.epsilon) <= budget.delta:
            return checked, []
    return None, [too_little(budget)]


def _of_budget(issue: ConfigIssue) -> ConfigIssue:
    """Return an issue of a request's share of the budget as one of the budget, which was given."""
    if issue.where not in ("epsilon", "delta"):
        return issue
    return issue._replace(where=f"{BUDGET}.{issue.where}", reason=f"the share of a request: {issue.reason}")


def spent_budget(budget: Budget, event: Event, requests: int) -> SpentBudget:
    """Return what so many requests, all of this event, have cost."""
    spent = Composition([event] * requests).epsilon(budget.delta)
    return SpentBudget(
        epsilon=Composition([event]).epsilon(budget.delta),
        delta=budget.delta,
        spent=spent if math.isfinite(spent) else None,
        budget=budget.epsilon,
        requests=requests,
        left=budget.requests - requests,
    )
