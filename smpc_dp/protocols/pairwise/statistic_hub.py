"""The aggregator of a pairwise statistic: it gathers coins, receives each pair's output and estimates."""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import ConfigError, Fault, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.pairwise import statistic_messages as m
from smpc_dp.protocols.pairwise.aggregator import AggregatorRole
from smpc_dp.protocols.pairwise.draw import commit
from smpc_dp.protocols.pairwise.estimate import estimate
from smpc_dp.protocols.pairwise.participant import Evaluated
from smpc_dp.protocols.pairwise.statistic import StatisticPlan
from smpc_dp.protocols.pairwise.statistic_result import StatisticEvidence, StatisticResult, result_of
from smpc_dp.protocols.pairwise.statistic_terms import (
    Draw,
    commitment_run,
    draw,
    pair_context,
    quorum,
    run_identifier,
    statistic_context,
)
from smpc_dp.protocols.pairwise.turns import Receive, Send, Turns
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp.protocols.star import HubRole

MakePlan = Callable[[str], StatisticPlan]


@dataclass(slots=True)
class _Evaluation:
    """The aggregator's role in the evaluation of one pair."""

    role: AggregatorRole
    turns: Turns[Evaluated]
    waits: Receive | None = None
    inboxes: dict[str, deque[bytes]] = field(default_factory=dict)
    over: bool = False


