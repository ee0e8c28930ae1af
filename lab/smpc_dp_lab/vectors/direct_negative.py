"""Negative vectors of GOPA without an aggregator: one fault each, by a party or by the coordinator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.wire.envelope import EVERYONE, Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import encode
from smpc_dp_lab.vectors.direct_runs import COORDINATOR, SCENARIOS, new_run
from smpc_dp_lab.vectors.fault import (
    CONTENT,
    CULPRIT,
    ENVELOPE,
    ORDER,
    Base,
    Kinds,
    altered,
    envelope_json,
    flip,
)
from smpc_dp_lab.vectors.runs import header

RECEIVER = "bob"
ACCOMPLICE = "dave"
PARTIES = 5
CULPRIT_NUMBER = 3

_KINDS: Kinds = {
    d.START: d.Start,
    m.ADVERTISE: d.Advertise,
    d.MERKLE_COMMITMENT: d.MerkleCommitment,
    m.REVEAL: d.Reveal,
    d.PARTICIPANTS: d.Participants,
    m.ATTEST_PARTICIPANTS: m.Attestation,
    g.PUBLISH: g.Published,
    d.FORWARD: d.Forward,
    d.PUBLISHED: d.Published,
    d.ATTEST_TOTAL: m.Attestation,
}


@dataclass(frozen=True, slots=True)
class DirectNegative:
    """Test vector of a fault: after `after` messages of a run, `receiver` gets `envelopes` instead.

    `deadline`: then nothing comes until the deadline of what it waits for passes. If the receiver `ends`, it
    must raise `error` and name the culprits at the last of it. Else it gets the base run's messages from
    `after` on, ends with the base run's result, and names the culprit among its faults.
    """

    name: str
    about: str
    base: str
    receiver: str
    after: int
    envelopes: tuple[Envelope, ...]
    layer: str
    culprits: tuple[str, ...]
    error: str = "PeerFault"
    ends: bool = True
    deadline: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the test vector as JSON data: base run, changed envelopes and expected error."""
        return {
            **header("direct-negative", self.name, self.about),
            "base": f"direct-run-{self.base}.json",
            "receiver": self.receiver,
            "after": self.after,
            "envelopes": [envelope_json(envelope) for envelope in self.envelopes],
            "deadline": self.deadline,
            "expect": {
                "layer": self.layer,
                "error": self.error,
                "culprits": list(self.culprits),
                "ends": self.ends,
            },
        }


class _Base(Base):
    """A finished run, and changes of the messages that one party receives."""

    def __init__(self, name: str, receiver: str = RECEIVER) -> None:
        super().__init__(name, SCENARIOS, new_run, _KINDS)
        self.receiver = receiver

    def _for(self, envelope: Envelope) -> str:
        return envelope.receiver if envelope.step in d.TO_ONE else EVERYONE

    def find(self, step: str, sender: str = "", receiver: str = "") -> tuple[int, Envelope]:
        return super().find(step, sender or COORDINATOR, receiver or self.receiver)

    def change(self, step: str, sender: str = "", **fields: object) -> Envelope:
        """Return a message of the run with other content, signed by its sender."""
        return self.with_message(self.find(step, sender)[1], fields)

    def first_participants(self, number: int) -> Envelope:
        """Return the coordinator's proposal, changed to the first `number` parties alone."""
        return self.change(
            d.PARTICIPANTS,
            participants=pack_set(range(1, number + 1), PARTIES),
            reveals=lambda bodies: bodies[:number],
            signatures=lambda packed: packed[: 64 * number],
        )

    def swapped(self, name: str, about: str, *changed: Envelope, **more: Any) -> DirectNegative:
        """Return the test vector in which changed messages replace those of the run.

        Those between them stay, to the last one or the end of its step.
        """
        indices = [self.find(envelope.step, envelope.sender)[0] for envelope in changed]
        came = self.to(self.receiver)
        for index, envelope in zip(indices, changed, strict=True):
            came[index] = envelope
        last = max(indices)
        if more.get("deadline"):
            last = max(index for index, envelope in enumerate(came) if envelope.step == came[last].step)
        first, settings = min(indices), {"layer": CONTENT, "culprits": (COORDINATOR,)} | more
        shown = tuple(came[first : last + 1])
        return DirectNegative(name, about, self.name, self.receiver, first, shown, **settings)

    def added(self, name: str, about: str, behind: str, extra: Envelope, **more: Any) -> DirectNegative:
        """Return the vector of a message added after step `behind`: a proposal, or the sender's own."""
        sender = COORDINATOR if behind in d.PROPOSALS else extra.sender
        after = self.find(behind, sender)[0] + 1
        return DirectNegative(name, about, self.name, self.receiver, after, (extra,), **more)


