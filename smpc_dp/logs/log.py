"""The log: a header, then numbered entries, each one line of canonical JSON.

A line is the output of `msgspec.json` for its struct, and a line feed; a reader encodes it again and compares
bytes. The head after a line is a hash of the head before it and of the line, and binds all lines before it:

    head(0) = H(header line)        head(i) = H(head(i-1), H(i, party, kind, H(payload), signature))

Every entry is signed by its party; the protocol determines the signed bytes (`wire.signing`), which include
protocol, version, run id, party, kind and payload. Specification: protocols/log/README.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import Meta

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.decoding import decode_json
from smpc_dp.errors import Check, LocalError, VerificationError

FORMAT = "smpc-dp board"
VERSION = 2
# A header holds the session with its roster, an entry one message; for 10,000 parties both are shorter.
MAX_LINE_BYTES = 1 << 24
# Base64 payload of an entry; all other fields of its line take less than 1 KiB.
MAX_PAYLOAD_BYTES = (MAX_LINE_BYTES - (1 << 10)) // 4 * 3
HEAD_BYTES = 32
# Beginning of the first line of a log of any version.
_DECLARED = re.compile(rb'\{"format":"([ !#-\[\]-~]{1,40})","version":([0-9]{1,18})[,}]')

S = TypeVar("S", bound=msgspec.Struct)

Hex32 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Hex64 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{128}\Z")]
Name = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9_.-]{0,62}\Z")]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"operation": "question"}):
    """First line of a run's log: format, session, request, run and other data for an auditor.

    `session` is the canonical JSON of the session file (roster, parameters, protocol and its version), whose
    hash is the session digest; `number`, `runs` and `before` are this run's line of the session log
    (`logs.runs`), `runs` being the head before it; `present` (a set of parties) and the root over their
    nonces, or commitments, give the run id.
    """

    format: str
    version: int
    session: str
    request: Annotated[int, Meta(ge=0, lt=1 << 62)]
    operation: Annotated[str, Meta(max_length=1024)]
    number: Annotated[int, Meta(ge=1, lt=1 << 62)]
    runs: Hex32
    before: Hex32
    present: bytes
    root: bytes
    run_id: Hex32


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of a run's log: number, hash of the log before, author, kind, payload and signature."""

    sequence: Annotated[int, Meta(ge=1, lt=1 << 62)]
    previous: Hex32
    party: Name
    kind: Name
    payload: bytes
    signature: Hex64

    def __repr__(self) -> str:
        return f"Entry({self.sequence}, {self.party!r}, {self.kind!r}, {len(self.payload)} bytes)"

    def digest(self) -> bytes:
        """Return the digest of this entry, from which the log's hash chain is computed."""
        return entry_digest(self.sequence, self.party, self.kind, self.payload, bytes.fromhex(self.signature))


class EntryCheck(Protocol):
    """Interface of a function that checks an entry's signature and raises an error if it is wrong."""

    def __call__(self, entry: Entry) -> None: ...


def entry_digest(sequence: int, party: str, kind: str, payload: bytes, signature: bytes) -> bytes:
    """Return the digest of a log entry with these fields, for the log's hash chain."""
    return digest(
        Label.BOARD_ENTRY,
        encode_uint(sequence),
        party.encode(),
        kind.encode(),
        hashlib.sha256(payload).digest(),
        signature,
    )


def first_head(header_line: bytes) -> bytes:
    """Return the initial hash of a log, from its header line without line feed."""
    return digest(Label.BOARD_HEADER, header_line)


def next_head(head: bytes, digests: Sequence[bytes]) -> bytes:
    """Return the log's hash after further entries, from the hash before and the entries' digests."""
    for entry in digests:
        head = digest(Label.BOARD_HEAD, head, entry)
    return head


def encode_line(struct: msgspec.Struct) -> bytes:
    """Encode a log's header or entry as one line of canonical JSON, without line feed."""
    return msgspec.json.encode(struct)


