"""The user that coordinates a run of GOPA without a relay: it proposes sets, and is one of the users."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import Code, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.abort import ABORT, abort_of, code_of
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa import direct_messages as d
from smpc_dp.protocols.gopa.direct import DirectMachine
from smpc_dp.protocols.gopa.direct_evidence import Letter
from smpc_dp.protocols.gopa.direct_keys import run_identifier
from smpc_dp.protocols.gopa.messages import PUBLISH
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import PartySet, pack_set


class CoordinatorMachine(DirectMachine):
    """The coordinator of one run; arguments as of `DirectMachine`.

    It collects a message of everybody in each step, leaves out who is late or wrong, and shows all what it
    has. The others trust it with nothing: at worst it makes as many users vanish as the plan allows for, or
    stops the run.
    """

    def __init__(
        self,
        context: Context,
        parameters: GopaParameters,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
    ) -> None:
        super().__init__(context, parameters, identity, lanes, randomness)
        everyone = range(1, self._parties + 1)
        self._errors: dict[int, SmpcError] = {}
        self._told_late: set[int] = set()
        self._phases = (
            self._gathering(m.HELLO, lambda: everyone, self._propose_start),
            self._gathering(m.ADVERTISE, lambda: self._present, self._propose_roll),
            self._gathering(m.REVEAL, lambda: self._advertised, self._propose_participants),
            self._quorum(m.ATTEST_PARTICIPANTS, lambda: self._participants, self._publish),
            self._gathering(PUBLISH, lambda: self._participants, lambda: []),
            self._gathering(d.HELD, self._others, self._propose_published),
            self._quorum(d.ATTEST_TOTAL, lambda: self._participants, self._finish),
        )

    @property
    def has_enough(self) -> bool:
        """True when as many have said hello as the run needs."""
        return self.step == m.HELLO and len(self._heard(m.HELLO)) >= self._plan.min_survivors

    def _others(self) -> list[int]:
        return [party for party in self._participants if party != self._me]

    def _heard(self, step: str, among: Iterable[int] | None = None) -> dict[int, Letter]:
        """Return the letters of a step from those who are still there."""
        letters = self._letters(step, range(1, self._parties + 1) if among is None else among)
        return {party: letter for party, letter in letters.items() if party not in self._gone}

    def _keep(self, party: int, envelope: Envelope, body_hash: bytes) -> list[Envelope]:
        sent = super()._keep(party, envelope, body_hash)
        if envelope.step != m.HELLO or not self._run_id or party in self._told_late:
            return sent
        first = self._mail.get((party, m.HELLO))
        if party in self._present and first is not None and first.body_hash == body_hash:
            return sent
        self._told_late.add(party)
        begun = TimeoutFault({envelope.sender}, m.HELLO, "the run has begun", code=Code.BEGUN)
        return [*sent, self._tell_out(party, self._errors.get(party, begun))]

    def _tell_out(self, party: int, error: SmpcError) -> Envelope:
        return self._write(ABORT, abort_of(error), self._name_of(party))

    def _drop(self, party: int, error: SmpcError) -> None:
        self._errors[party] = error
        self._gone.add(party)
        self._note(error)

    def _check_enough(self, left: Collection[int], before: Iterable[int], step: str) -> None:
        needed = self._plan.min_survivors
        if len(left) >= needed:
            return
        missing = {party: self._name_of(party) for party in before if party not in left}
        known = self._errors.keys() & missing.keys()
        why = {missing[party]: code_of(self._errors[party], missing[party]) for party in known}
        reasons = "; ".join(list(self._faults)[:5])
        detail = f"{len(left)} users are left, {needed} are needed: {reasons}"
        raise TimeoutFault(missing.values(), step, detail, code=Code.FEW, why=why, number=needed)

    def _tell_left_out(self, before: Iterable[int], left: Collection[int], step: str) -> list[Envelope]:
        """Tell everyone who was in the set before and is not in the one that comes now."""
        sent = []
        for party in before:
            if party not in left:
                late = TimeoutFault({self._name_of(party)}, step, "deadline passed, or its link is gone")
                sent.append(self._tell_out(party, self._errors.get(party, late)))
        return sent

    # Proposals

    def _propose_start(self) -> list[Envelope]:
        everyone = range(1, self._parties + 1)
        for party, letter in self._heard(m.HELLO).items():
            try:
                hello = decode(letter.body, m.Hello, self._name_of(party))
                if msgspec.structs.replace(hello, nonce=self._hello.nonce) != self._hello:
                    asks = f"asks {hello.question!r}, {self.name} asks {self._hello.question!r}"
                    same = hello.question == self._hello.question
                    if same:
                        raise PeerFault(self._name_of(party), "has another plan or request")
                    raise PeerFault(self._name_of(party), asks, code=Code.QUESTION)
            except PeerFault as fault:
                self._drop(party, fault)
        letters = self._heard(m.HELLO)
        self._check_enough(letters, everyone, m.HELLO)
        hellos = [decode(letter.body, m.Hello, "") for letter in letters.values()]
        present, nonces = pack_set(letters, self._parties), b"".join(hello.nonce for hello in hellos)
        self._run_id = run_identifier(self._context, self._context.question, present, nonces)
        signatures = b"".join(letter.signature for letter in letters.values())
        sent = self._broadcast(d.START, d.Start(present, nonces, signatures), letters)
        asked = self._errors.keys() & self._letters(m.HELLO, everyone).keys()
        told = self._tell_left_out(sorted(asked), letters, m.HELLO)
        return [*told, *sent, *self._on_start()]

    def _propose_roll(self) -> list[Envelope]:
        letters = self._heard(m.ADVERTISE, self._present)
        for party, letter in list(letters.items()):
            try:
                self._read_advertise(party, letter.body)
                if (party, m.ADVERTISE) in self._proofs:
                    raise self._conviction(m.ADVERTISE, self._proofs[party, m.ADVERTISE])
            except PeerFault as fault:
                self._drop(party, fault)
                del letters[party]
        self._check_enough(letters, self._present, m.ADVERTISE)
        roll = d.Roll(pack_set(letters, self._parties), *_shown(letters))
        told = self._tell_left_out(self._present, letters, m.ADVERTISE)
        return [*told, *self._broadcast(d.ROLL, roll, letters), *self._on_roll()]

    def _propose_participants(self) -> list[Envelope]:
        letters = self._heard(m.REVEAL, self._advertised)
        convicted: set[int] = set()
        for party, letter in list(letters.items()):
            try:
                convicted |= self._read_reveal(party, letter.body)[1]
            except PeerFault as fault:
                self._drop(party, fault)
                del letters[party]
        for party in sorted(convicted & letters.keys()):
            what = f"sent two different messages for step '{m.ADVERTISE}'"
            self._drop(party, PeerFault(self._name_of(party), what))
            del letters[party]
        self._check_enough(letters, self._advertised, m.REVEAL)
        proposed = d.Participants(pack_set(letters, self._parties), *_shown(letters))
        told = self._tell_left_out(self._advertised, letters, m.REVEAL)
        return [*told, *self._broadcast(d.PARTICIPANTS, proposed, letters), *self._on_participants()]

    def _propose_published(self) -> list[Envelope]:
        letters = self._letters(PUBLISH, self._participants)
        seen, held = dict(letters), self._read_all_held(letters)
        convicted = {party for party, step in self._proofs if step == PUBLISH}
        for party in list(letters):
            try:
                if party in convicted:
                    raise self._conviction(PUBLISH, self._proofs[party, PUBLISH])
                self._read_x_hat(party, letters[party].body)
            except PeerFault as fault:
                self._drop(party, fault)
                del letters[party]
        self._check_enough(letters, self._participants, PUBLISH)
        forwards = [
            self._write(d.FORWARD, d.Forward(party, letters[party].body), self._name_of(receiver))
            for receiver, has in held.items()
            for party in letters
            if party not in has and receiver in letters
        ]
        proposed = d.Published(
            pack_set(letters, self._parties),
            b"".join(letter.body_hash for letter in letters.values()),
            b"".join(letter.signature for letter in letters.values()),
            self._proofs_of(PUBLISH),
        )
        self._held = {party: letter.body_hash for party, letter in seen.items() if party in letters}
        told = self._tell_left_out(self._participants, letters, PUBLISH)
        sent = self._broadcast(d.PUBLISHED, proposed, letters)
        self._read_published()
        return [*told, *forwards, *sent, *self._add_up()]

    def _read_all_held(self, mine: Mapping[int, Letter]) -> dict[int, PartySet]:
        """Return whose publications each user has, and convict those of whom there are two."""
        known, held = dict(mine), {}
        for party, letter in self._letters(d.HELD, self._others()).items():
            try:
                held[party] = self._read_held(party, letter.body, known)
            except PeerFault as fault:
                self._note(fault)
        return held

    def _read_held(self, party: int, body: bytes, known: dict[int, Letter]) -> PartySet:
        name = self._name_of(party)
        message = decode(body, d.Held, name)
        held = PartySet.unpack(message.held, self._parties, name)
        size = m.SIGNATURE_BYTES
        if len(message.hashes) != 32 * len(held) or len(message.signatures) != size * len(held):
            raise PeerFault(name, "malformed Held: lists of differing lengths")
        for convicted in self._proven(PUBLISH, message.proofs, name):
            proof = next(proof for proof in message.proofs if proof.party == convicted)
            self._proofs.setdefault((convicted, PUBLISH), proof)
        for place, publisher in enumerate(held):
            body_hash = message.hashes[32 * place : 32 * place + 32]
            signature = message.signatures[size * place : size * place + size]
            first = known.get(publisher)
            if first is not None and first.body_hash == body_hash:
                continue
            if not self._has_signed(self._run_id, PUBLISH, publisher, body_hash, signature):
                raise PeerFault(name, f"holds a publication that {self._name_of(publisher)} did not sign")
            if first is None:
                known[publisher] = Letter(self._run_id, b"", body_hash, signature)
            else:
                self._convict(PUBLISH, publisher, first, body_hash, signature)
        return held


def _shown(letters: Mapping[int, Letter]) -> tuple[list[bytes], bytes]:
    bodies = [letter.body for letter in letters.values()]
    return bodies, b"".join(letter.signature for letter in letters.values())
