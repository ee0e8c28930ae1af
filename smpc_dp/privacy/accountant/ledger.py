"""One party's privacy ledger: a file outside of any run, charged before data leave the host.

Every charge is on disk before `charge` returns, is checked against the budget under a lock that all
processes of the host respect, and is never taken back. It cannot notice another copy of the file, restored
from a backup.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import logging
import math
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.decoding import convert, decode_json
from smpc_dp.errors import ConfigCheck, ConfigError, Issues, LocalError, PrivacyError
from smpc_dp.files import read_private
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.decimals import summed
from smpc_dp.privacy.accountant.events import Event, decode_hook, encode_hook
from smpc_dp.privacy.accountant.receipt import Receipt, Spending
from smpc_dp.privacy.accountant.renyi import FilterPlan, event_curve, renyi_epsilon
from smpc_dp.privacy.accountant.store import locked, write_durably
from smpc_dp.privacy.guarantee import LEAST_DELTA, Relation, Unit, check_budget
from smpc_dp.privacy.search import first_integer
from smpc_dp.values import plain_value

__all__ = ["Entry", "Ledger", "Terms"]

FORMAT = "smpc-dp privacy ledger"
# What a ledger is written as: the older one as long as it has nothing that the other one added.
VERSION = 2
VERSIONS = (1, 2)
MAX_BYTES = 1 << 28

CompositionKind = Literal["fixed", "adaptive"]
ExactReleases = Literal["refused", "outside"]
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[!-~][ -~]*$")]
Label = Annotated[str, Meta(max_length=500, pattern=r"^[ -~]*$")]
RunId = Annotated[str, Meta(pattern=r"^([0-9a-f]{2}){8,64}$")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Date = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]

_LOG = logging.getLogger("smpc_dp.privacy")


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fixed terms of a privacy ledger: party, data set, neighbouring relation, unit and budget.

    Attributes:
        party: the owner; dataset: the data, by a name of the party's own.
        relation: the neighbouring relation of the budget.
        epsilon, delta: the budget for everything released from these data; epsilon None: only a record.
        composition: "fixed": holds if the mechanisms and their parameters were chosen without looking at
            earlier results (queries may depend on them). "adaptive": holds for any choice, and costs more.
        exact: "refused": exact releases are, where there is a budget; "outside": they are recorded, and
            the budget says nothing about them.
        identifier: random, 16 bytes in hex.
        unit: what the budget protects: one record, all records of one person, or the whole party.
    """

    party: Name
    dataset: Name
    relation: Relation
    epsilon: float | None
    delta: float
    composition: CompositionKind
    exact: ExactReleases
    identifier: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
    unit: Unit = "party"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One charge in a privacy ledger: number, run, label, release, cost by itself, date, chained digest.

    `digest` is the SHA-256 of the entry before it and of this one without it. `epsilon` is the cost of the
    release by itself at `delta`, the ledger's (None: infinite, or not known), and `date` the day of the
    charge, in UTC; entries of ledgers of version 1 have neither.
    """

    number: Annotated[int, Meta(ge=1)]
    run: RunId
    label: Label
    event: Event
    digest: Digest
    epsilon: float | None = None
    delta: float | None = None
    date: Date | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a privacy ledger's file: the terms, the charges, and the last digest."""

    format: Literal["smpc-dp privacy ledger"]
    version: Literal[1, 2]
    terms: Terms
    entries: tuple[Entry, ...]
    digest: Digest


class _Version(msgspec.Struct, frozen=True):
    """The two fields that ledger files of every version have: format and version."""

    format: Literal["smpc-dp privacy ledger"]
    version: int


