"""A party's line to the others of its session: requests go over it, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from smpc_dp.encoding import Lanes
from smpc_dp.errors import SmpcError, TimeoutFault
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.protocols.abort import QUIT, abort_of
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.events import Cancellation, Deadline, Message, PeersLost, Start
from smpc_dp.protocols.engine.run import Machine, Run
from smpc_dp.protocols.names import GOPA, VERIFIABLE_VERSION
from smpc_dp.protocols.pairwise.statistic_messages import START as STATISTIC_START
from smpc_dp.protocols.phases.messages import START
from smpc_dp.protocols.phases.survivors import FixedSurvivors
from smpc_dp.protocols.registry import MakeParty, make_party
from smpc_dp.protocols.result import Outcome
from smpc_dp.runtime.charging import Charge
from smpc_dp.runtime.deadline import PATIENCE, now
from smpc_dp.runtime.events import Event, OnEvent, tell, warning
from smpc_dp.runtime.member import Membership, from_wire, to_wire
from smpc_dp.runtime.seen import KeptRun
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.endpoint import Endpoint, dial
from smpc_dp.transport.tls import Contexts

if TYPE_CHECKING:
    from smpc_dp.board.followed import Followed
    from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters


class Line(Protocol):
    """What a session needs to ask for sums."""

    async def run(
        self, request: int, question: str, lanes: Lanes, charge: Charge
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in one request; `charge` is called before anything that depends on the lanes leaves.

        Raises SmpcError after the others have been told.
        """

    async def decline(self, request: int, error: SmpcError) -> None:
        """Leave a request before it begins."""

    async def close(self) -> None:
        """Say goodbye."""


