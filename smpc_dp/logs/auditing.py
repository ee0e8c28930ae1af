"""What the auditors of all logs have in common: their interface, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Protocol

import msgspec

from smpc_dp.errors import Check
from smpc_dp.logs.log import Entry
from smpc_dp.logs.opinion import Findings, Opinion
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context

# Reads the log again from its first entry, each with the head before it.
Again = Callable[[], Generator[tuple[Entry, bytes], None, None]]
CHANGED = "the log is not the one that was read before: it changed meanwhile"


class Excluded(msgspec.Struct, frozen=True):
    """Party excluded by an audit for a false signed statement: the log entry, what is false, the check."""

    party: str
    sequence: int
    reason: str
    check: Check


class Verdict(Protocol):
    """Interface of an audit's verdict on a log: who counted, who was excluded, and what is wrong."""

    @property
    def counted(self) -> tuple[str, ...]:
        """Parties whose values are in the result, so that a receipt of their entries is honoured."""
        ...

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Parties that the audit excludes since they signed a false statement."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """Descriptions of events that no honest run has; each names the members at fault."""
        ...

    @property
    def attested(self) -> str:
        """Digest in hex that a quorum of parties signed at the end; "" if none did."""
        ...

    @property
    def summary(self) -> str:
        """Part of a sentence, for a person, that says what the audit has found."""
        ...

    def limits(self, corrupt: int, /) -> str:
        """Return sentences on what the verdict cannot show if `corrupt` parties are corrupt."""
        ...

    def compared(self, opinion: Opinion, /) -> Findings:
        """Return pairs of both auditors' findings on the run; of figures only those that clearly differ.

        Raises msgspec.ValidationError for an opinion of another form.
        """
        ...


class LogAuditor(Protocol):
    """Interface of an auditor of one protocol's log: takes entries in order, then gives a verdict.

    All raise VerificationError or PeerFault for a log that is wrong. A position is an entry's line and first
    byte in the file.
    """

    @property
    def context(self) -> Context:
        """Session, request and members of the audited run."""
        ...

    @property
    def quorum(self) -> int:
        """Number of parties whose signatures suffice to certify a statement."""
        ...

    @property
    def corrupt(self) -> int:
        """Greatest number of corrupt parties that the session assumes."""
        ...

    @property
    def part(self) -> str:
        """Name of the report's section that holds this auditor's verdict."""
        ...

    @property
    def steps(self) -> tuple[str, ...]:
        """Kinds of entries that each party writes to the log, in order."""
        ...

    @property
    def proven_by(self) -> Mapping[str, str]:
        """Mapping from a kind of entry to the kind of earlier entries whose proofs are then verified."""
        ...

    @property
    def expected(self) -> str:
        """Kinds of log entries that may come next; "" after the last entry."""
        ...

    @property
    def present(self) -> PartySet:
        """Parties that take part in the current draw of the audited run."""
        ...

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Parties excluded so far since they signed a false statement."""
        ...

    @property
    def noted(self) -> tuple[str, ...]:
        """Descriptions of the false statements found so far, with their authors."""
        ...

    @property
    def attempt(self) -> int:
        """Number of the current random draw, from 1; 0 in protocols that never draw again."""
        ...

    @property
    def doubt(self) -> str:
        """Reason why a second, different log of this run may exist; "" if none can."""
        ...

    def longest(self, kind: str, /) -> int:
        """Return the greatest permitted length in bytes of the payload of a log entry of this kind."""
        ...

    def check_signature(self, entry: Entry, position: tuple[int, int], /) -> None:
        """Check, or queue for `settle` to await, that an entry is signed for this run by its author."""
        ...

    def take(self, entry: Entry, head: bytes, position: tuple[int, int], /) -> None:
        """Check the next entry of the log and update the state; `head` is the hash of the log before."""
        ...

    def settle(self) -> None:
        """Wait until the checks of all entries taken are done; raise the first fault that they found."""
        ...

    def last_run_id(self) -> str:
        """Return the hex id of the run's last random draw; equal to the header's where nothing is redrawn."""
        ...

    def verdict(self, tries: int | None, /) -> Verdict:
        """Return the verdict on the whole log; `tries` is how many runs the session log lists, if known."""
        ...
