"""Learners with saved states: from where they go on, and which are refused by name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.averager import Averaged
from smpc_dp.capabilities.learn.requests.averaging import LearnerRequests, PartyAverager
from smpc_dp.capabilities.learn.requests.learning import learn_parameters
from smpc_dp.capabilities.learn.requests.saved_averages import StoredAverage, StoredRows, Tally
from smpc_dp.capabilities.learn.requests.saved_steps import SavedSteps
from smpc_dp.capabilities.learn.step_progress import TakenSteps
from smpc_dp.cli.saved_members import SavedMembers
from smpc_dp.engine.registry import make_party
from smpc_dp.errors import Check, ConfigError, LocalError, PeerFault, SmpcError
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.progress import SavedProgress
from smpc_dp.session.requests import Counter
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.session.session_file import load_session
from smpc_dp.session.session_state import check_can_save
from tests.faults.saved_session_schedules import without_syncs
from tests.unit.learn.test_simulated_learn import REPORTS

PARTIES = ("alice", "bob", "carol")
SGD: dict[str, object] = {"learner": "sgd", "features": 2, "steps": 3}
DUAL: dict[str, object] = {"learner": "dual-averaging-groups", "features": 2, "steps": 3, "group": 3}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


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
        progress = SavedProgress(tmp_path / "progress", "pair")
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
        SavedSteps("alice", SavedProgress(tmp_path / "progress", "pair"), "model:2", counter, [averager])


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
    with pytest.raises(LocalError, match="damaged"):
        _ = StoredRows((1, 3), bytes(16)).rows


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
    server: Any = SimpleNamespace(progress=SavedProgress(file, "pair"), first=1, skip=skip)
    first = LearnerRequests(member, request, server)
    for number in (1, 2, 3):
        await first.serve(number, None, PARTIES)
    server.progress, server.first = SavedProgress(file, "pair"), 4
    again = LearnerRequests(member, request, server)
    for number in (1, 2, 3, 4):
        await again.serve(number, None, PARTIES)
    assert (served, passed) == ([1, 2, 3, 4], [1, 2, 3])
    assert again.failures == {3: "too few"}


@pytest.mark.parametrize(
    ("protocol", "given", "reason"),
    [
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


def test_a_plan_numbers_the_requests_of_a_run(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, SGD, protocol="learn")
    saved = SavedMembers(load_session(path), path, None, tmp_path / "states", tmp_path / "counters")
    assert saved.options("alice")["--number"] is None
