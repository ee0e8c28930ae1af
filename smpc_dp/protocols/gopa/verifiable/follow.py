"""The board as one party follows it: its heads, and the entries that were added last."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from smpc_dp.board.followed import Followed, heads_after
from smpc_dp.board.log import HEAD_BYTES, entry_digest
from smpc_dp.protocols.envelope import Context


class Follower(Followed):
    """Follows the heads of a board from the hashes of its entries, batch by batch."""

    def __init__(self, context: Context, start: bytes) -> None:
        super().__init__(start)
        self._context = context
        self._first = 1
        self._authors: Sequence[int] = ()

    def follow(self, authors: Sequence[int], digests: bytes) -> bool:
        """Go on after one entry of each author, ascending; False if that is no such batch."""
        if len(digests) != HEAD_BYTES * len(authors):
            return False
        self._first, self._authors = len(self) + 1, authors
        head = self.head
        # The same objects for all who follow in this process.
        question = ("followed", head, digests)
        self.add(*self._context.remember(question, lambda: (digests, heads_after(head, digests))))
        return True

    def entry(self, name: str, kind: str, body: bytes, signature: bytes) -> None:
        """Go on after a single entry."""
        self.extend([entry_digest(len(self) + 1, name, kind, body, signature)])

    def has(self, party: int, name: str, kind: str, body: bytes, signature: bytes) -> bool:
        """Tell whether this entry is among those of the last batch."""
        place = bisect.bisect_left(self._authors, party)
        if place == len(self._authors) or self._authors[place] != party:
            return False
        number = self._first + place
        return entry_digest(number, name, kind, body, signature) == self.digest(number)
