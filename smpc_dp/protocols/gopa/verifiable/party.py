"""A user's side of verifiable GOPA. Specification: docs/verifiable.md and protocols/gopa/README.md."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from smpc_dp.board.followed import Followed
from smpc_dp.board.log import entry_digest
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import Lanes
from smpc_dp.errors import LocalError, PeerFault
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode, encode
from smpc_dp.protocols.gopa.party import GopaPartyMachine
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.follow import Follower
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.statements import Rules, agreements, cancel, failures, signed
from smpc_dp.protocols.result import Certificate
from smpc_dp.protocols.secagg import endings
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.certify import check_certificate
from smpc_dp.protocols.secagg.graph import PartySet, pack_list, unpack_list

SIGNATURE = m.SIGNATURE_BYTES


class VerifiablePartyMachine(GopaPartyMachine):
    """One user in one run; arguments as of `PartyMachine`. `followed` is the log, as far as it has come.

    It commits to everything before any coin opens, and shows that what it publishes is what it has committed
    to. Each head of the board that it signs holds its own entries.
    """

    release_step = v.COINS_CERTIFICATE

    def __init__(
        self,
        context: Context,
        parameters: VerifiableParameters,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
    ) -> None:
        super().__init__(context, parameters, identity, lanes, randomness)
        self._verifiable = parameters
        self._last_step = v.ATTEST_TALLY
        # The board as far as this party has followed it, and its own entries by kind.
        self.followed: Followed | None = None
        self._entered: dict[str, tuple[bytes, bytes]] = {}
        self._excluded = 0
        self._handlers = {
            m.START: self._on_start,
            m.ROLL: self._on_roll,
            m.NEIGHBOURS: self._on_neighbours,
            v.COMMITTED: self._on_committed,
            v.COMMITMENTS_CERTIFICATE: self._on_commitments_certificate,
            v.COINS: self._on_coins,
            v.COINS_CERTIFICATE: self._on_coins_certificate,
            v.PUBLICATIONS: self._on_publications,
            v.TALLIED: self._on_tallied,
            v.CLOSED: self._on_closed,
        }

    def _end(self) -> None:
        super()._end()
        for secret in ("_value_blinding", "_noise_secret", "_coin", "_deltas"):
            self.__dict__.pop(secret, None)

    # commitments

    def _deal(self) -> Sequence[Envelope]:
        """Commit to x, to Delta with each neighbour, to the secret bits and to a coin."""
        lanes = self._lanes
        if lanes is None:
            raise LocalError(f"{self.name}: the vector was used before")
        del self._seal_keys, self._seal_secret
        self._participants = self._revealed
        self._rules = Rules(self._context, self._verifiable, self._run_id)
        self._value_blinding = commit.fresh_blinding(self._random)
        self._noise_secret = self._draw_secret()
        self._coin = self._random.bytes(32)
        # The pairs' seeds are in the order of _mask_keys, of which all have revealed.
        peers = list(self._mask_keys)
        self._deltas = {
            peer: self._pair_term(seed, sign)
            for peer, seed, sign in zip(peers, *self._pair_seeds(), strict=True)
        }
        self._own_edges = {p: commit.commit(signed(d), r) for p, (d, r) in sorted(self._deltas.items())}
        message = v.Commit(
            value=commit.commit(self._rules.values_of(lanes), self._value_blinding),
            range_proof=self._rules.prove_values(self.name, lanes, self._value_blinding, self._random),
            noise_secret=self._noise_secret.commitment,
            coin=self._rules.coin_commitment(self.name, self._coin),
            neighbours=pack_list(self._own_edges),
            edges=b"".join(self._own_edges.values()),
        )
        return self._enter(v.COMMIT, message)

    def _draw_secret(self) -> proofs.NoiseSecret:
        length = self._parameters.encoding.length
        return proofs.NoiseSecret.draw(length, self._verifiable.bits, self._random)

    def _pair_term(self, seed: bytes, sign: int) -> tuple[Lanes, bytes]:
        """Return Delta as this party adds it, and the blinding of its commitment: both negate at the peer."""
        source = NoiseSource.keyed(seed, b"gopa", b"pair")
        session, length = self._verifiable.session, self._parameters.encoding.length
        delta = discrete_gaussian(source, length, session.pair_variance)
        wide = b"".join(digest(Label.EDGE_BLINDING, seed, bytes([half])) for half in (0, 1))
        blinding = commit.blinding_from_wide(wide)
        if sign < 0:
            return (-delta).view(np.uint64), commit.add_blindings([], [blinding])
        return delta.view(np.uint64), blinding

    def _on_committed(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, v.Committed, self._context.aggregator)
        authors = self._list(message.committed)
        least = self._verifiable.least_left(len(message.false))
        self._participants = self._set(message.participants, self._revealed, "participants", least)
        self._packed = message.participants
        self._board = self.followed = Follower(self._context, message.head)
        self._follow(authors, v.COMMIT, message.digests)
        if not self._all_among(message.participants, message.committed):
            raise self._refuse("lets parties take part whose commitments are not on the board")
        self._check_all_false(message.false)
        due = tuple(sorted(peer for peer in self._deltas if peer in self._participants))
        if tuple(item.party for item in message.commits) != due:
            raise self._refuse("commitments are not those of the neighbours that take part")
        self._first_head, self._authors, self._commits_head = message.head, authors, self._board.head
        self._commits: dict[int, v.Commit] = {}
        self._agreed: list[int] = []
        for item in message.commits:
            self._commits[item.party], edges = self._commit_of(item, self._board)
            own = self._own_edges.get(item.party)
            if own and self._index in edges and cancel(own, edges[self._index]):
                self._agreed.append(item.party)
        self._verifiable.check_edges(self.name, len({*self._drawn} & {*self._agreed}))
        self._excluded = len(authors) - len(self._participants)
        return self._attest(v.ATTEST_COMMITMENTS)

    def _check_all_false(self, items: Sequence[m.Advertisement]) -> None:
        """Refuse a relay that leaves users out for commits of which not each has a false proof."""
        parties, batch = [item.party for item in items], proofs.Batch()
        if parties != sorted({*parties}) or any(party in self._participants for party in parties):
            raise self._refuse("calls commits false of parties that take part, or twice")
        for item in items:
            message = self._commit_of(item, self._board)[0]
            self._rules.add_commit(batch, item.party, self._name_of(item.party), message)
        false = {tag[0] for tag in failures(batch)} if items else set()
        if right := [party for party in parties if party not in false]:
            raise self._refuse(
                f"says that {self._name_of(right[0])} committed to something false: it did not"
            )
        self._false = len(parties)

    def _commit_of(self, item: m.Advertisement, board: Follower) -> tuple[v.Commit, dict[int, bytes]]:
        """Return what a party has committed to, and its edges: as it is in the last batch of a board."""
        if not 1 <= item.party <= self._parties:
            raise self._refuse(f"forwarded a commit of party {item.party}, which there is not")
        name = self._check_forwarded(v.COMMIT, item)
        self._check_entry(board, item.party, v.COMMIT, item.body, item.signature)

        def decoded() -> tuple[v.Commit, dict[int, bytes]]:
            commits = decode(item.body, v.Commit, name)
            return commits, self._rules.edges_of(item.party, commits, name)

        return self._context.remember(("commit", self._run_id, item.party, item.body), decoded)

    def _list(self, packed: bytes) -> tuple[int, ...]:
        """Unpack a list of parties."""
        relay = self._context.aggregator
        return self._context.remember(("list", packed), lambda: unpack_list(packed, self._parties, relay))

    def _all_among(self, members: bytes, listed: bytes) -> bool:
        """Tell whether all members of a set are in a list."""

        def answer() -> bool:
            inside = PartySet.unpack(members, self._parties, self._context.aggregator)
            return set(inside) <= set(self._list(listed))

        return self._context.remember(("among", members, listed), answer)

    def _follow(self, authors: Sequence[int], kind: str, digests: bytes) -> None:
        """Go on to the head after these authors' entries; this party's own must be among them."""
        if not self._board.follow(authors, digests):
            raise self._refuse("does not have one digest for each entry")
        if kind in self._entered:
            self._check_entry(self._board, self._index, kind, *self._entered[kind])

    def _check_entry(self, board: Follower, party: int, kind: str, body: bytes, signature: bytes) -> None:
        """Refuse a board that does not have this entry among those that were followed last."""
        if not board.has(party, self._name_of(party), kind, body, signature):
            raise self._refuse(f"the board does not have the entry '{kind}' of {self._name_of(party)}")

    def _enter(self, step: str, message: msgspec.Struct) -> Sequence[Envelope]:
        """Send what is an entry of the board, and remember it."""
        [envelope] = sent = self._emit(step, message)
        self._entered[step] = envelope.body, envelope.signature
        return sent

    def _attest(self, step: str) -> Sequence[Envelope]:
        self._attested = self._rules.attestation(step, self._board.head, self._packed)
        return self._emit(step, m.Attestation(self._attested))

    def _certified(self, step: str, kind: str, body: bytes) -> Certificate:
        """Check a quorum's certificate of the head that this party has attested, and follow its entry."""
        message = decode(body, v.Certificate, self._context.aggregator)
        certified = decode(message.payload, v.Certified, self._context.aggregator)
        if certified.members != self._packed:
            raise self._refuse(f"certificate of '{step}' is of another set")
        certificate = check_certificate(
            self._context,
            self._plan,
            self._run_id,
            step,
            self._attested,
            self._participants,
            m.Certificate(certified.signers, certified.signatures),
        )
        self._follow_relay(kind, message.payload, message.signature)
        return certificate

    def _follow_relay(self, kind: str, payload: bytes, signature: bytes) -> None:
        """Go on to the head after an entry of the relay, which must have signed it."""
        relay = self._context.aggregator
        self._context.check_detached(self._run_id, kind, relay, relay, payload, signature)
        self._board.entry(relay, kind, payload, signature)

    # coins

    def _on_commitments_certificate(self, body: bytes) -> Sequence[Envelope]:
        self._participants_certificate = self._certified(v.ATTEST_COMMITMENTS, v.CERTIFY_COMMITMENTS, body)
        return self._enter(v.COIN, v.Coin(self._coin))

    def _on_coins(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, v.Coins, self._context.aggregator)
        coins, signatures = message.coins, message.signatures
        authors = self._context.remember(("ordered", self._packed), lambda: tuple(self._participants))
        if len(coins) != 32 * len(authors) or len(signatures) != SIGNATURE * len(authors):
            raise self._refuse("coins are not one of each participant")
        for party, committed in self._commits.items():
            place = bisect.bisect_left(authors, party)
            name, coin = self._name_of(party), coins[32 * place : 32 * place + 32]
            if self._rules.coin_commitment(name, coin) != committed.coin:
                raise self._refuse(f"the coin of {name} is not what it has committed to")
        first = len(self._board) + 1
        digests = self._context.remember(
            ("coins", self._run_id, first, self._packed, coins, signatures),
            lambda: self._coin_digests(first, authors, coins, signatures),
        )
        self._follow(authors, v.COIN, digests)
        self._rules.combine_coins(self._packed, coins)
        return self._attest(v.ATTEST_COINS)

    def _coin_digests(self, first: int, authors: Sequence[int], coins: bytes, signatures: bytes) -> bytes:
        """Return the hashes of all entries of coins, which must be rightly signed.

        An honest user signs its coin only if it accepts its edges: with all signatures here, all have.
        """
        digests, relay = [], self._context.aggregator
        for i, party in enumerate(authors):
            name, payload = self._name_of(party), encode(v.Coin(coins[32 * i : 32 * i + 32]))
            signature = signatures[SIGNATURE * i : SIGNATURE * (i + 1)]
            try:
                self._context.check_detached(self._run_id, v.COIN, name, relay, payload, signature)
            except PeerFault:
                raise self._refuse(f"forwarded a coin that {name} did not sign") from None
            digests.append(entry_digest(first + i, name, v.COIN, payload, signature))
        return b"".join(digests)

    # publication

    def _on_coins_certificate(self, body: bytes) -> Sequence[Envelope]:
        self._certified(v.ATTEST_COINS, v.CERTIFY_COINS, body)
        lanes = self._lanes
        if lanes is None:
            raise LocalError(f"{self.name}: the vector was used before")
        self._lanes = None
        coins, blinding = self._rules.bits_of(self.name), commit.fresh_blinding(self._random)
        noise = self._noise_secret.noise(coins)
        committed, proof = self._noise_secret.prove(
            self._rules.proof_context(self.name), coins, blinding, self._random
        )
        lanes += np.array(noise, dtype=np.int64).view(np.uint64)
        blindings = [self._value_blinding, blinding]
        for peer in self._agreed:
            delta, pair_blinding = self._deltas[peer]
            lanes += delta
            blindings.append(pair_blinding)
        del self._value_blinding, self._noise_secret
        message = v.Publish(
            self._parameters.encoding.pack(lanes), commit.add_blindings(blindings), committed, proof
        )
        return self._enter(v.PUBLISH, message)

    def _on_publications(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, v.Publications, self._context.aggregator)
        published = self._list(message.published)
        if not self._all_published_take_part(message.published):
            raise self._refuse("has publications of parties that do not take part")
        if self._index not in published:
            raise self._refuse(f"left the publication of {self.name} out")
        self._follow(published, v.PUBLISH, message.digests)
        opened = []
        if message.false and not {item.party for item in message.false} <= set(published):
            raise self._refuse("calls publications false that there are not")
        known = self._known_edges(message) if message.false else {}
        for item in message.false:
            name = self._check_forwarded(v.PUBLISH, item)
            self._check_entry(self._board, item.party, v.PUBLISH, item.body, item.signature)
            if item.party in self._agreed:
                self._check_false(item.party, name, item.body, known)
                opened.append(item.party)
        opened.sort()
        self._excluded += len(message.false)
        self._false += len(message.false)
        terms = [self._deltas[party] for party in opened]
        del self._deltas
        pack = self._parameters.encoding.pack
        answer = v.Open(pack_list(opened), b"".join(pack(d) for d, _ in terms), b"".join(r for _, r in terms))
        return self._enter(v.OPEN, answer) if opened else self._emit(v.OPEN, answer)

    def _all_published_take_part(self, published: bytes) -> bool:
        question = ("published", published, self._packed)
        return self._context.remember(question, lambda: set(self._list(published)) <= set(self._participants))

    def _known_edges(self, message: v.Publications) -> dict[int, dict[int, bytes]]:
        """Return the edges of neighbours, and of those whose commitments came as evidence."""
        edges = {
            peer: self._rules.edges_of(peer, commits, self._name_of(peer))
            for peer, commits in self._commits.items()
        }
        edges[self._index] = self._own_edges
        if not message.commits:
            return edges
        board = Follower(self._context, self._first_head)
        if not board.follow(self._authors, message.committed):
            raise self._refuse("does not have one digest for each commitment")
        if board.head != self._commits_head:
            raise self._refuse("has other commitments than those that a quorum has signed")
        for item in message.commits:
            edges[item.party] = self._commit_of(item, board)[1]
        return edges

    def _check_false(
        self, party: int, name: str, body: bytes, known: Mapping[int, Mapping[int, bytes]]
    ) -> None:
        """Refuse to open an edge to a user whose publication is right: that would bare its value."""
        message = self._rules.check_publish(body, name)
        around = [party, *(peer for peer in known[party] if peer in self._participants)]
        if not all(peer in known for peer in around):
            raise self._refuse(f"says that {name} published something false, and not what its neighbours say")
        counted = agreements({peer: known[peer] for peer in around})[party]
        batch = proofs.Batch()
        self._rules.add_publish(batch, party, name, message, self._commits[party], counted.values())
        if not failures(batch):
            raise self._refuse(f"says that {name} published something false, and it did not")

    # the end

    def _on_tallied(self, body: bytes) -> Sequence[Envelope]:
        relay = self._context.aggregator
        message = decode(body, v.Tallied, relay)
        opened = self._list(message.opened)
        self._follow(opened, v.OPEN, message.digests)
        tally = decode(message.tally, v.Tally, relay)
        self._counted = PartySet.unpack(tally.counted, self._parties, relay)
        least = self._verifiable.least_left(self._false)
        if not self._counted <= self._participants or len(self._counted) < least:
            raise self._refuse("counts parties that do not take part, or too few")
        if self._index not in self._counted:
            raise self._refuse(f"left {self.name} out of the average")
        self._total = self._rules.lanes(tally.total, relay)
        self._residual = tally.residual_pairs
        self._verifiable.check_total(signed(self._total), len(self._counted), self._residual)
        self._follow_relay(v.TALLY, message.tally, message.signature)
        return self._attest(v.ATTEST_TALLY)

    def _on_closed(self, body: bytes) -> Sequence[Envelope]:
        certificate = self._certified(v.ATTEST_TALLY, v.CERTIFY_TALLY, body)
        outcome = endings.outcome(
            self._context,
            self._gopa,
            self._run_id,
            self._total,
            self._roll_digest,
            self._participants,
            self._counted,
            self._participants_certificate,
            certificate,
            residual_pairs=self._residual,
        )
        privacy = self._verifiable.privacy(len(self._counted), self._excluded)
        self._outcome = replace(outcome, privacy=privacy)
        self._end()
        return ()
