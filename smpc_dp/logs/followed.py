"""Heads of a log that a party follows during a run, for comparison with lines of the log."""

from __future__ import annotations

import bisect
from typing import NamedTuple

import msgspec

from smpc_dp.errors import Check, VerificationError
from smpc_dp.logs.log import HEAD_BYTES, Entry, Header, checked_header, decode_line, first_head, next_head


def heads_after(head: bytes, digests: bytes) -> bytes:
    """Return, joined, the log's hash after each of these joined digests, chained from the hash `head`."""
    heads = []
    for index in range(0, len(digests), HEAD_BYTES):
        head = next_head(head, [digests[index : index + HEAD_BYTES]])
        heads.append(head)
    return b"".join(heads)


class Part(NamedTuple):
    """Consecutive entries of a followed log: number of the first, digests, and hashes after each."""

    first: int
    digests: bytes
    heads: bytes


class Followed(msgspec.Struct, frozen=True, eq=False):
    """Record of a log that a party has followed: digest of each entry, and the log's hash after it.

    Attributes:
        start: the head of the log with its header alone.
        parts: 64 bytes for each entry, in the parts in which they were added; all followers of one log in a
            process can share them.
    """

    start: bytes
    parts: tuple[Part, ...] = ()

    def __repr__(self) -> str:
        return f"Followed({len(self)} entries)"

    def __len__(self) -> int:
        if not self.parts:
            return 0
        last = self.parts[-1]
        return last.first - 1 + len(last.digests) // HEAD_BYTES

    @property
    def head(self) -> bytes:
        """Hash of the log after its last followed entry."""
        return self.parts[-1].heads[-HEAD_BYTES:] if self.parts else self.start

    def after(self, digests: bytes, heads: bytes | None = None) -> Followed:
        """Return a record with more entries, given by their concatenated digests.

        `heads`: their `heads_after`, if known.
        """
        if not digests:
            return self
        heads = heads_after(self.head, digests) if heads is None else heads
        return Followed(self.start, (*self.parts, Part(len(self) + 1, digests, heads)))

    def digest(self, number: int) -> bytes:
        """Return the digest of the entry with this number, from 1."""
        return self._digest_and_head(number)[0]

    def _digest_and_head(self, number: int) -> tuple[bytes, bytes]:
        """Return the digest of entry `number`, and the log's hash after that entry."""
        part = self.parts[bisect.bisect_right(self.parts, number, key=lambda part: part.first) - 1]
        index = HEAD_BYTES * (number - part.first)
        return part.digests[index : index + HEAD_BYTES], part.heads[index : index + HEAD_BYTES]

    def check(self, number: int, line: bytes) -> None:
        """Raise VerificationError unless `line` is entry `number` of the followed log; 0 is the header."""
        if not 0 <= number <= len(self):
            raise VerificationError(f"the log has {len(self)} entries, and no entry {number}", Check.LOG_CUT)
        if number == 0:
            checked_header(decode_line(line, Header))
            if first_head(line) != self.start:
                raise VerificationError(
                    "the header is not that of the heads that were signed", Check.LOG_DIFFERS
                )
            return
        entry = decode_line(line, Entry)
        previous = self.start if number == 1 else self._digest_and_head(number - 1)[1]
        expected = (number, previous.hex(), self.digest(number))
        if (entry.sequence, entry.previous, entry.digest()) != expected:
            raise VerificationError(
                f"entry {number} is not that of the heads that were signed", Check.LOG_DIFFERS
            )
