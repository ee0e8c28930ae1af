"""Negative vectors of an exchange: one fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.exchange import messages as m
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp_lab.vectors.exchange_runs import SCENARIOS, Run, cast
from smpc_dp_lab.vectors.fault import (
    CONTENT,
    CULPRIT,
    DECODING,
    ENVELOPE,
    ORDER,
    VICTIM,
    Negative,
    Played,
    constant,
    flip,
)
from smpc_dp_lab.vectors.runs import AGGREGATOR

# A point of small order on Curve25519: any secret agrees with it on zero.
SMALL_ORDER = bytes(32)


class Base(Played[Run]):
    """A finished exchange."""

    def __init__(self, name: str) -> None:
        [scenario] = [scenario for scenario in SCENARIOS if scenario.name == name]
        super().__init__(name, cast(scenario).play())


def all_faults() -> Iterator[Negative]:
    """Yield every negative vector."""
    average = Base("average")
    yield from _envelopes(average)
    yield from _starts(average)
    yield from _delivers(average, Base("average-absent"), Base("edges"))
    yield from _to_the_hub(average)
    yield from _apart(Base("apart"))


def _envelopes(base: Base) -> Iterator[Negative]:
    place, deliver = base.find(m.DELIVER, AGGREGATOR, VICTIM)
    flipped = msgspec.structs.replace(deliver, signature=flip(deliver.signature))
    yield base.made("signature-flipped", "One bit of the signature is flipped.", place, flipped, ENVELOPE)
    other = msgspec.structs.replace(base.find(m.DELIVER, AGGREGATOR, "bob")[1], receiver=VICTIM)
    yield base.made("wrong-receiver", "A message for bob reaches alice.", place, other, ENVELOPE)
    signed = base.sign(deliver, run_id=flip(deliver.run_id))
    yield base.made("other-run", "Vectors that are signed for another run.", place, signed, ORDER)
    first, start = base.find(m.START, AGGREGATOR, VICTIM)
    yield base.made("step-skipped", "Vectors come where the start is due.", first, deliver, ORDER)
    second = base.sign(start, body=flip(start.body, len(start.body) - 1))
    about = "A second, different start after the first."
    yield base.made("two-messages-for-one-step", about, first + 1, second, ORDER)
    longer = base.sign(start, body=start.body + b"\xc0")
    yield base.made("trailing-byte", "One byte follows the body.", first, longer, DECODING)
    elsewhere = base.sign(start, run_id=flip(start.run_id))
    about = "The start carries another run id than its nonces give."
    yield base.made("start-of-another-run", about, first, elsewhere, CONTENT)


def _starts(base: Base) -> Iterator[Negative]:
    def start(
        name: str,
        about: str,
        how: Callable[[m.Start], Mapping[str, object]],
        layer: str = CONTENT,
        **more: str,
    ) -> Negative:
        return base.changed(f"start-{name}", about, m.Start, m.START, how, layer=layer, **more)

    def hello(name: str, about: str, **changes: object) -> Negative:
        """Return a start with a hello of bob that he has signed, but with another content."""
        said = base.find(m.HELLO, "bob", AGGREGATOR)[1]
        body = msgspec.structs.replace(decode(said.body, m.Hello, "bob"), **changes)
        written = base.sign(said, body=msgspec.msgpack.encode(body))
        shown = (2, written.body, written.signature)
        return start(name, about, lambda body: {"hellos": [shown, *body.hellos[1:]]}, culprit="bob")

    yield start(
        "without-me", "The set of those present lacks alice.", constant(present=pack_set((2, 3, 4), 4))
    )
    yield start("of-too-few", "Two are present where three are due.", constant(present=pack_set((1, 2), 4)))
    yield start("without-my-nonce", "Alice's nonce is another.", lambda body: {"nonces": flip(body.nonces)})
    yield start(
        "with-a-nonce-too-few", "The last nonce is missing.", lambda body: {"nonces": body.nonces[:-32]}
    )
    yield start(
        "with-another-nonce",
        "The nonce of bob is not the one in his hello.",
        lambda body: {"nonces": flip(body.nonces, 32)},
        culprit="bob",
    )
    yield start("without-a-hello", "Bob's hello is left out.", lambda body: {"hellos": body.hellos[1:]})
    yield start(
        "with-a-swapped-key",
        "Bob's hello has another key than the one that he signed.",
        lambda body: {
            "hellos": [
                (2, flip(body.hellos[0][1], -1 + len(body.hellos[0][1])), body.hellos[0][2]),
                *body.hellos[1:],
            ]
        },
        layer=ENVELOPE,
        culprit="bob",
    )
    yield start(
        "with-the-hello-of-another",
        "Carol's hello in the place of bob's.",
        lambda body: {"hellos": [(2, *body.hellos[1][1:]), *body.hellos[1:]]},
        layer=ENVELOPE,
        culprit="bob",
    )
    yield hello("with-a-hello-to-another-request", "Bob's hello is to another request.", request=2)
    yield hello(
        "with-a-hello-to-another-question", "Bob's hello has another variance.", question="average 1/1"
    )
    yield hello("with-a-key-of-small-order", "Bob's key is of small order.", key=SMALL_ORDER)


def _delivers(base: Base, absent: Base, edges: Base) -> Iterator[Negative]:
    def deliver(
        name: str, about: str, how: Callable[[m.Deliver], Mapping[str, object]], **more: str
    ) -> Negative:
        return base.changed(f"deliver-{name}", about, m.Deliver, m.DELIVER, how, **more)

    yield deliver(
        "box-flipped",
        "One bit of bob's box is flipped.",
        lambda body: {"boxes": [(2, flip(body.boxes[0][1], 30)), *body.boxes[1:]]},
        culprit="bob",
    )
    yield deliver(
        "boxes-exchanged",
        "The boxes of bob and carol have changed places.",
        lambda body: {"boxes": [(2, body.boxes[1][1]), (3, body.boxes[0][1]), *body.boxes[2:]]},
        culprit="bob",
    )
    own = decode(base.find(m.SEND, VICTIM, AGGREGATOR)[1].body, m.Send, VICTIM).boxes[0][1]
    yield deliver(
        "box-sent-back",
        "What alice sealed for bob comes back as his.",
        lambda body: {"boxes": [(2, own), *body.boxes[1:]]},
        culprit="bob",
    )
    for_carol = decode(base.find(m.SEND, "bob", AGGREGATOR)[1].body, m.Send, "bob").boxes[1][1]
    yield deliver(
        "box-for-another",
        "What bob sealed for carol reaches alice.",
        lambda body: {"boxes": [(2, for_carol), *body.boxes[1:]]},
        culprit="bob",
    )
    yield deliver(
        "box-left-out", "Bob has sent, and his box is missing.", lambda body: {"boxes": body.boxes[1:]}
    )
    yield deliver(
        "below-the-minimum",
        "Only alice and bob are said to have sent.",
        lambda body: {"senders": pack_set((1, 2), 4), "boxes": body.boxes[:1]},
    )
    yield deliver("without-me", "Alice is said not to have sent.", constant(senders=pack_set((2, 3, 4), 4)))
    yield absent.changed(
        "deliver-from-who-was-not-there",
        "Dave, who was not present, is said to have sent.",
        m.Deliver,
        m.DELIVER,
        constant(senders=pack_set((1, 2, 3, 4), 4)),
    )
    yield edges.changed(
        "deliver-along-no-edge",
        "A box of bob, who sends nothing to alice.",
        m.Deliver,
        m.DELIVER,
        lambda body: {"boxes": [(2, body.boxes[0][1]), *body.boxes]},
    )


def _apart(base: Base) -> Iterator[Negative]:
    yield base.changed(
        "deliver-without-one-of-whom-all-are-needed",
        "Carol is said not to have sent, where no message may lack.",
        m.Deliver,
        m.DELIVER,
        lambda body: {"senders": pack_set((1, 2), 3), "boxes": body.boxes[:1]},
    )
    said = base.find(m.HELLO, "bob", AGGREGATOR)[1]
    hello = decode(said.body, m.Hello, "bob")
    alike = msgspec.structs.replace(hello, question=hello.question.removesuffix(" apart"))
    written = base.sign(said, body=msgspec.msgpack.encode(alike))
    yield base.changed(
        "start-with-a-hello-to-vectors-that-are-alike",
        "Bob's hello is to an exchange where everybody gets the same vector.",
        m.Start,
        m.START,
        lambda body: {"hellos": [(2, written.body, written.signature), *body.hellos[1:]]},
        culprit="bob",
    )


def _to_the_hub(base: Base) -> Iterator[Negative]:
    def sent(step: str, receiver: str = AGGREGATOR) -> tuple[int, Envelope]:
        return base.find(step, CULPRIT, receiver)

    def hello(name: str, about: str, **changes: object) -> Negative:
        return base.of_a_party(f"hello-{name}", about, m.Hello, m.HELLO, constant(**changes))

    def send(name: str, about: str, how: Callable[[m.Send], Mapping[str, object]]) -> Negative:
        return base.of_a_party(f"send-{name}", about, m.Send, m.SEND, how)

    yield hello("of-another-session", "Carol's hello is to another session.", session_digest=bytes(32))
    yield hello("of-another-request", "Carol's hello is to another request.", request=2)
    yield hello("with-a-key-of-small-order", "Carol's key is of small order.", key=SMALL_ORDER)
    place, first = sent(m.HELLO)
    twice = base.sign(first, body=flip(first.body, len(first.body) - 1))
    yield base.made("hello-twice", "Carol says hello with two keys.", place + 1, twice, ORDER)
    yield send("box-kept-back", "Carol sends nothing to alice.", lambda body: {"boxes": body.boxes[1:]})
    yield send(
        "box-twice", "Carol sends alice two boxes.", lambda body: {"boxes": [body.boxes[0], *body.boxes]}
    )
    yield send(
        "to-itself",
        "Carol has a box for herself.",
        lambda body: {"boxes": [*body.boxes[:2], (3, body.boxes[0][1]), *body.boxes[2:]]},
    )
