"""Negative vectors: roots and proofs that a party must refuse."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from smpc_dp.crypto.labels import Label
from smpc_dp.protocols.envelope import decode, encode
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.rolls import Roll
from smpc_dp_lab.vectors.fault import Base, Negative, constant, flip
from smpc_dp_lab.vectors.runs import AGGREGATOR

ALICE, BOB, DAVE = 1, 2, 4
OTHERS = (2, 3, 4)


def of_rolls(base: Base) -> Iterator[Negative]:
    """Yield the faults of `start`, `roll` and of the proof in `neighbours`; of a complete run of four."""
    context = base.run.context
    hellos = {e.sender: decode(e.body, m.Hello, e.sender) for e in base.to(AGGREGATOR) if e.step == m.HELLO}
    keys = {
        e.sender: decode(e.body, m.Advertise, e.sender) for e in base.to(AGGREGATOR) if e.step == m.ADVERTISE
    }
    nonces = {number: hellos[name].nonce for number, name in enumerate(context.names, 1)}
    commitments = {number: keys[name].commitment for number, name in enumerate(context.names, 1)}
    for step, kind, purpose, given, what in (
        (m.START, m.Start, Label.NONCES, nonces, "nonce"),
        (m.ROLL, m.Roll, Label.COMMITMENTS, commitments, "commitment"),
    ):
        true = Roll(context, purpose, given)
        without = Roll(context, purpose, given | {ALICE: bytes(32)})
        fewer = Roll(context, purpose, {party: given[party] for party in given if party != DAVE})
        proof = true.prove((ALICE,))
        for name, about, root, shown in (
            (
                f"without-my-{what}",
                f"Another {what} stands in the place of alice's.",
                without.root,
                without.prove((ALICE,)),
            ),
            (
                "proof-of-another-place",
                "The proof is of bob's place.",
                true.root,
                true.prove((BOB,)),
            ),
            (
                "root-of-another-set",
                "The root is of a set without dave, in which the sender has him.",
                fewer.root,
                fewer.prove((ALICE,)),
            ),
            ("proof-flipped", "One bit of the proof is flipped.", true.root, flip(proof)),
            ("proof-too-long", "The proof has a node too many.", true.root, proof + bytes(32)),
            ("proof-cut", "The proof ends within a node.", true.root, proof[:-1]),
        ):
            change = constant(root=root, proof=shown)
            yield base.changed(f"{step}-{name}", about, kind, step, change)
    forged = Roll(context, Label.NONCES, nonces | {BOB: bytes(32)})
    yield base.changed(
        "start-of-another-run",
        "Under the root bob has another nonce: it does not give the run id that the start is signed for.",
        m.Start,
        m.START,
        constant(root=forged.root, proof=forged.prove((ALICE,))),
    )
    roll = Roll(context, Label.COMMITMENTS, commitments)
    for name, about, proof in (
        ("of-another-place", "The proof is of alice's own place.", roll.prove((ALICE,))),
        ("flipped", "One bit of the proof is flipped.", flip(roll.prove(OTHERS))),
        ("too-long", "The proof has a node too many.", roll.prove(OTHERS) + bytes(32)),
        ("missing", "There is no proof.", b""),
    ):
        change = constant(proof=proof)
        yield base.changed(f"neighbours-proof-{name}", about, m.Neighbours, m.NEIGHBOURS, change)
    yield base.changed(
        "advertisement-not-of-the-roll",
        "Bob has signed a second advertisement, whose commitment is not on the roll.",
        m.Neighbours,
        m.NEIGHBOURS,
        lambda message: {"advertisements": [_second(base), *message.advertisements[1:]]},
    )


def _second(base: Base) -> m.Advertisement:
    _, first = base.find(m.ADVERTISE, "bob", AGGREGATOR)
    body = encode(replace(decode(first.body, m.Advertise, "bob"), commitment=bytes(32)))
    return m.Advertisement(BOB, body, base.sign(first, body=body).signature)
