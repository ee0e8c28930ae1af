"""Parties that sign something false are excluded beyond the tolerated losses, if everybody sees it."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import collecting
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.collecting import CollectCommit
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters, check_parameters
from smpc_dp.capabilities.gopa.verifiable.statements import BOUNDS, COMMIT_MALFORMED, FALSE, MALFORMED
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR
from smpc_dp.capabilities.gopa.versions import EARLIER_VERSION, VERSION
from smpc_dp.engine.collector import Item
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.log import MAX_LINE_BYTES, Entry, encode_line
from smpc_dp.privacy.gopa.verifiable import greatest_bias
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list
from smpc_dp_lab.vectors.verifiable_parties import (
    CHEAT,
    OTHER,
    at,
    cut_proof,
    off_by_one,
    out_of_range,
    too_far_out,
)
from smpc_dp_lab.vectors.verifiable_runs import (
    INPUTS,
    NINE,
    PARAMETERS,
    PARTIES,
    RELAY,
    UNSAID,
    Host,
    RecordedRun,
    Setting,
    execute,
    parameters,
)
from tests.faults.gopa_hosts import liar, losing

# Nobody may be lost.
ALL = Setting(INPUTS, PARAMETERS | {"dropout": 0})
TOO_FAR = out_of_range((5, 0))
REST = tuple(name for name in PARTIES if name != CHEAT)


def audited(ran: RecordedRun) -> Any:
    return audit_stream(io.BytesIO(b"".join(line + b"\n" for line in ran.lines)), threads=1)


@pytest.mark.parametrize("cheat", [TOO_FAR, off_by_one])
def test_one_cheat_does_not_end_a_run_in_which_nobody_may_be_lost(cheat: Any) -> None:
    ran = execute({CHEAT: cheat}, setting=ALL)
    noise = np.sum([ran.parties[name].secret.given for name in REST], axis=0)
    values = np.sum([INPUTS[name] for name in REST], axis=0)
    assert set(ran.errors) == {CHEAT}
    for machine in (ran.relay, *(ran.parties[name] for name in REST)):
        np.testing.assert_array_equal(machine.result.total, values + noise)
        assert machine.result.survivors == REST
        assert machine.result.privacy.guarantee is not None
        assert machine.result.privacy.guarantee.epsilon == PARAMETERS["epsilon"]
    report = audited(ran)
    assert report.code == 3, report.conclusion
    assert [item.party for item in report.excluded] == [CHEAT]


def raw(body: bytes) -> Any:
    """Sign these bytes."""
    return lambda *_: msgspec.Raw(body)


@pytest.mark.parametrize(
    ("cheat", "reason"),
    [
        (too_far_out, BOUNDS),
        (at(v.PUBLISH, cut_proof), MALFORMED),
        (at(v.PUBLISH, raw(b"")), MALFORMED),
        (at(v.PUBLISH, raw(bytes(1 << 14))), MALFORMED),
        (at(v.PUBLISH, raw(b"\x94\xc4\x00\xc4")), MALFORMED),
        (at(v.PUBLISH, lambda _party, message: replace(message, x_hat=b"")), MALFORMED),
        (at(v.PUBLISH, lambda _party, message: replace(message, blinding=b"\xff" * 32)), MALFORMED),
    ],
)
def test_a_signed_publication_that_is_no_right_one_excludes_its_author(cheat: Any, reason: str) -> None:
    ran = execute({CHEAT: cheat}, setting=ALL)
    noise = np.sum([ran.parties[name].secret.given for name in REST], axis=0)
    total = np.sum([INPUTS[name] for name in REST], axis=0) + noise
    assert set(ran.errors) == {CHEAT}
    for machine in (ran.relay, *(ran.parties[name] for name in REST)):
        np.testing.assert_array_equal(machine.result.total, total)
        assert machine.result.survivors == REST
    assert ran.relay.result.faults == (f"{CHEAT}: {FALSE[reason]}",)
    report = audited(ran)
    assert report.code == 3, report.conclusion
    assert [(item.party, item.reason) for item in report.excluded] == [(CHEAT, FALSE[reason])]


def test_the_same_without_its_authors_signature_excludes_nobody() -> None:
    ran = execute({CHEAT: too_far_out}, setting=ALL)
    entries = [
        ran.sign(entry, signer=OTHER) if (entry.party, entry.kind) == (CHEAT, v.PUBLISH) else entry
        for entry in ran.entries
    ]
    lines = ran.log(entries)
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in lines)), threads=1)
    assert report.code == 1
    assert not report.excluded
    assert "was not signed by it" in report.conclusion


@pytest.mark.parametrize(
    "commits",
    [
        raw(b""),
        raw(bytes(1 << 14)),
        lambda _party, message: replace(message, edges=b"\xff" * 32 + message.edges[32:]),
        lambda _party, message: replace(message, value=b"\xff" * 32),
        lambda _party, message: replace(message, neighbours=message.neighbours[::-1]),
        lambda party, message: replace(message, neighbours=pack_list([1, 2, 3, party.member.index])),
        lambda _party, message: replace(message, range_proof=message.range_proof + b"1"),
    ],
)
def test_signed_commitments_that_are_no_right_ones_exclude_their_author(commits: Any) -> None:
    """Also one party too few for the plan: the others see what it has signed."""
    ran = execute({CHEAT: at(v.COMMIT, commits)}, setting=ALL)
    assert set(ran.errors) == {CHEAT}
    for machine in (ran.relay, *(ran.parties[name] for name in REST)):
        assert machine.result.survivors == REST
    assert ran.relay.result.faults == (f"{CHEAT}: {FALSE[COMMIT_MALFORMED]}",)
    report = audited(ran)
    assert report.code == 3, report.conclusion
    assert [(item.party, item.reason) for item in report.excluded] == [(CHEAT, FALSE[COMMIT_MALFORMED])]


@pytest.mark.parametrize("coin", [lambda *_: v.Coin(bytes(32)), raw(b"\x91\xc0")])
def test_a_wrong_coin_stops_the_run_and_its_log_names_whose_it_is(coin: Any) -> None:
    """Without it the others' coins are known, and cheats could choose among sums of noise."""
    ran = execute({CHEAT: at(v.COIN, coin)})
    error = ran.errors[RELAY]
    assert isinstance(error, TimeoutFault)
    assert error.missing == {CHEAT}
    assert [entry.party for entry in ran.entries if entry.kind == v.COIN] == [CHEAT]
    assert f": {CHEAT}: " in audited(ran).faults[0]


