"""The log of a pairwise statistic as its aggregator writes it, on a board (`board.log`).

Its header is that of the first attempt. The entries follow in the order of the run: the certificate of the
session log, the terms, everybody's hello, the coins of an attempt, and for each further attempt who was left
and its coins; what each party says of its pairs; the outcome. Within a step they are in roster order.
Specification: protocols/pairwise.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.pairwise.statistic_serving import Aggregator
from smpc_dp.protocols.run_log import RunLog, append, sign_entry

QUESTION = "pairwise-statistic "
"""What the question in a header begins with, and the digest of the statistic in hex follows."""


def take(aggregator: Aggregator, log: RunLog, envelopes: Iterable[Envelope]) -> RunLog:
    """Log messages of parties, in this order; the board has them when this returns."""
    after, _ = append(aggregator.parameters.board, log, envelopes)
    return after


def say(
    aggregator: Aggregator, log: RunLog, run_id: bytes, step: str, message: msgspec.Struct
) -> tuple[RunLog, Envelope]:
    """Log a statement of the aggregator, which it signs as a message to itself, and return it."""
    entry = sign_entry(aggregator, run_id, step, message)
    return take(aggregator, log, (entry,)), entry
