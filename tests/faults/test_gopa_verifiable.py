"""Verifiable GOPA: honest runs, parties who leave, and relays that lie to parties."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp import simulate
from smpc_dp.capabilities.gopa.check import check_gopa
from smpc_dp.capabilities.gopa.verifiable import audit as auditing
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator, as_signed
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import ConfigError, PeerFault, TimeoutFault, VerificationError
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list, pack_set, unpack_list
from smpc_dp.wire.signing import decode, encode
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one, with_noise
from smpc_dp_lab.vectors.verifiable_runs import (
    BALL_INPUTS,
    BOX,
    BOX_INPUTS,
    INPUTS,
    NINE,
    PARTIES,
    RELAY,
    Host,
    RecordedRun,
    entry_of,
    execute,
    honest,
    parameters,
)
from tests.audits import of_itself
from tests.faults.gopa_hosts import Deviating, liar

VICTIM = "ann"


def audited(ran: RecordedRun) -> Any:
    log = b"".join(line + b"\n" for line in ran.lines)
    return audit_stream(io.BytesIO(log), wanted=of_itself(log), threads=1)


def test_everybody_gets_the_audited_average() -> None:
    ran = honest()
    assert not ran.errors
    report = audited(ran)
    assert report.ok
    for machine in (ran.relay, *ran.parties.values()):
        outcome = machine.result
        average = outcome.total / outcome.weight
        np.testing.assert_array_equal(average, report.verdict.average)
        assert outcome.survivors == PARTIES
        assert outcome.evidence.survivors is not None
        assert outcome.evidence.survivors.set_digest.hex() == report.verdict.attested


def test_the_total_is_that_of_values_and_noise() -> None:
    ran = honest()
    noise = np.sum([ran.parties[name].secret.given for name in PARTIES], axis=0)
    values = np.sum([INPUTS[name] for name in PARTIES], axis=0)
    np.testing.assert_array_equal(ran.relay.result.total, values + noise)


def assert_total(ran: RecordedRun, inputs: Mapping[str, Any]) -> None:
    noise = np.sum([ran.parties[name].secret.given for name in PARTIES], axis=0)
    values = np.sum([inputs[name] for name in PARTIES], axis=0)
    for machine in (ran.relay, *ran.parties.values()):
        np.testing.assert_array_equal(machine.result.total, values + noise)
    report = audited(ran)
    assert report.ok
    assert report.verdict.average == tuple((values + noise) / 5)


def test_with_a_bounded_norm_the_total_is_that_of_values_and_noise() -> None:
    assert_total(honest(ball=True), BALL_INPUTS)


def test_with_a_range_for_each_coordinate_the_total_is_that_of_values_and_noise() -> None:
    assert_total(honest(setting=BOX), BOX_INPUTS)


def test_an_excluded_user_leaves_the_exact_total_of_the_rest() -> None:
    ran = execute({CHEAT: off_by_one})
    rest = [name for name in PARTIES if name != CHEAT]
    noise = np.sum([ran.parties[name].secret.given for name in rest], axis=0)
    values = np.sum([INPUTS[name] for name in rest], axis=0)
    outcome = ran.relay.result
    np.testing.assert_array_equal(outcome.total, values + noise)
    assert outcome.survivors == tuple(rest)
    assert outcome.noise is not None
    assert outcome.noise.residual_pairs == 0
    assert CHEAT in outcome.faults[0]
    assert "x_hat" in outcome.faults[0]
    error = ran.errors[CHEAT]
    assert isinstance(error, PeerFault)
    assert error.culprit == CHEAT
    assert error.accuser == RELAY


def test_a_withheld_coin_stops_the_run_and_names_its_owner() -> None:
    ran = execute(kill={CHEAT: 7})
    error = ran.errors[RELAY]
    assert isinstance(error, TimeoutFault)
    assert CHEAT in error.missing
    assert not any(decoded.kind == v.PUBLISH for decoded in ran.entries)


def test_silence_excludes_nobody() -> None:
    ran = execute(kill={CHEAT: 9})
    outcome = ran.relay.result
    # four pairwise terms are left, and nothing of the silent party was opened
    assert outcome.noise is not None
    assert outcome.noise.residual_pairs == 4
    assert not any(entry.kind == v.OPEN for entry in ran.entries)


def test_what_is_missing_is_said_and_nobody_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay may withhold what was sent: a log shows what is not there, not whose fault it is."""
    silent = audited(execute(kill={CHEAT: 9}))
    assert silent.faults[0].startswith(f"the board has no publication of {CHEAT}: 4 pairwise terms")
    # The same relay leaves out an opening, and tallies what is left; five parties have no quorum for that.
    monkeypatch.setattr(auditing, "check_certificate", lambda *_: None)
    ran = execute({CHEAT: with_noise(lambda _party: (1, 1))})
    entries = [entry for entry in ran.entries if (entry.party, entry.kind) != (VICTIM, v.OPEN)]
    [index] = [index for index, entry in enumerate(entries) if entry.kind == v.TALLY]
    tally, opened = decode(entries[index].payload, v.Tally, RELAY), entry_of(ran, v.OPEN, VICTIM)
    delta = np.frombuffer(decode(opened.payload, v.Open, VICTIM).deltas, "<u8")
    total = (np.frombuffer(tally.total, "<u8") + delta).tobytes()
    entries[index] = ran.sign(entries[index], encode(replace(tally, total=total, residual_pairs=1)))
    lines = ran.log(entries)
    unopened = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in lines)), threads=1)
    assert [item.party for item in unopened.excluded] == [CHEAT]
    assert unopened.verdict is not None
    assert unopened.verdict.silent == ()
    assert unopened.faults[0].startswith(f"the board has no opening of {VICTIM}: 1 pairwise terms")