def test_more_cheats_than_the_plan_counts_on_end_it() -> None:
    ran = execute({CHEAT: TOO_FAR, REST[0]: TOO_FAR}, setting=ALL)
    error = ran.errors[RELAY]
    assert isinstance(error, TimeoutFault)
    assert {CHEAT, REST[0]} <= set(error.missing)
    assert v.COIN not in {entry.kind for entry in ran.entries}


def leave_out(relay: VerifiableAggregator, state: CollectCommit, party: int, envelope: Envelope) -> Item:
    """Call false what a party has committed to, which is not."""
    item = collecting.accept_commit(relay, state, party, envelope)
    return dataclasses.replace(item, message=COMMIT_MALFORMED) if envelope.sender == CHEAT else item


EXCLUDING = Host(role=AGGREGATOR.with_row(CollectCommit, accept=leave_out))
# Says nothing of it.
SILENT = dataclasses.replace(
    EXCLUDING, member=liar(v.COMMITTED, lambda _relay, _run_id, message: replace(message, false=[]))
)


@pytest.mark.parametrize(
    ("relay", "reason"), [(EXCLUDING, "committed to something false: it did not"), (SILENT, "has 4 parties")]
)
def test_nobody_goes_on_without_a_user_that_said_nothing_false(relay: Any, reason: str) -> None:
    ran = execute(relay=relay, setting=ALL)
    for name in REST:
        error = ran.errors[name]
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert reason in error.reason
    assert v.COIN not in {entry.kind for entry in ran.entries}


# Who is lost besides.


MALFORMED_COMMIT = at(v.COMMIT, raw(b""))


@pytest.mark.parametrize("others", [(), ("ben",)])
def test_who_leaves_after_a_false_commit_is_lost_and_no_more(others: tuple[str, ...]) -> None:
    """Its entry is on no board, so it counts for nobody as shown false; nor does the relay look for it."""
    cheats = ("ann", *others)
    ran = execute(dict.fromkeys(cheats, MALFORMED_COMMIT), setting=NINE, relay=losing("ann", v.COMMIT))
    assert set(ran.errors) == set(cheats)
    report = audited(ran)
    assert report.code == 3, report.conclusion
    assert [item.party for item in report.excluded] == list(others)
    assert ran.relay.state.shown_false == len(others)


def test_a_false_commit_and_a_loss_do_not_make_users_blame_the_relay() -> None:
    """One party may be lost, and two be shown false: also if there are enough parties without these two."""
    relay = losing("ben", v.ATTEST_COINS)
    ran = execute({"ann": MALFORMED_COMMIT}, setting=NINE, relay=relay)
    assert set(ran.errors) == {"ann", "ben"}
    report = audited(ran)
    assert [item.party for item in report.excluded] == ["ann"]
    assert report.verdict is not None
    assert report.verdict.silent == ("ben",)
    assert ran.parties["cyd"].result.survivors == report.verdict.counted


