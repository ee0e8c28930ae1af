"""A user's line to the servers of its session."""

from __future__ import annotations

import asyncio

from smpc_dp.encoding import Lanes
from smpc_dp.errors import SmpcError
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.protocols.mpyc.messages import SHARES, START
from smpc_dp.protocols.mpyc.params import threshold_of
from smpc_dp.protocols.mpyc.sums import sum_outcome, sum_record
from smpc_dp.protocols.mpyc.user import UserMachine
from smpc_dp.protocols.result import Outcome
from smpc_dp.runtime.deadline import now
from smpc_dp.runtime.events import OnEvent
from smpc_dp.runtime.line import PATIENCE, Charge, tell
from smpc_dp.runtime.links import Links
from smpc_dp.runtime.servers.member import SharedMembership
from smpc_dp.transport.endpoint import dial


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
        channels = await asyncio.gather(*(dial(endpoint, name) for name in membership.servers))
        for channel in channels:
            line._links.welcome(channel)
        return line

    async def run(
        self, request: int, question: str, lanes: Lanes, charge: Charge
    ) -> tuple[Outcome, Receipt | None]:
        """See `Line.run`."""
        record = sum_record(self._membership.parameters.sums, [int(lane) for lane in lanes])
        machine = self._machine(request, question, record)
        receipt = await self.drive(request, machine, charge)
        membership = self._membership
        context = membership.context(request, question)
        outcome = sum_outcome(context, membership.parameters, len(membership.servers), machine.result)
        return outcome, receipt

    async def decline(self, request: int, error: SmpcError) -> None:
        """See `Line.decline`."""
        self._links.send(request, self._machine(request, "", []).farewell(error))

    async def close(self) -> None:
        """Send what waits, and say goodbye to every server."""
        try:
            await self._links.close()
        finally:
            self._links.abort()

    def _machine(self, request: int, question: str, record: list[int], mark: int = -1) -> UserMachine:
        membership = self._membership
        return UserMachine(
            membership.context(request, question),
            membership.servers,
            membership.identity,
            membership.terms,
            record,
            threshold=threshold_of(len(membership.servers)),
            fewest=membership.parameters.fewest,
            mark=mark,
        )

    async def drive(self, request: int, machine: UserMachine, charge: Charge) -> Receipt | None:
        """Run a machine to its end; `charge` is called before the shares leave. Return the receipt."""
        try:
            return await self._drive(request, machine, charge)
        except SmpcError as error:
            self._links.send(request, machine.farewell(error))
            tell(self._on_event, "failed", request, machine, str(error))
            raise

    async def _drive(self, request: int, machine: UserMachine, charge: Charge) -> Receipt | None:
        receipt: Receipt | None = None
        timeouts = self._membership.session.timeouts
        sent = machine.start()
        for name in self._membership.servers:
            if not self._links.is_live(name):
                machine.lost(name)
        step, until = "", 0.0
        while True:
            if any(envelope.step == SHARES for envelope in sent):
                receipt = await charge(machine.run_id)
            self._links.send(request, sent)
            if machine.finished:
                return receipt
            if machine.step != step:
                step = machine.step
                own = (
                    timeouts.connect + timeouts.gather
                    if step == START
                    else self._membership.parameters.seconds
                )
                until = now() + own + PATIENCE * timeouts.step
                tell(self._on_event, "step", request, machine)
            try:
                async with asyncio.timeout_at(until):
                    news = await self._links.news.get()
            except TimeoutError:
                sent = machine.expire()
                continue
            if news.envelope is None:
                sent = () if self._links.is_live(news.peer) else machine.lost(news.peer)
            else:
                sent = machine.receive(news.envelope) if news.request == request else ()
