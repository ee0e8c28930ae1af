"""The states of secure aggregation.

Specification: protocols/secagg/README.md, with tables generated from here.

The aggregator forwards shares that it cannot read, adds masked vectors as they arrive, and learns the sum. A
lost, late or faulty party is excluded while the plan allows it; beyond that the run stops with an error that
names the parties.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ClassVar, Self, cast

import msgspec
from msgspec.structs import replace

from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import CollectorRole, CollectorRow, CollectorState, Inbox, Item
from smpc_dp.engine.party import PartyRole, PartyState, Row
from smpc_dp.engine.phases import certified_set, checked_total, key_graph, keys, masked_sum, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Attesting, Participation, check_certified
from smpc_dp.engine.phases.checked_total import Certified, Committed, Opened
from smpc_dp.engine.phases.key_graph import (
    AwaitNeighbours,
    CollectReveal,
    Edges,
    Graph,
    Ready,
    Sealing,
    SumAggregator,
    Summed,
    SumMember,
    Watch,
    members_of,
)
from smpc_dp.engine.phases.last_results import HeldResult, SentResults
from smpc_dp.engine.phases.masked_sum import Dealt, Delivered
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.phases.recovery import Recovery
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.result import Certificate, Outcome
from smpc_dp.engine.run import Run
from smpc_dp.engine.signed_result import SignedResult
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Code, TimeoutFault, VerificationError
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_list
from smpc_dp.wire.signing import Context, Signer, decode

if TYPE_CHECKING:
    from smpc_dp.logs.keeping import Board

Party = SumMember[SumParameters]
Aggregator = SumAggregator[SumParameters]

# A party


class AwaitDelivery(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has dealt secret shares and waits for the shares that others dealt."""

    expects: ClassVar[str] = m.DELIVER
    vector: RingVector
    graph: Graph
    sealing: Sealing
    self_seed: bytes
    committed: Committed | None = None


