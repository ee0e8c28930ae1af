"""The certificate determined by a name and an Ed25519 key.

Python's `ssl` pins peers by certificate, so each identity has a self-signed X.509 certificate. All its
content follows from the name and the key; only the 64 signature bytes at its end need the private key. A
certificate is therefore checked by building it again and comparing bytes: no bytes of a stranger are parsed.
"""

from __future__ import annotations

import hmac

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.errors import Check, VerificationError

SIGNATURE_BYTES = 64
# It is valid from the first day of one year to that of another.
FIRST_YEAR, LAST_YEAR = 2020, 2120

# Tags of DER (X.690).
_INTEGER, _BIT_STRING, _OCTET_STRING, _OID, _UTF8, _SEQUENCE, _SET = 2, 3, 4, 6, 12, 0x30, 0x31
_UTC_TIME, _GENERALIZED_TIME, _VERSION, _EXTENSIONS = 0x17, 0x18, 0xA0, 0xA3
_TRUE = b"\1\1\xff"


def _der(tag: int, *parts: bytes) -> bytes:
    """Return the DER of a value: its tag, the length of its content, and the content."""
    content = b"".join(parts)
    size = len(content)
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, size] if size < 128 else [tag, 128 + len(length), *length]) + content


def _oid(encoded: str) -> bytes:
    return _der(_OID, bytes.fromhex(encoded))


_ED25519 = _der(_SEQUENCE, _oid("2b6570"))
# Critical: it is no authority's; its key signs. Not critical: it is for servers and clients of TLS.
_CONSTRAINTS = _der(_SEQUENCE, _oid("551d13"), _TRUE, _der(_OCTET_STRING, _der(_SEQUENCE)))
_USAGE = _der(_SEQUENCE, _oid("551d0f"), _TRUE, _der(_OCTET_STRING, _der(_BIT_STRING, b"\x07\x80")))
_TLS = _der(_SEQUENCE, _oid("2b06010505070301"), _oid("2b06010505070302"))
_PURPOSES = _der(_SEQUENCE, _oid("551d25"), _der(_OCTET_STRING, _TLS))
# RFC 5280, section 4.1.2.5: years before 2050 have two digits.
_VALIDITY = _der(
    _SEQUENCE,
    _der(_UTC_TIME, b"%02d0101000000Z" % (FIRST_YEAR % 100)),
    _der(_GENERALIZED_TIME, b"%d0101000000Z" % LAST_YEAR),
)
# Of the private key (RFC 8410), before its seed.
_KEY_VERSION = _der(_INTEGER, b"\0")


def issue(name: str, key: SigningKey) -> bytes:
    """Return the DER certificate of `name` and `key`; the bytes are the same every time."""
    signed = _signed_part(name, bytes(key.verify_key))
    return _with_signature(signed, key.sign(signed).signature)


def check(certificate: bytes, name: str, public_key: bytes) -> None:
    """Raise VerificationError unless `certificate` is that of `name` and the 32-byte `public_key`."""
    signed, signature = _signed_part(name, public_key), certificate[-SIGNATURE_BYTES:]
    if not hmac.compare_digest(_with_signature(signed, signature), certificate):
        raise VerificationError(f"not the certificate of '{name}' and this public key", Check.TLS_CERTIFICATE)
    try:
        VerifyKey(public_key).verify(signed, signature)
    except BadSignatureError:
        raise VerificationError(
            f"the self-signature in the certificate of '{name}' is wrong", Check.BAD_SIGNATURE
        ) from None


def private_key(seed: bytes) -> bytes:
    """Return the DER of the private key of a seed (RFC 8410). SECRET."""
    return _der(_SEQUENCE, _KEY_VERSION, _ED25519, _der(_OCTET_STRING, _der(_OCTET_STRING, seed)))


def _signed_part(name: str, public_key: bytes) -> bytes:
    """Return the part of a certificate that is signed: all but algorithm and signature."""
    # RFC 5280, section 4.1.2.2: a serial is positive and at most 20 octets; 15 are far from both limits.
    serial = b"\x01" + digest(Label.CERTIFICATE_SERIAL, name.encode(), public_key)[:15]
    common_name = _der(_SEQUENCE, _oid("550403"), _der(_UTF8, name.encode()))
    subject = _der(_SEQUENCE, _der(_SET, common_name))
    return _der(
        _SEQUENCE,
        _der(_VERSION, _der(_INTEGER, b"\2")),
        _der(_INTEGER, serial),
        _ED25519,
        subject,
        _VALIDITY,
        subject,
        _der(_SEQUENCE, _ED25519, _der(_BIT_STRING, b"\0", public_key)),
        _der(_EXTENSIONS, _der(_SEQUENCE, _CONSTRAINTS, _USAGE, _PURPOSES)),
    )


def _with_signature(signed: bytes, signature: bytes) -> bytes:
    return _der(_SEQUENCE, signed, _ED25519, _der(_BIT_STRING, b"\0", signature))
