"""TLS of blocking channels: both ends, OpenSSL at either end, and what is refused."""

from __future__ import annotations

import contextlib
import errno
import secrets
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.crypto.tls import TlsConnection, TlsContext, TlsError
from smpc_dp.identity.keys import Identity

ALICE, BOB, EVE = (Identity.from_seed(name, bytes([number]) * 32) for number, name in enumerate("abe"))
RECORD, OVERHEAD = 1 << 14, 22
# How often a call receives.
LOOKS = 32


def context(own: Identity, *trusted: Identity) -> TlsContext:
    return TlsContext(own.private_key_pem(), own.certificate, [one.certificate for one in trusted])


def ends(caller: TlsContext, called: TlsContext) -> tuple[TlsConnection, TlsConnection]:
    """Shake hands, a byte at a time in one direction; return both ends."""
    client, server = caller.connect(), called.accept()
    hello, done = client.shake(b"")
    assert not done
    to_client = b"".join(server.shake(hello[index : index + 1])[0] for index in range(len(hello)))
    to_server, done = client.shake(to_client)
    assert done
    assert server.shake(to_server) == (b"", True)
    return client, server


@pytest.fixture
def pair() -> tuple[TlsConnection, TlsConnection]:
    return ends(context(ALICE, ALICE, BOB), context(BOB, ALICE, BOB))


def sealed(end: TlsConnection, *buffers: bytes) -> NDArray[np.uint8]:
    out = np.empty(sum(map(len, buffers)) + 4096, np.uint8)
    return out[: end.encrypt([np.frombuffer(buffer, np.uint8) for buffer in buffers], out)].copy()


def opened(end: TlsConnection, received: NDArray[np.uint8], room: int) -> tuple[bytes, int]:
    """Decrypt through a window of `room` bytes; return the content, and how many bytes were left."""
    out, start, content = np.empty(room, np.uint8), 0, b""
    while True:
        used, got = end.decrypt(received[start:], out)
        start, content = start + used, content + out[:got].tobytes()
        if not used and not got:
            return content, len(received) - start


def test_each_end_learns_the_others_certificate(pair: tuple[TlsConnection, TlsConnection]) -> None:
    client, server = pair
    assert client.certificate() == BOB.certificate
    assert server.certificate() == ALICE.certificate
    assert context(ALICE, BOB).connect().certificate() == b""


@pytest.mark.parametrize("room", [1, 100, RECORD, 1 << 20])
def test_bytes_arrive_through_any_window(pair: tuple[TlsConnection, TlsConnection], room: int) -> None:
    content = np.random.default_rng(1).bytes(2 * RECORD + 7 if room > 1 else 300)
    for sender, receiver in (pair, pair[::-1]):
        assert opened(receiver, sealed(sender, b"head", b"", content), room) == (b"head" + content, 0)


def test_a_record_that_is_cut_waits_for_its_rest(pair: tuple[TlsConnection, TlsConnection]) -> None:
    bytes_sent = sealed(pair[0], b"first"), sealed(pair[0], b"second")
    received = np.concatenate(bytes_sent)
    assert opened(pair[1], received[:-1], 100) == (b"first", len(bytes_sent[1]) - 1)
    assert opened(pair[1], bytes_sent[1], 100) == (b"second", 0)


def test_records_are_of_full_size(pair: tuple[TlsConnection, TlsConnection]) -> None:
    assert len(sealed(pair[0], bytes(18), bytes(4 * RECORD - 18))) == 4 * (RECORD + OVERHEAD)
    assert len(sealed(pair[0], b"")) == 0


def test_a_changed_byte_ends_the_connection(pair: tuple[TlsConnection, TlsConnection]) -> None:
    received = sealed(pair[0], b"content")
    received[-1] ^= 1
    with pytest.raises(TlsError, match="TLS failed"):
        opened(pair[1], received, 100)
    with pytest.raises(TlsError):
        opened(pair[1], sealed(pair[0], b"next"), 100)


def test_a_record_cannot_be_repeated(pair: tuple[TlsConnection, TlsConnection]) -> None:
    received = sealed(pair[0], b"content")
    assert opened(pair[1], received.copy(), 100) == (b"content", 0)
    with pytest.raises(TlsError, match="TLS failed"):
        opened(pair[1], received, 100)


def test_too_little_room_is_an_error(pair: tuple[TlsConnection, TlsConnection]) -> None:
    with pytest.raises(TlsError, match="no room"):
        pair[0].encrypt([np.zeros(100, np.uint8)], np.empty(100, np.uint8))


