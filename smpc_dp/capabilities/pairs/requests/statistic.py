"""Runs a party of a pairwise statistic: its evaluations in turn, each at most once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from smpc_dp.capabilities.pairs.garbled.relay import SealedConnection
from smpc_dp.capabilities.pairs.kernels.fields import Codes
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import requested_kernel
from smpc_dp.capabilities.pairs.requests.evaluation import Evaluations
from smpc_dp.capabilities.pairs.requests.pairwise import Conduit, Keep, drive, run_role
from smpc_dp.capabilities.pairs.requests.relay import HAS_LEFT, LOST, RelayedChannel, Tunnel
from smpc_dp.capabilities.pairs.roles import party_role
from smpc_dp.capabilities.pairs.statistics.compiled import is_malicious, operation_of, plan_statistic
from smpc_dp.capabilities.pairs.ustatistic.messages import (
    CONVICTION,
    PAIR,
    RELAY,
    RELAY_END,
    RESULT,
    START,
    Relay,
    RelayEnd,
)
from smpc_dp.capabilities.pairs.ustatistic.party import Evaluating
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult, event_of
from smpc_dp.capabilities.pairs.ustatistic.serving import MakePlan
from smpc_dp.capabilities.pairs.ustatistic.states import party
from smpc_dp.capabilities.pairs.ustatistic.wire import PairWire
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.engine.events import Event
from smpc_dp.engine.run import Run
from smpc_dp.errors import (
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    SmpcError,
    TimeoutFault,
    certificate_of,
)
from smpc_dp.extensions import called
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.seen import StoredRun
from smpc_dp.privacy.circuit_noise import NoiseKind
from smpc_dp.seen import Seen
from smpc_dp.session.charging import charge_run
from smpc_dp.session.connection import AggregatorConnection, AggregatorWaits
from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.deadline import PATIENCE, hello_seconds, now, pair_seconds, pairs_seconds
from smpc_dp.session.driver import Drive
from smpc_dp.session.session_file import Timeouts
from smpc_dp.session.threads import run_in_loop
from smpc_dp.transport.blocking import Halt
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger

# Of a party's record, in an error of a run that is saved.
IN_RESULT = (
    "the run may have ended, and this party's pairs may be in an estimate that others have",
    "this party's record is in no pair",
)


@dataclass(frozen=True)
class StatisticRequest:
    """A party's checked arguments of a pairwise statistic: plan, encoded record and public label."""

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
        malicious: bool = False,
    ) -> StatisticRequest:
        """Check a party's arguments for a pairwise statistic; return the request, or raise an SmpcError."""
        codes, label = kernel.record(data, public_label)
        plan = plan_statistic(
            kernel,
            parties,
            epsilon,
            delta,
            partners=partners,
            noise=noise,
            zetas=zetas,
            covert=covert,
            malicious=malicious,
        )
        return cls(plan, codes, label, operation_of(kernel, plan, noise))

    def machine(self, context: Context, identity: Identity, corrupt: int, seen: Seen) -> Run[StatisticResult]:
        """Return the party's run of one request: the state machine that draws and evaluates pairs."""
        return party(
            context, identity, self.plan, self.operation, self.public_label, corrupt=corrupt, seen=seen
        )


