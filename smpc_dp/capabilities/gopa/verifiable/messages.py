"""The messages of verifiable GOPA, after those of GOPA up to `neighbours`.

A party's messages from `commit` on, and the aggregator's of kind `certify-...` and `tally`, are the entries
of the board: the payload of an entry is the body of the message, its signature that of the envelope.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.messages import Bytes32
from smpc_dp.logs import receipt
from smpc_dp.wire.envelope import Body

# Steps of a party; COMMIT, COIN, PUBLISH and OPEN are entries of the board. Those of a round of openings have
# its number, see `in_round`.
COMMIT = "commit"
ATTEST_COMMITMENTS = "attest-commitments"
COIN = "coin"
ATTEST_COINS = "attest-coins"
PUBLISH = receipt.PUBLISH
ATTEST_EXCLUSIONS = "attest-exclusions"
OPEN = "open"
ATTEST_TALLY = receipt.ATTEST_TALLY

# Steps of the aggregator.
COMMITTED = "committed"
COMMITMENTS_CERTIFICATE = "commitments-certificate"
COINS = "coins"
COINS_CERTIFICATE = "coins-certificate"
PUBLICATIONS = "publications"
EXCLUSIONS_CERTIFICATE = "exclusions-certificate"
OPENINGS = "openings"
TALLIED = "tallied"
CLOSED = "closed"

# Entries of the aggregator.
CERTIFY_COMMITMENTS = "certify-commitments"
CERTIFY_COINS = "certify-coins"
CERTIFY_EXCLUSIONS = "certify-exclusions"
TALLY = "tally"
CERTIFY_TALLY = "certify-tally"

# Kinds of entries, in the order on a board; rounds of openings come before the tally.
ORDER = (
    m.CERTIFY_BEGIN,
    COMMIT,
    CERTIFY_COMMITMENTS,
    COIN,
    CERTIFY_COINS,
    PUBLISH,
    TALLY,
    CERTIFY_TALLY,
)

# Steps of a party in a run without false statements.
PARTY_STEPS = (
    m.HELLO,
    m.ATTEST_BEGIN,
    m.ADVERTISE,
    m.REVEAL,
    COMMIT,
    ATTEST_COMMITMENTS,
    COIN,
    ATTEST_COINS,
    PUBLISH,
    ATTEST_TALLY,
)


def in_round(step: str, number: int) -> str:
    """Return the name of a step or log entry in a numbered round of openings, distinct in each round.

    Otherwise a signature of one round could be shown in another.
    """
    return step if number == 1 else f"{step}-{number}"


def certifies(step: str) -> str:
    """Return the kind of the log entry that holds a quorum's signatures of a step."""
    return step.replace("attest", "certify", 1)


def is_of_the_relay(kind: str) -> bool:
    """Tell whether the aggregator, and no party, signs log entries of this kind."""
    return kind.startswith("certify") or kind == TALLY


class Hello(m.Hello, frozen=True):
    """Message of a party that begins a run: its nonce, and its number of known lines of the session log."""

    known: m.Known


class Commit(Body, frozen=True):
    """Message and log entry of a party: commitments to its vector, pairwise noise, noise bits and coin.

    `range_proof` shows that x is within the bounds, of each coordinate or of the norm; `neighbours` is a list
    of parties, `edges` has 32 bytes for each: the commitment to Delta as this party adds it.
    """

    value: Bytes32
    range_proof: bytes
    noise_secret: Bytes32
    coin: Bytes32
    neighbours: bytes
    edges: bytes


class Committed(Body, frozen=True):
    """Message of the aggregator to parties: whose commitments are logged, and the participants.

    `digests` has 32 bytes for each entry; `commits` are those of the
    receiver's neighbours that take part, and `false` those that are false, as they were signed.
    """

    committed: bytes
    digests: bytes
    participants: bytes
    commits: list[m.Advertisement]
    false: list[m.Advertisement]


class Certificate(Body, frozen=True):
    """Message of the aggregator to parties: the log entry with a quorum's signatures, itself signed."""

    payload: bytes
    signature: Annotated[bytes, Meta(min_length=m.SIGNATURE_BYTES, max_length=m.SIGNATURE_BYTES)]


class Coin(Body, frozen=True):
    """Message and log entry of a party: the random coin that it committed to before."""

    coin: Bytes32


class Coins(Body, frozen=True):
    """Message of the aggregator to parties: all participants' coins and the signatures of their entries."""

    coins: bytes
    signatures: bytes


class Publish(Body, frozen=True):
    """Message and log entry of a party: its noisy vector, with the proof that its noise is as committed."""

    x_hat: bytes
    blinding: Bytes32
    noise: Bytes32
    noise_proof: bytes


class Publications(Body, frozen=True):
    """Message of the aggregator: who published noisy vectors, the entries' digests, and false ones.

    `shown` are the false publications of the receiver's neighbours, as they were signed, and `commits` the
    commitments that the receiver needs for checking them and lacks: of participants that are not its
    neighbours. If there are any, `committed` repeats the digests of all commitments.
    """

    authors: bytes
    digests: bytes
    false: bytes
    shown: list[m.Advertisement]
    committed: bytes
    commits: list[m.Advertisement]


class Openings(Publications, frozen=True):
    """Message of the aggregator after a round of openings: who opened, the digests, and false openings."""


class Open(Body, frozen=True):
    """Message and log entry of a party: its pairwise noise with each neighbour just shown false, opened.

    `parties` is a list; `deltas` has 8 bytes a coordinate and `blindings` 32 for each. An entry, unless it is
    right that there are none.
    """

    parties: bytes
    deltas: bytes
    blindings: bytes


class Tally(Body, frozen=True):
    """Log entry of the aggregator: the parties in the total, the total, and how many pairs left noise in it.

    `total` is the sum of their x_hat less what was opened.
    """

    counted: bytes
    total: bytes
    residual_pairs: int


class Claimed(Body, frozen=True):
    """Signed statements of the counted parties in one step, forwarded to all: bodies and signatures.

    Of a publication's x_hat each coordinate has only the bytes that its bound needs, two's complement.
    """

    bodies: list[bytes]
    signatures: bytes


class Tallied(Body, frozen=True):
    """Message of the aggregator to parties: its signed tally, and the statements that the total sums.

    `claimed` is of the publications, and then of each round of openings.
    """

    tally: bytes
    signature: Annotated[bytes, Meta(min_length=m.SIGNATURE_BYTES, max_length=m.SIGNATURE_BYTES)]
    claimed: list[Claimed]


class NotChecked(Body, frozen=True):
    """Message of a party in place of its signature on the tally: it has not computed the total."""
