"""Negative vectors of messages that a party must refuse, one fault each, and the list of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.keys import run_identifier
from smpc_dp.errors import Code
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.fault import CONTENT, DECODING, ENVELOPE, ORDER, Base, Negative, altered, flip
from smpc_dp_lab.vectors.negative_aggregator import to_the_aggregator
from smpc_dp_lab.vectors.negative_merkle_commitments import advertisements_of, of_merkle_commitments
from smpc_dp_lab.vectors.runs import AGGREGATOR

Keys = list[m.Advertisement]


def all_faults() -> Iterator[Negative]:
    """Yield all negative test vectors of secure aggregation: one changed message, and its error."""
    complete, sparse, dropout = Base("complete"), Base("sparse"), Base("dropout-before-masked")
    yield from last_results(Base("second"))
    yield from _envelopes(complete)
    yield from _to_a_party(complete)
    yield from of_merkle_commitments(complete)
    yield from _sets(complete)
    yield from _certificates(complete, dropout)
    yield from _neighbours(complete, sparse)
    yield from to_the_aggregator(complete)


def last_results(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the last results that the aggregator's start names."""
    index, envelope = base.find(m.START)
    start, context = base.read(m.START), base.run.context

    def naming(name: str, about: str, named: bytes, *, bound: bool = True) -> Negative:
        changed = msgspec.structs.replace(start, named=named)
        run_id = run_identifier(context, context.operation, start.present, start.root, (start.nonce, named))
        signed = base.sign(
            envelope, body=msgspec.msgpack.encode(changed), run_id=run_id if bound else envelope.run_id
        )
        return base.made(f"start-last-results-{name}", about, index, signed)

    own, others = start.named, [bytes([number]) * 64 for number in range(5)]
    about = "The entry of alice's last run has another digest than that of the result which she holds."
    yield naming("other", about, flip(own, -1))
    yield naming("cut", "The last byte of the entry is missing.", own[:-1])
    yield naming("twice", "Two entries have the same key.", own + flip(own, -1))
    yield naming("descending", "Keys of entries descend.", others[2] + others[1])
    yield naming("too-many", "Five entries for four parties.", b"".join(others))
    about = "Another entry is named than the one that is part of the run id."
    yield naming("not-bound", about, others[0], bound=False)


