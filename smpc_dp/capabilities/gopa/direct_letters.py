"""Reception of letters in a run without an aggregator: the checks, and what is stored."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_evidence import DirectPeer, DirectState, convict
from smpc_dp.capabilities.gopa.direct_witness import compare_all, suspect, take_witness
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.engine.peers import Take, letter_of, lose
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault
from smpc_dp.wire.abort import equivocation
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode

# Bytes of any message besides a vector or data of each party.
SMALL = 4096


def most_bytes(peer: DirectPeer, step: str) -> int:
    """Return the greatest size in bytes of a message of a step; `sys.maxsize` for the coordinator's."""
    encoding, proofs = peer.parameters.encoding, 256 * peer.parties
    if step in (PUBLISH, d.FORWARD):
        return SMALL + encoding.ring_length * encoding.element_bytes
    if step in d.PROPOSALS:
        # From one party, four of them: the channel's limit is enough.
        return sys.maxsize
    degree = peer.parameters.plan.degree
    more = {m.REVEAL: proofs + 2 * degree, d.HELD: 2 * proofs, d.WITNESS: 128 * peer.parties}
    return SMALL + more.get(step, 0)


def keep(
    peer: DirectPeer, state: DirectState, party: int, envelope: Envelope, body_hash: bytes
) -> list[Envelope]:
    """Store a party's message; return messages to send; PeerFault if a second one, no hello, differs."""
    inbox, step, letter = state.inbox, envelope.step, letter_of(envelope, body_hash)
    known = inbox.letter(step, party)
    if step == m.HELLO and not state.run_id:
        # A process that has reconnected or restarted: its last hello is answered.
        inbox.keep(step, party, letter)
        inbox.gone.pop(party, None)
        return []
    if known is None:
        inbox.keep(step, party, letter)
        return suspect(peer, state, step, letter)
    if known.body_hash == body_hash and known.run_id == letter.run_id:
        return []
    if step == m.HELLO:
        inbox.note(f"{envelope.sender}: started again after the run had begun")
        lose(peer, state, (envelope.sender,), d.PUBLISHED)
        return []
    if known.run_id == letter.run_id and step in d.EVERY_PARTY_STEPS and step != d.HELD:
        convict(peer, state, step, party, known, body_hash, letter.signature)
    raise equivocation(envelope, peer.context, known.run_id, known.body_hash, known.signature)


def _keep_proposal(
    peer: DirectPeer, state: DirectState, party: int, envelope: Envelope, body_hash: bytes
) -> list[Envelope]:
    """Store the coordinator's message, compare it with versions others showed; return what to send."""
    _check_coordinates(peer, party, envelope)
    is_first = state.inbox.letter(envelope.step, party) is None
    sent = keep(peer, state, party, envelope, body_hash)
    if is_first:
        compare_all(peer, state, envelope.step, letter_of(envelope, body_hash))
    return sent


def _keep_forwarded(
    peer: DirectPeer, state: DirectState, party: int, envelope: Envelope, _body_hash: bytes
) -> Sequence[Envelope]:
    """Store, unchecked, a party's noisy vector that the coordinator passes on; return no messages."""
    _check_coordinates(peer, party, envelope)
    forward = decode(envelope.body, d.Forward, envelope.sender)
    if envelope.run_id != state.run_id:
        raise peer.refuse("forwards a publication of another run", Check.OTHER_RUN)
    if 1 <= forward.party <= peer.parties:
        state.inbox.forwarded.setdefault(forward.party, forward.body)
    return ()


def _refuse_held(
    _peer: DirectPeer, _state: DirectState, _party: int, envelope: Envelope, _body_hash: bytes
) -> Sequence[Envelope]:
    """Raise PeerFault: a report of received publications was sent to a party that is not the coordinator."""
    raise PeerFault(
        envelope.sender, f"sent '{envelope.step}' to somebody who does not coordinate", Check.WRONG_RECEIVER
    )


def _check_coordinates(peer: DirectPeer, party: int, envelope: Envelope) -> None:
    """Raise PeerFault if a message that only the run's coordinator may send comes from another party."""
    if party != peer.coordinator:
        raise PeerFault(
            envelope.sender, f"sent '{envelope.step}', which is not its to send", Check.WRONG_SENDER
        )


# Letters that every party takes.
FROM_ALL: dict[str, Take] = {**dict.fromkeys(d.EVERY_PARTY_STEPS, keep), d.WITNESS: take_witness}
# Letters that only parties other than the coordinator take.
TAKES: dict[str, Take] = {
    **FROM_ALL,
    **dict.fromkeys(d.PROPOSALS, _keep_proposal),
    d.FORWARD: _keep_forwarded,
    d.HELD: _refuse_held,
}
