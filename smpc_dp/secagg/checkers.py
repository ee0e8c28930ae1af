"""The last states of secure sums of many parties, whose checked total some survivors check for all.

Specification: protocols/secagg/checked.md, with tables generated from here. Up to `unmask` a run equals one
in which each party checks the total.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence, Set
from typing import ClassVar, cast

from smpc_dp.engine.collector import CollectorRow, CollectorState, Item
from smpc_dp.engine.party import Row
from smpc_dp.engine.phases import certified_set, checked_total, key_graph, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Attesting
from smpc_dp.engine.phases.key_graph import Summed
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, PeerFault
from smpc_dp.secagg import states
from smpc_dp.secagg.states import (
    Aggregator,
    AwaitResult,
    CollectUnmask,
    Finished,
    Party,
    sum_aggregator,
    sum_party,
)
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode

# A party


class AwaitCertifiedResult(AwaitResult, frozen=True, kw_only=True, eq=False):
    """State of a party that has checked and signed the total for all, and waits for the result."""

    digest: bytes


def on_total(member: Party, state: AwaitResult, body: bytes) -> Transition:
    """Check the total against the survivors' commitments, and sign it for parties that do not see these."""
    message = decode(body, m.CheckedResult, member.context.aggregator)
    states.check_total(member, state, message)
    # The range too: it is what the others take from the result.
    states.outcome_of(member, state, message)
    digest = checked_total.attested_digest(
        member.context, state.run_id, state.survivors_certificate.set_digest, message
    )
    after = AwaitCertifiedResult(
        participation=state.participation,
        survivors=state.survivors,
        survivors_certificate=state.survivors_certificate,
        digest=digest,
    )
    return Transition(after, (member.write(state.run_id, m.ATTEST_TOTAL, m.Attestation(digest)),))


def on_result(member: Party, state: AwaitResult, body: bytes) -> Transition:
    """Decode the sum if enough survivors signed it, else PeerFault; a checker accepts its own total alone."""
    context, run_id = member.context, state.run_id
    message = decode(body, m.CertifiedResult, context.aggregator)
    digest = checked_total.attested_digest(context, run_id, state.survivors_certificate.set_digest, message)
    if isinstance(state, AwaitCertifiedResult) and digest != state.digest:
        raise member.refuse("sent another total than it had shown", Check.OTHER_STATEMENT)
    checked_total.check_attested(context, member.parameters, run_id, digest, state.survivors, message)
    signed = outcomes.signed_result(member, state, state.participation, body)
    outcome = states.outcome_of(member, state, message, signed)
    return Transition(Finished(outcome=outcome, survivors=state.survivors))


PARTY = dataclasses.replace(
    states.PARTY,
    rows=(
        *states.PARTY.rows[:-1],
        Row(
            AwaitResult,
            on_total,
            (AwaitCertifiedResult,),
            (m.ATTEST_TOTAL,),
            "an attestation of another total",
            instead=m.TOTAL,
        ),
        Row(AwaitResult, on_result, (Finished,), (), "anything: the run is over"),
        Row(AwaitCertifiedResult, on_result, (Finished,), (), "anything: the run is over"),
    ),
    # A checker that refuses says so: the aggregator waits for it.
    last=m.ATTEST_TOTAL,
)

party = functools.partial(sum_party, PARTY)

# The aggregator


