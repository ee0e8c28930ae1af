"""The aggregator of a verifiable run from the publications on: rounds of openings, and the tally."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

import msgspec

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.hosting import (
    VerifiableAggregator,
    as_signed,
    ask_for,
    certify,
    exclude_false,
)
from smpc_dp.capabilities.gopa.verifiable.recount import narrow
from smpc_dp.crypto import proofs
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import CollectorState, Item
from smpc_dp.engine.phases import certified_set, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Attesting, Participation
from smpc_dp.engine.phases.run_log import RunLog, Statement
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.state import Transition
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_list, pack_set
from smpc_dp.wire.signing import decode, encode

Claimed = dict[int, Statement]


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """All parties' commitments as the log has them, held by the aggregator of a verifiable run.

    Attributes:
        neighbours: of each party in the graph.
        commits: of each party.
        signed: the participants' commits as they were signed.
        edges: the participants' commitments to Delta, by party and neighbour.
        canceling: the edges whose commitments cancel.
        digests: of the entries of all commitments.
    """

    neighbours: dict[int, tuple[int, ...]]
    commits: dict[int, v.Commit]
    signed: dict[int, m.Advertisement]
    edges: dict[int, dict[int, bytes]]
    canceling: dict[int, dict[int, bytes]]
    digests: bytes

    def about(self, party: int, false: Collection[int], counted: Collection[int]) -> list[m.Advertisement]:
        """Return commitments of the neighbours of a party's false neighbours, unless the party has them.

        `counted`: the parties whose edges count in the check.
        """
        around = {peer for other in false if other in self.canceling[party] for peer in self.edges[other]}
        lacking = around & {*counted} & self.edges.keys() - {party, *self.neighbours[party]}
        return [self.signed[peer] for peer in sorted(lacking)]


class Agreed(msgspec.Struct, frozen=True):
    """Commitments and participants that a quorum has signed, held by the aggregator."""

    committed: Committed
    participation: Participation

    @property
    def participants(self) -> PartySet:
        """The set of parties that take part in the total."""
        return self.participation.participants


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Data of the aggregator before a round of openings: statements so far, who was false, opened noise.

    Attributes:
        number: of the round, from 1; 0 before the publications are logged.
        claimed: publications, and rounds of openings, as on the board.
        false: the parties whose statements were just shown false.
        published: the parties that have published, and made no false statement.
        opened: opened Delta, by author and neighbour; it grows.
    """

    number: int = 0
    claimed: tuple[Claimed, ...] = ()
    false: tuple[int, ...] = ()
    published: PartySet
    opened: dict[int, dict[int, RingVector]]


