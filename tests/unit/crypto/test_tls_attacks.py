"""TLS of blocking channels against an own TLS 1.3, which breaks the rules as no library does."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from smpc_dp.crypto.tls import TlsConnection, TlsContext, TlsError
from smpc_dp.identity.keys import Identity

ALICE, BOB, EVE = (Identity.from_seed(name, bytes([number]) * 32) for number, name in enumerate("abe"))
ALERT, HANDSHAKE, DATA = 21, 22, 23
NEW_TICKET, ENCRYPTED_EXTENSIONS, CERTIFICATE, REQUEST, VERIFY, FINISHED, KEY_UPDATE = (
    4,
    8,
    11,
    13,
    15,
    20,
    24,
)
SERVER = b"TLS 1.3, server CertificateVerify"
CLIENT = b"TLS 1.3, client CertificateVerify"
ED25519, X25519, AES_128_GCM, TLS_1_3 = b"\x08\x07", b"\x00\x1d", b"\x13\x01", b"\x03\x04"


def prefixed(content: bytes, size: int) -> bytes:
    return len(content).to_bytes(size, "big") + content


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + prefixed(body, 3)


def plain(content: bytes) -> bytes:
    return bytes([HANDSHAKE]) + b"\x03\x03" + prefixed(content, 2)


def extract(salt: bytes, content: bytes) -> bytes:
    return hmac.digest(salt, content, "sha256")


def expand(secret: bytes, label: bytes, context: bytes = b"", size: int = 32) -> bytes:
    info = size.to_bytes(2, "big") + prefixed(b"tls13 " + label, 1) + prefixed(context, 1)
    return extract(secret, info + b"\1")[:size]


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


class Keys:
    """Keys of one direction."""

    def __init__(self, secret: bytes) -> None:
        self.secret, self.number = secret, 0
        self.cipher, self.iv = AESGCM(expand(secret, b"key", size=16)), expand(secret, b"iv", size=12)

    def nonce(self) -> bytes:
        self.number += 1
        return (int.from_bytes(self.iv, "big") ^ (self.number - 1)).to_bytes(12, "big")

    def seal(self, kind: int, content: bytes) -> bytes:
        header = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        return header + self.cipher.encrypt(self.nonce(), content + bytes([kind]), header)

    def open(self, record: bytes) -> tuple[int, bytes]:
        content = self.cipher.decrypt(self.nonce(), record[5:], record[:5])
        return content[-1], content[:-1]

    def following(self) -> Keys:
        return Keys(expand(self.secret, b"traffic upd"))


def records(received: bytes) -> list[bytes]:
    result = []
    while received:
        size = 5 + int.from_bytes(received[3:5], "big")
        result.append(received[:size])
        received = received[size:]
    return result


class End:
    """An end that shows `shown` and signs with the key of `signer`; it checks nothing."""

    def __init__(self, shown: Identity, signer: Identity) -> None:
        self.shown, self.key = shown, load_pem_private_key(signer.private_key_pem(), None)
        self.exchange, self.transcript = X25519PrivateKey.generate(), b""

    def share(self) -> bytes:
        return X25519 + prefixed(self.exchange.public_key().public_bytes_raw(), 2)

    def agree(self, share: bytes) -> None:
        """Derive the keys of the handshake, after both hellos."""
        salt = expand(extract(bytes(32), bytes(32)), b"derived", digest(b""))
        self.secret = extract(salt, self.exchange.exchange(X25519PublicKey.from_public_bytes(share)))
        self.client, self.server = self.keys(self.secret, b"hs")

    def keys(self, secret: bytes, stage: bytes) -> tuple[Keys, Keys]:
        now = digest(self.transcript)
        first, second = (Keys(expand(secret, side + stage + b" traffic", now)) for side in (b"c ", b"s "))
        return first, second

    def finish(self) -> None:
        """Derive the keys of the data, after the server's last message."""
        master = extract(expand(self.secret, b"derived", digest(b"")), bytes(32))
        self.client, self.server = self.keys(master, b"ap")

    def authenticate(self, label: bytes, keys: Keys) -> bytes:
        """Return the certificate, the signature and the end of this side's handshake."""
        start = len(self.transcript)
        entry = prefixed(self.shown.certificate, 3) + b"\0\0"
        self.transcript += message(CERTIFICATE, b"\0" + prefixed(entry, 3))
        signed = self.key.sign(b" " * 64 + label + b"\0" + digest(self.transcript))  # type: ignore[union-attr, call-arg]
        self.transcript += message(VERIFY, ED25519 + prefixed(signed, 2))
        self.transcript += message(
            FINISHED, extract(expand(keys.secret, b"finished"), digest(self.transcript))
        )
        return self.transcript[start:]

    def answer(self, hello: bytes) -> bytes:
        """Return the whole answer of a server to the first message of a client."""
        self.transcript = hello[5:]
        at = hello.index(b"\x00\x33\x00\x26\x00\x24" + X25519 + b"\x00\x20") + 10
        session = hello[43 : 44 + hello[43]]
        extensions = b"\x00\x2b" + prefixed(TLS_1_3, 2) + b"\x00\x33" + prefixed(self.share(), 2)
        body = b"\x03\x03" + bytes(range(32)) + session + AES_128_GCM + b"\0" + prefixed(extensions, 2)
        self.transcript += message(2, body)
        self.agree(hello[at : at + 32])
        wanted = message(ENCRYPTED_EXTENSIONS, b"\0\0")
        wanted += message(REQUEST, b"\0" + prefixed(b"\x00\x0d" + prefixed(prefixed(ED25519, 2), 2), 2))
        self.transcript += wanted
        flight = self.server.seal(HANDSHAKE, wanted + self.authenticate(SERVER, self.server))
        self.finish()
        return plain(message(2, body)) + flight

    def hello(self) -> bytes:
        """Return the first message of a client."""
        extensions = b"\x00\x2b" + prefixed(prefixed(TLS_1_3, 1), 2)
        extensions += b"\x00\x33" + prefixed(prefixed(self.share(), 2), 2)
        for kind, content in ((b"\x00\x0d", ED25519), (b"\x00\x0a", X25519)):
            extensions += kind + prefixed(prefixed(content, 2), 2)
        body = (
            b"\x03\x03"
            + bytes(range(32))
            + b"\0"
            + prefixed(AES_128_GCM, 2)
            + b"\1\0"
            + prefixed(extensions, 2)
        )
        self.transcript = message(1, body)
        return plain(self.transcript)

    def reply(self, answer: bytes) -> bytes:
        """Return the second message of a client."""
        first, *others = [record for record in records(answer) if record[0] != 20]
        self.transcript += first[5:]
        share = first.index(b"\x00\x33\x00\x24" + X25519 + b"\x00\x20") + 8
        self.agree(first[share : share + 32])
        self.transcript += b"".join(self.server.open(record)[1] for record in others)
        keys = self.client
        self.finish()
        return keys.seal(HANDSHAKE, self.authenticate(CLIENT, keys))


