"""A party's channels to all others of a session without an aggregator, and its requests over them.

Of two parties the one with the smaller number in the roster listens, the other calls, and calls again
whenever the channel is lost: so a party that was disconnected in one request may take part in the next. Where
runs are saved it goes on in the same one: protocols/saved-states/sessions.md, "Without an aggregator".
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec.structs import replace

from smpc_dp.capabilities.gopa import direct_states
from smpc_dp.capabilities.gopa.direct_evidence import coordinator_of
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
from smpc_dp.session.connection import MOST_RENEWALS, Connection
from smpc_dp.session.connection_pool import OUTBOX_LIMIT, ConnectionPool, InboundEvent
from smpc_dp.session.deadline import PATIENCE, StepTimer, now
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import OnEvent
from smpc_dp.session.member import Membership
from smpc_dp.session.session_state import SessionState
from smpc_dp.session.threads import finish_in_thread
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.interfaces import PeerChannel, PeerEndpoint, PeerListener
from smpc_dp.transport.sockets import LONGEST_PAUSE, pauses
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode

if TYPE_CHECKING:
    from smpc_dp.engine.saved import SavedRun


@dataclass(frozen=True, slots=True)
class _Last:
    """Record of a party's last run: the request's number, the messages sent, and the total's survivors."""

    request: int = 0
    messages: Sequence[Envelope] = ()
    survivors: tuple[str, ...] = ()


