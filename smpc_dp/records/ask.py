"""Reads what is asked of the records: "mean(age) by sex", "age x sex", "regression(y ~ a + b)"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues
from smpc_dp.records.registered import RESERVED, check_registered
from smpc_dp.records.schema import MAX_CELLS, Category, Number, Schema, SumsOfRows

Ask = str | Sequence[str]

MAX_STATISTICS = 1000
MAX_BINS = 1024
DEFAULT_BINS = 256
FORMS = (
    "count, sum(a), mean(a), variance(a), covariance(a, b, ...), correlation(a, b, ...), histogram(a, bins), "
    "quantile(a, q, ...), median(a), a x b, regression(y ~ a + b); alone logistic(y ~ a + b), "
    "poisson(y ~ a + b), random_effects(a, least rows); survival(time, event), logrank(time, event) by a, "
    "heterogeneity(a); "
    "count, sum, mean, variance and survival also 'by' categories"
)
_TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([(),~+\[\]]))")
_GROUPED = ("sum", "mean", "variance")
_OF_ONE = (*_GROUPED, "heterogeneity", "random_effects")
_OF_MORE = ("covariance", "correlation")
_OF_TIME = ("survival", "logrank")
# Regressions by Newton steps, each of which is a request.
FITS = ("logistic", "poisson")
# What takes several requests.
LOOPS = (*FITS, "random_effects")
# A column may have such a name.
_LOOP = re.compile(rf"\s*({'|'.join(LOOPS)})\s*\(")


class Statistic(msgspec.Struct, frozen=True):
    """One answer that is asked for.

    Attributes:
        text: as it was asked for.
        columns: its columns; of a regression the response first.
        by: categories, or numbers with bins, for each cell of which it is computed.
        levels: of quantiles, in (0, 1).
        bins: the number of bins of equal width; None for the declared ones, or for categories.
        edges: inner edges of bins, in the place of `bins`.
        least: of random effects the number of values that a party is expected to have at least.
    """

    text: str
    kind: str
    columns: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    bins: int | None = None
    edges: tuple[float, ...] = ()
    least: int = 1


def read_ask(ask: Ask, schema: Schema) -> tuple[Statistic, ...]:
    """Read what is asked for, a text or a list of them; raise ConfigError with every fault.

    In one text, statistics are separated by semicolons.
    """
    texts = ask.split(";") if isinstance(ask, str) else list(ask)
    statistics: list[Statistic] = []
    issues = Issues()
    for name in sorted(RESERVED & {*schema.statistics}):
        issues.add_issue(f"records.statistics.{name}", "is a name of this package", ConfigCheck.CONFLICT)
    for text in texts:
        where = f"ask: {shown(text)}"
        try:
            if not isinstance(text, str):
                raise ConfigError.at(where, "must be a text", ConfigCheck.TYPE)
            one = _Reader(text.strip(), schema.statistics).statistic()
            _check(one, schema, where)
            statistics.append(one)
        except ConfigError as error:
            issues += [ConfigIssue(issue.where or where, issue.reason, issue.check) for issue in error.issues]
    if len({one.text for one in statistics}) < len(statistics):
        issues.add_issue("ask", "the same is asked for twice", ConfigCheck.DUPLICATE)
    if not 1 <= len(texts) <= MAX_STATISTICS:
        reason = f"1 to {MAX_STATISTICS} statistics, not {len(texts)}"
        issues.add_issue("ask", reason, ConfigCheck.RANGE)
    issues.raise_issues()
    return tuple(statistics)


def asked_loop(ask: object) -> str | None:
    """Return the kind of what takes several requests, as it is written; None if there is none."""
    texts = ask.split(";") if isinstance(ask, str) else ask if isinstance(ask, Sequence) else ()
    matches = (_LOOP.match(text) for text in texts if isinstance(text, str))
    return next((match[1] for match in matches if match), None)


class _Reader:
    """The tokens of one text, and how far they are read."""

    def __init__(self, text: str, others: Mapping[str, SumsOfRows]) -> None:
        self.text = text
        self.others = others
        self.tokens: list[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"{text[position:].strip()[:20]!r} cannot be read")
            self.tokens.append(next(part for part in match.groups() if part is not None))
            position = match.end()
        self.next = 0

    def error(self, reason: str) -> ConfigError:
        return ConfigError(f"{reason} (known: {FORMS})", ConfigCheck.FORMAT)

    def take(self, expected: str | None = None) -> str:
        """Return the next token; raise ConfigError if there is none, or not the expected one."""
        token = self.tokens[self.next] if self.next < len(self.tokens) else ""
        if not token or (expected is not None and token != expected):
            raise self.error(f"{expected or 'more'} is expected, not {token or 'the end'}")
        self.next += 1
        return token

    def accepts(self, token: str) -> bool:
        """Take the next token if it is this one."""
        if self.next < len(self.tokens) and self.tokens[self.next] == token:
            self.next += 1
            return True
        return False

    def name(self) -> str:
        token = self.take()
        if not (token[0].isalpha() or token[0] == "_"):
            raise self.error(f"a column is expected, not {token}")
        return token

    def number(self) -> float:
        token = self.take()
        try:
            return float(token)
        except ValueError:
            raise self.error(f"a number is expected, not {token}") from None

    def whole(self, number_of: str) -> int:
        number = self.number()
        if not number.is_integer():
            raise self.error(f"{number_of} must be an integer, not {number:g}")
        return int(number)

    def names(self, separator: str) -> tuple[str, ...]:
        names = [self.name()]
        while self.accepts(separator):
            names.append(self.name())
        return tuple(names)

    def statistic(self) -> Statistic:
        """Read the whole text."""
        result = self._called() if self.tokens[1:2] == ["("] else self._bare()
        if self.accepts("by"):
            result = msgspec.structs.replace(result, by=self.names("x"))
        if self.next < len(self.tokens):
            raise self.error(f"{self.tokens[self.next]!r} is not expected")
        return result

    def _bare(self) -> Statistic:
        if self.tokens == ["count"] or self.tokens[:2] == ["count", "by"]:
            self.take()
            return Statistic(self.text, "count")
        columns = self.names("x")
        return Statistic(self.text, "table" if len(columns) > 1 else "histogram", columns)

    def _called(self) -> Statistic:
        kind = self.name()
        self.take("(")
        result: Statistic
        if kind == "random_effects":
            result = self._random_effects()
        elif kind in _OF_ONE:
            result = Statistic(self.text, kind, (self.name(),))
        elif kind in _OF_MORE:
            result = Statistic(self.text, kind, self.names(","))
        elif kind in _OF_TIME:
            time = self.name()
            self.take(",")
            result = Statistic(self.text, kind, (time, self.name()))
        elif kind in ("regression", *FITS):
            response = self.name()
            self.take("~")
            result = Statistic(self.text, kind, (response, *self.names("+")))
        elif kind == "median":
            result = Statistic(self.text, "quantile", (self.name(),), levels=(0.5,), bins=DEFAULT_BINS)
        elif kind == "quantile":
            result = self._quantile()
        elif kind == "histogram":
            result = self._histogram()
        elif kind in self.others:
            result = Statistic(self.text, kind, self.names(","))
        else:
            raise self.error(f"{kind!r} is no statistic")
        self.take(")")
        return result

    def _quantile(self) -> Statistic:
        column, levels = self.name(), []
        while self.accepts(","):
            levels.append(self.number())
        return Statistic(self.text, "quantile", (column,), levels=tuple(levels), bins=DEFAULT_BINS)

    def _random_effects(self) -> Statistic:
        column = self.name()
        least = self.whole("the least number of values") if self.accepts(",") else 1
        return Statistic(self.text, "random_effects", (column,), least=least)

    def _histogram(self) -> Statistic:
        column = self.name()
        if not self.accepts(","):
            return Statistic(self.text, "histogram", (column,))
        if not self.accepts("["):
            return Statistic(self.text, "histogram", (column,), bins=self.whole("the number of bins"))
        edges = [self.number()]
        while self.accepts(","):
            edges.append(self.number())
        self.take("]")
        return Statistic(self.text, "histogram", (column,), edges=tuple(edges))


def _check(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError, naming the statistic, for what the columns do not allow."""
    for name in (*one.columns, *one.by):
        schema.column(name, where)
    described = schema.statistics.get(one.kind)
    is_numeric = described or one.kind in (*_OF_ONE, *_OF_MORE, *FITS, "regression", "quantile")
    numeric = one.columns if is_numeric else ()
    for name in numeric:
        schema.number(name, where)
    if len(set(one.columns)) < len(one.columns) or len(set(one.by)) < len(one.by):
        raise ConfigError.at(where, "a column is there twice", ConfigCheck.DUPLICATE)
    if one.kind in (*_OF_MORE, *FITS, "regression") and len(one.columns) < 2:
        raise ConfigError.at(where, "needs two columns at least", ConfigCheck.SHAPE)
    if described:
        check_registered(one.kind, described, where)
    if described and len(one.columns) != len(described.arguments):
        reason = f"needs {len(described.arguments)} columns: {', '.join(described.arguments)}"
        raise ConfigError.at(where, reason, ConfigCheck.SHAPE)
    is_grouped = described.groups if described else one.kind in (*_GROUPED, *_OF_TIME, "count")
    if one.by and not is_grouped:
        raise ConfigError.at(where, f"a {one.kind} has no groups", ConfigCheck.UNSUPPORTED)
    if one.kind in _OF_TIME:
        _check_survival(one, schema, where)
    if one.kind in FITS:
        _check_response(one, schema, where)
    if not 1 <= one.least <= schema.max_rows:
        reason = f"a party has 1 to max_rows = {schema.max_rows} values, not {one.least}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)
    _check_cells(one, schema, where)


