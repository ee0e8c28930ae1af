"""The session log: the list of all logged runs of a session, or of a learner's group.

Each line is a run that was begun, and binds all lines before it:

    head(0) = H(scope)        head(k) = H(head(k-1), k, request, run id, before)

`before` is the last head of the log of run k-1. A quorum signs head(k) before anything else happens in run k.
Specification: protocols/log/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.logs.hash_tree import HashTree
from smpc_dp.logs.log import Hex32, Name, check_format, declared_format, decode_line, encode_line
from smpc_dp.seen import Seen

FORMAT = "smpc-dp session log"
VERSION = 1
NO_HEAD = bytes(32)
"""What stands for the last head of a log where there is none."""

Number = Annotated[int, Meta(ge=1, lt=1 << 62)]


class FirstLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First line of a session log file: format, version, the session, and the scope (session or group)."""

    format: str
    version: int
    session: Hex32
    scope: Hex32


class RunLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Line of a session log that records the beginning of one run, and the last hash of the run before."""

    number: Number
    request: Annotated[int, Meta(ge=0, lt=1 << 62)]
    run_id: Hex32
    before: Hex32


class CertifiedLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Line of a session log: signatures of a quorum of parties on the hash after line `certifies`.

    Its other fields are those of the entry `certify-begin`.
    """

    certifies: Number
    protocol: Name
    version: Annotated[int, Meta(ge=0, lt=1 << 62)]
    members: bytes
    signers: bytes
    signatures: bytes


def start_of(scope: bytes) -> bytes:
    """Return the hash of an empty session log (list of runs) of a session or group."""
    return digest(Label.SESSION_LOG, scope)


def head_after(head: bytes, number: int, request: int, run_id: bytes, before: bytes) -> bytes:
    """Return the hash of a session log (list of runs) after this line, from the hash before."""
    parts = (encode_uint(number), encode_uint(request), run_id, before)
    return digest(Label.SESSION_LOG_LINE, head, *parts)


# Request, run id and `before` of a line.
Shown = tuple[int, bytes, bytes]


def check_shown(seen: Seen, scope: bytes, base: int, head: bytes, lines: Sequence[Shown]) -> bytes:
    """Return the hash after the last shown line; VerificationError unless lines extend the known log.

    The lines follow `head`, that after line `base`. Raises VerificationError unless they extend the list that
    the party has seen.
    """
    last = base + len(lines)
    if last <= seen.number or not lines:
        raise VerificationError(
            f"shows a session log of {last} runs, one with {seen.number} was signed: it was rolled back",
            Check.ROLLED_BACK,
        )
    if seen.number and base > seen.number:
        raise VerificationError(
            f"shows the session log from run {base} on, {seen.number} is the last known", Check.ROLLED_BACK
        )
    if base == 0 and head != start_of(scope):
        raise VerificationError("shows the session log of another session", Check.OTHER_SESSION)
    for number, (request, run_id, before) in enumerate(lines, base + 1):
        if number - 1 == seen.number and seen.number and head != seen.head:
            raise VerificationError(
                f"shows another session log than was signed up to run {seen.number}", Check.LOG_DIFFERS
            )
        if number == 1 and before != NO_HEAD:
            raise VerificationError(
                "shows a session log in which a run was before the first", Check.LOG_DIFFERS
            )
        if seen.closed and number - 1 == seen.closed and before != seen.closed_head:
            raise VerificationError(
                f"shows another end of run {seen.closed} than this party saw", Check.LOG_DIFFERS
            )
        head = head_after(head, number, request, run_id, before)
    return head


