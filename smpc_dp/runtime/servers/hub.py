"""A server's process: with the other servers it serves one request of the users after the other."""

from __future__ import annotations

import asyncio
import math
import os
import struct
from collections.abc import Collection, Sequence

from smpc_dp.errors import Check, Code, ConfigError, Fault, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.abort import ABORT, Abort
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.events import Cancellation, Deadline, Message, PeersLost, Report
from smpc_dp.protocols.mpyc.agreement import NO_SURVIVAL, Opened
from smpc_dp.protocols.mpyc.messages import COMPUTE, HELLO, MAX_QUESTION, OUTPUT, PRESENT, SHARES
from smpc_dp.protocols.mpyc.params import threshold_of
from smpc_dp.protocols.mpyc.server import Job, ServerMachine
from smpc_dp.roster import split_address
from smpc_dp.runtime.awaited import Awaited
from smpc_dp.runtime.deadline import PATIENCE, StepTimer, now
from smpc_dp.runtime.events import Event, OnEvent, ignore, logged, tell
from smpc_dp.runtime.links import SMALL_MESSAGE, Links, News
from smpc_dp.runtime.requests import ends_session
from smpc_dp.runtime.servers.child import Answer
from smpc_dp.runtime.servers.engine import Engine
from smpc_dp.runtime.servers.shared import SharedMembership
from smpc_dp.transport.channel import Channel
from smpc_dp.transport.endpoint import Listener, dial, listen

# A message of the bridge: this bit and the request that mpyc's process began with, then bytes of mpyc's.
_BRIDGE = struct.Struct(">I")
BRIDGE_BIT = 1 << 31
# Messages of later requests that are kept of one member.
EARLY_LIMIT = 4
# Requests that one process of mpyc serves. Its random numbers come from keys of its own and counters that
# start at hashes of 64 bits: about 2 for each value that is shared, which must not meet.
KEPT_REQUESTS = 1000


