"""Parties of verifiable GOPA add up the total themselves: what a relay that tallies wrongly gets for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import counting
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.counting import CollectOpen, CollectPublish
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.capabilities.gopa.verifiable.recount import narrow, widen
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR
from smpc_dp.engine.state import Transition
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, encode
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import PARTIES, RELAY, Host, RecordedRun, execute, honest, parameters
from tests.faults.gopa_hosts import liar

Tallied = v.Tallied


def more(total: bytes) -> bytes:
    ring_vector = np.frombuffer(total, "<u8").copy()
    ring_vector[:1] += np.uint64(1)
    return ring_vector.tobytes()


class Miscounting(VerifiableAggregator):
    """Puts a total on the board, and signs it, that is one more than the sum."""

    def write_own(self, run_id: bytes, kind: str, message: Any) -> Envelope:
        if kind == v.TALLY:
            message = replace(message, total=more(message.total))
        return super().write_own(run_id, kind, message)


MISCOUNTING = Host(member=Miscounting)


def keep(relay: VerifiableAggregator, state: CollectOpen) -> Transition:
    """Leave what was opened in the total."""
    return counting.finish_open(relay, replace(state, round=replace(state.round, opened={})))


def reported(lie: Callable[[Tallied], Tallied]) -> RecordedRun:
    """Play a run whose relay changes what it shows with its tally, for everybody."""
    return execute(relay=Host(member=liar(v.TALLIED, lambda _relay, _run_id, message: lie(message))))


def refused(ran: RecordedRun, reason: str, parties: Sequence[str] = PARTIES) -> None:
    for name in parties:
        error = ran.errors[name]
        assert isinstance(error, PeerFault), error
        assert error.culprit == RELAY
        assert reason in error.reason
    assert v.CERTIFY_TALLY not in [entry.kind for entry in ran.entries]


@pytest.mark.parametrize("memo", [False, True])
def test_every_user_refuses_a_wrong_total(memo: bool) -> None:
    ran = execute(relay=MISCOUNTING, memo=memo)
    refused(ran, "the total is not the sum of what was published")


def test_what_was_opened_must_come_out_of_the_total() -> None:
    rest = [name for name in PARTIES if name != CHEAT]
    assert not set(execute({CHEAT: off_by_one}).errors) & set(rest)
    ran = execute({CHEAT: off_by_one}, relay=Host(role=AGGREGATOR.with_row(CollectOpen, finish=keep)))
    assert v.OPEN in [entry.kind for entry in ran.entries]
    for name in rest:
        error = ran.errors[name]
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert "the total is not the sum of what was published" in error.reason


def changed(message: Tallied, index: int, body: Callable[[bytes], bytes]) -> Tallied:
    """Return the message with another publication of one party."""
    [claimed] = message.claimed
    bodies = list(claimed.bodies)
    bodies[index] = body(bodies[index])
    return replace(message, claimed=[replace(claimed, bodies=bodies)])


def other_value(body: bytes) -> bytes:
    """Return a publication with another x_hat, as a relay would show it to explain its total."""
    message = decode(body, v.Publish, "")
    return encode(replace(message, x_hat=bytes([message.x_hat[0] ^ 1]) + message.x_hat[1:]))


@pytest.mark.parametrize("index", range(len(PARTIES)))
def test_a_publication_that_is_not_on_the_board_is_refused(index: int) -> None:
    refused(
        reported(lambda message: changed(message, index, other_value)), f"of {PARTIES[index]}, is another"
    )


LIES: dict[str, tuple[Callable[[Tallied], Tallied], str]] = {
    "nothing": (lambda message: replace(message, claimed=[]), "does not show what is in its total"),
    "a round more": (
        lambda message: replace(message, claimed=message.claimed * 2),
        "does not show what is in its",
    ),
    "one less": (
        lambda message: replace(
            message, claimed=[replace(message.claimed[0], bodies=message.claimed[0].bodies[1:])]
        ),
        "does not show what is in its total",
    ),
    "no signatures": (
        lambda message: replace(message, claimed=[replace(message.claimed[0], signatures=b"")]),
        "signatures of 'publish' are due",
    ),
    "another signature": (
        lambda message: replace(
            message,
            claimed=[replace(message.claimed[0], signatures=bytes(len(message.claimed[0].signatures)))],
        ),
        "is another",
    ),
    "no message": (lambda message: changed(message, 1, lambda _: b"\xc1"), "malformed Publish"),
    "a short value": (
        lambda message: changed(
            message, 1, lambda body: encode(replace(decode(body, v.Publish, ""), x_hat=b"x"))
        ),
        "does not show what is in its total",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_what_is_shown_must_be_the_entries(name: str) -> None:
    lie, reason = LIES[name]
    refused(reported(lie), reason)


def test_a_value_that_its_user_did_not_sign_is_not_counted() -> None:
    """The relay writes a publication in a party's name: hashes, total and heads all agree."""

    def finish(relay: VerifiableAggregator, state: CollectPublish) -> Transition:
        state.publications[1] = msgspec.structs.replace(state.publications[1], signature=bytes(64))
        return counting.finish_publish(relay, state)

    ran = execute(relay=Host(role=AGGREGATOR.with_row(CollectPublish, finish=finish)))
    refused(ran, f"{PARTIES[0]} did not sign", PARTIES[1:])


# Parties who do not check.


def test_evidence_says_who_has_checked_and_only_they_vouch() -> None:
    ran = execute(unchecked=PARTIES[1:2])
    assert not ran.errors
    for name, machine in ran.parties.items():
        assert machine.result.evidence.checked is (name != PARTIES[1])
        certificate = machine.result.evidence.survivors
        assert certificate is not None
        assert PARTIES[1] not in certificate.signatures
    assert ran.relay.result.evidence.checked
    assert honest().parties[PARTIES[1]].result.evidence.checked


def test_without_a_quorum_that_has_checked_there_is_no_average() -> None:
    quorum = parameters().plan.quorum
    lazy = PARTIES[: len(PARTIES) - quorum + 1]
    ran = execute(unchecked=lazy)
    error = ran.errors[RELAY]
    assert isinstance(error, TimeoutFault)
    assert error.missing == set(lazy)
    assert f"of the quorum of {quorum} only {quorum - 1} have added up the total" in str(error)
    assert not any(machine.finished and name not in ran.errors for name, machine in ran.parties.items())


def test_a_miscounted_total_needs_a_quorum_that_does_not_check() -> None:
    ran = execute(relay=MISCOUNTING, unchecked=PARTIES[:1])
    for name in PARTIES[1:]:
        assert "is not the sum" in str(ran.errors[name])
    assert v.CERTIFY_TALLY not in [entry.kind for entry in ran.entries]


def test_few_bytes_are_widened_to_what_was_signed() -> None:
    checked = parameters()
    bound = checked.greatest_published
    point = bytes(32)
    for values in ((0, 1), (-1, bound), (-bound, bound), (bound // 2, -2)):
        x_hat = np.array(values, dtype="<i8").tobytes()
        body = encode(v.Publish(x_hat, point, point, b"proof"))
        shorter = narrow(checked, body)
        assert len(shorter) == len(body) - 2 * (8 - checked.published_bytes)
        assert widen(checked, shorter) == body
