"""A party's channels to all others of a session without an aggregator, and its requests over them.

Of two parties the one with the smaller number in the roster listens, the other calls, and calls again
whenever the channel is lost: so a party that was disconnected in one request may take part in the next.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from msgspec.structs import replace

from smpc_dp.capabilities.gopa import direct_states
from smpc_dp.capabilities.gopa.direct_params import DirectParameters
from smpc_dp.encoding import RingVector
from smpc_dp.engine import events
from smpc_dp.engine.phases.messages import HELLO, START
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.errors import (
    Check,
    Code,
    ConfigError,
    OtherRequestError,
    PeerFault,
    SmpcError,
    TimeoutFault,
)
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.session.asked import Hellos, OwnRequest
from smpc_dp.session.charging import Charge
from smpc_dp.session.connection import Connection
from smpc_dp.session.connection_pool import OUTBOX_LIMIT, ConnectionPool, InboundEvent
from smpc_dp.session.deadline import PATIENCE, StepTimer, now
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import OnEvent
from smpc_dp.session.member import Membership
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.interfaces import PeerChannel, PeerEndpoint, PeerListener
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode

# Seconds between a lost channel, or a refused call, and the next call.
PAUSE = 1.0


class Mesh(Connection):
    """Connections of one party to all others. Made by `open`."""

    def __init__(self, membership: Membership, on_event: OnEvent) -> None:
        outbox = OUTBOX_LIMIT + 4 * membership.parameters.plan.parties
        super().__init__(
            membership, on_event, ConnectionPool(membership, on_event, outbox=outbox, aggregator=False)
        )
        self._listener: PeerListener | None = None
        self._calls: list[asyncio.Task[None]] = []
        self._names = membership.session.roster.party_names
        self._index = self._names.index(membership.name)
        self._others = [name for name in self._names if name != membership.name]
        self._settled: dict[str, SmpcError | None] = {}
        self._inbound = asyncio.Event()
        # The request that has begun: a party that calls later is sent its hello.
        self._drive: Drive | None = None
        self._others_asked: _OthersAsked | None = None

    @classmethod
    async def open(
        cls,
        membership: Membership,
        on_event: OnEvent,
        listen_on: str | None = None,
    ) -> Mesh:
        """Listen, call the parties with smaller numbers, and wait for all.

        The wait ends when all are connected or `connect` has passed. `listen_on`: host:port to bind, by
        default the party's address in the roster.

        Raises:
            LocalError: the address is not available. ConfigError: others have another session file.
            TimeoutFault: fewer are connected than a run needs; names the missing ones.
        """
        mesh, (host, port) = cls(membership, on_event), membership.address(listen_on)
        endpoint = membership.endpoint()
        mesh._listener = await endpoint.listen(host, port, mesh._called, mesh._refused)
        loop = asyncio.get_running_loop()
        mesh._calls = [loop.create_task(mesh._call(endpoint, name)) for name in mesh._names[: mesh._index]]
        try:
            await mesh._gather()
        except BaseException:
            await mesh._stop()
            raise
        return mesh

    async def run(
        self,
        request: int,
        operation: str,
        ring_vector: RingVector,
        charge: Charge,
        membership: Membership | None = None,
        before: int = 0,  # noqa: ARG002
        label: str | None = None,
    ) -> tuple[Outcome, Receipt | None]:
        """See `Connection.run`."""
        member = membership or self.membership
        run = self._party(member, request, operation, ring_vector)
        own = OwnRequest.of(member, request, operation, label)
        self._others_asked = None if own is None else _OthersAsked(own, _hellos_to_all(own, request))
        timer = StepTimer(self._timeouts, first=False)
        drive = Drive(
            request,
            run,
            self.connections,
            timer,
            self,
            self._on_event,
            held=self.connections.take_early(request),
            peers=self._others,
            charge=charge,
        )
        self._drive = drive
        try:
            receipt = await drive.to_end()
        except PeerFault as error:
            # What a coordinator says later is no reason for a run that has begun, and may be charged.
            asked = None if run.run_id else self._others_asked
            if asked is None or (other := asked.explain(run.name, error)) is None:
                raise
            raise other from error
        finally:
            self._drive = None
        return run.result, receipt

    async def close(self) -> None:
        """Send queued messages, and say goodbye to all."""
        for call in self._calls:
            call.cancel()
        try:
            await self.connections.close()
        finally:
            await self._stop()

    # Channels

    async def _gather(self) -> None:
        """Wait until every party is connected or has another session."""
        awaited = self.connections.awaited
        awaited.begin(0, "", lambda: [name for name in self._others if name not in self._settled])
        until = now() + self._timeouts.connect
        await awaited.gather(self._inbound, until, lambda: self._settled.keys() >= set(self._others))
        awaited.begin(0, "", frozenset)
        missing = [name for name in self._others if not self.connections.is_live(name)]
        if len(self._names) - len(missing) >= self.membership.parameters.plan.min_survivors:
            return
        for error in self._settled.values():
            if isinstance(error, ConfigError):
                raise error
        needed = self.membership.parameters.plan.min_survivors
        detail = f"{len(self._names) - len(missing)} parties are connected, {needed} are needed"
        raise TimeoutFault(missing, "connect", detail)

    def _called(self, channel: PeerChannel) -> None:
        """Add a channel that another party has opened."""
        if channel.peer not in self._names[self._index + 1 :]:
            self._refused(
                channel.peer, PeerFault(channel.peer, "calls a party that calls it", Check.OTHER_MEMBER)
            )
            channel.abort()
            return
        self._welcome(channel)

    def _refused(self, who: str, error: SmpcError) -> None:
        """Record a refused connection."""
        self.connections.refused(who, error)
        if isinstance(error, ConfigError):
            self._settle(who, error)

    def _settle(self, name: str, error: SmpcError | None) -> None:
        """Record that a party is connected, or the error with it."""
        self._settled[name] = error
        self._inbound.set()

    def _welcome(self, channel: PeerChannel) -> asyncio.Task[None]:
        """Add a channel to the pool, and send it the current hello."""
        reader = self.connections.welcome(channel, resumes=True).tasks[0]
        self._settle(channel.peer, None)
        if (drive := self._drive) is not None and not drive.run.state.phase:
            again = [envelope for envelope in drive.hello if envelope.receiver == channel.peer]
            self.connections.send(drive.request, again)
        return reader

    async def _call(self, endpoint: PeerEndpoint, name: str) -> None:
        """Keep a channel to a party that listens: call it again after each loss."""
        while True:
            try:
                channel = await endpoint.dial(name)
            except ConfigError as error:
                self._refused(name, error)
                return
            except (SmpcError, ChannelClosed) as error:
                self.connections.refused(name, error)
            else:
                await asyncio.wait([self._welcome(channel)])
            await asyncio.sleep(PAUSE)

    async def _stop(self) -> None:
        """Stop listening and calling."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self.connections.abort()
        if self._listener is not None:
            await self._listener.close()

    # Requests

    def _party(
        self, membership: Membership, request: int, operation: str, ring_vector: RingVector
    ) -> Run[Outcome]:
        """Return the party's role in a request."""
        context = membership.context(request, operation)
        parameters = cast("DirectParameters", membership.parameters)
        make = membership.maker(direct_states.party)
        return make(context, parameters, membership.identity, ring_vector)

    def _declined(self, membership: Membership, request: int) -> Run[Outcome]:
        encoding = membership.parameters.encoding
        return self._party(membership, request, "", np.zeros(encoding.ring_length, dtype=encoding.dtype))

    async def begin_step(self, drive: Drive) -> None:
        """Set the time limit of the step that has begun; see `Holder.begin_step`."""
        timeouts, step = self._timeouts, drive.run.step
        if step == HELLO:
            drive.timer.begin()
        elif drive.run.state.patient:
            wait = timeouts.gather if step == START else 0.0
            drive.timer.step(wait + PATIENCE * timeouts.step)
        else:
            drive.timer.step(timeouts.step)

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """See `Holder.event_of`."""
        envelope, request = inbound.envelope, drive.request
        if envelope is None and self.connections.is_live(inbound.peer):
            # The party has called again.
            return None
        if envelope is None:
            drive.notify_lost(inbound.peer)
            return events.PeersLost((inbound.peer,))
        if inbound.request > request:
            self.connections.keep(inbound)
            return None
        if inbound.request < request:
            if envelope.step == HELLO:
                self._answer_behind(drive, inbound)
            return None
        asked = self._others_asked
        if asked is not None and not drive.run.state.phase:
            asked.hellos.add(_signed_for_all(envelope, self.membership))
            if asked.hears_past(envelope):
                if (following := asked.following) is not None:
                    early = self.connections.early(following)
                    letters = [_signed_for_all(each, self.membership) for each in early]
                    raise asked.error(drive.run.name, following, letters)
                return None
        return events.Message(envelope)

    def _answer_behind(self, drive: Drive, inbound: InboundEvent) -> None:
        """Answer the hello of a past request: this party's own hello, and the request that can be joined."""
        begun = bool(drive.run.state.phase)
        if not begun:
            again = [envelope for envelope in drive.hello if envelope.receiver == inbound.peer]
            self.connections.send(drive.request, again)
        context = self.membership.context(inbound.request)
        self.connections.refuse_request(context, inbound, Code.PAST, drive.request + begun)


