"""The receipt of a ledger's charge, a part of the result of the release."""

from __future__ import annotations

from smpc_dp.privacy.guarantee import PlainStruct, Unit


class Spending(PlainStruct, frozen=True):
    """Total privacy cost of releases: epsilon (None if infinite), delta, and the number of exact releases."""

    epsilon: float | None
    delta: float
    exact_releases: int


class Receipt(PlainStruct, frozen=True):
    """Receipt that a ledger gives for a charged release: run, digest, cost so far, and the budget.

    `repeated`: the run had been charged before.
    """

    ledger: str
    party: str
    dataset: str
    number: int
    run: str
    digest: str
    spent: Spending
    budget_epsilon: float | None
    budget_delta: float
    repeated: bool
    unit: Unit = "party"


class SpentBudget(PlainStruct, frozen=True, kw_only=True):
    """Privacy cost of one request of a session, and of all its requests so far, beside the budget.

    Attributes:
        epsilon, delta: of this request by itself.
        spent: epsilon of all requests so far, at the same delta; None: infinite.
        budget: the epsilon that all of them may cost.
        requests, left: how many have been charged, and how many remain.
    """

    epsilon: float
    delta: float
    spent: float | None
    budget: float
    requests: int
    left: int
