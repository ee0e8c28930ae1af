"""Types of what learners print as JSON, from which their schemas are made."""

from __future__ import annotations

from typing import Literal, TypedDict

from smpc_dp.privacy.guarantee import PrivacyGuarantee


class PrintedMetric(TypedDict):
    """JSON output: a step's number and the value of the models' metric after that step."""

    step: int
    value: float


class PrintedAverages(TypedDict):
    """JSON output: the number of averages that a party took, and of those whose total was checked."""

    averages: int
    checked: int


class PrintedLearned(TypedDict):
    """JSON output: what a party has learned, a row of `values` for each party with known model."""

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
    """JSON output: what one party has learned, with the name of this output's schema."""

    schema: Literal["learned"]
    schema_version: int


class PrintedByParty(TypedDict):
    """JSON output: what each party has learned, by the party's name."""

    parties: dict[str, PrintedOfParty]
