"""Verifiable GOPA on a sparse graph: honest runs, cheats, losses, and relays that void edges or lie."""

from __future__ import annotations

import functools
import io
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import collecting, counting
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.collecting import CollectReveal
from smpc_dp.capabilities.gopa.verifiable.counting import CollectPublish
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.capabilities.gopa.verifiable.publishing import Refused
from smpc_dp.capabilities.gopa.verifiable.statements import SUM, Rules
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR
from smpc_dp.engine.collector import Item
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.key_graph import merkle_commitment_of
from smpc_dp.engine.phases.run_log import Statement
from smpc_dp.engine.state import Transition
from smpc_dp.errors import PeerFault, PrivacyError
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list, unpack_list
from smpc_dp.wire.signing import decode, encode
from smpc_dp_lab.vectors.verifiable_parties import off_by_one
from smpc_dp_lab.vectors.verifiable_runs import (
    RELAY,
    SPARSE,
    Cheater,
    Host,
    RecordedRun,
    Tamper,
    entry_of,
    execute,
    parameters,
)
from tests.faults.gopa_hosts import liar

NAMES = list(SPARSE.inputs)
PARTIES = len(NAMES)
CHEAT = NAMES[7]

run = functools.partial(execute, setting=SPARSE, memo=True)


def audited(ran: RecordedRun, threads: int = 1) -> Report:
    log = b"".join(line + b"\n" for line in ran.lines)
    return audit_stream(io.BytesIO(log), threads=threads)


@functools.cache
def honest() -> RecordedRun:
    return run()


def neighbours_of(ran: RecordedRun, name: str) -> list[str]:
    message = decode(entry_of(ran, v.COMMIT, name).payload, v.Commit, name)
    return [NAMES[party - 1] for party in unpack_list(message.neighbours, PARTIES, name)]


def total_of(ran: RecordedRun, names: Sequence[str]) -> int:
    """The values of these parties and the noise that they drew."""
    return sum(SPARSE.inputs[name][0] + ran.parties[name].secret.given[0] for name in names)


def test_the_graph_is_sparse_and_everybody_gets_the_audited_average() -> None:
    ran, checked = honest(), parameters(SPARSE)
    assert not checked.plan.complete
    assert checked.session.slack > 0
    assert not ran.errors
    degrees = [len(neighbours_of(ran, name)) for name in NAMES]
    assert checked.plan.degree <= min(degrees)
    assert max(degrees) < PARTIES - 1
    report = audited(ran)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert report.verdict.void_edges == ()
    assert report.verdict.epsilon == 4.0
    for machine in (ran.relay, *ran.parties.values()):
        np.testing.assert_array_equal(machine.result.total, [total_of(ran, NAMES)])
        assert machine.result.weight == PARTIES


def test_who_vanishes_before_it_commits_is_only_absent() -> None:
    """Its neighbours' edges to it are in the log and lead nowhere: the audit reads them twice."""
    ran = run(kill={CHEAT: 5})
    report = audited(ran, threads=3)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert report.verdict.void_edges == ()
    rest = [name for name in NAMES if name != CHEAT]
    assert list(report.verdict.counted) == rest
    np.testing.assert_array_equal(ran.relay.result.total, [total_of(ran, rest)])


def test_who_is_silent_is_not_excluded_and_leaves_its_pairs() -> None:
    ran = run(kill={CHEAT: 9})
    report = audited(ran)
    assert report.code == 1
    assert report.verdict is not None
    left = len(neighbours_of(ran, CHEAT))
    assert report.verdict.silent == (CHEAT,)
    assert report.verdict.residual_pairs == left
    assert ran.relay.result.noise is not None
    assert ran.relay.result.noise.residual_pairs == left


def test_who_publishes_something_false_is_excluded_and_the_rest_is_exact() -> None:
    """Its neighbours see that it is false, and for that they need what its other neighbours committed to."""
    ran = run({CHEAT: off_by_one})
    rest = [name for name in NAMES if name != CHEAT]
    assert set(ran.errors) == {CHEAT}
    report = audited(ran, threads=2)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert [item.party for item in report.excluded] == [CHEAT]
    opened = [entry.party for entry in ran.entries if entry.kind == v.OPEN]
    assert opened == neighbours_of(ran, CHEAT)
    np.testing.assert_array_equal(ran.relay.result.total, [total_of(ran, rest)])
    assert list(report.verdict.counted) == rest


