"""The messages of GOPA without an aggregator; each struct is the body of a signed envelope.

A message for all is signed once, for the receiver `EVERYONE`, so that each receiver can show it to others.
Sets and lists of parties are encoded as in secure aggregation; signatures are those of the envelopes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.messages import SIGNATURE_BYTES, Bytes32
from smpc_dp.wire.abort import ABORT
from smpc_dp.wire.envelope import Body

Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]

# Steps of a party besides hello, advertise, reveal, attest-participants and publish.
HELD = "held"
ATTEST_TOTAL = "attest-total"
WITNESS = "witness"

# Steps of the coordinator.
START = m.START
MERKLE_COMMITMENT = m.MERKLE_COMMITMENT
PARTICIPANTS = m.PARTICIPANTS
PUBLISHED = "published"
FORWARD = "forward"

EVERY_PARTY_STEPS = (m.HELLO, m.ADVERTISE, m.REVEAL, m.ATTEST_PARTICIPANTS, PUBLISH, HELD, ATTEST_TOTAL)
# Steps that a party expects, and the coordinator's work in them.
COORDINATED_STEPS = (
    START,
    MERKLE_COMMITMENT,
    PARTICIPANTS,
    m.ATTEST_PARTICIPANTS,
    PUBLISH,
    PUBLISHED,
    ATTEST_TOTAL,
)
COORDINATOR_STEPS = EVERY_PARTY_STEPS
PROPOSALS = (START, MERKLE_COMMITMENT, PARTICIPANTS, PUBLISHED)
# Messages from one party to one other, signed for that one.
TO_ONE = (HELD, FORWARD, ABORT)


class Proof(Body, frozen=True):
    """Two signed messages of one party for one step of one run: the SHA-256 of each body, and its signature.

    The run and the step are those of the message that the proof is in.
    """

    party: int
    first: Bytes32
    first_signature: Signature
    second: Bytes32
    second_signature: Signature


class Start(Body, frozen=True):
    """Coordinator: the parties that sent a hello (a set), their nonces and signatures, in roster order."""

    present: bytes
    nonces: bytes
    signatures: bytes


class Advertise(Body, frozen=True):
    """Party: commitments to the drawn neighbours, and to a fresh X25519 key for the noise of pairs."""

    draw_commitment: Bytes32
    key_commitment: Bytes32


class MerkleCommitment(Body, frozen=True):
    """Coordinator: the parties that advertised (a set), with bodies and signatures, in roster order."""

    advertised: bytes
    advertisements: list[bytes]
    signatures: bytes


class Reveal(m.Reveal, frozen=True):
    """Party: the openings of its commitments, and proofs against parties that advertised twice."""

    proofs: list[Proof]


class Participants(Body, frozen=True):
    """Coordinator: the participants (a set), with bodies and signatures of `Reveal`, in roster order."""

    participants: bytes
    reveals: list[bytes]
    signatures: bytes


class Held(Body, frozen=True):
    """Party to coordinator: the parties whose x_hat it has.

    `held` is a set; the SHA-256 of each body and the signatures are in roster order; proofs are against the
    parties that published twice.
    """

    held: bytes
    hashes: bytes
    signatures: bytes
    proofs: list[Proof]


class Forward(Body, frozen=True):
    """Coordinator to a party: the body of a publication that it does not have."""

    party: int
    body: bytes


class Published(Body, frozen=True):
    """Coordinator: the parties whose x_hat is in the total.

    `published` is a set, with hashes and signatures as in `Held`; proofs are against the parties left out for
    having published twice.
    """

    published: bytes
    hashes: bytes
    signatures: bytes
    proofs: list[Proof]


class Witness(Body, frozen=True):
    """Party: a proposal of the coordinator, shown because another party seems to have a different one.

    `body` is included for a start, since it identifies the run; for others it is empty.
    """

    step: str
    run_id: Bytes32
    body_hash: Bytes32
    signature: Signature
    body: bytes
