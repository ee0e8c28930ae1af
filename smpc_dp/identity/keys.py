"""Ed25519 identities: the keys that sign messages, and to which channels and rosters are pinned.

An identity file holds the 32-byte seed in hex, readable by its owner alone:

    # smpc-dp identity: SECRET. Whoever has this file can act as 'alice'.
    version = 1
    name = "alice"
    seed = "9d61b19d..."

A file without a version is of version 1.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import tomllib
from pathlib import Path
from typing import NoReturn, Self

from nacl.bindings import crypto_sign, crypto_sign_open
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey

from smpc_dp.crypto.x509 import private_key_pem
from smpc_dp.encoding import shown
from smpc_dp.errors import Check, ConfigCheck, ConfigError, LocalError, VerificationError
from smpc_dp.files import read_private
from smpc_dp.identity import certificate
from smpc_dp.identity.roster import Member, Role, is_name

VERSION = 1
SEED_BYTES = 32
SIGNATURE_BYTES = 64
MAX_FILE_BYTES = 4096
# Name in the file of the key of an aggregator's checkpoints.
CHECKPOINTS = "checkpoints"
_SEED_HEX = re.compile(r"[0-9a-f]{64}")
_LOG = logging.getLogger("smpc_dp.identity")


class Identity:
    """Name of a member with its Ed25519 key pair and TLS certificate; `repr` hides the private key."""

    __slots__ = ("_secret", "_signing_key", "certificate", "name", "public_key")

    name: str
    public_key: bytes
    certificate: bytes
    _signing_key: SigningKey
    _secret: bytes

    def __init__(self, name: str, signing_key: SigningKey) -> None:
        if not is_name(name):
            raise ConfigError(
                f"{name!r} is not a name: 1 to 63 of a-z, 0-9, '_', '.' and '-', a letter or digit first",
                ConfigCheck.FORMAT,
            )
        own = object.__setattr__
        own(self, "name", name)
        own(self, "_signing_key", signing_key)
        own(self, "public_key", bytes(signing_key.verify_key))
        # libsodium's form: the seed and the public key.
        own(self, "_secret", bytes(signing_key) + self.public_key)
        own(self, "certificate", certificate.issue(name, signing_key))

    @classmethod
    def generate(cls, name: str) -> Self:
        """Return a new identity with a random key pair, from the operating system's randomness."""
        return cls(name, SigningKey.generate())

    @classmethod
    def from_seed(cls, name: str, seed: bytes) -> Self:
        """Return the identity with the key derived from 32 secret bytes; ConfigError for other lengths."""
        if len(seed) != SEED_BYTES:
            raise ConfigError(
                f"the seed of an identity has {SEED_BYTES} bytes, not {len(seed)}", ConfigCheck.SHAPE
            )
        return cls(name, SigningKey(seed))

    @classmethod
    def load(cls, path: str | os.PathLike[str], expected_name: str | None = None) -> Self:
        """Return the identity in a private key file; LocalError for a wrong file, or another name.

        Raises LocalError when the file is missing, when others than its owner can read or write it, and when
        it is no identity file, of an unknown version, or not that of `expected_name`.
        """
        _LOG.debug("opens the identity, %s", Path(path).name)
        content = read_private(Path(path), "the identity", "an identity file", MAX_FILE_BYTES)
        try:
            fields = tomllib.loads(content.removeprefix(codecs.BOM_UTF8).decode("ascii"))
        except UnicodeDecodeError:
            raise LocalError(f"{path}: not an identity file (not plain text)") from None
        except (ValueError, RecursionError) as error:
            raise LocalError(f"{path}: not an identity file ({error})") from None
        version = fields.pop("version", 1)
        if type(version) is not int:
            raise LocalError(f"{path}: not an identity file ('version' is not an integer)")
        if version != VERSION:
            raise LocalError(
                f"{path}: is a key file of version {shown(version)}; this release reads {VERSION}"
            )
        name, seed = fields.get("name"), fields.get("seed")
        if set(fields) != {"name", "seed"} or not isinstance(name, str) or not is_name(name):
            raise LocalError(
                f"{path}: not an identity file (it holds a valid 'name' and a 'seed', and nothing else)"
            )
        if not isinstance(seed, str) or not _SEED_HEX.fullmatch(seed):
            raise LocalError(f"{path}: not an identity file ('seed' is not 64 lower-case hex digits)")
        if expected_name is not None and name != expected_name:
            raise LocalError(f"{path}: the identity of '{name}', not of '{expected_name}'")
        return cls.from_seed(name, bytes.fromhex(seed))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the private key to a new file of mode 0600; raise LocalError if it exists or on failure."""
        text = (
            f"# smpc-dp identity: SECRET. Whoever has this file can act as '{self.name}'.\n"
            f'version = {VERSION}\nname = "{self.name}"\nseed = "{bytes(self._signing_key).hex()}"\n'
        )
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                os.fchmod(descriptor, 0o600)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
        except FileExistsError:
            raise LocalError(f"{path}: exists already, and an identity is never overwritten") from None
        except OSError as error:
            raise LocalError(f"{path}: cannot write the identity ({error.strerror})") from None

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte Ed25519 signature of `message`."""
        return crypto_sign(message, self._secret)[:SIGNATURE_BYTES]

    def entry(
        self, role: Role = "party", address: str | None = None, checkpoint_key: bytes | None = None
    ) -> Member:
        """Return this identity's public entry for a session's roster: name, role, address and keys."""
        return Member(self.name, role, address, self.public_key, self.certificate, checkpoint_key)

    def private_key_pem(self) -> bytes:
        """Return the private key as unencrypted PKCS 8 PEM, to be given to `ssl`. SECRET."""
        return private_key_pem(bytes(self._signing_key))

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, public_key={self.public_key.hex()})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Identity is immutable: cannot set '{name}'")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an Identity is immutable: cannot delete '{name}'")

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Identity is secret and is not pickled or copied: save it to a file")


def checkpoint_key_file(key_file: Path) -> Path:
    """Return the path of an aggregator's key for log checkpoints: its key file's, with another suffix."""
    return key_file.with_suffix(f".{CHECKPOINTS}")


def verify(public_key: bytes, message: bytes, signature: bytes) -> None:
    """Raise VerificationError unless `signature` is the Ed25519 signature of `message` under `public_key`."""
    if len(public_key) != 32 or len(signature) != SIGNATURE_BYTES:
        raise VerificationError(
            f"a key has 32 bytes and a signature 64, not {len(public_key)} and {len(signature)}",
            Check.WRONG_LENGTH,
        )
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        raise VerificationError(
            f"wrong signature for the key {public_key.hex()}", Check.BAD_SIGNATURE
        ) from None