class AwaitParticipants(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the participants and waits for their certificate."""

    expects: ClassVar[str] = m.PARTICIPANTS
    releases: ClassVar[bool] = True
    vector: RingVector
    graph: Graph
    self_seed: bytes
    delivered: Delivered
    committed: Committed | None = None


class AwaitSurvivors(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has sent its masked vector and waits for the list of survivors."""

    expects: ClassVar[str] = m.SURVIVORS
    delivered: Delivered
    participation: Participation


class AwaitSurvivorsCertificate(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the survivors and waits for a quorum's signatures."""

    expects: ClassVar[str] = m.SURVIVORS_CERTIFICATE
    delivered: Delivered
    participation: Participation
    survivors: PartySet
    digest: bytes


class AwaitResult(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has opened one share of each dealer and waits for the sum."""

    expects: ClassVar[str] = m.RESULT
    participation: Participation
    survivors: PartySet
    survivors_certificate: Certificate


class Finished(PartyState, frozen=True, kw_only=True, eq=False):
    """Final state of a party that has the result and the survivors, for the session's later sums."""

    over: ClassVar[bool] = True
    outcome: Outcome
    survivors: PartySet | None = None

    @property
    def restorable(self) -> Self:
        """The state to save, without the total, which its signed result contains in fewer bytes."""
        return replace(self, outcome=outcomes.without_total(self.outcome))

    def restored(self, member: Party) -> Self:
        """Return the full final state of a restored run, with the total read from the signed result."""
        return replace(self, outcome=outcomes.with_total(member, self.outcome))


def on_neighbours(member: Party, state: AwaitNeighbours, body: bytes) -> Transition:
    """Deal encrypted secret shares of the masking key and of a fresh self-mask seed to neighbours."""
    run_id = state.run_id
    graph, sealing = key_graph.join_graph(member, run_id, state.advertised, body)
    masked_sum.check_holders(member, state.advertised.neighbours, graph.revealed, m.REVEAL)
    self_seed, message = masked_sum.deal(member, run_id, graph, sealing)
    after = AwaitDelivery(
        vector=state.vector,
        graph=graph,
        sealing=sealing,
        self_seed=self_seed,
        committed=state.committed,
    )
    return Transition(after, (member.write(run_id, m.DEAL, message),))


def on_deliver(member: Party, state: AwaitDelivery, body: bytes) -> Transition:
    """Decrypt the shares that others dealt to this party, and sign the participants."""
    run_id = state.run_id
    delivered = masked_sum.open_delivery(member, run_id, state.graph, state.sealing, body)
    after = AwaitParticipants(
        vector=state.vector,
        graph=state.graph,
        self_seed=state.self_seed,
        delivered=delivered,
        committed=state.committed,
    )
    message = m.Attestation(delivered.digest)
    return Transition(after, (member.write(run_id, m.ATTEST_PARTICIPANTS, message),))


def on_participants(member: Party, state: AwaitParticipants, body: bytes) -> Transition:
    """Send the vector masked for exactly the certified participants, and the commitment to it, if any."""
    run_id, delivered, participants = state.run_id, state.delivered, state.delivered.participants
    certificate = check_certified(member, run_id, m.ATTEST_PARTICIPANTS, delivered.digest, participants, body)
    masks = masked_sum.masks_of(member, run_id, state.graph, participants, state.self_seed)
    vector = masked_sum.mask_vector(member, state.vector, masks)
    opening: tuple[bytes, ...] = ()
    if state.committed is not None:
        opening = checked_total.open_commitment(member, run_id, delivered.digest, state.committed, masks)
    message = member.parameters.kinds.masked(vector, pack_list(delivered.bad_dealers), *opening)
    after = AwaitSurvivors(
        delivered=delivered,
        participation=Participation(state.graph.digest, participants, certificate, state.graph.roots),
    )
    return Transition(after, (member.write(run_id, m.MASKED, message),))


def on_survivors(member: Party, state: AwaitSurvivors, body: bytes) -> Transition:
    """Sign the set of survivors; raise if the session's earlier sums are over other parties."""
    run_id, delivered = state.run_id, state.delivered
    message = decode(body, m.Survivors, member.context.aggregator)
    survivors = members_of(member, message.survivors, delivered.participants, "survivors")
    if member.fixed is not None:
        # Before the party signs: so no quorum signs, and no party opens a share.
        member.fixed.check(member.context, survivors)
    digest = keys.survivors_digest(member.context, run_id, delivered.digest, message.survivors)
    after = AwaitSurvivorsCertificate(
        delivered=delivered,
        participation=state.participation,
        survivors=survivors,
        digest=digest,
    )
    return Transition(after, (member.write(run_id, m.ATTEST_SURVIVORS, m.Attestation(digest)),))


def on_survivors_certificate(member: Party, state: AwaitSurvivorsCertificate, body: bytes) -> Transition:
    """Reveal one share of each dealer, and discard the shares."""
    run_id, survivors = state.run_id, state.survivors
    certificate = check_certified(member, run_id, m.ATTEST_SURVIVORS, state.digest, survivors, body)
    message = masked_sum.open_shares(member, run_id, state.delivered.held, survivors)
    after = AwaitResult(
        participation=state.participation,
        survivors=survivors,
        survivors_certificate=certificate,
    )
    return Transition(after, (member.write(run_id, m.UNMASK, message),))


def on_result(member: Party, state: AwaitResult, body: bytes) -> Transition:
    """Decode the sum into the result, after checking the total if totals are checked."""
    message = decode(body, member.parameters.kinds.result, member.context.aggregator)
    if member.parameters.is_checked:
        check_total(member, state, message)
    signed = outcomes.signed_result(member, state, state.participation, body)
    outcome = outcome_of(member, state, message, signed)
    return Transition(Finished(outcome=outcome, survivors=state.survivors))


def check_total(member: Party, state: AwaitResult, message: m.Result) -> None:
    """Raise PeerFault naming the aggregator unless survivors' commitments add up to the total's."""
    participation = state.participation
    certified = Certified(participation.party_roots, participation.certificate.set_digest, state.survivors)
    total = outcomes.unpack_total(member, message, message.total)
    checked_total.check_result(member, state.run_id, certified, message, total)


def outcome_of(
    member: Party, state: AwaitResult, message: m.Result, signed: SignedResult | None = None
) -> Outcome:
    """Return the result of the aggregator's total; raise if no vectors of the survivors can have that sum."""
    try:
        return outcomes.outcome(
            member.context,
            member.parameters,
            state.run_id,
            outcomes.unpack_total(member, message, message.total),
            state.participation,
            survivors=state.survivors,
            survivors_certificate=state.survivors_certificate,
            signed_result=signed,
        )
    except VerificationError as error:
        if not member.parameters.is_checked:
            raise
        # The aggregator had to check this too, and has signed what fails.
        raise member.refuse(str(error), error.check) from None


PARTY = PartyRole(
    first=Ready,
    begin=key_graph.say_hello,
    hello=m.HELLO,
    rows=(
        *key_graph.PARTY_ROWS,
        Row(
            AwaitNeighbours,
            on_neighbours,
            (AwaitDelivery,),
            (m.DEAL,),
            "a neighbour that was chosen after draws were opened",
        ),
        Row(
            AwaitDelivery,
            on_deliver,
            (AwaitParticipants,),
            (m.ATTEST_PARTICIPANTS,),
            "another set of participants; the sealing key is forgotten",
        ),
        Row(
            AwaitParticipants,
            on_participants,
            (AwaitSurvivors,),
            (m.MASKED,),
            "another masked vector: vector, masking key and self-mask seed are forgotten",
        ),
        Row(
            AwaitSurvivors,
            on_survivors,
            (AwaitSurvivorsCertificate,),
            (m.ATTEST_SURVIVORS,),
            "another set of survivors",
        ),
        Row(
            AwaitSurvivorsCertificate,
            on_survivors_certificate,
            (AwaitResult,),
            (m.UNMASK,),
            "the other share of any dealer: both are forgotten",
        ),
        Row(AwaitResult, on_result, (Finished,), (), "anything: the run is over"),
    ),
    last=m.UNMASK,
    saved=True,
)


def sum_party(
    role: PartyRole,
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    ring_vector: RingVector,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,
    seen: Seen = NOTHING_SEEN,  # noqa: ARG001 - of protocols with a log
    *,
    last: HeldResult | None = None,
) -> Run[Outcome]:
    """Return the state machine of a party in a secure sum without a public log.

    Args:
        role: the table of its states.
        context: the session, the request and everyone's public keys.
        parameters: checked parameters of the session.
        identity: signs; its name is the party's.
        ring_vector: the encoded vector (`parameters.encoding.encode`), of shape `parameters.shape`.
        randomness: the operating system's; a seeded one only in simulations and tests.
        fixed: the survivors that the session's sums have in common, where its parameters say so; None: the
            session has one request.
        last: the last result that the party has accepted in the session; None: the session has one request.

    Raises:
        LocalError: `ring_vector` has another shape or type.
    """
    parameters.check_ring_vector(identity.name, ring_vector)
    retained = fixed if parameters.keeps_survivors else None
    member = SumMember(context, parameters, identity, randomness or SystemRandomness(), retained, last)
    return Run(role, member, Ready(vector=ring_vector))


party = functools.partial(sum_party, PARTY)

# The aggregator


class CollectDeal(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has sent the graph and collects the parties' encrypted shares."""

    expects: ClassVar[str] = m.DEAL
    edges: Edges


class CollectParticipants(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has delivered shares and collects signatures on the participants."""

    expects: ClassVar[str] = m.ATTEST_PARTICIPANTS
    edges: Edges
    dealt: Dealt
    attesting: Attesting


class Agreed(msgspec.Struct, frozen=True):
    """Values that the aggregator keeps once the participants are certified."""

    edges: Edges
    dealt: Dealt
    participation: Participation


class Added(msgspec.Struct, frozen=True):
    """Aggregator's running sum of masked vectors, and each sender's complaints about invalid shares.

    `opened`: the commitment of each sender, where totals are checked.
    """

    total: RingVector
    complaints: dict[int, tuple[int, ...]]
    opened: dict[int, Opened] = msgspec.field(default_factory=dict)


class CollectMasked(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has certified the participants and adds up their masked vectors."""

    expects: ClassVar[str] = m.MASKED
    agreed: Agreed
    added: Added


class CollectSurvivors(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has added the vectors and collects signatures on the survivors."""

    expects: ClassVar[str] = m.ATTEST_SURVIVORS
    agreed: Agreed
    added: Added
    attesting: Attesting


class CollectUnmask(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has certified the survivors and collects opened shares."""

    expects: ClassVar[str] = m.UNMASK
    agreed: Agreed
    added: Added
    survivors: PartySet
    survivors_certificate: Certificate
    opened: dict[int, m.Unmask]


def finish_reveal(aggregator: Aggregator, state: CollectReveal) -> Transition:
    """Compute the graph of neighbours from the opened draws, and send each party its neighbours."""
    edges, messages = key_graph.connect_graph(aggregator, state, state.commitments)
    return Transition(CollectDeal(edges=edges), messages)


def accept_deal(_aggregator: Aggregator, state: CollectDeal, party: int, envelope: Envelope) -> Item:
    """Return an item with a party's encrypted shares; raise PeerFault unless there is one for each holder."""
    return masked_sum.accept_deal(state.edges, party, envelope)


def finish_deal(aggregator: Aggregator, state: CollectDeal) -> Transition:
    """Send each party the shares dealt to it, and the participants: all parties that have dealt."""
    dealt, attesting, messages = masked_sum.deliver(aggregator, state, state.edges)
    after = CollectParticipants(edges=state.edges, dealt=dealt, attesting=attesting)
    return Transition(after, messages)


def finish_participants(aggregator: Aggregator, state: CollectParticipants) -> Transition:
    """Send all parties the certificate that fixes which parties take part in the sum."""
    participation, messages = certified_set.certify_participants(
        aggregator, state, state.attesting, state.edges.digest
    )
    after = CollectMasked(
        agreed=Agreed(state.edges, state.dealt, participation),
        added=Added(aggregator.parameters.encoding.zeros(), {}),
    )
    return Transition(after, messages)


def accept_masked(aggregator: Aggregator, state: CollectMasked, party: int, envelope: Envelope) -> Item:
    """Add a party's masked vector to the total, store complaints and commitment; return them in an item."""
    agreed, added = state.agreed, state.added
    message = decode(envelope.body, aggregator.parameters.kinds.masked, envelope.sender)
    opened: Opened | None = None
    if isinstance(message, m.CheckedMasked):
        digest, committed = agreed.participation.certificate.set_digest, agreed.edges.value_commitments[party]
        opened = checked_total.accept_opening(
            aggregator.context, state.run_id, digest, envelope.sender, committed, message
        )
    item = masked_sum.add_masked(aggregator, added.total, agreed.dealt, party, envelope, message)
    added.complaints[party] = item.message
    if opened is not None:
        added.opened[party] = opened
    return item


def finish_masked(aggregator: Aggregator, state: CollectMasked) -> Transition:
    """Send all parties the set of survivors, whose vectors are in the total."""
    # A party that is lost after its vector was added is a survivor all the same: the total holds its input.
    survivors = PartySet.of(state.added.complaints, aggregator.parties)
    if aggregator.fixed is not None:
        aggregator.fixed.fix(aggregator.context, survivors)
    earlier = state.agreed.participation.certificate.set_digest
    digest = keys.survivors_digest(aggregator.context, state.run_id, earlier, survivors.packed)
    after = CollectSurvivors(agreed=state.agreed, added=state.added, attesting=Attesting(survivors, digest))
    return Transition(after, aggregator.broadcast(state, m.SURVIVORS, m.Survivors(survivors.packed)))


def finish_survivors(aggregator: Aggregator, state: CollectSurvivors) -> Transition:
    """Send all parties the certificate of the survivors, which fixes whose vectors the total has."""
    message, certificate = certified_set.certify(aggregator, state, state.attesting)
    after = CollectUnmask(
        agreed=state.agreed,
        added=state.added,
        survivors=state.attesting.members,
        survivors_certificate=certificate,
        opened={},
    )
    return Transition(after, aggregator.broadcast(state, m.SURVIVORS_CERTIFICATE, message))


def accept_unmask(aggregator: Aggregator, state: CollectUnmask, party: int, envelope: Envelope) -> Item:
    """Store a holder's opened shares, which count even if it is lost later; return them as an item."""
    complaints = state.added.complaints[party]
    expected = tuple(dealer for dealer in state.agreed.dealt.dealers_of[party] if dealer not in complaints)
    item = masked_sum.accept_unmask(aggregator, expected, envelope)
    state.opened[party] = item.message
    return item


def finish_unmask(aggregator: Aggregator, state: CollectUnmask) -> Transition:
    """Recover the secrets of masks from opened shares, subtract the masks, and send the sum."""
    result, outcome = open_total(aggregator, state)
    return key_graph.send_result(aggregator, state, m.RESULT, result, outcome)


def open_total(aggregator: Aggregator, state: CollectUnmask) -> tuple[m.Result, Outcome]:
    """Remove the masks from the total in place; return the result message and the outcome."""
    context, parameters = aggregator.context, aggregator.parameters
    agreed, total = state.agreed, state.added.total
    recovery = Recovery(
        context,
        parameters.plan,
        state.run_id,
        participants=agreed.participation.participants,
        survivors=state.survivors,
        edges=agreed.edges,
        self_commitments=agreed.dealt.self_commitments,
    )
    for party, unmask in state.opened.items():
        recovery.add(party, unmask, state.added.complaints[party])
    masks = recovery.masks()
    masks.add_to(total, parameters, aggregator.threads)
    state.inbox.faults += recovery.faults
    # It is written as it is: the outcome has the same total, which nobody changes any more.
    result = m.Result(cast("bytes", parameters.encoding.packed(total)))
    if parameters.is_checked:
        opened = state.added.opened
        blinding = checked_total.unmask_blindings(parameters, opened.values(), masks)
        committed = agreed.edges.value_commitments
        result = checked_total.checked_result(parameters, total, blinding, opened, committed)
    outcome = outcomes.outcome(
        context,
        parameters,
        state.run_id,
        total,
        agreed.participation,
        survivors=state.survivors,
        survivors_certificate=state.survivors_certificate,
        faults=tuple(state.inbox.faults),
    )
    return result, outcome


def threshold(aggregator: Aggregator, _state: CollectUnmask) -> int:
    """Return the number of holders that must open their shares to remove the masks."""
    return aggregator.parameters.plan.threshold


def check_fixed(aggregator: Aggregator, state: CollectorState) -> None:
    """Raise TimeoutFault if this sum lacks an excluded party that the session's earlier sums have."""
    if aggregator.fixed is None:
        return
    # A vector that was added counts, even if its party has been lost since.
    excluded = set(state.inbox.excluded)
    if isinstance(state, CollectMasked | CollectSurvivors | CollectUnmask):
        excluded -= state.added.complaints.keys()
    if gone := aggregator.fixed.inside(excluded):
        names = [aggregator.name_of(party) for party in gone]
        reason = "earlier sums of the session are over their vectors too (same_survivors)"
        raise TimeoutFault(names, state.step, reason, code=Code.EARLIER)


least = key_graph.min_survivors
AGGREGATOR = CollectorRole(
    rows=(
        *key_graph.ROWS,
        CollectorRow(
            CollectReveal,
            key_graph.accept_reveal,
            finish_reveal,
            least,
            (CollectDeal,),
            (m.NEIGHBOURS,),
            "another graph",
        ),
        CollectorRow(
            CollectDeal,
            accept_deal,
            finish_deal,
            least,
            (CollectParticipants,),
            (m.DELIVER,),
            "a party that takes part without shares",
        ),
        CollectorRow(
            CollectParticipants,
            certified_set.accept_attestation,
            finish_participants,
            least,
            (CollectMasked,),
            (m.PARTICIPANTS,),
            "another set of participants: two quorums share an honest party",
        ),
        CollectorRow(
            CollectMasked,
            accept_masked,
            finish_masked,
            least,
            (CollectSurvivors,),
            (m.SURVIVORS,),
            "a vector that is added later",
        ),
        CollectorRow(
            CollectSurvivors,
            certified_set.accept_attestation,
            finish_survivors,
            least,
            (CollectUnmask,),
            (m.SURVIVORS_CERTIFICATE,),
            "another set of survivors",
        ),
        CollectorRow(
            CollectUnmask,
            accept_unmask,
            finish_unmask,
            threshold,
            (Summed,),
            (m.RESULT,),
            "anything: the run is over",
        ),
    ),
    check=check_fixed,
    saved=True,
)


def sum_aggregator(
    role: CollectorRole,
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    *,
    threads: int = 1,
    watch: Watch | None = None,
    board: Board | None = None,  # noqa: ARG001 - of protocols with a log
    fixed: FixedSurvivors | None = None,
    last: SentResults | None = None,
) -> Run[Outcome]:
    """Return the state machine of the aggregator of a secure sum without a public log.

    Args:
        role: the table of its states.
        context, parameters, fixed: as of `sum_party`.
        identity: the aggregator's; it signs what it relays, so that two differing answers are evidence.
        threads, watch: as of `SumAggregator`.
        last: the last results of the session; None: the session has one request.
    """
    retained = fixed if parameters.keeps_survivors else None
    member = SumAggregator(context, parameters, identity, threads, watch, retained, last or SentResults())
    return Run(role, member, first_state(member.parties))


aggregator = functools.partial(sum_aggregator, AGGREGATOR)


def first_state(parties: int) -> key_graph.CollectHello:
    """Return the aggregator's state at the start of a run, before any hello."""
    return key_graph.CollectHello(inbox=Inbox(set(range(1, parties + 1))))
