"""Waits of phases without an aggregator: for the coordinator, a letter of each party, or a quorum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from smpc_dp.capabilities.gopa.direct_evidence import DirectPeer, DirectState
from smpc_dp.engine.peers import Wait
from smpc_dp.errors import Code, TimeoutFault

Among = Callable[[DirectPeer, Any], Iterable[int]]


def _missing_proposal(peer: DirectPeer, state: DirectState) -> Collection[int]:
    """Return the coordinator's number while its message of the step has not arrived, else nothing."""
    letter = state.inbox.letter(state.step, peer.coordinator)
    return (peer.coordinator,) if letter is None else ()


def late_coordinator(peer: DirectPeer, state: DirectState) -> None:
    """Raise TimeoutFault that names the coordinator: no other party can take its place."""
    raise TimeoutFault({peer.name_of(peer.coordinator)}, state.step, "it coordinates this request")


# Wait for the coordinator's letter of the step.
PROPOSAL = Wait("the coordinator", _missing_proposal, late_coordinator)


def wait_for_each(among: Among) -> Wait:
    """Return a wait for a message of each party in a set; those without one at the deadline are lost."""

    def missing(peer: DirectPeer, state: DirectState) -> Collection[int]:
        return {*among(peer, state)}.difference(state.inbox.senders(state.step), state.inbox.gone)

    def expire(peer: DirectPeer, state: DirectState) -> None:
        for party in sorted(missing(peer, state)):
            late = TimeoutFault({peer.name_of(party)}, state.step, "deadline passed", code=Code.LATE)
            state.inbox.note(late)
            state.inbox.gone[party] = None

    return Wait("all parties that are left", missing, expire)


def wait_for_quorum(among: Among) -> Wait:
    """Return a wait for a quorum that signs this party's digest; it raises TimeoutFault if there is none."""

    def unsigned(peer: DirectPeer, state: DirectState, signed: Collection[int]) -> TimeoutFault:
        needed = peer.parameters.plan.quorum
        detail = f"{len(signed)} have signed what {peer.name} has, {needed} are due"
        return TimeoutFault(map(peer.name_of, {*among(peer, state)} - {*signed}), state.step, detail)

    def missing(peer: DirectPeer, state: DirectState) -> Collection[int]:
        needed, all_of_them = peer.parameters.plan.quorum, {*among(peer, state)}
        spoken, gone = state.inbox.senders(state.step), state.inbox.gone
        if len(spoken) < needed and len(all_of_them.difference(gone)) >= needed:
            return all_of_them.difference(spoken, gone)
        signed = signers(peer, state, state.step, all_of_them)
        if len(signed) >= needed:
            return ()
        # A party that signed another digest may have been shown another proposal, and can show it.
        others = all_of_them - signed.keys()
        open_still = {party for party in others if party in spoken or party not in gone}
        if len(signed) + len(open_still) < needed:
            raise unsigned(peer, state, signed)
        return open_still

    def expire(peer: DirectPeer, state: DirectState) -> None:
        raise unsigned(peer, state, signers(peer, state, state.step, among(peer, state)))

    return Wait("a quorum that has signed the same", missing, expire)


def signers(peer: DirectPeer, state: DirectState, step: str, among: Iterable[int]) -> dict[int, bytes]:
    """Return, by party, the signatures received in a step that are over this party's own digest."""
    letters = peer.letters(state, step, among)
    own = letters[peer.index].body_hash
    return {party: letter.signature for party, letter in letters.items() if letter.body_hash == own}
