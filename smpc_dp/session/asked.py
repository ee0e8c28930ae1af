"""The request that most others ask for, shown to a party that asks for another one.

Nobody takes one member's word for it: an aggregator or a server shows hellos that more parties have signed
than may lie. Specification: protocols/secagg/README.md, "Another request".
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta

from smpc_dp.engine.phases.messages import HELLO, Hello
from smpc_dp.errors import Check, Code, OtherRequestError, PeerFault, TimeoutFault
from smpc_dp.session.askers import Tolerant
from smpc_dp.session.connection_pool import SMALL_MESSAGE, InboundEvent
from smpc_dp.session.driver import Drive
from smpc_dp.session.member import Membership
from smpc_dp.wire.abort import TEXTS
from smpc_dp.wire.envelope import Body, Envelope
from smpc_dp.wire.signing import Context, Signer, decode

ASKED = "asked"

_Number = Annotated[int, Meta(ge=1, lt=1 << 31)]
_Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]


class RequestHello(Protocol):
    """What every hello that is shown says: the request of a session, and what its party asks for in it."""

    @property
    def session_digest(self) -> bytes: ...

    @property
    def request(self) -> int: ...

    @property
    def operation(self) -> str: ...


class HelloKind(NamedTuple):
    """The step and the body of hellos to a collector of one kind."""

    step: str
    body: type[RequestHello]


# To the aggregator of sums, or to all other parties where there is none.
SUM_HELLO = HelloKind(HELLO, Hello)


class Asked(Body, frozen=True):
    """Aggregator or server: hellos of one request, which ask for the operation of most parties.

    A hello is its party's number, body and signature, in roster order. `next` is the earliest request that
    the receiver can join: that of the hellos, or the one after it.
    """

    next: _Number
    step: str
    hellos: list[tuple[int, bytes, _Signature]]


def needed_signers(parameters: Tolerant) -> int:
    """Return the number of parties that show what most ask for: more than may lie, or more than half.

    It is never one alone, and at most as many as a request has.
    """
    parties, lost, corrupt = parameters.tolerated
    return max(2, min(corrupt + 1, parties // 2 + 1, parties - lost))


@dataclass(slots=True)
class _Requested:
    """A party's hello, its operation, and whether its signature is valid; None: it was not checked."""

    hello: Envelope
    operation: str
    signed: bool | None = None


class Hellos:
    """Hellos of one request for a sum, the first of each party.

    Each is what its party has signed for this request and receiver: what another member finds wrong in one
    that is shown counts against who shows it.
    """

    def __init__(self, context: Context, needed: int, kind: HelloKind, receiver: str) -> None:
        """`needed`: of `needed_signers`; `kind`, `receiver`: of the hellos."""
        self.context = context
        self._needed = needed
        self._body = kind.body
        self._addressed = (kind.step, receiver, context.session_digest)
        self._requests: dict[str, _Requested] = {}
        # By operation, how many ask for it, whether their signatures are valid or not.
        self._counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, envelope: Envelope) -> None:
        """Store a party's first hello; nothing of another message, or of a hello with a circuit."""
        context, sender = self.context, envelope.sender
        if (envelope.step, envelope.receiver, envelope.run_id) != self._addressed:
            return
        if len(envelope.body) > SMALL_MESSAGE or sender not in context.names or sender in self._requests:
            return
        with contextlib.suppress(PeerFault):
            hello = decode(envelope.body, self._body, sender)
            if (hello.session_digest, hello.request) == (context.session_digest, context.request):
                self._requests[sender] = _Requested(envelope, hello.operation)
                self._counts[hello.operation] += 1

    def forget(self, party: str) -> None:
        """Drop the hello of a party that asks no more."""
        if (dropped := self._requests.pop(party, None)) is not None:
            self._counts -= Counter([dropped.operation])

    @property
    def is_divided(self) -> bool:
        """Whether parties ask for different operations, and more than half of all seem to ask for one."""
        return len(self._counts) > 1 and max(self._counts.values()) > len(self.context.names) // 2

    def counts(self) -> Counter[str]:
        """Return how many parties ask for each operation; where they differ, by valid signatures."""
        if len(self._counts) < 2:
            return self._counts
        return Counter(one.operation for one in self._requests.values() if self._is_signed(one))

    @property
    def most(self) -> str:
        """The operation of most parties; of equally frequent ones the first in alphabetical order."""
        counts = self.counts()
        return min(counts, key=lambda text: (-counts[text], text), default="")

    def others(self, operation: str, names: Collection[str] | None = None) -> list[str]:
        """Return the parties, of `names` or of all, that ask for another operation."""
        requests = self._requests
        asked = requests if names is None else requests.keys() & set(names)
        return [name for name in asked if requests[name].operation != operation]

    def shown(self, party: str = "") -> list[Envelope]:
        """Return signed hellos with the operation of most, as many as are needed, or none.

        `party`: to whom they are shown; its own is none of them.
        """
        operation, result = self.most, list[Envelope]()
        for name in self.context.names:
            one = self._requests.get(name)
            if name == party or one is None:
                continue
            if one.operation == operation and self._is_signed(one):
                result.append(one.hello)
                if len(result) == self._needed:
                    return result
        return []

    def _is_signed(self, one: _Requested) -> bool:
        if one.signed is None:
            one.signed = True
            try:
                self.context.check(one.hello)
            except PeerFault:
                one.signed = False
        return one.signed


