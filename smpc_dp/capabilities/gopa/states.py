"""The states of GOPA where noise of lost parties stays in. Specification: protocols/gopa/README.md.

Up to the certificate of the participants a run equals secure aggregation. Then each party publishes x_hat and
reveals nothing more; the aggregator reads noisy vectors alone.
"""

from __future__ import annotations

import functools
from typing import ClassVar

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import CollectorRole, CollectorRow, CollectorState, Item
from smpc_dp.engine.party import PartyRole, PartyState, Row
from smpc_dp.engine.phases import certified_set, key_graph, keys, masked_sum, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Attesting, Participation, check_certified
from smpc_dp.engine.phases.key_graph import (
    AwaitNeighbours,
    CollectReveal,
    Edges,
    Graph,
    Ready,
    SumAggregator,
    Summed,
    SumMember,
)
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check
from smpc_dp.secagg.states import Finished, sum_aggregator, sum_party
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import decode

Party = SumMember[GopaParameters]
Aggregator = SumAggregator[GopaParameters]

# A party


class AwaitParticipants(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the list of participants and waits for a quorum's certificate."""

    expects: ClassVar[str] = m.PARTICIPANTS
    releases: ClassVar[bool] = True
    vector: RingVector
    graph: Graph
    digest: bytes


class AwaitAverage(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has published its noisy vector and waits for the average."""

    expects: ClassVar[str] = g.AVERAGE
    neighbours: tuple[int, ...]
    participation: Participation


def on_neighbours(member: Party, state: AwaitNeighbours, body: bytes) -> Transition:
    """Check the list of neighbours; sign the list of participants, unlike [Bellet 2021, 4.1.2]."""
    run_id = state.run_id
    graph, _ = key_graph.join_graph(member, run_id, state.advertised, body)
    digest = keys.participants_digest(member.context, run_id, graph.digest, graph.revealed.packed)
    after = AwaitParticipants(vector=state.vector, graph=graph, digest=digest)
    return Transition(after, (member.write(run_id, m.ATTEST_PARTICIPANTS, m.Attestation(digest)),))


def on_participants(member: Party, state: AwaitParticipants, body: bytes) -> Transition:
    """Send this party's vector with its own and pairwise noise for the certified participants."""
    run_id, graph = state.run_id, state.graph
    certificate = check_certified(member, run_id, m.ATTEST_PARTICIPANTS, state.digest, graph.revealed, body)
    masks = masked_sum.masks_of(member, run_id, graph, graph.revealed, None)
    x_hat = masked_sum.mask_vector(member, state.vector, masks)
    after = AwaitAverage(
        neighbours=tuple(graph.mask_keys),
        participation=Participation(graph.digest, graph.revealed, certificate, graph.roots),
    )
    return Transition(after, (member.write(run_id, g.PUBLISH, g.Published(x_hat)),))


def on_average(member: Party, state: AwaitAverage, body: bytes) -> Transition:
    """Check the set of survivors and the noise left in the average, and decode the average."""
    context, parameters = member.context, member.parameters
    participants = state.participation.participants
    message = decode(body, g.Average, context.aggregator)
    published = context.remember(
        ("set", message.published),
        lambda: PartySet.unpack(message.published, member.parties, context.aggregator),
    )
    if not published <= participants or len(published) < parameters.plan.min_survivors:
        raise member.refuse(
            "published an average over parties that do not take part, or over too few", Check.SET_DIFFERS
        )
    if member.index not in published:
        raise member.refuse(f"left {member.name} out of the average", Check.NOT_INCLUDED)
    lost = len(participants) - len(published)
    own = sum(peer in participants and peer not in published for peer in state.neighbours)
    if not own <= message.residual_pairs <= lost * len(published):
        raise member.refuse(
            f"counts {message.residual_pairs} residual pairs with {lost} parties lost", Check.WRONG_COUNT
        )
    outcome = outcomes.outcome(
        context,
        parameters,
        state.run_id,
        outcomes.unpack_total(member, message, message.total),
        state.participation,
        survivors=published,
        residual_pairs=message.residual_pairs,
        signed_result=outcomes.signed_result(member, state, state.participation, body),
    )
    return Transition(Finished(outcome=outcome))


PARTY = PartyRole(
    first=Ready,
    begin=key_graph.say_hello,
    hello=m.HELLO,
    rows=(
        *key_graph.PARTY_ROWS,
        Row(
            AwaitNeighbours,
            on_neighbours,
            (AwaitParticipants,),
            (m.ATTEST_PARTICIPANTS,),
            "another set of participants; the sealing key is forgotten",
        ),
        Row(
            AwaitParticipants,
            on_participants,
            (AwaitAverage,),
            (g.PUBLISH,),
            "another x_hat: vector and masking key are forgotten",
        ),
        Row(AwaitAverage, on_average, (Finished,), (), "anything: the run is over"),
    ),
    # A party may leave until the average comes: x_hat may be made and not sent, if a ledger refuses it.
    last=g.AVERAGE,
    saved=True,
)


party = functools.partial(sum_party, PARTY)

# The aggregator


class CollectParticipants(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that knows the graph and collects signatures on the participants."""

    expects: ClassVar[str] = m.ATTEST_PARTICIPANTS
    edges: Edges
    attesting: Attesting


class CollectPublished(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that collects and adds up the certified participants' noisy vectors."""

    expects: ClassVar[str] = g.PUBLISH
    edges: Edges
    participation: Participation
    total: RingVector
    published: list[int]


def finish_reveal(aggregator: Aggregator, state: CollectReveal) -> Transition:
    """Compute the neighbour graph of the parties that revealed their draws, and send it to them."""
    edges, messages = key_graph.connect_graph(aggregator, state, state.commitments)
    participants = PartySet.of(state.inbox.alive, aggregator.parties)
    digest = keys.participants_digest(aggregator.context, state.run_id, edges.digest, participants.packed)
    attesting = Attesting(participants, digest)
    after = CollectParticipants(edges=edges, attesting=attesting)
    return Transition(after, messages)


def finish_participants(aggregator: Aggregator, state: CollectParticipants) -> Transition:
    """Send all parties the certificate that fixes which parties take part in the sum."""
    participation, messages = certified_set.certify_participants(
        aggregator, state, state.attesting, state.edges.digest
    )
    after = CollectPublished(
        edges=state.edges,
        participation=participation,
        total=aggregator.parameters.encoding.zeros(),
        published=[],
    )
    return Transition(after, messages)


def accept_published(aggregator: Aggregator, state: CollectPublished, party: int, envelope: Envelope) -> Item:
    """Add a party's noisy vector to the total in place; return an item with the signature alone."""
    message = decode(envelope.body, g.Published, envelope.sender)
    masked_sum.add_vector(aggregator, state.total, envelope.sender, message.x_hat, "Published")
    state.published.append(party)
    return Item(None, b"", envelope.signature)


def finish_published(aggregator: Aggregator, state: CollectPublished) -> Transition:
    """Send the average to the parties, with its survivors and the number of pairs whose noise remains."""
    published, encoding = {*state.published}, aggregator.parameters.encoding
    lost = [party for party in state.participation.participants if party not in published]
    residual = sum(peer in published for party in lost for peer in state.edges.neighbours[party])
    survivors = PartySet.of(published, aggregator.parties)
    message = g.Average(encoding.pack(state.total), survivors.packed, residual)
    outcome = outcomes.outcome(
        aggregator.context,
        aggregator.parameters,
        state.run_id,
        state.total,
        state.participation,
        survivors=survivors,
        faults=tuple(state.inbox.faults),
        residual_pairs=residual,
    )
    return key_graph.send_result(aggregator, state, g.AVERAGE, message, outcome)


least = key_graph.min_survivors
AGGREGATOR = CollectorRole(
    rows=(
        *key_graph.ROWS,
        CollectorRow(
            CollectReveal,
            key_graph.accept_reveal,
            finish_reveal,
            least,
            (CollectParticipants,),
            (m.NEIGHBOURS,),
            "another graph, another set of participants",
        ),
        CollectorRow(
            CollectParticipants,
            certified_set.accept_attestation,
            finish_participants,
            least,
            (CollectPublished,),
            (m.PARTICIPANTS,),
            "another set of participants: two quorums share an honest party",
        ),
        CollectorRow(
            CollectPublished,
            accept_published,
            finish_published,
            least,
            (Summed,),
            (g.AVERAGE,),
            "anything: the run is over",
        ),
    ),
    saved=True,
)

aggregator = functools.partial(sum_aggregator, AGGREGATOR)
