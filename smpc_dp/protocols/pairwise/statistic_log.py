"""The log of a pairwise statistic as its aggregator writes it, on a board (`board.log`).

Its header is that of the first attempt. The entries follow in the order of the run: the certificate of the
session log, the terms, everybody's hello, the coins of an attempt, and for each further attempt who was left
and its coins; what each party says of its pairs; the outcome. Within a step they are in roster order.
Specification: protocols/pairwise.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from smpc_dp.board.keeping import Board
from smpc_dp.board.log import Chain
from smpc_dp.errors import LocalError
from smpc_dp.protocols.begin import HubBegin
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer

QUESTION = "pairwise-statistic "
"""What the question in a header begins with, and the digest of the statistic in hex follows."""


class StatisticLog:
    """Writes the log of one run on a board; the board has each entry when a method returns."""

    def __init__(self, board: Board, begin: HubBegin, context: Context, identity: Signer) -> None:
        self._board = board
        self._begin = begin
        self._context = context
        self._identity = identity
        self._chain: Chain | None = None

    @property
    def head(self) -> bytes:
        """What stands for all entries so far."""
        return self._begun.head

    def begin(self, plan: bytes, present: bytes, root: bytes, run_id: bytes) -> None:
        """Begin the log of a run; `plan` is the digest of the statistic."""
        self._chain = self._begin.propose(QUESTION + plan.hex(), present, root, run_id)

    def take(self, envelopes: Iterable[Envelope]) -> None:
        """Log messages of parties, in this order."""
        chain = self._begun
        entries = [chain.append(each.sender, each.step, each.body, each.signature) for each in envelopes]
        self._board.append(entries)

    def say(self, run_id: bytes, step: str, message: msgspec.Struct) -> Envelope:
        """Log a statement of the aggregator, which it signs as a message to itself, and return it."""
        [said] = self._context.write(self._identity, run_id, step, (self._identity.name,), message)
        self.take([said])
        return said

    @property
    def _begun(self) -> Chain:
        if self._chain is None:
            raise LocalError(f"{self._identity.name}: no log was begun")
        return self._chain
