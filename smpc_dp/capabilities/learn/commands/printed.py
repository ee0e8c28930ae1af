"""Types of what learners print as JSON, from which their schemas are made."""

from __future__ import annotations

from typing import Literal, TypedDict

from smpc_dp.privacy.guarantee import PrivacyGuarantee


class PrintedMetric(TypedDict):
    """The metric of models after a step."""

    step: int
    value: float


class PrintedAverages(TypedDict):
    """Averages that a party took, and of how many it checked the total."""

    averages: int
    checked: int


class PrintedLearned(TypedDict):
    """What a party has learned: a row of `values` for each party whose models are known."""

    learner: str
    values: list[list[float]]
    names: list[str]
    steps: list[int]
    done: list[int]
    failures: list[str]
    guarantee: PrivacyGuarantee | None
    claim: str
    confidential: bool
    metrics: list[PrintedMetric]
    graph: list[list[float]] | None
    evidence: PrintedAverages | None
    resumed: bool


class PrintedOfParty(PrintedLearned):
    """What one party of a run has learned, with the schema of that."""

    schema: Literal["learned"]
    schema_version: int


class PrintedByParty(TypedDict):
    """What each party of a run has learned, by name."""

    parties: dict[str, PrintedOfParty]
