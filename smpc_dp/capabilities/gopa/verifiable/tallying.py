"""A party of a verifiable run at its end: it computes the total, and attests it."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.follow import VerifiableMember, check_head, follow_own, head_digest
from smpc_dp.capabilities.gopa.verifiable.recount import Batch, Recount
from smpc_dp.capabilities.gopa.verifiable.statements import signed
from smpc_dp.encoding import RingVector
from smpc_dp.engine.party import PartyState
from smpc_dp.engine.phases import begin, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Participation
from smpc_dp.engine.result import LoggedEntry, Outcome
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check
from smpc_dp.logs.followed import Followed
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import decode


class AwaitTallied(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that waits for the aggregator's total: no statement left is false.

    Attributes:
        agreed: the neighbours whose Delta was not opened.
        good: the parties to be counted.
        batches: publications, and rounds of openings, as they are on the board.
    """

    expects: ClassVar[str] = v.TALLIED
    agreed: tuple[int, ...]
    good: PartySet
    participation: Participation
    log: Followed
    batches: tuple[Batch, ...]


class AwaitClosed(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the total, or said that it is unchecked, and waits for the log's end.

    `checked`: whether it has checked it; `entry`: the number of its own publication in the log.
    """

    expects: ClassVar[str] = v.CLOSED
    counted: PartySet
    total: RingVector
    residual: int
    participation: Participation
    log: Followed
    attested: bytes
    checked: bool
    entry: int


class Finished(PartyState, frozen=True, kw_only=True, eq=False):
    """Final state of a party that has the result and has followed the log to its end."""

    over: ClassVar[bool] = True
    outcome: Outcome
    followed: Followed


def on_tallied(member: VerifiableMember, state: AwaitTallied, body: bytes) -> Transition:
    """Check the aggregator's total by the parties' noisy vectors, and sign, or send that it is unchecked."""
    run_id, context, parameters = state.run_id, member.context, member.parameters
    aggregator, participants = context.aggregator, state.participation.participants
    rules = member.rules(run_id)
    message = context.remember(("tallied", body), lambda: decode(body, v.Tallied, aggregator))
    tally = decode(message.tally, v.Tally, aggregator)
    counted = PartySet.unpack(tally.counted, member.parties, aggregator)
    if member.index not in counted:
        raise member.refuse(f"left {member.name} out of the average", Check.NOT_INCLUDED)
    if tally.counted != state.good.packed or len(counted) < parameters.least_left(state.false_count):
        raise member.refuse("counts others than those who said nothing false, or too few", Check.SET_DIFFERS)
    total, residual = rules.ring_vector(tally.total, aggregator), tally.residual_pairs
    parameters.check_total(signed(total), len(counted), residual)
    # Edges to silent parties; the noise that others have left is unknown here.
    if residual < len([peer for peer in state.agreed if peer not in counted]):
        raise member.refuse("counts fewer residual pairs than this party has itself", Check.WRONG_COUNT)
    if member.check_total:
        # Under one head all parties that follow the board compute the same total.
        operation = ("recount", run_id, state.log.head, counted.packed, body)
        recount = Recount(rules, state.log, state.batches)
        sum_ = context.remember(operation, lambda: recount.total(counted, message.claimed))
        if not np.array_equal(sum_, total):
            raise member.refuse("the total is not the sum of what was published", Check.WRONG_TOTAL)
    log = follow_own(member, run_id, state.log, v.TALLY, message.tally, message.signature)
    attested = head_digest(member, run_id, v.ATTEST_TALLY, log, participants)
    after = AwaitClosed(
        counted=counted,
        total=total,
        residual=residual,
        participation=state.participation,
        log=log,
        attested=attested,
        checked=member.check_total,
        entry=_own_entry(state.batches[0], member.index),
    )
    answer = m.Attestation(attested) if member.check_total else v.NotChecked()
    return Transition(after, (member.write(run_id, v.ATTEST_TALLY, answer),))


def _own_entry(publications: Batch, party: int) -> int:
    """Return the number of the log entry that holds a counted party's noisy vector."""
    return publications.first + publications.authors.index(party)


def on_closed(member: VerifiableMember, state: AwaitClosed, body: bytes) -> Transition:
    """Decode the total, now that a quorum has signed it, and keep the log's last hash."""
    run_id, parameters, participants = state.run_id, member.parameters, state.participation.participants
    log, certificate = check_head(member, state, v.ATTEST_TALLY, participants, body)
    count, residual, false = len(state.counted), state.residual, state.false_count
    outcome = outcomes.outcome(
        member.context,
        parameters,
        run_id,
        state.total,
        state.participation,
        survivors=state.counted,
        survivors_certificate=certificate,
        residual_pairs=residual,
    )
    seen = begin.close_run(state.seen, log.head)
    evidence = replace(
        outcome.evidence,
        log=begin.logged_run(seen),
        checked=state.checked,
        entry=LoggedEntry(member.name, state.entry, log.digest(state.entry)),
    )
    outcome = replace(
        outcome,
        privacy=parameters.privacy(count, false),
        noise=parameters.noise(count, residual, false),
        evidence=evidence,
    )
    return Transition(Finished(seen=seen, outcome=outcome, followed=log, false_count=false))
