"""The messages of secure aggregation. Every struct is the body of one signed envelope.

Parties are numbered 1 to n in roster order; a list of parties is encoded as 2-byte little-endian numbers, a
set as n bits or as a list of the absent parties (`wire.sets.pack_set`). One value of each party, a nonce or
SHA-256 of an `Advertise`, is bound by the root of a Merkle tree in roster order, and `proof` shows some of
its leaves.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta

from smpc_dp.seen import MOST_BEHIND
from smpc_dp.wire.envelope import Body, Large

Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
# Number of a line of a session log.
Known = Annotated[int, Meta(ge=0, lt=1 << 62)]

# Steps of a party, in order; each is sent at most once in a run.
HELLO = "hello"
ADVERTISE = "advertise"
REVEAL = "reveal"
DEAL = "deal"
ATTEST_PARTICIPANTS = "attest-participants"
MASKED = "masked"
ATTEST_SURVIVORS = "attest-survivors"
UNMASK = "unmask"

# Steps of the aggregator, each the answer to the party's step of the same place.
START = "start"
MERKLE_COMMITMENT = "roll"
NEIGHBOURS = "neighbours"
DELIVER = "deliver"
PARTICIPANTS = "participants"
SURVIVORS = "survivors"
SURVIVORS_CERTIFICATE = "survivors-certificate"
RESULT = "result"

# Steps whose message is a result: of GOPA that keeps the noise of lost parties, it is an average.
RESULTS = (RESULT, "average")
# Of a checked total of many parties: the checkers' step, between the last two, and the one that it answers.
TOTAL = "total"
ATTEST_TOTAL = "attest-total"

# Steps of a logged run, between `start` and the others; `certify-begin` is the first entry of its log.
BEGIN = "begin"
ATTEST_BEGIN = "attest-begin"
BEGUN = "begun"
CERTIFY_BEGIN = "certify-begin"

PARTY_STEPS = (HELLO, ADVERTISE, REVEAL, DEAL, ATTEST_PARTICIPANTS, MASKED, ATTEST_SURVIVORS, UNMASK)
AGGREGATOR_STEPS = (
    START,
    MERKLE_COMMITMENT,
    NEIGHBOURS,
    DELIVER,
    PARTICIPANTS,
    SURVIVORS,
    SURVIVORS_CERTIFICATE,
    RESULT,
)

OPERATION_LIMIT = 1024
SIGNATURE_BYTES = 64
SHARE_BYTES = 32
# Of a commitment to a vector, with the signature of it.
POINT_BYTES = 32
OPENING_BYTES = POINT_BYTES + SIGNATURE_BYTES
# Of an X25519 public key.
KEY_BYTES = 32
# MessagePack of a `Share` (an array of three byte strings) and the overhead of its encryption.
SEALED_SHARE_BYTES = 1 + 2 * (2 + SHARE_BYTES) + (2 + SIGNATURE_BYTES) + 40


class Hello(Body, frozen=True):
    """Message of a party that takes part in a request: its operation, and a fresh nonce.

    `operation` is the parties' name of the computation: parties that ask for another one are not added up.
    The plan is derived with floating point, so its relevant values are compared and not assumed equal.
    """

    session_digest: Bytes32
    request: int
    nonce: Bytes32
    degree: int
    threshold: int
    quorum: int
    operation: Annotated[str, Meta(max_length=OPERATION_LIMIT)]


class Start(Body, frozen=True):
    """Message of the aggregator that starts a run: the parties present, and a proof that a nonce counts."""

    present: bytes
    root: Bytes32
    proof: bytes


class FollowingStart(Start, frozen=True):
    """Message of the aggregator that starts a run without log: also its nonce, and named last results."""

    nonce: Bytes32
    named: bytes


class Advertise(Body, frozen=True):
    """Message of a party: its fresh encryption key, and commitments to neighbours and masking key."""

    seal_key: Bytes32
    draw_commitment: Bytes32
    key_commitment: Bytes32

    @classmethod
    def of(cls, message: Advertise) -> Advertise:
        """Return a copy of the message with only the fields that all kinds of sums have."""
        return Advertise(message.seal_key, message.draw_commitment, message.key_commitment)


class CheckedAdvertise(Advertise, frozen=True):
    """Message of a party whose total is checked: also a commitment to its vector's commitment."""

    value_commitment: Bytes32


class MerkleCommitment(Body, frozen=True):
    """Message of the aggregator: who sent commitments, a Merkle root over them, and a proof."""

    advertised: bytes
    root: Bytes32
    proof: bytes


class CheckedMerkleCommitment(MerkleCommitment, frozen=True):
    """Message of the aggregator for a checked total: also a root over vector commitments, a proof."""

    values_root: Bytes32
    values_proof: bytes


class Reveal(Body, frozen=True):
    """Message of a party that opens its commitments: the neighbours that it drew, and its masking key."""

    neighbours: bytes
    blinder: Bytes32
    mask_key: Bytes32


class Advertisement(Body, frozen=True):
    """A neighbour's signed keys and commitments, as the aggregator forwards them to a party."""

    party: int
    body: bytes
    signature: bytes


class Opening(Body, frozen=True):
    """The signed openings of a party that drew the receiver, as the aggregator forwards them."""

    party: int
    body: bytes
    signature: bytes


