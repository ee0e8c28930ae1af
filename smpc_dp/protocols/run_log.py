"""The log of a run as its aggregator writes it on a board.

A state has the end of the log (`RunLog`); the aggregator's board has the entries. Appending is an effect: an
entry is stored when a function here returns, durably if the board is durable.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from smpc_dp.log.keeping import Board
from smpc_dp.log.log import Entry, next_head
from smpc_dp.protocols.result import LoggedRun

# Author of a message, its body and its signature.
Signed = tuple[str, bytes, bytes]


class RunLog(msgspec.Struct, frozen=True):
    """End of a log.

    Attributes:
        number: the run's line in the session log.
        session_head: the head of the session log after that line.
        length: how many entries the log has.
        head: the head after the last entry; that of the header while there is none.
    """

    number: int
    session_head: bytes
    length: int
    head: bytes

    @property
    def evidence(self) -> LoggedRun:
        """Evidence of a result about the log."""
        return LoggedRun(self.number, self.session_head, self.head)


def append(board: Board, log: RunLog, kind: str, signed: Iterable[Signed]) -> tuple[RunLog, bytes]:
    """Append messages of one kind to the board, in this order; return the log's end, and the digests."""
    entries: list[Entry] = []
    digests: list[bytes] = []
    length, head = log.length, log.head
    for party, body, signature in signed:
        length += 1
        entries.append(Entry(length, head.hex(), party, kind, body, signature.hex()))
        digests.append(entries[-1].digest())
        head = next_head(head, digests[-1:])
    board.append(entries)
    return replace(log, length=length, head=head), b"".join(digests)
