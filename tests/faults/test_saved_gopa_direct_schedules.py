"""Sessions of GOPA without an aggregator go on after crashes of their parties, to one total for all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Code, OtherRequestError, TimeoutFault
from smpc_dp.session.connection import IN_NO_TOTAL, IN_TOTAL, MOST_RENEWALS
from smpc_dp.session.events import ignore
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import party_names
from smpc_dp.session.opening import open_connection
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport.interfaces import PeerChannel
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.wire.envelope import Envelope
from tests.faults.saved_direct_schedules import GIVEN, Crash, Rule, play, session
from tests.faults.saved_session_schedules import without_syncs

RUNS = 4
FIRST, SECOND, THIRD = party_names(3)
COORDINATOR_STEPS = (
    m.HELLO,
    d.START,
    d.MERKLE_COMMITMENT,
    d.PARTICIPANTS,
    m.ATTEST_PARTICIPANTS,
    PUBLISH,
    d.PUBLISHED,
    d.ATTEST_TOTAL,
)


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


def once(sender: str, step: str, names: tuple[str, ...], seconds: float, nth: int = 1) -> Rule:
    """Return a rule: parties crash before a sender's n-th message of a step."""
    left = nth

    def crash(_sent: int, envelope: Envelope) -> Crash | None:
        nonlocal left
        if (envelope.sender, envelope.step) == (sender, step):
            left -= 1
            if left == 0:
                return names, seconds
        return None

    return crash


@pytest.mark.parametrize("with_counter", [True, False])
@pytest.mark.parametrize("first", [1, pytest.param(1001, marks=[pytest.mark.long, pytest.mark.slow])])
def test_parties_that_crash_have_one_total(first: int, with_counter: bool, tmp_path: Path) -> None:
    crashed = went_on = 0
    runs = RUNS if first == 1 else 50 * RUNS
    for seed in range(first, first + runs):
        played = play(seed, tmp_path / str(seed), with_counter=with_counter)
        crashed += played.crashed.total()
        went_on += played.went_on
    assert crashed > runs
    # Who comes back when all others have ended, or in a later request, may lack signatures of a total.
    assert went_on >= (0.9 * runs if with_counter else 1)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", COORDINATOR_STEPS)
def test_a_coordinator_goes_on_from_any_step(step: str, nth: int, tmp_path: Path) -> None:
    """Also between a proposal to one party and the same to another."""
    played = session(1, tmp_path, 3, once(FIRST, step, (FIRST,), 30.0, nth), requests=1)
    assert played.crashed == {FIRST: 1}
    assert played.went_on, played.errors


@pytest.mark.parametrize("step", [m.HELLO, m.ADVERTISE, m.REVEAL, PUBLISH, d.HELD, d.ATTEST_TOTAL])
def test_all_parties_go_on_that_crash_at_once(step: str, tmp_path: Path) -> None:
    everyone = party_names(4)
    played = session(1, tmp_path, 4, once(everyone[1], step, everyone, 30.0), requests=1)
    assert played.crashed.total() == 4
    assert played.went_on, played.errors


def test_a_party_that_comes_after_the_end_is_sent_what_it_lacks(tmp_path: Path) -> None:
    """The others have the total, and wait for it in their next request, or before they end."""
    for requests in (1, 2):
        rule = once(SECOND, d.ATTEST_TOTAL, (FIRST,), 50.0, 2)
        played = session(1, tmp_path / str(requests), 3, rule, requests=requests)
        assert played.went_on, played.errors
        assert played.results[FIRST][1].resumed


def test_a_party_that_was_away_joins_the_request_of_the_others(tmp_path: Path) -> None:
    """Five go on without it; it is told which request it can join, and its number moves there."""
    everyone = party_names(5)
    timeouts = Timeouts(connect=60.0, step=10.0, gather=60.0)
    away = everyone[2]
    # It has asked for the first request, and is away when the second begins.
    rule = once(away, m.HELLO, (away,), 15.0)
    played = session(1, tmp_path, 5, rule, timeouts=timeouts, requests=6)
    told = [error for error in played.errors[away].values() if isinstance(error, OtherRequestError)]
    assert told, played.errors
    joined = told[-1].next
    assert 1 < joined <= 6
    assert set(played.results[away]) >= set(range(joined + 1, 7))
    for name in set(everyone) - {away}:
        missed = {number for number in range(1, 7) if number not in played.results[name]}
        # Only what it coordinates itself, while it is away, stops.
        assert missed <= {3}, played.errors


def test_a_party_that_is_away_for_good_is_left_out(tmp_path: Path) -> None:
    everyone = party_names(5)
    away = everyone[4]
    played = session(1, tmp_path, 5, once(away, m.REVEAL, (away,), 20_000.0), requests=1)
    for name in everyone[:4]:
        assert played.results[name][1].survivors == everyone[:4], played.errors
    error = played.errors[away][0]
    assert isinstance(error, TimeoutFault)
    assert str(error).endswith(IN_NO_TOTAL)


