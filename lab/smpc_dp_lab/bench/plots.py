"""Plots of measurements: their files and their style."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raise LocalError early if `write_plot` could not write `path`.

    Raises:
        ConfigError: its ending is none of .png, .svg and .pdf, or its folder is not there.
        LocalError: matplotlib is not installed.
    """
    if path.suffix not in FORMATS:
        raise ConfigError.at(
            "plot", f"must end in {', '.join(FORMATS)}, is {path.name!r}", ConfigCheck.CHOICE
        )
    if not path.parent.is_dir():
        raise ConfigError.at("plot", f"there is no folder {path.parent}", ConfigCheck.MISSING)
    if find_spec("matplotlib") is None:
        raise LocalError("plots need matplotlib: pip install matplotlib, or --json for the numbers")


def write_plot(
    path: Path,
    inches: tuple[float, float],
    *draw: Callable[[Axes], None],
    title: str = "",
    sharey: bool = False,
    across: int = 100,
) -> None:
    """Write a plot with one pair of axes for each of `draw`, at most `across` side by side.

    `inches`: width, and height of a row.

    Raises:
        ConfigError, LocalError: as of `check_plot`.
        OSError: the file cannot be written.
    """
    check_plot(path)
    # Not pyplot: it would look for a display and keep the figure.
    from matplotlib.figure import Figure

    columns = min(across, len(draw))
    rows = -(-len(draw) // columns)
    figure = Figure(figsize=(inches[0], inches[1] * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=sharey, squeeze=False).ravel()
    for axes, one in zip(panels, draw, strict=False):
        one(axes)
    for axes in panels[len(draw) :]:
        axes.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=10.5)
    # What reaches beyond the axes, such as a label, is never cut.
    figure.savefig(path, dpi=160, bbox_inches="tight")


def log_ticks(axes: Axes, values: Iterable[float]) -> None:
    """Make the horizontal axis logarithmic, with its ticks at these values."""
    ticks = sorted(set(values))
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    axes.set_xticks([], minor=True)


# Of a legend: to the right of its axes, where no line is.
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


def finish_axes(axes: Axes, heading: str, size: float = 10, **legend: Any) -> None:
    """Add heading and legend, a grid below, and no frame above and to the right."""
    axes.set_title(heading, fontsize=size, loc="left")
    axes.grid(True, which="major", color="#e0e0e0", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        # Long enough to tell dashes apart.
        axes.legend(frameon=False, alignment="left", handlelength=3.2, **legend)
