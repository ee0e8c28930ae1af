"""More of what parties do wrong: one bad signed share, other operations, impossible sums, late hellos."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from smpc_dp.crypto import shamir
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Encoding
from smpc_dp.engine.events import Cancellation, Conviction, Deadline, Message, Start
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, Code, PeerFault, TimeoutFault, VerificationError
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import MemoryNetwork
from smpc_dp.wire.abort import ABORT
from smpc_dp.wire.envelope import Envelope
from smpc_dp_lab.bench.roles import Roles, sum_roles

PARTIES = 10


def session(**plan: float) -> Roles:
    parameters = SecAggParameters(
        encoding=Encoding.plan(length=2, lower=0, upper=100, precision=None, parties=PARTIES),
        plan=plan_secagg(PARTIES, dropout=plan.get("dropout", 0.2), corrupt=plan.get("corrupt", 0.1)),
    )
    return sum_roles(parameters, [np.array([i, 1]) for i in range(PARTIES)], seed_for_simulation=5)[0]


def spoil_shares(monkeypatch: pytest.MonkeyPatch, call: int, indices: Sequence[int]) -> None:
    """Let the `call`-th sharing of the run give wrong shares at some places; its dealer signs them all."""
    split, calls = shamir.split, iter(range(1, 1000))

    def wrong(secret: bytes, threshold: int, holders: Sequence[int], randomness: Randomness) -> list[bytes]:
        shares = split(secret, threshold, holders, randomness)
        if next(calls) == call:
            for index in indices:
                shares[index] = bytes(32)
        return shares

    monkeypatch.setattr(shamir, "split", wrong)


@pytest.mark.parametrize("index", [0, 3, 8])
def test_one_wrong_signed_share_is_left_out(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    spoil_shares(monkeypatch, 2, [index])  # the self-mask seed of the first party that deals
    new_run = session()
    assert not drive(new_run.machines, MemoryNetwork(), AGGREGATOR)
    assert new_run.aggregator.result.total.tolist() == [45, PARTIES]
    used = index < new_run.aggregator.member.parameters.plan.threshold
    assert (
        any("a share that does not fit the others" in text for text in new_run.aggregator.result.faults)
        == used
    )


def test_two_wrong_signed_shares_stop_the_run_with_the_name_of_the_dealer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil_shares(monkeypatch, 2, [0, 1])
    new_run = session()
    errors = drive(new_run.machines, MemoryNetwork(), AGGREGATOR)
    assert {type(error) for error in errors.values()} == {PeerFault}
    assert {error.culprit for error in errors.values() if isinstance(error, PeerFault)} == {"party-00001"}


def test_who_asks_another_question_is_excluded_and_the_most_frequent_one_is_answered() -> None:
    new_run = session()
    for index in (2, 7):
        party = new_run.parties[index]
        context = dataclasses.replace(party.member.context, operation="weight")
        party.member = dataclasses.replace(party.member, context=context)
    errors = drive(new_run.machines, MemoryNetwork(), AGGREGATOR)
    assert set(errors) == {"party-00003", "party-00008"}
    for name, error in errors.items():
        assert isinstance(error, PeerFault)
        assert (error.culprit, error.accuser) == (name, AGGREGATOR)
        assert error.code == Code.OPERATION
        assert f"{name}: asks 'weight', the others ask ''" in new_run.aggregator.result.faults
    assert new_run.aggregator.result.total.tolist() == [45 - 2 - 7, PARTIES - 2]


def test_an_impossible_sum_is_refused_by_all_and_blames_nobody() -> None:
    """A party that adds more than its bound is not seen alone; a total beyond all bounds is."""
    new_run = session()
    ring_vector = new_run.parties[4].state.vector
    ring_vector += 2000
    errors = drive(new_run.machines, MemoryNetwork(), AGGREGATOR)
    assert set(errors) == {AGGREGATOR, *new_run.context.names}
    assert {type(error) for error in errors.values()} == {VerificationError}


def test_everybody_is_told_when_an_exclusion_ends_the_run() -> None:
    new_run = session(dropout=0.0)
    aggregator = new_run.aggregator
    for party in new_run.parties[:-1]:
        aggregator.handle(Message(party.handle(Start())[0]))
    with pytest.raises(TimeoutFault) as caught:
        aggregator.handle(Deadline())
    reported = aggregator.handle(Cancellation(caught.value))
    assert {envelope.receiver for envelope in reported} == set(new_run.context.names)
    assert {envelope.step for envelope in reported} == {ABORT}


def test_a_late_hello_is_answered_once_and_only_if_it_is_signed() -> None:
    new_run = session()
    aggregator, late = new_run.aggregator, new_run.parties[-1]
    (hello,) = late.handle(Start())
    for party in new_run.parties[:-1]:
        aggregator.handle(Message(party.handle(Start())[0]))
    aggregator.handle(Deadline())
    assert aggregator.step == m.ADVERTISE
    forged = Envelope(hello.run_id, hello.step, hello.sender, hello.receiver, hello.body, bytes(64))
    assert aggregator.handle(Message(forged)) == ()
    (abort,) = aggregator.handle(Message(hello))
    assert (abort.step, abort.receiver) == (ABORT, late.name)
    assert aggregator.handle(Message(hello)) == ()
    with pytest.raises(TimeoutFault) as caught:
        late.handle(Message(abort))
    assert caught.value.missing == {late.name}


def test_a_convicted_party_stays_out() -> None:
    new_run = session()
    fault = PeerFault("party-00003", "dealt shares that do not fit", Check.BAD_SHARE)
    assert new_run.aggregator.handle(Conviction("party-00003", fault))[0].receiver == "party-00003"
    errors = drive(new_run.machines, MemoryNetwork(), AGGREGATOR)
    assert set(errors) == {"party-00003"}
    assert "party-00003" in new_run.aggregator.result.absent
