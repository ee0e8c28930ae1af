"""What is asked of the records, as it is read: `Statistic`, and the words of its text."""

from __future__ import annotations

import re

import msgspec

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError

MAX_BINS = 1024
DEFAULT_BINS = 256
# The last argument of a statistic that has another kind, of this name before its own, with robust errors.
ROBUST = "robust"
FORMS = (
    "count, sum(a), mean(a), variance(a), missing(a), covariance(a, b, ...), correlation(a, b, ...), "
    "histogram(a, bins), quantile(a, q, ...), median(a), a x b, regression(y ~ a * b + c), "
    "sandwich(...) as the answer of a regression prints it, table1(a, b, ...); "
    "alone logistic(y ~ a * b + c), poisson(y ~ a * b + c), random_effects(a, least rows); "
    "survival(time, event), logrank(time, event) by a, cox(time, event ~ a + b), cox_breslow and cox_efron "
    "like cox, heterogeneity(a), "
    "difference(a) by b, risk(a) by b, chi_square(a, b); "
    "count, sum, mean, variance, missing, covariance, correlation, quantile, median, regression, survival, "
    "cox, cox_breslow, cox_efron and table1 also 'by' categories; "
    "variance, covariance and correlation also with 'robust' as last argument; "
    "last 'where' a = b and c >= 5"
)
COMPARISONS = "a = b, a != b, c < 5, c <= 5, c > 5, c >= 5, with 'and' between; groups stand before 'where'"
_TOKEN = re.compile(
    r"\s*(?:([A-Za-z_]\w*)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([(),~+*:\[\]])"
    r"|([<>]=?|!?=)|('[^']*'|\"[^\"]*\"))"
)


# Columns whose values are multiplied; a category has one indicator of each of its values.
Product = tuple[str, ...]
# Grid points of a number or indices of categories, from and to, both included.
Ranges = tuple[tuple[int, int], ...]


class Condition(msgspec.Struct, frozen=True):
    """Restriction of a statistic to rows whose value in one column is present and in the given ranges."""

    column: str
    ranges: Ranges


class Statistic(msgspec.Struct, frozen=True):
    """Parsed request for one statistic of the parties' tables: its kind, columns, groups and row condition.

    Attributes:
        text: as it was asked for.
        columns: its columns; of a regression the response first.
        by: categories, or numbers with bins, for each cell of which it is computed.
        levels: of quantiles, in (0, 1).
        bins: the number of bins of equal width; None for the declared ones, or for categories.
        edges: inner edges of bins, in the place of `bins`.
        least: of random effects the number of values that a party is expected to have at least.
        products: of a regression its regressors, those of one column first.
        numbers: public numbers of an earlier answer on which it depends, in lists.
        where: conditions on the rows; condition: as they were written.
        part_of: the text of the question that stands for this one and others; "" if none does.
    """

    text: str
    kind: str
    columns: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    bins: int | None = None
    edges: tuple[float, ...] = ()
    least: int = 1
    products: tuple[Product, ...] = ()
    numbers: tuple[tuple[float, ...], ...] = ()
    where: tuple[Condition, ...] = ()
    condition: str = ""
    part_of: str = ""

    @property
    def used(self) -> frozenset[str]:
        """The columns that it depends on: its own, and those of its groups and of its row condition."""
        return frozenset((*self.columns, *self.by, *(one.column for one in self.where)))

    def named(self, name: str) -> str:
        """Return the name of a number in the answer, with the text of the row condition appended if any."""
        return f"{name} where {self.condition}" if self.condition and name != self.text else name


