"""A conviction is stored and shown before anything else happens, and nothing takes its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smpc_dp.capabilities.pairs.garbled.effects import Receive, Send
from smpc_dp.capabilities.pairs.requests import evaluation, similarity
from smpc_dp.capabilities.pairs.requests.convictions import Convictions
from smpc_dp.capabilities.pairs.requests.evaluation import Evaluations
from smpc_dp.capabilities.pairs.requests.pairwise import drive, run_role
from smpc_dp.capabilities.pairs.requests.relay import Tunnel
from smpc_dp.capabilities.pairs.requests.statistic import PairRounds
from smpc_dp.capabilities.pairs.ustatistic.messages import CONVICTION, RelayEnd
from smpc_dp.capabilities.reports.requests import reporting
from smpc_dp.engine import events
from smpc_dp.engine.collector import Collector, CollectorState, Inbox
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    SmpcError,
    TimeoutFault,
    certificate_of,
)
from smpc_dp.session import aggregator
from smpc_dp.session.deadline import pair_seconds, pairs_seconds
from smpc_dp.session.driver import Drive
from smpc_dp.session.member import CERTIFICATES as FOLDER
from smpc_dp.session.session_file import Timeouts
from smpc_dp.session.session_state import SessionState
from smpc_dp.session.tasks import BESIDE
from smpc_dp.transport.blocking import Halt
from smpc_dp.transport.channel import ChannelClosed
from tests.faults.test_pairs_covert import IDENTITIES, certificate
from tests.unit.pairs.test_convictions import ROSTER, convicted

SLOW = Timeouts(connect=60.0, step=60.0, gather=60.0)


class Judge:
    """Evaluator that has its garbler's statement and judges until `go_on`; then it ends with `found`."""

    name, step, judges = "bob", "checks", True

    def __init__(self, found: Callable[[], SmpcError] = convicted) -> None:
        self.judging, self.go_on = asyncio.Event(), threading.Event()
        self._loop, self._found = asyncio.get_running_loop(), found

    def run(self) -> Iterator[Receive]:
        yield Receive("alice", 1)
        self._loop.call_soon_threadsafe(self.judging.set)
        assert self.go_on.wait(30)
        raise self._found()

    def farewell(self, _error: SmpcError) -> list[Send]:
        return [Send("alice", (b"abort",))]


class Garbler:
    """Channel to a garbler that does not hang up: `farewell` is called when it gets the abort."""

    bytes_sent = bytes_received = 0

    def __init__(self, farewell: Callable[[], None]) -> None:
        self._farewell = farewell

    def receive(self, _limit: int, _ahead: int = 0) -> bytes:
        return b""

    def close(self, _parts: Sequence[bytes] | None = None) -> None:
        self._farewell()


def lost() -> None:
    raise TimeoutFault({"alice"}, "send", "it did not read")


def work_of(judge: Judge, garbler: Garbler, keep: Callable[[SmpcError], SmpcError]) -> Callable[[], Any]:
    return lambda: drive(cast("Any", judge), {"alice": cast("Any", garbler)}, keep=keep)


async def test_a_conviction_is_kept_before_the_farewell_whose_error_does_not_replace_it() -> None:
    order: list[str] = []

    def keep(error: SmpcError) -> SmpcError:
        order.append("kept")
        return PeerFault("alice", "kept", Check.CONVICTED) if certificate_of(error) else error

    def farewell() -> None:
        order.append("farewell")
        lost()

    judge = Judge()
    judge.go_on.set()
    with pytest.raises(PeerFault, match="kept") as caught:
        await asyncio.to_thread(work_of(judge, Garbler(farewell), keep))
    assert order == ["kept", "farewell"]
    assert certificate_of(caught.value.__cause__) == certificate()


@pytest.mark.parametrize("found", [convicted, lambda: TimeoutFault({"alice"}, "inputs")])
async def test_a_cancelled_caller_waits_for_a_judgement_alone(found: Callable[[], SmpcError]) -> None:
    """And goes on with the cancellation, unless its partner is convicted."""
    judge, stopped = Judge(found), asyncio.Event()
    work = work_of(judge, Garbler(lost), lambda error: error)
    task = asyncio.create_task(run_role(cast("Any", judge), work, stopped.set))
    await judge.judging.wait()
    for _ in range(3):
        # Also when the event loop ends, which cancels all tasks again.
        task.cancel()
        await stopped.wait()
        await asyncio.sleep(0)
        assert not task.done()
    judge.go_on.set()
    with pytest.raises(PeerFault if found is convicted else asyncio.CancelledError):
        await task


