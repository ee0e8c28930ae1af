"""The application hello: after TLS, before any data, both ends agree on their names and on the session.

Under TLS 1.3 a client finishes its handshake before the server has checked its certificate. So the client
greets, and has a channel only once it is welcomed. Two members with differing session files refuse each
other; each describes its session to the other, so that both can name the differences. A client that inquires
in the place of its greeting is told the verdict and the listener's clock, and has no channel.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta

from smpc_dp.decoding import Buffer
from smpc_dp.errors import Check, ConfigCheck, ConfigError, ConfigIssue, PeerFault, SmpcError
from smpc_dp.identity.roster import Member
from smpc_dp.transport.difference import COMPARE_SECONDS, MAX_DESCRIPTION, DescribedSession

PROTOCOL = "smpc-dp"
VERSION = 3
MAX_GREETING = 4096
# The end of the year 9999, in milliseconds since 1970.
MAX_CLOCK = 253_402_300_799_999

Reason = Literal["protocol", "name", "addressee", "session", "busy", "twice"]
DuplicateCheck = Callable[[], Awaitable[Reason | None]]

_WORDS: dict[Reason, str] = {
    "protocol": "it speaks another protocol or version",
    "name": "our certificate is another member's",
    "addressee": "it is not the one whom we want to reach",
    "session": "its session file differs from ours",
    "busy": "it has another connection in our name, and looks after it",
    "twice": "this key is used twice: another process has a live connection in our name",
}

# The same, as the listener reports it on its own side.
_DUPLICATES: dict[Reason, str] = {
    "busy": "opened a second connection while the first one is looked after",
    "twice": "this key is used twice: it opened a second connection while the first one is live",
}

T = TypeVar("T")


class Busy(SmpcError):
    """Error: the peer cannot accept a connection now, but may do so later."""


class InquiredError(SmpcError):
    """Error for the server: the client only asked whether it would be welcome, and gets no channel."""


class HelloChannel(Protocol):
    """Interface of a channel for the handshake: sends and receives short messages in turn."""

    max_message: int

    @property
    def peer(self) -> str:
        """Name of the member at the other end."""

    async def send(self, *buffers: bytes) -> None:
        """Send one message, made of these buffers in order."""

    async def receive(self) -> Buffer:
        """Wait for and return the next message; raise an error if the peer has gone."""

    async def aside(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, without stopping other channels meanwhile."""


class Greeting(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="greeting"):
    """Message of a client that opens a channel: caller, callee, and the digest of its session."""

    protocol: str
    version: int
    name: str
    to: str
    session_digest: bytes


class Inquiry(Greeting, frozen=True, array_like=True, forbid_unknown_fields=True, tag="inquiry"):
    """Message of a client that only asks if a greeting would be welcome; it opens no channel."""


class Welcome(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="welcome"):
    """Message of the server to the client: the channel is open."""

    name: str
    session_digest: bytes


class Refusal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="refusal"):
    """Message of the server to the client: no channel, why, and its session if sessions differ."""

    reason: Reason
    session: bytes


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="answer"):
    """Message of the server in answer to an inquiry: its session digest, its clock, and if connected.

    `clock`: the server's, in milliseconds since 1970, UTC; `is_connected`: whether another connection of the
    client is live. If the digests differ a `Refusal` follows.
    """

    name: str
    session_digest: bytes
    clock: Annotated[int, Meta(ge=0, le=MAX_CLOCK)]
    is_connected: bool


class OwnSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="session"):
    """Message of the client after a refusal: describes its session, to find the difference."""

    session: bytes


_FIRST: msgspec.msgpack.Decoder[Greeting | Inquiry] = msgspec.msgpack.Decoder(Greeting | Inquiry)
_VERDICT: msgspec.msgpack.Decoder[Welcome | Refusal] = msgspec.msgpack.Decoder(Welcome | Refusal)
_ANSWER: msgspec.msgpack.Decoder[Answer | Refusal] = msgspec.msgpack.Decoder(Answer | Refusal)
_REFUSAL = msgspec.msgpack.Decoder(Refusal)
_OWN_SESSION = msgspec.msgpack.Decoder(OwnSession)


async def greet(channel: HelloChannel, name: str, session: DescribedSession) -> None:
    """Run the client's side of the handshake; return when welcomed, raise an error if refused.

    Raises ConfigError that names the differences of the sessions, Busy when a later attempt may succeed,
    PeerFault when the peer refuses otherwise or breaks the hello, and the errors of `Channel.send` and
    `Channel.receive`.
    """
    peer = channel.peer
    channel.max_message = MAX_DESCRIPTION + MAX_GREETING
    await _send(channel, Greeting(PROTOCOL, VERSION, name, peer, session.digest))
    answer = _decode(await channel.receive(), _VERDICT, peer)
    if isinstance(answer, Refusal):
        if answer.reason == "busy":
            raise Busy(f"{peer}: {_WORDS['busy']}")
        raise await _refused(channel, name, session, answer)
    if answer.name != peer or not hmac.compare_digest(answer.session_digest, session.digest):
        raise PeerFault(
            peer, f"welcomes us as '{answer.name}', or to another session than ours", Check.BAD_HELLO
        )


