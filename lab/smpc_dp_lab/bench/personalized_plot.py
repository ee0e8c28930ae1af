"""The plot of `personalized_synthetic`: accuracy against epsilon, and by the records of a party."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smpc_dp_lab.bench.personalized import PersonalizedSynthetic
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, log_ticks, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of the methods without noise.
STYLES: dict[str, Any] = {"local": ":", "pooled": "-.", "gossip ADMM": (0, (4, 1, 1, 1, 1, 1)), "CD": "--"}


def plot(result: PersonalizedSynthetic, path: Path) -> None:
    """Write accuracy against epsilon, with the lines without privacy, and by records; rows of norm 1."""
    unit = [point for point in result.points if point.rows == "unit"]
    dimensions = sorted({point.dimension for point in unit})

    def by_epsilon(method: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for index, dimension in enumerate(dimensions):
                of = [one for one in unit if one.dimension == dimension and one.least is None]
                private = sorted((one.epsilon or 0, one.accuracy) for one in of if one.method == method)
                colour = f"C{index}"
                axes.plot(*zip(*private, strict=True), "o-", color=colour, label=f"p = {dimension}")
                for name, style in STYLES.items():
                    for one in of:
                        if one.method == name:
                            # Lines of one style are of one method; ADMM is measured at the least p alone.
                            label = name if index == 0 else None
                            axes.axhline(one.accuracy, color=colour, linestyle=style, label=label)
            axes.set(xlabel="epsilon of one record", ylabel="test accuracy")
            log_ticks(axes, (one.epsilon for one in unit if one.epsilon))
            finish_axes(axes, method, fontsize=7, **BESIDE)

        return draw

    def by_size(axes: Axes) -> None:
        binned = [one for one in unit if one.least is not None and one.method != "local DP"]
        for method, epsilon in dict.fromkeys((one.method, one.epsilon) for one in binned):
            of = [one for one in binned if (one.method, one.epsilon) == (method, epsilon)]
            middle = [((one.least or 0) + (one.most or 0)) / 2 for one in of]
            label = method if epsilon is None else f"{method}, epsilon = {epsilon:g}"
            axes.plot(middle, [one.accuracy for one in of], "o-", label=label)
        axes.set(xlabel="records of a party", ylabel="test accuracy")
        heading = f"p = {max(dimensions)}, by records"
        finish_axes(axes, heading, fontsize=7, **BESIDE)

    panels = (by_epsilon("private CD"), by_size, by_epsilon("local DP"))
    write_plot(path, (16.0, 4.5), *panels, title="Personalised models, rows of L2 norm at most 1")
