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
    """Interface of a first message to an aggregator or server: session, request number and operation."""

    @property
    def session_digest(self) -> bytes:
        """The hash of the session file of the party."""

    @property
    def request(self) -> int:
        """The number of the request that the party asks for."""

    @property
    def operation(self) -> str:
        """Text that says what the request computes."""


class HelloKind(NamedTuple):
    """Step and message type of the first messages that one kind of aggregator or server expects."""

    step: str
    body: type[RequestHello]


# To the aggregator of sums, or to all other parties where there is none.
SUM_HELLO = HelloKind(HELLO, Hello)


class Asked(Body, frozen=True):
    """Message to a party that asks for another request than most: signed hellos of those others.

    A hello is its party's number, body and signature, in roster order. `next` is the earliest request that
    the receiver can join: that of the hellos, or the one after it.
    """

    next: _Number
    step: str
    hellos: list[tuple[int, bytes, _Signature]]


def needed_signers(parameters: Tolerant) -> int:
    """Return how many parties' signed hellos are needed to show what most ask for; at least 2.

    It is never one alone, and at most as many as a request has.
    """
    parties, lost, corrupt = parameters.tolerated
    return max(2, min(corrupt + 1, parties // 2 + 1, parties - lost))


@dataclass(slots=True)
class _Requested:
    """Stored hello of one party with its operation, and whether its signature was found valid."""

    hello: Envelope
    operation: str
    signed: bool | None = None


class Hellos:
    """Collection of the parties' first hellos for one request, which shows what most of them ask for.

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
        """Store a party's first hello; ignore any other message, and later hellos."""
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
        """Delete the hello of a party that does not ask any more."""
        if (dropped := self._requests.pop(party, None)) is not None:
            self._counts -= Counter([dropped.operation])

    @property
    def is_divided(self) -> bool:
        """Whether parties ask for different operations, but more than half for a single one."""
        return len(self._counts) > 1 and max(self._counts.values()) > len(self.context.names) // 2

    def counts(self) -> Counter[str]:
        """Return how many parties ask for each operation; where they differ, only signed hellos count."""
        if len(self._counts) < 2:
            return self._counts
        return Counter(one.operation for one in self._requests.values() if self._is_signed(one))

    @property
    def most(self) -> str:
        """The operation that most parties ask for, the alphabetically first of equals; "" without hellos."""
        counts = self.counts()
        return min(counts, key=lambda text: (-counts[text], text), default="")

    def others(self, operation: str, names: Collection[str] | None = None) -> list[str]:
        """Return the parties (of `names`, if given) that ask for another operation than this one."""
        requests = self._requests
        asked = requests if names is None else requests.keys() & set(names)
        return [name for name in asked if requests[name].operation != operation]

    def shown(self, party: str = "") -> list[Envelope]:
        """Return as many signed hellos as show what most parties ask for; an empty list if too few.

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
        """Return whether a stored hello's signature is valid; verified once, then remembered."""
        if one.signed is None:
            one.signed = True
            try:
                self.context.check(one.hello)
            except PeerFault:
                one.signed = False
        return one.signed


class AskedRequests:
    """Record, at an aggregator or server, of who asks for what; answers those that ask for something else.

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
        """Begin to collect hellos for a new request; those of the last one are kept for answers."""
        self._last = self._current or self._last
        needed, name = needed_signers(parameters), self._identity.name
        self._current = None if context.grouped else Hellos(context, needed, self._kind, name)
        self._most = None

    def drop(self) -> None:
        """Forget the hellos of the current request."""
        self._current = None

    def add(self, envelope: Envelope | None) -> None:
        """Store a party's hello for the current request; do nothing for None, or in a group's request."""
        if self._current is not None and envelope is not None:
            self._current.add(envelope)

    def forget(self, party: str) -> None:
        """Forget the hello of a party that has stopped asking for the current request."""
        if self._current is not None:
            self._current.forget(party)

    def hear(self, drive: Drive, inbound: InboundEvent, ignored: Collection[str] = ()) -> None:
        """Store a hello, and send each party that asks for something else what most others ask for.

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
        """Return the parties to be told now what more than half ask for, and remember that.

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
        """Return the message that shows a party which request it can join; an empty list if unknown.

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
    """A party's own request, to compare with what other parties ask for: operation, label and number.

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
        """Return a party's request to be compared with others'; None without a label."""
        if label is None:
            return None
        return cls(member.context(number, operation), needed_signers(member.parameters), label, kind)

    def error(self, party: str, number: int, operation: str | None, following: int) -> OtherRequestError:
        """Return the error that tells the caller that most parties ask for another request."""
        label = None if operation is None else self.label_of(operation)
        return OtherRequestError(party, self.context.request, self.label, number, label, following)

    def label_of(self, operation: str) -> str | None:
        """Return the label in another party's operation if only the label differs; else None."""
        kind, _, rest = self.context.operation.partition(" ")
        rest = rest.removeprefix(self.label).strip()
        others, _, text = operation.partition(" ")
        if others != kind or (rest and not f" {text}".endswith(f" {rest}")):
            return None
        return text.removesuffix(rest).strip()

    def shown_error(self, party: str, envelope: Envelope) -> OtherRequestError | None:
        """Check others' hellos that are shown; return the error if label or number differ, else None.

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
