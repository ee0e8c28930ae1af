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
    """Party: it takes part in a request of a session and asks for an operation, with a fresh nonce.

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
    """Aggregator: the parties that sent a hello (a set), the root over their nonces, the receiver's proof."""

    present: bytes
    root: Bytes32
    proof: bytes


class FollowingStart(Start, frozen=True):
    """Aggregator, of a run without a log: besides, its nonce and `last_results`, the same to all."""

    nonce: Bytes32
    named: bytes


class Advertise(Body, frozen=True):
    """Party: a fresh X25519 key for encryption, and commitments to its draw and to its masking key."""

    seal_key: Bytes32
    draw_commitment: Bytes32
    key_commitment: Bytes32

    @classmethod
    def of(cls, message: Advertise) -> Advertise:
        """Return what the advertisements of all sums have."""
        return Advertise(message.seal_key, message.draw_commitment, message.key_commitment)


class CheckedAdvertise(Advertise, frozen=True):
    """Party, of a checked total: besides, a commitment to the commitment to its vector."""

    value_commitment: Bytes32


class MerkleCommitment(Body, frozen=True):
    """Aggregator: the parties that advertised (a set), the root over advertisements, the receiver's proof."""

    advertised: bytes
    root: Bytes32
    proof: bytes


class CheckedMerkleCommitment(MerkleCommitment, frozen=True):
    """Aggregator, of a checked total: besides, the root over `value_commitment`, the receiver's proof."""

    values_root: Bytes32
    values_proof: bytes


class Reveal(Body, frozen=True):
    """Party: the openings of its commitments: the neighbours that it drew (a list), and its masking key."""

    neighbours: bytes
    blinder: Bytes32
    mask_key: Bytes32


class Advertisement(Body, frozen=True):
    """A neighbour's `Advertise`, forwarded with the signature of its envelope."""

    party: int
    body: bytes
    signature: bytes


class Opening(Body, frozen=True):
    """The `Reveal` of a party that drew the receiver, forwarded with the signature of its envelope."""

    party: int
    body: bytes
    signature: bytes


class Neighbours(Body, frozen=True):
    """Aggregator: the parties that revealed (a set), and the data of the receiver's neighbours in it.

    The advertisements and masking keys of all of them, and the openings of those that drew the receiver, each
    in roster order; and one proof that the Merkle commitment has all these advertisements.
    """

    revealed: bytes
    advertisements: list[Advertisement]
    mask_keys: bytes
    openings: list[Opening]
    proof: bytes


class Deal(Body, frozen=True):
    """Party: a commitment to its self-mask seed, and encrypted shares.

    One encrypted `Share` for each neighbour that it drew and that revealed, in roster order.
    """

    self_commitment: Bytes32
    sealed: list[bytes]


class Share(Body, frozen=True):
    """Encrypted, dealer to holder: one share each of the masking key and of the self-mask seed.

    `signature` is the dealer's, over the digests of both shares, so that either can be shown alone.
    """

    mask_share: Bytes32
    self_share: Bytes32
    signature: bytes

    def __repr__(self) -> str:
        return "Share(secret)"


class Deliver(Body, frozen=True):
    """Aggregator: the parties that dealt (a set: the participants), and their shares for the receiver."""

    participants: bytes
    dealers: bytes
    sealed: list[bytes]


class Attestation(Body, frozen=True):
    """Party: the digest of the one set that it has seen (of participants, later of survivors).

    Of a checker: the digest of the total that it has checked.
    """

    set_digest: Bytes32


class Certificate(Body, frozen=True):
    """Aggregator: the parties that signed an `Attestation` of the set (a set), and their signatures.

    In roster order. Without `root` they are those of all signers. With it they are those of a sample of the
    signers, determined by the root of all signatures, and `proof` shows that the tree has them.
    """

    signers: bytes
    signatures: bytes
    root: bytes = b""
    proof: bytes = b""


class Masked(Body, frozen=True):
    """Party: its masked vector, packed; and the dealers whose share was invalid (a list)."""

    vector: Large
    bad_dealers: bytes


class CheckedMasked(Masked, frozen=True):
    """Party, of a checked total: besides, the commitment to its vector, signed, and its masked blinding."""

    point: Bytes32
    blinding: Bytes32
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Survivors(Body, frozen=True):
    """Aggregator: the parties whose masked vectors are in the sum (a set)."""

    survivors: bytes


class Unmask(Body, frozen=True):
    """Party: of each dealer (a list) one share, of its self-mask seed or of its masking key.

    Of the self-mask seed if the dealer survived, else of the masking key.
    `shares` has 32 bytes a dealer, `others` the digest of the share that stays hidden, `signatures` the
    dealer's.
    """

    dealers: bytes
    shares: bytes
    others: bytes
    signatures: bytes


class Result(Body, frozen=True):
    """Aggregator: the sum of the survivors' vectors, packed."""

    total: Large


class CheckedResult(Result, frozen=True):
    """Aggregator, of a checked total: besides, the sum of the survivors' blindings, and commitments.

    Of many parties the same is sent to checkers alone.
    `openings`: of each survivor the commitment to its vector and the signature of it, 96 bytes; `hidden`: of
    each other party that advertised its `value_commitment`, 32 bytes; in roster order.
    """

    blinding: Bytes32
    openings: bytes
    hidden: bytes


class CertifiedResult(Result, frozen=True):
    """Aggregator, of a checked total of many parties: the sum of the blindings, and who attests the total."""

    blinding: Bytes32
    certificate: Certificate


class Kinds(NamedTuple):
    """Types of the messages that differ where totals are checked, and where some check for all."""

    advertise: type[Advertise]
    merkle_commitment: type[MerkleCommitment]
    masked: type[Masked]
    result: type[Result]


UNCHECKED = Kinds(Advertise, MerkleCommitment, Masked, Result)
CHECKED = Kinds(CheckedAdvertise, CheckedMerkleCommitment, CheckedMasked, CheckedResult)
CERTIFIED = CHECKED._replace(result=CertifiedResult)


# Of protocols with a log.


class Begin(Body, frozen=True):
    """Aggregator: the session log after line `base`, whose head is `head`; the last line is this run's.

    A line is request, run id, and the last head of the log of the run before.
    """

    base: Known
    head: Bytes32
    lines: Annotated[list[tuple[Known, Bytes32, Bytes32]], Meta(min_length=1, max_length=MOST_BEHIND)]


class Begun(Body, frozen=True):
    """Aggregator: the head of the run's log before its first entry, that entry's payload and signature."""

    head: Bytes32
    payload: bytes
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Certified(Body, frozen=True):
    """Aggregator, entry: a quorum's signatures on a head and on the set of parties that go on.

    Each signature is over an `Attestation` of the digest of run, stage, head and set.
    """

    members: bytes
    signers: bytes
    signatures: bytes


def pieces(packed: bytes, size: int) -> list[bytes]:
    """Return the items of a field that has many of one size."""
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def longest_set(parties: int) -> int:
    """Return the greatest length in bytes of a packed set of parties, with room for its header."""
    return parties // 8 + 16


def longest_certificate(parties: int) -> int:
    """Return the greatest length in bytes of a `Certified` with a signature of each party."""
    return 2 * longest_set(parties) + SIGNATURE_BYTES * parties + 64
