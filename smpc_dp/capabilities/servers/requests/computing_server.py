"""A server's process: serves the parties' requests in turn, together with the other servers."""

from __future__ import annotations

import asyncio
import math
import os
import struct
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import cast

from smpc_dp.capabilities.servers.requests.child import Answer
from smpc_dp.capabilities.servers.requests.engine import Engine
from smpc_dp.capabilities.servers.requests.shared import SHARED_HELLO, terms_maker
from smpc_dp.capabilities.servers.secret_sharing.agreement import NO_SURVIVAL, Opened
from smpc_dp.capabilities.servers.secret_sharing.messages import (
    COMPUTE,
    HELLO,
    MAX_OPERATION,
    OUTPUT,
    PRESENT,
    SHARES,
    STOPPING,
)
from smpc_dp.capabilities.servers.secret_sharing.params import threshold_of
from smpc_dp.capabilities.servers.secret_sharing.server import Job, ServerRun
from smpc_dp.decoding import Buffer
from smpc_dp.engine import events
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    PeerFault,
    SmpcError,
    TimeoutFault,
)
from smpc_dp.session.asked import AskedRequests
from smpc_dp.session.askers import Askers
from smpc_dp.session.connection_pool import SMALL_MESSAGE, ConnectionPool, InboundEvent
from smpc_dp.session.deadline import PATIENCE, StepTimer
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import Event, OnEvent, ignore, with_logging
from smpc_dp.session.member import Membership
from smpc_dp.session.requests import ServerLostError, ends_session
from smpc_dp.transport.interfaces import PeerChannel, PeerListener
from smpc_dp.wire.abort import NOT_CONNECTED

__all__ = ["serve_shares"]

# Message of the bridge: this bit and the request with which mpyc's process began, then bytes of mpyc's.
_BRIDGE = struct.Struct(">I")
BRIDGE_BIT = 1 << 31
# Stored messages of later requests, for each member.
EARLY_LIMIT = 4
# Bytes of a message that a party may send before its request is open.
LARGEST_HELLO = MAX_OPERATION + SMALL_MESSAGE
# Requests that one process of mpyc serves. Its random numbers come from keys of its own and counters that
# start at hashes of 64 bits: about 2 for each value that is shared, which must not collide.
RETAINED_REQUESTS = 1000


