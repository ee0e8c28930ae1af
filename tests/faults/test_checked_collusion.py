"""A corrupt party that commits last: it fails, and succeeds where a part of the protocol is missing.

The two weakened protocols are models: commitments, hashes, roots, digests and the check of the total are the
library's; masks, shares and signatures are left out. In each the corrupt party signs what it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

import numpy as np
import pytest

from smpc_dp.crypto.labels import Label
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases import checked_total, keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment
from smpc_dp.errors import VerificationError
from smpc_dp.wire.sets import pack_set
from tests.faults.checked_totals import CheckedRun, minus_all, wide

PARTIES, CORRUPT, RUN_ID = 4, 4, bytes(range(32))
HONEST = (1, 2, 3)
# What the aggregator wants all to take for the total, and the blinding with which it opens it.
WANTED, OPENED = (11, 22, 33), wide(44)
EARLY = ((0, 0, 0), wide(7))

RUN = CheckedRun(PARTIES)
# The honest parties' vectors and blindings, and the commitments to them.
OPENINGS = {number: ((number, 2 * number, 3 * number), wide(1000 + number)) for number in HONEST}
POINTS = {number: RUN.commit(*opening) for number, opening in OPENINGS.items()}


def leaves(points: Mapping[int, bytes]) -> dict[int, bytes]:
    """Return the hash V_u of each commitment."""
    return {
        number: keys.value_commitment(RUN.context, RUN_ID, f"p{number}", point)
        for number, point in points.items()
    }


def root_of(given: Mapping[int, bytes]) -> bytes:
    return MerkleCommitment(RUN.context, Label.VALUES, given).root


def digest_of(given: Mapping[int, bytes]) -> bytes:
    """Return the digest of a roll, which all participants certify: over both roots.

    The model's advertisements have nothing but the leaf.
    """
    packed = pack_set(range(1, PARTIES + 1), PARTIES)
    bodies = {number: sha256(leaf).digest() for number, leaf in given.items()}
    advertised = MerkleCommitment(RUN.context, Label.ADVERTISEMENTS, bodies)
    return keys.merkle_commitment_digest(RUN.context, RUN_ID, packed, advertised.root, root_of(given))


def accept(total: Sequence[int], blinding: bytes, points: Mapping[int, bytes]) -> None:
    """Check a total as a receiver does, when it has found the points under the root."""
    lanes: RingVector = np.array(total, RUN.encoding.dtype)
    checked_total.check_total(RUN.parameters, lanes, blinding, list(points.values()))


# C_u instead of its hash in `advertise`


def test_without_hashes_the_last_one_chooses_the_total() -> None:
    """The corrupt party advertises when it has seen the commitments of all others: any total is accepted."""
    last = minus_all(RUN.commit(WANTED, OPENED), POINTS.values())
    advertised = POINTS | {CORRUPT: last}
    # All certify the root over these very points: a receiver finds them under it.
    accept(WANTED, OPENED, advertised)
    assert tuple(sum(row) for row in zip(*(vector for vector, _ in OPENINGS.values()), strict=True)) != WANTED


def test_with_hashes_the_last_one_has_committed_before_it_sees() -> None:
    """Its leaf is fixed when it knows hashes alone: the point that it needs later is under another root."""
    early = RUN.commit(*EARLY)
    root = root_of(leaves(POINTS | {CORRUPT: early}))
    needed = minus_all(RUN.commit(WANTED, OPENED), POINTS.values())
    accept(WANTED, OPENED, POINTS | {CORRUPT: needed})
    assert root_of(leaves(POINTS | {CORRUPT: needed})) != root
    with pytest.raises(VerificationError, match="not that of the commitments"):
        accept(WANTED, OPENED, POINTS | {CORRUPT: early})


def test_a_last_commitment_is_refused_in_a_run() -> None:
    """The same in a run of the protocol, in which the corrupt party signs it and the aggregator shows it."""
    simulated = CheckedRun(PARTIES)

    def lie(run: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
        honest = [run.body_of(m.MASKED, f"p{number}").point for number in HONEST]
        needed = minus_all(run.commit(WANTED, OPENED), honest)
        evidence = run.aggregator.result.evidence
        digest = evidence.participants.set_digest
        opening = run.sign_opening(f"p{CORRUPT}", evidence.run_id, digest, needed)
        shown = result.openings[: -m.OPENING_BYTES] + opening
        return m.CheckedResult(run.pack(WANTED), OPENED, shown, b"")

    simulated.lie_in_result(lie)
    simulated.assert_all_refuse("shows commitments that are not under the certified root", f"p{CORRUPT}")


# C_u in `reveal`, before participants and roll are certified, on a drawn graph

LONE, OTHERS = 1, (2, 3)


def test_opened_before_the_certificate_a_party_is_in_the_total_without_its_vector() -> None:
    """One honest party alone sees roll A and reveals C_a; roll B, for the others, has a leaf made of it."""
    roll_a = leaves(POINTS | {CORRUPT: RUN.commit(*EARLY)})
    opened = POINTS[LONE]
    # The corrupt party advertises once more. The leaf of the lone one is its own in both rolls.
    made = minus_all(RUN.commit(WANTED, OPENED), [opened])
    points = POINTS | {CORRUPT: made}
    roll_b = leaves(points)
    # The others certify roll B among them; the lone one attests roll A, has no certificate, and never masks.
    assert roll_a[LONE] == roll_b[LONE]
    assert digest_of(roll_a) != digest_of(roll_b)
    # It is a survivor all the same, by what it revealed: the total is of the others' vectors and of what the
    # aggregator wants.
    vectors = [WANTED, *(OPENINGS[number][0] for number in OTHERS)]
    total = [sum(row) for row in zip(*vectors, strict=True)]
    blinding = wide(44 + sum(1000 + number for number in OTHERS))
    accept(total, blinding, points)


def test_opened_after_the_certificate_no_leaf_can_be_made_of_it() -> None:
    """In a run nobody shows its commitment before it has a certificate of the one roll."""
    simulated = CheckedRun(PARTIES).execute()
    points = [simulated.body_of(m.MASKED, name).point for name in simulated.names]
    certified = max(place for place, envelope in enumerate(simulated.sent) if envelope.step == m.PARTICIPANTS)
    for envelope in simulated.sent[:certified]:
        assert not any(point in envelope.body for point in points)
    # The lone party of two rolls gets none: tests/faults/test_checked_rolls.py.
