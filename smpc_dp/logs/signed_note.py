"""Signed notes [c2sp.org/signed-note]: a text with lines of signatures, of logs and of witnesses.

A key is given as text, `name+id+base64`, as Go's sumdb and other transparency logs write it.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from smpc_dp.decoding import from_base64
from smpc_dp.errors import Check, ConfigCheck, ConfigError, VerificationError
from smpc_dp.identity.keys import Identity, verify

# Signature types: of a note, and of a witness's cosignature [c2sp.org/tlog-cosignature].
NOTE, COSIGNATURE = 1, 4
MAX_BYTES = 1 << 16
MOST_SIGNATURES = 100
_ID_BYTES, _TIME_BYTES = 4, 8
_LAST_TIME = (1 << 63) - 1
_KEY = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]{44})")
_SIGNATURE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/=]+)")


@dataclass(frozen=True)
class NoteKey:
    """Named Ed25519 public key that verifies signatures of notes, or cosignatures of witnesses."""

    name: str
    kind: int
    public_key: bytes

    @classmethod
    def parse(cls, text: str, where: str = "key") -> NoteKey:
        """Parse a key written as `name+id+base64`; raise ConfigError for other text."""
        match = _KEY.fullmatch(text)
        encoded = None if match is None else from_base64(match[3])
        if match is not None and encoded is not None and len(encoded) == 33:
            key = cls(match[1], encoded[0], encoded[1:])
            if key.kind in (NOTE, COSIGNATURE) and key.identifier.hex() == match[2]:
                return key
        raise ConfigError.at(
            where, f"{text[:80]!r} is no Ed25519 key of a signed note, name+id+base64", ConfigCheck.FORMAT
        )

    @property
    def identifier(self) -> bytes:
        """Four-byte key id that precedes each signature by this key."""
        hashed = self.name.encode() + b"\n" + bytes([self.kind]) + self.public_key
        return hashlib.sha256(hashed).digest()[:_ID_BYTES]

    def __str__(self) -> str:
        encoded = b64encode(bytes([self.kind]) + self.public_key).decode("ascii")
        return f"{self.name}+{self.identifier.hex()}+{encoded}"

    def signature_line(self, signature: bytes) -> bytes:
        """Format a signature by this key as a line of a signed note."""
        encoded = b64encode(self.identifier + signature).decode("ascii")
        return f"— {self.name} {encoded}\n".encode()


@dataclass(frozen=True)
class SignedNote:
    """Parsed signed note (c2sp.org/signed-note): its text, and signatures with key names and ids."""

    text: bytes
    signatures: tuple[tuple[str, bytes, bytes], ...]

    @classmethod
    def parse(cls, note: bytes) -> SignedNote:
        """Parse the bytes of a signed note; raise VerificationError if malformed."""
        if len(note) > MAX_BYTES:
            raise VerificationError(f"a signed note has {MAX_BYTES} bytes at most", Check.TOO_LONG)
        text, blank, rest = note.rpartition(b"\n\n")
        try:
            lines = rest.decode().split("\n")
            control = re.search("[\x00-\x09\x0b-\x1f]", note.decode())
        except UnicodeDecodeError:
            raise VerificationError("a signed note is UTF-8", Check.MALFORMED) from None
        if not blank or control or lines.pop() or not lines or len(lines) > MOST_SIGNATURES:
            raise VerificationError("no signed note: a text, an empty line, signatures", Check.MALFORMED)
        return cls(text + b"\n", tuple(map(_signature, lines)))

    def verified(self, keys: Sequence[NoteKey]) -> frozenset[NoteKey]:
        """Return those of the keys that signed the note; VerificationError for a wrong signature.

        Raises VerificationError if a signature of one of them is wrong. Signatures of other keys are ignored.
        """
        known = {(key.name, key.identifier): key for key in keys}
        signed = set()
        for name, identifier, signature in self.signatures:
            key = known.get((name, identifier))
            if key is not None:
                self._check(key, signature)
                signed.add(key)
        return frozenset(signed)

    def _check(self, key: NoteKey, signature: bytes) -> None:
        """Raise VerificationError unless this signature of the note verifies under the key."""
        message = self.text
        try:
            if key.kind == COSIGNATURE:
                # Never the text alone: a witness signs it with a time.
                time, signature = int.from_bytes(signature[:_TIME_BYTES]), signature[_TIME_BYTES:]
                if time > _LAST_TIME:
                    raise VerificationError("a time that no cosignature can have", Check.BAD_SIGNATURE)
                message = cosigned(self.text, time)
            verify(key.public_key, message, signature)
        except VerificationError:
            raise VerificationError(
                f"a wrong signature of {key.name}, or one of another text", Check.BAD_SIGNATURE
            ) from None


def sign_note(text: bytes, key: NoteKey, identity: Identity) -> bytes:
    """Sign a text with a log's key and return it as a signed note."""
    return text + b"\n" + key.signature_line(identity.sign(text))


def cosign_note(text: bytes, key: NoteKey, identity: Identity, time: int) -> bytes:
    """Return a witness's signature line for a note's text, with the time in seconds since the epoch."""
    signature = time.to_bytes(_TIME_BYTES) + identity.sign(cosigned(text, time))
    return key.signature_line(signature)


def cosigned(text: bytes, time: int) -> bytes:
    """Return the bytes that a witness signs to cosign a note's text at a time."""
    return b"cosignature/v1\ntime %d\n" % time + text


def _signature(line: str) -> tuple[str, bytes, bytes]:
    """Parse a note's signature line: return key name, id and signature; VerificationError if malformed."""
    match = _SIGNATURE.fullmatch(line)
    encoded = None if match is None else from_base64(match[2])
    if match is None or encoded is None or len(encoded) <= _ID_BYTES:
        raise VerificationError("no signed note: a line of a signature is malformed", Check.MALFORMED)
    return match[1], encoded[:_ID_BYTES], encoded[_ID_BYTES:]
