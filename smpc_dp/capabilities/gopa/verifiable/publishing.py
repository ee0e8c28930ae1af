"""A party of a verifiable run from its publication to the tally: false statements, and rounds of openings.

Where a statement is false its author is excluded, and its neighbours open their edges to it in a round. The
author of a false opening is excluded in the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

import msgspec

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.follow import (
    Term,
    VerifiableMember,
    check_entry,
    check_head,
    follow,
    follow_batch,
    head_digest,
    list_of,
    set_of,
    without,
)
from smpc_dp.capabilities.gopa.verifiable.recount import Batch
from smpc_dp.capabilities.gopa.verifiable.statements import agreements
from smpc_dp.capabilities.gopa.verifiable.tallying import AwaitTallied
from smpc_dp.engine.party import PartyState
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Participation
from smpc_dp.engine.phases.key_graph import check_forwarded
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, SmpcError
from smpc_dp.logs.followed import Followed
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_list
from smpc_dp.wire.signing import decode

# (party, its name, the body of its statement, its edges that count) -> whether the statement is right
IsRight = Callable[[int, str, bytes, Mapping[int, bytes]], bool]


class Neighbourhood(msgspec.Struct, frozen=True):
    """Commitments of a party's neighbours that the party keeps to check their later statements.

    Attributes:
        edges: its own, by neighbour.
        commits: of its neighbours that take part.
        authors: the parties that have committed, ascending.
        head: of the board after the commitments.
    """

    edges: dict[int, bytes]
    commits: dict[int, v.Commit]
    authors: tuple[int, ...]
    head: bytes


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a party before a round of openings: statements so far, and who was shown false.

    Attributes:
        number: of the round, from 1; 0 before the publications.
        false: the parties whose statements were just shown false.
        good: the remaining parties.
        batches: publications, and rounds of openings, as on the board.
    """

    number: int = 0
    false: tuple[int, ...] = ()
    good: PartySet
    batches: tuple[Batch, ...] = ()


