"""Negative vectors of GOPA: one fault each, in what it does not share with secure aggregation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import msgspec

from smpc_dp.crypto.labels import Label
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.gopa import messages as g
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import PartySet, pack_set
from smpc_dp.protocols.secagg.rolls import Roll
from smpc_dp_lab.vectors.fault import CULPRIT, ENVELOPE, ORDER, VICTIM, Base, Negative, constant, flip
from smpc_dp_lab.vectors.gopa_runs import SCENARIOS
from smpc_dp_lab.vectors.negative_aggregator import attests_another_set, masked_and_unmasked
from smpc_dp_lab.vectors.runs import AGGREGATOR


def all_faults() -> Iterator[Negative]:
    """Yield every negative vector."""
    keep, roll_back = Base("keep", SCENARIOS), Base("roll-back", SCENARIOS)
    yield from _averages(keep)
    yield from _sets(keep, roll_back)
    yield from _places(Base("keep-sparse", SCENARIOS))
    yield from _to_the_relay(keep, roll_back)


def _averages(base: Base) -> Iterator[Negative]:
    def change(name: str, about: str, how: Callable[[g.Average], Mapping[str, object]]) -> Negative:
        return base.changed(name, about, g.Average, g.AVERAGE, how)

    yield change(
        "average-without-me",
        "The average lacks alice, who published.",
        constant(published=pack_set((2, 3, 4), 4)),
    )
    yield change(
        "average-over-too-few",
        "The average is over two users where three are due.",
        constant(published=pack_set((1, 2), 4)),
    )
    yield change(
        "average-too-short", "The total lacks its last byte.", lambda average: {"total": average.total[:-1]}
    )
    yield base.changed(
        "average-impossible",
        "The total is further out than 40 standard deviations of all noise; who lied cannot be known.",
        g.Average,
        g.AVERAGE,
        lambda average: {"total": b"\xff" * 7 + b"\x3f" + average.total[8:]},
        error="VerificationError",
        culprit="",
    )
    early = Base("keep-lost-before-the-certificate", SCENARIOS)
    yield early.changed(
        "average-of-one-who-takes-no-part",
        "Dave, who never revealed his draw, is among those who published.",
        g.Average,
        g.AVERAGE,
        constant(published=pack_set((1, 2, 3, 4), 4)),
    )
    place, participants = base.find(m.PARTICIPANTS, AGGREGATOR, VICTIM)
    average = base.find(g.AVERAGE, AGGREGATOR, VICTIM)[1]
    about = "The average comes where the certificate of the participants is due."
    yield base.made("average-before-the-certificate", about, place, average, ORDER)
    other = dataclasses.replace(base.run.context, protocol="secagg")
    [foreign] = other.write(
        base.run.signers[AGGREGATOR],
        participants.run_id,
        m.PARTICIPANTS,
        (VICTIM,),
        decode(participants.body, m.Certificate, AGGREGATOR),
    )
    about = "The certificate is signed as one of secure aggregation."
    yield base.made("signed-for-another-protocol", about, place, foreign, ENVELOPE)


def _sets(keep: Base, roll_back: Base) -> Iterator[Negative]:
    def without(party: int) -> Callable[[m.Neighbours], Mapping[str, object]]:
        def change(message: m.Neighbours) -> Mapping[str, object]:
            members = PartySet.unpack(message.revealed, 4, AGGREGATOR)
            return {
                "revealed": pack_set([member for member in members if member != party], 4),
                "advertisements": [item for item in message.advertisements if item.party != party],
                "openings": [item for item in message.openings if item.party != party],
            }

        return change

    yield keep.changed(
        "participants-without-me",
        "The users that reveal, who are the participants, lack alice.",
        m.Neighbours,
        m.NEIGHBOURS,
        without(1),
    )

    other = Base("keep-lost-before-the-certificate", SCENARIOS).to(AGGREGATOR)
    signatures = b"".join(e.signature for e in other if e.step == m.ATTEST_PARTICIPANTS)
    yield keep.changed(
        "certificate-of-another-set",
        "The signatures are over participants without dave, and of another run.",
        m.Certificate,
        m.PARTICIPANTS,
        constant(signers=pack_set((1, 2, 3), 4), signatures=signatures),
    )
    yield keep.changed(
        "certificate-below-the-quorum",
        "Two signatures where three are due.",
        m.Certificate,
        m.PARTICIPANTS,
        lambda message: {"signers": pack_set((1, 2), 4), "signatures": message.signatures[:128]},
    )
    yield roll_back.changed(
        "survivors-without-me",
        "The survivors lack alice, whose vector was added: her pairwise noise would be opened.",
        m.Survivors,
        m.SURVIVORS,
        constant(survivors=pack_set((2, 3, 4), 4)),
    )


def _places(base: Base) -> Iterator[Negative]:
    commitments = {
        place: decode(base.find(m.ADVERTISE, name, AGGREGATOR)[1].body, m.Advertise, name).commitment
        for place, name in enumerate(base.run.context.names, 1)
    }
    roll = Roll(base.run.context, Label.COMMITMENTS, commitments)

    def without_my_draws(message: m.Neighbours) -> Mapping[str, object]:
        """Leave out two of the three users that alice drew."""
        reveal = decode(base.find(m.REVEAL, VICTIM, AGGREGATOR)[1].body, m.Reveal, VICTIM)
        drawn = [int.from_bytes(reveal.neighbours[i : i + 2], "little") for i in (0, 2)]
        members = PartySet.unpack(message.revealed, 6, AGGREGATOR)
        left = [item.party for item in message.advertisements if item.party not in drawn]
        return {
            "revealed": pack_set([member for member in members if member not in drawn], 6),
            "advertisements": [item for item in message.advertisements if item.party not in drawn],
            "openings": [item for item in message.openings if item.party not in drawn],
            "proof": roll.prove(left),
        }

    yield base.changed(
        "too-few-of-my-draws",
        "One of the three users that alice drew takes part, her plan counts on two.",
        m.Neighbours,
        m.NEIGHBOURS,
        without_my_draws,
        error="PrivacyError",
        culprit="",
    )


def _to_the_relay(keep: Base, roll_back: Base) -> Iterator[Negative]:
    yield keep.of_a_party(
        "publication-too-short",
        "The published vector lacks its last byte.",
        g.Published,
        g.PUBLISH,
        lambda published: {"x_hat": published.x_hat[:-1]},
    )
    yield attests_another_set(keep)
    place, publish = keep.find(g.PUBLISH, CULPRIT, AGGREGATOR)
    flipped = msgspec.structs.replace(publish, body=flip(publish.body, 5))
    about = "A bit of the published vector is flipped on the way."
    yield keep.made("publication-flipped", about, place, flipped, ENVELOPE)
    second = keep.sign(publish, body=flip(publish.body, len(publish.body) - 1))
    about = "Carol publishes a second, different value."
    yield keep.made("published-twice", about, place + 1, second, ORDER)
    other_run = keep.sign(publish, run_id=flip(publish.run_id))
    about = "Carol publishes what she signs for another run."
    yield keep.made("publication-of-another-run", about, place, other_run, ORDER)
    yield from masked_and_unmasked(roll_back)
