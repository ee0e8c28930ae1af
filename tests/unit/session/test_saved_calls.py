"""Calls of several requests with saved states: which one goes on, from where, and what is refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from smpc_dp.cli.saved_members import SavedMembers
from smpc_dp.engine.registry import make_party
from smpc_dp.errors import ConfigError, LocalError, SmpcError, TimeoutFault
from smpc_dp.records.requests.record_steps import begin_steps
from smpc_dp.records.requests.served_steps import ServedSteps
from smpc_dp.records.step_sums import StepSums
from smpc_dp.records.table import read_table
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.progress import Progress, SavedProgress
from smpc_dp.session.saved_session import PROGRESS, SavedSessionState
from smpc_dp.session.session_file import load_session
from smpc_dp.session.session_state import LostRunError, check_can_save
from tests.faults.saved_session_schedules import without_syncs
from tests.unit.records.test_fit import FITS, SCHEMA, hospital

PARTIES = ("alice", "bob", "carol")
STEPS = 3
FIT: dict[str, object] = {
    "records": {**SCHEMA, "rows_expected": 80_000},
    "ask": FITS["ill"],
    "steps": STEPS,
    "dropout": 0.0,
    "corrupt": 0.0,
}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


@pytest.fixture
def member(tmp_path: Path) -> Membership:
    return Membership.load(create_local_session(tmp_path, PARTIES, FIT), "alice")


@pytest.fixture
def reopened(tmp_path: Path, member: Membership) -> Callable[[], SavedSessionState]:
    """Return the state of alice, as a new process opens it."""
    (tmp_path / "counter").mkdir()
    opened: list[SavedSessionState] = []

    def opens() -> SavedSessionState:
        for one in opened:
            one.close()
        opened.append(SavedSessionState(member, tmp_path / "state", tmp_path / "counter"))
        return opened[-1]

    return opens


# Progress


def test_progress_outlives_the_process(tmp_path: Path) -> None:
    progress = SavedProgress(tmp_path / "progress", "pair")
    progress.begin("fit 1", 4)
    progress.add(4, b"a")
    progress.add(5, b"b")
    again = SavedProgress(tmp_path / "progress", "pair")
    assert (again.call, again.first, again.state, again.results) == ("fit 1", 4, b"", {4: b"a", 5: b"b"})
    again.keep(b"model")
    again.add(6, b"c")
    third = SavedProgress(tmp_path / "progress", "pair")
    assert (third.call, third.first, third.state, third.results) == ("fit 1", 4, b"model", {6: b"c"})
    third.begin("fit 2", 7)
    assert SavedProgress(tmp_path / "progress", "pair").state == b""
    assert (tmp_path / "progress").stat().st_mode & 0o077 == 0


def test_damaged_progress_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    SavedProgress(file, "pair").begin("fit 1", 1)
    content = msgspec.msgpack.decode(file.read_bytes())
    file.write_bytes(msgspec.msgpack.encode(content | {"version": 2}))
    with pytest.raises(LocalError, match="progress of version 2; this release reads 1"):
        SavedProgress(file, "pair")
    file.write_bytes(msgspec.msgpack.encode(content))
    with pytest.raises(LocalError, match=f"{file}: is of another folder"):
        SavedProgress(file, "another pair")
    file.write_bytes(b"\xc1")
    with pytest.raises(LocalError, match=f"{file}: is damaged, or no progress of a call"):
        SavedProgress(file, "pair")


def test_progress_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = SavedProgress(tmp_path / "progress", "pair")
    progress.begin("fit 1", 1)

    def full(*_arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LocalError, match=r"progress: cannot be written \(No space left"):
        progress.add(1, b"a")
    assert progress.results == {} == SavedProgress(tmp_path / "progress", "pair").results


# Statistics of records


@dataclass
class _Ledger:
    checked: list[int] = field(default_factory=list)

    def check(self, events: list[object]) -> None:
        self.checked.append(len(events))


def requests_of(state: SavedSessionState) -> Any:
    """Return what `begin_steps` needs of the requests of a party."""

    def take(number: int | None, label: str = "") -> None:
        raise AssertionError("is taken later")

    return SimpleNamespace(
        state=state,
        party="alice",
        number=state.number,
        ledger=_Ledger(),
        membership=SimpleNamespace(event=object),
        check_known=lambda _label: None,
        take=take,
    )


def open_run(state: SavedSessionState, number: int, label: str, path: Path | None = None) -> None:
    """Begin the run of a request, whose first state is saved."""
    member = Membership.load(path or state.folder.parent / "session.toml", "alice")
    operation = f"statistics {label}"
    state.begin_call(number, operation, chosen=True)
    vector = np.zeros(member.parameters.shape, member.encoding.dtype)
    context = member.context(number, operation)
    state.party_run(make_party(context, member.parameters, member.identity, vector), vector)


def test_a_call_goes_on_at_the_request_that_is_not_over(reopened: Callable[[], SavedSessionState]) -> None:
    state = reopened()
    call = begin_steps(requests_of(state), None, "fit 1", STEPS)
    assert (call.first, call.last, call.resumed) == (1, 3, False)
    open_run(state, 1, "fit 1")
    sums = StepSums(bytes(8), (0, 1), 0)
    call.keep(1, sums)
    state = reopened()
    call = begin_steps(requests_of(state), None, "fit 1", STEPS)
    assert (call.first, call.last, call.resumed) == (1, 3, True)
    assert (call.sums(1), call.sums(2)) == (sums, None)
    # By number too.
    assert state.following_call("fit 1", STEPS) == 1


def test_another_label_is_of_the_next_requests(reopened: Callable[[], SavedSessionState]) -> None:
    state = reopened()
    begin_steps(requests_of(state), None, "fit 1", STEPS)
    open_run(state, 1, "fit 1")
    with pytest.raises(ConfigError, match="request 1 is under way for 'statistics fit 1'"):
        begin_steps(requests_of(state), None, "fit 2", STEPS)
    # By a number it gives the request up; one that ended does not come back.
    begin_steps(requests_of(state), 4, "fit 2", STEPS)
    assert state.progress.first == 4
    open_run(state, 4, "fit 2")
    with pytest.raises(ConfigError, match="request 1 has ended, or was for another label"):
        begin_steps(requests_of(state), 1, "fit 1", STEPS)


def test_a_call_that_failed_does_not_go_on(reopened: Callable[[], SavedSessionState]) -> None:
    state = reopened()
    requests = requests_of(state)
    call = begin_steps(requests, None, "fit 1", STEPS)
    requests.number = 1
    call.fail(TimeoutFault({"bob"}, "hello"))
    assert reopened().following_call("fit 1", STEPS) == 4


@pytest.mark.parametrize("error", [LocalError("the disk is full"), LostRunError("lost")])
def test_what_can_go_on_has_not_failed(reopened: Callable[[], SavedSessionState], error: SmpcError) -> None:
    state = reopened()
    requests = requests_of(state)
    call = begin_steps(requests, None, "fit 1", STEPS)
    requests.number = 1
    call.fail(error)
    assert state.progress.has_failed == isinstance(error, LostRunError)
    open_run(state, 1, "fit 1")
    # An open run is suspended, whatever is raised.
    state.progress.begin("fit 1", 1)
    call.fail(TimeoutFault({"aggregator"}, "hello"))
    assert not state.progress.has_failed


def test_progress_that_was_set_back_is_refused(reopened: Callable[[], SavedSessionState]) -> None:
    state = reopened()
    call = begin_steps(requests_of(state), None, "fit 1", STEPS)
    open_run(state, 1, "fit 1")
    earlier = (state.folder / PROGRESS).read_bytes()
    call.keep(1, StepSums(bytes(8), (0,), 0))
    open_run(state, 2, "fit 1")
    (state.folder / PROGRESS).write_bytes(earlier)
    state = reopened()
    call = begin_steps(requests_of(state), None, "fit 1", STEPS)
    with pytest.raises(LocalError, match=r"progress: the result of request 1, .*: the file was set back"):
        call.sums(1)


def test_a_ledger_needs_what_is_left_of_a_call(reopened: Callable[[], SavedSessionState]) -> None:
    state = reopened()
    requests = requests_of(state)
    call = begin_steps(requests, None, "fit 1", STEPS)
    assert requests.ledger.checked == [STEPS]
    open_run(state, 1, "fit 1")
    requests = requests_of(reopened())
    begin_steps(requests, None, "fit 1", STEPS)
    # The open one may be charged.
    assert requests.ledger.checked == [STEPS - 1]
    call.keep(1, StepSums(bytes(8), (0,), 0))
    requests = requests_of(reopened())
    begin_steps(requests, None, "fit 1", STEPS)
    assert requests.ledger.checked == [STEPS - 1]


def test_an_aggregator_knows_the_parameters_of_the_next_step(tmp_path: Path, member: Membership) -> None:
    first: Any = member.parameters
    rows = read_table(hospital(1, 200), first.schema, party="alice")
    outcome: Any = SimpleNamespace(
        total=first.request.vector(rows),
        survivors=PARTIES,
        absent=(),
        faults=(),
        noise=None,
        privacy=first.privacy_of_all,
        evidence=None,
    )
    served = ServedSteps(member, SavedProgress(tmp_path / "progress", "pair"))
    one = served.answered(1, f"statistics fit 1 {first.planned()}", outcome)
    second = first.following(cast("Any", one).answers)
    assert second.planned() != first.planned()
    again = ServedSteps(member, SavedProgress(tmp_path / "progress", "pair"))
    two = again.answered(2, f"statistics fit 1 {second.planned()}", outcome)
    assert not isinstance(two, LocalError)
    # A request that is served again has the parameters of then.
    third = ServedSteps(member, SavedProgress(tmp_path / "progress", "pair"))
    assert third.answered(2, f"statistics fit 1 {second.planned()}", outcome) == two
    forgetful = ServedSteps(member, Progress())
    assert isinstance(forgetful.answered(2, f"statistics {second.planned()}", outcome), LocalError)


def test_sums_that_are_stored_are_those_of_the_outcome() -> None:
    outcome: Any = SimpleNamespace(
        total=np.array([-5, 1 << 62]), survivors=("alice", "carol"), noise=SimpleNamespace(residual_pairs=2)
    )
    sums = StepSums.of(outcome, PARTIES)
    assert StepSums.decode(sums.encode()) == sums
    assert (sums.survivors, sums.residual_pairs) == ((0, 2), 2)
    assert np.frombuffer(sums.total, "<i8").tolist() == [-5, 1 << 62]
    with pytest.raises(LocalError, match="damaged"):
        StepSums.decode(b"")


def test_a_session_of_records_is_saved(member: Membership) -> None:
    check_can_save(member.session)


def test_members_of_a_run_join_the_first_request_of_a_call(tmp_path: Path, member: Membership) -> None:
    media = (tmp_path / "states", tmp_path / "counters")

    def number(path: Path) -> object:
        return SavedMembers(load_session(path), path, None, *media).options("alice")["--number"]

    path = tmp_path / "session.toml"
    assert number(path) == 1
    state = SavedSessionState(member, media[0] / "alice", media[1] / "alice")
    begin_steps(requests_of(state), 1, "", STEPS)
    open_run(state, 1, "", path)
    state.progress.add(1, StepSums(bytes(8), (0,), 0).encode())
    open_run(state, 2, "", path)
    state.close()
    assert number(path) == 1
