"""Verifiable GOPA on a sparse graph: honest runs, cheats, losses, and relays that void edges or lie."""

from __future__ import annotations

import functools
import io
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.crypto import commit
from smpc_dp.errors import PeerFault, PrivacyError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import decode, encode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.relay import VerifiableRelayMachine
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import pack_list, unpack_list
from smpc_dp.runtime.audit import Report, audit_stream
from smpc_dp_lab.vectors.verifiable_runs import (
    RELAY,
    SPARSE,
    Cheater,
    Played,
    Tamper,
    entry_of,
    parameters,
    play,
)
from smpc_dp_lab.vectors.verifiable_users import off_by_one

NAMES = list(SPARSE.inputs)
USERS = len(NAMES)
CHEAT = NAMES[7]

run = functools.partial(play, setting=SPARSE, memo=True)


def audited(played: Played, threads: int = 1) -> Report:
    log = b"".join(line + b"\n" for line in played.lines)
    return audit_stream(io.BytesIO(log), threads=threads)


@functools.cache
def honest() -> Played:
    return run()


def neighbours_of(played: Played, name: str) -> list[str]:
    message = decode(entry_of(played, v.COMMIT, name).payload, v.Commit, name)
    return [NAMES[party - 1] for party in unpack_list(message.neighbours, USERS, name)]


def total_of(played: Played, names: Sequence[str]) -> int:
    """The values of these users and the noise that they drew."""
    return sum(SPARSE.inputs[name][0] + played.users[name].secret.given[0] for name in names)


def test_the_graph_is_sparse_and_everybody_gets_the_audited_average() -> None:
    played, checked = honest(), parameters(SPARSE)
    assert not checked.plan.complete
    assert checked.session.slack > 0
    assert not played.errors
    degrees = [len(neighbours_of(played, name)) for name in NAMES]
    assert checked.plan.degree <= min(degrees)
    assert max(degrees) < USERS - 1
    report = audited(played)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert report.verdict.void_edges == ()
    assert report.verdict.epsilon == 4.0
    for machine in (played.relay, *played.users.values()):
        np.testing.assert_array_equal(machine.result.total, [total_of(played, NAMES)])
        assert machine.result.weight == USERS


def test_who_vanishes_before_it_commits_is_only_absent() -> None:
    """Its neighbours' edges to it are in the log and lead nowhere: the audit reads them twice."""
    played = run(kill={CHEAT: 5})
    report = audited(played, threads=3)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert report.verdict.void_edges == ()
    rest = [name for name in NAMES if name != CHEAT]
    assert list(report.verdict.counted) == rest
    np.testing.assert_array_equal(played.relay.result.total, [total_of(played, rest)])


def test_who_is_silent_is_not_excluded_and_leaves_its_pairs() -> None:
    played = run(kill={CHEAT: 9})
    report = audited(played)
    assert report.code == 1
    assert report.verdict is not None
    left = len(neighbours_of(played, CHEAT))
    assert report.verdict.silent == (CHEAT,)
    assert report.verdict.residual_pairs == left
    assert played.relay.result.noise is not None
    assert played.relay.result.noise.residual_pairs == left


def test_who_publishes_something_false_is_excluded_and_the_rest_is_exact() -> None:
    """Its neighbours see that it is false, and for that they need what its other neighbours committed to."""
    played = run({CHEAT: off_by_one})
    rest = [name for name in NAMES if name != CHEAT]
    assert set(played.errors) == {CHEAT}
    report = audited(played, threads=2)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert [item.party for item in report.excluded] == [CHEAT]
    opened = [entry.party for entry in played.entries if entry.kind == v.OPEN]
    assert opened == neighbours_of(played, CHEAT)
    np.testing.assert_array_equal(played.relay.result.total, [total_of(played, rest)])
    assert list(report.verdict.counted) == rest


