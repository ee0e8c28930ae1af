"""Merkle trees and compact certificates as vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec.structs import replace
from nacl.signing import SigningKey

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.merkle import MerkleTree
from smpc_dp.engine.phases import certify
from smpc_dp.engine.phases import messages as m
from smpc_dp.privacy.certificates import expected_samples
from smpc_dp.secagg.versions import EARLIER_VERSION
from smpc_dp.session.memory.simulated_run import Signer, public_keys
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context, encode
from smpc_dp_lab.vectors.fault import flip
from smpc_dp_lab.vectors.runs import AGGREGATOR, header

JsonObject = dict[str, object]

# A quorum far too small for security, so that a sample of few suffices and the vectors stay short.
PARTIES, QUORUM = 510, 24
MISSING = (3, 77, 400)


def all_to_json() -> dict[str, JsonObject]:
    """Return the test vectors of Merkle trees and of sampled certificates, by name."""
    return {"merkle": _trees(), "certificates": _certificates()}


def _trees() -> JsonObject:
    """Return the test vector of Merkle trees: roots and proofs for several sizes."""
    cases: list[JsonObject] = []
    for size, requested in (
        (1, [(0,)]),
        (2, [(0,), (1,), (0, 1)]),
        (3, [(0,), (2,), (0, 2)]),
        (7, [(0,), (6,), (2, 3), (1, 4, 6)]),
        (13, [(12,), (5,), (0, 1, 2, 3, 11), tuple(range(13))]),
    ):
        leaves = [(f"p{index + 1}".encode(), bytes([index]) * 32) for index in range(size)]
        tree = MerkleTree(Label.ADVERTISEMENTS, leaves)
        cases.append(
            {
                "leaves": [[part.hex() for part in leaf] for leaf in leaves],
                "root": tree.root.hex(),
                "proofs": [
                    {"places": list(indices), "proof": tree.prove(indices).hex()} for indices in requested
                ],
            }
        )
    about = "Trees over leaves of two parts each, and the proofs of some of their places."
    return {**header("merkle", "merkle", about), "purpose": "advertisements", "cases": cases}


def signing_seed(party: int) -> bytes:
    """Return the Ed25519 seed of a party, derived from its number."""
    return hashlib.sha256(f"certificate signer {party}".encode()).digest()


def setup() -> tuple[Context, dict[str, Signer]]:
    """Return the context with the parties p1 to p510 of these vectors, and the signer of each."""
    names = tuple(f"p{party}" for party in range(1, PARTIES + 1))
    signers = {
        name: Signer(name, SigningKey(signing_seed(party))) for party, name in enumerate((AGGREGATOR, *names))
    }
    return Context("secagg", EARLIER_VERSION, bytes(32), 1, names, AGGREGATOR, public_keys(signers)), signers


def _certificates() -> JsonObject:
    """Return the test vector of certificates that show a random sample of signatures."""
    context, signers = setup()
    run_id, digest, step = bytes(range(32)), bytes(range(32, 64)), m.ATTEST_PARTICIPANTS
    attesting = [party for party in range(1, PARTIES + 1) if party not in MISSING]

    def signed(set_digest: bytes, in_run: bytes = run_id, in_step: str = step) -> dict[int, bytes]:
        message = m.Attestation(set_digest)
        return {
            party: context.write(signers[f"p{party}"], in_run, in_step, (AGGREGATOR,), message)[0].signature
            for party in attesting
        }

    def sample(signatures: Mapping[int, bytes], quorum: int = QUORUM) -> m.Certificate:
        return certify.sample_certificate(context, run_id, step, digest, signatures, quorum)

    true = signed(digest)
    good = sample(true)
    indices = certify.sampled_indices(
        context, run_id, step, digest, good.signers, good.root, len(attesting), QUORUM
    )
    half = {party: true[party] if party % 2 else bytes(64) for party in attesting}
    fewer = {party: signature for party, signature in true.items() if party != PARTIES}
    listed = certify.make_certificate(true, QUORUM, PARTIES)
    everyone = pack_set(range(1, PARTIES + 1), PARTIES)

    def spoilt(**fields: bytes) -> m.Certificate:
        return replace(good, **fields)

    shown, one_more = good.signatures, pack_set([*attesting, MISSING[0]], PARTIES)
    exchanged = shown[64:128] + shown[:64] + shown[128:]
    other_step = signed(digest, in_step=m.ATTEST_SURVIVORS)
    other_run = signed(digest, in_run=bytes(32))
    cases = [
        ("sample", "As many signatures as are due, of all who signed.", good),
        ("list", "The signatures of a quorum.", listed),
        ("lacks-a-sample", "The last signature due is missing.", spoilt(signatures=shown[:-64])),
        ("sample-of-a-smaller-quorum", "As many as would do for a quorum of 12.", sample(true, 12)),
        ("samples-exchanged", "Two signatures stand in each other's place.", spoilt(signatures=exchanged)),
        ("sample-flipped", "A signature is not what the root binds.", spoilt(signatures=flip(shown))),
        ("half-not-signed", "Zeros stand for the signatures of every other party.", sample(half)),
        ("of-another-set", "All signatures are over another digest.", sample(signed(bytes(32)))),
        ("of-another-step", "All signatures are of another step.", sample(other_step)),
        ("of-another-run", "All signatures are of another run.", sample(other_run)),
        ("claims-one-more", "A party that did not sign is claimed to have.", spoilt(signers=one_more)),
        ("claims-one-fewer", "A party that signed is not claimed.", spoilt(signers=sample(fewer).signers)),
        ("outsiders", "All of the roster are claimed, the set lacks three.", spoilt(signers=everyone)),
        ("root-of-fewer", "The root is of all signatures but one.", spoilt(root=sample(fewer).root)),
        ("proof-flipped", "One bit of the proof is flipped.", spoilt(proof=flip(good.proof))),
        ("proof-cut", "The proof lacks its last node.", spoilt(proof=good.proof[:-32])),
        ("proof-without-root", "A list with a proof.", replace(listed, proof=bytes(32))),
        ("root-too-short", "The root lacks a byte.", spoilt(root=good.root[:-1])),
    ]
    about = (
        "Certificates of the set of p1 to p510 but for p3, p77 and p400. The Ed25519 seed of p1 is SHA-256 "
        "of 'certificate signer 1', and so on. A quorum of 24 is far too small for security: it keeps them "
        "short."
    )
    requested = ((3, 3), (99, 56), (507, 24), (990, 551), (991, 990), (9990, 5501), (9000, 5501))
    return {
        **header("certificates", "certificates", about),
        "protocol": context.protocol,
        "version": context.version,
        "run_id": run_id.hex(),
        "step": step,
        "set_digest": digest.hex(),
        "aggregator": AGGREGATOR,
        "parties": PARTIES,
        "missing": list(MISSING),
        "quorum": QUORUM,
        "samples": [
            {"claimed": claimed, "quorum": quorum, "samples": expected_samples(claimed, quorum)}
            for claimed, quorum in requested
        ],
        "places": list(indices),
        "cases": [
            {"name": name, "about": reason, "good": name in ("sample", "list"), "body": encode(body).hex()}
            for name, reason, body in cases
        ],
    }
