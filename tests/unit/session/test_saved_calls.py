"""Calls of several requests with saved states: which one goes on, from where, and what is refused by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from smpc_dp.capabilities.learn.averager import Averaged
from smpc_dp.capabilities.learn.requests.averaging import LearnerRequests, PartyAverager
from smpc_dp.capabilities.learn.requests.learning import learn_parameters
from smpc_dp.capabilities.learn.requests.saved_averages import StoredAverage, Tally
from smpc_dp.capabilities.learn.requests.saved_steps import SavedSteps
from smpc_dp.capabilities.learn.step_progress import TakenSteps
from smpc_dp.cli.saved_members import SavedMembers
from smpc_dp.engine.registry import make_party
from smpc_dp.errors import Check, ConfigError, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.records.requests.record_steps import begin_steps
from smpc_dp.records.requests.served_steps import ServedSteps
from smpc_dp.records.step_sums import StepSums
from smpc_dp.records.table import read_table
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.progress import Progress, SavedProgress
from smpc_dp.session.requests import Counter
from smpc_dp.session.saved_session import PROGRESS, SavedSessionState
from smpc_dp.session.session_file import load_session
from smpc_dp.session.session_state import LostRunError, check_can_save
from tests.faults.saved_call_schedules import FIT
from tests.faults.saved_session_schedules import without_syncs
from tests.unit.learn.test_simulated_learn import REPORTS
from tests.unit.records.test_fit import hospital

PARTIES = ("alice", "bob", "carol")
STEPS = 3
SGD: dict[str, object] = {"learner": "sgd", "features": 2, "steps": 3}
DUAL: dict[str, object] = {"learner": "dual-averaging-groups", "features": 2, "steps": 3, "group": 3}


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
    progress = SavedProgress(tmp_path / "progress")
    progress.begin("fit 1", 4)
    progress.add(4, b"a")
    progress.add(5, b"b")
    again = SavedProgress(tmp_path / "progress")
    assert (again.call, again.first, again.state, again.results) == ("fit 1", 4, b"", {4: b"a", 5: b"b"})
    again.keep(b"model")
    again.add(6, b"c")
    third = SavedProgress(tmp_path / "progress")
    assert (third.call, third.first, third.state, third.results) == ("fit 1", 4, b"model", {6: b"c"})
    third.begin("fit 2", 7)
    assert SavedProgress(tmp_path / "progress").state == b""
    assert (tmp_path / "progress").stat().st_mode & 0o077 == 0


def test_damaged_progress_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    SavedProgress(file).begin("fit 1", 1)
    content = msgspec.msgpack.decode(file.read_bytes())
    file.write_bytes(msgspec.msgpack.encode(content | {"version": 2}))
    with pytest.raises(LocalError, match="progress of version 2; this release reads 1"):
        SavedProgress(file)
    file.write_bytes(b"\xc1")
    with pytest.raises(LocalError, match=f"{file}: is damaged, or no progress of a call"):
        SavedProgress(file)


def test_progress_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = SavedProgress(tmp_path / "progress")
    progress.begin("fit 1", 1)

    def full(*_arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LocalError, match=r"progress: cannot be written \(No space left"):
        progress.add(1, b"a")
    assert progress.results == {} == SavedProgress(tmp_path / "progress").results


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
    served = ServedSteps(member, SavedProgress(tmp_path / "progress"))
    one = served.answered(1, f"statistics fit 1 {first.planned()}", outcome)
    second = first.following(cast("Any", one).answers)
    assert second.planned() != first.planned()
    again = ServedSteps(member, SavedProgress(tmp_path / "progress"))
    two = again.answered(2, f"statistics fit 1 {second.planned()}", outcome)
    assert not isinstance(two, LocalError)
    # A request that is served again has the parameters of then.
    third = ServedSteps(member, SavedProgress(tmp_path / "progress"))
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


# Learners


@dataclass
class _Averager:
    """What `SavedSteps` needs of an averager."""

    tally: Tally

    def restore(self, tally: Tally) -> None:
        self.tally = tally


def test_a_learner_goes_on_after_the_last_step(tmp_path: Path) -> None:
    def steps(tally: Tally) -> tuple[SavedSteps, Counter, Any]:
        averager: Any = _Averager(tally)
        counter = Counter()
        progress = SavedProgress(tmp_path / "progress")
        return SavedSteps("alice", progress, "model:1", counter, [averager]), counter, averager

    saved, counter, _ = steps(Tally(2, 3, 2, 1))
    assert asyncio.run(saved.restore()) is None
    assert not saved.resumed
    counter.take(4)
    model = np.array([[0.1 + 0.2, -np.pi]])
    taken = TakenSteps(2, model, np.array([2]), np.array([1]), ("bob left",), ((2, 0.5),))
    asyncio.run(saved.keep(taken))
    saved, counter, averager = steps(Tally(0, 0, 0, 0))
    restored = asyncio.run(saved.restore())
    assert restored is not None
    assert saved.resumed
    assert restored.models.tobytes() == model.tobytes()
    assert (restored.number, restored.failures, restored.metrics) == (2, ("bob left",), ((2, 0.5),))
    assert (restored.planned.tolist(), restored.done.tolist()) == ([2], [1])
    assert (counter.taken, averager.tally) == (4, Tally(2, 3, 2, 1))
    with pytest.raises(ConfigError, match="has begun to learn another model"):
        SavedSteps("alice", SavedProgress(tmp_path / "progress"), "model:2", counter, [averager])


def test_a_stored_average_is_that_of_the_request() -> None:
    averaged = Averaged(np.array([[0.1, 0.2]]), np.array([3.0]), absent=("bob",))
    stored = StoredAverage.decode(StoredAverage.of(averaged, checked=True))
    assert stored.checked
    assert stored.averaged.values.tobytes() == averaged.values.tobytes()
    assert (stored.averaged.weights.tolist(), stored.averaged.absent) == ([3.0], ("bob",))
    failed = StoredAverage.decode(StoredAverage.of_error(PeerFault("bob", "lied", Check.BAD_SIGNATURE)))
    with pytest.raises(PeerFault, match="lied"):
        _ = failed.averaged
    with pytest.raises(LocalError, match="damaged"):
        StoredAverage.decode(b"\x00")


async def test_a_party_uses_what_it_has_and_refuses_what_was_set_back(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, SGD, protocol="learn")
    member = Membership.load(path, "alice")
    state = SavedSessionState(member, tmp_path / "state")
    connection: Any = SimpleNamespace(membership=member, state=state)
    averaging = learn_parameters(member).mix
    assert averaging is not None

    def averager() -> PartyAverager:
        return PartyAverager(connection, averaging, Counter(), "mix", "mix", None, lambda _event: None)

    vector = np.zeros((1, 2 + 1))
    known = Averaged(vector + 1, np.array([3.0]))
    state.progress.add(1, StoredAverage.of(known, checked=True))
    one = averager()
    assert (await one.average(vector)).values.tolist() == known.values.tolist()
    assert one.tally == Tally(1, 1, 1, 1)
    state.begin_call(2, "average", chosen=True)
    state.progress.keep(b"")
    with pytest.raises(LocalError, match="the result of request 1, which is over, is not there"):
        await averager().average(vector)


def test_the_run_of_a_group_is_open_until_it_is_over(tmp_path: Path) -> None:
    """A member that is told to stop says no goodbye within it, and its state is removed when it has ended."""
    path = create_local_session(tmp_path, PARTIES, SGD, protocol="learn")
    session = Membership.load(path, "alice")
    planned = learn_parameters(session).mix
    assert planned is not None
    group = session.of_group(planned.parameters(3), PARTIES)
    context = group.context(1, "mix")
    state = SavedSessionState(session, tmp_path / "state")
    state.begin_call(1, "mix", chosen=True, scope=context.scope)
    vector = np.zeros(group.parameters.shape, group.encoding.dtype)
    state.party_run(make_party(context, group.parameters, group.identity, vector), None)
    assert context.scope != session.session.digest
    assert state.end_session()
    # Another vector is not refused: the stored one counts.
    vector = vector + 1
    run, resumed = state.party_run(make_party(context, group.parameters, group.identity, vector), None)
    assert not resumed
    assert not run.state.vector.any()
    state.begin_call(2, "average", chosen=True, scope=context.scope)
    assert state._attempts() == []
    state.close()


async def test_an_aggregator_passes_over_what_was_served(tmp_path: Path) -> None:
    passed: list[int] = []
    served: list[int] = []

    async def skip(number: int, _group: Any) -> None:
        passed.append(number)

    async def request(number: int, _group: Any) -> SmpcError | bool:
        served.append(number)
        return LocalError("too few") if number == 3 else True

    member: Any = SimpleNamespace(of_group=lambda _parameters, _names: "group", servers=())
    file = tmp_path / "progress"
    server: Any = SimpleNamespace(progress=SavedProgress(file), first=1, skip=skip)
    first = LearnerRequests(member, request, server)
    for number in (1, 2, 3):
        await first.serve(number, None, PARTIES)
    server.progress, server.first = SavedProgress(file), 4
    again = LearnerRequests(member, request, server)
    for number in (1, 2, 3, 4):
        await again.serve(number, None, PARTIES)
    assert (served, passed) == ([1, 2, 3, 4], [1, 2, 3])
    assert again.failures == {3: "too few"}


# Sessions


@pytest.mark.parametrize(
    ("protocol", "given", "reason"),
    [
        ("secagg", FIT, ""),
        ("learn", SGD, ""),
        ("learn", SGD | {"learner": "block-gossip", "group": 3}, ""),
        ("learn", SGD | {"learner": "diffusion", "group": 3}, ""),
        ("learn", SGD | {"learner": "diffusion", "noise": "none"}, ""),
        (
            "learn",
            SGD | {"learner": "diffusion", "noise": "iid", "epsilon": 1.0},
            "'diffusion' sends messages",
        ),
        ("learn", DUAL, "'dual-averaging-groups' keeps the average of its models"),
        ("learn", REPORTS, "'gossip-reports' sends messages between parties"),
        ("learn", SGD | {"averager": {"method": "local"}, "epsilon": 1.0, "delta": 1e-6}, "'exchange'"),
    ],
)
def test_sessions_are_saved_or_refused_by_name(
    tmp_path: Path, protocol: str, given: dict[str, object], reason: str
) -> None:
    session = load_session(create_local_session(tmp_path, PARTIES, given, protocol=protocol))
    if not reason:
        check_can_save(session)
        return
    with pytest.raises(ConfigError, match=f"is not for this session: .*{reason}"):
        check_can_save(session)


def test_servers_are_refused_by_name(tmp_path: Path) -> None:
    given = SGD | {"averager": {"method": "mpyc"}, "epsilon": 1.0, "delta": 1e-6}
    path = create_local_session(tmp_path, PARTIES, given, protocol="learn")
    with pytest.raises(ConfigError, match="averages by 'mpyc' are not saved yet"):
        check_can_save(load_session(path))


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
    learning = create_local_session(tmp_path / "learn", PARTIES, SGD, protocol="learn")
    media = (tmp_path / "states of learners", tmp_path / "counters of learners")
    # A plan numbers its requests.
    assert number(learning) is None
