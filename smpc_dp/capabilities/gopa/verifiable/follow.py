"""Following of the board by a party of a verifiable run, and its signatures on heads."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Protocol

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.recount import Batch
from smpc_dp.capabilities.gopa.verifiable.statements import Rules
from smpc_dp.crypto import proofs
from smpc_dp.encoding import RingVector
from smpc_dp.engine.party import Member
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certify import check_certificate
from smpc_dp.engine.result import Certificate
from smpc_dp.errors import Check
from smpc_dp.logs.followed import Followed
from smpc_dp.logs.log import HEAD_BYTES, entry_digest
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set, unpack_list
from smpc_dp.wire.signing import Context, decode


@dataclass(frozen=True, slots=True)
class VerifiableMember(Member[VerifiableParameters]):
    """Role of a party in a verifiable run, which may compute the total itself before it signs the total."""

    check_total: bool = True

    def rules(self, run_id: bytes, combined: bytes = b"") -> Rules:
        """Return the public checks of a run; `combined`: hash of all coins, empty until they are open."""
        return Rules(self.context, self.parameters, run_id, combined)

    def noise_secret(self, drawn: proofs.SecretBytes) -> proofs.NoiseSecret:
        """Return a party's secret noise bits, unpacked from drawn random bytes."""
        return proofs.NoiseSecret(self.parameters.encoding.length, self.parameters.bits, *drawn)


# Delta with a neighbour as this party adds it, and the blinding of its commitment.
Term = tuple[RingVector, bytes]


# Sets and lists of parties


def list_of(member: VerifiableMember, packed: bytes) -> tuple[int, ...]:
    """Return the party numbers in a packed list from the aggregator; raise PeerFault if malformed."""
    context = member.context
    return context.remember(("list", packed), lambda: unpack_list(packed, member.parties, context.aggregator))


def set_of(member: VerifiableMember, listed: bytes) -> PartySet:
    """Return the set of parties in a packed list from the aggregator; raise PeerFault if malformed."""
    packed = member.context.remember(
        ("set of", listed), lambda: pack_set(list_of(member, listed), member.parties)
    )
    return _unpacked(member, packed)


def without(member: VerifiableMember, parties: PartySet, listed: bytes) -> PartySet:
    """Return a set of parties without the parties in a packed list."""
    packed = member.context.remember(
        ("without", parties.packed, listed),
        lambda: pack_set([*{*parties} - {*list_of(member, listed)}], member.parties),
    )
    return _unpacked(member, packed)


def _unpacked(member: VerifiableMember, packed: bytes) -> PartySet:
    """Return the set of parties in packed bits from the aggregator; raise PeerFault if malformed."""
    context = member.context
    return context.remember(
        ("set", packed), lambda: PartySet.unpack(packed, member.parties, context.aggregator)
    )


# Entries


def follow_batch(
    context: Context, log: Followed, kind: str, authors: tuple[int, ...], digests: bytes
) -> tuple[Followed, Batch] | None:
    """Return the followed log with one more entry per author, and the batch; None if digests do not fit."""
    if len(digests) != HEAD_BYTES * len(authors):
        return None
    # Equal for all parties that follow the board in this process.
    after = context.remember(("followed", log.head, digests), lambda: log.after(digests))
    return after, Batch(kind, len(log) + 1, authors)


def follow(
    member: VerifiableMember,
    log: Followed,
    kind: str,
    authors: tuple[int, ...],
    digests: bytes,
    own: Envelope | None,
) -> tuple[Followed, Batch]:
    """Return the followed log with these authors' entries; PeerFault if digests do not fit or lack `own`."""
    followed = follow_batch(member.context, log, kind, authors, digests)
    if followed is None:
        raise member.refuse("does not have one digest for each entry", Check.NOT_ONE_EACH)
    if own is not None:
        check_entry(member, *followed, member.index, own.body, own.signature)
    return followed


def check_entry(
    member: VerifiableMember, log: Followed, batch: Batch, party: int, body: bytes, signature: bytes
) -> None:
    """Raise PeerFault unless the followed log has this signed entry of a party among a step's entries."""
    name, kind = member.name_of(party), batch.kind
    position = bisect.bisect_left(batch.authors, party)
    if position < len(batch.authors) and batch.authors[position] == party:
        number = batch.first + position
        if entry_digest(number, name, kind, body, signature) == log.digest(number):
            return
    raise member.refuse(f"the board does not have the entry '{kind}' of {name}", Check.NOT_SHOWN)


def follow_own(
    member: VerifiableMember, run_id: bytes, log: Followed, kind: str, payload: bytes, signature: bytes
) -> Followed:
    """Return the followed log with one more entry of the aggregator; raise PeerFault if not signed."""
    aggregator = member.context.aggregator
    member.context.check_detached(run_id, kind, aggregator, aggregator, payload, signature)
    return log.after(entry_digest(len(log) + 1, aggregator, kind, payload, signature))


# Heads


def head_digest(
    member: VerifiableMember, run_id: bytes, step: str, log: Followed, parties: PartySet, *false: bytes
) -> bytes:
    """Return the digest that a party signs about the log: its hash, the remaining and the false parties."""
    return member.rules(run_id).attestation(step, log.head, parties.packed, *false)


class AttestedState(Protocol):
    """Interface of a party's states in which it has signed a hash of the run's log."""

    @property
    def run_id(self) -> bytes:
        """The id of the run, of 32 bytes."""

    @property
    def log(self) -> Followed:
        """The log of the run, as far as this party has followed it."""

    @property
    def attested(self) -> bytes:
        """The digest of the log's hash and the parties that this party has signed."""


def check_head(
    member: VerifiableMember, state: AttestedState, step: str, parties: PartySet, body: bytes
) -> tuple[Followed, Certificate]:
    """Check that a quorum signed what this party did, or PeerFault; return (followed log, certificate)."""
    aggregator = member.context.aggregator
    message = decode(body, v.Certificate, aggregator)
    certified = decode(message.payload, m.Certified, aggregator)
    if certified.members != parties.packed:
        raise member.refuse(f"certificate of '{step}' is of another set", Check.BAD_CERTIFICATE)
    certificate = check_certificate(
        member.context,
        member.parameters.plan.quorum,
        state.run_id,
        step,
        state.attested,
        parties,
        m.Certificate(certified.signers, certified.signatures),
    )
    log = follow_own(member, state.run_id, state.log, v.certifies(step), message.payload, message.signature)
    return log, certificate
