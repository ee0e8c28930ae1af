"""Who opens something false is excluded in the next round of openings; the run completes with the rest."""

from __future__ import annotations

import functools
import io
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import counting
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.counting import CollectOpen
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.capabilities.gopa.verifiable.statements import FALSE, OPENING, OPENING_OTHER
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR
from smpc_dp.engine.collector import Item
from smpc_dp.engine.phases.run_log import Statement
from smpc_dp.engine.state import Transition
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_list, unpack_list
from smpc_dp.wire.signing import decode, encode
from smpc_dp_lab.vectors.verifiable_openings import (
    THIRD,
    in_one_round,
    in_two_rounds,
    nothing,
    one_more,
    opened,
    to_something_else,
    too_far_out,
    too_long,
)
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, OTHER, at, off_by_one, out_of_range, with_body
from smpc_dp_lab.vectors.verifiable_runs import (
    NINE,
    RELAY,
    SPARSE,
    Host,
    RecordedRun,
    Setting,
    entry_of,
    execute,
)
from tests.faults.gopa_hosts import censoring, liar
from tests.faults.test_gopa_board_equivocation import another_publication, equivocating

NAMES = tuple(NINE.inputs)
FALSE_OPENER = {CHEAT: off_by_one, OTHER: at(v.OPEN, to_something_else)}


def audited(ran: RecordedRun, threads: int = 1) -> Report:
    return audit_stream(io.BytesIO(b"".join(line + b"\n" for line in ran.lines)), threads=threads)


def exact(ran: RecordedRun, names: Sequence[str], setting: Setting = NINE) -> int:
    """The values of these parties and the noise that they drew."""
    return sum(setting.inputs[name][0] + ran.parties[name].secret.given[0] for name in names)


def opened_pairs(ran: RecordedRun, setting: Setting = NINE) -> list[tuple[str, str]]:
    """Who opened the edge to whom, by all entries of the log."""
    names = list(setting.inputs)
    return [
        (entry.party, names[peer - 1])
        for entry in ran.entries
        if entry.kind.startswith(v.OPEN)
        for peer in unpack_list(decode(entry.payload, v.Open, "").parties, len(names), "")
    ]


def kinds(ran: RecordedRun) -> set[str]:
    return {entry.kind for entry in ran.entries}


@pytest.mark.parametrize(
    ("ran", "false", "epsilon"),
    [(in_one_round, (CHEAT, OTHER), 3.0), (in_two_rounds, (CHEAT, OTHER, THIRD), 3.1959)],
)
def test_the_rest_get_the_exact_total_and_the_epsilon_without_who_was_false(
    ran: Any, false: tuple[str, ...], epsilon: float
) -> None:
    run = ran()
    rest = tuple(name for name in NAMES if name not in false)
    assert set(run.errors) == set(false)
    for name in false:
        assert isinstance(run.errors[name], PeerFault)
        assert run.errors[name].culprit == name
    report = audited(run)
    assert report.code == 3, report.conclusion
    for machine in (run.relay, *(run.parties[name] for name in rest)):
        np.testing.assert_array_equal(machine.result.total, [exact(run, rest)])
        assert machine.result.survivors == rest
        assert machine.result.noise.residual_pairs == 0
        assert machine.result.privacy.guarantee.epsilon == pytest.approx(epsilon, abs=1e-4)
    assert report.verdict is not None
    assert report.verdict.epsilon == pytest.approx(epsilon, abs=1e-4)
    # Each edge to an excluded party is opened once by each of the rest, and no other by any of them.
    pairs = [pair for pair in opened_pairs(run) if pair[0] in rest]
    assert sorted(pairs) == sorted((name, peer) for name in rest for peer in false)


@pytest.mark.parametrize(
    "opening", [to_something_else, too_far_out, too_long, nothing, one_more, with_body(b"\x93")]
)
def test_every_false_opening_excludes_its_author(opening: Any) -> None:
    ran = execute({CHEAT: off_by_one, OTHER: at(v.OPEN, opening)}, setting=NINE)
    rest = [name for name in NAMES if name not in (CHEAT, OTHER)]
    assert set(ran.errors) == {CHEAT, OTHER}
    np.testing.assert_array_equal(ran.relay.result.total, [exact(ran, rest)])
    report = audited(ran, threads=2)
    assert report.code == 3, report.conclusion
    assert [item.party for item in report.excluded] == [OTHER, CHEAT]


def test_what_a_user_opened_rightly_before_it_opens_something_false_is_not_counted() -> None:
    """It opens its edge in the first round, and in the second another one to something else."""
    ran = in_two_rounds()
    assert (THIRD, CHEAT) in opened_pairs(ran)
    rest = [name for name in NAMES if name not in (CHEAT, OTHER, THIRD)]
    np.testing.assert_array_equal(ran.relay.result.total, [exact(ran, rest)])


