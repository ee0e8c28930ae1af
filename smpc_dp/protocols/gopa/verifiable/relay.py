"""The relay's side of verifiable GOPA: it hosts the board. Specification: docs/verifiable.md.

Every statement is checked before the next step. Who has signed a false one is excluded, and the statement
stays on the board; who is silent is not counted, and excluded from nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from smpc_dp.board.keeping import Board
from smpc_dp.crypto import proofs
from smpc_dp.encoding import Lanes
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.protocols.begin import HubBegin
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode, encode
from smpc_dp.protocols.gopa.relay import GopaRelayMachine
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.recount import narrowed
from smpc_dp.protocols.gopa.verifiable.statements import FALSE, Rules, agreements, failures
from smpc_dp.protocols.result import Certificate, LoggedRun
from smpc_dp.protocols.secagg import endings
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.aggregator import AggregatorMachine, Watch
from smpc_dp.protocols.secagg.certify import check_certificate, make_certificate
from smpc_dp.protocols.secagg.graph import pack_list, pack_set


class VerifiableRelayMachine(GopaRelayMachine):
    """The relay in one run; arguments as of `AggregatorMachine`, and the `board` that it logs on."""

    _hello = v.Hello

    def __init__(
        self,
        context: Context,
        parameters: VerifiableParameters,
        identity: Signer,
        *,
        board: Board,
        threads: int = 1,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(context, parameters, identity, threads=threads, watch=watch)
        self._verifiable = parameters
        self._board = board
        self._begin = HubBegin(context, parameters.plan.quorum, board)
        # Users who have signed something false.
        self._shown_false = 0
        # What is here counts, also of a user that is lost before the step is over.
        self._coins: dict[int, Envelope] = {}
        self._publications: dict[int, Envelope] = {}
        # What is false in this step without a look at its proofs, and which of FALSE it is.
        self._refused: dict[int, str] = {}
        # Rounds of openings so far, what was said in the last one, and Delta by its two users.
        self._round = 0
        self._openings: dict[int, Envelope] = {}
        # What the total is made of: publications and rounds of openings; and who has not added it up.
        self._said: list[dict[int, Envelope]] = []
        self._unchecked: set[int] = set()
        self._opened: dict[int, dict[int, Lanes]] = {}
        self._steps = {
            m.HELLO: (self._accept_hello, self._finish_hello),
            v.ATTEST_BEGIN: (self._accept_attest_begin, self._finish_attest_begin),
            m.ADVERTISE: (self._accept_advertise, self._finish_advertise),
            m.REVEAL: (self._accept_reveal, self._finish_reveal),
            v.COMMIT: (self._accept_commit, self._finish_commit),
            v.ATTEST_COMMITMENTS: (self._accept_attestation, self._finish_attest_commitments),
            v.COIN: (self._accept_coin, self._finish_coin),
            v.ATTEST_COINS: (self._accept_attestation, self._finish_attest_coins),
            v.PUBLISH: (self._accept_publish, self._finish_publish),
            v.ATTEST_TALLY: (self._accept_attest_tally, self._finish_attest_tally),
        }

    @property
    def longest(self) -> int:  # type: ignore[override]
        """No message is longer that the relay hears: what is false goes on the board, however long."""
        return self._verifiable.most_heard_bytes

    def most_steps(self, _: object) -> int:
        """Those of a run in which nobody lies, and two for each round of openings."""
        openings = (v.ATTEST_EXCLUSIONS, v.OPEN)
        usual = [step for step in self._steps if not step.startswith(openings)]
        return len(usual) - 1 + len(openings) * self._verifiable.most_false

    def _needed(self) -> int:
        if self.step != v.COIN:
            return self._verifiable.least_left(self._shown_false)
        # A coin that is not there stops the run: without it, its author would choose the noise.
        return len(self._participants) - len(self._coins.keys() - self._alive)

    def _kept(self, envelope: Envelope) -> Envelope:
        return envelope

    def _finish_hello(self) -> list[Envelope]:
        known = {
            party: decode(self._received[party].body, v.Hello, "").known for party in sorted(self._alive)
        }
        for party, number in known.items():
            if why := self._begin.behind(number):
                self._drop(party, TimeoutFault({self._name_of(party)}, m.HELLO, why))
        [*sent] = super()._finish_hello()
        start = decode(sent[0].body, m.Start, self.name)
        self._rules = Rules(self._context, self._verifiable, self._run_id)
        self._chain = self._begin.propose(self._question, start.present, start.root, self._run_id)
        return sent + self._to_each(v.BEGIN, lambda party: self._begin.message(known[party]))

    def _accept_attest_begin(self, _party: int, envelope: Envelope) -> None:
        self._begin.check(envelope.body, envelope.sender)

    def _finish_attest_begin(self) -> list[Envelope]:
        if len(self._received) < self._plan.quorum:
            raise self._too_few(self._plan.quorum)
        signatures = {party: envelope.signature for party, envelope in self._received.items()}
        entry = self._log_own(v.CERTIFY_BEGIN, self._begin.certify(signatures))
        return self._broadcast(v.BEGUN, self._begin.answer(entry.body, entry.signature))

    def _finish_reveal(self) -> list[Envelope]:
        return AggregatorMachine._finish_reveal(self)

    # commitments

    def _accept_commit(self, party: int, envelope: Envelope) -> None:
        checked = self._rules.check_commit(party, envelope.body, envelope.sender)
        if isinstance(checked, str):
            # What is signed and false goes on the board.
            self._refused[party] = checked

    def _finish_commit(self) -> list[Envelope]:
        batch = proofs.Batch()
        # Who is gone already has no entry: nothing shows what it said.
        self._refused = {party: false for party, false in self._refused.items() if party in self._alive}
        self._commits: dict[int, v.Commit] = {}
        self._edges: dict[int, dict[int, bytes]] = {}
        for party in sorted(self._alive - self._refused.keys()):
            name = self._name_of(party)
            commits = self._rules.read_commit(party, self._received[party].body, name)
            self._commits[party] = commits
            self._edges[party] = self._rules.edges_of(party, commits, name)
            self._rules.add_commit(batch, party, name, commits)
        authors = sorted(self._alive)
        self._committed = digests = self._log(authors, self._received)
        excluded = self._exclude_false(batch)
        if len(self._alive) < self._needed():
            raise self._too_few(self._needed())
        self._edges = {party: self._edges[party] for party in self._alive}
        self._agreed = agreements(self._edges)
        self._participants = tuple(sorted(self._alive))
        self._packed = pack_set(self._participants, self._parties)
        self._ask_for(v.ATTEST_COMMITMENTS, self._participants)
        self._advertised_commits = {peer: self._as_signed(peer) for peer in self._participants}
        false = [self._as_signed(party) for party in excluded]
        sent: list[Envelope] = []
        for party in self._participants:
            forwarded = [
                self._advertised_commits[peer] for peer in self._neighbours[party] if peer in self._edges
            ]
            message = v.Committed(pack_list(authors), digests, self._packed, forwarded, false)
            sent += self._write(v.COMMITTED, [self._name_of(party)], message)
        return sent

    def _as_signed(self, party: int) -> m.Advertisement:
        """Return what a party has sent in this step."""
        return m.Advertisement(party, self._received[party].body, self._received[party].signature)

    def _log(self, authors: Iterable[int], envelopes: dict[int, Envelope]) -> bytes:
        """Put these parties' messages on the board, and return the digests of the entries."""
        entries = []
        for party in authors:
            envelope = envelopes[party]
            entries.append(
                self._chain.append(envelope.sender, envelope.step, envelope.body, envelope.signature)
            )
        self._board.append(entries)
        return b"".join(entry.digest() for entry in entries)

    def _log_own(self, kind: str, message: msgspec.Struct) -> Envelope:
        """Put an entry of the relay on the board, and return it as the relay has signed it."""
        [envelope] = self._write(kind, [self.name], message)
        self._board.append([self._chain.append(self.name, kind, envelope.body, envelope.signature)])
        return envelope

    def _exclude_false(self, batch: proofs.Batch) -> list[int]:
        """Drop who has made a false statement in the batch, and return them."""
        false = dict(self._refused)
        for tag in failures(batch, self._threads):
            false.setdefault(tag[0], tag[1])
        for party, kind in sorted(false.items()):
            fault = PeerFault(self._name_of(party), FALSE[kind])
            if party in self._alive:
                self._drop(party, fault)
            else:
                self._faults.append(str(fault))
        self._shown_false += len(false)
        self._refused = {}
        return sorted(false)

    def _ask_for(self, step: str, members: Collection[int], *false: bytes) -> None:
        """Go on to a step in which these parties attest the head and each other, and who was shown false."""
        self._attesting = frozenset(members), pack_set(members, self._parties)
        self._set_digest = self._rules.attestation(step, self._chain.head, self._attesting[1], *false)

    def _certify(self, step: str, kind: str, answer: str) -> tuple[list[Envelope], Certificate]:
        """Put a quorum's signatures on the head that was attested on the board, and send them."""
        signatures = {
            party: envelope.signature
            for party, envelope in self._received.items()
            if party not in self._unchecked
        }
        if len(signatures) < self._plan.quorum:
            if self._unchecked:
                names = map(self._name_of, sorted(self._unchecked))
                what = f"of the quorum of {self._plan.quorum} only {len(signatures)} have added up the total"
                raise TimeoutFault(names, step, f"{what}; who is named was told not to")
            raise self._too_few(self._plan.quorum)
        certificate = make_certificate(signatures, self._plan.quorum, self._parties)
        members, packed = self._attesting
        checked = check_certificate(
            self._context, self._plan.quorum, self._run_id, step, self._set_digest, members, certificate
        )
        entry = self._log_own(kind, v.Certified(packed, certificate.signers, certificate.signatures))
        return self._broadcast(answer, v.Certificate(entry.body, entry.signature)), checked

    # coins

    def _finish_attest_commitments(self) -> list[Envelope]:
        sent, self._participants_certificate = self._certify(
            v.ATTEST_COMMITMENTS, v.CERTIFY_COMMITMENTS, v.COMMITMENTS_CERTIFICATE
        )
        return sent

    def _accept_coin(self, party: int, envelope: Envelope) -> None:
        try:
            coin = decode(envelope.body, v.Coin, envelope.sender).coin
            if self._rules.coin_commitment(envelope.sender, coin) != self._commits[party].coin:
                raise PeerFault(envelope.sender, "opened another coin than it has committed to")
        except PeerFault:
            # The run stops here: the last entry of its log shows why.
            self._log([party], {party: envelope})
            raise
        self._coins[party] = envelope

    def _finish_coin(self) -> list[Envelope]:
        envelopes = [self._coins[party] for party in self._participants]
        coins = b"".join(decode(envelope.body, v.Coin, "").coin for envelope in envelopes)
        self._log(self._participants, self._coins)
        self._rules = replace(self._rules, combined=self._rules.combine_coins(self._packed, coins))
        self._ask_for(v.ATTEST_COINS, self._participants)
        signatures = b"".join(envelope.signature for envelope in envelopes)
        return self._broadcast(v.COINS, v.Coins(coins, signatures))

    def _finish_attest_coins(self) -> list[Envelope]:
        return self._certify(v.ATTEST_COINS, v.CERTIFY_COINS, v.COINS_CERTIFICATE)[0]

    # publication

    def _accept_publish(self, party: int, envelope: Envelope) -> None:
        # What is signed and false goes on the board.
        self._publications[party] = envelope
        published = self._rules.read_publish(envelope.body, envelope.sender)
        if isinstance(published, str):
            self._refused[party] = published
        elif self._watch is not None:
            self._watch(envelope.sender, self._rules.lanes(published.x_hat, envelope.sender))

    def _finish_publish(self) -> list[Envelope]:
        batch = proofs.Batch()
        for party in self._publications.keys() - self._refused.keys():
            message = decode(self._publications[party].body, v.Publish, "")
            self._rules.add_publish(
                batch,
                party,
                self._name_of(party),
                message,
                self._commits[party],
                self._agreed[party].values(),
            )
        self._published = set(self._publications)
        # Whose edges count in the check of a statement: of a publication, those of all who take part.
        self._beside = set(self._participants)
        return self._go_on(v.PUBLICATIONS, v.Publications, self._publications, batch)

    def _go_on(
        self, step: str, kind: type[v.Publications], said: dict[int, Envelope], batch: proofs.Batch
    ) -> list[Envelope]:
        """Log what was said and tell of it; go on to a round of openings if any is false, else to the tally.

        Who is shown false in a round of openings is excluded like who was before it, and its edges are opened
        in the next one. Each round excludes somebody, so there are at most `most_false`.
        """
        authors = sorted(said)
        self._said.append(said)
        digests = self._log(authors, said)
        self._false = self._exclude_false(batch)
        self._published -= {*self._false}
        if len(self._alive) < self._needed():
            raise self._too_few(self._needed())
        packed, false = pack_list(authors), pack_list(self._false)
        self._shown = {
            party: m.Advertisement(party, said[party].body, said[party].signature) for party in self._false
        }

        def told(party: int) -> v.Publications:
            shown = [item for peer, item in self._shown.items() if peer in self._agreed[party]]
            commits = self._commits_about(party)
            return kind(packed, digests, false, shown, self._committed if commits else b"", commits)

        sent = self._to_each(step, told)
        return sent + (self._begin_round() if self._false else self._begin_tally())

    def _commits_about(self, party: int) -> list[m.Advertisement]:
        """Return what a party lacks to check that its neighbours said something false."""
        around = {
            peer for false in self._false if false in self._agreed[party] for peer in self._edges[false]
        }
        lacking = around & self._beside & self._edges.keys() - {party, *self._neighbours[party]}
        return [self._advertised_commits[peer] for peer in sorted(lacking)]

    # rounds of openings

    def _begin_round(self) -> list[Envelope]:
        self._round += 1
        attest, opening = (v.in_round(step, self._round) for step in (v.ATTEST_EXCLUSIONS, v.OPEN))
        self._openings, self._beside = {}, {*self._false}
        self._ask_for(attest, self._published, pack_list(self._false))
        steps, place = list(self._steps.items()), self._position + 1
        steps[place:place] = [
            (attest, (self._accept_attestation, self._finish_attest_exclusions)),
            (opening, (self._accept_open, self._finish_open)),
        ]
        self._steps = dict(steps)
        return []

    def _finish_attest_exclusions(self) -> list[Envelope]:
        step, kind, answer = (
            v.in_round(name, self._round)
            for name in (v.ATTEST_EXCLUSIONS, v.CERTIFY_EXCLUSIONS, v.EXCLUSIONS_CERTIFICATE)
        )
        return self._certify(step, kind, answer)[0]

    def _accept_open(self, party: int, envelope: Envelope) -> None:
        agreed = self._agreed[party]
        owed = {peer: agreed[peer] for peer in self._false if peer in agreed}
        opened = self._rules.check_open(party, envelope.body, envelope.sender, owed)
        if isinstance(opened, str):
            self._refused[party] = opened
        if opened:
            self._openings[party] = envelope
        if opened and not isinstance(opened, str):
            self._opened.setdefault(party, {}).update(opened)

    def _finish_open(self) -> list[Envelope]:
        step = v.in_round(v.OPENINGS, self._round)
        return self._go_on(step, v.Openings, self._openings, proofs.Batch())

    def _begin_tally(self) -> list[Envelope]:
        self._residual = 0
        for party in sorted(self._published):
            message = decode(self._publications[party].body, v.Publish, "")
            self._sum += self._rules.lanes(message.x_hat, "")
            opened = self._opened.get(party, {})
            for delta in opened.values():
                self._sum -= delta
            gone = self._agreed[party].keys() - self._published
            self._residual += len(gone - opened.keys())
        total = self._parameters.encoding.pack(self._sum)
        entry = self._log_own(
            v.TALLY, v.Tally(pack_set(self._published, self._parties), total, self._residual)
        )
        self._ask_for(v.ATTEST_TALLY, self._participants)
        shown = [self._shown_of(said) for said in self._said]
        return self._broadcast(v.TALLIED, v.Tallied(entry.body, entry.signature, shown))

    def _shown_of(self, said: dict[int, Envelope]) -> v.Said:
        """Return what those who are counted said in one step, as it is shown to all."""
        counted = [envelope for party, envelope in sorted(said.items()) if party in self._published]
        bodies = [
            narrowed(self._verifiable, envelope.body) if envelope.step == v.PUBLISH else envelope.body
            for envelope in counted
        ]
        return v.Said(bodies, b"".join(envelope.signature for envelope in counted))

    # the end

    def _accept_attest_tally(self, party: int, envelope: Envelope) -> None:
        if envelope.body == encode(v.NotChecked()):
            self._unchecked.add(party)
        else:
            self._accept_attestation(party, envelope)

    def _finish_attest_tally(self) -> list[Envelope]:
        sent, certificate = self._certify(v.ATTEST_TALLY, v.CERTIFY_TALLY, v.CLOSED)
        outcome = endings.outcome(
            self._context,
            self._gopa,
            self._run_id,
            self._sum,
            self._roll_digest,
            participants=self._participants,
            survivors=self._published,
            participants_certificate=self._participants_certificate,
            survivors_certificate=certificate,
            faults=tuple(self._faults),
            residual_pairs=self._residual,
        )
        # Those on the board, as an audit counts them, whoever of them was lost since.
        privacy = self._verifiable.privacy(len(self._published), self._shown_false)
        noise = self._verifiable.noise(len(self._published), self._residual, self._shown_false)
        run = LoggedRun(self._begin.number, self._begin.head, self._chain.head)
        evidence = replace(outcome.evidence, log=run, checked=True)
        self._outcome = replace(outcome, privacy=privacy, noise=noise, evidence=evidence)
        return sent
