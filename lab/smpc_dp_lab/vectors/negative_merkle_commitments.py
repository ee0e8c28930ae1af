"""Negative vectors: roots and proofs that a party must refuse."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from smpc_dp.crypto.labels import Label
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment
from smpc_dp_lab.vectors.fault import Base, Negative, flip

ALICE, BOB, DAVE = 1, 2, 4
OTHERS = (2, 3, 4)


def _advertised(base: Base) -> dict[int, bytes]:
    """Return, by party, the digest that it gave to the tree over all advertisements."""
    names = enumerate(base.run.context.names, 1)
    return {number: hashlib.sha256(base.find(m.ADVERTISE, name)[1].body).digest() for number, name in names}


def advertisements_of(base: Base) -> MerkleCommitment:
    """Return the Merkle tree over all parties' advertisements in a run."""
    return MerkleCommitment(base.run.context, Label.ADVERTISEMENTS, _advertised(base))


def of_merkle_commitments(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in Merkle roots and proofs that a party is sent."""
    context = base.run.context
    names = dict(enumerate(context.names, 1))
    nonces = {number: base.read(m.HELLO, name).nonce for number, name in names.items()}
    advertised = _advertised(base)
    for step, purpose, given, reason in (
        (m.START, Label.NONCES, nonces, "nonce"),
        (m.MERKLE_COMMITMENT, Label.ADVERTISEMENTS, advertised, "advertisement"),
    ):
        true = MerkleCommitment(context, purpose, given)
        without = MerkleCommitment(context, purpose, given | {ALICE: bytes(32)})
        fewer = MerkleCommitment(context, purpose, {party: given[party] for party in given if party != DAVE})
        proof = true.prove((ALICE,))
        of_another = f"Another {reason} stands in the place of alice's."
        of_fewer = "The root is of a set without dave, in which the sender has him."
        for name, about, root, shown in (
            (f"without-my-{reason}", of_another, without.root, without.prove((ALICE,))),
            ("proof-of-another-place", "The proof is of bob's place.", true.root, true.prove((BOB,))),
            ("root-of-another-set", of_fewer, fewer.root, fewer.prove((ALICE,))),
            ("proof-flipped", "One bit of the proof is flipped.", true.root, flip(proof)),
            ("proof-too-long", "The proof has a node too many.", true.root, proof + bytes(32)),
            ("proof-cut", "The proof ends within a node.", true.root, proof[:-1]),
        ):
            yield base.fault(f"{step}-{name}", about, step, {"root": root, "proof": shown})
    about = "Under the root bob has another nonce: it does not give the run id that the start is signed for."
    forged = MerkleCommitment(context, Label.NONCES, nonces | {BOB: bytes(32)})
    changed = {"root": forged.root, "proof": forged.prove((ALICE,))}
    yield base.fault("start-of-another-run", about, m.START, changed)
    merkle_commitment = advertisements_of(base)
    for name, about, proof in (
        ("of-another-place", "The proof is of alice's own place.", merkle_commitment.prove((ALICE,))),
        ("flipped", "One bit of the proof is flipped.", flip(merkle_commitment.prove(OTHERS))),
        ("too-long", "The proof has a node too many.", merkle_commitment.prove(OTHERS) + bytes(32)),
        ("missing", "There is no proof.", b""),
    ):
        yield base.fault(f"neighbours-proof-{name}", about, m.NEIGHBOURS, {"proof": proof})
    second = base.with_message(base.find(m.ADVERTISE, "bob")[1], {"key_commitment": bytes(32)})
    yield base.fault(
        "advertisement-not-of-the-roll",
        "Bob has signed a second advertisement, which is not on the roll.",
        m.NEIGHBOURS,
        {"advertisements": lambda given: [m.Advertisement(BOB, second.body, second.signature), *given[1:]]},
    )
