"""The aggregator's process: serves the requests of a session in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from smpc_dp.engine import events
from smpc_dp.engine.phases.key_graph import Watch
from smpc_dp.engine.registry import make_aggregator
from smpc_dp.engine.result import Outcome, Result
from smpc_dp.engine.run import Run
from smpc_dp.engine.session_protocol import MakeAggregator
from smpc_dp.errors import (
    Code,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    SmpcError,
    TimeoutFault,
    certificate_of,
    without_frames,
)
from smpc_dp.logs.audits.served_log import answer, is_log_request
from smpc_dp.logs.board import BoardFolder
from smpc_dp.records.record_result import RecordResult
from smpc_dp.records.requests.served_steps import ServedSteps
from smpc_dp.session.asked import SUM_HELLO, AskedRequests
from smpc_dp.session.askers import Askers, needed_parties
from smpc_dp.session.connection_pool import ConnectionPool, InboundEvent
from smpc_dp.session.deadline import StepTimer, aggregator_step_seconds, now
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import Event, OnEvent, ignore, with_logging
from smpc_dp.session.exchange.states import Relayed
from smpc_dp.session.member import Membership, requests_of
from smpc_dp.session.opening import open_state
from smpc_dp.session.operations import HELLOS, Operations, is_hello, leaving_error, small
from smpc_dp.session.pages import showing_logs
from smpc_dp.session.progress import Progress
from smpc_dp.session.session_state import LostRunError, SessionState, StateFolder
from smpc_dp.session.tasks import BESIDE, CONVICTING, Beside, ConvictedParties
from smpc_dp.session.threads import finish_in_thread
from smpc_dp.wire.abort import LEAVE, QUIT, TEXTS
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

if TYPE_CHECKING:
    from smpc_dp.session.call_types import Kernel, StatisticResult
    from smpc_dp.web_settings import WebSettings

# After the last request logs are shown for at most so many step times: no party can keep an aggregator for
# ever.
LINGER_STEPS = 10
# Seconds between two looks whether an aggregator that waits for parties is to end.
LOOK_SECONDS = 1.0

_LOG = logging.getLogger("smpc_dp.session")


class RequestServer:
    """The aggregator's server of a session's requests over open connections, one request after another."""

    def __init__(
        self,
        membership: Membership,
        pool: ConnectionPool,
        on_event: OnEvent,
        watch: Watch | None,
        kernels: Sequence[Kernel],
        board: BoardFolder,
        role: MakeAggregator = make_aggregator,
        *,
        is_endless: bool = False,
        state: SessionState | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """`is_endless`: whether a request waits for parties, however long none is connected.

        `state`: what the aggregator keeps of its session. `stop`: as of `serve`.
        """
        self._state = state or SessionState()
        self._stop = stop
        self._is_endless = is_endless
        self._membership = membership
        self._make = membership.maker(role)
        self._kernels = kernels
        self._pool = pool
        self._board = board
        self._on_event = on_event
        self._watch = watch
        # Groups of past requests: a late party is answered in the messages of its own protocol.
        self._groups: dict[int, Membership] = {}
        self._culprits: dict[str, SmpcError] = self._state.exclusions()
        self._judged = False
        # None while there are no certificates, and none can be made.
        self._convictions: ConvictedParties | None = None
        self._fixed = self._state.fixed(len(membership.session.roster.party_names))
        self._last = self._state.sent(membership.random)
        # The role in the last request, whose result is sent to those who come back.
        self._earlier: Run[Any] | None = None
        self._asked = AskedRequests(membership.identity, SUM_HELLO)
        # What most parties asked for in the last request, and of which task, if it was not a sum.
        self.operation = ""
        self.beside: Beside | None = None
        # Whether the run of the last request was over when this process restored it.
        self._was_over = False
        # Whether no request that was served so far had a party that asked for it.
        self._is_first = True

    async def gather(self, enough: int | None = None) -> None:
        """Wait until `enough` parties (None: all) are connected, or the connect time is over."""
        await self._pool.gather(self._membership.session.roster.party_names, enough)

    async def request(
        self, number: int, group: Membership | None = None
    ) -> Outcome | StatisticResult | Relayed | SmpcError | None:
        """Serve one request to its end; return its result or error, or None if no party asks for it.

        `group`: the membership of a request of a group.
        """
        if group is not None:
            self._groups[number] = group
        requested = self._requested(number)
        self._asked.begin(requested.context(number), requested.parameters)
        # After a restart the parties of a group connect again too.
        first = (number == 1 and requested.group is None) or (
            self._is_skipping and self._is_first and (requested.group is None or self._state.saves)
        )
        timer = StepTimer(self._membership.session.timeouts, first, is_endless=self._is_endless)
        await self._heed_certificates()
        await finish_in_thread(partial(self._state.keep_exclusions, self._culprits))
        self.beside = self._saved_beside(number)
        run = self._role(number, self.beside)
        self._drive = Drive(number, run, self._pool, timer, self, self._on_event)
        try:
            resumed = await finish_in_thread(partial(self._restored, run))
        except LostRunError as error:
            await finish_in_thread(partial(self._end, number))
            self._drive.notify("failed", error)
            return error
        self._was_over = resumed is not None and resumed.finished
        if resumed is not None:
            self._drive.replace(resumed)
            self.operation = self._state.operation
        elif self.beside is not None:
            # Its run was not begun: parties may ask for anything.
            self.beside = None
            self._drive = Drive(number, self._role(number), self._pool, timer, self, self._on_event)
        try:
            try:
                if not await self._run(is_new=resumed is None):
                    return None
            finally:
                # Those of an earlier process too.
                await asyncio.to_thread(self._keep_convictions)
        except SmpcError as error:
            is_over = self._drive.saved and self._drive.run.is_over
            is_served = self.beside is None or self.beside.is_there
            if self._state.saves and isinstance(error, LocalError) and is_served and not is_over:
                # What could not be saved is resumed by the next process.
                raise
            await finish_in_thread(partial(self._end, number))
            if isinstance(error, PeerFault) and certificate_of(self._culprits.get(error.culprit)) is None:
                self._culprits[error.culprit] = error
            return without_frames(error)
        outcome: Outcome | StatisticResult | Relayed = self._drive.run.result
        await finish_in_thread(partial(self._end, number))
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

    def _saved_beside(self, number: int) -> Beside | None:
        """Return the kind of a saved request that is no sum, such as a statistic; None for a sum."""
        return BESIDE.get(self._state.beside(number))

    def _role(self, number: int, beside: Beside | None = None) -> Run[Any]:
        """Return the aggregator's run of a request: of a sum, or of the kind that `beside` names."""
        requested = self._requested(number)
        if beside is not None:
            context = requested.context(number)
            return beside.find().aggregator(context, requested, self._board, self._kernels)
        run: Run[Any] = self._make(
            requested.context(number),
            requested.parameters,
            self._membership.identity,
            threads=min(2, os.cpu_count() or 1),
            watch=self._watch,
            board=self._board,
            fixed=self._fixed,
            last=self._last,
        )
        return run

    def _restored(self, run: Run[Any]) -> Run[Any] | None:
        """Return the run that an earlier process saved, None if there is none; LostRunError if it stopped.

        Raises LostRunError where that has nothing to go on with.
        """
        resumed = self._state.restored_collection(run)
        if resumed is not None and resumed.finished and resumed.state.outcome is None:
            reason = f"request {run.member.context.request} was stopped by an earlier process"
            raise LostRunError(f"{run.name}: {reason}: {TEXTS[resumed.state.code]}")
        return resumed

    @property
    def _is_skipping(self) -> bool:
        """Whether parties may join at a later request than this process's first one."""
        return self._is_endless or self._state.saves

    def resume_earlier(self, number: int, group: Membership | None = None) -> None:
        """Restore the saved run of request `number` - 1, if any, to send its result again if asked.

        `group`: the membership of that request, where it is of a group.
        """
        if group is not None:
            self._groups[number - 1] = group
        if number > 1:
            with contextlib.suppress(LostRunError):
                earlier = self._role(number - 1, self._saved_beside(number - 1))
                self._earlier = self._state.restored_collection(earlier)

    def _end(self, number: int) -> None:
        """Keep the last run for parties that come back; delete the saved states of earlier requests."""
        if self._drive.saved:
            self._earlier = self._drive.run
        self._state.end_collection(number)

    def _requested(self, number: int) -> Membership:
        """Return the membership of request `number`: its group's, or the whole session's."""
        return self._groups.get(number, self._membership)

    async def _heed_certificates(self) -> None:
        """Check stored cheating certificates, at the first call alone; refuse the convicted parties."""
        if not self._judged and self._membership.certificate_folder.exists():
            self._convictions = await asyncio.to_thread(self._judge)
            self._culprits |= {name: self._convictions.fault(name) for name in self._convictions.files}
        self._judged = True

    def _judge(self) -> ConvictedParties:
        """Return the parties convicted by certificates beside the key; LocalError if not checkable."""
        folder, roster = self._membership.certificate_folder, self._membership.session.roster
        if not CONVICTING.is_there:
            reason = f"'{CONVICTING.task}' is not in this installation"
            raise LocalError(f"{folder}: cannot judge the certificates: {reason}")
        return CONVICTING.find().convictions(folder, roster)

    def _keep_conviction(self, event: events.Event) -> None:
        """Store the certificates of cheating if an event is an accusation; else do nothing.

        It is not shown again to a process that is started anew.
        """
        accuses = "" if self.beside is None else self.beside.find().accuses
        if isinstance(event, events.Message) and event.envelope.step == accuses:
            self._keep_convictions()

    def _keep_convictions(self) -> None:
        """Store certificates against parties excluded from this request; refuse these from now on."""
        inbox, convictions = getattr(self._drive.run.state, "inbox", None), self._convictions
        if inbox is None or convictions is None:
            return
        # A copy: the step of a request that is cancelled may go on in its thread.
        for error in [*inbox.excluded.values()]:
            if isinstance(error, PeerFault) and (certificate := certificate_of(error)) is not None:
                self._culprits[error.culprit] = error
                try:
                    convictions.add(error.culprit, certificate)
                except LocalError as failed:
                    # The others' request goes on; this process refuses the party all the same.
                    _LOG.error("%s", failed)
                    if (
                        issue := f"{error.culprit}: its certificate is not stored: {failed}"
                    ) not in inbox.faults:
                        inbox.faults.append(issue)

    async def _ban_culprits(self) -> None:
        """Exclude from this request the parties that are refused for an earlier fault, or have left."""
        for name, fault in self._culprits.items():
            await self._drive.act(events.Conviction(name, fault))

    async def _run(self, *, is_new: bool) -> bool:
        """Serve the request to its end; return False if none begins: no party is left, or it must stop.

        `is_new`: whether no earlier process has begun it.
        """
        self._pool.admit_all()
        held: Sequence[InboundEvent] = ()
        asks = self._drive.run.step in HELLOS
        if asks:
            async with self._drive.outcome():
                asked = await self._ask(self._drive, is_new=is_new)
                if asked is None:
                    return False
                held = asked
                await self._ban_culprits()
        if self.beside is not None and not self.beside.is_there:
            self._refuse_beside(self.beside, held)
        if self.beside is not None:
            self._asked.drop()
            if is_new:
                number, timer = self._drive.request, self._drive.timer
                run = self._role(number, self.beside)
                self._drive = Drive(number, run, self._pool, timer, self, self._on_event)
            self._drive.keep = self._keep_conviction
        drive = self._drive
        if is_new and self._state.saves:
            begin = partial(self._state.begin_collection, drive.run, self.operation)
            drive.replace(await finish_in_thread(begin))
        async with drive.outcome():
            if self.beside is not None:
                if self._convictions is None:
                    self._convictions = await asyncio.to_thread(self._judge)
                await self._ban_culprits()
            if longest := drive.run.role.longest(drive.run.member):
                # A false statement is kept as evidence, whatever its length, and shown.
                self._pool.hear(longest)
            drive.held = [*held]
            if asks and not held:
                await drive.act(events.Deadline())
            await drive.loop()
            await asyncio.to_thread(self._board.close)
        return True

    async def begin_step(self, drive: Drive) -> None:
        """Set the time limit of the step that has begun; do nothing for one that collects hellos."""
        run, timeouts = drive.run, self._membership.session.timeouts
        if run.step not in HELLOS:
            seconds = aggregator_step_seconds(run.state.matchings, timeouts)
            # After a restart all parties connect first; those that have wait less than PATIENCE steps.
            drive.timer.step(2 * seconds if self._is_first else seconds)
            self._is_first = False

    async def _ask(self, drive: Drive, *, is_new: bool) -> list[InboundEvent] | None:
        """Wait until enough parties ask for one operation, and return their messages; None if no run begins.

        `is_new`: as of `_run`: what a saved request is for stays. None when no party is left to ask, or
        the server was told to stop.
        """
        number, timer, requested = drive.request, drive.timer, self._requested(drive.request)
        names = requested.names
        operations = Operations(len(names), self._culprits)
        askers = Askers(requested.parameters, timer, is_group=requested.group is not None)
        members, connecting = set(names), timer.connecting

        def missing() -> Collection[str]:
            # An idle aggregator waits for no party.
            return members - operations.heard if operations.heard or timer.connecting else ()

        self._pool.awaited.begin(number, drive.run.step, missing)
        early = self._pool.take_early(number)
        drive.notify("step")
        while not askers.opened or timer.at > now():
            if not early:
                # Before the first event too: all may ask for a later request, and say nothing more. Who does,
                # does not ask for this one any more.
                ahead = self._pool.ahead(HELLOS).keys() & members
                if self._is_endless and not operations.heard:
                    if len(ahead) >= needed_parties(requested.parameters):
                        break
                    # Too few for a run: they wait for the others, and open no request that nobody asks for.
                    ahead = set()
                live = [name for name in names if timer.connecting or self._pool.is_live(name)]
                askers.open_if_enough(ahead, live)
                if askers.opened and operations.is_clear(set(live) - ahead):
                    break
                lacking = members - operations.heard
                for hello in askers.take_late():
                    self._refuse_early(hello, operations, lacking, askers.enough)
            if self.is_stopping and not (operations.heard or askers.opened or early):
                return None
            some = askers.opened or early or timer.connecting or self._is_endless
            if not (some or any(map(self._pool.is_live, names))) and not await self._returned(drive, missing):
                left = requested.group is None or not any(map(self._pool.is_live, self._pool.connections))
                return None if number > 1 and left else []
            until = min(timer.pause(), askers.until)
            inbound = early.pop(0) if early else await self._pool.next(until, self._next_look())
            await self._hear(drive, inbound, operations, askers)
            # A large one must not stay until the next one comes.
            del inbound
            if connecting and not timer.connecting and not askers.opened and not self._is_endless:
                connecting = False
                await drive.lose(*sorted(drive.run.waiting_for))
        self._is_first = self._is_first and not operations.heard
        step, held = operations.settle()
        self.operation = operations.text
        if is_new:
            self.beside = BESIDE.get(step) if requested.group is None else None
        # Events that came before the request began, and were not processed, count as well.
        return [*held, *early]

    @property
    def is_stopping(self) -> bool:
        """Whether the server was told to stop, and begins no further request."""
        return self._stop is not None and self._stop.is_set()

    def _next_look(self) -> float:
        """Return when the server checks next whether to stop; infinity if it cannot be told to."""
        return math.inf if self._stop is None else now() + LOOK_SECONDS

    async def _returned(self, drive: Drive, missing: Callable[[], Collection[str]]) -> bool:
        """Wait until a party connects; False at the time limit, or at once if unsaved or none was cut.

        `missing`: names the parties that are reported as waited for once this wait is over.
        """
        names = self._requested(drive.request).names
        if not (self._state.saves and any(map(self._pool.is_cut, names))):
            return False
        returned = await self._pool.gather(names, 1)
        self._pool.awaited.begin(drive.request, drive.run.step, missing)
        return returned

    def following(self, number: int) -> int:
        """Return the number of the request to serve next, later if enough parties are ahead.

        So a process that was started again skips what was served before. Fewer parties neither make it skip
        a request nor keep it at earlier ones.
        """
        if not self._is_endless:
            return number + 1
        members, needed = set(self._membership.names), needed_parties(self._membership.parameters)
        ahead = self._pool.ahead(HELLOS).items()
        asked = sorted((later for name, later in ahead if name in members), reverse=True)
        return max([number + 1, *asked[needed - 1 : needed]])

    def _refuse_beside(self, beside: Beside, held: Sequence[InboundEvent]) -> NoReturn:
        """Refuse all parties, since most ask for a kind that is not installed; raise LocalError.

        The role of a sum has no part in it: they could not read its farewell.
        """
        self._asked.drop()
        number = self._drive.request
        context = self._requested(number).context(number)
        hellos = {inbound.peer: inbound for inbound in held if is_hello(inbound)}
        for hello in hellos.values():
            asked = None if hello.envelope is None else BESIDE.get(hello.envelope.step)
            self._pool.refuse_request(context if asked is None else asked.context(context), hello, Code.KIND)
        error = LocalError(f"most parties ask for '{beside.task}', which is not in this installation")
        self._drive.notify("failed", error)
        raise error

    def _refuse_early(
        self, hello: InboundEvent, operations: Operations, lacking: Collection[str], enough: int
    ) -> None:
        """Forget a party's hello that has waited too long; tell the party that too few others ask."""
        operations.forget(hello.peer)
        self._asked.forget(hello.peer)
        context = self._requested(hello.request).context(hello.request)
        asked = None if hello.envelope is None else BESIDE.get(hello.envelope.step)
        context = context if asked is None else asked.context(context)
        self._pool.refuse_request(context, hello, Code.FEW, enough, lacking)

    async def _hear(
        self, drive: Drive, inbound: InboundEvent | None, operations: Operations, askers: Askers
    ) -> None:
        """Store or drop a hello before the operation is agreed, or take another event; None: do nothing."""
        names = self._requested(drive.request).names
        if inbound is None:
            return
        if is_log_request(inbound) or inbound.peer not in names or inbound.failure is not None:
            await drive.take(inbound)
        elif inbound.request == drive.request and is_hello(inbound):
            operations.hold(inbound)
            if inbound.peer not in self._culprits:
                self._asked.add(inbound.envelope)
                askers.add(small(inbound))
        elif inbound.envelope is None:
            # The process that has asked is gone. Another one may call and ask again; and a party that leaves
            # before a request opens is absent from it, which is no reason for the request to fail.
            askers.remove(inbound.peer)
            operations.forget(inbound.peer)
            self._asked.forget(inbound.peer)
            if askers.opened and not self._pool.is_live(inbound.peer):
                operations.hold(inbound)
            elif not askers.opened:
                drive.notify_lost(inbound.peer)
        elif not askers.opened and (left := leaving_error(inbound, self._membership)):
            self._culprits.setdefault(inbound.peer, left)
            askers.remove(inbound.peer)
        elif inbound.request == drive.request and (not askers.opened or inbound.envelope.step == LEAVE):
            # Who leaves early must not end the request before others have asked, and leaves a request of the
            # kind that most ask for.
            operations.hold(inbound)
        else:
            await drive.take(inbound)

    async def _show(self, inbound: InboundEvent) -> None:
        """Send a party the log lines that it asks for; report a malformed request to the watcher."""
        try:
            self._pool.send(
                inbound.request, await asyncio.to_thread(answer, self._membership, self._board, inbound)
            )
        except SmpcError as error:
            self._pool.refused(inbound.peer, error)

    @property
    def progress(self) -> Progress:
        """Results so far of the current call of a method that makes several requests."""
        return self._state.progress

    @property
    def first(self) -> int:
        """The number of the first request that this process serves."""
        return self._state.first_request()

    async def skip(self, number: int, group: Membership) -> None:
        """Skip a group's request that an earlier process has served; if it is the last, restore its run.

        The last one stays for those who come back.
        """
        self._groups[number] = group
        if number == self.first - 1:
            await finish_in_thread(partial(self.resume_earlier, self.first))

    def span(self, requests: int | None) -> tuple[int, int]:
        """Restore the run before; return the numbers (first, last) of requests to serve, last 0: no end.

        `requests`: as of `serve`.
        """
        first = self._state.first_request()
        self.resume_earlier(first)
        return first, self._state.last_request(requests) if requests else 0

    async def end(self) -> None:
        """End the session: send missing results to survivors, serve logs, and save that it has ended."""
        if self._state.saves:
            await self._await_survivors()
        if self._membership.parameters.is_logged:
            await self.linger()
        await finish_in_thread(self._state.end_command)

    async def _await_survivors(self) -> None:
        """Wait, for at most a step's time, for survivors that may lack the result; answer them."""
        last, waiting = now() + self._membership.session.timeouts.step, set(self._survivors_away())
        while waiting and now() < last and (inbound := await self._pool.next(last)) is not None:
            if inbound.envelope is None and inbound.clean:
                waiting.discard(inbound.peer)
            answered = await self._answer(inbound)
            if inbound.envelope is None:
                continue
            if not self._groups:
                waiting.discard(inbound.peer)
            elif not answered and is_hello(inbound):
                # Of a group whose request is over: the learner leaves that out, and says goodbye at its end.
                context = self._requested(inbound.request).context(inbound.request)
                self._pool.refuse_request(context, inbound, Code.PAST, self._drive.request + 1)

    def _survivors_away(self) -> list[str]:
        """Return the names of survivors that may lack the last result, and have not left.

        Of groups all parties that have not left.
        """
        outcome = None if self._earlier is None else self._earlier.state.outcome
        survivors = () if outcome is None else outcome.survivors
        number, known = self._drive.request, self._pool.connections

        def may_lack(name: str) -> bool:
            if name not in known or self._pool.is_cut(name):
                return True
            # An earlier process may have sent it to nobody.
            return self._was_over and not known[name].clean and known[name].answered < number

        # Of a learner's groups also those that may lack the result of an earlier request, and notice it only
        # when their process is started again.
        staying = (name for name in self._membership.names if name in known and not known[name].clean)
        return [*filter(may_lack, survivors), *(staying if self._groups else ())]

    async def linger(self) -> None:
        """Serve log lines after the last request until parties stop asking, or the time is over."""
        patience = self._membership.session.timeouts.step
        last = now() + LINGER_STEPS * patience
        while now() < last and any(map(self._pool.is_live, self._pool.connections)):
            inbound = await self._pool.next(min(now() + patience, last))
            if inbound is None:
                return
            await self._answer(inbound)

    async def _answer(self, inbound: InboundEvent) -> bool:
        """Answer a message after the last request; return whether no other answer is needed."""
        if is_log_request(inbound):
            await self._show(inbound)
            return True
        return inbound.envelope is not None and await self._resend(self._drive, inbound, inbound.envelope)

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the event that a message means to the run; None if it is answered or stored here.

        Raises LocalError for an expected message that this process could not store: its sender is not at
        fault.
        """
        run, envelope = drive.run, inbound.envelope
        if inbound.failure is not None and run.step not in HELLOS and inbound.peer in run.waiting_for:
            # Before its hello, which is not large, a party sends what is left of an earlier request.
            raise inbound.failure
        if is_log_request(inbound):
            await self._show(inbound)
        if is_log_request(inbound) or inbound.failure is not None:
            return None
        if envelope is None:
            return self._lost(drive, inbound)
        if await self._resend(drive, inbound, envelope):
            return None
        if left := leaving_error(inbound, self._membership):
            return events.Conviction(inbound.peer, self._culprits.setdefault(inbound.peer, left))
        if inbound.request > drive.request:
            self._pool.keep(inbound)
            return None
        asked = BESIDE.get(envelope.step)
        context = self._requested(inbound.request).context(inbound.request)
        context = context if asked is None else asked.context(context)
        self._asked.hear(drive, inbound, self._culprits)
        if inbound.request < drive.request:
            if is_hello(inbound):
                # The party can ask for the next request.
                self._pool.refuse_request(context, inbound, Code.PAST, drive.request)
            return None
        if is_hello(inbound) and self.beside is not asked:
            # Others ask for a statistic where this party asks for a sum, or the other way round.
            self._pool.refuse_request(context, inbound, Code.KIND)
            return events.PeersLost((inbound.peer,))
        if is_hello(inbound) and drive.saved and run.role.has_taken_other(run.member, run.state, envelope):
            # Of a later process, without a state: its party is lost from this run, and has broken nothing.
            lost = TimeoutFault({inbound.peer}, run.step, "started again without a state", code=Code.BEGUN)
            await drive.act(events.Conviction(inbound.peer, lost))
        other = self._leaves_other_kind(inbound, envelope)
        return events.PeersLost((inbound.peer,)) if other else events.Message(envelope)

    def _lost(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the event of a lost connection; None if the party may go on after it reconnects."""
        asks = drive.run.step in HELLOS and inbound.peer in drive.run.waiting_for
        if asks and self._pool.is_live(inbound.peer):
            return None
        drive.notify_lost(inbound.peer)
        # Where runs are saved it has the time of the step to come back.
        return None if drive.saved and not inbound.clean else events.PeersLost((inbound.peer,))

    async def _resend(self, drive: Drive, inbound: InboundEvent, envelope: Envelope) -> bool:
        """Send a reconnected party what it has missed; return whether its message needs nothing else."""
        number, connection, run = inbound.request, inbound.connection, drive.run
        # A call that was cancelled and is made again says hello again, also to an aggregator without a state.
        is_repeated = (
            (drive.saved or is_hello(inbound))
            and number == drive.request
            and run.role.has_taken(run.member, run.state, envelope)
        )
        if not self._state.saves:
            return is_repeated
        if connection is None or number > drive.request or connection.answered >= number:
            return is_repeated
        connection.answered = number
        if number < drive.request:
            earlier = self._earlier
            if earlier is None or earlier.member.context.request != number:
                return self._refuse_past(drive, inbound, envelope)
            run = earlier
        elif not drive.saved:
            return False
        other = envelope.step != run.role.hello or run.role.has_taken_other(run.member, run.state, envelope)
        if is_hello(inbound) and other:
            # Of a process without a state: it would take what the run has sent for a fault of the aggregator.
            return False
        stored = [one for one in await finish_in_thread(run.resend) if one.receiver == inbound.peer]
        if number < drive.request and not stored:
            return self._refuse_past(drive, inbound, envelope)
        self._pool.send(number, stored, excludes=number == drive.request)
        return is_repeated or number < drive.request

    def _refuse_past(self, drive: Drive, inbound: InboundEvent, envelope: Envelope) -> bool:
        """Tell a party that its message's request is over, and return True; return False for a hello."""
        if is_hello(inbound):
            return False
        if envelope.step not in (LEAVE, QUIT):
            context = self._requested(inbound.request).context(inbound.request)
            beside = (one.context(context) for one in BESIDE.values())
            # In the context that the sender knows.
            known = next((one for one in beside if _has_signed(one, envelope)), context)
            self._pool.refuse_request(known, inbound, Code.PAST, drive.request)
        return True

    def _leaves_other_kind(self, inbound: InboundEvent, envelope: Envelope) -> bool:
        """Return whether a message is a signed leave from another kind of request than most ask for.

        It does not know what others ask for: no fault.
        """
        if envelope.step != LEAVE:
            return False
        context = self._requested(inbound.request).context(inbound.request)
        others = {None, *BESIDE.values()} - {self.beside}
        return any(_has_signed(context if one is None else one.context(context), envelope) for one in others)