def all_faults() -> Iterator[DirectNegative]:
    """Yield all negative test vectors of runs without an aggregator."""
    base = _Base("all")
    yield from _up_to_the_certificate(base)
    yield from _certificates(base)
    yield from _witnesses(base)
    yield from _publications(base)
    yield from _totals(base)


def _without(number: int, size: int) -> Callable[[bytes], bytes]:
    """Return a change that removes one party's value from packed values."""
    return lambda packed: packed[: size * (number - 1)] + packed[size * number :]


def _with(number: int, value: bytes) -> Callable[[bytes], bytes]:
    """Return a change that replaces one party's value among packed values."""
    size = len(value)
    return lambda packed: packed[: size * (number - 1)] + value + packed[size * number :]


def _at(number: int, to: object) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a change that replaces one party's item in a list by a value, or by a function of it."""

    def change(items: Sequence[Any]) -> list[Any]:
        item = to(items[number - 1]) if callable(to) else to
        return [*items[: number - 1], item, *items[number:]]

    return change


def _up_to_the_certificate(base: _Base) -> Iterator[DirectNegative]:
    """Yield test vectors with faults in the steps before the participants are certified."""
    about = "Bob's nonce in the start is not the one that he sent: an old start shown again."
    changed = base.change(d.START, nonces=lambda packed: flip(packed, 32))
    yield base.swapped("start-without-my-nonce", about, changed)
    start, merkle_commitment = base.find(d.START)[1], base.find(d.MERKLE_COMMITMENT)[1]
    elsewhere = flip(start.run_id)
    about = "The start is signed under a run id that its nonces do not give."
    yield base.swapped("start-of-another-run", about, base.sign(start, run_id=elsewhere))
    about = "Alice signs the roll for another run."
    yield base.swapped(
        "roll-of-another-run", about, base.sign(merkle_commitment, run_id=elsewhere), layer=ORDER
    )
    about = "Alice puts another advertisement of dave onto the roll, which dave did not sign."
    changed = base.change(d.MERKLE_COMMITMENT, advertisements=_at(4, lambda body: flip(body, 10)))
    yield base.swapped("roll-with-a-forged-advertisement", about, changed)
    without_me = base.change(
        d.PARTICIPANTS,
        participants=pack_set((1, 3, 4, 5), PARTIES),
        reveals=lambda bodies: [*bodies[:1], *bodies[2:]],
        signatures=_without(2, 64),
    )
    yield base.swapped("participants-without-me", "The set of participants lacks bob.", without_me)
    too_few = base.first_participants(3)
    yield base.swapped("participants-too-few", "Three users where four are due.", too_few)
    about = "Carol opens another commitment than hers, and alice lets her take part."
    wrong = base.change(m.REVEAL, CULPRIT, blinder=bytes(32))
    listed = _revealing(base, CULPRIT_NUMBER, wrong)
    yield base.swapped("participants-with-a-false-opening", about, wrong, listed)
    about = "Carol reveals another masking key than she committed to, and alice lets her take part."
    wrong = base.change(m.REVEAL, CULPRIT, mask_key=flip)
    listed = _revealing(base, CULPRIT_NUMBER, wrong)
    yield base.swapped("participants-with-another-masking-key", about, wrong, listed)
    about = "Carol commits to a point of small order and reveals it, and alice lets her take part."
    context, run_id = base.run.context, base.find(m.ADVERTISE, CULPRIT)[1].run_id
    commitment = keys.key_commitment(context, run_id, CULPRIT, bytes(32))
    advertise = base.change(m.ADVERTISE, CULPRIT, key_commitment=commitment)
    merkle_commitment = base.change(
        d.MERKLE_COMMITMENT,
        advertisements=_at(CULPRIT_NUMBER, advertise.body),
        signatures=_with(CULPRIT_NUMBER, advertise.signature),
    )
    weak = base.change(m.REVEAL, CULPRIT, mask_key=bytes(32))
    listed = _revealing(base, CULPRIT_NUMBER, weak)
    yield base.swapped(
        "participants-with-a-small-order-key", about, advertise, merkle_commitment, weak, listed
    )
    about = "Dave's reveal proves that carol advertised twice, and alice lets her take part."
    first, second = (
        base.find(m.ADVERTISE, CULPRIT)[1],
        base.change(m.ADVERTISE, CULPRIT, key_commitment=bytes(32)),
    )
    shown = base.change(m.REVEAL, ACCOMPLICE, proofs=[_proof(first, second)])
    listed = _revealing(base, 4, shown)
    yield base.swapped("participants-with-one-who-advertised-twice", about, shown, listed)


