"""What users of a run without a relay sign, keep and can prove.

A letter is signed once for everybody. So two differing ones for one step of one run convict their sender
before anyone, and a user that suspects the coordinator of two proposals shows its own to all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from smpc_dp.errors import LocalError, PeerFault, SmpcError, VerificationError
from smpc_dp.protocols.abort import ABORT, LEAVE
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa import direct_messages as d
from smpc_dp.protocols.gopa.direct_keys import run_identifier
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import PartySet

# What liars may make a machine remember.
MAX_FAULTS = 256


def coordinator_of(request: int, users: int) -> int:
    """Return the number (1 to `users`) of the user that coordinates a request: everybody in turn."""
    return (request - 1) % users + 1


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that its sender signed; `body_hash` is the SHA-256 of the body."""

    run_id: bytes
    body: bytes
    body_hash: bytes
    signature: bytes


class Correspondence:
    """One user's letters in one run, its own and those of others."""

    def __init__(self, context: Context, identity: Signer) -> None:
        self._context = context
        self._identity = identity
        self._parties = len(context.names)
        self._number = {name: place for place, name in enumerate(context.names, 1)}
        self._me = self._number[identity.name]
        self._coordinator = coordinator_of(context.request, self._parties)
        self._run_id = b""
        self._mail: dict[tuple[int, str], Letter] = {}
        self._spoken: dict[str, set[int]] = {step: set() for step in d.USER_STEPS}
        self._proofs: dict[tuple[int, str], d.Proof] = {}
        self._witnesses: dict[str, dict[int, d.Witness]] = {}
        self._shown: set[str] = set()
        self._sent: set[str] = set()
        self._gone: set[int] = set()
        self._faults: dict[str, None] = {}

    @property
    def name(self) -> str:
        """Whom the machine acts for."""
        return self._identity.name

    @property
    def coordinator(self) -> str:
        """Who proposes the sets of this run."""
        return self._name_of(self._coordinator)

    def _name_of(self, party: int) -> str:
        return self._context.names[party - 1]

    def _refuse(self, reason: str) -> PeerFault:
        return PeerFault(self.coordinator, reason)

    def _note(self, fault: SmpcError | str) -> None:
        if len(self._faults) < MAX_FAULTS:
            self._faults[str(fault)] = None

    def _run_of(self, step: str) -> bytes:
        """Return what messages of a step are signed under: some come before there is a run."""
        return self._context.session_digest if step in (m.HELLO, LEAVE, ABORT) else self._run_id

    def _letters(self, step: str, among: Iterable[int]) -> dict[int, Letter]:
        """Return what has come of a step of this run, in roster order."""
        due = self._run_of(step)
        found = ((party, self._mail.get((party, step))) for party in sorted(among))
        return {party: letter for party, letter in found if letter is not None and letter.run_id == due}

    def _write(self, step: str, message: msgspec.Struct, receiver: str) -> Envelope:
        [envelope] = self._context.write(self._identity, self._run_of(step), step, (receiver,), message)
        return envelope

    def _broadcast(self, step: str, message: msgspec.Struct, to: Iterable[int]) -> list[Envelope]:
        """Return the one message of a step, signed for everybody; a second one is refused."""
        if step in self._sent:
            raise LocalError(f"{self.name}: step '{step}' was sent before in this run")
        self._sent.add(step)
        own = self._write(step, message, d.EVERYONE)
        self._mail[self._me, step] = letter_of(own, hashlib.sha256(own.body).digest())
        self._spoken.setdefault(step, set()).add(self._me)
        return self._address(own, to)

    def _address(self, own: Envelope, to: Iterable[int]) -> list[Envelope]:
        return [replace(own, receiver=self._name_of(party)) for party in to if party != self._me]

    def _check_signed(self, step: str, party: int, body_hash: bytes, signature: bytes) -> None:
        """Check what the coordinator shows of another user's step, and take note of a second version.

        Raises PeerFault naming the coordinator if the user did not sign it.
        """
        run_id, known = self._run_of(step), self._mail.get((party, step))
        if known is not None and known.run_id == run_id and known.body_hash == body_hash:
            return
        if not self._has_signed(run_id, step, party, body_hash, signature):
            what = f"shows a message of step '{step}' that {self._name_of(party)} did not sign"
            raise self._refuse(what)
        # Two nonces prove nothing: a process that has started again says hello again.
        if known is not None and known.run_id == run_id and step != m.HELLO:
            self._convict(step, party, known, body_hash, signature)

    def _has_signed(self, run_id: bytes, step: str, party: int, body_hash: bytes, signature: bytes) -> bool:
        name = self._name_of(party)
        statement = self._context.statement(run_id, step, name, d.EVERYONE, body_hash)
        try:
            self._context.verify(self._context.keys[name], statement, signature)
        except VerificationError:
            return False
        return True

    def _convict(self, step: str, party: int, known: Letter, body_hash: bytes, signature: bytes) -> None:
        proof = d.Proof(party, known.body_hash, known.signature, body_hash, signature)
        self._proofs.setdefault((party, step), proof)
        self._note(f"{self._name_of(party)}: sent two different messages for step '{step}'")

    def _proofs_of(self, step: str) -> list[d.Proof]:
        return [proof for (_, proven), proof in sorted(self._proofs.items()) if proven == step]

    def _proven(self, step: str, proofs: Sequence[d.Proof], shower: str) -> set[int]:
        """Return who is convicted; raise PeerFault naming who shows a proof that is none."""
        parties = [proof.party for proof in proofs]
        if parties != sorted(set(parties)) or any(not 1 <= party <= self._parties for party in parties):
            raise PeerFault(shower, "shows proofs that are not of users in roster order")
        for proof in proofs:
            shown = ((proof.first, proof.first_signature), (proof.second, proof.second_signature))
            if proof.first == proof.second or not all(
                self._has_signed(self._run_id, step, proof.party, *signed) for signed in shown
            ):
                raise PeerFault(shower, f"accuses {self._name_of(proof.party)} without a proof")
        return set(parties)

    def _conviction(self, step: str, proof: d.Proof) -> PeerFault:
        """Return the fault that a proof shows, with the evidence."""
        evidence = {
            "first run id": self._run_id,
            "first": proof.first,
            "first signature": proof.first_signature,
            "second run id": self._run_id,
            "second": proof.second,
            "second signature": proof.second_signature,
        }
        what = f"sent two different messages for step '{step}'"
        return PeerFault(self._name_of(proof.party), what, evidence)

    # Suspicion

    def _suspect(self, step: str, letter: Letter) -> list[Envelope]:
        """Show everyone what the coordinator sent, if a letter looks like an answer to something else."""
        if step in (m.HELLO, *d.PROPOSALS) or not self._run_id:
            return []
        if letter.run_id != self._run_id:
            return self._show(d.START)
        own = self._mail.get((self._me, step))
        if own is None or own.body_hash == letter.body_hash:
            return []
        if step == m.ATTEST_PARTICIPANTS:
            return self._show(d.ROLL) + self._show(d.PARTICIPANTS)
        return self._show(d.PUBLISHED) if step == d.ATTEST_TOTAL else []

    def _suspect_all(self, step: str | None = None) -> list[Envelope]:
        """Look again at what came early: of one step, or of all."""
        letters = [(kind, letter) for (_, kind), letter in self._mail.items() if step in (None, kind)]
        return [envelope for kind, letter in letters for envelope in self._suspect(kind, letter)]

    def _show(self, step: str) -> list[Envelope]:
        letter = self._mail.get((self._coordinator, step))
        if letter is None or step in self._shown or self._me == self._coordinator:
            return []
        self._shown.add(step)
        body = letter.body if step == d.START else b""
        witness = d.Witness(step, letter.run_id, letter.body_hash, letter.signature, body)
        return self._address(self._write(d.WITNESS, witness, d.EVERYONE), range(1, self._parties + 1))

    def _take_witness(self, party: int, witness: d.Witness) -> None:
        name = self._name_of(party)
        if witness.step not in d.PROPOSALS or not self._has_signed(
            witness.run_id, witness.step, self._coordinator, witness.body_hash, witness.signature
        ):
            raise PeerFault(name, f"shows a proposal that {self.coordinator} did not sign")
        if witness.body and witness.step != d.START:
            raise PeerFault(name, "shows the body of a proposal that needs none")
        known = self._mail.get((self._coordinator, witness.step))
        if known is not None:
            self._weigh(witness, known)
        else:
            self._witnesses.setdefault(witness.step, {})[party] = witness

    def _weigh(self, witness: d.Witness, known: Letter) -> None:
        """Raise PeerFault if what another was sent and what came here convict the coordinator."""
        if (witness.run_id, witness.body_hash) == (known.run_id, known.body_hash):
            return
        # Of another run it may be old, unless it began with a nonce that this process has just made.
        if witness.run_id != known.run_id and not self._is_fresh(witness):
            return
        evidence = {
            "first run id": known.run_id,
            "first": known.body_hash,
            "first signature": known.signature,
            "second run id": witness.run_id,
            "second": witness.body_hash,
            "second signature": witness.signature,
        }
        what = f"sent two different messages for step '{witness.step}'"
        raise PeerFault(self.coordinator, what, evidence)

    def _is_fresh(self, witness: d.Witness) -> bool:
        if witness.step != d.START or hashlib.sha256(witness.body).digest() != witness.body_hash:
            return False
        try:
            start = decode(witness.body, d.Start, self.coordinator)
            present = PartySet.unpack(start.present, self._parties, self.coordinator)
        except PeerFault:
            return False
        run_id = run_identifier(self._context, self._context.question, start.present, start.nonces)
        place = 32 * present.place(self._me)
        own = start.nonces[place : place + 32]
        return self._me in present and own == self._own_nonce() and run_id == witness.run_id

    def _own_nonce(self) -> bytes:
        raise NotImplementedError


def letter_of(envelope: Envelope, body_hash: bytes) -> Letter:
    """Return what is kept of an envelope; `body_hash` is the SHA-256 of its body."""
    return Letter(envelope.run_id, envelope.body, body_hash, envelope.signature)
