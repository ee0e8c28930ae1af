"""The columns that all parties' tables have, with their public bounds and categories."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Context, Decimal
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues
from smpc_dp.privacy.guarantee import PlainStruct, Relation
from smpc_dp.records.party_names import PARTY
from smpc_dp.settings import UNLISTED, read
from smpc_dp.values import MAX_SHOWN, category_of

Rows = Literal["private", "public"]
RowUnit = Literal["record", "person"]
T = TypeVar("T", bound=msgspec.Struct)
Few = Annotated[int, Meta(ge=1, le=1 << 20)]

# Steps of a number's grid, unless its column declares them; products of two numbers stay below 2^48.
DEFAULT_STEPS = 1 << 24
MAX_ROWS = 1 << 40
MAX_CELLS = 1 << 16
MAX_COLUMNS = 1000
# Fourth powers of a range are float64 numbers, and not 0.
LARGEST, NARROWEST = 1e75, 1e-75
Bound = Annotated[float, Meta(extra={"range": "[-1e75, 1e75]"})]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Digits to which a logarithm is computed before it is rounded to a float64.
_DIGITS = Context(prec=25)


class Number(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="number"):
    """Declared column of numbers, with bounds to which values are clipped, a grid and bins."""

    lower: Annotated[Bound, Meta(description="least value; smaller ones are clipped to it")]
    upper: Annotated[Bound, Meta(description="greatest value; greater ones are clipped to it")]
    step: Annotated[
        float | None,
        Meta(description="values are multiples of this above `lower`", extra={"range": "above 0"}),
    ] = None
    missing: Annotated[
        bool,
        Meta(
            description="false: a missing value counts as the middle of the range; with public rows, "
            "later rows of a person too"
        ),
    ] = True
    bins: Annotated[
        tuple[float, ...], Meta(description="inner edges of its bins in tables and groups", max_length=1000)
    ] = ()

    @property
    def steps(self) -> int:
        """The number of grid steps from the lower to the upper bound."""
        return DEFAULT_STEPS if self.step is None else round((self.upper - self.lower) / self.step)

    @property
    def width(self) -> float:
        """The declared upper bound less the lower bound."""
        return self.upper - self.lower

    @property
    def middle(self) -> float:
        """The middle between the declared bounds, which is encoded as 0."""
        return self.lower + self.width / 2

    @property
    def unit(self) -> float:
        """The difference of values that are encoded as neighbouring integers, half a grid step."""
        return self.width / (2 * self.steps)

    @property
    def is_indicator(self) -> bool:
        """Whether the only values are 0 and 1; then others are missing rather than clipped."""
        return (self.lower, self.upper, self.steps) == (0, 1, 1)

    def points(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index of the grid point nearest to each value, after clipping to the bounds.

        It is the conversion of rows and of edges alike, so a value on an edge is never below it.
        """
        inside = np.clip(values, self.lower, self.upper)
        point = np.floor((inside - self.lower) / self.width * self.steps + 0.5)
        return np.clip(point, 0, self.steps).astype(np.int64)

    def thresholds(self, edges: Sequence[float]) -> tuple[int, ...]:
        """Return the indices of the grid points at which bins begin, 0 first, given inner edges."""
        return (0, *self.points(np.array(edges, dtype=np.float64)).tolist())

    def edge(self, threshold: int) -> float:
        """Return the value at a grid point, given the point's index."""
        return self.lower + threshold * (self.width / self.steps)

    def edge_fault(self, edges: Sequence[float]) -> str | None:
        """Return why inner bin edges are invalid on the grid, None if they are valid."""
        for low, high in itertools.pairwise(edges):
            if not low < high:
                return f"must increase: {high:.12g} comes after {low:.12g}"
        for edge in edges:
            if not self.lower < edge < self.upper:
                within = f"between the bounds {self.lower:.12g} and {self.upper:.12g}"
                return f"must be inner edges, {within}: {edge:.12g} is not"
        starts = self.thresholds(edges)
        step = self.width / self.steps
        bounds = [self.lower, *edges]
        for index, edge in enumerate(edges):
            if starts[index + 1] <= starts[index]:
                return f"at {bounds[index]:.12g} and {edge:.12g} are closer than a grid step, {step:g}"
            # values of a declared step: those at the grid point below would count as above the edge
            nearest = self.edge(starts[index + 1])
            if self.step is not None and nearest < edge - 1e-6 * step:
                return f"must be at grid points: {nearest:.12g} would count as above {edge:.12g}"
        return None

    def issues(self, where: str) -> list[ConfigIssue]:
        """Return the faults of the declared bounds, grid step and bins of a column."""
        faults: list[tuple[str, str, ConfigCheck]] = []
        if not -LARGEST <= self.lower < self.upper <= LARGEST:
            reason = f"{self.lower:g} is not below upper {self.upper:g}, both within {LARGEST:g}"
            faults.append(("lower", reason, ConfigCheck.RANGE))
        elif self.width < NARROWEST:
            reason = f"the range must be {NARROWEST:g} at least, is {self.width:g}"
            faults.append(("upper", reason, ConfigCheck.RANGE))
        elif self.step is not None:
            steps = self.width / self.step if self.step > 0 else 0.0
            if not 1 <= steps <= DEFAULT_STEPS or abs(steps - round(steps)) > 1e-6:
                reason = (
                    f"must divide the range {self.width:g} into 1 to {DEFAULT_STEPS} steps, is {self.step:g}"
                )
                faults.append(("step", reason, ConfigCheck.RANGE))
        fault = None if faults else self.edge_fault(self.bins)
        if fault is not None:
            faults.append(("bins", fault, ConfigCheck.RANGE))
        return [ConfigIssue(f"{where}.{key}", reason, check) for key, reason, check in faults]