def test_whoever_is_lost_before_it_commits_is_only_absent() -> None:
    ran = execute(kill={CHEAT: 5})
    report = audited(ran)
    assert report.ok
    assert CHEAT not in report.verdict.counted
    assert not report.excluded


@pytest.mark.parametrize("message", [8, 10, 11])
def test_what_was_sent_counts_though_its_user_is_lost(message: int) -> None:
    """Lost after its coin, its publication, or its openings; the second-last it does not even attest."""
    ran = execute(kill={CHEAT: message})
    if message == 8:
        # It has opened its coin, and publishes nothing.
        assert audited(ran).verdict.silent == (CHEAT,)
        return
    report = audited(ran)
    assert report.ok
    assert CHEAT in report.verdict.counted


def test_a_total_that_cannot_be_is_refused() -> None:
    class Inventing(VerifiableAggregator):
        def write_own(self, run_id: bytes, kind: str, message: Any) -> Envelope:
            if kind == v.TALLY:
                total = np.frombuffer(message.total, "<u8") + np.uint64(10_000)
                message = replace(message, total=total.tobytes())
            return super().write_own(run_id, kind, message)

    ran = execute(relay=Host(member=Inventing))
    for name in PARTIES:
        assert isinstance(ran.errors[name], VerificationError)
    assert "somebody lies" in str(ran.errors["ann"])


# A relay that lies to parties.


def reported(step: str, lie: Callable[[Any], msgspec.Struct], *, only: str = VICTIM) -> RecordedRun:
    """Change what the aggregator tells one party in one step."""
    return execute(relay=Host(member=liar(step, lambda _relay, _run_id, message: lie(message), (only,))))


def refused(ran: RecordedRun, reason: str, who: str = VICTIM) -> None:
    error = ran.errors[who]
    assert isinstance(error, PeerFault), error
    assert error.culprit == RELAY
    assert reason in error.reason


def shown(ran: RecordedRun) -> list[str]:
    return [entry.kind for entry in ran.entries]


def test_a_changed_commitment_is_refused() -> None:
    def lie(message: v.Committed) -> v.Committed:
        first = message.commits[0]
        changed = replace(decode(first.body, v.Commit, ""), edges=bytes(4 * 32))
        return replace(
            message, commits=[replace(first, body=msgspec.msgpack.encode(changed)), *message.commits[1:]]
        )

    refused(reported(v.COMMITTED, lie), "did not sign")


def test_a_withheld_commitment_is_refused() -> None:
    def lie(message: v.Committed) -> v.Committed:
        return replace(message, commits=message.commits[1:])

    refused(reported(v.COMMITTED, lie), "not those of the neighbours")


def test_a_board_without_ones_own_entry_is_refused() -> None:
    def lie(message: v.Committed) -> v.Committed:
        return replace(message, digests=bytes(32) + message.digests[32:])

    refused(reported(v.COMMITTED, lie), f"does not have the entry '{v.COMMIT}' of {VICTIM}")


