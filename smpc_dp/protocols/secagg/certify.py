"""Certificates: a quorum's signatures over the digest of one set of parties.

With 2q > n + c, any two quorums share an honest party, and an honest party signs one set of each kind in a
run; so at most one set of participants and one of survivors can ever be certified.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from smpc_dp.errors import PeerFault
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.protocols import result
from smpc_dp.protocols.envelope import Context, encode
from smpc_dp.protocols.secagg.graph import PartySet, pack_set
from smpc_dp.protocols.secagg.messages import SIGNATURE_BYTES, Attestation, Certificate


def make_certificate(signatures: Mapping[int, bytes], quorum: int, parties: int) -> Certificate:
    """Return the certificate of a quorum of the attestations whose envelope signatures are given by party."""
    ordered = sorted(signatures)[:quorum]
    return Certificate(pack_set(ordered, parties), b"".join(signatures[party] for party in ordered))


def check_certificate(
    context: Context,
    plan: SecAggPlan,
    run_id: bytes,
    step: str,
    set_digest: bytes,
    members: Container[int],
    certificate: Certificate,
) -> result.Certificate:
    """Return the certificate by party name, or raise PeerFault naming the aggregator.

    It holds when at least `plan.quorum` members of the set have signed exactly `set_digest` in `step`.
    """
    question = ("certificate", run_id, step, set_digest, certificate.signers, certificate.signatures)
    return context.remember(
        question, lambda: _checked(context, plan, run_id, step, set_digest, members, certificate)
    )


def _checked(
    context: Context,
    plan: SecAggPlan,
    run_id: bytes,
    step: str,
    set_digest: bytes,
    members: Container[int],
    certificate: Certificate,
) -> result.Certificate:
    aggregator = context.aggregator
    signers = tuple(PartySet.unpack(certificate.signers, len(context.names), aggregator))
    if len(certificate.signatures) != SIGNATURE_BYTES * len(signers):
        raise PeerFault(aggregator, f"certificate of '{step}' does not have one signature for each signer")
    if any(party not in members for party in signers):
        raise PeerFault(aggregator, f"certificate of '{step}' is signed by parties outside of the set")
    if len(signers) < plan.quorum:
        raise PeerFault(
            aggregator, f"certificate of '{step}' has {len(signers)} signatures, {plan.quorum} are due"
        )
    body = encode(Attestation(set_digest))
    signatures: dict[str, bytes] = {}
    for place, party in enumerate(signers):
        name = context.names[party - 1]
        signature = certificate.signatures[SIGNATURE_BYTES * place : SIGNATURE_BYTES * (place + 1)]
        try:
            context.check_detached(run_id, step, name, aggregator, body, signature)
        except PeerFault:
            raise PeerFault(
                aggregator, f"certificate of '{step}' has a signature of {name} that is not over this set"
            ) from None
        signatures[name] = signature
    return result.Certificate(set_digest, signatures)
