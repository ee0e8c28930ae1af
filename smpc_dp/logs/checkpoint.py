"""Checkpoints of a session log [c2sp.org/tlog-checkpoint], proofs, and a witness's cosignatures.

The origin is the scope of the session log, in hex: the session digest, or that of a learner's group. Leaf i
of the tree is line i of the file without its line feed. One extension line has the head after these lines.
Specification: protocols/log/README.md.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smpc_dp.decoding import from_base64
from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.files import lock_folder, read_bounded, replace_file
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.hash_tree import HASH_BYTES, MOST_HASHES, check_consistency, check_inclusion
from smpc_dp.logs.runs import SessionLog
from smpc_dp.logs.signed_note import COSIGNATURE, MAX_BYTES, NOTE, NoteKey, SignedNote, cosign_note, sign_note

_TEXT = re.compile(rb"([0-9a-f]{64})\n(0|[1-9][0-9]{0,17})\n([A-Za-z0-9+/=]{44})\nhead ([0-9a-f]{64})\n")
_OLD = re.compile(rb"old (0|[1-9][0-9]{0,17})")
_INDEX = re.compile(rb"index (0|[1-9][0-9]{0,17})")
_PROOF = b"c2sp.org/tlog-proof@v1"
MAX_REQUEST = MAX_BYTES + (MOST_HASHES + 2) * 64


@dataclass(frozen=True)
class Checkpoint:
    """Statement on the state of a session log: origin, number of lines, tree root and hash chain's head."""

    origin: str
    size: int
    root: bytes
    head: bytes

    @classmethod
    def parse(cls, text: bytes) -> Checkpoint:
        """Parse a checkpoint's text; raise VerificationError if it is not of a session log."""
        match = _TEXT.fullmatch(text)
        root = None if match is None else from_base64(match[3].decode("ascii"))
        if match is None or root is None or len(root) != HASH_BYTES:
            raise VerificationError("the note is no checkpoint of a session log", Check.MALFORMED)
        return cls(match[1].decode("ascii"), int(match[2]), root, bytes.fromhex(match[4].decode("ascii")))

    @classmethod
    def of(cls, log: SessionLog, size: int | None = None) -> Checkpoint:
        """Return the checkpoint of a log's first `size` lines; of all lines by default."""
        size = len(log.tree) if size is None else size
        return cls(log.first.scope, size, log.tree.root(size), log.head_at(size))

    def text(self) -> bytes:
        """Return the checkpoint as the text that is signed."""
        root = b64encode(self.root).decode("ascii")
        return f"{self.origin}\n{self.size}\n{root}\nhead {self.head.hex()}\n".encode()

    def check(self, log: SessionLog) -> None:
        """Raise VerificationError unless the log begins with the lines that this checkpoint states."""
        if self.origin != log.first.scope:
            raise VerificationError(
                f"the checkpoint is of {self.origin}, the session log of {log.first.scope}",
                Check.OTHER_SESSION,
            )
        if not 1 <= self.size <= len(log.tree):
            reason = f"the checkpoint is of {self.size} lines, the session log has {len(log.tree)}"
            raise VerificationError(reason, Check.LOG_CUT)
        expected = Checkpoint.of(log, self.size)
        if self.root != expected.root:
            reason = (
                f"the root of the checkpoint is not that of the first {self.size} lines of the session log"
            )
            raise VerificationError(reason, Check.BAD_CHECKPOINT)
        if self.head != expected.head:
            reason = (
                f"the head in the checkpoint is not that after the first {self.size} lines of the session log"
            )
            raise VerificationError(reason, Check.BAD_CHECKPOINT)


def log_key(origin: str, public_key: bytes) -> NoteKey:
    """Return the key that verifies a log's checkpoints, named after the log's origin."""
    return NoteKey(origin, NOTE, public_key)


def sign_checkpoint(log: SessionLog, identity: Identity) -> bytes:
    """Return a signed note on the present state of a session log (list of runs), by the aggregator."""
    checkpoint = Checkpoint.of(log)
    return sign_note(checkpoint.text(), log_key(checkpoint.origin, identity.public_key), identity)


def read_checkpoint(note: bytes, public_key: bytes) -> tuple[Checkpoint, SignedNote]:
    """Parse a signed checkpoint and verify the log's signature; raise VerificationError if false."""
    parsed = SignedNote.parse(note)
    checkpoint = Checkpoint.parse(parsed.text)
    if not parsed.verified([log_key(checkpoint.origin, public_key)]):
        raise VerificationError(
            "the checkpoint has no signature of the key that the session names", Check.NOT_SIGNED
        )
    return checkpoint, parsed


def check_witnesses(note: SignedNote, witnesses: Sequence[NoteKey], least: int) -> tuple[str, ...]:
    """Return names of the witnesses that cosigned a note; raise VerificationError if below `least`."""
    names = tuple(sorted(key.name for key in note.verified(witnesses)))
    if len(names) < least:
        raise VerificationError(
            f"{len(names)} of the given witnesses have cosigned the checkpoint, {least} must have",
            Check.NOT_WITNESSED,
        )
    return names


def inclusion_proof(log: SessionLog, index: int, note: bytes) -> bytes:
    """Return a proof that a line is in the list of runs that a checkpoint states [c2sp.org/tlog-proof]."""
    size = Checkpoint.parse(SignedNote.parse(note).text).size
    hashes = b"".join(b64encode(node) + b"\n" for node in log.tree.prove_inclusion(index, size))
    return _PROOF + b"\nindex %d\n" % index + hashes + b"\n" + note


