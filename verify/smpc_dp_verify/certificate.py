"""The certificate that belongs to a name and a key [protocols/log/README.md, "Header of a run's log"]."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp_verify.encodings import tuple_hash
from smpc_dp_verify.errors import Refused, required

SEQUENCE, SET, INTEGER, OID, TEXT, OCTETS = 0x30, 0x31, 0x02, 0x06, 0x0C, 0x04
TRUE = bytes.fromhex("0101ff")


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    octets = b"" if size < 128 else size.to_bytes(1 if size < 256 else 2, "big")
    return bytes([tag, 0x80 | len(octets) if octets else size]) + octets + content


def _oid(text: str) -> bytes:
    return _der(OID, bytes.fromhex(text))


ED25519 = _der(SEQUENCE, _oid("2b6570"))
EXTENSIONS = (
    # Basic constraints: no authority. Key usage: signatures. Extended key usage: servers and clients of TLS.
    (_oid("551d13"), TRUE, _der(OCTETS, _der(SEQUENCE))),
    (_oid("551d0f"), TRUE, _der(OCTETS, bytes.fromhex("03020780"))),
    (_oid("551d25"), _der(OCTETS, _der(SEQUENCE, _oid("2b06010505070301"), _oid("2b06010505070302")))),
)


def check_certificate(certificate: bytes, name: str, key: bytes) -> None:
    """Raise Refused unless a DER certificate is the one of this name and key, signed by this key."""
    named = _der(SEQUENCE, _der(SET, _der(SEQUENCE, _oid("550403"), _der(TEXT, name.encode()))))
    serial = b"\1" + tuple_hash("certificate-serial", name.encode(), key)[:15]
    dates = _der(SEQUENCE, _der(0x17, b"200101000000Z"), _der(0x18, b"21200101000000Z"))
    signed = _der(
        SEQUENCE,
        _der(0xA0, _der(INTEGER, b"\2")),
        _der(INTEGER, serial),
        ED25519,
        named,
        dates,
        named,
        _der(SEQUENCE, ED25519, _der(0x03, b"\0", key)),
        _der(0xA3, _der(SEQUENCE, *(_der(SEQUENCE, *extension) for extension in EXTENSIONS))),
    )
    signature = certificate[-64:]
    expected = _der(SEQUENCE, signed, ED25519, _der(0x03, b"\0", signature))
    required(certificate == expected, "a certificate")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except (InvalidSignature, ValueError):
        raise Refused("a certificate") from None
