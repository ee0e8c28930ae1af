"""Columns of records, and the cells and sums of them [protocols/records/README.md]."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from smpc_dp_verify.errors import required

NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,63}")
MOST_COLUMNS, MOST_EDGES, MOST_CELLS = 1000, 1000, 1 << 16
# Steps of a column that declares none, and at most.
STEPS = 1 << 24
# Steps of the greatest squared influence of a row.
MOST_INFLUENCE = 1 << 30
MOST_ROWS, MOST_FEW, MOST_EXPECTED = 1 << 40, 1 << 20, 1 << 60
# Epsilon of one request, and what that of several is below.
MOST_EPSILON, MOST_OF_STEPS = 100.0, 1000.0
LEAST_EPSILON, LEAST_DELTA = 1e-9, 1e-11
# Numbers of a column, and the width of its range.
LARGEST, NARROWEST = 1e75, 1e-75
# Texts that stand for a missing value, and decimals as programs write them.
MISSING = ("", "nan", "NaN", "NaT", "<NA>")
DECIMAL = re.compile("(-?)(0|[1-9][0-9]*|(?=[.][0-9]))([.][0-9]*)?([eE][+-][0-9]{2,3})?")
OF_PERSONS = ("id", "rows_per_person", "parties_per_person")
KEYS = {"columns", "max_rows", "rows", "unit", *OF_PERSONS, "rows_expected", "norm", "statistics", "derived"}
DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Digits of a logarithm before it is rounded to a float64.
DIGITS = Context(prec=25)
# Of a derived column: the key that says its kind, and the keys that it needs and may have.
DERIVED = {
    "edges": ("groups", {"of", "edges"}, {"reference"}),
    "unit": ("elapsed", {"unit", "start", "end", "lower", "upper"}, {"missing", "bins"}),
    "function": ("function", {"function", "of"}, {"bins"}),
}
# Of a described answer: arguments, of how many the product of a sum is, sums, and the bounds of a factor.
MOST_ARGUMENTS, MOST_POWERS, MOST_SUMS, FACTORS = 16, 2, 153, (1e-6, 1e6)
DESCRIBED = ("package", "arguments", "sums", "factors", "range", "total", "groups")


# Grid points of numbers or indices of categories, from and to.
Ranges = tuple[tuple[int, int], ...]


class Column(NamedTuple):
    """Declared column of records: numbers with bounds and grid, or, with `values`, categories.

    `step`: whether one is declared. `missing`: whether it is one of numbers of which a row may have none;
    `lacks`: whether a row may have none. `is_party`: whether it is who holds the row, in the roster's order.
    `reference`: the index of the category that regressions compare others with.
    """

    low: float = 0.0
    high: float = 0.0
    steps: int = 0
    step: bool = False
    missing: bool = False
    bins: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    lacks: bool = False
    is_party: bool = False
    reference: int = 0

    @property
    def width(self) -> float:
        """The upper bound less the lower bound of a column of numbers."""
        return self.high - self.low

    @property
    def middle(self) -> float:
        """The middle of a column's bounds, from which values are measured in sums."""
        return self.low + self.width / 2

    def point(self, value: float) -> int:
        """Return the number of the grid point nearest to a value, from 0 to `steps`; clip to the bounds."""
        inside = min(max(value, self.low), self.high)
        return min(max(math.floor((inside - self.low) / self.width * self.steps + 0.5), 0), self.steps)

    def value(self, point: int) -> float:
        """Return the number at a grid point: the lower bound plus so many steps."""
        return self.low + point * (self.width / self.steps)

    def check_edges(self, edges: tuple[float, ...]) -> None:
        """Raise Refused unless edges ascend within the bounds, each at another point of the grid."""
        required(list(edges) == sorted({*edges}), "edges of bins")
        required(all(self.low < edge < self.high for edge in edges), "edges of bins")
        step, last = self.width / self.steps, 0
        for edge in edges:
            at = self.point(edge)
            required(at > last and (not self.step or self.value(at) >= edge - 1e-6 * step), "edges of bins")
            last = at


class Norm(NamedTuple):
    """A bound on the L2 norm of some columns in a row: these columns, and its square, in half ranges."""

    columns: frozenset[str]
    square: float


