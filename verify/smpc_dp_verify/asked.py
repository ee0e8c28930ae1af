"""What is asked of records, and which sums each answer needs [protocols/records/README.md]."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from smpc_dp_verify.columns import MOST_CELLS, Block, Column, Ranges, Selector, Table, compared
from smpc_dp_verify.errors import Refused, TooMany, required
from smpc_dp_verify.formula import MOST_PRODUCTS, check_formula, factors_of, read_products
from smpc_dp_verify.sandwich import SANDWICH, blocks_of_influence, check_numbers

TOKEN = re.compile(
    r"\s*(?:([A-Za-z_]\w*)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([(),~+*:\[\]])"
    r"|([<>]=?|!?=)|('[^']*'|\"[^\"]*\"))"
)
MOST_ASKED, MOST_BINS, BINS, CHILDREN = 1000, 1024, 256, 16
# Coordinates of a vector: all cells that are asked for together.
MOST_LENGTH = 4096
# Of one column, of several, of a time and an event; which have groups.
COX = ("cox", "cox_breslow", "cox_efron")
ONE, MORE, TIMED = (
    ("sum", "mean", "variance", "heterogeneity", "difference", "risk", "missing"),
    ("covariance", "correlation", "chi_square"),
    ("survival", "logrank", *COX),
)
# Of two groups.
COMPARED = ("difference", "risk")
OF_PAIRS = ("covariance", "correlation")
OF_COLUMNS = ("count", "sum", "mean", "variance", "missing", "quantile", "regression")
GROUPED = (*OF_COLUMNS, *OF_PAIRS, *TIMED, *COMPARED)
# The last argument of an answer whose kind then begins with it: errors for any values.
ROBUST = "robust"
WITH_ROBUST = ("variance", *OF_PAIRS)
# Those that several requests make.
LOOPS = ("logistic", "poisson")
EFFECTS = "random_effects"
# What a session cannot describe: it would be read as another answer.
RESERVED = {*ONE, *MORE, *TIMED, *LOOPS, "count", "table", "histogram", "quantile", "median", "regression"}
RESERVED |= {EFFECTS, SANDWICH, "table1", "by", "x"}
# Those that have no condition.
UNCONDITIONAL = ("heterogeneity", *LOOPS)


class Asked(NamedTuple):
    """One statistic that a session asks for: text, kind, columns, groups (`by`), bins, and condition.

    `bins`: a number of bins, or, of random effects, the fewest values of a party. `edges`: inner ones.
    `numbers`: of an earlier answer. `part_of`: the text that stands for this one and others, or "".
    """

    text: str
    kind: str
    columns: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    bins: int | None = None
    edges: tuple[float, ...] = ()
    products: tuple[tuple[str, ...], ...] = ()
    where: tuple[tuple[str, Ranges], ...] = ()
    condition: str = ""
    numbers: tuple[tuple[float, ...], ...] = ()
    part_of: str = ""


class Term(NamedTuple):
    """One estimate of a statistic: the sums (blocks) it needs, each with its factor c_b, and its range.

    `groups`: that rows are spread over. `range`: in its unit, of one row where it is a total over rows.
    `of_sampling`: the sums on which its sampling error alone depends.
    """

    text: str
    factors: dict[Block, float]
    range: float
    is_total: bool = False
    groups: int = 1
    of_sampling: frozenset[Block] = frozenset()

    @property
    def value(self) -> Term:
        """The estimate with the sums of its value alone."""
        factors = {block: one for block, one in self.factors.items() if block not in self.of_sampling}
        return self._replace(factors=factors)


def read_ask(ask: Any, table: Table, pairs: int = MOST_LENGTH) -> list[Asked]:
    """Parse a session's question into a list of statistics; raise Refused if it is invalid.

    `pairs`: of columns of one answer, about the most.
    """
    texts = ask.split(";") if isinstance(ask, str) else ask
    required(isinstance(texts, list) and 1 <= len(texts) <= MOST_ASKED, "what is asked")
    required(all(isinstance(text, str) for text in texts), "what is asked")
    required(not RESERVED & {*table.described}, "the name of a described statistic")
    asked = [part for text in texts for part in _parts(_Reader(text.strip(), table).read(), table)]
    required(len(asked) <= MOST_ASKED, "what is asked")
    required(len({one.text for one in asked}) == len(asked), "what is asked")
    for one in asked:
        _check(one, table)
        # Of more columns there are more products of two than coordinates.
        if one.kind in MORE and len(one.columns) ** 2 > 2 * pairs:
            raise TooMany("the number of cells")
    return asked


def read_loop(ask: Any, table: Table) -> Asked:
    """Return the one answer that takes several requests, or refuse what is asked."""
    texts = ask.split(";") if isinstance(ask, str) else ask
    required(isinstance(texts, list) and len(texts) == 1 and isinstance(texts[0], str), "what is asked")
    one = _Reader(texts[0].strip(), table).read()
    required(one.kind in (*LOOPS, EFFECTS) and not (one.by or one.where), "what is asked")
    response = table.number(one.columns[0])
    if one.kind == EFFECTS:
        required(1 <= (one.bins or 0) <= table.max_rows, "what is asked")
        return one
    required(all(name in table.columns for name in one.columns), "a column that is asked for")
    required(one.kind != "poisson" or response.low >= 0, "a response")
    required(one.kind != "logistic" or _is_indicator(one.columns[0], table), "a response")
    return one


def _parts(one: Asked, table: Table) -> list[Asked]:
    """Return a "table1" as the counts, means and other statistics it stands for; others unchanged."""
    if one.kind != "table1":
        return [one]
    known = all(name in table.columns for name in one.columns) and len({*one.columns}) == len(one.columns)
    required(known, "a column that is asked for")
    groups = f" by {' x '.join(one.by)}" if one.by else ""
    under = f" where {one.condition}" if one.condition else ""
    parts = [("count", Asked("count", "count", (), one.by))]
    for name in one.columns:
        column = table.columns[name]
        kinds = ["missing"] if column.lacks else []
        if column.values and one.by:
            crossed = (*one.by, name)
            parts.append((" x ".join(crossed), Asked("", "table", crossed)))
        elif column.values:
            kinds.insert(0, "histogram")
        else:
            kinds = ["mean", "variance", *kinds]
        parts += [(f"{kind}({name})", Asked("", kind, (name,), one.by)) for kind in kinds]
    return [
        part._replace(
            text=f"{text}{groups if part.by else ''}{under}",
            where=one.where,
            condition=one.condition,
            part_of=one.text,
        )
        for text, part in parts
    ]


class _Reader:
    """Recursive-descent parser of the text of one statistic; it removes the tokens that it has read."""

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
        if self._has("where"):
            written = list(self.tokens)
            where = self._conditions()
            text = " ".join(written[: len(written) - len(self.tokens)])
            result = result._replace(where=where, condition=text)
        required(not self.tokens, "what is asked")
        return result

    def _conditions(self) -> tuple[tuple[str, Ranges], ...]:
        """Parse `a = b and c >= 5`; return each column with the points or indices that satisfy it."""
        within: dict[str, Ranges] = {}
        while True:
            name, sign, value = self._name(), self._take(), self._take()
            if value[0] in "'\"":
                value = value[1:-1]
            else:
                required(value[0].isalnum() or value[0] in "_+-.", "a condition")
            required(name in self.table.columns, "a column that is asked for")
            own = allowed(self.table.columns[name], sign, value)
            both = [(max(a, c), min(b, d)) for a, b in within.get(name, own) for c, d in own]
            within[name] = tuple(sorted((low, high) for low, high in both if low <= high))
            required(within[name], "a condition")
            if not self._has("and"):
                return tuple(sorted(within.items()))

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
        try:
            return float(token)
        except ValueError:
            raise Refused("what is asked") from None

    def _names(self, between: str) -> tuple[str, ...]:
        names = [self._name()]
        while self._has(between):
            names.append(self._name())
        return tuple(names)

    def _bare(self) -> Asked:
        if self.tokens[:1] == ["count"] and self.tokens[1:2] in ([], ["by"], ["where"]):
            return Asked(self.text, self._take())
        columns = self._names("x")
        return Asked(self.text, "table" if len(columns) > 1 else "histogram", columns)

    def _called(self) -> Asked:
        kind = self._name()
        self._take("(")
        result = Asked(self.text, kind)
        if kind in ONE:
            result = result._replace(columns=(self._name(),))
        elif kind in (*MORE, "table1"):
            result = result._replace(columns=self._names(","))
        elif kind in TIMED:
            first = self._name()
            self._take(",")
            result = result._replace(columns=(first, self._name()))
            if kind in COX:
                self._take("~")
                result = result._replace(columns=(*result.columns, *self._names("+")))
        elif kind in ("regression", *LOOPS):
            result = self._formula(kind)
        elif kind == SANDWICH:
            result = self._sandwich(kind)
        elif kind == EFFECTS:
            name, least = self._name(), self._number() if self._has(",") else 1.0
            required(least.is_integer(), "what is asked")
            result = result._replace(columns=(name,), bins=int(least))
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
        result = self._robust(result)
        self._take(")")
        return result

    def _robust(self, one: Asked) -> Asked:
        """Return an answer with robust errors if its last argument says so; of two columns none does."""
        if one.kind not in WITH_ROBUST:
            return one
        if one.kind in OF_PAIRS and len(one.columns) > 2 and one.columns[-1] == ROBUST:
            return one._replace(kind=f"{ROBUST} {one.kind}", columns=one.columns[:-1])
        if one.kind not in OF_PAIRS and self._has(","):
            self._take(ROBUST)
            return one._replace(kind=f"{ROBUST} {one.kind}")
        return one

    def _formula(self, kind: str) -> Asked:
        response = self._name()
        self._take("~")
        terms = [self._product()]
        while self._has("+"):
            terms.append(self._product())
            required(len(terms) <= MOST_PRODUCTS, "what is asked")
        products = read_products(terms)
        columns = dict.fromkeys(itertools.chain(*products))
        required(response not in columns, "what is asked")
        return Asked(self.text, kind, (response, *columns), products=products)

    def _sandwich(self, kind: str) -> Asked:
        result, lists = self._formula(kind), []
        for _ in range(3):
            self._take(",")
            lists.append(self._list())
        whole = []
        for _ in range(2):
            self._take(",")
            whole.append(self._number())
        return result._replace(numbers=(*lists, tuple(whole)))

    def _list(self) -> tuple[float, ...]:
        self._take("[")
        numbers = [self._number()]
        while self._has(","):
            numbers.append(self._number())
        self._take("]")
        return tuple(numbers)

    def _product(self) -> list[tuple[str, ...]]:
        """Parse a term of a formula; return its factors (between `*`), each as column names (between `:`)."""
        factors = [self._names(":")]
        while self._has("*"):
            factors.append(self._names(":"))
        return factors

    def _histogram(self) -> Asked:
        result = Asked(self.text, "histogram", (self._name(),))
        if not self._has(","):
            return result
        if self.tokens[:1] != ["["]:
            bins = self._number()
            required(bins.is_integer(), "what is asked")
            return result._replace(bins=int(bins))
        return result._replace(edges=self._list())


def _check(one: Asked, table: Table) -> None:
    """Raise Refused if a table's columns do not allow a statistic, TooMany if it needs too many cells."""
    names, kind = (*one.columns, *one.by), one.kind.removeprefix(f"{ROBUST} ")
    required(kind == one.kind or ROBUST not in table.columns, "the name of a column")
    required(all(name in table.columns for name in names), "a column that is asked for")
    required(len({*one.columns}) == len(one.columns) and len({*one.by}) == len(one.by), "what is asked")
    required(one.kind not in (*LOOPS, EFFECTS), "a loop of requests")
    required(not one.where or one.kind not in UNCONDITIONAL, "a condition")
    described = table.described.get(one.kind)
    required(not described or len(one.columns) == len(described.arguments), "what is asked")
    if one.kind in ("regression", SANDWICH):
        required(not {*one.by} & {*one.columns}, "what is asked")
        check_formula(one.columns, one.products, table, selectors(one, table))
    if one.kind == SANDWICH:
        check_numbers(one.columns, one.products, one.condition, one.numbers, table)
    is_numeric = kind in (*ONE, *MORE, "quantile") and kind not in ("chi_square", "missing")
    if described or is_numeric:
        for name in one.columns:
            table.number(name)
    required(len(one.columns) > 1 or kind not in MORE, "what is asked")
    has_groups = described.has_groups if described else kind in GROUPED
    required(not one.by or has_groups, "what is asked")
    if one.kind in (*TIMED, *COMPARED, "chi_square"):
        _check_compared(one, table)
    if one.kind == "missing":
        column = table.columns[one.columns[0]]
        required(one.columns[0] not in one.by and (column.values or column.missing), "a missing value")
        # a public number of rows of persons has those that do not count
        counts_all = table.public and table.of_persons and not (one.by or one.where)
        required(not counts_all, "a missing value")
    if one.kind == "quantile":
        required(one.levels and all(0 < level < 1 for level in one.levels), "what is asked")
    if one.kind == "histogram":
        _check_bins(one, table)
    each = (*_celled(one, table), *one.by)
    required(all(table.columns[name].values or table.columns[name].bins for name in each), "bins")
    required(math.prod(_cells(name, table) for name in each) <= MOST_CELLS, "the number of cells")


