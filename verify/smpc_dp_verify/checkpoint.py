"""Signed checkpoints of a session log [protocols/log/README.md, "Checkpoints"; RFC 6962; c2sp.org]."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.session import has_small_order

if TYPE_CHECKING:
    from smpc_dp_verify.session_log import SessionLog

LONGEST_NOTE, MOST_SIGNATURES = 1 << 16, 100
KEY = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})")
SIGNATURE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/=]+)")
TEXT = re.compile(r"([0-9a-f]{64})\n(0|[1-9][0-9]{0,17})\n([A-Za-z0-9+/]{43}=)\nhead ([0-9a-f]{64})\n")
OF_LOG, OF_WITNESS = b"\1", b"\4"


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    """Return the Merkle tree hash MTH of a list of leaves [RFC 6962, section 2.1]."""
    if len(leaves) <= 1:
        return hashlib.sha256(b"\0" + leaves[0] if leaves else b"").digest()
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\1" + tree_hash(leaves[:k]) + tree_hash(leaves[k:])).digest()


def key_id(name: str, kind: bytes, key: bytes) -> bytes:
    """Return the four-byte key id that precedes a signature in a note [c2sp.org/signed-note]."""
    return hashlib.sha256(name.encode() + b"\n" + kind + key).digest()[:4]


def witness_key(text: str) -> bytes:
    """Parse a witness's key (name+id+base64) and return its public key; raise ValueError for other text."""
    match = KEY.fullmatch(text)
    encoded = b64decode(match[3]) if match else b""
    if not match or encoded[:1] != OF_WITNESS or key_id(match[1], OF_WITNESS, encoded[1:]).hex() != match[2]:
        raise ValueError(f"witness: {text!r} is no key of a witness")
    return encoded[1:]


def check_checkpoint(
    note: bytes,
    listed: SessionLog,
    key: bytes | None,
    number: int,
    witnesses: Sequence[str],
    least: int,
) -> None:
    """Raise Refused unless a note is a signed, cosigned checkpoint of a log that has run `number`."""
    required(len(note) <= LONGEST_NOTE, "the format of the checkpoint")
    try:
        whole = note.decode()
    except UnicodeDecodeError:
        raise Refused("the format of the checkpoint") from None
    text, blank, rest = whole.rpartition("\n\n")
    text += "\n"
    lines = rest.split("\n")
    required(blank and not lines.pop() and 0 < len(lines) <= MOST_SIGNATURES, "the format of the checkpoint")
    required(not re.search("[\0-\x09\x0b-\x1f]", whole), "the format of the checkpoint")
    signatures = [_signature(line) for line in lines]
    match = TEXT.fullmatch(text)
    required(match, "the format of the checkpoint")
    origin, size, root, head = match.groups() if match else ("", "", "", "")
    required(key is not None, "the signature of the checkpoint")
    signed = _signed(text, origin, OF_LOG, key or b"", signatures)
    required(signed, "the signature of the checkpoint")
    count = int(size)
    required(origin == listed.scope.hex() and 0 < count <= len(listed.leaves), "the checkpoint's log")
    required(_decoded(root) == tree_hash(listed.leaves[:count]), "the checkpoint's root")
    required(head == listed.heads_at[count - 1].hex(), "the checkpoint's head")
    required(listed.heads.index(listed.heads_at[count - 1]) >= number, "the checkpoint's lines")
    cosigned = [
        _signed(text, witness.split("+")[0], OF_WITNESS, witness_key(witness), signatures)
        for witness in witnesses
    ]
    required(sum(cosigned) >= least, "the witnesses of the checkpoint")


def _decoded(text: str) -> bytes:
    try:
        content = b64decode(text, validate=True)
    except ValueError:
        raise Refused("the format of the checkpoint") from None
    required(b64encode(content).decode("ascii") == text, "the format of the checkpoint")
    return content


def _signature(line: str) -> tuple[str, bytes]:
    match = SIGNATURE.fullmatch(line)
    required(match, "the format of the checkpoint")
    name, encoded = (match[1], _decoded(match[2])) if match else ("", b"")
    required(len(encoded) > 4, "the format of the checkpoint")
    return name, encoded


def _signed(text: str, name: str, kind: bytes, key: bytes, signatures: Sequence[tuple[str, bytes]]) -> bool:
    """Tell whether a note has a signature of this key; raise Refused if such a signature is wrong."""
    own = [
        encoded[4:] for who, encoded in signatures if (who, encoded[:4]) == (name, key_id(name, kind, key))
    ]
    for signature in own:
        message = text.encode()
        if kind == OF_WITNESS:
            time, signature = int.from_bytes(signature[:8], "big"), signature[8:]
            required(time < 1 << 63, "a signature of the checkpoint")
            message = b"cosignature/v1\ntime %d\n" % time + message
        try:
            required(len(signature) == 64, "a signature of the checkpoint")
            small = has_small_order(key) or has_small_order(signature[:32])
            required(not small, "a signature of the checkpoint")
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise Refused("a signature of the checkpoint") from None
    return bool(own)
