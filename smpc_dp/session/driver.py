"""Drives one role through one request over the connections of its process: the only loop around a role.

Sending waits for its conditions: the ledger's charge before the first message that depends on the party's
vector, and the durable state of the session log before the next message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from smpc_dp.engine import events
from smpc_dp.engine.driver import Driver
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.errors import SmpcError
from smpc_dp.logs.seen import StoredRun
from smpc_dp.session.charging import Charge, Raised
from smpc_dp.session.connection_pool import ConnectionPool, InboundEvent
from smpc_dp.session.deadline import StepTimer
from smpc_dp.session.events import Event, OnEvent, notify
from smpc_dp.session.threads import finish_in_thread
from smpc_dp.wire.envelope import Envelope

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.receipt import Receipt


class Holder(Protocol):
    """Interface of a run's handler: sets the time limits of steps, and turns inbound messages into events."""

    async def begin_step(self, drive: Drive) -> None:
        """Set the time limit of the step that has begun; start work that the step requires, if any."""

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the event that a message or lost connection means to the run; None to ignore it.

        Raises SmpcError to end the run.
        """


class Drive:
    """Driver of one run over connections: passes events to the role, sends messages, keeps deadlines.

    Attributes:
        request: its number.
        run: the role.
        connections: the connections for its messages.
        timer: the time of the current step.
        held: earlier inbound events, taken first.
        hello: the first messages of the role.
        keep: stores the evidence that the role has after an event, before anything is sent; or None.
        saved: whether the role is saved: it charges its release itself, and members that are cut are waited
            for.
        suspended: whether an error of the holder leaves the run as it is, to be resumed.
    """

    keep: Callable[[events.Event], None] | None = None
    saved = suspended = False

    def __init__(
        self,
        request: int,
        run: Any,
        connections: ConnectionPool,
        timer: StepTimer,
        holder: Holder,
        on_event: OnEvent,
        *,
        held: Sequence[InboundEvent] = (),
        peers: Sequence[str] = (),
        posts: bool = False,
        charge: Charge | None = None,
        retained: StoredRun | None = None,
        logged: SumParameters | None = None,
    ) -> None:
        """`peers`: all members that the role talks to; empty: those that its first step expects.

        `posts`: a step begins when earlier messages have left, not when they are queued. For a party
        `charge`, the stored state of the session log, and the parameters where the run has a log.
        """
        self.request, self.run = request, run
        self.connections, self.timer = connections, timer
        self.held = list(held)
        self.hello: Sequence[Envelope] = ()
        self._driver = Driver(run)
        self._holder = holder
        self._on_event = on_event
        self._peers = peers
        self._posts = posts
        self._farewell: Sequence[Envelope] = ()
        self._charge, self._retained, self._logged = charge, retained, logged
        self._receipt: Receipt | None = None
        # For so many parties that signed a false statement the run is charged when its first data is sent.
        self._charged = 0 if logged is None else logged.plan.max_corrupt
        self._work: asyncio.Future[object] | None = None
        self._first = self._step = ""
        self._drained = self._declared = False

    async def to_end(self, *, resumed: bool = False) -> Receipt | None:
        """Run the role to its end; return the ledger's receipt, None without one; or raise the run's error.

        `resumed`: the role was restored.
        """
        async with self.outcome():
            if resumed:
                await self.resend()
            else:
                self.hello = await self.act(events.Start())
            await self.loop()
        return self._receipt or self.run.receipt if self.saved else self._receipt

    async def resend(self, to: str = "") -> None:
        """Send again what a new connection needs: a saved run's last messages, or else the hello.

        `to`: the member at its other end; "": all members.
        """
        messages = self.hello
        if self.saved:
            try:
                messages = await finish_in_thread(self.run.resend)
            except SmpcError as error:
                self._farewell = self._driver.cancel(error)
                raise
            # An earlier process may have ended before it did.
            await self._keep()
        await self._send([one for one in messages if to in ("", one.receiver)])

    def replace(self, run: Any) -> None:
        """Replace the run by its saved form, and drive that from now on."""
        self.run = self._driver.run = run
        self.saved = True

    @contextlib.asynccontextmanager
    async def outcome(self) -> AsyncIterator[None]:
        """Context manager of a run: when an SmpcError ends it, tell the others and the watcher."""
        try:
            yield
        except SmpcError as error:
            await self._end_work()
            farewell = () if self.suspended else self._driver.cancel(error) or self._farewell
            # A lost connection needs none.
            with contextlib.suppress(SmpcError):
                await self._send(farewell)
            self.notify("failed", error)
            raise
        finally:
            await self._end_work()

    async def _end_work(self) -> None:
        """Cancel the work of the current step and wait until it has ended; do nothing without any."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def loop(self) -> None:
        """Pass events to the run until it ends, and begin its steps; raise the error that ends it."""
        while not self.run.finished:
            if self.run.step != self._step:
                self._step, self._drained = self.run.step, False
                self._first = self._first or self._step
                self.begin_wait()
                await self._holder.begin_step(self)
            self.report()
            await self._process_next()

    async def _process_next(self) -> None:
        """Wait for one event (message, loss, deadline or end of work), and pass it to the run."""
        if self._work is not None and self._work.done():
            work, self._work = self._work, None
            await self.act(events.Report(work.result()))
        elif not self._declared and not self.timer.connecting:
            self._declared = True
            await self.lose(*(name for name in self._peers or sorted(self.run.waiting_for)))
        elif not self.held and self.timer.passed and not self._drained:
            # Messages that came in time are taken first: they may wait behind messages of others.
            self.held, self._drained = self.connections.inbound.take_all(), True
        elif not self.held and self.timer.passed:
            await self.act(events.Deadline())
        elif inbound := self.held.pop(0) if self.held else await self._next():
            await self.take(inbound)

    async def _next(self) -> InboundEvent | None:
        """Save received messages, wait for the next incoming event, and return it; None at the deadline."""
        if self.saved and not self.run.is_settled and self.connections.inbound.is_empty:
            await finish_in_thread(self.run.settle)
        return await self.connections.next(self.timer.pause())

    async def take(self, inbound: InboundEvent) -> None:
        """Pass an incoming message or loss to the role; shorten the first step once enough have sent."""
        event = await self._holder.event_of(self, inbound) if inbound.peer else None
        if event is not None:
            await self.act(event)
        if self.run.step == self._first and self.run.has_enough:
            self.timer.shorten()

    async def lose(self, *names: str) -> None:
        """Tell the role that these members are lost, but for those connected, unread or still awaited."""
        pool = self.connections
        missing = (name for name in names if not (self.saved and pool.is_cut(name)))
        if absent := tuple(filter(pool.is_gone, missing)):
            await self.act(events.PeersLost(absent))

    async def act(self, event: events.Event) -> Sequence[Envelope]:
        """Pass an event to the role; charge, save and send what follows; return the messages, or raise.

        Raises the error that ends the run.

        It runs in a thread: planning noise, for instance, takes long, and the connections must go on
        meanwhile.
        """
        releases = self.run.releases
        act = partial(self._act, event)
        # What a cancelled caller closes is not used by the step of a saved role any more.
        messages = await (finish_in_thread(act) if self.saved else asyncio.to_thread(act))
        try:
            if (
                self._driver.error is None
                and not self.saved
                and any(envelope.step in releases for envelope in messages)
            ):
                # The first message that depends on the data: charged when it exists, before it is sent.
                await self.charge()
            await self._keep()
        except SmpcError as error:
            if self.suspended:
                raise
            # Where the run has ended by another error, that one is told.
            messages = messages if self._driver.error is not None else self._driver.cancel(error)
        if self._driver.error is not None:
            self._farewell = messages
            raise self._driver.error
        await self._send(messages)
        return messages

    def _act(self, event: events.Event) -> Sequence[Envelope]:
        """Pass an event to the role, store evidence, and return the messages that are to be sent."""
        messages = self._driver.act(event)
        if self.keep is not None:
            self.keep(event)
        return messages

    async def _send(self, messages: Sequence[Envelope]) -> None:
        """Send a run's messages; wait until they have left if the driver is set to."""
        if self._posts:
            await self.connections.post(self.request, messages)
        else:
            self.connections.send(self.request, messages)

    async def charge(self, raised: Raised | None = None) -> None:
        """Charge the run to the party's ledger, if any, before a release; PrivacyError if it refuses."""
        if self._charge is not None:
            self._receipt = await self._charge(self.run.run_id, raised)

    async def _keep(self) -> None:
        """Charge extra loss by false statements, and save the session log's state; nothing without a log."""
        retained = self._retained
        if retained is None:
            return
        state, receipt = self.run.state, self.run.receipt if self.saved else self._receipt
        try:
            if self._logged is not None and receipt is not None and state.false_count > self._charged:
                # Also if the run ends here: published values stay public.
                event = self._logged.event_without(state.false_count)
                await self.charge(Raised(state.false_count, event))
                self._charged = state.false_count
            if self._driver.error is None and state.seen != retained.seen:
                # A call that is made again reads what this one has stored.
                await finish_in_thread(partial(retained.keep, state.seen))
        except SmpcError:
            # The messages of a saved state are left to the process that can keep this.
            self.suspended = self.saved and self._driver.error is None
            raise

    def begin_work(self, work: Awaitable[object]) -> None:
        """Start a task of the holder, whose result is passed to the role when it ends."""
        self._work = asyncio.ensure_future(work)
        self._work.add_done_callback(lambda _: self.connections.inbound.wake())

    def cancel_work(self) -> bool:
        """Cancel the holder's task; return False if there is none, or it has ended with a result."""
        if self._work is None or self._work.done():
            return False
        self._work.cancel()
        self._work = None
        return True

    def begin_wait(self) -> None:
        """Report from now on, to the watcher, which members the role waits for."""
        self.connections.awaited.begin(self.request, self.run.step, lambda: self.run.waiting_for)

    def report(self) -> None:
        """Report to the watcher if the step, or the number of awaited messages, has changed."""
        if self._driver.progressed():
            self.notify("step")

    def notify(self, kind: Any, detail: str | SmpcError = "") -> None:
        """Report the run's step or error to the watcher, with a detail."""
        notify(self._on_event, kind, self.request, self.run, detail)

    def warn(self, text: str) -> None:
        """Report a warning about the run to the watcher."""
        self._on_event(Event(self.run.name, "warned", self.request, self.run.step, detail=text))

    def notify_lost(self, peer: str) -> None:
        """Report to the watcher that the connection to a member is lost."""
        self._on_event(Event(self.run.name, "lost", self.request, self.run.step, detail=peer))
