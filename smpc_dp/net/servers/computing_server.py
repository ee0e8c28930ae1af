"""A server's process: with the other servers it serves one request of the parties after the other."""

from __future__ import annotations

import asyncio
import math
import os
import struct
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import cast

from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    PeerFault,
    SmpcError,
    TimeoutFault,
)
from smpc_dp.net.connection_pool import SMALL_MESSAGE, ConnectionPool, InboundEvent
from smpc_dp.net.deadline import PATIENCE, StepTimer
from smpc_dp.net.driver import Drive
from smpc_dp.net.events import Event, OnEvent, ignore, logged
from smpc_dp.net.member import Membership
from smpc_dp.net.requests import ServerLostError, ends_session
from smpc_dp.net.servers.child import Answer
from smpc_dp.net.servers.engine import Engine
from smpc_dp.net.servers.shared import terms_maker
from smpc_dp.net.transport.channel import Channel
from smpc_dp.net.transport.endpoint import Listener, dial, listen
from smpc_dp.protocols.engine import events
from smpc_dp.protocols.secret_sharing.agreement import NO_SURVIVAL, Opened
from smpc_dp.protocols.secret_sharing.messages import COMPUTE, HELLO, MAX_OPERATION, OUTPUT, PRESENT, SHARES
from smpc_dp.protocols.secret_sharing.params import threshold_of
from smpc_dp.protocols.secret_sharing.server import Job, ServerMachine

# A message of the bridge: this bit and the request that mpyc's process began with, then bytes of mpyc's.
_BRIDGE = struct.Struct(">I")
BRIDGE_BIT = 1 << 31
# Messages of later requests that are kept of one member.
EARLY_LIMIT = 4
# Requests that one process of mpyc serves. Its random numbers come from keys of its own and counters that
# start at hashes of 64 bits: about 2 for each value that is shared, which must not meet.
RETAINED_REQUESTS = 1000