def shifted(neighbourhood: int) -> Tamper:
    """Commit to another term for one neighbour."""

    def tamper(party: Cheater, step: str, message: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(message, v.Commit):
            return message
        party.shift_edge(sorted(party.next.terms)[neighbourhood % len(party.next.terms)], 1)
        return replace(message, edges=b"".join(edge for _, edge in sorted(party.next.edges.items())))

    return tamper


def dropped(neighbourhood: int) -> Tamper:
    """Do not claim the edge to one neighbour."""

    def tamper(party: Cheater, step: str, message: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(message, v.Commit):
            return message
        return party.leave_out(message, sorted(party.next.terms)[neighbourhood % len(party.next.terms)])

    return tamper


@pytest.mark.thin(2)
@pytest.mark.parametrize("wrong", [shifted, dropped])
def test_a_wrong_edge_is_found_at_any_place_and_void_for_both(wrong: Any) -> None:
    """Of three parties at once, at places that a fixed seed draws; the run goes on without these edges."""
    source = random.Random(5)
    cheats = source.sample(NAMES, 3)
    indices = {name: source.randrange(1000) for name in cheats}
    ran = run({name: wrong(neighbourhood) for name, neighbourhood in indices.items()})
    expected = set()
    for name, neighbourhood in indices.items():
        around = neighbours_of(honest(), name)
        expected.add(tuple(sorted((name, around[neighbourhood % len(around)]))))
    report = audited(ran, threads=2)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert set(report.verdict.void_edges) == expected
    np.testing.assert_array_equal(ran.relay.result.total, [total_of(ran, NAMES)])


def test_nobody_goes_on_whose_own_draws_are_voided() -> None:
    """A relay keeps a party's draws from those that it drew: it sees that, and nobody publishes."""
    victim = NAMES.index(CHEAT) + 1

    def finish(relay: VerifiableAggregator, state: CollectReveal) -> Transition:
        drawn = {party: item.message.drawn for party, item in state.inbox.items.items()}

        def hidden(envelope: Envelope) -> Envelope:
            message = decode(envelope.body, m.Neighbours, RELAY)
            party = relay.context.number(envelope.receiver)
            if victim not in {opening.party for opening in message.openings} or victim in drawn[party]:
                return envelope
            places = [i for i, item in enumerate(message.advertisements) if item.party != victim]
            around = tuple(message.advertisements[i].party for i in places)
            message = replace(
                message,
                openings=[opening for opening in message.openings if opening.party != victim],
                advertisements=[message.advertisements[i] for i in places],
                mask_keys=b"".join(message.mask_keys[32 * i : 32 * i + 32] for i in places),
                proof=merkle_commitment_of(relay.context, state.commitments.forwarded).prove(around),
            )
            [again] = relay.write(state.run_id, m.NEIGHBOURS, [party], message)
            return again

        after, sent = collecting.finish_reveal(relay, state)
        return Transition(after, [hidden(envelope) for envelope in sent])

    ran = run(relay=Host(role=AGGREGATOR.with_row(CollectReveal, finish=finish)))
    error = ran.errors[CHEAT]
    assert isinstance(error, PrivacyError)
    assert "that it drew count" in str(error)
    assert not any(entry.kind == v.PUBLISH for entry in ran.entries)
    assert all(name in ran.errors for name in NAMES)


def test_a_coin_that_its_user_did_not_sign_is_refused() -> None:
    """Without the signatures an aggregator could go on without a party that did not accept its edges."""

    def lie(_relay: VerifiableAggregator, _run_id: bytes, message: v.Coins) -> v.Coins:
        return replace(message, signatures=bytes(64) + message.signatures[64:])

    ran = run(relay=Host(member=liar(v.COINS, lie)))
    for name in NAMES:
        error = ran.errors[name]
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert f"a coin that {NAMES[0]} did not sign" in str(error)


def call_false(relay: VerifiableAggregator, state: CollectPublish, party: int, envelope: Envelope) -> Item:
    """Call a right publication false."""
    item = counting.accept_publish(relay, state, party, envelope)
    if envelope.sender == CHEAT:
        state.publications[party] = Statement.of(item, SUM)
    return item


def accuse(lie: Callable[[v.Publications], v.Publications] = lambda message: message) -> dict[str, Any]:
    """Return what an accused party's neighbours say to that, and to what they are shown."""
    member = liar(v.PUBLICATIONS, lambda _relay, _run_id, message: lie(message))
    ran = run(relay=Host(member, AGGREGATOR.with_row(CollectPublish, accept=call_false)))
    assert not any(entry.kind == v.OPEN for entry in ran.entries)
    return {name: ran.errors[name] for name in neighbours_of(honest(), CHEAT)}


def test_no_edge_is_opened_to_a_user_whose_publication_is_right() -> None:
    for error in accuse().values():
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert f"says that {CHEAT} said something false, and it did not" in str(error)


def test_no_edge_is_opened_without_what_the_neighbours_say() -> None:
    def lie(message: v.Publications) -> v.Publications:
        return replace(message, commits=message.commits[1:])

    errors = [str(error) for error in accuse(lie).values()]
    assert all("and not what its neighbours say" in error for error in errors)


def test_no_edge_is_opened_by_what_another_log_says() -> None:
    def lie(message: v.Publications) -> v.Publications:
        return replace(message, committed=bytes(32) + message.committed[32:])

    errors = [str(error) for error in accuse(lie).values()]
    assert all("other commitments than those that a quorum has signed" in error for error in errors)


def test_a_commit_of_nobody_is_refused() -> None:
    def lie(message: v.Publications) -> v.Publications:
        return replace(message, commits=[replace(item, party=60_000) for item in message.commits])

    for error in accuse(lie).values():
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert "a commit of party 60000" in str(error)


def test_more_neighbours_than_anybody_accepts_are_refused() -> None:
    """What an honest party never claims bounds what an audit has to hold."""
    checked = parameters(SPARSE)
    assert checked.most_neighbours < PARTIES
    fewer = replace(
        checked,
        session=replace(
            checked.session, neighbourhood=replace(checked.session.neighbourhood, most_drawn_by=0)
        ),
    )
    entry = entry_of(honest(), v.COMMIT, CHEAT)
    rules = Rules(honest().context, fewer, bytes(32))
    with pytest.raises(PeerFault, match="more than any party accepts"):
        rules.read_commit(8, entry.payload, CHEAT)


def test_an_edge_is_checked_after_the_fact_too() -> None:
    """A log whose opened edge is another one, rightly signed, names who opened it: it was to be excluded."""
    ran = run({CHEAT: off_by_one})
    entries = ran.entries
    [index, *_] = [index for index, entry in enumerate(entries) if entry.kind == v.OPEN]
    message = decode(entries[index].payload, v.Open, "")
    delta = (np.frombuffer(message.deltas, "<u8") + np.uint64(1)).tobytes()
    entries[index] = ran.sign(entries[index], encode(replace(message, deltas=delta)))
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in ran.log(entries))), threads=1)
    assert report.code == 1
    assert f"no edges opened to {entries[index].party}, who signed something false" in report.faults[0]
    assert any("opened an edge to something else" in fault for fault in report.faults[1:])