def test_a_board_without_a_neighbours_entry_is_refused() -> None:
    def lie(message: v.Committed) -> v.Committed:
        return replace(message, digests=message.digests[:32] + bytes(32) + message.digests[64:])

    refused(reported(v.COMMITTED, lie), "does not have the entry 'commit' of ben")


def test_another_set_for_one_user_gets_no_quorum_there() -> None:
    """A split view: the victim signs another head than the others."""

    def lie(message: v.Committed) -> v.Committed:
        retained = [item for item in message.commits if item.party != 5]
        return replace(message, participants=pack_set([1, 2, 3, 4], len(PARTIES)), commits=retained)

    ran = reported(v.COMMITTED, lie)
    # its attestation is of another set, which an honest relay takes for its fault; a lying one cannot use it
    assert isinstance(ran.errors[VICTIM], PeerFault)
    assert v.PUBLISH not in shown(ran)


def test_another_coin_is_refused() -> None:
    def lie(message: v.Coins) -> v.Coins:
        return replace(message, coins=message.coins[:32] + bytes(32) + message.coins[64:])

    ran = reported(v.COINS, lie)
    refused(ran, "the coin of ben is not what it has committed to")


def test_a_certificate_that_was_not_signed_is_refused() -> None:
    def lie(message: v.Certificate) -> v.Certificate:
        certified = decode(message.payload, m.Certified, "")
        few = replace(certified, signers=pack_set([1], len(PARTIES)), signatures=certified.signatures[:64])
        return replace(message, payload=msgspec.msgpack.encode(few))

    for step in (v.COMMITMENTS_CERTIFICATE, v.COINS_CERTIFICATE):
        refused(reported(step, lie), "signatures, 4 are due")


def published_first(relay: Deviating) -> m.Advertisement:
    """Return the first publication in the log, which is the victim's."""
    return as_signed(1, relay.logged[v.PUBLISH][1])


def test_nobody_opens_an_edge_to_a_user_that_said_nothing_false() -> None:
    """The relay keeps an honest party's x_hat and claims that it is false, to be left with its value."""

    class Stripping(Deviating):
        def write(
            self, run_id: bytes, step: str, parties: Iterable[int], message: msgspec.Struct
        ) -> list[Envelope]:
            if isinstance(message, v.Publications):
                shown = [] if 1 in parties else [published_first(self)]
                message = replace(message, false=pack_list([1]), shown=shown)
            return super().write(run_id, step, parties, message)

    ran = execute(relay=Host(member=Stripping))
    for name in PARTIES[1:]:
        refused(ran, f"says that {VICTIM} said something false, and it did not", name)
    refused(ran, f"says that {VICTIM} has signed something false")
    assert v.OPEN not in shown(ran)


def test_a_forged_false_publication_is_refused() -> None:
    def lie(relay: Deviating, _run_id: bytes, message: v.Publications) -> v.Publications:
        real = published_first(relay)
        forged = msgspec.msgpack.encode(replace(decode(real.body, v.Publish, ""), x_hat=bytes(16)))
        return replace(message, false=pack_list([1]), shown=[replace(real, body=forged)])

    ran = execute(relay=Host(member=liar(v.PUBLICATIONS, lie)))
    for name in PARTIES[1:]:
        refused(ran, f"that {VICTIM} did not sign", name)
    assert v.OPEN not in shown(ran)


def without(message: v.Publications, party: int) -> v.Publications:
    authors = unpack_list(message.authors, len(PARTIES), "")
    retained = [index for index, number in enumerate(authors) if number != party]
    digests = b"".join(message.digests[32 * index : 32 * index + 32] for index in retained)
    return replace(message, authors=pack_list([authors[index] for index in retained]), digests=digests)


@pytest.mark.parametrize(
    ("false", "reason"),
    [
        ([4], "false that there are not"),
        ([0], "not ascending"),
        ([6], "not ascending"),
        ([2], "does not show"),
    ],
)
def test_a_false_publication_of_nobody_is_refused(false: list[int], reason: str) -> None:
    refused(
        reported(v.PUBLICATIONS, lambda message: replace(without(message, 4), false=pack_list(false))), reason
    )


@pytest.mark.parametrize("party", [0, -1, 4, 6, 1 << 40])
def test_what_nobody_said_is_not_shown(party: int) -> None:
    def lie(message: v.Publications) -> v.Publications:
        shown = [m.Advertisement(party, b"", bytes(64))]
        return replace(without(message, 4), false=pack_list([2]), shown=shown)

    refused(reported(v.PUBLICATIONS, lie), "does not show what neighbours said")