def check_inclusion_proof(proof: bytes, line: bytes, public_key: bytes) -> tuple[int, Checkpoint, SignedNote]:
    """Return index, checkpoint and note by which a line is in a log; VerificationError if false."""
    first, _, rest = proof.partition(b"\n")
    beginning, hashes, note = _parts(rest)
    index = _INDEX.fullmatch(beginning)
    if first != _PROOF or index is None:
        raise VerificationError("no proof of inclusion", Check.MALFORMED)
    checkpoint, signed = read_checkpoint(note, public_key)
    check_inclusion(line, int(index[1]), checkpoint.size, checkpoint.root, hashes)
    return int(index[1]), checkpoint, signed


def witness_request(log: SessionLog, old: int, note: bytes) -> bytes:
    """Return the request for a witness, who knows `old` lines, to cosign a note [c2sp.org/tlog-witness]."""
    size = Checkpoint.parse(SignedNote.parse(note).text).size
    hashes = b"".join(b64encode(node) + b"\n" for node in log.tree.prove_consistency(old, size))
    return b"old %d\n" % old + hashes + b"\n" + note


def _parts(content: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Split a proof or request into first line, hashes and note; VerificationError for wrong hashes."""
    head, _, note = content.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    hashes = [from_base64(line.decode("latin-1")) for line in lines[: MOST_HASHES + 1]]
    read = [node for node in hashes if node is not None and len(node) == HASH_BYTES]
    if len(read) != len(lines) or len(lines) > MOST_HASHES:
        raise VerificationError(
            f"a proof has {MOST_HASHES} hashes at most, each of 32 bytes", Check.MALFORMED
        )
    return first, read, note


class Witness:
    """Witness of session logs: cosigns a checkpoint if it only appends to the last one that it cosigned.

    Its memory is a folder with the last checkpoint of each origin; two processes can share one. A cosignature
    says that the log was only appended to, as far as this witness saw it, and not that a line is right.
    """

    def __init__(self, identity: Identity, folder: str | os.PathLike[str]) -> None:
        self.key = NoteKey(identity.name, COSIGNATURE, identity.public_key)
        self._identity, self._folder = identity, Path(folder)

    def cosign(
        self, request: bytes, public_key: bytes, time: int, is_known: Callable[[str], bool] | None = None
    ) -> bytes:
        """Verify a request, store its checkpoint, and return the cosignature; VerificationError if unfit.

        Args:
            public_key: of the log's checkpoints. time: seconds since the epoch.
            is_known: tells whether an origin is of a log that this key signs, so that one session's key
                cannot replace what is remembered of another's log; by default each is.

        Raises:
            VerificationError: the request is malformed; the checkpoint is not signed by the log, or of an
                origin that is not known (Check.OTHER_SESSION); it does not continue the last one of its
                origin (Check.SPLIT_VIEW), or is not compared with that (Check.ROLLED_BACK). LocalError: the
                folder cannot be used.
        """
        if len(request) > MAX_REQUEST:
            raise VerificationError(f"a request has {MAX_REQUEST} bytes at most", Check.TOO_LONG)
        beginning, proof, note = _parts(request)
        match = _OLD.fullmatch(beginning)
        if match is None:
            raise VerificationError("no request to a witness", Check.MALFORMED)
        checkpoint, signed = read_checkpoint(note, public_key)
        if is_known is not None and not is_known(checkpoint.origin):
            raise VerificationError(
                f"the checkpoint is of {checkpoint.origin}, which is no log of the session",
                Check.OTHER_SESSION,
            )
        old = int(match[1])
        with self._alone():
            path = self._folder / f"{checkpoint.origin}.checkpoint"
            known = _known(path)
            if known is not None and known.origin != checkpoint.origin:
                raise LocalError(f"{path}: is a checkpoint of another log")
            size = 0 if known is None else known.size
            if old != size:
                raise VerificationError(
                    f"the request compares with {old} lines, {size} were cosigned last", Check.ROLLED_BACK
                )
            if known is not None:
                check_consistency(old, known.root, checkpoint.size, checkpoint.root, proof)
                if size == checkpoint.size and known.head != checkpoint.head:
                    raise VerificationError(
                        "two checkpoints of one tree differ in the head", Check.SPLIT_VIEW
                    )
            elif proof or not checkpoint.size:
                raise VerificationError("a first checkpoint has lines and no proof", Check.MALFORMED)
            replace_file(path, lambda out: out.write(signed.text))
        return cosign_note(signed.text, self.key, self._identity, time)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the witness's folder in the block; raise LocalError if the folder cannot be used."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with lock_folder(self._folder):
                yield
        except OSError as error:
            raise LocalError(f"{self._folder}: cannot use the witness's folder ({error.strerror})") from None


def _known(path: Path) -> Checkpoint | None:
    """Return the checkpoint that this witness cosigned last, None for none; LocalError if damaged."""
    if not path.exists():
        return None
    try:
        return Checkpoint.parse(read_bounded(path, "the last checkpoint", MAX_BYTES))
    except VerificationError as error:
        raise LocalError(f"{path}: is damaged ({error}); a witness cannot go on without it") from None


def add_cosignatures(note: bytes, lines: bytes, witnesses: Sequence[NoteKey]) -> bytes:
    """Return a checkpoint with witnesses' new cosignatures of `lines`; VerificationError for a wrong one."""
    parsed = SignedNote.parse(note)
    added = SignedNote.parse(parsed.text + b"\n" + lines)
    right = added.verified(witnesses) - parsed.verified(witnesses)
    ids = {(key.name, key.identifier): key for key in right}
    result = note
    for name, identifier, signature in added.signatures:
        key = ids.pop((name, identifier), None)
        if key is not None:
            result += key.signature_line(signature)
    return result
