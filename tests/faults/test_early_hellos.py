"""Parties that say hello, leave and hang up for all requests at once, in virtual time.

As many as may collude or be lost do so; the others ask when their application does, and have every result.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.servers.requests import computing_server
from smpc_dp.capabilities.servers.requests.computing_server import ComputingServer
from smpc_dp.capabilities.servers.requests.connection import ServersConnection
from smpc_dp.capabilities.servers.secret_sharing.messages import HELLO as SHARED_HELLO
from smpc_dp.engine.events import Cancellation, Start
from smpc_dp.engine.phases.messages import HELLO
from smpc_dp.engine.registry import make_party
from smpc_dp.errors import Code, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.aggregator import RequestServer, log_folder
from smpc_dp.session.connection import AggregatorConnection, Connection
from smpc_dp.session.connection_pool import ConnectionPool
from smpc_dp.session.events import ignore
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership, to_wire
from smpc_dp.session.session_file import Timeouts
from smpc_dp.session.tasks import BESIDE
from smpc_dp.wire.abort import LEAVE, QUIT, abort_of
from smpc_dp.wire.envelope import Envelope
from tests.faults.test_mesh_schedules import Room, no_charge
from tests.faults.virtual import Pipe, connect, run_virtually

TIMEOUTS = Timeouts(connect=1.0, step=0.5, gather=1.5)
NAMES = tuple(f"p{number}" for number in range(1, 8))
# Of seven parties one may collude and one be lost.
PARAMETERS: dict[str, object] = {"length": 1, "lower": 0, "upper": 10, "kind": "integer", "dropout": 0.2}
SECAGG: dict[str, object] = {"corrupt": 0.2, "same_survivors": False}
PAUSE = 20.0


@dataclass
class Scene:
    """A session in which everybody is connected; `ended`: what each request came to, where it is served."""

    members: dict[str, Membership]
    lines: dict[str, Connection] = field(default_factory=dict)
    all_lines: list[Connection] = field(default_factory=list)
    ends: dict[str, list[Pipe]] = field(default_factory=dict)
    ended: list[list[Any]] = field(default_factory=list)
    serving: Sequence[Any] = ()
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    join: Callable[[str], list[Pipe]] = field(default=lambda _: [])

    async def ask(self, name: str, request: int) -> Any:
        """Ask for a sum as a party; return it, or the error."""
        encoding = self.members[name].parameters.sum_encoding
        ring_vector, _ = encoding.encode([1], party=name)
        try:
            outcome, _ = await self.lines[name].run(request, "sum", ring_vector, no_charge)
        except SmpcError as error:
            return error
        return len(outcome.survivors)

    async def ask_all(self, names: Sequence[str], request: int) -> list[Any]:
        return await asyncio.gather(*(self.ask(name, request) for name in names))

    def hello(self, name: str, request: int) -> list[Envelope]:
        """Return a party's hellos."""
        member = self.members[name]
        if member.servers:
            return list(self.lines[name]._declined(member, request).handle(Start()))
        vector, _ = member.parameters.encoding.encode([1], party=name)
        context = member.context(request, "sum")
        return list(make_party(context, member.parameters, member.identity, vector).handle(Start()))

    def leave(self, name: str, request: int, step: str) -> list[Envelope]:
        """Return a party's farewells."""
        member, error = self.members[name], TimeoutFault({name}, "", code=Code.LATE)
        if member.servers:
            return list(self.lines[name]._declined(member, request).handle(Cancellation(error)))
        context, to = member.context(request), (member.aggregator,)
        return context.write(member.identity, context.session_digest, step, to, abort_of(error))

    async def post(self, name: str, request: int, envelopes: Sequence[Envelope]) -> None:
        """Send messages of a party that has no role."""
        for envelope in envelopes:
            end = next(end for end in self.ends[name] if end.peer == envelope.receiver)
            await end.send(*to_wire(request, envelope))


def aggregating(path: Path) -> RequestServer:
    """Return a session's aggregator."""
    member = Membership.load(path, AGGREGATOR, role="aggregator")
    logs = log_folder(member, path, path.parent / "board")
    return RequestServer(member, ConnectionPool(member, ignore), ignore, None, (), logs)


