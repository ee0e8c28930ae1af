"""Certificates that show a sample: what they prove, and what an aggregator that lies can do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.merkle import MerkleTree
from smpc_dp.encoding import Encoding
from smpc_dp.engine import result
from smpc_dp.engine.phases import certify
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certify import check_certificate, sample_certificate, shortest_certificate
from smpc_dp.errors import PeerFault
from smpc_dp.privacy import certificates
from smpc_dp.privacy.certificates import expected_samples, proof_nodes
from smpc_dp.privacy.secagg_plan import SecAggPlan, check_plan, plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR, simulated_run
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context, encode
from smpc_dp_lab.bench.roles import sum_roles

PARTIES = 400
PLAN = plan_secagg(PARTIES, dropout=0.02, corrupt=0.0)
RUN, DIGEST, STEP = bytes(32), bytes(range(32)), m.ATTEST_PARTICIPANTS
EVERYONE = frozenset(range(1, PARTIES + 1))


class Signed:
    """A session whose parties sign attestations when asked."""

    def __init__(self) -> None:
        simulated = simulated_run(PARTIES, seed_for_simulation=5, remember=False)
        self.context, self._signers = simulated.context, simulated.signers

    def __call__(self, parties: frozenset[int] | list[int]) -> dict[int, bytes]:
        message = m.Attestation(DIGEST)
        return {
            party: self.context.write(
                self._signers[self.context.names[party - 1]], RUN, STEP, (AGGREGATOR,), message
            )[0].signature
            for party in sorted(parties)
        }

    def check(
        self, certificate: m.Certificate, plan: SecAggPlan = PLAN, members: frozenset[int] = EVERYONE
    ) -> result.Certificate:
        return check_certificate(self.context, plan.quorum, RUN, STEP, DIGEST, members, certificate)

    def sample(self, signatures: Mapping[int, bytes], quorum: int = PLAN.quorum) -> m.Certificate:
        return sample_certificate(self.context, RUN, STEP, DIGEST, signatures, quorum)


@pytest.fixture(scope="module")
def signed() -> Signed:
    return Signed()


@pytest.mark.parametrize("claimed", [1, 2, 3, 56, 99, 400, 1_000, 9_990])
def test_samples_due_is_the_least_that_suffices(claimed: int) -> None:
    for quorum in {1, claimed // 2 + 1, (11 * claimed) // 20 + 1, claimed}:
        if not 1 <= quorum <= claimed:
            continue
        expected = expected_samples(claimed, quorum)
        # A liar has quorum - 1 good ones at most.
        assert math.comb(quorum - 1, expected) << 128 <= math.comb(claimed, expected)
        assert math.comb(quorum - 1, expected - 1) << 128 > math.comb(claimed, expected - 1)
        assert expected <= quorum


def test_a_sample_grows_no_more_with_the_parties() -> None:
    """The signatures that show a quorum of 0.55 n among 0.99 n: 128 / log2(0.99 / 0.55) from below."""
    expected = [
        expected_samples(99 * n // 100, 55 * n // 100 + 1) for n in (1_000, 10_000, 100_000, 1_000_000)
    ]
    assert expected == sorted(expected)
    assert expected[-1] <= math.ceil(128 / math.log2(0.99 / 0.55)) == 151


def test_expected_proof_nodes() -> None:
    """Exact for powers of two: the mean over all places, and over all pairs of places."""
    tree = MerkleTree(Label.NONCES, [(bytes([index]),) for index in range(16)])
    for shown in (1, 2, 3, 16):
        sizes = [len(tree.prove(indices)) // 32 for indices in combinations(range(16), shown)]
        assert proof_nodes(16, shown) == pytest.approx(sum(sizes) / len(sizes))


def test_the_shorter_form_is_taken(signed: Signed) -> None:
    many = signed(EVERYONE)
    few = {party: many[party] for party in range(1, PLAN.quorum + 3)}
    sample, listed = (
        shortest_certificate(signed.context, RUN, STEP, DIGEST, given, PLAN.quorum) for given in (many, few)
    )
    assert sample.root
    assert not listed.root
    assert len(encode(sample)) < len(encode(listed))
    for certificate in (sample, listed):
        signed.check(certificate)
    checked = signed.check(sample)
    assert checked.sample is not None
    assert len(checked.sample.signers) == PARTIES
    assert len(checked.signatures) == expected_samples(PARTIES, PLAN.quorum) < PLAN.quorum


def test_a_list_of_more_than_a_quorum_is_taken(signed: Signed) -> None:
    signatures = signed(list(range(1, PLAN.quorum + 6)))
    listed = certify.make_certificate(signatures, len(signatures), PARTIES)
    assert len(signed.check(listed).signatures) == PLAN.quorum + 5


def test_a_quorum_that_a_party_outside_of_the_set_completes_is_refused(signed: Signed) -> None:
    signatures = signed(list(range(1, PLAN.quorum + 1)))
    listed = certify.make_certificate(signatures, PLAN.quorum, PARTIES)
    assert signed.check(listed, members=frozenset(range(1, PLAN.quorum + 1)))
    with pytest.raises(PeerFault, match="signed by parties outside of the set"):
        signed.check(listed, members=frozenset(range(1, PLAN.quorum)))


def test_a_sample_of_too_few_signers_is_refused(signed: Signed) -> None:
    """One signature short of the quorum, and no claim of more."""
    certificate = signed.sample(signed(list(range(1, PLAN.quorum))), quorum=PLAN.quorum - 1)
    with pytest.raises(PeerFault, match=f"has {PLAN.quorum - 1} signatures, {PLAN.quorum} are due"):
        signed.check(certificate)


def test_signatures_that_come_after_the_root_do_not_count(signed: Signed) -> None:
    """A relay claims all, learns the sample, and only then has just those parties sign: too late."""
    true = signed(list(range(1, PLAN.quorum)))
    claimed = {party: true.get(party, bytes(64)) for party in EVERYONE}
    certificate = signed.sample(claimed)
    indices = certify.sampled_indices(
        signed.context, RUN, STEP, DIGEST, certificate.signers, certificate.root, PARTIES, PLAN.quorum
    )
    late = signed([index + 1 for index in indices])
    forged = msgspec.structs.replace(certificate, signatures=b"".join(late.values()))
    with pytest.raises(PeerFault, match="does not hold: what is shown does not stand in the Merkle tree"):
        signed.check(forged)
    # Every one of them is good by itself: it is the root that refuses them.
    signed.check(certify.make_certificate(true | late, PLAN.quorum, PARTIES))


@pytest.mark.parametrize("bits", [3, 6])
def test_a_liar_passes_as_rarely_as_stated(
    bits: int, signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With far fewer bits, an aggregator that is one signature short grinds over roots.

    It passes when every place of the sample has one of the q - 1 good signatures. Binomial: 4,000 roots at
    the probability C(q - 1, s) / C(n, s), more than 5.5 standard deviations off with probability below 1e-6
    (skewed a little at these counts; the seed is fixed, so it fails always or never).
    """
    monkeypatch.setattr(certificates, "SAMPLE_BITS", bits)
    expected_samples.cache_clear()
    try:
        expected = expected_samples(PARTIES, PLAN.quorum)
        chance = math.comb(PLAN.quorum - 1, expected) / math.comb(PARTIES, expected)
        assert (
            chance <= 2**-bits < math.comb(PLAN.quorum - 1, expected - 1) / math.comb(PARTIES, expected - 1)
        )
        roots, passed = 4_000, 0
        packed = pack_set(EVERYONE, PARTIES)
        for number in range(roots):
            indices = certify.sampled_indices(
                signed.context, RUN, STEP, DIGEST, packed, number.to_bytes(32, "big"), PARTIES, PLAN.quorum
            )
            assert len(set(indices)) == expected
            passed += max(indices) < PLAN.quorum - 1
    finally:
        expected_samples.cache_clear()
    assert abs(passed - roots * chance) < 5.5 * math.sqrt(roots * chance * (1 - chance))


