"""How users without a relay agree on who takes part. Specification: protocols/gopa/direct.md."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from smpc_dp.crypto import agree
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import Code, PeerFault, TimeoutFault, VerificationError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode, encode
from smpc_dp.protocols.gopa import direct_messages as d
from smpc_dp.protocols.gopa.direct_keys import run_identifier
from smpc_dp.protocols.gopa.direct_rounds import DirectRole, Phase
from smpc_dp.protocols.gopa.messages import PUBLISH
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.secagg import keys
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import PartySet, draw_neighbours, pack_list, unpack_list

# Bytes of any message, but for what it has of a vector or of each user.
SMALL = 4096


class Agreement(DirectRole):
    """A user up to the certificate of who takes part, in a run that another user coordinates."""

    def __init__(
        self,
        context: Context,
        parameters: GopaParameters,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
    ) -> None:
        parameters.check_lanes(identity.name, lanes)
        super().__init__(context, identity)
        self._parameters = parameters
        self._plan = parameters.plan
        self._lanes: Lanes | None = lanes
        self._random = randomness or SystemRandomness()
        self._hello = m.Hello(
            context.session_digest,
            context.request,
            self._random.bytes(32),
            self._plan.degree,
            self._plan.threshold,
            self._plan.quorum,
            context.question,
        )

    def start(self) -> list[Envelope]:
        """Say hello to everyone, with a fresh nonce."""
        return self._broadcast(m.HELLO, self._hello, range(1, self._parties + 1))

    def _own_nonce(self) -> bytes:
        return self._hello.nonce

    def _end(self) -> None:
        super()._end()
        self._lanes = None
        self.__dict__.pop("_mask_secret", None)

    def _most_bytes(self, step: str) -> int:
        encoding, proofs = self._parameters.encoding, 256 * self._parties
        if step in (PUBLISH, d.FORWARD):
            return SMALL + encoding.lanes * encoding.element_bytes
        if step in d.PROPOSALS:
            # From one user, four of them: the channel's limit is enough.
            return sys.maxsize
        more = {m.REVEAL: proofs + 2 * self._plan.degree, d.HELD: 2 * proofs, d.WITNESS: 128 * self._parties}
        return SMALL + more.get(step, 0)

    # Phases

    def _proposal(self, step: str, act: Callable[[], list[Envelope]]) -> Phase:
        def missing() -> Collection[int]:
            return () if (self._coordinator, step) in self._mail else (self._coordinator,)

        return Phase(step, missing, act, self._late_coordinator, patient=True)

    def _late_coordinator(self) -> None:
        raise TimeoutFault({self.coordinator}, self.step, "it coordinates this request")

    def _gathering(
        self, step: str, among: Callable[[], Iterable[int]], act: Callable[[], list[Envelope]]
    ) -> Phase:
        """Wait for a message of each, and no longer than the deadline."""

        def missing() -> Collection[int]:
            return {*among()} - self._spoken[step] - self._gone

        def expire() -> None:
            for party in sorted(missing()):
                self._note(TimeoutFault({self._name_of(party)}, step, "deadline passed", code=Code.LATE))
                self._gone.add(party)

        return Phase(step, missing, act, expire)

    def _quorum(
        self, step: str, among: Callable[[], Iterable[int]], act: Callable[[], list[Envelope]]
    ) -> Phase:
        """Wait until a quorum has signed what this user has signed."""
        plan = self._plan

        def unsigned(signed: Collection[int]) -> TimeoutFault:
            detail = f"{len(signed)} have signed what {self.name} has, {plan.quorum} are due"
            return TimeoutFault(map(self._name_of, {*among()} - {*signed}), step, detail)

        def missing() -> Collection[int]:
            if len(self._spoken[step]) < plan.quorum and len({*among()} - self._gone) >= plan.quorum:
                return {*among()} - self._spoken[step] - self._gone
            signed = self._signers(step, among())
            if len(signed) >= plan.quorum:
                return ()
            others = {*among()} - signed.keys()
            # Who signed something else may have been shown something else, and can tell.
            open_still = {party for party in others if party in self._spoken[step] or party not in self._gone}
            if len(signed) + len(open_still) < plan.quorum:
                raise unsigned(signed)
            return open_still

        def expire() -> None:
            raise unsigned(self._signers(step, among()))

        return Phase(step, missing, act, expire)

    def _signers(self, step: str, among: Iterable[int]) -> dict[int, bytes]:
        """Return the signatures over what this user has signed in a step."""
        letters = self._letters(step, among)
        own = letters[self._me].body_hash
        return {party: letter.signature for party, letter in letters.items() if letter.body_hash == own}

    # Proposals

    def _body_of(self, step: str) -> bytes:
        letter = self._mail[self._coordinator, step]
        if self._run_id and letter.run_id != self._run_id:
            raise self._refuse(f"sent '{step}' of another run")
        return letter.body

    def _set(self, packed: bytes, within: Collection[int] | PartySet | None, what: str) -> PartySet:
        """Unpack a set that must lie in `within`, hold this user and the coordinator and be large enough."""
        members = PartySet.unpack(packed, self._parties, self.coordinator)
        if within is not None and any(party not in within for party in members):
            raise self._refuse(f"{what} has users that were out before")
        for party in (self._me, self._coordinator):
            if party not in members:
                raise self._refuse(f"left {self._name_of(party)} out of the {what}")
        if len(members) < self._plan.min_survivors:
            raise self._refuse(f"{what} has {len(members)} users, at least {self._plan.min_survivors} due")
        return members

    def _signatures(self, packed: bytes, members: PartySet, what: str) -> dict[int, bytes]:
        if len(packed) != m.SIGNATURE_BYTES * len(members):
            raise self._refuse(f"{what} does not have one signature for each user")
        size = m.SIGNATURE_BYTES
        return {party: packed[size * place : size * place + size] for place, party in enumerate(members)}

    def _check_bodies(
        self, step: str, bodies: list[bytes], signatures: bytes, members: PartySet, what: str
    ) -> dict[int, bytes]:
        if len(bodies) != len(members):
            raise self._refuse(f"{what} does not have one message for each user")
        of = dict(zip(members, bodies, strict=True))
        for party, signature in self._signatures(signatures, members, what).items():
            self._check_signed(step, party, hashlib.sha256(of[party]).digest(), signature)
        if of[self._me] != self._mail[self._me, step].body:
            raise self._refuse(f"{what} does not have the message of {self.name}")
        return of

    def _note_hidden(self, step: str, members: Collection[int] | PartySet) -> None:
        """Say who was left out although its message came here: it, or the coordinator, is to blame."""
        for party in self._letters(step, range(1, self._parties + 1)):
            if party not in members and (party, step) not in self._proofs:
                self._note(f"{self._name_of(party)}: left out by {self.coordinator}; its '{step}' came here")

    def _on_start(self) -> list[Envelope]:
        letter = self._mail[self._coordinator, d.START]
        start = decode(letter.body, d.Start, self.coordinator)
        self._present = self._set(start.present, None, "present users")
        if len(start.nonces) != 32 * len(self._present):
            raise self._refuse("start does not have one nonce for each present user")
        for place, (party, signature) in enumerate(
            self._signatures(start.signatures, self._present, "start").items()
        ):
            nonce = start.nonces[32 * place : 32 * place + 32]
            if party == self._me and nonce != self._hello.nonce:
                raise self._refuse(f"start does not have the nonce of {self.name}")
            body = encode(msgspec.structs.replace(self._hello, nonce=nonce))
            self._check_signed(m.HELLO, party, hashlib.sha256(body).digest(), signature)
        run_id = run_identifier(self._context, self._context.question, start.present, start.nonces)
        if letter.run_id != run_id:
            raise self._refuse("start is not for the run that its nonces give")
        self._note_hidden(m.HELLO, self._present)
        self._run_id = run_id
        shown = self._suspect_all()
        self._drawn = draw_neighbours(self._me, self._parties, self._plan.degree, self._random)
        self._blinder = self._random.bytes(32)
        self._mask_secret = self._random.bytes(32)
        commitment = keys.neighbour_commitment(
            self._context, run_id, self.name, pack_list(self._drawn), self._blinder
        )
        advertise = d.Advertise(agree.public_key(self._mask_secret), commitment)
        return shown + self._broadcast(m.ADVERTISE, advertise, self._present)

    def _on_roll(self) -> list[Envelope]:
        body = self._body_of(d.ROLL)
        roll = decode(body, d.Roll, self.coordinator)
        self._advertised = self._set(roll.advertised, self._present, "roll")
        bodies = self._check_bodies(
            m.ADVERTISE, roll.advertisements, roll.signatures, self._advertised, "roll"
        )
        self._roll_hash = hashlib.sha256(body).digest()
        try:
            self._keys = {party: self._read_advertise(party, bodies[party]) for party in bodies}
        except PeerFault as fault:
            raise self._refuse(f"let {fault} onto the roll") from None
        self._note_hidden(m.ADVERTISE, self._advertised)
        reveal = d.Reveal(pack_list(self._drawn), self._blinder, self._proofs_of(m.ADVERTISE))
        return self._broadcast(m.REVEAL, reveal, self._advertised)

    def _read_advertise(self, party: int, body: bytes) -> d.Advertise:
        """Raises PeerFault naming the user unless its advertisement is one."""
        name = self._name_of(party)
        advertise = decode(body, d.Advertise, name)
        try:
            agree.check_public_key(advertise.mask_key)
        except VerificationError as error:
            raise PeerFault(name, str(error)) from None
        return advertise

    def _read_reveal(self, party: int, body: bytes) -> tuple[tuple[int, ...], set[int]]:
        """Return whom a user drew, and whom it proves to have advertised twice; else raise PeerFault."""
        name = self._name_of(party)
        reveal = decode(body, d.Reveal, name)
        shown = keys.neighbour_commitment(
            self._context, self._run_id, name, reveal.neighbours, reveal.blinder
        )
        if shown != self._keys[party].commitment:
            raise PeerFault(name, "revealed neighbours that it had not committed to")
        drawn = unpack_list(reveal.neighbours, self._parties, name)
        if len(drawn) != self._plan.degree or party in drawn:
            raise PeerFault(name, f"must draw {self._plan.degree} neighbours other than itself")
        return drawn, self._proven(m.ADVERTISE, reveal.proofs, name)

    def _on_participants(self) -> list[Envelope]:
        proposed = decode(self._body_of(d.PARTICIPANTS), d.Participants, self.coordinator)
        members = self._set(proposed.participants, self._advertised, "participants")
        bodies = self._check_bodies(
            m.REVEAL, proposed.reveals, proposed.signatures, members, "list of participants"
        )
        drawn: dict[int, tuple[int, ...]] = {}
        convicted = {proof.party for proof in self._proofs_of(m.ADVERTISE) if self._has_told(proof)}
        try:
            for party, body in bodies.items():
                drawn[party], proven = self._read_reveal(party, body)
                convicted |= proven
        except PeerFault as fault:
            raise self._refuse(f"let {fault} take part") from None
        for party in sorted(convicted):
            self._note(f"{self._name_of(party)}: sent two different messages for step '{m.ADVERTISE}'")
            if party in members:
                raise self._refuse(f"lets {self._name_of(party)} take part, which advertised twice")
        self._note_hidden(m.REVEAL, members)
        self._settle(tuple(members), drawn)
        own = sum(party in members for party in self._drawn)
        drew_me = sum(self._me in others for others in drawn.values())
        self._parameters.check_place(self.name, own, drew_me)
        attestation = m.Attestation(
            keys.participants_digest(self._context, self._run_id, self._roll_hash, proposed.participants)
        )
        self._participants_digest = attestation.set_digest
        sent = self._broadcast(m.ATTEST_PARTICIPANTS, attestation, members)
        return sent + self._suspect_all(m.ATTEST_PARTICIPANTS)

    def _has_told(self, proof: d.Proof) -> bool:
        """Tell whether this user's `Reveal` had the proof; one that was found later excludes nobody."""
        own = decode(self._mail[self._me, m.REVEAL].body, d.Reveal, self.name)
        return proof in own.proofs

    def _settle(self, participants: tuple[int, ...], drawn: Mapping[int, tuple[int, ...]]) -> None:
        """Take the participants and the graph on them as they are from now on."""
        self._participants = participants
        edges: dict[int, set[int]] = {party: set() for party in participants}
        for party, others in drawn.items():
            for other in others:
                if other in edges:
                    edges[party].add(other)
                    edges[other].add(party)
        self._neighbours = {party: tuple(sorted(others)) for party, others in edges.items()}