def test_a_user_sees_that_its_publication_is_left_out() -> None:
    refused(reported(v.PUBLICATIONS, lambda message: without(message, 1)), "left the publication of ann out")


def test_a_user_sees_that_it_is_not_counted() -> None:
    def lie(message: v.Tallied) -> v.Tallied:
        tally = replace(decode(message.tally, v.Tally, ""), counted=pack_set([2, 3, 4, 5], len(PARTIES)))
        return replace(message, tally=msgspec.msgpack.encode(tally))

    refused(reported(v.TALLIED, lie), "left ann out of the average")


def test_a_tally_that_the_relay_did_not_sign_is_refused() -> None:
    def lie(message: v.Tallied) -> v.Tallied:
        tally = replace(decode(message.tally, v.Tally, ""), residual_pairs=7)
        return replace(message, tally=msgspec.msgpack.encode(tally))

    refused(reported(v.TALLIED, lie), "invalid signature")


# Parameters.


def test_the_plan_is_replanned_when_more_were_corrupt() -> None:
    checked = parameters()
    assert checked.epsilon_without(0) == checked.epsilon_without(1) == 8.0
    assert checked.event_without(0) == checked.event_without(1) == checked.event()
    assert checked.epsilon_without(2) > 8.0
    assert checked.epsilon_without(4) == float("inf")
    assert checked.privacy(4, 2).epsilon == checked.epsilon_without(2)
    # Where nobody is corrupt by the plan one party is curious, and who is excluded may be another.
    alone, _ = check_gopa({**NINE.declared, "epsilon": 2.5, "corrupt": 0.0}, len(NINE.inputs))
    assert isinstance(alone, VerifiableParameters)
    assert alone.epsilon_without(0) == 2.5
    one_corrupt, _ = check_gopa({**NINE.declared, "epsilon": 2.5, "corrupt": 0.12}, len(NINE.inputs))
    assert isinstance(one_corrupt, VerifiableParameters)
    assert one_corrupt.epsilon_without(1) == 2.5
    assert alone.session.honest == one_corrupt.session.honest
    for excluded in (1, 2, 3):
        assert alone.epsilon_without(excluded) == one_corrupt.epsilon_without(excluded + 1)
    assert alone.epsilon_without(2) > alone.epsilon_without(1) > 2.5
    nothing = checked.privacy(2, 4)
    assert nothing.epsilon is None
    assert nothing.claim.startswith("none: 4 parties were corrupt")


def test_a_ledger_is_charged_for_what_the_noise_shows() -> None:
    checked = parameters()
    event, delta = checked.event(), checked.session.delta
    assert Composition([event]).epsilon(delta) <= 8.0
    # The planned epsilon alone would give 80, or with the same delta for each nothing below that.
    assert Composition([event] * 10).epsilon(10 * delta) < 0.6 * 80
    # Never less than what the planner's own events, one after the other, compose to.
    two = checked._noise_of(checked.session.honest).events()
    assert Composition([event]).epsilon(delta) >= Composition(two).epsilon(delta) - 1e-9


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"verifiable": "yes"}, "verifiable"),
        ({"verifiable": True, "on_dropout": "roll-back"}, "on_dropout"),
        ({"verifiable": True, "precision": 1e-6}, "precision"),
        ({"verifiable": True, "length": 5000}, "length"),
        ({"verifiable": True, "precision": 1.0}, None),
    ],
)
def test_parameters_are_checked(changes: dict[str, object], where: str | None) -> None:
    given: dict[str, object] = {"length": 1, "lower": 0, "upper": 1, "epsilon": 2.0, "delta": 1e-5}
    checked, faults = check_gopa(given | changes, 10)
    if where is None:
        assert isinstance(checked, VerifiableParameters)
        assert checked.bounds == (0, 1)
    else:
        assert checked is None
        assert where in {fault.where for fault in faults}


