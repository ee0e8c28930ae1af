"""The aggregator of a pairwise statistic: it gathers coins, receives each pair's output and estimates."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from smpc_dp.board.keeping import Board, MemoryBoard
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import Code, ConfigError, Fault, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.begin import HubBegin
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.pairwise import statistic_messages as m
from smpc_dp.protocols.pairwise.aggregator import AggregatorRole, HubEvaluation
from smpc_dp.protocols.pairwise.estimate import Estimate, estimate
from smpc_dp.protocols.pairwise.participant import Evaluated
from smpc_dp.protocols.pairwise.statistic import StatisticPlan
from smpc_dp.protocols.pairwise.statistic_log import StatisticLog
from smpc_dp.protocols.pairwise.statistic_relay import RelayDesk
from smpc_dp.protocols.pairwise.statistic_result import StatisticEvidence, StatisticResult, result_of
from smpc_dp.protocols.pairwise.statistic_terms import (
    Draw,
    again_identifier,
    check_failed,
    draw,
    is_opening,
    pair_context,
    quorum,
    run_identifier,
    start_root,
    statistic_context,
)
from smpc_dp.protocols.pairwise.turns import Receive, Send
from smpc_dp.protocols.result import LoggedRun
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp.protocols.star import HubRole

MakePlan = Callable[[str], StatisticPlan]


class StatisticHub(HubRole[StatisticResult]):
    """The aggregator in one run.

    `make_plan` compiles what the parties ask for; it raises ConfigError for what it does not know. `board` is
    where the run is logged; None: nowhere but in its evidence. `corrupt` is c of the session.
    """

    def __init__(
        self,
        context: Context,
        identity: Signer,
        make_plan: MakePlan,
        randomness: Randomness | None = None,
        *,
        board: Board | None = None,
        corrupt: int = 0,
    ) -> None:
        super().__init__(statistic_context(context), identity)
        self._make_plan = make_plan
        self._random = randomness or SystemRandomness()
        kept = board or MemoryBoard("")
        self._quorum = quorum(self._parties, corrupt)
        self._begin = HubBegin(self._context, self._quorum, kept)
        self._log = StatisticLog(kept, self._begin, self._context, identity)
        self._plans: dict[str, StatisticPlan | str] = {}
        self._plan: StatisticPlan | None = None
        self._draw: Draw | None = None
        self._desk: RelayDesk | None = None
        self._hellos: dict[int, m.Hello] = {}
        self._present: list[int] = []
        self._coins: dict[int, bytes] = {}
        self._openings: dict[int, Envelope] = {}
        self._dones: dict[int, Envelope] = {}
        self._evaluations: dict[tuple[int, tuple[str, str]], HubEvaluation] = {}
        self._outputs: dict[tuple[int, tuple[str, str]], int] = {}
        self._sent_pairs: dict[tuple[str, int], int] = {}
        self._seen_pairs: dict[tuple[str, int], int] = {}
        self._steps = {
            m.HELLO: (self._on_hello, self._start),
            v.ATTEST_BEGIN: (self._on_attest_begin, self._finish_begin),
            **dict.fromkeys(m.COINS, (self._on_coin, self._match)),
            m.DONE: (self._on_done, self._estimate),
        }

    @property
    def has_enough(self) -> bool:
        """True when as many parties as are needed have asked for the same, or have spoken."""
        if self.step != m.HELLO:
            return super().has_enough
        return max(self._asked().values(), default=0) >= self._needed()

    @property
    def matchings(self) -> int:
        """The matchings of the draw, in the step in which their pairs are evaluated."""
        return len(self._draw.pairs) if self.step == m.DONE and self._draw is not None else 0

    def receive(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take one party's message; a fault of the party excludes it."""
        if envelope.step not in (m.PAIR, m.RELAY, m.RELAY_END):
            return super().receive(envelope)
        party = self._number.get(envelope.sender)
        if self._over or party is None or party not in self._alive or self._draw is None:
            return ()
        try:
            if envelope.receiver != self.name or envelope.run_id != self._run_id:
                what = "sent a message of a pair for somebody else, or of another run"
                raise PeerFault(envelope.sender, what)
            self._context.check(envelope)
            if envelope.step == m.PAIR:
                return self._with_untold(self._tunnel(envelope, self._draw))
            return self._with_untold(self._relay(envelope))
        except PeerFault as fault:
            return self._exclude(party, fault)

    def expire(self) -> Sequence[Envelope]:
        """Go on without who is late; who waits for a silent partner gets the result too."""
        if self._over or self.step != m.DONE:
            return super().expire()
        late = sorted(self._alive - self._received.keys())
        self._faults += [
            str(TimeoutFault({self._name_of(party)}, m.DONE, "deadline passed")) for party in late
        ]
        self._over = True
        return self._with_untold(self._estimate())

    def farewell(self, error: SmpcError) -> Sequence[Envelope]:
        """Tell everyone that the run has stopped; what was opened of a draw that is given up is evidence."""
        if self._draw is None and self._openings:
            with contextlib.suppress(LocalError):
                self._log_openings()
        return super().farewell(error)

    def _needed(self) -> int:
        return self._quorum if self._draw is None else 0

    def _drop(self, party: int, error: SmpcError) -> None:
        if self.step == m.HELLO:
            self._hellos.pop(party, None)
        super()._drop(party, error)
        self._untold += self._end_pairs(party)

    def _end_pairs(self, party: int) -> list[Envelope]:
        """Tell the partners of a party that is gone that their relayed pairs with it are over."""
        if self._desk is None:
            return []
        return [
            envelope
            for partner, matching in self._desk.lost(self._name_of(party))
            if self._number[partner] in self._alive
            for envelope in self._write(m.RELAY_END, [partner], m.RelayEnd(matching))
        ]

    def _asked(self) -> Counter[bytes]:
        return Counter(hello.plan for hello in self._hellos.values())

    def _on_hello(self, party: int, envelope: Envelope) -> None:
        sender = envelope.sender
        hello = decode(envelope.body, m.Hello, sender)
        if hello.session_digest != self._context.session_digest or hello.request != self._context.request:
            raise PeerFault(sender, "its hello is for another session or request")
        plan = self._planned(hello.question)
        if isinstance(plan, str):
            what = f"asks for a statistic that cannot be had here: {plan}"
            raise PeerFault(sender, what, code=Code.KERNEL)
        if hello.plan != plan.digest:
            raise PeerFault(sender, "asks for another statistic than it says")
        if (hello.mark >= 0) != plan.bipartite:
            raise PeerFault(sender, "has a public label where none is due, or none where one is")
        if why := self._begin.behind(hello.known):
            raise PeerFault(sender, why)
        self._hellos[party] = hello

    def _planned(self, question: str) -> StatisticPlan | str:
        """Return what a question compiles to, or why it does not."""
        if question not in self._plans:
            try:
                self._plans[question] = self._make_plan(question)
            except ConfigError as error:
                self._plans[question] = str(error)
        return self._plans[question]

    def _start(self) -> list[Envelope]:
        self._leave_out_others()
        self._present = sorted(self._hellos)
        marks = self._marks()
        present = pack_set(self._present, self._parties)
        commitments = b"".join(self._hellos[party].commitments for party in self._present)
        root, plan = start_root(commitments, marks), self._the_plan
        self._run_id = run_identifier(self._context, plan.digest, present, root)
        self._log.begin(plan.digest, present, root, self._run_id)
        self._said_hello = [self._received[party] for party in self._present]
        sent = self._broadcast(m.START, m.Start(present, commitments, marks))
        return sent + self._to_each(v.BEGIN, lambda party: self._begin.message(self._hellos[party].known))

    def _on_attest_begin(self, _party: int, envelope: Envelope) -> None:
        self._begin.check(envelope.body, envelope.sender)

    def _finish_begin(self) -> list[Envelope]:
        if len(self._received) < self._quorum:
            raise self._too_few(self._quorum)
        signatures = {party: envelope.signature for party, envelope in self._received.items()}
        entry = self._log.say(self._run_id, v.CERTIFY_BEGIN, self._begin.certify(signatures))
        plan = self._the_plan
        self._log.say(self._run_id, m.TERMS, m.Terms(plan.canonical(), plan.circuit.digest))
        self._log.take(self._said_hello)
        return self._broadcast(v.BEGUN, self._begin.answer(entry.body, entry.signature))

    def _leave_out_others(self) -> None:
        """Go on with what most ask for; only one statistic can be that of more than half of all parties."""
        (wanted, most), *_ = self._asked().most_common(1)
        if most < self._needed():
            missing = [self._name_of(party) for party in self._hellos]
            needed = self._needed()
            detail = f"{most} ask for the same, {needed} are needed"
            raise TimeoutFault(missing, m.HELLO, detail, code=Code.FEW, number=needed)
        for party in sorted(self._hellos):
            if self._hellos[party].plan != wanted:
                name = self._name_of(party)
                what = f"asks for another statistic than {most} others"
                self._drop(party, PeerFault(name, what, code=Code.QUESTION))
        self._plan = next(
            plan for plan in self._plans.values() if not isinstance(plan, str) and plan.digest == wanted
        )

    def _on_coin(self, party: int, envelope: Envelope) -> None:
        coin = decode(envelope.body, m.Coin, envelope.sender).coin
        # Kept also if it is wrong: that it was said is evidence.
        self._openings[party] = envelope
        plan, commitments = self._the_plan.digest, self._hellos[party].commitments
        if not is_opening(self._context, plan, self._attempt, envelope.sender, coin, commitments):
            raise PeerFault(envelope.sender, "opened a coin that it had not committed to")
        self._coins[party] = coin

    @property
    def _attempt(self) -> int:
        """Which draw is due, from 1."""
        return self._position - 1

    def _match(self) -> list[Envelope]:
        self._log_openings()
        missing = [self._name_of(party) for party in self._present if party not in self._coins]
        if missing:
            return self._again(missing)
        coins = b"".join(self._coins[party] for party in self._present)
        names = [self._name_of(party) for party in self._present]
        plan = self._the_plan
        self._draw = draw(plan.partners, plan.bipartite, self._run_id, names, self._marks(), coins)
        self._desk = RelayDesk(plan, self._draw)
        self._position = list(self._steps).index(m.COINS[-1])
        sent = self._broadcast(m.MATCHED, m.Matched(coins))
        # Whoever was lost with its coin in is drawn all the same: its partners need not wait for it.
        for party in self._present:
            if party not in self._alive:
                sent += self._end_pairs(party)
        return sent

    def _marks(self) -> bytes:
        """Return the marks of who is present; raise ConfigError if no two of them can be a pair."""
        marks = bytes(self._hellos[party].mark + 1 for party in self._present)
        if self._the_plan.bipartite and len(set(marks)) < 2:
            what = "all who take part have the same one"
            raise ConfigError([Fault("labels", what)], code=Code.IMPOSSIBLE)
        return marks

    def _log_openings(self) -> None:
        openings, self._openings = self._openings, {}
        self._log.take(openings[party] for party in sorted(openings))

    def _again(self, missing: Sequence[str]) -> list[Envelope]:
        """Draw anew without those whose coin is missing."""
        if self._attempt == m.ATTEMPTS:
            raise TimeoutFault(missing, self.step, f"{m.ATTEMPTS} draws of matchings lacked a coin")
        self._present = sorted(self._alive)
        self._marks()
        present = pack_set(self._present, self._parties)
        self._coins = {}
        self._past.add(self._run_id)
        self._run_id = again_identifier(self._context, self._run_id, self._attempt + 1, present)
        again, step = m.Again(present), m.AGAINS[self._attempt - 1]
        self._log.say(self._run_id, step, again)
        return self._broadcast(step, again)

    def _on_done(self, party: int, envelope: Envelope) -> None:
        done = decode(envelope.body, m.Done, envelope.sender)
        if self._draw is not None:
            check_failed(self._draw, envelope.sender, done.failed)
        self._dones[party] = envelope

    def _estimate(self) -> list[Envelope]:
        plan, found = self._the_plan, self._draw
        if found is None or not self._outputs:
            missing = [self._name_of(party) for party in self._present]
            raise TimeoutFault(missing, m.DONE, "no pair was evaluated: " + "; ".join(self._faults[:5]))
        numbers = [[self._number[name] for name in pair] for _, pair in self._outputs]
        pairs = np.array(numbers, np.int64).reshape(-1, 2)
        raw = np.array(list(self._outputs.values()), np.uint64)
        made = estimate(plan, pairs, raw, drawn=sum(map(len, found.pairs)))
        head = self._close(made, found)
        evidence = StatisticEvidence(
            self._context.session_digest,
            self._run_id,
            plan.digest,
            found.beacon,
            LoggedRun(self._begin.number, self._begin.head, head),
        )
        present = tuple(self._name_of(party) for party in self._present)
        self._outcome = replace(
            result_of(plan, made, len(present), "protocol", evidence),
            survivors=present,
            absent=tuple(name for name in self._context.names if name not in present),
            faults=tuple(self._faults),
        )
        return self._broadcast(m.RESULT, m.Result(*made.figures, made.pairs, made.failed, head))

    def _close(self, made: Estimate, found: Draw) -> bytes:
        """Log what the parties say of their pairs, and the outcome; return the last head."""
        self._log.take(self._dones[party] for party in sorted(self._dones))
        failed = [
            (matching, place)
            for matching, pairs in enumerate(found.pairs)
            for place, pair in enumerate(pairs)
            if (matching, pair) not in self._outputs
        ]
        outcome = m.Outcome(*made.figures, made.pairs, failed, self._log.head)
        self._log.say(self._run_id, m.OUTCOME, outcome)
        return self._log.head

    def _relay(self, envelope: Envelope) -> list[Envelope]:
        """Pass on a frame, or the last word of a pair, to its receiver."""
        if self._desk is None:
            return []
        sender = envelope.sender
        if envelope.step == m.RELAY:
            frame = decode(envelope.body, m.Relay, sender)
            peer = self._desk.forward(sender, frame)
            message: m.Relay | m.RelayEnd = frame
        else:
            message = decode(envelope.body, m.RelayEnd, sender)
            peer = self._desk.end(sender, message)
        if peer is None or self._number[peer] not in self._alive:
            return []
        return self._write(envelope.step, [peer], message)

    def _tunnel(self, envelope: Envelope, found: Draw) -> list[Envelope]:
        """Give an evaluation its message, and return what the aggregator's role in it answers."""
        sender = envelope.sender
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

    def _evaluation(self, matching: int, pair: tuple[str, str]) -> HubEvaluation:
        context = pair_context(self._context, self._run_id, matching, pair)
        role = AggregatorRole(context, self._identity, self._the_plan.evaluation(*pair), self._random)
        return HubEvaluation(role, role.run())

    def _pump(self, evaluation: HubEvaluation, matching: int, pair: tuple[str, str]) -> list[Envelope]:
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