def test_without_enough_users_the_run_stops_and_names_who_opened_something_false() -> None:
    tampers = {CHEAT: off_by_one} | {name: at(v.OPEN, nothing) for name in ("ann", "ben", "cyd")}
    ran = execute(tampers, setting=NINE)
    for name in (RELAY, "eve", "ivy"):
        error = ran.errors[name]
        assert isinstance(error, TimeoutFault)
        assert {"ann", "ben", "cyd", CHEAT} <= error.missing
    assert v.in_round(v.OPEN, 2) not in kinds(ran)
    report = audited(ran)
    assert report.code == 1
    assert f"ben: {FALSE[OPENING_OTHER]}" in report.faults


@pytest.mark.parametrize("round_", [1, 2])
def test_a_missing_opening_excludes_nobody(round_: int) -> None:
    """Silence may be the aggregator's doing: the term stays in the total, and the audit says whose it is."""
    step = v.in_round(v.OPEN, round_)

    ran = execute(FALSE_OPENER, setting=NINE, relay=censoring("ann", step))
    report = audited(ran)
    assert [item.party for item in report.excluded] == [OTHER, CHEAT]
    assert report.verdict is not None
    # Who is lost in the first round opens nothing in the second either.
    left = 3 - round_
    assert report.verdict.residual_pairs == left
    assert "ann" in report.verdict.counted
    assert report.faults == (
        f"the board has no opening of ann: {left} pairwise terms do not cancel, and are in the average",
    )
    assert ran.relay.result.noise is not None
    assert ran.relay.result.noise.residual_pairs == left


# What an aggregator cannot do with rounds.


def accuse(relay: VerifiableAggregator, state: CollectOpen, party: int, envelope: Envelope) -> Item:
    """Call a right opening of the first round false."""
    item = counting.accept_open(relay, state, party, envelope)
    if (envelope.sender, envelope.step) == ("ann", v.OPEN):
        state.openings[party] = Statement.of(item, OPENING)
    return item


def test_no_edge_is_opened_to_a_user_whose_opening_is_right() -> None:
    ran = execute(
        {CHEAT: off_by_one}, setting=NINE, relay=Host(role=AGGREGATOR.with_row(CollectOpen, accept=accuse))
    )
    assert v.in_round(v.OPEN, 2) not in kinds(ran)
    for name in NAMES:
        if name not in ("ann", CHEAT):
            error = ran.errors[name]
            assert isinstance(error, PeerFault)
            assert error.culprit == RELAY
            assert "says that ann said something false, and it did not" in error.reason
    assert not any("ann" in pair[1] for pair in opened_pairs(ran))


def test_no_edge_is_opened_for_what_was_signed_in_another_round() -> None:
    """A party's right opening of the first round is false when it is shown as that of the second."""

    def finish(relay: VerifiableAggregator, state: CollectOpen) -> Transition:
        if state.round.number == 2:
            state.openings[1] = replace(state.round.claimed[1][1], refused=OPENING)
        return counting.finish_open(relay, state)

    relay = Host(role=AGGREGATOR.with_row(CollectOpen, finish=finish))
    ran = execute(FALSE_OPENER, setting=NINE, relay=relay)
    assert v.in_round(v.OPEN, 3) not in kinds(ran)
    errors = {name: ran.errors[name] for name in NAMES if name not in ("ann", CHEAT, OTHER)}
    for error in errors.values():
        assert isinstance(error, PeerFault)
        assert "'open-2' that ann did not sign" in error.reason


@pytest.mark.parametrize(("step", "number"), [(v.PUBLICATIONS, 1), (v.OPENINGS, 2)])
def test_nobody_opens_an_edge_before_a_quorum_has_signed_the_same_log(step: str, number: int) -> None:
    """One party with another log goes no further; half of them with another one: nobody does."""
    opening = v.in_round(v.OPEN, number)
    for lied_to in (("ann",), ("ann", "cyd", "eve", "fay")):
        ran = execute(FALSE_OPENER, setting=NINE, relay=equivocating(step, another_publication, lied_to))
        claimed = {entry.party for entry in ran.entries if entry.kind == opening}
        if len(lied_to) > 1:
            assert not claimed
            assert isinstance(ran.errors[RELAY], TimeoutFault)
            continue
        assert claimed
        assert "ann" not in claimed
        error = ran.errors["ann"]
        assert isinstance(error, PeerFault)
        assert v.in_round(v.ATTEST_EXCLUSIONS, number) in error.reason