class CollectTotal(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator that has the total and collects signatures of the parties that check it.

    `pending`: those that have not answered; `signed`: what the others sent. Both change in place.
    """

    expects: ClassVar[str] = m.ATTEST_TOTAL
    awaits: ClassVar[str] = "checkers"
    total: bytes
    blinding: bytes
    computed: Outcome
    attesting: Attesting
    checkers: tuple[int, ...]
    pending: dict[int, None]
    signed: dict[int, bytes]

    @property
    def waiting(self) -> Set[int]:
        """The checking parties that have not answered."""
        return self.pending.keys()

    @property
    def waiting_count(self) -> int:
        """The number of checking parties that have not answered."""
        return len(self.pending)

    @property
    def possible(self) -> int:
        """The greatest number of signatures on the total: received ones, and those that may come."""
        return len(self.pending) + len(self.signed)

    def asked(self, _parties: int) -> int:
        """Return the number of parties that are asked to check the total for all."""
        return len(self.checkers)


def show_total(aggregator: Aggregator, state: CollectUnmask) -> Transition:
    """Recover the total, and send it with all commitments to the parties that check it for all."""
    opened, outcome = states.open_total(aggregator, state)
    result = cast(m.CheckedResult, opened)
    run_id, survivors_digest = state.run_id, state.survivors_certificate.set_digest
    digest = checked_total.attested_digest(aggregator.context, run_id, survivors_digest, result)
    checkers = checked_total.checkers_of(aggregator.parameters, run_id, state.inbox.alive)
    after = CollectTotal(
        total=result.total,
        blinding=result.blinding,
        computed=outcome,
        attesting=Attesting(state.survivors, digest),
        checkers=checkers,
        pending=dict.fromkeys(checkers),
        signed={},
    )
    return Transition(after, aggregator.write(run_id, m.TOTAL, checkers, result))


def accept_total(_aggregator: Aggregator, state: CollectTotal, party: int, envelope: Envelope) -> Item:
    """Record a checking party's signature on the total; return it as an item, or raise PeerFault."""
    if party not in state.pending:
        raise PeerFault(envelope.sender, "attests a total that it was not shown", Check.UNEXPECTED_STEP)
    if decode(envelope.body, m.Attestation, envelope.sender).set_digest != state.attesting.digest:
        raise PeerFault(envelope.sender, "attests another total than it was shown", Check.OTHER_STATEMENT)
    del state.pending[party]
    state.signed[party] = envelope.signature
    return Item(None, b"", envelope.signature)


def finish_total(aggregator: Aggregator, state: CollectTotal) -> Transition:
    """Send all parties the total, with signatures of the parties that checked it."""
    least = quorum(aggregator, state)
    certificate, _ = certified_set.certify(aggregator, state, state.attesting, state.signed, least)
    result = m.CertifiedResult(state.total, state.blinding, certificate)
    outcome = dataclasses.replace(state.computed, faults=tuple(state.inbox.faults))
    return key_graph.send_result(aggregator, state, m.RESULT, result, outcome)


def quorum(aggregator: Aggregator, _state: CollectTotal) -> int:
    """Return the number of checking parties that must sign the total."""
    return aggregator.parameters.plan.check_quorum


def threshold(aggregator: Aggregator, state: CollectUnmask) -> int:
    """Return how many holders must open shares: at least a quorum, so that the total can be checked."""
    return max(states.threshold(aggregator, state), aggregator.parameters.plan.check_quorum)


def lose_checker(_aggregator: Aggregator, state: CollectorState, party: int) -> Sequence[Envelope]:
    """Stop waiting for a checking party that was excluded; return no messages."""
    if isinstance(state, CollectTotal):
        state.pending.pop(party, None)
    return ()


def check_fixed(aggregator: Aggregator, state: CollectorState) -> None:
    """Raise TimeoutFault if the sum lacks a party that earlier ones had, unless the total is known."""
    if not isinstance(state, CollectTotal):
        states.check_fixed(aggregator, state)


AGGREGATOR = dataclasses.replace(
    states.AGGREGATOR,
    rows=(
        *states.AGGREGATOR.rows[:-1],
        CollectorRow(
            CollectUnmask,
            states.accept_unmask,
            show_total,
            threshold,
            (CollectTotal,),
            (m.TOTAL,),
            "another total",
        ),
        CollectorRow(
            CollectTotal,
            accept_total,
            finish_total,
            quorum,
            (Summed,),
            (m.RESULT,),
            "anything: the run is over",
        ),
    ),
    check=check_fixed,
    gone=lose_checker,
)

aggregator = functools.partial(sum_aggregator, AGGREGATOR)
