"""The two roles of an exchange. Specification: protocols/exchange/README.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from smpc_dp.crypto import agree
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.crypto.seal import seal, unseal
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.encoding import Lanes
from smpc_dp.errors import Code, PeerFault, TimeoutFault, VerificationError
from smpc_dp.protocols.abort import ABORT, abort_of, code_of
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.exchange import messages as m
from smpc_dp.protocols.exchange.params import ExchangeParameters
from smpc_dp.protocols.result import Certificate, Evidence, Outcome
from smpc_dp.protocols.secagg import keys
from smpc_dp.protocols.secagg.graph import PartySet, pack_set
from smpc_dp.protocols.star import HubRole, PartyRole


@dataclass(frozen=True, slots=True)
class Relayed:
    """What a hub knows in the end: whose vectors it has passed on."""

    survivors: tuple[str, ...]
    absent: tuple[str, ...]
    faults: tuple[str, ...]


def run_identifier(context: Context, question: str, present: bytes, nonces: bytes) -> bytes:
    """Return the run id: a digest of session, request, question, who is present, and all nonces."""
    return digest(
        Label.EXCHANGE_RUN_ID,
        *context.bound,
        context.session_digest,
        encode_uint(context.request),
        question.encode(),
        present,
        nonces,
    )


class ExchangeParty(PartyRole[Outcome]):
    """One user in one exchange; arguments as of `PartyMachine`.

    It ends with the sum of its own vector and of those that it was sent; `received` has each by itself. When
    every user sends to all others, that is the sum of all who have sent.
    """

    _last_step = m.SEND
    release_step = m.START

    def __init__(
        self,
        context: Context,
        parameters: ExchangeParameters,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
    ) -> None:
        parameters.check_lanes(identity.name, lanes)
        super().__init__(context, identity)
        self._parameters = parameters
        self._random = randomness or SystemRandomness()
        self._lanes: Lanes = lanes.copy()
        self.received: dict[str, Lanes] = {}
        self._keys: dict[int, bytes] = {}
        self._handlers = {m.START: self._on_start, m.DELIVER: self._on_deliver}

    def start(self) -> Sequence[Envelope]:
        """Say hello with a fresh nonce and a fresh key."""
        self._nonce, self._secret = self._random.bytes(32), self._random.bytes(32)
        context = self._context
        return self._emit(
            m.HELLO,
            m.Hello(
                context.session_digest,
                context.request,
                context.question,
                self._nonce,
                agree.public_key(self._secret),
            ),
        )

    def _end(self) -> None:
        super()._end()
        self._secret = b""

    def _set(self, packed: bytes) -> PartySet:
        members = PartySet.unpack(packed, self._parties, self._context.aggregator)
        if self._index not in members:
            raise self._refuse(f"left {self.name} out")
        if len(members) < (least := self._parameters.plan.min_survivors):
            raise self._refuse(f"says that {len(members)} users are there, {least} are needed")
        return members

    def _on_start(self, body: bytes) -> Sequence[Envelope]:
        start = decode(body, m.Start, self._context.aggregator)
        present = self._set(start.present)
        if len(start.nonces) != 32 * len(present):
            raise self._refuse("does not have one nonce for each present user")
        place = 32 * present.place(self._index)
        if start.nonces[place : place + 32] != self._nonce:
            raise self._refuse(f"does not have the nonce of {self.name}")
        sends, hears = self._parameters.receivers(self._index), self._parameters.senders(self._index)
        due = [number for number in sorted(sends | hears) if number in present]
        if [number for number, _, _ in start.hellos] != due:
            raise self._refuse("does not have the hellos of exactly those who are met and present")
        self._present = present
        self._run_id = run_identifier(self._context, self._context.question, start.present, start.nonces)
        for number, content, signature in start.hellos:
            at = 32 * present.place(number)
            self._keys[number] = self._key(number, content, signature, start.nonces[at : at + 32])
        if not self._parameters.apart:
            self._parameters.add_noise(self._lanes, self._random)
        boxes = [(number, self._box(number)) for number in due if number in sends]
        return self._emit(m.SEND, m.Send(boxes))

    def _box(self, number: int) -> bytes:
        parameters = self._parameters
        packed = parameters.encoding.pack(self._lanes[number - 1] if parameters.apart else self._lanes)
        return seal(self._seal_key(number, True), packed, self._aad(number, True), self._random)

    def _key(self, number: int, content: bytes, signature: bytes, nonce: bytes) -> bytes:
        """Return the sealing key of another user, from a hello that it has signed for this request."""
        name, context = self._name_of(number), self._context
        context.check_detached(context.session_digest, m.HELLO, name, context.aggregator, content, signature)
        hello = decode(content, m.Hello, name)
        given = (hello.session_digest, hello.request, hello.question, hello.nonce)
        if given != (context.session_digest, context.request, context.question, nonce):
            raise PeerFault(name, "its hello is for another session, request or question")
        return hello.key

    def _on_deliver(self, body: bytes) -> Sequence[Envelope]:
        deliver = decode(body, m.Deliver, self._context.aggregator)
        senders = self._set(deliver.senders)
        if not senders <= self._present:
            raise self._refuse("delivers for users that were not present")
        hears = self._parameters.senders(self._index)
        due = [number for number in sorted(hears) if number in senders]
        if [number for number, _ in deliver.boxes] != due:
            raise self._refuse("does not deliver exactly the boxes of those who have sent")
        for number, box in deliver.boxes:
            name = self._name_of(number)
            try:
                packed = unseal(self._seal_key(number, False), box, self._aad(number, False))
                lanes = self._parameters.encoding.unpack(packed)
            except (VerificationError, ValueError) as error:
                what = f"its vector cannot be read, or {self._context.aggregator} has changed it: {error}"
                raise PeerFault(name, what) from None
            try:
                # By itself: in a sum nobody would know whose it was.
                self._parameters.check_vector(lanes)
            except VerificationError as error:
                raise PeerFault(name, f"its vector is out of bounds: {error}") from None
            self.received[name] = lanes
        if self._parameters.edges is not None and len(due) < len(hears):
            missing = [self._name_of(number) for number in hears if number not in senders]
            raise TimeoutFault(missing, m.DELIVER, "have not sent")
        own = self._lanes[self._index - 1] if self._parameters.apart else self._lanes
        total = sum(self.received.values(), own)
        self._outcome = self._ended(np.asarray(total, dtype=self._parameters.encoding.dtype), senders)
        self._over = True
        self._secret = b""
        return ()

    def _ended(self, total: Lanes, senders: PartySet) -> Outcome:
        parameters, context = self._parameters, self._context
        count = 1 + len(self.received)
        grid, weight = parameters.decode(total, count)
        mine = {self._index} | {context.number(name) for name in self.received}
        split = [place in mine for place in range(1, self._parties + 1)]
        return Outcome(
            total=grid,
            weight=weight,
            encoding=parameters.encoding,
            survivors=tuple(name for name, there in zip(context.names, split, strict=True) if there),
            absent=tuple(name for name, there in zip(context.names, split, strict=True) if not there),
            faults=(),
            privacy=parameters.privacy(count),
            noise=parameters.noise(count, 0),
            evidence=Evidence(
                protocol=context.protocol,
                version=context.version,
                session_digest=context.session_digest,
                run_id=self._run_id,
                roll=b"",
                participating=tuple(self._name_of(number) for number in senders),
                participants=Certificate(b"", {}),
                survivors=None,
            ),
        )

    def _seal_key(self, number: int, sending: bool) -> bytes:
        sender, receiver = self._ends(number, sending)
        peer = self._name_of(number)
        return keys.seal_key(
            self._context, self._run_id, self._secret, peer, self._keys[number], sender, receiver
        )

    def _aad(self, number: int, sending: bool) -> bytes:
        return keys.seal_context(self._context, self._run_id, *self._ends(number, sending))

    def _ends(self, number: int, sending: bool) -> tuple[str, str]:
        peer = self._name_of(number)
        return (self.name, peer) if sending else (peer, self.name)


class ExchangeHub(HubRole[Relayed]):
    """The hub: it passes on hellos and boxes, and can open none."""

    def __init__(self, context: Context, parameters: ExchangeParameters, identity: Signer) -> None:
        super().__init__(context, identity)
        self._parameters = parameters
        self._hellos: dict[int, Envelope] = {}
        self._said: dict[int, m.Hello] = {}
        self._boxes: dict[int, dict[int, bytes]] = {}
        self._present: frozenset[int] = frozenset()
        self._steps = {
            m.HELLO: (self._on_hello, self._start),
            m.SEND: (self._on_send, self._deliver),
        }

    def _needed(self) -> int:
        return max(1, self._parameters.plan.min_survivors)

    def _on_hello(self, party: int, envelope: Envelope) -> None:
        hello = decode(envelope.body, m.Hello, envelope.sender)
        context = self._context
        if (hello.session_digest, hello.request) != (context.session_digest, context.request):
            raise PeerFault(envelope.sender, "its hello is for another session or request")
        try:
            agree.check_public_key(hello.key)
        except VerificationError as error:
            raise PeerFault(envelope.sender, str(error)) from None
        self._hellos[party], self._said[party] = envelope, hello

    def _start(self) -> list[Envelope]:
        asked = Counter(self._said[party].question for party in self._alive)
        question = min(asked, key=lambda text: (-asked[text], text))
        for party in sorted(self._alive):
            if (theirs := self._said[party].question) != question:
                asks = f"asks {theirs!r}, the others ask {question!r}"
                self._drop(party, PeerFault(self._name_of(party), asks, code=Code.QUESTION))
        if len(self._alive) < self._needed():
            raise self._too_few(self._needed())
        packed = pack_set(self._alive, self._parties)
        nonces = b"".join(self._said[party].nonce for party in sorted(self._alive))
        self._run_id = run_identifier(self._context, question, packed, nonces)
        self._present = frozenset(self._alive)
        return self._to_each(m.START, lambda party: m.Start(packed, nonces, self._met(party)))

    def _met(self, party: int) -> list[tuple[int, bytes, bytes]]:
        met = self._parameters.receivers(party) | self._parameters.senders(party)
        return [
            (number, self._hellos[number].body, self._hellos[number].signature)
            for number in sorted(met & self._alive)
        ]

    def _on_send(self, party: int, envelope: Envelope) -> None:
        boxes = decode(envelope.body, m.Send, envelope.sender).boxes
        numbers = [number for number, _ in boxes]
        # A box kept back would look to its receiver as if the hub had dropped it.
        if numbers != sorted(self._parameters.receivers(party) & self._present):
            raise PeerFault(envelope.sender, "does not send to exactly the present users that it should")
        self._boxes[party] = dict(boxes)

    def _deliver(self) -> list[Envelope]:
        sent = self._alive & self._boxes.keys()
        packed = pack_set(sent, self._parties)
        present = tuple(self._name_of(party) for party in sorted(sent))
        self._outcome = Relayed(
            present,
            tuple(name for name in self._context.names if name not in present),
            tuple(self._faults),
        )
        without: list[Envelope] = []
        if self._parameters.edges is not None:
            for party in sorted(self._alive):
                if lacking := sorted(self._parameters.senders(party) - sent):
                    without += self._go_without(party, lacking)
                    self._alive.discard(party)
        return [*without, *self._to_each(m.DELIVER, lambda party: m.Deliver(packed, self._for(party, sent)))]

    def _go_without(self, party: int, lacking: list[int]) -> list[Envelope]:
        """Tell a user whose messages are not all there whose are not, and why as far as it is known."""
        names = {number: self._name_of(number) for number in lacking}
        excluded = self._excluded.keys() & names.keys()
        why = {names[number]: code_of(self._excluded[number], names[number]) for number in excluded}
        late = TimeoutFault(names.values(), m.DELIVER, why=why)
        return self._write(ABORT, (self._name_of(party),), abort_of(late))

    def _for(self, party: int, sent: Collection[int]) -> list[tuple[int, bytes]]:
        return [
            (number, self._boxes[number][party])
            for number in sorted(self._parameters.senders(party))
            if number in sent and party in self._boxes[number]
        ]
