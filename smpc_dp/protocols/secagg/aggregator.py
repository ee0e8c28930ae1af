"""The aggregator's side of secure aggregation. Specification: protocols/secagg/README.md.

It relays what it cannot read, adds masked vectors as they arrive, and learns the sum. A party that is lost,
late or at fault is excluded while the plan allows it; beyond that the run stops with an error that names who.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from smpc_dp.crypto import agree
from smpc_dp.crypto.labels import Label
from smpc_dp.encoding import Lanes
from smpc_dp.errors import Code, PeerFault, TimeoutFault, VerificationError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.phases.key_graph import Edges
from smpc_dp.protocols.result import Certificate, Outcome
from smpc_dp.protocols.secagg import endings, keys
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.certify import check_certificate, shortest_certificate
from smpc_dp.protocols.secagg.graph import PartySet, pack_list, pack_set, unpack_list
from smpc_dp.protocols.secagg.params import SumParameters
from smpc_dp.protocols.secagg.recovery import Recovery
from smpc_dp.protocols.secagg.rolls import Roll
from smpc_dp.protocols.secagg.survivors import FixedSurvivors
from smpc_dp.protocols.star import HubRole

Watch = Callable[[str, Lanes], None]


class AggregatorMachine(HubRole[Outcome]):
    """The aggregator in one run.

    Args:
        context: the session, the request and everyone's public keys.
        parameters: checked parameters of the session.
        identity: the aggregator's; signs what it relays, so that two differing answers are evidence.
        threads: threads for the removal of masks.
        watch: called with each party's name and masked lanes as they arrive, to show what an aggregator sees.
        fixed: as of `PartyMachine`: who is not among these survivors is left out, and without one of them
            the run stops at once.
    """

    _hello: type[m.Hello] = m.Hello

    def __init__(
        self,
        context: Context,
        parameters: SumParameters,
        identity: Signer,
        *,
        threads: int = 1,
        watch: Watch | None = None,
        fixed: FixedSurvivors | None = None,
    ) -> None:
        super().__init__(context, identity)
        self._parameters = parameters
        self._plan = parameters.plan
        self._threads = threads
        self._watch = watch
        self._fixed = fixed if parameters.keeps_survivors else None
        self._bad_dealers: dict[int, tuple[int, ...]] = {}
        self._sum: Lanes = np.zeros(parameters.encoding.lanes, dtype=parameters.encoding.dtype)
        self._steps = {
            m.HELLO: (self._accept_hello, self._finish_hello),
            m.ADVERTISE: (self._accept_advertise, self._finish_advertise),
            m.REVEAL: (self._accept_reveal, self._finish_reveal),
            m.DEAL: (self._accept_deal, self._finish_deal),
            m.ATTEST_PARTICIPANTS: (self._accept_attestation, self._finish_attest_participants),
            m.MASKED: (self._accept_masked, self._finish_masked),
            m.ATTEST_SURVIVORS: (self._accept_attestation, self._finish_attest_survivors),
            m.UNMASK: (self._accept_unmask, self._finish_unmask),
        }

    def _needed(self) -> int:
        return self._plan.threshold if self.step == m.UNMASK else self._plan.min_survivors

    def _advance(self) -> list[Envelope]:
        if self._fixed is not None:
            # A vector that was added counts, whoever is lost since.
            gone = self._fixed.inside(self._excluded.keys() - self._bad_dealers.keys())
            if gone and not self._over:
                self._over = True
                names = [self._name_of(party) for party in gone]
                what = "earlier sums of the session are over their vectors too (same_survivors)"
                raise TimeoutFault(names, self.step, what, code=Code.EARLIER)
        return super()._advance()

    def _kept(self, envelope: Envelope) -> Envelope:
        # A masked vector is in the sum already: keeping it would cost a vector for each party.
        return replace(envelope, body=b"") if envelope.step == m.MASKED else envelope

    # hello

    def _accept_hello(self, _party: int, envelope: Envelope) -> None:
        hello = decode(envelope.body, self._hello, envelope.sender)
        if hello.session_digest != self._context.session_digest:
            raise PeerFault(envelope.sender, "has a differing session file")
        if hello.request != self._context.request:
            raise PeerFault(
                envelope.sender, f"asks for request {hello.request}, this is {self._context.request}"
            )
        theirs = (hello.degree, hello.threshold, hello.quorum)
        ours = (self._plan.degree, self._plan.threshold, self._plan.quorum)
        if theirs != ours:
            raise PeerFault(
                envelope.sender, f"plans (degree, threshold, quorum) = {theirs}, the aggregator {ours}"
            )

    def _finish_hello(self) -> list[Envelope]:
        hellos = {party: decode(self._received[party].body, self._hello, "") for party in sorted(self._alive)}
        asked = Counter(hello.question for hello in hellos.values())
        question = self._question = min(asked, key=lambda text: (-asked[text], text))
        for party, hello in hellos.items():
            if hello.question != question:
                asks = f"asks {hello.question!r}, the others ask {question!r}"
                self._drop(party, PeerFault(self._name_of(party), asks, code=Code.QUESTION))
        for party in [] if self._fixed is None else self._fixed.outside(self._alive):
            what = "earlier sums of the session are without its vector (same_survivors)"
            self._drop(party, TimeoutFault({self._name_of(party)}, m.HELLO, what, code=Code.EARLIER))
        if len(self._alive) < self._needed():
            raise self._too_few(self._needed())
        present = pack_set(self._alive, self._parties)
        nonces = Roll(self._context, Label.NONCES, {party: hellos[party].nonce for party in self._alive})
        self._run_id = keys.run_identifier(self._context, question, present, nonces.root)
        return self._to_each(m.START, lambda party: m.Start(present, nonces.root, nonces.prove((party,))))

    # advertise

    def _accept_advertise(self, _party: int, envelope: Envelope) -> None:
        advertise = decode(envelope.body, m.Advertise, envelope.sender)
        try:
            agree.check_public_key(advertise.seal_key)
            agree.check_public_key(advertise.mask_key)
        except VerificationError as error:
            raise PeerFault(envelope.sender, str(error)) from None

    def _finish_advertise(self) -> list[Envelope]:
        self._advertisements = self._received
        self._keys = {
            party: decode(envelope.body, m.Advertise, envelope.sender)
            for party, envelope in self._received.items()
        }
        advertised = pack_set(self._alive, self._parties)
        given = {party: self._keys[party].commitment for party in self._alive}
        self._roll = roll = Roll(self._context, Label.COMMITMENTS, given)
        self._roll_digest = keys.roll_digest(self._context, self._run_id, advertised, roll.root)
        return self._to_each(m.ROLL, lambda party: m.Roll(advertised, roll.root, roll.prove((party,))))

    # reveal

    def _accept_reveal(self, party: int, envelope: Envelope) -> None:
        reveal = decode(envelope.body, m.Reveal, envelope.sender)
        commitment = keys.neighbour_commitment(
            self._context, self._run_id, envelope.sender, reveal.neighbours, reveal.blinder
        )
        if commitment != self._keys[party].commitment:
            raise PeerFault(envelope.sender, "revealed neighbours that it had not committed to")
        drawn = unpack_list(reveal.neighbours, self._parties, envelope.sender)
        if len(drawn) != self._plan.degree or party in drawn:
            raise PeerFault(envelope.sender, f"must draw {self._plan.degree} neighbours other than itself")

    def _finish_reveal(self) -> list[Envelope]:
        revealed = sorted(self._alive)
        self._drawn: dict[int, tuple[int, ...]] = {}
        drew: dict[int, list[int]] = {party: [] for party in revealed}
        for party in revealed:
            reveal = decode(self._received[party].body, m.Reveal, "")
            drawn = unpack_list(reveal.neighbours, self._parties, "")
            self._drawn[party] = tuple(other for other in drawn if other in self._alive)
            for other in self._drawn[party]:
                drew[other].append(party)
        self._neighbours = {party: tuple(sorted({*self._drawn[party], *drew[party]})) for party in revealed}
        packed = pack_set(revealed, self._parties)

        def message(party: int) -> m.Neighbours:
            advertisements = [
                m.Advertisement(
                    other, self._advertisements[other].body, self._advertisements[other].signature
                )
                for other in self._neighbours[party]
            ]
            openings = [
                m.Opening(other, self._received[other].body, self._received[other].signature)
                for other in drew[party]
            ]
            proof = self._roll.prove(self._neighbours[party])
            return m.Neighbours(packed, advertisements, openings, proof)

        return self._to_each(m.NEIGHBOURS, message)

    # deal

    def _accept_deal(self, party: int, envelope: Envelope) -> None:
        deal = decode(envelope.body, m.Deal, envelope.sender)
        if len(deal.sealed) != len(self._drawn[party]):
            raise PeerFault(
                envelope.sender, f"dealt {len(deal.sealed)} shares, {len(self._drawn[party])} are due"
            )
        if any(len(sealed) != m.SEALED_SHARE_BYTES for sealed in deal.sealed):
            raise PeerFault(envelope.sender, f"a sealed share must have {m.SEALED_SHARE_BYTES} bytes")

    def _finish_deal(self) -> list[Envelope]:
        self._participants = tuple(sorted(self._alive))
        self._self_commitments: dict[int, bytes] = {}
        inbox: dict[int, list[tuple[int, bytes]]] = {party: [] for party in self._participants}
        for dealer in self._participants:
            deal = decode(self._received[dealer].body, m.Deal, "")
            self._self_commitments[dealer] = deal.self_commitment
            for holder, sealed in zip(self._drawn[dealer], deal.sealed, strict=True):
                if holder in inbox:
                    inbox[holder].append((dealer, sealed))
        self._dealers_of = {holder: tuple(d for d, _ in items) for holder, items in inbox.items()}
        packed = pack_set(self._participants, self._parties)
        self._set_digest = keys.participants_digest(self._context, self._run_id, self._roll_digest, packed)

        def message(holder: int) -> m.Deliver:
            items = inbox[holder]
            return m.Deliver(packed, pack_list(d for d, _ in items), [sealed for _, sealed in items])

        return self._to_each(m.DELIVER, message)

    # certificates

    def _accept_attestation(self, _party: int, envelope: Envelope) -> None:
        attestation = decode(envelope.body, m.Attestation, envelope.sender)
        if attestation.set_digest != self._set_digest:
            raise PeerFault(envelope.sender, "attests another set than the one that was sent")

    def _certificate(self, step: str, members: Sequence[int]) -> tuple[m.Certificate, Certificate]:
        signatures = {party: envelope.signature for party, envelope in self._received.items()}
        if len(signatures) < self._plan.quorum:
            raise self._too_few(self._plan.quorum)
        certificate = shortest_certificate(
            self._context, self._run_id, step, self._set_digest, signatures, self._plan.quorum
        )
        checked = check_certificate(
            self._context,
            self._plan.quorum,
            self._run_id,
            step,
            self._set_digest,
            frozenset(members),
            certificate,
        )
        return certificate, checked

    def _finish_attest_participants(self) -> list[Envelope]:
        certificate, self._participants_certificate = self._certificate(
            m.ATTEST_PARTICIPANTS, self._participants
        )
        return self._broadcast(m.PARTICIPANTS, certificate)

    # masked vectors

    def _accept_masked(self, party: int, envelope: Envelope) -> None:
        masked = decode(envelope.body, m.Masked, envelope.sender)
        bad_dealers = unpack_list(masked.bad_dealers, self._parties, envelope.sender)
        if not set(bad_dealers) <= set(self._dealers_of[party]):
            raise PeerFault(envelope.sender, "complains about parties that dealt nothing to it")
        try:
            lanes = self._parameters.encoding.unpack(masked.vector)
        except ValueError as error:
            raise PeerFault(envelope.sender, f"malformed Masked: {error}") from None
        if self._watch is not None:
            self._watch(envelope.sender, lanes)
        self._sum += lanes
        self._bad_dealers[party] = bad_dealers

    def _finish_masked(self) -> list[Envelope]:
        # Who is lost after its vector was added is a survivor all the same: the sum holds its input.
        self._survivors = tuple(sorted(self._bad_dealers))
        packed = pack_set(self._survivors, self._parties)
        if self._fixed is not None:
            self._fixed.fix(self._context, PartySet.unpack(packed, self._parties, self.name))
        self._set_digest = keys.survivors_digest(self._context, self._run_id, self._set_digest, packed)
        return self._broadcast(m.SURVIVORS, m.Survivors(packed))

    def _finish_attest_survivors(self) -> list[Envelope]:
        certificate, self._survivors_certificate = self._certificate(m.ATTEST_SURVIVORS, self._survivors)
        self._recovery = Recovery(
            self._context,
            self._plan,
            self._run_id,
            participants=self._participants,
            survivors=self._survivors,
            self_commitments=self._self_commitments,
            edges=Edges(self._keys, self._drawn, self._neighbours, b""),
            add_pair_terms=self._parameters.add_pair_terms,
        )
        return self._broadcast(m.SURVIVORS_CERTIFICATE, certificate)

    # unmasking

    def _accept_unmask(self, party: int, envelope: Envelope) -> None:
        unmask = decode(envelope.body, m.Unmask, envelope.sender)
        dealers = unpack_list(unmask.dealers, self._parties, envelope.sender)
        complaints = self._bad_dealers[party]
        due = tuple(dealer for dealer in self._dealers_of[party] if dealer not in complaints)
        if dealers != due:
            raise PeerFault(envelope.sender, "does not reveal one share of each party that dealt to it")
        self._recovery.add(party, unmask, complaints)

    def _finish_unmask(self) -> list[Envelope]:
        self._recovery.remove_masks(self._sum, self._threads)
        self._faults += self._recovery.faults
        sent = self._broadcast(m.RESULT, m.Result(self._parameters.encoding.pack(self._sum)))
        self._outcome = endings.outcome(
            self._context,
            self._parameters,
            self._run_id,
            self._sum,
            self._roll_digest,
            participants=self._participants,
            survivors=self._survivors,
            participants_certificate=self._participants_certificate,
            survivors_certificate=self._survivors_certificate,
            faults=tuple(self._faults),
        )
        return sent