def _has_signed(context: Context, envelope: Envelope) -> bool:
    """Return whether a message's sender has validly signed it for this request."""
    try:
        context.check(envelope)
    except PeerFault:
        return False
    return True


async def serve(  # noqa: PLR0913 - each can be left out
    session: str | os.PathLike[str],
    *,
    name: str | None = None,
    key: str | os.PathLike[str] | None = None,
    requests: int | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
    watch: Watch | None = None,
    kernels: Sequence[Kernel] = (),
    board: str | os.PathLike[str] | None = None,
    role: MakeAggregator = make_aggregator,
    web: WebSettings | None = None,
    state: StateFolder | None = None,
    counter: str | os.PathLike[str] | None = None,
    stop: asyncio.Event | None = None,
) -> list[Result | RecordResult | StatisticResult | SmpcError]:
    """Serve `requests` requests as aggregator (None: until all left; 0: endless); return results or errors.

    Args:
        session: path of the session file.
        name: the aggregator's name, if it is to be checked against the roster's.
        key: its identity file; by default `keys/NAME.key` beside the session file.
        listen_on: host:port to bind, where that is not the address in the roster (behind a NAT, say).
        requests: how many to serve; None: until every party has left. 0: until it is cancelled. It waits for
            parties then, however long none is connected, and keeps no results: `on_event` is told how each
            request ends. One that is started again goes on with the request that the parties ask for.
        on_event: told of every step, connection and loss.
        watch: called with each party's name and masked ring elements, to show what an aggregator sees.
        kernels: parties' own kernels of pairwise statistics, beside those that are known by name.
        board: the folder for the logs of verifiable runs and of pairwise statistics; by default `board`
            beside the session file.
        role: makes the aggregator's role in each request for a sum, in place of the protocol's own: an
            aggregator that deviates, for tests and demonstrations.
        web: settings of the HTTP server, where the aggregator's address is `wss://host/path`.
        state, counter: folders as of `connect`: a process that is started again goes on with the request that
            was under way, and serves those that are left of `requests`. It waits for a party whose connection
            is lost until the time of the step is over.
        stop: once it is set, the aggregator ends when no request is under way, and takes leave of parties.

    Returns:
        For each request its sum, its answers or its statistic, or the error that it ended with.

    Raises:
        ConfigError, LocalError: the session file, the key or the port is wrong.
    """
    if requests is not None and requests < 0:
        raise ConfigError.at("requests", f"must be at least 0, is {requests}", ConfigCheck.RANGE)
    membership = Membership.load(session, name, key, "aggregator", web=web)
    membership.refuse_others("vector", "records")
    await membership.load_generators()
    on_event = with_logging(on_event)
    opened = await open_state(membership, state, counter, on_event)
    try:
        opening = open_aggregator(
            membership,
            listen_on,
            logs=log_folder(membership, session, board),
            on_event=on_event,
            watch=watch,
            kernels=kernels,
            role=role,
            is_endless=requests == 0,
            state=opened,
            stop=stop,
        )
        return await serve_requests(membership, opening, requests)
    finally:
        opened.close()


