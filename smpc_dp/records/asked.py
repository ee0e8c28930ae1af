"""What is asked of the records, as it is read: `Statistic`, and the words of its text."""

from __future__ import annotations

import re

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError

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


class Reader:
    """The tokens of one text, and how far they are read."""

    def __init__(self, text: str) -> None:
        self.text = text
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

    def one_column(self, kind: str) -> Statistic:
        """Read `a`."""
        return Statistic(self.text, kind, (self.name(),))

    def columns(self, kind: str) -> Statistic:
        """Read `a, b, ...`."""
        return Statistic(self.text, kind, self.names(","))

    def time_and_event(self, kind: str) -> Statistic:
        """Read `time, event`."""
        time = self.name()
        self.take(",")
        return Statistic(self.text, kind, (time, self.name()))

    def response_over(self, kind: str) -> Statistic:
        """Read `y ~ a + b`."""
        response = self.name()
        self.take("~")
        return Statistic(self.text, kind, (response, *self.names("+")))

    def median(self, kind: str) -> Statistic:  # noqa: ARG002
        """Read `a`: a median is a quantile."""
        return Statistic(self.text, "quantile", (self.name(),), levels=(0.5,), bins=DEFAULT_BINS)

    def column_and_levels(self, kind: str) -> Statistic:
        """Read `a, q, ...`."""
        column, levels = self.name(), []
        while self.accepts(","):
            levels.append(self.number())
        return Statistic(self.text, kind, (column,), levels=tuple(levels), bins=DEFAULT_BINS)

    def column_and_least(self, kind: str) -> Statistic:
        """Read `a, least rows`."""
        column = self.name()
        least = self.whole("the least number of values") if self.accepts(",") else 1
        return Statistic(self.text, kind, (column,), least=least)

    def column_and_bins(self, kind: str) -> Statistic:
        """Read `a`, `a, number of bins` or `a, [edge, ...]`."""
        column = self.name()
        if not self.accepts(","):
            return Statistic(self.text, kind, (column,))
        if not self.accepts("["):
            return Statistic(self.text, kind, (column,), bins=self.whole("the number of bins"))
        edges = [self.number()]
        while self.accepts(","):
            edges.append(self.number())
        self.take("]")
        return Statistic(self.text, kind, (column,), edges=tuple(edges))