def _celled(one: Asked, table: Table) -> tuple[str, ...]:
    """Return a statistic's columns, without groups, that must be categories or have declared bins."""
    if one.kind in ("table", "chi_square"):
        return one.columns
    if one.kind == "missing" and table.columns[one.columns[0]].values:
        return one.columns
    return one.columns[2:] if one.kind in COX else ()


def _check_compared(one: Asked, table: Table) -> None:
    """Raise Refused unless a statistic has the time and event, or groups, that it needs."""
    if one.kind in TIMED:
        time = table.number(one.columns[0])
        required(time.bins and _is_indicator(one.columns[1], table), "a time and an event")
    if one.kind == "risk":
        required(_is_indicator(one.columns[0], table), "an event")
    if one.kind in (*COMPARED, "logrank"):
        required(one.by and _cells(one.by[0], table) == 2, "two groups")
        required(one.kind == "logrank" or len(one.by) == 1, "two groups")
        starts = table.selector(one.by[0]).thresholds or (0, 1)
        for name, ranges in one.where:
            reached = {bisect_right(starts, end) for ends in ranges for end in ends}
            required(name != one.by[0] or len(reached) == 2, "two groups")
    if one.kind in (*COX, "chi_square"):
        cells = [_cells(name, table) for name in _celled(one, table)]
        required(not {*one.by} & {*one.columns} and min(cells) > 1, "cells to compare")
        is_table = len(cells) == 2 and math.prod(cells) <= MOST_BINS
        required(one.kind in COX or is_table, "cells to compare")


