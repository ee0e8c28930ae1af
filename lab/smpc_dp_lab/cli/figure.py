"""Common code of the commands of `smpc-dp reproduce`: options, plot, and JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer

from smpc_dp.cli.output import print_json

T = TypeVar("T", bound=msgspec.Struct)

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plot_path(name: str, plot_file: Path | None, as_json: bool) -> Path | None:
    """Return the path of the plot, None for no plot; raise ConfigError or LocalError if it is invalid."""
    # Not at the top: what a command needs is loaded when it runs.
    from smpc_dp_lab.bench.plots import check_plot

    path = plot_file or (None if as_json else Path(f"{name}.png"))
    if path is not None:
        check_plot(path)
    return path


def hand_over(result: T, path: Path | None, plot: Callable[[T, Path], None], as_json: bool) -> bool:
    """Write the plot, and print JSON if that is requested; return whether it was."""
    if path is not None:
        plot(result, path)
    if as_json:
        print_json(msgspec.to_builtins(result) | {"plot": None if path is None else str(path)})
    return as_json
