"""A stranger with the roster can recompute what the certificates of a result sign, and check signatures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smpc_dp.capabilities.gopa.direct_keys import total_digest
from smpc_dp.capabilities.gopa.direct_messages import ATTEST_TOTAL
from smpc_dp.capabilities.gopa.direct_params import DirectParameters, check_parameters
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import PeerFault
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import EVERYONE
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import encode
from smpc_dp_lab.bench.roles import sum_roles
from tests.faults.direct_roles import direct_roles

PARTIES = 8


def test_certificates_follow_from_the_evidence_alone() -> None:
    parameters = SecAggParameters(
        encoding=Encoding.plan(length=2, lower=-1.0, upper=1.0, precision=1e-3, parties=PARTIES),
        plan=plan_secagg(PARTIES, dropout=0.3, corrupt=0.1),
    )
    new_run, _ = sum_roles(parameters, [np.zeros(2)] * PARTIES, seed_for_simulation=3)
    context = new_run.context
    kill = {context.names[1]: 3, context.names[4]: 6}
    drive(new_run.machines, MemoryNetwork(Faults(kill=kill)), AGGREGATOR)
    outcome = new_run.parties[0].result
    evidence = outcome.evidence
    assert evidence.signed_result is not None
    # The aggregator has no message of its own.
    assert replace(evidence, signed_result=None) == new_run.aggregator.result.evidence
    # All receivers are sent one body.
    for party in new_run.parties:
        if party.name not in kill:
            signed = party.result.evidence.signed_result
            assert signed is not None
            assert signed == replace(evidence.signed_result, receiver=party.name, signature=signed.signature)
    assert set(outcome.survivors) < set(evidence.participating) < set(context.names)

    def packed(names: tuple[str, ...]) -> bytes:
        return pack_set([context.names.index(name) + 1 for name in names], PARTIES)

    participants = keys.participants_digest(
        context, evidence.run_id, evidence.merkle_commitment, packed(evidence.participating)
    )
    survivors = keys.survivors_digest(context, evidence.run_id, participants, packed(outcome.survivors))
    assert evidence.participants.set_digest == participants
    assert evidence.survivors is not None
    assert evidence.survivors.set_digest == survivors
    for step, certificate in (
        (m.ATTEST_PARTICIPANTS, evidence.participants),
        (m.ATTEST_SURVIVORS, evidence.survivors),
    ):
        body = encode(m.Attestation(certificate.set_digest))
        assert len(certificate.signatures) >= parameters.plan.quorum
        for name, signature in certificate.signatures.items():
            context.check_detached(evidence.run_id, step, name, AGGREGATOR, body, signature)
            with pytest.raises(PeerFault):
                context.check_detached(evidence.session_digest, step, name, AGGREGATOR, body, signature)


def test_evidence_without_a_relay_signs_the_total_too() -> None:
    given = {"length": 2, "lower": -1.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6, "topology": "direct"}
    parameters, faults = check_parameters(given | {"dropout": 0.3}, PARTIES)
    assert isinstance(parameters, DirectParameters), faults
    new_run = direct_roles(parameters, [np.zeros(2)] * PARTIES, request=3, seed_for_simulation=3)
    context, coordinator = new_run.context, new_run.coordinator
    assert coordinator.name == context.names[2]
    # Before its reveal, and before its publication: seven messages to others are a step.
    kill = {context.names[1]: 2 * 7 + 1, context.names[4]: 4 * 7 + 1}
    drive(new_run.parties, MemoryNetwork(Faults(kill=kill)), coordinator.name, mesh=True)
    outcome = new_run.parties[0].result
    evidence = outcome.evidence
    assert set(outcome.survivors) < set(evidence.participating) < set(context.names)

    def packed(names: tuple[str, ...]) -> bytes:
        return pack_set([context.names.index(name) + 1 for name in names], PARTIES)

    participants = keys.participants_digest(
        context, evidence.run_id, evidence.merkle_commitment, packed(evidence.participating)
    )
    assert evidence.participants.set_digest == participants
    # Lanes hold each value's offset from the lower bound.
    encoding = outcome.encoding
    ring_vector = (outcome.total - len(outcome.survivors) * encoding.lowest).view(np.uint64)
    total = total_digest(
        context, evidence.run_id, participants, packed(outcome.survivors), encoding.pack(ring_vector)
    )
    assert evidence.survivors is not None
    assert evidence.survivors.set_digest == total
    for step, certificate in (
        (m.ATTEST_PARTICIPANTS, evidence.participants),
        (ATTEST_TOTAL, evidence.survivors),
    ):
        body = encode(m.Attestation(certificate.set_digest))
        assert len(certificate.signatures) >= parameters.plan.quorum
        for name, signature in certificate.signatures.items():
            context.check_detached(evidence.run_id, step, name, EVERYONE, body, signature)