def decode_line(line: bytes, kind: type[S]) -> S:
    """Decode a canonical log line as a `kind`, such as an entry; VerificationError for other lines.

    Raises VerificationError if it is not the canonical form of a `kind`.
    """
    try:
        decoded = decode_json(line, kind)
        again = msgspec.json.encode(decoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise VerificationError(f"not {_a(kind)}: {error}", Check.MALFORMED) from None
    if again != line:
        index = next(
            (i for i, pair in enumerate(zip(again, line, strict=False)) if pair[0] != pair[1]),
            min(len(again), len(line)),
        )
        raise VerificationError(
            f"character {index + 1}: not the canonical spelling of {_a(kind)}", Check.NOT_CANONICAL
        )
    return decoded


class Chain:
    """State of a log's hash chain, for a writer or reader: header, number of entries and last hash."""

    def __init__(self, header: Header, head: bytes | None = None) -> None:
        """Start with a header; `head` is that of its line, if known."""
        self.header = header
        self.length = 0
        self.head = first_head(encode_line(header)) if head is None else head

    @classmethod
    def begin(cls, **fields: Any) -> Chain:
        """Return the chain of a new log without entries; keyword arguments are the header's fields."""
        return cls(Header(format=FORMAT, version=VERSION, **fields))

    def append(self, party: str, kind: str, payload: bytes, signature: bytes) -> Entry:
        """Make the log's next entry, advance the chain by it, and return it, for the log's writer."""
        entry = Entry(self.length + 1, self.head.hex(), party, kind, payload, signature.hex())
        self._take(entry)
        return entry

    def follow(self, entry: Entry, check: EntryCheck | None = None) -> None:
        """Advance the chain by an entry read from a log; VerificationError unless it is the next one.

        Raises:
            VerificationError: its number or its previous head is wrong; also the errors of `check`.
        """
        if entry.sequence != self.length + 1:
            raise VerificationError(
                f"entry {entry.sequence} where entry {self.length + 1} is due", Check.OUT_OF_SEQUENCE
            )
        if entry.previous != self.head.hex():
            reason = "does not follow: its line or one above was changed, or it was for another log"
            raise VerificationError(f"entry {entry.sequence} {reason}", Check.CHAIN_BROKEN)
        if check is not None:
            check(entry)
        self._take(entry)

    def _take(self, entry: Entry) -> None:
        """Advance the number of entries and the hash by one entry, without a check."""
        self.length += 1
        self.head = next_head(self.head, [entry.digest()])


def not_next(name: object, entry: Entry) -> LocalError:
    """Return the LocalError for an entry that does not continue the log `name`."""
    return LocalError(
        f"{name}: entry {entry.sequence} does not follow its last one: another process has gone on, or the "
        "log was set back"
    )


def _a(kind: type[msgspec.Struct]) -> str:
    """Return "a header" or "an entry", for messages about a line of that type."""
    return "a header" if kind is Header else "an entry"


def declared_format(line: bytes) -> tuple[str, int] | None:
    """Return the format name and version that a file's first line declares; None if it has none."""
    result = _DECLARED.match(line)
    return None if result is None else (result[1].decode("ascii"), int(result[2]))


def read_header(line: bytes) -> Header:
    """Decode a log's first line as its header; VerificationError for another format, or if it is invalid.

    Raises VerificationError for an unknown format or an invalid header.
    """
    check_format(declared_format(line) or (FORMAT, VERSION))
    return checked_header(decode_line(line, Header))


def checked_header(header: Header) -> Header:
    """Return the header; raise VerificationError if its format or version is not supported."""
    check_format((header.format, header.version))
    return header


def check_format(result: tuple[str, int], expected: tuple[str, int] = (FORMAT, VERSION)) -> None:
    """Raise VerificationError unless a file's (format name, version) is the expected pair."""
    if result[0] == expected[0] == FORMAT and result != expected:
        raise VerificationError(
            f"version {result[1]} of the board is unknown, this reads {VERSION}", Check.UNKNOWN_FORMAT
        )
    if result != expected:
        raise VerificationError(
            f"the format is {result[0][:40]!r} {result[1]}, not {expected[0]!r} {expected[1]}",
            Check.UNKNOWN_FORMAT,
        )
