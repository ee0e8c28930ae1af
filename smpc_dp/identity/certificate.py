"""The certificate determined by a name and an Ed25519 key.

Python's `ssl` pins peers by certificate, so each identity has a self-signed X.509 certificate. All its
content follows from the name and the key; only the 64 signature bytes at its end need the private key. A
certificate is therefore checked by building it again and comparing bytes: no bytes of a stranger are parsed.
"""

from __future__ import annotations

import datetime
import hmac

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.errors import Check, VerificationError

SIGNATURE_BYTES = 64
NOT_BEFORE = datetime.datetime(2020, 1, 1)
NOT_AFTER = datetime.datetime(2120, 1, 1)

# Signs the template with which a certificate is compared; its signature is cut off.
_TEMPLATE_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


def issue(name: str, key: Ed25519PrivateKey) -> bytes:
    """Return the DER certificate of `name` and `key`; the bytes are the same every time."""
    return _build(name, key.public_key(), key)


def check(certificate: bytes, name: str, public_key: bytes) -> None:
    """Raise VerificationError unless `certificate` is that of `name` and the 32-byte `public_key`."""
    try:
        template = _build(name, Ed25519PublicKey.from_public_bytes(public_key), _TEMPLATE_KEY)
    except ValueError as error:
        raise VerificationError(
            f"no certificate exists for '{name}': {error}", Check.TLS_CERTIFICATE
        ) from None
    expected, signature = template[:-SIGNATURE_BYTES], certificate[-SIGNATURE_BYTES:]
    if not hmac.compare_digest(expected, certificate[:-SIGNATURE_BYTES]):
        raise VerificationError(f"not the certificate of '{name}' and this public key", Check.TLS_CERTIFICATE)
    signed = x509.load_der_x509_certificate(template).tbs_certificate_bytes
    try:
        VerifyKey(public_key).verify(signed, signature)
    except BadSignatureError:
        raise VerificationError(
            f"the self-signature in the certificate of '{name}' is wrong", Check.BAD_SIGNATURE
        ) from None


def _build(name: str, public_key: Ed25519PublicKey, signer: Ed25519PrivateKey) -> bytes:
    """Return the DER certificate of a name and a key, signed by `signer`."""
    serial = digest(Label.CERTIFICATE_SERIAL, name.encode(), public_key.public_bytes_raw())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    # RFC 5280 4.1.2.2: a serial is positive and at most 20 octets; 15 are far from both limits.
    number = int.from_bytes(b"\x01" + serial[:15], "big")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public_key)
        .serial_number(number)
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(purposes, critical=False)
        .sign(signer, algorithm=None)
        .public_bytes(Encoding.DER)
    )