class ComputingServer:
    """One of several servers that compute on secret shares, with its connections to parties and servers.

    With `keep` mpyc's process serves up to `RETAINED_REQUESTS` requests.
    """

    def __init__(self, membership: Membership, on_event: OnEvent, keep: bool = False) -> None:
        self._membership = membership
        self._keep = keep
        self._on_event = on_event
        parties = len(membership.session.roster.parties)
        self._pool = ConnectionPool(
            membership, on_event, outbox=64 + 4 * parties, aggregator=False, divert=self._divert
        )
        self._listener: PeerListener | None = None
        self._others = [name for name in membership.servers if name != membership.name]
        self._earlier = set(membership.servers[: membership.servers.index(membership.name)])
        self._refusals: dict[str, str] = {}
        # Whether no party has asked for the request yet.
        self._idle = True
        self._engine: Engine | None = None
        self._request = 0
        # The request with which the engine began; it tags the engine's messages.
        self._epoch = 0
        self._begun = asyncio.Event()
        # Operations of past requests: a late party is answered in the messages of its own protocol.
        self._requested: dict[int, Membership] = {}
        self._asked = AskedRequests(membership.identity, SHARED_HELLO)

    @classmethod
    async def open(
        cls,
        membership: Membership,
        on_event: OnEvent,
        listen_on: str | None = None,
        *,
        keep: bool = False,
    ) -> ComputingServer:
        """Listen, connect to the other servers, and return the server, ready for requests.

        Raises LocalError if the address is not available, TimeoutFault naming the missing servers,
        ConfigError if a server has another session file.
        """
        aggregator, (host, port) = cls(membership, on_event, keep), membership.address(listen_on)
        endpoint = membership.endpoint()
        aggregator._listener = await endpoint.listen(host, port, aggregator._called, aggregator._refused)
        try:
            for channel in await asyncio.gather(
                *(endpoint.dial(name) for name in sorted(aggregator._earlier))
            ):
                aggregator._pool.welcome(channel)
            await aggregator._gather()
        except BaseException:
            await aggregator.stop()
            raise
        return aggregator

    async def _gather(self) -> None:
        """Wait until the other servers are connected; raise TimeoutFault that names the missing."""
        if not await self._pool.gather(self._others):
            missing = self._missing()
            # A connected server may have given up because of those that are missing.
            never = [name for name in missing if name not in self._pool.connections] or missing
            why = [self._refusals[name] for name in never if name in self._refusals]
            raise TimeoutFault(never, "connect", "; ".join([*why, NO_SURVIVAL]))

    async def gather(self, enough: int | None = None) -> None:
        """Wait until `enough` parties (None: all) have connected, or `connect` seconds have passed."""
        await self._pool.gather(self._parties(), enough)

    def _missing(self) -> list[str]:
        """Return the names of the other servers that are not connected now."""
        return [name for name in self._others if not self._pool.is_live(name)]

    def _called(self, channel: PeerChannel) -> None:
        """Accept the connection of a member that called, unless this server should have called it."""
        if channel.peer in self._earlier:
            self._refused(
                channel.peer, PeerFault(channel.peer, "calls a server that calls it", Check.OTHER_MEMBER)
            )
            channel.abort()
            return
        self._pool.welcome(channel, resumes=channel.peer in self._others)

    def _refused(self, who: str, error: SmpcError) -> None:
        """Report a refused connection; remember why another server's was, for later error messages."""
        if who in self._others:
            self._refusals[who] = str(error)
        self._pool.refused(who, error)

    async def close(self) -> None:
        """Send queued messages, say goodbye to all members, and close the connections."""
        await self._pool.close()
        await self.stop()

    async def stop(self) -> None:
        """Cut all connections of this server at once, without a goodbye."""
        self._pool.abort()
        if self._engine is not None:
            await self._engine.close()
        if self._listener is not None:
            await self._listener.close()

    # The bridge

    async def _divert(self, peer: str, message: Buffer) -> bool:
        """Pass on mpyc's bytes, or return False for other messages; PeerFault if not from a server."""
        if len(message) < _BRIDGE.size:
            return False
        (tag,) = _BRIDGE.unpack_from(message)
        if not tag & BRIDGE_BIT:
            return False
        if peer not in self._others:
            raise PeerFault(peer, "sent what only servers send to each other", Check.WRONG_SENDER)
        epoch = tag ^ BRIDGE_BIT
        while epoch > self._epoch:
            # The peer is ahead of this server; its channel waits.
            self._begun.clear()
            await self._begun.wait()
        if epoch == self._epoch and self._engine is not None:
            await self._engine.feed(peer, memoryview(message)[_BRIDGE.size :])
        return True

    async def _forward(self, peer: str, content: bytes) -> None:
        """Send bytes of this server's mpyc process to another server's; drop them if it is not connected."""
        connection = self._pool.connections.get(peer)
        if connection is not None and connection.channel.live:
            await connection.channel.send(_BRIDGE.pack(self._epoch | BRIDGE_BIT), content)

    # Requests

    async def request(self, number: int, group: Membership | None = None) -> Opened | SmpcError | None:
        """Serve one request; return its result or error; None if, after the first, all parties have left.

        `group`: the membership of a request of a group.
        """
        membership = self._requested[number] = group or self._membership
        machine = ServerRun(
            membership.context(number),
            membership.servers,
            membership.identity,
            terms_maker(membership.parameters),
            fewest=membership.parameters.fewest,
        )
        first = number == 1 and membership.group is None
        timer = StepTimer(membership.session.timeouts, first=first)
        held = self._pool.take_early(number)
        self._asked.begin(membership.context(number), membership.parameters)
        drive = Drive(number, machine, self._pool, timer, self, self._on_event, held=held)
        engine = await self._begin(number)
        try:
            async with drive.outcome():
                if not await self._ask(drive):
                    return None
                await drive.loop()
        except SmpcError as error:
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

    async def _ask(self, drive: Drive) -> bool:
        """Wait until enough parties ask for a request; return False when no party is left to ask."""
        if missing := self._missing():
            reason = f"{NOT_CONNECTED}; {NO_SURVIVAL}"
            raise TimeoutFault(missing, drive.run.step, reason, code=Code.LOST)
        timer, member = drive.timer, self._requested[drive.request]
        names, members = member.names, set(member.names)
        askers = Askers(member.parameters, timer, is_group=member.group is not None)
        early, drive.held = drive.held, []
        self._idle = True
        self._await(drive)
        drive.report()
        while True:
            if not early:
                # Before the first event too: all may ask for a later request, and say nothing more.
                live = [name for name in names if timer.connecting or self._pool.is_live(name)]
                askers.open_if_enough(self._pool.ahead((HELLO,)).keys() & members, live)
                lacking = members - {inbound.peer for inbound in drive.held}
                for hello in askers.take_late():
                    _forget(drive, hello.peer)
                    self._asked.forget(hello.peer)
                    context = member.context(drive.request)
                    self._pool.refuse_request(context, hello, Code.FEW, askers.enough, lacking)
            if askers.opened:
                break
            if not (early or timer.connecting or any(map(self._pool.is_live, names))):
                if drive.request > 1 and not any(map(self._pool.is_live, self._parties())):
                    return False
                self._idle = False
                # Once: the other servers are waited for.
                await drive.act(events.Deadline())
                return True
            until = min(timer.pause(), askers.until)
            inbound = early.pop(0) if early else await self._pool.next(until)
            if inbound is not None:
                await self._hear(drive, inbound, askers)
        self._idle = False
        drive.held += early
        return True

    async def _hear(self, drive: Drive, inbound: InboundEvent, askers: Askers) -> None:
        """Hold or pass on a message before a request begins; count the parties that ask for it."""
        if inbound.envelope is None and inbound.peer not in self._others:
            # It may call and ask again.
            askers.remove(inbound.peer)
            self._asked.forget(inbound.peer)
            _forget(drive, inbound.peer)
        elif inbound.envelope is None or inbound.request != drive.request:
            await drive.take(inbound)
        elif inbound.peer in self._others:
            # Enough have asked there.
            drive.held.append(inbound)
            askers.open()
        elif sum(held.peer == inbound.peer for held in drive.held) < EARLY_LIMIT and _is_small(inbound):
            drive.held.append(inbound)
            if inbound.envelope.step == HELLO and inbound.peer in self._requested[drive.request].names:
                askers.add(inbound)
                self._asked.add(inbound.envelope)

    def _await(self, drive: Drive) -> None:
        """Report from now on, to observers, which members the current step waits for."""
        run, timer = drive.run, drive.timer

        def waited() -> Collection[str]:
            # An idle server waits for no member.
            return run.waiting_for if timer.connecting or run.step != HELLO else ()

        self._pool.awaited.begin(drive.request, run.step, waited)

    async def begin_step(self, drive: Drive) -> None:
        """Begin a step of a request: set its time limit, or start the computation on shares."""
        self._await(drive)
        if drive.run.step == COMPUTE:
            drive.timer.step(math.inf)
            drive.begin_work(self._computed(drive.run.job))
        elif drive.run.step == STOPPING:
            drive.timer.step(self._membership.session.timeouts.step)
            if drive.run.looks_back and drive.cancel_work():
                drive.begin_work(self._look_back())
        elif drive.run.step != HELLO:
            drive.timer.step(self._seconds(drive.run.step))

    async def _computed(self, job: Job) -> list[int] | TimeoutFault:
        """Return the integers opened by the servers together, or the TimeoutFault of the computation."""
        try:
            answer = await self._engine_run(cast("Engine", self._engine), job)
        except TimeoutFault as error:
            return error
        return [int(value) for value in answer.values]

    async def _look_back(self) -> TimeoutFault | None:
        """Stop the computation; return a TimeoutFault that names silent servers, or None."""
        engine = cast("Engine", self._engine)
        silent = engine.silent(self._membership.session.timeouts.step)
        await engine.close()
        return TimeoutFault(silent, COMPUTE) if silent else None

    async def _begin(self, number: int) -> Engine:
        """Return the computation process for a request, a new one unless the old one can go on."""
        engine = self._engine
        if engine is None or not self._keep or number - self._epoch >= RETAINED_REQUESTS:
            if engine is not None and self._keep:
                # All servers have opened, or given up, the request before: none needs more of its bytes.
                await engine.close()
            membership = self._membership
            engine = Engine(membership.servers, membership.name, self._forward, keep=self._keep)
            self._engine, self._epoch = engine, number
        self._request = number
        self._begun.set()
        return engine

    async def compute(self, job: Job) -> Answer:
        """Run a job with the other servers outside of any request, to measure its cost."""
        return await self._engine_run(await self._begin(self._request + 1), job)

    async def _engine_run(self, engine: Engine, job: Job) -> Answer:
        """Run a job in this server's computation process, and return its answer."""
        membership = self._membership
        return await engine.run(
            job,
            threshold_of(len(membership.servers)),
            seconds=membership.parameters.seconds,
            silence=membership.session.timeouts.step,
        )

    def _seconds(self, step: str) -> float:
        """Return how many seconds to wait in a step for the parties, or for the other servers."""
        timeouts = self._membership.session.timeouts
        if step == SHARES:
            return timeouts.step
        computing: float = self._membership.parameters.seconds
        # Another server may have too few hellos for as long as parties wait for others.
        more = {PRESENT: timeouts.connect + 2 * timeouts.gather, OUTPUT: computing}
        return more.get(step, 0.0) + PATIENCE * timeouts.step

    def _parties(self) -> Sequence[str]:
        """Return the names of all parties in the roster."""
        return self._membership.session.roster.party_names

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the event that an incoming message or lost connection means to the run, or None."""
        run, number, is_server = drive.run, drive.request, inbound.peer in self._others
        if inbound.envelope is None:
            # A party that leaves before a request opens is absent from it, which is no reason for the
            # request to fail; one that has called again before it has asked may still ask.
            asks = run.step == HELLO and (is_server or inbound.peer in run.waiting_for)
            if (self._idle and not is_server) or (asks and self._pool.is_live(inbound.peer)):
                return None
            if run.expects(inbound.peer):
                drive.notify_lost(inbound.peer)
            return events.PeersLost((inbound.peer,))
        if inbound.request > number:
            # Parties may be ahead by several requests, which are for others; servers never are.
            if not is_server:
                self._pool.keep(inbound, EARLY_LIMIT, LARGEST_HELLO)
            elif inbound.request == number + 1:
                self._pool.keep(inbound, EARLY_LIMIT, len(inbound.envelope.body))
            return None
        self._asked.hear(drive, inbound)
        if inbound.request < number:
            if inbound.envelope.step == HELLO:
                # The party can ask for the next request.
                context = self._requested.get(inbound.request, self._membership).context(inbound.request)
                self._pool.refuse_request(context, inbound, Code.PAST, number)
            return None
        return events.Message(inbound.envelope)


def _forget(drive: Drive, peer: str) -> None:
    """Drop the messages of a party that were held until a request began."""
    drive.held = [inbound for inbound in drive.held if inbound.peer != peer]


def _is_small(inbound: InboundEvent) -> bool:
    """Return whether a message is small enough to be held before a request has begun."""
    return inbound.envelope is not None and len(inbound.envelope.body) <= LARGEST_HELLO


@asynccontextmanager
async def open_computing_server(
    membership: Membership, on_event: OnEvent, listen_on: str | None = None, *, keep: bool = False
) -> AsyncIterator[ComputingServer]:
    """Open a computing server for a `with` block, and close its connections at the end."""
    aggregator = await ComputingServer.open(membership, on_event, listen_on, keep=keep)
    try:
        try:
            yield aggregator
        except ServerLostError:
            # The other servers must be told which server is lost, before they lose this one.
            await aggregator.close()
            raise
        await aggregator.close()
    finally:
        await aggregator.stop()


async def serve_shares(
    session: str | os.PathLike[str],
    name: str,
    *,
    key: str | os.PathLike[str] | None = None,
    requests: int | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
) -> list[Opened | SmpcError]:
    """Run a computing server until `requests` have ended (None: all parties left); return the results.

    Returns the result or error of each request. After the loss or a fault of a server there is no next one.
    Raises the errors of `Membership.load` and `ComputingServer.open`.
    """
    if requests is not None and requests < 1:
        raise ConfigError.at("requests", f"must be at least 1, is {requests}", ConfigCheck.RANGE)
    membership = Membership.load(session, name, key, "server")
    ended: list[Opened | SmpcError] = []
    async with open_computing_server(membership, with_logging(on_event), listen_on) as aggregator:
        while requests is None or len(ended) < requests:
            last = await aggregator.request(len(ended) + 1)
            if last is None:
                break
            ended.append(last)
            if ends_session(last, membership.servers):
                break
    return ended
