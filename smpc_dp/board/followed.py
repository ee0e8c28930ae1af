"""A log as a user follows it during a run: by the digests of its entries, which it can hold lines against."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from smpc_dp.board.log import (
    HEAD_BYTES,
    Entry,
    Header,
    checked_header,
    decode_line,
    first_head,
    next_head,
)
from smpc_dp.errors import VerificationError


def heads_after(head: bytes, digests: bytes) -> bytes:
    """Return the heads after each of the entries with these digests, one after the other."""
    heads = []
    for place in range(0, len(digests), HEAD_BYTES):
        head = next_head(head, [digests[place : place + HEAD_BYTES]])
        heads.append(head)
    return b"".join(heads)


class Followed:
    """The heads of a log from its header on; what a quorum has signed is one of them.

    `start` is the head of the log that has its header alone. 64 bytes are kept for each entry, in parts as
    they were added, which all who follow one log in a process can share.
    """

    def __init__(self, start: bytes) -> None:
        self._start = self._head = start
        self._length = 0
        # Of each part the number of its first entry, digests and heads.
        self._firsts: list[int] = []
        self._parts: list[tuple[bytes, bytes]] = []

    def __len__(self) -> int:
        return self._length

    @property
    def head(self) -> bytes:
        """The head after the last entry."""
        return self._head

    def extend(self, digests: Sequence[bytes]) -> None:
        """Go on to the head after entries with these digests."""
        packed = b"".join(digests)
        self.add(packed, heads_after(self._head, packed))

    def add(self, digests: bytes, heads: bytes) -> None:
        """Go on after entries with these digests and `heads_after`, which are kept as they are."""
        if digests:
            self._firsts.append(self._length + 1)
            self._parts.append((digests, heads))
            self._length += len(digests) // HEAD_BYTES
            self._head = heads[-HEAD_BYTES:]

    def digest(self, number: int) -> bytes:
        """Return the digest of an entry, from 1."""
        return self._of(number)[0]

    def _of(self, number: int) -> tuple[bytes, bytes]:
        part = bisect.bisect_right(self._firsts, number) - 1
        place = HEAD_BYTES * (number - self._firsts[part])
        digests, heads = self._parts[part]
        return digests[place : place + HEAD_BYTES], heads[place : place + HEAD_BYTES]

    def check(self, number: int, line: bytes) -> None:
        """Raise VerificationError unless a line without its line feed is entry `number`; 0 is the header."""
        if not 0 <= number <= len(self):
            raise VerificationError(f"the log has {len(self)} entries, and no entry {number}")
        if number == 0:
            checked_header(decode_line(line, Header))
            if first_head(line) != self._start:
                raise VerificationError("the header is not that of the heads that were signed")
            return
        entry = decode_line(line, Entry)
        previous = self._start if number == 1 else self._of(number - 1)[1]
        due = (number, previous.hex(), self.digest(number))
        if (entry.sequence, entry.previous, entry.digest()) != due:
            raise VerificationError(f"entry {number} is not that of the heads that were signed")
