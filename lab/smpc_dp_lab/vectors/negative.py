"""Negative vectors: one fault each, named by the fault; what a party must refuse, and the list of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from smpc_dp.errors import Code
from smpc_dp.protocols.abort import ABORT, Abort
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp_lab.vectors.fault import (
    CONTENT,
    DECODING,
    ENVELOPE,
    ORDER,
    VICTIM,
    Base,
    Negative,
    constant,
    flip,
)
from smpc_dp_lab.vectors.negative_aggregator import to_the_aggregator
from smpc_dp_lab.vectors.negative_rolls import of_rolls
from smpc_dp_lab.vectors.runs import AGGREGATOR


def all_faults() -> Iterator[Negative]:
    """Yield every negative vector."""
    complete, sparse, dropout = Base("complete"), Base("sparse"), Base("dropout-before-masked")
    yield from _envelopes(complete)
    yield from _to_a_party(complete)
    yield from of_rolls(complete)
    yield from _sets(complete)
    yield from _certificates(complete, dropout)
    yield from _neighbours(complete, sparse)
    yield from to_the_aggregator(complete)


def _envelopes(base: Base) -> Iterator[Negative]:
    place, roll = base.find(m.ROLL, AGGREGATOR, VICTIM)
    flipped = msgspec.structs.replace(roll, signature=flip(roll.signature))
    yield base.made("signature-flipped", "One bit of the signature is flipped.", place, flipped, ENVELOPE)
    other = base.find(m.ROLL, AGGREGATOR, "bob")[1]
    yield base.made(
        "wrong-receiver",
        "A message for bob reaches alice.",
        place,
        msgspec.structs.replace(other, receiver="alice"),
        ENVELOPE,
    )
    run_id = flip(roll.run_id)
    about = "A roll that is signed for another run."
    yield base.made("other-run", about, place, base.sign(roll, run_id=run_id), ORDER)
    skipped = base.find(m.NEIGHBOURS, AGGREGATOR, VICTIM)[1]
    yield base.made("step-skipped", "Neighbours come where the roll is due.", place, skipped, ORDER)
    second = base.sign(roll, body=flip(roll.body, len(roll.body) - 1))
    about = "A second, different roll after the first."
    yield base.made("two-messages-for-one-step", about, place + 1, second, ORDER)
    about = "One byte follows the body."
    yield base.made("trailing-byte", about, place, base.sign(roll, body=roll.body + b"\xc0"), DECODING)
    fields = msgspec.msgpack.decode(roll.body)
    extra = msgspec.msgpack.encode([*fields, 0])
    about = "The body has one field more than its kind."
    yield base.made("unknown-field", about, place, base.sign(roll, body=extra), DECODING)
    # bin 16 where bin 8 would do: the same value, another encoding.
    rest = b"".join(msgspec.msgpack.encode(value) for value in fields[1:])
    long = bytes([0x90 + len(fields)]) + b"\xc5" + len(fields[0]).to_bytes(2, "big") + fields[0] + rest
    about = "A length takes more bytes than it needs."
    yield base.made("not-canonical", about, place, base.sign(roll, body=long), DECODING)
    abort = msgspec.msgpack.encode(Abort(Code.FAULT, "mallory"))
    about = "The aggregator aborts and blames somebody who is not in the roster."
    sent = base.sign(roll, step=ABORT, body=abort)
    yield base.made("abort-names-an-outsider", about, place, sent, CONTENT)


def _to_a_party(base: Base) -> Iterator[Negative]:
    yield base.changed(
        "shares-withheld",
        "The aggregator keeps back what bob sealed for alice.",
        m.Deliver,
        m.DELIVER,
        lambda deliver: {"dealers": deliver.dealers[2:], "sealed": deliver.sealed[1:]},
    )
    yield base.changed(
        "result-too-short",
        "The total lacks its last byte.",
        m.Result,
        m.RESULT,
        lambda result: {"total": result.total[:-1]},
    )
    yield base.changed(
        "result-impossible",
        "No vectors within the bounds have this total; who lied cannot be known.",
        m.Result,
        m.RESULT,
        lambda result: {"total": b"\xff" * len(result.total)},
        error="VerificationError",
        culprit="",
    )


def _sets(base: Base) -> Iterator[Negative]:
    without_me, too_few, all_four = pack_set((2, 3, 4), 4), pack_set((1, 2), 4), pack_set((1, 2, 3, 4), 4)
    # Three of four as bits, with the last bit of the byte.
    padded = bytes([0, 0b1110_0001])
    yield base.changed(
        "start-below-the-minimum",
        "Two parties are present where three are needed.",
        m.Start,
        m.START,
        constant(present=too_few),
    )
    for name, about, packed in (
        ("survivors-without-me", "The survivors lack alice, who sent her vector.", without_me),
        ("survivors-below-the-minimum", "Two survive where three are needed.", too_few),
        ("set-with-padding", "A padding bit of the set is one.", padded),
        ("set-too-long", "The set has a byte too many.", without_me + b"\0"),
        ("set-of-the-longer-form", "All four are members, in bits: nobody left out is shorter.", b"\0\xf0"),
        ("set-lacks-too-many", "Dave is left out by name: bits are shorter.", b"\1\4\0"),
        ("set-of-no-form", "The first byte of a set is neither form's.", b"\2" + all_four[1:]),
        ("set-empty", "There is no set.", b""),
    ):
        yield base.changed(name, about, m.Survivors, m.SURVIVORS, constant(survivors=packed))
    yield base.changed(
        "participants-without-me",
        "The participants lack alice, who dealt.",
        m.Deliver,
        m.DELIVER,
        lambda _: {"participants": without_me},
    )
    early = Base("dropout-before-deal")
    yield early.changed(
        "survivor-who-was-no-participant",
        "Dave, who never dealt, is among the survivors.",
        m.Survivors,
        m.SURVIVORS,
        lambda _: {"survivors": all_four},
    )


def _certificates(base: Base, dropout: Base) -> Iterator[Negative]:
    def signatures(run: Base, step: str) -> dict[str, bytes]:
        return {e.sender: e.signature for e in run.to(AGGREGATOR) if e.step == step}

    participants = signatures(base, m.ATTEST_PARTICIPANTS)
    survivors = signatures(base, m.ATTEST_SURVIVORS)
    two = m.Certificate(pack_set((1, 2), 4), participants["alice"] + participants["bob"])
    twice = m.Certificate(pack_set((1, 2, 3), 4), participants["alice"] * 2 + participants["carol"])
    other = m.Certificate(pack_set((1, 2, 3), 4), b"".join(survivors[n] for n in ("alice", "bob", "carol")))
    short = m.Certificate(pack_set((1, 2, 3), 4), participants["alice"] + participants["bob"])
    foreign = signatures(dropout, m.ATTEST_PARTICIPANTS)
    of_other_run = m.Certificate(
        pack_set((1, 2, 3), 4), b"".join(foreign[n] for n in ("alice", "bob", "carol"))
    )
    for name, about, certificate in (
        ("certificate-below-the-quorum", "Two signatures where three are due.", two),
        ("certificate-with-a-repeated-signature", "Alice's signature stands for bob's too.", twice),
        ("certificate-of-another-step", "The signatures attest the survivors.", other),
        ("certificate-of-another-run", "The signatures are of another run.", of_other_run),
        ("certificate-lacks-a-signature", "Three signers and two signatures.", short),
    ):
        yield base.changed(
            name,
            about,
            m.Certificate,
            m.PARTICIPANTS,
            constant(signers=certificate.signers, signatures=certificate.signatures),
        )
    attested = signatures(dropout, m.ATTEST_SURVIVORS)
    outsider = m.Certificate(pack_set((1, 2, 4), 4), attested["alice"] + attested["bob"] + foreign["dave"])
    yield dropout.changed(
        "certificate-signed-by-an-outsider",
        "Dave signs the survivors without being one.",
        m.Certificate,
        m.SURVIVORS_CERTIFICATE,
        constant(signers=outsider.signers, signatures=outsider.signatures),
    )


def _neighbours(base: Base, sparse: Base) -> Iterator[Negative]:
    def swapped(field: str) -> Callable[[m.Neighbours], Mapping[str, object]]:
        def change(message: m.Neighbours) -> Mapping[str, object]:
            first = message.advertisements[0]
            advertise = decode(first.body, m.Advertise, "")
            forged = msgspec.structs.replace(advertise, **{field: flip(getattr(advertise, field))})
            replaced = msgspec.structs.replace(first, body=msgspec.msgpack.encode(forged))
            return {"advertisements": [replaced, *message.advertisements[1:]]}

        return change

    for field in ("mask_key", "seal_key"):
        yield base.changed(
            f"swapped-{field.replace('_', '-')}",
            "The aggregator puts another key in the place of bob's.",
            m.Neighbours,
            m.NEIGHBOURS,
            swapped(field),
        )
    yield base.changed(
        "advertisement-withheld",
        "The keys of a neighbour are missing.",
        m.Neighbours,
        m.NEIGHBOURS,
        lambda message: {"advertisements": message.advertisements[1:]},
    )

    def not_mine(message: m.Neighbours) -> Mapping[str, object]:
        """Put the opening of somebody who did not draw alice beside the others."""
        mine = {opening.party for opening in message.openings}
        names = sparse.run.context.names
        stranger = next(p for p in range(2, len(names) + 1) if p not in mine)
        reveal = sparse.find(m.REVEAL, names[stranger - 1], AGGREGATOR)[1]
        key = sparse.find(m.ADVERTISE, names[stranger - 1], AGGREGATOR)[1]
        openings = {o.party: o for o in message.openings}
        openings[stranger] = m.Opening(stranger, reveal.body, reveal.signature)
        advertisements = {a.party: a for a in message.advertisements}
        advertisements[stranger] = m.Advertisement(stranger, key.body, key.signature)
        return {
            "openings": [openings[party] for party in sorted(openings)],
            "advertisements": [advertisements[party] for party in sorted(advertisements)],
        }

    yield sparse.changed(
        "opening-of-somebody-else",
        "The opening of a party that did not draw alice is forwarded as if it had.",
        m.Neighbours,
        m.NEIGHBOURS,
        not_mine,
    )
