"""Detection of a coordinator that sent parties different proposals.

A letter that answers another proposal than the one received here makes a party show its own to all, and both
signatures convict the coordinator.
"""

from __future__ import annotations

import hashlib

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_evidence import DirectPeer, DirectState, has_signed
from smpc_dp.capabilities.gopa.direct_keys import run_identifier
from smpc_dp.engine.peers import Letter
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import decode

# The step that an attestation answers.
_ANSWERED = {m.ATTEST_PARTICIPANTS: (d.MERKLE_COMMITMENT, d.PARTICIPANTS), d.ATTEST_TOTAL: (d.PUBLISHED,)}


def suspect(peer: DirectPeer, state: DirectState, step: str, letter: Letter) -> list[Envelope]:
    """Return, once a step, messages that show all the coordinator's message, if `letter` answers another."""
    if step in (m.HELLO, *d.PROPOSALS) or not state.run_id:
        return []
    if letter.run_id != state.run_id:
        return _show(peer, state, d.START)
    own = state.inbox.letter(step, peer.index)
    if own is None or own.body_hash == letter.body_hash:
        return []
    return [envelope for answered in _ANSWERED.get(step, ()) for envelope in _show(peer, state, answered)]


def suspect_all(peer: DirectPeer, state: DirectState, step: str | None = None) -> list[Envelope]:
    """Return what `suspect` returns for all stored messages of a step; None means of every step."""
    return [
        envelope
        for kind, letters in state.inbox.letters.items()
        if step in (None, kind)
        for letter in letters.values()
        for envelope in suspect(peer, state, kind, letter)
    ]


def _show(peer: DirectPeer, state: DirectState, step: str) -> list[Envelope]:
    """Return, once for a step, messages that show others the coordinator's message that came here."""
    letter = state.inbox.letter(step, peer.coordinator)
    if letter is None or step in state.inbox.shown or peer.coordinates:
        return []
    state.inbox.shown[step] = None
    body = letter.body if step == d.START else b""
    witness = d.Witness(step, letter.run_id, letter.body_hash, letter.signature, body)
    return peer.address(peer.write(state.run_id, d.WITNESS, witness), peer.everyone)


def take_witness(
    peer: DirectPeer, state: DirectState, party: int, envelope: Envelope, _body_hash: bytes
) -> tuple[()]:
    """Compare a coordinator's message that a party shows with the one received; PeerFault if they differ."""
    name, witness = envelope.sender, decode(envelope.body, d.Witness, envelope.sender)
    if witness.step not in d.PROPOSALS or not has_signed(
        peer, witness.run_id, witness.step, peer.coordinator, witness.body_hash, witness.signature
    ):
        by = peer.name_of(peer.coordinator)
        raise PeerFault(name, f"shows a proposal that {by} did not sign", Check.NOT_SIGNED)
    if witness.body and witness.step != d.START:
        raise PeerFault(name, "shows the body of a proposal that needs none", Check.MALFORMED)
    known = state.inbox.letter(witness.step, peer.coordinator)
    if known is not None:
        _compare(peer, state, witness, known)
    else:
        state.inbox.witnesses.setdefault(witness.step, {})[party] = witness
    return ()


def compare_all(peer: DirectPeer, state: DirectState, step: str, known: Letter) -> None:
    """Raise PeerFault if a version that another party showed convicts the coordinator; drop all versions."""
    for witness in state.inbox.witnesses.pop(step, {}).values():
        _compare(peer, state, witness, known)


def _compare(peer: DirectPeer, state: DirectState, witness: d.Witness, known: Letter) -> None:
    """Raise PeerFault if two signed versions, this party's and another's, convict the coordinator."""
    if (witness.run_id, witness.body_hash) == (known.run_id, known.body_hash):
        return
    # A proposal of another run may be old, unless it has a nonce that this process has just drawn.
    if witness.run_id != known.run_id and not _is_fresh(peer, state, witness):
        return
    evidence = {
        "first run id": known.run_id,
        "first": known.body_hash,
        "first signature": known.signature,
        "second run id": witness.run_id,
        "second": witness.body_hash,
        "second signature": witness.signature,
    }
    reason = f"sent two different messages for step '{witness.step}'"
    raise PeerFault(peer.name_of(peer.coordinator), reason, Check.EQUIVOCATION, evidence)


def _is_fresh(peer: DirectPeer, state: DirectState, witness: d.Witness) -> bool:
    """Tell whether a start message that a party shows contains the nonce of this party's current run."""
    if witness.step != d.START or hashlib.sha256(witness.body).digest() != witness.body_hash:
        return False
    coordinator = peer.name_of(peer.coordinator)
    try:
        start = decode(witness.body, d.Start, coordinator)
        present = PartySet.unpack(start.present, peer.parties, coordinator)
    except PeerFault:
        return False
    run_id = run_identifier(peer.context, peer.context.operation, start.present, start.nonces)
    hello, index = state.inbox.letter(m.HELLO, peer.index), 32 * present.index(peer.index)
    if hello is None or peer.index not in present or run_id != witness.run_id:
        return False
    return start.nonces[index : index + 32] == decode(hello.body, m.Hello, peer.name).nonce