def called(shown: Identity, signer: Identity) -> tuple[TlsConnection, End]:
    """Let ALICE call an end."""
    end = TlsContext(ALICE.private_key_pem(), ALICE.certificate, [BOB.certificate]).connect()
    other = End(shown, signer)
    assert end.shake(other.answer(end.shake(b"")[0]))[1]
    return end, other


def calling(shown: Identity, signer: Identity) -> tuple[TlsConnection, End]:
    """Let an end call ALICE."""
    end = TlsContext(ALICE.private_key_pem(), ALICE.certificate, [BOB.certificate]).accept()
    other = End(shown, signer)
    assert end.shake(other.reply(end.shake(other.hello())[0])) == (b"", True)
    return end, other


def sealed(end: TlsConnection, content: bytes) -> bytes:
    out = np.empty(len(content) + 4096, np.uint8)
    return out[: end.encrypt([np.frombuffer(content, np.uint8)], out)].tobytes()


def opened(end: TlsConnection, received: bytes) -> bytes:
    out = np.empty(1000, np.uint8)
    used, got = end.decrypt(np.frombuffer(bytearray(received), np.uint8), out)
    assert used == len(received)
    return out[:got].tobytes()


@pytest.mark.parametrize("connect", [called, calling])
def test_a_certificate_of_the_roster_is_no_proof_of_its_key(
    connect: Callable[[Identity, Identity], tuple[TlsConnection, End]],
) -> None:
    assert connect(BOB, BOB)[0].certificate() == BOB.certificate
    with pytest.raises(TlsError, match="it has not the key of the certificate that it shows"):
        connect(BOB, EVE)
    with pytest.raises(TlsError, match="its certificate is not one of the roster"):
        connect(EVE, EVE)


