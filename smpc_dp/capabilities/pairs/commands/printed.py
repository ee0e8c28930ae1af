"""Types of what statistics of pairs and circuits print as JSON, from which their schemas are made."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from smpc_dp.privacy.local_baselines import Baseline
from smpc_dp.privacy.pairwise_plan import PairwisePlan
from smpc_dp.results.printed import PrintedCertificate, PrintedLoggedRun, PrintedPrivacy


class PrintedPairEvidence(TypedDict):
    """JSON form of the evidence that binds a pairwise statistic to its run, with bytes as hex."""

    session_digest: str
    run_id: str
    plan: str
    beacon: NotRequired[str]
    log: NotRequired[PrintedLoggedRun | None]
    included_by: NotRequired[PrintedCertificate]
    opened_by: NotRequired[PrintedCertificate]


class PrintedStatistic(TypedDict):
    """JSON output of commands that compute a pairwise statistic: value, errors, parties left out."""

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
    """JSON output of the plan of a pairwise statistic, beside local protocols at the same epsilon."""

    baselines: tuple[Baseline, ...]
    malicious_delta: float
    """Of a record with security 'malicious'; with any other the noise of the plan has a delta of 0."""
    malicious_bytes: int
    """Of all messages of a pair of `kendall_tau32_laplace` (253 AND gates) with security 'malicious'."""
    malicious_rounds: int
    """Half round trips of such a pair."""
    malicious_seconds: float
    """Of such a pair where a round trip takes 50 ms, at a stored processor time."""


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
    """JSON output of the command that lists the published circuits."""

    circuits: list[PrintedCircuit]


class PrintedMember(TypedDict):
    """JSON form of one member's result of evaluating a circuit: outputs in hex or None, times, traffic."""

    outputs: list[str] | None
    run_id: str
    transcript: str
    privacy: PrintedPrivacy
    seconds: dict[str, float]
    bytes_sent: int
    bytes_received: int


class PrintedEvaluation(TypedDict):
    """JSON output of evaluating a circuit: outputs and digest in hex, and each member's result."""

    outputs: list[str]
    circuit: str
    members: dict[str, PrintedMember]


class PrintedFinding(TypedDict):
    """JSON form of the faults found in one published circuit, or in the folder of circuits."""

    name: str
    inputs_tried: int
    faults: list[str]


class PrintedChecks(TypedDict):
    """JSON output of checking the published circuits; `ok` is true if no circuit has a fault."""

    ok: bool
    checks: list[PrintedFinding]