def test_relay_users_and_audit_have_the_same_epsilon_if_a_cheat_is_lost_before_it_is_shown_false() -> None:
    """Three of nine sign something false, where two may be corrupt: epsilon is another for everybody."""
    cheats = dict.fromkeys(("ann", "ben", "cyd"), off_by_one)
    ran = execute(cheats, setting=NINE, relay=losing("ann", v.PUBLISH))
    report = audited(ran)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert report.verdict.epsilon == pytest.approx(3.1959, abs=1e-4)
    for machine in (ran.relay, ran.parties["dan"]):
        guarantee = machine.result.privacy.guarantee
        assert guarantee is not None
        assert guarantee.epsilon == report.verdict.epsilon
        # Three can have seen their noise and gone, not two.
        assert machine.result.noise is not None
        bias = greatest_bias(ran.relay.member.parameters.bits, 3)
        assert machine.result.noise.bias == pytest.approx(bias)
        assert report.verdict.bias == pytest.approx(bias / 6)
    assert report.conclusion.endswith(
        "(no more than 2 should be corrupt: there may be another log of this run)."
    )


# However long.

LONG = {"length": 4096, "lower": 0, "upper": 1, "precision": 1.0, "epsilon": 90.0, "delta": 1e-5}


def test_all_that_a_relay_hears_has_room_in_a_line_of_the_log() -> None:
    """Else a party that sends too much would leave a log that nobody can audit."""
    checked, faults = check_parameters(LONG | {"corrupt": 0.3, "dropout": 0.2, "verifiable": True}, 200)
    assert not faults
    assert isinstance(checked, VerifiableParameters)
    # All edges are more than twice what a right opening may have to open, and too much for a line.
    size = 34 + 8 * 4096
    assert size * checked.most_false < checked.longest_bytes < size * checked.most_neighbours
    payload = bytes(checked.most_heard_bytes)
    entry = Entry((1 << 62) - 1, "f" * 64, "n" * 63, f"{v.CERTIFY_EXCLUSIONS}-9999", payload, "f" * 128)
    assert len(encode_line(entry)) < MAX_LINE_BYTES


def test_a_session_is_refused_in_which_right_openings_have_no_room_in_a_line() -> None:
    checked, faults = check_parameters(LONG | {"corrupt": 0.1, "dropout": 0.3, "verifiable": True}, 1000)
    assert checked is None
    [fault] = faults
    assert fault.where == "length"
    assert "to open up to 400 edges a party may send 13121824 bytes" in fault.reason


def test_ranges_that_differ_too_much_are_named() -> None:
    wide = {"length": 2, "lower": 0, "upper": [1e6, 1], "epsilon": 4.0, "delta": 1e-5, "verifiable": True}
    checked, faults = check_parameters(wide | {"corrupt": 0.1, "dropout": 0.1}, 10)
    assert checked is None
    [fault] = faults
    assert fault.where == "precision"
    assert fault.reason.startswith("bits: more than 65536 in all coordinates")
    assert fault.reason.endswith("ranges have 2 to 2000000 steps: bring coordinates to one scale")


@pytest.mark.parametrize(
    ("names", "lost", "left", "quorum"),
    [(("ann", "ben", CHEAT), {}, 2, 3), (PARTIES, {"eve": 9}, 3, 4)],
    ids=["three", "five, one lost"],
)
def test_what_a_plan_says_of_exclusions_by_default_holds(
    names: tuple[str, ...], lost: dict[str, int], left: int, quorum: int
) -> None:
    """In the version before a quorum was left, and the others had an average."""
    given = UNSAID | {"length": 1, "epsilon": 9.0}
    before, today = (Setting({name: (1,) for name in names}, given, n) for n in (EARLIER_VERSION, VERSION))
    assert f": {left} of {len(names)} are left, and {quorum} must sign" in parameters(today).notes[-1]
    assert not any("must sign" in note for note in parameters(before).notes)
    ran = execute({CHEAT: off_by_one}, setting=today, kill=lost)
    assert isinstance(ran.errors[RELAY], TimeoutFault)
    assert f"{left} of {len(names)} parties are left, {quorum} are needed" in str(ran.errors[RELAY])
    assert {*ran.errors} == {RELAY, *names} - {*lost}
    assert {*execute({CHEAT: off_by_one}, setting=before, kill=lost).errors} == {CHEAT}
