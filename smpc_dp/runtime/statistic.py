"""Runs a party of a pairwise statistic: its evaluations one after the other, each once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import ConfigError, Fault, LocalError, SmpcError, TimeoutFault
from smpc_dp.identity import Identity
from smpc_dp.kernels.fields import Codes, as_array
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.kernels.named import kernel_of, registered_kernel
from smpc_dp.privacy.circuit_noise import NoiseKind
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.events import Message, Report, Start
from smpc_dp.protocols.engine.run import Machine, Run
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.pairwise.evaluator import EvaluatorRole
from smpc_dp.protocols.pairwise.garbler import GarblerRole
from smpc_dp.protocols.pairwise.relay import SealedLine
from smpc_dp.protocols.pairwise.statistic import StatisticPlan
from smpc_dp.protocols.pairwise.statistic_messages import (
    PAIR,
    RELAY,
    RELAY_END,
    Relay,
    RelayEnd,
)
from smpc_dp.protocols.pairwise.statistic_party import Evaluating
from smpc_dp.protocols.pairwise.statistic_result import StatisticResult, event_of
from smpc_dp.protocols.pairwise.statistic_serving import MakePlan
from smpc_dp.protocols.pairwise.statistic_states import party
from smpc_dp.protocols.pairwise.statistic_wire import PairWire
from smpc_dp.runtime.deadline import PATIENCE, now, pairs_seconds
from smpc_dp.runtime.evaluation import Evaluations
from smpc_dp.runtime.events import Kind
from smpc_dp.runtime.line import HubLine
from smpc_dp.runtime.pairwise import drive
from smpc_dp.runtime.relay import HAS_LEFT, RelayedChannel, Tunnel
from smpc_dp.runtime.seen import KeptRun
from smpc_dp.runtime.session_file import Timeouts
from smpc_dp.runtime.threads import in_thread
from smpc_dp.seen import Seen
from smpc_dp.statistics.compiled import plan_statistic, question_of
from smpc_dp.transport.blocking import Halt

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.accountant.receipt import Receipt


class Wire(Protocol):
    """What a session gives: its channel to the aggregator, its ledger, and who watches it."""

    async def send(self, envelopes: Sequence[Envelope]) -> None: ...

    async def next_envelope(self, machine: Machine, until: float) -> Envelope | None: ...

    async def charge_event(self, run_id: bytes, event: Event) -> Receipt | None: ...

    def tell(self, kind: Kind, machine: Machine, detail: str | SmpcError = "") -> None: ...


class SessionWire:
    """The wire of one request of a session: its channel, its ledger, and who watches it."""

    def __init__(
        self,
        line: HubLine,
        request: int,
        tell: Callable[[Kind, Machine, str | SmpcError], None],
        charge: Callable[[bytes, Callable[[], Event]], Awaitable[Receipt | None]],
    ) -> None:
        self._line = line
        self._request = request
        self._tell = tell
        self._charge = charge

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send to the aggregator."""
        await self._line.send(self._request, envelopes)

    async def next_envelope(self, machine: Machine, until: float) -> Envelope | None:
        """Return the next message of the request, as `HubLine.next_envelope` does."""
        return await self._line.next_envelope(self._request, machine, until)

    async def charge_event(self, run_id: bytes, event: Event) -> Receipt | None:
        """Charge an event to the ledger, if there is one."""
        return await self._charge(run_id, lambda: event)

    def tell(self, kind: Kind, machine: Machine, detail: str | SmpcError = "") -> None:
        """Tell who watches."""
        self._tell(kind, machine, detail)


@dataclass(frozen=True)
class Asked:
    """A checked request: the compiled statistic, the own record's codes, shape (1, fields), and the mark."""

    plan: StatisticPlan
    codes: Codes
    mark: int
    question: str

    @classmethod
    def check(
        cls,
        kernel: Kernel,
        data: Any,
        *,
        parties: int,
        epsilon: float,
        delta: float,
        partners: int | None,
        noise: NoiseKind,
        zetas: tuple[float, float] | None,
        mark: int | None,
    ) -> Asked:
        """Check everything that one party can check alone; errors as of `Session.pairwise`."""
        record = data if isinstance(data, tuple) else (data,)
        codes = kernel.codes(tuple(np.atleast_1d(as_array("data", value)) for value in record))
        if len(codes) != 1:
            raise ConfigError([Fault("data", f"one record is due, not {len(codes)}")])
        whole = isinstance(mark, int | np.integer) and mark in (0, 1)
        if whole != (kernel.labels == "public") or (mark is not None and not whole):
            raise ConfigError([Fault("mark", f"{mark!r}: 0 or 1 for a kernel with public labels, else None")])
        plan = plan_statistic(kernel, parties, epsilon, delta, partners=partners, noise=noise, zetas=zetas)
        return cls(plan, codes, -1 if mark is None else int(mark), question_of(kernel, plan, noise))

    def machine(self, context: Context, identity: Identity, corrupt: int, seen: Seen) -> Run[StatisticResult]:
        """Return the party's role in one request; `corrupt` and `seen` as of `statistic_states.party`."""
        return party(context, identity, self.plan, self.question, self.mark, corrupt=corrupt, seen=seen)


