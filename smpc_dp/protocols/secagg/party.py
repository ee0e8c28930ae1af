"""The party's side of secure aggregation. Specification: protocols/secagg/README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from smpc_dp.crypto import agree, shamir
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.prg import add_masks
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.crypto.seal import seal, unseal
from smpc_dp.encoding import Lanes
from smpc_dp.errors import LocalError, PeerFault, TimeoutFault, VerificationError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode, encode
from smpc_dp.protocols.result import Outcome
from smpc_dp.protocols.secagg import endings, keys
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.certify import check_certificate
from smpc_dp.protocols.secagg.graph import PartySet, draw_neighbours, pack_list, unpack_list
from smpc_dp.protocols.secagg.params import SumParameters
from smpc_dp.protocols.secagg.rolls import check_roll
from smpc_dp.protocols.secagg.survivors import FixedSurvivors
from smpc_dp.protocols.star import PartyRole


class PartyMachine(PartyRole[Outcome]):
    """One party in one run.

    Args:
        context: the session, the request and everyone's public keys.
        parameters: checked parameters of the session.
        identity: signs; its name is the party's.
        lanes: the encoded vector (`parameters.encoding.encode`), shape (encoding.lanes,); it is masked in
            place.
        randomness: the operating system's; a seeded one only in simulations and tests.
        fixed: what the session's sums have in common, where its parameters say so; None: it has one request.
    """

    _last_step = m.UNMASK
    # The hub's step whose answer is the first message that shows anything of the vector.
    release_step = m.PARTICIPANTS

    def __init__(
        self,
        context: Context,
        parameters: SumParameters,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
        fixed: FixedSurvivors | None = None,
    ) -> None:
        parameters.check_lanes(identity.name, lanes)
        super().__init__(context, identity)
        self._parameters = parameters
        self._plan = parameters.plan
        self._lanes: Lanes | None = lanes
        self._random = randomness or SystemRandomness()
        self._fixed = fixed if parameters.keeps_survivors else None
        self._handlers = {
            m.START: self._on_start,
            m.ROLL: self._on_roll,
            m.NEIGHBOURS: self._on_neighbours,
            m.DELIVER: self._on_deliver,
            m.PARTICIPANTS: self._on_participants,
            m.SURVIVORS: self._on_survivors,
            m.SURVIVORS_CERTIFICATE: self._on_survivors_certificate,
            m.RESULT: self._on_result,
        }

    def start(self) -> Sequence[Envelope]:
        """Say hello with a fresh nonce."""
        self._nonce = self._random.bytes(32)
        return self._emit(m.HELLO, self._hello())

    def _hello(self) -> m.Hello:
        plan = self._plan
        return m.Hello(
            self._context.session_digest,
            self._context.request,
            self._nonce,
            plan.degree,
            plan.threshold,
            plan.quorum,
            self._context.question,
        )

    def _end(self) -> None:
        super()._end()
        self._lanes = None
        for secret in ("_seal_secret", "_mask_secret", "_self_seed", "_held"):
            self.__dict__.pop(secret, None)

    def _set(self, packed: bytes, within: PartySet | None, what: str, least: int | None = None) -> PartySet:
        """Unpack a set that must lie in `within`, hold this party and be large enough."""
        least = self._plan.min_survivors if least is None else least
        members = self._context.remember(
            ("set", packed), lambda: PartySet.unpack(packed, self._parties, self._context.aggregator)
        )
        if within is not None and not members <= within:
            raise self._refuse(f"{what} has parties that were out before")
        if self._index not in members:
            raise self._refuse(f"left {self.name} out of the {what}")
        if len(members) < least:
            raise self._refuse(f"{what} has {len(members)} parties, at least {least} due")
        return members

    def _on_start(self, body: bytes) -> Sequence[Envelope]:
        start = decode(body, m.Start, self._context.aggregator)
        self._present = self._set(start.present, None, "present parties")
        given = {self._index: self._nonce}
        self._check_roll(Label.NONCES, start.root, self._present, given, start.proof, "start", "nonce")
        self._run_id = keys.run_identifier(self._context, self._context.question, start.present, start.root)
        self._drawn = draw_neighbours(self._index, self._parties, self._plan.degree, self._random)
        self._blinder = self._random.bytes(32)
        self._seal_secret = self._random.bytes(32)
        self._mask_secret = self._random.bytes(32)
        commitment = keys.neighbour_commitment(
            self._context, self._run_id, self.name, pack_list(self._drawn), self._blinder
        )
        advertise = m.Advertise(
            agree.public_key(self._seal_secret), agree.public_key(self._mask_secret), commitment
        )
        self._commitment = commitment
        return self._emit(m.ADVERTISE, advertise)

    def _on_roll(self, body: bytes) -> Sequence[Envelope]:
        roll = decode(body, m.Roll, self._context.aggregator)
        self._advertised = self._set(roll.advertised, self._present, "roll")
        self._roll_root = roll.root
        self._check_commitments({self._index: self._commitment}, roll.proof)
        self._roll_digest = keys.roll_digest(self._context, self._run_id, roll.advertised, roll.root)
        return self._emit(m.REVEAL, m.Reveal(pack_list(self._drawn), self._blinder))

    def _check_commitments(self, commitments: Mapping[int, bytes], proof: bytes) -> None:
        root, members = self._roll_root, self._advertised
        self._check_roll(Label.COMMITMENTS, root, members, commitments, proof, "roll", "commitment")

    def _check_roll(
        self,
        purpose: Label,
        root: bytes,
        members: PartySet,
        given: Mapping[int, bytes],
        proof: bytes,
        where: str,
        what: str,
    ) -> None:
        try:
            check_roll(self._context, purpose, root, members, given, proof)
        except VerificationError as error:
            names = ", ".join(self._context.names[party - 1] for party in sorted(given)[:5])
            raise self._refuse(f"{where} does not have the {what} of {names}: {error}") from None

    def _on_neighbours(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, m.Neighbours, self._context.aggregator)
        self._revealed = self._set(message.revealed, self._advertised, "revealed parties")
        self._drew_me = self._openers(message.openings)
        self._holders = tuple(party for party in self._drawn if party in self._revealed)
        keys_of = self._checked_advertisements(message)
        for opening in message.openings:
            self._check_opening(opening, keys_of[opening.party].commitment)
        self._mask_keys = {party: advertise.mask_key for party, advertise in keys_of.items()}
        self._seal_keys = {party: advertise.seal_key for party, advertise in keys_of.items()}
        self._parameters.check_place(self.name, len(self._holders), len(self._drew_me))
        return self._deal()

    def _openers(self, openings: list[m.Opening]) -> tuple[int, ...]:
        drew_me = tuple(opening.party for opening in openings)
        if drew_me != tuple(sorted(set(drew_me))) or any(party not in self._revealed for party in drew_me):
            raise self._refuse("openings are not of revealed parties in roster order")
        return drew_me

    def _check_forwarded(self, step: str, forwarded: m.Advertisement | m.Opening) -> str:
        """Return whose message it is; one that its signer did not sign is the aggregator's fault."""
        name = self._context.names[forwarded.party - 1]
        try:
            self._context.check_detached(
                self._run_id, step, name, self._context.aggregator, forwarded.body, forwarded.signature
            )
        except PeerFault:
            raise self._refuse(f"forwarded a message of step '{step}' that {name} did not sign") from None
        return name

    def _check_opening(self, opening: m.Opening, commitment: bytes) -> None:
        name = self._check_forwarded(m.REVEAL, opening)
        question = ("opened", self._run_id, opening.party, opening.body, commitment)
        drawn = self._context.remember(question, lambda: self._opened(name, opening, commitment))
        if self._index not in drawn:
            raise self._refuse(f"forwarded the opening of {name}, which did not draw {self.name}")

    def _opened(self, name: str, opening: m.Opening, commitment: bytes) -> tuple[int, ...]:
        """Return whom a party drew; raise PeerFault unless it had committed to that and may draw it."""
        reveal = decode(opening.body, m.Reveal, name)
        shown = keys.neighbour_commitment(
            self._context, self._run_id, name, reveal.neighbours, reveal.blinder
        )
        if shown != commitment:
            raise PeerFault(name, "revealed neighbours that it had not committed to")
        drawn = unpack_list(reveal.neighbours, self._parties, name)
        if len(drawn) != self._plan.degree or opening.party in drawn:
            raise PeerFault(name, f"must draw {self._plan.degree} neighbours other than itself")
        return drawn

    def _checked_advertisements(self, message: m.Neighbours) -> dict[int, m.Advertise]:
        due = tuple(sorted({*self._holders, *self._drew_me}))
        if tuple(item.party for item in message.advertisements) != due:
            raise self._refuse(f"advertisements are not those of the {len(due)} neighbours of {self.name}")
        keys_of: dict[int, m.Advertise] = {}
        for item in message.advertisements:
            name = self._check_forwarded(m.ADVERTISE, item)
            keys_of[item.party] = self._context.remember(
                ("advertised", item.body), partial(decode, item.body, m.Advertise, name)
            )
        if due:
            commitments = {party: advertise.commitment for party, advertise in keys_of.items()}
            self._check_commitments(commitments, message.proof)
        elif message.proof:
            raise self._refuse("proved commitments of nobody")
        return keys_of

    def _deal(self) -> Sequence[Envelope]:
        if len(self._holders) < self._plan.threshold:
            missing = [self._context.names[p - 1] for p in self._drawn if p not in self._revealed]
            raise TimeoutFault(missing, m.REVEAL, f"{self.name} has fewer holders than the threshold")
        self._self_seed = self._random.bytes(32)
        mask_shares = shamir.split(self._mask_secret, self._plan.threshold, self._holders, self._random)
        self_shares = shamir.split(self._self_seed, self._plan.threshold, self._holders, self._random)
        sealed = []
        for holder, mask_share, self_share in zip(self._holders, mask_shares, self_shares, strict=True):
            name = self._context.names[holder - 1]
            digests = [
                keys.share_digest(self._context, self._run_id, self.name, name, kind, share)
                for kind, share in ((keys.MASKING_KEY, mask_share), (keys.SELF_MASK, self_share))
            ]
            signature = keys.sign_share(self._context, self._run_id, self._identity, name, *digests)
            key = self._seal_key(holder, sender=self.name, receiver=name)
            context = keys.seal_context(self._context, self._run_id, self.name, name)
            share = encode(m.Share(mask_share, self_share, signature))
            sealed.append(seal(key, share, context, self._random))
        commitment = keys.self_commitment(self._context, self._run_id, self.name, self._self_seed)
        return self._emit(m.DEAL, m.Deal(commitment, sealed))

    def _seal_key(self, peer: int, *, sender: str, receiver: str) -> bytes:
        return keys.seal_key(
            self._context,
            self._run_id,
            self._seal_secret,
            self._context.names[peer - 1],
            self._seal_keys[peer],
            sender,
            receiver,
        )

    def _on_deliver(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, m.Deliver, self._context.aggregator)
        self._participants = self._set(message.participants, self._revealed, "participants")
        due = tuple(party for party in self._drew_me if party in self._participants)
        dealers = unpack_list(message.dealers, self._parties, self._context.aggregator)
        if dealers != due or len(message.sealed) != len(due):
            withheld = [self._context.names[party - 1] for party in due if party not in dealers]
            raise self._refuse(
                f"withheld the shares of {', '.join(withheld[:5])}"
                if withheld
                else "delivered shares of parties that did not draw this one"
            )
        alive = [party for party in self._holders if party in self._participants]
        if len(alive) < self._plan.threshold:
            missing = [self._context.names[p - 1] for p in self._holders if p not in self._participants]
            raise TimeoutFault(missing, m.DEAL, f"{self.name} has fewer holders than the threshold")
        self._held: dict[int, m.Share] = {}
        self._bad_dealers = []
        for dealer, sealed in zip(dealers, message.sealed, strict=True):
            try:
                self._held[dealer] = self._open_share(dealer, sealed)
            except (VerificationError, PeerFault):
                self._bad_dealers.append(dealer)
        del self._seal_keys, self._seal_secret
        self._participants_digest = keys.participants_digest(
            self._context, self._run_id, self._roll_digest, message.participants
        )
        return self._emit(m.ATTEST_PARTICIPANTS, m.Attestation(self._participants_digest))

    def _open_share(self, dealer: int, sealed: bytes) -> m.Share:
        name = self._context.names[dealer - 1]
        key = self._seal_key(dealer, sender=name, receiver=self.name)
        context = keys.seal_context(self._context, self._run_id, name, self.name)
        share = decode(unseal(key, sealed, context), m.Share, name)
        mask, own = self._mask_digest(name, share), self._self_digest(name, share)
        keys.check_share(self._context, self._run_id, name, self.name, mask, own, share.signature)
        return share

    def _mask_digest(self, dealer: str, share: m.Share) -> bytes:
        return keys.share_digest(
            self._context, self._run_id, dealer, self.name, keys.MASKING_KEY, share.mask_share
        )

    def _self_digest(self, dealer: str, share: m.Share) -> bytes:
        return keys.share_digest(
            self._context, self._run_id, dealer, self.name, keys.SELF_MASK, share.self_share
        )

    def _on_participants(self, body: bytes) -> Sequence[Envelope]:
        self._participants_certificate = check_certificate(
            self._context,
            self._plan.quorum,
            self._run_id,
            m.ATTEST_PARTICIPANTS,
            self._participants_digest,
            self._participants,
            decode(body, m.Certificate, self._context.aggregator),
        )
        lanes = self._lanes
        if lanes is None:
            raise LocalError(f"{self.name}: the vector was used before")
        self._lanes = None
        self._blind(lanes)
        return self._send_vector(self._parameters.encoding.pack(lanes))

    def _send_vector(self, vector: bytes) -> Sequence[Envelope]:
        return self._emit(m.MASKED, m.Masked(vector, pack_list(self._bad_dealers)))

    def _blind(self, lanes: Lanes) -> None:
        """Add what hides the vector, in place, and forget its secrets."""
        self._parameters.add_pair_terms(lanes, *self._pair_seeds())
        add_masks(lanes, [keys.self_mask_seed(self._context, self._run_id, self.name, self._self_seed)], [1])
        del self._self_seed
        self._parameters.add_noise(lanes, self._random)

    def _pair_seeds(self) -> tuple[list[bytes], list[int]]:
        """Return the seed that is shared with each neighbour that takes part, and this party's sign in it."""
        seeds, signs = [], []
        for peer, mask_key in self._mask_keys.items():
            if peer in self._participants:
                name = self._context.names[peer - 1]
                seeds.append(
                    keys.pair_mask_seed(
                        self._context, self._run_id, self._mask_secret, self.name, name, mask_key
                    )
                )
                signs.append(1 if self._index < peer else -1)
        del self._mask_secret
        return seeds, signs

    def _on_survivors(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, m.Survivors, self._context.aggregator)
        self._survivors = self._set(message.survivors, self._participants, "survivors")
        if self._fixed is not None:
            # Before it signs: so no quorum does, and nobody opens a share.
            self._fixed.fix(self._context, self._survivors)
        self._survivors_digest = keys.survivors_digest(
            self._context, self._run_id, self._participants_digest, message.survivors
        )
        return self._emit(m.ATTEST_SURVIVORS, m.Attestation(self._survivors_digest))

    def _on_survivors_certificate(self, body: bytes) -> Sequence[Envelope]:
        self._survivors_certificate = check_certificate(
            self._context,
            self._plan.quorum,
            self._run_id,
            m.ATTEST_SURVIVORS,
            self._survivors_digest,
            self._survivors,
            decode(body, m.Certificate, self._context.aggregator),
        )
        dealers, shares, others, signatures = [], bytearray(), bytearray(), bytearray()
        for dealer, share in sorted(self._held.items()):
            name = self._context.names[dealer - 1]
            survived = dealer in self._survivors
            dealers.append(dealer)
            shares += share.self_share if survived else share.mask_share
            others += self._mask_digest(name, share) if survived else self._self_digest(name, share)
            signatures += share.signature
        self._held.clear()
        unmask = m.Unmask(pack_list(dealers), bytes(shares), bytes(others), bytes(signatures))
        return self._emit(m.UNMASK, unmask)

    def _on_result(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, m.Result, self._context.aggregator)
        try:
            total = self._parameters.encoding.unpack(message.total)
        except ValueError as error:
            raise self._refuse(f"malformed Result: {error}") from None
        self._outcome = endings.outcome(
            self._context,
            self._parameters,
            self._run_id,
            total,
            self._roll_digest,
            participants=self._participants,
            survivors=self._survivors,
            participants_certificate=self._participants_certificate,
            survivors_certificate=self._survivors_certificate,
        )
        self._end()
        return ()
