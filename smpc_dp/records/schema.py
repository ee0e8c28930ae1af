"""The columns that all parties' tables have, with their public bounds and categories."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues
from smpc_dp.privacy.guarantee import PlainStruct, Relation
from smpc_dp.settings import read
from smpc_dp.values import category_of

Rows = Literal["private", "public"]
RowUnit = Literal["record", "person"]
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


class Number(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="number"):
    """A column of numbers, clipped to [lower, upper]."""

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
        """The declared range."""
        return self.upper - self.lower

    @property
    def middle(self) -> float:
        """The middle of the declared range, which the integer 0 stands for."""
        return self.lower + self.width / 2

    @property
    def unit(self) -> float:
        """How much of the column's unit the integer 1 stands for: half a grid step."""
        return self.width / (2 * self.steps)

    @property
    def is_indicator(self) -> bool:
        """Whether its values are 0 and 1, no measurements: another value is missing, not clipped."""
        return (self.lower, self.upper, self.steps) == (0, 1, 1)

    def points(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the nearest grid point of each value, after clipping; equal values have equal points.

        It is the conversion of rows and of edges alike, so a value on an edge is never below it.
        """
        inside = np.clip(values, self.lower, self.upper)
        point = np.floor((inside - self.lower) / self.width * self.steps + 0.5)
        return np.clip(point, 0, self.steps).astype(np.int64)

    def thresholds(self, edges: Sequence[float]) -> tuple[int, ...]:
        """Return the grid points at which the bins begin, the first one at the lower bound."""
        return (0, *self.points(np.array(edges, dtype=np.float64)).tolist())

    def edge(self, threshold: int) -> float:
        """Return the value at a grid point."""
        return self.lower + threshold * (self.width / self.steps)

    def edge_fault(self, edges: Sequence[float]) -> str | None:
        """Return why inner edges give no bins on the grid, None if they do."""
        if list(edges) != sorted(set(edges)):
            return "must increase"
        if not all(self.lower < edge < self.upper for edge in edges):
            return "must be inner edges, between the bounds"
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
        """Return every fault of the declared bounds."""
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
    """A column of declared categories."""

    values: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_CELLS, description="all categories")]
    other: Annotated[
        str | None, Meta(description="the category that stands for all that are not declared")
    ] = None

    def issues(self, where: str) -> list[ConfigIssue]:
        """Return every fault of the declared categories."""
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
        if self.other is not None and self.other not in self.values:
            result.append(
                ConfigIssue(f"{where}.other", f"{self.other!r} is none of `values`", ConfigCheck.UNKNOWN_NAME)
            )
        return result


Column = Number | Category


class RowNorm(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on the L2 norm of some columns of a row, each in half ranges from the middle of its range."""

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
    """The sums that an answer of another package is computed from, as data; protocols/records has each key.

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
        """Return every fault of the description."""
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
    """The `[records]` table of a session file: what all parties know of each other's tables."""

    columns: Annotated[dict[str, Column], Meta(description="the columns, by name")]
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
    """Checked columns and units; made by `read_schema`."""

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

    @property
    def relation(self) -> Relation:
        """The neighbouring relation: add-remove for private rows, substitution for public ones."""
        return "add-remove" if self.rows == "private" else "substitution"

    @property
    def person_factor(self) -> int:
        """Rows of one unit, in one party."""
        return self.rows_per_person or 1

    @property
    def filled(self) -> tuple[str, ...]:
        """Columns in whose sums over all rows a row that does not count for its person is the middle.

        Where rows are public, a row that is beyond those of its person, or has no id, is in their number.
        """
        if self.rows == "private" or self.unit == "record":
            return ()
        numbers = ((name, one) for name, one in self.columns.items() if isinstance(one, Number))
        return tuple(name for name, one in numbers if not one.missing)

    @property
    def party_factor(self) -> int:
        """Parties that have rows of one unit."""
        return self.parties_per_person or 1

    def column(self, name: str, where: str) -> Column:
        """Return a column; raise ConfigError, naming where it is asked for, if there is none."""
        if name not in self.columns:
            known = ", ".join(self.columns)
            raise ConfigError.at(where, f"no column {name!r} (columns: {known})", ConfigCheck.UNKNOWN_NAME)
        return self.columns[name]

    def number(self, name: str, where: str) -> Number:
        """Return a column of numbers; raise ConfigError if it is none."""
        column = self.column(name, where)
        if not isinstance(column, Number):
            raise ConfigError.at(where, f"column {name!r} has categories, no numbers", ConfigCheck.TYPE)
        return column


def read_schema(given: Mapping[str, object], where: str = "records.") -> Schema:
    """Check a `[records]` table; raise ConfigError with every fault."""
    given = dict(given)
    columns, issues = given.get("columns"), list[ConfigIssue]()
    if isinstance(columns, Mapping):
        given["columns"], issues = _read_columns(columns, f"{where}columns")
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
    """Read the table of columns; return those without a fault, and every fault."""
    columns: dict[str, Column] = {}
    issues = Issues()
    if not given or len(given) > MAX_COLUMNS:
        reason = f"1 to {MAX_COLUMNS} are needed, there are {len(given)}"
        return {}, [ConfigIssue(where, reason, ConfigCheck.RANGE)]
    for name, column in given.items():
        if not NAME.fullmatch(name):
            reason = f"{shown(name)} must be a letter or _, then letters, digits and _"
            issues.add_issue(where, reason, ConfigCheck.FORMAT)
            continue
        read_column, faults = _read_column(column, f"{where}.{name}")
        issues += faults
        if read_column is not None:
            columns[name] = read_column
    return columns, issues


def _read_column(given: object, where: str) -> tuple[Column | None, list[ConfigIssue]]:
    """Read one column, of the kind that its keys decide where it does not say one."""
    if isinstance(given, Number | Category):
        return given, given.issues(where)
    if not isinstance(given, Mapping):
        return None, [ConfigIssue(where, f"must be a table, is {shown(given)}", ConfigCheck.TYPE)]
    own = dict(given)
    name = own.pop("kind", "category" if "values" in own else "number")
    kinds: dict[object, type[Column]] = {"number": Number, "category": Category}
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        reason = f"must be 'number' or 'category', is {shown(name)}"
        return None, [ConfigIssue(f"{where}.kind", reason, ConfigCheck.CHOICE)]
    good, issues = read(kind, own, f"{where}.")
    if issues:
        return None, issues
    column: Column = kind(**good)
    return column, column.issues(where)


def _unit_issues(good: Mapping[str, object], where: str) -> list[ConfigIssue]:
    """Return the faults of what the unit `person` needs, and of what other units do not have."""
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
    """Return the faults of a bound on the norm of a row."""
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
    """Return a schema, reading it where it is a table of settings."""
    return given if isinstance(given, Schema) else read_schema(given, "")
