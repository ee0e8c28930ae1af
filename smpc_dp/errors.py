"""The error tree: every error says whose fault it is.

`ConfigError` and `LocalError` are ours to mend, `PeerFault` and `TimeoutFault` name somebody else,
`PrivacyError` refuses a release, `VerificationError` rejects evidence.

The text of an error stays on the machine that raised it. Others are told its `code` at most, and names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    """All that others are told of an error; a closed list, explained in docs/reference/transport.md."""

    OWN = "own"
    PLACE = "place"
    EVIDENCE = "evidence"
    IMPOSSIBLE = "impossible"
    STOPPED = "stopped"
    FAULT = "fault"
    QUESTION = "question"
    KERNEL = "kernel"
    PARTIAL = "partial"
    MISSING = "missing"
    LATE = "late"
    LOST = "lost"
    LEFT = "left"
    FEW = "few"
    PAST = "past"
    KIND = "kind"
    BEGUN = "begun"
    EARLIER = "earlier"


class Fault(NamedTuple):
    """One fault in a configuration: where (a line or a key) and what is wrong with it."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class SmpcError(Exception):
    """Root of every error that this library raises on purpose; `code` is what others are told of it."""

    code = Code.OWN


class ConfigError(SmpcError):
    """A session file, a parameter or an argument is wrong; `faults` lists every one that was found."""

    def __init__(self, faults: Iterable[Fault] | str, *, code: Code = Code.OWN) -> None:
        self.code = code
        listed = (Fault("", faults),) if isinstance(faults, str) else tuple(faults)
        self.faults: tuple[Fault, ...] = listed
        super().__init__("; ".join(str(f) if f.where else f.what for f in listed))


class LocalError(SmpcError):
    """This machine cannot do what was asked: a port in use, an unreadable key file, a full disk."""


class PeerFault(SmpcError):
    """`culprit` broke the protocol; `evidence` is what shows it (signed bytes where there are any).

    `said_by` names the party on whose word alone the culprit is blamed; it is empty when we saw it ourselves.
    """

    def __init__(
        self,
        culprit: str,
        reason: str,
        evidence: Mapping[str, bytes] | None = None,
        *,
        said_by: str = "",
        code: Code = Code.FAULT,
    ) -> None:
        self.code = code
        self.culprit = culprit
        self.reason = reason
        self.said_by = said_by
        self.evidence: dict[str, bytes] = dict(evidence or {})
        super().__init__(f"{culprit}: {reason}")


class TimeoutFault(SmpcError):
    """The parties in `missing` did not send what `step` needs.

    `why` has the code of each of them of whom more is known than `code`; `number` is how many parties are
    needed (FEW), or the request that the others are at (PAST).
    """

    def __init__(
        self,
        missing: Iterable[str],
        step: str,
        detail: str = "",
        *,
        code: Code = Code.MISSING,
        why: Mapping[str, Code] | None = None,
        number: int = 0,
    ) -> None:
        self.code = code
        self.number = number
        self.missing: frozenset[str] = frozenset(missing)
        self.why: dict[str, Code] = {name: (why or {}).get(name, code) for name in self.missing}
        self.step = step
        names = ", ".join(sorted(self.missing)[:20]) or "nobody"
        more = "" if len(self.missing) <= 20 else f" and {len(self.missing) - 20} more"
        super().__init__(f"missing in step '{step}': {names}{more}" + (f" ({detail})" if detail else ""))


class PrivacyError(SmpcError):
    """A value is outside its declared bounds, or a release is not permitted."""

    def __init__(self, reason: str, *, code: Code = Code.OWN) -> None:
        self.code = code
        super().__init__(reason)


class VerificationError(SmpcError):
    """Evidence does not show what it claims."""

    code = Code.EVIDENCE