def plan_maker(kernels: Sequence[Kernel]) -> MakePlan:
    """Return a function from an operation (JSON) to its plan, for built-in kernels and `kernels`.

    A party whose kernel of the same name has other terms or another circuit is refused: plans are compared.
    """
    own = {kernel.name: kernel for kernel in kernels}

    def make(operation: str) -> StatisticPlan:
        """Return the plan of an operation; raise ConfigError for an unknown one."""
        try:
            return called(planned, operation)
        except LocalError as error:
            # A party may ask for an operation that fails here; that ends its request, not the aggregator.
            raise ConfigError.at("kernel", str(error), ConfigCheck.UNSUPPORTED) from None

    def planned(operation: str) -> StatisticPlan:
        try:
            requested: Any = json.loads(operation)
            kernel = own.get(requested["kernel"]) or requested_kernel(requested)
            arguments = {key: requested[key] for key in ("epsilon", "delta", "partners", "noise")}
            arguments["covert"] = requested.get("covert", 0)
            arguments["malicious"] = is_malicious(requested)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ConfigError.at("operation", f"not a statistic's ({error})", ConfigCheck.FORMAT) from None
        except LocalError as error:
            raise ConfigError.at("kernel", str(error), ConfigCheck.UNSUPPORTED) from None
        if not all(isinstance(arguments[key], int | float) for key in ("epsilon", "delta")):
            raise ConfigError.at("operation", "its budget is no number", ConfigCheck.RANGE)
        return plan_statistic(kernel, 2, **arguments)

    return make


