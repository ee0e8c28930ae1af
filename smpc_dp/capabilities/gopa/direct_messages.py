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
    """Proof that a party signed two messages in one step of a run: both SHA-256 hashes and signatures.

    The run and the step are those of the message that the proof is in.
    """

    party: int
    first: Bytes32
    first_signature: Signature
    second: Bytes32
    second_signature: Signature


class Start(Body, frozen=True):
    """Message of the coordinator that starts a run: which parties said hello, with signed nonces."""

    present: bytes
    nonces: bytes
    signatures: bytes


class Advertise(Body, frozen=True):
    """Message of a party to all: commitments to its drawn neighbours and to its fresh X25519 masking key."""

    draw_commitment: Bytes32
    key_commitment: Bytes32


class MerkleCommitment(Body, frozen=True):
    """Message of the coordinator to all: which parties sent commitments, with bodies and signatures."""

    advertised: bytes
    advertisements: list[bytes]
    signatures: bytes


class Reveal(m.Reveal, frozen=True):
    """Message of a party to all: openings of its commitments, and proofs against double commitments."""

    proofs: list[Proof]


class Participants(Body, frozen=True):
    """Message of the coordinator to all: the run's participants, with their signed revealed draws."""

    participants: bytes
    reveals: list[bytes]
    signatures: bytes


class Held(Body, frozen=True):
    """Message of a party to the coordinator: whose noisy vectors the party has received.

    `held` is a set; the SHA-256 of each body and the signatures are in roster order; proofs are against the
    parties that published twice.
    """

    held: bytes
    hashes: bytes
    signatures: bytes
    proofs: list[Proof]


class Forward(Body, frozen=True):
    """Message of the coordinator to a party: another party's noisy vector that the party did not receive."""

    party: int
    body: bytes


class Published(Body, frozen=True):
    """Message of the coordinator to all: the parties whose noisy vectors count in the total.

    `published` is a set, with hashes and signatures as in `Held`; proofs are against the parties left out for
    having published twice.
    """

    published: bytes
    hashes: bytes
    signatures: bytes
    proofs: list[Proof]


class Witness(Body, frozen=True):
    """Message of a party to all: a coordinator's message that another party seems to have in another version.

    `body` is included for a start, since it identifies the run; for others it is empty.
    """

    step: str
    run_id: Bytes32
    body_hash: Bytes32
    signature: Signature
    body: bytes