class HubLine:
    """The line to an aggregator."""

    def __init__(
        self,
        membership: Membership,
        channel: Channel,
        on_event: OnEvent,
        role: MakeParty = make_party,
        contexts: Contexts | None = None,
    ) -> None:
        """`role` makes the party's machine; `contexts`: those of TLS, for evaluations with other parties."""
        self._membership = membership
        self.contexts = contexts
        self._channel = channel
        self._on_event = on_event
        self._make_party = role
        # Threads of evaluations send beside the session's own task.
        self._sending = asyncio.Lock()
        self._fixed = FixedSurvivors()
        # Whether the next request's total is added up here as well, of a verifiable one.
        self.check_total = True
        # The log of the last request, if it was a verifiable one that has ended well.
        self.followed: Followed | None = None

    @property
    def membership(self) -> Membership:
        """What this member has joined."""
        return self._membership

    @classmethod
    async def open(
        cls,
        membership: Membership,
        endpoint: Endpoint,
        on_event: OnEvent,
        role: MakeParty = make_party,
    ) -> HubLine:
        """Connect to the aggregator; `role` makes the party's machine. Raises what `dial` raises."""
        channel = await dial(endpoint, membership.aggregator)
        channel.on_twice = lambda: on_event(warning(membership.name, membership.aggregator))
        on_event(Event(membership.name, "connected", detail=membership.aggregator))
        return cls(membership, channel, on_event, role, endpoint.contexts)

    @property
    def live(self) -> bool:
        """Whether the aggregator is there."""
        return self._channel.live

    async def run(
        self, request: int, question: str, lanes: Lanes, charge: Charge
    ) -> tuple[Outcome, Receipt | None]:
        """See `Line.run`."""
        return await self.run_as(self._membership, request, question, lanes, charge)

    async def run_as(
        self,
        membership: Membership,
        request: int,
        question: str,
        lanes: Lanes,
        charge: Charge,
        before: int = 0,
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in a request as a member of a group; `before`: requests that others may be at still."""
        machine, receipt = await self._meet(membership, request, question, lanes, charge, before)
        return machine.result, receipt

    async def meet(
        self,
        membership: Membership,
        request: int,
        question: str,
        lanes: Lanes,
        charge: Charge,
        before: int = 0,
    ) -> dict[str, Lanes]:
        """Take part in an exchange, and return what was received from each party; see `run_as`."""
        machine, _ = await self._meet(membership, request, question, lanes, charge, before)
        received: dict[str, Lanes] = machine.state.received
        return received

    async def _meet(
        self,
        membership: Membership,
        request: int,
        question: str,
        lanes: Lanes,
        charge: Charge,
        before: int,
    ) -> tuple[Run[Any], Receipt | None]:
        if not self._channel.live:
            raise TimeoutFault({self._membership.aggregator}, "hello", "the connection is lost")
        kept = KeptRun(membership.runs_seen, membership.context(request).scope)
        machine = self._machine(membership, request, question, lanes, kept.seen)
        logged = _logged(membership)
        self.followed = None
        try:
            receipt = await self._drive(request, machine, charge, before, kept, logged)
        except SmpcError as error:
            await self.say_farewell(request, machine, error)
            tell(self._on_event, "failed", request, machine, error)
            raise
        if logged is not None:
            self.followed = machine.state.followed
        return machine, receipt

    async def ask(self, request: int, question: Envelope, step: str, seconds: float) -> bytes:
        """Send a question beside all runs and return the body of the answer; raises TimeoutFault."""
        await self.send(request, [question])
        try:
            async with asyncio.timeout(seconds):
                while True:
                    theirs, envelope = from_wire(await self._channel.receive(), self._channel.peer)
                    if theirs == request and envelope.step == step:
                        return envelope.body
        except TimeoutError:
            raise TimeoutFault({self._channel.peer}, step, "no answer") from None
        except ChannelClosed as closed:
            raise TimeoutFault({self._channel.peer}, step, str(closed)) from None

    async def decline(self, request: int, error: SmpcError) -> None:
        """See `Line.decline`."""
        await self.decline_as(self._membership, request, error)

    async def decline_as(self, membership: Membership, request: int, error: SmpcError) -> None:
        """Leave a group's request before it begins."""
        parameters = membership.parameters
        nothing = np.zeros(parameters.shape, dtype=parameters.encoding.dtype)
        machine = self._machine(membership, request, "", nothing)
        await self.say_farewell(request, machine, error)

    async def quit(self, request: int, error: SmpcError) -> None:
        """Tell the aggregator why this party leaves the session, before it does."""
        member = self._membership
        context = member.context(request)
        to = (member.aggregator,)
        told = context.write(member.identity, context.session_digest, QUIT, to, abort_of(error))
        # A channel that is gone has been told of already.
        with suppress(SmpcError):
            await self.send(request, told)

    async def close(self) -> None:
        """Say goodbye to the aggregator."""
        await self._channel.close()

    def _machine(
        self, membership: Membership, request: int, question: str, lanes: Lanes, seen: Seen = NOTHING_SEEN
    ) -> Run[Any]:
        context = membership.context(request, question)
        parameters, identity = membership.parameters, membership.identity
        make: Callable[..., Run[Any]] = self._make_party
        chosen = {}
        if _logged(membership) is not None and not self.check_total:
            chosen["check_total"], self.check_total = False, True
        return make(context, parameters, identity, lanes, fixed=self._fixed, seen=seen, **chosen)

    async def _drive(
        self,
        request: int,
        machine: Run[Any],
        charge: Charge,
        before: int,
        kept: KeptRun,
        logged: VerifiableParameters | None,
    ) -> Receipt | None:
        """Run the machine to its end; return the ledger's receipt."""
        receipt: Receipt | None = None
        # For so many parties that sign something false the run is charged when its first data is sent.
        charged = 0 if logged is None else logged.plan.max_corrupt
        timeouts = self._membership.session.timeouts
        await self.send(request, machine.handle(Start()))
        until = now() + timeouts.connect + (1 + before) * (timeouts.gather + PATIENCE * timeouts.step)
        while not machine.finished:
            tell(self._on_event, "step", request, machine)
            envelope = await self.next_envelope(request, machine, until)
            if envelope is None:
                continue
            state, due = machine.state, machine.step
            try:
                answer = await asyncio.to_thread(machine.handle, Message(envelope))
                if state.releases and answer:
                    # The first message that depends on the data: charged when it is there, before it is sent.
                    receipt = await charge(machine.run_id)
            finally:
                # Also if the run ends here: what was published stays so.
                if receipt is not None and logged is not None and machine.state.false_count > charged:
                    charged = machine.state.false_count
                    receipt = await charge(machine.run_id, logged.event_without(charged))
            if logged is not None:
                await kept.keep(machine.state.seen)
            await self.send(request, answer)
            if machine.step != due:
                until = now() + PATIENCE * timeouts.step
        return receipt

    async def next_envelope(self, request: int, machine: Machine, until: float) -> Envelope | None:
        """Return the next envelope of a request, or None for what the machine has been told instead."""
        if now() >= until:
            # Also where messages come without a pause: `asyncio.timeout_at` would not be looked at.
            machine.handle(Deadline())
            return None
        try:
            async with asyncio.timeout_at(until):
                theirs, envelope = from_wire(await self._channel.receive(), self._channel.peer)
        except TimeoutError:
            machine.handle(Deadline())
            return None
        except ChannelClosed as closed:
            if closed.clean and machine.step in (START, STATISTIC_START):
                what = "it has ended the session and serves no more requests"
                raise TimeoutFault({self._channel.peer}, machine.step, what) from None
            machine.handle(PeersLost((self._channel.peer,)))
            return None
        if theirs > request:
            raise TimeoutFault({machine.name}, machine.step, f"too late: the others are at request {theirs}")
        return envelope if theirs == request else None

    async def send(self, request: int, envelopes: Sequence[Envelope]) -> None:
        """Send messages of a request; raise TimeoutFault if the aggregator is gone."""
        for envelope in envelopes:
            try:
                async with self._sending:
                    await self._channel.send(*to_wire(request, envelope))
            except ChannelClosed as error:
                raise TimeoutFault({self._channel.peer}, envelope.step, str(error)) from None

    async def say_farewell(self, request: int, machine: Machine, error: SmpcError) -> None:
        """Tell the aggregator that the machine's party leaves, if it is there."""
        if not self._channel.live:
            return
        try:
            await self.send(request, machine.handle(Cancellation(error)))
        except SmpcError:
            # The channel is gone, and what matters has been raised already.
            return


def _logged(membership: Membership) -> VerifiableParameters | None:
    """Return the parameters of runs with a log; None of other ones."""
    parameters = membership.parameters
    if (parameters.protocol, parameters.version) != (GOPA, VERIFIABLE_VERSION):
        return None
    return cast("VerifiableParameters", parameters)
