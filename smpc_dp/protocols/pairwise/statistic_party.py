"""A party of a pairwise statistic: it helps to draw the matchings, then evaluates with its partners.

The evaluations themselves are roles of the two-party engine, which whoever drives this machine runs: one for
each of `evaluations`, over a channel to the partner, and through `pair_message` and `open_pair` with the
aggregator. It runs each once, whatever happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import LocalError
from smpc_dp.protocols.begin import PartyBegin, logged_run
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.pairwise import statistic_messages as m
from smpc_dp.protocols.pairwise.draw import COIN_BYTES
from smpc_dp.protocols.pairwise.estimate import Estimate
from smpc_dp.protocols.pairwise.statistic import StatisticPlan
from smpc_dp.protocols.pairwise.statistic_result import StatisticEvidence, StatisticResult, result_of
from smpc_dp.protocols.pairwise.statistic_terms import (
    Draw,
    again_identifier,
    commitments_of,
    draw,
    is_opening,
    pair_context,
    quorum,
    run_identifier,
    start_root,
    statistic_context,
)
from smpc_dp.protocols.secagg.graph import PartySet
from smpc_dp.protocols.star import PartyRole
from smpc_dp.seen import NOTHING_SEEN, Seen


class StatisticParty(PartyRole[StatisticResult]):
    """One party in one run.

    `question` is what it asks the aggregator for, `mark` its public label or -1, `corrupt` c of the session,
    `seen` what the party keeps of the session log.
    """

    _last_step = m.DONE
    _renewing = frozenset(m.AGAINS)

    def __init__(
        self,
        context: Context,
        identity: Signer,
        plan: StatisticPlan,
        question: str,
        mark: int = -1,
        randomness: Randomness | None = None,
        *,
        corrupt: int = 0,
        seen: Seen = NOTHING_SEEN,
    ) -> None:
        super().__init__(statistic_context(context), identity)
        self._quorum = quorum(self._parties, corrupt)
        self._begin = PartyBegin(self._context, self._quorum, seen)
        self._plan = plan
        self._question = question
        self._mark = mark
        source = randomness or SystemRandomness()
        self._coins = [source.bytes(COIN_BYTES) for _ in m.COINS]
        self._attempt = 1
        self._draw: Draw | None = None
        self._sent_pairs: dict[int, int] = {}
        self._seen_pairs: dict[int, int] = {}
        self._handlers = {
            m.START: self._on_start,
            v.BEGIN: self._on_begin,
            v.BEGUN: self._on_begun,
            **dict.fromkeys(m.AGAINS, self._on_again),
            m.MATCHED: self._on_matched,
            m.RESULT: self._on_result,
        }

    def start(self) -> Sequence[Envelope]:
        """Say hello with commitments to fresh coins."""
        self._commitments = commitments_of(self._context, self._plan.digest, self.name, self._coins)
        hello = m.Hello(
            self._context.session_digest,
            self._context.request,
            self._commitments,
            self._plan.digest,
            self._question,
            self._mark,
            self.seen.number,
        )
        return self._emit(m.HELLO, hello)

    @property
    def seen(self) -> Seen:
        """What is to be kept of the session log, durably, before what this party says next is sent."""
        return self._begin.seen

    @property
    def hub(self) -> str:
        """The aggregator's name."""
        return self._context.aggregator

    @property
    def evaluations(self) -> list[tuple[int, str, str]] | None:
        """The (matching, garbler, evaluator) that this party is in, at most P; None before they are drawn."""
        if self._draw is None:
            return None
        found = [(number, self._draw.partner(self.name, number)) for number in range(self._plan.partners)]
        return [(number, *pair) for number, pair in found if pair is not None]

    def pair_context(self, matching: int, garbler: str, evaluator: str) -> Context:
        """Return the context of one of the evaluations."""
        return pair_context(self._context, self._run_id, matching, (garbler, evaluator))

    def pair_message(self, matching: int, content: bytes) -> Sequence[Envelope]:
        """Return the envelope that takes a message of an evaluation to the aggregator."""
        number = self._sent_pairs.get(matching, 0)
        self._sent_pairs[matching] = number + 1
        return self._to_hub(m.PAIR, m.Pair(matching, number, content))

    def relay_message(self, message: m.Relay | m.RelayEnd) -> Sequence[Envelope]:
        """Return the envelope that takes a frame for a partner, or the last word of it, to the aggregator."""
        return self._to_hub(m.RELAY if isinstance(message, m.Relay) else m.RELAY_END, message)

    def open_relay(self, envelope: Envelope) -> m.Relay | m.RelayEnd:
        """Return what the aggregator relays; raise PeerFault if it is not for this party and this run."""
        self._check_hub(envelope)
        if envelope.step == m.RELAY:
            return decode(envelope.body, m.Relay, self._context.aggregator)
        return decode(envelope.body, m.RelayEnd, self._context.aggregator)

    def open_pair(self, envelope: Envelope) -> tuple[int, bytes]:
        """Return matching and content of a message of the aggregator; raise PeerFault if it is not due."""
        self._check_hub(envelope)
        message = decode(envelope.body, m.Pair, self._context.aggregator)
        due = self._seen_pairs.get(message.matching, 0)
        if message.number != due:
            raise self._refuse(f"sent message {message.number} of a pair where {due} is due")
        if due >= m.MAX_PAIR_MESSAGES:
            raise self._refuse("sent more messages of a pair than are due")
        self._seen_pairs[message.matching] = due + 1
        return message.matching, message.content

    def done(self, failed: Iterable[int]) -> Sequence[Envelope]:
        """Say that this party is through with its pairs; with those of `failed` matchings it is not."""
        return self._emit(m.DONE, m.Done(sorted(failed)))

    def _to_hub(self, step: str, message: msgspec.Struct) -> Sequence[Envelope]:
        return self._context.write(self._identity, self._run_id, step, (self._context.aggregator,), message)

    def _check_hub(self, envelope: Envelope) -> None:
        hub = self._context.aggregator
        if envelope.sender != hub or envelope.receiver != self.name or envelope.run_id != self._run_id:
            raise self._refuse("sent a message of a pair for somebody else, or of another run")
        self._context.check(envelope)

    def _receive(self, envelope: Envelope) -> Sequence[Envelope]:
        if envelope.step == m.MATCHED and v.BEGUN in self._seen:
            # Further attempts may follow, and need not.
            self._position = max(self._position, list(self._handlers).index(m.MATCHED))
        return super()._receive(envelope)

    def _on_start(self, body: bytes) -> Sequence[Envelope]:
        start = decode(body, m.Start, self._context.aggregator)
        present = self._unpack(start.present)
        count, each = len(present), m.COMMITMENT_BYTES
        if len(start.commitments) != each * count or len(start.marks) != count:
            raise self._refuse("does not have commitments and a mark of each present party")
        place = present.place(self._index)
        if start.commitments[each * place :][:each] != self._commitments:
            raise self._refuse(f"does not have the commitments of {self.name}")
        if start.marks[place] != self._mark + 1:
            raise self._refuse(f"gives {self.name} another label")
        if any((mark > 0) != self._plan.bipartite or mark > 2 for mark in start.marks):
            raise self._refuse("sent marks that are no labels")
        self._known = {
            party: (start.commitments[each * at : each * (at + 1)], start.marks[at])
            for at, party in enumerate(present)
        }
        self._present = present
        root = start_root(start.commitments, start.marks)
        self._run_id = run_identifier(self._context, self._plan.digest, start.present, root)
        return ()

    def _on_begin(self, body: bytes) -> Sequence[Envelope]:
        return self._emit(v.ATTEST_BEGIN, self._begin.attest(body, self._run_id, self._present))

    def _on_begun(self, body: bytes) -> Sequence[Envelope]:
        message = self._begin.begun(body)
        hub = self._context.aggregator
        self._context.check_detached(
            self._run_id, v.CERTIFY_BEGIN, hub, hub, message.payload, message.signature
        )
        return self._emit(m.COINS[0], m.Coin(self._coins[0]))

    def _on_again(self, body: bytes) -> Sequence[Envelope]:
        again = decode(body, m.Again, self._context.aggregator)
        present = self._unpack(again.present)
        if not (present <= self._present and len(present) < len(self._present)):
            raise self._refuse("draws again, and nobody is missing")
        self._attempt += 1
        self._present = present
        self._run_id = again_identifier(self._context, self._run_id, self._attempt, again.present)
        return self._emit(m.COINS[self._attempt - 1], m.Coin(self._coins[self._attempt - 1]))

    def _unpack(self, packed: bytes) -> PartySet:
        """Return the set of who is present; refuse one that may not be."""
        present = PartySet.unpack(packed, self._parties, self._context.aggregator)
        if self._index not in present:
            raise self._refuse(f"left {self.name} out")
        if len(present) < self._quorum:
            raise self._refuse(
                f"says that {len(present)} of {self._parties} parties are there, {self._quorum} are needed"
            )
        return present

    def _on_matched(self, body: bytes) -> Sequence[Envelope]:
        coins = decode(body, m.Matched, self._context.aggregator).coins
        present = list(self._present)
        if len(coins) != COIN_BYTES * len(present):
            raise self._refuse("does not have one coin for each present party")
        plan = self._plan
        for place, party in enumerate(present):
            name, coin = self._name_of(party), coins[COIN_BYTES * place :][:COIN_BYTES]
            commitments, _ = self._known[party]
            if not is_opening(self._context, plan.digest, self._attempt, name, coin, commitments):
                raise self._refuse(f"has a coin of {name} that it had not committed to")
        marks = bytes(self._known[party][1] for party in present)
        self._draw = draw(plan.partners, plan.bipartite, self._run_id, self._names, marks, coins)
        return ()

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(self._name_of(party) for party in self._present)

    def _on_result(self, body: bytes) -> Sequence[Envelope]:
        said = decode(body, m.Result, self._context.aggregator)
        if self._draw is None:
            raise LocalError(f"{self.name}: a result before the matchings")
        figures = (said.value, said.error, said.low, said.high, said.level, said.noise_error)
        if not all(figure is None or math.isfinite(figure) for figure in figures):
            raise self._refuse("sent an estimate that is no number")
        drawn = sum(map(len, self._draw.pairs))
        if said.failed < 0 or said.pairs < 1 or said.pairs + said.failed != drawn:
            raise self._refuse(f"counts {said.pairs} pairs and {said.failed} that failed, {drawn} were drawn")
        interval = None if said.low is None or said.high is None else (said.low, said.high)
        found = Estimate(
            said.value, said.error, interval, said.level, said.noise_error, said.pairs, said.failed
        )
        self._begin.close(said.log)
        evidence = StatisticEvidence(
            self._context.session_digest,
            self._run_id,
            self._plan.digest,
            self._draw.beacon,
            logged_run(self.seen),
        )
        self._outcome = replace(
            result_of(self._plan, found, len(self._present), "protocol", evidence),
            survivors=self._names,
            absent=tuple(name for name in self._context.names if name not in self._names),
        )
        self._over = True
        return ()
