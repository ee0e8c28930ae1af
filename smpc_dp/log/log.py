"""The log: one header, then numbered entries, each one line of JSON in its only spelling.

A line is what `msgspec.json` makes of its struct, and a line feed; a reader makes it again and compares
bytes. The head after a line is a hash of the head before it and of the line, and stands for everything
above:

    head(0) = H(header line)        head(i) = H(head(i-1), H(i, party, kind, H(payload), signature))

Every entry is signed by its party; what the signature covers is the protocol's (`wire.signing`), and
includes protocol, version, run id, party, kind and payload. Specification: protocols/log/README.md.
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
from smpc_dp.errors import Check, VerificationError

FORMAT = "smpc-dp board"
VERSION = 2
# A header holds the session with its roster, an entry one message: of 10,000 parties, both are below.
MAX_LINE_BYTES = 1 << 24
# Of an entry, in base64; a KiB is more than all else in its line.
MAX_PAYLOAD_BYTES = (MAX_LINE_BYTES - (1 << 10)) // 4 * 3
HEAD_BYTES = 32
# As the first line of a log of any version begins.
_DECLARED = re.compile(rb'\{"format":"([ !#-\[\]-~]{1,40})","version":([0-9]{1,18})[,}]')

S = TypeVar("S", bound=msgspec.Struct)

Hex32 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Hex64 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{128}\Z")]
Name = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9_.-]{0,62}\Z")]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"operation": "question"}):
    """What an auditor needs to know before the first entry.

    `session` is the canonical JSON of the session file (roster, parameters, protocol and its version), whose
    hash is the session digest; `number`, `runs` and `before` are the line of the session log that this run is
    (`board.runs`), `runs` being the head before it; `present` (a set of parties) and the root over their
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
    """One entry; `previous` is the head before it, `signature` the party's."""

    sequence: Annotated[int, Meta(ge=1, lt=1 << 62)]
    previous: Hex32
    party: Name
    kind: Name
    payload: bytes
    signature: Hex64

    def __repr__(self) -> str:
        return f"Entry({self.sequence}, {self.party!r}, {self.kind!r}, {len(self.payload)} bytes)"

    def digest(self) -> bytes:
        """Return what stands for the entry in the chain."""
        return entry_digest(self.sequence, self.party, self.kind, self.payload, bytes.fromhex(self.signature))


class EntryCheck(Protocol):
    """Raises `VerificationError` or `PeerFault` unless the entry is signed by the party that it names."""

    def __call__(self, entry: Entry) -> None: ...


def entry_digest(sequence: int, party: str, kind: str, payload: bytes, signature: bytes) -> bytes:
    """Return the 32 bytes that stand for an entry in the chain."""
    return digest(
        Label.BOARD_ENTRY,
        encode_uint(sequence),
        party.encode(),
        kind.encode(),
        hashlib.sha256(payload).digest(),
        signature,
    )


def first_head(header_line: bytes) -> bytes:
    """Return the head of a log that has its header alone; the line is without its line feed."""
    return digest(Label.BOARD_HEADER, header_line)


def next_head(head: bytes, digests: Sequence[bytes]) -> bytes:
    """Return the head after entries with these digests."""
    for entry in digests:
        head = digest(Label.BOARD_HEAD, head, entry)
    return head


def encode_line(struct: msgspec.Struct) -> bytes:
    """Return the line of a header or an entry, without its line feed."""
    return msgspec.json.encode(struct)


def decode_line(line: bytes, kind: type[S]) -> S:
    """Read a line without its line feed; raise VerificationError if it is not how a `kind` is spelt."""
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
    """The growing log as its writer or reader follows it: how many entries there are, and the head."""

    def __init__(self, header: Header, head: bytes | None = None) -> None:
        """Start with a header; `head` is that of its line, if it is known already."""
        self.header = header
        self.length = 0
        self.head = first_head(encode_line(header)) if head is None else head

    @classmethod
    def begin(cls, **fields: Any) -> Chain:
        """Return a log without entries; arguments as the fields of `Header`."""
        return cls(Header(format=FORMAT, version=VERSION, **fields))

    def append(self, party: str, kind: str, payload: bytes, signature: bytes) -> Entry:
        """Return the next entry; nothing is checked, the writer has done so."""
        entry = Entry(self.length + 1, self.head.hex(), party, kind, payload, signature.hex())
        self._take(entry)
        return entry

    def follow(self, entry: Entry, check: EntryCheck | None = None) -> None:
        """Take an entry that somebody else wrote.

        Raises:
            VerificationError: it is not the next one, or another one stood before it; or what `check` raises.
        """
        if entry.sequence != self.length + 1:
            raise VerificationError(
                f"entry {entry.sequence} where entry {self.length + 1} is due", Check.OUT_OF_SEQUENCE
            )
        if entry.previous != self.head.hex():
            reason = "does not follow: a line above was changed, or it was for another log"
            raise VerificationError(f"entry {entry.sequence} {reason}", Check.CHAIN_BROKEN)
        if check is not None:
            check(entry)
        self._take(entry)

    def _take(self, entry: Entry) -> None:
        self.length += 1
        self.head = next_head(self.head, [entry.digest()])


def _a(kind: type[msgspec.Struct]) -> str:
    return "a header" if kind is Header else "an entry"


def declared(line: bytes) -> tuple[str, int] | None:
    """Return format and version that a first line says, whatever else is in it; None if it does not."""
    result = _DECLARED.match(line)
    return None if result is None else (result[1].decode("ascii"), int(result[2]))


def read_header(line: bytes) -> Header:
    """Read a header's line without its line feed; raise VerificationError if it is none that this reads."""
    check_format(declared(line) or (FORMAT, VERSION))
    return checked_header(decode_line(line, Header))


def checked_header(header: Header) -> Header:
    """Return the header; raise VerificationError if it is of another format or version."""
    check_format((header.format, header.version))
    return header


def check_format(result: tuple[str, int], expected: tuple[str, int] = (FORMAT, VERSION)) -> None:
    """Raise VerificationError unless a first line has the format and the version that are due."""
    if result[0] == expected[0] == FORMAT and result != expected:
        raise VerificationError(
            f"version {result[1]} of the board is unknown, this reads {VERSION}", Check.UNKNOWN_FORMAT
        )
    if result != expected:
        raise VerificationError(
            f"the format is {result[0][:40]!r} {result[1]}, not {expected[0]!r} {expected[1]}",
            Check.UNKNOWN_FORMAT,
        )
