"""What a ledger gives for a charge: goes into the result of the release."""

from __future__ import annotations

import msgspec


class Spending(msgspec.Struct, frozen=True):
    """What is spent at the budget's delta (epsilon None: infinite), and how many releases were exact."""

    epsilon: float | None
    delta: float
    exact_releases: int

    def to_json(self) -> dict[str, object]:
        """Return plain JSON data."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built


class Receipt(msgspec.Struct, frozen=True):
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

    def to_json(self) -> dict[str, object]:
        """Return plain JSON data."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built