def _revealing(base: _Base, number: int, reveal: Envelope) -> Envelope:
    """Return the proposal of participants in which one party's reveal is replaced."""
    bodies, signatures = _at(number, reveal.body), _with(number, reveal.signature)
    return base.change(d.PARTICIPANTS, reveals=bodies, signatures=signatures)


def _proof(first: Envelope, second: Envelope) -> d.Proof:
    hashes = [hashlib.sha256(envelope.body).digest() for envelope in (first, second)]
    return d.Proof(CULPRIT_NUMBER, hashes[0], first.signature, hashes[1], second.signature)


def _certificates(base: _Base) -> Iterator[DirectNegative]:
    """Yield test vectors with faults in certificates, and in the signatures for them."""
    about = "Carol's signature of the set is not one: it counts for nothing."
    attested = altered(base.find(m.ATTEST_PARTICIPANTS, CULPRIT)[1], {"signature": flip})
    settings = {"layer": ENVELOPE, "culprits": (CULPRIT,), "ends": False}
    yield base.swapped("attestation-with-a-bad-signature", about, attested, **settings)
    yield base.swapped(
        "certificate-below-the-quorum",
        "Carol and dave sign another set: three signatures where four are due, and bob does not publish.",
        *(base.change(m.ATTEST_PARTICIPANTS, name, set_digest=flip) for name in (CULPRIT, ACCOMPLICE)),
        culprits=(CULPRIT, ACCOMPLICE),
        error="TimeoutFault",
        deadline=True,
    )


def _witnesses(base: _Base) -> Iterator[DirectNegative]:
    """Yield test vectors with faults in messages in which one party shows another's signature."""
    other = base.first_participants(4)

    def shown(signature: bytes) -> Envelope:
        body_hash = hashlib.sha256(other.body).digest()
        witness = d.Witness(d.PARTICIPANTS, other.run_id, body_hash, signature, b"")
        return base.sign(Envelope(other.run_id, d.WITNESS, CULPRIT, RECEIVER, encode(witness), b""))

    alices = {"layer": ORDER, "culprits": (COORDINATOR,)}
    carols = {"layer": CONTENT, "culprits": (CULPRIT,), "ends": False}
    about = "Alice proposes another set of participants too."
    yield base.added("participants-twice", about, d.PARTICIPANTS, other, **alices)
    about = "Carol shows that alice proposed another set of participants to her."
    proof = shown(other.signature)
    yield base.added("participants-shown-by-a-witness", about, d.PARTICIPANTS, proof, **alices)
    about = "Carol shows a proposal that alice did not sign: it is carol's fault."
    proof = shown(flip(other.signature))
    yield base.added("witness-of-a-forged-proposal", about, d.PARTICIPANTS, proof, **carols)