def reported(step: str, lie: Any) -> dict[str, Any]:
    """Return what parties say to an aggregator that changes its messages of one step."""

    relay = Host(member=liar(step, lambda _relay, _run_id, message: lie(message)))
    ran = execute(FALSE_OPENER, setting=NINE, relay=relay)
    assert v.in_round(v.OPEN, 2) not in kinds(ran)
    return {name: ran.errors[name] for name in NAMES if name not in (CHEAT, OTHER)}


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda message: replace(message, shown=[]), "does not show what neighbours said that is false"),
        (lambda message: replace(message, false=pack_list([4]), shown=[]), "that there are not"),
        (
            lambda message: replace(
                message, authors=pack_list([4]), digests=message.digests[:32], false=b"", shown=[]
            ),
            "openings of parties that are out",
        ),
        (lambda message: replace(message, authors=b"", digests=b"", false=b"", shown=[]), "the entry 'open'"),
    ],
)
def test_a_relay_that_lies_about_openings_is_refused(lie: Any, reason: str) -> None:
    for error in reported(v.OPENINGS, lie).values():
        assert isinstance(error, PeerFault), error
        assert (error.culprit, reason in str(error)) == (RELAY, True), str(error)


def test_a_tally_that_counts_who_opened_something_false_is_refused() -> None:
    def finish(relay: VerifiableAggregator, state: CollectOpen) -> Transition:
        if state.round.number == 2:
            counted = PartySet.of({*state.round.published, NAMES.index(OTHER) + 1}, len(NAMES))
            state = replace(state, round=replace(state.round, published=counted))
        return counting.finish_open(relay, state)

    relay = Host(role=AGGREGATOR.with_row(CollectOpen, finish=finish))
    ran = execute(FALSE_OPENER, setting=NINE, relay=relay)
    for name in NAMES:
        if name not in (CHEAT, OTHER):
            assert "counts others than those who said nothing false" in str(ran.errors[name])


# Sparse graphs.


@functools.cache
def drawn() -> dict[str, tuple[int, ...]]:
    """Return the neighbours of each party, which are the same in all these runs."""
    honest = execute(setting=SPARSE, memo=True)
    commits = {name: entry_of(honest, v.COMMIT, name).payload for name in SPARSE.inputs}
    return {
        name: unpack_list(decode(body, v.Commit, "").neighbours, len(SPARSE.inputs), "")
        for name, body in commits.items()
    }


@pytest.mark.long
def test_on_a_sparse_graph_neighbours_see_that_an_opening_is_false() -> None:
    """Its neighbours need what an excluded party committed to that is no neighbour of theirs."""
    names = list(SPARSE.inputs)
    cheat = names[7]
    commits = drawn()
    opener = names[commits[cheat][0] - 1]
    tampers = {cheat: off_by_one, opener: at(v.OPEN, nothing)}
    ran = execute(tampers, setting=SPARSE, memo=True)
    rest = [name for name in names if name not in (cheat, opener)]
    assert set(ran.errors) == {cheat, opener}
    np.testing.assert_array_equal(ran.relay.result.total, [exact(ran, rest, SPARSE)])
    second = {entry.party for entry in ran.entries if entry.kind == v.in_round(v.OPEN, 2)}
    around = {names[party - 1] for party in commits[opener]}
    assert second == around - {cheat}
    # Some of them share no edge with the first cheat.
    assert second - {names[party - 1] for party in commits[cheat]}
    report = audited(ran, threads=2)
    assert report.code == 3, report.conclusion
    assert sorted(item.party for item in report.excluded) == sorted((cheat, opener))


# Whatever a group does.


def shifted_by_one(_party: Any, message: Any) -> Any:
    delta = (np.frombuffer(opened(message).deltas, "<u8") + np.uint64(1)).tobytes()
    return replace(message, deltas=delta)


@pytest.mark.thin(2)
@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_group_does_no_edge_between_others_is_opened(seed: int) -> None:
    """Up to four parties cheat at random: the rest get their exact total, or stop and name who did."""
    chooser = random.Random(seed)
    group = chooser.sample(NAMES, chooser.randint(1, 4))
    ways: list[tuple[str, Any]] = [
        (v.COMMIT, with_body(b"")),
        (v.COMMIT, lambda party, message: out_of_range((3,))(party, v.COMMIT, message)),
        (v.PUBLISH, with_body(b"\x94")),
        *(
            (v.in_round(v.OPEN, number), way)
            for number in (1, 1, 2, 2, 3)
            for way in (nothing, one_more, shifted_by_one, too_far_out, to_something_else)
        ),
    ]
    tampers: dict[str, Any] = {group[0]: off_by_one}
    for name in group[1:]:
        tampers[name] = at(*chooser.choice(ways))
    ran = execute(tampers, setting=NINE)
    others = [name for name in NAMES if name not in group]
    report = audited(ran)
    assert not {item.party for item in report.excluded} - set(group)
    assert not any(one in others and two in others for one, two in opened_pairs_of(ran, others))
    if RELAY in ran.errors:
        error = ran.errors[RELAY]
        assert isinstance(error, TimeoutFault)
        assert error.missing <= set(group)
        assert report.code == 1
        return
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    counted = report.verdict.counted
    assert set(others) <= set(counted)
    np.testing.assert_array_equal(ran.relay.result.total, [exact(ran, counted)])
    for name in others:
        np.testing.assert_array_equal(ran.parties[name].result.total, [exact(ran, counted)])
    rounds = [int(kind.rpartition("-")[2]) for kind in kinds(ran) if kind.startswith("certify-exclusions-")]
    assert all(two == one + 1 for one, two in pairwise(sorted(rounds)))
    assert len(rounds) < ran.relay.member.parameters.most_false