def _envelopes(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in envelopes: signature, receiver, run, order and encoding."""

    def merkle_commitment(
        name: str, about: str, layer: str, *, later: int = 0, signed: bool = True, **fields: object
    ) -> Negative:
        return base.forged(name, about, m.MERKLE_COMMITMENT, fields, layer, later=later, signed=signed)

    def longer(body: bytes) -> bytes:
        return msgspec.msgpack.encode([*msgspec.msgpack.decode(body), 0])

    def respelt(body: bytes) -> bytes:
        # bin 16 where bin 8 would do: the same value, another encoding.
        first, *others = msgspec.msgpack.decode(body, type=list)
        rest = b"".join(map(msgspec.msgpack.encode, others))
        return bytes([0x91 + len(others)]) + b"\xc5" + len(first).to_bytes(2, "big") + bytes(first) + rest

    yield merkle_commitment(
        "signature-flipped", "One bit of the signature is flipped.", ENVELOPE, signed=False, signature=flip
    )
    index, _ = base.find(m.MERKLE_COMMITMENT)
    other = msgspec.structs.replace(base.find(m.MERKLE_COMMITMENT, AGGREGATOR, "bob")[1], receiver="alice")
    yield base.made("wrong-receiver", "A message for bob reaches alice.", index, other, ENVELOPE)
    yield merkle_commitment("other-run", "A roll that is signed for another run.", ORDER, run_id=flip)
    yield base.unexpected(
        "step-skipped", "Neighbours come where the roll is due.", m.MERKLE_COMMITMENT, m.NEIGHBOURS
    )
    about = "A second, different roll after the first."
    yield merkle_commitment(
        "two-messages-for-one-step", about, ORDER, later=1, body=lambda body: flip(body, -1)
    )
    yield merkle_commitment(
        "trailing-byte", "One byte follows the body.", DECODING, body=lambda body: body + b"\xc0"
    )
    yield merkle_commitment(
        "unknown-field", "The body has one field more than its kind.", DECODING, body=longer
    )
    yield merkle_commitment(
        "not-canonical", "A length takes more bytes than it needs.", DECODING, body=respelt
    )
    about = "The aggregator aborts and blames somebody who is not in the roster."
    abort = msgspec.msgpack.encode(Abort(Code.FAULT, "mallory"))
    yield merkle_commitment("abort-names-an-outsider", about, CONTENT, step=ABORT, body=abort)


def _to_a_party(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the aggregator's deliveries and totals."""
    yield base.fault(
        "shares-withheld",
        "The aggregator keeps back what bob sealed for alice.",
        m.DELIVER,
        {"dealers": lambda packed: packed[2:], "sealed": lambda sealed: sealed[1:]},
    )
    about = "The total lacks its last byte."
    yield base.fault("result-too-short", about, m.RESULT, {"total": lambda total: total[:-1]})
    yield base.fault(
        "result-impossible",
        "No vectors within the bounds have this total; who lied cannot be known.",
        m.RESULT,
        {"total": lambda total: b"\xff" * len(total)},
        error="VerificationError",
        culprit="",
    )


def _sets(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the sets of parties that the aggregator announces."""
    without_me, too_few, all_four = pack_set((2, 3, 4), 4), pack_set((1, 2), 4), pack_set((1, 2, 3, 4), 4)
    # Three of four as bits, with the last bit of the byte.
    padded = bytes([0, 0b1110_0001])
    about = "Two parties are present where three are needed."
    yield base.fault("start-below-the-minimum", about, m.START, {"present": too_few})
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
        yield base.fault(name, about, m.SURVIVORS, {"survivors": packed})
    about = "The participants lack alice, who dealt."
    yield base.fault("participants-without-me", about, m.DELIVER, {"participants": without_me})
    early = Base("dropout-before-deal")
    about = "Dave, who never dealt, is among the survivors."
    yield early.fault("survivor-who-was-no-participant", about, m.SURVIVORS, {"survivors": all_four})


def _certificates(base: Base, dropout: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in certificates of participants and survivors."""

    def signatures(run: Base, step: str) -> dict[str, bytes]:
        return {e.sender: e.signature for e in run.to(AGGREGATOR) if e.step == step}

    def fields(signers: Sequence[int], by: Mapping[str, bytes], *names: str) -> dict[str, object]:
        return {"signers": pack_set(signers, 4), "signatures": b"".join(by[name] for name in names)}

    participants = signatures(base, m.ATTEST_PARTICIPANTS)
    survivors = signatures(base, m.ATTEST_SURVIVORS)
    foreign = signatures(dropout, m.ATTEST_PARTICIPANTS)
    two, three = ("alice", "bob"), ("alice", "bob", "carol")
    for name, about, certificate in (
        ("below-the-quorum", "Two signatures where three are due.", fields((1, 2), participants, *two)),
        (
            "with-a-repeated-signature",
            "Alice's signature stands for bob's too.",
            fields((1, 2, 3), participants, "alice", "alice", "carol"),
        ),
        ("of-another-step", "The signatures attest the survivors.", fields((1, 2, 3), survivors, *three)),
        ("of-another-run", "The signatures are of another run.", fields((1, 2, 3), foreign, *three)),
        ("lacks-a-signature", "Three signers and two signatures.", fields((1, 2, 3), participants, *two)),
    ):
        yield base.fault(f"certificate-{name}", about, m.PARTICIPANTS, certificate)
    attested = signatures(dropout, m.ATTEST_SURVIVORS) | {"dave": foreign["dave"]}
    outsider = fields((1, 2, 4), attested, *two, "dave")
    about = "Dave signs the survivors without being one."
    yield dropout.fault("certificate-signed-by-an-outsider", about, m.SURVIVORS_CERTIFICATE, outsider)


def _neighbours(base: Base, sparse: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the neighbours' keys that the aggregator forwards."""

    def changed(name: str, about: str, how: Callable[[Keys], Keys]) -> Negative:
        return base.fault(name, about, m.NEIGHBOURS, {"advertisements": how})

    for field in ("key_commitment", "seal_key"):

        def swapped(given: Keys, field: str = field) -> Keys:
            forged = altered(decode(given[0].body, m.Advertise, ""), {field: flip})
            return [altered(given[0], {"body": msgspec.msgpack.encode(forged)}), *given[1:]]

        about = f"The aggregator puts another {field.replace('_', ' ')} in the place of bob's."
        yield changed(f"swapped-{field.replace('_', '-')}", about, swapped)
    about = "Bob's masking key is not the one that he committed to."
    yield base.fault("mask-key-swapped", about, m.NEIGHBOURS, {"mask_keys": flip})
    about = "Bob opens another masking key to alice than he committed to."
    other = base.with_message(base.find(m.REVEAL, "bob")[1], {"mask_key": flip})
    yield base.fault(
        "opening-of-another-mask-key",
        about,
        m.NEIGHBOURS,
        {"openings": lambda given: [m.Opening(2, other.body, other.signature), *given[1:]]},
        culprit="bob",
    )
    about = "Bob's masking key is missing."
    yield base.fault("mask-key-withheld", about, m.NEIGHBOURS, {"mask_keys": lambda packed: packed[32:]})
    about = "The advertisement of a neighbour is missing."
    yield changed("advertisement-withheld", about, lambda given: given[1:])

    def not_mine(message: m.Neighbours) -> Mapping[str, object]:
        """Add the opening of a party that did not draw alice."""
        mine = {opening.party for opening in message.openings}
        names = sparse.run.context.names
        stranger = next(p for p in range(2, len(names) + 1) if p not in mine)
        reveal = sparse.find(m.REVEAL, names[stranger - 1])[1]
        key = sparse.find(m.ADVERTISE, names[stranger - 1])[1]
        opening = m.Opening(stranger, reveal.body, reveal.signature)
        advertisement = m.Advertisement(stranger, key.body, key.signature)
        known = {item.party: 32 * index for index, item in enumerate(message.advertisements)}
        mask_keys = {party: message.mask_keys[at : at + 32] for party, at in known.items()}
        mask_keys[stranger] = decode(reveal.body, m.Reveal, "").mask_key
        return {
            "openings": sorted([*message.openings, opening], key=_party),
            "advertisements": sorted([*message.advertisements, advertisement], key=_party),
            "mask_keys": b"".join(mask_keys[party] for party in sorted(mask_keys)),
            "proof": advertisements_of(sparse).prove(sorted(mask_keys)),
        }

    about = "The opening of a party that did not draw alice is forwarded as if it had."
    yield sparse.fault("opening-of-somebody-else", about, m.NEIGHBOURS, not_mine)


def _party(item: m.Opening | m.Advertisement) -> int:
    return item.party
