"""A user's channels to all others of a session without an aggregator, and its requests over them.

Of two users the one with the smaller number in the roster listens, the other calls, and calls again whenever
the channel is lost: so a user that was out of reach in one request may be there in the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from smpc_dp.encoding import Lanes
from smpc_dp.errors import Check, Code, ConfigError, Fault, PeerFault, SmpcError, TimeoutFault
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.protocols.abort import ABORT, Abort
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine import events
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.gopa import direct_states
from smpc_dp.protocols.gopa.direct_evidence import coordinator_of
from smpc_dp.protocols.gopa.direct_params import DirectParameters
from smpc_dp.protocols.gopa.messages import PUBLISH
from smpc_dp.protocols.phases.messages import HELLO, START
from smpc_dp.protocols.result import Outcome
from smpc_dp.roster import split_address
from smpc_dp.runtime.awaited import Awaited
from smpc_dp.runtime.charging import Charge
from smpc_dp.runtime.deadline import PATIENCE, StepTimer, now
from smpc_dp.runtime.events import Event, OnEvent, tell
from smpc_dp.runtime.links import OUTBOX_LIMIT, SMALL_MESSAGE, Links, News
from smpc_dp.runtime.member import Membership
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.endpoint import Endpoint, Listener, dial, listen

# Seconds between a lost channel, or a call that was refused, and the next call.
PAUSE = 1.0
# Messages of later requests that are kept of one peer.
EARLY_LIMIT = 16


class Mesh:
    """The open channels of one user, a `Line`. Made by `open`."""

    def __init__(self, membership: Membership, parameters: DirectParameters, on_event: OnEvent) -> None:
        self._membership = membership
        self._parameters = parameters
        self._on_event = on_event
        outbox = OUTBOX_LIMIT + 4 * parameters.plan.parties
        self._links = Links(membership, on_event, outbox=outbox, hub=False)
        self._listener: Listener | None = None
        self._calls: list[asyncio.Task[None]] = []
        self._names = [member.name for member in membership.session.roster.parties]
        self._place = self._names.index(membership.name)
        self._settled: dict[str, SmpcError | None] = {}
        self._news = asyncio.Event()
        self._early: dict[str, list[News]] = {}
        self._hello: tuple[int, Run[Outcome], Sequence[Envelope]] | None = None

    @classmethod
    async def open(
        cls,
        membership: Membership,
        parameters: DirectParameters,
        on_event: OnEvent,
        listen_on: str | None = None,
    ) -> Mesh:
        """Listen, call everyone with a smaller number, and wait until all are there or `connect` has passed.

        `listen_on`: host:port to bind, by default the user's address in the roster.

        Raises:
            LocalError: the address cannot be had. ConfigError: others have another session file.
            TimeoutFault: fewer are there than a run needs; names who is missing.
        """
        address = listen_on or membership.session.roster.member(membership.name).address or ""
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise ConfigError([Fault("listen_on", str(error))]) from None
        mesh = cls(membership, parameters, on_event)
        endpoint = membership.endpoint()
        mesh._listener = await listen(endpoint, host, port, mesh._called, mesh._refused)
        loop = asyncio.get_running_loop()
        mesh._calls = [loop.create_task(mesh._call(endpoint, name)) for name in mesh._names[: mesh._place]]
        try:
            await mesh._gather()
        except BaseException:
            await mesh._stop()
            raise
        return mesh

    async def run(
        self, request: int, question: str, lanes: Lanes, charge: Charge
    ) -> tuple[Outcome, Receipt | None]:
        """See `Line.run`."""
        run = self._begin(request, question, lanes)
        try:
            receipt = await self._drive(request, run, charge)
        except SmpcError as error:
            self._links.send(request, run.handle(events.Cancellation(error)))
            tell(self._on_event, "failed", request, run, error)
            raise
        finally:
            self._hello = None
        return run.result, receipt

    async def decline(self, request: int, error: SmpcError) -> None:
        """See `Line.decline`."""
        encoding = self._parameters.encoding
        run = self._begin(request, "", np.zeros(encoding.lanes, dtype=encoding.dtype))
        self._links.send(request, run.handle(events.Cancellation(error)))

    async def close(self) -> None:
        """Send what waits, and say goodbye to everyone."""
        for call in self._calls:
            call.cancel()
        try:
            await self._links.close()
        finally:
            await self._stop()

    # Channels

    def _others(self) -> list[str]:
        return [name for name in self._names if name != self._membership.name]

    async def _gather(self) -> None:
        """Wait until everyone is connected or has another session."""
        awaited = Awaited(self._membership.name, self._links.is_live, self._on_event)
        awaited.begin(0, "", lambda: [name for name in self._others() if name not in self._settled])
        until = now() + self._membership.session.timeouts.connect
        await awaited.gather(self._news, until, lambda: self._settled.keys() >= set(self._others()))
        missing = [name for name in self._others() if not self._links.is_live(name)]
        if len(self._names) - len(missing) >= self._parameters.plan.min_survivors:
            return
        for error in self._settled.values():
            if isinstance(error, ConfigError):
                raise error
        needed = self._parameters.plan.min_survivors
        detail = f"{len(self._names) - len(missing)} users are connected, {needed} are needed"
        raise TimeoutFault(missing, "connect", detail)

    def _called(self, channel: Channel) -> None:
        """Take a channel that another user has opened."""
        if channel.peer not in self._names[self._place + 1 :]:
            self._refused(
                channel.peer, PeerFault(channel.peer, "calls a user that calls it", Check.OTHER_MEMBER)
            )
            channel.abort()
            return
        self._welcome(channel)

    def _refused(self, who: str, error: SmpcError) -> None:
        self._links.refused(who, error)
        if isinstance(error, ConfigError):
            self._settle(who, error)

    def _settle(self, name: str, error: SmpcError | None) -> None:
        self._settled[name] = error
        self._news.set()

    def _welcome(self, channel: Channel) -> asyncio.Task[None]:
        reader = self._links.welcome(channel).tasks[0]
        self._settle(channel.peer, None)
        if self._hello is not None:
            request, run, hello = self._hello
            if not run.state.place:
                self._links.send(
                    request, [envelope for envelope in hello if envelope.receiver == channel.peer]
                )
        return reader

    async def _call(self, endpoint: Endpoint, name: str) -> None:
        """Keep a channel to a user that listens."""
        while True:
            try:
                channel = await dial(endpoint, name)
            except ConfigError as error:
                self._refused(name, error)
                return
            except (SmpcError, ChannelClosed) as error:
                self._links.refused(name, error)
            else:
                await asyncio.wait([self._welcome(channel)])
            await asyncio.sleep(PAUSE)

    async def _stop(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self._links.abort()
        if self._listener is not None:
            await self._listener.close()

    # Requests

    def _begin(self, request: int, question: str, lanes: Lanes) -> Run[Outcome]:
        context = self._membership.context(request, question)
        return direct_states.party(context, self._parameters, self._membership.identity, lanes)

    async def _drive(self, request: int, run: Run[Outcome], charge: Charge) -> Receipt | None:
        """Drive a run to its end; return the ledger's receipt."""
        receipt: Receipt | None = None
        timer = StepTimer(self._membership.session.timeouts, first=False)
        hello = run.handle(events.Start())
        self._hello = request, run, hello
        self._links.send(request, hello)
        absent = tuple(name for name in self._others() if not self._links.is_live(name))
        sent = run.handle(events.PeersLost(absent))
        early, step, drained, waiting = self._take_early(request), "", False, -1
        while True:
            if any(envelope.step == PUBLISH for envelope in sent):
                # The first message that depends on the data: charged when it is there, before it is sent.
                receipt = await charge(run.run_id)
            self._links.send(request, sent)
            if run.finished:
                return receipt
            if run.step != step:
                step, drained, waiting = run.step, False, -1
                self._set_timer(timer, run)
            if waiting != (waiting := len(run.waiting_for)):
                tell(self._on_event, "step", request, run)
            sent = ()
            if not early and timer.passed:
                if drained:
                    sent = await asyncio.to_thread(run.handle, events.Deadline())
                else:
                    early, drained = self._links.news.take_all(), True
                continue
            news = early.pop(0) if early else await self._next(timer.at)
            if news is not None:
                sent = await self._apply(request, run, news)
                if run.step == step and run.has_enough:
                    timer.enough()

    def _set_timer(self, timer: StepTimer, run: Run[Outcome]) -> None:
        timeouts = self._membership.session.timeouts
        if run.step == HELLO:
            timer.begin()
        elif run.state.patient:
            wait = timeouts.gather if run.step == START else 0.0
            timer.step(wait + PATIENCE * timeouts.step)
        else:
            timer.step(timeouts.step)

    async def _next(self, until: float) -> News | None:
        """Return the next news, or None when the time comes first."""
        try:
            async with asyncio.timeout_at(until):
                return await self._links.news.get()
        except TimeoutError:
            return None

    def _take_early(self, request: int) -> list[News]:
        """Return what has come for this request before it began, and drop what was for earlier ones."""
        kept = {peer: [item for item in news if item.request > request] for peer, news in self._early.items()}
        due = [item for news in self._early.values() for item in news if item.request == request]
        self._early = {peer: news for peer, news in kept.items() if news}
        return due

    async def _apply(self, request: int, run: Run[Outcome], news: News) -> Sequence[Envelope]:
        envelope = news.envelope
        if envelope is None and self._links.is_live(news.peer):
            # It has called again.
            return ()
        if envelope is None:
            self._on_event(Event(run.name, "lost", request, run.step, detail=news.peer))
            return await asyncio.to_thread(run.handle, events.PeersLost((news.peer,)))
        if news.request > request:
            kept = self._early.setdefault(news.peer, [])
            if len(envelope.body) <= SMALL_MESSAGE and len(kept) < EARLY_LIMIT:
                kept.append(news)
            return ()
        if news.request < request:
            if envelope.step == HELLO:
                self._links.send(news.request, self._too_late(news.peer, news.request, request))
            return ()
        return await asyncio.to_thread(run.handle, events.Message(envelope))

    def _too_late(self, peer: str, asked: int, request: int) -> Sequence[Envelope]:
        """Tell whoever waits for us to coordinate a past request; it can ask for the next one."""
        if coordinator_of(asked, len(self._names)) != self._place + 1:
            return ()
        context = self._membership.context(asked)
        abort = Abort(Code.PAST, "", [(peer, Code.PAST)], number=request)
        return context.write(self._membership.identity, context.session_digest, ABORT, (peer,), abort)
