"""A party of a sum whose process dies, forks and is set back; the others and the aggregator are in memory."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from smpc_dp.capabilities.gopa import states as gopa
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable import states as verifiable
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.events import Message, PeersLost, Start
from smpc_dp.engine.party import PartyRole
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import HeldResult, SentResults
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.registry import make_aggregator, make_party
from smpc_dp.engine.run import Run
from smpc_dp.engine.saved import SavedRun
from smpc_dp.engine.state import State
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.secagg import states as secagg
from smpc_dp.session.exchange import states as exchange
from smpc_dp.session.exchange.params import plan_exchange
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.abort import LEAVE
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Signer, decode, encode_envelope
from smpc_dp_lab.vectors import gopa_runs, runs, verifiable_runs

PARTY, LOST = runs.NAMES[:2]


class World:
    """The other parties and the aggregator; copied before each answer, which can so be given again."""

    def __init__(
        self, aggregator: Run[Any], others: Mapping[str, Run[Any]], held: Sequence[Envelope]
    ) -> None:
        self._aggregator, self._others, self._held = aggregator, others, held

    @classmethod
    def of(cls, ran: runs.RecordedRun) -> World:
        """Return the others after their hello."""
        others = {name: run for name, run in ran.parties.items() if name != PARTY}
        return cls(
            ran.aggregator, others, [claimed for run in others.values() for claimed in run.handle(Start())]
        )

    def copy(self) -> World:
        """Return a world that goes on by itself; transitions of parties change nothing in their states."""
        collecting = self._aggregator
        memo: dict[int, Any] = {id(error): error for error in collecting.state.inbox.excluded.values()}
        member, state = collecting.member, copy.deepcopy(collecting.state, memo)
        if isinstance(member, VerifiableAggregator):
            board, log = copy.deepcopy((member.board, member.runs), memo)
            member = dataclasses.replace(member, board=board, runs=log)
        aggregator: Run[Any] = Run(collecting.role, member, state)
        others: dict[str, Run[Any]] = {
            name: Run(run.role, run.member, run.state) for name, run in self._others.items()
        }
        return World(aggregator, others, self._held)

    def answer(self, envelope: Envelope, *, loses: bool) -> list[Envelope]:
        """Return what the party gets after it has sent an envelope; `loses`: the run loses a party before."""
        queue = [*self._held, envelope]
        sent = [*self._aggregator.handle(PeersLost((LOST,)))] if loses else []
        for claimed in queue:
            sent += self._aggregator.handle(Message(claimed))
        mine = [answer for answer in sent if answer.receiver == PARTY]
        self._held = [
            claimed
            for answer in sent
            if answer.receiver in self._others and not (loses and answer.receiver == LOST)
            for claimed in self._others[answer.receiver].handle(Message(answer))
        ]
        return mine

    @property
    def others(self) -> list[Run[Any]]:
        """The other parties."""
        return [*self._others.values()]

    @property
    def total(self) -> list[int]:
        """The aggregator's sum on the grid."""
        total: list[int] = self._aggregator.result.total.tolist()
        return total


def roles_request(scenario: runs.Scenario, request: int) -> runs.RecordedRun:
    """Return the machines of a request of a scenario's session."""
    new_run = runs.new_run(scenario)
    context = dataclasses.replace(new_run.context, request=request)
    parties = {
        name: make_party(
            context, scenario.parameters, new_run.signers[name], ring_vector.copy(), new_run.randomness[name]
        )
        for name, ring_vector in new_run.ring_vector.items()
    }
    signer = new_run.signers[runs.AGGREGATOR]
    last = SentResults(SeededRandomnessForSimulation(1, "nonce of the aggregator"))
    aggregator = make_aggregator(context, scenario.parameters, signer, board=MemoryBoard(""), last=last)
    return dataclasses.replace(new_run, context=context, parties=parties, aggregator=aggregator)