class Mesh(Connection):
    """Network connections of one party to all others, over which it makes requests without an aggregator."""

    def __init__(self, membership: Membership, on_event: OnEvent, state: SessionState | None = None) -> None:
        outbox = OUTBOX_LIMIT + 4 * membership.parameters.plan.parties
        super().__init__(
            membership, on_event, ConnectionPool(membership, on_event, outbox=outbox, aggregator=False)
        )
        self.state = state or SessionState()
        self._listener: PeerListener | None = None
        self._calls: list[asyncio.Task[None]] = []
        self._names = membership.session.roster.party_names
        self._index = self._names.index(membership.name)
        self._others = [name for name in self._names if name != membership.name]
        # The errors of parties with another session file.
        self._differing: dict[str, ConfigError] = {}
        # The parties that have been connected to this process.
        self._met: set[str] = set()
        # Set when a party has connected, or is one of those.
        self._inbound = asyncio.Event()
        # The request that has begun: a party that calls later is sent what it has said.
        self._drive: Drive | None = None
        self._others_asked: _OthersAsked | None = None
        # Until when parties may connect that this process has not met; whether it has waited for them.
        self._meets_until = 0.0
        self._gathered = False
        # Of the run under way: whether its next step is the first one of a restored process, which has twice
        # the time, and how often the step's time may begin anew.
        self._restored, self._renewals = False, 0
        # The last saved run that is over: its request, what this party has said in it, and its survivors; by
        # party the channel over which that was said again.
        self._last = _Last()
        self._repeated: dict[str, PeerChannel] = {}
        # Takes what comes between two requests, where runs are saved.
        self._between: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        membership: Membership,
        on_event: OnEvent,
        listen_on: str | None = None,
        state: SessionState | None = None,
    ) -> Mesh:
        """Listen, connect to the parties with smaller numbers, wait for all, and return the connections.

        The wait ends when all are connected or `connect` has passed; a saved request that is under way waits
        itself, where it has to. `listen_on`: host:port to bind, by default the party's address in the roster.

        Raises:
            LocalError: the address is not available. ConfigError: others have another session file.
            TimeoutFault: fewer are connected than a run needs; names the missing ones.
        """
        mesh, (host, port) = cls(membership, on_event, state), membership.address(listen_on)
        await mesh._load_last()
        endpoint = membership.endpoint()
        mesh._listener = await endpoint.listen(host, port, mesh._called, mesh._refused)
        loop = asyncio.get_running_loop()
        mesh._calls = [loop.create_task(mesh._call(endpoint, name)) for name in mesh._names[: mesh._index]]
        try:
            if not mesh.state.is_under_way:
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
        """Take part in one request with all parties or a group; return (outcome, receipt or None)."""
        await self._end_between()
        member = membership or self.membership
        run = self._party(member, request, operation, ring_vector)
        run, self.resumed = await finish_in_thread(partial(self.state.party_run, run, ring_vector))
        # The run forgets the vector, once it has published.
        del ring_vector
        if self.state.saves and self._last.request != request - 1:
            await self._load_last()
        own = OwnRequest.of(member, request, operation, label)
        self._others_asked = None if own is None else _OthersAsked(own, _hellos_to_all(own, request))
        async with self._answered(request, run):
            if self.state.saves and not (self._gathered or run.finished):
                await self._gather(resumed=self.resumed)
            receipt = await self._to_end(request, run, charge)
            if run.state.outcome is None:
                # An earlier process has ended it.
                raise run.state.ended
        return run.result, receipt

    async def _to_end(self, request: int, run: Run[Outcome], charge: Charge) -> Receipt | None:
        """Run this party's part of a request to its end; return the receipt, None without a ledger."""
        drive = Drive(
            request,
            run,
            self.connections,
            StepTimer(self._timeouts, first=self._is_gathering),
            self,
            self._on_event,
            held=self.connections.take_early(request),
            peers=self._others,
            charge=charge,
        )
        drive.saved = self.state.saves
        self._drive, self._restored, self._renewals = drive, self.resumed, MOST_RENEWALS
        try:
            return await drive.to_end(resumed=self.resumed)
        except PeerFault as error:
            # What a coordinator says later is no reason for a run that has begun, and may be charged.
            asked = None if run.run_id else self._others_asked
            if asked is None or (other := asked.explain(run.name, error)) is None:
                raise
            raise other from error
        finally:
            self._drive = None
            if drive.saved and run.state.over:
                outcome: Outcome | None = run.state.outcome
                messages = cast("SavedRun[Outcome]", run).resend()
                self._last = _Last(request, messages, () if outcome is None else outcome.survivors)
                self._repeated = {}
                self._between = asyncio.create_task(self._take_between(run.member.context))

    @property
    def _is_gathering(self) -> bool:
        """Tell whether parties that were never connected may still join a run that is saved on disk."""
        unmet = set(self._others) - self.connections.connections.keys()
        return self.state.saves and bool(unmet) and now() < self._meets_until

    async def close(self) -> None:
        """Send queued messages and say goodbye to all parties; in a saved run leave without a goodbye."""
        try:
            if not await finish_in_thread(self.state.end_session):
                await self._linger()
                await self._end_between()
                for call in self._calls:
                    call.cancel()
                await self.connections.close()
        finally:
            try:
                await self._stop()
            finally:
                self.state.close()

    async def _linger(self) -> None:
        """Wait at most a step's time for cut-off survivors of the last saved run to fetch what they lack."""
        pool, until = self.connections, now() + self._timeouts.step

        def away() -> list[str]:
            return [name for name in self._last.survivors if pool.is_cut(name)]

        pool.awaited.begin(0, "", away)
        await pool.awaited.gather(self._inbound, until, lambda: not away())

    # Channels

    async def _gather(self, *, resumed: bool = False) -> None:
        """Wait until all parties are connected or known to differ in session; raise if too few are connected.

        With a state also until as many are connected as a run needs; `resumed`: for these alone, which others
        have begun.
        """
        awaited, needed = self.connections.awaited, self.membership.parameters.plan.min_survivors

        def away() -> list[str]:
            return [name for name in self._others if not self.connections.is_live(name)]

        def unmet() -> list[str]:
            return [name for name in self._others if name not in self._met and name not in self._differing]

        def enough() -> bool:
            missing = away()
            are_enough = len(self._names) - len(missing) >= needed
            if self._differing.keys() >= set(missing) or (resumed and are_enough):
                return True
            return not (resumed or unmet()) and (are_enough or not self.state.saves)

        awaited.begin(0, "", lambda: [name for name in away() if name not in self._differing])
        until = self._meets_until = now() + self._timeouts.connect
        await awaited.gather(self._inbound, until, enough)
        awaited.begin(0, "", frozenset)
        missing = away()
        if len(self._names) - len(missing) >= needed:
            self._gathered = True
            return
        for error in self._differing.values():
            raise error
        detail = f"{len(self._names) - len(missing)} parties are connected, {needed} are needed"
        raise TimeoutFault(missing, "connect", detail)

    def _called(self, channel: PeerChannel) -> None:
        """Accept a channel that a party opened; refuse it if this party is the one that connects to it."""
        if channel.peer not in self._names[self._index + 1 :]:
            self._refused(
                channel.peer, PeerFault(channel.peer, "calls a party that calls it", Check.OTHER_MEMBER)
            )
            channel.abort()
            return
        self._welcome(channel)

    def _refused(self, who: str, error: SmpcError) -> None:
        """Report a refused connection; store the error if the other party has another session file."""
        self.connections.refused(who, error)
        if isinstance(error, ConfigError):
            self._differing[who] = error
            self._inbound.set()

    def _welcome(self, channel: PeerChannel) -> asyncio.Task[None]:
        """Add a channel to the pool and resend what its party missed; return the task that reads from it."""
        reader = self.connections.welcome(channel, resumes=True).tasks[0]
        self._differing.pop(channel.peer, None)
        self._met.add(channel.peer)
        self._inbound.set()
        if self._drive is not None:
            # The role may be at an event: `event_of` sends.
            self.connections.inbound.wake(InboundEvent(channel.peer))
        else:
            self._repeat_last(channel.peer, self._last.request)
        return reader

    async def _call(self, endpoint: PeerEndpoint, name: str) -> None:
        """Connect to a party that listens, and again after each loss; stop if its session file differs."""
        delays = pauses()
        while True:
            begun = now()
            try:
                channel = await endpoint.dial(name)
            except ConfigError as error:
                self._refused(name, error)
                return
            except (SmpcError, ChannelClosed) as error:
                self.connections.refused(name, error)
            else:
                reader = self._welcome(channel)
                # The reader sees no end of a channel while a message waits that nobody takes before a call.
                while not reader.done() and (channel.live or not self.state.saves):
                    await asyncio.wait([reader], timeout=LONGEST_PAUSE if self.state.saves else None)
                if now() > begun + LONGEST_PAUSE:
                    delays = pauses()
            await asyncio.sleep(next(delays))

    async def _stop(self) -> None:
        """Cut all connections at once, without a goodbye; accept no more, and call no party."""
        await self._end_between()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self.connections.abort()
        if self._listener is not None:
            await self._listener.close()

    # Between requests

    async def _take_between(self, context: Context) -> None:
        """Between requests of saved runs store early messages, and answer those of past requests."""
        while True:
            inbound = await self.connections.inbound.get()
            envelope = inbound.envelope
            if envelope is None:
                continue
            if inbound.request > context.request:
                self.connections.keep(inbound)
            elif envelope.step != HELLO:
                self._repeat_last(inbound.peer, inbound.request)
            else:
                asked = self.membership.context(inbound.request)
                self.connections.refuse_request(asked, inbound, Code.PAST, context.request + 1)

    async def _end_between(self) -> None:
        """Stop taking messages as between two requests: the next request takes those that come now."""
        if self._between is not None:
            self._between.cancel()
            await asyncio.gather(self._between, return_exceptions=True)
            self._between = None

    # Requests

    def _party(
        self, membership: Membership, request: int, operation: str, ring_vector: RingVector
    ) -> Run[Outcome]:
        """Return this party's state machine for a request, with its encoded vector."""
        context = membership.context(request, operation)
        parameters = cast("DirectParameters", membership.parameters)
        make = membership.maker(direct_states.party)
        return make(context, parameters, membership.identity, ring_vector)

    def _declined(self, membership: Membership, request: int) -> Run[Outcome]:
        """Return the run of a request that this party's application did not make: it contributes zeros."""
        encoding = membership.parameters.encoding
        return self._party(membership, request, "", np.zeros(encoding.ring_length, dtype=encoding.dtype))

    async def begin_step(self, drive: Drive) -> None:
        """Set the time limit of the protocol step that has begun."""
        if drive.run.step == HELLO:
            drive.timer.begin()
        else:
            drive.timer.step((2 if self._restored else 1) * self._seconds(drive))
        self._restored = False

    def _seconds(self, drive: Drive) -> float:
        """Return the time limit of a step in seconds, longer in states that wait for the coordinator."""
        if not drive.run.state.patient:
            return self._timeouts.step
        wait = self._timeouts.gather if drive.run.step == START else 0.0
        return wait + PATIENCE * self._timeouts.step

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the event that a message or loss is to the run; None if the run has nothing to do."""
        envelope, request = inbound.envelope, drive.request
        if envelope is None and self.connections.is_live(inbound.peer):
            await self._resend(drive, inbound.peer)
            return None
        if envelope is None:
            drive.notify_lost(inbound.peer)
            # Where runs are saved it has the time of the step to come back.
            return None if drive.saved and not inbound.clean else events.PeersLost((inbound.peer,))
        if inbound.request > request:
            self.connections.keep(inbound)
            return None
        if inbound.request < request:
            if envelope.step == HELLO:
                self._answer_behind(drive, inbound)
            else:
                self._repeat_last(inbound.peer, inbound.request)
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

    async def _resend(self, drive: Drive, peer: str) -> None:
        """Send this party's messages of the request again over a new connection to a party, one time only.

        A party has the step's time anew when the coordinator calls again.
        """
        connection = self.connections.connections[peer]
        if connection.answered >= drive.request or not (drive.saved or not drive.run.state.phase):
            return
        connection.answered = drive.request
        await drive.resend(peer)
        coordinator = self._names[coordinator_of(drive.request, len(self._names)) - 1]
        if drive.saved and peer == coordinator and self._renewals:
            self._renewals -= 1
            drive.timer.step(self._seconds(drive))

    async def _load_last(self) -> None:
        """Read from disk the messages that an earlier process of this party sent in its last run."""
        self._last = _Last(*await finish_in_thread(self.state.earlier_messages))

    def _repeat_last(self, peer: str, request: int) -> None:
        """Send this party's last run's messages again, once per channel, if the run was `request`."""
        channel = self.connections.connections[peer].channel
        if self._last.request == request and self._repeated.get(peer) is not channel:
            self._repeated[peer] = channel
            messages = [envelope for envelope in self._last.messages if envelope.receiver == peer]
            self.connections.send(request, messages)

    def _answer_behind(self, drive: Drive, inbound: InboundEvent) -> None:
        """Answer a party's hello for a past request, naming the request that the party can join."""
        begun = bool(drive.run.state.phase)
        if not begun:
            again = [envelope for envelope in drive.hello if envelope.receiver == inbound.peer]
            self.connections.send(drive.request, again)
        context = self.membership.context(inbound.request)
        self.connections.refuse_request(context, inbound, Code.PAST, drive.request + begun)


