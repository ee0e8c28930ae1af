"""Signed local reports from the parties of a roster to its aggregator, the analyst (protocols/reports)."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from numpy.typing import ArrayLike

from smpc_dp.capabilities.pairs.kernels.fields import as_array
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.capabilities.reports.local_auc import LocalAuc
from smpc_dp.capabilities.reports.local_estimate import ENOUGH_PAIRS, LocalEstimate
from smpc_dp.capabilities.reports.local_names import LocalNames, NamedCategories
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.result import Privacy
from smpc_dp.errors import Check, ConfigCheck, ConfigError, LocalError, PeerFault, VerificationError
from smpc_dp.files import read_bounded
from smpc_dp.identity.keys import Identity, verify
from smpc_dp.identity.roster import Roster
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.accountant.store import locked, write_durably
from smpc_dp.wire.envelope import Body
from smpc_dp.wire.signing import decode, encode

if TYPE_CHECKING:
    from smpc_dp.capabilities.reports.local_names import Counts

    Record = ArrayLike | Counts

SUFFIX = ".report"
MAX_BYTES = 1 << 16
MISSING = (
    "the estimate against bias from parties without a report: the standard error takes them for missing at "
    "random"
)
ROUNDED = "the estimate against bias from rounding to bins: no bound is known, and the interval covers none"
FEW = "the standard error of few reports: it is estimated, and can be far too small; the interval is proven"


# Steps of a session's messages, from a party and back.
REPORT, STORED = "report", "stored"


class Sent(Body, frozen=True):
    """Message of a party to the analyst: its signed report."""

    report: bytes


class Stored(Body, frozen=True):
    """Message of the analyst to a party: the hash of the party's report that it has stored."""

    digest: bytes


@dataclasses.dataclass(frozen=True)
class SentReport:
    """Result of a party: the hashes of the request and of the report that it has sent, and its privacy.

    Attributes:
        request: digest of the request, hex; report: SHA-256 of the signed report, hex.
        again: whether the report was stored before, and sent again; the record was then not looked at.
        clipped: values of the record that were outside of their bounds.
    """

    task = "report"
    schema = "report-sent"
    party: str
    analyst: str
    request: str
    report: str
    again: bool
    clipped: int
    privacy: Privacy

    def to_json(self) -> dict[str, object]:
        """Return the hashes of what was sent, and its privacy, as JSON data."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**plain, "privacy": self.privacy.to_json()}


class LocalReport(msgspec.Struct, frozen=True, array_like=True):
    """Signed report of one party to one request: its name, the request's digest, and the answer."""

    party: str
    request: bytes
    report: bytes
    signature: bytes

    def verify(self, public_key: bytes) -> None:
        """Raise VerificationError unless the signature is that of the party's key."""
        verify(public_key, _signed(self.request, self.party, self.report), self.signature)


