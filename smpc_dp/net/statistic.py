"""Runs a party of a pairwise statistic: its evaluations in turn, each once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import Check, ConfigCheck, ConfigError, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.identity.keys import Identity
from smpc_dp.kernels.fields import Codes
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.kernels.named import kernel_of, registered_kernel
from smpc_dp.net.charging import charge_run
from smpc_dp.net.connection import AggregatorConnection, AggregatorWaits
from smpc_dp.net.connection_pool import InboundEvent
from smpc_dp.net.convictions import CERTIFICATE
from smpc_dp.net.deadline import PATIENCE, pairs_seconds
from smpc_dp.net.driver import Drive
from smpc_dp.net.evaluation import Evaluations
from smpc_dp.net.pairwise import drive
from smpc_dp.net.relay import HAS_LEFT, RelayedChannel, Tunnel
from smpc_dp.net.seen import StoredRun
from smpc_dp.net.session_file import Timeouts
from smpc_dp.net.threads import run_in_thread
from smpc_dp.net.transport.blocking import Halt
from smpc_dp.privacy.circuit_noise import NoiseKind
from smpc_dp.protocols.covert.roles import party_role
from smpc_dp.protocols.engine.events import Event
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.garbled.relay import SealedConnection
from smpc_dp.protocols.ustatistic.messages import (
    CONVICTION,
    PAIR,
    RELAY,
    RELAY_END,
    RESULT,
    Relay,
    RelayEnd,
)
from smpc_dp.protocols.ustatistic.plan import StatisticPlan
from smpc_dp.protocols.ustatistic.result import StatisticResult, event_of
from smpc_dp.protocols.ustatistic.serving import MakePlan
from smpc_dp.protocols.ustatistic.states import party
from smpc_dp.protocols.ustatistic.wire import PairWire
from smpc_dp.seen import Seen
from smpc_dp.statistics.compiled import operation_of, plan_statistic
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger


@dataclass(frozen=True)
class StatisticRequest:
    """Checked request: statistic, codes of the party's record, shape (1, fields), and public label."""

    plan: StatisticPlan
    codes: Codes
    public_label: int
    operation: str

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
        public_label: int | None,
        covert: int,
    ) -> StatisticRequest:
        """Check everything that a party can check alone; errors as of `Session.pairwise`."""
        codes, label = kernel.record(data, public_label)
        plan = plan_statistic(
            kernel, parties, epsilon, delta, partners=partners, noise=noise, zetas=zetas, covert=covert
        )
        return cls(plan, codes, label, operation_of(kernel, plan, noise))

    def machine(self, context: Context, identity: Identity, corrupt: int, seen: Seen) -> Run[StatisticResult]:
        """Return the party's role in one request; `corrupt` and `seen` as of `statistic_states.party`."""
        return party(
            context, identity, self.plan, self.operation, self.public_label, corrupt=corrupt, seen=seen
        )


def plan_maker(kernels: Sequence[Kernel]) -> MakePlan:
    """Return a function that compiles an operation: for kernels known by name, and for these.

    A party whose kernel of the same name has other terms or another circuit is refused: plans are compared.
    """
    own = {kernel.name: kernel for kernel in kernels}

    def make(operation: str) -> StatisticPlan:
        """Return the plan of an operation; raise ConfigError for an unknown one."""
        try:
            requested: Any = json.loads(operation)
            kernel = own.get(name := requested["kernel"]) or registered_kernel(name) or kernel_of(requested)
            arguments = {key: requested[key] for key in ("epsilon", "delta", "partners", "noise")}
            arguments["covert"] = requested.get("covert", 0)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ConfigError.at("operation", f"not a statistic's ({error})", ConfigCheck.FORMAT) from None
        except LocalError as error:
            # A party may ask for an operation that fails here; that ends its request, not the aggregator.
            raise ConfigError.at("kernel", str(error), ConfigCheck.UNSUPPORTED) from None
        if not all(isinstance(arguments[key], int | float) for key in ("epsilon", "delta")):
            raise ConfigError.at("operation", "its budget is no number", ConfigCheck.RANGE)
        return plan_statistic(kernel, 2, **arguments)

    return make