def computing(path: Path, names: Sequence[str]) -> list[ComputingServer]:
    """Return a session's servers, which are connected."""
    serving = [ComputingServer(Membership.load(path, name, role="server"), ignore) for name in names]
    for one, two in itertools.combinations(serving, 2):
        near, far = connect(one._membership.name, two._membership.name, 0.01)
        one._pool.welcome(near)  # type: ignore[arg-type]
        two._pool.welcome(far)
    return serving


Play = Callable[[Scene], Awaitable[None]]


def play(path: Path, liars: Sequence[str], act: Play) -> None:
    """Play with a session's own aggregator, or its servers."""

    async def main() -> None:
        scene = Scene({name: Membership.load(path, name) for name in NAMES})
        servers = scene.members[NAMES[0]].servers
        serving = computing(path, servers) if servers else [aggregating(path)]
        pools = {server._membership.name: server._pool for server in serving}
        scene.serving, scene.ended = serving, [[] for _ in serving]

        def join(name: str) -> list[Pipe]:
            kind = ServersConnection if servers else AggregatorConnection
            line: Connection = kind(scene.members[name], ignore)
            ends = []
            for to, pool in pools.items():
                near, far = connect(name, to, 0.01)
                pool.welcome(far)
                if name not in liars:
                    line.connections.welcome(near)  # type: ignore[arg-type]
                ends.append(near)
            scene.all_lines.append(line)
            scene.lines[name], scene.ends[name] = line, ends
            return ends

        scene.join = join
        for name in NAMES:
            join(name)

        async def serve(server: Any, ended: list[Any]) -> None:
            for number in range(1, 100):
                last = await server.request(number)
                if last is None:
                    return
                ended.append(last)

        loop = asyncio.get_running_loop()
        scene.tasks = [loop.create_task(serve(*both)) for both in zip(serving, scene.ended, strict=True)]
        await act(scene)
        for pool in pools.values():
            pool.abort()

    run_virtually(main)


@pytest.fixture(params=["aggregator", "servers"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    protocol = "secagg" if request.param == "aggregator" else "mpyc"
    rooms: dict[str, Iterator[Room]] = {}
    made: defaultdict[int, Room] = defaultdict(Room)

    def engine(servers: Sequence[str], own: str, send: object, *, keep: bool = False) -> Room.Engine:
        # Each server has one for each request.
        rooms.setdefault(own, map(made.__getitem__, itertools.count()))
        return next(rooms[own]).engine(servers, own, send, keep=keep)

    monkeypatch.setattr(computing_server, "Engine", engine)
    given = PARAMETERS | (SECAGG if protocol == "secagg" else {})
    return create_local_session(tmp_path, NAMES, given, protocol=protocol, timeouts=TIMEOUTS)


@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("farewell", [None, LEAVE, QUIT])
def test_early_hellos_neither_open_nor_end_the_requests_of_others(
    path: Path, farewell: str | None, many: int
) -> None:
    """The others ask long after `gather`, one after the other, and each request has all of them."""
    liars = NAMES[-many:]
    honest = [name for name in NAMES if name not in liars]

    async def act(scene: Scene) -> None:
        for name in liars:
            for request in range(1, 12):
                sent = scene.hello(name, request)
                if farewell is not None:
                    sent += scene.leave(name, request, farewell)
                await scene.post(name, request, sent)
        for request in range(1, 4):
            await asyncio.sleep(PAUSE)
            assert [len(ended) for ended in scene.ended] == [request - 1] * len(scene.ended)
            if many > 1:
                # A run would be too small without them, whenever it begins.
                break
            answers = await scene.ask_all(honest, request)
            assert answers == [len(honest)] * len(honest)

    play(path, liars, act)


def test_who_asks_early_is_told_who_has_not_and_the_request_stays(path: Path) -> None:
    first, second, *others = NAMES

    async def act(scene: Scene) -> None:
        await asyncio.sleep(PAUSE)
        began = asyncio.get_running_loop().time()
        refused = await scene.ask(first, 1)
        assert isinstance(refused, TimeoutFault), refused
        assert refused.missing == {second, *others}
        assert refused.code == Code.FEW
        assert refused.step == (SHARED_HELLO if scene.members[first].servers else HELLO)
        assert TIMEOUTS.gather <= asyncio.get_running_loop().time() - began < TIMEOUTS.gather + TIMEOUTS.step
        assert not any(scene.ended)
        # The request is still there for the others, and the next one for all.
        assert await scene.ask_all([second, *others], 1) == [6] * 6
        assert await scene.ask_all(NAMES, 2) == [7] * 7

    play(path, (), act)


def test_who_is_ahead_counts_for_the_requests_that_it_has_passed(path: Path) -> None:
    """Enough have asked in vain, and gone on: a request that nobody can ask for any more does not stay."""

    async def act(scene: Scene) -> None:
        await asyncio.sleep(PAUSE)
        for name in NAMES[:6]:
            assert isinstance(await scene.ask(name, 1), TimeoutFault)
        answers = await scene.ask_all(NAMES[:6], 2)
        assert answers == [6] * 6
        assert all(isinstance(ended[0], TimeoutFault) for ended in scene.ended)

    play(path, (), act)


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.6, 0.8, 0.9, 1.0, 1.5, 2.0])
def test_a_process_that_calls_anew_during_a_run_blames_nobody(path: Path, seconds: float) -> None:
    """It calls before anybody has seen that the last one is gone, in each part of a run."""
    name, *others = NAMES

    async def act(scene: Scene) -> None:
        old = asyncio.create_task(scene.ask(name, 1))
        others_ask = asyncio.create_task(scene.ask_all(others, 1))
        await asyncio.sleep(seconds)
        before = scene.ends[name]
        for end in before:
            end.abort()
        scene.join(name)
        for _ in range(2):
            answer = await scene.ask(name, 1)
            if isinstance(answer, SmpcError):
                assert isinstance(answer, TimeoutFault), answer
                assert answer.missing == {name}, answer
            for end in scene.ends[name]:
                end.abort()
            scene.join(name)
        await old
        answers = await others_ask
        assert all(answer in (6, 7) for answer in answers), answers
        assert await scene.ask_all(NAMES, 2) == [7] * 7
        for ended in scene.ended:
            assert not any(isinstance(one, PeerFault) for one in ended)

    play(path, (), act)


