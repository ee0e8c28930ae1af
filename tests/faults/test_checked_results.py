"""A result that is not the survivors' total: each receiver refuses it, and blames the aggregator alone."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import msgspec
import numpy as np
import pytest

from smpc_dp.crypto import commit
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import Item
from smpc_dp.engine.phases import checked_total, keys, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.checked_total import Opened
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, Code, PeerFault, VerificationError
from smpc_dp.secagg import states
from smpc_dp.secagg.noisy import check_noisy
from smpc_dp.secagg.states import AGGREGATOR as ROLE
from smpc_dp.secagg.states import Aggregator, CollectMasked
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from tests.faults.checked_totals import (
    ORDER,
    CheckedRun,
    ResultLie,
    assert_no_total,
    minus_all,
    pieces,
    plus,
    wide,
)
from tests.faults.simulated import AGGREGATOR

WRONG = "the total is not that of the commitments"
UNSIGNED = "shows a commitment that p{} did not sign"
ROOT = "shows commitments that are not under the certified root"
COUNT = "shows other than one commitment of each party"


def replaced(message: m.CheckedResult, **fields: object) -> m.CheckedResult:
    return msgspec.structs.replace(message, **fields)


def test_a_checked_run_gives_the_exact_sum_to_all() -> None:
    simulated = CheckedRun(4).execute()
    assert not simulated.errors
    simulated.assert_sum()
    outcome = simulated.parties["p1"].result
    assert outcome.evidence.checked is True


def off_by(*changes: int) -> ResultLie:
    """Change elements of the total."""

    def lie(simulated: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
        total = simulated.total_of(result)
        changed = [element + change for element, change in zip(total, changes, strict=True)]
        return replaced(result, total=simulated.pack(changed))

    return lie


def without_third(*, blinding: bool) -> ResultLie:
    """Leave a survivor's vector out of the total, which an aggregator in league with it can; list it."""

    def lie(simulated: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
        own = [int(element) for element in simulated.lanes["p3"]]
        total = [a - b for a, b in zip(simulated.total_of(result), own, strict=True)]
        left = commit.add_blindings([result.blinding], [simulated.committed["p3"].blinding])
        return replaced(result, total=simulated.pack(total), blinding=left if blinding else result.blinding)

    return lie


def other_blinding(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return replaced(result, blinding=plus(result.blinding, 1))


def blinding_plus_order(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return replaced(result, blinding=wide(int.from_bytes(result.blinding, "little") + ORDER))


def swapped(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    first, second, *rest = pieces(result.openings)
    return replaced(result, openings=b"".join([second, first, *rest]))


def swapped_points(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    """Swap the commitments of two, which add up to the same, and leave each signature in its place."""
    first, second, *rest = pieces(result.openings)
    changed = [second[:32] + first[32:], first[:32] + second[32:], *rest]
    return replaced(result, openings=b"".join(changed))


def omitted(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return replaced(result, openings=result.openings[: -m.OPENING_BYTES])


def hidden_instead(simulated: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    """Show the hash of a survivor's commitment in place of the commitment."""
    leaf = simulated.leaves()[4]
    return replaced(result, openings=result.openings[: -m.OPENING_BYTES], hidden=leaf)


def twice(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    first, _second, *rest = pieces(result.openings)
    return replaced(result, openings=b"".join([first, first, *rest]))


def one_more(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return replaced(result, openings=result.openings + result.openings[: m.OPENING_BYTES])


def one_byte_less(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return replaced(result, openings=result.openings[:-1])


def false_signature(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return replaced(result, openings=result.openings[:-1] + bytes([result.openings[-1] ^ 1]))


def no_point(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    """Show bytes that are the canonical encoding of no group element."""
    return replaced(result, openings=b"\xff" * 32 + result.openings[32:])


def one_lane_more(simulated: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return replaced(result, total=result.total + bytes(simulated.encoding.element_bytes))


def as_lanes(simulated: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    """Write elements of 3 bytes as lanes of 4, plus 2^(8w): only other lengths have room for it."""
    lanes = np.array(simulated.total_of(result), np.uint32) + np.uint32(1 << 24)
    return replaced(result, total=lanes.astype("<u4").tobytes())


def negated(simulated: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    """Give each element the other sign, in two's complement."""
    return replaced(result, total=simulated.pack([-each for each in simulated.total_of(result)]))


LIES: dict[str, tuple[ResultLie, str]] = {
    "one element by one": (off_by(0, 1, 0), WRONG),
    "one up and one down": (off_by(1, -1, 0), WRONG),
    "by half of the ring": (off_by(0, 0, 1 << 23), WRONG),
    "without a survivor": (without_third(blinding=False), WRONG),
    "without a survivor and its blinding": (without_third(blinding=True), WRONG),
    "another sum of blindings": (other_blinding, WRONG),
    "the blindings plus the order": (blinding_plus_order, "blinding: not the encoding of a scalar"),
    "two openings swapped": (swapped, UNSIGNED.format(1)),
    "two commitments swapped": (swapped_points, UNSIGNED.format(1)),
    "an opening omitted": (omitted, COUNT),
    "a hash instead of an opening": (hidden_instead, COUNT),
    "an opening twice": (twice, UNSIGNED.format(2)),
    "an opening more": (one_more, COUNT),
    "an opening cut": (one_byte_less, COUNT),
    "a false signature": (false_signature, UNSIGNED.format(4)),
    "no point": (no_point, UNSIGNED.format(1)),
    "an element too many": (one_lane_more, "malformed CheckedResult"),
    "lanes above the elements": (as_lanes, "malformed CheckedResult"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_false_result_is_refused_by_all(lie: str) -> None:
    tell, reason = LIES[lie]
    simulated = CheckedRun(4).lie_in_result(tell)
    simulated.assert_all_refuse(reason)
    assert not simulated.aggregator.result.faults


@pytest.mark.parametrize("lie", LIES)
def test_two_totals_are_no_two_values(lie: str) -> None:
    """One party is given a false result, the others the true one: it refuses, and they have the sum."""
    tell, reason = LIES[lie]
    simulated = CheckedRun(4).lie_in_result(
        lambda run, receiver, result: tell(run, receiver, result) if receiver == "p2" else result
    )
    simulated.assert_blames("p2", AGGREGATOR, reason)
    assert set(simulated.errors) == {"p2"}
    simulated.assert_sum()


def test_two_false_totals() -> None:
    """Each party is given another total, and none is the sum."""
    simulated = CheckedRun(4).lie_in_result(
        lambda run, receiver, result: off_by(run.number(receiver), 0, 0)(run, receiver, result)
    )
    simulated.assert_all_refuse(WRONG)


NOISY = ("one element by one", "one up and one down", "without a survivor", "another sum of blindings")


@pytest.mark.parametrize("lie", [*NOISY, "by half of the ring", "the sign of an element"])
def test_a_false_total_with_noise(lie: str) -> None:
    """Elements are read as two's complement of 64 bits: another sign is another element."""
    given = {
        "length": 3,
        "lower": -9.0,
        "upper": 9.0,
        "precision": 1e-3,
        "epsilon": 1.0,
        "delta": 1e-6,
        "dropout": 0.25,
        "corrupt": 0.0,
        "total": "checked",
    }
    parameters, issues = check_noisy(given, 4)
    assert parameters is not None, issues
    tell = {
        "by half of the ring": off_by(0, 0, 1 << 63),
        "the sign of an element": negated,
    }.get(lie) or LIES[lie][0]
    simulated = CheckedRun(4, parameters=parameters).lie_in_result(tell)
    simulated.assert_all_refuse(WRONG)
    assert not CheckedRun(4, parameters=parameters).execute().errors


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda hidden: bytes([hidden[0] ^ 1]) + hidden[1:], ROOT),
        (lambda hidden: hidden[:0], COUNT),
        (lambda hidden: hidden * 2, COUNT),
        (lambda hidden: hidden[:-1], COUNT),
    ],
)
def test_the_leaf_of_a_lost_party_is_changed(change: Callable[[bytes], bytes], reason: str) -> None:
    simulated = CheckedRun(4)

    def tamper(envelope: Envelope) -> tuple[Envelope, ...]:
        if (envelope.step, envelope.sender) == (m.MASKED, "p4"):
            return ()
        if envelope.step == m.RESULT:
            result = decode(envelope.body, m.CheckedResult, AGGREGATOR)
            assert result.hidden == simulated.leaves()[4]
            return (simulated.write(envelope, replaced(result, hidden=change(result.hidden))),)
        return (envelope,)

    simulated.execute(tamper)
    simulated.assert_all_refuse(reason, "p4")


# What the aggregator does earlier, by other functions of its role


def finish_unchecked(aggregator: Aggregator, state: states.CollectUnmask) -> Transition:
    """Finish as the honest aggregator without its own checks: whatever comes out is sent."""
    with (
        mock.patch.object(checked_total, "check_total"),
        mock.patch.object(outcomes, "outcome", return_value=None),
    ):
        return states.finish_unmask(aggregator, state)


LYING = ROLE.with_row(states.CollectUnmask, finish=finish_unchecked)


def drop_third(aggregator: Aggregator, state: CollectMasked, party: int, envelope: Envelope) -> Item:
    """Take commitment, blinding and complaints of p3, and do not add its vector."""
    before = state.added.total.copy()
    item = states.accept_masked(aggregator, state, party, envelope)
    if party == 3:
        state.added.total[:] = before
    return item


def test_a_vector_is_dropped_as_it_comes() -> None:
    simulated = CheckedRun(4)
    simulated.aggregator.role = LYING.with_row(CollectMasked, accept=drop_third)
    simulated.execute()
    simulated.assert_all_refuse(WRONG)


def test_an_aggregator_that_checks_sends_no_total() -> None:
    """The honest end of the same run: no total, and an error that names nobody."""
    simulated = CheckedRun(4)
    simulated.aggregator.role = ROLE.with_row(CollectMasked, accept=drop_third)
    simulated.execute()
    assert_no_total(simulated)


def in_place_of_fourth(simulated: CheckedRun, shown: Callable[[bytes, bytes], bytes]) -> None:
    """Play a run in which p4 gets no certificate and sends nothing, and is a survivor for all others.

    `shown`: (run id, participants digest) -> what the aggregator has in the place of its signed commitment.
    """

    def finish(aggregator: Aggregator, state: CollectMasked) -> Transition:
        digest = state.agreed.participation.certificate.set_digest
        state.added.complaints[4] = ()
        state.added.opened[4] = Opened(shown(state.run_id, digest), wide(5))
        return states.finish_masked(aggregator, state)

    def tamper(envelope: Envelope) -> tuple[Envelope, ...]:
        lost = envelope.receiver == "p4" and envelope.step == m.PARTICIPANTS
        return () if lost else (envelope,)

    simulated.aggregator.role = LYING.with_row(CollectMasked, finish=finish)
    simulated.execute(tamper)
    assert m.MASKED not in simulated.steps_of("p4")


@pytest.mark.parametrize("signer", [AGGREGATOR, "p3", "nobody"])
def test_a_party_that_was_dropped_is_listed(signer: str) -> None:
    """It has signed no opening of this run, whatever the aggregator commits to in its name."""
    simulated = CheckedRun(4)
    made = simulated.commit([1, 2, 3], wide(5))

    def shown(run_id: bytes, digest: bytes) -> bytes:
        if signer == "nobody":
            return made + bytes(64)
        return simulated.sign_opening(signer, run_id, digest, made, "p4")

    in_place_of_fourth(simulated, shown)
    simulated.assert_all_refuse(UNSIGNED.format(4), "p4")


def test_the_opening_of_an_earlier_request() -> None:
    """What p4 signed in another request is of another run."""
    earlier = CheckedRun(4, request=1).execute()
    masked = earlier.body_of(m.MASKED, "p4")
    simulated = CheckedRun(4, request=2, run=2)
    in_place_of_fourth(simulated, lambda *_: masked.point + masked.signature)
    simulated.assert_all_refuse(UNSIGNED.format(4), "p4")


def test_a_corrupt_party_is_listed_with_a_commitment_that_it_chose_last() -> None:
    """With p4's key: its leaf was fixed before any commitment was shown, and this is not under it."""
    simulated = CheckedRun(4)

    def lie(run: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
        chosen = [7, 7, 7]
        openings = pieces(result.openings)
        target = run.commit(chosen, wide(1))
        point = minus_all(target, [opening[:32] for opening in openings[:3]])
        outcome = run.aggregator.result.evidence
        opening = run.sign_opening("p4", outcome.run_id, outcome.participants.set_digest, point)
        return m.CheckedResult(run.pack(chosen), wide(1), b"".join([*openings[:3], opening]), b"")

    simulated.lie_in_result(lie)
    simulated.assert_all_refuse(ROOT, "p4")


def far_from_bounds(element: int) -> CheckedRun:
    """Return a run in which p4 commits to, and masks, this element beside others."""
    simulated = CheckedRun(4)
    far: RingVector = np.array([element, 5, 5], simulated.encoding.dtype)
    simulated.parties["p4"] = make_party(
        simulated.context, simulated.parameters, simulated.signers["p4"], far, simulated.randomness["p4"]
    )
    return simulated


@pytest.mark.parametrize("lying", [False, True])
def test_a_corrupt_vector_that_leaves_the_range(lying: bool) -> None:
    """What p4 commits to may be anything; a total that no vectors within the bounds have is no value.

    An honest aggregator sends none. Of one that does not check, each party finds it out by itself.
    """
    simulated = far_from_bounds(1_000_000)
    if lying:
        simulated.aggregator.role = LYING
    simulated.execute()
    simulated.assert_no_value("p4")
    for name in ("p1", "p2", "p3"):
        error = simulated.errors[name]
        if lying:
            assert isinstance(error, PeerFault)
            assert (error.culprit, error.check) == (AGGREGATOR, Check.OUT_OF_BOUNDS)
        else:
            assert isinstance(error, VerificationError)
            assert (error.check, error.code) == (Check.REPORTED, Code.EVIDENCE)
        assert ("no 4 vectors within the bounds" in str(error)) == lying
    assert (m.RESULT in {envelope.step for envelope in simulated.sent}) == lying


def test_a_corrupt_vector_that_makes_the_sum_wrap() -> None:
    """The elements that p4 committed to are those that it masks, but their sum has no room in the ring.

    Modulo the order of the group the sum is another one than modulo that of the ring: the aggregator cannot
    tell that from two vectors of p4, and says both.
    """
    simulated = far_from_bounds((1 << 24) - 1)
    simulated.execute()
    assert simulated.encoding.element_bytes == 3
    assert_no_total(simulated)
    assert "or one that makes the sum too large" in str(simulated.errors[AGGREGATOR])


@pytest.mark.parametrize("point", [b"\xff" * 32, wide(1)], ids=bytes.hex)
def test_a_certified_and_signed_commitment_is_no_point(point: bytes) -> None:
    """The aggregator and p4 work together: p4 has committed to these bytes, and has signed them."""
    simulated = CheckedRun(4)

    def tamper(envelope: Envelope) -> tuple[Envelope, ...]:
        if (envelope.step, envelope.sender) == (m.ADVERTISE, "p4"):
            leaf = keys.value_commitment(simulated.context, envelope.run_id, "p4", point)
            return (simulated.advertise_leaf(envelope, leaf),)
        if (envelope.step, envelope.sender) == (m.MASKED, "p4"):
            digest = simulated.aggregator.state.agreed.participation.certificate.set_digest
            shown = simulated.sign_opening("p4", envelope.run_id, digest, point)
            return (simulated.change(envelope, point=shown[:32], signature=shown[32:]),)
        return (envelope,)

    simulated.aggregator.role = LYING
    # That of the aggregator: receivers decode points as they add them up.
    with mock.patch.object(commit, "check_commitment"):
        simulated.execute(tamper)
    simulated.assert_all_refuse("", "p4")
    for name in ("p1", "p2", "p3"):
        error = simulated.errors[name]
        assert isinstance(error, PeerFault)
        assert (error.check, error.accuser) == (Check.BAD_COMMITMENT, "")
