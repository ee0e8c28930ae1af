"""Types of what `to_json` of results returns, from which their schemas are made."""

from __future__ import annotations

from typing import Literal, TypedDict

from smpc_dp.logs.receipt import LogReceipt
from smpc_dp.privacy.accountant.receipt import Receipt, SpentBudget
from smpc_dp.privacy.guarantee import PrivacyGuarantee, Unit
from smpc_dp.records.result import Estimate


class PrintedPrivacy(TypedDict):
    """JSON output on a result's privacy: unit, epsilon, assumptions, what is not protected, and cost."""

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
    """JSON output on a certificate's sampled signers, with the Merkle root and proof in hex."""

    signers: list[str]
    root: str
    proof: str


class PrintedCertificate(TypedDict):
    """JSON output on a quorum certificate: signatures by party over a set's digest, in hex."""

    set_digest: str
    signatures: dict[str, str]
    sample: PrintedSample | None


class PrintedLoggedRun(TypedDict):
    """JSON output that identifies a logged run: its number, and hashes in hex."""

    number: int
    session_head: str
    head: str


class PrintedStart(TypedDict):
    """JSON output on the values of a run's start to which its run id is bound: parties, nonces; in hex."""

    present: str
    root: str
    nonce: str
    named: str


class PrintedRoots(TypedDict):
    """JSON output on who advertised keys in a run, and the Merkle roots that bind the run, in hex."""

    advertised: str
    root: str
    values_root: str | None


# The name of the key is one that no name in the code has.
_SignedRoots = TypedDict("_SignedRoots", {"roll": PrintedRoots})  # noqa: UP013
_Commitment = TypedDict("_Commitment", {"roll": str})  # noqa: UP013


class PrintedSignedResult(_SignedRoots):
    """JSON output on the message with the total that the aggregator signed, bytes in hex."""

    version: int
    request: int
    operation: str
    start: PrintedStart
    receiver: str
    body: str
    signature: str


class PrintedEvidence(_Commitment):
    """JSON output on the hashes, sets and signatures that bind a result to its run, in hex."""

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
    """JSON output of a secure sum or average: value, errors, participants, privacy and evidence."""

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
    """JSON output on what the second, independent auditor found of stored results."""

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
    """JSON output of statistics of records: estimates, errors, privacy and evidence."""

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
    begins: list[int] | None
    faults: list[str]
    privacy: PrintedPrivacy
    evidence: PrintedEvidence