class PairRounds(AggregatorWaits):
    """All evaluations of one party in one run, in the order of the matchings, each exactly once.

    An evaluation that fails is over: with fresh noise on the same records the noise would average out.
    """

    def __init__(
        self,
        run: Run[StatisticResult],
        identity: Identity,
        requested: StatisticRequest,
        evaluations: Evaluations,
        timeouts: Timeouts,
    ) -> None:
        later = PATIENCE * timeouts.step
        super().__init__(timeouts.connect + timeouts.gather + later, later)
        self._run = run
        self._pairs = PairWire(run.member)
        self._identity = identity
        self._plan = requested.plan
        self._codes = requested.codes
        self._evaluations = evaluations
        self._timeouts = timeouts
        self._tunnels: dict[int, Tunnel] = {}
        self._relayed: dict[int, RelayedChannel] = {}
        # Tunnels of pairs with a direct channel, and the matchings that the aggregator has ended.
        self._halts: dict[int, Halt] = {}
        self._left: set[int] = set()
        self._show: Callable[[int, bytes], Awaitable[None]]
        self._give: Callable[[Relay | RelayEnd], Awaitable[None]]
        self.issues: list[str] = []

    async def begin_step(self, drive: Drive) -> None:
        """Begin the evaluations once they are drawn; see `Holder.begin_step`."""
        await super().begin_step(drive)
        if self._run.step == RESULT:
            # Others may be at their pairs for as long as this.
            # For all evaluations, before the first begins, and before any other event is taken.
            await drive.charge()
            drive.timer.at += pairs_seconds(self._plan.partners, self._timeouts)
            self._open_tunnels(drive, self._run.state.evaluations)
            drive.begin_work(self._work(drive, self._run.state.evaluations))

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> Event | None:
        """Take messages of evaluations, beside the steps; see `Holder.event_of`."""
        event = await super().event_of(drive, inbound)
        envelope = inbound.envelope
        if event is None or envelope is None:
            return event
        if envelope.step == PAIR:
            self._deliver(*self._pairs.open_pair(self._run.run_id, envelope))
            return None
        if envelope.step == CONVICTION:
            await asyncio.to_thread(self._take_conviction, envelope)
            return None
        if envelope.step in (RELAY, RELAY_END):
            self._deliver_relayed(self._pairs.open_relay(self._run.run_id, envelope))
            return None
        return event

    async def _work(self, drive: Drive, evaluations: Sequence[tuple[int, str, str]]) -> list[int]:
        """Evaluate all pairs, and return the matchings that failed."""
        failed = []
        for matching, garbler, evaluator in evaluations:
            drive.notify("step", f"matching {matching + 1}: {garbler} with {evaluator}")
            try:
                await self._evaluate(matching, garbler, evaluator)
            except asyncio.CancelledError:
                self.issues.append(f"pair {garbler}, {evaluator}: the run ended before it")
                raise
            except SmpcError as error:
                failed.append(matching)
                self.issues.append(f"pair {garbler}, {evaluator}: {error}")
        return failed

    def _take_conviction(self, envelope: Envelope) -> None:
        """Refuse, from now on, a party that the aggregator shows to be convicted; makes a copy again."""
        drawn, circuit = self._run.state.drawn, self._plan.circuit
        convicted = self._pairs.open_conviction(self._run.run_id, drawn, circuit, envelope)
        try:
            self._evaluations.convictions.add(*convicted)
        except LocalError as error:
            # Refused all the same, while this process lasts: the other pairs go on.
            self.issues.append(str(error))

    def _hang_up(self) -> None:
        """End the evaluations' waits: the run is over."""
        for tunnel in self._tunnels.values():
            tunnel.deliver(None)
        for channel in self._relayed.values():
            channel.deliver(None)

    def _open_tunnels(self, drive: Drive, evaluations: Sequence[tuple[int, str, str]]) -> None:
        """Open the channels of all evaluations through the aggregator.

        Messages of the aggregator, and of a partner, may come before an evaluation's turn.
        """
        loop, own, run_id = asyncio.get_running_loop(), self._identity.name, self._run.run_id

        async def give(message: Relay | RelayEnd) -> None:
            await drive.connections.post(drive.request, [self._pairs.write_relay(run_id, message)])

        async def show(matching: int, certificate: bytes) -> None:
            shown = self._pairs.write_conviction(run_id, matching, certificate)
            await drive.connections.post(drive.request, [shown])

        self._show, self._give = show, give

        def tunnel(matching: int) -> Tunnel:
            async def send(content: bytes) -> None:
                await drive.connections.post(
                    drive.request, [self._pairs.write_pair(run_id, matching, content)]
                )

            opened = Tunnel(self._pairs.aggregator, loop, send)
            opened.wait(self._timeouts.gather + self._timeouts.step)
            return opened

        for matching, garbler, evaluator in evaluations:
            self._tunnels[matching] = tunnel(matching)
            peer = evaluator if own == garbler else garbler
            if not self._evaluations.is_reachable(peer):
                context = self._pairs.context(run_id, matching, garbler, evaluator)
                connection = SealedConnection(context, self._identity, SystemRandomness())
                aggregator = self._pairs.aggregator
                self._relayed[matching] = RelayedChannel(peer, aggregator, matching, connection, give)
            else:
                self._halts[matching] = Halt()

    def _deliver(self, matching: int, content: bytes) -> None:
        """Take a message of the aggregator's role in the evaluation of a matching."""
        if (tunnel := self._tunnels.get(matching)) is not None:
            tunnel.deliver(content)

    def _deliver_relayed(self, message: Relay | RelayEnd) -> None:
        """Take a relayed frame, or the end of a relayed pair."""
        if (channel := self._relayed.get(message.matching)) is not None:
            channel.deliver(message)
        elif isinstance(message, RelayEnd) and (halt := self._halts.get(message.matching)) is not None:
            # The partner has left this pair: it may still be connected, or never call, and later pairs are
            # expected.
            self._left.add(message.matching)
            halt.now()

    async def _evaluate(self, matching: int, garbler: str, evaluator: str) -> None:
        """Evaluate one pair; a partner that is convicted of cheating is refused, and shown to be."""
        peer = evaluator if self._identity.name == garbler else garbler
        convictions = self._evaluations.convictions
        certificate: bytes | None = None
        try:
            with convictions.watch(peer):
                try:
                    await self._evaluate_once(matching, garbler, evaluator)
                except PeerFault as error:
                    certificate = error.evidence.get(CERTIFICATE)
                    raise
        except PeerFault as error:
            if certificate is None and error.check == Check.CONVICTED:
                # Refused: it need not wait, and nor need the aggregator.
                await self._give(RelayEnd(matching))
            raise
        except TimeoutFault:
            # The aggregator may have ended the pair because the partner is convicted: that is the reason.
            convictions.check(peer)
            raise
        finally:
            # Also if it could not be stored here.
            if certificate is not None:
                await self._show(matching, certificate)

    async def _evaluate_once(self, matching: int, garbler: str, evaluator: str) -> None:
        """Evaluate one pair over the partner's channel, or relayed."""
        engine = self._plan.evaluation(garbler, evaluator)
        context = self._pairs.context(self._run.run_id, matching, garbler, evaluator)
        own, randomness = self._identity.name, SystemRandomness()
        inputs = self._plan.inputs(self._codes, randomness)
        role = party_role(context, self._identity, engine, inputs, randomness)
        peer = evaluator if own == garbler else garbler
        label = f"{context.session_digest.hex()} matching {matching}"
        tunnel = self._tunnels[matching]
        channel = self._relayed.get(matching)
        if channel is None:
            others = {tunnel.peer: tunnel}
            try:
                await self._evaluations.drive(role, engine, peer, label, others, self._halts[matching])
            except asyncio.CancelledError:
                self._hang_up()
                raise
            except SmpcError:
                if matching not in self._left:
                    raise
                raise TimeoutFault({peer}, "pair", HAS_LEFT) from None
            return
        timeouts, failed = self._timeouts, True
        channel.open(timeouts.gather + timeouts.step, timeouts.step)
        try:
            await run_in_thread(lambda: drive(role, {peer: channel, tunnel.peer: tunnel}))
            failed = False
        except asyncio.CancelledError:
            self._hang_up()
            raise
        finally:
            await channel.finish(failed)


async def estimate(
    requested: StatisticRequest,
    connection: AggregatorConnection,
    request: int,
    evaluations: Evaluations,
    ledger: Ledger | None,
) -> StatisticResult:
    """Take part in a request as one party.

    Raises the errors of `Session.pairwise`, after the others are notified.
    """
    membership = connection.membership
    context, identity = membership.context(request), membership.identity
    retained = await asyncio.to_thread(StoredRun, membership.runs_seen, context.scope)
    run = requested.machine(context, identity, membership.parameters.plan.max_corrupt, retained.seen)
    rounds = PairRounds(run, identity, requested, evaluations, membership.session.timeouts)
    charge = partial(charge_run, ledger, partial(event_of, requested.plan), request)
    receipt = await connection.drive(request, run, rounds, charge=charge, retained=retained).to_end()
    return replace(run.result.charged(receipt), faults=tuple(rounds.issues))