class PairRounds(AggregatorWaits):
    """Hooks for the driver of a party's run: evaluate each of its pairs at most once, in time limits.

    An evaluation that fails is over: with fresh noise on the same records the noise would average out. So is
    one under way when the connection to the aggregator is lost, whose next messages may be lost with it, and
    each of an earlier process.
    """

    first: ClassVar[str] = START

    def __init__(
        self,
        run: Run[StatisticResult],
        identity: Identity,
        requested: StatisticRequest,
        evaluations: Evaluations,
        timeouts: Timeouts,
        reconnect: Callable[[], Awaitable[None]] | None = None,
        *,
        is_resumed: bool = False,
    ) -> None:
        """`reconnect`: as of `AggregatorWaits`, of a run that is saved; `is_resumed`: whether it goes on."""
        super().__init__(hello_seconds(timeouts), PATIENCE * timeouts.step, reconnect=reconnect)
        self._run = run
        self._pairs = PairWire(run.member)
        self._pairs.is_lossy = is_resumed
        self._identity = identity
        self._plan = requested.plan
        self._codes = requested.codes
        self._evaluations = evaluations
        self._timeouts = timeouts
        self._tunnels: dict[int, Tunnel] = {}
        self._relayed: dict[int, RelayedChannel] = {}
        # Of pairs with a direct channel.
        self._halts: dict[int, Halt] = {}
        # Why nobody waits for the partner of a matching any more.
        self._ended: dict[int, TimeoutFault] = {}
        # Whether this process evaluates, over the connection with which it has begun.
        self._is_evaluating = False
        # The matchings that this party counts as failed, and did not evaluate to their end.
        self._unfinished: set[int] = set()
        # The loop's time at which the first matching began.
        self._began = 0.0
        self._show: Callable[[int, bytes], Coroutine[None, None, None]]
        self._give: Callable[[Relay | RelayEnd], Coroutine[None, None, None]]
        self.issues: list[str] = []
        # The convictions that this party has made, by matching.
        self.convictions: dict[int, SmpcError] = {}

    async def begin_step(self, drive: Drive) -> None:
        """Begin a step: set its time limit, and charge the budget before evaluations are started."""
        await super().begin_step(drive)
        drive.timer.at += self.work_seconds(drive)
        state = self._run.state
        if isinstance(state, Evaluating):
            if not drive.saved:
                # For all evaluations, before the first begins, and before any other event is taken.
                await drive.charge()
            self._began, self._is_evaluating = now(), bool(state.evaluations)
            self._unfinished = {*state.failed, *(matching for matching, _, _ in state.evaluations)}
            self._open_tunnels(drive, state.evaluations)
            drive.begin_work(self._work(drive, state))

    def work_seconds(self, drive: Drive) -> float:
        """Return how many seconds to wait on top for other parties' pairs; 0 before the last step."""
        return pairs_seconds(self._plan.partners, self._timeouts) if drive.run.step == RESULT else 0.0

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> Event | None:
        """Handle a message of a pair's evaluation and return None; return the event of any other."""
        event = await super().event_of(drive, inbound)
        envelope = inbound.envelope
        if event is None or envelope is None:
            return event
        if envelope.step == PAIR:
            gap = self._pairs.gap_before(self._run.run_id, envelope)
            if gap is None:
                self._deliver(*self._pairs.open_pair(self._run.run_id, envelope))
            else:
                self._lose(gap)
            return None
        if envelope.step == CONVICTION:
            await asyncio.to_thread(self._take_conviction, envelope)
            return None
        if envelope.step in (RELAY, RELAY_END):
            self._handle_relayed(self._pairs.open_relay(self._run.run_id, envelope))
            return None
        return event

    async def _resume(self, drive: Drive, peer: str, reconnect: Callable[[], Awaitable[None]]) -> None:
        """Reconnect to a lost aggregator; pairs under way and later ones count as failed from then on."""
        if drive.connections.is_live(peer):
            return
        self._pairs.is_lossy = True
        if self._is_evaluating:
            self._is_evaluating = False
            self._hang_up("the connection is lost")
        await super()._resume(drive, peer, reconnect)
        await self._end_unfinished()
        for matching, error in self.convictions.items():
            # The aggregator may not have been shown it.
            if (certificate := certificate_of(error)) is not None:
                await self._show(matching, certificate)

    async def _end_unfinished(self) -> None:
        """Tell the partners of failed pairs, through the aggregator, not to wait."""
        for matching in sorted(self._unfinished):
            await self._give(RelayEnd(matching))

    async def _work(self, drive: Drive, state: Evaluating) -> list[int]:
        """Evaluate this party's pair of each matching; return the numbers of matchings that failed."""
        failed = []
        if state.failed:
            await self._end_unfinished()
        for matching, garbler, evaluator in state.evaluations:
            drive.notify("step", f"matching {matching + 1}: {garbler} with {evaluator}")
            try:
                await self._evaluate(matching, garbler, evaluator)
                self._unfinished.discard(matching)
            except asyncio.CancelledError:
                ended = self.convictions.get(matching, "the run ended before it")
                self.issues.append(f"pair {garbler}, {evaluator}: {ended}")
                raise
            except SmpcError as error:
                failed.append(matching)
                self.issues.append(f"pair {garbler}, {evaluator}: {error}")
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    # A conviction came in the place of the cancellation.
                    raise asyncio.CancelledError from None
        return failed

    def _take_conviction(self, envelope: Envelope) -> None:
        """Check and store a certificate that the aggregator passed on; refuse that party from now on."""
        drawn, circuit = self._run.state.drawn, self._plan.circuit
        convicted = self._pairs.open_conviction(self._run.run_id, drawn, circuit, envelope)
        try:
            self._evaluations.convictions.add(*convicted)
        except LocalError as error:
            # Refused all the same, while this process lasts: the other pairs go on.
            self.issues.append(str(error))

    def _hang_up(self, why: str = "the run is over") -> None:
        """End all waits of this party's evaluations, giving `why` as the reason."""
        for matching, tunnel in self._tunnels.items():
            tunnel.deliver(None)
            self._end_pair(matching, TimeoutFault({tunnel.partner}, "pair", why))

    def _end_pair(self, matching: int, why: TimeoutFault) -> None:
        """Stop waiting for a matching's partner; what has come before is still judged."""
        self._ended.setdefault(matching, why)
        if (channel := self._relayed.get(matching)) is not None:
            channel.fail(why)
        else:
            self._halts[matching].now()

    def _open_tunnels(self, drive: Drive, evaluations: Sequence[tuple[int, str, str]]) -> None:
        """Create the channels to the aggregator, and to partners through it, for all evaluations.

        Messages of the aggregator, and of a partner, may come before an evaluation's turn.
        """
        loop, own, run_id = asyncio.get_running_loop(), self._identity.name, self._run.run_id

        def check_open(matching: int) -> None:
            # A message before this one may be lost: the aggregator would take this one for a false one.
            if not self._is_evaluating:
                raise self._ended[matching]

        async def give(message: Relay | RelayEnd) -> None:
            if isinstance(message, Relay):
                check_open(message.matching)
            await drive.connections.post(drive.request, [self._pairs.write_relay(run_id, message)])

        async def show(matching: int, certificate: bytes) -> None:
            shown = self._pairs.write_conviction(run_id, matching, certificate)
            await drive.connections.post(drive.request, [shown])

        self._show, self._give = show, give

        def tunnel(matching: int, partner: str) -> Tunnel:
            async def send(content: bytes) -> None:
                check_open(matching)
                await drive.connections.post(
                    drive.request, [self._pairs.write_pair(run_id, matching, content)]
                )

            opened = Tunnel(self._pairs.aggregator, partner, loop, send)
            opened.wait(self._timeouts.gather + self._timeouts.step)
            return opened

        for matching, garbler, evaluator in evaluations:
            peer = evaluator if own == garbler else garbler
            self._tunnels[matching] = tunnel(matching, peer)
            if not self._evaluations.is_reachable(peer):
                engine = self._plan.evaluation(garbler, evaluator)
                context = self._pairs.context(run_id, matching, engine)
                connection = SealedConnection(context, self._identity, SystemRandomness())
                aggregator = self._pairs.aggregator
                self._relayed[matching] = RelayedChannel(
                    peer, aggregator, matching, connection, give, is_lossy=self._pairs.is_lossy
                )
            else:
                self._halts[matching] = Halt()

    def _deliver(self, matching: int, content: bytes) -> None:
        """Pass a message of the aggregator's role to the evaluation of the matching."""
        if (tunnel := self._tunnels.get(matching)) is not None:
            tunnel.deliver(content)

    def _lose(self, matching: int) -> None:
        """End the pair of a matching, since a message was lost with a broken connection."""
        if (tunnel := self._tunnels.get(matching)) is not None:
            tunnel.deliver(None)
            self._end_pair(matching, TimeoutFault({tunnel.partner}, "pair", LOST))

    def _handle_relayed(self, message: Relay | RelayEnd) -> None:
        """Pass a relayed frame to its channel; end the pair if the partner has left."""
        if isinstance(message, Relay):
            if (channel := self._relayed.get(message.matching)) is not None:
                channel.deliver(message)
        elif (tunnel := self._tunnels.get(message.matching)) is not None:
            # The partner may still be connected directly, or never call, and later pairs are expected.
            self._end_pair(message.matching, TimeoutFault({tunnel.partner}, "pair", HAS_LEFT))

    async def _evaluate(self, matching: int, garbler: str, evaluator: str) -> None:
        """Evaluate this party's pair of a matching; raise PeerFault if its partner is convicted."""
        peer = evaluator if self._identity.name == garbler else garbler
        convictions = self._evaluations.convictions
        try:
            convictions.check(peer)
        except PeerFault:
            # It need not wait, and nor need the aggregator.
            with contextlib.suppress(SmpcError):
                await self._give(RelayEnd(matching))
            raise
        try:
            await self._evaluate_once(matching, garbler, evaluator)
        except TimeoutFault:
            # The aggregator may have ended the pair because the partner is convicted: that is the reason.
            convictions.check(peer)
            raise

    async def _evaluate_once(self, matching: int, garbler: str, evaluator: str) -> None:
        """Evaluate this party's pair of a matching; raise TimeoutFault if it begins or ends too late."""
        own, peer = self._identity.name, self._tunnels[matching].partner
        begins, ends = (self._began + seconds for seconds in pair_seconds(matching, self._timeouts))
        if not self._is_evaluating:
            raise self._ended[matching]
        if now() > begins:
            # The partner need not wait.
            with contextlib.suppress(SmpcError):
                await self._give(RelayEnd(matching))
            raise TimeoutFault({own}, "pair", "this party came too late to it")
        late = TimeoutFault({own, peer}, "pair", "its time is over; which of the two was slow is not known")
        timer = asyncio.get_running_loop().call_at(ends, self._expire_pair, matching, late)
        try:
            await self._drive_pair(matching, garbler, evaluator, begins)
        except asyncio.CancelledError:
            self._hang_up()
            raise
        except TimeoutFault as error:
            # A role whose channels are cut does not know why. All other errors are its own findings.
            raise self._ended.get(matching, error) from None
        finally:
            timer.cancel()

    def _expire_pair(self, matching: int, late: TimeoutFault) -> None:
        """End a pair whose time has passed, with its wait for the aggregator."""
        self._end_pair(matching, late)
        self._tunnels[matching].deliver(None)

    async def _drive_pair(self, matching: int, garbler: str, evaluator: str, begins: float) -> None:
        """Run one pair's evaluation in a thread, connected to the partner directly or relayed."""
        engine = self._plan.evaluation(garbler, evaluator)
        context = self._pairs.context(self._run.run_id, matching, engine)
        randomness = SystemRandomness()
        inputs = self._plan.inputs(self._codes, randomness)
        role = party_role(context, self._identity, engine, inputs, randomness)
        tunnel, keep = self._tunnels[matching], self._keeper(matching)
        peer, channel = tunnel.partner, self._relayed.get(matching)
        if channel is None:
            label = f"{context.session_digest.hex()} matching {matching}"
            others, halt = {tunnel.peer: tunnel}, self._halts[matching]
            await self._evaluations.drive(role, engine, peer, label, others, halt, keep, begins)
            return
        step, failed = self._timeouts.step, True
        channel.open(begins - now() + step, step)
        channels: dict[str, Conduit] = {peer: channel, tunnel.peer: tunnel}
        try:
            await run_role(role, lambda: drive(role, channels, keep=keep), self._hang_up)
            failed = False
        finally:
            await channel.finish(failed)

    def _keeper(self, matching: int) -> Keep:
        """Return a function that stores the certificate of an error, and shows it to the aggregator."""
        loop = asyncio.get_running_loop()

        def keep(error: SmpcError) -> SmpcError:
            stored = self._evaluations.convictions.keep(error)
            if (certificate := certificate_of(error)) is not None:
                self.convictions[matching] = stored
                try:
                    run_in_loop(self._show(matching, certificate), loop)
                except SmpcError as failed:
                    self.issues.append(f"{stored}; the aggregator could not be shown it: {failed}")
            return stored

        return keep