def test_a_ledger_is_not_charged_for_cheats_that_the_relay_makes_up() -> None:
    """Of parties who are no neighbours a party is not shown what is false: too many of them are a lie."""
    victim = NAMES[0]
    near = {victim, *neighbours_of(honest(), victim)}
    far = [party for party, name in enumerate(NAMES, 1) if name not in near]
    assert parameters(SPARSE).epsilon_without(len(far)) > parameters(SPARSE).epsilon_without(0)

    def lie(_relay: VerifiableAggregator, _run_id: bytes, message: v.Publications) -> v.Publications:
        return replace(message, false=pack_list(far))

    ran = run(relay=Host(member=liar(v.PUBLICATIONS, lie, (victim,))))
    error = ran.errors[victim]
    assert isinstance(error, PeerFault)
    assert error.culprit == RELAY
    assert "goes on with too few parties" in str(error)
    assert ran.parties[victim].last.false_count == 0


def test_the_cheats_that_a_user_has_seen_are_counted_though_its_run_ends_there() -> None:
    """Of the neighbour that was false there is proof, whatever the aggregator makes up besides."""
    cheat, victim = NAMES.index(CHEAT) + 1, neighbours_of(honest(), CHEAT)[0]
    near = {victim, *neighbours_of(honest(), victim)}
    far = [party for party, name in enumerate(NAMES, 1) if name not in near]

    def lie(_relay: VerifiableAggregator, _run_id: bytes, message: v.Publications) -> v.Publications:
        return replace(message, false=pack_list(sorted((cheat, *far))))

    ran = run({CHEAT: off_by_one}, relay=Host(member=liar(v.PUBLICATIONS, lie, (victim,))))
    error, last = ran.errors[victim], ran.parties[victim].last
    assert isinstance(error, PeerFault)
    assert error.culprit == RELAY
    assert "goes on with too few parties" in str(error)
    assert isinstance(last, Refused)
    assert last.false_count == 1
    assert ran.parties[victim].finished
