"""The aggregator's process: serves one request after the other to the parties of a session."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from smpc_dp.errors import ConfigError, Fault, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.abort import ABORT, Abort
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.registry import hub_machine
from smpc_dp.protocols.result import Outcome, Result
from smpc_dp.protocols.secagg.aggregator import AggregatorMachine, Watch
from smpc_dp.protocols.secagg.messages import HELLO
from smpc_dp.roster import split_address
from smpc_dp.runtime.board import BoardFolder
from smpc_dp.runtime.events import Event, Kind, OnEvent, ignore
from smpc_dp.runtime.member import Membership, from_wire, to_wire
from smpc_dp.runtime.session_file import Timeouts, load_session
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.endpoint import listen

# What a party may send early, and what an excluded one may send at all, in bytes: a hello or a leave.
SMALL_MESSAGE = 4096
OUTBOX_LIMIT = 64


@dataclass(slots=True)
class _Link:
    """A connected party: its channel, what waits to be sent to it, and the tasks that serve both ends."""

    channel: Channel
    outbox: asyncio.Queue[tuple[bytes, bytes] | None] = field(
        default_factory=lambda: asyncio.Queue(OUTBOX_LIMIT)
    )
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _News:
    """What the links report: a message of a request, or (envelope None) that a link is gone."""

    peer: str
    request: int = 0
    envelope: Envelope | None = None


def _is_hello(news: _News) -> bool:
    return news.envelope is not None and news.envelope.step == HELLO


class _Deadline:
    """How long the hub waits in one request, in the event loop's time."""

    def __init__(self, timeouts: Timeouts, first: bool) -> None:
        self._timeouts = timeouts
        self._connected = _now() + (timeouts.connect if first else 0.0)
        self._latest = self.at = math.inf
        self._enough = False

    @property
    def connecting(self) -> bool:
        """True while parties of the first request may still be on their way."""
        return _now() < self._connected

    def begin(self) -> None:
        """Somebody has asked: others have `gather` to ask too."""
        self.at = max(_now() + self._timeouts.gather, self._connected)

    def enough(self) -> None:
        """Enough have asked: the rest have one `step`, or what is left to connect."""
        if not self._enough:
            self._enough = True
            self.at = min(self.at, max(_now() + self._timeouts.step, self._connected))

    def step(self) -> None:
        """A step begins."""
        self.at = _now() + self._timeouts.step
        self._latest = _now() + 2 * self._timeouts.step

    def progress(self) -> None:
        """A message of the step has come: who queues behind it is not late, up to twice the time."""
        self.at = min(self._latest, _now() + self._timeouts.step)

    def pause(self) -> float:
        """Return until when to wait for news."""
        return min(self.at, self._connected) if self.connecting else self.at


def _now() -> float:
    return asyncio.get_running_loop().time()


class _Hub:
    """Holds all links and turns what they bring into one stream of news."""

    def __init__(self, membership: Membership, on_event: OnEvent) -> None:
        self._membership = membership
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        # One at a time: a reader that has to wait holds its message against the budget of the endpoint, so
        # the memory for large vectors does not grow with the number of parties.
        self.news: asyncio.Queue[_News] = asyncio.Queue(1)
        self.links: dict[str, _Link] = {}
        self._largest = membership.largest_message()

    def welcome(self, channel: Channel) -> None:
        link = _Link(channel)
        if channel.peer in self.links:
            _, writer = self.links[channel.peer].tasks
            writer.cancel()
        self.links[channel.peer] = link
        link.tasks += [
            self._loop.create_task(self._read(channel)),
            self._loop.create_task(self._write(link)),
        ]
        self._on_event(Event(self._membership.name, "connected", detail=channel.peer))

    def refused(self, who: str, error: SmpcError) -> None:
        self._on_event(Event(self._membership.name, "refused", detail=f"{who}: {error}"))

    async def _read(self, channel: Channel) -> None:
        # However a link ends, cleanly, cut or by a fault in its framing, its party is lost for this run.
        with contextlib.suppress(SmpcError):
            while True:
                request, envelope = from_wire(await channel.receive(), channel.peer)
                await self.news.put(_News(channel.peer, request, envelope))
        channel.abort()
        await self.news.put(_News(channel.peer))

    async def _write(self, link: _Link) -> None:
        while (message := await link.outbox.get()) is not None:
            try:
                await link.channel.send(*message)
            except (ChannelClosed, TimeoutFault, PeerFault):
                # The reader reports a link that breaks; what is left for it has nobody to go to.
                continue
            except SmpcError as error:
                self.refused(link.channel.peer, error)
                link.channel.abort()

    def send(self, request: int, envelopes: Sequence[Envelope]) -> None:
        """Queue messages; a link whose party does not read what waits for it is cut."""
        for envelope in envelopes:
            link = self.links.get(envelope.receiver)
            if link is None or not link.channel.live:
                continue
            if envelope.step == ABORT:
                link.channel.max_message = SMALL_MESSAGE
            try:
                link.outbox.put_nowait(to_wire(request, envelope))
            except asyncio.QueueFull:
                link.channel.abort()

    def is_live(self, name: str) -> bool:
        """Tell whether a party has a link."""
        link = self.links.get(name)
        return link is not None and link.channel.live

    def admit_all(self) -> None:
        """Let everyone send messages of full size, at the beginning of a request."""
        for link in self.links.values():
            link.channel.max_message = self._largest

    def abort(self) -> None:
        """Cut every link that is still open and end all tasks."""
        for link in self.links.values():
            link.channel.abort()
            for task in link.tasks:
                task.cancel()

    async def close(self) -> None:
        """Send what waits, say goodbye and end all tasks."""

        async def finish(link: _Link) -> None:
            reader, writer = link.tasks
            if link.channel.live:
                await link.outbox.put(None)
                await asyncio.wait([writer], timeout=self._membership.session.timeouts.step)
                await link.channel.close()
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

        await asyncio.gather(*(finish(link) for link in self.links.values()))


