"""The states of GOPA without an aggregator. Specification: protocols/gopa/direct.md.

The coordinator proposes the parties that are present, that advertised, that participate and that published.
Each party checks each proposal against its own letters; none publishes before a quorum has signed the one set
of participants, or has a result before a quorum has signed the one total.
"""

from __future__ import annotations

from smpc_dp.capabilities.gopa import direct_agreement as agreement
from smpc_dp.capabilities.gopa import direct_coordinator as coordinator
from smpc_dp.capabilities.gopa import direct_letters as letters
from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa import direct_publication as publication
from smpc_dp.capabilities.gopa.direct_agreement import (
    AwaitMerkleCommitment,
    AwaitParticipants,
    AwaitStart,
    CertifyParticipants,
    Ready,
)
from smpc_dp.capabilities.gopa.direct_coordinator import (
    CollectAdvertise,
    CollectHeld,
    CollectHello,
    CollectReveal,
)
from smpc_dp.capabilities.gopa.direct_evidence import DirectInbox, coordinator_of
from smpc_dp.capabilities.gopa.direct_publication import (
    AwaitForwarded,
    AwaitPublished,
    CertifyTotal,
    CollectPublications,
    Finished,
    participants_of,
)
from smpc_dp.capabilities.gopa.direct_waits import PROPOSAL, late_coordinator, wait_for_each, wait_for_quorum
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import RingVector
from smpc_dp.engine.peers import Peer, PeerRole, Phase, Wait
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.wire.signing import Context, Signer

# Phases of all parties, whether or not they coordinate.

_PUBLISH = Phase(
    CertifyParticipants,
    wait_for_quorum(participants_of),
    publication.publish,
    (CollectPublications,),
    (PUBLISH,),
    "another x_hat: vector and masking key are forgotten",
)
_FINISH = Phase(
    CertifyTotal,
    wait_for_quorum(participants_of),
    publication.finish,
    (Finished,),
    (),
    "anything: the run is over",
)

PARTY = PeerRole(
    first=Ready,
    begin=agreement.say_hello,
    hello=m.HELLO,
    phases=(
        Phase(
            AwaitStart,
            PROPOSAL,
            agreement.on_start,
            (AwaitMerkleCommitment,),
            (m.ADVERTISE,),
            "another draw: the commitment binds it; another run: its id binds the nonces of all",
        ),
        Phase(
            AwaitMerkleCommitment,
            PROPOSAL,
            agreement.on_merkle_commitment,
            (AwaitParticipants,),
            (m.REVEAL,),
            "a party that joins: the roll has all that is advertised",
        ),
        Phase(
            AwaitParticipants,
            PROPOSAL,
            agreement.on_participants,
            (CertifyParticipants,),
            (m.ATTEST_PARTICIPANTS,),
            "another graph, another set of participants that this party attests",
        ),
        _PUBLISH,
        Phase(
            CollectPublications,
            wait_for_each(participants_of),
            publication.notify_held,
            (AwaitPublished,),
            (d.HELD,),
            "another list of what this party has",
        ),
        Phase(
            AwaitPublished,
            PROPOSAL,
            publication.on_published,
            (AwaitForwarded,),
            (),
            "another set of the published",
        ),
        Phase(
            AwaitForwarded,
            Wait(
                "the coordinator, and all that it forwards", publication.missing_forwarded, late_coordinator
            ),
            publication.on_forwarded,
            (CertifyTotal,),
            (d.ATTEST_TOTAL,),
            "another total that this party attests",
        ),
        _FINISH,
    ),
    takes=letters.TAKES,
    to_one=d.TO_ONE,
    most_bytes=letters.most_bytes,
    last=d.PUBLISHED,
    saved=True,
)

COORDINATOR = PeerRole(
    first=Ready,
    begin=coordinator.say_hello,
    hello=m.HELLO,
    phases=(
        Phase(
            CollectHello,
            wait_for_each(coordinator.everyone),
            coordinator.propose_start,
            (CollectAdvertise,),
            (d.START, m.ADVERTISE),
            "a party that joins; another run: its id binds the nonces of all",
            coordinator.has_enough,
        ),
        Phase(
            CollectAdvertise,
            wait_for_each(coordinator.present),
            coordinator.propose_merkle_commitment,
            (CollectReveal,),
            (d.MERKLE_COMMITMENT, m.REVEAL),
            "another commitment to a draw",
        ),
        Phase(
            CollectReveal,
            wait_for_each(coordinator.advertised),
            coordinator.propose_participants,
            (CertifyParticipants,),
            (d.PARTICIPANTS, m.ATTEST_PARTICIPANTS),
            "another graph, another set of participants",
        ),
        _PUBLISH,
        Phase(
            CollectPublications,
            wait_for_each(participants_of),
            coordinator.await_held,
            (CollectHeld,),
            (),
            "waiting for one more publication",
        ),
        Phase(
            CollectHeld,
            wait_for_each(coordinator.others),
            coordinator.propose_published,
            (CertifyTotal,),
            (d.FORWARD, d.PUBLISHED, d.ATTEST_TOTAL),
            "another set of the published, another total",
        ),
        _FINISH,
    ),
    takes=coordinator.TAKES,
    to_one=d.TO_ONE,
    most_bytes=letters.most_bytes,
    last=d.PUBLISHED,
    saved=True,
)


def party(
    context: Context,
    parameters: GopaParameters,
    identity: Signer,
    ring_vector: RingVector,
    randomness: Randomness | None = None,
) -> Run[Outcome]:
    """Return the state machine of a party in a run without aggregator, also for the coordinating party.

    Args:
        context: the session, the request and everyone's public keys; its aggregator is `EVERYONE`.
        parameters: checked parameters of the session.
        identity: the party's, which signs.
        ring_vector: the party's vector, encoded.
        randomness: by default the operating system's; a seeded one only in simulations and tests.
    """
    parameters.check_ring_vector(identity.name, ring_vector)
    number = coordinator_of(context.request, len(context.names))
    peer = Peer(context, parameters, identity, randomness or SystemRandomness(), number)
    return Run(
        COORDINATOR if peer.coordinates else PARTY, peer, Ready(inbox=DirectInbox(), vector=ring_vector)
    )