class Selector(NamedTuple):
    """Division of a column's values into cells: categories, or bins that begin at grid `thresholds`."""

    column: str
    cells: int
    thresholds: tuple[int, ...] = ()
    edges: tuple[float, ...] = ()


class Influence(NamedTuple):
    """Squared influence of a row on coefficient `at` of a regression that its `numbers` make public.

    `products`: of the regression. `numbers`: its coefficients, and the inverse of its second moments.
    """

    products: tuple[tuple[str, ...], ...]
    numbers: tuple[tuple[float, ...], ...]
    at: int


class Block(NamedTuple):
    """Sums over rows, one in each cell, of a product of columns: `powers` names them, repeated if squared.

    `where`: columns, and the points or indices that their values in these rows are within. `lacking`: of the
    rows that lack a value in one of the columns `present`, in the place of those that have all. `influence`:
    what a row adds instead of a product, from 0 to the greatest value; `powers` are then its response.
    """

    powers: tuple[str, ...]
    present: tuple[str, ...]
    selectors: tuple[Selector, ...] = ()
    of_party: bool = False
    where: tuple[tuple[str, Ranges], ...] = ()
    lacking: bool = False
    influence: Influence | None = None

    @property
    def cells(self) -> int:
        """The number of cells of the block, each a coordinate of the vector."""
        return math.prod(selector.cells for selector in self.selectors)

    @property
    def columns(self) -> frozenset[str]:
        """The names of all columns on which a block depends: products, presence, cells and conditions."""
        cells = [one.column for one in self.selectors]
        if self.influence is not None:
            cells += itertools.chain(*self.influence.products)
        return frozenset((*self.powers, *self.present, *cells, *(name for name, _ in self.where)))

    @property
    def has_odd_power(self) -> bool:
        """Whether some column has an odd power in the product, so that the product may be negative."""
        return any(self.powers.count(name) % 2 for name in self.powers)


class Described(NamedTuple):
    """A statistic that the session file describes: arguments, products to sum, and their factors c_b."""

    arguments: tuple[str, ...]
    sums: tuple[tuple[str, ...], ...]
    factors: tuple[float, ...]
    range: tuple[str, ...]
    is_total: bool
    has_groups: bool


