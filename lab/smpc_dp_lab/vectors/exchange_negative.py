"""Negative vectors of an exchange: one fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from smpc_dp.session.exchange import messages as m
from smpc_dp.wire.sets import pack_set
from smpc_dp_lab.vectors import fault
from smpc_dp_lab.vectors.exchange_runs import SCENARIOS, new_run
from smpc_dp_lab.vectors.fault import (
    CONTENT,
    DECODING,
    ENVELOPE,
    ORDER,
    VICTIM,
    Fields,
    Kinds,
    Negative,
    flip,
)
from smpc_dp_lab.vectors.runs import AGGREGATOR

# A point of small order on Curve25519: any secret agrees with it on zero.
SMALL_ORDER = bytes(32)
KINDS: Kinds = {m.HELLO: m.Hello, m.START: m.Start, m.SEND: m.Send, m.DELIVER: m.Deliver}

Shown = tuple[int, bytes, bytes]
Boxes = list[tuple[int, bytes]]


class Base(fault.Base):
    """Recorded run of an exchange of vectors, whose messages are changed for test vectors."""

    def __init__(self, name: str) -> None:
        super().__init__(name, SCENARIOS, new_run, KINDS)

    def by_bob(self, fields: Fields) -> Callable[[Sequence[Shown]], list[Shown]]:
        """Return the change of the hellos in a start if bob has signed another one."""
        written = self.with_message(self.find(m.HELLO, "bob")[1], fields)
        return lambda shown: [(2, written.body, written.signature), *shown[1:]]


def all_faults() -> Iterator[Negative]:
    """Yield all negative test vectors of exchanges: one changed message, and its error."""
    average = Base("average")
    yield from _envelopes(average)
    yield from _starts(average)
    yield from _delivers(average, Base("average-absent"), Base("edges"))
    yield from _to_the_aggregator(average)
    yield from _apart(Base("apart"))


def _envelopes(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the envelope of a delivery: signature, receiver, run."""
    about = "One bit of the signature is flipped."
    yield base.forged("signature-flipped", about, m.DELIVER, {"signature": flip}, ENVELOPE, signed=False)
    index, _ = base.find(m.DELIVER)
    other = msgspec.structs.replace(base.find(m.DELIVER, AGGREGATOR, "bob")[1], receiver=VICTIM)
    yield base.made("wrong-receiver", "A message for bob reaches alice.", index, other, ENVELOPE)
    about = "Vectors that are signed for another run."
    yield base.forged("other-run", about, m.DELIVER, {"run_id": flip}, ORDER)
    yield base.unexpected("step-skipped", "Vectors come where the start is due.", m.START, m.DELIVER)
    about = "A second, different start after the first."
    different: Fields = {"body": lambda body: flip(body, -1)}
    yield base.forged("two-messages-for-one-step", about, m.START, different, ORDER, later=1)
    longer: Fields = {"body": lambda body: body + b"\xc0"}
    yield base.forged("trailing-byte", "One byte follows the body.", m.START, longer, DECODING)
    index, start = base.find(m.START)
    about = "The start carries another run id than its nonces give."
    yield base.made("start-of-another-run", about, index, base.sign(start, run_id=flip(start.run_id)))


