"""Negative vectors of messages from a party that the aggregator must refuse."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Code
from smpc_dp.wire.abort import LEAVE, Abort
from smpc_dp.wire.sets import pack_list
from smpc_dp_lab.vectors.fault import CONTENT, ENVELOPE, ORDER, Base, Negative, flip


def to_the_aggregator(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in a party's messages, in the order of the steps."""
    about = "Carol's session file differs."
    yield base.fault("hello-of-another-session", about, m.HELLO, {"session_digest": flip})
    about = "Carol derived another threshold."
    yield base.fault("hello-with-another-plan", about, m.HELLO, {"threshold": lambda known: known + 1})
    about = "Carol says hello twice, with two nonces."
    yield base.fault("hello-twice", about, m.HELLO, {"nonce": bytes(32)}, ORDER, later=1)
    about = "The key is the point of order one."
    yield base.fault("small-order-seal-key", about, m.ADVERTISE, {"seal_key": bytes(32)})
    about = "Carol reveals with another blinder than she committed to."
    yield base.fault("reveal-not-committed", about, m.REVEAL, {"blinder": flip})
    about = "Carol reveals another masking key than she committed to."
    yield base.fault("mask-key-not-committed", about, m.REVEAL, {"mask_key": flip})
    about = "Carol deals one share too few."
    yield base.fault("deal-lacks-a-share", about, m.DEAL, {"sealed": lambda sealed: sealed[1:]})
    about = "A sealed share lacks its last byte."
    cut = {"sealed": lambda sealed: [sealed[0][:-1], *sealed[1:]]}
    yield base.fault("sealed-share-too-short", about, m.DEAL, cut)
    yield attests_another_set(base)
    yield from masked_and_unmasked(base)
    about = "Carol complains about herself, who dealt her nothing."
    yield base.fault("complaint-about-nobody", about, m.MASKED, {"bad_dealers": pack_list((3,))})
    about = "One share is missing from the shares alone."
    fewer = {"shares": lambda shares: shares[32:]}
    yield base.fault("unmask-lists-differ-in-length", about, m.UNMASK, fewer)
    about = "A bit of the masked vector is flipped on the way."
    flipped = {"body": lambda body: flip(body, 5)}
    yield base.forged("masked-flipped", about, m.MASKED, flipped, ENVELOPE, signed=False)
    about = "Carol leaves and blames somebody who is not in the roster."
    leave = {"step": LEAVE, "body": msgspec.msgpack.encode(Abort(Code.FAULT, "mallory"))}
    yield base.forged("leave-names-an-outsider", about, m.MASKED, leave, CONTENT)


def attests_another_set(base: Base) -> Negative:
    """Return the test vector of a party that signs another set than the aggregator sent."""
    about = "Carol signs a digest that is not the participants'."
    return base.fault("attests-another-set", about, m.ATTEST_PARTICIPANTS, {"set_digest": flip})


def masked_and_unmasked(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in a masked vector, and in shares that unmask it."""
    about = "The masked vector lacks its last byte."
    yield base.fault("masked-too-short", about, m.MASKED, {"vector": lambda vector: vector[:-1]})
    sizes = {"dealers": 2, "shares": 32, "others": 32, "signatures": 64}
    without_one = {field: lambda packed, size=size: packed[size:] for field, size in sizes.items()}
    yield base.fault("unmask-withholds-a-share", "Carol reveals nothing of alice.", m.UNMASK, without_one)