def _signed_for_all(envelope: Envelope, membership: Membership) -> Envelope:
    """Return a message to one party as its sender signed it: one signature serves for all receivers."""
    return replace(envelope, receiver=membership.aggregator)


def _hellos_to_all(own: OwnRequest, request: int) -> Hellos:
    """Return an empty collection for the hellos that other parties send for a request."""
    context = dataclasses.replace(own.context, request=request)
    return Hellos(context, own.needed, own.kind, context.aggregator)


@dataclass(slots=True)
class _OthersAsked:
    """Requests that other parties say they are at, kept until this party's own request begins.

    Attributes:
        hellos: of the party's own request.
        claims: by party, the request that can be joined next.
    """

    own: OwnRequest
    hellos: Hellos
    claims: dict[str, int] = field(default_factory=dict)

    def hears_past(self, envelope: Envelope) -> bool:
        """Tell whether a message says that its sender is at a later request, and store the number."""
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
        """A later request that enough parties have reached that one of them is honest; or None."""
        needed = self.own.needed
        return sorted(self.claims.values())[-needed] if len(self.claims) >= needed else None

    def error(self, party: str, following: int, hellos: Sequence[Envelope]) -> OtherRequestError:
        """Return the error that a party is behind, with the later request's label if its hellos show it."""
        asked = _hellos_to_all(self.own, following)
        for envelope in hellos:
            asked.add(envelope)
        operation = asked.most if asked.shown() else None
        return self.own.error(party, following, operation, following)

    def explain(self, party: str, error: PeerFault) -> OtherRequestError | None:
        """Return the error that a party's label differs from the label others signed; or None."""
        if (error.culprit, error.code) != (party, Code.OPERATION):
            return None
        operation = self.hellos.most if self.hellos.shown() else self.own.context.operation
        if operation == self.own.context.operation or self.own.label_of(operation) is None:
            return None
        request = self.own.context.request
        return self.own.error(party, request, operation, request + 1)