class AwaitPublications(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has sent its noisy vector and waits to see all vectors' log entries."""

    expects: ClassVar[str] = v.PUBLICATIONS
    terms: dict[int, Term]
    around: Neighbourhood
    participation: Participation
    combined: bytes
    log: Followed
    entry: Envelope


class AwaitExclusionsCertificate(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed who remains, and waits for a quorum before openings.

    `opening` is Delta with its neighbours among the false ones, and `terms` Delta with the others.
    """

    expects: ClassVar[str] = v.EXCLUSIONS_CERTIFICATE
    round: Round
    opening: dict[int, Term]
    terms: dict[int, Term]
    around: Neighbourhood
    participation: Participation
    log: Followed
    attested: bytes

    @property
    def step(self) -> str:
        """The name of the step that is awaited, with the number of the round."""
        return v.in_round(self.expects, self.round.number)


class AwaitOpenings(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has opened its noise with excluded parties and waits for others' openings."""

    expects: ClassVar[str] = v.OPENINGS
    round: Round
    terms: dict[int, Term]
    around: Neighbourhood
    participation: Participation
    log: Followed
    entry: Envelope | None

    @property
    def step(self) -> str:
        """The name of the step that is awaited, with the number of the round."""
        return v.in_round(self.expects, self.round.number)


class Refused(PartyState, frozen=True, kw_only=True, eq=False):
    """Final state of a party that stops: too few others are left, or it is itself said to be false."""

    over: ClassVar[bool] = True
    error: SmpcError


def on_publications(member: VerifiableMember, state: AwaitPublications, body: bytes) -> Transition:
    """Follow the log entries of all noisy vectors; check neighbours' ones that are called false."""
    message = decode(body, v.Publications, member.context.aggregator)
    good, participants = set_of(member, message.authors), state.participation.participants
    if not good <= participants:
        raise member.refuse("has publications of parties that do not take part", Check.NOT_PRESENT)
    if member.index not in good:
        raise member.refuse(f"left the publication of {member.name} out", Check.NOT_INCLUDED)
    rules, commits = member.rules(state.run_id, state.combined), state.around.commits

    def is_right(party: int, name: str, claimed: bytes, counted: Mapping[int, bytes]) -> bool:
        return rules.is_right(party, name, claimed, commits[party], counted.values())

    return _go_on(member, state, message, Round(good=good), participants, is_right)


def on_exclusions_certificate(
    member: VerifiableMember, state: AwaitExclusionsCertificate, body: bytes
) -> Transition:
    """Open this party's pairwise noise with parties shown false, after a quorum's signatures."""
    run_id, opening, good = state.run_id, state.opening, state.round.good
    attest, step = (v.in_round(name, state.round.number) for name in (v.ATTEST_EXCLUSIONS, v.OPEN))
    log, _ = check_head(member, state, attest, good, body)
    pack = member.parameters.encoding.pack
    deltas = b"".join(pack(delta) for delta, _ in opening.values())
    blindings = b"".join(blinding for _, blinding in opening.values())
    message = member.write(run_id, step, v.Open(pack_list(opening), deltas, blindings))
    after = AwaitOpenings(
        round=state.round,
        terms=state.terms,
        around=state.around,
        participation=state.participation,
        log=log,
        entry=message if opening else None,
    )
    return Transition(after, (message,))


def on_openings(member: VerifiableMember, state: AwaitOpenings, body: bytes) -> Transition:
    """Follow the log entries of openings; check those of neighbours that the aggregator calls false."""
    message = decode(body, v.Openings, member.context.aggregator)
    if not set_of(member, message.authors) <= state.round.good:
        raise member.refuse("has openings of parties that are out", Check.NOT_PRESENT)
    rules = member.rules(state.run_id)

    def is_right(party: int, name: str, claimed: bytes, counted: Mapping[int, bytes]) -> bool:
        return not isinstance(rules.check_open(party, claimed, name, counted), str)

    return _go_on(member, state, message, state.round, state.round.false, is_right)


def _go_on(
    member: VerifiableMember,
    state: AwaitPublications | AwaitOpenings,
    message: v.Publications,
    before: Round,
    counts: Collection[int],
    is_right: IsRight,
) -> Transition:
    """Follow the parties' log entries, check those that are called false, and sign who remains.

    `counts`: the parties whose edges count in the check of a statement.
    """
    run_id, name, number = state.run_id, member.name, before.number
    kind = v.in_round(v.OPEN, number) if number else v.PUBLISH
    false = list_of(member, message.false)
    authors = list_of(member, message.authors)
    log, batch = follow(member, state.log, kind, authors, message.digests, state.entry)
    batches = (*before.batches, batch)
    if not set_of(member, message.false) <= set_of(member, message.authors):
        raise member.refuse("calls statements false that there are not", Check.FALSE_ACCUSATION)
    opening = {party: term for party, term in state.terms.items() if party in false}
    if [item.party for item in message.shown] != [*opening]:
        raise member.refuse("does not show what neighbours said that is false", Check.NOT_SHOWN)
    known = _known_edges(member, state, log, message) if false else {}
    for item in message.shown:
        author = check_forwarded(member, run_id, kind, item)
        check_entry(member, log, batch, item.party, item.body, item.signature)
        counted = _counted_edges(member, item.party, known, counts)
        if is_right(item.party, author, item.body, counted):
            # To open an edge to it would reveal its value.
            raise member.refuse(
                f"says that {author} said something false, and it did not", Check.FALSE_ACCUSATION
            )
    if not false:
        after = AwaitTallied(
            agreed=tuple(state.terms),
            good=before.good,
            participation=state.participation,
            log=log,
            batches=batches,
        )
        return Transition(after)
    reported, good = state.false_count + len(false), without(member, before.good, message.false)
    error = None
    if member.index not in good:
        error = member.refuse(f"says that {name} has signed something false", Check.FALSE_ACCUSATION)
    elif len(good) < member.parameters.least_left(reported):
        error = member.refuse("goes on with too few parties whose statements are true", Check.SET_TOO_SMALL)
    if error is not None:
        # About parties that are no neighbours only the aggregator says so: until the rest is verified, a
        # ledger must not be charged for them.
        seen_false = state.false_count + len(opening)
        return Transition(Refused(false_count=seen_false, error=error))
    attest = v.in_round(v.ATTEST_EXCLUSIONS, number + 1)
    attested = head_digest(member, run_id, attest, log, good, message.false)
    after_false = AwaitExclusionsCertificate(
        round=Round(number=number + 1, false=false, good=good, batches=batches),
        opening=opening,
        terms={party: term for party, term in state.terms.items() if party not in opening},
        around=state.around,
        participation=state.participation,
        log=log,
        attested=attested,
        false_count=reported,
    )
    return Transition(after_false, (member.write(run_id, attest, m.Attestation(attested)),))


def _known_edges(
    member: VerifiableMember,
    state: AwaitPublications | AwaitOpenings,
    log: Followed,
    message: v.Publications,
) -> dict[int, dict[int, bytes]]:
    """Return, by party, the known commitments to edges; raise PeerFault for evidence that differs."""
    around, rules = state.around, member.rules(state.run_id)
    edges = {
        peer: rules.edges_of(peer, commits, member.name_of(peer)) for peer, commits in around.commits.items()
    }
    edges[member.index] = around.edges
    if not message.commits:
        return edges
    begun = Followed(log.start).after(log.digest(1))
    followed = follow_batch(member.context, begun, v.COMMIT, around.authors, message.committed)
    if followed is None:
        raise member.refuse("does not have one digest for each commitment", Check.NOT_ONE_EACH)
    if followed[0].head != around.head:
        raise member.refuse(
            "has other commitments than those that a quorum has signed", Check.OTHER_STATEMENT
        )
    for item in message.commits:
        edges[item.party] = commit_of(member, state.run_id, *followed, item)[1]
    return edges


def _counted_edges(
    member: VerifiableMember,
    party: int,
    known: Mapping[int, Mapping[int, bytes]],
    counts: Collection[int],
) -> dict[int, bytes]:
    """Return a party's commitments to edges that its vector should contain; PeerFault if some lack."""
    around = [party, *(peer for peer in known[party] if peer in counts)]
    if not all(peer in known for peer in around):
        name = member.name_of(party)
        raise member.refuse(
            f"says that {name} said something false, and not what its neighbours say", Check.FALSE_ACCUSATION
        )
    return agreements({peer: known[peer] for peer in around})[party]


def check_commit(
    member: VerifiableMember, run_id: bytes, log: Followed, batch: Batch, item: m.Advertisement
) -> str:
    """Return a forwarded commitment's author; raise PeerFault unless it is signed and in the log."""
    if not 1 <= item.party <= member.parties:
        raise member.refuse(
            f"forwarded a commit of party {item.party}, which there is not", Check.NOT_PRESENT
        )
    name = check_forwarded(member, run_id, v.COMMIT, item)
    check_entry(member, log, batch, item.party, item.body, item.signature)
    return name


def commit_of(
    member: VerifiableMember, run_id: bytes, log: Followed, batch: Batch, item: m.Advertisement
) -> tuple[v.Commit, dict[int, bytes]]:
    """Return a forwarded party's commitments and those to its edges; PeerFault unless signed and logged."""
    name, rules = check_commit(member, run_id, log, batch, item), member.rules(run_id)

    def decoded() -> tuple[v.Commit, dict[int, bytes]]:
        commits = decode(item.body, v.Commit, name)
        return commits, rules.edges_of(item.party, commits, name)

    return member.context.remember(("commit", run_id, item.party, item.body), decoded)
