"""The aggregator's process: serves one request after the other to the parties of a session."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from smpc_dp.errors import ConfigError, Fault, SmpcError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.result import Outcome, Result
from smpc_dp.protocols.secagg.aggregator import AggregatorMachine, Watch
from smpc_dp.protocols.secagg.messages import HELLO
from smpc_dp.roster import split_address
from smpc_dp.runtime.events import Event, Kind, OnEvent, ignore
from smpc_dp.runtime.member import Membership, from_wire, to_wire
from smpc_dp.runtime.session_file import load_session
from smpc_dp.transport.channel import Channel
from smpc_dp.transport.endpoint import listen

# Messages of later requests that one party may have waiting.
EARLY_LIMIT = 4
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

    def welcome(self, channel: Channel) -> None:
        link = _Link(channel)
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
            with contextlib.suppress(SmpcError):
                # A link that breaks is reported by its reader; what is left for it has nobody to go to.
                await link.channel.send(*message)

    async def send(self, request: int, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            link = self.links.get(envelope.receiver)
            if link is not None and link.channel.live:
                await link.outbox.put(to_wire(request, envelope))

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
    def __init__(self, membership: Membership, hub: _Hub, on_event: OnEvent, watch: Watch | None) -> None:
        self._membership = membership
        self._hub = hub
        self._on_event = on_event
        self._watch = watch
        self._early: list[_News] = []
        self._deadline = 0.0

    async def request(self, number: int) -> Outcome | SmpcError | None:
        """Serve one request and return how it ended, or None when every party has left before it began."""
        machine = AggregatorMachine(
            self._membership.context(number),
            self._membership.parameters,
            self._membership.identity,
            threads=min(2, os.cpu_count() or 1),
            watch=self._watch,
        )
        begun = number == 1
        timeouts = self._membership.session.timeouts
        self._extend(timeouts.connect + timeouts.step)
        early, self._early = self._early, []
        step = ""
        try:
            while not machine.finished:
                if machine.step != step:
                    step = machine.step
                    if step != HELLO:
                        self._extend(timeouts.step)
                    self._tell("step", number, machine)
                if begun or early:
                    news = early.pop(0) if early else await self._next()
                elif not any(link.channel.live for link in self._hub.links.values()):
                    return None
                else:
                    news = await self._hub.news.get()
                if not begun and news is not None:
                    if news.envelope is None:
                        # Who leaves before a request begins is absent from it, and no reason for it to fail.
                        self._tell_lost(number, machine, news.peer)
                        continue
                    if news.request == number:
                        begun = True
                        self._extend(timeouts.step)
                        await self._declare_absent(number, machine)
                await self._hub.send(number, await self._apply(number, machine, news))
                if news is not None and news.envelope is not None:
                    self._tell("step", number, machine)
        except SmpcError as error:
            await self._hub.send(number, machine.farewell(error))
            self._tell("failed", number, machine, str(error))
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

    def _extend(self, seconds: float) -> None:
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def _next(self) -> _News | None:
        """Return the next news, or None when the deadline passes first."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._hub.news.get()
        except TimeoutError:
            return None

    async def _declare_absent(self, number: int, machine: AggregatorMachine) -> None:
        """After the first request nobody is waited for who has no connection."""
        for name in sorted(machine.waiting_for):
            link = self._hub.links.get(name)
            if link is None or not link.channel.live:
                await self._hub.send(number, machine.lost(name))

    async def _apply(self, number: int, machine: AggregatorMachine, news: _News | None) -> Sequence[Envelope]:
        if news is None:
            return await asyncio.to_thread(machine.expire)
        if news.envelope is None:
            self._tell_lost(number, machine, news.peer)
            return await asyncio.to_thread(machine.lost, news.peer)
        if news.request > number:
            if sum(other.peer == news.peer for other in self._early) < EARLY_LIMIT:
                self._early.append(news)
            return ()
        if news.request < number and news.envelope.step != HELLO:
            return ()
        return await asyncio.to_thread(machine.receive, news.envelope)

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
) -> list[Result | SmpcError]:
    """Be the aggregator of a session until `requests` are served (None: until every party has left).

    Args:
        session: path of the session file.
        name: the aggregator's name, if it is to be checked against the roster's.
        key: its identity file; by default `keys/NAME.key` beside the session file.
        listen_on: host:port to bind, where that is not the address in the roster (behind a NAT, say).
        on_event: told of every step, connection and loss.
        watch: called with each party's name and masked lanes, to show what an aggregator sees.

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
    hub = _Hub(membership, on_event)
    listener = await listen(membership.endpoint(), host, port, hub.welcome, hub.refused)
    server = _Server(membership, hub, on_event, watch)
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
    return results


def _aggregator_name(session: str | os.PathLike[str]) -> str:
    aggregator = load_session(session).roster.aggregator
    if aggregator is None:
        raise ConfigError([Fault("roster", "has no aggregator")])
    return aggregator.name
