"""Negative vectors of GOPA: one fault each, in the parts that secure aggregation does not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.engine.phases import messages as m
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp_lab.vectors.fault import ENVELOPE, ORDER, VICTIM, Base, Negative, flip
from smpc_dp_lab.vectors.gopa_runs import SCENARIOS
from smpc_dp_lab.vectors.negative_aggregator import attests_another_set, masked_and_unmasked
from smpc_dp_lab.vectors.negative_merkle_commitments import advertisements_of
from smpc_dp_lab.vectors.runs import AGGREGATOR


def all_faults() -> Iterator[Negative]:
    """Yield all negative test vectors of GOPA: one changed message, and its error."""
    keep, roll_back = Base("keep", SCENARIOS), Base("roll-back", SCENARIOS)
    early = Base("keep-lost-before-the-certificate", SCENARIOS)
    yield from _averages(keep, early)
    yield from _sets(keep, early, roll_back)
    yield from _indices(Base("keep-sparse", SCENARIOS))
    yield from _to_the_relay(keep, roll_back)


def _averages(base: Base, early: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the average that the aggregator announces."""
    about = "The average lacks alice, who published."
    yield base.fault("average-without-me", about, g.AVERAGE, {"published": pack_set((2, 3, 4), 4)})
    about = "The average is over two users where three are due."
    yield base.fault("average-over-too-few", about, g.AVERAGE, {"published": pack_set((1, 2), 4)})
    about = "The total lacks its last byte."
    yield base.fault("average-too-short", about, g.AVERAGE, {"total": lambda total: total[:-1]})
    yield base.fault(
        "average-impossible",
        "The total is further out than 40 standard deviations of all noise; who lied cannot be known.",
        g.AVERAGE,
        {"total": lambda total: b"\xff" * 7 + b"\x3f" + total[8:]},
        error="VerificationError",
        culprit="",
    )
    about = "Dave, who never revealed his draw, is among those who published."
    everybody = {"published": pack_set((1, 2, 3, 4), 4)}
    yield early.fault("average-of-one-who-takes-no-part", about, g.AVERAGE, everybody)
    about = "The average comes where the certificate of the participants is due."
    yield base.unexpected("average-before-the-certificate", about, m.PARTICIPANTS, g.AVERAGE)
    index, participants = base.find(m.PARTICIPANTS)
    other = dataclasses.replace(base.run.context, protocol="secagg")
    signer, certificate = base.run.signers[AGGREGATOR], base.read(m.PARTICIPANTS)
    [foreign] = other.write(signer, participants.run_id, m.PARTICIPANTS, (VICTIM,), certificate)
    about = "The certificate is signed as one of secure aggregation."
    yield base.made("signed-for-another-protocol", about, index, foreign, ENVELOPE)


def _left_out(message: m.Neighbours, party_count: int, parties: Sequence[int]) -> dict[str, object]:
    """Return the fields of a message to neighbours without these parties."""
    members = PartySet.unpack(message.revealed, party_count, AGGREGATOR)
    indices = [index for index, item in enumerate(message.advertisements) if item.party not in parties]
    return {
        "revealed": pack_set([member for member in members if member not in parties], party_count),
        "advertisements": [message.advertisements[index] for index in indices],
        "mask_keys": b"".join(message.mask_keys[32 * index : 32 * index + 32] for index in indices),
        "openings": [item for item in message.openings if item.party not in parties],
    }


def _sets(keep: Base, early: Base, roll_back: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in sets of parties, and in their certificates."""
    about = "The users that reveal, who are the participants, lack alice."
    without_me = _left_out(keep.read(m.NEIGHBOURS), 4, [1])
    yield keep.fault("participants-without-me", about, m.NEIGHBOURS, without_me)
    other = [e.signature for e in early.to(AGGREGATOR) if e.step == m.ATTEST_PARTICIPANTS]
    about = "The signatures are over participants without dave, and of another run."
    changed: dict[str, object] = {"signers": pack_set((1, 2, 3), 4), "signatures": b"".join(other)}
    yield keep.fault("certificate-of-another-set", about, m.PARTICIPANTS, changed)
    about = "Two signatures where three are due."
    changed = {"signers": pack_set((1, 2), 4), "signatures": lambda packed: packed[:128]}
    yield keep.fault("certificate-below-the-quorum", about, m.PARTICIPANTS, changed)
    about = "The survivors lack alice, whose vector was added: her pairwise noise would be opened."
    changed = {"survivors": pack_set((2, 3, 4), 4)}
    yield roll_back.fault("survivors-without-me", about, m.SURVIVORS, changed)


def _indices(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the neighbours that the aggregator forwards."""
    merkle_commitment = advertisements_of(base)

    def without_my_draws(message: m.Neighbours) -> Mapping[str, object]:
        """Remove two of the three parties that alice drew."""
        neighbours = base.read(m.REVEAL, VICTIM).neighbours
        drawn = [int.from_bytes(neighbours[i : i + 2], "little") for i in (0, 2)]
        left = [item.party for item in message.advertisements if item.party not in drawn]
        return _left_out(message, 6, drawn) | {"proof": merkle_commitment.prove(left)}

    yield base.fault(
        "too-few-of-my-draws",
        "One of the three users that alice drew takes part, her plan counts on two.",
        m.NEIGHBOURS,
        without_my_draws,
        error="PrivacyError",
        culprit="",
    )


def _to_the_relay(keep: Base, roll_back: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in messages of a party to the aggregator."""
    about = "The published vector lacks its last byte."
    yield keep.fault("publication-too-short", about, g.PUBLISH, {"x_hat": lambda x_hat: x_hat[:-1]})
    yield attests_another_set(keep)
    about = "A bit of the published vector is flipped on the way."
    flipped = {"body": lambda body: flip(body, 5)}
    yield keep.forged("publication-flipped", about, g.PUBLISH, flipped, ENVELOPE, signed=False)
    about = "Carol publishes a second, different value."
    different = {"body": lambda body: flip(body, -1)}
    yield keep.forged("published-twice", about, g.PUBLISH, different, ORDER, later=1)
    about = "Carol publishes what she signs for another run."
    yield keep.forged("publication-of-another-run", about, g.PUBLISH, {"run_id": flip}, ORDER)
    yield from masked_and_unmasked(roll_back)
