"""The aggregator's states in a pairwise statistic up to the draw: it collects hellos and coins.

The pairs are evaluated in the state after these (`pairs`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.log import log_messages, log_statement
from smpc_dp.capabilities.pairs.ustatistic.pairs import CollectDone, Pairs, end_pairs
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.relay import PairRelays
from smpc_dp.capabilities.pairs.ustatistic.serving import Aggregator, Requested
from smpc_dp.capabilities.pairs.ustatistic.terms import (
    again_identifier,
    draw,
    is_opening,
    run_identifier,
    start_root,
)
from smpc_dp.engine.collector import CollectorState, Item
from smpc_dp.engine.phases import messages as common
from smpc_dp.engine.phases.begin import begin_log, certify_begin, why_behind
from smpc_dp.engine.phases.run_log import RunLog, Statement
from smpc_dp.engine.state import Transition
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    PeerFault,
    TimeoutFault,
)
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import decode


class CollectHello(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that collects hellos: parties may still join the pairwise statistic."""

    expects: ClassVar[str] = m.HELLO


class CollectBegin(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that collects signatures of the parties present on the run's beginning."""

    expects: ClassVar[str] = common.ATTEST_BEGIN
    requested: Requested
    present: bytes
    hellos: Mapping[int, Statement]
    log: RunLog


class CollectCoins(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that collects the coin of each present party, to draw who forms pairs.

    `coins` grows with the coins that match their commitments; a coin counts even if its party has been lost
    since. `openings` grows with all opened coins that are not in the log yet.
    """

    expects: ClassVar[str] = m.COINS[0]
    requested: Requested
    hellos: Mapping[int, Statement]
    log: RunLog
    attempt: int
    present: tuple[int, ...]
    coins: dict[int, bytes]
    openings: dict[int, Statement]

    @property
    def step(self) -> str:
        """Name of the step in which the coins of the current drawing attempt arrive."""
        return m.COINS[self.attempt - 1]


def accept_hello(aggregator: Aggregator, _state: CollectHello, _party: int, envelope: Envelope) -> Item:
    """Check a party's hello, and return it; raise PeerFault for one that cannot take part in this run."""
    sender, context = envelope.sender, aggregator.context
    hello = decode(envelope.body, m.Hello, sender)
    if hello.session_digest != context.session_digest or hello.request != context.request:
        raise PeerFault(sender, "its hello is for another session or request", Check.OTHER_REQUEST)
    plan = aggregator.parameters.planned(hello.operation)
    if isinstance(plan, str):
        reason = f"asks for a statistic that cannot be had here: {plan}"
        raise PeerFault(sender, reason, Check.NOT_OFFERED, code=Code.KERNEL)
    if hello.plan != plan.digest:
        raise PeerFault(sender, "asks for another statistic than it says", Check.OTHER_OPERATION)
    if (hello.public_label >= 0) != plan.bipartite:
        raise PeerFault(
            sender, "has a public label where none is due, or none where one is", Check.LABEL_DIFFERS
        )
    if why := why_behind(aggregator.runs, hello.known):
        raise PeerFault(sender, why, Check.BEHIND)
    return Item(hello, envelope.body, envelope.signature)


def agreed_hellos(_aggregator: Aggregator, state: CollectHello) -> int:
    """Return how many parties ask for the operation that most parties ask for."""
    return max(_requested(state).values(), default=0)


def finish_hello(aggregator: Aggregator, state: CollectHello) -> Transition:
    """Exclude parties that ask for a rarer operation; begin the run and its log with the other parties."""
    requested = _agree(aggregator, state)
    inbox, context, plan = state.inbox, aggregator.context, aggregator.parameters.plan(requested)
    present = sorted(inbox.alive)
    hellos = {party: Statement.of(inbox.items[party]) for party in present}
    public_labels = _public_labels(plan, hellos, present)
    packed = pack_set(present, aggregator.parties)
    commitments = b"".join(_hello(hellos, party).commitments for party in present)
    root = start_root(commitments, public_labels)
    run_id = run_identifier(context, plan.digest, packed, root)
    operation = m.OPERATION + plan.digest.hex()
    log, runs = begin_log(aggregator, inbox, run_id, operation, packed, root)
    after = CollectBegin(run_id=run_id, requested=requested, present=packed, hellos=hellos, log=log)
    start = m.Start(packed, commitments, public_labels)
    return Transition(
        after,
        [
            *aggregator.write(run_id, m.START, present, start),
            *aggregator.to_each(
                run_id,
                inbox,
                common.BEGIN,
                lambda party: common.Begin(*runs.since(_hello(hellos, party).known)),
            ),
        ],
    )


def finish_begin(aggregator: Aggregator, state: CollectBegin) -> Transition:
    """Log the signed beginning, the terms and the hellos; return the state that collects coins."""
    run_id, inbox, plan = state.run_id, state.inbox, aggregator.parameters.plan(state.requested)
    certified = certify_begin(aggregator, state, aggregator.parameters.quorum)
    log, entry = log_statement(aggregator, inbox, state.log, run_id, common.CERTIFY_BEGIN, certified)
    log, _ = log_statement(
        aggregator, inbox, log, run_id, m.TERMS, m.Terms(plan.canonical(), plan.circuit.digest)
    )
    log = log_messages(aggregator, inbox, log, m.HELLO, state.hellos)
    after = CollectCoins(
        requested=state.requested,
        hellos=state.hellos,
        log=log,
        attempt=1,
        present=tuple(state.hellos),
        coins={},
        openings={},
    )
    begun = common.Begun(state.log.head, entry.body, entry.signature)
    return Transition(after, aggregator.broadcast(state, common.BEGUN, begun))


def accept_coin(aggregator: Aggregator, state: CollectCoins, party: int, envelope: Envelope) -> Item:
    """Store a party's coin message as evidence, and its coin if it is committed, else raise PeerFault."""
    coin = decode(envelope.body, m.Coin, envelope.sender).coin
    # Kept also if it is wrong: the signed message is evidence.
    item = Item(None, envelope.body, envelope.signature)
    state.openings[party] = Statement.of(item)
    commitments = _hello(state.hellos, party).commitments
    digest, context = state.requested.digest, aggregator.context
    if not is_opening(context, digest, state.attempt, envelope.sender, coin, commitments):
        raise PeerFault(envelope.sender, "opened a coin that it had not committed to", Check.BAD_OPENING)
    state.coins[party] = coin
    return item


def finish_coins(aggregator: Aggregator, state: CollectCoins) -> Transition:
    """Draw the pairs from all coins, or draw again without the parties whose coin is missing."""
    log = _log_openings(aggregator, state)
    missing = [aggregator.name_of(party) for party in state.present if party not in state.coins]
    if missing:
        return _draw_again(aggregator, state, log, missing)
    coins = b"".join(state.coins[party] for party in state.present)
    names = [aggregator.name_of(party) for party in state.present]
    plan = aggregator.parameters.plan(state.requested)
    public_labels = _public_labels(plan, state.hellos, state.present)
    drawn = draw(plan.partners, plan.bipartite, state.run_id, names, public_labels, coins)
    after = CollectDone(
        run_id=state.run_id,
        inbox=state.inbox,
        requested=state.requested,
        log=log,
        present=state.present,
        drawn=drawn,
        ended=[],
        pairs=Pairs(PairRelays(plan, drawn)),
        dones={},
    )
    sent = aggregator.broadcast(after, m.MATCHED, m.Matched(coins))
    # A party that was lost after its coin came is drawn all the same: its partners need not wait for it.
    for party in state.present:
        if party not in state.inbox.alive:
            sent += end_pairs(aggregator, after, party)
    return Transition(after, sent)


def keep_openings(aggregator: Aggregator, state: CollectCoins) -> None:
    """Log the opened coins of a draw that is abandoned, as evidence."""
    _log_openings(aggregator, state)


def needed(aggregator: Aggregator, _state: CollectorState) -> int:
    """Return the number of parties that each step needs until the pairs are drawn."""
    return aggregator.parameters.quorum


def attempts(_aggregator: Aggregator) -> int:
    """Return the greatest number of times that a run may draw its pairs."""
    return m.ATTEMPTS


def _requested(state: CollectHello) -> Counter[bytes]:
    """Return how many parties ask for each operation, by the digest of its plan."""
    return Counter(item.message.plan for item in state.inbox.items.values())


def _hello(hellos: Mapping[int, Statement], party: int) -> m.Hello:
    """Decode and return the stored hello of a present party."""
    return decode(hellos[party].body, m.Hello, "")


def _agree(aggregator: Aggregator, state: CollectHello) -> Requested:
    """Return the operation that most ask for; exclude other parties; TimeoutFault if too few agree."""
    inbox, needed = state.inbox, aggregator.parameters.quorum
    (wanted, most), *_ = _requested(state).most_common(1)
    operation = next(i.message.operation for i in inbox.items.values() if i.message.plan == wanted)
    if most < needed:
        missing = [aggregator.name_of(party) for party in inbox.items]
        detail = f"{most} ask for the same, {needed} are needed"
        others = {_differences(item.message.operation, operation) for item in inbox.items.values()} - {""}
        detail += f"; they differ in {'; '.join(sorted(others))}" if others else ""
        raise TimeoutFault(missing, m.HELLO, detail, code=Code.FEW, number=needed)
    for party in sorted(inbox.items):
        hello = inbox.items[party].message
        if hello.plan != wanted:
            names = _differences(hello.operation, operation)
            reason = f"asks for another statistic than {most} others" + (f": {names}" if names else "")
            aggregator.exclude(
                state,
                party,
                PeerFault(aggregator.name_of(party), reason, Check.OTHER_OPERATION, code=Code.OPERATION),
            )
    return Requested(operation, wanted)


def _differences(operation: str, wanted: str) -> str:
    """Return the names of the terms that differ between two operations, as text."""
    asked, terms = json.loads(operation), {"covert": 0, **json.loads(wanted)}
    return ", ".join(name for name in sorted(terms) if ({"covert": 0} | asked).get(name) != terms[name])


def _public_labels(plan: StatisticPlan, hellos: Mapping[int, Statement], present: Iterable[int]) -> bytes:
    """Return each present party's public label plus 1, one byte each; ConfigError if no pair is possible."""
    public_labels = bytes(_hello(hellos, party).public_label + 1 for party in present)
    if plan.bipartite and len(set(public_labels)) < 2:
        reason = "all who take part have the same one"
        raise ConfigError.at("labels", reason, ConfigCheck.INFEASIBLE, code=Code.IMPOSSIBLE)
    return public_labels


def _draw_again(
    aggregator: Aggregator, state: CollectCoins, log: RunLog, missing: Sequence[str]
) -> Transition:
    """Begin a new draw without parties whose coin is missing; TimeoutFault after the last attempt."""
    inbox, hellos = state.inbox, state.hellos
    if state.attempt == m.ATTEMPTS:
        raise TimeoutFault(missing, state.step, f"{m.ATTEMPTS} draws of matchings lacked a coin")
    present = tuple(sorted(inbox.alive))
    _public_labels(aggregator.parameters.plan(state.requested), hellos, present)
    packed, attempt = pack_set(present, aggregator.parties), state.attempt + 1
    run_id = again_identifier(aggregator.context, state.run_id, attempt, packed)
    inbox.past.add(state.run_id)
    again, step = m.Again(packed), m.AGAINS[state.attempt - 1]
    log, _ = log_statement(aggregator, inbox, log, run_id, step, again)
    after = CollectCoins(
        run_id=run_id,
        inbox=inbox,
        requested=state.requested,
        hellos=hellos,
        log=log,
        attempt=attempt,
        present=present,
        coins={},
        openings={},
    )
    return Transition(after, aggregator.broadcast(after, step, again))


def _log_openings(aggregator: Aggregator, state: CollectCoins) -> RunLog:
    """Return the run's log with the opened coins added that are not yet in it."""
    openings = dict(state.openings)
    state.openings.clear()
    return log_messages(aggregator, state.inbox, state.log, state.step, openings)
