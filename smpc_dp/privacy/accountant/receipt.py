"""What a ledger gives for a charge: goes into the result of the release."""

from __future__ import annotations

from smpc_dp.privacy.guarantee import PlainStruct, Unit


class Spending(PlainStruct, frozen=True):
    """What is spent at the budget's delta (epsilon None: infinite), and how many releases were exact."""

    epsilon: float | None
    delta: float
    exact_releases: int


class Receipt(PlainStruct, frozen=True):
    """That a release was charged: goes into its result. `repeated`: the run had been charged already."""

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
