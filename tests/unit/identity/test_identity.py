"""Identities: key files, certificates, signatures."""

from __future__ import annotations

import copy
import datetime
import hashlib
import os
import pickle
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from nacl.signing import SigningKey

from smpc_dp.crypto.x509 import private_key_pem
from smpc_dp.errors import Check, ConfigError, LocalError, VerificationError
from smpc_dp.identity import certificate
from smpc_dp.identity.keys import Identity, verify

# RFC 8032, section 7.1, TEST 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_signature_of_rfc_8032() -> None:
    identity = Identity.from_seed("alice", SEED)
    assert identity.public_key == PUBLIC
    assert identity.sign(b"\x72") == SIGNATURE
    verify(PUBLIC, b"\x72", SIGNATURE)


@pytest.mark.parametrize(
    ("key", "message", "signature"),
    [
        (PUBLIC, b"\x73", SIGNATURE),
        (PUBLIC, b"\x72", SIGNATURE[:-1] + b"\x01"),
        (PUBLIC, b"\x72", SIGNATURE[:-1]),
        (PUBLIC, b"\x72", b""),
        (PUBLIC[:-1], b"\x72", SIGNATURE),
        (bytes(32), b"\x72", SIGNATURE),
        (b"\x01" + bytes(31), b"\x72", b"\x01" + bytes(63)),
    ],
    ids=[
        "message",
        "signature",
        "short signature",
        "no signature",
        "short key",
        "zero key",
        "key of small order",
    ],
)
def test_wrong_signature(key: bytes, message: bytes, signature: bytes) -> None:
    with pytest.raises(VerificationError):
        verify(key, message, signature)


def test_generated_keys_differ() -> None:
    assert Identity.generate("alice").public_key != Identity.generate("alice").public_key


@pytest.mark.parametrize("name", ["", "Alice", "-a", ".a", "a b", "a/b", "ä", "a" * 64, "a\n"])
def test_bad_name(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name"):
        Identity.generate(name)


def test_bad_seed() -> None:
    with pytest.raises(ConfigError, match="32 bytes, not 31"):
        Identity.from_seed("alice", bytes(31))


def test_secrets_do_not_show_or_leave() -> None:
    identity = Identity.from_seed("alice", SEED)
    assert repr(identity) == f"Identity('alice', public_key={PUBLIC.hex()})"
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            attempt(identity)
    with pytest.raises(AttributeError):
        identity.name = "bob"
    with pytest.raises(AttributeError):
        del identity.public_key


def test_file_round_trip(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        Identity.from_seed("alice", SEED).save(tmp_path / "alice.id")
    finally:
        os.umask(old_mask)
    assert (tmp_path / "alice.id").stat().st_mode & 0o7777 == 0o600
    loaded = Identity.load(tmp_path / "alice.id", "alice")
    assert (loaded.name, loaded.public_key) == ("alice", PUBLIC)
    assert loaded.sign(b"\x72") == SIGNATURE


def test_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "alice.id"
    Identity.from_seed("alice", SEED).save(path)
    before = path.read_bytes()
    with pytest.raises(LocalError, match=r"alice\.id: exists already"):
        Identity.generate("alice").save(path)
    assert path.read_bytes() == before
    connection = tmp_path / "link.id"
    connection.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocalError):
        Identity.generate("alice").save(connection)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(LocalError, match="cannot write the identity"):
        Identity.generate("alice").save(tmp_path / "no folder" / "alice.id")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o660, 0o644, 0o610])
def test_file_that_others_can_reach(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "alice.id"
    Identity.from_seed("alice", SEED).save(path)
    path.chmod(mode)
    with pytest.raises(LocalError, match=rf"alice\.id: mode {mode:04o}"):
        Identity.load(path)


def test_missing_file_folder_and_pipe(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"none\.id: cannot read the identity \(No such file"):
        Identity.load(tmp_path / "none.id")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(LocalError, match="not a regular file"):
            Identity.load(path)


def test_wrong_name_in_file(tmp_path: Path) -> None:
    Identity.from_seed("alice", SEED).save(tmp_path / "a.id")
    with pytest.raises(LocalError, match=r"a\.id: the identity of 'alice', not of 'bob'"):
        Identity.load(tmp_path / "a.id", expected_name="bob")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"name = ",
        b'name = "alice"',
        b'name = "Alice"\nseed = "' + b"0" * 64 + b'"',
        b'name = "alice"\nseed = "' + b"0" * 63 + b'"',
        b'name = "alice"\nseed = "' + b"G" * 64 + b'"',
        b'name = "alice"\nseed = 1',
        b'name = 1\nseed = "' + b"0" * 64 + b'"',
        b'name = "alice"\nseed = "' + b"0" * 64 + b'"\nmore = 1',
        b"\xff\xfe",
        b"#" * 5000,
    ],
)
def test_malformed_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "alice.id"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(LocalError, match=r"alice\.id: not an identity file") as caught:
        Identity.load(path)
    assert "0" * 20 not in str(caught.value)


