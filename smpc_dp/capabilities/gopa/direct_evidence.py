"""Evidence of a run without an aggregator.

A letter is signed once for all receivers. So two different ones for one step of one run convict their sender,
whoever shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from dataclasses import dataclass, field
from typing import TypeAlias

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.engine.peers import Inbox, Letter, Peer, PeerState
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault, SmpcError, VerificationError
from smpc_dp.wire.envelope import EVERYONE
from smpc_dp.wire.sets import PartySet


@dataclass(slots=True)
class DirectInbox(Inbox):
    """Messages that a party has received in a run without an aggregator, and evidence of misbehaviour.

    Attributes:
        proofs: against parties that sent two different letters, by party and step.
        witnesses: proposals that others show, of steps that have not come here.
        shown: the steps of the proposals that were shown to all.
        forwarded: publications that the coordinator forwards, by party.
        excluded: at the coordinator, the reason for each exclusion.
        answered: at the coordinator, the parties whose late hello was answered.
    """

    proofs: dict[tuple[int, str], d.Proof] = field(default_factory=dict)
    witnesses: dict[str, dict[int, d.Witness]] = field(default_factory=dict)
    shown: dict[str, None] = field(default_factory=dict)
    forwarded: dict[int, bytes] = field(default_factory=dict)
    excluded: dict[int, SmpcError] = field(default_factory=dict)
    answered: dict[int, None] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries in each collection of received messages; a replaced message counts once."""
        witnesses = sum(map(len, self.witnesses.values()))
        result: tuple[Sized, ...] = (
            self.proofs,
            self.shown,
            self.forwarded,
            self.excluded,
            self.answered,
        )
        # Without arguments `super` knows the class before it got slots.
        return (*super(DirectInbox, self).sizes, witnesses, *map(len, result))


DirectPeer: TypeAlias = Peer[GopaParameters]
DirectState: TypeAlias = PeerState[DirectInbox]


def coordinator_of(request: int, parties: int) -> int:
    """Return the number (1 to `parties`) of the party that coordinates a request: all parties in turn."""
    return (request - 1) % parties + 1


def has_signed(
    peer: DirectPeer, run_id: bytes, step: str, party: int, body_hash: bytes, signature: bytes
) -> bool:
    """Tell whether a signature over a message's hash in a step of a run is a party's valid signature."""
    context, name = peer.context, peer.name_of(party)
    statement = context.statement(run_id, step, name, EVERYONE, body_hash)
    try:
        context.verify(context.keys[name], statement, signature)
    except VerificationError:
        return False
    return True


def check_signed(
    peer: DirectPeer, state: DirectState, step: str, party: int, body_hash: bytes, signature: bytes
) -> None:
    """Raise PeerFault against the coordinator for a message its author did not sign; convict who signed two.

    Raises:
        PeerFault: the party did not sign it; names the coordinator.
    """
    run_id, known = peer.signed_under(state), state.inbox.letter(step, party)
    if known is not None and known.run_id == run_id and known.body_hash == body_hash:
        return
    if not has_signed(peer, run_id, step, party, body_hash, signature):
        raise peer.refuse(
            f"shows a message of step '{step}' that {peer.name_of(party)} did not sign", Check.NOT_SIGNED
        )
    # Two nonces prove nothing: a restarted process sends a hello again.
    if known is not None and known.run_id == run_id and step != m.HELLO:
        convict(peer, state, step, party, known, body_hash, signature)


def convict(
    peer: DirectPeer,
    state: DirectState,
    step: str,
    party: int,
    known: Letter,
    body_hash: bytes,
    signature: bytes,
) -> None:
    """Store a proof, and note in diagnostics, that a party signed two messages in a step; raise nothing."""
    proof = d.Proof(party, known.body_hash, known.signature, body_hash, signature)
    state.inbox.proofs.setdefault((party, step), proof)
    note_convicted(peer, state, step, party)


def note_convicted(peer: DirectPeer, state: DirectState, step: str, party: int) -> None:
    """Record in the run's diagnostics that a party sent two different messages in a step."""
    reason = f"sent two different messages for step '{step}'"
    state.inbox.note(PeerFault(peer.name_of(party), reason, Check.EQUIVOCATION))


def proofs_of(state: DirectState, step: str) -> list[d.Proof]:
    """Return the stored proofs that parties signed two different messages in a step, in roster order."""
    return [proof for (_, proven), proof in sorted(state.inbox.proofs.items()) if proven == step]


def proven(
    peer: DirectPeer, state: DirectState, step: str, proofs: Sequence[d.Proof], shower: str
) -> set[int]:
    """Return the parties that valid proofs convict; raise PeerFault naming `shower` if a proof is invalid."""
    parties = [proof.party for proof in proofs]
    if parties != sorted(set(parties)) or any(not 1 <= party <= peer.parties for party in parties):
        raise PeerFault(shower, "shows proofs that are not of parties in roster order", Check.WRONG_ORDER)
    for proof in proofs:
        shown = ((proof.first, proof.first_signature), (proof.second, proof.second_signature))
        if proof.first == proof.second or not all(
            has_signed(peer, state.run_id, step, proof.party, *signed) for signed in shown
        ):
            raise PeerFault(
                shower, f"accuses {peer.name_of(proof.party)} without a proof", Check.FALSE_ACCUSATION
            )
    return set(parties)


def conviction(peer: DirectPeer, state: DirectState, step: str, proof: d.Proof) -> PeerFault:
    """Return the PeerFault, with evidence, against a party whose two signed messages a proof shows."""
    evidence = {
        "first run id": state.run_id,
        "first": proof.first,
        "first signature": proof.first_signature,
        "second run id": state.run_id,
        "second": proof.second,
        "second signature": proof.second_signature,
    }
    reason = f"sent two different messages for step '{step}'"
    return PeerFault(peer.name_of(proof.party), reason, Check.EQUIVOCATION, evidence)


def note_hidden(peer: DirectPeer, state: DirectState, step: str, members: Collection[int] | PartySet) -> None:
    """Note in diagnostics which parties the coordinator left out of a set though their message came.

    They, or the coordinator, are at fault.
    """
    for party in peer.letters(state, step, peer.everyone):
        if party not in members and (party, step) not in state.inbox.proofs:
            by = peer.name_of(peer.coordinator)
            state.inbox.note(f"{peer.name_of(party)}: left out by {by}; its '{step}' came here")
