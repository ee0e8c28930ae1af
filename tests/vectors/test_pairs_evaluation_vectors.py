"""Published runs and faults of two-party evaluations: each role refuses each fault, and says whose it is."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp.capabilities.pairs.covert.certificate import judge
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.errors import Code, SmpcError, VerificationError
from smpc_dp.wire.signing import decode_envelope
from smpc_dp_lab.vectors import active_runs, covert_runs
from smpc_dp_lab.vectors import pairwise_fault as faults
from smpc_dp_lab.vectors import pairwise_runs as runs
from smpc_dp_verify.encodings import tuple_hash, uint
from tests.vectors.reasons import check_code, check_reason

PROTOCOLS = Path(__file__).parents[2] / "protocols"
FOLDERS = {"pairwise": runs.SCENARIOS, "covert": covert_runs.SCENARIOS, "active": active_runs.SCENARIOS}
PUBLISHED = {protocol: PROTOCOLS / protocol / "vectors" for protocol in FOLDERS}
NEGATIVE = [path for folder in PUBLISHED.values() for path in sorted(folder.glob("negative-*.json"))]
CERTIFICATES = sorted(PUBLISHED["covert"].glob("*certificate-*.json"))
SCENARIOS = {
    PUBLISHED[protocol] / f"run-{scenario.name}.json": scenario
    for protocol, scenarios in FOLDERS.items()
    for scenario in scenarios
}

# What an error says when it comes from the named layer; any other text comes from a check of content.
SAYS = {
    "envelope": r"invalid signature|a message for|in the name of",
    "order": r"where .* is due|of another run|something else than the signed message",
    "decoding": r"malformed \w+: ",
    "agreement": r"circuit: |cuts the batch differently|key to seal with",
    "framing": r"something else than its piece|a piece of \d+ bytes|bytes of corrections",
    "transfer": r"oblivious transfer: ",
    "transcript": r"another hash of|says that it sent \d+ pieces",
    "convicted": r"do not follow from its seed",
    "abort": r"stopped the run: the evaluation failed",
    "signed": r"signed (a statement of other terms|other messages)|not those that it signed|one to which",
}
# The checks of an evaluation secure against both sides, which all fail alike: the twin says which did.
CHECKS_OF_ACTIVE = {
    *(
        "equality",
        "coin",
        "differences",
        "openings",
        "masked",
        "macs",
        "output",
        "chi",
        "opened",
        "seal",
        "format",
    ),
    "transcript",
}


def name_of(path: Path) -> str:
    """The file's name, after that of the protocol where it is not two-party evaluation."""
    prefix = "" if PUBLISHED["pairwise"] == path.parent else f"{path.parents[1].name}-"
    return prefix + path.stem.removeprefix("negative-")


@cache
def arriving(base: Path, receiver: str) -> dict[str, list[bytes]]:
    """What each sender sends to a role in a published run."""
    connections: dict[str, list[bytes]] = {}
    for message in json.loads(base.read_bytes())["messages"]:
        if message["receiver"] == receiver:
            connections.setdefault(message["sender"], []).append(bytes.fromhex(message["bytes"]))
    return connections


def fault_of(path: Path) -> faults.Fault:
    vector: dict[str, Any] = json.loads(path.read_bytes())
    message = vector["message"]
    return faults.Fault(
        vector["name"],
        vector["about"],
        vector["base"],
        vector["receiver"],
        vector["after"],
        message["sender"],
        bytes.fromhex(message["bytes"]),
        **vector["expect"],
    )


def replayed(path: Path, *, with_it: bool) -> faults.Replayed:
    """What the receiver ends with when it is fed the published base run, with the fault in it or without."""
    fault = fault_of(path)
    base = path.parent / fault.base
    role = runs.new_run(SCENARIOS[base]).roles[fault.receiver]
    return faults.replay(role, arriving(base, fault.receiver), fault if with_it else None)


def layer_of(text: str) -> str:
    return next((layer for layer, pattern in SAYS.items() if re.search(pattern, text)), "content")


def test_every_layer_refuses_something() -> None:
    layers = [json.loads(path.read_bytes())["expect"]["layer"] for path in NEGATIVE]
    assert len(layers) >= 160
    assert set(layers) == {*SAYS, "content"} | CHECKS_OF_ACTIVE


@pytest.mark.parametrize("path", NEGATIVE, ids=name_of)
def test_fault_is_refused(path: Path) -> None:
    fault = fault_of(path)
    done = replayed(path, with_it=True)
    assert isinstance(done.end, SmpcError), "the fault is not refused"
    assert type(done.end).__name__ == fault.error
    assert getattr(done.end, "culprit", "") == fault.culprit
    if fault.step:
        assert isinstance(done.end, VerificationError)
        assert (done.step, done.end.code) == (fault.step, Code(fault.code))
        inner = layer_of(str(done.end.__cause__))
        assert fault.layer == inner or (inner == "content" and fault.layer in CHECKS_OF_ACTIVE)
    else:
        assert layer_of(str(done.end)) == fault.layer
    check_reason(path, str(done.end))
    check_code(path, done.end)
    assert len(done.taken) == fault.after + 1 + fault.later


@pytest.mark.parametrize("path", SCENARIOS, ids=name_of)
def test_every_role_takes_a_published_run_without_faults(path: Path) -> None:
    scenario = SCENARIOS[path]
    learned = json.loads(path.read_bytes())["result"]
    for receiver, values in learned.items():
        done = faults.replay(runs.new_run(scenario).roles[receiver], arriving(path, receiver))
        assert isinstance(done.end, Evaluated)
        assert (done.end.outputs is None) == (values is None)
        assert len(done.taken) == sum(map(len, arriving(path, receiver).values()))


@pytest.mark.thin(4)
@pytest.mark.parametrize("path", NEGATIVE, ids=name_of)
def test_there_is_one_fault_and_its_sender_has_signed_it(path: Path) -> None:
    """The message differs from the one of the run, and only faults of the envelope have a wrong signature."""
    fault = fault_of(path)
    good = replayed(path, with_it=False).taken[fault.after]
    assert good[0] == fault.sender
    assert good[1] != fault.message
    if fault.message[:1] != b"\1" or fault.layer == "envelope" or fault.name == "envelope-truncated":
        return
    run = json.loads((path.parent / fault.base).read_bytes())
    envelope = decode_envelope(fault.message[1:], fault.sender)
    session, public_key = run["session"], bytes.fromhex(run["identities"][fault.sender]["public_key"])
    digest = hashlib.sha256(envelope.body).digest()
    ends = (envelope.step.encode(), envelope.sender.encode(), envelope.receiver.encode())
    head = (session["protocol"].encode(), uint(session["version"]), envelope.run_id)
    statement = tuple_hash("envelope", *head, *ends, digest)
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(envelope.signature, statement)
    except InvalidSignature:
        pytest.fail("the signature is wrong too")


@pytest.mark.parametrize("path", CERTIFICATES, ids=lambda path: path.stem)
def test_a_published_certificate_convicts_as_it_says_or_nobody(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    content = bytes.fromhex(vector["certificate"])
    if vector["convicts"] is None:
        with pytest.raises(VerificationError) as caught:
            judge(content)
        check_reason(path, str(caught.value))
        check_code(path, caught.value)
        return
    conviction = judge(content)
    assert vector["convicts"] == {
        "garbler": conviction.garbler,
        "public_key": conviction.public_key.hex(),
        "run_id": conviction.run_id.hex(),
        "copy": conviction.copy,
        "message": conviction.message,
    }