def test_certificate_is_deterministic_and_as_described() -> None:
    der = Identity.from_seed("alice", SEED).certificate
    assert der == Identity.from_seed("alice", SEED).certificate
    # Pins the form across versions of `x509-cert`: rosters hold these bytes.
    assert (
        hashlib.sha256(der).hexdigest() == "0b59587a6b9f5e066d21ab64a2dca4f4c63e8e6c3c622a96b228698d66bb43af"
    )
    parsed = x509.load_der_x509_certificate(der)
    assert parsed.subject == parsed.issuer
    assert parsed.subject.rfc4514_string() == "CN=alice"
    assert parsed.public_key().public_bytes_raw() == PUBLIC  # type: ignore[union-attr]
    assert parsed.not_valid_before_utc == datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    assert parsed.not_valid_after_utc == datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
    constraints = parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    usage = parsed.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    certificate.check(der, "alice", PUBLIC)


@pytest.mark.parametrize("name", ["a", "alice", "a" * 28, "a" * 29, "a" * 63])
def test_certificate_and_private_key_as_another_library_writes_them(name: str) -> None:
    """With names before and behind the one for which a length takes another byte."""
    identity = Identity.from_seed(name, SEED)
    key = load_pem_private_key(identity.private_key_pem(), None)
    assert isinstance(key, Ed25519PrivateKey)
    assert key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) == identity.private_key_pem()
    assert key.private_bytes_raw() == SEED
    parsed = x509.load_der_x509_certificate(identity.certificate)
    builder = x509.CertificateBuilder(
        parsed.issuer,
        parsed.subject,
        key.public_key(),
        parsed.serial_number,
        parsed.not_valid_before_utc,
        parsed.not_valid_after_utc,
        list(parsed.extensions),
    )
    assert builder.sign(key, algorithm=None).public_bytes(Encoding.DER) == identity.certificate


@pytest.mark.parametrize(
    ("name", "key", "reason"),
    [
        ("", PUBLIC, "Attribute's length must be >= 1 and <= 64, but it was 0"),
        ("a" * 65, PUBLIC, "Attribute's length must be >= 1 and <= 64, but it was 65"),
        ("é" * 33, PUBLIC, "Attribute's length must be >= 1 and <= 64, but it was 66"),
        ("\ud800", PUBLIC, "surrogates not allowed"),
        ("alice", PUBLIC[:31], "An Ed25519 public key is 32 bytes long"),
        ("alice", b"", "An Ed25519 public key is 32 bytes long"),
    ],
)
def test_name_or_key_that_no_certificate_can_hold(name: str, key: bytes, reason: str) -> None:
    with pytest.raises(VerificationError, match="no certificate exists for") as caught:
        certificate.check(Identity.from_seed("alice", SEED).certificate, name, key)
    assert caught.value.check == Check.TLS_CERTIFICATE
    assert str(caught.value).endswith(reason)


def test_private_key_of_another_length() -> None:
    with pytest.raises(ValueError, match="seed: 31 bytes, not 32"):
        private_key_pem(SEED[:31])


def test_certificate_of_another_name_key_or_form() -> None:
    der = Identity.from_seed("alice", SEED).certificate
    other = bytes(SigningKey(bytes(32)).verify_key)
    for name, key in (("bob", PUBLIC), ("alice", other)):
        with pytest.raises(VerificationError, match="not the certificate of"):
            certificate.check(der, name, key)
    for changed in (b"", der[:-1], der + b"\x00", der[:50] + bytes([der[50] ^ 1]) + der[51:]):
        with pytest.raises(VerificationError, match="not the certificate of"):
            certificate.check(changed, "alice", PUBLIC)
    with pytest.raises(VerificationError, match="self-signature"):
        certificate.check(der[:-1] + bytes([der[-1] ^ 1]), "alice", PUBLIC)
    with pytest.raises(VerificationError):
        certificate.check(der, "alice", PUBLIC[:31])


def test_signature_of_the_certificate_made_with_another_key() -> None:
    own, other = Identity.from_seed("alice", SEED), Identity.from_seed("alice", bytes(32))
    with pytest.raises(VerificationError, match="self-signature"):
        certificate.check(own.certificate[:-64] + other.certificate[-64:], "alice", PUBLIC)


def test_entry() -> None:
    identity = Identity.from_seed("alice", SEED)
    entry = identity.entry("aggregator", "localhost:7000")
    assert (entry.name, entry.role, entry.address) == ("alice", "aggregator", "localhost:7000")
    assert (entry.public_key, entry.certificate) == (PUBLIC, identity.certificate)
    assert identity.entry().role == "party"