@dataclasses.dataclass(frozen=True)
class ReportedEstimate:
    """Result of the analyst: the estimate from all reports that arrived, and who is missing.

    Attributes:
        estimate: its standard error counts missing parties as lost sample; bias from them is not covered.
        reported: parties whose report counts; missing: all others.
        faults: what was wrong with reports that do not count.
    """

    task = "report"
    schema = "report-estimate"
    estimate: LocalEstimate
    reported: tuple[str, ...]
    missing: tuple[str, ...]
    faults: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the estimate with the missing parties as JSON data."""
        return {
            **self.estimate.to_json(),
            "reported": list(self.reported),
            "missing": list(self.missing),
            "faults": list(self.faults),
        }


@dataclasses.dataclass(frozen=True)
class ReportRequest:
    """Analyst's request: each party of a roster answers once, by a plan of local reports.

    Attributes:
        plan: how a record, or rows, become a report.
        roster: the parties, and the analyst as its aggregator.
        label: tells apart requests with one plan: "satisfaction 2026".
    """

    plan: LocalPairwise | LocalAuc | LocalNames
    roster: Roster
    label: str

    def __post_init__(self) -> None:
        if self.roster.aggregator is None:
            reason = "has no aggregator, who is the analyst"
            raise ConfigError.at("roster", reason, ConfigCheck.MISSING)
        # As ledgers have it: the analyst cannot ask for what no party can charge.
        if not re.fullmatch("[ -~]{0,500}", self.label):
            reason = "must have at most 500 printable ASCII characters"
            raise ConfigError.at("label", reason, ConfigCheck.FORMAT)

    @cached_property
    def digest(self) -> bytes:
        """Hash that identifies the request: plan of the reports, roster, and label."""
        return digest(
            Label.LOCAL_REQUEST, self.plan.fingerprint, self.roster.digest, self.label.encode("utf-8")
        )

    def path(self, party: str, folder: Path) -> Path:
        """Return the file, in `folder`, in which a party stores its report to this request."""
        return folder / f"{party}-{self.digest.hex()}{SUFFIX}"

    def report(self, record: Record | None, identity: Identity, ledger: Ledger, folder: Path) -> bytes:
        """Return a party's signed report: charged, drawn and stored once, later read from its file.

        The ledger is charged before the report is drawn, and the report is in `folder` before it is returned.
        If it is lost from there it is never drawn anew: two reports would cost twice. A later call does not
        look at the record, which can be None then. Of a plan of names a record is the party's `counts`.

        Raises:
            PrivacyError: a value is outside of its domain, or the ledger refuses: also where the request
                was charged and its report is lost. ConfigError: not a party of the roster, or not a record.
            LocalError: a file cannot be read or written, or is another report.
        """
        name = identity.name
        if self.roster.member(name).public_key != identity.public_key:
            raise ConfigError.at(f"roster[{name}].public_key", "is another key", ConfigCheck.DIFFERS)
        number = self.roster.index(name) - 1
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{folder}: cannot be a folder for reports ({error.strerror})") from None
        path = self.path(name, folder)
        with locked(path):
            if path.exists():
                return self._stored(path, identity)
            if record is None:
                raise ConfigError.at("record", f"{name}: no report is stored", ConfigCheck.MISSING)
            run = digest(Label.LOCAL_RUN, self.digest, name.encode())
            if isinstance(self.plan, LocalAuc):
                score = as_array("record", cast("ArrayLike", record))
                if score.size != 1:
                    reason = f"shape {score.shape}, not one score"
                    raise ConfigError.at("record", reason, ConfigCheck.SHAPE)
                drawn = self.plan.randomise(score.item(), number, ledger=ledger, label=self.label, run=run)
            elif isinstance(self.plan, LocalNames):
                counts = cast("Counts", record)
                drawn = self.plan.randomise(counts, ledger=ledger, label=self.label, run=run)
            else:
                values = cast("ArrayLike", record)
                drawn = self.plan.randomise(values, ledger=ledger, label=self.label, run=run)
            signature = identity.sign(_signed(self.digest, name, drawn))
            content = encode(LocalReport(name, self.digest, drawn, signature))
            write_durably(path, content, new=True)
        return content

    def _stored(self, path: Path, identity: Identity) -> bytes:
        """Read a party's stored report; raise LocalError if the file holds another report."""
        content = read_bounded(path, "the report", MAX_BYTES)
        try:
            self._checked(decode(content, LocalReport, identity.name), {identity.name})
        except PeerFault as error:
            raise LocalError(f"{path}: is not this party's report ({error})") from None
        return content

    def _checked(self, report: LocalReport, parties: Iterable[str]) -> LocalReport:
        """Return the report if it is a party's, signed, and to this request; else raise PeerFault."""
        if report.party not in parties:
            raise PeerFault(report.party, "is no party of the roster", Check.NOT_IN_ROSTER)
        if report.request != self.digest:
            raise PeerFault(report.party, "its report is to another request", Check.OTHER_PLAN)
        try:
            report.verify(self.roster.member(report.party).public_key)
        except VerificationError:
            reason = "its report has an invalid signature"
            raise PeerFault(report.party, reason, Check.BAD_SIGNATURE) from None
        return report

    def check(self, content: bytes, party: str) -> None:
        """Raise PeerFault unless the bytes are this party's report to this request."""
        one = decode(content[: MAX_BYTES + 1], LocalReport, party)
        if one.party != party:
            raise PeerFault(party, "sent a report in another's name", Check.WRONG_SENDER)
        self._checked(one, {party})
        try:
            self._decode({party: one.report})
        except ConfigError as error:
            raise PeerFault(party, f"its report is none of the plan: {error}", Check.OTHER_PLAN) from None

    def collect(self, received: Iterable[bytes]) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """Return each party's valid report, in roster order, and texts on what was wrong with others.

        The same bytes may come several times. A party with two different reports has none: it has drawn
        twice, and its signatures show that.
        """
        names = {member.name for member in self.roster.parties}
        reports: dict[str, bytes] = {}
        twice: set[str] = set()
        faults: list[str] = []
        for number, content in enumerate(received):
            try:
                one = self._checked(decode(content[: MAX_BYTES + 1], LocalReport, f"report {number}"), names)
                self._decode({one.party: one.report})
            except (PeerFault, ConfigError) as error:
                faults.append(f"report {number}: {error}")
                continue
            if reports.setdefault(one.party, one.report) != one.report:
                twice.add(one.party)
        faults += [f"{name}: two different reports to one request" for name in sorted(twice)]
        order = self.roster.party_names
        return {name: reports[name] for name in order if name in reports.keys() - twice}, tuple(faults)

    def _decode(self, reports: Mapping[str, bytes]) -> None:
        """Raise ConfigError unless all reports' contents fit the plan."""
        plan = self.plan
        if isinstance(plan, LocalAuc):
            plan.answers(list(reports.values()), self._numbers(reports))
        else:
            plan.answers(list(reports.values()))

    def names(self, received: Iterable[bytes]) -> NamedCategories:
        """Return by column all names in any of the valid reports; ConfigError without a valid one."""
        reports, faults = self.collect(received)
        if not isinstance(self.plan, LocalNames) or not reports:
            raise ConfigError.at("reports", "there are none with names", ConfigCheck.MISSING)
        missing = tuple(one.name for one in self.roster.parties if one.name not in reports)
        return self.plan.merged(reports.values(), tuple(reports), missing, faults)

    def _numbers(self, names: Iterable[str]) -> list[int]:
        """Return the parties' numbers in the roster, from 0, by their names."""
        return [self.roster.index(name) - 1 for name in names]

    def estimate(
        self,
        received: Iterable[bytes],
        *,
        labels: Mapping[str, int] | None = None,
        kernel: Kernel | None = None,
        confidence: float = 0.95,
    ) -> ReportedEstimate:
        """Return the analyst's estimate from received reports; missing parties count as lost sample.

        Args:
            received: all reports, in any order.
            labels: public, 0 or 1 for each party of the roster, where the kernel has public labels.
            kernel: another kernel on the same fields; see `LocalPairwise.estimate`. Not of the AUC.

        Raises:
            ConfigError: too few reports, or labels that are missing or no labels.
        """
        reports, faults = self.collect(received)
        order = self.roster.party_names
        if labels is not None and set(labels) != set(order):
            raise ConfigError.at("labels", "must have each party of the roster", ConfigCheck.SHAPE)
        values, pairs = list(reports.values()), len(reports) // 2
        chosen = None if labels is None else [labels[name] for name in reports]
        if chosen is not None:
            pairs = min(chosen.count(0), chosen.count(1))
        if isinstance(self.plan, LocalNames):
            raise ConfigError.at("reports", "have names, and no statistic", ConfigCheck.UNSUPPORTED)
        if isinstance(self.plan, LocalAuc):
            if kernel is not None:
                raise ConfigError.at("kernel", "these reports are of the AUC alone", ConfigCheck.UNSUPPORTED)
            if labels is None or chosen is None or len(set(chosen)) < 2:
                reason = "a report of each label, 0 and 1, is needed"
                raise ConfigError.at("labels", reason, ConfigCheck.MISSING)
            made = self.plan.estimate(
                values,
                chosen,
                parties=self._numbers(reports),
                confidence=confidence,
                lost=auc_error_of_lost(labels, reports),
            )
        else:
            made = self.plan.estimate(values, labels=chosen, kernel=kernel, confidence=confidence)
        limits = [*made.privacy.not_protected, MISSING]
        if made.bias_bound is None:
            limits.append(ROUNDED)
        if pairs < ENOUGH_PAIRS:
            limits.append(FEW)
        privacy = dataclasses.replace(made.privacy, not_protected=tuple(limits))
        missing = tuple(name for name in order if name not in reports)
        return ReportedEstimate(dataclasses.replace(made, privacy=privacy), tuple(reports), missing, faults)


def auc_error_of_lost(labels: Mapping[str, int], present: Iterable[str]) -> float:
    """Return a bound on the AUC's standard error due to parties that were lost at random.

    With n of N parties of a label present, f = (N - n) / (n (N - 1)); the variance is at most a quarter of
    the larger f [protocols/reports].
    """
    there = set(present)
    shares = []
    for label in (0, 1):
        whole = sum(value == label for value in labels.values())
        part = sum(labels[name] == label for name in there)
        shares.append((whole - part) / (part * (whole - 1)) if whole > 1 else 0.0)
    return math.sqrt(max(shares)) / 2


def _signed(request: bytes, party: str, report: bytes) -> bytes:
    """Return the digest that a party signs with its report: request, name and report."""
    return digest(Label.LOCAL_REPORT, request, party.encode("utf-8"), report)