def test_memory_is_not_read_and_written_at_once(pair: tuple[TlsConnection, TlsConnection]) -> None:
    memory = np.zeros(1000, np.uint8)
    with pytest.raises(TypeError, match="borrow"):
        pair[0].encrypt([memory[:100]], memory)
    with pytest.raises(TypeError, match="borrow"):
        pair[0].decrypt(memory[:100], memory[50:])
    with pytest.raises(TypeError, match="writ"):
        pair[0].decrypt(np.frombuffer(bytes(10), np.uint8), memory)
    with pytest.raises(ValueError, match="contiguous"):
        pair[0].encrypt([memory[:200:2]], np.empty(1000, np.uint8))
    empty, other = np.empty(0, np.uint8), np.empty(0, np.uint8)
    assert pair[0].encrypt([], empty) == pair[0].encrypt([other], empty) == 0
    assert pair[1].decrypt(empty, other) == (0, 0)


def test_nothing_is_encrypted_before_the_handshake() -> None:
    with pytest.raises(TlsError, match="TLS failed"):
        sealed(context(ALICE, BOB).connect(), b"content")
    with pytest.raises(TlsError, match="TLS failed"):
        sealed(context(ALICE, BOB).accept(), b"content")


def test_a_called_stranger_is_refused() -> None:
    client, server = context(ALICE, BOB).connect(), context(EVE, ALICE).accept()
    answer, _ = server.shake(client.shake(b"")[0])
    with pytest.raises(TlsError, match="its certificate is not one of the roster"):
        client.shake(answer)
    assert client.rest()


def test_a_calling_stranger_is_refused_and_told() -> None:
    client, server = context(EVE, BOB).connect(), context(BOB, ALICE).accept()
    answer, _ = server.shake(client.shake(b"")[0])
    last, done = client.shake(answer)
    assert done
    with pytest.raises(TlsError, match="its certificate is not one of the roster"):
        server.shake(last)
    with pytest.raises(TlsError, match="alert"):
        opened(client, np.frombuffer(bytearray(server.rest()), np.uint8), 100)


def test_a_certificate_without_its_key_is_no_context() -> None:
    with pytest.raises(ValueError, match="keys"):
        TlsContext(ALICE.private_key_pem(), BOB.certificate, [BOB.certificate])
    with pytest.raises(ValueError, match="private key"):
        TlsContext(b"", ALICE.certificate, [])


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, which do not wait."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        yield ours, theirs