async def inquire(
    channel: HelloChannel, name: str, session: DescribedSession
) -> tuple[Answer, SmpcError | None]:
    """Ask a member if a greeting would be welcome; return (answer, error if sessions differ, else None).

    Errors otherwise as of `greet`.
    """
    peer = channel.peer
    channel.max_message = MAX_DESCRIPTION + MAX_GREETING
    await _send(channel, Inquiry(PROTOCOL, VERSION, name, peer, session.digest))
    answer = _decode(await channel.receive(), _ANSWER, peer)
    if isinstance(answer, Refusal):
        raise await _refused(channel, name, session, answer)
    if answer.name != peer:
        raise PeerFault(peer, f"answers as '{answer.name}'", Check.BAD_HELLO)
    if hmac.compare_digest(answer.session_digest, session.digest):
        return answer, None
    refusal = _decode(await channel.receive(), _REFUSAL, peer)
    return answer, await _refused(channel, name, session, refusal)


async def answer_greeting(
    channel: HelloChannel,
    own: Member,
    duplicate: DuplicateCheck,
    session: DescribedSession,
    *,
    is_connected: bool = False,
) -> SmpcError | None:
    """Run the server's handshake up to its decision; return None if the client is welcome, else the error.

    `channel.peer` is the member whose certificate the client has shown; `duplicate` is called last and
    returns the reason, if any, against a channel beside another one in the client's name; `is_connected`:
    whether there is such a channel. Returns the error when the client has been refused, or has only inquired
    (`InquiredError`), and raises the errors of `Channel.send` and `receive`.
    """
    peer = channel.peer
    channel.max_message = MAX_GREETING
    greeting = _decode(await channel.receive(), _FIRST, peer)
    channel.max_message = MAX_DESCRIPTION + MAX_GREETING
    reason, detail, check = _verdict(greeting, own, peer)
    if reason is None and isinstance(greeting, Inquiry):
        await _send(channel, Answer(own.name, session.digest, round(1000 * time.time()), is_connected))
    if reason is None and not hmac.compare_digest(greeting.session_digest, session.digest):
        await _send(channel, Refusal("session", await channel.aside(session.description)))
        if session.admits(peer):
            theirs = _decode(await channel.receive(), _OWN_SESSION, peer).session
            session.errors[peer] = await channel.aside(lambda: _differing(peer, session, theirs))
        return session.errors.get(peer) or _not_compared(peer)
    if reason is None and isinstance(greeting, Inquiry):
        return InquiredError(f"{peer}: inquires")
    if reason is None and (reason := await duplicate()) is not None:
        detail, check = _DUPLICATES[reason], Check.SECOND_CONNECTION
    if reason is not None:
        await _send(channel, Refusal(reason, b""))
        return PeerFault(peer, detail, check)
    return None


async def welcome(channel: HelloChannel, own: Member, session_digest: bytes) -> None:
    """Send the client the message that its channel is open."""
    await _send(channel, Welcome(own.name, session_digest))


def _verdict(greeting: Greeting, own: Member, peer: str) -> tuple[Reason | None, str, Check]:
    """Decide on a greeting: return the reason to refuse it (or None), a text and the failed check."""
    if (greeting.protocol, greeting.version) != (PROTOCOL, VERSION):
        spoken = f"{greeting.protocol[:40]!r} version {greeting.version}"
        return "protocol", f"speaks {spoken}, not {PROTOCOL} version {VERSION}", Check.UNKNOWN_FORMAT
    if greeting.name != peer:
        reason = f"claims to be {greeting.name[:63]!r} with the certificate of '{peer}'"
        return "name", reason, Check.BAD_HELLO
    if peer == own.name and not isinstance(greeting, Inquiry):
        return (
            "name",
            "calls us with our own certificate: two processes act for one member, or its key has leaked",
            Check.SECOND_CONNECTION,
        )
    if greeting.to != own.name:
        return "addressee", f"wants to reach {greeting.to[:63]!r}, we are '{own.name}'", Check.BAD_HELLO
    return None, "", Check.REFUSED


async def _refused(
    channel: HelloChannel, name: str, session: DescribedSession, refusal: Refusal
) -> SmpcError:
    """Return the client's error for a refusal; if sessions differ, send the own one, name differences."""
    peer, theirs = channel.peer, refusal.session
    if refusal.reason != "session":
        return PeerFault(peer, f"refuses us ({name}): {_WORDS[refusal.reason]}", Check.REFUSED)
    await _send(channel, OwnSession(await channel.aside(session.description)))
    return await channel.aside(lambda: _differing(peer, session, theirs))


def _differing(peer: str, session: DescribedSession, described: bytes) -> SmpcError:
    """Return the error that lists where this session differs from the one the peer describes."""
    try:
        lines = session.difference(described)
    except (ValueError, RecursionError):
        return PeerFault(
            peer, "says that its session differs, and sends no description of it", Check.MALFORMED
        )
    if not lines:
        return PeerFault(peer, "says that its session differs, and describes ours", Check.BAD_HELLO)
    return ConfigError(
        ConfigIssue(f"session file differs from that of '{peer}'", line, ConfigCheck.DIFFERS)
        for line in lines
    )


def _not_compared(peer: str) -> ConfigError:
    """Return the ConfigError for sessions that differ when no comparison was possible."""
    reason = f"our session file differs from that of '{peer}' (compared once in {COMPARE_SECONDS:g} s)"
    return ConfigError(reason, ConfigCheck.DIFFERS)


async def _send(channel: HelloChannel, message: msgspec.Struct) -> None:
    """Encode and send a message of the handshake."""
    await channel.send(msgspec.msgpack.encode(message))


def _decode(content: Buffer, decoder: msgspec.msgpack.Decoder[T], peer: str) -> T:
    """Decode a message of the handshake; raise PeerFault unless it is canonical."""
    try:
        message = decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerFault(peer, f"sent something else than a hello ({error})", Check.MALFORMED) from None
    if msgspec.msgpack.encode(message) != content:
        raise PeerFault(peer, "sent a hello that is not in its one canonical form", Check.NOT_CANONICAL)
    return message
