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
from smpc_dp.crypto.x509 import certificate_parts
from smpc_dp.errors import Check, VerificationError

SIGNATURE_BYTES = 64
# It is valid from the first day of one year to that of another.
FIRST_YEAR, LAST_YEAR = 2020, 2120


def issue(name: str, key: SigningKey) -> bytes:
    """Return the self-signed TLS certificate (DER) of a member's name and key, always the same bytes."""
    signed, before_signature = _parts(name, bytes(key.verify_key))
    return before_signature + key.sign(signed).signature


def check(certificate: bytes, name: str, public_key: bytes) -> None:
    """Raise VerificationError unless a certificate is the one for this member's name and public key."""
    try:
        signed, before_signature = _parts(name, public_key)
    except ValueError as error:
        raise VerificationError(
            f"no certificate exists for '{name}': {error}", Check.TLS_CERTIFICATE
        ) from None
    if not hmac.compare_digest(before_signature, certificate[:-SIGNATURE_BYTES]):
        raise VerificationError(f"not the certificate of '{name}' and this public key", Check.TLS_CERTIFICATE)
    try:
        VerifyKey(public_key).verify(signed, certificate[-SIGNATURE_BYTES:])
    except BadSignatureError:
        raise VerificationError(
            f"the self-signature in the certificate of '{name}' is wrong", Check.BAD_SIGNATURE
        ) from None


def _parts(name: str, public_key: bytes) -> tuple[bytes, bytes]:
    """Return a certificate's part that is signed, and all its bytes before the signature."""
    serial = digest(Label.CERTIFICATE_SERIAL, name.encode(), public_key)
    # RFC 5280 4.1.2.2: a serial is positive and at most 20 octets; 15 are far from both limits.
    return certificate_parts(name, b"\x01" + serial[:15], public_key, FIRST_YEAR, LAST_YEAR)
