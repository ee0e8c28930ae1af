"""Plot with two logarithmic axes as SVG, the same bytes for the same points: lines of costs against a size.

Text and lines have tones that are read on white and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 92, 52
INK = "#787878"
# Of grid lines, as a part of the ink.
FAINT = 0.3
# A line is told from another one by its colour, its dashes and its symbols.
STYLES = (
    ("#2f7fd6", "", "circle"),
    ("#2a9458", "", "square"),
    ("#c96a10", "7 4", "triangle"),
    ("#8a76c9", "2 4", "diamond"),
)
SYMBOL = 4.5
LEGEND_COLUMNS = 2

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LogPlot:
    """Line plot on two logarithmic axes, drawn as SVG without a plotting library.

    Attributes:
        title: what is shown; x, y: names of the axes with their units.
        lines: name and points of each line, at most as many as STYLES.
        x_text, y_text: text of a number at an axis.
    """

    title: str
    x: str
    y: str
    lines: Sequence[tuple[str, Sequence[Point]]]
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]

    def svg(self) -> str:
        """Return the picture; raise ValueError without points or for one that is not positive."""
        points = [point for _, line in self.lines for point in line]
        if (
            not points
            or len(self.lines) > len(STYLES)
            or not all(0 < v < math.inf for p in points for v in p)
        ):
            raise ValueError(f"1 to {len(STYLES)} lines of positive points are needed")
        xs = sorted({x for x, _ in points})
        decades = _decades([y for _, y in points])
        across = _Scale(xs[0], xs[-1], LEFT + 24, WIDTH - RIGHT - 24)
        up = _Scale(decades[0], decades[-1], HEIGHT - BOTTOM, TOP)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="{INK}">',
            f"<title>{escape(self.title)}</title>",
            _text(LEFT, 20, self.title, size=15),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self.x, anchor="middle"),
            f'<text x="16" y="{(TOP + HEIGHT - BOTTOM) / 2:g}" text-anchor="middle" '
            f'transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2:g})">{escape(self.y)}</text>',
        ]
        for value in decades:
            parts.append(_line(LEFT, up.at(value), WIDTH - RIGHT, up.at(value), FAINT))
            parts.append(_text(LEFT - 8, up.at(value) + 4.5, self.y_text(value), anchor="end"))
        for value in xs:
            parts.append(_line(across.at(value), HEIGHT - BOTTOM, across.at(value), HEIGHT - BOTTOM + 5))
            parts.append(_text(across.at(value), HEIGHT - BOTTOM + 20, self.x_text(value), anchor="middle"))
        parts.append(_line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM))
        for number, (name, line) in enumerate(self.lines):
            row, column = divmod(number, LEGEND_COLUMNS)
            left, top = LEFT + column * (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS, 44 + 20 * row
            parts += _drawn([(left, top), (left + 30, top)], number, [(left + 15, top)])
            parts.append(_text(left + 38, top + 4.5, name))
            at = [(across.at(x), up.at(y)) for x, y in line]
            parts += _drawn(at, number, at)
        return "\n".join([*parts, "</svg>\n"])


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis: least and greatest value, and the positions where these are drawn."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value on the axis; the middle if the axis has a single value."""
        span = math.log(self.high / self.low)
        part = math.log(value / self.low) / span if span else 0.5
        return round(self.start + part * (self.end - self.start), 1)


def _decades(values: Sequence[float]) -> list[float]:
    """Return the consecutive powers of ten whose range holds all values; at least two."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float = 1.0) -> str:
    ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {ends} stroke="{INK}" stroke-opacity="{opacity:g}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _drawn(path: Sequence[Point], number: int, symbols_at: Sequence[Point]) -> list[str]:
    """Return SVG elements: a line through the positions `path`, and symbols on some of them."""
    colour, dashes, symbol = STYLES[number]
    points = " ".join(f"{x:g},{y:g}" for x, y in path)
    line = (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dashes or "none"}"/>'
    )
    return [line, *(_symbol(symbol, x, y, colour) for x, y in symbols_at)]


def _symbol(symbol: str, x: float, y: float, colour: str) -> str:
    """Return the SVG element of a marker (circle, square, triangle, diamond) at a position."""
    if symbol == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="{SYMBOL}" fill="{colour}"/>'
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "triangle": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
        "diamond": ((0, -1.3), (1.2, 0), (0, 1.3), (-1.2, 0)),
    }[symbol]
    points = " ".join(
        f"{round(x + SYMBOL * right, 1):g},{round(y + SYMBOL * down, 1):g}" for right, down in corners
    )
    return f'<polygon points="{points}" fill="{colour}"/>'
