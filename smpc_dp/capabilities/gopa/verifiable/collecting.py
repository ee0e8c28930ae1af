"""The aggregator of a verifiable run up to the coins: session log, graph, commitments, coins."""

from __future__ import annotations

from typing import ClassVar

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.counting import Agreed, CollectPublish, Committed
from smpc_dp.capabilities.gopa.verifiable.hosting import (
    VerifiableAggregator,
    as_signed,
    ask_for,
    certify,
    exclude_false,
)
from smpc_dp.capabilities.gopa.verifiable.statements import agreements
from smpc_dp.crypto import proofs
from smpc_dp.engine.collector import CollectorState, Item
from smpc_dp.engine.phases import begin, key_graph
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Attesting, Participation
from smpc_dp.engine.phases.key_graph import CollectHello, Commitments
from smpc_dp.engine.phases.run_log import RunLog, Statement
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, PeerFault, TimeoutFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list
from smpc_dp.wire.signing import decode


class CollectBegin(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has added the run to the session log and collects signatures on it."""

    expects: ClassVar[str] = m.ATTEST_BEGIN
    present: bytes
    log: RunLog


class CollectAdvertise(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that collects the parties' keys and commitments to drawn neighbours."""

    expects: ClassVar[str] = m.ADVERTISE
    log: RunLog


class CollectReveal(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has fixed all commitments to draws and collects their openings."""

    expects: ClassVar[str] = m.REVEAL
    commitments: Commitments
    log: RunLog


class CollectCommit(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has sent the graph and collects commitments to vectors and noise."""

    expects: ClassVar[str] = v.COMMIT
    neighbours: dict[int, tuple[int, ...]]
    merkle_commitment: bytes
    log: RunLog


class CollectCommitments(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has logged all commitments and collects signatures on the log."""

    expects: ClassVar[str] = v.ATTEST_COMMITMENTS
    merkle_commitment: bytes
    committed: Committed
    shown_false: int
    attesting: Attesting
    log: RunLog


class CollectCoin(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has certified all commitments and collects the parties' coins.

    `coins` grows; a coin counts also if its party is lost in this step.
    """

    expects: ClassVar[str] = v.COIN
    agreed: Agreed
    shown_false: int
    coins: dict[int, Statement]
    log: RunLog


class CollectCoins(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has logged all coins and collects the parties' signatures on the log."""

    expects: ClassVar[str] = v.ATTEST_COINS
    agreed: Agreed
    shown_false: int
    combined: bytes
    attesting: Attesting
    log: RunLog


def accept_hello(
    aggregator: VerifiableAggregator, _state: CollectHello, _party: int, envelope: Envelope
) -> Item:
    """Return a party's hello; raise PeerFault if it is for another session, request or plan."""
    return key_graph.check_hello(aggregator, envelope, v.Hello)


def finish_hello(aggregator: VerifiableAggregator, state: CollectHello) -> Transition:
    """Begin the run with the parties present, add a line to the session log, and send both to the parties."""
    inbox = state.inbox
    known = {party: inbox.items[party].message.known for party in sorted(inbox.alive)}
    for party, number in known.items():
        if why := begin.why_behind(aggregator.runs, number):
            aggregator.exclude(state, party, TimeoutFault({aggregator.name_of(party)}, m.HELLO, why))
    begun = key_graph.begin(aggregator, state)
    log, runs = begin.begin_log(aggregator, inbox, begun.run_id, begun.operation, begun.present, begun.root)
    shown = aggregator.to_each(begun.run_id, inbox, m.BEGIN, lambda party: m.Begin(*runs.since(known[party])))
    after = CollectBegin(run_id=begun.run_id, present=begun.present, log=log)
    return Transition(after, [*begun.messages, *shown])


def finish_begin(aggregator: VerifiableAggregator, state: CollectBegin) -> Transition:
    """Write a quorum's signatures to the session log, and as the first entry to the public log of the run."""
    quorum = aggregator.parameters.plan.quorum
    certified = begin.certify_begin(aggregator, state, quorum)
    log, entry = aggregator.log_own(state, state.log, m.CERTIFY_BEGIN, certified)
    message = m.Begun(state.log.head, entry.body, entry.signature)
    after = CollectAdvertise(log=log)
    return Transition(after, aggregator.broadcast(state, m.BEGUN, message))


def finish_advertise(aggregator: VerifiableAggregator, state: CollectAdvertise) -> Transition:
    """Send one digest that fixes all parties' commitments to their drawn neighbours."""
    commitments, messages = key_graph.bind_commitments(aggregator, state)
    after = CollectReveal(commitments=commitments, log=state.log)
    return Transition(after, messages)


def accept_reveal(
    aggregator: VerifiableAggregator, state: CollectReveal, party: int, envelope: Envelope
) -> Item:
    """Return a party's drawn neighbours and key; raise PeerFault unless they are as committed."""
    return key_graph.check_reveal(aggregator, state.run_id, state.commitments, party, envelope)


def finish_reveal(aggregator: VerifiableAggregator, state: CollectReveal) -> Transition:
    """Compute the graph of neighbours from the revealed draws, and send each party its neighbours."""
    edges, messages = key_graph.connect_graph(aggregator, state, state.commitments)
    after = CollectCommit(neighbours=edges.neighbours, merkle_commitment=edges.digest, log=state.log)
    return Transition(after, messages)


def accept_commit(
    aggregator: VerifiableAggregator, state: CollectCommit, party: int, envelope: Envelope
) -> Item:
    """Return a party's commitments to vector and noise, marked with a code if they are malformed."""
    checked = aggregator.rules(state.run_id).check_commit(party, envelope.body, envelope.sender)
    refused = checked if isinstance(checked, str) else ""
    return Item(refused, envelope.body, envelope.signature)


def finish_commit(aggregator: VerifiableAggregator, state: CollectCommit) -> Transition:
    """Log all commitments, exclude the authors of false ones, and send each party its neighbours'."""
    # A party that is gone already has no entry: nothing shows its commit.
    run_id, inbox = state.run_id, state.inbox
    items = {party: Statement.of(item, item.message) for party, item in inbox.items.items()}
    rules, batch = aggregator.rules(run_id), proofs.Batch()
    commits: dict[int, v.Commit] = {}
    edges: dict[int, dict[int, bytes]] = {}
    for party, item in sorted(items.items()):
        if not item.refused:
            name = aggregator.name_of(party)
            commits[party] = rules.read_commit(party, item.body, name)
            edges[party] = rules.edges_of(party, commits[party], name)
            rules.add_commit(batch, party, name, commits[party])
    log, digests = aggregator.log(inbox, state.log, v.COMMIT, items)
    excluded = exclude_false(aggregator, state, items, batch)
    least = aggregator.parameters.least_left(len(excluded))
    if len(inbox.alive) < least:
        raise aggregator.too_few(state, least)
    participants = tuple(sorted(inbox.alive))
    edges = {party: edges[party] for party in participants}
    attesting = ask_for(aggregator, run_id, log, v.ATTEST_COMMITMENTS, participants)
    committed = Committed(
        neighbours=state.neighbours,
        commits=commits,
        signed={party: as_signed(party, items[party]) for party in participants},
        edges=edges,
        canceling=agreements(edges),
        digests=digests,
    )
    authors, false = pack_list(sorted(items)), [as_signed(party, items[party]) for party in excluded]

    def message(party: int) -> v.Committed:
        around = [committed.signed[peer] for peer in state.neighbours[party] if peer in edges]
        return v.Committed(authors, digests, attesting.members.packed, around, false)

    after = CollectCommitments(
        merkle_commitment=state.merkle_commitment,
        committed=committed,
        shown_false=len(excluded),
        attesting=attesting,
        log=log,
    )
    return Transition(after, aggregator.to_each(run_id, inbox, v.COMMITTED, message))


def finish_commitments(aggregator: VerifiableAggregator, state: CollectCommitments) -> Transition:
    """Write a quorum's signatures on the commitments to the log, and send them to the parties."""
    log, certificate, message = certify(aggregator, state, state.log, state.attesting)
    after = CollectCoin(
        agreed=Agreed(
            state.committed, Participation(state.merkle_commitment, state.attesting.members, certificate)
        ),
        shown_false=state.shown_false,
        coins={},
        log=log,
    )
    return Transition(after, aggregator.broadcast(state, v.COMMITMENTS_CERTIFICATE, message))


def accept_coin(aggregator: VerifiableAggregator, state: CollectCoin, party: int, envelope: Envelope) -> Item:
    """Store and return a party's coin; log it and raise PeerFault if it opens no commitment."""
    rules, name = aggregator.rules(state.run_id), envelope.sender
    item = Item(None, envelope.body, envelope.signature)
    try:
        coin = decode(envelope.body, v.Coin, name).coin
        if rules.coin_commitment(name, coin) != state.agreed.committed.commits[party].coin:
            raise PeerFault(name, "opened another coin than it has committed to", Check.BAD_OPENING)
    except PeerFault:
        # The run stops here: the last entry of its log shows why.
        aggregator.log(state.inbox, state.log, v.COIN, {party: Statement.of(item)})
        raise
    state.coins[party] = Statement.of(item)
    return item


def all_coins(_aggregator: VerifiableAggregator, state: CollectCoin) -> int:
    """Return how many parties not lost must have sent coins: each participant's coin is needed.

    A withheld coin would let its author choose the noise.
    """
    return len(state.agreed.participants) - len(state.coins.keys() - state.inbox.alive)


def finish_coin(aggregator: VerifiableAggregator, state: CollectCoin) -> Transition:
    """Write all parties' coins to the log, and send them to every party."""
    run_id, participants = state.run_id, state.agreed.participants
    items = [state.coins[party] for party in participants]
    coins = b"".join(decode(item.body, v.Coin, "").coin for item in items)
    log, _ = aggregator.log(state.inbox, state.log, v.COIN, state.coins)
    after = CollectCoins(
        agreed=state.agreed,
        shown_false=state.shown_false,
        combined=aggregator.rules(run_id).combine_coins(participants.packed, coins),
        attesting=ask_for(aggregator, run_id, log, v.ATTEST_COINS, participants),
        log=log,
    )
    message = v.Coins(coins, b"".join(item.signature for item in items))
    return Transition(after, aggregator.broadcast(state, v.COINS, message))


def finish_coins(aggregator: VerifiableAggregator, state: CollectCoins) -> Transition:
    """Write a quorum's signatures on all coins to the log, and send them to the parties."""
    log, _, message = certify(aggregator, state, state.log, state.attesting)
    after = CollectPublish(
        agreed=state.agreed, shown_false=state.shown_false, combined=state.combined, publications={}, log=log
    )
    return Transition(after, aggregator.broadcast(state, v.COINS_CERTIFICATE, message))