def _is_indicator(name: str, table: Table) -> bool:
    column = table.number(name)
    return (column.low, column.high, column.steps) == (0, 1, 1)


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


def allowed(column: Column, sign: str, value: str) -> Ranges:
    """Return the ranges of grid points or category indices that satisfy a comparison, or raise Refused."""
    if column.values:
        known = list(map(compared, column.values))
        required(sign in ("=", "!=") and compared(value) in known, "a condition")
        at, last = known.index(compared(value)), len(known) - 1
    else:
        limit = float(value)
        required(column.low <= limit <= column.high, "a condition")
        at, last = column.point(limit), column.steps
        fits = abs(column.value(at) - limit) <= 1e-6 * column.width / column.steps
        required(fits if column.step else sign not in ("=", "!="), "a condition")
    below, here, above = (0, at - 1), (at, at), (at + 1, last)
    parts = {
        "=": [here],
        "!=": [below, above],
        "<": [below],
        "<=": [(0, at)],
        ">": [above],
        ">=": [(at, last)],
    }
    required(sign in parts, "a condition")
    return tuple((low, high) for low, high in parts[sign] if low <= high)


def _cells(name: str, table: Table) -> int:
    column = table.columns[name]
    return len(column.values) or len(column.bins) + 1


def selectors(one: Asked, table: Table) -> tuple[Selector, ...]:
    """Return the cells that a statistic divides rows into: groups, or those of a table or histogram."""
    if one.kind == "histogram" and not table.columns[one.columns[0]].values:
        name = one.columns[0]
        if one.bins is not None:
            return (table.equal(name, one.bins),)
        if one.edges:
            return (table.edged(name, one.edges),)
    names = one.columns if one.kind in ("table", "histogram", "chi_square") else one.by
    return tuple(map(table.selector, names))


