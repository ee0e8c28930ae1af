"""Sampling errors of a linear regression for residuals of any spread, by a second request.

The question carries the regression and the rounded numbers of its noisy answer: the coefficients b, the
deviations of their noise, and the inverse of the second moments. With them a row's residual, its leverage and
its weight in a coefficient are functions of the row alone, with bounds that follow from those of the columns,
so that one sum for each coefficient is enough and nothing is cut. docs/proofs/records.md has the formulas.
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.asked import Product, Reader, Statistic
from smpc_dp.records.checks import cells_in
from smpc_dp.records.features import Block
from smpc_dp.records.formula import Coefficient, Design, check_linear, read_formula
from smpc_dp.records.intervals import INFINITE, Interval, normal_quantile
from smpc_dp.records.noisy import Display, NoisySums, laplace_distribution
from smpc_dp.records.population import Sampling, student_quantile
from smpc_dp.records.result import Estimate, near_zero
from smpc_dp.records.schema import Number, Schema
from smpc_dp.records.table import Integers, Table
from smpc_dp.records.terms import Term

Floats = NDArray[np.float64]
NAME = "sandwich"
# Significant digits of the public numbers; the greatest coefficient and entry of the inverse, and deviation.
DIGITS, LARGEST, LARGEST_NOISE = 9, 1e9, 1e150
# The greatest value that a row adds, in steps: values are rounded up.
GREATEST = 1 << 30
# Combinations of categories that are gone through for the greatest value.
MAX_PATTERNS = 1 << 12
# Up to this leverage h squares of residuals are divided by (1 - h)^2, as they would be without the row.
MOST_LEVERAGE = 0.5
# Rows whose weights in the design are computed at once.
_AT_ONCE = 1 << 16
# A question: its formula, its lists and its condition; lists agree to this part of their greatest number.
_ASKED, _NEAR = re.compile(rf"({NAME}\([^\[]*)(\[[^)]*\])(, \d+), \d+(\).*)", re.DOTALL), 1e-6
# The part of the intervals' error probability that is for the noise of the squares.
NOISE_PART = 0.1
UNCLEAR = "no sampling error: the squares of the residuals are within the noise, which widens the interval"
FEW_ROWS = "withheld: too few rows could decide this coefficient"
ABSENT = "withheld: the parties with rows in the sum are not all those of the regression, and no others"
ASSUMED = "the sum of the squares over the greatest one of a row"


def read_sandwich(reader: Reader, kind: str) -> Statistic:
    """Parse `y ~ a * b, [coefficients], [deviations], [inverse], parties, checksum`, or raise ConfigError."""
    one, lists = read_formula(reader, kind), []
    for _ in range(3):
        reader.take(",")
        lists.append(reader.number_list())
    whole = []
    for name in ("the number of parties", "the checksum"):
        reader.take(",")
        whole.append(float(reader.whole(name)))
    return msgspec.structs.replace(one, numbers=(*lists, tuple(whole)))


def check_sandwich(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a bad formula, or for numbers of another formula or of other columns."""
    check_linear(one, schema, where)
    size = len(Design(one, schema).coefficients)
    coefficients, deviations, inverse, (_, written) = one.numbers
    lists = {
        "coefficients": (coefficients, size, -LARGEST, LARGEST),
        "deviations": (deviations, size, 0.0, LARGEST_NOISE),
        "inverse": (inverse, size * (size + 1) // 2, -LARGEST, LARGEST),
    }
    for name, (given, length, low, high) in lists.items():
        if len(given) != length:
            reason = f"{len(given)} numbers of {name}, for {size} coefficients {length} are needed"
            raise ConfigError.at(where, reason, ConfigCheck.SHAPE)
        for number in given:
            if not low <= number <= high:
                reason = f"numbers of {name} must be in [{low:g}, {high:g}], one is {number:g}"
                raise ConfigError.at(where, reason, ConfigCheck.RANGE)
    diagonal = [inverse[size * row - row * (row - 1) // 2] for row in range(size)]
    if min(diagonal) <= 0:
        reason = f"the inverse has {min(diagonal):g} on its diagonal, which must be above 0"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)
    if written != checksum(one, schema):
        reason = (
            "the numbers are of another formula or condition, or of columns with other bounds or categories: "
            "copy the question as the regression's answer has it"
        )
        raise ConfigError.at(where, reason, ConfigCheck.DIFFERS)
    patterns = cells_in(Design(one, schema).categories(one.columns), schema)
    if patterns > MAX_PATTERNS:
        reason = f"{patterns} combinations of categories, at most {MAX_PATTERNS}"
        raise ConfigError.at(where, reason, ConfigCheck.TOO_LARGE)


def checksum(one: Statistic, schema: Schema) -> int:
    """Return a checksum of a question's lists, of its formula, and of what its columns are declared as."""
    declared: list[list[Any]] = []
    for name in one.columns:
        column = schema.columns[name]
        if isinstance(column, Number):
            declared.append([name, column.missing, float(column.lower), float(column.upper)])
        else:
            declared.append([name, column.missing, *column.values, column.reference_index])
    return zlib.crc32(msgspec.json.encode([one.products, declared, one.condition, one.numbers[:3]]))


def follow_up_text(
    design: Design, coefficients: Floats, deviations: Floats, inverse: Floats, parties: int
) -> str:
    """Return the question for these errors that follows on the answer of a linear regression.

    Args:
        design: of the regression, for all rows.
        coefficients: those of numbers in [-1, 1], the intercept first.
        deviations: of the noise, of the coefficients of the original columns.
        inverse: of the noisy second moments of numbers in [-1, 1].
        parties: the number of parties that have rows in the answer.
    """
    one, upper = design.one, inverse[np.triu_indices(len(inverse))]
    texts = [
        [f"{number:.{DIGITS}g}" for number in each.tolist()] for each in (coefficients, deviations, upper)
    ]
    made = msgspec.structs.replace(one, numbers=tuple(tuple(map(float, each)) for each in texts))
    lists = ", ".join(f"[{', '.join(each)}]" for each in texts)
    return one.named(f"{short_text(one)[:-1]}, {lists}, {parties}, {checksum(made, design.schema)})")


def agree(text: str, other: str) -> bool:
    """Tell whether two such questions are equal but for rounding of their numbers, and their checksums."""
    given, wanted = (_ASKED.fullmatch(each) for each in (text, other))
    if given is None or wanted is None:
        return text == other
    return given.group(1, 3, 4) == wanted.group(1, 3, 4) and _are_near(given[2], wanted[2])


def _are_near(given: str, expected: str) -> bool:
    """Tell whether two texts of lists of numbers are equal but for rounding."""
    pairs = zip(given.split("]"), expected.split("]"), strict=False)
    lists = [[each.strip("[, ").split(", ") for each in pair] for pair in pairs]
    if given.count("]") != expected.count("]") or any(len(one) != len(other) for one, other in lists):
        return False
    try:
        numbers = [[np.array([float(each or 0) for each in text]) for text in pair] for pair in lists]
    except ValueError:
        return False
    return all(bool((np.abs(one - other) <= _NEAR * np.abs(other).max()).all()) for one, other in numbers)


def short_text(one: Statistic) -> str:
    """Return a question about these errors without its numbers and its condition."""
    return f"{NAME}({one.columns[0]} ~ {' + '.join(':'.join(each) for each in one.products)})"


class SquaredInfluence(Block, frozen=True, tag="squared influence"):
    """Sum over rows of the squared influence of each row on one coefficient of a public regression.

    A row adds `GREATEST` times its squared influence over the greatest one that the columns' bounds allow,
    rounded up. `powers` are the response four times: bounds take it for a product of fourth degree that may
    have any value from 0 to the greatest one.

    Attributes:
        products: of the regression.
        numbers: its coefficients, and the inverse.
        at: the place of the coefficient.
    """

    products: tuple[Product, ...] = ()
    numbers: tuple[tuple[float, ...], ...] = ()
    at: int = 0

    @property
    def columns(self) -> frozenset[str]:
        """The names of all columns of the regression and of the row condition."""
        return super().columns | frozenset(itertools.chain(*self.products))

    @property
    def bounded_by(self) -> tuple[str, ...]:
        """No columns: what a row adds may be the greatest value where all columns are 0."""
        return ()

    def greatest(self, schema: Schema) -> int:  # noqa: ARG002
        """Return the greatest value that one row can add, whatever the schema is."""
        return GREATEST

    def public(self, schema: Schema) -> PublicRegression:
        """Return the regression that the influence is of."""
        columns = (self.powers[0], *dict.fromkeys(itertools.chain(*self.products)))
        return PublicRegression.of(
            Design(Statistic("", NAME, columns, products=self.products), schema), *self.numbers
        )

    def expected(self, deviation: float, schema: Schema) -> float:
        """Return the sum for residuals of one deviation, of responses in [-1, 1]."""
        public = self.public(schema)
        return GREATEST * deviation**2 * float(public.own[self.at]) / (float(public.squares[self.at]) or 1.0)

    def sums(self, table: Table) -> list[int]:
        """Return one party's sum over its rows, without noise."""
        public = self.public(table.schema)
        where, total = np.flatnonzero(self.complete(table)), 0
        for start in range(0, len(where), _AT_ONCE):
            parts = public.parts(self.at, table, where[start : start + _AT_ONCE])
            # whatever floats do with columns of tiny bounds, a row adds no more than the greatest value
            inside = np.clip(np.nan_to_num(parts, nan=1.0), 0.0, 1.0)
            steps = np.ceil(inside * GREATEST).astype(np.int64)
            total += int(steps.sum())
        return [total]


@dataclass(frozen=True)
class PublicRegression:
    """Linear regression with public coefficients: each row's squared influence, and the greatest possible.

    Of a row with design x and response y, numbers in [-1, 1], the influence on coefficient j is
    c_j x (y - b x) over 1 - h, with the leverage h = x V x up to `MOST_LEVERAGE`, and c_j row j of
    (contrasts V).

    Attributes:
        coefficients: b, shape (size,).
        inverse: V, shape (size, size).
        rows: the c_j, shape (size, size); own: c_j times contrast j, the sum of all (c_j x)^2 for these V.
        weights, squares: the greatest (c_j x)^2, and squared influence, of any row.
    """

    design: Design
    coefficients: Floats
    inverse: Floats
    rows: Floats
    own: Floats
    weights: Floats
    squares: Floats

    @classmethod
    def of(cls, design: Design, coefficients: Sequence[float], upper: Sequence[float]) -> PublicRegression:
        """Return the regression with these coefficients and this upper triangle of the inverse, by rows."""
        size = len(design.coefficients)
        half = np.zeros((size, size))
        half[np.triu_indices(size)] = upper
        inverse, given = half + np.triu(half, 1).T, np.array(coefficients)
        contrasts = design.contrasts()
        rows = contrasts @ inverse
        weights, squares = _greatest(design, given, inverse, rows)
        return cls(design, given, inverse, rows, (rows * contrasts).sum(axis=1), weights, squares)

    def parts(self, at: int, table: Table, where: Integers) -> Floats:
        """Return rows' squared influence on a coefficient, over the greatest possible one."""
        x, response = self.design.matrix(table, where), self.design.one.columns[0]
        y = table.codes[response][where] / table.schema.number(response, response).steps
        leverage = np.clip(((x @ self.inverse) * x).sum(axis=1), 0.0, MOST_LEVERAGE)
        influence = (x @ self.rows[at]) * (y - x @ self.coefficients) / (1 - leverage)
        return np.asarray(influence**2 / (self.squares[at] or 1.0), np.float64)


def _greatest(design: Design, coefficients: Floats, inverse: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return the greatest (c_j x)^2 and squared influence of any row, for each coefficient.

    For each combination of categories: a product of numbers in [-1, 1] is in [-1, 1], so that a sum of such
    products is within the sum of the absolute values of its factors, and so is a residual with 1 for y.
    """
    numbers = [one.numbers for one in design.coefficients]
    active = _patterns(design)
    factors = [active * [own == product for own in numbers] for product in dict.fromkeys(numbers)]
    residual = 1 + sum(np.abs(each @ coefficients) for each in factors)
    own = np.square(sum(np.abs(each @ rows.T) for each in factors))
    pairs = itertools.product([each @ inverse for each in factors], factors)
    leverage = np.minimum(sum(np.abs((one * other).sum(axis=1)) for one, other in pairs), MOST_LEVERAGE)
    squares = own * ((residual / (1 - leverage)) ** 2)[:, np.newaxis]
    return own.max(axis=0), squares.max(axis=0)


def _patterns(design: Design) -> NDArray[np.bool_]:
    """Return for each combination of categories, one in a row, which coefficients' columns are not 0."""
    names = design.categories(design.one.columns)
    levels = np.array([*itertools.product(*(range(cells_in([name], design.schema)) for name in names))])
    active = np.ones((len(levels), len(design.coefficients)), dtype=bool)
    for at, one in enumerate(design.coefficients):
        for name, level in one.levels:
            active[:, at] &= levels[:, names.index(name)] == level
    return active


def _blocks(one: Statistic, schema: Schema) -> list[SquaredInfluence]:
    """Return the sums of a question, one for each coefficient."""
    design = Design(one, schema)
    numbers, response = (one.numbers[0], one.numbers[2]), one.columns[0]
    return [
        SquaredInfluence((response,) * 4, design.present, products=one.products, numbers=numbers, at=at)
        for at in range(len(design.coefficients))
    ]


def sandwich_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the planning term of each coefficient: the sum of the rows' squared influence on it."""
    return [
        Term(f"{short_text(one)}, coefficient {at}", 1.0, True, {block: 1.0}, assumed=ASSUMED)
        for at, block in enumerate(_blocks(one, schema))
    ]


def sandwiches(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield a regression's coefficients as they were given, with sampling errors for any residuals.

    The interval has an upper bound of the noisy sum of squares, so that noise makes it wider. It has the
    quantile of Student's t with the degrees of `_freedom`.
    """
    schema = noisy.schema
    public = PublicRegression.of(Design(one, schema), one.numbers[0], one.numbers[2])
    design, response = public.design, schema.number(one.columns[0], one.text)
    half, (parties, _) = response.width / 2, one.numbers[3]
    others = ABSENT if noisy.absent or noisy.holders != parties else ""
    values = half * design.contrasts() @ public.coefficients
    for at, (coefficient, block) in enumerate(zip(design.coefficients, _blocks(one, schema), strict=True)):
        value = float(values[at]) + (response.middle if coefficient == Coefficient() else 0.0)
        spread, freedom = one.numbers[1][at], _freedom(public, at)
        scale = half * half * float(public.squares[at]) / GREATEST
        square, noise = scale * float(noisy.sums(block)[0]), scale * noisy.deviation(block)
        withheld = others or (FEW_ROWS if freedom < 1 else "")
        unclear = near_zero(square, noise)
        most = max(square, 0.0) + noisy.distribution(block).quantile(2 * NOISE_PART * display.outside) * noise
        ends = None if withheld else _ends(value, spread, math.sqrt(most), freedom, display.outside)
        yield Estimate.of(
            one,
            design.label(coefficient),
            design.unit(coefficient, one.columns[0]),
            INFINITE,
            value=value,
            error=spread,
            sampled=Sampling(None if withheld or unclear else math.sqrt(square), ends),
            note=withheld or (UNCLEAR if unclear else ""),
        )


def _freedom(public: PublicRegression, at: int) -> float:
    """Return the degrees of freedom of a coefficient's sampling error, as few as its weights allow.

    The rows that share its weight are `own / most` at least. Coefficients of their categories fit these rows:
    as many rows as such coefficients would have residuals of 0, whatever their deviation is.
    """
    own, most = float(public.own[at]), float(public.weights[at])
    if not (0 < own < math.inf and 0 < most < math.inf):
        return 0.0
    coefficients = public.design.coefficients
    levels = {*coefficients[at].levels}
    fitted = {
        one.numbers for one in coefficients if {*one.levels} <= levels and bool(one.levels) == bool(levels)
    }
    return own / most - len(fitted)


def _ends(value: float, noise: float, sampling: float, freedom: float, outside: float) -> Interval:
    """Return the interval for noise and sampling; the law of the noise is the wider one of both."""
    rest = (1 - NOISE_PART) * outside
    widest = max(normal_quantile(rest), laplace_distribution(1.0).quantile(rest))
    reach = math.hypot(widest * noise, student_quantile(freedom, rest) * sampling)
    return value - reach, value + reach