@pytest.fixture
def pair() -> tuple[TlsConnection, End]:
    return called(BOB, BOB)


def test_a_new_key_is_taken_and_answered(pair: tuple[TlsConnection, End]) -> None:
    end, other = pair
    for _ in range(3):
        request = other.server.seal(HANDSHAKE, message(KEY_UPDATE, b"\1"))
        other.server = other.server.following()
        assert opened(end, request + other.server.seal(DATA, b"with the next key")) == b"with the next key"
        answer, data = records(sealed(end, b"back"))
        assert other.client.open(answer) == (HANDSHAKE, message(KEY_UPDATE, b"\0"))
        other.client = other.client.following()
        assert other.client.open(data) == (DATA, b"back")


def renew(end: TlsConnection, other: End) -> None:
    request = other.server.seal(HANDSHAKE, message(KEY_UPDATE, b"\1"))
    other.server = other.server.following()
    assert opened(end, request) == b""


def send_nothing(end: TlsConnection, other: End) -> None:
    assert opened(end, other.server.seal(DATA, b"")) == b""


@pytest.mark.parametrize("act", [renew, send_nothing])
def test_what_costs_the_sender_little_is_refused_without_end(
    pair: tuple[TlsConnection, End], act: Callable[[TlsConnection, End], None]
) -> None:
    for _ in range(10):
        act(*pair)

    def act_without_end() -> None:
        for _ in range(100):
            act(*pair)

    with pytest.raises(TlsError, match="TLS failed"):
        act_without_end()


def test_a_ticket_is_not_used(pair: tuple[TlsConnection, End]) -> None:
    end, other = pair
    ticket = message(NEW_TICKET, bytes(4) + bytes(4) + b"\1\1" + prefixed(b"ticket", 2) + b"\0\0")
    assert opened(end, other.server.seal(HANDSHAKE, ticket) + other.server.seal(DATA, b"data")) == b"data"


@pytest.mark.parametrize("following", [b"", b"data"])
def test_a_message_of_tls_in_pieces_is_refused_after_the_handshake(
    pair: tuple[TlsConnection, End], following: bytes
) -> None:
    end, other = pair
    received = other.server.seal(HANDSHAKE, message(KEY_UPDATE, b"\1")[:3])
    received += other.server.seal(DATA, following) if following else b""
    for _ in range(2):
        with pytest.raises(TlsError, match="TLS failed"):
            opened(end, received)
        with pytest.raises(TlsError, match="TLS failed"):
            sealed(end, b"data")


def test_a_record_of_an_earlier_key_or_in_the_clear_is_refused() -> None:
    for forge in (lambda other: other.seal(DATA, b"x"), lambda _: plain(message(KEY_UPDATE, b"\0"))):
        end, other = called(BOB, BOB)
        keys, other.server = other.server, other.server.following()
        assert opened(end, keys.seal(HANDSHAKE, message(KEY_UPDATE, b"\0"))) == b""
        with pytest.raises(TlsError, match="TLS failed"):
            opened(end, forge(keys))


def test_an_alert_or_the_end_of_the_stream_has_no_text_of_the_other_end(
    pair: tuple[TlsConnection, End],
) -> None:
    end, other = pair
    assert opened(end, other.server.seal(DATA, b"last") + other.server.seal(ALERT, b"\1\0")) == b"last"
    assert sealed(end, b"still")
    end, other = called(BOB, BOB)
    with pytest.raises(TlsError, match=r"TLS failed \(received fatal alert"):
        opened(end, other.server.seal(ALERT, b"\2\x2a"))


@pytest.mark.parametrize("size", [1, 1000, 16_000])
def test_a_handshake_without_end_takes_bounded_memory(size: int) -> None:
    end = TlsContext(ALICE.private_key_pem(), ALICE.certificate, [BOB.certificate]).accept()
    content = message(1, bytes(0xFFFB))
    first = b"".join(plain(content[at : at + size]) for at in range(0, len(content), size))
    taken = 0

    def send() -> None:
        nonlocal taken
        for taken in range(0, len(first), 1 << 14):
            assert end.shake(first[taken : taken + (1 << 14)]) == (b"", False)

    with pytest.raises(TlsError, match="a handshake of more than 65536 bytes"):
        send()
    assert taken <= 1 << 16
    with pytest.raises(TlsError):
        end.shake(b"")