async def test_a_statement_that_has_arrived_is_judged_though_its_role_has_not_woken() -> None:
    """The caller is cancelled before the role's thread has taken the message."""
    judge = Judge(convicted)
    judge.judges = False
    work = work_of(judge, Garbler(lost), lambda error: error)

    def wake() -> None:
        judge.judges = True
        judge.go_on.set()

    loop = asyncio.get_running_loop()
    stop = cast("Any", lambda: loop.call_later(0.1, wake))
    task = asyncio.create_task(run_role(cast("Any", judge), work, stop))
    await judge.judging.wait()
    task.cancel()
    with pytest.raises(PeerFault):
        await task


async def test_a_cancelled_caller_waits_for_nothing_else_and_the_thread_stores_what_it_finds(
    tmp_path: Path,
) -> None:
    convictions, judge, ended = Convictions(tmp_path / FOLDER, ROSTER), Judge(), threading.Event()
    judge.judges = False
    work = work_of(judge, Garbler(ended.set), convictions.keep)
    task = asyncio.create_task(run_role(cast("Any", judge), work, lambda: None))
    await judge.judging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    judge.go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


class Pairs:
    """Bob's part in two pairs, of which alice garbles the first; its role is a `Judge`.

    `order`: grows with what happens.
    """

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        timeouts: Timeouts = SLOW,
        aggregator: bool = True,
    ) -> None:
        self.order: list[str] = []
        self.judge, self.convictions = Judge(), Convictions(folder, ROSTER)
        self.rounds = rounds = PairRounds.__new__(PairRounds)
        loop = asyncio.get_running_loop()
        rounds._identity, rounds._timeouts = IDENTITIES["bob"], timeouts
        rounds._evaluations = cast("Any", SimpleNamespace(convictions=self.convictions))
        rounds._relayed, rounds._ended, rounds.issues, rounds.convictions = {}, {}, [], {}
        rounds._is_evaluating, rounds._unfinished = True, set()
        rounds._halts = {matching: Halt() for matching in (0, 1)}
        rounds._tunnels = {
            matching: Tunnel("hub", partner, loop, cast("Any", None))
            for matching, partner in enumerate(("alice", "carol"))
        }

        async def show(_matching: int, content: bytes) -> None:
            self.order.append("shown")
            if not aggregator:
                raise TimeoutFault({"hub"}, "send", "it did not read")
            assert content == certificate()

        async def give(message: object) -> None:
            self.order.append(type(message).__name__)

        rounds._show, rounds._give = show, give
        monkeypatch.setattr(rounds, "_drive_pair", self._drive_pair)
        self.garbler: Callable[[], None] = lambda: None
        # Set while the garbler's channel takes the last messages; None: it takes them at once.
        self.finishing: asyncio.Event | None = None

    async def _drive_pair(self, matching: int, *_pair: object) -> None:
        self.order.append(f"pair {matching}")
        if matching == 0:
            keep, halt = self.rounds._keeper(0), self.rounds._halts[0]
            work = work_of(self.judge, Garbler(self._farewell), keep)
            try:
                await run_role(cast("Any", self.judge), work, halt.now)
            finally:
                if self.finishing is not None:
                    self.finishing.set()
                    await asyncio.sleep(60)

    def _farewell(self) -> None:
        self.order.append("stored" if self.convictions.files else "not stored")
        self.order.append("farewell")
        self.garbler()

    def begin(self, pairs: int = 2) -> asyncio.Task[list[int]]:
        self.rounds._began = asyncio.get_running_loop().time()
        reported = cast("Any", SimpleNamespace(notify=lambda *_: None))
        drawn = [(0, "alice", "bob"), (1, "carol", "bob")]
        state = cast("Any", SimpleNamespace(evaluations=drawn[:pairs], failed=()))
        return asyncio.create_task(self.rounds._work(reported, state))


