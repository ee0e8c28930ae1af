"""Charts as SVG in the page: lines over steps, and intervals; the table behind each has its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from smpc_dp.report.table import Table

# Size of what is drawn, without what stands beside it, and the room above, below and to the right.
WIDTH, HEIGHT = 280, 280
TOP, BOTTOM, RIGHT = 12, 44, 36
# Width of a character, and what is between a label and the picture.
CHARACTER, GAP = 7.5, 12
# Lines of different colours; intervals that one picture shows, and the height of each.
SERIES = 4
MOST_INTERVALS = 40
ROW = 24
# A longer label is cut to so many characters.
LABEL = 26


def ticks(low: float, high: float, most: int = 5, least: float = 0.0) -> list[float]:
    """Return 2 to `most` + 2 round numbers for an axis, at least `least` apart, that span `low` to `high`."""
    span = high - low or abs(high) or 1.0
    raw = max(span / most, least)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _scale(value: float, low: float, high: float, start: float, end: float) -> float:
    """Return the coordinate at which a chart shows a value, between `start` and `end`."""
    return round(start + (value - low) / (high - low) * (end - start), 1)


@dataclass(frozen=True, slots=True)
class Tick:
    """Number at an axis of a chart: its text and its position in the picture."""

    at: float
    text: str


def _label_room(labels: Iterable[str]) -> int:
    """Return the width that labels take at the left of a chart."""
    return math.ceil(GAP + CHARACTER * max(map(len, labels)))


def _ticks(numbers: Sequence[float], start: float, end: float) -> list[Tick]:
    """Return the ticks of a chart's axis at these numbers, with labels and positions."""
    low, high = numbers[0], numbers[-1]
    return [Tick(_scale(number, low, high, start, end), f"{number:.6g}") for number in numbers]


@dataclass(frozen=True, slots=True)
class Lines:
    """Block of a report: a line chart of up to SERIES series, with the table of its numbers.

    Attributes:
        caption: what is shown; x, y: names of the axes.
        series: name and points of each line.
        table: the numbers.
    """

    caption: str
    x: str
    y: str
    series: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    table: Table
    block: ClassVar[str] = "lines"
    height: ClassVar[int] = HEIGHT

    @property
    def left(self) -> int:
        """Horizontal position where the chart's plot begins."""
        return _label_room(tick.text for tick in self.y_ticks)

    @property
    def right(self) -> int:
        """Horizontal position where the chart's plot ends."""
        return self.left + WIDTH + 4 * RIGHT

    @property
    def width(self) -> int:
        """Width of the picture, in SVG units."""
        return self.right + RIGHT

    @property
    def _numbers(self) -> tuple[list[float], list[float]]:
        """Numbers at the ticks of the x axis and of the y axis."""
        xs = [x for _, points in self.series for x, _ in points]
        ys = [y for _, points in self.series for _, y in points]
        # Of steps there are no halves.
        apart = 1.0 if all(x == int(x) for x in xs) else 0.0
        return ticks(min(xs), max(xs), 6, apart), ticks(min(ys), max(ys))

    @property
    def x_ticks(self) -> list[Tick]:
        """Ticks of the chart's lower axis, with their positions."""
        return _ticks(self._numbers[0], self.left, self.right)

    @property
    def y_ticks(self) -> list[Tick]:
        """Ticks of the chart's left axis, with their positions."""
        return _ticks(self._numbers[1], HEIGHT - BOTTOM, TOP)

    @property
    def paths(self) -> list[tuple[int, str, str]]:
        """Number (from 1), name and SVG points of each line."""
        (xs, ys), left, right = self._numbers, self.left, self.right

        def points(line: tuple[tuple[float, float], ...]) -> str:
            return " ".join(
                f"{_scale(x, xs[0], xs[-1], left, right)},{_scale(y, ys[0], ys[-1], HEIGHT - BOTTOM, TOP)}"
                for x, y in line
            )

        return [(number, name, points(line)) for number, (name, line) in enumerate(self.series[:SERIES], 1)]


def _label(name: str) -> str:
    """Return a name shortened for a chart, keeping the part in brackets, or start and end."""
    if len(name) > LABEL and name.endswith("]"):
        name = name[name.find("[") + 1 : -1]
    # What differs stands at the end as often as at the beginning.
    return name if len(name) <= LABEL else f"{name[: LABEL // 2 - 1]}…{name[-LABEL // 2 :]}"


@dataclass(frozen=True, slots=True)
class Drawn:
    """One interval of a chart with its position, label, ends and value."""

    y: float
    label: str
    low: float
    high: float
    value: float


@dataclass(frozen=True, slots=True)
class Intervals:
    """Block of a report: a chart of values with intervals, one below the other.

    A picture shows the first MOST_INTERVALS of them; the table has all. `rows`: (name, low, value, high), all
    finite.
    """

    caption: str
    unit: str
    rows: tuple[tuple[str, float, float, float], ...]
    table: Table
    block: ClassVar[str] = "intervals"

    @property
    def left(self) -> int:
        """Horizontal position at which the chart shows the axis' least value."""
        return _label_room(_label(name) for name, *_ in self.shown)

    @property
    def right(self) -> int:
        """Horizontal position at which the chart shows the axis' greatest value."""
        return self.left + WIDTH

    @property
    def width(self) -> int:
        """Width of the picture, in SVG units."""
        return self.right + RIGHT

    @property
    def shown(self) -> tuple[tuple[str, float, float, float], ...]:
        """Rows that the chart shows: of very many, only the first."""
        return self.rows[:MOST_INTERVALS]

    @property
    def height(self) -> int:
        """Height of the picture, in SVG units."""
        return TOP + ROW * len(self.shown) + BOTTOM

    @property
    def _numbers(self) -> list[float]:
        """Numbers at the ticks of the chart's axis."""
        return ticks(min(low for _, low, _, _ in self.shown), max(high for *_, high in self.shown))

    @property
    def x_ticks(self) -> list[Tick]:
        """Ticks of the chart's lower axis, with their positions."""
        return _ticks(self._numbers, self.left, self.right)

    @property
    def drawn(self) -> list[Drawn]:
        """Intervals with the positions at which the chart draws them."""
        low, high, left, right = self._numbers[0], self._numbers[-1], self.left, self.right

        def at(value: float) -> float:
            return _scale(value, low, high, left, right)

        return [
            Drawn(
                TOP + ROW * (index + 0.5),
                _label(name),
                at(least),
                at(most),
                at(value),
            )
            for index, (name, least, value, most) in enumerate(self.shown)
        ]


Chart = Lines | Intervals
