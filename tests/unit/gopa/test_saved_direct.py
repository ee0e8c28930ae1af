"""What a party without an aggregator has said in its last request is there while the next one runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.gopa.direct_states import party
from smpc_dp.engine.counter import FileCounter
from smpc_dp.engine.events import Cancellation, Start
from smpc_dp.engine.saved_collector import SavedPeer
from smpc_dp.errors import Check, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.connection import IN_NO_TOTAL
from smpc_dp.session.events import ignore
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import simulated_session
from smpc_dp.session.opening import open_connection
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.wire.envelope import Envelope
from tests.faults.saved_direct_schedules import GIVEN
from tests.faults.saved_session_schedules import without_syncs

Open = Callable[[], SavedSessionState]
AWAY = TimeoutFault({"x"}, "start", "away")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    without_syncs(monkeypatch)
    simulated = simulated_session("gopa", GIVEN, 3, seed_for_simulation=1)
    member = simulated.membership(simulated.parties[1], tmp_path)
    (tmp_path / "counter").mkdir()

    def again() -> SavedSessionState:
        return SavedSessionState(member, tmp_path / "state", tmp_path / "counter")

    again.member = member  # type: ignore[attr-defined]
    return again


def run_of(opened: Open, state: SavedSessionState, number: int) -> Any:
    """Begin a call, or go on with it, and return its run."""
    member = opened.member  # type: ignore[attr-defined]
    assert state.begin_call(number, f"sum {number}", chosen=True) == number
    vector = np.zeros(member.encoding.ring_length, member.encoding.dtype)
    context = member.context(number, f"sum {number}")
    run, _ = state.party_run(party(context, member.parameters, member.identity, vector), vector)
    assert isinstance(run, SavedPeer)
    return run


def begun(opened: Open, state: SavedSessionState, number: int) -> Any:
    """Begin a call, and return its run, which has said hello."""
    run = run_of(opened, state, number)
    run.handle(Start())
    return run


def ended(run: Any, error: SmpcError = AWAY) -> tuple[Envelope, ...]:
    """End a run, and return what says so."""
    return tuple(run.handle(Cancellation(error)))


def test_what_was_said_in_the_last_request_is_there_until_the_next_one_ends(opened: Open) -> None:
    state = opened()
    left = ended(begun(opened, state, 1))
    assert state.earlier_messages() == (0, ())
    begun(opened, state, 2)
    assert state.earlier_messages() == (1, left)
    state.close()
    again = opened()
    assert again.earlier_messages() == (1, left)
    left = ended(run_of(opened, again, 2))
    again.answer(2, with_result=False)
    again.end_session()
    again.close()
    # Between two calls that of the last one.
    again = opened()
    assert again.earlier_messages() == (2, left)
    begun(opened, again, 3)
    assert again.earlier_messages() == (2, left)
    assert [request for _, request, _ in again._attempts()] == [2, 3]
    assert len([*again.counter_folder.glob("*.counter")]) == 2  # type: ignore[union-attr]


def test_a_request_that_is_given_up_is_said_nothing_of(opened: Open) -> None:
    state = opened()
    begun(opened, state, 1)
    begun(opened, state, 2)
    assert state.earlier_messages() == (0, ())
    assert [request for _, request, _ in state._attempts()] == [2]


def test_nothing_is_said_that_the_counter_has_not_confirmed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process, on a copy, may have confirmed another end."""
    state = opened()
    run = begun(opened, state, 1)
    with monkeypatch.context() as patch:

        def fail(*_arguments: object) -> None:
            raise LocalError("the counter is away")

        patch.setattr(FileCounter, "advance", fail)
        with pytest.raises(LocalError, match="away"):
            ended(run)
    begun(opened, state, 2)
    assert [request for _, request, _ in state._attempts()] == [1, 2]
    assert state.earlier_messages() == (0, ())


def test_the_same_call_raises_the_error_that_has_ended_its_run(opened: Open) -> None:
    """An earlier process has ended it, and its caller has not had the error with its evidence."""
    member = opened.member  # type: ignore[attr-defined]
    state = opened()
    evidence = {"first": b"1", "second": b"2"}
    fault = PeerFault(member.session.roster.party_names[0], "lied", Check.EQUIVOCATION, evidence)
    ended(begun(opened, state, 1), fault)
    state.close()

    async def charge(run_id: bytes, raised: object = None) -> None:
        pytest.fail("nothing was released")

    async def call_again() -> None:
        again = opened()
        connection = await open_connection(member, ignore, state=again)
        vector = np.zeros(member.encoding.ring_length, member.encoding.dtype)
        with pytest.raises(PeerFault) as caught:
            await connection.run(1, "sum 1", vector, charge, label="1")
        assert (caught.value.evidence, caught.value.culprit) == (evidence, fault.culprit)
        assert str(caught.value) == f"{fault}; {IN_NO_TOTAL}"
        assert not again.is_under_way
        await connection.close()

    run_simulation(call_again)