class Ledger:
    """Privacy ledger of a party's data set in a file: charges releases, and refuses any beyond the budget.

    Each call reads the file anew, since other processes write it too.
    """

    def __init__(self, path: Path, terms: Terms) -> None:
        self.path = path
        self.terms = terms

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        party: str,
        dataset: str,
        relation: Relation,
        epsilon: float | None,
        delta: float,
        composition: CompositionKind = "fixed",
        exact: ExactReleases = "refused",
        unit: Unit = "party",
    ) -> Ledger:
        """Create a ledger file with fixed terms and no charges; LocalError if the file exists already.

        Raises ConfigError for invalid terms, LocalError if the file exists or cannot be written.
        """
        epsilon, delta = plain_value(epsilon), plain_value(delta)
        check_budget(0.0 if epsilon is None else epsilon, delta)
        if 0 < delta < LEAST_DELTA:
            raise ConfigError.at(
                "delta", f"must be 0 or at least {LEAST_DELTA:g}, is {delta}", ConfigCheck.RANGE
            )
        identifier = secrets.token_hex(16)
        given = Terms(party, dataset, relation, epsilon, delta, composition, exact, identifier, unit)
        terms = _checked_terms(given)
        if composition == "adaptive" and epsilon is not None:
            try:
                FilterPlan(epsilon, delta)
            except PrivacyError as error:
                raise ConfigError.at("composition", str(error), ConfigCheck.UNSUPPORTED) from None
        file = Path(path)
        with locked(file):
            write_durably(file, _encode(terms, ()), new=True)
        return cls(file, terms)

    @classmethod
    def open(cls, path: str | Path, *, party: str | None = None, dataset: str | None = None) -> Ledger:
        """Open a ledger file; ConfigError for another party or data set, LocalError if unreadable or damaged.

        Raises LocalError if the file cannot be read, others can read it, it is damaged, or its version is not
        supported; ConfigError if it belongs to another party or data set.
        """
        file = Path(path)
        terms = _decode(file, _read_content(file)).terms
        for name, wanted, result in (("party", party, terms.party), ("dataset", dataset, terms.dataset)):
            if wanted is not None and wanted != result:
                raise ConfigError(
                    f"{file}: the ledger of {name} '{result}', not of '{wanted}'", ConfigCheck.DIFFERS
                )
        _LOG.debug("%s: opened the ledger", terms.party)
        return cls(file, terms)

    def entries(self) -> tuple[Entry, ...]:
        """Return all charges in the ledger, in order."""
        # no lock: a write replaces the file as a whole
        return self._read()

    def spent(self) -> Spending:
        """Return the composed epsilon and delta of all charges so far, and the number of exact releases."""
        return self._spending([entry.event for entry in self.entries()])

    def would_spend(self, *events: Event) -> Spending:
        """Return the total cost if these releases were charged too; charges nothing, ignores the budget."""
        return self._spending([*(entry.event for entry in self.entries()), *map(self._convert, events)])

    def charge(
        self, run: bytes, event: Event, label: str = "", *, resume: bool = False, forced: bool = False
    ) -> Receipt:
        """Record a release durably, return its receipt; PrivacyError if over budget or charged before.

        Args:
            run: 8 to 64 bytes that name the run, never used for another release; random, or a run id.
            event: what will be released; converted to the ledger's relation and unit where `Event.under` can.
            resume: the run may have been charged already, and then costs nothing: only for sending again,
                after a crash, the very bytes that it was charged for. Fresh noise is another release.
            forced: the release has happened already; it is recorded even beyond the budget, which then
                refuses every further release.

        Raises:
            PrivacyError: the budget does not suffice (unless forced), relation or unit does not fit and has
            no proven conversion, an exact release is not permitted, or the run was charged already.
            LocalError: the ledger cannot be read or written; then nothing may be sent.
        """
        event = self._convert(event)
        with locked(self.path):
            entries = self._read()
            name = run.hex()
            for entry in entries:
                if entry.run == name:
                    if not resume or (entry.event, entry.label) != (event, label):
                        raise PrivacyError(
                            f"{self.terms.party}: run {name[:16]}… was charged for '{entry.event.mechanism}' "
                            "already: a run id is used once"
                        )
                    before = [other.event for other in entries[: entry.number]]
                    return self._receipt(entry, self._spending(before), repeated=True)
            entry = _checked(Entry(len(entries) + 1, name, label, event, "0" * 64, date=_today()))
            before_it = [earlier.event for earlier in entries]
            if forced:
                spending = self._spending([*before_it, event])
            else:
                spending = self._permit(before_it, event, label)
            alone = self._spending([event])
            entry = msgspec.structs.replace(entry, epsilon=alone.epsilon, delta=alone.delta)
            previous = entries[-1].digest if entries else self.terms.identifier
            entry = msgspec.structs.replace(entry, digest=_chained_digest(previous, entry))
            write_durably(self.path, _encode(self.terms, (*entries, entry)))
        _LOG.info(
            "%s: charged %s as entry %d of the ledger%s: epsilon %s of %s spent at delta %g",
            self.terms.party,
            event.mechanism,
            entry.number,
            f" ({label})" if label else "",
            _format_cost(spending),
            _format_exact(self.terms.epsilon),
            self.terms.delta,
        )
        return self._receipt(entry, spending, repeated=False)

    def check(self, events: Sequence[Event]) -> None:
        """Raise PrivacyError unless the budget affords all these further releases; nothing is charged.

        For a plan of many releases, before the first.
        """
        planned = [self._convert(event) for event in events]
        before = [entry.event for entry in self.entries()]

        @functools.cache
        def refusal(count: int) -> PrivacyError | None:
            """Return the error if the first `count` releases exceed the budget, else None."""
            which = f"planned release {count} of {len(planned)}"
            try:
                self._permit([*before, *planned[: count - 1]], planned[count - 1], which)
            except PrivacyError as error:
                return error
            return None

        if not planned or refusal(len(planned)) is None:
            return
        first = refusal(first_integer(lambda count: refusal(count) is not None, 0, len(planned)))
        many = "" if len(planned) == 1 else "s"
        raise PrivacyError(
            f"the budget is too small for {len(planned)} planned release{many}: {self.terms.party}: {first}"
        )

    def _convert(self, event: Event) -> Event:
        """Return a release under the ledger's relation and unit; PrivacyError if not provable."""
        try:
            return event.under(self.terms.relation, self.terms.unit)
        except PrivacyError as error:
            raise PrivacyError(f"{self.terms.party}: on '{self.terms.dataset}' is refused: {error}") from None

    def _receipt(self, entry: Entry, spending: Spending, *, repeated: bool) -> Receipt:
        """Return the receipt for a charge; `repeated` says that the run had been charged earlier."""
        terms = self.terms
        return Receipt(
            ledger=terms.identifier,
            party=terms.party,
            dataset=terms.dataset,
            number=entry.number,
            run=entry.run,
            digest=entry.digest,
            spent=spending,
            budget_epsilon=terms.epsilon,
            budget_delta=terms.delta,
            repeated=repeated,
            unit=terms.unit,
        )

    def _permit(self, before: list[Event], event: Event, label: str) -> Spending:
        """Return the total cost with one more release; PrivacyError if the ledger's terms forbid it."""
        terms = self.terms
        spending = self._spending([*before, event])
        if terms.epsilon is None:
            return spending
        head = f"{label or 'the release'} is refused"
        whose = f"unit {terms.unit}, '{event.mechanism}'; {terms.party}, '{terms.dataset}'"
        if event.exact:
            if terms.exact == "outside":
                return spending
            reason = "an exact release has no differential privacy, and there is a budget"
            raise PrivacyError(f"{head}: {reason} ({whose})")
        # Written so that NaN fails.
        if spending.epsilon is None or not spending.epsilon <= terms.epsilon:
            short, why = self._describe_shortfall(before, event, spending)
            raise PrivacyError(f"{short} is short: {head} ({whose}): {why}")
        return spending

    def _describe_shortfall(self, before: list[Event], event: Event, whole: Spending) -> tuple[str, str]:
        """Return which of epsilon and delta is exceeded, and a text of what is spent and needed."""
        terms = self.terms
        needed = 1.0
        if terms.composition == "fixed" and terms.epsilon is not None:
            private = [one for one in (*before, event) if not one.exact]
            needed = Composition(private).delta(terms.epsilon)
        if whole.epsilon is None and needed < 1:
            return "delta", (
                f"at epsilon = {_format_exact(terms.epsilon)} all releases together need "
                f"delta = {_format_exact(needed)}, the budget has {_format_exact(terms.delta)}"
            )
        spent, alone = self._spending(before), self._spending([event])
        budget = f"epsilon = {_format_exact(terms.epsilon)} at delta = {_format_exact(terms.delta)}"
        return "epsilon", (
            f"of {budget}, {_format_above(spent, terms.epsilon)} is spent, and this release, "
            f"{_format_cost(alone)} by itself, would make it {_format_above(whole, terms.epsilon)}"
            + (f"; with that epsilon, delta would have to be {needed:.6g}" if needed < 1 else "")
        )

    def _spending(self, events: list[Event]) -> Spending:
        """Return the total privacy cost of releases, by the kind of composition in the terms."""
        terms = self.terms
        private = [event for event in events if not event.exact]
        if terms.composition == "adaptive" and terms.epsilon is not None:
            epsilon = _filter_epsilon(private, FilterPlan(terms.epsilon, terms.delta))
        else:
            together = Composition(private)
            epsilon = together.epsilon(terms.delta)
            # Epsilon and delta are both tried, as each is rounded up: a plan is made by one of them.
            if terms.epsilon is not None and epsilon > terms.epsilon:
                epsilon = terms.epsilon if together.delta(terms.epsilon) <= terms.delta else epsilon
        # With a budget, only a forced charge is exact.
        if terms.exact == "refused" and len(private) < len(events):
            epsilon = math.inf
        return Spending(None if math.isinf(epsilon) else epsilon, terms.delta, len(events) - len(private))

    def _read(self) -> tuple[Entry, ...]:
        """Read the charges from the file; raise LocalError if another ledger has replaced it."""
        result = _decode(self.path, _read_content(self.path))
        if result.terms != self.terms:
            raise LocalError(f"{self.path}: another ledger has taken the place of this one")
        return result.entries