class AskedRequests:
    """Hellos of the current request and the last one, and the answers to parties that ask for others.

    Requests of groups and of statistics have none.
    """

    def __init__(self, identity: Signer, kind: HelloKind) -> None:
        """`identity`: of the collector; `kind`: of the hellos to it."""
        self._identity = identity
        self._kind = kind
        self._current: Hellos | None = None
        self._last: Hellos | None = None
        # The operation of more than half of all parties of the current request, if they do not ask the same.
        self._most: str | None = None

    def begin(self, context: Context, parameters: Tolerant) -> None:
        """Begin a request."""
        self._last = self._current or self._last
        needed, name = needed_signers(parameters), self._identity.name
        self._current = None if context.grouped else Hellos(context, needed, self._kind, name)
        self._most = None

    def drop(self) -> None:
        """Store nothing of the current request: it is for a statistic."""
        self._current = None

    def add(self, envelope: Envelope | None) -> None:
        """Store a hello of the current request."""
        if self._current is not None and envelope is not None:
            self._current.add(envelope)

    def forget(self, party: str) -> None:
        """Drop the hello of a party that asks no more, before the request is open."""
        if self._current is not None:
            self._current.forget(party)

    def hear(self, drive: Drive, inbound: InboundEvent, ignored: Collection[str] = ()) -> None:
        """Store a hello, and show what most others ask for to each party that asks for something else.

        That is a hello of an earlier request, one that comes too late for the current request, and one of
        another operation than more than half of all parties'. `ignored`: excluded parties.
        """
        envelope, peer, number = inbound.envelope, inbound.peer, drive.request
        if (
            envelope is None
            or envelope.step != self._kind.step
            or peer in ignored
            or inbound.request > number
        ):
            return
        joins = drive.run.step == envelope.step and peer in drive.run.waiting_for
        if inbound.request < number or not joins:
            drive.connections.send(inbound.request, self.answer(peer, number + (not joins)))
            return
        self.add(envelope)
        for name in self._differing(peer):
            drive.connections.send(number, self.answer(name, number + 1))

    def _differing(self, newest: str) -> list[str]:
        """Return the parties, each once, that ask for another operation than more than half of all.

        `newest`: whose hello came last.
        """
        current = self._current
        if current is None:
            return []
        if self._most is not None:
            return current.others(self._most, [newest])
        if not current.is_divided:
            return []
        most = current.most
        if current.counts()[most] <= len(current.context.names) // 2 or not current.shown():
            return []
        self._most = most
        return current.others(most)

    def answer(self, party: str, following: int) -> list[Envelope]:
        """Return what shows a party that the earliest request that it can join is `following`.

        Nothing where no request next to it was asked for by enough parties.
        """
        for hellos in (self._current, self._last):
            if hellos is None or following - hellos.context.request not in (0, 1):
                continue
            context = hellos.context
            if shown := hellos.shown(party):
                listed = [(context.number(one.sender), one.body, one.signature) for one in shown]
                message = Asked(following, shown[0].step, listed)
                return context.write(self._identity, context.session_digest, ASKED, (party,), message)
        return []


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """A party's own request, which others may not ask for.

    Attributes:
        context: that of the request, with the operation.
        needed: of `needed_signers`.
        label: the label in the operation, after its first word.
        kind: of its hello and those of others.
    """

    context: Context
    needed: int
    label: str
    kind: HelloKind = SUM_HELLO

    @classmethod
    def of(
        cls,
        member: Membership,
        number: int,
        operation: str,
        label: str | None,
        kind: HelloKind = SUM_HELLO,
    ) -> OwnRequest | None:
        """Return a party's request; None without a label: a plan numbers it."""
        if label is None:
            return None
        return cls(member.context(number, operation), needed_signers(member.parameters), label, kind)

    def error(self, party: str, number: int, operation: str | None, following: int) -> OtherRequestError:
        """Return the error of a party, given number and operation of most others; None: it is not known."""
        label = None if operation is None else self.label_of(operation)
        return OtherRequestError(party, self.context.request, self.label, number, label, following)

    def label_of(self, operation: str) -> str | None:
        """Return the label of an operation that differs from this one in its label alone, else None."""
        kind, _, rest = self.context.operation.partition(" ")
        rest = rest.removeprefix(self.label).strip()
        others, _, text = operation.partition(" ")
        if others != kind or (rest and not f" {text}".endswith(f" {rest}")):
            return None
        return text.removesuffix(rest).strip()

    def shown_error(self, party: str, envelope: Envelope) -> OtherRequestError | None:
        """Return the error that `Asked` shows; None if most others ask for another operation in this request.

        Raises PeerFault naming its sender, which has signed it, if it shows nothing; TimeoutFault if it
        shows the party's own request: that this has begun is the sender's word alone.
        """
        context, sender = self.context, envelope.sender
        context.check(envelope)
        asked = decode(envelope.body, Asked, sender)
        names = [
            context.names[number - 1] for number, _, _ in asked.hellos if 0 < number <= len(context.names)
        ]
        if (
            asked.step != self.kind.step
            or len(names) < len(asked.hellos)
            or len(set(names) - {party}) < max(self.needed, len(names))
        ):
            reason = f"shows no hellos of {self.needed} other parties"
            raise PeerFault(sender, reason, Check.NOT_SHOWN)
        digest, requests = context.session_digest, set()
        for name, (_, body, signature) in zip(names, asked.hellos, strict=True):
            try:
                context.check(Envelope(digest, asked.step, name, sender, body, signature))
                hello = decode(body, self.kind.body, name)
            except PeerFault as fault:
                raise PeerFault(sender, f"shows what is no hello: {fault}", Check.NOT_SIGNED) from None
            requests.add((hello.session_digest, hello.request, hello.operation))
        if len(requests) > 1:
            raise PeerFault(sender, "shows hellos of different requests", Check.SET_DIFFERS)
        [(session, number, operation)] = requests
        own = context.request
        if session != digest or not own <= number <= asked.next <= number + 1 or asked.next <= own:
            raise PeerFault(sender, "shows hellos of no later request", Check.OTHER_REQUEST)
        if (number, operation) == (own, context.operation):
            reason = f"{TEXTS[Code.BEGUN]}, it can ask for request {asked.next}; said by {sender}"
            raise TimeoutFault({party}, asked.step, reason, code=Code.BEGUN, number=asked.next)
        if number == own and self.label_of(operation) is None:
            return None
        return self.error(party, number, operation, asked.next)
