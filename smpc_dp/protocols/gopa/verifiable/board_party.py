"""What a user of verifiable GOPA does with the board: it follows it, and signs its heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from smpc_dp.board.followed import Followed
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.protocols.begin import PartyBegin
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa.party import GopaPartyMachine
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.follow import Follower
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.recount import Batch
from smpc_dp.protocols.gopa.verifiable.statements import Rules
from smpc_dp.protocols.result import Certificate
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.certify import check_certificate
from smpc_dp.protocols.secagg.graph import PartySet, pack_set, unpack_list
from smpc_dp.seen import NOTHING_SEEN, Seen

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event


class BoardPartyMachine(GopaPartyMachine):
    """One user that follows a board; arguments as of `PartyMachine`. `followed` is as far as it has come."""

    _rules: Rules
    _board: Follower

    def __init__(
        self,
        context: Context,
        parameters: VerifiableParameters,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
        seen: Seen = NOTHING_SEEN,
    ) -> None:
        super().__init__(context, parameters, identity, lanes, randomness)
        self._verifiable = parameters
        self._begin = PartyBegin(context, parameters.plan.quorum, seen)
        # The board as far as this party has followed it, and its own entries by kind.
        self.followed: Followed | None = None
        self._entered: dict[str, tuple[bytes, bytes]] = {}
        # Users who were shown to have signed something false; for how many of them the run was charged.
        self._false, self._charged_for = 0, parameters.plan.max_corrupt
        # What the total is made of: the publications, and each round of openings.
        self._batches: list[Batch] = []

    @property
    def seen(self) -> Seen:
        """What is to be kept of the session log, durably, before what this party says next is sent."""
        return self._begin.seen

    def take_raised(self) -> list[Event]:
        """Return, once, what the run is if more users were shown to be corrupt than it was charged for."""
        if self._false <= self._charged_for:
            return []
        self._charged_for = self._false
        return [self._verifiable.event_without(self._false)]

    def _hello(self) -> m.Hello:
        plain = msgspec.structs.asdict(super()._hello())
        return v.Hello(**plain, known=self.seen.number)

    def _on_start(self, body: bytes) -> Sequence[Envelope]:
        # Sent when the run has begun.
        self._advertised_late = super()._on_start(body)
        return ()

    def _on_begin(self, body: bytes) -> Sequence[Envelope]:
        return self._emit(v.ATTEST_BEGIN, self._begin.attest(body, self._run_id, self._present))

    def _on_begun(self, body: bytes) -> Sequence[Envelope]:
        message = self._begin.begun(body)
        self._first_head = message.head
        self._board = self.followed = Follower(self._context, message.head)
        self._follow_relay(v.CERTIFY_BEGIN, message.payload, message.signature)
        return self._advertised_late

    def _list(self, packed: bytes) -> tuple[int, ...]:
        """Unpack a list of parties."""
        relay = self._context.aggregator
        return self._context.remember(("list", packed), lambda: unpack_list(packed, self._parties, relay))

    def _of(self, listed: bytes) -> PartySet:
        """Return the parties of a list as a set."""
        packed = self._context.remember(
            ("set of", listed), lambda: pack_set(self._list(listed), self._parties)
        )
        return self._unpacked(packed)

    def _without(self, members: PartySet, listed: bytes) -> PartySet:
        """Return a set without the parties of a list."""
        packed = self._context.remember(
            ("without", members.packed, listed),
            lambda: pack_set([*{*members} - {*self._list(listed)}], self._parties),
        )
        return self._unpacked(packed)

    def _unpacked(self, packed: bytes) -> PartySet:
        relay = self._context.aggregator
        return self._context.remember(("set", packed), lambda: PartySet.unpack(packed, self._parties, relay))

    def _follow(self, authors: Sequence[int], kind: str, digests: bytes) -> None:
        """Go on to the head after these authors' entries; this party's own must be among them."""
        if kind not in (v.COMMIT, v.COIN):
            self._batches.append(Batch(kind, len(self._board) + 1, authors))
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

    def _attest(self, step: str, members: PartySet, *false: bytes) -> Sequence[Envelope]:
        """Sign the head, and who is to go on from it; before a round of openings, who was shown false."""
        self._attested = self._head_of(step, members, *false)
        return self._emit(step, m.Attestation(self._attested))

    def _head_of(self, step: str, members: PartySet, *false: bytes) -> bytes:
        """Return what is signed of the head as it is now."""
        return self._rules.attestation(step, self._board.head, members.packed, *false)

    def _certified(self, step: str, kind: str, body: bytes, members: PartySet) -> Certificate:
        """Check a quorum's certificate of the head that this party has attested, and follow its entry."""
        message = decode(body, v.Certificate, self._context.aggregator)
        certified = decode(message.payload, v.Certified, self._context.aggregator)
        if certified.members != members.packed:
            raise self._refuse(f"certificate of '{step}' is of another set")
        certificate = check_certificate(
            self._context,
            self._plan.quorum,
            self._run_id,
            step,
            self._attested,
            members,
            m.Certificate(certified.signers, certified.signatures),
        )
        self._follow_relay(kind, message.payload, message.signature)
        return certificate

    def _follow_relay(self, kind: str, payload: bytes, signature: bytes) -> None:
        """Go on to the head after an entry of the relay, which must have signed it."""
        relay = self._context.aggregator
        self._context.check_detached(self._run_id, kind, relay, relay, payload, signature)
        self._board.entry(relay, kind, payload, signature)