class _Server:
    def __init__(
        self,
        membership: Membership,
        hub: _Hub,
        on_event: OnEvent,
        watch: Watch | None,
        board: BoardFolder | None,
    ) -> None:
        self._membership = membership
        self._hub = hub
        self._board = board
        self._on_event = on_event
        self._watch = watch
        self._early: dict[str, _News] = {}
        self._culprits: dict[str, PeerFault] = {}

    async def request(self, number: int) -> Outcome | SmpcError | None:
        """Serve one request and return how it ended, or None when every party has left before it began."""
        machine = hub_machine(
            self._membership.context(number),
            self._membership.parameters,
            self._membership.identity,
            threads=min(2, os.cpu_count() or 1),
            watch=self._watch,
            board=self._board,
        )
        try:
            if not await self._run(number, machine):
                return None
            if self._board is not None:
                await asyncio.to_thread(self._board.close)
        except SmpcError as error:
            self._hub.send(number, machine.farewell(error))
            self._tell("failed", number, machine, str(error))
            if isinstance(error, PeerFault):
                self._culprits[error.culprit] = error
            return error
        outcome = machine.result
        self._on_event(
            Event(
                self._membership.name,
                "done",
                number,
                "done",
                survivors=outcome.survivors,
                absent=outcome.absent,
                detail="; ".join(outcome.faults[:5]),
            )
        )
        return outcome

    async def _run(self, number: int, machine: AggregatorMachine) -> bool:
        """Drive the machine to its end; return False when nobody is left to ask."""
        deadline = _Deadline(self._membership.session.timeouts, first=number == 1)
        self._hub.admit_all()
        for name, fault in self._culprits.items():
            self._hub.send(number, machine.ban(name, fault))
        early, self._early = list(self._early.values()), {}
        begun = declared = False
        step = ""
        while not machine.finished:
            if machine.step != step:
                step = machine.step
                if step != HELLO:
                    deadline.step()
                self._tell("step", number, machine)
            if not (begun or early or deadline.connecting or any(map(self._hub.is_live, self._hub.links))):
                if number > 1:
                    return False
                self._hub.send(number, machine.expire())
            news = early.pop(0) if early else await self._next(deadline.pause())
            if news is None:
                if deadline.at <= _now():
                    self._hub.send(number, await asyncio.to_thread(machine.expire))
                elif not declared:
                    declared = True
                    self._declare_absent(number, machine)
                continue
            if news.envelope is None and not begun:
                # Who leaves before a request begins is absent from it, and no reason for it to fail.
                self._tell_lost(number, machine, news.peer)
                continue
            if not begun and news.request == number and _is_hello(news):
                begun = True
                deadline.begin()
                if not deadline.connecting:
                    declared = True
                    self._declare_absent(number, machine)
            self._hub.send(number, await self._apply(number, machine, news))
            if news.envelope is not None and not machine.finished and machine.step == step:
                if step == HELLO and machine.has_enough:
                    deadline.enough()
                elif step != HELLO:
                    deadline.progress()
                self._tell("step", number, machine)
        return True

    async def _next(self, until: float) -> _News | None:
        """Return the next news, or None when the time comes first."""
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                return await self._hub.news.get()
        except TimeoutError:
            return None

    def _declare_absent(self, number: int, machine: AggregatorMachine) -> None:
        """Wait no more for who has no connection."""
        absent = [name for name in sorted(machine.waiting_for) if not self._hub.is_live(name)]
        self._hub.send(number, machine.lost_all(absent))

    async def _apply(self, number: int, machine: AggregatorMachine, news: _News) -> Sequence[Envelope]:
        if news.envelope is None:
            self._tell_lost(number, machine, news.peer)
            return await asyncio.to_thread(machine.lost, news.peer)
        if news.request > number:
            if news.request == number + 1 and len(news.envelope.body) <= SMALL_MESSAGE:
                self._early.setdefault(news.peer, news)
            return ()
        if news.request < number:
            if _is_hello(news):
                self._hub.send(news.request, self._too_late(news, number))
            return ()
        return await asyncio.to_thread(machine.receive, news.envelope)

    def _too_late(self, news: _News, number: int) -> Sequence[Envelope]:
        """Tell a party that asks for a past request where the others are; it can ask for the next one."""
        context = self._membership.context(news.request)
        reason = f"hello to request {news.request}, others are at {number}"
        abort = Abort("timeout", "", [news.peer], reason)
        return context.write(self._membership.identity, context.session_digest, ABORT, (news.peer,), abort)

    def _tell_lost(self, number: int, machine: AggregatorMachine, peer: str) -> None:
        self._on_event(Event(self._membership.name, "lost", number, machine.step, detail=peer))

    def _tell(self, kind: Kind, number: int, machine: AggregatorMachine, detail: str = "") -> None:
        waiting = len(machine.waiting_for)
        self._on_event(Event(self._membership.name, kind, number, machine.step, waiting, detail))


