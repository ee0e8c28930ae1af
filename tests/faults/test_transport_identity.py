"""Who gets a channel: only the holder of the roster's key, in its own name, in the same session."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import os
import socket
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from smpc_dp.errors import Check, ConfigError, PeerFault, TimeoutFault
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.transport import framing, handshake, tls
from smpc_dp.transport.difference import DescribedSession
from tests.faults.conftest import SESSION, digest_of

if TYPE_CHECKING:
    from tests.faults.conftest import Net


# That of the session in which the fixture's members are.
SESSION_DIGEST = hashlib.sha256(
    b'{"parameters":{"length":10},"protocol":"secagg","version":1}',
).digest()


async def refused_with(net: Net, endpoint: object, reason: str) -> None:
    """Dial a listener that knows nobody of this kind: it sees a PeerFault, the dialler that it hangs up."""
    server = await net.listen()
    with pytest.raises(TimeoutFault, match="hangs up before the hello") as caught:
        await net.dial(endpoint, server.address)  # type: ignore[arg-type]
    assert caught.value.missing == {"agg"}
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert error.culprit == who
    assert who.startswith("127.0.0.1:")
    assert reason in str(error)
    assert server.channels.empty()


async def test_wrong_key_in_a_known_name(net: Net) -> None:
    other = Identity.generate("alice")
    roster = Roster([other.entry(), *net.members[1:]])
    await refused_with(net, net.endpoint(other, roster=roster), "certificate")


async def test_unknown_key(net: Net) -> None:
    mallory = net.identities["mallory"]
    roster = Roster([mallory.entry(), *net.members])
    await refused_with(net, net.endpoint(mallory, roster=roster), "certificate")


async def test_server_with_an_unknown_key(net: Net) -> None:
    other = Identity.generate("agg")
    roster = Roster([*net.members[:3], other.entry("aggregator", "127.0.0.1:7000")])
    server = await net.listen(net.endpoint(other, roster=roster))
    with pytest.raises(PeerFault, match="is not of a roster's member with an address") as caught:
        await net.dial("alice", server.address)
    assert caught.value.culprit == server.address
    assert server.channels.empty()


def chain_context(net: Net, folder: Path, issuer: str, name: str) -> ssl.SSLContext:
    """Return a client context with a new key, certified as `name` by the roster member `issuer`."""
    key = Ed25519PrivateKey.generate()
    issuer_key = load_pem_private_key(net.identities[issuer].private_key_pem(), None)
    assert isinstance(issuer_key, Ed25519PrivateKey)
    issued = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2021, 1, 1))
        .not_valid_after(datetime.datetime(2099, 1, 1))
        .sign(issuer_key, None)
    )
    holder = Identity.from_seed(name, key.private_bytes_raw())
    chain = (
        issued.public_bytes(Encoding.PEM)
        + ssl.DER_cert_to_PEM_cert(net.identities[issuer].certificate).encode()
    )
    file = folder / "chain.pem"
    file.write_bytes(holder.private_key_pem() + chain)
    context = net.client_context("bob")
    context.load_cert_chain(file)
    return context


async def test_member_that_issues_a_certificate_in_anothers_name(net: Net, tmp_path: Path) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, chain_context(net, tmp_path, "bob", "alice"))
    await raw.greet("alice")
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == (raw.address, raw.address)
    assert "invalid CA certificate" in str(error)
    with pytest.raises((asyncio.IncompleteReadError, OSError)):
        await raw.read_message()
    assert server.channels.empty()


async def test_own_certificate_with_anothers_name(net: Net) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("bob"))
    await raw.greet("alice")
    assert msgspec.msgpack.decode(await raw.read_message(), type=handshake.Refusal).reason == "name"
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == ("bob", "bob")
    assert "claims to be 'alice'" in str(error)
    assert server.channels.empty()


async def test_member_that_answers_in_anothers_place(net: Net) -> None:
    bob = net.identities["bob"].entry("party", "127.0.0.1:7001")
    roster = Roster([bob if member.name == "bob" else member for member in net.members])
    server = await net.listen(net.endpoint("bob"))
    with pytest.raises(PeerFault, match="in the place of 'agg'") as caught:
        await net.dial(net.endpoint("alice", roster=roster), server.address)
    assert caught.value.culprit == server.address
    assert "'bob' answers there" in caught.value.reason


async def test_member_without_an_address_that_answers_is_not_trusted(net: Net) -> None:
    server = await net.listen(net.endpoint("bob"))
    with pytest.raises(PeerFault, match="is not of a roster's member with an address") as caught:
        await net.dial("alice", server.address)
    assert caught.value.culprit == server.address


def test_context_of_a_caller_trusts_only_members_with_an_address(net: Net) -> None:
    contexts = tls.contexts(net.identities["alice"], net.roster)
    assert contexts.client.cert_store_stats()["x509"] == 1
    assert contexts.server.cert_store_stats()["x509"] == len(net.roster)


@pytest.mark.parametrize(
    "answer",
    [
        handshake.Welcome("bob", SESSION_DIGEST),
        handshake.Welcome("agg", bytes(32)),
    ],
    ids=["in another name", "to another session"],
)
async def test_false_welcome(net: Net, answer: handshake.Welcome) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = msgspec.msgpack.encode(answer)
        writer.write(framing.HEADER.pack(len(content), framing.DATA) + content)
        await reader.read()
        writer.close()

    context = net.endpoint("agg").contexts.server
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    net.servers.append(server)
    with pytest.raises(PeerFault, match="welcomes us as") as caught:
        await net.dial("alice", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert caught.value.culprit == "agg"


async def test_call_for_another_member(net: Net) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    await raw.greet("alice", to="bob")
    assert msgspec.msgpack.decode(await raw.read_message(), type=handshake.Refusal).reason == "addressee"
    assert "wants to reach 'bob'" in str((await server.refused())[1])


async def test_our_own_key_calls_us(net: Net) -> None:
    server = await net.listen()
    with pytest.raises(PeerFault, match="refuses us"):
        await net.dial("agg", server.address)
    who, error = await server.refused()
    assert who == "agg"
    assert "our own certificate" in str(error)


async def test_sessions_are_not_resumed(net: Net) -> None:
    server = await net.listen()
    context = net.client_context("alice")
    context.options &= ~ssl.OP_NO_TICKET

    def connect(earlier: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
        plain = socket.create_connection(("127.0.0.1", server.listener.port), 5)
        with plain, context.wrap_socket(plain, session=earlier) as secure:
            greeting = handshake.Greeting("smpc-dp", 3, "alice", "agg", SESSION_DIGEST)
            content = msgspec.msgpack.encode(greeting)
            secure.sendall(len(content).to_bytes(4, "big") + b"\x01" + content)
            assert secure.recv(1)
            return secure.session, bool(secure.session_reused)

    first, _ = await asyncio.to_thread(connect, None)
    (await server.channel()).abort()
    assert first is not None
    assert not first.has_ticket
    _, reused = await asyncio.to_thread(connect, first)
    assert not reused
    (await server.channel()).abort()


async def test_tls_1_2_client(net: Net) -> None:
    server = await net.listen()
    context = net.client_context("alice")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await net.raw(server.address, context)
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert error.culprit == who
    assert "unsupported protocol" in str(error)


async def test_plain_tcp_client(net: Net) -> None:
    server = await net.listen()
    raw = await net.raw(server.address)
    await raw.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == (raw.address, raw.address)
    assert "TLS failed" in str(error)
    assert b"smpc" not in await raw.reader.read()


async def test_plain_tcp_server(net: Net) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    plain = await asyncio.start_server(answer, "127.0.0.1", 0)
    net.servers.append(plain)
    address = f"127.0.0.1:{plain.sockets[0].getsockname()[1]}"
    with pytest.raises(PeerFault, match="TLS failed") as caught:
        await net.dial("alice", address)
    assert caught.value.culprit == address


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "truncated"),
        (b"\xc1 garbage", "something else than a hello"),
        (
            msgspec.msgpack.encode(["greeting", "smpc-dp", 1, "alice", "agg", bytes(32), "more"]),
            "at most length",
        ),
        (msgspec.msgpack.encode(["greeting", "smpc-dp", "1", "alice", "agg", bytes(32)]), "Expected `int`"),
        (msgspec.msgpack.encode(["greeting", "smpc-dp", 1, "alice", "agg", bytes(32)]) + b"\x00", "trailing"),
        (
            b"\xdc\x00\x06"
            + msgspec.msgpack.encode(["greeting", "smpc-dp", 1, "alice", "agg", bytes(32)])[1:],
            "canonical",
        ),
        (b"\x91" * 4000, "something else than a hello"),
    ],
    ids=["empty", "garbage", "extra field", "wrong type", "trailing bytes", "long form", "deep nesting"],
)
async def test_hello_is_decoded_strictly(net: Net, content: bytes, reason: str) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    await raw.write_message(content)
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == ("alice", "alice")
    assert reason in str(error)


async def test_other_version_of_the_hello(net: Net) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    await raw.greet("alice", version=1)
    assert msgspec.msgpack.decode(await raw.read_message(), type=handshake.Refusal).reason == "protocol"
    assert "version 1, not smpc-dp version 3" in str((await server.refused())[1])


async def test_differing_sessions_are_told_on_both_sides(net: Net) -> None:
    server = await net.listen()
    theirs = {"protocol": "secagg", "version": 1, "parameters": {"length": 12, "extra": True}}
    with pytest.raises(ConfigError) as caught:
        await net.dial(net.endpoint("alice", session=theirs), server.address)
    who, error = await server.refused()
    assert who == "alice"
    assert isinstance(error, ConfigError)
    assert "'agg'" in caught.value.issues[0].where
    assert "'alice'" in error.issues[0].where
    assert [fault.reason for fault in caught.value.issues] == [
        "parameters.extra: True only here",
        "parameters.length: 12 here, 10 there",
    ]
    assert [fault.reason for fault in error.issues] == [
        "parameters.extra: True only there",
        "parameters.length: 10 here, 12 there",
    ]
    assert server.channels.empty()


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (b"\x91" * 30_000, "no description"),
        (b"{}", "no description"),
        (bytes(100_000), "bytes, the limit is"),
        (DescribedSession(b"", lambda: {"a": 1}).description(), ""),
    ],
    ids=["deep nesting", "JSON", "too long", "other keys"],
)
async def test_a_peer_may_show_any_session(net: Net, shown: bytes, reason: str) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    await raw.greet("alice", session_digest=bytes(32))
    await raw.read_message()
    await raw.write_message(msgspec.msgpack.encode(handshake.OwnSession(shown)))
    who, error = await server.refused()
    assert who == "alice"
    assert isinstance(error, PeerFault if reason else ConfigError)
    assert reason in str(error)


async def test_a_large_session_of_a_peer_is_refused_by_its_length(net: Net) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    await raw.greet("alice", session_digest=bytes(32))
    assert len(await raw.read_message()) < handshake.MAX_GREETING
    await raw.write(framing.HEADER.pack(16 << 20, framing.DATA))
    _, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert error.check == Check.TOO_LONG


async def test_sessions_are_compared_once_a_minute_and_not_in_the_event_loop(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, int]] = []
    real = DescribedSession.difference

    def spy(session: DescribedSession, encoded: bytes) -> list[str]:
        compared.append((session.digest, threading.get_ident()))
        return real(session, encoded)

    monkeypatch.setattr(DescribedSession, "difference", spy)
    server, own = await net.listen(), digest_of(SESSION)
    for length in (12, 13):
        for name in ("alice", "bob"):
            theirs = {**SESSION, "parameters": {"length": length}}
            with pytest.raises(ConfigError, match=f"length: {length} here, 10 there"):
                await net.dial(net.endpoint(name, session=theirs), server.address)
            who, error = await server.refused()
            assert who == name
            assert "length: 10 here, 12 there" in str(error)
    assert [digest for digest, _ in compared].count(own) == 2
    assert len(compared) == 6
    assert threading.get_ident() not in {thread for _, thread in compared}


async def test_a_peer_that_shows_nothing_is_not_compared_again_at_once(net: Net) -> None:
    server = await net.listen()
    for reason in ("the channel was cut", "compared once in 60 s"):
        raw = await net.raw(server.address, net.client_context("alice"))
        await raw.greet("alice", session_digest=bytes(32))
        await raw.read_message()
        raw.writer.transport.abort()
        assert reason in str((await server.refused())[1])


async def test_same_session_shown_as_a_difference(net: Net) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    await raw.greet("alice", session_digest=bytes(32))
    refusal = msgspec.msgpack.decode(await raw.read_message(), type=handshake.Refusal)
    await raw.write_message(msgspec.msgpack.encode(handshake.OwnSession(refusal.session)))
    _, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert error.culprit == "alice"


def test_contexts_offer_no_tickets(net: Net) -> None:
    contexts = net.endpoint("agg").contexts
    assert contexts.server.num_tickets == 0
    for context in (contexts.server, contexts.client):
        assert context.options & ssl.OP_NO_TICKET
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_roster_without_our_key(net: Net) -> None:
    with pytest.raises(ConfigError, match="does not hold the key of our identity 'mallory'"):
        net.endpoint("mallory")


def test_the_key_leaves_no_file_behind(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modes: list[int] = []
    real = ssl.SSLContext.load_cert_chain

    def spy(context: ssl.SSLContext, path: str) -> None:
        modes.append(os.stat(path).st_mode & 0o777)
        real(context, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    assert tls.contexts(net.identities["alice"], net.roster).server.num_tickets == 0
    assert modes == [0o600, 0o600]
    assert list(tmp_path.iterdir()) == []