class SessionLog:
    """List of all logged runs of a session or group, as a hash chain; subclasses store the lines."""

    def __init__(self, session: bytes, scope: bytes) -> None:
        self.first = FirstLine(FORMAT, VERSION, session.hex(), scope.hex())
        self.lines: list[RunLine] = []
        # The last certificate: it covers all lines before it.
        self.certified: CertifiedLine | None = None
        self._heads = [start_of(scope)]
        # The tree of the checkpoints over all lines of the file, and how many runs each of these ends with.
        self.tree = HashTree()
        self._counts: list[int] = []
        self._grow(self.first)

    def _grow(self, line: msgspec.Struct) -> None:
        """Append a line to the Merkle tree over the session log."""
        self.tree.append(encode_line(line))
        self._counts.append(len(self.lines))

    def head_at(self, size: int) -> bytes:
        """Return the log's hash after the first `size` (at least 1) lines of its file."""
        return self._heads[self.number_at(size)]

    def number_at(self, size: int) -> int:
        """Return the number of the last run among the first `size` lines of the file; 0 if none."""
        return self._counts[size - 1]

    def head(self, number: int | None = None) -> bytes:
        """Return the log's hash after run `number`, by default after the last run."""
        return self._heads[-1 if number is None else number]

    def copy(self) -> SessionLog:
        """Return a copy of the session log in memory, which is not stored."""
        copied = SessionLog(bytes.fromhex(self.first.session), bytes.fromhex(self.first.scope))
        copied.lines, copied.certified, copied._heads = [*self.lines], self.certified, [*self._heads]
        copied.tree, copied._counts = self.tree.copy(), [*self._counts]
        return copied

    def begin(self, request: int, run_id: bytes, before: bytes) -> RunLine:
        """Append a line for a new run, store it, and return it."""
        line = RunLine(len(self.lines) + 1, request, run_id.hex(), before.hex())
        self.keep(line)
        return line

    def keep(self, line: RunLine | CertifiedLine) -> None:
        """Add a line unless the log has it; LocalError if it cannot be next; subclasses also store it.

        Raises LocalError where it is not the next line, and another one is in its place.
        """
        if not self._has(line):
            self.take(line)

    def refresh(self) -> None:
        """Read lines that other processes have stored; here, for a log in memory, do nothing."""

    def since(self, known: int) -> tuple[int, bytes, list[Shown]]:
        """Return k, the hash after run k, and the runs after k; k is `known`, but one run is always there.

        The lines follow that number. The last one, of the run that begins, is always among them; a party that
        knows none gets that one alone.
        """
        base = min(known, len(self.lines) - 1) if known else len(self.lines) - 1
        shown = [
            (line.request, bytes.fromhex(line.run_id), bytes.fromhex(line.before))
            for line in self.lines[base:]
        ]
        return base, self._heads[base], shown

    def take(self, line: RunLine | CertifiedLine) -> None:
        """Check that a line is the next one and add it in memory; VerificationError if it is not."""
        if isinstance(line, CertifiedLine):
            last = 0 if self.certified is None else self.certified.certifies
            if line.certifies != len(self.lines) or line.certifies == last:
                raise VerificationError(
                    f"a certificate of run {line.certifies} after run {len(self.lines)}",
                    Check.OUT_OF_SEQUENCE,
                )
            self.certified = line
            self._grow(line)
            return
        if line.number != len(self.lines) + 1:
            raise VerificationError(
                f"run {line.number} where {len(self.lines) + 1} is due", Check.OUT_OF_SEQUENCE
            )
        self.lines.append(line)
        run_id, before = bytes.fromhex(line.run_id), bytes.fromhex(line.before)
        self._heads.append(head_after(self._heads[-1], line.number, line.request, run_id, before))
        self._grow(line)

    def _has(self, line: RunLine | CertifiedLine) -> bool:
        """Tell whether the log has this line; raise LocalError if another line is in its place."""
        runs, last = len(self.lines), self.certified
        if isinstance(line, RunLine):
            number, there = line.number, line in self.lines[line.number - 1 : line.number]
            follows = number == runs + 1
        else:
            number, there = line.certifies, line == last
            follows = number == runs and (last is None or last.certifies != number)
        if not there and not follows:
            raise LocalError(
                f"the session log has {runs} runs, and the line of run {number} cannot follow: another "
                "process has gone on, or the log was set back"
            )
        return there


class MemorySessionLog(SessionLog):
    """Session log (list of runs) that is only in memory, for tests and simulations."""

    def __init__(self, session: bytes, scope: bytes) -> None:
        super().__init__(session, scope)
        self._retained = [encode_line(self.first)]

    def export(self) -> bytes:
        """Return the whole list of runs as JSON lines, as its file would hold it."""
        return b"".join(line + b"\n" for line in self._retained)

    def keep(self, line: RunLine | CertifiedLine) -> None:
        """Add a line in memory unless the log has it; raise LocalError if it cannot be next."""
        if not self._has(line):
            self.take(line)
            self._retained.append(encode_line(line))


def decode_later_line(line: bytes) -> RunLine | CertifiedLine:
    """Decode any line but the first of a session log; raise VerificationError if it is invalid."""
    if line.startswith(b'{"certifies"'):
        return decode_line(line, CertifiedLine)
    return decode_line(line, RunLine)


def checked_first(line: bytes) -> FirstLine:
    """Decode the first line of a session log; raise VerificationError for another kind of file."""
    expected = (FORMAT, VERSION)
    check_format(declared_format(line) or expected, expected)
    first = decode_line(line, FirstLine)
    check_format((first.format, first.version), expected)
    return first


def read_all(lines: Iterable[bytes]) -> SessionLog:
    """Parse and check a whole session log from its lines; raise VerificationError if it is invalid.

    Raises VerificationError at the first wrong one.
    """
    log: SessionLog | None = None
    for line in lines:
        if log is None:
            first = checked_first(line)
            log = SessionLog(bytes.fromhex(first.session), bytes.fromhex(first.scope))
        else:
            log.take(decode_later_line(line))
    if log is None:
        raise VerificationError("the session log is empty", Check.LOG_CUT)
    return log