def terms_of(one: Asked, table: Table) -> list[Term]:
    """Return the estimates of a statistic: one, or for covariances one for each pair of columns."""
    of_kind = _of_described if one.kind in table.described else TERMS.get(one.kind, _of_columns)
    terms = of_kind(one, table)
    return [_under(term, one) for term in terms] if one.where else terms


def _under(term: Term, one: Asked) -> Term:
    """Return an estimate with its sums restricted to the rows that satisfy the statistic's condition."""
    factors = {block._replace(where=one.where): factor for block, factor in term.factors.items()}
    text = term.text if term.text == one.text else f"{term.text} where {one.condition}"
    of_sampling = frozenset(block._replace(where=one.where) for block in term.of_sampling)
    return term._replace(text=text, factors=factors, of_sampling=of_sampling)


def _of_counts(one: Asked, table: Table) -> list[Term]:
    return [Term(one.text, {table.block(by=selectors(one, table)): 1.0}, 1.0, is_total=True)]


def _of_columns(one: Asked, table: Table) -> list[Term]:
    """Return the one estimate of a sum, a mean or a variance, with the sums that it needs."""
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


def _of_missing(one: Asked, table: Table) -> list[Term]:
    """Return the estimate of the number of rows without a value: all rows less the rows with one."""
    (name,), by = one.columns, selectors(one, table)
    factors = {table.block(by=by): 1.0}
    if values := table.columns[name].values:
        factors[table.block(by=(*by, table.selector(name)))] = float(len(values))
    else:
        factors[table.block(over=one.columns, by=by)] = 1.0
    return [Term(one.text, factors, 1.0, is_total=True)]


