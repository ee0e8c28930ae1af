"""The phase in which a quorum signs the digest of one set of parties, before anything secret depends on it.

The aggregator sends the set, each party that accepts it attests the digest, and the aggregator answers with a
certificate of a quorum of these signatures. The participants and the survivors are certified in this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from smpc_dp.engine.collector import Collector, CollectorState, Item
from smpc_dp.engine.party import Member
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certify import check_certificate, shortest_certificate
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.result import Certificate
from smpc_dp.engine.signed_result import RunRoots
from smpc_dp.errors import Check, LocalError, PeerFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import decode


class Participation(msgspec.Struct, frozen=True):
    """Certified participants of a run: the set, its certificate, and the digest of all advertisements.

    `roots`: what that digest covers; None at the aggregator.
    """

    merkle_commitment: bytes
    participants: PartySet
    certificate: Certificate
    roots: RunRoots | None = None

    @property
    def party_roots(self) -> RunRoots:
        """The Merkle roots that a party's digest covers; raises LocalError at an aggregator."""
        if self.roots is None:
            raise LocalError("an aggregator stores no roots of its run")
        return self.roots


class Attesting(msgspec.Struct, frozen=True):
    """A digest of a set of parties that they are asked to sign, and the parties that may sign it."""

    members: PartySet
    digest: bytes


class AttestingState(Protocol):
    """Interface of an aggregator's state in which parties sign a digest."""

    @property
    def attesting(self) -> Attesting:
        """The digest that parties sign in this state, and the parties that may sign."""


def check_certified(
    member: Member[SumParameters], run_id: bytes, step: str, digest: bytes, members: PartySet, body: bytes
) -> Certificate:
    """Return a decoded, checked certificate by party name; PeerFault unless a quorum signed the digest."""
    certificate = decode(body, m.Certificate, member.context.aggregator)
    quorum = member.parameters.plan.quorum
    return check_certificate(member.context, quorum, run_id, step, digest, members, certificate)


def accept_attestation(
    _collector: Collector[Any], state: AttestingState, _party: int, envelope: Envelope
) -> Item:
    """Return a party's signature on the digest; raise PeerFault if it signed another digest."""
    if decode(envelope.body, m.Attestation, envelope.sender).set_digest != state.attesting.digest:
        raise PeerFault(
            envelope.sender, "attests another set than the one that was sent", Check.OTHER_STATEMENT
        )
    return Item(None, b"", envelope.signature)


def certify(
    collector: Collector[Any],
    state: CollectorState,
    attesting: Attesting,
    given: Mapping[int, bytes] | None = None,
    quorum: int | None = None,
) -> tuple[m.Certificate, Certificate]:
    """Return the shortest certificate, as a message and checked by name; TimeoutFault if too few signed.

    `given`: their signatures, those received in the step by default. `quorum`: that of the plan by default.
    """
    quorum, digest = quorum or collector.parameters.plan.quorum, attesting.digest
    received = {party: item.signature for party, item in state.inbox.items.items()}
    signatures = received if given is None else given
    if len(signatures) < quorum:
        raise collector.too_few(state, quorum)
    context, run_id, step = collector.context, state.run_id, state.step
    certificate = shortest_certificate(context, run_id, step, digest, signatures, quorum)
    return certificate, check_certificate(
        context, quorum, run_id, step, digest, attesting.members, certificate
    )


def certify_participants(
    collector: Collector[Any], state: CollectorState, attesting: Attesting, merkle_commitment: bytes
) -> tuple[Participation, list[Envelope]]:
    """Return the certified set of participants, and messages that send each party the certificate."""
    message, certificate = certify(collector, state, attesting)
    participation = Participation(merkle_commitment, attesting.members, certificate)
    return participation, collector.broadcast(state, m.PARTICIPANTS, message)
