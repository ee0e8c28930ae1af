"""Interface of the auditors of logs, one for each protocol whose runs are logged, and of their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from smpc_dp.errors import Check
from smpc_dp.log.log import Entry
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context


class Excluded(msgspec.Struct, frozen=True):
    """Party that signed a false statement: the entry that shows it, the false part, and the check."""

    party: str
    sequence: int
    reason: str
    check: Check


class LogVerdict(Protocol):
    """Verdict on a log that was read to its end."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Events of no honest run; each names the members at fault."""
        ...

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Parties that signed a false statement."""
        ...

    @property
    def attested(self) -> str:
        """Digest that a quorum signed in the end, in hex; "" where only the aggregator signs the end."""
        ...

    @property
    def summary(self) -> str:
        """The result, as a part of a sentence."""
        ...

    def limits(self, corrupt: int) -> str:
        """Return the sentences about what the verdict does not show, where so many parties may be corrupt."""
        ...


class LogAuditor(Protocol):
    """Auditor of one log: takes its entries in order, then gives its verdict.

    Attributes:
        part: the verdict's name in a report.
        steps: the kinds of a party's entries, in the order of a run.
        quorum, corrupt: of the plan.
        present, attempt: the parties of the current draw of a statistic, and its number; of other runs those
            that are present, and 0.
    """

    part: str
    steps: tuple[str, ...]
    quorum: int
    corrupt: int

    @property
    def context(self) -> Context: ...

    @property
    def present(self) -> PartySet: ...

    @property
    def attempt(self) -> int: ...

    @property
    def doubt(self) -> str:
        """Reason why another log of this run may exist."""
        ...

    @property
    def expected(self) -> str:
        """Kinds of entries of which one is next; "" after the last one."""
        ...

    @property
    def excluded(self) -> Sequence[Excluded]:
        """Authors of false statements that were found so far."""
        ...

    @property
    def noted(self) -> tuple[str, ...]:
        """False statements so far that do not end the audit, with their authors."""
        ...

    def longest(self, kind: str) -> int:
        """Return the greatest length in bytes of an entry's payload: longer ones need not be read."""
        ...

    def check_signature(self, entry: Entry, position: tuple[int, int]) -> None:
        """Check, possibly later, that an entry is signed for this run by the member that it names."""
        ...

    def take(self, entry: Entry, head: bytes, position: tuple[int, int]) -> None:
        """Take the next entry, at its position; `head` is the one before it."""
        ...

    def settle(self) -> None:
        """Wait for the checks of single entries; raise the EarlierFault of the first wrong one."""
        ...

    def last_run_id(self) -> str:
        """Return the run id in the results of parties."""
        ...

    def verdict(self, tries: int | None) -> LogVerdict:
        """Return the verdict; raise VerificationError where the log ends before its last entry.

        `tries`: the number of runs that a session log lists.
        """
        ...