def test_parties_meet_again_that_are_started_one_after_the_other(tmp_path: Path) -> None:
    """One of them loses the other's channel before it has taken what came over it."""
    played = play(1022, tmp_path)
    assert played.crashed == {FIRST: 2, THIRD: 1}
    assert played.went_on, played.errors


def test_who_finds_nobody_goes_on_later(tmp_path: Path) -> None:
    """Too few are there: the call raises, and the same call in the next process goes on with the run."""
    due = [(SECOND, 1.0), (FIRST, 200.0), (THIRD, 200.0)]

    def rule(_sent: int, envelope: Envelope) -> Crash | None:
        if not due or (len(due) == 3 and envelope.step != PUBLISH):
            return None
        name, seconds = due.pop()
        return (name,), seconds

    played = session(1, tmp_path, 3, rule, requests=1)
    assert played.alone[SECOND] > 1
    assert played.went_on, played.errors
    assert played.results[SECOND][1].resumed


def test_a_coordinator_that_only_calls_holds_nobody_up_for_ever(tmp_path: Path) -> None:
    """The step's time begins anew eight times; here it is cut so often that it never passes."""
    timeouts = Timeouts(connect=10.0, step=10.0, gather=10.0)
    patience = 10.0 + 4 * 10.0
    connections = MemoryConnections()
    simulated = simulated_session(
        "gopa", GIVEN, 3, seed_for_simulation=1, shared=OneProcess(connections), timeouts=timeouts
    )
    ended: dict[str, float] = {}

    async def call_and_cut() -> None:
        channels: list[PeerChannel] = []
        await connections.endpoint(FIRST, 10.0).listen("", 0, channels.append, lambda *_: None)
        while True:
            await asyncio.sleep(patience / 2)
            while channels:
                channels.pop().abort()

    async def wait_for_it(name: str) -> None:
        membership = simulated.membership(name, tmp_path)
        state = SavedSessionState(membership, tmp_path / name)
        session = Session(membership, await open_connection(membership, ignore, state=state), ignore)
        with pytest.raises(TimeoutFault, match=f"{FIRST} .it coordinates this request.*{IN_NO_TOTAL}"):
            await session.sum([1.0], number=1)
        ended[name] = asyncio.get_running_loop().time()
        await session.close()

    async def members() -> None:
        flapping = asyncio.ensure_future(call_and_cut())
        await asyncio.wait_for(asyncio.gather(wait_for_it(SECOND), wait_for_it(THIRD)), 36_000.0)
        flapping.cancel()

    run_simulation(members)
    for seconds in ended.values():
        assert (MOST_RENEWALS / 2) * patience < seconds <= (MOST_RENEWALS / 2 + 2) * patience


def test_without_a_counter_a_late_crash_loses_the_party(tmp_path: Path) -> None:
    everyone = party_names(5)
    late = everyone[3]
    played = session(1, tmp_path, 5, once(late, PUBLISH, (late,), 5.0), with_counter=False, requests=2)
    assert "is not restored without a counter" in str(played.errors[late][1])
    assert IN_TOTAL.partition(",")[0] in str(played.errors[late][1])
    assert all(set(played.results[name]) == {1, 2} for name in set(everyone) - {late}), played.errors
    assert set(played.results[late]) == {2}


def test_a_party_without_a_state_joins_the_next_request(tmp_path: Path) -> None:
    """Its new process is sent the start of a run that the earlier one takes part in: it names nobody else."""
    played = session(1, tmp_path, 3, once(THIRD, m.REVEAL, (THIRD,), 1.0), stateless=(THIRD,))
    error = played.errors[THIRD][1]
    assert isinstance(error, TimeoutFault)
    assert (error.code, error.missing, error.number) == (Code.BEGUN, frozenset({THIRD}), 2)
    assert f"an earlier process of {THIRD} takes part in the run" in str(error)
    assert all(2 in played.results[name] for name in (FIRST, SECOND, THIRD)), played.errors


@pytest.mark.parametrize("stateless", [1, 2])
@pytest.mark.parametrize("first", [1, pytest.param(1001, marks=[pytest.mark.long, pytest.mark.slow])])
def test_no_honest_party_is_blamed_where_some_have_no_state(
    first: int, stateless: int, tmp_path: Path
) -> None:
    """See `Played.check`: nobody has an error that names another party as one that lies."""
    crashed = 0
    for seed in range(first, first + (3 if first == 1 else 200)):
        crashed += play(seed, tmp_path / str(seed), stateless=stateless).crashed.total()
    assert crashed