def _check_survival(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless there are a time grid, an indicator of events and two groups to compare."""
    time, event = (schema.number(name, where) for name in one.columns)
    if not time.bins:
        reason = f"column {one.columns[0]!r} needs `bins` in the schema: the time grid"
        raise ConfigError.at(where, reason, ConfigCheck.MISSING)
    _check_binary(event, one.columns[1], where)
    if one.kind == "logrank" and cells_in(one.by, schema) != 2:
        raise ConfigError.at(where, "needs two groups: 'by' a column of two cells", ConfigCheck.SHAPE)


def _check_binary(column: Number, name: str, where: str) -> None:
    """Raise ConfigError unless a column is an indicator."""
    if not column.is_indicator:
        reason = f"column {name!r} must be 0 or 1: lower = 0, upper = 1, step = 1"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def _check_response(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless the response is an indicator, or of a Poisson regression not negative."""
    name = one.columns[0]
    response = schema.number(name, where)
    if one.kind == "logistic":
        _check_binary(response, name, where)
    elif response.lower < 0:
        reason = f"column {name!r} must not be negative: its lower is {response.lower:g}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def cells_in(names: Iterable[str], schema: Schema) -> int:
    """Return the number of declared cells of columns together; 1 for none."""
    columns = [schema.columns[name] for name in names]
    return math.prod(
        len(column.values) if isinstance(column, Category) else len(column.bins) + 1 for column in columns
    )


def _check_cells(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for quantiles outside (0, 1), and for bins that are none or too many."""
    if one.kind == "quantile" and not (one.levels and all(0 < level < 1 for level in one.levels)):
        levels = ", ".join(f"{level:g}" for level in one.levels) or "none"
        raise ConfigError.at(where, f"quantiles must be inside (0, 1), are {levels}", ConfigCheck.RANGE)
    if one.kind == "histogram":
        _check_histogram(one, schema, where)
    names = (*(one.columns if one.kind == "table" else ()), *one.by)
    for name in names:
        column = schema.columns[name]
        if isinstance(column, Number) and not column.bins:
            reason = f"column {name!r} needs `bins` in the schema: its cells are not declared"
            raise ConfigError.at(where, reason, ConfigCheck.MISSING)
    cells = cells_in(names, schema)
    if cells > MAX_CELLS:
        raise ConfigError.at(where, f"{cells} cells, at most {MAX_CELLS}", ConfigCheck.TOO_LARGE)


def _check_histogram(one: Statistic, schema: Schema, where: str) -> None:
    column = schema.columns[one.columns[0]]
    given = one.bins is not None or bool(one.edges)
    if isinstance(column, Category):
        if given:
            raise ConfigError.at(where, "categories have no bins", ConfigCheck.UNSUPPORTED)
    elif not given and not column.bins:
        raise ConfigError.at(where, "needs a number of bins, or `bins` in the schema", ConfigCheck.MISSING)
    elif one.bins is not None and not 1 <= one.bins <= min(MAX_BINS, column.steps + 1):
        reason = f"1 to {min(MAX_BINS, column.steps + 1)} bins, not {one.bins}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)
    elif (fault := column.edge_fault(one.edges)) is not None:
        raise ConfigError.at(where, f"edges {fault}", ConfigCheck.RANGE)


def listed(statistics: Iterable[Statistic]) -> list[str]:
    """Return the texts of statistics."""
    return [one.text for one in statistics]
