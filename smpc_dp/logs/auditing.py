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
    """Party that signed a false statement: the entry that shows it, the false part, and the check."""

    party: str
    sequence: int
    reason: str
    check: Check


class Verdict(Protocol):
    """What the verdicts on all logs have; each is a struct of its own, as the report prints it."""

    @property
    def counted(self) -> tuple[str, ...]:
        """The parties of whose entries there are receipts, and whose values are in the result."""
        ...

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Parties that signed a false statement."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """Events of no honest run; each names the members at fault."""
        ...

    @property
    def attested(self) -> str:
        """The digest that a quorum signed in the end, in hex; "" where none did."""
        ...

    @property
    def summary(self) -> str:
        """What was found, as a part of a sentence."""
        ...

    def limits(self, corrupt: int, /) -> str:
        """Return the sentences about what the verdict does not show, where so many parties may be corrupt."""
        ...

    def compared(self, opinion: Opinion, /) -> Findings:
        """Return what both auditors found in the run; figures of each only where they are not near.

        Raises msgspec.ValidationError for an opinion of another form.
        """
        ...


class LogAuditor(Protocol):
    """Auditor of one log: takes its entries in order, and then gives its verdict.

    All raise VerificationError or PeerFault for a log that is wrong. A position is an entry's line and first
    byte in the file.
    """

    @property
    def context(self) -> Context:
        """Context of the run; its `names`, `aggregator` and `keys` are the roster's."""
        ...

    @property
    def quorum(self) -> int:
        """How many parties certify."""
        ...

    @property
    def corrupt(self) -> int:
        """The assumed greatest number of corrupt parties."""
        ...

    @property
    def part(self) -> str:
        """Name of its verdict in a report."""
        ...

    @property
    def steps(self) -> tuple[str, ...]:
        """Kinds of a party's entries, in order."""
        ...

    @property
    def proven_by(self) -> Mapping[str, str]:
        """By kind of an entry that is taken when the proofs before it are verified, the kind of these."""
        ...

    @property
    def expected(self) -> str:
        """Kinds of entries of which one is next; "" after the last one."""
        ...

    @property
    def present(self) -> PartySet:
        """The parties that are present, in the current draw."""
        ...

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Parties that signed a false statement."""
        ...

    @property
    def noted(self) -> tuple[str, ...]:
        """False statements so far, with their authors."""
        ...

    @property
    def attempt(self) -> int:
        """Number of the current draw, from 1; 0 where nothing is drawn again."""
        ...

    @property
    def doubt(self) -> str:
        """Reason why another log of this run may exist; "" without one."""
        ...

    def longest(self, kind: str, /) -> int:
        """Return the greatest length in bytes of an entry's payload."""
        ...

    def check_signature(self, entry: Entry, position: tuple[int, int], /) -> None:
        """Check, possibly later, that an entry is signed for this run by the member that it names."""
        ...

    def take(self, entry: Entry, head: bytes, position: tuple[int, int], /) -> None:
        """Take the next entry; `head`: of the log before it."""
        ...

    def settle(self) -> None:
        """Wait for the checks of single entries; raise the first fault."""
        ...

    def last_run_id(self) -> str:
        """Return the run id of the last draw."""
        ...

    def verdict(self, tries: int | None, /) -> Verdict:
        """Return the verdict; `tries`: number of runs that the session log lists, None without one."""
        ...
