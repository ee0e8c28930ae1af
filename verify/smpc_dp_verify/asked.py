"""What is asked of records, and which sums each answer needs [protocols/records/README.md]."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from smpc_dp_verify.columns import MOST_CELLS, Block, Selector, Table
from smpc_dp_verify.errors import required

TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([(),~+\[\]]))")
MOST_ASKED, MOST_BINS, BINS, CHILDREN = 1000, 1024, 256, 16
# Coordinates of a vector: all cells that are asked for together.
MOST_LENGTH = 4096
# Of one column, of several, of a time and an event; which have groups.
ONE, MORE, TIMED = (
    ("sum", "mean", "variance", "heterogeneity"),
    ("covariance", "correlation"),
    ("survival", "logrank"),
)
GROUPED = ("count", "sum", "mean", "variance", *TIMED)
# Those that several requests make.
LOOPS = ("logistic", "poisson")
# What a session cannot describe: it would be read as another answer.
RESERVED = {*ONE, *MORE, *TIMED, *LOOPS, "count", "table", "histogram", "quantile", "median", "regression"}
RESERVED |= {"random_effects", "by", "x"}


class Asked(NamedTuple):
    """One thing that is asked for; `bins`: a number of bins, or inner edges."""

    text: str
    kind: str
    columns: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    bins: int | None = None
    edges: tuple[float, ...] = ()


class Term(NamedTuple):
    """One number of an answer: the factor of the variance of each block that it needs, c_b.

    `groups`: that rows are spread over. `range`: in its unit, of one row where it is a total over rows.
    """

    text: str
    factors: dict[Block, float]
    range: float
    is_total: bool = False
    groups: int = 1


def read_ask(ask: Any, table: Table) -> list[Asked]:
    """Return what is asked for, or refuse it."""
    texts = ask.split(";") if isinstance(ask, str) else ask
    required(isinstance(texts, list) and 1 <= len(texts) <= MOST_ASKED, "what is asked")
    required(all(isinstance(text, str) for text in texts), "what is asked")
    required(not RESERVED & {*table.described}, "the name of a described statistic")
    asked = [_Reader(text.strip(), table).read() for text in texts]
    required(len({one.text for one in asked}) == len(asked), "what is asked")
    for one in asked:
        _check(one, table)
    return asked


class _Reader:
    """The tokens of a text."""

    def __init__(self, text: str, table: Table) -> None:
        self.text, self.table, self.tokens, at = text, table, [], 0
        while at < len(text):
            token = TOKEN.match(text, at)
            required(token, "what is asked")
            if token is not None:
                self.tokens.append(token[token.lastindex or 0])
                at = token.end()

    def read(self) -> Asked:
        result = self._called() if self.tokens[1:2] == ["("] else self._bare()
        if self._has("by"):
            result = result._replace(by=self._names("x"))
        required(not self.tokens, "what is asked")
        return result

    def _take(self, expected: str | None = None) -> str:
        required(self.tokens and expected in (None, self.tokens[0]), "what is asked")
        return self.tokens.pop(0)

    def _has(self, token: str) -> bool:
        return self.tokens[:1] == [token] and bool(self.tokens.pop(0))

    def _name(self) -> str:
        token = self._take()
        required(token[0].isalpha() or token[0] == "_", "what is asked")
        return token

    def _number(self) -> float:
        token = self._take()
        required(token[-1] in "0123456789.", "what is asked")
        return float(token)

    def _names(self, between: str) -> tuple[str, ...]:
        names = [self._name()]
        while self._has(between):
            names.append(self._name())
        return tuple(names)

    def _bare(self) -> Asked:
        if self.tokens == ["count"] or self.tokens[:2] == ["count", "by"]:
            return Asked(self.text, self._take())
        columns = self._names("x")
        return Asked(self.text, "table" if len(columns) > 1 else "histogram", columns)

    def _called(self) -> Asked:
        kind = self._name()
        self._take("(")
        result = Asked(self.text, kind)
        if kind in ONE:
            result = result._replace(columns=(self._name(),))
        elif kind in MORE:
            result = result._replace(columns=self._names(","))
        elif kind in TIMED:
            first = self._name()
            self._take(",")
            result = result._replace(columns=(first, self._name()))
        elif kind in ("regression", *LOOPS):
            first = self._name()
            self._take("~")
            result = result._replace(columns=(first, *self._names("+")))
        elif kind == "median":
            result = Asked(self.text, "quantile", (self._name(),), levels=(0.5,), bins=BINS)
        elif kind == "quantile":
            name, levels = self._name(), []
            while self._has(","):
                levels.append(self._number())
            result = Asked(self.text, kind, (name,), levels=tuple(levels), bins=BINS)
        elif kind == "histogram":
            result = self._histogram()
        else:
            known = kind in self.table.described
            required(known, f"the statistic {kind}: the session does not describe its sums")
            result = result._replace(columns=self._names(","))
        self._take(")")
        return result

    def _histogram(self) -> Asked:
        result = Asked(self.text, "histogram", (self._name(),))
        if not self._has(","):
            return result
        if not self._has("["):
            bins = self._number()
            required(bins.is_integer(), "what is asked")
            return result._replace(bins=int(bins))
        edges = [self._number()]
        while self._has(","):
            edges.append(self._number())
        self._take("]")
        return result._replace(edges=tuple(edges))


def _check(one: Asked, table: Table) -> None:
    """Refuse what the columns do not allow."""
    names = (*one.columns, *one.by)
    required(all(name in table.columns for name in names), "a column that is asked for")
    required(len({*one.columns}) == len(one.columns) and len({*one.by}) == len(one.by), "what is asked")
    required(one.kind not in LOOPS, "a loop of requests")
    described = table.described.get(one.kind)
    required(not described or len(one.columns) == len(described.arguments), "what is asked")
    if described or one.kind in (*ONE, *MORE, "regression", "quantile"):
        for name in one.columns:
            table.number(name)
    required(len(one.columns) > 1 or one.kind not in (*MORE, "regression"), "what is asked")
    # Of more columns there are more products of two than coordinates.
    is_small = len(one.columns) ** 2 <= 2 * MOST_LENGTH or one.kind not in (*MORE, "regression")
    required(is_small, "the number of cells")
    has_groups = described.has_groups if described else one.kind in GROUPED
    required(not one.by or has_groups, "what is asked")
    if one.kind in TIMED:
        time, event = (table.number(name) for name in one.columns)
        required(time.bins and (event.low, event.high, event.steps) == (0, 1, 1), "a time and an event")
        cells = math.prod(_cells(name, table) for name in one.by)
        required(one.kind == "survival" or cells == 2, "two groups")
    if one.kind == "quantile":
        required(one.levels and all(0 < level < 1 for level in one.levels), "what is asked")
    if one.kind == "histogram":
        _check_bins(one, table)
    each = (*(one.columns if one.kind == "table" else ()), *one.by)
    required(all(table.columns[name].values or table.columns[name].bins for name in each), "bins")
    required(math.prod(_cells(name, table) for name in each) <= MOST_CELLS, "the number of cells")


def _check_bins(one: Asked, table: Table) -> None:
    column = table.columns[one.columns[0]]
    is_given = one.bins is not None or bool(one.edges)
    if column.values:
        required(not is_given, "bins")
        return
    required(is_given or column.bins, "bins")
    most = min(MOST_BINS, column.steps + 1)
    required(one.bins is None or 1 <= one.bins <= most, "bins")
    column.check_edges(one.edges)


def _cells(name: str, table: Table) -> int:
    column = table.columns[name]
    return len(column.values) or len(column.bins) + 1


def selectors(one: Asked, table: Table) -> tuple[Selector, ...]:
    """Return the cells of an answer: its groups, or those of a table or histogram."""
    if one.kind == "histogram" and not table.columns[one.columns[0]].values:
        name = one.columns[0]
        if one.bins is not None:
            return (table.equal(name, one.bins),)
        if one.edges:
            return (table.edged(name, one.edges),)
    names = one.columns if one.kind in ("table", "histogram") else one.by
    return tuple(map(table.selector, names))


def terms_of(one: Asked, table: Table) -> list[Term]:
    """Return the numbers of an answer."""
    of_kind = _of_described if one.kind in table.described else TERMS.get(one.kind, _of_columns)
    return of_kind(one, table)


def _of_counts(one: Asked, table: Table) -> list[Term]:
    return [Term(one.text, {table.block(by=selectors(one, table)): 1.0}, 1.0, is_total=True)]


def _of_columns(one: Asked, table: Table) -> list[Term]:
    """Return those of a sum, a mean or a variance."""
    name, by = one.columns[0], selectors(one, table)
    column, count = table.columns[name], table.block(over=one.columns, by=by)
    first, groups = table.block(name, by=by), math.prod(each.cells for each in by)
    if one.kind == "sum":
        factors = {first: 0.25}
        if column.middle != 0:
            factors[count] = (column.middle / column.width) ** 2
        return [Term(one.text, factors, column.width, is_total=True)]
    if one.kind == "mean":
        return [Term(one.text, {first: 0.25, count: 0.25}, column.width, groups=groups)]
    factors = {table.block(name, name, by=by): 1.0, first: 1.0, count: 0.25}
    return [Term(one.text, factors, (column.width / 2) ** 2, groups=groups)]


def _of_moments(one: Asked, table: Table) -> list[Term]:
    over, result = one.columns, []
    count = table.block(over=over)

    def moment(*powers: str) -> Block:
        return table.block(*powers, over=over)

    if one.kind == "correlation":
        for a, b in itertools.combinations(over, 2):
            factors = {moment(name, name): 1.0 for name in over if name in (a, b)}
            factors |= {moment(a, b): 4.0, count: 0.25, moment(a): 1.0, moment(b): 1.0}
            result.append(Term(f"correlation({a}, {b})", factors, 2.0))
        return result
    for a, b in itertools.combinations_with_replacement(over, 2):
        factors = {moment(a, b): 1.0, count: 0.25, moment(a): 0.25, moment(b): 0.25}
        size = math.prod(table.columns[name].width / 2 for name in (a, b))
        result.append(Term(f"covariance({a}, {b})", factors, size))
    return result


def _of_quantiles(one: Asked, table: Table) -> list[Term]:
    levels = [table.points(one.columns[0], one.bins or 1)]
    while (last := levels[-1]).cells > CHILDREN:
        levels.append(Selector(last.column, -(-last.cells // CHILDREN), last.thresholds[::CHILDREN]))
    return [
        Term(one.text, {table.block(by=(level,)): min(level.cells, CHILDREN) / 4 for level in levels}, 1.0)
    ]


def _of_regression(one: Asked, table: Table) -> list[Term]:
    response, *others = one.columns

    def moment(*powers: str) -> Block:
        return table.block(*powers, over=one.columns)

    factors = {moment(): 0.25, moment(response): 1.0} | {moment(name): 1.0 for name in others}
    factors |= {moment(name, response): 16.0 for name in others}
    pairs = itertools.combinations_with_replacement(others, 2)
    factors |= {moment(*pair): 16.0 / len(others) for pair in pairs}
    return [Term(one.text, factors, 1.0)]


def _of_time(one: Asked, table: Table) -> list[Term]:
    by, time, column = selectors(one, table), table.selector(one.columns[0]), table.number(one.columns[0])
    # a cell more is of the rows that stay at the upper bound
    time = Selector(
        time.column, time.cells + 1, (*time.thresholds, column.steps + 1), (*time.edges, column.high)
    )
    block = Block((), tuple(sorted(one.columns)), (*by, time, table.equal(one.columns[1], 2)))
    if one.kind == "logrank":
        return [Term(one.text, {block: 2.0 * time.cells}, 1.0, is_total=True)]
    return [Term(one.text, {block: 4.0 * time.cells}, 1.0, groups=math.prod(each.cells for each in by))]


def _of_heterogeneity(one: Asked, table: Table) -> list[Term]:
    (name,) = one.columns
    square = table.block(name, name)
    factors = {square._replace(of_party=True): 1.0, table.block(name): 1.0, square: 0.01}
    return [Term(one.text, factors | {table.block(over=one.columns): 0.01}, 4.0, is_total=True)]


def _of_described(one: Asked, table: Table) -> list[Term]:
    described, by = table.described[one.kind], selectors(one, table)
    columns = dict(zip(described.arguments, one.columns, strict=True))
    blocks = [
        table.block(*(columns[name] for name in powers), over=one.columns, by=by) for powers in described.sums
    ]
    size = math.prod(table.columns[columns[name]].width for name in described.range)
    groups = 1 if described.is_total else math.prod(each.cells for each in by)
    factors = dict(zip(blocks, described.factors, strict=True))
    return [Term(one.text, factors, size, described.is_total, groups)]


TERMS: dict[str, Callable[[Asked, Table], list[Term]]] = {
    **dict.fromkeys(("count", "table", "histogram"), _of_counts),
    **dict.fromkeys(MORE, _of_moments),
    **dict.fromkeys(TIMED, _of_time),
    "quantile": _of_quantiles,
    "regression": _of_regression,
    "heterogeneity": _of_heterogeneity,
}


def all_terms(asked: Iterable[Asked], table: Table) -> list[Term]:
    """Return the numbers of all answers, in order."""
    return [term for one in asked for term in terms_of(one, table)]
