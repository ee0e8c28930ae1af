"""Malicious parties of a checked total: excluded by name, or nobody is named and no total is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from smpc_dp.crypto import commit
from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.privacy.secagg_plan import check_plan, plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR as RELAY
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_lab.bench.roles import sum_roles
from tests.faults.checked_totals import ORDER, CheckedRun, assert_no_total, plus, wide
from tests.faults.simulated import AGGREGATOR, by

BAD = "p3"


def masking(change: Callable[[CheckedRun, Envelope, m.CheckedMasked], dict[str, Any]]) -> CheckedRun:
    """Run a session of four in which one party changes fields of its `masked`."""
    simulated = CheckedRun(4)

    def hand(envelope: Envelope) -> Iterable[Envelope]:
        message = decode(envelope.body, m.CheckedMasked, BAD)
        return (simulated.change(envelope, **change(simulated, envelope, message)),)

    return simulated.execute(by(m.MASKED, BAD, hand))


def off_by(*changes: int) -> Callable[[CheckedRun, Envelope, m.CheckedMasked], dict[str, Any]]:
    def change(simulated: CheckedRun, _: Envelope, message: m.CheckedMasked) -> dict[str, Any]:
        lanes = simulated.encoding.unpack(message.vector).copy()
        lanes += np.array(changes, np.int64).astype(lanes.dtype)
        return {"vector": simulated.encoding.pack(lanes)}

    return change


@pytest.mark.parametrize(
    "change",
    [
        off_by(1, 0, 0),
        off_by(0, 0, 1 << 23),
        off_by(1, -1, 0),
        lambda _run, _, message: {"blinding": plus(message.blinding, 1)},
    ],
)
def test_another_vector_than_committed(
    change: Callable[[CheckedRun, Envelope, m.CheckedMasked], dict[str, Any]],
) -> None:
    """The run stops without a total, and nobody is named: each error says that it may be the aggregator."""
    assert_no_total(masking(change))


def signed_later(simulated: CheckedRun, envelope: Envelope, point: bytes) -> dict[str, Any]:
    digest = simulated.aggregator.state.agreed.participation.certificate.set_digest
    opening = simulated.sign_opening(BAD, envelope.run_id, digest, point)
    return {"point": opening[:32], "signature": opening[32:]}


def signed_for(
    simulated: CheckedRun, envelope: Envelope, message: m.CheckedMasked, **changes: Any
) -> dict[str, Any]:
    """Return the signature of the same commitment in another place: another run, set or party."""
    digest = simulated.aggregator.state.agreed.participation.certificate.set_digest
    given = {"run_id": envelope.run_id, "digest": digest, "name": BAD} | changes
    opening = simulated.sign_opening(BAD, given["run_id"], given["digest"], message.point, given["name"])
    return {"signature": opening[32:]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda simulated, envelope, _: signed_later(
                simulated, envelope, simulated.commit([1, 1, 1], wide(9))
            ),
            "sent another commitment than it had advertised",
        ),
        (
            lambda simulated, envelope, _: signed_later(simulated, envelope, simulated.committed["p2"].point),
            "sent another commitment than it had advertised",
        ),
        (lambda *_: {"signature": bytes(64)}, f"shows a commitment that {BAD} did not sign"),
        (
            lambda simulated, envelope, message: signed_for(simulated, envelope, message, run_id=bytes(32)),
            f"shows a commitment that {BAD} did not sign",
        ),
        (
            lambda simulated, envelope, message: signed_for(simulated, envelope, message, digest=bytes(32)),
            f"shows a commitment that {BAD} did not sign",
        ),
        (
            lambda simulated, envelope, message: signed_for(simulated, envelope, message, name="p2"),
            f"shows a commitment that {BAD} did not sign",
        ),
        (lambda *_: {"blinding": wide(ORDER)}, "malformed Masked: blinding: not the encoding of a scalar"),
        (lambda *_: {"blinding": b"\xff" * 32}, "malformed Masked: blinding: not the encoding of a scalar"),
        (lambda _run, _e, message: {"vector": message.vector + b"\0"}, "malformed Masked"),
    ],
)
def test_what_its_own_message_shows_excludes_a_party(
    change: Callable[[CheckedRun, Envelope, m.CheckedMasked], dict[str, Any]], reason: str
) -> None:
    """It is excluded by name, and the others have their exact sum without it, checked."""
    simulated = masking(change)
    simulated.assert_out(BAD, reason)
    simulated.assert_sum(BAD)
    assert set(simulated.errors) == {BAD}


@pytest.mark.parametrize("field", ["point", "blinding", "signature"])
def test_a_field_of_another_length(field: str) -> None:
    simulated = masking(lambda _run, _e, message: {field: getattr(message, field)[:-1]})
    simulated.assert_out(BAD, "malformed CheckedMasked")
    simulated.assert_sum(BAD)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_hash_of_another_length(length: int) -> None:
    simulated = CheckedRun(4)
    simulated.execute(by(m.ADVERTISE, BAD, lambda e: (simulated.change(e, value_commitment=bytes(length)),)))
    simulated.assert_out(BAD, "malformed CheckedAdvertise")
    simulated.assert_sum(BAD)


def test_an_unchecked_message_in_a_checked_run() -> None:
    """A party whose message has no commitment cannot take part in a checked sum."""
    simulated = CheckedRun(4)

    def plain(envelope: Envelope) -> Iterable[Envelope]:
        message = decode(envelope.body, m.CheckedMasked, BAD)
        return (simulated.write(envelope, m.Masked(message.vector, message.bad_dealers)),)

    simulated.execute(by(m.MASKED, BAD, plain))
    simulated.assert_out(BAD, "malformed CheckedMasked")
    simulated.assert_sum(BAD)


@pytest.mark.parametrize("point", [b"\xff" * 32, wide(1), b"\x00" * 31 + b"\x80"], ids=bytes.hex)
def test_no_group_element(point: bytes) -> None:
    """A hash of anything can be advertised: the bytes are refused when they are shown."""
    simulated = CheckedRun(4)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.sender) == (m.ADVERTISE, BAD):
            leaf = keys.value_commitment(simulated.context, envelope.run_id, BAD, point)
            return (simulated.advertise_leaf(envelope, leaf),)
        if (envelope.step, envelope.sender) == (m.MASKED, BAD):
            return (simulated.change(envelope, **signed_later(simulated, envelope, point)),)
        return (envelope,)

    simulated.execute(tamper)
    simulated.assert_out(BAD, "malformed Masked")
    simulated.assert_sum(BAD)


def test_without_room_for_a_dropout_the_run_ends_and_names_the_party() -> None:
    """A bad party more than the plan tolerates stops the run; no total is sent, no other party is named."""
    simulated = CheckedRun(4, plan=plan_secagg(4, dropout=0.0, corrupt=0.0))
    simulated.execute(by(m.MASKED, BAD, lambda e: (simulated.change(e, signature=bytes(64)),)))
    simulated.assert_too_few()
    assert m.RESULT not in {envelope.step for envelope in simulated.sent}
    for name in simulated.names:
        error = simulated.errors[name]
        if name == BAD:
            # What it is told of itself, on the aggregator's word.
            assert isinstance(error, PeerFault)
            assert (error.culprit, error.accuser) == (BAD, AGGREGATOR)
        else:
            assert isinstance(error, TimeoutFault)
            assert error.missing == {BAD}


def test_a_masked_blinding_opens_nothing() -> None:
    """The blinding of `masked` is hidden as the vector is; the sum of all of them is what a result opens."""
    simulated = CheckedRun(4).execute()
    for name in simulated.names:
        message, committed = simulated.body_of(m.MASKED, name), simulated.committed[name]
        assert message.blinding != committed.blinding
        assert simulated.commit(simulated.lanes[name], committed.blinding) == message.point
    [result] = {envelope.body for envelope in simulated.sent if envelope.step == m.RESULT}
    blindings = [committed.blinding for committed in simulated.committed.values()]
    assert decode(result, m.CheckedResult, AGGREGATOR).blinding == commit.add_blindings(blindings)


# Parties that are lost


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("message", range(1, 10))
def test_a_party_is_lost_before_each_message(message: int, sparse: bool, weights: bool) -> None:
    """From its masked vector on it stays in the sum, before it is out; all results are the same."""
    parties = 6
    plan = (
        check_plan(6, 3, 2, dropout=0.34, corrupt=0.0) if sparse else plan_secagg(6, dropout=0.2, corrupt=0.0)
    )
    encoding = Encoding.plan(
        length=2, lower=-5.0, upper=5.0, precision=1e-3, parties=parties, max_weight=9 if weights else 0
    )
    vectors = list(np.random.default_rng(message).uniform(-5, 5, (parties, 2)))
    given = [1, 2, 3, 0, 9, 5] if weights else None
    parameters = SecAggParameters(encoding, plan, total="checked")
    roles, _ = sum_roles(parameters, vectors, weights=given, seed_for_simulation=message)
    lost = roles.context.names[2]
    errors = drive(roles.machines, MemoryNetwork(Faults(kill={lost: message})), RELAY)
    assert set(errors) <= {lost}, errors
    outcome = roles.aggregator.result
    stays = message > 6
    assert outcome.survivors == tuple(n for n in roles.context.names if stays or n != lost)
    indices = [roles.context.names.index(name) for name in outcome.survivors]
    rows = [vectors[index] for index in indices]
    if given is None:
        expected = fixed_point_sum(encoding, rows)
    else:
        weighted = [encoding.encode(vectors[i], party="p", weight=given[i])[0] for i in indices]
        expected, weight = encoding.decode(sum(weighted, encoding.zeros()), len(indices))
        assert outcome.weight == weight == sum(given[i] for i in indices)
    np.testing.assert_array_equal(outcome.total, expected)
    for party in roles.parties:
        if party.name != lost:
            np.testing.assert_array_equal(party.result.total, expected)
            assert party.result.evidence.checked is True


def test_a_party_that_was_excluded_after_it_masked_stays_in_the_sum() -> None:
    """A bad attestation of the survivors excludes the party, not its vector: its commitment is shown."""
    simulated = CheckedRun(4)
    simulated.execute(by(m.ATTEST_SURVIVORS, BAD, lambda e: (simulated.change(e, set_digest=bytes(32)),)))
    simulated.assert_out(BAD, "attests another set")
    simulated.assert_sum()
