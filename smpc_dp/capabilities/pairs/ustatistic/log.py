"""The log of a pairwise statistic as its aggregator writes it, on a board (`logs.log`).

Its header is that of the first attempt. The entries follow in the order of the run: the certificate of the
session log, the terms, everybody's hello, the coins of an attempt, and for each further attempt the parties
left and its coins; each party's report on its pairs; the outcome. Within a step they are in roster order.
Specification: protocols/pairwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from smpc_dp.capabilities.pairs.ustatistic.serving import Aggregator
from smpc_dp.engine.collector import Inbox
from smpc_dp.engine.phases.run_log import RunLog, Statement, append, signed_by
from smpc_dp.wire.envelope import Envelope


def log_statement(
    aggregator: Aggregator, inbox: Inbox, log: RunLog, run_id: bytes, kind: str, message: msgspec.Struct
) -> tuple[RunLog, Envelope]:
    """Sign a statement of the aggregator and append it to the log; return (new log, signed statement)."""
    entry = aggregator.write_own(run_id, kind, message)
    after, _ = append(inbox, log, kind, [(aggregator.name, entry.body, entry.signature)])
    return after, entry


def log_messages(
    aggregator: Aggregator, inbox: Inbox, log: RunLog, kind: str, statements: Mapping[int, Statement]
) -> RunLog:
    """Append signed messages of parties to the run's log, in roster order; return the log."""
    after, _ = append(inbox, log, kind, signed_by(aggregator, statements))
    return after
