"""The log of a run as its aggregator's states make it.

A state holds where the log ends (`RunLog`). A step computes lines, which wait in the inbox (`unwritten`). The
holder of the role writes them when the step is over, before it sends the messages of the step; if it saves
states, after it has saved this one. Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from smpc_dp.engine.collector import Collector, CollectorState, Inbox, Item
from smpc_dp.engine.result import LoggedRun
from smpc_dp.errors import LocalError
from smpc_dp.logs.keeping import Board, Line, read
from smpc_dp.logs.log import Entry, Header, next_head
from smpc_dp.logs.runs import SessionLog

P_co = TypeVar("P_co", covariant=True)

# Whose message, its body and its signature.
Signed = tuple[str, bytes, bytes]


class Statement(msgspec.Struct, frozen=True):
    """A party's signed message for the public log, with the reason why it is false, or ""."""

    refused: str
    body: bytes
    signature: bytes

    @classmethod
    def of(cls, item: Item, refused: str = "") -> Statement:
        """Return an accepted message as a signed statement for the log."""
        return cls(refused, item.body, item.signature)


class RunLog(msgspec.Struct, frozen=True):
    """The end of a run's public log: its length and the hash over all entries.

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
        """The place of the run in the public logs, for its result: its line, and both heads."""
        return LoggedRun(self.number, self.session_head, self.head)


@dataclass(frozen=True, slots=True)
class LoggingAggregator(Collector[P_co]):
    """Constant values of an aggregator's run that writes a public log: also its board and session log.

    Attributes:
        board: where the run is logged.
        runs: the session log on the board.
    """

    board: Board
    runs: SessionLog

    def write_log(self, state: CollectorState) -> None:
        """Write the waiting lines of a state's inbox to session log and run log, and remove them."""
        inbox = state.inbox
        for line in inbox.unwritten:
            if isinstance(line, Header):
                self.board.begin(line)
            elif not isinstance(line, Entry):
                self.runs.keep(line)
        self._check_last(getattr(state, "log", None))
        self.board.append([line for line in inbox.unwritten if isinstance(line, Entry)])
        inbox.unwritten = []

    def resume_log(self, state: CollectorState, lines: Iterable[bytes]) -> None:
        """Open a restored state's logs and write `lines` if missing; LocalError if unfit."""
        unwritten: list[Line] = [read(line) for line in lines]
        log: RunLog | None = getattr(state, "log", None)
        if log is None and not unwritten:
            return
        if not any(isinstance(line, Header) for line in unwritten):
            self._resume(log, unwritten)
        state.inbox.unwritten = unwritten
        self.write_log(state)
        if log is not None and self.board.resume(self.runs.lines[-1]) != (log.length, log.head):
            raise self._other_log()

    def _resume(self, log: RunLog | None, unwritten: Iterable[Line]) -> None:
        """Open the run's log to continue it; raise LocalError if a later run forbids more lines."""
        request = self.context.request
        run = next((line for line in reversed(self.runs.lines) if line.request == request), None)
        if run is None:
            raise self._other_log()
        length, _ = self.board.resume(run)
        grows = any(isinstance(line, Entry) and line.sequence > length for line in unwritten)
        if run.number != len(self.runs.lines) and (grows or log is not None):
            raise self._other_log()

    def _check_last(self, log: RunLog | None) -> None:
        """Raise LocalError unless the saved run is the last line of the session log."""
        self.runs.refresh()
        if log is not None and (log.number, log.session_head) != (len(self.runs.lines), self.runs.head()):
            raise self._other_log()

    def _other_log(self) -> LocalError:
        """Return the error of logs that do not belong to the saved run."""
        return LocalError(
            f"{self.name}: the logs do not end with the saved run of request {self.context.request}: one was "
            "set back, or another run has begun"
        )


def signed_by(collector: Collector[Any], statements: Mapping[int, Statement]) -> list[Signed]:
    """Return parties' statements in the form for the log, in roster order."""
    return [
        (collector.name_of(party), each.body, each.signature) for party, each in sorted(statements.items())
    ]


def append(inbox: Inbox, log: RunLog, kind: str, signed: Iterable[Signed]) -> tuple[RunLog, bytes]:
    """Queue signed messages of a kind as log entries in the inbox; return the new end, digests joined."""
    entries: list[Entry] = []
    digests: list[bytes] = []
    length, head = log.length, log.head
    for party, body, signature in signed:
        length += 1
        entries.append(Entry(length, head.hex(), party, kind, body, signature.hex()))
        digests.append(entries[-1].digest())
        head = next_head(head, digests[-1:])
    inbox.unwritten += entries
    return replace(log, length=length, head=head), b"".join(digests)
