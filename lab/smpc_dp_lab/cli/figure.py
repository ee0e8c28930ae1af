"""Common code of the commands of `smpc-dp reproduce`: options, plot, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import typer
from rich.table import Table

from smpc_dp.console.output import console, print_json
from smpc_dp.console.progress import Bar

T = TypeVar("T", bound=msgspec.Struct)
# Of a table: headings, with a field of the points or a function of a point.
Columns = dict[str, str | Callable[[Any], object]]

Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="The plot: .png, .svg or .pdf. Left out: NAME.png, with --json none.",
        show_default=False,
    ),
]
Epsilons = Annotated[
    list[float] | None,
    typer.Option("--epsilon", help="Privacy parameter; may be repeated.", show_default=False),
]
Seed = Annotated[int, typer.Option(help="Of all draws.")]
# In the repository that this file is in, wherever the command runs.
WISCONSIN = Path(__file__).resolve().parents[3] / "examples/data/breast_cancer_wisconsin_original.csv"
Wisconsin = Annotated[
    Path,
    typer.Option("--data", help="The file of the Wisconsin (Original) data.", show_default="of examples/"),
]
Quick = Annotated[bool, typer.Option("--quick", help="A few settings and runs: seconds.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plot_path(name: str, plot_file: Path | None, as_json: bool) -> Path | None:
    """Return the path of the plot, None for no plot; raise ConfigError or LocalError if it is invalid."""
    # Not at the top: what a command needs is loaded when it runs.
    from smpc_dp_lab.bench.plots import check_plot

    path = plot_file or (None if as_json else Path(f"{name}.png"))
    if path is not None:
        check_plot(path)
    return path


class Points(NamedTuple):
    """A table of points, with what is shown of each."""

    points: Iterable[object]
    columns: Columns
    title: str | None = None


def reproduce(
    name: str,
    measure: Callable[[Callable[[str, int, int], None]], T],
    plot: Callable[[T, Path], None],
    plot_file: Path | None,
    as_json: bool,
    tables: Callable[[T], Iterable[Points]],
    lines: Callable[[T], Iterable[str]],
) -> None:
    """Measure with a progress display and write the plot; print JSON, or tables and the lines below them.

    Raises ConfigError or LocalError for a plot that cannot be written, before it measures.
    """
    result, path = measured(name, measure, plot, plot_file, as_json)
    if as_json:
        print_json(msgspec.to_builtins(result) | {"plot": None if path is None else str(path)})
        return
    if path is not None:
        say(f"plot: {path}")
    for table in tables(result):
        show_points(*table)
    say(*lines(result))


def measured(
    name: str,
    measure: Callable[[Callable[[str, int, int], None]], T],
    plot: Callable[[T, Path], None],
    plot_file: Path | None,
    as_json: bool,
) -> tuple[T, Path | None]:
    """Measure and write the plot; return the result and the plot's file. Arguments as of `reproduce`."""
    path = plot_path(name, plot_file, as_json)
    with Bar(name, quiet=as_json) as bar:
        result = measure(bar.show)
    if path is not None:
        plot(result, path)
    return result, path


def show_points(points: Iterable[object], columns: Columns, title: str | None = None) -> None:
    """Print a table of points."""
    table = Table(*columns, title=title)
    for point in points:
        values = (getattr(point, of) if isinstance(of, str) else of(point) for of in columns.values())
        table.add_row(*map(_cell, values))
    console().print(table)


def say(*lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        console().print(line, markup=False)


def of_record(delta: str) -> str:
    """Return the line that says what the epsilons of a figure of records are for."""
    return f"epsilon: one record substituted, delta = {delta}; numbers of records are public"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