class ServerHub:
    """A server with its links to users and servers. Made by `open`.

    With `keep` mpyc's process stays from request to request, for `KEPT_REQUESTS` of them.
    """

    def __init__(self, membership: SharedMembership, on_event: OnEvent, keep: bool = False) -> None:
        self._membership = membership
        self._keep = keep
        self._on_event = on_event
        users = len(membership.session.roster.parties)
        self._links = Links(membership, on_event, outbox=64 + 4 * users, hub=False, divert=self._divert)
        self._awaited = Awaited(membership.name, self._links.is_live, on_event)
        self._listener: Listener | None = None
        self._others = [name for name in membership.servers if name != membership.name]
        self._earlier = set(membership.servers[: membership.servers.index(membership.name)])
        self._arrived = asyncio.Event()
        self._refusals: dict[str, str] = {}
        self._early: dict[str, list[News]] = {}
        self._engine: Engine | None = None
        self._request = 0
        # The request that the engine began with, which tags what is for it.
        self._epoch = 0
        self._begun = asyncio.Event()
        # What past requests were for: who is late is answered in its own terms.
        self._asked: dict[int, SharedMembership] = {}

    @classmethod
    async def open(
        cls,
        membership: SharedMembership,
        on_event: OnEvent,
        listen_on: str | None = None,
        *,
        keep: bool = False,
    ) -> ServerHub:
        """Listen, call the servers before this one in the roster, and wait for those after it.

        Raises LocalError if the address cannot be had, TimeoutFault naming the servers that are missing,
        ConfigError if a server has another session file.
        """
        hub = cls(membership, on_event, keep)
        address = listen_on or membership.session.roster.member(membership.name).address or ""
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise ConfigError([Fault("listen_on", str(error))]) from None
        endpoint = membership.endpoint()
        hub._listener = await listen(endpoint, host, port, hub._called, hub._refused)
        try:
            for channel in await asyncio.gather(*(dial(endpoint, name) for name in sorted(hub._earlier))):
                hub._welcome(channel)
            await hub._gather()
        except BaseException:
            await hub.stop()
            raise
        return hub

    async def _gather(self) -> None:
        until = now() + self._membership.session.timeouts.connect
        self._awaited.begin(0, "", self._missing)
        if not await self._awaited.gather(self._arrived, until, lambda: not self._missing()):
            missing = self._missing()
            # Who has been there may have given up for the sake of those who have not.
            never = [name for name in missing if name not in self._links.links] or missing
            why = [self._refusals[name] for name in never if name in self._refusals]
            raise TimeoutFault(never, "connect", "; ".join([*why, NO_SURVIVAL]))

    async def gather(self, enough: int | None = None) -> None:
        """Wait until so many users (None: all) have connected, or `connect` seconds have passed."""
        users = self._users()
        until, most = now() + self._membership.session.timeouts.connect, len(users)
        self._awaited.begin(0, "", lambda: [name for name in users if not self._links.is_live(name)])
        await self._awaited.gather(
            self._arrived,
            until,
            lambda: sum(map(self._links.is_live, users)) >= (most if enough is None else enough),
        )

    def _missing(self) -> list[str]:
        return [name for name in self._others if not self._links.is_live(name)]

    def _called(self, channel: Channel) -> None:
        if channel.peer in self._earlier:
            self._refused(
                channel.peer, PeerFault(channel.peer, "calls a server that calls it", Check.OTHER_MEMBER)
            )
            channel.abort()
            return
        self._welcome(channel)

    def _welcome(self, channel: Channel) -> None:
        self._links.welcome(channel)
        self._arrived.set()

    def _refused(self, who: str, error: SmpcError) -> None:
        if who in self._others:
            self._refusals[who] = str(error)
        self._links.refused(who, error)

    async def close(self) -> None:
        """Send what waits, and say goodbye to everyone."""
        await self._links.close()
        await self.stop()

    async def stop(self) -> None:
        """Cut all links."""
        self._links.abort()
        if self._engine is not None:
            await self._engine.close()
        if self._listener is not None:
            await self._listener.close()

    # The bridge

    async def _divert(self, peer: str, message: bytes) -> bool:
        """Take mpyc's bytes out of the stream of envelopes."""
        if len(message) < _BRIDGE.size:
            return False
        (tag,) = _BRIDGE.unpack_from(message)
        if not tag & BRIDGE_BIT:
            return False
        if peer not in self._others:
            raise PeerFault(peer, "sent what only servers send to each other", Check.WRONG_SENDER)
        epoch = tag ^ BRIDGE_BIT
        while epoch > self._epoch:
            # It is ahead of us; until we are there its channel waits.
            self._begun.clear()
            await self._begun.wait()
        if epoch == self._epoch and self._engine is not None:
            await self._engine.feed(peer, memoryview(message)[_BRIDGE.size :])
        return True

    async def _forward(self, peer: str, content: bytes) -> None:
        link = self._links.links.get(peer)
        if link is not None and link.channel.live:
            await link.channel.send(_BRIDGE.pack(self._epoch | BRIDGE_BIT), content)

    # Requests

    async def request(self, number: int, group: SharedMembership | None = None) -> Opened | SmpcError | None:
        """Serve one request and return how it ended, or None when every user has left before it began.

        `group`: the membership of a request that is for some of the users only.
        """
        membership = self._asked[number] = group or self._membership
        machine = ServerMachine(
            membership.context(number),
            membership.servers,
            membership.identity,
            membership.terms,
            fewest=membership.parameters.fewest,
        )
        engine = await self._begin(number)
        try:
            if not await self._run(number, machine):
                return None
        except SmpcError as error:
            self._links.send(number, machine.handle(Cancellation(error)))
            tell(self._on_event, "failed", number, machine, error)
            return error
        finally:
            if not self._keep:
                engine.abandon()
        opened = machine.result
        absent = tuple(name for name in membership.context(number).names if name not in opened.included)
        detail = "; ".join(opened.faults[:5])
        self._on_event(
            Event(
                membership.name, "done", number, "done", 0, detail, survivors=opened.included, absent=absent
            )
        )
        return opened

    async def _run(self, number: int, machine: ServerMachine) -> bool:
        """Drive the machine to its end; return False when nobody is left to ask.

        The machine works in a thread: planning the noise takes long, and the channels go on meanwhile.
        """
        membership = self._asked[number]
        first = number == 1 and membership.group is None
        deadline = StepTimer(membership.session.timeouts, first=first)
        early = [news for kept in self._early.values() for news in kept]
        self._early = {}
        begun = declared = drained = False
        step, waiting = "", -1
        computing: asyncio.Task[Answer] | None = None
        self._check_links(machine)
        try:
            while not machine.finished:
                if machine.step != step:
                    step, waiting, drained = machine.step, -1, False
                    computing = self._begin_step(number, machine, deadline) or computing
                if waiting != (waiting := len(machine.waiting_for)):
                    tell(self._on_event, "step", number, machine)
                if not (
                    begun or early or deadline.connecting or any(map(self._links.is_live, membership.names))
                ):
                    if number > 1 and not any(map(self._links.is_live, self._users())):
                        return False
                    # Once: the other servers are waited for.
                    begun = True
                    self._links.send(number, await asyncio.to_thread(machine.handle, Deadline()))
                    continue
                if begun and not declared and not deadline.connecting:
                    declared = True
                    await self._declare_absent(number, machine)
                    continue
                if computing is None and not early and deadline.passed:
                    if drained:
                        self._links.send(number, await asyncio.to_thread(machine.handle, Deadline()))
                    else:
                        early, drained = self._links.news.take_all(), True
                    continue
                news = early.pop(0) if early else await self._next(deadline, computing)
                if computing is not None and computing.done():
                    answer, computing = computing.result(), None
                    values = [int(value) for value in answer.values]
                    self._links.send(number, await asyncio.to_thread(machine.handle, Report(values)))
                if news is None:
                    continue
                begun = await self._take(number, machine, news, deadline, begun=begun)
                if machine.step == step and machine.has_enough:
                    deadline.enough()
        finally:
            await self._cancel(computing)
        return True

    def _check_links(self, machine: ServerMachine) -> None:
        """Raise TimeoutFault if another server has no connection."""
        if missing := self._missing():
            raise TimeoutFault(missing, machine.step, f"connection lost; {NO_SURVIVAL}", code=Code.LOST)

    def _begin_step(
        self, number: int, machine: ServerMachine, deadline: StepTimer
    ) -> asyncio.Task[Answer] | None:
        """Tell from now on for whom the machine's step waits; give it its time, or return its computation."""

        def waited() -> Collection[str]:
            # An idle server waits for nobody.
            return machine.waiting_for if deadline.connecting or machine.step != HELLO else ()

        self._awaited.begin(number, machine.step, waited)
        if machine.step == COMPUTE:
            if machine.job is not None and self._engine is not None:
                return asyncio.create_task(self._engine_run(self._engine, machine.job))
        elif machine.step != HELLO:
            deadline.step(self._seconds(machine.step))
        return None

    async def _take(
        self, number: int, machine: ServerMachine, news: News, deadline: StepTimer, *, begun: bool
    ) -> bool:
        """Give the machine its news; return whether the request has begun, as with its first message."""
        if news.envelope is not None and not begun and news.request == number:
            begun = True
            deadline.begin()
        self._links.send(number, await self._apply(number, machine, news, begun))
        return begun

    async def _cancel(self, computing: asyncio.Task[Answer] | None) -> None:
        if computing is not None:
            computing.cancel()
            await asyncio.gather(computing, return_exceptions=True)

    async def _begin(self, number: int) -> Engine:
        engine = self._engine
        if engine is None or not self._keep or number - self._epoch >= KEPT_REQUESTS:
            if engine is not None and self._keep:
                # All servers have opened, or given up, the request before: nobody needs more of its bytes.
                await engine.close()
            membership = self._membership
            engine = Engine(membership.servers, membership.name, self._forward, keep=self._keep)
            self._engine, self._epoch = engine, number
        self._request = number
        self._begun.set()
        return engine

    async def compute(self, job: Job) -> Answer:
        """Compute outside of any request, together with the other servers; for measurements."""
        return await self._engine_run(await self._begin(self._request + 1), job)

    async def _engine_run(self, engine: Engine, job: Job) -> Answer:
        membership = self._membership
        return await engine.run(
            job,
            threshold_of(len(membership.servers)),
            seconds=membership.parameters.seconds,
            silence=membership.session.timeouts.step,
        )

    def _seconds(self, step: str) -> float:
        """Return what users have for a step, or how long the other servers may still wait for them."""
        timeouts = self._membership.session.timeouts
        if step == SHARES:
            return timeouts.step
        more = {PRESENT: timeouts.connect + timeouts.gather, OUTPUT: self._membership.parameters.seconds}
        return more.get(step, 0.0) + PATIENCE * timeouts.step

    async def _next(self, deadline: StepTimer, computing: asyncio.Task[Answer] | None) -> News | None:
        """Return the next news, or None when the time or the computation's end comes; tell whom we lack."""
        getting = asyncio.create_task(self._links.news.get())
        waits: list[asyncio.Task[Answer] | asyncio.Task[News]] = [getting]
        if computing is not None:
            waits.append(computing)
        until = math.inf if computing is not None else deadline.pause()
        try:
            while True:
                timeout = max(0.0, min(until, self._awaited.due) - now())
                done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    return getting.result()
                if done or now() >= until:
                    return None
                self._awaited.tell()
        finally:
            if not getting.done():
                getting.cancel()
                await asyncio.gather(getting, return_exceptions=True)

    def _users(self) -> Sequence[str]:
        return [member.name for member in self._membership.session.roster.parties]

    async def _declare_absent(self, number: int, machine: ServerMachine) -> None:
        """Wait no more for who has no connection."""
        absent = [name for name in sorted(machine.waiting_for) if not self._links.is_live(name)]
        self._links.send(number, await asyncio.to_thread(machine.handle, PeersLost(tuple(absent))))

    async def _apply(
        self, number: int, machine: ServerMachine, news: News, begun: bool
    ) -> Sequence[Envelope]:
        if news.envelope is None:
            # A user that leaves before a request begins is absent from it, and no reason for it to fail.
            due = machine.needs(news.peer) and (begun or news.peer in self._others)
            if self._links.is_live(news.peer) or not due:
                return ()
            self._on_event(Event(self._membership.name, "lost", number, machine.step, detail=news.peer))
            return await asyncio.to_thread(machine.handle, PeersLost((news.peer,)))
        if news.request > number:
            kept = self._early.setdefault(news.peer, [])
            server = news.peer in self._others
            small = server or len(news.envelope.body) <= MAX_QUESTION + SMALL_MESSAGE
            # Users may be ahead by several requests, which are for others; servers never are.
            near = news.request == number + 1 or not server
            if near and len(kept) < EARLY_LIMIT and small:
                kept.append(news)
            return ()
        if news.request < number:
            if news.envelope.step == HELLO:
                self._links.send(news.request, self._too_late(news, number))
            return ()
        return await asyncio.to_thread(machine.handle, Message(news.envelope))

    def _too_late(self, news: News, number: int) -> Sequence[Envelope]:
        """Tell a user that asks for a past request where the others are; it can ask for the next one."""
        context = self._asked.get(news.request, self._membership).context(news.request)
        abort = Abort(Code.PAST, "", [(news.peer, Code.PAST)], number=number)
        return context.write(self._membership.identity, context.session_digest, ABORT, (news.peer,), abort)


async def serve_shares(
    session: str | os.PathLike[str],
    name: str,
    *,
    key: str | os.PathLike[str] | None = None,
    requests: int | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
) -> list[Opened | SmpcError]:
    """Be a server of a session until `requests` are served (None: until every user has left).

    Returns how each request ended. After the loss or a fault of a server there is no next one. Raises what
    `SharedMembership.load` and `ServerHub.open` raise.
    """
    if requests is not None and requests < 1:
        raise ConfigError([Fault("requests", f"must be at least 1, is {requests}")])
    membership = SharedMembership.load(session, name, key, "server")
    hub = await ServerHub.open(membership, logged(on_event), listen_on)
    ended: list[Opened | SmpcError] = []
    try:
        while requests is None or len(ended) < requests:
            last = await hub.request(len(ended) + 1)
            if last is None:
                break
            ended.append(last)
            if ends_session(last, membership.servers):
                break
        await hub.close()
    finally:
        await hub.stop()
    return ended