class Category(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="category"):
    """Declared column of categories: allowed values, how others count, and a reference for regressions."""

    values: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_CELLS, description="all categories")]
    other: Annotated[
        str | None, Meta(description="the category that stands for all that are not declared")
    ] = None
    missing: Annotated[
        bool,
        Meta(description="false: a missing value counts as `other`, so that each row has a category"),
    ] = True
    reference: Annotated[
        str | None,
        Meta(description="the category that regressions compare the others with; without it the first"),
    ] = None

    @property
    def reference_index(self) -> int:
        """The index of the category with which regressions compare the others."""
        return 0 if self.reference is None else self.values.index(self.reference)

    @property
    def _choices(self) -> str:
        """The words for all categories in the fault of a key that names another one."""
        return f"`values`: {_first(self.values)}"

    def issues(self, where: str) -> list[ConfigIssue]:
        """Return the faults of the declared categories, such as duplicates."""
        result = self._value_issues(where)
        if not self.missing and self.other is None:
            reason = "missing = false needs `other`, which missing values count as"
            result.append(ConfigIssue(f"{where}.missing", reason, ConfigCheck.CONFLICT))
        return result

    def _value_issues(self, where: str) -> list[ConfigIssue]:
        """Return the faults of the categories, and of those that other keys name."""
        result, seen = [], dict[str, str]()
        for value in self.values:
            key = category_of(value)
            if key is None:
                reason = f"{shown(value)} stands for a missing value in a table"
                result.append(ConfigIssue(f"{where}.values", reason, ConfigCheck.UNSUPPORTED))
            elif key in seen:
                reason = f"has a category twice: {shown(seen[key])} and {shown(value)}"
                result.append(ConfigIssue(f"{where}.values", reason, ConfigCheck.DUPLICATE))
            else:
                seen[key] = value
        for key, name in (("other", self.other), ("reference", self.reference)):
            if name is not None and name not in self.values:
                reason = f"{shown(name)} is none of {self._choices}"
                result.append(ConfigIssue(f"{where}.{key}", reason, ConfigCheck.UNKNOWN_NAME))
        return result


def _first(names: Sequence[str]) -> str:
    """Return the first names as text for a fault, with dots if there are more."""
    return ", ".join((*names[:MAX_SHOWN], *(["..."] if len(names) > MAX_SHOWN else [])))


class PartyNames(Category, frozen=True, kw_only=True, tag_field="kind", tag=PARTY):
    """Declared column whose value in each row is the party that has the row; no table has this column."""

    # None of these is for a session file: the first is filled in, the others are refused.
    values: Annotated[tuple[str, ...], UNLISTED] = ()
    other: Annotated[str | None, UNLISTED] = None
    missing: Annotated[bool, UNLISTED] = False
    reference: Annotated[
        str | None,
        Meta(description="the party that regressions compare the others with; without it the first"),
    ] = None

    @property
    def _choices(self) -> str:
        """The words for the session's parties, the first of them by name."""
        return f"the session's parties: {_first(self.values)}"

    def issues(self, where: str) -> list[ConfigIssue]:
        """Return the faults of a column of parties: no names, or keys of other categories."""
        if not self.values:
            reason = "are missing: only a session file, or a simulation, fills in the parties"
            return [ConfigIssue(f"{where}.values", reason, ConfigCheck.MISSING)]
        reason = "is for other categories: each row has a party, and none is undeclared"
        given = {"other": self.other is not None, "missing": self.missing}
        faults = [
            ConfigIssue(f"{where}.{key}", reason, ConfigCheck.UNSUPPORTED)
            for key, is_given in given.items()
            if is_given
        ]
        return faults or self._value_issues(where)


