"""A user's side of verifiable GOPA. Specification: docs/verifiable.md and protocols/gopa/README.md."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from smpc_dp.board.log import entry_digest
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import Lanes
from smpc_dp.errors import LocalError, PeerFault
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian
from smpc_dp.protocols.begin import logged_run
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode, encode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.board_party import BoardPartyMachine
from smpc_dp.protocols.gopa.verifiable.follow import Follower
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.recount import Recount
from smpc_dp.protocols.gopa.verifiable.statements import Rules, agreements, cancel, failures, signed
from smpc_dp.protocols.secagg import endings
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import PartySet, pack_list
from smpc_dp.seen import NOTHING_SEEN, Seen

SIGNATURE = m.SIGNATURE_BYTES


class VerifiablePartyMachine(BoardPartyMachine):
    """One user in one run; arguments as of `PartyMachine`.

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
        seen: Seen = NOTHING_SEEN,
    ) -> None:
        super().__init__(context, parameters, identity, lanes, randomness, seen)
        # Whether to add up what was published before the total is attested.
        self.check_total = True
        self._last_step = v.ATTEST_TALLY
        # Rounds of openings so far.
        self._round = 0
        self._handlers = {
            m.START: self._on_start,
            v.BEGIN: self._on_begin,
            v.BEGUN: self._on_begun,
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
        self._follow(authors, v.COMMIT, message.digests)
        if not self._participants <= self._of(message.committed):
            raise self._refuse("lets parties take part whose commitments are not on the board")
        self._check_all_false(message.false)
        due = tuple(sorted(peer for peer in self._deltas if peer in self._participants))
        if tuple(item.party for item in message.commits) != due:
            raise self._refuse("commitments are not those of the neighbours that take part")
        self._authors, self._commits_head = authors, self._board.head
        self._commits: dict[int, v.Commit] = {}
        self._agreed: list[int] = []
        for item in message.commits:
            self._commits[item.party], edges = self._commit_of(item, self._board)
            own = self._own_edges.get(item.party)
            if own and self._index in edges and cancel(own, edges[self._index]):
                self._agreed.append(item.party)
        self._verifiable.check_edges(self.name, len({*self._drawn} & {*self._agreed}))
        return self._attest(v.ATTEST_COMMITMENTS, self._participants)

    def _check_all_false(self, items: Sequence[m.Advertisement]) -> None:
        """Refuse a relay that leaves users out for commits of which not each is false."""
        parties, batch = [item.party for item in items], proofs.Batch()
        if parties != sorted({*parties}) or any(party in self._participants for party in parties):
            raise self._refuse("calls commits false of parties that take part, or twice")
        false = set()
        for item in items:
            name = self._check_commit(item, self._board)
            message = self._rules.check_commit(item.party, item.body, name)
            if isinstance(message, str):
                false.add(item.party)
            else:
                self._rules.add_commit(batch, item.party, name, message)
        if len(false) < len(parties):
            false |= {tag[0] for tag in failures(batch)}
        if right := [party for party in parties if party not in false]:
            raise self._refuse(
                f"says that {self._name_of(right[0])} committed to something false: it did not"
            )
        self._false = len(parties)

    def _check_commit(self, item: m.Advertisement, board: Follower) -> str:
        """Return whose commit is forwarded: signed, and in the last batch of a board."""
        if not 1 <= item.party <= self._parties:
            raise self._refuse(f"forwarded a commit of party {item.party}, which there is not")
        name = self._check_forwarded(v.COMMIT, item)
        self._check_entry(board, item.party, v.COMMIT, item.body, item.signature)
        return name

    def _commit_of(self, item: m.Advertisement, board: Follower) -> tuple[v.Commit, dict[int, bytes]]:
        """Return what a party has committed to, and its edges: as it is in the last batch of a board."""
        name = self._check_commit(item, board)

        def decoded() -> tuple[v.Commit, dict[int, bytes]]:
            commits = decode(item.body, v.Commit, name)
            return commits, self._rules.edges_of(item.party, commits, name)

        return self._context.remember(("commit", self._run_id, item.party, item.body), decoded)

    # coins

    def _on_commitments_certificate(self, body: bytes) -> Sequence[Envelope]:
        self._participants_certificate = self._certified(
            v.ATTEST_COMMITMENTS, v.CERTIFY_COMMITMENTS, body, self._participants
        )
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
        return self._attest(v.ATTEST_COINS, self._participants)

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
        self._certified(v.ATTEST_COINS, v.CERTIFY_COINS, body, self._participants)
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
        self._good = self._of(message.authors)
        if not self._good <= self._participants:
            raise self._refuse("has publications of parties that do not take part")
        if self._index not in self._good:
            raise self._refuse(f"left the publication of {self.name} out")
        return self._go_on(message, v.PUBLISH)

    def _go_on(self, message: v.Publications, kind: str) -> Sequence[Envelope]:
        """Follow what was said; if any of it is false, see that it is, and sign who is left."""
        false = self._list(message.false)
        self._follow(self._list(message.authors), kind, message.digests)
        if not self._of(message.false) <= self._of(message.authors):
            raise self._refuse("calls statements false that there are not")
        self._opening = [party for party in self._agreed if party in false]
        if tuple(item.party for item in message.shown) != tuple(self._opening):
            raise self._refuse("does not show what neighbours said that is false")
        known = self._known_edges(message) if false else {}
        for item in message.shown:
            name = self._check_forwarded(kind, item)
            self._check_entry(self._board, item.party, kind, item.body, item.signature)
            self._check_false(item.party, name, item.body, known)
        if not false:
            return ()
        # Of those who are no neighbours there is the relay's word alone: until the rest is found right, a
        # ledger must not be charged for them.
        told = self._false + len(false)
        self._false += len(self._opening)
        self._good, self._shown_false = self._without(self._good, message.false), false
        if self._index not in self._good:
            raise self._refuse(f"says that {self.name} has signed something false")
        if len(self._good) < self._verifiable.least_left(told):
            raise self._refuse("goes on with too few users whose statements are true")
        self._false = told
        self._agreed = [party for party in self._agreed if party not in false]
        return self._begin_round(message.false)

    def _begin_round(self, false: bytes) -> Sequence[Envelope]:
        self._round += 1
        handlers, place = list(self._handlers.items()), self._position + 1
        handlers[place:place] = [
            (v.in_round(v.EXCLUSIONS_CERTIFICATE, self._round), self._on_exclusions_certificate),
            (v.in_round(v.OPENINGS, self._round), self._on_openings),
        ]
        self._handlers = dict(handlers)
        return self._attest(v.in_round(v.ATTEST_EXCLUSIONS, self._round), self._good, false)

    def _on_exclusions_certificate(self, body: bytes) -> Sequence[Envelope]:
        """Open the edges to those who were shown false, once a quorum has agreed on them."""
        step, kind, opening = (
            v.in_round(name, self._round) for name in (v.ATTEST_EXCLUSIONS, v.CERTIFY_EXCLUSIONS, v.OPEN)
        )
        self._certified(step, kind, body, self._good)
        opened, terms = self._opening, [self._deltas.pop(party) for party in self._opening]
        pack = self._parameters.encoding.pack
        answer = v.Open(pack_list(opened), b"".join(pack(d) for d, _ in terms), b"".join(r for _, r in terms))
        return self._enter(opening, answer) if opened else self._emit(opening, answer)

    def _on_openings(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, v.Openings, self._context.aggregator)
        if not self._of(message.authors) <= self._good:
            raise self._refuse("has openings of parties that are out")
        return self._go_on(message, v.in_round(v.OPEN, self._round))

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
        board.extend([self._board.digest(1)])
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
        """Refuse to open an edge to a user whose statement is right: that would bare its value."""
        counts = self._shown_false if self._round else self._participants
        around = [party, *(peer for peer in known[party] if peer in counts)]
        if not all(peer in known for peer in around):
            raise self._refuse(f"says that {name} said something false, and not what its neighbours say")
        counted = agreements({peer: known[peer] for peer in around})[party]
        if self._round:
            right = not isinstance(self._rules.check_open(party, body, name, counted), str)
        else:
            right = self._rules.is_right(party, name, body, self._commits[party], counted.values())
        if right:
            raise self._refuse(f"says that {name} said something false, and it did not")

    # the end

    def _on_tallied(self, body: bytes) -> Sequence[Envelope]:
        relay = self._context.aggregator
        message = self._context.remember(("tallied", body), lambda: decode(body, v.Tallied, relay))
        # Nothing is opened any more.
        self._deltas.clear()
        tally = decode(message.tally, v.Tally, relay)
        self._counted = PartySet.unpack(tally.counted, self._parties, relay)
        if self._index not in self._counted:
            raise self._refuse(f"left {self.name} out of the average")
        least = self._verifiable.least_left(self._false)
        if tally.counted != self._good.packed or len(self._counted) < least:
            raise self._refuse("counts others than those who said nothing false, or too few")
        self._total = self._rules.lanes(tally.total, relay)
        self._residual = tally.residual_pairs
        self._verifiable.check_total(signed(self._total), len(self._counted), self._residual)
        # Edges to users that are silent; what others have left is not known here.
        if self._residual < len([peer for peer in self._agreed if peer not in self._counted]):
            raise self._refuse("counts fewer residual pairs than this party has itself")
        if self.check_total:
            self._recount(body, message.said)
        self._follow_relay(v.TALLY, message.tally, message.signature)
        if self.check_total:
            return self._attest(v.ATTEST_TALLY, self._participants)
        self._attested = self._head_of(v.ATTEST_TALLY, self._participants)
        return self._emit(v.ATTEST_TALLY, v.NotChecked())

    def _recount(self, body: bytes, said: Sequence[v.Said]) -> None:
        """Refuse a total that is not the sum of what those who are counted published."""
        recount = Recount(
            self._context, self._verifiable, self._rules, self._run_id, self._board, self._batches
        )
        # Under one head all who follow the board add up the same.
        question = ("recount", self._run_id, self._board.head, self._counted.packed, body)
        total = self._context.remember(question, lambda: recount.total(self._counted, said))
        if not np.array_equal(total, self._total):
            raise self._refuse("the total is not the sum of what was published")

    def _on_closed(self, body: bytes) -> Sequence[Envelope]:
        certificate = self._certified(v.ATTEST_TALLY, v.CERTIFY_TALLY, body, self._participants)
        outcome = endings.outcome(
            self._context,
            self._gopa,
            self._run_id,
            self._total,
            self._roll_digest,
            participants=self._participants,
            survivors=self._counted,
            participants_certificate=self._participants_certificate,
            survivors_certificate=certificate,
            residual_pairs=self._residual,
        )
        privacy = self._verifiable.privacy(len(self._counted), self._false)
        noise = self._verifiable.noise(len(self._counted), self._residual, self._false)
        self._begin.close(self._board.head)
        evidence = replace(outcome.evidence, log=logged_run(self.seen), checked=self.check_total)
        self._outcome = replace(outcome, privacy=privacy, noise=noise, evidence=evidence)
        self._end()
        return ()
