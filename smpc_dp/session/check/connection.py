"""Lines about the connection to one member: each step of it, up to an answer to an inquiry."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from smpc_dp.errors import Check, ConfigError, PeerFault, SmpcError, VerificationError
from smpc_dp.identity import certificate
from smpc_dp.identity.address import WebAddress, is_web_address, split_address
from smpc_dp.identity.roster import Member
from smpc_dp.session.check.lines import ConnectionCheck, FailedCheck, Line, State, brief
from smpc_dp.session.check.web import WebWay
from smpc_dp.session.session_file import SessionFile
from smpc_dp.transport import handshake
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.endpoint import ATTEMPT_SECONDS, Endpoint
from smpc_dp.transport.inquiry import (
    AddressInfo,
    connect,
    find_addresses,
    secure,
    secure_within,
    shown_certificate,
)
from smpc_dp.transport.listener import HELLO_SECONDS

# Milliseconds by which clocks may differ without a note.
CLOCK_MS = 60_000

_SAME_ROSTER = (
    "Compare the digests that `smpc-dp roster {file}` prints on both hosts, and take the same file on both."
)


@dataclass
class Inquirer:
    """Diagnosis of this member's connection to a peer, step by step, for `smpc-dp check`.

    `file`: the name of the session file in advice.
    """

    endpoint: Endpoint
    session: SessionFile
    peer: Member
    file: str
    address: str | None = None
    _lines: list[Line] = field(default_factory=list)

    async def lines(self) -> list[Line]:
        """Try to connect, and return the result of each step, up to the first that fails."""
        try:
            channel = await self._open()
            try:
                sent = time.time()
                answer, error = await self._inquire(channel)
                received = time.time()
                # What was shown of this session must still reach the peer.
                await channel.close()
            finally:
                channel.abort()
        except FailedCheck as failed:
            self._add(failed.check, "fix", failed.text, failed.todo)
            return self._lines
        self._add("versions", "ok", f"{self._versions} on both sides")
        self._add_digest(answer, error)
        self._add_clock(answer.clock, sent, received)
        if self.peer.name != self.endpoint.identity.name:
            there = "is connected there now" if answer.is_connected else "is not connected there now"
            self._add("connection", "ok", f"'{self.endpoint.identity.name}' {there}")
        return self._lines

    async def _open(self) -> Channel:
        """Return a secured channel before the first message; raise FailedCheck at the step that fails."""
        address = self.address or self.peer.address or ""
        if is_web_address(address):
            return await self._open_web(WebAddress.parse(address))
        host, port = split_address(address)
        addresses = await self._resolve(host, port)
        self._add("name", "ok", f"{host} is {_shown(addresses)}")
        sock = await self._connect(host, port, addresses)
        self._add("tcp", "ok", f"{host}:{port} accepts connections")
        return await self._secure(
            secure(self.endpoint, self.peer.name, sock), partial(shown_certificate, addresses)
        )

    async def _open_web(self, address: WebAddress) -> Channel:
        """Return a secured channel through WebSocket messages; raise FailedCheck at a failing step."""
        way = WebWay(address, self.endpoint)
        stream = await way.open(lambda check, text: self._add(check, "ok", text))
        return await self._secure(secure_within(self.endpoint, self.peer.name, stream), way.shown_certificate)

    def _add(self, check: ConnectionCheck, state: State, text: str, todo: str = "") -> None:
        """Append the result of one step of connecting to the lines to show."""
        self._lines.append(Line(check, state, text, todo, self.peer.name))

    @property
    def _versions(self) -> str:
        """Text of the protocol versions that both ends must have in common."""
        return f"channel {handshake.VERSION}, {self.session.protocol} {self.session.version}"

    async def _resolve(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Look up the network addresses of the peer's host name; raise FailedCheck if that fails."""
        try:
            return await find_addresses(host, port)
        except OSError as error:
            reason = f"no answer in {ATTEMPT_SECONDS:g} s" if error.errno is None else error.strerror
            raise FailedCheck(
                "name",
                f"{host} has no address here ({reason})",
                f"Correct the host in the session file, or have it entered in this network's name service: "
                f"`getent hosts {host}` must print its address.",
            ) from None

    async def _connect(self, host: str, port: int, addresses: Sequence[AddressInfo]) -> socket.socket:
        """Open a TCP connection to the peer; raise FailedCheck if that fails."""
        name, where = self.peer.name, f"{host}:{port}"
        try:
            return await connect(addresses)
        except ConnectionRefusedError:
            command = f"smpc-dp party {self.file} --as {name}"
            command += " --requests 0" if self.peer.role != "party" else ""
            text, todo = (
                f"{where} refuses connections: the host answers, and nothing listens at this port",
                f"Start '{name}' on its host (`{command}`), or correct its address in the session file; "
                "a firewall may also refuse in its name.",
            )
        except TimeoutError as error:
            after = "" if error.errno == errno.ETIMEDOUT else f" in {ATTEMPT_SECONDS:g} s"
            text, todo = (
                f"{where} does not answer{after}",
                f"The host is off, or a firewall drops the packets: have TCP from here to {where} opened in "
                "the firewalls of both networks.",
            )
        except OSError as error:
            text, todo = (
                f"{where} cannot be reached ({error.strerror or error})",
                "Check the network of this host (`ip route`), its VPN if there is one, and the address in "
                "the session file.",
            )
        raise FailedCheck("tcp", text, todo)

    async def _secure(
        self, securing: Awaitable[Channel], shown: Callable[[], Awaitable[bytes | None]]
    ) -> Channel:
        """Set up mutual TLS with the roster's keys; raise FailedCheck if that fails.

        `shown` returns the certificate of whoever answers, for the text of an error.
        """
        name = self.peer.name
        try:
            return await securing
        except PeerFault as error:
            if error.check is not Check.OTHER_MEMBER:
                raise FailedCheck("channel", error.reason, "Report this: another TLS answers.") from None
            text, todo = (
                f"{error.reason} in the place of '{name}'",
                f"Correct the address of '{name}' in the session file, or where its host forwards this port.",
            )
        except ssl.SSLCertVerificationError:
            raise self._stranger(await shown()) from None
        except (ssl.SSLEOFError, ConnectionError):
            text, todo = (
                "the connection ends during the TLS handshake",
                f"Look for what stands before '{name}' (a balancer without its process, a firewall that "
                "inspects TLS): it must pass the bytes on unchanged.",
            )
        except ssl.SSLError as error:
            text, todo = (
                f"no TLS of smpc-dp answers ({(error.reason or str(error)).replace('_', ' ').lower()})",
                f"Another service has this port: correct the address of '{name}' in the session file.",
            )
        except TimeoutError:
            text, todo = (
                f"no TLS answer in {ATTEMPT_SECONDS:g} s",
                f"Another service has this port, or the process of '{name}' has stopped: look at its log.",
            )
        except OSError as error:
            text, todo = f"the connection broke ({error.strerror or error})", "Try again."
        raise FailedCheck("channel", text, todo)

    def _stranger(self, shown: bytes | None) -> FailedCheck:
        """Return the failure that says who answers in the peer's place, by the certificate shown."""
        name = self.peer.name
        member = None if shown is None else self.session.roster.with_certificate(shown)
        if member is not None:
            return FailedCheck(
                "channel",
                f"'{member.name}', key {member.public_key.hex()}, answers in the place of '{name}'",
                f"Correct the address of '{name}' in the session file, or where its host forwards this port.",
            )
        key = None if shown is None else _key_in(shown, name)
        if key is not None:
            return FailedCheck(
                "channel",
                f"'{name}' answers with the key {key.hex()}, not {self.peer.public_key.hex()}",
                f"Ask the owner of '{name}', on a way that you trust, what `smpc-dp keygen {name} --show` "
                "prints there. If it is the key above, all members need a session file with that entry.",
            )
        shows = (
            "no certificate" if shown is None else f"certificate SHA-256 {hashlib.sha256(shown).hexdigest()}"
        )
        if is_web_address(self.address or self.peer.address or ""):
            todo = f"The path leads elsewhere: compare it with the one that '{name}' has in its session file."
        else:
            todo = (
                f"A web server, or a proxy that ends TLS, has this address: the session file must have the "
                f"host and port where '{name}' itself listens."
            )
        return FailedCheck(
            "channel",
            f"someone who is no member of the session answers ({shows})",
            todo,
        )

    async def _inquire(self, channel: Channel) -> tuple[handshake.Answer, SmpcError | None]:
        """Ask the peer for its session; return (answer, error if sessions differ or None), or FailedCheck."""
        name, has_key = self.peer.name, f"'{self.peer.name}' has its key, {brief(self.peer.public_key)}"
        roster = _SAME_ROSTER.format(file=self.file)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                result = await handshake.inquire(
                    channel, self.endpoint.identity.name, self.endpoint.described
                )
            self._add("channel", "ok", has_key)
            return result
        except TimeoutError:
            text, todo = (
                f"no answer in {HELLO_SECONDS:g} s",
                f"The process of '{name}' is stopped or overloaded: look at its log.",
            )
        except ChannelClosed:
            text, todo = (
                f"'{name}' hangs up: its roster has another key of this member, or its release is older",
                f"{roster} `smpc-dp --version` prints the release.",
            )
        except PeerFault as error:
            self._add("channel", "ok", has_key)
            todo = "Install the same release on both hosts: `smpc-dp --version` prints it."
            raise FailedCheck("versions", f"'{name}' {error.reason}", todo) from None
        except SmpcError as error:
            text, todo = str(error), f"Look at the log of '{name}'."
        raise FailedCheck("channel", text, todo)

    def _add_digest(self, answer: handshake.Answer, error: SmpcError | None) -> None:
        """Append the line that says whether both ends have equal session files."""
        if error is None:
            self._add("digest", "ok", f"{brief(self.session.digest)} on both sides")
            return
        issues = [issue.reason for issue in error.issues] if isinstance(error, ConfigError) else [str(error)]
        differences = "; ".join(issues)
        self._add(
            "digest",
            "fix",
            f"{self.session.digest.hex()} here, {answer.session_digest.hex()} there; {differences}",
            "Take the same session file on all hosts: compare what differs with its owner, and replace the "
            "wrong file.",
        )

    def _add_clock(self, theirs: int, sent: float, received: float) -> None:
        """Append the line that says how far the two hosts' clocks differ."""
        ahead = round(500 * (sent + received)) - theirs
        doubt = max(0, round(500 * (received - sent)))
        if abs(ahead) - doubt <= CLOCK_MS:
            self._add("clock", "ok", f"{abs(ahead) / 1000:.1f} s apart (at most {doubt} ms of delay)")
            return
        which = "ahead of" if ahead > 0 else "behind"
        self._add(
            "clock",
            "note",
            f"this host's clock is {_duration(abs(ahead))} {which} that of '{self.peer.name}'",
            "Set the wrong one of the two by NTP (`timedatectl` shows both time and service). Sums do not "
            "depend on it; certificates of proxies and dates in ledgers do.",
        )


def _shown(addresses: Sequence[AddressInfo]) -> str:
    """Return resolved network addresses as text for display."""
    return ", ".join(dict.fromkeys(str(address[4][0]) for address in addresses))


def _duration(milliseconds: int) -> str:
    """Return a time in milliseconds as text with a fitting unit."""
    seconds = milliseconds / 1000
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} seconds"


def _key_in(shown: bytes, name: str) -> bytes | None:
    """Return the public key in a certificate of this project for this name; None for any other."""
    # The head of an Ed25519 public key in DER (RFC 8410).
    head = bytes.fromhex("302a300506032b6570032100")
    key = shown.partition(head)[2][:32]
    try:
        certificate.check(shown, name, key)
    except VerificationError:
        return None
    return key