def plan_maker(kernels: Sequence[Kernel]) -> MakePlan:
    """Return how an aggregator compiles a question: for kernels known by name, and for these.

    A party whose kernel of the same name has other terms or another circuit is refused: plans are compared.
    """
    own = {kernel.name: kernel for kernel in kernels}

    def make(question: str) -> StatisticPlan:
        try:
            asked: Any = json.loads(question)
            kernel = own.get(name := asked["kernel"]) or registered_kernel(name) or kernel_of(asked)
            arguments = {key: asked[key] for key in ("epsilon", "delta", "partners", "noise")}
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ConfigError([Fault("question", f"not a statistic's ({error})")]) from None
        except LocalError as error:
            # A party may ask for what is broken here; that ends its request, not the aggregator.
            raise ConfigError([Fault("kernel", str(error))]) from None
        if not all(isinstance(arguments[key], int | float) for key in ("epsilon", "delta")):
            raise ConfigError([Fault("question", "its budget is no number")])
        return plan_statistic(kernel, 2, **arguments)

    return make


class PairRounds:
    """All evaluations of one party in one run, in the order of the matchings, each exactly once.

    An evaluation that fails is over: with fresh noise on the same records the noise would average out.
    """

    def __init__(
        self,
        machine: Run[StatisticResult],
        identity: Identity,
        asked: Asked,
        evaluations: Evaluations,
        wire: Wire,
        timeouts: Timeouts,
        kept: KeptRun,
    ) -> None:
        self._machine = machine
        # Its steps are taken one after the other, though evaluations end beside its messages.
        self._stepping = asyncio.Lock()
        self._pairs = PairWire(machine.member)
        self._identity = identity
        self._plan = asked.plan
        self._codes = asked.codes
        self._evaluations = evaluations
        self._wire = wire
        self._timeouts = timeouts
        self._kept = kept
        self._tunnels: dict[int, Tunnel] = {}
        self._relayed: dict[int, RelayedChannel] = {}
        # Of pairs with a channel of their own, and which of them the aggregator has ended.
        self._halts: dict[int, Halt] = {}
        self._left: set[int] = set()
        self.faults: list[str] = []

    async def drive(self) -> Receipt | None:
        """Run machine and evaluations to the end; return the ledger's receipt.

        The ledger is charged for all evaluations before the first one begins.
        """
        receipt: Receipt | None = None
        working: asyncio.Task[None] | None = None
        machine, wire, timeouts = self._machine, self._wire, self._timeouts
        await wire.send(machine.handle(Start()))
        until = now() + timeouts.connect + timeouts.gather + PATIENCE * timeouts.step
        try:
            while not machine.finished:
                wire.tell("step", machine)
                envelope = await wire.next_envelope(machine, until)
                if envelope is None:
                    continue
                if envelope.step == PAIR:
                    self._deliver(*self._pairs.open_pair(machine.run_id, envelope))
                    continue
                if envelope.step in (RELAY, RELAY_END):
                    self._deliver_relayed(self._pairs.open_relay(machine.run_id, envelope))
                    continue
                step = machine.step
                async with self._stepping:
                    answer = await asyncio.to_thread(machine.handle, Message(envelope))
                await self._kept.keep(machine.state.seen)
                await wire.send(answer)
                if machine.step != step:
                    until = now() + PATIENCE * timeouts.step
                if working is None and isinstance(state := machine.state, Evaluating):
                    event = await asyncio.to_thread(event_of, self._plan)
                    receipt = await wire.charge_event(machine.run_id, event)
                    self._open_tunnels(state.evaluations)
                    working = asyncio.create_task(self._work(state.evaluations))
                    # Others may be at their pairs for as long as this.
                    until += pairs_seconds(self._plan.partners, timeouts)
        finally:
            for tunnel in self._tunnels.values():
                tunnel.deliver(None)
            for channel in self._relayed.values():
                channel.deliver(None)
            if working is not None:
                working.cancel()
                await asyncio.wait([working])
                # The aggregator reports an error of the protocol. One of this program is raised here.
                if not working.cancelled() and not isinstance(error := working.exception(), SmpcError | None):
                    raise error
        return receipt

    async def _work(self, evaluations: Sequence[tuple[int, str, str]]) -> None:
        failed = []
        for matching, garbler, evaluator in evaluations:
            what = f"matching {matching + 1}: {garbler} with {evaluator}"
            self._wire.tell("step", self._machine, what)
            try:
                await self._evaluate(matching, garbler, evaluator)
            except asyncio.CancelledError:
                self.faults.append(f"pair {garbler}, {evaluator}: the run ended before it")
                raise
            except SmpcError as error:
                failed.append(matching)
                self.faults.append(f"pair {garbler}, {evaluator}: {error}")
        async with self._stepping:
            done = self._machine.handle(Report(failed))
        await self._wire.send(done)

    def _open_tunnels(self, evaluations: Sequence[tuple[int, str, str]]) -> None:
        """Open all at once: the aggregator's words, and a partner's, may come before an evaluation's turn."""
        loop, own = asyncio.get_running_loop(), self._identity.name
        for matching, garbler, evaluator in evaluations:
            self._tunnels[matching] = self._tunnel(matching, loop)
            peer = evaluator if own == garbler else garbler
            if not self._evaluations.is_reachable(peer):
                context = self._pairs.context(self._machine.run_id, matching, garbler, evaluator)
                line = SealedLine(context, self._identity, SystemRandomness())
                hub = self._pairs.aggregator
                self._relayed[matching] = RelayedChannel(peer, hub, matching, line, self._give)
            else:
                self._halts[matching] = Halt()

    def _deliver(self, matching: int, content: bytes) -> None:
        """Take a message of the aggregator's role in the evaluation of a matching."""
        if (tunnel := self._tunnels.get(matching)) is not None:
            tunnel.deliver(content)

    def _deliver_relayed(self, message: Relay | RelayEnd) -> None:
        if (channel := self._relayed.get(message.matching)) is not None:
            channel.deliver(message)
        elif isinstance(message, RelayEnd) and (halt := self._halts.get(message.matching)) is not None:
            # The partner is gone: it can still have a connection, or never call, and later pairs are due.
            self._left.add(message.matching)
            halt.now()

    async def _give(self, message: Relay | RelayEnd) -> None:
        await self._wire.send((self._pairs.write_relay(self._machine.run_id, message),))

    def _tunnel(self, matching: int, loop: asyncio.AbstractEventLoop) -> Tunnel:
        async def send(content: bytes) -> None:
            await self._wire.send((self._pairs.write_pair(self._machine.run_id, matching, content),))

        tunnel = Tunnel(self._pairs.aggregator, loop, send)
        tunnel.wait(self._timeouts.gather + self._timeouts.step)
        return tunnel

    async def _evaluate(self, matching: int, garbler: str, evaluator: str) -> None:
        engine = self._plan.evaluation(garbler, evaluator)
        context = self._pairs.context(self._machine.run_id, matching, garbler, evaluator)
        own, randomness = self._identity.name, SystemRandomness()
        kind = GarblerRole if own == garbler else EvaluatorRole
        role = kind(context, self._identity, engine, self._plan.inputs(self._codes, randomness), randomness)
        peer = evaluator if own == garbler else garbler
        label = f"{context.session_digest.hex()} matching {matching}"
        tunnel = self._tunnels[matching]
        channel = self._relayed.get(matching)
        if channel is None:
            others = {tunnel.peer: tunnel}
            try:
                await self._evaluations.drive(role, engine, peer, label, others, self._halts[matching])
            except SmpcError:
                if matching not in self._left:
                    raise
                raise TimeoutFault({peer}, "pair", HAS_LEFT) from None
            return
        timeouts, failed = self._timeouts, True
        channel.open(timeouts.gather + timeouts.step, timeouts.step)
        try:
            await in_thread(lambda: drive(role, {peer: channel, tunnel.peer: tunnel}))
            failed = False
        finally:
            await channel.finish(failed)


async def estimate(
    asked: Asked, line: HubLine, request: int, evaluations: Evaluations, wire: SessionWire
) -> StatisticResult:
    """Take part in a request as one party; raise what `Session.pairwise` does, after the others were told."""
    membership = line.membership
    context, identity = membership.context(request), membership.identity
    kept = await asyncio.to_thread(KeptRun, membership.runs_seen, context.scope)
    corrupt, timeouts = membership.parameters.plan.max_corrupt, membership.session.timeouts
    machine = asked.machine(context, identity, corrupt, kept.seen)
    rounds = PairRounds(machine, identity, asked, evaluations, wire, timeouts, kept)
    try:
        receipt = await rounds.drive()
    except SmpcError as error:
        await line.say_farewell(request, machine, error)
        wire.tell("failed", machine, error)
        raise
    return replace(machine.result.charged(receipt), faults=tuple(rounds.faults))