def test_everything_claimed_moves_the_sample(signed: Signed) -> None:
    packed = pack_set(EVERYONE, PARTIES)

    def indices(
        run_id: bytes = RUN,
        step: str = STEP,
        set_digest: bytes = DIGEST,
        signers: bytes = packed,
        root: bytes = bytes(32),
    ) -> tuple[int, ...]:
        return certify.sampled_indices(
            signed.context, run_id, step, set_digest, signers, root, PARTIES, PLAN.quorum
        )

    other = bytes(31) + b"\1"
    changed = (
        indices(run_id=other),
        indices(step=m.ATTEST_SURVIVORS),
        indices(set_digest=other),
        indices(signers=pack_set(EVERYONE - {3}, PARTIES)),
        indices(root=other),
    )
    assert len({indices(), *changed}) == 6


def read(context: Context, shown: dict[str, Any]) -> m.Certificate:
    """Return the message that the JSON of a certificate stands for."""
    sample = shown["sample"]
    signatures = {context.number(name): bytes.fromhex(value) for name, value in shown["signatures"].items()}
    return m.Certificate(
        pack_set([context.number(name) for name in sample["signers"]], len(context.names)),
        b"".join(signatures[party] for party in sorted(signatures)),
        bytes.fromhex(sample["root"]),
        bytes.fromhex(sample["proof"]),
    )


def test_a_run_is_certified_by_samples_and_its_evidence_can_be_checked() -> None:
    """400 machines; both certificates of the result are samples, which a stranger checks from JSON alone.

    Eight neighbours are far too few for security: they keep the test short.
    """
    plan = check_plan(PARTIES, 8, 5, dropout=0.02, corrupt=0.0)
    encoding = Encoding.plan(length=1, lower=0.0, upper=1.0, precision=1e-3, parties=PARTIES)
    parameters = SecAggParameters(encoding=encoding, plan=plan)
    new_run, _ = sum_roles(parameters, [np.zeros(1)] * PARTIES, seed_for_simulation=3, alone=[7])
    context = new_run.context
    drive(new_run.machines, MemoryNetwork(Faults(kill={context.names[1]: 6})), AGGREGATOR)
    evidence = new_run.parties[7].result.evidence
    # The aggregator signs the total for each party; none for itself.
    assert replace(evidence, signed_result=None) == new_run.aggregator.result.evidence
    assert evidence.survivors is not None
    for step, certificate, members in (
        (m.ATTEST_PARTICIPANTS, evidence.participants, evidence.participating),
        (m.ATTEST_SURVIVORS, evidence.survivors, new_run.aggregator.result.survivors),
    ):
        assert certificate.sample is not None
        rebuilt = read(context, certificate.to_json())
        numbers = frozenset(context.number(name) for name in members)
        checked = check_certificate(
            context, plan.quorum, evidence.run_id, step, certificate.set_digest, numbers, rebuilt
        )
        assert checked == certificate