async def estimate(
    requested: StatisticRequest,
    connection: AggregatorConnection,
    request: int,
    evaluations: Evaluations,
    ledger: Ledger | None,
) -> StatisticResult:
    """Take part in a request for a pairwise statistic as one party, charge its ledger, and return the result.

    Raises the errors of `Session.pairwise`, after the others are notified; a conviction that this party has
    made in place of another end of the run.
    """
    membership = connection.membership
    context, identity = membership.context(request), membership.identity
    retained = await asyncio.to_thread(StoredRun, membership.runs_seen, context.scope)
    made = requested.machine(context, identity, membership.parameters.plan.max_corrupt, retained.seen)
    event = partial(event_of, requested.plan)
    connection.state.charge_to(ledger, event, counts=False)
    run = await connection.saved(made, requested.codes)
    # Over a new connection a saved run alone goes on once it has begun.
    reconnect = connection.reconnect if connection.state.saves else None
    timeouts, is_resumed = membership.session.timeouts, connection.resumed
    rounds = PairRounds(run, identity, requested, evaluations, timeouts, reconnect, is_resumed=is_resumed)
    charge = partial(charge_run, ledger, event, request)
    options: dict[str, Any] = {"charge": charge, "retained": retained}
    try:
        receipt = await connection.complete(request, run, rounds, connection.reconnect, IN_RESULT, **options)
    except (SmpcError, asyncio.CancelledError) as error:
        if rounds.convictions:
            # Its certificate is stored; how the run ended is the lesser news.
            raise next(iter(rounds.convictions.values())) from error
        raise
    result: StatisticResult = run.result.charged(receipt)
    return replace(result, faults=tuple(rounds.issues), resumed=connection.resumed)
