"""The published vectors agree with the twin, which shares no code with the library."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from Crypto.Cipher import ChaCha20_Poly1305
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from smpc_dp_verify.encodings import party_set, tuple_hash, uint
from tests.reference import checked_twin, merkle_twin, shamir
from tests.reference import secagg_twin as twin
from tests.reference.published import messages_of, sources_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "secagg" / "vectors"
RUNS = sorted(PUBLISHED.glob("run-*.json"))
EXACT = [path for path in RUNS if path.stem != "run-checked-noisy"]


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PUBLISHED / f"{name}.json").read_bytes())
    return content


def test_twin_imports_nothing_of_the_library() -> None:
    source = sources_of(twin, checked_twin, merkle_twin, shamir)
    assert "import smpc_dp" not in source
    assert "from smpc_dp" not in source


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_run(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    execute = checked_twin.execute if "total" in vector["session"] else twin.execute
    messages, ends = execute(vector)
    assert messages == messages_of(vector)
    assert ends["intermediate"] == vector["intermediate"]
    assert ends["result"] == vector["result"]


@pytest.mark.parametrize("path", EXACT, ids=lambda path: path.stem)
def test_result_is_the_plain_sum(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    bits, result = vector["session"]["encoding"]["fractional_bits"], vector["result"]
    totals = [Fraction(0)] * vector["session"]["encoding"]["length"]
    for name in result["survivors"]:
        weight = 1 if vector["inputs"][name]["weight"] is None else vector["inputs"][name]["weight"]
        for i, value in enumerate(vector["inputs"][name]["vector"]):
            totals[i] += weight * twin.round_half_even(Fraction(value) * Fraction(2) ** bits)
    assert result["fixed_point"] == totals


@pytest.mark.parametrize("protocol", ["secagg", "gopa"])
def test_the_second_run_of_a_session_names_the_result_of_the_first(protocol: str) -> None:
    folder = PUBLISHED.parents[1] / protocol / "vectors"
    [path] = folder.glob("run-*second.json")
    second = json.loads(path.read_bytes())["session"]
    first = json.loads((folder / second["follows"]).read_bytes())
    assert first["session"]["session_digest"] == second["session_digest"]
    run = twin.Bound(protocol, second["version"], bytes.fromhex(first["intermediate"]["run_id"]))
    [body_hash] = {
        bytes.fromhex(sent["body_sha256"])
        for sent in first["messages"]
        if sent["step"] in ("result", "average")
    }
    assert second["last_results"] == (run.digest("last-run") + run.digest("last-result", body_hash)).hex()


CONTRADICTIONS = load("contradictions")


@pytest.mark.parametrize("case", CONTRADICTIONS["cases"], ids=lambda case: case["name"])
def test_contradictions(case: dict[str, Any]) -> None:
    """The four steps of the specification, from the file alone."""
    assert convicts(bytes.fromhex(CONTRADICTIONS["public_key"]), case["evidence"]) == case["good"]


def convicts(key: bytes, fields: dict[str, str]) -> bool:
    evidence = {name: bytes.fromhex(value) for name, value in fields.items()}
    start_run, step, sender, receiver, body, signature = msgspec.msgpack.decode(evidence["message"])
    if evidence["result step"] not in (b"result", b"average") or step != "start":
        return False
    bound = evidence["result protocol"], evidence["result version"]
    members = sender.encode(), receiver.encode()
    of_start = (evidence["message protocol"], evidence["message version"], start_run, step.encode(), *members)
    of_result = (*bound, evidence["result run id"], evidence["result step"], *members, evidence["result"])
    try:
        VerifyKey(key).verify(tuple_hash("envelope", *of_result), evidence["result signature"])
        VerifyKey(key).verify(tuple_hash("envelope", *of_start, hashlib.sha256(body).digest()), signature)
    except BadSignatureError:
        return False
    named = msgspec.msgpack.decode(body)[4]
    entries = {named[at : at + 32]: named[at + 32 : at + 64] for at in range(0, len(named), 64)}
    shown = entries.get(tuple_hash("last-run", *bound, evidence["result run id"]))
    own = tuple_hash("last-result", *bound, evidence["result run id"], evidence["result"])
    return shown is not None and shown != own


def test_derivations() -> None:
    vector = load("derivations")
    raw = {name: bytes.fromhex(value) for name, value in vector["inputs"].items()}
    head = (vector["protocol"].encode(), uint(vector["version"]), raw["session_digest"])
    requested = (uint(vector["request"]), vector["question"].encode())
    bound = (raw["present"], raw["nonces_root"], raw["nonce"], raw["last_results"])
    run_id = tuple_hash("following-run-id", *head, *requested, *bound)
    run = twin.Bound(vector["protocol"], vector["version"], run_id)
    merkle_commitment = run.digest("roll", raw["present"], raw["roll_root"])
    participants = run.digest("participants", merkle_commitment, raw["participants"])
    keys = {name: twin.public_key(raw[f"{name}_secret"]) for name in ("alice", "bob")}
    digests = {
        kind: run.digest("share-digest", "alice", "bob", kind, raw[share])
        for kind, share in (("masking-key", "mask_share"), ("self-mask", "self_share"))
    }
    signature = twin.sign(raw["alice_signing_seed"], run.digest("share", "alice", "bob", *digests.values()))
    seal_key = run.seal_key(raw["alice_secret"], keys["bob"], "alice", "bob")
    assert seal_key == run.seal_key(raw["bob_secret"], keys["alice"], "alice", "bob")
    associated = run.digest("seal-aad", "alice", "bob", "deal", uint(0))
    share = twin.pack((raw["mask_share"], raw["self_share"], signature))
    expected = {
        "run_id": run_id,
        "result_key": run.digest("last-run"),
        "result_digest": run.digest("last-result", raw["result_sha256"]),
        "neighbour_commitment": run.digest(
            "neighbour-commitment", "alice", raw["neighbours"], raw["blinder"]
        ),
        "key_commitment": run.digest("key-commitment", "alice", keys["alice"]),
        "self_commitment": run.digest("self-commitment", "alice", raw["self_seed"]),
        "roll_digest": merkle_commitment,
        "participants_digest": participants,
        "survivors_digest": run.digest("survivors", participants, raw["survivors"]),
        "alice_public_key": keys["alice"],
        "bob_public_key": keys["bob"],
        "self_mask_seed": run.digest("self-mask", "alice", raw["self_seed"]),
        "pair_mask_seed": run.pair_seed(raw["alice_secret"], keys["bob"], "alice", "bob"),
        "mask_share_digest": digests["masking-key"],
        "self_share_digest": digests["self-mask"],
        "share_signature": signature,
        "seal_key": seal_key,
        "seal_associated_data": associated,
        "sealed_share": twin.seal(seal_key, raw["seal_nonce"], share, associated),
        "envelope_signature": run.envelope(
            raw["alice_signing_seed"], vector["step"], "alice", "relay", raw["body"]
        ),
    }
    assert {name: value.hex() for name, value in expected.items()} == vector["outputs"]
    sealed = bytes.fromhex(vector["outputs"]["sealed_share"])
    opening = ChaCha20_Poly1305.new(key=seal_key, nonce=sealed[:24])
    opening.update(associated)
    assert opening.decrypt_and_verify(sealed[24:-16], sealed[-16:]) == share


def test_masks() -> None:
    for case in load("masks")["cases"]:
        seed = bytes.fromhex(case["seed"])
        assert twin.mask(seed, len(case["uint32"]), 4) == case["uint32"]
        assert twin.mask(seed, len(case["uint64"]), 8) == case["uint64"]


def test_shamir() -> None:
    for case in load("shamir")["cases"]:
        secret, coefficients = bytes.fromhex(case["secret"]), bytes.fromhex(case["coefficients"])
        shares = shamir.split(secret, case["threshold"], case["holders"], coefficients)
        assert [share.hex() for share in shares] == case["shares"]
        chosen = list(zip(case["holders"], shares, strict=True))[-case["threshold"] :]
        assert shamir.combine(dict(chosen)) == secret


def test_draws() -> None:
    for case in load("graph-draws")["cases"]:
        words = [bytes.fromhex(word) for word in case["words"]]
        assert twin.draw(case["index"], case["parties"], case["degree"], words) == case["drawn"]
        assert words == [], "words are left over"


def test_encoding() -> None:
    for case in load("encoding")["cases"]:
        declared, encoding = case["declared"], case["encoding"]
        scale = Fraction(2) ** encoding["fractional_bits"]
        if declared["precision"] is not None:
            # The largest power of two not above the precision.
            assert 1 / scale <= Fraction(declared["precision"]) < 2 / scale
        low = twin.round_half_even(Fraction(declared["lower"]) * scale)
        high = twin.round_half_even(Fraction(declared["upper"]) * scale)
        assert (encoding["lowest"], encoding["highest"]) == (low, high)
        most = declared["parties"] * max(1, encoding["max_weight"])
        size = encoding["element_bytes"]
        assert (
            256 ** (size - 1) <= max(most * (high - low), most if encoding["max_weight"] else 0) < 256**size
        )
        weight = 1 if case["weight"] is None else case["weight"]
        grid = [twin.round_half_even(Fraction(value) * scale) for value in case["vector"]]
        ring_vector = [weight * (value - low) for value in grid] + (
            [weight] if encoding["max_weight"] else []
        )
        assert case["lanes"] == ring_vector
        assert case["packed"] == b"".join(element.to_bytes(size, "little") for element in ring_vector).hex()
        copies = case["copies"]
        assert (
            case["packed_total"] == b"".join((copies * x).to_bytes(size, "little") for x in ring_vector).hex()
        )
        assert case["fixed_point"] == [copies * weight * value for value in grid]
        assert case["total_weight"] == copies * weight


def test_merkle_trees() -> None:
    vector = load("merkle")
    for case in vector["cases"]:
        leaves = [tuple(bytes.fromhex(part) for part in leaf) for leaf in case["leaves"]]
        tree = merkle_twin.Tree(vector["purpose"], leaves)
        assert tree.root.hex() == case["root"]
        for shown in case["proofs"]:
            assert tree.prove(shown["places"]).hex() == shown["proof"]


def test_certificates() -> None:
    vector = load("certificates")
    for case in vector["samples"]:
        assert merkle_twin.expected_samples(case["claimed"], case["quorum"]) == case["samples"]
    run = twin.Bound(vector["protocol"], vector["version"], bytes.fromhex(vector["run_id"]))
    digest, step, quorum = bytes.fromhex(vector["set_digest"]), vector["step"], vector["quorum"]
    signers = [party for party in range(1, vector["parties"] + 1) if party not in vector["missing"]]
    signatures = [
        run.envelope(
            hashlib.sha256(f"certificate signer {party}".encode()).digest(),
            step,
            f"p{party}",
            vector["aggregator"],
            twin.pack((digest,)),
        )
        for party in signers
    ]
    packed = party_set(signers, vector["parties"])
    named = [(f"p{party}".encode(), given) for party, given in zip(signers, signatures, strict=True)]
    tree = merkle_twin.Tree("attestations", named)
    seed = run.digest("certificate-challenge", step, digest, packed, tree.root)
    indices = merkle_twin.sampled(seed, len(signers), quorum)
    assert indices == vector["places"]
    shown = b"".join(signatures[index] for index in indices)
    few = party_set(signers[:quorum], vector["parties"])
    expected = {
        "sample": (packed, shown, tree.root, tree.prove(indices)),
        "list": (few, b"".join(signatures[:quorum]), b"", b""),
    }
    good = {case["name"]: case["body"] for case in vector["cases"] if case["good"]}
    assert good == {name: twin.pack(fields).hex() for name, fields in expected.items()}