Column = Number | Category | PartyNames


def logarithm(value: float) -> float:
    """Return the natural logarithm, computed in decimal so that all machines get the same number."""
    return float(Decimal(value).ln(_DIGITS))


def bin_labels(edges: Sequence[float], upper: float) -> tuple[str, ...]:
    """Return texts such as `[0, 10)` for bins that begin at these edges, the last one closed."""
    pairs = zip(edges, [*edges[1:], upper], strict=True)
    labels = [f"[{low:.12g}, {high:.12g})" for low, high in pairs]
    return (*labels[:-1], labels[-1][:-1] + "]")


Edges = Annotated[tuple[float, ...], Meta(max_length=1000)]


class Function(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="function"):
    """Declaration of a derived column: the logarithm or square of a column of numbers.

    Its bounds are the least and the greatest value of the function between the bounds of `of`.
    """

    function: Annotated[
        Literal["log", "square"], Meta(description="natural logarithm, of bounds above 0, or square")
    ]
    of: Annotated[str, Meta(description="a column of numbers, or of years or days between dates")]
    bins: Annotated[Edges, Meta(description="inner edges of its bins in tables and groups")] = ()

    def column(self, source: Number, where: str) -> Column:
        """Return the derived column's bounds; raise ConfigError for a logarithm of bounds of 0 or less."""
        ends = (source.lower, source.upper)
        if self.function == "log":
            if source.lower <= 0:
                reason = f"lower of {self.of!r} must be above 0 for a logarithm, is {source.lower:g}"
                raise ConfigError.at(f"{where}.of", reason, ConfigCheck.RANGE)
            lower, upper = map(logarithm, ends)
        else:
            lower = 0.0 if source.lower < 0 < source.upper else min(end * end for end in ends)
            upper = max(end * end for end in ends)
        return Number(lower=lower, upper=upper, missing=source.missing, bins=self.bins)


class Grouped(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="groups"):
    """Declaration of a derived column: categories made of the bins of a column of numbers."""

    of: Annotated[str, Meta(description="a column of numbers, or of years or days between dates")]
    edges: Annotated[
        Edges, Meta(min_length=1, description="inner edges of the bins; its categories are `[18, 30)` ...")
    ]
    reference: Annotated[str | None, Meta(description="as of a column of categories")] = None

    def column(self, source: Number, where: str) -> Column:
        """Return the derived column of categories; raise ConfigError for invalid bin edges."""
        if (fault := source.edge_fault(self.edges)) is not None:
            raise ConfigError.at(f"{where}.edges", fault, ConfigCheck.RANGE)
        return Category(
            values=bin_labels((source.lower, *self.edges), source.upper), reference=self.reference
        )


class Elapsed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="elapsed"):
    """Declaration of a derived column: whole years or days from one date to another, such as an age.

    A year is complete on the day of the same month and number, or after it if there is no such day.
    """

    unit: Annotated[Literal["years", "days"], Meta(description="what is counted")]
    start: Annotated[str, Meta(description="a column of dates, `2026-01-31`, or one date")]
    end: Annotated[str, Meta(description="a column of dates, or one date")]
    lower: Annotated[int, Meta(description="least value; smaller ones are clipped to it")]
    upper: Annotated[int, Meta(description="greatest value; greater ones are clipped to it")]
    missing: Annotated[bool, Meta(description="as of a column of numbers")] = True
    bins: Annotated[Edges, Meta(description="inner edges of its bins in tables and groups")] = ()

    @property
    def dates(self) -> tuple[str, ...]:
        """The names of the columns of dates that are read, without a constant date."""
        return tuple(one for one in (self.start, self.end) if NAME.fullmatch(one))

    def column(self) -> Number:
        """Return the derived column of whole numbers, with the declared bounds."""
        lower, upper = float(self.lower), float(self.upper)
        return Number(lower=lower, upper=upper, step=1.0, missing=self.missing, bins=self.bins)

    def issues(self, where: str, columns: Mapping[str, Column]) -> Iterator[ConfigIssue]:
        """Yield the faults of the two dates, which must be columns or valid constant dates."""
        for key, value in (("start", self.start), ("end", self.end)):
            if value in columns:
                reason = f"{value!r} is one of `columns`: a column of dates is none of these"
                yield ConfigIssue(f"{where}.{key}", reason, ConfigCheck.CONFLICT)
            elif not NAME.fullmatch(value) and date_of(value) is None:
                reason = f"{shown(value)} is neither a column nor a date as 2026-01-31"
                yield ConfigIssue(f"{where}.{key}", reason, ConfigCheck.FORMAT)
        if self.start == self.end or (date_of(self.start) and date_of(self.end)):
            reason = "needs one column of dates at least, and two different ends"
            yield ConfigIssue(f"{where}.start", reason, ConfigCheck.SHAPE)


