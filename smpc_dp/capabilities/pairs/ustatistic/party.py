"""A party's states in a pairwise statistic: it takes part in the draw, then evaluates its pairs.

The evaluations are roles of the two-party engine, which the holder of the party's role runs while the party
is in `Evaluating`: one for each of `evaluations`, over a channel to the partner, and by a `PairWire` with the
aggregator. It runs each at most once, whatever happens, and reports the failed matchings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import ClassVar, Self

from msgspec.structs import replace

from smpc_dp.capabilities.pairs.garbled.draw import COIN_BYTES
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.estimate import Estimate
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticEvidence, StatisticResult, result_of
from smpc_dp.capabilities.pairs.ustatistic.terms import (
    Draw,
    again_identifier,
    commitments_of,
    draw,
    is_opening,
    run_identifier,
    start_root,
)
from smpc_dp.engine.party import Member, PartyState
from smpc_dp.engine.phases import messages as common
from smpc_dp.engine.phases.begin import attest_begin, check_begun, close_run, logged_run
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import decode


@dataclass(frozen=True, slots=True)
class StatisticRequest:
    """Parameters of a party's run of a pairwise statistic: plan, operation, public label, quorum.

    Attributes:
        plan: the compiled statistic.
        operation: its operation, as sent to the aggregator.
        public_label: 0 or 1, or -1.
        quorum: the number of parties that must be present.
    """

    plan: StatisticPlan
    operation: str
    public_label: int
    quorum: int


Party = Member[StatisticRequest]

# For each party present at the start its commitments to coins, and its label plus 1.
Known = dict[int, tuple[bytes, int]]


class Ready(PartyState, frozen=True, kw_only=True, eq=False):
    """First state of a party in a pairwise statistic: nothing has been sent."""


class AwaitStart(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has sent its hello with commitments to coins, and waits for who is present."""

    expects: ClassVar[str] = m.START
    renews: ClassVar[bool] = True
    coins: tuple[bytes, ...]
    commitments: bytes


