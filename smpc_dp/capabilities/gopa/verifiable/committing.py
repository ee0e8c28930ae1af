"""A party of a verifiable run from its commitments, through the coins of all, to its publication."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.follow import (
    Term,
    VerifiableMember,
    check_head,
    follow,
    head_digest,
    list_of,
    set_of,
)
from smpc_dp.capabilities.gopa.verifiable.publishing import (
    AwaitPublications,
    Neighbourhood,
    check_commit,
    commit_of,
)
from smpc_dp.capabilities.gopa.verifiable.recount import Batch
from smpc_dp.capabilities.gopa.verifiable.statements import cancel, failures
from smpc_dp.crypto import commit, proofs
from smpc_dp.encoding import RingVector
from smpc_dp.engine.party import PartyState
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Participation
from smpc_dp.engine.phases.key_graph import members_of
from smpc_dp.engine.state import Secret, Transition
from smpc_dp.errors import Check, PeerFault
from smpc_dp.logs.followed import Followed
from smpc_dp.logs.log import entry_digest
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import decode, encode

SIGNATURE = m.SIGNATURE_BYTES


class Secrets(Secret, frozen=True):
    """Secret values that a party has committed to, and discards when it sends its noisy vector.

    Attributes:
        vector, value_blinding: x, encoded, and the blinding of its commitment.
        noise_secret: the secret bits of its own noise.
    """

    vector: RingVector
    value_blinding: bytes
    noise_secret: proofs.SecretBytes


class AwaitCommitted(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has sent commitments to its vector and noise, not yet seen in the log.

    `terms` are Delta of its edges by neighbour, and `edges` the commitments to them; `neighbours` also has
    those to whom an edge is left out.
    """

    expects: ClassVar[str] = v.COMMITTED
    secrets: Secrets
    coin: bytes
    terms: dict[int, Term]
    edges: dict[int, bytes]
    neighbours: tuple[int, ...]
    revealed: PartySet
    holders: tuple[int, ...]
    merkle_commitment: bytes
    log: Followed
    entry: Envelope