@pytest.mark.parametrize("request_number", [1, 2])
def test_a_hello_of_a_process_that_is_gone_does_not_count(tmp_path: Path, request_number: int) -> None:
    """Before a request is open, the next process asks for it in the place of the last one."""
    path = create_local_session(tmp_path, NAMES, PARAMETERS | SECAGG, timeouts=TIMEOUTS)
    name = NAMES[0]

    async def act(scene: Scene) -> None:
        await asyncio.sleep(PAUSE)
        old = asyncio.create_task(scene.ask(name, request_number))
        await asyncio.sleep(0.1)
        for end in scene.ends[name]:
            end.abort()
        await old
        scene.join(name)
        for request in range(1, 3):
            assert await scene.ask_all(NAMES, request) == [7] * 7

    play(path, (), act)


@pytest.mark.parametrize("before", [0, 3, 4])
def test_who_leaves_a_statistic_breaks_nothing_where_others_ask_for_a_sum(
    tmp_path: Path, before: int
) -> None:
    """It leaves before the request is open, or after `before` others have asked."""
    path = create_local_session(tmp_path, NAMES, PARAMETERS | SECAGG, timeouts=TIMEOUTS)
    name, *others = NAMES

    async def act(scene: Scene) -> None:
        first = asyncio.create_task(scene.ask_all(others[:before], 1))
        await asyncio.sleep(0.2)
        await scene.lines[name].decline(
            1, LocalError("this text stays here"), beside=BESIDE["statistic-hello"]
        )
        await asyncio.sleep(0.2)
        assert await scene.ask_all(others[before:], 1) == [6] * (6 - before)
        assert await first == [6] * before
        ended = scene.ended[0][0]
        assert (ended.absent, ended.faults) == (
            (name,),
            (f"missing in step 'hello': {name} (not connected)",),
        )
        assert await scene.ask_all(NAMES, 2) == [7] * 7

    play(path, (), act)


def test_excluded_parties_end_no_requests_that_nobody_asks_for(tmp_path: Path) -> None:
    """More of them than may be lost: a request would fail as soon as it began, one after the other."""
    path = create_local_session(tmp_path, NAMES, PARAMETERS | SECAGG, timeouts=TIMEOUTS)

    async def act(scene: Scene) -> None:
        scene.serving[0]._culprits |= {name: LocalError(f"{name} left") for name in NAMES[:3]}
        await asyncio.sleep(PAUSE)
        assert not any(scene.ended)

    play(path, (), act)