async def serve_requests(
    membership: Membership,
    opening: AbstractAsyncContextManager[RequestServer],
    requests: int | None = None,
) -> list[Result | RecordResult | StatisticResult | SmpcError]:
    """Open the aggregator's server, serve requests in turn, and return their results or errors."""
    results: list[Result | RecordResult | StatisticResult | SmpcError] = []
    async with opening as server:
        steps = ServedSteps(membership, server.progress)
        number, last = await finish_in_thread(partial(server.span, requests))
        while not server.is_stopping and (not last or number <= last):
            ended = await server.request(number)
            if ended is None:
                break
            if requests == 0:
                results.clear()
            if server.beside is not None or isinstance(ended, SmpcError):
                results.append(cast("StatisticResult | SmpcError", ended))
            else:
                outcome = cast(Outcome, ended)
                results.append(await asyncio.to_thread(steps.answered, number, server.operation, outcome))
            number = server.following(number)
        await server.end()
    return results


def log_folder(
    membership: Membership, session: str | os.PathLike[str], board: str | os.PathLike[str] | None
) -> BoardFolder:
    """Return the folder of the aggregator's logs; create it if the session has logs."""
    text = membership.session.canonical_json().decode("ascii")
    folder = board if board is not None else Path(session).parent / "board"
    logs = BoardFolder(folder, text, membership.checkpoint_identity())
    if any(planned.is_logged for planned in requests_of(membership.session)):
        # Created now, not in the first run: a failure is better known before.
        logs.make()
    return logs


@asynccontextmanager
async def open_aggregator(
    membership: Membership,
    listen_on: str | None = None,
    *,
    logs: BoardFolder,
    on_event: OnEvent = ignore,
    watch: Watch | None = None,
    kernels: Sequence[Kernel] = (),
    role: MakeAggregator = make_aggregator,
    is_endless: bool = False,
    state: SessionState | None = None,
    stop: asyncio.Event | None = None,
) -> AsyncIterator[RequestServer]:
    """Open an aggregator's server that listens for parties, for a `with` block; close all at its end."""
    host, port = membership.address(listen_on)
    pool = ConnectionPool(membership, on_event)
    endpoint = membership.endpoint(aggregator=True)
    async with showing_logs(membership, logs.folder) as show:
        listener = await endpoint.listen(host, port, pool.welcome, pool.refused)
        try:
            show(listener)
            yield RequestServer(
                membership,
                pool,
                on_event,
                watch,
                kernels,
                logs,
                role,
                is_endless=is_endless,
                state=state,
                stop=stop,
            )
            await pool.close()
        finally:
            pool.abort()
            try:
                await listener.close()
            finally:
                # The log of a failed run is evidence too.
                await finish_in_thread(logs.close)
