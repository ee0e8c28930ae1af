"""Names of categories that nobody declared, as each party's local report.

A party counts the rows of each of its undeclared values and releases the names that `NameSelection` draws.
The draws are its own and protect its rows from everybody, whatever others do.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Self

import msgspec
import numpy as np

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.result import Claim, Privacy
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PeerFault
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.name_selection import NameSelection
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.parameters import protected
from smpc_dp.records.schema import Category, Schema
from smpc_dp.records.table import Source, undeclared_counts
from smpc_dp.wire.envelope import Body
from smpc_dp.wire.signing import decode, encode

FINGERPRINT_BYTES = 8
# A value that is longer, or is not printed, is nobody's name.
NAME_BYTES = 100
# All names of one report; those that come after in alphabetical order are left out.
REPORT_BYTES = 1 << 15

Counts = Mapping[str, Mapping[str, int]]
MECHANISM = "name selection"


class ReleasedNames(Body, frozen=True):
    """Content of one party's report: the released names of each column, and how many did not fit."""

    names: tuple[tuple[str, ...], ...]
    left_out: int


@dataclasses.dataclass(frozen=True)
class NamedCategories:
    """Result of the analyst: the names that all parties together have released for each column.

    Attributes:
        names: of each column, sorted; which party has released one is not said.
        values: of each column the declared categories and then the names: what a session file declares.
        reported: parties whose report counts; missing: all others.
        left_out: names that were released and did not fit into their reports.
        faults: what was wrong with reports that do not count.
        privacy: of one report of each party.
    """

    task = "report"
    schema = "report-names"
    names: dict[str, tuple[str, ...]]
    values: dict[str, tuple[str, ...]]
    reported: tuple[str, ...]
    missing: tuple[str, ...]
    left_out: int
    faults: tuple[str, ...]
    privacy: Privacy

    def to_json(self) -> dict[str, object]:
        """Return the released names, who has reported, and the privacy as JSON data."""
        return {
            "names": {column: list(names) for column, names in self.names.items()},
            "values": {column: list(values) for column, values in self.values.items()},
            "reported": list(self.reported),
            "missing": list(self.missing),
            "left_out": self.left_out,
            "faults": list(self.faults),
            "privacy": self.privacy.to_json(),
        }