def _signed_for_all(envelope: Envelope, membership: Membership) -> Envelope:
    """Return a letter as its sender has signed it, once for all receivers."""
    return replace(envelope, receiver=membership.aggregator)


def _hellos_to_all(own: OwnRequest, request: int) -> Hellos:
    """Return an empty list of the others' hellos of a request."""
    context = dataclasses.replace(own.context, request=request)
    return Hellos(context, own.needed, own.kind, context.aggregator)


@dataclass(slots=True)
class _OthersAsked:
    """What the others ask for, as each of them says itself, while the party's own request has not begun.

    Attributes:
        hellos: of the party's own request.
        claims: by party, the request that can be joined next.
    """

    own: OwnRequest
    hellos: Hellos
    claims: dict[str, int] = field(default_factory=dict)

    def hears_past(self, envelope: Envelope) -> bool:
        """Tell whether a message says that its sender is at a later request; store that."""
        if envelope.step != ABORT:
            return False
        try:
            self.own.context.check(envelope)
            abort = decode(envelope.body, Abort, envelope.sender)
        except PeerFault:
            return False
        if abort.code != Code.PAST or abort.number <= self.own.context.request:
            return False
        self.claims[envelope.sender] = abort.number
        return True

    @property
    def following(self) -> int | None:
        """The latest request that so many parties are at, or beyond, that one of them is honest; or None."""
        needed = self.own.needed
        return sorted(self.claims.values())[-needed] if len(self.claims) >= needed else None

    def error(self, party: str, following: int, hellos: Sequence[Envelope]) -> OtherRequestError:
        """Return the error of a party that is behind; `hellos`: of the request `following`."""
        asked = _hellos_to_all(self.own, following)
        for envelope in hellos:
            asked.add(envelope)
        operation = asked.most if asked.shown() else None
        return self.own.error(party, following, operation, following)

    def explain(self, party: str, error: PeerFault) -> OtherRequestError | None:
        """Return the error of a party that has given another label than the others have signed; or None."""
        if (error.culprit, error.code) != (party, Code.OPERATION):
            return None
        operation = self.hellos.most if self.hellos.shown() else self.own.context.operation
        if operation == self.own.context.operation or self.own.label_of(operation) is None:
            return None
        request = self.own.context.request
        return self.own.error(party, request, operation, request + 1)
