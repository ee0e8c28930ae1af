"""A user's line to the servers of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from smpc_dp.encoding import Lanes
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.protocols.engine.events import Cancellation, Deadline, Message, PeersLost, Start
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.mpyc.messages import SHARES, START
from smpc_dp.protocols.mpyc.params import threshold_of
from smpc_dp.protocols.mpyc.terms import ProgramTerms
from smpc_dp.protocols.mpyc.user import UserMachine
from smpc_dp.protocols.pairwise.statistic_result import StatisticResult
from smpc_dp.protocols.result import Outcome
from smpc_dp.runtime.charging import Charge
from smpc_dp.runtime.deadline import PATIENCE, now
from smpc_dp.runtime.events import OnEvent, tell
from smpc_dp.runtime.links import Links
from smpc_dp.runtime.servers.programs import (
    Record,
    charge_of,
    compile_question,
    statistic_outcome,
    sum_outcome,
    sum_record,
)
from smpc_dp.runtime.servers.shared import SharedMembership
from smpc_dp.statistics.shared.plan import Program
from smpc_dp.transport.endpoint import dial

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

ChargeEvent = Callable[[bytes, Callable[[], "Event"]], Awaitable[Receipt | None]]


class _Asking:
    """One request of one user: its machine, and the program that all have agreed on."""

    def __init__(
        self, membership: SharedMembership, request: int, question: str, record: list[int], mark: int = -1
    ) -> None:
        self._parameters = membership.parameters
        self._program: Program | None = None
        self.request = request
        self.context: Context = membership.context(request, question)
        self.machine = UserMachine(
            self.context,
            membership.servers,
            membership.identity,
            self._terms,
            record,
            threshold=threshold_of(len(membership.servers)),
            fewest=membership.parameters.fewest,
            mark=mark,
        )

    @property
    def program(self) -> Program:
        """The program; raise LocalError before the servers have begun."""
        if self._program is None:
            raise LocalError(f"{self.machine.name}: the run has not begun")
        return self._program

    def _terms(self, question: str, users: int, marks: tuple[int, ...], seed: bytes) -> ProgramTerms:
        self._program = compile_question(self._parameters, question, users, marks, seed)
        return self._program.terms


class ServersLine:
    """The channels of one user to all servers, a `Line`. Made by `open`."""

    def __init__(self, membership: SharedMembership, on_event: OnEvent) -> None:
        self._membership = membership
        self._on_event = on_event
        self._links = Links(membership, on_event, hub=False)

    @classmethod
    async def open(cls, membership: SharedMembership, on_event: OnEvent) -> ServersLine:
        """Connect to all servers; raises what `dial` raises."""
        line = cls(membership, on_event)
        endpoint = membership.endpoint()
        dialled = [asyncio.ensure_future(dial(endpoint, name)) for name in membership.servers]
        try:
            for channel in await asyncio.gather(*dialled):
                line._links.welcome(channel)
        except BaseException:
            for task in dialled:
                task.cancel()
            for ended in await asyncio.gather(*dialled, return_exceptions=True):
                if not isinstance(ended, BaseException):
                    ended.abort()
            raise
        return line

    async def run(
        self, request: int, question: str, lanes: Lanes, charge: Charge
    ) -> tuple[Outcome, Receipt | None]:
        """See `Line.run`."""
        return await self.run_as(self._membership, request, question, lanes, charge)

    async def run_as(
        self,
        membership: SharedMembership,
        request: int,
        question: str,
        lanes: Lanes,
        charge: Charge,
        before: int = 0,
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in a request as a member of a group; `before`: requests that others may be at still."""
        parameters = membership.parameters
        asking = _Asking(membership, request, question, sum_record(parameters.sums, lanes.tolist()))
        receipt = await self._drive_told(asking, charge, before)
        opened, servers = asking.machine.result, len(membership.servers)
        return sum_outcome(asking.context, parameters, servers, asking.program, opened), receipt

    async def statistic(
        self,
        request: int,
        kernel: Kernel,
        data: Any,
        mark: int | None,
        question: str,
        zetas: tuple[float, float] | None,
        charge: ChargeEvent,
    ) -> StatisticResult:
        """Take part in a statistic; `charge` is given the run and its event before the shares leave."""
        try:
            record = Record.check(kernel, data, mark, question)
            await asyncio.to_thread(self._check_question, record)
        except SmpcError as error:
            await self.decline(request, error)
            raise
        asking = _Asking(self._membership, request, record.question, record.values, record.mark)

        async def charged(run_id: bytes, raised: Event | None = None) -> Receipt | None:
            return await charge(run_id, lambda: raised or charge_of(asking.program))

        receipt = await self._drive_told(asking, charged)
        opened, servers = asking.machine.result, len(self._membership.servers)
        return statistic_outcome(asking.context, servers, asking.program, opened, zetas).charged(receipt)

    def _check_question(self, record: Record) -> None:
        """Raise ConfigError for what cannot be computed even if everybody takes part, with any labels."""
        parameters = self._membership.parameters
        users = parameters.users
        marks = () if record.mark < 0 else (1 - record.mark, *(record.mark,) * (users - 1))
        compile_question(parameters, record.question, users, marks, bytes(32))

    async def decline(self, request: int, error: SmpcError) -> None:
        """See `Line.decline`."""
        self.decline_as(self._membership, request, error)

    def decline_as(self, membership: SharedMembership, request: int, error: SmpcError) -> None:
        """Leave a group's request before it begins."""
        self._links.send(request, _Asking(membership, request, "", []).machine.handle(Cancellation(error)))

    async def close(self) -> None:
        """Send what waits, and say goodbye to every server."""
        try:
            await self._links.close()
        finally:
            self._links.abort()

    async def _drive_told(self, asking: _Asking, charge: Charge, before: int = 0) -> Receipt | None:
        try:
            return await self._drive(asking, charge, before)
        except SmpcError as error:
            self._links.send(asking.request, asking.machine.handle(Cancellation(error)))
            tell(self._on_event, "failed", asking.request, asking.machine, error)
            raise

    async def _drive(self, asking: _Asking, charge: Charge, before: int) -> Receipt | None:
        """Run the machine to its end; the ledger is charged before the shares leave. Return the receipt."""
        machine, request = asking.machine, asking.request
        receipt: Receipt | None = None
        timeouts = self._membership.session.timeouts
        sent = machine.handle(Start())
        for name in self._membership.servers:
            if not self._links.is_live(name):
                machine.handle(PeersLost((name,)))
        step, until = "", 0.0
        while True:
            if any(envelope.step == SHARES for envelope in sent):
                receipt = await charge(machine.run_id)
            self._links.send(request, sent)
            if machine.finished:
                return receipt
            if machine.step != step:
                step = machine.step
                others = timeouts.connect + timeouts.gather
                own = others if step == START else self._membership.parameters.seconds
                until = now() + own + PATIENCE * timeouts.step
                if step == START:
                    # Others may be at earlier requests, each of which may take all of its time.
                    until += before * (
                        others + self._membership.parameters.seconds + PATIENCE * timeouts.step
                    )
                tell(self._on_event, "step", request, machine)
            if now() >= until:
                sent = machine.handle(Deadline())
                continue
            sent = ()
            try:
                async with asyncio.timeout_at(until):
                    news = await self._links.news.get()
            except TimeoutError:
                continue
            if news.envelope is None:
                sent = () if self._links.is_live(news.peer) else machine.handle(PeersLost((news.peer,)))
            else:
                receive = partial(machine.handle, Message(news.envelope))
                # In a thread: planning the noise takes long, and the channels go on meanwhile.
                sent = await asyncio.to_thread(receive) if news.request == request else ()