def octets(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


def test_more_than_a_socket_takes_is_sent_in_several_calls(
    pair: tuple[TlsConnection, TlsConnection], sockets: tuple[socket.socket, socket.socket]
) -> None:
    """Each goes on where the last one stopped; the receiver takes as much as is there."""
    (client, server), (ours, theirs) = pair, sockets
    buffers = [secrets.token_bytes(size) for size in (5, 0, 70_000, 3_000_000, 1)]
    whole = b"".join(buffers)
    out, start, have, calls, done = np.empty(len(whole), np.uint8), 0, 0, 0, False
    while not done or have < len(whole):
        start, done = client.send(ours.fileno(), [octets(buffer) for buffer in buffers], start)
        have, ended = server.receive(theirs.fileno(), out, have)
        calls += 1
        assert not ended
    assert out.tobytes() == whole
    assert start == len(whole)
    assert calls > 2


@pytest.mark.parametrize("count", [10, 31, 32, 33, 64, 100])
def test_all_that_a_call_has_received_is_decrypted_when_it_ends(
    pair: tuple[TlsConnection, TlsConnection], count: int
) -> None:
    """Else its caller would wait at the socket for bytes that have come, and call the peer late."""
    client, server = pair
    # A socket of packets: each is received alone.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.setblocking(False)
        for number in range(count):
            ours.send(sealed(client, bytes([number])).data)
        out, have, calls = np.empty(count + 1, np.uint8), 0, 0
        while select.select([theirs], [], [], 0)[0]:
            have, ended = server.receive(theirs.fileno(), out, have)
            calls += 1
            assert not ended
    assert out[:have].tolist() == list(range(count))
    # A peer cannot keep a call from ending.
    assert calls == -(-count // LOOKS)


def test_what_the_handshake_left_over_is_received_first(sockets: tuple[socket.socket, socket.socket]) -> None:
    caller, called = context(ALICE, BOB).connect(), context(BOB, ALICE).accept()
    answer, _ = caller.shake(called.shake(caller.shake(b"")[0])[0])
    assert called.shake(answer + sealed(caller, b"early ").tobytes()) == (b"", True)
    assert caller.send(sockets[0].fileno(), [octets(b"late")], 0) == (4, True)
    out = np.empty(10, np.uint8)
    assert called.receive(sockets[1].fileno(), out, 0) == (10, False)
    assert out.tobytes() == b"early late"


def test_the_end_of_a_stream_and_a_closed_socket_are_told(
    pair: tuple[TlsConnection, TlsConnection], sockets: tuple[socket.socket, socket.socket]
) -> None:
    (client, server), (ours, theirs) = pair, sockets
    out = np.empty(10, np.uint8)
    assert server.receive(theirs.fileno(), out, 3) == (3, False)
    client.send(ours.fileno(), [octets(b"last")], 0)
    ours.close()
    assert server.receive(theirs.fileno(), out, 0) == (4, True)
    with pytest.raises(BrokenPipeError):
        server.send(theirs.fileno(), [octets(b"lost")], 0)
    with pytest.raises(OSError, match="Bad file descriptor") as closed:
        client.send(ours.fileno(), [octets(b"more")], 0)
    assert closed.value.errno == errno.EBADF


def test_a_changed_record_ends_the_connection_of_a_socket(
    pair: tuple[TlsConnection, TlsConnection], sockets: tuple[socket.socket, socket.socket]
) -> None:
    (client, server), (ours, theirs) = pair, sockets
    record = sealed(client, b"content")
    record[-1] ^= 1
    ours.sendall(record.tobytes())
    for _ in range(2):
        with pytest.raises(TlsError):
            server.receive(theirs.fileno(), np.empty(7, np.uint8), 0)


def test_what_is_no_tls_is_refused() -> None:
    with pytest.raises(TlsError, match="TLS failed"):
        context(BOB, ALICE).accept().shake(b"GET / HTTP/1.0\r\n\r\n")


class Openssl:
    """An end of OpenSSL's, in memory."""

    def __init__(self, own: Identity, peer: Identity, folder: Path, *, server: bool) -> None:
        path = folder / "own.pem"
        path.write_bytes(own.private_key_pem() + ssl.DER_cert_to_PEM_cert(own.certificate).encode())
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_REQUIRED
        self.context.load_verify_locations(cadata=peer.certificate)
        self.context.load_cert_chain(path)
        self.server = server

    def shake(self, end: TlsConnection) -> ssl.SSLObject:
        """Shake hands with `end`, and exchange a message each way."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context.wrap_bio(incoming, outgoing, server_side=self.server)
        done, answer = False, end.shake(b"")[0] if self.server else b""
        while not done:
            incoming.write(answer)
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            answer, done = end.shake(outgoing.read())
        incoming.write(answer)
        if self.server:
            tls.do_handshake()
        tls.write(b"from OpenSSL")
        left = end.unread() + outgoing.read()
        assert opened(end, np.frombuffer(bytearray(left), np.uint8), 100) == (b"from OpenSSL", 0)
        incoming.write(sealed(end, b"to OpenSSL").tobytes())
        assert tls.read(100) == b"to OpenSSL"
        return tls


@pytest.mark.parametrize("server", [False, True])
def test_openssl_may_be_at_either_end(tmp_path: Path, server: bool) -> None:
    own = context(ALICE, BOB)
    tls = Openssl(BOB, ALICE, tmp_path, server=server).shake(own.connect() if server else own.accept())
    assert tls.version() == "TLSv1.3"
    assert (tls.cipher() or ("",))[0] == "TLS_AES_128_GCM_SHA256"


def test_earlier_versions_are_refused(tmp_path: Path) -> None:
    old = Openssl(BOB, ALICE, tmp_path, server=False)
    old.context.minimum_version, old.context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with pytest.raises(TlsError, match="TLS failed"):
        old.shake(context(ALICE, BOB).accept())


def test_a_caller_without_a_certificate_is_refused() -> None:
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls, server = anonymous.wrap_bio(incoming, outgoing), context(BOB, ALICE).accept()
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    incoming.write(server.shake(outgoing.read())[0])
    tls.do_handshake()
    with pytest.raises(TlsError, match="TLS failed"):
        server.shake(outgoing.read())