def _filter_epsilon(events: list[Event], plan: FilterPlan) -> float:
    """Return epsilon spent under a Rényi filter, infinite beyond its budget; PrivacyError if unbounded."""
    order = np.array([plan.order])
    divergence, slack = 0.0, list[tuple[float, int]]()
    for event in events:
        known = event_curve(event, order)
        if known is None:
            raise PrivacyError(
                f"'{event.mechanism}' has no Rényi bound, and the ledger's composition is adaptive"
            )
        divergence += float(known[0][0])
        slack.append((known[1], 1))
    if not events:
        return 0.0
    if summed(slack) > plan.slack or divergence > plan.radius:
        return math.inf
    return renyi_epsilon(np.array([divergence]), order, plan.delta)


def _today() -> str:
    """Return today's date in UTC, as ISO text."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _format_exact(number: float | None) -> str:
    """Format a number with all its digits, for messages; "none" for None."""
    short = f"{number:g}" if number is not None else "none"
    return short if number is None or float(short) == number else repr(number)


def _format_cost(spending: Spending) -> str:
    """Format the epsilon of a cost for messages; "more than any" if it is infinite."""
    return "more than any" if spending.epsilon is None else f"{spending.epsilon:.6g}"


def _format_above(spending: Spending, budget: float | None) -> str:
    """Format a cost for a message; show all digits of epsilon if it would round to the budget."""
    short, epsilon = _format_cost(spending), spending.epsilon
    hidden = epsilon is not None and budget is not None and float(short) <= budget < epsilon
    return repr(epsilon) if hidden else short


def _checked_terms(given: Terms) -> Terms:
    """Return a ledger's terms in the types of its file; raise ConfigError naming each invalid field."""
    issues = Issues()
    for field in msgspec.structs.fields(Terms):
        value = getattr(given, field.name)
        try:
            convert(value, field.type)
        except msgspec.ValidationError:
            rule = "1 to 200 printable ASCII characters, the first of them no blank"
            if field.name in ("epsilon", "delta"):
                rule = "an int or a float"
            if get_origin(field.type) is Literal:
                rule = " or ".join(get_args(field.type))
            issues.add_issue(field.name, f"must be {rule}, is {value!r:.80}", ConfigCheck.RANGE)
    issues.raise_issues()
    terms: Terms = convert(msgspec.to_builtins(given), Terms)
    return terms