Derived = Function | Grouped | Elapsed


def date_of(text: str) -> date | None:
    """Parse a date from a text; return None if the text is not a date."""
    if not DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


class RowNorm(msgspec.Struct, frozen=True, kw_only=True):
    """Declared bound on the L2 norm of a row's numbers, scaled to [-1, 1]; longer rows are shortened."""

    columns: Annotated[tuple[str, ...], Meta(min_length=2, description="columns of numbers")]
    bound: Annotated[
        float,
        Meta(
            gt=0,
            description="a longer row is shortened to it, towards the middle of all ranges; one at bounds of "
            "all p columns has sqrt(p)",
        ),
    ]


# Columns of an answer of another package, and of how many of two arguments each the sums are.
MAX_ARGUMENTS, MAX_DEGREE = 16, 2
MAX_SUMS = 1 + MAX_ARGUMENTS + MAX_ARGUMENTS * (MAX_ARGUMENTS + 1) // 2
LEAST_FACTOR, MAX_FACTOR = 1e-6, 1e6


class SumsOfRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Declaration by another package of the sums that its statistic needs, as data in a session file.

    Attributes:
        package: name and version of the package, as members compare it.
        arguments: names for its columns, which are of numbers.
        sums: products of none, one or two arguments, over the rows that have all.
        factors: of the variance of each sum, as of `terms.Term`.
        range: the arguments whose widths make the declared range of the answer.
        total: whether it is a total over the rows.
        groups: whether it may be computed for each cell of categories.
    """

    package: str = ""
    arguments: tuple[str, ...]
    sums: tuple[tuple[str, ...], ...]
    factors: tuple[float, ...]
    range: tuple[str, ...] = ()
    total: bool = False
    groups: bool = False

    def issues(self, where: str) -> list[ConfigIssue]:
        """Return the faults of another package's declaration of its statistic."""
        known, sums = {*self.arguments}, [tuple(sorted(one)) for one in self.sums]
        factors = {(), *((name,) for one in sums for name in one)}
        named = all(NAME.fullmatch(name) for name in known) and len(known) == len(self.arguments)
        faults = (
            (
                "arguments",
                named and 1 <= len(known) <= MAX_ARGUMENTS,
                f"must be 1 to {MAX_ARGUMENTS} different names",
            ),
            (
                "sums",
                all(len(one) <= MAX_DEGREE and {*one} <= known for one in sums),
                f"must be products of at most {MAX_DEGREE} arguments each",
            ),
            ("sums", len({*sums}) == len(sums) <= MAX_SUMS, f"must differ, and be {MAX_SUMS} at most"),
            ("sums", factors <= {*sums}, "must have the number of rows, [], and each factor of a product"),
            (
                "factors",
                len(self.factors) == len(sums)
                and all(LEAST_FACTOR <= one <= MAX_FACTOR for one in self.factors),
                f"must be one number from {LEAST_FACTOR:g} to {MAX_FACTOR:g} for each sum",
            ),
            (
                "range",
                {*self.range} <= known and len(self.range) <= MAX_DEGREE,
                f"must be at most {MAX_DEGREE} arguments",
            ),
        )
        return [
            ConfigIssue(f"{where}.{key}", reason, ConfigCheck.RANGE)
            for key, fits, reason in faults
            if not fits
        ]


class SchemaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings in a session file's `[parameters.records]`, unchecked: columns, rows and privacy unit."""

    columns: Annotated[dict[str, Column], Meta(description="the columns, by name")]
    derived: Annotated[
        dict[str, Derived], Meta(description="columns that each party computes from its own, by name")
    ] = {}
    max_rows: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_ROWS,
            description="most rows of one party that count; with more it does not take part in statistics",
        ),
    ]
    rows: Annotated[
        Rows, Meta(description="`private`: whether a row is there is protected; `public`: what is in it")
    ] = "private"
    unit: Annotated[
        RowUnit, Meta(description="what is protected; without `records` it is a party, its whole vector")
    ] = "record"
    id: Annotated[str | None, Meta(description="the column of persons' ids, for unit `person`")] = None
    rows_per_person: Annotated[Few | None, Meta(description="rows of one person in a party that count")] = (
        None
    )
    parties_per_person: Annotated[
        Few | None, Meta(description="parties that one person's rows may be in")
    ] = None
    rows_expected: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 60)] | None,
        Meta(description="of all parties, for errors that depend on private rows"),
    ] = None
    norm: Annotated[
        RowNorm | None, Meta(description="`columns` and `bound`: rows are clipped in L2, which moments need")
    ] = None
    statistics: Annotated[
        dict[str, SumsOfRows],
        Meta(
            description="by their names the answers of other packages, as these [describe](../../protocols/"
            "records/README.md#statistics-of-other-packages) them"
        ),
    ] = {}


class Schema(PlainStruct, frozen=True, kw_only=True):
    """Checked declaration of the parties' tables: columns, row limits, and the protected unit.

    Attributes:
        columns: all columns, with those that are derived.
        derived: how these are computed.
    """

    columns: dict[str, Column]
    max_rows: int
    rows: Rows = "private"
    unit: RowUnit = "record"
    id: str | None = None
    rows_per_person: int | None = None
    parties_per_person: int | None = None
    rows_expected: int | None = None
    norm: RowNorm | None = None
    statistics: dict[str, SumsOfRows] = msgspec.field(default_factory=dict)
    derived: dict[str, Derived] = msgspec.field(default_factory=dict)

    @property
    def given(self) -> dict[str, Column]:
        """The declared columns that are read from a table as they are: no dates, derived ones or parties."""
        return {
            name: column
            for name, column in self.columns.items()
            if name not in self.derived and not isinstance(column, PartyNames)
        }

    @property
    def party_column(self) -> str | None:
        """The name of the column of parties; None where none is declared."""
        return next((name for name, one in self.columns.items() if isinstance(one, PartyNames)), None)

    def lost_parties(self, numbers: Sequence[int]) -> frozenset[str]:
        """Return the names in the column of parties of those that are at none of these indices.

        Without such a column no name is known.
        """
        column = self.columns.get(self.party_column or "")
        names = column.values if isinstance(column, PartyNames) else ()
        return frozenset(name for index, name in enumerate(names) if index not in numbers)

    @property
    def dates(self) -> tuple[str, ...]:
        """The names of the columns of dates that a table must have."""
        elapsed = (one for one in self.derived.values() if isinstance(one, Elapsed))
        return tuple(dict.fromkeys(name for one in elapsed for name in one.dates))

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of privacy: add-remove for private row counts, else substitution."""
        return "add-remove" if self.rows == "private" else "substitution"

    @property
    def person_factor(self) -> int:
        """The greatest number of rows of one protected unit in one party, 1 for records."""
        return self.rows_per_person or 1

    @property
    def filled(self) -> tuple[str, ...]:
        """Columns of numbers in which rows ignored for their person count as the middle of the range.

        Where rows are public, a row that is beyond those of its person, or has no id, is in their number.
        """
        if self.rows == "private" or self.unit == "record":
            return ()
        numbers = ((name, one) for name, one in self.columns.items() if isinstance(one, Number))
        return tuple(name for name, one in numbers if not one.missing)

    @property
    def party_factor(self) -> int:
        """The greatest number of parties that may have rows of one protected unit, 1 for records."""
        return self.parties_per_person or 1

    def column(self, name: str, where: str) -> Column:
        """Return a declared column by name; raise ConfigError, naming who asks, if there is none."""
        if name not in self.columns:
            known = ", ".join(self.columns)
            raise ConfigError.at(where, f"no column {name!r} (columns: {known})", ConfigCheck.UNKNOWN_NAME)
        return self.columns[name]

    def number(self, name: str, where: str) -> Number:
        """Return a declared column of numbers by name; raise ConfigError if it has categories."""
        column = self.column(name, where)
        if not isinstance(column, Number):
            raise ConfigError.at(where, f"column {name!r} has categories, no numbers", ConfigCheck.TYPE)
        return column


def read_schema(given: Mapping[str, object], where: str = "records.") -> Schema:
    """Parse and check a session file's `[parameters.records]`; raise ConfigError with every fault."""
    given = dict(given)
    columns, issues = given.get("columns"), list[ConfigIssue]()
    if isinstance(columns, Mapping):
        known, issues = _read_columns(columns, f"{where}columns")
        derived = given.get("derived", {})
        if isinstance(derived, Mapping):
            given["derived"], known, faults = _read_derived(derived, known, f"{where}derived")
            issues += faults
        given["columns"] = known
    good, others = read(SchemaSettings, given, where)
    issues += others
    if "columns" in good:
        issues += _unit_issues(good, where) + _norm_issues(good, where)
    for name, described in good.get("statistics", {}).items():
        if not NAME.fullmatch(name):
            issues.append(ConfigIssue(f"{where}statistics", f"{name[:40]!r} is no name", ConfigCheck.FORMAT))
        issues += described.issues(f"{where}statistics.{name}")
    if issues:
        raise ConfigError(issues)
    return Schema(**good)


