"""The aggregator's process: serves one request after the other to the parties of a session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from smpc_dp.errors import Code, ConfigError, Fault, PeerFault, SmpcError
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.protocols.abort import ABORT, Abort
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.events import Cancellation, Conviction, Deadline, Message, PeersLost
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.exchange.states import Relayed
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.pairwise import statistic_states
from smpc_dp.protocols.pairwise.statistic_messages import HELLO as STATISTIC_HELLO
from smpc_dp.protocols.pairwise.statistic_result import StatisticResult
from smpc_dp.protocols.pairwise.statistic_terms import statistic_context
from smpc_dp.protocols.phases.key_graph import Watch
from smpc_dp.protocols.phases.survivors import FixedSurvivors
from smpc_dp.protocols.registry import MakeAggregator, make_aggregator
from smpc_dp.protocols.result import Outcome, Result
from smpc_dp.roster import split_address
from smpc_dp.runtime.asking import HELLOS, Asking, is_hello, quits
from smpc_dp.runtime.awaited import Awaited
from smpc_dp.runtime.board import BoardFolder
from smpc_dp.runtime.deadline import StepTimer, hub_step_seconds, now
from smpc_dp.runtime.events import Event, OnEvent, ignore, logged, tell
from smpc_dp.runtime.links import SMALL_MESSAGE, Links, News
from smpc_dp.runtime.member import Membership, aggregator_name
from smpc_dp.runtime.served_log import answer, asks_for_lines
from smpc_dp.runtime.statistic import plan_maker
from smpc_dp.transport.endpoint import listen

# After the last request logs are shown for so many times a step, at most: nobody can keep a relay for ever.
LINGER_STEPS = 10

# Messages of later requests that are kept of one party.
EARLY_LIMIT = 16
# Seconds between two looks at who is connected.
CONNECT_PAUSE = 0.05


class Server:
    """Serves requests over open links; made by `open_server`."""

    def __init__(
        self,
        membership: Membership,
        hub: Links,
        on_event: OnEvent,
        watch: Watch | None,
        kernels: Sequence[Kernel],
        board: BoardFolder,
        role: MakeAggregator = make_aggregator,
    ) -> None:
        self._membership = membership
        self._make = role
        self._kernels = kernels
        self._hub = hub
        self._board = board
        self._on_event = on_event
        self._watch = watch
        self._early: dict[str, list[News]] = {}
        # What past requests were for: who is late is answered in its own terms.
        self._asked: dict[int, Membership] = {}
        self._culprits: dict[str, SmpcError] = {}
        self._fixed = FixedSurvivors()
        self._awaited = Awaited(membership.name, hub.is_live, on_event)

    async def gather(self, enough: int | None = None) -> None:
        """Wait until so many parties (None: all) have connected, or `connect` seconds have passed.

        What they bring meanwhile is kept.
        """
        names = {member.name for member in self._membership.session.roster.parties}
        until = now() + self._membership.session.timeouts.connect
        self._awaited.begin(0, "", lambda: {name for name in names if not self._hub.is_live(name)})
        while sum(map(self._hub.is_live, names)) < (len(names) if enough is None else enough):
            # A connection is no news by itself.
            news = await self._next(min(until, now() + CONNECT_PAUSE))
            if news is not None and news.envelope is not None:
                self._keep(news)
            if now() >= until:
                return

    def _keep(self, news: News) -> None:
        """Keep a message of a later request, if it is a small one."""
        kept = self._early.setdefault(news.peer, [])
        if news.envelope is not None and len(news.envelope.body) <= SMALL_MESSAGE and len(kept) < EARLY_LIMIT:
            kept.append(news)

    def _take_early(self, number: int) -> list[News]:
        """Return what has come for this request before it began, and drop what was for earlier ones."""
        kept = {peer: [item for item in news if item.request > number] for peer, news in self._early.items()}
        due = [item for news in self._early.values() for item in news if item.request == number]
        self._early = {peer: news for peer, news in kept.items() if news}
        return due

    async def request(
        self, number: int, group: Membership | None = None
    ) -> Outcome | StatisticResult | Relayed | SmpcError | None:
        """Serve one request and return how it ended, or None when every party has left before it began.

        `group`: the membership of a request that is for some of the parties only.
        """
        asked = self._asked[number] = group or self._membership
        self._is_statistic = False
        self._machine: Run[Any] = self._make(
            asked.context(number),
            asked.parameters,
            self._membership.identity,
            threads=min(2, os.cpu_count() or 1),
            watch=self._watch,
            board=self._board,
            fixed=self._fixed,
        )
        try:
            if not await self._run(number):
                return None
            await asyncio.to_thread(self._board.close)
        except SmpcError as error:
            self._hub.send(number, self._machine.handle(Cancellation(error)))
            tell(self._on_event, "failed", number, self._machine, error)
            if isinstance(error, PeerFault):
                self._culprits[error.culprit] = error
            return error
        outcome: Outcome | StatisticResult | Relayed = self._machine.result
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

    def _statistic(self, number: int) -> Run[Any]:
        """Return the machine for a request that is for a statistic."""
        member, make = self._membership, plan_maker(self._kernels)
        context, corrupt = member.context(number), member.parameters.plan.max_corrupt
        machine = statistic_states.aggregator(
            context, member.identity, make, board=self._board, corrupt=corrupt
        )
        self._ban_culprits(number, machine)
        return machine

    def _ban_culprits(self, number: int, machine: Run[Any]) -> None:
        """Exclude from a request whoever has deviated in an earlier one."""
        for name, fault in self._culprits.items():
            self._hub.send(number, machine.handle(Conviction(name, fault)))

    def _asks_otherwise(self, news: News) -> bool:
        """Tell whether a hello is for a sum where others ask for a statistic, or the other way round."""
        if news.envelope is None or not is_hello(news):
            return False
        return self._is_statistic != (news.envelope.step == STATISTIC_HELLO)

    async def _run(self, number: int) -> bool:
        """Drive the machine to its end; return False when nobody is left to ask."""
        whole = self._asked[number].group is None
        deadline = StepTimer(self._membership.session.timeouts, first=number == 1 and whole)
        self._hub.admit_all()
        self._ban_culprits(number, self._machine)
        held = await self._ask(number, deadline)
        if held is None:
            return False
        machine, begun, declared, step, waiting = self._machine, bool(held), False, "", -1
        drained = False
        if longest := machine.role.longest(machine.member):
            # What is false is kept, however long, and shown.
            self._hub.hear(longest)
        while not machine.finished:
            if machine.step != step:
                step, waiting, drained = machine.step, -1, False
                self._begin_step(number, machine, deadline)
            if waiting != (waiting := len(machine.waiting_for)):
                tell(self._on_event, "step", number, machine)
            if not begun:
                self._hub.send(number, machine.handle(Deadline()))
                continue
            if not declared and not deadline.connecting:
                declared = True
                self._declare_absent(number, machine)
                continue
            if not held and deadline.passed:
                if drained:
                    self._hub.send(number, await asyncio.to_thread(machine.handle, Deadline()))
                else:
                    held, drained = self._hub.news.take_all(), True
                continue
            news = held.pop(0) if held else await self._next(deadline.pause())
            if news is not None:
                await self._take(number, machine, news, deadline)
        return True

    def _begin_step(self, number: int, machine: Run[Any], deadline: StepTimer) -> None:
        """Tell from now on for whom the machine's step waits, and give the step its time."""
        self._awaited.begin(number, machine.step, lambda: machine.waiting_for)
        if machine.step not in HELLOS:
            deadline.step(hub_step_seconds(machine.state.matchings, self._membership.session.timeouts))

    async def _take(self, number: int, machine: Run[Any], news: News, deadline: StepTimer) -> None:
        """Show lines of a log, or give the machine its news; it waits less once enough have said hello."""
        if asks_for_lines(news):
            await self._show(news)
            return
        step = machine.step
        self._hub.send(number, await self._apply(number, machine, news))
        if step in HELLOS and machine.step == step and machine.has_enough:
            deadline.enough()

    async def _ask(self, number: int, deadline: StepTimer) -> list[News] | None:
        """Wait until it is clear what a request is for, and make its machine; None: nobody is left to ask.

        Return what has come for it.
        """
        asked = self._asked[number]
        names = asked.names
        asking = Asking(len(names), self._culprits)

        def missing() -> Collection[str]:
            # An idle aggregator waits for nobody.
            return set(names) - asking.heard if asking.began or deadline.connecting else ()

        self._awaited.begin(number, self._machine.step, missing)
        early = self._take_early(number)
        tell(self._on_event, "step", number, self._machine)
        while not asking.began or deadline.at > now():
            if not (asking.began or early or deadline.connecting or any(map(self._hub.is_live, names))):
                left = asked.group is None or not any(map(self._hub.is_live, self._hub.links))
                return None if number > 1 and left else []
            news = early.pop(0) if early else await self._next(deadline.pause())
            if news is not None:
                if self._has_called_again(number, news, asking):
                    continue
                await self._hear(number, news, asking, deadline)
            elif not asking.began:
                self._declare_absent(number, self._machine)
            live = [name for name in names if deadline.connecting or self._hub.is_live(name)]
            if asking.began and asking.is_clear(live):
                break
        statistic, held = asking.settle()
        if statistic and asked.group is None:
            self._machine, self._is_statistic = self._statistic(number), True
        # What came before the request began, and was not looked at yet, is as good as the rest.
        return [*held, *early]

    def _has_called_again(self, number: int, news: News, asking: Asking) -> bool:
        """Tell whether the loss of a connection is of a party that has another one, and may still ask."""
        lost = news.envelope is None and news.peer in self._asked[number].names
        return lost and self._hub.is_live(news.peer) and news.peer not in asking.heard

    async def _hear(self, number: int, news: News, asking: Asking, deadline: StepTimer) -> None:
        """Take news before it is clear what a request is for: hold what is for its machine."""
        if asks_for_lines(news):
            await self._show(news)
        elif news.peer not in self._asked[number].names:
            self._hub.send(number, await self._apply(number, self._machine, news))
        elif news.request == number and is_hello(news):
            if not asking.began:
                deadline.begin()
            asking.hold(news)
        elif news.envelope is None and asking.began:
            asking.hold(news)
        elif news.envelope is None:
            # Who leaves before a request begins is absent from it, and no reason for it to fail.
            self._tell_lost(number, self._machine, news.peer)
        else:
            self._hub.send(number, await self._apply(number, self._machine, news))

    async def _show(self, news: News) -> None:
        """Send lines of a log; what is no question is refused."""
        try:
            self._hub.send(news.request, await asyncio.to_thread(answer, self._membership, self._board, news))
        except SmpcError as error:
            self._hub.refused(news.peer, error)

    async def linger(self) -> None:
        """Show logs to who is still there, until nobody has asked for a step's time, or ten are over."""
        patience = self._membership.session.timeouts.step
        last = now() + LINGER_STEPS * patience
        while now() < last and any(map(self._hub.is_live, self._hub.links)):
            news = await self._next(min(now() + patience, last))
            if news is None:
                return
            if asks_for_lines(news):
                await self._show(news)

    async def _next(self, until: float) -> News | None:
        """Return the next news, or None when the time comes first; tell for whom we wait meanwhile."""
        return await self._awaited.next(self._hub.news.get, until)

    def _declare_absent(self, number: int, machine: Run[Any]) -> None:
        """Wait no more for who has no connection."""
        absent = [name for name in sorted(machine.waiting_for) if not self._hub.is_live(name)]
        self._hub.send(number, machine.handle(PeersLost(tuple(absent))))

    async def _apply(self, number: int, machine: Run[Any], news: News) -> Sequence[Envelope]:
        if news.envelope is None:
            asks = machine.step in HELLOS and news.peer in machine.waiting_for
            if asks and self._hub.is_live(news.peer):
                return ()
            self._tell_lost(number, machine, news.peer)
            return await asyncio.to_thread(machine.handle, PeersLost((news.peer,)))
        if left := quits(news, self._membership):
            return await asyncio.to_thread(
                machine.handle, Conviction(news.peer, self._culprits.setdefault(news.peer, left))
            )
        if news.request > number:
            self._keep(news)
            return ()
        if news.request < number:
            if is_hello(news):
                self._hub.send(news.request, self._too_late(news, number))
            return ()
        if self._asks_otherwise(news):
            self._hub.send(number, self._elsewhere(news))
            return await asyncio.to_thread(machine.handle, PeersLost((news.peer,)))
        return await asyncio.to_thread(machine.handle, Message(news.envelope))

    def _elsewhere(self, news: News) -> Sequence[Envelope]:
        """Tell a party that others ask for something else in this request."""
        context = self._membership.context(news.request)
        if not self._is_statistic:
            context = statistic_context(context)
        abort = Abort(Code.KIND, "", [(news.peer, Code.KIND)])
        return context.write(self._membership.identity, context.session_digest, ABORT, (news.peer,), abort)

    def _too_late(self, news: News, number: int) -> Sequence[Envelope]:
        """Tell a party that asks for a past request where the others are; it can ask for the next one."""
        context = self._asked.get(news.request, self._membership).context(news.request)
        if news.envelope is not None and news.envelope.step == STATISTIC_HELLO:
            context = statistic_context(context)
        abort = Abort(Code.PAST, "", [(news.peer, Code.PAST)], number=number)
        return context.write(self._membership.identity, context.session_digest, ABORT, (news.peer,), abort)

    def _tell_lost(self, number: int, machine: Run[Any], peer: str) -> None:
        self._on_event(Event(self._membership.name, "lost", number, machine.step, detail=peer))