@pytest.mark.parametrize("when", ["before the abort", "after the abort", "hung up", "deadline", "nothing"])
async def test_whatever_a_garbler_does_when_it_has_signed_it_is_convicted(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Timeouts(connect=1.0, step=0.01, gather=0.5)
    pairs = Pairs(tmp_path / FOLDER, monkeypatch, short if when == "deadline" else SLOW)
    rounds, loop = pairs.rounds, asyncio.get_running_loop()
    task = pairs.begin(1 if when == "deadline" else 2)
    await pairs.judge.judging.wait()
    if when == "before the abort":
        rounds._handle_relayed(RelayEnd(0))
        assert rounds._halts[0].halted
    elif when == "after the abort":
        pairs.garbler = lambda: cast("None", loop.call_soon_threadsafe(rounds._handle_relayed, RelayEnd(0)))
    elif when == "hung up":
        pairs.garbler = lost
    while when == "deadline" and not rounds._ended:
        await asyncio.sleep(0.01)
    pairs.judge.go_on.set()
    assert await task == [0]
    (file,) = (tmp_path / FOLDER).iterdir()
    assert rounds.issues[0] == f"pair alice, bob: alice: cheated; its certificate is {file}"
    assert pairs.order[:4] == ["pair 0", "shown", "stored", "farewell"]
    assert pairs.order[4:] == ([] if when == "deadline" else ["pair 1"])


@pytest.mark.parametrize("finishes", [False, True])
async def test_a_run_that_ends_meanwhile_waits_for_the_judgement_and_begins_no_further_pair(
    finishes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller's cancellation, the aggregator's result and an abort all end the holder's work."""
    pairs = Pairs(tmp_path / FOLDER, monkeypatch)
    task = pairs.begin()
    await pairs.judge.judging.wait()
    if finishes:
        pairs.finishing = asyncio.Event()
        pairs.judge.go_on.set()
        await pairs.finishing.wait()
    task.cancel()
    await asyncio.sleep(0)
    pairs.judge.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pairs.order == ["pair 0", "shown", "stored", "farewell"]
    (conviction,) = pairs.rounds.convictions.values()
    assert pairs.rounds.issues == [f"pair alice, bob: {conviction}"]


@pytest.mark.parametrize("broken", ["store", "aggregator"])
async def test_a_conviction_holds_although_it_can_not_be_stored_or_shown(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "none" / FOLDER if broken == "store" else tmp_path / FOLDER
    pairs = Pairs(folder, monkeypatch, aggregator=broken != "aggregator")
    pairs.judge.go_on.set()
    assert await pairs.begin() == [0]
    assert "shown" in pairs.order
    (conviction,) = pairs.rounds.convictions.values()
    assert certificate_of(conviction) == certificate()
    assert ("not stored" in str(conviction)) == (broken == "store")
    issues = [f"pair alice, bob: {conviction}"]
    if broken == "aggregator":
        issues.insert(0, f"{conviction}; the aggregator could not be shown it: {_not_read()}")
    assert pairs.rounds.issues == issues


def _not_read() -> TimeoutFault:
    return TimeoutFault({"hub"}, "send", "it did not read")


async def test_a_partner_that_has_left_is_named_as_that_and_a_late_pair_blames_nobody_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other errors of a cut channel do not say why; a convicted partner is refused in either case."""
    pairs = Pairs(tmp_path / FOLDER, monkeypatch)
    rounds = pairs.rounds

    async def cut(matching: int, *_pair: object) -> None:
        end = rounds._handle_relayed if matching == 0 else rounds._expire_pair
        end(*((RelayEnd(0),) if matching == 0 else (1, TimeoutFault({"bob", "carol"}, "pair", "slow"))))
        raise TimeoutFault({"hub"}, "pair", "the connection is lost")

    monkeypatch.setattr(rounds, "_drive_pair", cut)
    assert await pairs.begin() == [0, 1]
    left, late = rounds.issues
    assert "missing in step 'pair': alice (it has left this pair" in left
    assert "missing in step 'pair': bob, carol (slow)" in late
    with pytest.raises(TimeoutFault, match="lost"):
        rounds._tunnels[1].receive(1)
    pairs.convictions.add("alice", certificate())
    assert await pairs.begin() == [0, 1]
    assert "is refused: it is convicted of cheating" in rounds.issues[2]
    assert pairs.order == ["RelayEnd"]


async def test_a_party_that_is_late_itself_blames_no_partner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = Pairs(tmp_path / FOLDER, monkeypatch)
    task = pairs.begin(1)
    pairs.rounds._began -= 1000.0
    assert await task == [0]
    assert pairs.rounds.issues == [
        "pair alice, bob: missing in step 'pair': bob (this party came too late to it)"
    ]


def test_a_silent_aggregator_in_a_pair_may_wait_for_the_partner() -> None:
    tunnel = Tunnel("hub", "alice", cast("Any", None), cast("Any", None))
    with pytest.raises(TimeoutFault, match="who is silent is not known") as caught:
        tunnel.receive(1)
    assert caught.value.missing == {"hub", "alice"}


@pytest.mark.parametrize("matching", range(4))
def test_the_pairs_of_a_party_do_not_take_time_from_each_other(matching: int) -> None:
    """Who was kept by an earlier partner to the end is waited for; all judge in time for the aggregator."""
    timeouts = Timeouts(connect=1.0, step=3.0, gather=5.0)
    begins, ends = pair_seconds(matching, timeouts)
    assert ends + timeouts.step == pairs_seconds(matching + 1, timeouts)
    assert begins == pairs_seconds(matching, timeouts) + timeouts.gather
    assert begins < ends


class Accused:
    """Aggregator's role that convicts alice when it is given an accusation, and takes its time."""

    name, run_id, finished = "hub", b"", False
    releases = frozenset[str]()

    def __init__(self) -> None:
        self.state = SimpleNamespace(inbox=Inbox({1, 2}))
        self.judging, self.go_on = threading.Event(), threading.Event()

    def handle(self, _event: events.Event) -> list[Any]:
        self.judging.set()
        assert self.go_on.wait(30)
        self.state.inbox.excluded[1] = convicted()
        return []


def server_of(convictions: Convictions, role: Accused) -> Any:
    server: Any = aggregator.RequestServer.__new__(aggregator.RequestServer)
    server._convictions, server._culprits, server._last = convictions, {}, None
    server._drive = Drive(1, role, cast("Any", None), cast("Any", None), server, print)
    server._drive.keep = server._keep_conviction
    server.beside = BESIDE["statistic-hello"]
    return server


async def test_an_aggregator_that_is_stopped_while_it_judges_stores_the_certificate(tmp_path: Path) -> None:
    role = Accused()
    server = server_of(Convictions(tmp_path / FOLDER, ROSTER), role)
    message = cast("Any", SimpleNamespace(step=CONVICTION))
    task = asyncio.create_task(server._drive.act(events.Message(message)))
    assert await asyncio.to_thread(role.judging.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    role.go_on.set()
    while not (tmp_path / FOLDER).exists() or not [*(tmp_path / FOLDER).glob("alice-*.certificate")]:
        await asyncio.sleep(0.01)


def test_an_aggregator_that_cannot_store_a_certificate_refuses_the_party_and_says_so(tmp_path: Path) -> None:
    role = Accused()
    role.state.inbox.excluded[1] = convicted()
    server = server_of(Convictions(tmp_path / "none" / FOLDER, ROSTER), role)
    server._keep_convictions()
    server._keep_convictions()
    assert certificate_of(server._culprits["alice"]) == certificate()
    (fault,) = role.state.inbox.faults
    assert fault.startswith("alice: its certificate is not stored: ")


async def test_a_later_fault_does_not_take_the_place_of_a_conviction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = Accused()
    server = server_of(Convictions(tmp_path / FOLDER, ROSTER), role)
    session = SimpleNamespace(timeouts=SLOW, parameters=None)
    none = dict.fromkeys(("group", "parameters", "identity"))
    of = SimpleNamespace(session=session, context=lambda _: None, **none)
    server._membership, server._make, server._groups = of, lambda *_, **__: role, {}
    server._is_endless, server._is_first, server._state = False, True, SessionState()
    server._watch = server._board = server._fixed = server._pool = server._on_event = None
    server._asked = SimpleNamespace(begin=lambda *_: None)
    faults = [PeerFault(name, "sent nonsense", Check.MALFORMED) for name in ("alice", "bob")]

    async def ready() -> None:
        return

    async def run(**_: bool) -> bool:
        raise faults[-1]

    monkeypatch.setattr(server, "_heed_certificates", ready)
    monkeypatch.setattr(server, "_run", run)
    conviction = server._culprits["alice"] = convicted()
    bobs = faults[-1]
    for number in (1, 2):
        assert await server.request(number) is faults.pop()
    assert server._culprits == {"alice": conviction, "bob": bobs}


class Called:
    """Bob's evaluations with alice; `patience`: of each wait for her call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.evaluations: Any = Evaluations.__new__(Evaluations)
        self.evaluations._locks, self.patience = {}, list[float]()
        monkeypatch.setattr(self.evaluations, "_peer_call", lambda *_: SimpleNamespace(we_listen=False))
        monkeypatch.setattr(self.evaluations, "_drive", lambda *given: self.patience.append(given[-1]))

    async def drive(self, begins: float) -> None:
        role, halt = SimpleNamespace(judges=False), Halt()
        await self.evaluations.drive(role, None, "alice", "", {}, halt, None, begins)


async def test_a_partner_whom_others_keep_is_waited_for_until_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called, now = Called(monkeypatch), asyncio.get_running_loop().time()
    await called.drive(now + 1000.0)
    assert 900.0 < called.patience[0] <= 1000.0


@pytest.mark.parametrize(("halted", "reason"), [(True, "the wait for it was ended"), (False, "hung up")])
async def test_a_peer_whose_connection_is_cut_here_has_not_hung_up(
    halted: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt, called = Halt(), Called(monkeypatch)

    def call(*_: object) -> None:
        if halted:
            halt.now()
        raise ChannelClosed("alice", clean=False)

    monkeypatch.setattr(evaluation, "call", call)
    monkeypatch.setattr(called.evaluations, "_endpoint", lambda *_: None)
    pairing = SimpleNamespace(peer="alice", we_listen=False, member=SimpleNamespace(session=None))
    with pytest.raises(TimeoutFault, match=reason):
        called.evaluations._connect(pairing, halt, 1.0)


async def test_an_evaluation_with_the_partner_does_not_hold_up_its_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called, now = Called(monkeypatch), asyncio.get_running_loop().time()
    lock = called.evaluations._locks["alice"] = asyncio.Lock()
    await lock.acquire()
    with pytest.raises(TimeoutFault, match="an earlier evaluation with it is not over"):
        async with asyncio.timeout(20.0):
            await called.drive(now + 0.05)
    lock.release()
    await called.drive(now + 1000.0)
    assert not lock.locked()


def test_the_error_of_a_run_with_too_few_parties_has_the_evidence_as_its_cause() -> None:
    state = CollectorState(inbox=Inbox({3}))
    state.inbox.excluded = {1: TimeoutFault({"alice"}, "keys"), 2: convicted()}
    collector = cast("Any", SimpleNamespace(name_of={1: "alice", 2: "bob"}.get, parties=3))
    few = Collector.too_few(collector, state, 2)
    assert few.code == Code.FEW
    assert certificate_of(few.__cause__) == certificate()


def test_a_second_report_that_cannot_be_stored_does_not_hide_that_there_were_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = cast("Any", SimpleNamespace(digest=bytes(8), check=lambda *_: None))
    stored = reporting.StoredReports(tmp_path, request)
    stored._folder.mkdir()
    assert stored.add("alice", b"1")

    def full(*_: object, **__: object) -> None:
        raise LocalError("the disk is full")

    monkeypatch.setattr(reporting, "write_durably", full)
    with pytest.raises(
        LocalError, match="alice: sent two different reports to one request; the disk is full"
    ):
        stored.add("alice", b"2")
    with pytest.raises(LocalError, match=r"^the disk is full"):
        stored.add("bob", b"1")


@pytest.mark.parametrize("other", ["differs", "no address"])
async def test_a_comparison_that_convicts_is_not_replaced_by_another_that_fails(other: str) -> None:
    """One peer asks for something else; or what this machine lacks ends all comparisons."""

    async def evaluate(*_: object, peer: str, **__: object) -> Any:
        if peer == "alice":
            raise convicted()
        if other == "differs":
            raise ConfigError.at("levels", "differs", ConfigCheck.DIFFERS)
        raise LocalError("the address is taken")

    names = ["alice", "bob", "carol"]

    def ask() -> Any:
        return similarity.compare(
            "carol", names, evaluate, lambda _: None, None, [1.0, 2.0], 1.0, 7, covert=2
        )

    if other == "differs":
        assert "cheated" in (await ask()).failed["alice"]
    else:
        with pytest.raises(PeerFault, match="cheated"):
            await ask()
