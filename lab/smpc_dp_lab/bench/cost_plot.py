"""The plot of `cost_of_privacy`: Figs 2 to 10 of the paper, in panels by data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp_lab.bench.cost_of_privacy import CostOfPrivacy, Point
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, log_ticks, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes"], None]
TIMED = 100
# Of the paper, by data: psi against ticks, and whose clock ticks.
FIGURES = {"lending": ("Fig. 2", "Fig. 3"), "houses": ("Fig. 8", "Fig. 9")}
STYLES = (("gaussian", "o-"), ("laplace", "s:"))


def _by_tick(points: list[Point]) -> Panel:
    """Return a panel of median and quartiles of psi against the tick, for the most records."""

    def draw(axes: Axes) -> None:
        most = max(p.owners * p.size for p in points)
        some = [p for p in points if p.mechanism == "gaussian" and p.owners * p.size == most]
        for index, point in enumerate(some[:: max(1, len(some) // 3)]):
            ticks, low, middle, high = np.array(point.trace).T
            axes.plot(ticks, middle, color=f"C{index}", label=f"epsilon = {point.epsilon:g}")
            axes.fill_between(ticks, low, high, color=f"C{index}", alpha=0.25, linewidth=0)
        axes.set(yscale="log", xlabel="tick", ylabel="psi")
        heading = f"{points[0].data}, median and quartiles [{FIGURES[points[0].data][0]}]"
        finish_axes(axes, heading, fontsize=7, **BESIDE)

    return draw


def _timing(points: list[Point], seed: int) -> Panel:
    """Return a panel of which owner's clock ticks, in the first ticks of a run."""

    def draw(axes: Axes) -> None:
        owners = max(p.owners for p in points)
        axes.plot(range(1, TIMED + 1), 1 + PublicDraws(seed).below(owners, TIMED), ".")
        axes.set(xlabel="tick", ylabel="owner")
        finish_axes(axes, f"{points[0].data}, whose clock ticks [{FIGURES[points[0].data][1]}]")

    return draw


def _against(points: list[Point], of: str, lines: str, title: str, *, first_alone: bool = False) -> Panel:
    """Return a panel of psi against field `of` of the points, a line for each value of field `lines`.

    `first_alone`: with a line of the first owner's own model without noise.
    """

    def draw(axes: Axes) -> None:
        some = [p for p in points if p.mechanism != "none"]
        for index, value in enumerate(sorted({getattr(p, lines) for p in some})):
            for mechanism, style in STYLES:
                few = [p for p in some if getattr(p, lines) == value and p.mechanism == mechanism]
                few.sort(key=lambda p: float(getattr(p, of)))
                positions, middle = [getattr(p, of) for p in few], np.array([p.median for p in few])
                errors = [middle - [p.low for p in few], np.array([p.high for p in few]) - middle]
                label = f"{lines} {value:g}, {mechanism}"
                axes.errorbar(positions, middle, errors, fmt=style, color=f"C{index}", label=label)
                if mechanism == "gaussian":
                    axes.plot(positions, [p.forecast for p in few], "--", color=f"C{index}", linewidth=0.8)
        if first_alone:
            alone = sorted({(getattr(p, of), p.alone[0]) for p in some})
            axes.plot(*zip(*alone, strict=True), "k-.", label="first owner alone, no noise")
        axes.set(yscale="log", xlabel=of, ylabel="psi")
        log_ticks(axes, (getattr(p, of) for p in some))
        finish_axes(axes, title, fontsize=7, **BESIDE)

    return draw


def _alone(points: list[Point], sizes: tuple[int, ...]) -> Panel:
    """Return a panel of psi of each owner's own model without noise, by size, and of common models."""

    def draw(axes: Axes) -> None:
        axes.plot(sizes, points[0].alone, ".", color="black", label="an owner's own model, no noise")
        for index, point in enumerate(p for p in points if p.mechanism == "gaussian"):
            label = f"together, epsilon = {point.epsilon:g}"
            axes.axhline(point.median, color=f"C{index}", linestyle="--", label=label)
        axes.set(yscale="log", xlabel="n_i", ylabel="psi")
        finish_axes(axes, f"{points[0].data}, alone and together [Fig. 7]", fontsize=7, **BESIDE)

    return draw


def plot(result: CostOfPrivacy, path: Path) -> None:
    """Write psi against ticks, epsilon, sizes and owners; dashed: the forecast (11)."""
    panels: list[Panel] = []
    for name in dict.fromkeys(point.data for point in result.points):
        points = [point for point in result.points if point.data == name]
        panels += [_by_tick(points), _timing(points, result.seed)]
        if name == "houses":
            panels.append(_against(points, "epsilon", "owners", "dashed: forecast (11) [Fig. 10]"))
            panels.append(_alone(points, result.hospitals))
            continue
        shared = {p.size for p in points if p.owners != 3}
        epsilons = {min(p.epsilon for p in points), 1.0, max(p.epsilon for p in points)}
        alike = [p for p in points if p.size in shared and p.epsilon in epsilons]
        three = [p for p in points if p.owners == 3]
        by_size = [p for p in three if p.size not in shared]
        panels += [
            _against(by_size, "epsilon", "size", "3 owners, dashed: forecast (11) [Figs 4, 5]"),
            _against([p for p in three if p.epsilon in epsilons], "size", "epsilon", "3 owners [Figs 4, 5]"),
        ]
        if alike:
            panels.append(_against(alike, "owners", "epsilon", "600 records each [Fig. 6]", first_alone=True))
    write_plot(path, (6.0 * min(3, len(panels)), 4.2), *panels, title="Cost of privacy", across=3)