async def serve(
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
) -> list[Result | StatisticResult | SmpcError]:
    """Be the aggregator of a session until `requests` are served (None: until every party has left).

    Args:
        session: path of the session file.
        name: the aggregator's name, if it is to be checked against the roster's.
        key: its identity file; by default `keys/NAME.key` beside the session file.
        listen_on: host:port to bind, where that is not the address in the roster (behind a NAT, say).
        requests: how many to serve; None: until every party has left.
        on_event: told of every step, connection and loss.
        watch: called with each party's name and masked lanes, to show what an aggregator sees.
        kernels: users' own kernels of pairwise statistics, beside those that are known by name.
        board: the folder for the logs of verifiable runs and of pairwise statistics; by default `board`
            beside the session file.
        role: makes the aggregator's role in each request for a sum, in place of the protocol's own: an
            aggregator that deviates, for tests and demonstrations.

    Returns:
        For each request its sum or statistic, or the error that it ended with.

    Raises:
        ConfigError, LocalError: the session file, the key or the port is wrong.
    """
    if requests is not None and requests < 1:
        raise ConfigError([Fault("requests", f"must be at least 1, is {requests}")])
    membership = Membership.load(session, name or aggregator_name(session), key, "aggregator")
    membership.refuse_learning()
    logs = open_logs(membership, session, board)
    on_event = logged(on_event)
    results: list[Result | StatisticResult | SmpcError] = []
    async with open_server(
        membership, listen_on, logs=logs, on_event=on_event, watch=watch, kernels=kernels, role=role
    ) as server:
        while requests is None or len(results) < requests:
            ended = await server.request(len(results) + 1)
            if ended is None:
                break
            if not isinstance(ended, Relayed):
                results.append(Result.of(ended, "sum") if isinstance(ended, Outcome) else ended)
        if isinstance(membership.parameters, VerifiableParameters):
            await server.linger()
    return results