@pytest.mark.parametrize("verifiable", [False, True])
@pytest.mark.parametrize("epsilon", [1e-99, 1e-45, 1e-30])
def test_a_plan_that_cannot_be_is_refused_in_the_words_of_a_session(epsilon: float, verifiable: bool) -> None:
    given = {
        "length": 1,
        "lower": 0,
        "upper": 1,
        "epsilon": epsilon,
        "delta": 1e-30,
        "verifiable": verifiable,
    }
    checked, faults = check_gopa(given, 3)
    assert checked is None
    assert {fault.where for fault in faults} <= {"epsilon", "precision"}, faults
    assert not any("sigma" in fault.reason for fault in faults)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, None),
        ({"precision": 0.25}, None),
        ({"precision": 1e-3}, "precision"),
        ({"precision": 4.0}, "precision"),
        ({"length": 5000}, "length"),
        ({"lower": 0.0}, "lower"),
        ({"l2_bound": -1.0}, "l2_bound"),
        ({"l2_bound": 1e280}, None),
        ({"l2_bound": 1e300}, "precision"),
        ({"epsilon": 1e-3, "precision": 0.1}, "precision"),
    ],
)
def test_parameters_with_a_bound_on_the_norm_are_checked(
    changes: dict[str, object], where: str | None
) -> None:
    given: dict[str, object] = {
        "length": 20,
        "l2_bound": 1.0,
        "epsilon": 2.0,
        "delta": 1e-5,
        "verifiable": True,
    }
    checked, faults = check_gopa(given | changes, 10)
    if where is None:
        assert isinstance(checked, VerifiableParameters), faults
        event = checked.event()
        assert Composition([event]).epsilon(checked.session.delta) <= checked.session.epsilon
        assert checked.epsilon_without(2) > checked.session.epsilon
    else:
        assert checked is None
        assert where in {fault.where for fault in faults}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, None),
        ({"precision": 0.25}, None),
        ({"precision": 0.001}, "precision"),
        ({"precision": 2.0}, "precision"),
        ({"lower": -1.0}, None),
        ({"lower": [-1.0, -1.0, -1.0]}, None),
        ({"lower": [0.0, 1.0]}, "lower"),
        ({"lower": [0.0, 2.0, 0.0]}, "lower"),
        ({"upper": [1.0, 2.0, math.inf]}, "upper"),
        ({"upper": [1.0, "a", 2.0]}, "upper"),
        ({"upper": [1.0, 2.0, 1 << 3000]}, "upper"),
        ({"upper": [1.0, 2.0, 1e300]}, "precision"),
        ({"length": 2}, "lower"),
        ({"epsilon": 1e-3, "precision": 0.1}, "precision"),
    ],
)
def test_parameters_with_a_range_for_each_coordinate_are_checked(
    changes: dict[str, object], where: str | None
) -> None:
    given: dict[str, object] = {
        "length": 3,
        "lower": [0.0, -1.0, 0.5],
        "upper": [1.0, 2.0, 1.0],
        "epsilon": 2.0,
        "delta": 1e-5,
        "verifiable": True,
    }
    checked, faults = check_gopa(given | changes, 10)
    if where is None:
        assert isinstance(checked, VerifiableParameters), faults
        encoding = checked.encoding
        assert checked.box is not None
        assert [high - low for low, high in zip(*checked.box, strict=True)] == encoding.widths
        event = checked.event()
        assert Composition([event]).epsilon(checked.session.delta) <= checked.session.epsilon
        assert checked.epsilon_without(2) > checked.session.epsilon
        # As for the plain run: the sensitivity is the diagonal of the box.
        assert checked.session.curator_deviation == pytest.approx(
            encoding.diameter / gaussian_mu(2.0, 1e-5), rel=1e-9
        )
    else:
        assert checked is None
        assert where in {fault.where for fault in faults}


def test_a_total_is_held_against_the_range_of_each_coordinate() -> None:
    checked = parameters(BOX)
    most = 5 * checked.bits // 2
    # Steps above -1: 2 to 5, and 0 to 4.
    checked.check_total([10 - most, -most], 5, 0)
    checked.check_total([25 + most, 20 + most], 5, 0)
    for total in ([9 - most, 0], [10, -1 - most], [26 + most, 0], [10, 21 + most]):
        with pytest.raises(VerificationError, match="somebody lies"):
            checked.check_total(total, 5, 0)
        checked.check_total(total, 5, 1)


def test_verifiable_is_for_gopa() -> None:
    values = np.zeros((5, 1))
    with pytest.raises(ConfigError, match="verifiable"):
        simulate.average(values, lower=0, upper=1, verifiable=True)
    with pytest.raises(ConfigError, match="board"):
        simulate.average(values, lower=0, upper=1, board="x.jsonl")