def _publications(base: _Base) -> Iterator[DirectNegative]:
    """Yield test vectors with faults in published vectors."""
    first = base.find(g.PUBLISH, CULPRIT)[1]
    carols = {"culprits": (CULPRIT,), "ends": False}
    about = "Carol's publication has an invalid signature and is not taken; the good one that comes later is."
    bad = altered(first, {"signature": flip})
    yield base.swapped("publication-with-a-bad-signature", about, bad, layer=ENVELOPE, **carols)
    about = "Carol publishes a second, different value; the coordinator saw the first alone, and it counts."
    second = base.change(g.PUBLISH, CULPRIT, x_hat=flip)
    yield base.added("publication-twice", about, g.PUBLISH, second, layer=ORDER, **carols)
    yield base.swapped(
        "published-with-another-value-of-a-user",
        "Alice lists a second publication of carol, which carol signed: both signatures convict carol.",
        _listing(base, second),
        layer=ORDER,
        culprits=(CULPRIT,),
    )
    about = "Alice shows that carol published twice, and adds her up."
    accused = base.change(d.PUBLISHED, proofs=[_proof(first, second)])
    yield base.swapped("published-with-one-who-published-twice", about, accused)
    about = "Carol's x_hat lacks its last byte, and alice adds her up."
    short = base.change(g.PUBLISH, CULPRIT, x_hat=lambda x_hat: x_hat[:-1])
    yield base.swapped("publication-too-short", about, short, _listing(base, short))


def _listing(base: _Base, publication: Envelope) -> Envelope:
    """Return the list of published vectors in which the culprit's publication is replaced."""
    digest = hashlib.sha256(publication.body).digest()
    hashes, signatures = _with(CULPRIT_NUMBER, digest), _with(CULPRIT_NUMBER, publication.signature)
    return base.change(d.PUBLISHED, hashes=hashes, signatures=signatures)


def _totals(base: _Base) -> Iterator[DirectNegative]:
    """Yield test vectors with faults in the coordinator's lists of published vectors."""
    without_me = base.change(
        d.PUBLISHED,
        published=pack_set((1, 3, 4, 5), PARTIES),
        hashes=_without(2, 32),
        signatures=_without(2, 64),
    )
    yield base.swapped("published-without-me", "The total lacks bob, who published.", without_me)
    about = "Alice lists a publication of carol that carol did not sign."
    forged = base.change(d.PUBLISHED, hashes=lambda packed: flip(packed, 64))
    yield base.swapped("published-with-a-forged-value", about, forged)
    about = "Alice says that carol published twice, and has no two signatures of carol."
    proof = d.Proof(CULPRIT_NUMBER, bytes(32), bytes(64), b"\x01" * 32, bytes(64))
    yield base.swapped("published-with-a-false-accusation", about, base.change(d.PUBLISHED, proofs=[proof]))
    yield base.swapped(
        "total-is-not-the-sum",
        "Alice and dave sign another total than the sum: three signatures where four are due, and no result.",
        *(base.change(d.ATTEST_TOTAL, name, set_digest=flip) for name in (COORDINATOR, ACCOMPLICE)),
        culprits=(COORDINATOR, ACCOMPLICE),
        error="TimeoutFault",
        deadline=True,
    )
    lost = _Base("forward", CULPRIT)
    about = "Alice forwards another value of dave than the one that she lists; carol has none of dave."
    forwarded, listed = lost.change(d.FORWARD, body=lambda body: flip(body, -1)), lost.find(d.PUBLISHED)[1]
    yield lost.swapped("forward-of-another-value", about, forwarded, listed, deadline=True)
