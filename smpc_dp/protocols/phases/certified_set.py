"""The phase in which a quorum signs the digest of one set of parties, before anything secret depends on it.

The aggregator sends the set, each party that accepts it attests the digest, and the aggregator answers with a
certificate of a quorum of these signatures. The participants and the survivors are certified so.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from smpc_dp.errors import PeerFault
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.collector import Collector, CollectorState, Item
from smpc_dp.protocols.engine.party import Member
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.phases import messages as m
from smpc_dp.protocols.phases.certify import check_certificate, shortest_certificate
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.result import Certificate
from smpc_dp.protocols.sets import PartySet


def check_certified(
    member: Member[SumParameters], run_id: bytes, step: str, digest: bytes, members: PartySet, body: bytes
) -> Certificate:
    """Return the certificate in `body`; raise PeerFault unless a quorum of `members` attests `digest`."""
    return check_certificate(
        member.context,
        member.parameters.plan.quorum,
        run_id,
        step,
        digest,
        members,
        decode(body, m.Certificate, member.context.aggregator),
    )


def accept_attestation(digest: bytes, envelope: Envelope) -> Item:
    """Keep a party's signature over the digest of the set that was sent; raise PeerFault for another."""
    if decode(envelope.body, m.Attestation, envelope.sender).set_digest != digest:
        raise PeerFault(envelope.sender, "attests another set than the one that was sent")
    return Item(None, b"", envelope.signature)


def certify(
    collector: Collector[Any], state: CollectorState, digest: bytes, members: Collection[int]
) -> tuple[m.Certificate, Certificate]:
    """Return the shortest certificate of the attestations that are there, and the same as evidence."""
    quorum = collector.parameters.plan.quorum
    signatures = {party: item.signature for party, item in state.inbox.items.items()}
    if len(signatures) < quorum:
        raise collector.too_few(state, quorum)
    context, run_id, step = collector.context, state.run_id, state.step
    certificate = shortest_certificate(context, run_id, step, digest, signatures, quorum)
    checked = check_certificate(context, quorum, run_id, step, digest, frozenset(members), certificate)
    return certificate, checked