def _of_moments(one: Asked, table: Table) -> list[Term]:
    over, by, result = one.columns, selectors(one, table), []
    count, groups = table.block(over=over, by=by), math.prod(each.cells for each in by)
    named = f" by {' x '.join(one.by)}" if by else ""

    def moment(*powers: str) -> Block:
        return table.block(*powers, over=over, by=by)

    if one.kind == "correlation":
        for a, b in itertools.combinations(over, 2):
            factors = {moment(name, name): 1.0 for name in over if name in (a, b)}
            factors |= {moment(a, b): 4.0, count: 0.25, moment(a): 1.0, moment(b): 1.0}
            result.append(Term(f"correlation({a}, {b}){named}", factors, 2.0, groups=groups))
        return result
    for a, b in itertools.combinations_with_replacement(over, 2):
        factors = {moment(a, b): 1.0, count: 0.25, moment(a): 0.25, moment(b): 0.25}
        size = math.prod(table.columns[name].width / 2 for name in (a, b))
        result.append(Term(f"covariance({a}, {b}){named}", factors, size, groups=groups))
    return result


def _of_robust(one: Asked, table: Table) -> list[Term]:
    """Return the numbers of an answer, each with the sums of third and fourth degree of its columns."""
    plain = one._replace(kind=one.kind.removeprefix(f"{ROBUST} "))
    terms, by = terms_of(plain._replace(where=()), table), selectors(one, table)
    pairs = [*itertools.combinations_with_replacement(one.columns, 2)]
    if plain.kind == "correlation":
        pairs = [*itertools.combinations(one.columns, 2)]
    result = []
    for term, (a, b) in zip(terms, pairs, strict=True):
        powers = [((a,) * first + (b,) * second) for first, second in DEGREES[plain.kind, a == b]]
        added = [table.block(*each, over=one.columns, by=by) for each in powers]
        factors = term.factors | dict.fromkeys(added, 0.01)
        text = term.text if term.text == one.text else term.text.replace(")", f", {ROBUST})", 1)
        result.append(term._replace(text=text, factors=factors, of_sampling=frozenset(added)))
    return result


