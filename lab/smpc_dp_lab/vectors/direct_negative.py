"""Negative vectors of GOPA without a relay: one fault each, by a user or by the one that coordinates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import decode, encode
from smpc_dp.protocols.gopa import direct_messages as d
from smpc_dp.protocols.gopa import messages as g
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp_lab.vectors.direct_runs import COORDINATOR, SCENARIOS, cast
from smpc_dp_lab.vectors.fault import CONTENT, CULPRIT, ENVELOPE, ORDER, Played, envelope_json, flip
from smpc_dp_lab.vectors.runs import SCHEMA, Staged

RECEIVER = "bob"
ACCOMPLICE = "dave"
USERS = 5
CULPRIT_NUMBER = 3

_KINDS: dict[str, type[msgspec.Struct]] = {
    d.START: d.Start,
    m.ADVERTISE: d.Advertise,
    d.ROLL: d.Roll,
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
    """One fault: after the first `after` messages of the base run to `receiver`, it gets `envelopes`.

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
        """Return the vector."""
        return {
            "schema": SCHEMA,
            "kind": "direct-negative",
            "name": self.name,
            "about": self.about,
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


class _Base(Played[Staged]):
    """A finished run, and changes of what one user of it gets."""

    def __init__(self, name: str, receiver: str = RECEIVER) -> None:
        [scenario] = [scenario for scenario in SCENARIOS if scenario.name == name]
        super().__init__(name, cast(scenario).play())
        self.receiver = receiver

    def _for(self, envelope: Envelope) -> str:
        return envelope.receiver if envelope.step in d.TO_ONE else d.EVERYONE

    def at(self, step: str, sender: str = COORDINATOR) -> tuple[int, Envelope]:
        return self.find(step, sender, self.receiver)

    def read(self, step: str, sender: str = COORDINATOR) -> Any:
        return decode(self.at(step, sender)[1].body, _KINDS[step], sender)

    def change(self, step: str, sender: str = COORDINATOR, **fields: object) -> Envelope:
        """Return a message of the run with other content, signed by its sender."""
        body = encode(replace(self.read(step, sender), **fields))
        return self.sign(self.at(step, sender)[1], body=body)

    def swapped(self, name: str, about: str, *changed: Envelope, **more: Any) -> DirectNegative:
        """Change messages; those between them come as they were, to the last one or the end of its step."""
        places = [self.at(envelope.step, envelope.sender)[0] for envelope in changed]
        came = self.to(self.receiver)
        for place, envelope in zip(places, changed, strict=True):
            came[place] = envelope
        last = max(places)
        if more.get("deadline"):
            last = max(place for place, envelope in enumerate(came) if envelope.step == came[last].step)
        first, settings = min(places), {"layer": CONTENT, "culprits": (COORDINATOR,)} | more
        shown = tuple(came[first : last + 1])
        return DirectNegative(name, about, self.name, self.receiver, first, shown, **settings)

    def added(self, name: str, about: str, behind: str, extra: Envelope, **more: Any) -> DirectNegative:
        """Add a message behind the one of step `behind`: a proposal, or the sender's own."""
        sender = COORDINATOR if behind in d.PROPOSALS else extra.sender
        after = self.at(behind, sender)[0] + 1
        return DirectNegative(name, about, self.name, self.receiver, after, (extra,), **more)


def all_faults() -> Iterator[DirectNegative]:
    """Yield every negative vector."""
    base = _Base("all")
    yield from _up_to_the_certificate(base)
    yield from _certificates(base)
    yield from _witnesses(base)
    yield from _publications(base)
    yield from _totals(base)


def _without(packed: bytes, number: int, size: int) -> bytes:
    return packed[: size * (number - 1)] + packed[size * number :]


def _up_to_the_certificate(base: _Base) -> Iterator[DirectNegative]:
    start, roll, proposed = base.read(d.START), base.read(d.ROLL), base.read(d.PARTICIPANTS)
    yield base.swapped(
        "start-without-my-nonce",
        "Bob's nonce in the start is not the one that he sent: an old start shown again.",
        base.change(d.START, nonces=flip(start.nonces, 32)),
    )
    run_id = base.at(d.START)[1].run_id
    yield base.swapped(
        "start-of-another-run",
        "The start is signed under a run id that its nonces do not give.",
        base.sign(base.at(d.START)[1], run_id=flip(run_id)),
    )
    yield base.swapped(
        "roll-of-another-run",
        "Alice signs the roll for another run.",
        base.sign(base.at(d.ROLL)[1], run_id=flip(run_id)),
        layer=ORDER,
    )
    forged = list(roll.advertisements)
    forged[3] = flip(forged[3], 10)
    yield base.swapped(
        "roll-with-a-forged-advertisement",
        "Alice puts another masking key of dave onto the roll, which dave did not sign.",
        base.change(d.ROLL, advertisements=forged),
    )
    yield base.swapped(
        "participants-without-me",
        "The set of participants lacks bob.",
        base.change(
            d.PARTICIPANTS,
            participants=pack_set((1, 3, 4, 5), USERS),
            reveals=[body for place, body in enumerate(proposed.reveals) if place != 1],
            signatures=_without(proposed.signatures, 2, 64),
        ),
    )
    yield base.swapped(
        "participants-too-few",
        "Three users where four are due.",
        base.change(
            d.PARTICIPANTS,
            participants=pack_set((1, 2, 3), USERS),
            reveals=proposed.reveals[:3],
            signatures=proposed.signatures[:192],
        ),
    )
    wrong = base.change(m.REVEAL, CULPRIT, blinder=bytes(32))
    yield base.swapped(
        "participants-with-a-false-opening",
        "Carol opens another commitment than hers, and alice lets her take part.",
        wrong,
        _with(base, CULPRIT_NUMBER, wrong),
    )
    first, second = base.at(m.ADVERTISE, CULPRIT)[1], base.change(m.ADVERTISE, CULPRIT, commitment=bytes(32))
    shown = base.change(m.REVEAL, ACCOMPLICE, proofs=[_proof(first, second)])
    yield base.swapped(
        "participants-with-one-who-advertised-twice",
        "Dave's reveal proves that carol advertised twice, and alice lets her take part.",
        shown,
        _with(base, 4, shown),
    )


def _with(base: _Base, number: int, reveal: Envelope) -> Envelope:
    """Return the participants with another reveal of one user."""
    proposed = base.read(d.PARTICIPANTS)
    bodies = list(proposed.reveals)
    bodies[number - 1] = reveal.body
    before, behind = proposed.signatures[: 64 * (number - 1)], proposed.signatures[64 * number :]
    return base.change(d.PARTICIPANTS, reveals=bodies, signatures=before + reveal.signature + behind)


def _proof(first: Envelope, second: Envelope) -> d.Proof:
    hashes = [hashlib.sha256(envelope.body).digest() for envelope in (first, second)]
    return d.Proof(CULPRIT_NUMBER, hashes[0], first.signature, hashes[1], second.signature)


def _certificates(base: _Base) -> Iterator[DirectNegative]:
    attested = base.at(m.ATTEST_PARTICIPANTS, CULPRIT)[1]
    yield base.swapped(
        "attestation-with-a-bad-signature",
        "Carol's signature of the set is not one: it counts for nothing.",
        replace(attested, signature=flip(attested.signature)),
        layer=ENVELOPE,
        culprits=(CULPRIT,),
        ends=False,
    )
    other = flip(base.read(m.ATTEST_PARTICIPANTS, CULPRIT).set_digest)
    yield base.swapped(
        "certificate-below-the-quorum",
        "Carol and dave sign another set: three signatures where four are due, and bob does not publish.",
        *(base.change(m.ATTEST_PARTICIPANTS, name, set_digest=other) for name in (CULPRIT, ACCOMPLICE)),
        culprits=(CULPRIT, ACCOMPLICE),
        error="TimeoutFault",
        deadline=True,
    )


def _witnesses(base: _Base) -> Iterator[DirectNegative]:
    proposed = base.read(d.PARTICIPANTS)
    other = base.change(
        d.PARTICIPANTS,
        participants=pack_set((1, 2, 3, 4), USERS),
        reveals=proposed.reveals[:4],
        signatures=proposed.signatures[:256],
    )
    yield base.added(
        "participants-twice",
        "Alice proposes another set of participants too.",
        d.PARTICIPANTS,
        other,
        layer=ORDER,
        culprits=(COORDINATOR,),
    )

    def shown(signature: bytes) -> Envelope:
        body_hash = hashlib.sha256(other.body).digest()
        witness = d.Witness(d.PARTICIPANTS, other.run_id, body_hash, signature, b"")
        return base.sign(Envelope(other.run_id, d.WITNESS, CULPRIT, RECEIVER, encode(witness), b""))

    yield base.added(
        "participants-shown-by-a-witness",
        "Carol shows that alice proposed another set of participants to her.",
        d.PARTICIPANTS,
        shown(other.signature),
        layer=ORDER,
        culprits=(COORDINATOR,),
    )
    yield base.added(
        "witness-of-a-forged-proposal",
        "Carol shows a proposal that alice did not sign: it is carol's fault.",
        d.PARTICIPANTS,
        shown(flip(other.signature)),
        layer=CONTENT,
        culprits=(CULPRIT,),
        ends=False,
    )


def _publications(base: _Base) -> Iterator[DirectNegative]:
    first = base.at(g.PUBLISH, CULPRIT)[1]
    yield base.swapped(
        "publication-with-a-bad-signature",
        "Carol's publication has an invalid signature and is not taken; the good one that comes later is.",
        replace(first, signature=flip(first.signature)),
        layer=ENVELOPE,
        culprits=(CULPRIT,),
        ends=False,
    )
    x_hat = base.read(g.PUBLISH, CULPRIT).x_hat
    second = base.change(g.PUBLISH, CULPRIT, x_hat=flip(x_hat))
    yield base.added(
        "publication-twice",
        "Carol publishes a second, different value; the coordinator saw the first alone, and it counts.",
        g.PUBLISH,
        second,
        layer=ORDER,
        culprits=(CULPRIT,),
        ends=False,
    )
    yield base.swapped(
        "published-with-another-value-of-a-user",
        "Alice lists a second publication of carol, which carol signed: both signatures convict carol.",
        _listing(base, second),
        layer=ORDER,
        culprits=(CULPRIT,),
    )
    yield base.swapped(
        "published-with-one-who-published-twice",
        "Alice shows that carol published twice, and adds her up.",
        base.change(d.PUBLISHED, proofs=[_proof(first, second)]),
    )
    short = base.change(g.PUBLISH, CULPRIT, x_hat=x_hat[:-1])
    yield base.swapped(
        "publication-too-short",
        "Carol's x_hat lacks its last byte, and alice adds her up.",
        short,
        _listing(base, short),
    )


def _listing(base: _Base, publication: Envelope) -> Envelope:
    """Return the list of the published with another publication of the culprit."""
    proposed, number = base.read(d.PUBLISHED), CULPRIT_NUMBER
    own = hashlib.sha256(publication.body).digest(), publication.signature
    packed = [
        before[: size * (number - 1)] + content + before[size * number :]
        for before, content, size in zip((proposed.hashes, proposed.signatures), own, (32, 64), strict=True)
    ]
    return base.change(d.PUBLISHED, hashes=packed[0], signatures=packed[1])


def _totals(base: _Base) -> Iterator[DirectNegative]:
    proposed = base.read(d.PUBLISHED)
    yield base.swapped(
        "published-without-me",
        "The total lacks bob, who published.",
        base.change(
            d.PUBLISHED,
            published=pack_set((1, 3, 4, 5), USERS),
            hashes=_without(proposed.hashes, 2, 32),
            signatures=_without(proposed.signatures, 2, 64),
        ),
    )
    yield base.swapped(
        "published-with-a-forged-value",
        "Alice lists a publication of carol that carol did not sign.",
        base.change(d.PUBLISHED, hashes=flip(proposed.hashes, 64)),
    )
    accusation = d.Proof(CULPRIT_NUMBER, bytes(32), bytes(64), b"\x01" * 32, bytes(64))
    yield base.swapped(
        "published-with-a-false-accusation",
        "Alice says that carol published twice, and has no two signatures of carol.",
        base.change(d.PUBLISHED, proofs=[accusation]),
    )
    other = flip(base.read(d.ATTEST_TOTAL, COORDINATOR).set_digest)
    yield base.swapped(
        "total-is-not-the-sum",
        "Alice and dave sign another total than the sum: three signatures where four are due, and no result.",
        *(base.change(d.ATTEST_TOTAL, name, set_digest=other) for name in (COORDINATOR, ACCOMPLICE)),
        culprits=(COORDINATOR, ACCOMPLICE),
        error="TimeoutFault",
        deadline=True,
    )
    lost = _Base("forward", CULPRIT)
    body = lost.read(d.FORWARD).body
    yield lost.swapped(
        "forward-of-another-value",
        "Alice forwards another value of dave than the one that she lists; carol has none of dave.",
        lost.change(d.FORWARD, body=flip(body, len(body) - 1)),
        lost.at(d.PUBLISHED)[1],
        deadline=True,
    )