class CollectPublish(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has certified the coins and collects the parties' noisy vectors.

    `publications` grows with those that have come: each counts, also of a party that is lost before the step
    is over.
    """

    expects: ClassVar[str] = v.PUBLISH
    agreed: Agreed
    shown_false: int
    combined: bytes
    publications: Claimed
    log: RunLog


class CollectExclusions(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has excluded parties and collects signatures on those that remain."""

    expects: ClassVar[str] = v.ATTEST_EXCLUSIONS
    agreed: Agreed
    shown_false: int
    round: Round
    attesting: Attesting
    log: RunLog

    @property
    def step(self) -> str:
        """The name of the step that is collected, with the number of the round."""
        return v.in_round(self.expects, self.round.number)


class CollectOpen(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that collects the remaining parties' openings of noise with excluded ones."""

    expects: ClassVar[str] = v.OPEN
    agreed: Agreed
    shown_false: int
    round: Round
    openings: Claimed
    log: RunLog

    @property
    def step(self) -> str:
        """The name of the step that is collected, with the number of the round."""
        return v.in_round(self.expects, self.round.number)


class CollectTally(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has logged the total and collects the parties' signatures on it."""

    expects: ClassVar[str] = v.ATTEST_TALLY
    participation: Participation
    shown_false: int
    published: PartySet
    total: RingVector
    residual: int
    unchecked: list[int]
    attesting: Attesting
    log: RunLog


class Tallied(CollectorState, frozen=True, kw_only=True, eq=False):
    """Final state of the aggregator: the total is known, and the run's log is complete."""

    over: ClassVar[bool] = True
    shown_false: int
    outcome: Outcome


def least_left(aggregator: VerifiableAggregator, state: CollectTally) -> int:
    """Return the least number of parties with which a step goes on: fewer after exclusions."""
    return aggregator.parameters.least_left(state.shown_false)


def accept_publish(
    aggregator: VerifiableAggregator, state: CollectPublish, party: int, envelope: Envelope
) -> Item:
    """Store and return a party's noisy vector, proofs unverified; store a code with it if it is malformed."""
    rules = aggregator.rules(state.run_id)
    published = rules.read_publish(envelope.body, envelope.sender)
    refused = published if isinstance(published, str) else ""
    if aggregator.watch is not None and not isinstance(published, str):
        aggregator.watch(envelope.sender, rules.ring_vector(published.x_hat, envelope.sender))
    item = Item(None, envelope.body, envelope.signature)
    state.publications[party] = Statement.of(item, refused)
    return item


def finish_publish(aggregator: VerifiableAggregator, state: CollectPublish) -> Transition:
    """Verify all noisy vectors' proofs, log the vectors, and exclude the authors of false ones."""
    rules, committed = aggregator.rules(state.run_id, state.combined), state.agreed.committed
    publications, batch = state.publications, proofs.Batch()
    for party, item in sorted(publications.items()):
        if not item.refused:
            message = decode(item.body, v.Publish, "")
            name, edges = aggregator.name_of(party), committed.canceling[party].values()
            rules.add_publish(batch, party, name, message, committed.commits[party], edges)
    before = Round(published=PartySet.of(publications, aggregator.parties), opened={})
    return _go_on(aggregator, state, before, publications, state.agreed.participants, batch)


def finish_exclusions(aggregator: VerifiableAggregator, state: CollectExclusions) -> Transition:
    """Write a quorum's signatures on the remaining parties to the log, and send them to the parties."""
    log, _, message = certify(aggregator, state, state.log, state.attesting)
    answer = v.in_round(v.EXCLUSIONS_CERTIFICATE, state.round.number)
    after = CollectOpen(
        agreed=state.agreed, shown_false=state.shown_false, round=state.round, openings={}, log=log
    )
    return Transition(after, aggregator.broadcast(state, answer, message))


def accept_open(aggregator: VerifiableAggregator, state: CollectOpen, party: int, envelope: Envelope) -> Item:
    """Return a party's opening of noise with excluded parties; store it, with a code if it is false."""
    edges = state.agreed.committed.canceling[party]
    owed = {peer: edges[peer] for peer in state.round.false if peer in edges}
    opened = aggregator.rules(state.run_id).check_open(party, envelope.body, envelope.sender, owed)
    item = Item(None, envelope.body, envelope.signature)
    if opened:
        state.openings[party] = Statement.of(item, opened if isinstance(opened, str) else "")
    if not isinstance(opened, str):
        state.round.opened.setdefault(party, {}).update(opened)
    return item


def finish_open(aggregator: VerifiableAggregator, state: CollectOpen) -> Transition:
    """Log and send the openings of a round; exclude the authors of false ones, found when they came."""
    return _go_on(aggregator, state, state.round, state.openings, state.round.false, proofs.Batch())


def _go_on(
    aggregator: VerifiableAggregator,
    state: CollectPublish | CollectOpen,
    before: Round,
    claimed: Claimed,
    counted: Collection[int],
    batch: proofs.Batch,
) -> Transition:
    """Log and send the parties' statements; begin a round of openings if one is false, else the tally.

    `counted`: the parties whose edges count in the check. The author of a false opening is excluded like that
    of a false publication, and its edges are opened in the next round. Each round excludes somebody,
    so there are at most `most_false`.
    """
    run_id, inbox, committed, number = state.run_id, state.inbox, state.agreed.committed, before.number + 1
    kinds = (v.OPENINGS, v.Openings) if before.number else (v.PUBLICATIONS, v.Publications)
    answer, kind = (v.in_round(kinds[0], max(before.number, 1)), kinds[1])
    log, digests = aggregator.log(inbox, state.log, state.step, claimed)
    false = exclude_false(aggregator, state, claimed, batch)
    shown_false = state.shown_false + len(false)
    least = aggregator.parameters.least_left(shown_false)
    if len(inbox.alive) < least:
        raise aggregator.too_few(state, least)
    authors, packed = pack_list(sorted(claimed)), pack_list(false)

    def reported(party: int) -> v.Publications:
        shown = [as_signed(peer, claimed[peer]) for peer in false if peer in committed.canceling[party]]
        commits = committed.about(party, false, counted)
        return kind(authors, digests, packed, shown, committed.digests if commits else b"", commits)

    sent = aggregator.to_each(run_id, inbox, answer, reported)
    after = Round(
        number=number,
        claimed=(*before.claimed, claimed),
        false=false,
        published=PartySet.of({*before.published} - {*false}, aggregator.parties),
        opened=before.opened,
    )
    if not false:
        return _tally(aggregator, state, after, log, sent)
    attest = v.in_round(v.ATTEST_EXCLUSIONS, number)
    exclusions = CollectExclusions(
        agreed=state.agreed,
        shown_false=shown_false,
        round=after,
        attesting=ask_for(aggregator, run_id, log, attest, after.published, packed),
        log=log,
    )
    return Transition(exclusions, sent)


def _tally(
    aggregator: VerifiableAggregator,
    state: CollectPublish | CollectOpen,
    last: Round,
    log: RunLog,
    sent: list[Envelope],
) -> Transition:
    """Compute the total of noisy vectors without the opened pairwise noise; log and send it."""
    run_id, rules, published = state.run_id, aggregator.rules(state.run_id), last.published
    encoding, edges = aggregator.parameters.encoding, state.agreed.committed.canceling
    total, residual = encoding.zeros(), 0
    for party in sorted(published):
        total += rules.ring_vector(decode(last.claimed[0][party].body, v.Publish, "").x_hat, "")
        own = last.opened.get(party, {})
        for delta in own.values():
            total -= delta
        gone = edges[party].keys() - published
        residual += len(gone - own.keys())
    tally = v.Tally(pack_set(published, aggregator.parties), encoding.pack(total), residual)
    log, entry = aggregator.log_own(state, log, v.TALLY, tally)
    shown = [
        _shown_of(aggregator, step, published, first=not position)
        for position, step in enumerate(last.claimed)
    ]
    after = CollectTally(
        participation=state.agreed.participation,
        shown_false=state.shown_false,
        published=published,
        total=total,
        residual=residual,
        unchecked=[],
        attesting=ask_for(aggregator, run_id, log, v.ATTEST_TALLY, state.agreed.participants),
        log=log,
    )
    message = v.Tallied(entry.body, entry.signature, shown)
    return Transition(after, [*sent, *aggregator.broadcast(state, v.TALLIED, message)])


def _shown_of(
    aggregator: VerifiableAggregator, claimed: Claimed, published: Collection[int], *, first: bool
) -> v.Claimed:
    """Return the counted parties' bodies and signatures of one step, in the form sent to all parties."""
    counted = [item for party, item in sorted(claimed.items()) if party in published]
    bodies = [narrow(aggregator.parameters, item.body) if first else item.body for item in counted]
    return v.Claimed(bodies, b"".join(item.signature for item in counted))


def accept_tally(
    aggregator: VerifiableAggregator, state: CollectTally, party: int, envelope: Envelope
) -> Item:
    """Return a party's signature on the total; record if it says it has not checked the total."""
    if envelope.body == encode(v.NotChecked()):
        state.unchecked.append(party)
        return Item(None, b"", envelope.signature)
    return certified_set.accept_attestation(aggregator, state, party, envelope)


def finish_tally(aggregator: VerifiableAggregator, state: CollectTally) -> Transition:
    """End the log of the run with a quorum's signatures on the total."""
    parameters, published, false = aggregator.parameters, state.published, state.shown_false
    log, certificate, message = certify(aggregator, state, state.log, state.attesting, {*state.unchecked})
    outcome = outcomes.outcome(
        aggregator.context,
        parameters,
        state.run_id,
        state.total,
        state.participation,
        survivors=published,
        survivors_certificate=certificate,
        faults=tuple(state.inbox.faults),
        residual_pairs=state.residual,
    )
    # The parties on the board, as an audit counts them, even if they were lost since.
    outcome = replace(
        outcome,
        privacy=parameters.privacy(len(published), false),
        noise=parameters.noise(len(published), state.residual, false),
        evidence=replace(outcome.evidence, log=log.evidence, checked=True),
    )
    after = Tallied(shown_false=false, outcome=outcome)
    return Transition(after, aggregator.broadcast(state, v.CLOSED, message))
