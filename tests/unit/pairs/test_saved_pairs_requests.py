"""What a saved session keeps of an aggregator's requests beside sums, which are for statistics of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.ustatistic.messages import HELLO
from smpc_dp.engine.registry import make_aggregator
from smpc_dp.engine.saved_collector import SavedCollection
from smpc_dp.errors import LocalError
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.session.tasks import CONVICTING
from tests.faults.saved_session_schedules import EXACT, without_syncs


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return create_local_session(tmp_path, ("alice", "bob", "carol"), EXACT)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "counter").mkdir()
    return {"folder": tmp_path / "state", "counter": tmp_path / "counter"}


def serving(member: Membership, number: int) -> Any:
    """Return the role of an aggregator in a request for a sum."""
    return make_aggregator(member.context(number), member.parameters, member.identity)


def statistic(path: Path, number: int) -> Any:
    """Return the role of an aggregator in a request for a statistic of pairs."""
    member = Membership.load(path, "aggregator", role="aggregator")
    board = MemoryBoard("")
    return CONVICTING.find().aggregator(member.context(number), member, board, ())


def test_an_aggregator_knows_what_a_saved_request_is_for(path: Path, folders: dict[str, Any]) -> None:
    """Of the last two requests, before it makes their roles."""
    member = Membership.load(path, "aggregator", role="aggregator")
    state = SavedSessionState(member, **folders)
    for number in range(1, 5):
        run = serving(member, number) if number == 2 else statistic(path, number)
        state.begin_collection(run)
        state.end_collection(number)
    state.close()
    again = SavedSessionState(member, **folders)
    assert [again.beside(number) for number in range(1, 6)] == ["", "", HELLO, HELLO, ""]
    assert isinstance(again.restored_collection(statistic(path, 4)), SavedCollection)
    with pytest.raises(LocalError, match="begun with other terms, or for another question"):
        again.restored_collection(serving(member, 4))
    again.close()


def test_a_request_that_has_no_state_may_be_for_something_else(path: Path, folders: dict[str, Any]) -> None:
    """The process ended after it had noted what parties asked for, and before the first state."""
    member = Membership.load(path, "aggregator", role="aggregator")
    state = SavedSessionState(member, **folders)
    state._requests.begin(member.session.digest, 1, "")
    state.number = 1
    state._keep_beside(1, HELLO)
    state.close()
    again = SavedSessionState(member, **folders)
    assert again.beside(1) == HELLO
    assert again.restored_collection(statistic(path, 1)) is None
    again.begin_collection(serving(member, 1))
    assert again.beside(1) == ""
    again.close()
