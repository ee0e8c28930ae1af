"""The error tree: every error says whose fault it is.

`ConfigError` and `LocalError` are ours to mend, `PeerFault` and `TimeoutFault` name somebody else,
`PrivacyError` refuses a release, `VerificationError` rejects evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Fault(NamedTuple):
    """One fault in a configuration: where (a line or a key) and what is wrong with it."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class SmpcError(Exception):
    """Root of every error that this library raises on purpose."""


class ConfigError(SmpcError):
    """A session file, a parameter or an argument is wrong; `faults` lists every one that was found."""

    def __init__(self, faults: Iterable[Fault] | str) -> None:
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
        self, culprit: str, reason: str, evidence: Mapping[str, bytes] | None = None, *, said_by: str = ""
    ) -> None:
        self.culprit = culprit
        self.reason = reason
        self.said_by = said_by
        self.evidence: dict[str, bytes] = dict(evidence or {})
        super().__init__(f"{culprit}: {reason}")


class TimeoutFault(SmpcError):
    """The parties in `missing` did not send what `step` needs."""

    def __init__(self, missing: Iterable[str], step: str, detail: str = "") -> None:
        self.missing: frozenset[str] = frozenset(missing)
        self.step = step
        names = ", ".join(sorted(self.missing)[:20]) or "nobody"
        more = "" if len(self.missing) <= 20 else f" and {len(self.missing) - 20} more"
        super().__init__(f"missing in step '{step}': {names}{more}" + (f" ({detail})" if detail else ""))


class PrivacyError(SmpcError):
    """A value is outside its declared bounds, or a release is not permitted; others learn only `told`."""

    def __init__(self, reason: str, *, told: str = "its input was refused") -> None:
        self.told = told
        super().__init__(reason)


class VerificationError(SmpcError):
    """Evidence does not show what it claims."""
