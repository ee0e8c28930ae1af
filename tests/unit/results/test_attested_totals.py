"""Both auditors check who attests a total that some survivors have checked for all.

That is so of more than 10,000 parties; here of more than three.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certify import make_certificate, sample_certificate
from smpc_dp.results import signed_total
from smpc_dp.results.audit import audit_result, compare_results
from smpc_dp.session.session_file import SessionFile
from smpc_dp_lab.vectors.runs import AGGREGATOR
from smpc_dp_lab.vectors.signed_results import RECEIVER, SignedScenario, sign_body
from smpc_dp_verify import result as second
from smpc_dp_verify import sums
from smpc_dp_verify.encodings import tuple_hash, uint

MOST_SHOWN = 3


class Attested(SignedScenario):
    """A session in which some survivors check for all."""

    @property
    def request_parameters(self) -> Any:
        return msgspec.structs.replace(super().request_parameters, most_shown=MOST_SHOWN)


PARAMETERS: dict[str, object] = {"length": 2, "lower": -2.0, "upper": 2.0, "precision": 0.01}
PARAMETERS |= {"dropout": 0.2, "corrupt": 0.2, "total": "checked"}
SCENARIO = Attested("attested", "Some check for all.", PARAMETERS, parties=5)
QUORUM = 2
RESULT = SCENARIO.results[RECEIVER]
BODY = msgspec.msgpack.decode(
    bytes.fromhex(RESULT["evidence"]["signed_result"]["body"]), type=m.CertifiedResult
)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both auditors take three parties for the most of which all check."""
    parameters_of = signed_total._parameters_of

    def changed(session: SessionFile) -> Any:
        return msgspec.structs.replace(parameters_of(session), most_shown=MOST_SHOWN)

    monkeypatch.setattr(signed_total, "_parameters_of", changed)
    monkeypatch.setattr(sums, "MOST_SHOWN", MOST_SHOWN)


def audited(folder: Path, result: Any) -> tuple[Any, Any]:
    """Return what both auditors find."""
    file, session = folder / "result.json", folder / "session.toml"
    file.write_text(json.dumps(result))
    session.write_text(SCENARIO.text)
    run = result["evidence"]["run_id"]
    return audit_result(file, session=session, run=run), second.audit_result(file, session, run)


def with_body(body: bytes) -> Any:
    """Return the result with another body, which the aggregator signs."""
    result = copy.deepcopy(RESULT)
    sign_body(SCENARIO, result, body)
    return result


def attestations(digest: bytes, names: tuple[str, ...]) -> dict[int, bytes]:
    """Return what these parties sign of a digest."""
    run = bytes.fromhex(RESULT["evidence"]["run_id"])
    body = msgspec.msgpack.encode(m.Attestation(digest))
    signed = {}
    for name in names:
        hashed = hashlib.sha256(body).digest()
        statement = SCENARIO.context.statement(run, m.ATTEST_TOTAL, name, AGGREGATOR, hashed)
        signed[SCENARIO.context.number(name)] = SCENARIO.identity(name).sign(statement)
    return signed


def digest_of(total: bytes) -> bytes:
    """Return the digest that checkers sign of a total, from its specification."""
    evidence = RESULT["evidence"]
    survivors = bytes.fromhex(evidence["survivors"]["set_digest"])
    run = bytes.fromhex(evidence["run_id"])
    return tuple_hash("total", b"secagg", uint(2), run, survivors, total, BODY.blinding)


def test_an_attested_total_holds(tmp_path: Path) -> None:
    first, other = audited(tmp_path, RESULT)
    assert (first.code, first.checked, first.checkers) == (0, True, QUORUM)
    assert (other.code, other.checked, other.checkers) == (0, True, QUORUM)
    assert "2 survivors or more have checked the total over 5 of 5 parties for all" in first.conclusion
    file, session = tmp_path / "bob.json", tmp_path / "session.toml"
    file.write_text(json.dumps(SCENARIO.results["bob"]))
    assert compare_results(tmp_path / "result.json", file, session=session).code == 0
    assert second.compare_results(tmp_path / "result.json", file, session).code == 0


def test_a_sample_of_attestations_holds(tmp_path: Path) -> None:
    digest = digest_of(BODY.total)
    given = attestations(digest, ("alice", "bob", "carol"))
    run = bytes.fromhex(RESULT["evidence"]["run_id"])
    sampled = sample_certificate(SCENARIO.context, run, m.ATTEST_TOTAL, digest, given, QUORUM)
    body = msgspec.msgpack.encode(msgspec.structs.replace(BODY, certificate=sampled))
    first, other = audited(tmp_path, with_body(body))
    assert first.code == other.code == 0
    broken = msgspec.structs.replace(sampled, proof=sampled.proof + bytes(32))
    body = msgspec.msgpack.encode(msgspec.structs.replace(BODY, certificate=broken))
    first, other = audited(tmp_path, with_body(body))
    assert first.check == other.check == "bad-certificate"


def changed(**fields: Any) -> m.CertifiedResult:
    """Return the message with other fields of its certificate."""
    certificate = msgspec.structs.replace(BODY.certificate, **fields)
    return msgspec.structs.replace(BODY, certificate=certificate)


OTHER_TOTAL = bytes([BODY.total[0] ^ 1]) + BODY.total[1:]
PARTIES = ("alice", "bob")


def _one() -> m.CertifiedResult:
    certificate = make_certificate(attestations(digest_of(BODY.total), PARTIES[:1]), 1, 5)
    return msgspec.structs.replace(BODY, certificate=certificate)


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("bad-certificate", lambda: msgspec.structs.replace(BODY, total=OTHER_TOTAL)),
        ("bad-certificate", lambda: msgspec.structs.replace(BODY, blinding=bytes(32))),
        ("bad-certificate", lambda: changed(signatures=BODY.certificate.signatures[:-64])),
        ("bad-certificate", lambda: changed(signatures=BODY.certificate.signatures + bytes(64))),
        ("bad-certificate", lambda: changed(root=bytes(32))),
        ("bad-certificate", lambda: changed(proof=bytes(32))),
        ("bad-set", lambda: changed(signers=b"")),
        ("no-quorum", _one),
        ("malformed", lambda: [BODY.total, BODY.blinding, [b""]]),
        ("malformed", lambda: [BODY.total, BODY.blinding, [b"", b"", b"", b"", b""]]),
        ("malformed", lambda: [BODY.total, BODY.blinding[1:], BODY.certificate]),
        ("malformed", lambda: [BODY.total, BODY.blinding, b"", b""]),
        (
            "not-canonical",
            lambda: [BODY.total, BODY.blinding, [BODY.certificate.signers, BODY.certificate.signatures]],
        ),
    ],
)
def test_another_certificate_is_refused(check: str, change: Callable[[], Any], tmp_path: Path) -> None:
    first, other = audited(tmp_path, with_body(msgspec.msgpack.encode(change())))
    assert (first.code, first.check, first.culprit) == (1, check, AGGREGATOR)
    assert (other.code, other.check, other.culprit) == (1, check, AGGREGATOR)


def test_an_attested_total_out_of_reach_is_refused(tmp_path: Path) -> None:
    total = b"\xff" * len(BODY.total)
    certificate = make_certificate(attestations(digest_of(total), PARTIES), QUORUM, 5)
    body = msgspec.structs.replace(BODY, total=total, certificate=certificate)
    first, other = audited(tmp_path, with_body(msgspec.msgpack.encode(body)))
    assert first.check == other.check == "out-of-bounds"
    assert first.culprit == other.culprit == AGGREGATOR
