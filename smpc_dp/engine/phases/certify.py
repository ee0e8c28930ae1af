"""Certificates: a quorum has signed the digest of one set of parties.

With 2q > n + c, any two quorums share an honest party, and an honest party signs one set of each kind in a
run; so at most one set of participants and one of survivors can ever be certified. A certificate either has
the signatures of a quorum, or shows a sample of more of them [Micali et al. 2021, Compact certificates of
collective knowledge]; protocols/secagg/README.md has the proof.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import compress

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.engine import result
from smpc_dp.engine.phases.draws import draw_indices
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment, check_merkle_commitment
from smpc_dp.engine.phases.messages import SIGNATURE_BYTES, Attestation, Certificate
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.privacy.certificates import expected_samples
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context, encode


def make_certificate(signatures: Mapping[int, bytes], quorum: int, parties: int) -> Certificate:
    """Return the certificate with the first `quorum` of the given signatures, in roster order."""
    ordered = sorted(signatures)[:quorum]
    return Certificate(pack_set(ordered, parties), b"".join(signatures[party] for party in ordered))


def sample_certificate(
    context: Context,
    run_id: bytes,
    step: str,
    set_digest: bytes,
    signatures: Mapping[int, bytes],
    quorum: int,
) -> Certificate:
    """Return a certificate that shows a random sample of the given signatures, under a Merkle root.

    Args:
        signatures: of envelopes of `step` that carry an attestation of `set_digest`, by party; a quorum or
            more, each of them checked: with a bad one the certificate may not hold.
    """
    merkle_commitment = MerkleCommitment(context, Label.ATTESTATIONS, signatures)
    packed = pack_set(signatures, len(context.names))
    signers = sorted(signatures)
    indices = sampled_indices(
        context, run_id, step, set_digest, packed, merkle_commitment.root, len(signers), quorum
    )
    shown = [signers[index] for index in indices]
    return Certificate(
        packed,
        b"".join(signatures[party] for party in shown),
        merkle_commitment.root,
        merkle_commitment.prove(shown),
    )


def shortest_certificate(
    context: Context,
    run_id: bytes,
    step: str,
    set_digest: bytes,
    signatures: Mapping[int, bytes],
    quorum: int,
) -> Certificate:
    """Return the shorter certificate: all signatures of a quorum, or a random sample of the given ones."""
    listed = make_certificate(signatures, quorum, len(context.names))
    if expected_samples(len(signatures), quorum) >= quorum:
        return listed
    sample = sample_certificate(context, run_id, step, set_digest, signatures, quorum)
    return min(listed, sample, key=lambda certificate: len(encode(certificate)))


class _Words:
    """Public pseudo-random stream from a random oracle, as randomness to draw a sample of signers."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._blocks = 0
        self._left = b""

    def bytes(self, n: int) -> bytes:
        """Return the next `n` bytes of the pseudo-random stream."""
        while len(self._left) < n:
            self._left += digest(Label.CERTIFICATE_SAMPLE, self._seed, encode_uint(self._blocks))
            self._blocks += 1
        drawn, self._left = self._left[:n], self._left[n:]
        return drawn


def sampled_indices(
    context: Context,
    run_id: bytes,
    step: str,
    set_digest: bytes,
    signers: bytes,
    root: bytes,
    claimed: int,
    quorum: int,
) -> tuple[int, ...]:
    """Return the indices, from 0, of the signers that a sample shows, by a hash of the whole claim."""
    seed = digest(
        Label.CERTIFICATE_CHALLENGE, *context.bound, run_id, step.encode(), set_digest, signers, root
    )
    return draw_indices(claimed, expected_samples(claimed, quorum), _Words(seed))


def check_certificate(
    context: Context,
    quorum: int,
    run_id: bytes,
    step: str,
    set_digest: bytes,
    members: Container[int],
    certificate: Certificate,
) -> result.Certificate:
    """Return a checked certificate by party name, from a cache if equal; PeerFault naming the aggregator.

    It holds when at least `quorum` members of the set have signed exactly `set_digest` in `step`.
    """
    operation = ("certificate", run_id, step, set_digest, encode(certificate))
    return context.remember(
        operation, lambda: _checked(context, quorum, run_id, step, set_digest, members, certificate)
    )


def _checked(
    context: Context,
    quorum: int,
    run_id: bytes,
    step: str,
    set_digest: bytes,
    members: Container[int],
    certificate: Certificate,
) -> result.Certificate:
    """Check a certificate's signatures without a cache; return it by name; PeerFault for a wrong one."""
    aggregator = context.aggregator

    def refuse(reason: str, check: Check) -> PeerFault:
        return PeerFault(aggregator, f"certificate of '{step}' {reason}", check)

    claimed = PartySet.unpack(certificate.signers, len(context.names), aggregator)
    inside = claimed <= members if isinstance(members, PartySet) else all(p in members for p in claimed)
    if not inside:
        raise refuse("is signed by parties outside of the set", Check.BAD_CERTIFICATE)
    if len(claimed) < quorum:
        raise refuse(f"has {len(claimed)} signatures, {quorum} are due", Check.NO_QUORUM)
    signers = tuple(claimed)
    sampled = bool(certificate.root or certificate.proof)
    shown = signers
    if sampled:
        coins = (run_id, step, set_digest, certificate.signers, certificate.root)
        shown = tuple(signers[index] for index in sampled_indices(context, *coins, len(signers), quorum))
    if len(certificate.signatures) != SIGNATURE_BYTES * len(shown):
        raise refuse("does not have one signature for each signer that is due", Check.BAD_CERTIFICATE)
    by_party = {
        party: certificate.signatures[SIGNATURE_BYTES * index : SIGNATURE_BYTES * (index + 1)]
        for index, party in enumerate(shown)
    }
    if sampled:
        root, proof = certificate.root, certificate.proof
        try:
            check_merkle_commitment(context, Label.ATTESTATIONS, root, claimed, by_party, proof)
        except VerificationError as error:
            raise refuse(f"does not hold: {error}", Check.BAD_CERTIFICATE) from None
    body = encode(Attestation(set_digest))
    signatures: dict[str, bytes] = {}
    for party, signature in by_party.items():
        name = context.names[party - 1]
        try:
            context.check_detached(run_id, step, name, aggregator, body, signature)
        except PeerFault:
            raise refuse(
                f"has a signature of {name} that is not over this digest", Check.BAD_CERTIFICATE
            ) from None
        signatures[name] = signature
    if not sampled:
        return result.Certificate(set_digest, signatures)
    names = tuple(compress(context.names, claimed.flags().tolist()))
    return result.Certificate(set_digest, signatures, result.Sample(names, root, proof))
