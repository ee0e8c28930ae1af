"""The result of a run as it is stored, read strictly: fields that are evidence, and no others.

Specification: protocols/secagg/signed-results.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from smpc_dp.decoding import convert, parse_object
from smpc_dp.engine.phases.messages import OPERATION_LIMIT
from smpc_dp.engine.signed_result import VERSION
from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.files import read_bounded
from smpc_dp.logs.log import Hex32, Hex64, Name
from smpc_dp.wire.canonical_session import SURROGATE

# A million elements take 60 MB.
MAX_BYTES = 1 << 29
# Each value can take some 100 bytes in memory. A million elements have two million.
MAX_VALUES = 1 << 23
# What fits in any case, with the names and signatures of the most parties.
MAX_ELEMENTS = 4_000_000
# Possessive: else each byte takes 125 until the end of the match.
Hex = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{2})*+\Z")]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
SIGNED = "signed_result"


class StoredStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON of a result file: fields of the message that started the run."""

    present: Hex
    root: Hex32
    nonce: Hex32
    named: Hex


class StoredRoots(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON of a result file: who advertised keys, and Merkle roots over these and over commitments."""

    advertised: Hex
    root: Hex32
    values_root: Hex32 | None


class StoredMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"roots": "roll"}):
    """JSON of a result file: the aggregator's signed message with the total."""

    version: int
    request: Annotated[int, Meta(ge=1, lt=1 << 62)]
    operation: Annotated[str, Meta(max_length=OPERATION_LIMIT)]
    start: StoredStart
    roots: StoredRoots
    receiver: Name
    body: Hex
    signature: Hex64


class StoredSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON of a result file: the signers sampled for a certificate, with Merkle root and proof."""

    signers: list[Name]
    root: Hex32
    proof: Hex


class StoredCertificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON of a result file: signatures of a quorum that certify a set of parties."""

    set_digest: Hex32
    signatures: dict[Name, Hex64]
    sample: StoredSample | None


class StoredSession(msgspec.Struct, frozen=True):
    """JSON of a result file: the session digest, which the evidence of any result has."""

    session_digest: Hex32


class StoredEvidence(msgspec.Struct, frozen=True, rename={"merkle_commitment": "roll"}):
    """JSON of a result file: evidence with a signed total; unknown fields are ignored."""

    protocol: str
    version: int
    session_digest: Hex32
    run_id: Hex32
    merkle_commitment: Hex32
    participating: list[Name]
    participants: StoredCertificate
    survivors: StoredCertificate | None
    checked: bool | None
    signed_result: StoredMessage


class StoredResult(msgspec.Struct, frozen=True):
    """JSON content of a result file that has a signed total, as an audit reads it."""

    kind: str
    evidence: StoredEvidence
    survivors: list[Name]
    absent: list[Name]
    residual_pairs: Count


class StoredFile(msgspec.Struct, frozen=True):
    """Result file that was read: all fields as data, and its evidence and signed total if present.

    `result` is None without a signed result.
    """

    fields: Mapping[str, Any]
    evidence: Mapping[str, Any]
    result: StoredResult | None

    @property
    def session_digest(self) -> str | None:
        """Session digest in hex; None if the result has no evidence."""
        return self.evidence.get("session_digest")


def read_result(path: str | os.PathLike[str]) -> StoredFile:
    """Read and decode a party's result file; LocalError if unreadable, VerificationError if malformed.

    Raises LocalError if it cannot be read or is too large, VerificationError if it is malformed or of
    another version.
    """
    content = read_bounded(path, "the result", MAX_BYTES)
    # Each value but the first of a list follows a comma: also in texts, where they count in vain.
    if sum(map(content.count, b",[{")) > MAX_VALUES:
        raise LocalError(f"{path}: too large to audit: at most {MAX_ELEMENTS:,} elements")
    try:
        fields = parse_object(content)
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"no JSON object of a result ({error})", Check.MALFORMED) from None
    return decode_result(fields)


def decode_result(fields: Mapping[str, Any]) -> StoredFile:
    """Decode a result's JSON data; VerificationError if it is malformed or of another version."""
    evidence = fields.get("evidence")
    if evidence is None:
        return StoredFile(fields, {}, None)
    if not isinstance(evidence, dict):
        raise VerificationError("its evidence is no object", Check.MALFORMED)
    signed = evidence.get(SIGNED)
    if signed is None:
        convert_fields(evidence, StoredSession)
        return StoredFile(fields, evidence, None)
    version = signed.get("version") if isinstance(signed, dict) else None
    if type(version) is int and version != VERSION:
        reason = f"its signed result is of version {version}, this release reads version {VERSION}"
        raise VerificationError(reason, Check.UNKNOWN_FORMAT)
    result: StoredResult = convert_fields(fields, StoredResult)
    if SURROGATE.search(result.evidence.signed_result.operation):
        raise VerificationError("malformed: its operation is no text", Check.MALFORMED)
    return StoredFile(fields, evidence, result)


def convert_fields(fields: Mapping[str, Any], kind: Any) -> Any:
    """Convert a result's JSON data to a type; raise VerificationError if it does not fit."""
    try:
        return convert(fields, kind)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        # A ValueError is of half a surrogate pair, which JSON can have.
        raise VerificationError(f"malformed: {error}", Check.MALFORMED) from None