class StatisticHub(HubRole[StatisticResult]):
    """The aggregator in one run.

    `make_plan` compiles what the parties ask for; it raises ConfigError for what it does not know.
    """

    def __init__(
        self,
        context: Context,
        identity: Signer,
        make_plan: MakePlan,
        randomness: Randomness | None = None,
    ) -> None:
        super().__init__(statistic_context(context), identity)
        self._make_plan = make_plan
        self._random = randomness or SystemRandomness()
        self._plan: StatisticPlan | None = None
        self._draw: Draw | None = None
        self._hellos: dict[int, m.Hello] = {}
        self._coins: dict[int, bytes] = {}
        self._evaluations: dict[tuple[int, tuple[str, str]], _Evaluation] = {}
        self._outputs: dict[tuple[int, tuple[str, str]], int] = {}
        self._sent_pairs: dict[tuple[str, int], int] = {}
        self._seen_pairs: dict[tuple[str, int], int] = {}
        self._steps = {
            m.HELLO: (self._on_hello, self._start),
            m.COIN: (self._on_coin, self._match),
            m.DONE: (self._on_done, self._estimate),
        }

    def receive(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take one party's message; a fault of the party excludes it."""
        if envelope.step != m.PAIR:
            return super().receive(envelope)
        party = self._number.get(envelope.sender)
        if self._over or party is None or party not in self._alive or self._draw is None:
            return ()
        try:
            return self._with_untold(self._tunnel(envelope, self._draw))
        except PeerFault as fault:
            return self._exclude(party, fault)

    def _needed(self) -> int:
        if self.step == m.COIN:
            # Without every coin there is no draw that nobody has chosen.
            return len(self._hellos)
        return quorum(self._parties) if self.step == m.HELLO else 0

    def _drop(self, party: int, error: SmpcError) -> None:
        if self.step == m.HELLO:
            self._hellos.pop(party, None)
        super()._drop(party, error)

    def _on_hello(self, party: int, envelope: Envelope) -> None:
        sender = envelope.sender
        hello = decode(envelope.body, m.Hello, sender)
        if hello.session_digest != self._context.session_digest or hello.request != self._context.request:
            raise PeerFault(sender, "its hello is for another session or request")
        try:
            plan = self._plan or self._make_plan(hello.question)
        except ConfigError as error:
            raise PeerFault(sender, f"asks for a statistic that cannot be had here: {error}") from None
        if hello.plan != plan.digest:
            raise PeerFault(sender, "asks for another statistic than it says, or than others do")
        if (hello.mark >= 0) != plan.bipartite:
            raise PeerFault(sender, "has a public label where none is due, or none where one is")
        self._plan = plan
        self._hellos[party] = hello

    def _start(self) -> list[Envelope]:
        marks = bytes(self._hellos[party].mark + 1 for party in sorted(self._hellos))
        if self._the_plan.bipartite and len(set(marks)) < 2:
            raise ConfigError([Fault("labels", "all who take part have the same one")])
        present = pack_set(self._hellos, self._parties)
        commitments = b"".join(self._hellos[party].commitment for party in sorted(self._hellos))
        self._marks = marks
        self._run_id = run_identifier(self._context, self._the_plan, present, commitments, marks)
        return self._broadcast(m.START, m.Start(present, commitments, marks))

    def _on_coin(self, party: int, envelope: Envelope) -> None:
        coin = decode(envelope.body, m.Coin, envelope.sender).coin
        made = commit(commitment_run(self._context, self._the_plan), envelope.sender, coin)
        if not hmac.compare_digest(made, self._hellos[party].commitment):
            raise PeerFault(envelope.sender, "opened a coin that it had not committed to")
        self._coins[party] = coin

    def _match(self) -> list[Envelope]:
        coins = b"".join(self._coins[party] for party in sorted(self._coins))
        names = [self._name_of(party) for party in sorted(self._coins)]
        self._draw = draw(self._the_plan, self._run_id, names, self._marks, coins)
        return self._broadcast(m.MATCHED, m.Matched(coins))

    def _on_done(self, _party: int, envelope: Envelope) -> None:
        decode(envelope.body, m.Done, envelope.sender)

    def _estimate(self) -> list[Envelope]:
        plan, found = self._the_plan, self._draw
        if found is None or not self._outputs:
            missing = [self._name_of(party) for party in self._coins]
            raise TimeoutFault(missing, m.DONE, "no pair was evaluated: " + "; ".join(self._faults[:5]))
        numbers = [[self._number[name] for name in pair] for _, pair in self._outputs]
        pairs = np.array(numbers, np.int64).reshape(-1, 2)
        raw = np.array(list(self._outputs.values()), np.uint64)
        made = estimate(plan, pairs, raw, drawn=sum(map(len, found.pairs)))
        evidence = StatisticEvidence(self._context.session_digest, self._run_id, plan.digest, found.beacon)
        present = tuple(self._name_of(party) for party in sorted(self._coins))
        self._outcome = replace(
            result_of(plan, made, len(present), "protocol", evidence),
            survivors=present,
            absent=tuple(name for name in self._context.names if name not in present),
            faults=tuple(self._faults),
        )
        low, high = made.interval or (None, None)
        message = m.Result(
            made.value, made.standard_error, low, high, made.level, made.noise_error, made.pairs, made.failed
        )
        return self._broadcast(m.RESULT, message)

    def _tunnel(self, envelope: Envelope, found: Draw) -> list[Envelope]:
        """Give an evaluation its message, and return what the aggregator's role in it answers."""
        sender = envelope.sender
        if envelope.receiver != self.name or envelope.run_id != self._run_id:
            raise PeerFault(sender, "sent a message of a pair for somebody else, or of another run")
        self._context.check(envelope)
        message = decode(envelope.body, m.Pair, sender)
        matching = message.matching
        pair = found.partner(sender, matching) if matching < len(found.pairs) else None
        if pair is None:
            raise PeerFault(sender, f"sent a message of a pair in matching {matching}, where it has none")
        due = self._seen_pairs.get((sender, matching), 0)
        if message.number != due:
            raise PeerFault(sender, f"sent message {message.number} of a pair where {due} is due")
        if due >= m.MAX_PAIR_MESSAGES:
            raise PeerFault(sender, "sent more messages of a pair than are due")
        self._seen_pairs[sender, matching] = due + 1
        evaluation = self._evaluations.get((matching, pair))
        if evaluation is None:
            evaluation = self._evaluations[matching, pair] = self._evaluation(matching, pair)
        inbox = evaluation.inboxes.setdefault(sender, deque())
        if evaluation.over:
            return []
        inbox.append(message.content)
        return self._pump(evaluation, matching, pair)

    def _evaluation(self, matching: int, pair: tuple[str, str]) -> _Evaluation:
        context = pair_context(self._context, self._run_id, matching, pair)
        role = AggregatorRole(context, self._identity, self._the_plan.evaluation(*pair), self._random)
        return _Evaluation(role, role.run())

    def _pump(self, evaluation: _Evaluation, matching: int, pair: tuple[str, str]) -> list[Envelope]:
        """Let the role do what it can; a fault in it costs the pair, and nothing else."""
        sent: list[Envelope] = []
        answer: bytes | None = None
        try:
            while True:
                if evaluation.waits is not None:
                    inbox = evaluation.inboxes.get(evaluation.waits.sender)
                    if not inbox:
                        return sent
                    answer = inbox.popleft()
                    if len(answer) > evaluation.waits.limit:
                        raise PeerFault(evaluation.waits.sender, "sent a message that is too long")
                turn = next(evaluation.turns) if answer is None else evaluation.turns.send(answer)
                answer = None
                evaluation.waits = turn if isinstance(turn, Receive) else None
                if isinstance(turn, Send):
                    sent += self._to_party(turn, matching)
        except StopIteration as stop:
            evaluation.over = True
            ended: Evaluated = stop.value
            if ended.outputs is not None:
                self._outputs[matching, pair] = int(self._the_plan.raw(ended.outputs[0], 1)[0])
        except SmpcError as error:
            evaluation.over = True
            evaluation.turns.close()
            self._faults.append(f"pair {pair[0]}, {pair[1]}: {error}")
            for message in evaluation.role.farewell(error):
                sent += self._to_party(message, matching)
        return sent

    def _to_party(self, message: Send, matching: int) -> list[Envelope]:
        number = self._sent_pairs.get((message.to, matching), 0)
        self._sent_pairs[message.to, matching] = number + 1
        return self._write(m.PAIR, [message.to], m.Pair(matching, number, b"".join(message.parts)))

    @property
    def _the_plan(self) -> StatisticPlan:
        if self._plan is None:
            raise ConfigError([Fault("statistic", "nobody has asked for one")])
        return self._plan
