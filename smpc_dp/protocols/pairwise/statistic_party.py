"""A party of a pairwise statistic: it helps to draw the matchings, then evaluates with its partners.

The evaluations themselves are roles of the two-party engine, which whoever drives this machine runs: one for
each of `evaluations`, over a channel to the partner, and through `pair_message` and `open_pair` with the
aggregator. It runs each once, whatever happens.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import replace

from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import LocalError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.pairwise import statistic_messages as m
from smpc_dp.protocols.pairwise.draw import COIN_BYTES, commit
from smpc_dp.protocols.pairwise.estimate import Estimate
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
from smpc_dp.protocols.secagg.graph import PartySet
from smpc_dp.protocols.star import PartyRole


class StatisticParty(PartyRole[StatisticResult]):
    """One party in one run.

    `question` is what it asks the aggregator for, `mark` its public label or -1.
    """

    _last_step = m.DONE

    def __init__(
        self,
        context: Context,
        identity: Signer,
        plan: StatisticPlan,
        question: str,
        mark: int = -1,
        randomness: Randomness | None = None,
    ) -> None:
        super().__init__(statistic_context(context), identity)
        self._plan = plan
        self._question = question
        self._mark = mark
        self._coin = (randomness or SystemRandomness()).bytes(COIN_BYTES)
        self._draw: Draw | None = None
        self._sent_pairs: dict[int, int] = {}
        self._seen_pairs: dict[int, int] = {}
        self._handlers = {
            m.START: self._on_start,
            m.MATCHED: self._on_matched,
            m.RESULT: self._on_result,
        }

    def start(self) -> Sequence[Envelope]:
        """Say hello with a commitment to a fresh coin."""
        self._commitment = commit(commitment_run(self._context, self._plan), self.name, self._coin)
        hello = m.Hello(
            self._context.session_digest,
            self._context.request,
            self._commitment,
            self._plan.digest,
            self._question,
            self._mark,
        )
        return self._emit(m.HELLO, hello)

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
        message = m.Pair(matching, number, content)
        return self._context.write(self._identity, self._run_id, m.PAIR, (self._context.aggregator,), message)

    def open_pair(self, envelope: Envelope) -> tuple[int, bytes]:
        """Return matching and content of a message of the aggregator; raise PeerFault if it is not due."""
        hub = self._context.aggregator
        if envelope.sender != hub or envelope.receiver != self.name or envelope.run_id != self._run_id:
            raise self._refuse("sent a message of a pair for somebody else, or of another run")
        self._context.check(envelope)
        message = decode(envelope.body, m.Pair, hub)
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

    def _on_start(self, body: bytes) -> Sequence[Envelope]:
        start = decode(body, m.Start, self._context.aggregator)
        present = PartySet.unpack(start.present, self._parties, self._context.aggregator)
        count = len(present)
        if self._index not in present:
            raise self._refuse(f"left {self.name} out")
        if count < (least := quorum(self._parties)):
            raise self._refuse(f"says that {count} of {self._parties} parties are there, {least} are needed")
        if len(start.commitments) != COIN_BYTES * count or len(start.marks) != count:
            raise self._refuse("does not have one commitment and one mark for each present party")
        place = present.place(self._index)
        if start.commitments[COIN_BYTES * place :][:COIN_BYTES] != self._commitment:
            raise self._refuse(f"does not have the commitment of {self.name}")
        if start.marks[place] != self._mark + 1:
            raise self._refuse(f"gives {self.name} another label")
        if any((mark > 0) != self._plan.bipartite or mark > 2 for mark in start.marks):
            raise self._refuse("sent marks that are no labels")
        self._present = [self._name_of(party) for party in present]
        self._commitments, self._marks = start.commitments, start.marks
        self._run_id = run_identifier(
            self._context, self._plan, start.present, start.commitments, start.marks
        )
        return self._emit(m.COIN, m.Coin(self._coin))

    def _on_matched(self, body: bytes) -> Sequence[Envelope]:
        coins = decode(body, m.Matched, self._context.aggregator).coins
        if len(coins) != COIN_BYTES * len(self._present):
            raise self._refuse("does not have one coin for each present party")
        run = commitment_run(self._context, self._plan)
        for place, name in enumerate(self._present):
            span = slice(COIN_BYTES * place, COIN_BYTES * (place + 1))
            if not hmac.compare_digest(commit(run, name, coins[span]), self._commitments[span]):
                raise self._refuse(f"has a coin of {name} that it had not committed to")
        self._draw = draw(self._plan, self._run_id, self._present, self._marks, coins)
        return ()

    def _on_result(self, body: bytes) -> Sequence[Envelope]:
        said = decode(body, m.Result, self._context.aggregator)
        if self._draw is None:
            raise LocalError(f"{self.name}: a result before the matchings")
        interval = None if said.low is None or said.high is None else (said.low, said.high)
        found = Estimate(
            said.value, said.error, interval, said.level, said.noise_error, said.pairs, said.failed
        )
        evidence = StatisticEvidence(
            self._context.session_digest, self._run_id, self._plan.digest, self._draw.beacon
        )
        self._outcome = replace(
            result_of(self._plan, found, len(self._present), "protocol", evidence),
            survivors=tuple(self._present),
            absent=tuple(name for name in self._context.names if name not in self._present),
        )
        self._over = True
        return ()