def open_logs(
    membership: Membership, session: str | os.PathLike[str], board: str | os.PathLike[str] | None
) -> BoardFolder:
    """Return where the aggregator keeps logs, by default `board` beside the session file."""
    text = membership.session.canonical_json().decode("ascii")
    logs = BoardFolder(board if board is not None else Path(session).parent / "board", text)
    if any(isinstance(planned, VerifiableParameters) for planned in membership.planned):
        # Now, not in the first run: that it cannot be made is better known before.
        logs.make()
    return logs


@asynccontextmanager
async def open_server(
    membership: Membership,
    listen_on: str | None = None,
    *,
    logs: BoardFolder,
    on_event: OnEvent = ignore,
    watch: Watch | None = None,
    kernels: Sequence[Kernel] = (),
    role: MakeAggregator = make_aggregator,
) -> AsyncIterator[Server]:
    """Listen for the parties of a session, and say goodbye to them at the end; arguments as of `serve`."""
    address = listen_on or membership.session.roster.member(membership.name).address or ""
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise ConfigError([Fault("listen_on", str(error))]) from None
    hub = Links(membership, on_event)
    listener = await listen(membership.endpoint(hub=True), host, port, hub.welcome, hub.refused)
    try:
        yield Server(membership, hub, on_event, watch, kernels, logs, role)
        await hub.close()
    finally:
        hub.abort()
        await listener.close()
        # What is there of a run that failed is evidence too.
        await asyncio.to_thread(logs.close)
