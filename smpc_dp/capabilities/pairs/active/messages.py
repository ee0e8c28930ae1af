"""Further messages of an evaluation that is secure against both sides; the others are `garbled.messages`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.capabilities.pairs.garbled.messages import Bytes32, Hello
from smpc_dp.wire.envelope import Body

ACTIVE, VERSION = "pairwise-active", 1
"""Name and version of the protocol."""
COMMIT = "commit"
EQUAL = "equal"
COIN = "coin"
MACS = "macs"
OUTPUTS = "outputs"
SHARES = "shares"
CHI = "chi"
OPENING = "opening"
OPENED = "opened"

DIGEST_BYTES = 32

Number = Annotated[int, Meta(ge=0)]
Bytes8 = Annotated[bytes, Meta(min_length=8, max_length=8)]


class ActiveHello(Hello, frozen=True):
    """First message of a role to the others: the state of its oblivious transfer setups, to be compared.

    The counters are the numbers of leaky triples, and of AND gates of all instances, since both setups. The
    aggregator has no setups.
    """

    evaluators_setup: Annotated[bytes, Meta(max_length=32)]
    evaluators_index: Number
    triples: Number
    gates: Number


class Commit(Body, frozen=True):
    """Message between both sides: commitments to a hash of their AND triples, and to a shuffle seed."""

    group: Number
    equality: Bytes32
    coin: Bytes32


class Equal(Body, frozen=True):
    """Message between both sides: opens the commitment to the hash of a group of AND triples."""

    group: Number
    value: Bytes32
    opening: Bytes32


class Coin(Body, frozen=True):
    """Message between both sides: opens the committed seed from which AND triples are shuffled."""

    group: Number
    seed: Bytes32


class Macs(Body, frozen=True):
    """Message of the garbler to the evaluator: a digest of MACs on a block's masked values."""

    block: Number
    digest: Bytes32
    transcript: Bytes32


class Outputs(Body, frozen=True):
    """Message of one side to one that learns the output: shares of a block's output masks, digest of MACs."""

    block: Number
    shares: bytes
    digest: Bytes32


class Shares(Body, frozen=True):
    """Message of a side to the aggregator: its encrypted output shares, and the hash of the run's pieces."""

    transcript: Bytes32
    sealed: bytes


class Chi(Body, frozen=True):
    """Message of the aggregator to both sides: a random challenge, from which they draw coefficients."""

    chi: Bytes32


class Opening(Body, frozen=True):
    """Message between both sides that answers a challenge: a hidden sum of output shares, a MAC digest."""

    chi: Bytes32
    opening: Bytes8
    digest: Bytes32


class Opened(Body, frozen=True):
    """Message of a side to the aggregator: what the other side has opened, once its MACs are checked."""

    chi: Bytes32
    opening: Bytes8
