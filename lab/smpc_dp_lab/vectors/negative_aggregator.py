"""Negative vectors: what the aggregator must refuse of a party."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from smpc_dp.errors import Code
from smpc_dp.protocols.abort import LEAVE, Abort
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import pack_list
from smpc_dp_lab.vectors.fault import CONTENT, CULPRIT, ENVELOPE, ORDER, Base, Negative, constant, flip
from smpc_dp_lab.vectors.runs import AGGREGATOR


def to_the_aggregator(base: Base) -> Iterator[Negative]:
    """Yield the faults of a party, in the order of the steps."""
    yield base.of_a_party(
        "hello-of-another-session",
        "Carol's session file differs.",
        m.Hello,
        m.HELLO,
        lambda hello: {"session_digest": flip(hello.session_digest)},
    )
    yield base.of_a_party(
        "hello-with-another-plan",
        "Carol derived another threshold.",
        m.Hello,
        m.HELLO,
        lambda hello: {"threshold": hello.threshold + 1},
    )
    place, hello = base.find(m.HELLO, CULPRIT, AGGREGATOR)
    again = msgspec.structs.replace(decode(hello.body, m.Hello, CULPRIT), nonce=bytes(32))
    second = base.sign(hello, body=msgspec.msgpack.encode(again))
    about = "Carol says hello twice, with two nonces."
    yield base.made("hello-twice", about, place + 1, second, ORDER)
    for field in ("seal_key", "mask_key"):
        yield base.of_a_party(
            f"small-order-{field.replace('_', '-')}",
            "The key is the point of order one.",
            m.Advertise,
            m.ADVERTISE,
            constant(**{field: bytes(32)}),
        )
    yield base.of_a_party(
        "reveal-not-committed",
        "Carol reveals with another blinder than she committed to.",
        m.Reveal,
        m.REVEAL,
        lambda reveal: {"blinder": flip(reveal.blinder)},
    )
    yield base.of_a_party(
        "deal-lacks-a-share",
        "Carol deals one share too few.",
        m.Deal,
        m.DEAL,
        lambda deal: {"sealed": deal.sealed[1:]},
    )
    yield base.of_a_party(
        "sealed-share-too-short",
        "A sealed share lacks its last byte.",
        m.Deal,
        m.DEAL,
        lambda deal: {"sealed": [deal.sealed[0][:-1], *deal.sealed[1:]]},
    )
    yield attests_another_set(base)
    yield from masked_and_unmasked(base)
    yield base.of_a_party(
        "complaint-about-nobody",
        "Carol complains about herself, who dealt her nothing.",
        m.Masked,
        m.MASKED,
        lambda _: {"bad_dealers": pack_list((3,))},
    )
    yield base.of_a_party(
        "unmask-lists-differ-in-length",
        "One share is missing from the shares alone.",
        m.Unmask,
        m.UNMASK,
        lambda unmask: {"shares": unmask.shares[32:]},
    )
    place, masked = base.find(m.MASKED, CULPRIT, AGGREGATOR)
    flipped = msgspec.structs.replace(masked, body=flip(masked.body, 5))
    about = "A bit of the masked vector is flipped on the way."
    yield base.made("masked-flipped", about, place, flipped, ENVELOPE)
    abort = msgspec.msgpack.encode(Abort(Code.FAULT, "mallory"))
    about = "Carol leaves and blames somebody who is not in the roster."
    leave = base.sign(masked, step=LEAVE, body=abort)
    yield base.made("leave-names-an-outsider", about, place, leave, CONTENT)


def attests_another_set(base: Base) -> Negative:
    """Return the fault of a party that attests what the aggregator did not send."""
    return base.of_a_party(
        "attests-another-set",
        "Carol signs a digest that is not the participants'.",
        m.Attestation,
        m.ATTEST_PARTICIPANTS,
        lambda attestation: {"set_digest": flip(attestation.set_digest)},
    )


def masked_and_unmasked(base: Base) -> Iterator[Negative]:
    """Yield the faults of a masked vector, and of the shares that unmask it."""
    yield base.of_a_party(
        "masked-too-short",
        "The masked vector lacks its last byte.",
        m.Masked,
        m.MASKED,
        lambda masked: {"vector": masked.vector[:-1]},
    )
    yield base.of_a_party(
        "unmask-withholds-a-share",
        "Carol reveals nothing of alice.",
        m.Unmask,
        m.UNMASK,
        lambda unmask: {
            "dealers": unmask.dealers[2:],
            "shares": unmask.shares[32:],
            "others": unmask.others[32:],
            "signatures": unmask.signatures[64:],
        },
    )
