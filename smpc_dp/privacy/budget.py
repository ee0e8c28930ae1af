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
from smpc_dp.privacy.guarantee import BUDGET, LEAST_DELTA
from smpc_dp.settings import read

# Shares of the noise's mean shift that are tried in turn: the first does for noise that is all but Gaussian.
_SHARES = (1 - 1e-6, 1 - 1e-4, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a session's total privacy budget: epsilon and delta for a number of requests."""

    epsilon: Annotated[float, Meta(gt=0, lt=1000, description="of all requests together")]
    delta: Annotated[float, Meta(ge=LEAST_DELTA, lt=1, description="of all requests together, and of each")]
    requests: Annotated[
        int, Meta(ge=1, le=1_000_000, description="requests of one connection, also those that fail")
    ]


class Released(Protocol):
    """Interface of a request's checked parameters that give the event for a privacy ledger."""

    def event(self) -> Event:
        """Return the request's release as an event for a privacy ledger."""


def too_little(budget: Budget) -> ConfigIssue:
    """Return the fault that says that a budget leaves each request too little epsilon to plan noise."""
    reason = f"{budget.requests} requests leave each too little of it"
    return ConfigIssue(f"{BUDGET}.requests", reason, ConfigCheck.INFEASIBLE)


T = TypeVar("T", bound=Released)
Checker = Callable[[Mapping[str, object], int], tuple[T | None, list[ConfigIssue]]]


def read_budget(parameters: Mapping[str, object]) -> tuple[Budget | None, list[ConfigIssue]]:
    """Return the budget in a session's parameters (None if it is missing or has faults), and its faults."""
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
    """Return a budget from a table of settings; raise ConfigError with every fault."""
    budget, issues = read_budget({BUDGET: given})
    if budget is None:
        raise ConfigError(issues)
    return budget


def request_epsilons(budget: Budget) -> Iterator[float]:
    """Yield candidates for one request's epsilon when equal requests share a budget, the greatest first."""
    mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(budget.requests)
    for share in _SHARES:
        epsilon = gaussian_epsilon(budget.delta, share * mu)
        if epsilon > 0:
            yield epsilon


def check_with_budget(
    check: Checker[T], parameters: Mapping[str, object], parties: int
) -> tuple[T | None, list[ConfigIssue]]:
    """Return (checked parameters with the greatest tried epsilon that fits the budget, or None; faults)."""
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
    """Return a fault of a request's epsilon or delta, reworded as one of the budget that sets these."""
    if issue.where not in ("epsilon", "delta"):
        return issue
    return issue._replace(where=f"{BUDGET}.{issue.where}", reason=f"the share of a request: {issue.reason}")


def spent_budget(budget: Budget, event: Event, requests: int) -> SpentBudget:
    """Return the cost of one request and of this many equal requests together, beside the budget."""
    spent = Composition([event] * requests).epsilon(budget.delta)
    return SpentBudget(
        epsilon=Composition([event]).epsilon(budget.delta),
        delta=budget.delta,
        spent=spent if math.isfinite(spent) else None,
        budget=budget.epsilon,
        requests=requests,
        left=budget.requests - requests,
    )
