"""The board as one party follows it: how long it is, its head, and the entries that were added last."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from smpc_dp.board.log import entry_digest, next_head
from smpc_dp.protocols.envelope import Context

DIGEST = 32


class Follower:
    """Follows the heads of a board from the hashes of its entries. It holds no more than the last batch."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.length = 0
        self.head = b""
        self._first, self._authors, self._digests = 0, (), b""  # type: tuple[int, Sequence[int], bytes]

    def follow(self, head: bytes, authors: Sequence[int], digests: bytes) -> bool:
        """Go on from `head` after one entry of each author, ascending; False if that is no such batch."""
        if len(digests) != DIGEST * len(authors):
            return False
        # One object for all who follow in this process.
        question = ("followed", head, digests)
        self.head, self._digests = self._context.remember(
            question, lambda: (next_head(head, _cut(digests)), digests)
        )
        self._first, self._authors = self.length + 1, authors
        self.length += len(authors)
        return True

    def entry(self, name: str, kind: str, body: bytes, signature: bytes) -> None:
        """Go on after a single entry."""
        self.length += 1
        self.head = next_head(self.head, [entry_digest(self.length, name, kind, body, signature)])

    def has(self, party: int, name: str, kind: str, body: bytes, signature: bytes) -> bool:
        """Tell whether this entry is among those of the last batch."""
        place = bisect.bisect_left(self._authors, party)
        if place == len(self._authors) or self._authors[place] != party:
            return False
        due = self._digests[DIGEST * place : DIGEST * (place + 1)]
        return entry_digest(self._first + place, name, kind, body, signature) == due


def _cut(digests: bytes) -> list[bytes]:
    return [digests[place : place + DIGEST] for place in range(0, len(digests), DIGEST)]
