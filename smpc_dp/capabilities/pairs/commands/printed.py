"""Types of what statistics of pairs and circuits print as JSON, from which their schemas are made."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from smpc_dp.privacy.local_baselines import Baseline
from smpc_dp.privacy.pairwise_plan import PairwisePlan
from smpc_dp.results.printed import PrintedCertificate, PrintedLoggedRun, PrintedPrivacy


class PrintedPairEvidence(TypedDict):
    """Evidence that binds a statistic to its run, bytes as hex; of servers with their certificates."""

    session_digest: str
    run_id: str
    plan: str
    beacon: NotRequired[str]
    log: NotRequired[PrintedLoggedRun | None]
    included_by: NotRequired[PrintedCertificate]
    opened_by: NotRequired[PrintedCertificate]


class PrintedStatistic(TypedDict):
    """A statistic of pairs."""

    kernel: str
    value: float
    standard_error: float | None
    level: float
    noise_error: float
    pairs: int
    failed: int
    parties: int
    partners: int
    survivors: list[str]
    absent: list[str]
    faults: list[str]
    interval: tuple[float, float] | None
    privacy: PrintedPrivacy
    evidence: PrintedPairEvidence | None
    positives: float | None
    auc: float | None
    resumed: bool


class PlannedPairs(PairwisePlan, frozen=True, kw_only=True, rename={"baselines": "rivals"}):
    """Plan of a statistic of pairs, beside local protocols at the same epsilon."""

    baselines: tuple[Baseline, ...]


# Two keys are words of Python.
PrintedCircuit = TypedDict(
    "PrintedCircuit",
    {
        "name": str,
        "inputs": list[int],
        "outputs": list[int],
        "and": int,
        "xor": int,
        "and_depth": int,
        "computes": str,
    },
)


class PrintedCircuits(TypedDict):
    """The published circuits."""

    circuits: list[PrintedCircuit]


class PrintedMember(TypedDict):
    """One member's end of an evaluation; `outputs` in hex, None where it learns none."""

    outputs: list[str] | None
    run_id: str
    transcript: str
    privacy: PrintedPrivacy
    seconds: dict[str, float]
    bytes_sent: int
    bytes_received: int


class PrintedEvaluation(TypedDict):
    """An evaluation of a circuit: outputs and digest in hex, and each member's end."""

    outputs: list[str]
    circuit: str
    members: dict[str, PrintedMember]


class PrintedFinding(TypedDict):
    """Faults of a published circuit, or of the folder of all."""

    name: str
    inputs_tried: int
    faults: list[str]


class PrintedChecks(TypedDict):
    """The check of published circuits; `ok`: none has a fault."""

    ok: bool
    checks: list[PrintedFinding]