def _checked(entry: Entry) -> Entry:
    """Return a charge as the file will hold it; raise ConfigError for values that cannot be stored."""
    try:
        return decode_json(_json(entry), Entry, decode_hook)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a ledger's entry: {error}", ConfigCheck.FORMAT) from None


def _json(value: object) -> bytes:
    """Encode a value as canonical JSON, so that a ledger's digests are reproducible."""
    return msgspec.json.encode(value, enc_hook=encode_hook, order="deterministic")


def _chained_digest(previous: str, entry: Entry) -> str:
    """Return the digest of a charge, which also covers the previous digest: a hash chain."""
    content = _json(msgspec.structs.replace(entry, digest="0" * 64))
    return hashlib.sha256(previous.encode("ascii") + b"\n" + content).hexdigest()


def _encode(terms: Terms, entries: tuple[Entry, ...]) -> bytes:
    """Encode terms and charges as the bytes of a ledger's file."""
    last = entries[-1].digest if entries else terms.identifier
    digest = hashlib.sha256(last.encode("ascii") + b"\n" + _json(terms)).hexdigest()
    older = terms.unit == "party" and all(entry.date is None for entry in entries)
    file = _File("smpc-dp privacy ledger", 1 if older else 2, terms, entries, digest)
    return msgspec.json.format(_json(file), indent=1) + b"\n"