def _starts(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the aggregator's start message."""

    def start(
        name: str, about: str, field: str, to: object, layer: str = CONTENT, culprit: str = AGGREGATOR
    ) -> Negative:
        return base.fault(f"start-{name}", about, m.START, {field: to}, layer, culprit=culprit)

    def hello(name: str, about: str, **fields: object) -> Negative:
        """Return a start with a hello of bob that he has signed, but with another content."""
        return start(name, about, "hellos", base.by_bob(fields), culprit="bob")

    yield start("without-me", "The set of those present lacks alice.", "present", pack_set((2, 3, 4), 4))
    yield start("of-too-few", "Two are present where three are due.", "present", pack_set((1, 2), 4))
    yield start("without-my-nonce", "Alice's nonce is another.", "nonces", flip)
    yield start("with-a-nonce-too-few", "The last nonce is missing.", "nonces", lambda packed: packed[:-32])
    about = "The nonce of bob is not the one in his hello."
    yield start("with-another-nonce", about, "nonces", lambda packed: flip(packed, 32), culprit="bob")
    yield start("without-a-hello", "Bob's hello is left out.", "hellos", lambda shown: shown[1:])

    def swapped(shown: Sequence[Shown]) -> list[Shown]:
        return [(2, flip(shown[0][1], -1), shown[0][2]), *shown[1:]]

    def of_another(shown: Sequence[Shown]) -> list[Shown]:
        return [(2, *shown[1][1:]), *shown[1:]]

    about = "Bob's hello has another key than the one that he signed."
    yield start("with-a-swapped-key", about, "hellos", swapped, ENVELOPE, culprit="bob")
    about = "Carol's hello in the place of bob's."
    yield start("with-the-hello-of-another", about, "hellos", of_another, ENVELOPE, culprit="bob")
    yield hello("with-a-hello-to-another-request", "Bob's hello is to another request.", request=2)
    about = "Bob's hello has another variance."
    yield hello("with-a-hello-to-another-question", about, operation="average 1/1")
    yield hello("with-a-key-of-small-order", "Bob's key is of small order.", key=SMALL_ORDER)


def _delivers(base: Base, absent: Base, edges: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the aggregator's delivery of vectors."""

    def bobs(name: str, about: str, change: Callable[[Boxes], bytes]) -> Negative:
        """Return the vector of a delivery with another box instead of bob's."""
        to: Fields = {"boxes": lambda boxes: [(2, change(boxes)), *boxes[1:]]}
        return base.fault(name, about, m.DELIVER, to, culprit="bob")

    about = "One bit of bob's box is flipped."
    yield bobs("deliver-box-flipped", about, lambda boxes: flip(boxes[0][1], 30))
    yield base.fault(
        "deliver-boxes-exchanged",
        "The boxes of bob and carol have changed places.",
        m.DELIVER,
        {"boxes": lambda boxes: [(2, boxes[1][1]), (3, boxes[0][1]), *boxes[2:]]},
        culprit="bob",
    )
    own, for_carol = base.read(m.SEND, VICTIM).boxes[0][1], base.read(m.SEND, "bob").boxes[1][1]
    yield bobs("deliver-box-sent-back", "What alice sealed for bob comes back as his.", lambda _: own)
    yield bobs("deliver-box-for-another", "What bob sealed for carol reaches alice.", lambda _: for_carol)
    about = "Bob has sent, and his box is missing."
    yield base.fault("deliver-box-left-out", about, m.DELIVER, {"boxes": lambda boxes: boxes[1:]})
    about = "Only alice and bob are said to have sent."
    two: Fields = {"senders": pack_set((1, 2), 4), "boxes": lambda boxes: boxes[:1]}
    yield base.fault("deliver-below-the-minimum", about, m.DELIVER, two)
    about = "Alice is said not to have sent."
    yield base.fault("deliver-without-me", about, m.DELIVER, {"senders": pack_set((2, 3, 4), 4)})
    about = "Dave, who was not present, is said to have sent."
    all_four = {"senders": pack_set((1, 2, 3, 4), 4)}
    yield absent.fault("deliver-from-who-was-not-there", about, m.DELIVER, all_four)
    about = "A box of bob, who sends nothing to alice."
    more: Fields = {"boxes": lambda boxes: [(2, boxes[0][1]), *boxes]}
    yield edges.fault("deliver-along-no-edge", about, m.DELIVER, more)


def _apart(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in exchanges in which every receiver gets its own vector."""
    about = "Carol is said not to have sent, where no message may lack."
    two: Fields = {"senders": pack_set((1, 2), 3), "boxes": lambda boxes: boxes[:1]}
    yield base.fault("deliver-without-one-of-whom-all-are-needed", about, m.DELIVER, two)
    yield base.fault(
        "start-with-a-hello-to-vectors-that-are-alike",
        "Bob's hello is to an exchange where everybody gets the same vector.",
        m.START,
        {"hellos": base.by_bob({"operation": lambda requested: requested.removesuffix(" apart")})},
        culprit="bob",
    )


def _to_the_aggregator(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in messages of a party to the aggregator."""
    for name, about, fields in (
        ("of-another-session", "Carol's hello is to another session.", {"session_digest": bytes(32)}),
        ("of-another-request", "Carol's hello is to another request.", {"request": 2}),
        ("with-a-key-of-small-order", "Carol's key is of small order.", {"key": SMALL_ORDER}),
    ):
        yield base.fault(f"hello-{name}", about, m.HELLO, fields)
    different: Fields = {"body": lambda body: flip(body, -1)}
    yield base.forged("hello-twice", "Carol says hello with two keys.", m.HELLO, different, ORDER, later=1)

    def send(name: str, about: str, change: Callable[[Boxes], Boxes]) -> Negative:
        return base.fault(f"send-{name}", about, m.SEND, {"boxes": change})

    yield send("box-kept-back", "Carol sends nothing to alice.", lambda boxes: boxes[1:])
    yield send("box-twice", "Carol sends alice two boxes.", lambda boxes: [boxes[0], *boxes])
    about = "Carol has a box for herself."
    yield send("to-itself", about, lambda boxes: [*boxes[:2], (3, boxes[0][1]), *boxes[2:]])