class Neighbours(Body, frozen=True):
    """Message of the aggregator to a party: who revealed, and the keys and openings of its neighbours.

    The advertisements and masking keys of all of them, and the openings of those that drew the receiver, each
    in roster order; and one proof that the Merkle commitment has all these advertisements.
    """

    revealed: bytes
    advertisements: list[Advertisement]
    mask_keys: bytes
    openings: list[Opening]
    proof: bytes


class Deal(Body, frozen=True):
    """Message of a party: a commitment to its self-mask seed, and encrypted secret shares for neighbours.

    One encrypted `Share` for each neighbour that it drew and that revealed, in roster order.
    """

    self_commitment: Bytes32
    sealed: list[bytes]


class Share(Body, frozen=True):
    """Secret shares from a dealer to a holder: of the dealer's masking key and of its self-mask seed.

    `signature` is the dealer's, over the digests of both shares, so that either can be shown alone.
    """

    mask_share: Bytes32
    self_share: Bytes32
    signature: bytes

    def __repr__(self) -> str:
        return "Share(secret)"


class Deliver(Body, frozen=True):
    """Message of the aggregator to a party: the participants, and the encrypted shares for the party."""

    participants: bytes
    dealers: bytes
    sealed: list[bytes]


class Attestation(Body, frozen=True):
    """Message of a party: the digest of the set of parties (participants or survivors) that it has seen.

    Of a checker: the digest of the total that it has checked.
    """

    set_digest: Bytes32


class Certificate(Body, frozen=True):
    """Message of the aggregator to parties: who has signed a set of parties, and their signatures.

    In roster order. Without `root` they are those of all signers. With it they are those of a sample of the
    signers, determined by the root of all signatures, and `proof` shows that the tree has them.
    """

    signers: bytes
    signatures: bytes
    root: bytes = b""
    proof: bytes = b""


class Masked(Body, frozen=True):
    """Message of a party to the aggregator: its masked vector, and dealers of invalid shares."""

    vector: Large
    bad_dealers: bytes


class CheckedMasked(Masked, frozen=True):
    """Message of a party for a checked total: also its vector commitment, signed, and masked blinding."""

    point: Bytes32
    blinding: Bytes32
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Survivors(Body, frozen=True):
    """Message of the aggregator to parties: the parties whose masked vectors are in the sum."""

    survivors: bytes


class Unmask(Body, frozen=True):
    """Message of a party: one share of each dealer, of the self-mask seed or of the masking key.

    Of the self-mask seed if the dealer survived, else of the masking key.
    `shares` has 32 bytes a dealer, `others` the digest of the share that stays hidden, `signatures` the
    dealer's.
    """

    dealers: bytes
    shares: bytes
    others: bytes
    signatures: bytes


class Result(Body, frozen=True):
    """Message of the aggregator to parties: the sum of the survivors' vectors."""

    total: Large


class CheckedResult(Result, frozen=True):
    """Message of the aggregator for a checked total: also the sum of blindings, and commitments.

    Of many parties the same is sent to checkers alone.
    `openings`: of each survivor the commitment to its vector and the signature of it, 96 bytes; `hidden`: of
    each other party that advertised its `value_commitment`, 32 bytes; in roster order.
    """

    blinding: Bytes32
    openings: bytes
    hidden: bytes


class CertifiedResult(Result, frozen=True):
    """Message of the aggregator for a total that some parties have checked and signed for all."""

    blinding: Bytes32
    certificate: Certificate


class Kinds(NamedTuple):
    """Message types of a protocol of sums that differ where totals are checked."""

    advertise: type[Advertise]
    merkle_commitment: type[MerkleCommitment]
    masked: type[Masked]
    result: type[Result]


UNCHECKED = Kinds(Advertise, MerkleCommitment, Masked, Result)
CHECKED = Kinds(CheckedAdvertise, CheckedMerkleCommitment, CheckedMasked, CheckedResult)
CERTIFIED = CHECKED._replace(result=CertifiedResult)


# Of protocols with a log.


class Begin(Body, frozen=True):
    """Message of the aggregator to parties: the new lines of the session log, the last of this run.

    A line is request, run id, and the last head of the log of the run before.
    """

    base: Known
    head: Bytes32
    lines: Annotated[list[tuple[Known, Bytes32, Bytes32]], Meta(min_length=1, max_length=MOST_BEHIND)]


class Begun(Body, frozen=True):
    """Message of the aggregator to parties: the first entry of the run's log, signed."""

    head: Bytes32
    payload: bytes
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Certified(Body, frozen=True):
    """Log entry of the aggregator: a quorum's signatures on the log's hash and the parties that go on.

    Each signature is over an `Attestation` of the digest of run, stage, head and set.
    """

    members: bytes
    signers: bytes
    signatures: bytes


def pieces(packed: bytes, size: int) -> list[bytes]:
    """Return the items of equal size that a packed field holds."""
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def longest_set(parties: int) -> int:
    """Return an upper bound in bytes on a packed set of parties, with its header."""
    return parties // 8 + 16


def longest_certificate(parties: int) -> int:
    """Return an upper bound in bytes on the length of a `Certified` with a signature of each party."""
    return 2 * longest_set(parties) + SIGNATURE_BYTES * parties + 64
