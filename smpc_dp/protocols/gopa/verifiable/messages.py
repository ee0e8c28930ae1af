"""The messages of verifiable GOPA, after those of GOPA as far as `neighbours`.

What a party says from `commit` on, and what the relay says of kind `certify-...` and `tally`, are the entries
of the board: the payload of an entry is the body of the message, its signature that of the envelope.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.protocols.phases import messages as m
from smpc_dp.protocols.phases.messages import Bytes32
from smpc_dp.wire.envelope import Body

# Steps of a party; COMMIT, COIN, PUBLISH and OPEN are entries of the board. Those of a round of openings have
# its number, see `in_round`.
COMMIT = "commit"
ATTEST_COMMITMENTS = "attest-commitments"
COIN = "coin"
ATTEST_COINS = "attest-coins"
PUBLISH = "publish"
ATTEST_EXCLUSIONS = "attest-exclusions"
OPEN = "open"
ATTEST_TALLY = "attest-tally"

# Steps of the relay.
COMMITTED = "committed"
COMMITMENTS_CERTIFICATE = "commitments-certificate"
COINS = "coins"
COINS_CERTIFICATE = "coins-certificate"
PUBLICATIONS = "publications"
EXCLUSIONS_CERTIFICATE = "exclusions-certificate"
OPENINGS = "openings"
TALLIED = "tallied"
CLOSED = "closed"

# Entries of the relay.
CERTIFY_COMMITMENTS = "certify-commitments"
CERTIFY_COINS = "certify-coins"
CERTIFY_EXCLUSIONS = "certify-exclusions"
TALLY = "tally"
CERTIFY_TALLY = "certify-tally"

# The kinds of entries, in the order in which they stand on a board; rounds of openings are before the tally.
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

# Beside a run: a party asks for lines of a log, and the relay answers.
FETCH = "fetch"
LINES = "lines"

# The steps of a party in a run in which nobody publishes anything false.
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
    """Return the name of a step or entry in this round of openings, from 1: no two rounds have one in common.

    Else what was signed in one round could be shown in another.
    """
    return step if number == 1 else f"{step}-{number}"


def certifies(step: str) -> str:
    """Return the kind of the entry that certifies what was attested in a step."""
    return step.replace("attest", "certify", 1)


def is_of_the_relay(kind: str) -> bool:
    """Tell whether the relay signs entries of this kind."""
    return kind.startswith("certify") or kind == TALLY


class Hello(m.Hello, frozen=True):
    """Party: as in GOPA, and up to which line it knows the session log."""

    known: m.Known


class Commit(Body, frozen=True):
    """Party, entry: commitments to x, to every Delta and to the secret noise bits, and to a coin.

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
    """Relay: whose commitments are on the board (a list), and who of them takes part (a set).

    `digests` has 32 bytes for each entry; `commits` are those of the
    receiver's neighbours that take part, and `false` those that are false, as they were signed.
    """

    committed: bytes
    digests: bytes
    participants: bytes
    commits: list[m.Advertisement]
    false: list[m.Advertisement]


class Certificate(Body, frozen=True):
    """Relay: the entry that it has made of a quorum's signatures, and its own under the entry."""

    payload: bytes
    signature: Annotated[bytes, Meta(min_length=m.SIGNATURE_BYTES, max_length=m.SIGNATURE_BYTES)]


class Coin(Body, frozen=True):
    """Party, entry: the coin that it has committed to."""

    coin: Bytes32


class Coins(Body, frozen=True):
    """Relay: the coin of each participant in roster order, and the signatures of their entries."""

    coins: bytes
    signatures: bytes


class Publish(Body, frozen=True):
    """Party, entry: x_hat (8 bytes a coordinate), its blinding, and the noise in it with its proof."""

    x_hat: bytes
    blinding: Bytes32
    noise: Bytes32
    noise_proof: bytes


class Publications(Body, frozen=True):
    """Relay: who has published (a list), 32 bytes for each entry, and who of them something false (a list).

    `shown` are the false ones of the receiver's neighbours, as they were signed, and `commits` the
    commitments that the receiver needs to check them and has not: of parties that take part and are not its
    neighbours. If there are any, `committed` has again the digests of all commitments.
    """

    authors: bytes
    digests: bytes
    false: bytes
    shown: list[m.Advertisement]
    committed: bytes
    commits: list[m.Advertisement]


class Openings(Publications, frozen=True):
    """Relay, after a round of openings: the same of who has opened something in it."""


class Open(Body, frozen=True):
    """Party: Delta as it added it, with the blinding, of each neighbour shown false before the round.

    `parties` is a list; `deltas` has 8 bytes a coordinate and `blindings` 32 for each. An entry, unless it is
    right that there are none.
    """

    parties: bytes
    deltas: bytes
    blindings: bytes


class Tally(Body, frozen=True):
    """Relay, entry: whose values are in the total (a set), and the pairs of which noise is left in it.

    `total` is the sum of their x_hat less what was opened.
    """

    counted: bytes
    total: bytes
    residual_pairs: int


class Claimed(Body, frozen=True):
    """What those who are counted said in one step, ascending: payloads, and 64 bytes of signature for each.

    Of a publication's x_hat each coordinate has only the bytes that its bound needs, two's complement.
    """

    bodies: list[bytes]
    signatures: bytes


class Tallied(Body, frozen=True):
    """Relay: its tally, its signature under the entry, and what the total is made of.

    `claimed` is of the publications, and then of each round of openings.
    """

    tally: bytes
    signature: Annotated[bytes, Meta(min_length=m.SIGNATURE_BYTES, max_length=m.SIGNATURE_BYTES)]
    claimed: list[Claimed]


class NotChecked(Body, frozen=True):
    """Party, in the place of its attestation of the tally: it has not added up the total, as it was told."""


class Fetch(Body, frozen=True):
    """Party, beside a run: asks for the lines from entry `first` on; 0 is the header."""

    first: Annotated[int, Meta(ge=0, lt=1 << 32)]


class Lines(Body, frozen=True):
    """Relay, in answer: some lines from `first` on, without line feeds; none if there are none."""

    first: int
    lines: list[bytes]