# Powers of two columns, or of one, in the sums that a robust error needs.
_ALONE = ((3, 0), (4, 0))
DEGREES: dict[tuple[str, bool], tuple[tuple[int, int], ...]] = {
    ("variance", True): _ALONE,
    ("covariance", True): _ALONE,
    ("covariance", False): ((2, 1), (1, 2), (2, 2)),
    ("correlation", False): (
        *((3, 0), (2, 1), (1, 2), (0, 3)),
        *((4, 0), (3, 1), (2, 2), (1, 3), (0, 4)),
    ),
}


def levels_of(one: Asked, table: Table) -> list[Selector]:
    """Return the bins of each level of a quantile's tree, the finest first."""
    levels = [table.points(one.columns[0], one.bins or 1)]
    while (last := levels[-1]).cells > CHILDREN:
        levels.append(Selector(last.column, -(-last.cells // CHILDREN), last.thresholds[::CHILDREN]))
    return levels


def _of_quantiles(one: Asked, table: Table) -> list[Term]:
    levels, by = levels_of(one, table), selectors(one, table)
    factors = {table.block(by=(*by, level)): min(level.cells, CHILDREN) / 4 for level in levels}
    return [Term(one.text, factors, 1.0, groups=math.prod(each.cells for each in by))]


def _of_regression(one: Asked, table: Table) -> list[Term]:
    by = selectors(one, table)
    factors = factors_of(one.columns, one.products, table, by)
    return [Term(one.text, factors, 1.0, groups=math.prod(each.cells for each in by))]


def _of_sandwich(one: Asked, table: Table) -> list[Term]:
    formula = f"{one.columns[0]} ~ {' + '.join(':'.join(each) for each in one.products)}"
    blocks = blocks_of_influence(one.columns, one.products, one.numbers, table)
    return [
        Term(f"{SANDWICH}({formula}), coefficient {at}", {block: 1.0}, 1.0, is_total=True)
        for at, block in enumerate(blocks)
    ]


def _of_time(one: Asked, table: Table) -> list[Term]:
    by, time, column = selectors(one, table), table.selector(one.columns[0]), table.number(one.columns[0])
    # a cell more is of the rows that stay at the upper bound
    time = Selector(
        time.column, time.cells + 1, (*time.thresholds, column.steps + 1), (*time.edges, column.high)
    )
    by += tuple(map(table.selector, one.columns[2:]))
    block = Block((), tuple(sorted(one.columns[:2])), (*by, time, table.equal(one.columns[1], 2)))
    if one.kind == "logrank":
        return [Term(one.text, {block: block.cells / 2}, 1.0, is_total=True)]
    if one.kind in COX:
        return [Term(one.text, {block: 32.0 * block.cells}, 1.0)]
    return [Term(one.text, {block: 4.0 * time.cells}, 1.0, groups=math.prod(each.cells for each in by))]


def _of_difference(one: Asked, table: Table) -> list[Term]:
    name, by = one.columns[0], selectors(one, table)
    factors = {table.block(name, by=by): 0.5, table.block(over=one.columns, by=by): 0.5}
    factors[table.block(name, name, by=by)] = 0.01
    return [Term(one.text, factors, table.columns[name].width, groups=2)]


def _of_risk(one: Asked, table: Table) -> list[Term]:
    by = (*selectors(one, table), table.equal(one.columns[0], 2))
    return [Term(one.text, {table.block(by=by): 2.0}, 1.0, groups=2)]


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
    **dict.fromkeys(("count", "table", "histogram", "chi_square"), _of_counts),
    **dict.fromkeys(OF_PAIRS, _of_moments),
    **dict.fromkeys(TIMED, _of_time),
    **dict.fromkeys(("robust variance", "robust covariance", "robust correlation"), _of_robust),
    "missing": _of_missing,
    "difference": _of_difference,
    "risk": _of_risk,
    "quantile": _of_quantiles,
    "regression": _of_regression,
    SANDWICH: _of_sandwich,
    "heterogeneity": _of_heterogeneity,
}


def all_terms(asked: Iterable[Asked], table: Table) -> list[Term]:
    """Return the estimates of all statistics of a question, in the order of the statistics."""
    return [term for one in asked for term in terms_of(one, table)]