class AwaitCommitmentsCertificate(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the log of all commitments and waits for a quorum's signatures."""

    expects: ClassVar[str] = v.COMMITMENTS_CERTIFICATE
    secrets: Secrets
    coin: bytes
    terms: dict[int, Term]
    around: Neighbourhood
    merkle_commitment: bytes
    participants: PartySet
    log: Followed
    attested: bytes


class AwaitCoins(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has sent its coin and waits for the coins of all parties."""

    expects: ClassVar[str] = v.COINS
    secrets: Secrets
    terms: dict[int, Term]
    around: Neighbourhood
    participation: Participation
    log: Followed
    entry: Envelope


class AwaitCoinsCertificate(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the log of all coins and waits for a quorum's signatures."""

    expects: ClassVar[str] = v.COINS_CERTIFICATE
    releases: ClassVar[bool] = True
    secrets: Secrets
    terms: dict[int, Term]
    around: Neighbourhood
    participation: Participation
    combined: bytes
    log: Followed
    attested: bytes


def on_committed(member: VerifiableMember, state: AwaitCommitted, body: bytes) -> Transition:
    """Check the neighbours' commitments and those that the aggregator calls false; sign the log."""
    run_id, parameters = state.run_id, member.parameters
    message = decode(body, v.Committed, member.context.aggregator)
    authors = list_of(member, message.committed)
    least = parameters.least_left(len(message.false))
    participants = members_of(member, message.participants, state.revealed, "participants", least)
    log, batch = follow(member, state.log, v.COMMIT, authors, message.digests, state.entry)
    if not participants <= set_of(member, message.committed):
        raise member.refuse(
            "lets parties take part whose commitments are not on the board", Check.NOT_PRESENT
        )
    _check_all_false(member, run_id, log, batch, participants, message.false)
    expected = tuple(sorted(peer for peer in state.neighbours if peer in participants))
    if tuple(item.party for item in message.commits) != expected:
        raise member.refuse("commitments are not those of the neighbours that take part", Check.SET_DIFFERS)
    commits: dict[int, v.Commit] = {}
    terms: dict[int, Term] = {}
    for item in message.commits:
        commits[item.party], edges = commit_of(member, run_id, log, batch, item)
        own = state.edges.get(item.party)
        if own and member.index in edges and cancel(own, edges[member.index]):
            terms[item.party] = state.terms[item.party]
    parameters.check_counted_edges(member.name, len(terms.keys() & {*state.holders}))
    attested = head_digest(member, run_id, v.ATTEST_COMMITMENTS, log, participants)
    after = AwaitCommitmentsCertificate(
        secrets=state.secrets,
        coin=state.coin,
        terms=terms,
        around=Neighbourhood(state.edges, commits, authors, log.head),
        merkle_commitment=state.merkle_commitment,
        participants=participants,
        log=log,
        attested=attested,
        false_count=len(message.false),
    )
    return Transition(after, (member.write(run_id, v.ATTEST_COMMITMENTS, m.Attestation(attested)),))


def _check_all_false(
    member: VerifiableMember,
    run_id: bytes,
    log: Followed,
    batch: Batch,
    participants: PartySet,
    items: Sequence[m.Advertisement],
) -> None:
    """Raise PeerFault if the aggregator calls a commitment false that is valid or a participant's."""
    parties, checks, rules = [item.party for item in items], proofs.Batch(), member.rules(run_id)
    if parties != sorted({*parties}) or any(party in participants for party in parties):
        raise member.refuse("calls commits false of parties that take part, or twice", Check.FALSE_ACCUSATION)
    false = set()
    for item in items:
        name = check_commit(member, run_id, log, batch, item)
        message = rules.check_commit(item.party, item.body, name)
        if isinstance(message, str):
            false.add(item.party)
        else:
            rules.add_commit(checks, item.party, name, message)
    if len(false) < len(parties):
        false |= {tag[0] for tag in failures(checks)}
    if right := [party for party in parties if party not in false]:
        name = member.name_of(right[0])
        raise member.refuse(
            f"says that {name} committed to something false: it did not", Check.FALSE_ACCUSATION
        )


def on_commitments_certificate(
    member: VerifiableMember, state: AwaitCommitmentsCertificate, body: bytes
) -> Transition:
    """Reveal this party's committed coin, now that a quorum has signed all commitments."""
    run_id, participants = state.run_id, state.participants
    log, certificate = check_head(member, state, v.ATTEST_COMMITMENTS, participants, body)
    entry = member.write(run_id, v.COIN, v.Coin(state.coin))
    after = AwaitCoins(
        secrets=state.secrets,
        terms=state.terms,
        around=state.around,
        participation=Participation(state.merkle_commitment, participants, certificate),
        log=log,
        entry=entry,
    )
    return Transition(after, (entry,))


def on_coins(member: VerifiableMember, state: AwaitCoins, body: bytes) -> Transition:
    """Check neighbours' coins by their commitments, and all parties' signatures on coins; sign the log."""
    run_id, context, participants = state.run_id, member.context, state.participation.participants
    rules, packed = member.rules(run_id), participants.packed
    message = decode(body, v.Coins, context.aggregator)
    coins, signatures = message.coins, message.signatures
    authors = context.remember(("ordered", packed), lambda: tuple(participants))
    if len(coins) != 32 * len(authors) or len(signatures) != SIGNATURE * len(authors):
        raise member.refuse("coins are not one of each participant", Check.NOT_ONE_EACH)
    for party, committed in state.around.commits.items():
        position = bisect.bisect_left(authors, party)
        name, coin = member.name_of(party), coins[32 * position : 32 * position + 32]
        if rules.coin_commitment(name, coin) != committed.coin:
            raise member.refuse(f"the coin of {name} is not what it has committed to", Check.BAD_OPENING)
    first = len(state.log) + 1
    digests = context.remember(
        ("coins", run_id, first, packed, coins, signatures),
        lambda: _coin_digests(member, run_id, first, authors, coins, signatures),
    )
    log, _ = follow(member, state.log, v.COIN, authors, digests, state.entry)
    attested = head_digest(member, run_id, v.ATTEST_COINS, log, participants)
    after = AwaitCoinsCertificate(
        secrets=state.secrets,
        terms=state.terms,
        around=state.around,
        participation=state.participation,
        combined=rules.combine_coins(packed, coins),
        log=log,
        attested=attested,
    )
    return Transition(after, (member.write(run_id, v.ATTEST_COINS, m.Attestation(attested)),))


def _coin_digests(
    member: VerifiableMember,
    run_id: bytes,
    first: int,
    authors: Sequence[int],
    coins: bytes,
    signatures: bytes,
) -> bytes:
    """Check the signatures of all parties' coins; return the digests of their log entries.

    An honest party signs its coin only if it accepts its edges: all signatures mean that all have.
    """
    digests, aggregator = [], member.context.aggregator
    for i, party in enumerate(authors):
        name, payload = member.name_of(party), encode(v.Coin(coins[32 * i : 32 * i + 32]))
        signature = signatures[SIGNATURE * i : SIGNATURE * (i + 1)]
        try:
            member.context.check_detached(run_id, v.COIN, name, aggregator, payload, signature)
        except PeerFault:
            raise member.refuse(f"forwarded a coin that {name} did not sign", Check.NOT_SIGNED) from None
        digests.append(entry_digest(first + i, name, v.COIN, payload, signature))
    return b"".join(digests)


def on_coins_certificate(member: VerifiableMember, state: AwaitCoinsCertificate, body: bytes) -> Transition:
    """Send the noisy vector with a proof that it sums the committed terms; discard the secrets."""
    run_id, participants = state.run_id, state.participation.participants
    log, _ = check_head(member, state, v.ATTEST_COINS, participants, body)
    rules = member.rules(run_id, state.combined)
    coins, blinding = rules.bits_of(member.name), commit.fresh_blinding(member.random)
    secrets = state.secrets
    secret = member.noise_secret(secrets.noise_secret)
    noise = secret.noise(coins)
    committed, proof = secret.prove(rules.proof_context(member.name), coins, blinding, member.random)
    x_hat = secrets.vector + np.array(noise, dtype=np.int64).view(np.uint64)
    blindings = [secrets.value_blinding, blinding]
    for delta, pair_blinding in state.terms.values():
        x_hat += delta
        blindings.append(pair_blinding)
    message = v.Publish(
        member.parameters.encoding.pack(x_hat), commit.add_blindings(blindings), committed, proof
    )
    entry = member.write(run_id, v.PUBLISH, message)
    after = AwaitPublications(
        terms=state.terms,
        around=state.around,
        participation=state.participation,
        combined=state.combined,
        log=log,
        entry=entry,
    )
    return Transition(after, (entry,))