class Reader:
    """Tokenizer of the text that requests a statistic, with methods that consume its tokens in order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.in_condition, self.condition = False, ""
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self.in_condition = "where" in self.tokens
                raise self.error(f"{text[position:].strip()[:20]!r} cannot be read")
            self.tokens.append(next(part for part in match.groups() if part is not None))
            position = match.end()
            if self.tokens[-1] == "where" and not self.condition:
                self.condition = text[position:].strip()
        self.next = 0

    def error(self, reason: str) -> ConfigError:
        """Return, without raising it, an error in the requested text that lists the known forms of `ask`.

        An error in the condition names the condition, and lists the forms of comparisons alone.
        """
        if self.in_condition:
            reason = f"condition {shown(self.condition)}: {reason}"
            return ConfigError(f"{reason} (known: {COMPARISONS})", ConfigCheck.FORMAT)
        return ConfigError(f"{reason} (known: {FORMS})", ConfigCheck.FORMAT)

    def take(self, expected: str | None = None) -> str:
        """Consume and return the next token; raise ConfigError if it is absent or not the expected one."""
        token = self.tokens[self.next] if self.next < len(self.tokens) else ""
        if not token or (expected is not None and token != expected):
            raise self.error(f"{expected or 'more'} is expected, not {token or 'the end'}")
        self.next += 1
        return token

    def accepts(self, token: str) -> bool:
        """Consume the next token and return True if it equals the given one, else return False."""
        if self.next < len(self.tokens) and self.tokens[self.next] == token:
            self.next += 1
            return True
        return False

    def name(self) -> str:
        """Consume and return the next token as a column name; raise ConfigError if it is not a name."""
        token = self.take()
        if not (token[0].isalpha() or token[0] == "_"):
            raise self.error(f"a column is expected, not {token}")
        return token

    def number(self) -> float:
        """Consume and return the next token as a number; raise ConfigError if it is not a number."""
        token = self.take()
        try:
            return float(token)
        except ValueError:
            raise self.error(f"a number is expected, not {token}") from None

    def value(self) -> str:
        """Consume and return the value in a comparison, a name, number or quoted text; or ConfigError."""
        token = self.take()
        if token[0] in "'\"":
            return token[1:-1]
        if not (token[0].isalnum() or token[0] in "_+-."):
            raise self.error(f"a category or a number is expected, not {token}")
        return token

    def whole(self, number_of: str) -> int:
        """Consume and return an integer; raise ConfigError, naming what it counts, for another number."""
        number = self.number()
        if not number.is_integer():
            raise self.error(f"{number_of} must be an integer, not {number:g}")
        return int(number)

    def number_list(self) -> tuple[float, ...]:
        """Consume and return numbers in brackets, with commas between them; raise ConfigError for others."""
        self.take("[")
        numbers = [self.number()]
        while self.accepts(","):
            numbers.append(self.number())
        self.take("]")
        return tuple(numbers)

    def names(self, separator: str, most: int | None = None) -> tuple[str, ...]:
        """Consume and return column names between separators: all, or at most `most` + 1 of them."""
        names = [self.name()]
        while (most is None or len(names) <= most) and self.accepts(separator):
            names.append(self.name())
        return tuple(names)

    def one_column(self, kind: str) -> Statistic:
        """Parse the argument `a`, one column, of a statistic of this kind."""
        return Statistic(self.text, kind, (self.name(),))

    def columns(self, kind: str) -> Statistic:
        """Parse the arguments `a, b, ...`, any number of columns, of a statistic of this kind."""
        return Statistic(self.text, kind, self.names(","))

    def time_and_event(self, kind: str) -> Statistic:
        """Parse the arguments `time, event`, two columns, of a survival statistic."""
        time = self.name()
        self.take(",")
        return Statistic(self.text, kind, (time, self.name()))

    def time_and_event_over(self, kind: str) -> Statistic:
        """Parse the arguments `time, event ~ a + b` of a proportional-hazards regression on a and b."""
        both = self.time_and_event(kind).columns
        self.take("~")
        return Statistic(self.text, kind, (*both, *self.names("+")))

    def median(self, kind: str) -> Statistic:  # noqa: ARG002
        """Parse the argument `a`, one column, of a median, which becomes a quantile at level 0.5."""
        return Statistic(self.text, "quantile", (self.name(),), levels=(0.5,), bins=DEFAULT_BINS)

    def column_and_levels(self, kind: str) -> Statistic:
        """Parse the arguments `a, q, ...`, a column and the levels of its quantiles."""
        column, levels = self.name(), []
        while self.accepts(","):
            levels.append(self.number())
        return Statistic(self.text, kind, (column,), levels=tuple(levels), bins=DEFAULT_BINS)

    def column_and_least(self, kind: str) -> Statistic:
        """Parse `a` or `a, n`: a column, and the least number of its values expected in a party, else 1."""
        column = self.name()
        least = self.whole("the least number of values") if self.accepts(",") else 1
        return Statistic(self.text, kind, (column,), least=least)

    def column_and_bins(self, kind: str) -> Statistic:
        """Parse a histogram's `a`, `a, number of bins` or `a, [edge, ...]`, with `a` a column."""
        column = self.name()
        if not self.accepts(","):
            return Statistic(self.text, kind, (column,))
        if self.tokens[self.next : self.next + 1] != ["["]:
            return Statistic(self.text, kind, (column,), bins=self.whole("the number of bins"))
        return Statistic(self.text, kind, (column,), edges=self.number_list())