def shifted(place: int) -> Tamper:
    """Commit to another term for one neighbour."""

    def tamper(user: Cheater, step: str, message: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(message, v.Commit):
            return message
        peer = sorted(user._deltas)[place % len(user._deltas)]
        delta, blinding = user._deltas[peer]
        user._deltas[peer] = delta + np.uint64(1), blinding
        wrong = commit.commit([int(delta.view(np.int64)[0]) + 1], blinding)
        user._own_edges[peer] = wrong
        return replace(message, edges=b"".join(edge for _, edge in sorted(user._own_edges.items())))

    return tamper


def dropped(place: int) -> Tamper:
    """Do not claim the edge to one neighbour."""

    def tamper(user: Cheater, step: str, message: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(message, v.Commit):
            return message
        peer = sorted(user._deltas)[place % len(user._deltas)]
        del user._own_edges[peer]
        edges = b"".join(edge for _, edge in sorted(user._own_edges.items()))
        return replace(message, neighbours=pack_list(sorted(user._own_edges)), edges=edges)

    return tamper


@pytest.mark.parametrize("wrong", [shifted, dropped])
def test_a_wrong_edge_is_found_at_any_place_and_void_for_both(wrong: Any) -> None:
    """Of three users at once, at places that a fixed seed draws; the run goes on without these edges."""
    source = random.Random(5)
    cheats = source.sample(NAMES, 3)
    places = {name: source.randrange(1000) for name in cheats}
    played = run({name: wrong(place) for name, place in places.items()})
    due = set()
    for name, place in places.items():
        around = neighbours_of(honest(), name)
        due.add(tuple(sorted((name, around[place % len(around)]))))
    report = audited(played, threads=2)
    assert report.code == 3, report.conclusion
    assert report.verdict is not None
    assert set(report.verdict.void_edges) == due
    np.testing.assert_array_equal(played.relay.result.total, [total_of(played, NAMES)])


def test_nobody_goes_on_whose_own_draws_are_voided() -> None:
    """A relay keeps a user's draws from those that it drew: it sees that, and nobody publishes."""
    victim = NAMES.index(CHEAT) + 1

    class Hiding(VerifiableRelayMachine):
        def _finish_reveal(self) -> list[Envelope]:
            sent = super()._finish_reveal()
            return [self._hidden(envelope) for envelope in sent]

        def _hidden(self, envelope: Envelope) -> Envelope:
            message = decode(envelope.body, m.Neighbours, RELAY)
            party = self._context.number(envelope.receiver)
            if victim not in {opening.party for opening in message.openings} or victim in self._drawn[party]:
                return envelope
            around = tuple(peer for peer in self._neighbours[party] if peer != victim)
            message = replace(
                message,
                openings=[opening for opening in message.openings if opening.party != victim],
                advertisements=[item for item in message.advertisements if item.party != victim],
                proof=self._roll.prove(around),
            )
            [again] = self._write(m.NEIGHBOURS, [envelope.receiver], message)
            return again

    played = run(relay=Hiding)
    error = played.errors[CHEAT]
    assert isinstance(error, PrivacyError)
    assert "that it drew count" in str(error)
    assert not any(entry.kind == v.PUBLISH for entry in played.entries)
    assert all(name in played.errors for name in NAMES)


def test_a_coin_that_its_user_did_not_sign_is_refused() -> None:
    """Without the signatures a relay could go on without a user that did not accept its edges."""

    class Inventing(VerifiableRelayMachine):
        def _finish_coin(self) -> list[Envelope]:
            sent = super()._finish_coin()
            message = decode(sent[0].body, v.Coins, RELAY)
            false = replace(message, signatures=bytes(64) + message.signatures[64:])
            return self._broadcast(v.COINS, false)

    played = run(relay=Inventing)
    for name in NAMES:
        error = played.errors[name]
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert f"a coin that {NAMES[0]} did not sign" in str(error)


class Accusing(VerifiableRelayMachine):
    """Calls a right publication false."""

    def _exclude_false(self, batch: Any) -> list[int]:
        false = super()._exclude_false(batch)
        return [*false, NAMES.index(CHEAT) + 1] if self.step == v.PUBLISH else false


def accuse(relay: type[VerifiableRelayMachine]) -> dict[str, Any]:
    """Return what the accused user's neighbours say to that."""
    played = run(relay=relay)
    assert not any(entry.kind == v.OPEN for entry in played.entries)
    return {name: played.errors[name] for name in neighbours_of(honest(), CHEAT)}


def test_no_edge_is_opened_to_a_user_whose_publication_is_right() -> None:
    for error in accuse(Accusing).values():
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert f"says that {CHEAT} said something false, and it did not" in str(error)


def test_no_edge_is_opened_without_what_the_neighbours_say() -> None:
    class Withholding(Accusing):
        def _commits_about(self, party: int) -> list[m.Advertisement]:
            return super()._commits_about(party)[1:]

    errors = [str(error) for error in accuse(Withholding).values()]
    assert all("and not what its neighbours say" in error for error in errors)


def test_no_edge_is_opened_by_what_another_log_says() -> None:
    class Forging(Accusing):
        def _commits_about(self, party: int) -> list[m.Advertisement]:
            self._committed = bytes(32) + self._committed[32:]
            return super()._commits_about(party)

    errors = [str(error) for error in accuse(Forging).values()]
    assert all("other commitments than those that a quorum has signed" in error for error in errors)


def test_a_commit_of_nobody_is_refused() -> None:
    class Inventing(Accusing):
        def _commits_about(self, party: int) -> list[m.Advertisement]:
            return [replace(item, party=60_000) for item in super()._commits_about(party)]

    for error in accuse(Inventing).values():
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert "a commit of party 60000" in str(error)


def test_more_neighbours_than_anybody_accepts_are_refused() -> None:
    """What an honest user never claims bounds what an audit has to hold."""
    checked = parameters(SPARSE)
    assert checked.most_neighbours < USERS
    fewer = replace(
        checked, session=replace(checked.session, place=replace(checked.session.place, most_drawn_by=0))
    )
    entry = entry_of(honest(), v.COMMIT, CHEAT)
    rules = type(honest().relay._rules)(honest().context, fewer, bytes(32))
    with pytest.raises(PeerFault, match="more than any user accepts"):
        rules.read_commit(8, entry.payload, CHEAT)


def test_an_edge_is_checked_after_the_fact_too() -> None:
    """A log whose opened edge is another one, rightly signed, names who opened it: it was to be excluded."""
    played = run({CHEAT: off_by_one})
    entries = played.entries
    [place, *_] = [place for place, entry in enumerate(entries) if entry.kind == v.OPEN]
    message = decode(entries[place].payload, v.Open, "")
    delta = (np.frombuffer(message.deltas, "<u8") + np.uint64(1)).tobytes()
    entries[place] = played.sign(entries[place], encode(replace(message, deltas=delta)))
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in played.log(entries))), threads=1)
    assert report.code == 1
    assert f"no edges opened to {entries[place].party}, who signed something false" in report.faults[0]
    assert any("opened an edge to something else" in fault for fault in report.faults[1:])


def test_a_ledger_is_not_charged_for_cheats_that_the_relay_makes_up() -> None:
    """Of users who are no neighbours a user is not shown what is false: too many of them are a lie."""
    victim = NAMES[0]
    near = {victim, *neighbours_of(honest(), victim)}
    far = [party for party, name in enumerate(NAMES, 1) if name not in near]
    assert parameters(SPARSE).epsilon_without(len(far)) > parameters(SPARSE).epsilon_without(0)

    class Slandering(VerifiableRelayMachine):
        def _write(self, step: str, names: Sequence[str], message: msgspec.Struct) -> list[Envelope]:
            if step == v.PUBLICATIONS and victim in names:
                message = replace(message, false=pack_list(far))
            return super()._write(step, names, message)

    played = run(relay=Slandering)
    error = played.errors[victim]
    assert isinstance(error, PeerFault)
    assert error.culprit == RELAY
    assert "goes on with too few users" in str(error)
    assert played.users[victim].take_raised() == []