class ComputingServer:
    """A server with its links to parties and servers. Made by `open`.

    With `keep` mpyc's process stays from request to request, for `RETAINED_REQUESTS` of them.
    """

    def __init__(self, membership: Membership, on_event: OnEvent, keep: bool = False) -> None:
        self._membership = membership
        self._keep = keep
        self._on_event = on_event
        parties = len(membership.session.roster.parties)
        self._pool = ConnectionPool(
            membership, on_event, outbox=64 + 4 * parties, aggregator=False, divert=self._divert
        )
        self._listener: Listener | None = None
        self._others = [name for name in membership.servers if name != membership.name]
        self._earlier = set(membership.servers[: membership.servers.index(membership.name)])
        self._refusals: dict[str, str] = {}
        # Whether nobody has asked for the request yet.
        self._idle = True
        self._engine: Engine | None = None
        self._request = 0
        # The request that the engine began with, which tags what is for it.
        self._epoch = 0
        self._begun = asyncio.Event()
        # What past requests were for: who is late is answered in its own terms.
        self._requested: dict[int, Membership] = {}

    @classmethod
    async def open(
        cls,
        membership: Membership,
        on_event: OnEvent,
        listen_on: str | None = None,
        *,
        keep: bool = False,
    ) -> ComputingServer:
        """Listen, call the servers before this one in the roster, and wait for those after it.

        Raises LocalError if the address cannot be had, TimeoutFault naming the servers that are missing,
        ConfigError if a server has another session file.
        """
        aggregator, (host, port) = cls(membership, on_event, keep), membership.address(listen_on)
        endpoint = membership.endpoint()
        aggregator._listener = await listen(endpoint, host, port, aggregator._called, aggregator._refused)
        try:
            for channel in await asyncio.gather(
                *(dial(endpoint, name) for name in sorted(aggregator._earlier))
            ):
                aggregator._pool.welcome(channel)
            await aggregator._gather()
        except BaseException:
            await aggregator.stop()
            raise
        return aggregator

    async def _gather(self) -> None:
        if not await self._pool.gather(self._others):
            missing = self._missing()
            # Who has been there may have given up for the sake of those who have not.
            never = [name for name in missing if name not in self._pool.connections] or missing
            why = [self._refusals[name] for name in never if name in self._refusals]
            raise TimeoutFault(never, "connect", "; ".join([*why, NO_SURVIVAL]))

    async def gather(self, enough: int | None = None) -> None:
        """Wait until so many parties (None: all) have connected, or `connect` seconds have passed."""
        await self._pool.gather(self._parties(), enough)

    def _missing(self) -> list[str]:
        return [name for name in self._others if not self._pool.is_live(name)]

    def _called(self, channel: Channel) -> None:
        if channel.peer in self._earlier:
            self._refused(
                channel.peer, PeerFault(channel.peer, "calls a server that calls it", Check.OTHER_MEMBER)
            )
            channel.abort()
            return
        self._pool.welcome(channel)

    def _refused(self, who: str, error: SmpcError) -> None:
        if who in self._others:
            self._refusals[who] = str(error)
        self._pool.refused(who, error)

    async def close(self) -> None:
        """Send what waits, and say goodbye to everyone."""
        await self._pool.close()
        await self.stop()

    async def stop(self) -> None:
        """Cut all links."""
        self._pool.abort()
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
        connection = self._pool.connections.get(peer)
        if connection is not None and connection.channel.live:
            await connection.channel.send(_BRIDGE.pack(self._epoch | BRIDGE_BIT), content)

    # Requests

    async def request(self, number: int, group: Membership | None = None) -> Opened | SmpcError | None:
        """Serve one request and return how it ended, or None when every party has left before it began.

        `group`: the membership of a request that is for some of the parties only.
        """
        membership = self._requested[number] = group or self._membership
        machine = ServerMachine(
            membership.context(number),
            membership.servers,
            membership.identity,
            terms_maker(membership.parameters),
            fewest=membership.parameters.fewest,
        )
        first = number == 1 and membership.group is None
        timer = StepTimer(membership.session.timeouts, first=first)
        held = self._pool.take_early(number)
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
        """Wait until somebody asks for a request; return False when nobody is left that could."""
        if missing := self._missing():
            reason = f"connection lost; {NO_SURVIVAL}"
            raise TimeoutFault(missing, drive.run.step, reason, code=Code.LOST)
        timer, names = drive.timer, self._requested[drive.request].names
        self._idle = not drive.held
        self._await(drive)
        drive.report()
        while self._idle:
            if not (timer.connecting or any(map(self._pool.is_live, names))):
                if drive.request > 1 and not any(map(self._pool.is_live, self._parties())):
                    return False
                self._idle = False
                # Once: the other servers are waited for.
                await drive.act(events.Deadline())
                return True
            inbound = await self._pool.next(timer.pause())
            if inbound is not None and inbound.envelope is not None and inbound.request == drive.request:
                self._idle = False
                drive.held.append(inbound)
            elif inbound is not None:
                await drive.take(inbound)
        timer.begin()
        return True

    def _await(self, drive: Drive) -> None:
        """Tell from now on for whom the step waits."""
        run, timer = drive.run, drive.timer

        def waited() -> Collection[str]:
            # An idle server waits for nobody.
            return run.waiting_for if timer.connecting or run.step != HELLO else ()

        self._pool.awaited.begin(drive.request, run.step, waited)

    async def begin_step(self, drive: Drive) -> None:
        """Give the step its time, or begin the computation; see `Holder.begin_step`."""
        self._await(drive)
        if drive.run.step == COMPUTE:
            drive.timer.step(math.inf)
            drive.begin_work(self._computed(drive.run.job))
        elif drive.run.step != HELLO:
            drive.timer.step(self._seconds(drive.run.step))

    async def _computed(self, job: Job) -> list[int]:
        """Return what the servers' mpyc opens."""
        answer = await self._engine_run(cast("Engine", self._engine), job)
        return [int(value) for value in answer.values]

    async def _begin(self, number: int) -> Engine:
        engine = self._engine
        if engine is None or not self._keep or number - self._epoch >= RETAINED_REQUESTS:
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
        """Return what parties have for a step, or how long the other servers may still wait for them."""
        timeouts = self._membership.session.timeouts
        if step == SHARES:
            return timeouts.step
        computing: float = self._membership.parameters.seconds
        more = {PRESENT: timeouts.connect + timeouts.gather, OUTPUT: computing}
        return more.get(step, 0.0) + PATIENCE * timeouts.step

    def _parties(self) -> Sequence[str]:
        return [member.name for member in self._membership.session.roster.parties]

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """See `Holder.event_of`."""
        run, number, is_server = drive.run, drive.request, inbound.peer in self._others
        if inbound.envelope is None:
            # A party that leaves before a request begins is absent from it, and no reason for it to fail.
            next_report = run.expects(inbound.peer) and (is_server or not self._idle)
            if self._pool.is_live(inbound.peer) or not next_report:
                return None
            drive.notify_lost(inbound.peer)
            return events.PeersLost((inbound.peer,))
        if inbound.request > number:
            # Parties may be ahead by several requests, which are for others; servers never are.
            if not is_server:
                self._pool.keep(inbound, EARLY_LIMIT, MAX_OPERATION + SMALL_MESSAGE)
            elif inbound.request == number + 1:
                self._pool.keep(inbound, EARLY_LIMIT, len(inbound.envelope.body))
            return None
        if inbound.request < number:
            if inbound.envelope.step == HELLO:
                # It can ask for the next one.
                context = self._requested.get(inbound.request, self._membership).context(inbound.request)
                self._pool.refuse_request(context, inbound, Code.PAST, number)
            return None
        return events.Message(inbound.envelope)


@asynccontextmanager
async def open_aggregator(
    membership: Membership, on_event: OnEvent, listen_on: str | None = None, *, keep: bool = False
) -> AsyncIterator[ComputingServer]:
    """Open a server, and say goodbye at the end; arguments and errors as of `ComputingServer.open`."""
    aggregator = await ComputingServer.open(membership, on_event, listen_on, keep=keep)
    try:
        try:
            yield aggregator
        except ServerLostError:
            # The other servers must hear which one is lost, before they lose this one.
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
    """Be a server of a session until `requests` are served (None: until every party has left).

    Returns how each request ended. After the loss or a fault of a server there is no next one. Raises what
    `Membership.load` and `ComputingServer.open` raise.
    """
    if requests is not None and requests < 1:
        raise ConfigError.at("requests", f"must be at least 1, is {requests}", ConfigCheck.RANGE)
    membership = Membership.load(session, name, key, "server")
    ended: list[Opened | SmpcError] = []
    async with open_aggregator(membership, logged(on_event), listen_on) as aggregator:
        while requests is None or len(ended) < requests:
            last = await aggregator.request(len(ended) + 1)
            if last is None:
                break
            ended.append(last)
            if ends_session(last, membership.servers):
                break
    return ended
