"""A log as a user follows it during a run: by the digests of its entries, which it can hold lines against."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.board.log import Entry, Header, checked_header, decode_line, first_head, next_head
from smpc_dp.errors import VerificationError


class Followed:
    """The heads of a log from its header on; what a quorum has signed is one of them.

    `start` is the head of the log that has its header alone. 64 bytes are kept for each entry.
    """

    def __init__(self, start: bytes) -> None:
        self._heads = [start]
        self._digests: list[bytes] = []

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def head(self) -> bytes:
        """The head after the last entry."""
        return self._heads[-1]

    def extend(self, digests: Sequence[bytes]) -> None:
        """Go on to the head after entries with these digests."""
        for entry in digests:
            self._digests.append(entry)
            self._heads.append(next_head(self.head, [entry]))

    def check(self, number: int, line: bytes) -> None:
        """Raise VerificationError unless a line without its line feed is entry `number`; 0 is the header."""
        if not 0 <= number <= len(self):
            raise VerificationError(f"the log has {len(self)} entries, and no entry {number}")
        if number == 0:
            checked_header(decode_line(line, Header))
            if first_head(line) != self._heads[0]:
                raise VerificationError("the header is not that of the heads that were signed")
            return
        entry = decode_line(line, Entry)
        due = (number, self._heads[number - 1].hex(), self._digests[number - 1])
        if (entry.sequence, entry.previous, entry.digest()) != due:
            raise VerificationError(f"entry {number} is not that of the heads that were signed")