def _read_content(path: Path) -> bytes:
    """Read the bytes of a ledger's file; LocalError unless it is private to its owner and has one name."""
    # With a second name (hard link) the file would be two ledgers, each charged by itself.
    return read_private(path, "the ledger", "a ledger", MAX_BYTES, alone=True)


def _decode(path: Path, content: bytes) -> _File:
    """Decode the bytes of a ledger's file; LocalError unless they are in the exact canonical form."""
    damaged = f"{path}: damaged, and left as it is: restore it or start anew with what is left of the budget"
    try:
        file = decode_json(content, _File, decode_hook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigError) as error:
        if (version := _peek_version(content)) not in (None, *VERSIONS):
            known = " or ".join(map(str, VERSIONS))
            raise LocalError(
                f"{path}: is a ledger of version {version}; this release reads {known}"
            ) from None
        raise LocalError(f"{damaged} ({error})") from None
    previous = file.terms.identifier
    for number, entry in enumerate(file.entries, 1):
        if entry.number != number or entry.digest != _chained_digest(previous, entry):
            raise LocalError(f"{damaged} (the digest of entry {number} is wrong)")
        previous = entry.digest
    if len({entry.run for entry in file.entries}) < len(file.entries):
        raise LocalError(f"{damaged} (a run is charged twice)")
    if _encode(file.terms, file.entries) != content:
        raise LocalError(f"{damaged} (its digest is wrong)")
    return file


def _peek_version(content: bytes) -> int | None:
    """Return the version that a ledger's bytes declare, or None if they declare none."""
    try:
        return decode_json(content, _Version).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
