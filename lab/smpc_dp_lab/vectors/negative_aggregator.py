"""Negative vectors: what the aggregator must refuse of a party."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from smpc_dp.errors import Code
from smpc_dp.protocols.abort import LEAVE, Abort
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import pack_list
from smpc_dp_lab.vectors.fault import (
    CONTENT,
    CULPRIT,
    ENVELOPE,
    ORDER,
    Base,
    Negative,
    changed,
    constant,
    flip,
    made,
)
from smpc_dp_lab.vectors.runs import AGGREGATOR

B = TypeVar("B", bound=msgspec.Struct)


def to_the_aggregator(base: Base) -> Iterator[Negative]:
    """Yield the faults of a party, in the order of the steps."""

    def change(
        name: str, about: str, kind: type[B], step: str, how: Callable[[B], Mapping[str, object]]
    ) -> Negative:
        return changed(base, name, about, kind, step, how, sender=CULPRIT, receiver=AGGREGATOR)

    yield change(
        "hello-of-another-session",
        "Carol's session file differs.",
        m.Hello,
        m.HELLO,
        lambda hello: {"session_digest": flip(hello.session_digest)},
    )
    yield change(
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
    yield made(base, "hello-twice", about, place + 1, second, ORDER)
    for field in ("seal_key", "mask_key"):
        yield change(
            f"small-order-{field.replace('_', '-')}",
            "The key is the point of order one.",
            m.Advertise,
            m.ADVERTISE,
            constant(**{field: bytes(32)}),
        )
    yield change(
        "reveal-not-committed",
        "Carol reveals with another blinder than she committed to.",
        m.Reveal,
        m.REVEAL,
        lambda reveal: {"blinder": flip(reveal.blinder)},
    )
    yield change(
        "deal-lacks-a-share",
        "Carol deals one share too few.",
        m.Deal,
        m.DEAL,
        lambda deal: {"sealed": deal.sealed[1:]},
    )
    yield change(
        "sealed-share-too-short",
        "A sealed share lacks its last byte.",
        m.Deal,
        m.DEAL,
        lambda deal: {"sealed": [deal.sealed[0][:-1], *deal.sealed[1:]]},
    )
    yield change(
        "attests-another-set",
        "Carol signs a digest that is not the participants'.",
        m.Attestation,
        m.ATTEST_PARTICIPANTS,
        lambda attestation: {"set_digest": flip(attestation.set_digest)},
    )
    yield change(
        "masked-too-short",
        "The masked vector lacks its last byte.",
        m.Masked,
        m.MASKED,
        lambda masked: {"vector": masked.vector[:-1]},
    )
    yield change(
        "complaint-about-nobody",
        "Carol complains about herself, who dealt her nothing.",
        m.Masked,
        m.MASKED,
        lambda _: {"bad_dealers": pack_list((3,))},
    )
    yield change(
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
    yield change(
        "unmask-lists-differ-in-length",
        "One share is missing from the shares alone.",
        m.Unmask,
        m.UNMASK,
        lambda unmask: {"shares": unmask.shares[32:]},
    )
    place, masked = base.find(m.MASKED, CULPRIT, AGGREGATOR)
    flipped = msgspec.structs.replace(masked, body=flip(masked.body, 5))
    about = "A bit of the masked vector is flipped on the way."
    yield made(base, "masked-flipped", about, place, flipped, ENVELOPE)
    abort = msgspec.msgpack.encode(Abort(Code.FAULT, "mallory"))
    about = "Carol leaves and blames somebody who is not in the roster."
    leave = base.sign(masked, step=LEAVE, body=abort)
    yield made(base, "leave-names-an-outsider", about, place, leave, CONTENT)