@dataclass(frozen=True)
class Table:
    """Description of all parties' records: columns, numbers of rows, unit of privacy, statistics."""

    columns: dict[str, Column]
    max_rows: int
    public: bool
    of_persons: bool
    rows_of_unit: int
    parties_of_unit: int
    expected: int | None
    norm: Norm | None
    described: dict[str, Described]

    def number(self, name: str) -> Column:
        """Return the column of numbers with this name; raise Refused if there is none."""
        required(name in self.columns and not self.columns[name].values, "a column of numbers")
        return self.columns[name]

    def block(self, *powers: str, over: tuple[str, ...] = (), by: tuple[Selector, ...] = ()) -> Block:
        """Return the sum of `powers`' product in cells `by`, over rows that have these and `over`."""
        missing = {name for name in (*powers, *over) if self.columns[name].missing}
        return Block(tuple(sorted(powers)), tuple(sorted(missing)), by)

    def greatest(self, block: Block) -> int:
        """Return the greatest absolute value of a row's product in a block, in steps."""
        if block.influence is not None:
            return MOST_INFLUENCE
        return math.prod(self.columns[name].steps for name in block.powers)

    def least(self, block: Block) -> int:
        """Return the least value of a row's product in a block, in steps: negative, or 0 for even powers."""
        return -self.greatest(block) if block.has_odd_power else 0

    def is_public(self, block: Block) -> bool:
        """Tell whether a block is the count of all rows, and the numbers of rows are public."""
        return self.public and not block.columns

    def selector(self, name: str) -> Selector:
        """Return the cells of a column: its categories, or its declared bins."""
        column = self.columns[name]
        return Selector(name, len(column.values)) if column.values else self.edged(name, column.bins)

    def edged(self, name: str, edges: tuple[float, ...]) -> Selector:
        """Return the bins of a column of numbers that these inner edges separate."""
        column = self.columns[name]
        starts = (0, *map(column.point, edges))
        return Selector(name, len(starts), starts, (column.low, *edges))

    def equal(self, name: str, bins: int) -> Selector:
        """Return this many bins of equal width between the bounds of a column of numbers."""
        column = self.columns[name]
        if bins > column.steps:
            points = self.points(name, bins)
            return points._replace(edges=tuple(map(column.value, points.thresholds)))
        edges = tuple(column.low + index * column.width / bins for index in range(1, bins))
        if column.step:
            edges = tuple(column.value(column.point(edge)) for edge in edges)
        return self.edged(name, edges)

    def points(self, name: str, bins: int) -> Selector:
        """Return bins that divide a column's grid points into nearly equal numbers of points."""
        count = self.columns[name].steps + 1
        bins = min(bins, count)
        return Selector(name, bins, tuple(-(-index * count // bins) for index in range(bins)))


def with_parties(given: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return parameters in which the values of a column of parties are those of the roster, or refuse it."""
    records = given.get("records")
    columns = records.get("columns") if isinstance(records, dict) else None
    if not isinstance(records, dict) or not isinstance(columns, dict):
        return given
    filled = {}
    for name, column in columns.items():
        is_of_parties = isinstance(column, dict) and column.get("kind") == "party"
        required(not is_of_parties or column.get("values", names) == names, "the columns")
        filled[name] = {**column, "values": names} if is_of_parties else column
    return {**given, "records": {**records, "columns": filled}}


def read_table(given: Any) -> Table:
    """Parse a session's table [records]; raise Refused if invalid [docs/reference/session-file.md]."""
    required(isinstance(given, dict) and {*given} <= KEYS, "the parameter records")
    columns = given["columns"]
    required(isinstance(columns, dict) and 1 <= len(columns) <= MOST_COLUMNS, "the columns")
    read = {name: _column(name, column) for name, column in columns.items()}
    of_parties = sum(column.get("kind") == "party" for column in columns.values())
    required(of_parties <= 1 and of_parties < len(columns), "the columns")
    read |= _derived(given.get("derived", {}), read)
    rows, unit = given.get("rows", "private"), given.get("unit", "record")
    required(rows in ("private", "public") and unit in ("record", "person"), "the parameter records")
    required(all((name in given) == (unit == "person") for name in OF_PERSONS), "the unit of rows")
    required(isinstance(given.get("id", ""), str) and given.get("id") not in read, "the unit of rows")
    expected = given.get("rows_expected")
    return Table(
        read,
        _whole(given["max_rows"], MOST_ROWS),
        rows == "public",
        unit == "person",
        _whole(given.get("rows_per_person", 1), MOST_FEW),
        _whole(given.get("parties_per_person", 1), MOST_FEW),
        None if expected is None else _whole(expected, MOST_EXPECTED),
        _norm(given["norm"], read) if given.get("norm") is not None else None,
        _all_described(given.get("statistics", {})),
    )


def _all_described(given: Any) -> dict[str, Described]:
    required(isinstance(given, dict) and all(map(NAME.fullmatch, given)), "the described statistics")
    return {name: _described(one) for name, one in given.items()}


def _described(given: Any) -> Described:
    """Parse a description of one statistic; raise Refused if invalid [protocols/records/README.md]."""
    fault = "the description of a statistic"
    required(isinstance(given, dict) and {*given} <= {*DESCRIBED}, fault)
    required(isinstance(given.get("package", ""), str), fault)
    arguments, factors = _texts(given["arguments"], fault), given["factors"]
    known, range_ = {*arguments}, _texts(given.get("range", []), fault)
    required(all(NAME.fullmatch(name) for name in arguments) and len(known) == len(arguments), fault)
    required(1 <= len(arguments) <= MOST_ARGUMENTS, fault)
    required(isinstance(given["sums"], list) and len(given["sums"]) <= MOST_SUMS, fault)
    sums = tuple(_texts(one, fault) for one in given["sums"])
    required(all(len(one) <= MOST_POWERS and {*one} <= known for one in (*sums, range_)), fault)
    products = {tuple(sorted(one)) for one in sums}
    required(len(products) == len(sums), fault)
    required({(), *((name,) for one in sums for name in one)} <= products, fault)
    required(isinstance(factors, list) and len(factors) == len(sums), fault)
    required(all(FACTORS[0] <= number(one) <= FACTORS[1] for one in factors), fault)
    truths = [given.get(key, False) for key in ("total", "groups")]
    required(all(type(truth) is bool for truth in truths), fault)
    return Described(arguments, sums, tuple(map(number, factors)), range_, *truths)


def _texts(given: Any, fault: str) -> tuple[str, ...]:
    required(isinstance(given, list) and all(isinstance(one, str) for one in given), fault)
    return tuple(given)


def _norm(given: Any, columns: dict[str, Column]) -> Norm:
    required(isinstance(given, dict) and {*given} == {"columns", "bound"}, "the norm of rows")
    names, bound = given["columns"], number(given["bound"])
    required(isinstance(names, list) and all(isinstance(name, str) for name in names), "the norm of rows")
    required(len(names) >= 2 and len({*names}) == len(names), "the norm of rows")
    required(all(name in columns and not columns[name].values for name in names), "the norm of rows")
    required(0 < bound < math.sqrt(len(names)), "the norm of rows")
    return Norm(frozenset(names), bound**2)


def _column(name: str, given: Any) -> Column:
    required(NAME.fullmatch(name) and isinstance(given, dict), "the columns")
    kind = given.get("kind", "category" if "values" in given else "number")
    keys = {*given} - {"kind"}
    if kind == "party":
        # each row has one, and none is undeclared
        required(
            keys <= {"values", "reference", "missing"} and given.get("missing", False) is False, "the columns"
        )
        other = {"other": given["values"][0], "missing": False}
        return _column(name, {**given, **other, "kind": "category"})._replace(is_party=True)
    if kind == "category":
        values = given["values"]
        fits = keys <= {"values", "other", "reference", "missing"} and isinstance(values, list)
        required(fits and all(isinstance(value, str) for value in values), "the columns")
        texts = [compared(value) for value in values]
        required(1 <= len(values) <= MOST_CELLS and len({*texts}) == len(values), "the columns")
        required(
            all(key not in given or given[key] in values for key in ("other", "reference")), "the columns"
        )
        lacks = given.get("missing", True)
        required(type(lacks) is bool and (lacks or "other" in given), "the columns")
        reference = values.index(given["reference"]) if "reference" in given else 0
        return Column(values=tuple(values), lacks=lacks, reference=reference)
    required(kind == "number" and keys <= {"lower", "upper", "step", "missing", "bins"}, "the columns")
    low, high = number(given["lower"]), number(given["upper"])
    required(-LARGEST <= low < high <= LARGEST and high - low >= NARROWEST, "the columns")
    steps = STEPS
    if "step" in given:
        step = number(given["step"])
        count = (high - low) / step if step > 0 else 0.0
        required(1 <= count <= STEPS and abs(count - round(count)) <= 1e-6, "the columns")
        steps = round(count)
    missing, bins = given.get("missing", True), given.get("bins", [])
    required(type(missing) is bool and isinstance(bins, list) and len(bins) <= MOST_EDGES, "the columns")
    column = Column(low, high, steps, "step" in given, missing, tuple(map(number, bins)), lacks=missing)
    column.check_edges(column.bins)
    return column


def _derived(given: Any, columns: dict[str, Column]) -> dict[str, Column]:
    """Parse the columns that parties compute from others or from dates, and return them by name."""
    fault = "the derived columns"
    required(isinstance(given, dict) and len(given) + len(columns) <= MOST_COLUMNS, fault)
    required(not {*given} & {*columns}, fault)
    of_kind: dict[str, dict[str, Any]] = {"groups": {}, "elapsed": {}, "function": {}}
    for name, one in given.items():
        required(NAME.fullmatch(name) and isinstance(one, dict), fault)
        by_keys = next((kind for key, (kind, *_) in DERIVED.items() if key in one), "function")
        kind = one.get("kind", by_keys)
        required(kind in of_kind, fault)
        of_kind[kind][name] = one
        needed, more = next(keys for each, *keys in DERIVED.values() if each == kind)
        required(needed <= {*one} - {"kind"} <= needed | more, fault)
    elapsed = {name: _elapsed(name, one, columns) for name, one in of_kind["elapsed"].items()}
    sources = {**columns, **elapsed}
    for one in (*of_kind["groups"].values(), *of_kind["function"].values()):
        required(one["of"] in sources and not sources[one["of"]].values, fault)
    functions = {name: _function(one, sources[one["of"]]) for name, one in of_kind["function"].items()}
    groups = {name: _groups(name, one, sources[one["of"]]) for name, one in of_kind["groups"].items()}
    return {**elapsed, **functions, **groups}


def _elapsed(name: str, given: dict[str, Any], columns: dict[str, Column]) -> Column:
    """Return the column of whole years or days between two dates; raise Refused if it is invalid."""
    fault, ends = "the derived columns", (given["start"], given["end"])
    required(given["unit"] in ("years", "days") and all(isinstance(end, str) for end in ends), fault)
    names = [end for end in ends if NAME.fullmatch(end)]
    required(names and ends[0] != ends[1] and not {*names} & {*columns}, fault)
    for end in {*ends} - {*names}:
        required(DATE.fullmatch(end), fault)
        date.fromisoformat(end)
    required(all(type(given[key]) is int for key in ("lower", "upper")), fault)
    rest = {key: given[key] for key in ("lower", "upper", "missing", "bins") if key in given}
    return _column(name, {**rest, "step": 1})


def _function(given: dict[str, Any], source: Column) -> Column:
    """Return the column of the logarithm or square of a column, with bounds computed from its bounds."""
    required(given["function"] in ("log", "square"), "the derived columns")
    if given["function"] == "log":
        required(source.low > 0, "the derived columns")
        ends = [float(Decimal(end).ln(DIGITS)) for end in (source.low, source.high)]
    else:
        ends = sorted([source.low * source.low, source.high * source.high])
        if source.low < 0 < source.high:
            ends[0] = 0.0
    bounds = {"lower": ends[0], "upper": ends[1], "missing": source.missing}
    return _column("of", {**bounds, "bins": given.get("bins", [])})


def _groups(name: str, given: dict[str, Any], source: Column) -> Column:
    """Return the column of categories that names the bins, between edges, of a column of numbers."""
    edges = given["edges"]
    required(isinstance(edges, list) and 1 <= len(edges) <= MOST_EDGES, "the derived columns")
    inner = tuple(map(number, edges))
    source.check_edges(inner)
    starts = (source.low, *inner)
    ends = zip(starts, (*inner, source.high), strict=True)
    texts = [f"[{low:.12g}, {high:.12g})" for low, high in ends]
    texts[-1] = texts[-1][:-1] + "]"
    reference = given.get("reference")
    return _column(name, {"values": texts} | ({} if reference is None else {"reference": reference}))


def compared(value: str) -> str | Fraction:
    """Return a category as it is compared: numbers as fractions; raise Refused for a missing value."""
    text = value.strip()
    required(text not in MISSING, "the columns")
    if text.lower() in ("true", "false"):
        return text.lower()
    return Fraction(text) if DECIMAL.fullmatch(text) else text


def number(value: Any) -> float:
    """Return a value as a float; raise Refused unless it is a finite number."""
    required(type(value) in (int, float) and math.isfinite(value), "a number")
    return float(value)


def read_budget(given: dict[str, Any], *, in_steps: bool = False) -> tuple[float, float]:
    """Return epsilon and delta of a session; raise Refused for numbers that no session of records has.

    `in_steps`: of all of several requests together, which may have a greater epsilon.
    """
    epsilon, delta = number(given["epsilon"]), number(given["delta"])
    fits = 0 < epsilon < MOST_OF_STEPS if in_steps else LEAST_EPSILON <= epsilon <= MOST_EPSILON
    required(fits, "the parameter epsilon")
    required(LEAST_DELTA <= delta < 1, "the parameter delta")
    return epsilon, delta


def _whole(value: Any, most: int) -> int:
    required(type(value) is int and 1 <= value <= most, "the parameter records")
    return int(value)
