"""A party's connection to the other members of its session, over which its requests run in turn."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

import numpy as np

from smpc_dp.encoding import RingVector
from smpc_dp.engine import events
from smpc_dp.engine.phases.messages import START
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.engine.session_protocol import MakeParty
from smpc_dp.errors import Check, Code, OtherRequestError, SmpcError, TimeoutFault, check_of
from smpc_dp.logs.seen import StoredRun
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.session.asked import ASKED, OwnRequest
from smpc_dp.session.charging import Charge
from smpc_dp.session.connection_pool import ConnectionPool, InboundEvent
from smpc_dp.session.deadline import PATIENCE, StepTimer, hello_seconds
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import OnEvent
from smpc_dp.session.refusals import evidence_file
from smpc_dp.session.requests import AggregatorLostError, ends_session
from smpc_dp.session.session_state import SessionState
from smpc_dp.session.threads import finish_in_thread
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.interfaces import PeerEndpoint
from smpc_dp.transport.sockets import pauses
from smpc_dp.transport.tls import Contexts
from smpc_dp.wire.abort import LEAVE, QUIT, TEXTS, abort_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from smpc_dp.engine.saved import SavedRun
    from smpc_dp.logs.followed import Followed
    from smpc_dp.privacy.accountant.receipt import Receipt
    from smpc_dp.session.member import Membership
    from smpc_dp.session.session_file import Timeouts
    from smpc_dp.session.tasks import Beside

# So often a party has the time of a step anew in a run, after its connection was lost: however often it is
# cut, its call ends.
MOST_RENEWALS = 8
# Of a party's vector, in an error of a run that is saved.
IN_TOTAL = "the run may have ended, and this party's vector may be in a total that others have"
IN_NO_TOTAL = "this party's vector is in no total"
IN_RESULT = (IN_TOTAL, IN_NO_TOTAL)
SESSION_ENDED = "it has ended the session and serves no more requests"


class Connection(ABC):
    """Base class of a party's connections in a session, over which it takes part in requests.

    Attributes:
        membership: this member's session file and identity.
        connections: the connection pool.
        state: what the party keeps of its session.
        check_total: whether the party adds up the total of the next request itself, if it is verifiable.
        ended: the role in the last request to an aggregator that succeeded.
        followed: the log of the last request, if it was verifiable and succeeded.
        resumed: whether the last request went on with a saved run.
        contexts: the TLS contexts for evaluations with other parties of a session with an aggregator.
    """

    ended: Any = None
    followed: Followed | None = None
    resumed = False
    contexts: Contexts | None = None

    def __init__(self, membership: Any, on_event: OnEvent, connections: ConnectionPool | None = None) -> None:
        self.membership = membership
        self.state = SessionState()
        self.connections = connections or ConnectionPool(membership, on_event, aggregator=False)
        self._on_event = on_event
        self.check_total = True

    @property
    def _timeouts(self) -> Timeouts:
        """Time limits of the session's steps and waits."""
        timeouts: Timeouts = self.membership.session.timeouts
        return timeouts

    @abstractmethod
    async def run(
        self,
        request: int,
        operation: str,
        ring_vector: RingVector,
        charge: Charge,
        membership: Any = None,
        before: int = 0,
        label: str | None = None,
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in one sum; return (result, ledger's receipt or None); raise SmpcError if it fails.

        Raises SmpcError after the others are notified; OtherRequestError if a `label` is given.

        Args:
            charge: called before any message that depends on the ring elements is sent.
            membership: that of the group.
            before: requests that others may still be at.
            label: the caller's, in `operation`; None for requests that a plan numbers.
        """

    async def decline(
        self,
        request: int,
        error: SmpcError,
        membership: Any = None,
        *,
        beside: Beside | None = None,  # noqa: ARG002 - for an aggregator alone
    ) -> None:
        """Leave a request before it begins, and tell the others why."""
        run = self._declined(membership or self.membership, request)
        self.connections.send(request, run.handle(events.Cancellation(error)))

    @contextlib.asynccontextmanager
    async def _answered(
        self, request: int, run: Run[Any], in_result: tuple[str, str] = IN_RESULT
    ) -> AsyncIterator[None]:
        """Context manager of one request: at its end, note that the caller has the result or error.

        The error of a saved run says whether its input may be in a result that others have; `in_result` as
        of `complete`.
        """
        try:
            yield
        except SmpcError as error:
            # Who is at another request is told which one; it has begun none.
            if self.state.saves and not isinstance(error, OtherRequestError):
                released, unreleased = in_result
                outcome = released if cast("SavedRun[Any]", run).has_released else unreleased
                error.args = (f"{error}; {outcome}",)
            raise
        finally:
            scope = run.member.context.scope
            if run.state.over and not await finish_in_thread(partial(self.state.is_open, request, scope)):
                self.state.answer(request, with_result=run.state.outcome is not None)

    @abstractmethod
    def _declined(self, membership: Any, request: int) -> Any:
        """Return the run of a request that the party leaves at once, without input."""

    def lost(self, _request: int, error: SmpcError) -> SmpcError:
        """Return the error of a failed request as it is; subclasses may say that the session has ended."""
        return error

    def fail(self, request: int, error: SmpcError) -> NoReturn:
        """Raise the error of a failed request, chained to the original one."""
        lost = self.lost(request, error)
        raise lost from (None if lost is error else error)

    async def quit(self, request: int, error: SmpcError) -> None:  # noqa: B027 - for an aggregator alone
        """Do nothing, unless connected to an aggregator, which is then told why the party leaves."""

    async def close(self) -> None:
        """Send queued messages, say goodbye (unless a saved run is to go on), and close everything."""
        try:
            # Others wait for the process that goes on.
            if not await finish_in_thread(self.state.end_session):
                await self.connections.close()
        finally:
            self.connections.abort()
            self.state.close()


class Waits:
    """Handler of a party's run: sets the time limits of steps, and turns inbound messages into events."""

    def __init__(self, first: float, later: float, own: OwnRequest | None = None) -> None:
        """`own`: the request that others may not ask for; None where a plan numbers requests."""
        self._first, self._later = first, later
        self._own = own

    async def begin_step(self, drive: Drive) -> None:
        """Set the time limit of the step that has begun: `first` seconds at first, `later` then."""
        drive.timer.step(self._first)
        self._first = self._later

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the event of a message or loss, None to ignore it; raise if others are elsewhere."""
        if inbound.envelope is None:
            return None if drive.connections.is_live(inbound.peer) else events.PeersLost((inbound.peer,))
        if inbound.request != drive.request:
            return None
        if inbound.envelope.step == ASKED:
            # Of a run that has begun for this party it says nothing.
            own = None if drive.run.run_id else self._own
            error = None if own is None else own.shown_error(drive.run.name, inbound.envelope)
            if error is not None and self._is_shown(inbound.peer, error):
                raise error
            return None
        return events.Message(inbound.envelope)

    def _is_shown(self, _peer: str, _error: OtherRequestError) -> bool:
        """Return true: one collector is enough to show which request others ask for."""
        return True


class AggregatorWaits(Waits):
    """Handler of a party's run at an aggregator: time limits, reconnection, messages as events.

    Before the aggregator's first message a lost connection is opened anew, and the hello is sent again:
    nothing else was sent. `first`: the step of that message; `reconnect`: opens the connection; None: its
    loss ends the request.
    """

    first: ClassVar[str] = START

    def __init__(
        self,
        first: float,
        later: float,
        own: OwnRequest | None = None,
        reconnect: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(first, later, own)
        self._reconnect = reconnect
        # A party whose connections end at once, one after the other, calls ever less often.
        self._pauses = pauses()
        self._renewals = MOST_RENEWALS

    async def begin_step(self, drive: Drive) -> None:
        """Set the party's time limit for the step that has just begun; report its warning, if any."""
        await super().begin_step(drive)
        if text := drive.run.state.warning:
            drive.warn(text)

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the run's event, None if handled here; reconnect after a loss; or TimeoutFault."""
        step = drive.run.step
        if inbound.clean and step == self.first:
            raise TimeoutFault({inbound.peer}, step, SESSION_ENDED)
        may_resume = (drive.saved or step == self.first) and not inbound.clean
        if inbound.envelope is None and may_resume and self._reconnect is not None:
            await self._resume(drive, inbound.peer, self._reconnect)
            return None
        if inbound.request > drive.request:
            number = inbound.request
            reason = f"too late: the others are at request {number}"
            raise TimeoutFault({drive.run.name}, step, reason, code=Code.PAST, number=number)
        return await super().event_of(drive, inbound)

    async def _resume(self, drive: Drive, peer: str, reconnect: Callable[[], Awaitable[None]]) -> None:
        """Reconnect to the aggregator after a pause, and send again what it may lack, unless connected."""
        if drive.connections.is_live(peer):
            return
        drive.notify_lost(peer)
        try:
            await asyncio.sleep(next(self._pauses))
            await reconnect()
        except SmpcError:
            drive.suspended = drive.saved
            raise
        drive.begin_wait()
        if drive.run.step != self.first and self._renewals:
            self._renewals -= 1
            drive.timer.step(self._later + self.work_seconds(drive))
        await drive.resend()

    def work_seconds(self, _drive: Drive) -> float:
        """Return how many seconds to wait on top for others' own work; here always 0."""
        return 0.0


class AggregatorConnection(Connection):
    """A party's connection to the aggregator of its session, over which it makes requests."""

    def __init__(
        self,
        membership: Membership,
        on_event: OnEvent,
        role: MakeParty | None = None,
        endpoint: PeerEndpoint | None = None,
        state: SessionState | None = None,
    ) -> None:
        """`role`: as of `connect`; `endpoint`: for connections to the aggregator after the first one too.

        `state`: what the party keeps of its session.
        """
        super().__init__(membership, on_event)
        self.state = state or SessionState()
        self.contexts = None if endpoint is None else endpoint.contexts
        self._endpoint = endpoint
        self._role = role
        self._fixed = self.state.fixed(len(membership.session.roster.party_names))
        self._last = self.state.held(
            evidence_file(membership.key_file, membership.name, membership.session.digest),
            membership.session.roster.keys[membership.aggregator],
        )

    @classmethod
    async def open(
        cls,
        membership: Membership,
        endpoint: PeerEndpoint,
        on_event: OnEvent,
        role: MakeParty | None = None,
        state: SessionState | None = None,
    ) -> AggregatorConnection:
        """Return a party's connection to the aggregator, opened unless a saved request is under way."""
        connection = cls(membership, on_event, role, endpoint, state)
        if connection.state.is_under_way or connection.state.progress.state:
            # What it has may be on disk, as a learner's last model; its request connects where it has to.
            return connection
        try:
            await connection.reconnect()
        except BaseException:
            connection.connections.abort()
            raise
        return connection

    async def reconnect(self) -> None:
        """Connect to the aggregator again unless connected; TimeoutFault if it has ended the session.

        Tries until `connect` seconds have passed, and less and less often. Raises the errors of `dial`, and
        TimeoutFault after the end of the session.
        """
        pool, peer = self.connections, self.membership.aggregator
        if self.live or self._endpoint is None:
            return
        await pool.drain(peer)
        if peer in pool.connections and pool.connections[peer].clean:
            raise TimeoutFault({peer}, "hello", SESSION_ENDED)
        pool.awaited.begin(0, "", lambda: [peer])
        await pool.awaited.follow(self._call(self._endpoint), self._endpoint.connect_timeout)

    async def _call(self, endpoint: PeerEndpoint) -> None:
        """Dial the aggregator, and add the new channel to the pool at once."""
        pool = self.connections
        channel = await endpoint.dial(self.membership.aggregator, pool.awaited.failed)
        pool.welcome(channel, resumes=True)

    @property
    def live(self) -> bool:
        """Whether the connection to the aggregator is open now."""
        return self.connections.is_live(self.membership.aggregator)

    async def run(
        self,
        request: int,
        operation: str,
        ring_vector: RingVector,
        charge: Charge,
        membership: Membership | None = None,
        before: int = 0,
        label: str | None = None,
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in one sum, reconnecting if possible; return (result, ledger's receipt or None)."""
        member = membership or self.membership
        is_planned = label is None
        may_reconnect = not is_planned or self.state.saves
        reconnect = self.reconnect if may_reconnect and self._endpoint is not None else None
        logged = member.parameters if member.parameters.is_logged else None
        # A run without a log must not replace the stored state of the session log.
        scope = member.context(request).scope
        retained = None if logged is None else StoredRun(member.runs_seen, scope)
        seen = NOTHING_SEEN if retained is None else retained.seen
        # A learner may have drawn it anew: the stored one counts.
        compared = None if is_planned else ring_vector
        run = await self.saved(self._party(member, request, operation, ring_vector, seen), compared)
        # The run forgets the vector, once it is masked.
        del ring_vector, compared
        self.followed = None
        own = OwnRequest.of(member, request, operation, label)
        seconds = hello_seconds(self._timeouts, before), PATIENCE * self._timeouts.step
        waits = AggregatorWaits(*seconds, own, reconnect)
        options: dict[str, Any] = {"charge": charge, "retained": retained, "logged": logged}
        receipt = await self.complete(request, run, waits, reconnect, **options)
        self.ended = run
        if logged is not None:
            self.followed = run.state.followed
        return run.result, receipt

    async def saved(self, run: Run[Any], given: NDArray[Any] | None) -> Run[Any]:
        """Return the run restored or to be saved, and set `resumed`; unchanged without a state."""
        run, self.resumed = await finish_in_thread(partial(self.state.party_run, run, given))
        return run

    async def complete(
        self,
        request: int,
        run: Run[Any],
        waits: Waits,
        reconnect: Callable[[], Awaitable[None]] | None,
        in_result: tuple[str, str] = IN_RESULT,
        **options: Any,
    ) -> Receipt | None:
        """Drive a run to its end; return the ledger's receipt, None without one; or raise its error.

        `in_result`: what the error of a saved run says of this party's input, after its release and before;
        `options`: of `Drive`. Raises the error that ended the run.
        """
        async with self._answered(request, run, in_result):
            if reconnect is not None and run.state.outcome is None:
                await reconnect()
            drive = self.drive(request, run, waits, **options)
            receipt = await drive.to_end(resumed=self.resumed)
            if run.state.outcome is None:
                reason = f"request {request} has ended for this party: {TEXTS[run.state.code]}"
                raise TimeoutFault({run.name}, run.step, reason, code=run.state.code)
        return receipt

    def drive(self, request: int, run: Run[Any], waits: Waits, **options: Any) -> Drive:
        """Return the driver of a run's messages over this connection; TimeoutFault if that is lost.

        Raises TimeoutFault if the connection is lost.
        """
        aggregator = self.membership.aggregator
        if not self.live and run.state.outcome is None:
            raise TimeoutFault({aggregator}, "hello", "the connection is lost")
        timer = StepTimer(self._timeouts, first=False)
        options |= {"peers": (aggregator,), "posts": True}
        drive = Drive(request, run, self.connections, timer, waits, self._on_event, **options)
        drive.saved = self.state.saves
        return drive

    async def fetch(self, request: int, message: Envelope, step: str, seconds: float) -> bytes:
        """Send a message outside of runs; return the answer, dropping others; or TimeoutFault."""
        peer = self.membership.aggregator
        if self.state.saves:
            # A result from disk needs no connection.
            await self.reconnect()
        self.connections.send(request, [message])
        try:
            async with asyncio.timeout(seconds):
                while self.live:
                    inbound = await self.connections.inbound.get()
                    if inbound.envelope and (inbound.request, inbound.envelope.step) == (request, step):
                        return bytes(inbound.envelope.body)
        except TimeoutError:
            raise TimeoutFault({peer}, step, "no answer") from None
        raise TimeoutFault({peer}, step, str(ChannelClosed(peer, clean=False)))

    def lost(self, request: int, error: SmpcError) -> SmpcError:
        """Return AggregatorLostError if no further request is possible, or `error` as it is."""
        aggregator, check = self.membership.aggregator, check_of(error, Check.MALFORMED)
        if check == Check.OTHER_RESULT:
            return AggregatorLostError(f"{aggregator}: refused in request {request}: {error}")
        if self.live or check == Check.REPORTED or not ends_session(error, {aggregator}):
            return error
        return AggregatorLostError(f"{aggregator}: lost in request {request}: {error}")

    def _declined(self, membership: Membership, request: int) -> Run[Any]:
        """Return the run of a request that this party leaves at once, with zeros as input."""
        parameters = membership.parameters
        return self._party(membership, request, "", np.zeros(parameters.shape, parameters.encoding.dtype))

    async def quit(self, request: int, error: SmpcError) -> None:
        """Send the aggregator the reason why this party leaves the session."""
        self._write_last(self.membership.context(request), QUIT, error)

    async def decline(
        self,
        request: int,
        error: SmpcError,
        membership: Any = None,
        *,
        beside: Beside | None = None,
    ) -> None:
        """Leave a request before it begins, and tell the aggregator why."""
        if beside is None:
            await super().decline(request, error, membership)
        else:
            self._write_last(beside.context(self.membership.context(request)), LEAVE, error)

    def _write_last(self, context: Context, step: str, error: SmpcError) -> None:
        """Send the aggregator a signed last message that says why this party leaves."""
        identity, to = self.membership.identity, (context.aggregator,)
        written = context.write(identity, context.session_digest, step, to, abort_of(error))
        self.connections.send(context.request, written)

    def _party(
        self,
        membership: Membership,
        request: int,
        operation: str,
        ring_vector: RingVector,
        seen: Seen = NOTHING_SEEN,
    ) -> Run[Any]:
        """Return a request's run for this vector; a logged one resets `check_total` to True."""
        context = membership.context(request, operation)
        parameters, identity = membership.parameters, membership.identity
        make = membership.maker(self._role or make_party)
        chosen = {}
        if parameters.is_logged and not self.check_total:
            chosen["check_total"], self.check_total = False, True
        retained = {"fixed": self._fixed, "last": self._last, "seen": seen}
        return make(context, parameters, identity, ring_vector, **retained, **chosen)