class AwaitBegin(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that knows all commitments, and waits for the line of the session log to sign."""

    expects: ClassVar[str] = common.BEGIN
    coins: tuple[bytes, ...]
    present: PartySet
    known: Known


class AwaitBegun(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the session log, and waits for the proof that a quorum did."""

    expects: ClassVar[str] = common.BEGUN
    coins: tuple[bytes, ...]
    present: PartySet
    known: Known


class AwaitDraw(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has opened a coin, and waits for who forms pairs, or for a further draw."""

    expects: ClassVar[str] = m.AGAINS[0]
    renews: ClassVar[bool] = True
    coins: tuple[bytes, ...]
    present: PartySet
    known: Known
    attempt: int

    @property
    def step(self) -> str:
        """Name of the message expected if a coin is missing; the matching may come in its place."""
        return m.AGAINS[self.attempt - 1]


class AwaitLastDraw(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has opened its last coin, and waits to learn which parties form pairs."""

    expects: ClassVar[str] = m.MATCHED
    present: PartySet
    known: Known


class Evaluating(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party whose pairs are drawn: the holder of the run evaluates them with the partners.

    `evaluations`: the (matching, garbler, evaluator) that the party is in, at most P. `present`: names.
    `failed`: the matchings of evaluations that an earlier process of the party may have begun.
    """

    expects: ClassVar[str] = m.RESULT
    entrusts: ClassVar[bool] = True
    present: tuple[str, ...]
    drawn: Draw
    evaluations: tuple[tuple[int, str, str], ...]
    failed: tuple[int, ...] = ()

    @property
    def restorable(self) -> Self:
        """The state after a restart: all evaluations count as failed, and none is repeated."""
        begun = tuple(matching for matching, _, _ in self.evaluations)
        return replace(self, evaluations=(), failed=(*self.failed, *begun))


class AwaitResult(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party whose pairs have all ended, and that waits for the aggregator's estimate."""

    expects: ClassVar[str] = m.RESULT
    present: tuple[str, ...]
    drawn: Draw


class Finished(PartyState, frozen=True, kw_only=True, eq=False):
    """Final state of a party: it has the estimate of the pairwise statistic."""

    over: ClassVar[bool] = True
    outcome: StatisticResult


def say_hello(member: Party, state: Ready) -> Transition:
    """Begin a party's run: return a hello with commitments to fresh random coins, and the next state."""
    context, requested = member.context, member.parameters
    coins = tuple(member.random.bytes(COIN_BYTES) for _ in m.COINS)
    commitments = commitments_of(context, requested.plan.digest, member.name, coins)
    hello = m.Hello(
        context.session_digest,
        context.request,
        commitments,
        requested.plan.digest,
        requested.operation,
        requested.public_label,
        state.seen.number,
    )
    after = AwaitStart(coins=coins, commitments=commitments)
    return Transition(after, (member.write(context.session_digest, m.HELLO, hello),))


def on_start(member: Party, state: AwaitStart, body: bytes) -> Transition:
    """Check the aggregator's list of parties and commitments; return the state that awaits the log."""
    start = decode(body, m.Start, member.context.aggregator)
    requested, present = member.parameters, _present(member, start.present)
    count, each = len(present), m.COMMITMENT_BYTES
    if len(start.commitments) != each * count or len(start.public_labels) != count:
        raise member.refuse("does not have commitments and a mark of each present party", Check.NOT_ONE_EACH)
    index = present.index(member.index)
    if start.commitments[each * index :][:each] != state.commitments:
        raise member.refuse(f"does not have the commitments of {member.name}", Check.OWN_DIFFERS)
    if start.public_labels[index] != requested.public_label + 1:
        raise member.refuse(f"gives {member.name} another label", Check.LABEL_DIFFERS)
    if any(
        (public_label > 0) != requested.plan.bipartite or public_label > 2
        for public_label in start.public_labels
    ):
        raise member.refuse("sent marks that are no labels", Check.LABEL_DIFFERS)
    known = {
        party: (start.commitments[each * at : each * (at + 1)], start.public_labels[at])
        for at, party in enumerate(present)
    }
    root = start_root(start.commitments, start.public_labels)
    run_id = run_identifier(member.context, requested.plan.digest, start.present, root)
    return Transition(AwaitBegin(run_id=run_id, coins=state.coins, present=present, known=known))


def on_begin(member: Party, state: AwaitBegin, body: bytes) -> Transition:
    """Sign the run's line of the session log, and return the next state."""
    run_id, present = state.run_id, state.present
    seen, attestation = attest_begin(member.context, state.seen, run_id, present, body)
    after = AwaitBegun(seen=seen, coins=state.coins, present=present, known=state.known)
    return Transition(after, (member.write(run_id, common.ATTEST_BEGIN, attestation),))


def on_begun(member: Party, state: AwaitBegun, body: bytes) -> Transition:
    """Check that a quorum has signed the run's beginning; return the message that opens the first coin."""
    check_begun(member.context, member.parameters.quorum, state.run_id, state.seen, state.present, body)
    return _open_coin(member, state, state.run_id, state.present, 1)


def on_again(member: Party, state: AwaitDraw, body: bytes) -> Transition:
    """Return the message that opens the next coin, since another party's coin was missing."""
    again = decode(body, m.Again, member.context.aggregator)
    present = _present(member, again.present)
    if not (present <= state.present and len(present) < len(state.present)):
        raise member.refuse("draws again, and nobody is missing", Check.SET_DIFFERS)
    attempt = state.attempt + 1
    run_id = again_identifier(member.context, state.run_id, attempt, again.present)
    return _open_coin(member, state, run_id, present, attempt)


def on_matched(member: Party, state: AwaitDraw, body: bytes) -> Transition:
    """Derive who forms pairs from the coins of all parties; forget this party's further coins."""
    return _match(member, state, state.attempt, body)


def on_last_matched(member: Party, state: AwaitLastDraw, body: bytes) -> Transition:
    """Derive who forms pairs from all coins, after the last possible attempt."""
    return _match(member, state, m.ATTEMPTS, body)


def say_done(member: Party, state: Evaluating, failed: Iterable[int]) -> Transition:
    """Return the message to the aggregator that all pairs have ended, and which matchings failed."""
    message = member.write(state.run_id, m.DONE, m.Done(sorted({*failed, *state.failed})))
    after = AwaitResult(present=state.present, drawn=state.drawn)
    return Transition(after, (message,))


def on_result(member: Party, state: Evaluating | AwaitResult, body: bytes) -> Transition:
    """Check the aggregator's estimate, which must count every pair that was drawn; end the run."""
    context, plan = member.context, member.parameters.plan
    claimed = decode(body, m.Result, context.aggregator)
    figures = (claimed.value, claimed.error, claimed.low, claimed.high, claimed.level, claimed.noise_error)
    if not all(figure is None or math.isfinite(figure) for figure in figures):
        raise member.refuse("sent an estimate that is no number", Check.OUT_OF_RANGE)
    drawn = sum(map(len, state.drawn.pairs))
    if claimed.failed < 0 or claimed.pairs < 1 or claimed.pairs + claimed.failed != drawn:
        raise member.refuse(
            f"counts {claimed.pairs} pairs and {claimed.failed} that failed, {drawn} were drawn",
            Check.WRONG_COUNT,
        )
    interval = None if claimed.low is None or claimed.high is None else (claimed.low, claimed.high)
    estimate = Estimate(
        claimed.value,
        claimed.error,
        interval,
        claimed.level,
        claimed.noise_error,
        claimed.pairs,
        claimed.failed,
    )
    seen = close_run(state.seen, claimed.log)
    evidence = StatisticEvidence(
        context.session_digest, state.run_id, plan.digest, state.drawn.beacon, logged_run(seen)
    )
    outcome = replaced(
        result_of(plan, estimate, len(state.present), "protocol", evidence),
        survivors=state.present,
        absent=tuple(name for name in context.names if name not in state.present),
    )
    return Transition(Finished(seen=seen, outcome=outcome))


def _present(member: Party, packed: bytes) -> PartySet:
    """Return the set of present parties from packed bits; raise PeerFault if it is invalid."""
    present = PartySet.unpack(packed, member.parties, member.context.aggregator)
    if member.index not in present:
        raise member.refuse(f"left {member.name} out", Check.NOT_INCLUDED)
    quorum = member.parameters.quorum
    if len(present) < quorum:
        raise member.refuse(
            f"says that {len(present)} of {member.parties} parties are there, {quorum} are needed",
            Check.SET_TOO_SMALL,
        )
    return present


def _open_coin(
    member: Party, state: AwaitBegun | AwaitDraw, run_id: bytes, present: PartySet, attempt: int
) -> Transition:
    """Return the message that opens the party's coin of a drawing attempt, with the next state."""
    coin, *coins = state.coins
    seen, known = state.seen, state.known
    after: PartyState = AwaitLastDraw(run_id=run_id, seen=seen, present=present, known=known)
    if coins:
        after = AwaitDraw(
            run_id=run_id, seen=seen, coins=tuple(coins), present=present, known=known, attempt=attempt
        )
    return Transition(after, (member.write(run_id, m.COINS[attempt - 1], m.Coin(coin)),))


def _match(member: Party, state: AwaitDraw | AwaitLastDraw, attempt: int, body: bytes) -> Transition:
    """Check all coins against the parties' commitments, and derive which pairs to evaluate."""
    context, plan, known = member.context, member.parameters.plan, state.known
    coins = decode(body, m.Matched, context.aggregator).coins
    present = list(state.present)
    names = tuple(member.name_of(party) for party in present)
    if len(coins) != COIN_BYTES * len(present):
        raise member.refuse("does not have one coin for each present party", Check.NOT_ONE_EACH)
    for index, party in enumerate(present):
        coin, (commitments, _) = coins[COIN_BYTES * index :][:COIN_BYTES], known[party]
        if not is_opening(context, plan.digest, attempt, names[index], coin, commitments):
            raise member.refuse(
                f"has a coin of {names[index]} that it had not committed to", Check.BAD_OPENING
            )
    public_labels = bytes(known[party][1] for party in present)
    drawn = draw(plan.partners, plan.bipartite, state.run_id, names, public_labels, coins)
    pairs = [(number, drawn.partner(member.name, number)) for number in range(plan.partners)]
    evaluations = tuple((number, *pair) for number, pair in pairs if pair is not None)
    after = Evaluating(present=names, drawn=drawn, evaluations=evaluations)
    return Transition(after)
