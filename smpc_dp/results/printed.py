"""Types of what `to_json` of results returns, from which their schemas are made."""

from __future__ import annotations

from typing import Literal, TypedDict

from smpc_dp.logs.receipt import LogReceipt
from smpc_dp.privacy.accountant.receipt import Receipt, SpentBudget
from smpc_dp.privacy.guarantee import PrivacyGuarantee, Unit
from smpc_dp.records.result import Estimate


class PrintedPrivacy(TypedDict):
    """What is protected, against whom, and what it cost."""

    unit: Unit | None
    epsilon: float | None
    delta: float | None
    claim: str
    assumptions: list[str]
    not_protected: list[str]
    guarantee: PrivacyGuarantee | None
    receipt: Receipt | None
    budget: SpentBudget | None


class PrintedSample(TypedDict):
    """A sample of the signers of a certificate, bytes as hex."""

    signers: list[str]
    root: str
    proof: str


class PrintedCertificate(TypedDict):
    """Signatures by party over the digest of a set, bytes as hex."""

    set_digest: str
    signatures: dict[str, str]
    sample: PrintedSample | None


class PrintedLoggedRun(TypedDict):
    """Identity of a logged run, bytes as hex."""

    number: int
    session_head: str
    head: str


class PrintedStart(TypedDict):
    """Values of `start` that a run is bound to, bytes as hex."""

    present: str
    root: str
    nonce: str
    named: str


class PrintedRoots(TypedDict):
    """Values of `roll` that a run is bound to, bytes as hex."""

    advertised: str
    root: str
    values_root: str | None


# The name of the key is one that no name in the code has.
_SignedRoots = TypedDict("_SignedRoots", {"roll": PrintedRoots})  # noqa: UP013
_Commitment = TypedDict("_Commitment", {"roll": str})  # noqa: UP013


class PrintedSignedResult(_SignedRoots):
    """The total as the aggregator signed it, bytes as hex."""

    version: int
    request: int
    operation: str
    start: PrintedStart
    receiver: str
    body: str
    signature: str


class PrintedEvidence(_Commitment):
    """Evidence that binds a result to its run, bytes as hex."""

    protocol: str
    version: int
    session_digest: str
    run_id: str
    participating: list[str]
    participants: PrintedCertificate
    survivors: PrintedCertificate | None
    log: PrintedLoggedRun | None
    checked: bool | None
    signed_result: PrintedSignedResult | None


class PrintedAverage(TypedDict):
    """A sum or an average."""

    kind: Literal["sum", "average"]
    value: list[float]
    fixed_point: list[int]
    step: float
    weight: float
    survivors: list[str]
    absent: list[str]
    clipped: int
    resumed: bool
    faults: list[str]
    standard_error: float
    curator_standard_error: float
    bias: float | None
    residual_pairs: int
    privacy: PrintedPrivacy
    evidence: PrintedEvidence
    receipt: LogReceipt | None


class PrintedSecondOpinion(TypedDict):
    """What the second auditor found of a result, or of two; see `smpc_dp_verify.result.ResultOpinion`."""

    code: int
    reason: str
    check: str | None
    culprit: str | None
    session: str | None
    run_id: str | None
    operation: str | None
    digests: list[str]
    checked: bool | None
    corrupt: int | None
    checkers: int | None
    survivors: list[str]
    receivers: list[str]
    unchecked: list[str]


class PrintedStatistics(TypedDict):
    """Statistics of records."""

    kind: Literal["statistics"]
    estimates: list[Estimate]
    level: float
    simultaneous: bool
    rows: int | None
    present: int
    counted: int
    hide: float | None
    survivors: list[str]
    absent: list[str]
    residual_pairs: int
    resumed: bool
    faults: list[str]
    privacy: PrintedPrivacy
    evidence: PrintedEvidence