def opened_pairs_of(ran: RecordedRun, parties: Sequence[str]) -> list[tuple[str, str]]:
    """Who of these parties opened the edge to whom."""
    entries = [entry for entry in ran.entries if entry.party in parties and entry.kind.startswith(v.OPEN)]
    return [
        (entry.party, NAMES[peer - 1])
        for entry in entries
        for peer in unpack_list(decode(entry.payload, v.Open, "").parties, len(NAMES), "")
    ]


def test_an_opening_that_nobody_asked_for_is_the_relays_fault() -> None:
    """An empty opening of a party that has none to make is right, and no entry of a log."""
    names = list(SPARSE.inputs)
    ran = execute({names[7]: off_by_one}, setting=SPARSE, memo=True)
    entries = ran.entries
    openings = [index for index, entry in enumerate(entries) if entry.kind == v.OPEN]
    authors = {entries[index].party for index in openings}
    bystander = next(name for name in names if name not in authors and name != names[7])
    index = next((index for index in openings if entries[index].party > bystander), openings[-1] + 1)
    empty = replace(entries[openings[0]], party=bystander)
    entries.insert(index, ran.sign(empty, encode(v.Open(b"", b"", b""))))
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in ran.log(entries))), threads=1)
    assert f"relay: has an opening of {bystander}, who has none to make" in report.conclusion


def test_a_user_that_was_told_of_another_false_one_signs_no_wrong_opening() -> None:
    """Same heads and parties, but a silent party, no neighbour, is named in place of a neighbour.

    The victim would sign that it has no edge to open, where the log has one: that would be false.
    """
    names = list(SPARSE.inputs)
    numbers = {name: index for index, name in enumerate(names, 1)}
    cheat, silent = names[7], names[30]
    commits = drawn()
    victim = next(
        name
        for name in names
        if numbers[cheat] in commits[name] and numbers[silent] not in commits[name] and name != silent
    )

    def lie(_relay: VerifiableAggregator, _run_id: bytes, message: v.Publications) -> v.Publications:
        authors = {*unpack_list(message.authors, len(names), "")} - {numbers[cheat]}
        reported = pack_list(sorted({*authors, numbers[silent]}))
        return replace(message, authors=reported, false=pack_list([numbers[silent]]), shown=[], commits=[])

    relay = equivocating(v.PUBLICATIONS, lie, (victim,))
    ran = execute({cheat: off_by_one}, setting=SPARSE, relay=relay, memo=True, kill={silent: 9})
    assert (victim, v.OPEN) not in {(entry.party, entry.kind) for entry in ran.entries}
    assert isinstance(ran.errors[victim], PeerFault)
    assert victim not in {item.party for item in audited(ran).excluded}


def test_a_log_with_rounds_can_be_changed_and_cut_nowhere() -> None:
    """Bits at places that a fixed seed draws, after the publications."""
    lines = [line + b"\n" for line in in_two_rounds().lines]
    log = b"".join(lines)
    one, three = (audit_stream(io.BytesIO(log), threads=threads) for threads in (1, 3))
    assert one.code == 3, one.conclusion
    assert one.verdict == three.verdict
    begin = next(index for index, line in enumerate(lines) if b'"certify-exclusions"' in line)
    first, source = len(b"".join(lines[:begin])), random.Random(3)
    for index in source.sample(range(first, len(log)), 30):
        changed = bytes([log[index] ^ 1 << source.randrange(8)])
        report = audit_stream(io.BytesIO(log[:index] + changed + log[index + 1 :]), threads=1)
        line = 1 + log[:index].count(b"\n")
        assert report.code == 1
        assert report.line in (line, line + 1), report.conclusion
    for end in range(begin, len(lines)):
        assert audit_stream(io.BytesIO(b"".join(lines[:end])), threads=1).code == 1
