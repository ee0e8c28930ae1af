"""A user of GOPA without a relay, to its result. Specification: protocols/gopa/direct.md."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

import numpy as np

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import LocalError, PeerFault
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa import direct_messages as d
from smpc_dp.protocols.gopa.direct_agreement import Agreement
from smpc_dp.protocols.gopa.direct_keys import total_digest
from smpc_dp.protocols.gopa.direct_rounds import Phase
from smpc_dp.protocols.gopa.messages import PUBLISH
from smpc_dp.protocols.gopa.messages import Published as Publication
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.result import Certificate
from smpc_dp.protocols.secagg import endings, keys
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import pack_set


class DirectMachine(Agreement):
    """One user in one run that another one coordinates; arguments as of `PartyMachine`.

    The coordinator proposes who is present, who advertised, who takes part and who published. Everyone checks
    each proposal against what it has itself; nobody publishes before a quorum has signed the one set of
    participants, or has a result before a quorum has signed the one total.
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
        # What came before this user told the coordinator what it has.
        self._held: Mapping[int, bytes] = {}
        self._published: tuple[int, ...] = ()
        self._phases = (
            self._proposal(d.START, self._on_start),
            self._proposal(d.ROLL, self._on_roll),
            self._proposal(d.PARTICIPANTS, self._on_participants),
            self._quorum(m.ATTEST_PARTICIPANTS, lambda: self._participants, self._publish),
            self._gathering(PUBLISH, lambda: self._participants, self._hold),
            Phase(d.PUBLISHED, self._missing_published, self._add_up, self._late_coordinator, patient=True),
            self._quorum(d.ATTEST_TOTAL, lambda: self._participants, self._finish),
        )

    # Publication

    def _publish(self) -> list[Envelope]:
        self._certificate = self._certified(m.ATTEST_PARTICIPANTS, self._participants_digest)
        lanes = self._lanes
        if lanes is None:
            raise LocalError(f"{self.name}: the vector was used before")
        self._lanes = None
        self._parameters.add_pair_terms(lanes, *self._pair_seeds())
        self._parameters.add_noise(lanes, self._random)
        x_hat = self._parameters.encoding.pack(lanes)
        return self._broadcast(PUBLISH, Publication(x_hat), self._participants)

    def _pair_seeds(self) -> tuple[list[bytes], list[int]]:
        """Return the seed that is shared with each neighbour, and this user's sign in its noise."""
        seeds, signs = [], []
        for peer in self._neighbours[self._me]:
            name, key = self._name_of(peer), self._keys[peer].mask_key
            seeds.append(
                keys.pair_mask_seed(self._context, self._run_id, self._mask_secret, self.name, name, key)
            )
            signs.append(1 if self._me < peer else -1)
        del self._mask_secret
        return seeds, signs

    def _certified(self, step: str, set_digest: bytes) -> Certificate:
        signers = self._signers(step, self._participants)
        return Certificate(
            set_digest, {self._name_of(party): signature for party, signature in signers.items()}
        )

    def _hold(self) -> list[Envelope]:
        """Tell the coordinator whose publications are here."""
        letters = self._letters(PUBLISH, self._participants)
        self._held = {party: letter.body_hash for party, letter in letters.items()}
        held = d.Held(
            pack_set(letters, self._parties),
            b"".join(letter.body_hash for letter in letters.values()),
            b"".join(letter.signature for letter in letters.values()),
            self._proofs_of(PUBLISH),
        )
        return [self._write(d.HELD, held, self.coordinator)]

    def _missing_published(self) -> Collection[int]:
        if (self._coordinator, d.PUBLISHED) not in self._mail:
            return (self._coordinator,)
        if not self._published:
            self._read_published()
        return (self._coordinator,) if any(self._x_hat(party) is None for party in self._published) else ()

    def _read_published(self) -> None:
        proposed = decode(self._body_of(d.PUBLISHED), d.Published, self.coordinator)
        members = self._set(proposed.published, self._participants, "total")
        if len(proposed.hashes) != 32 * len(members):
            raise self._refuse("list of the published does not have one hash for each user")
        convicted = self._proven(PUBLISH, proposed.proofs, self.coordinator)
        for party in sorted(convicted):
            self._note(f"{self._name_of(party)}: sent two different messages for step '{PUBLISH}'")
            if party in members:
                raise self._refuse(f"adds up {self._name_of(party)}, which published twice")
        hashes: dict[int, bytes] = {}
        for place, (party, signature) in enumerate(
            self._signatures(proposed.signatures, members, "list of the published").items()
        ):
            hashes[party] = proposed.hashes[32 * place : 32 * place + 32]
            self._check_signed(PUBLISH, party, hashes[party], signature)
            if self._held.get(party, hashes[party]) != hashes[party]:
                # The coordinator was told, or could not be: what is proven is who published twice.
                raise self._conviction(PUBLISH, self._proofs[party, PUBLISH])
        self._note_hidden(PUBLISH, [*members, *convicted])
        self._published, self._hashes = tuple(members), hashes

    def _x_hat(self, party: int) -> bytes | None:
        """Return the body that was agreed on as a user's publication, from itself or the coordinator."""
        letter, wanted = self._mail.get((party, PUBLISH)), self._hashes[party]
        if letter is not None and letter.body_hash == wanted:
            return letter.body
        body = self._forwarded.get(party)
        if body is None:
            return None
        if hashlib.sha256(body).digest() != wanted:
            raise self._refuse(f"forwards another publication of {self._name_of(party)} than it lists")
        return body

    def _read_x_hat(self, party: int, body: bytes) -> Lanes:
        name = self._name_of(party)
        try:
            return self._parameters.encoding.unpack(decode(body, Publication, name).x_hat)
        except ValueError as error:
            raise PeerFault(name, f"malformed Published: {error}") from None

    def _add_up(self) -> list[Envelope]:
        encoding = self._parameters.encoding
        self._total: Lanes = np.zeros(encoding.lanes, dtype=encoding.dtype)
        for party in self._published:
            body = self._x_hat(party)
            if body is None:
                raise LocalError(f"{self.name}: a publication is not there any more")
            try:
                self._total += self._read_x_hat(party, body)
            except PeerFault as fault:
                raise self._refuse(f"adds up {fault}") from None
        packed = pack_set(self._published, self._parties)
        self._total_digest = total_digest(
            self._context, self._run_id, self._participants_digest, packed, encoding.pack(self._total)
        )
        sent = self._broadcast(d.ATTEST_TOTAL, m.Attestation(self._total_digest), self._participants)
        return sent + self._suspect_all(d.ATTEST_TOTAL)

    def _finish(self) -> list[Envelope]:
        inside = frozenset(self._published)
        lost = [party for party in self._participants if party not in inside]
        for party in lost:
            self._note(f"{self._name_of(party)}: is not in the total; the noise that it shared stays in it")
        self._outcome = endings.outcome(
            self._context,
            self._parameters,
            self._run_id,
            self._total,
            self._roll_hash,
            participants=self._participants,
            survivors=self._published,
            participants_certificate=self._certificate,
            survivors_certificate=self._certified(d.ATTEST_TOTAL, self._total_digest),
            faults=tuple(self._faults),
            residual_pairs=sum(peer in inside for party in lost for peer in self._neighbours[party]),
        )
        self._end()
        return []