def _read_columns(given: Mapping[str, object], where: str) -> tuple[dict[str, Column], list[ConfigIssue]]:
    """Parse the declarations of columns; return the valid ones by name, and all faults."""
    columns: dict[str, Column] = {}
    issues = Issues()
    if not given or len(given) > MAX_COLUMNS:
        reason = f"1 to {MAX_COLUMNS} are needed, there are {len(given)}"
        return {}, [ConfigIssue(where, reason, ConfigCheck.RANGE)]
    for name, column in given.items():
        if not NAME.fullmatch(name):
            issues.add_issue(where, _no_name(name), ConfigCheck.FORMAT)
            continue
        read_column, faults = _read_column(column, f"{where}.{name}")
        issues += faults
        if read_column is not None:
            columns[name] = read_column
    parties = [name for name, column in columns.items() if isinstance(column, PartyNames)]
    if len(parties) > 1 or (parties and len(columns) == 1):
        reason = "one column of parties at most, beside others"
        issues.add_issue(f"{where}.{parties[-1]}", reason, ConfigCheck.CONFLICT)
    return columns, issues


def _no_name(name: object) -> str:
    """Return the message of a fault that a text is not a valid column name."""
    return f"{shown(name)} must be a letter or _, then letters, digits and _"


def _read_column(given: object, where: str) -> tuple[Column | None, list[ConfigIssue]]:
    """Parse one column's declaration as number or category; return the column or None, and faults."""
    if isinstance(given, Number | Category | PartyNames):
        return given, given.issues(where)
    kinds: dict[str, type[Column]] = {"number": Number, "category": Category, PARTY: PartyNames}
    column, issues = _read_kind(given, kinds, {"values": "category", "": "number"}, where)
    return column, issues if column is None else column.issues(where)


def _read_kind(
    given: object, kinds: Mapping[str, type[T]], keys: Mapping[str, str], where: str
) -> tuple[T | None, list[ConfigIssue]]:
    """Parse a table as the class that its `kind`, or else a key, names; return (object or None, faults)."""
    if not isinstance(given, Mapping):
        return None, [ConfigIssue(where, f"must be a table, is {shown(given)}", ConfigCheck.TYPE)]
    own = dict(given)
    name = own.pop("kind", next(kind for key, kind in keys.items() if key in own or not key))
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        reason = f"must be {' or '.join(map(repr, kinds))}, is {shown(name)}"
        return None, [ConfigIssue(f"{where}.kind", reason, ConfigCheck.CHOICE)]
    good, issues = read(kind, own, f"{where}.")
    return (None, issues) if issues else (kind(**good), [])


_DERIVED_KINDS: dict[str, type[Derived]] = {"function": Function, "groups": Grouped, "elapsed": Elapsed}
_DERIVED_KEYS = {"edges": "groups", "unit": "elapsed", "start": "elapsed", "end": "elapsed", "": "function"}