class SumScene:
    """Secure aggregation; `variant` 1 is a run that loses a party at this step, or another sum at its end."""

    role: ClassVar[PartyRole] = secagg.PARTY
    scenario: ClassVar[runs.Scenario] = runs.SCENARIOS[0]
    codec = Codec.of_party(secagg.PARTY)
    states = 10

    def __init__(
        self, request: int = 1, fixed: FixedSurvivors | None = None, last: HeldResult | None = None
    ) -> None:
        self._roles = roles_request(self.scenario, request)
        self.fixed, self.last = fixed, last
        self._ring_vector = self._roles.ring_vector[PARTY]
        self.input = self._ring_vector.tobytes()
        self._first = World.of(self._roles)
        # By what the party has sent and the variant, the answers and the world after them.
        self._reported: dict[tuple[bytes, int], tuple[list[Envelope], World]] = {}

    def process(self) -> tuple[PartyRole, Any, State]:
        signer: Signer = self._roles.signers[PARTY]
        run = make_party(
            self._roles.context,
            self.scenario.parameters,
            signer,
            self._ring_vector.copy(),
            fixed=self.fixed,
            last=self.last,
        )
        return run.role, run.member, run.state

    def answer(self, sent: Sequence[Envelope], variant: int = 0) -> Sequence[Envelope]:
        return [
            answer for claimed in sent if claimed.step != LEAVE for answer in self._answer(claimed, variant)
        ]

    def _answer(self, claimed: Envelope, variant: int) -> list[Envelope]:
        key = (encode_envelope(claimed), variant)
        if key not in self._reported:
            world = self._before(claimed).copy()
            # Without a coin nothing goes on.
            answers = world.answer(claimed, loses=bool(variant) and claimed.step != v.COIN)
            if variant:
                answers = [self._other(answer) for answer in answers]
            self._reported[key] = (answers, world)
        return self._reported[key][0]

    def _before(self, claimed: Envelope) -> World:
        """Return a world whose answer leads to a message; one without a loss, if there is one."""
        steps = self.scenario.parameters.party_steps
        if claimed.step == steps[0]:
            return self._first
        before = steps[steps.index(claimed.step) - 1]
        worlds = {
            variant: world
            for (content, variant), (answers, world) in self._reported.items()
            if decode(content, Envelope, PARTY).step == before
            and claimed.run_id in {answer.run_id for answer in answers}
        }
        return worlds[min(worlds)]

    def _other(self, answer: Envelope) -> Envelope:
        """Return another result, or other coins: a loss changes none."""
        context, signers = self._roles.context, self._roles.signers
        other: msgspec.Struct
        match answer.step:
            case m.RESULT:
                total = decode(answer.body, m.Result, answer.sender).total
                other = m.Result(bytes([total[0] ^ 1]) + total[1:])
            case v.COINS:
                claimed = decode(answer.body, v.Coins, answer.sender)
                other = v.Coins(bytes([claimed.coins[0] ^ 1]) + claimed.coins[1:], claimed.signatures)
            case _:
                return answer
        [changed] = context.write(signers[answer.sender], answer.run_id, answer.step, (PARTY,), other)
        return changed

    def check(self, run: SavedRun[Any]) -> None:
        outcome = run.result
        assert outcome.survivors == self.scenario.names
        [*_, world] = [world for (_, variant), (_, world) in self._reported.items() if not variant]
        assert outcome.total.tolist() == world.total
        self.check_total(world.total)

    def check_total(self, total: list[int]) -> None:
        parameters, ring_vector = self.scenario.parameters, self._roles.ring_vector
        sum_of_all = sum(ring_vector.values(), start=0 * self._ring_vector)
        expected, _ = parameters.decode(sum_of_all, len(ring_vector))
        assert total == expected.values.tolist()


class GopaScene(SumScene):
    """GOPA where noise of lost parties stays in: the total has noise, and is the aggregator's."""

    role = gopa.PARTY
    scenario = next(one for one in gopa_runs.SCENARIOS if one.parameters.on_dropout == "keep")
    codec = Codec.of_party(gopa.PARTY)
    states = 7

    def check_total(self, total: list[int]) -> None:
        assert len(total) == self.scenario.encoding.length


class VerifiableScenario(runs.Scenario):
    """Five parties, two coordinates, and as little noise as there can be."""

    @property
    def parameters(self) -> SumParameters:
        return VERIFIED

    @property
    def operation(self) -> str:
        return f"average {VERIFIED.planned()}"


VERIFIED = verifiable_runs.parameters()
VERIFIABLE = VerifiableScenario(
    "verifiable", "", VERIFIED.encoding, VERIFIED.plan, tuple(verifiable_runs.INPUTS.values())
)


class VerifiableScene(SumScene):
    """Verifiable GOPA: a party says nothing after the first of two messages that come together, twice."""

    role = verifiable.PARTY
    scenario = VERIFIABLE
    codec = Codec.of_party(verifiable.PARTY)
    states = 14

    def check_total(self, total: list[int]) -> None:
        assert len(total) == self.scenario.encoding.length


class ExchangeScenario(runs.Scenario):
    """An exchange of four parties, of which one may be missing."""

    @property
    def parameters(self) -> SumParameters:
        return EXCHANGED


EXCHANGED = plan_exchange(4, length=3, l2_bound=4.0, precision=0.01, epsilon=1.0, delta=1e-6, missing=1)
EXCHANGE = ExchangeScenario("exchange", "", EXCHANGED.encoding, EXCHANGED.plan, runs.ROWS[:4])


class ExchangeScene(SumScene):
    """An exchange: no step attests, the run's first message is the release, and the party has the sum."""

    role = exchange.PARTY
    scenario = EXCHANGE
    codec = Codec.of_party(exchange.PARTY)
    states = 4

    def check(self, run: SavedRun[Any]) -> None:
        assert run.result.survivors == self.scenario.names
        [*_, world] = [world for (_, variant), (_, world) in self._reported.items() if not variant]
        for other in world.others:
            assert run.result.total.tolist() == other.result.total.tolist()