@dataclasses.dataclass(frozen=True)
class LocalNames:
    """Public plan of reports that release names of undeclared categories: columns, and chances of release."""

    schema: Schema
    columns: tuple[str, ...]
    selection: NameSelection

    @classmethod
    def plan(cls, schema: Schema, columns: Sequence[str], epsilon: float, delta: float) -> Self:
        """Return a plan of reports, (epsilon, delta)-DP for one unit of the schema over all columns.

        Args:
            columns: columns of categories, of which undeclared ones are released.

        Raises ConfigError with every fault.
        """
        issues = [
            ConfigIssue("undeclared", f"{name!r} is no column of categories", ConfigCheck.UNKNOWN_NAME)
            for name in columns
            if not isinstance(schema.given.get(name), Category)
        ]
        if not columns or len(set(columns)) < len(columns):
            reason = "needs one column at least, each once"
            issues.append(ConfigIssue("undeclared", reason, ConfigCheck.SHAPE))
        if issues:
            raise ConfigError(issues)
        # A row adds one to a count of each column; an exchanged row is one less and one more.
        steps = 1 if schema.rows == "private" else 2
        changes = steps * schema.person_factor * schema.party_factor * len(columns)
        return cls(schema, tuple(columns), NameSelection.plan(epsilon, delta, changes))

    @property
    def event(self) -> Event:
        """The privacy event that a party's ledger charges for one report."""
        known = Pure(self.selection.epsilon, self.selection.delta)
        return Event(MECHANISM, self.schema.relation, (known,), unit=self.schema.unit)

    @property
    def privacy(self) -> Privacy:
        """The privacy claim of a party's single report."""
        selection, schema = self.selection, self.schema
        guarantee = PrivacyGuarantee(
            epsilon=selection.epsilon,
            delta=selection.delta,
            relation=schema.relation,
            sensitivity={"l1": float(selection.changes)},
            unit="row of a name",
            mechanism=MECHANISM,
            assumption="none but the party is trusted: each draws its own names",
            proof="group privacy of counts that move by one",
            protects=schema.unit,
        )
        return Claim(
            guarantee=guarantee,
            clauses=NamedSentences.of(
                private=f"{protected(schema)} ({selection.epsilon:g}, {selection.delta:g})-differentially "
                f"private ({schema.relation}) against everybody who sees the names:",
                single=f"a name of one row is released with the chance {selection.single:.2g}",
            ),
            limits=NamedSentences.of(
                names="what a released name says: names are seen as they are, and with their party by the "
                "analyst",
                further_reports="further reports on the same rows: their epsilons and deltas add up",
            ),
        ).privacy()

    @cached_property
    def fingerprint(self) -> bytes:
        """Hash of 8 bytes at the start of each report, which tells plans apart."""
        terms = [self.schema, self.columns, self.selection.epsilon, self.selection.delta]
        return digest(Label.LOCAL_NAMES, msgspec.json.encode(terms))[:FINGERPRINT_BYTES]

    def counts(self, source: Source, party: str) -> dict[str, Counter[str]]:
        """Count, for each column, a party's rows of every undeclared value that may be released."""
        counts = undeclared_counts(source, self.schema, self.columns, party=party)
        return {
            name: Counter({value: count for value, count in of_column.items() if is_name(value)})
            for name, of_column in counts.items()
        }

    def randomise(
        self,
        counts: Counts,
        *,
        ledger: Ledger | None = None,
        label: str = "",
        run: bytes | None = None,
        source: NoiseSource | None = None,
    ) -> bytes:
        """Charge the ledger, if given; draw which of a party's names to release; return the report.

        `ledger`, `label`, `run` and errors as of `LocalPairwise.randomise`; `source`: of randomness, None for
        the operating system's.
        """
        if ledger is not None:
            ledger.charge(run or secrets.token_bytes(16), self.event, label)
        source = source or NoiseSource.system()
        room, left_out = REPORT_BYTES, 0
        released: list[tuple[str, ...]] = []
        for column in self.columns:
            # In order: that of the rows must not be seen.
            names = sorted(counts[column])
            numbers = np.array([counts[column][name] for name in names], dtype=np.int64)
            drawn = self.selection.released(numbers, source)
            fitting = []
            for name in (name for name, is_released in zip(names, drawn, strict=True) if is_released):
                room -= len(name.encode()) + 5
                left_out += room < 0
                fitting += [name] if room >= 0 else []
            released.append(tuple(fitting))
        return self.fingerprint + encode(ReleasedNames(tuple(released), left_out))

    def answers(self, reports: Sequence[bytes]) -> list[ReleasedNames]:
        """Decode reports to released names; raise ConfigError that names the first invalid report."""
        return [self._answer(report, f"reports[{index}]") for index, report in enumerate(reports)]

    def _answer(self, report: bytes, where: str) -> ReleasedNames:
        """Decode one report to its released names; raise ConfigError at `where` if it does not fit."""
        if not report.startswith(self.fingerprint):
            reason = "was made with other parameters: its fingerprint is not that of this protocol"
            raise ConfigError.at(where, reason, ConfigCheck.FORMAT)
        try:
            answer = decode(report[FINGERPRINT_BYTES:], ReleasedNames, where)
        except PeerFault as error:
            raise ConfigError.at(where, str(error), ConfigCheck.FORMAT) from None
        if len(answer.names) != len(self.columns) or answer.left_out < 0:
            raise ConfigError.at(where, "has other columns", ConfigCheck.SHAPE)
        for column, names in zip(self.columns, answer.names, strict=True):
            declared = self.declared(column)
            if list(names) != sorted(set(names)) or not all(map(is_name, names)) or {*names} & {*declared}:
                raise ConfigError.at(where, f"{column}: no sorted undeclared names", ConfigCheck.FORMAT)
        return answer

    def declared(self, name: str) -> tuple[str, ...]:
        """Return the categories the schema declares for column `name`; () for another kind of column."""
        column = self.schema.columns[name]
        return column.values if isinstance(column, Category) else ()

    def merged(
        self,
        reports: Iterable[bytes],
        reported: tuple[str, ...],
        missing: tuple[str, ...],
        faults: tuple[str, ...],
    ) -> NamedCategories:
        """Return the result for the analyst: the union of the names in all reports, by column."""
        answers = self.answers(list(reports))
        names = {
            column: tuple(sorted({name for answer in answers for name in answer.names[index]}))
            for index, column in enumerate(self.columns)
        }
        return NamedCategories(
            names=names,
            values={column: (*self.declared(column), *new) for column, new in names.items()},
            reported=reported,
            missing=missing,
            left_out=sum(answer.left_out for answer in answers),
            faults=faults,
            privacy=self.privacy,
        )


def is_name(value: str) -> bool:
    """Return whether a value may be released as a name: not empty, printable, and short."""
    return bool(value) and value.isprintable() and len(value.encode("utf-8")) <= NAME_BYTES