def _read_derived(
    given: Mapping[str, object], columns: Mapping[str, Column], where: str
) -> tuple[dict[str, Derived], dict[str, Column], list[ConfigIssue]]:
    """Parse the derived columns; return the valid declarations, all columns, and all faults.

    What is between dates is read first: others may be derived from it.
    """
    read_ones: dict[str, Derived] = {}
    issues = Issues()
    if len(given) + len(columns) > MAX_COLUMNS:
        reason = f"{len(given)} beside {len(columns)} columns, at most {MAX_COLUMNS} together"
        issues.add_issue(where, reason, ConfigCheck.RANGE)
    for name, one in given.items():
        if not NAME.fullmatch(name):
            issues.add_issue(where, _no_name(name), ConfigCheck.FORMAT)
        elif name in columns:
            issues.add_issue(f"{where}.{name}", "is one of `columns` too", ConfigCheck.CONFLICT)
        else:
            derived, faults = _read_kind(one, _DERIVED_KINDS, _DERIVED_KEYS, f"{where}.{name}")
            issues += faults
            if derived is not None:
                read_ones[name] = derived
    sources = dict(columns)
    for name, one in read_ones.items():
        if isinstance(one, Elapsed):
            sources[name] = one.column()
            issues += [*one.issues(f"{where}.{name}", columns), *sources[name].issues(f"{where}.{name}")]
    result = dict(columns)
    for name, one in read_ones.items():
        try:
            result[name] = sources[name] if isinstance(one, Elapsed) else _derived(name, one, sources, where)
        except ConfigError as error:
            issues += error.issues
    return read_ones, result, issues


def _derived(name: str, one: Function | Grouped, sources: Mapping[str, Column], where: str) -> Column:
    """Return a derived column's own declaration; raise ConfigError if the source or edges are invalid."""
    source = sources.get(one.of)
    if not isinstance(source, Number):
        known = ", ".join(each for each, column in sources.items() if isinstance(column, Number)) or "none"
        reason = f"{shown(one.of)} is no column of numbers (columns: {known})"
        raise ConfigError.at(f"{where}.{name}.of", reason, ConfigCheck.UNKNOWN_NAME)
    if source.issues(""):
        reason = f"{one.of!r} has faults of its own"
        raise ConfigError.at(f"{where}.{name}.of", reason, ConfigCheck.CONFLICT)
    column = one.column(source, f"{where}.{name}")
    if issues := column.issues(f"{where}.{name}"):
        raise ConfigError(issues)
    return column


def _unit_issues(good: Mapping[str, object], where: str) -> list[ConfigIssue]:
    """Return faults of the keys that go with unit `person`: missing, or given for unit `record`."""
    issues = Issues()
    for key in ("id", "rows_per_person", "parties_per_person"):
        given = good.get(key) is not None
        if good.get("unit") == "person" and not given:
            issues.add_issue(f"{where}{key}", "is needed for unit 'person'", ConfigCheck.MISSING)
        elif good.get("unit") == "record" and given:
            issues.add_issue(f"{where}{key}", "is for unit 'person'", ConfigCheck.CONFLICT)
    columns = good.get("columns")
    if isinstance(columns, Mapping) and good.get("id") in columns:
        issues.add_issue(f"{where}id", "is a column of its own, without statistics", ConfigCheck.CONFLICT)
    return issues


def _norm_issues(good: Mapping[str, object], where: str) -> list[ConfigIssue]:
    """Return the faults of the declared bound on rows' norms: unknown columns, or too large a bound."""
    norm, columns = good.get("norm"), good.get("columns")
    if not isinstance(norm, RowNorm) or not isinstance(columns, Mapping):
        return []
    key, issues = f"{where}norm.columns", []
    for name in norm.columns:
        if not isinstance(columns.get(name), Number):
            issues.append(
                ConfigIssue(key, f"{shown(name)} is no column of numbers", ConfigCheck.UNKNOWN_NAME)
            )
    if len(set(norm.columns)) < len(norm.columns):
        issues.append(ConfigIssue(key, "has a column twice", ConfigCheck.DUPLICATE))
    most = math.sqrt(len(norm.columns))
    if not norm.bound < most:
        reason = (
            f"must be below sqrt({len(norm.columns)}) = {most:.4g}, which no row exceeds, is {norm.bound:g}"
        )
        issues.append(ConfigIssue(f"{where}norm.bound", reason, ConfigCheck.RANGE))
    return issues


def schema_of(given: Schema | Mapping[str, object]) -> Schema:
    """Return a schema as it is, or parse one from a table of settings."""
    return given if isinstance(given, Schema) else read_schema(given, "")