async def serve(
    session: str | os.PathLike[str],
    *,
    name: str | None = None,
    key: str | os.PathLike[str] | None = None,
    requests: int | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
    watch: Watch | None = None,
    board: str | os.PathLike[str] | None = None,
) -> list[Result | SmpcError]:
    """Be the aggregator of a session until `requests` are served (None: until every party has left).

    Args:
        session: path of the session file.
        name: the aggregator's name, if it is to be checked against the roster's.
        key: its identity file; by default `keys/NAME.key` beside the session file.
        listen_on: host:port to bind, where that is not the address in the roster (behind a NAT, say).
        requests: how many to serve; None: until every party has left.
        on_event: told of every step, connection and loss.
        watch: called with each party's name and masked lanes, to show what an aggregator sees.
        board: the folder for the logs of verifiable runs; by default `board` beside the session file.

    Returns:
        For each request its sum, or the error that it ended with.

    Raises:
        ConfigError, LocalError: the session file, the key or the port is wrong.
    """
    if requests is not None and requests < 1:
        raise ConfigError([Fault("requests", f"must be at least 1, is {requests}")])
    membership = Membership.load(session, name or _aggregator_name(session), key, "aggregator")
    address = listen_on or membership.session.roster.member(membership.name).address or ""
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise ConfigError([Fault("listen_on", str(error))]) from None
    logs = None
    if isinstance(membership.parameters, VerifiableParameters):
        text = membership.session.canonical_json().decode("ascii")
        logs = BoardFolder(board if board is not None else Path(session).parent / "board", text)
    elif board is not None:
        raise ConfigError([Fault("board", "is for a session with verifiable = true")])
    hub = _Hub(membership, on_event)
    listener = await listen(membership.endpoint(hub=True), host, port, hub.welcome, hub.refused)
    server = _Server(membership, hub, on_event, watch, logs)
    results: list[Result | SmpcError] = []
    try:
        while requests is None or len(results) < requests:
            ended = await server.request(len(results) + 1)
            if ended is None:
                break
            results.append(Result.of(ended, "sum") if isinstance(ended, Outcome) else ended)
        await hub.close()
    finally:
        hub.abort()
        await listener.close()
        if logs is not None:
            # What is there of a run that failed is evidence too.
            await asyncio.to_thread(logs.close)
    return results


def _aggregator_name(session: str | os.PathLike[str]) -> str:
    aggregator = load_session(session).roster.aggregator
    if aggregator is None:
        raise ConfigError([Fault("roster", "has no aggregator")])
    return aggregator.name
