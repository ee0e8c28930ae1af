"""A party of a verifiable run until it commits: the session log, and its neighbourhood in the graph."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.committing import AwaitCommitted, Secrets
from smpc_dp.capabilities.gopa.verifiable.follow import Term, VerifiableMember, follow_own
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.statements import signed
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import RingVector
from smpc_dp.engine.party import PartyState
from smpc_dp.engine.phases import begin, key_graph
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.key_graph import Advertised, AwaitStart, Drawn, Graph, Ready
from smpc_dp.engine.state import Transition
from smpc_dp.logs.followed import Followed
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian
from smpc_dp.wire.sets import pack_list


class AwaitBegin(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has drawn neighbours, not committed to them, and waits for the session log."""

    expects: ClassVar[str] = m.BEGIN
    vector: RingVector
    drawn: Drawn
    advertise: m.Advertise


class AwaitBegun(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the session log with this run, and waits for a quorum's signatures."""

    expects: ClassVar[str] = m.BEGUN
    vector: RingVector
    drawn: Drawn
    advertise: m.Advertise


class AwaitMerkleCommitment(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has committed to its drawn neighbours and waits for all commitments."""

    expects: ClassVar[str] = m.MERKLE_COMMITMENT
    vector: RingVector
    drawn: Drawn
    log: Followed


class AwaitNeighbours(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has opened its draw and waits for its list of neighbours."""

    expects: ClassVar[str] = m.NEIGHBOURS
    vector: RingVector
    advertised: Advertised
    log: Followed


def say_hello(member: VerifiableMember, state: Ready) -> Transition:
    """Begin a run: send the aggregator a hello with a nonce and the number of known session log lines."""
    nonce = member.random.bytes(32)
    plain = msgspec.structs.asdict(key_graph.hello(member, nonce))
    hello = v.Hello(**plain, known=state.seen.number)
    after = AwaitStart(vector=state.vector, nonce=nonce)
    return Transition(after, (member.write(member.context.session_digest, m.HELLO, hello),))


def on_start(member: VerifiableMember, state: AwaitStart, body: bytes) -> Transition:
    """Draw neighbours when the run starts; send nothing about them until the session log has the run."""
    run_id, start = key_graph.check_start(member, state.nonce, body)
    drawn, advertise = key_graph.draw(member, run_id, start)
    return Transition(AwaitBegin(run_id=run_id, vector=state.vector, drawn=drawn, advertise=advertise))


def on_begin(member: VerifiableMember, state: AwaitBegin, body: bytes) -> Transition:
    """Check and sign the session log that the aggregator shows, and keep its hash for later checks."""
    run_id, present = state.run_id, state.drawn.start.present
    seen, attestation = begin.attest_begin(member.context, state.seen, run_id, present, body)
    after = AwaitBegun(seen=seen, vector=state.vector, drawn=state.drawn, advertise=state.advertise)
    return Transition(after, (member.write(run_id, m.ATTEST_BEGIN, attestation),))


def on_begun(member: VerifiableMember, state: AwaitBegun, body: bytes) -> Transition:
    """Start to follow the run's log; send fresh public keys with a commitment to the drawn neighbours."""
    run_id, quorum = state.run_id, member.parameters.plan.quorum
    message = begin.check_begun(member.context, quorum, run_id, state.seen, state.drawn.start.present, body)
    log = follow_own(
        member, run_id, Followed(message.head), m.CERTIFY_BEGIN, message.payload, message.signature
    )
    after = AwaitMerkleCommitment(vector=state.vector, drawn=state.drawn, log=log)
    return Transition(after, (member.write(run_id, m.ADVERTISE, state.advertise),))


def on_merkle_commitment(member: VerifiableMember, state: AwaitMerkleCommitment, body: bytes) -> Transition:
    """Reveal this party's drawn neighbours, now that the commitments of all parties are fixed."""
    run_id = state.run_id
    advertised, message = key_graph.open_draw(member, run_id, state.drawn, body)
    after = AwaitNeighbours(vector=state.vector, advertised=advertised, log=state.log)
    return Transition(after, (member.write(run_id, m.REVEAL, message),))


def on_neighbours(member: VerifiableMember, state: AwaitNeighbours, body: bytes) -> Transition:
    """Send commitments to the vector, to pairwise noise with each neighbour, to noise bits and a coin."""
    run_id, random, vector = state.run_id, member.random, state.vector
    parameters, rules = member.parameters, member.rules(state.run_id)
    graph, _ = key_graph.join_graph(member, run_id, state.advertised, body)
    # Before anything depends on the vector: what a party does about a term tells nothing but the term.
    terms = _pair_terms(member, run_id, graph)
    value_blinding = commit.fresh_blinding(random)
    noise_secret = proofs.draw_secret_bytes(parameters.encoding.length, parameters.bits, random)
    coin = random.bytes(32)
    edges = {peer: commit.commit(signed(delta), own) for peer, (delta, own) in sorted(terms.items())}
    message = v.Commit(
        value=commit.commit(rules.values_of(vector), value_blinding),
        range_proof=rules.prove_values(member.name, vector, value_blinding, random),
        noise_secret=member.noise_secret(noise_secret).commitment,
        coin=rules.coin_commitment(member.name, coin),
        neighbours=pack_list(edges),
        edges=b"".join(edges.values()),
    )
    entry = member.write(run_id, v.COMMIT, message)
    after = AwaitCommitted(
        secrets=Secrets(vector, value_blinding, noise_secret),
        coin=coin,
        terms=terms,
        edges=edges,
        neighbours=tuple(graph.mask_keys),
        revealed=graph.revealed,
        holders=graph.holders,
        merkle_commitment=graph.digest,
        log=state.log,
        entry=entry,
    )
    return Transition(after, (entry,))


def _pair_terms(member: VerifiableMember, run_id: bytes, graph: Graph) -> dict[int, Term]:
    """Return this party's pairwise noise with each neighbour, without terms that are too large.

    The other end has the same term, and leaves the edge out as well. Whoever chose its key after it had seen
    this party's cannot make a value of this party exceed `greatest_published`.
    """
    # The pairs' seeds are in the order of mask_keys, of which all have revealed.
    pairs = zip(graph.mask_keys, *graph.mask_seeds(member, run_id, graph.revealed), strict=True)
    terms = {peer: _pair_term(member.parameters, seed, sign) for peer, seed, sign in pairs}
    return {peer: term for peer, term in terms.items() if term is not None}


def _pair_term(parameters: VerifiableParameters, seed: bytes, sign: int) -> Term | None:
    """Return an edge's pairwise noise and its commitment's blinding; None if a coordinate is too large."""
    source, most = NoiseSource.keyed(seed, b"gopa", b"pair"), parameters.greatest_delta
    delta = discrete_gaussian(source, parameters.encoding.length, parameters.session.pair_variance)
    if np.any((delta > most) | (delta < -most)):
        return None
    wide = b"".join(digest(Label.EDGE_BLINDING, seed, bytes([half])) for half in (0, 1))
    blinding = commit.blinding_from_wide(wide)
    if sign < 0:
        return (-delta).view(np.uint64), commit.add_blindings([], [blinding])
    return delta.view(np.uint64), blinding
