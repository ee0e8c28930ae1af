"""Error of a private average against the number of parties: local DP, GOPA and a trusted curator.

[Bellet 2021, section 4.1] states it in orders of magnitude: 1/sqrt(n) for local DP, 1/n for the other two.
Here each is planned at the same epsilon and delta, and its noise is drawn as often as asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from smpc_dp.capabilities.gopa.params import GopaParameters, check_parameters
from smpc_dp.encoding import RingVector
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.executors.shards import run_shards
from smpc_dp.secagg.noisy import DEFAULT_STEPS
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.bench.figures import Progress, Steps
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Method = Literal["local", "gopa", "curator"]
PARTIES = (10, 30, 100, 300, 1_000, 3_000, 10_000)
REPETITIONS = 2_000
MOST_REPETITIONS = 100_000


class Point(msgspec.Struct, frozen=True):
    """Standard deviation of the average's noise for one method with so many parties.

    `planned` is calculated, `measured` the root mean square over the repetitions. The curator averages the
    `honest` parties' values, the others those of all.
    """

    method: Method
    parties: int
    honest: int
    planned: float
    measured: float


class Tradeoff(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `gopa_tradeoff`, with its parameters; values are in [0, 1]."""

    epsilon: float
    delta: float
    corrupt: float
    repetitions: int
    seed: int
    points: tuple[Point, ...]

    def of(self, method: Method) -> list[Point]:
        """Return the points of one method, in order of the number of parties."""
        return [point for point in self.points if point.method == method]


def gopa_tradeoff(
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    parties: Sequence[int] = PARTIES,
    corrupt: float = 0.1,
    repetitions: int = REPETITIONS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Tradeoff:
    """Plan the three methods for parties with values in [0, 1], and draw their noise `repetitions` times.

    All have exact discrete Gaussian noise on a grid of 2^20 steps. GOPA's is its parties' independent noise,
    as their machines add it; its pairwise noise cancels to the last bit and is not drawn here. It is planned
    for parties of whom the fraction `corrupt` colludes and none is lost.

    Args:
        parties: 5 to 10,000 each.
        repetitions: 100 to 100,000; a measured error is off by a fraction 1/sqrt(2 repetitions), typically.
        seed: of the noise, which protects nothing here.

    Raises:
        ConfigError: a number is out of range, or nothing can be planned for it.
    """
    issues = [
        ConfigIssue("parties", f"must be 5 to 10,000, is {n}", ConfigCheck.RANGE)
        for n in parties
        if not 5 <= n <= 10_000
    ]
    if not 100 <= repetitions <= MOST_REPETITIONS:
        issues.append(
            ConfigIssue(
                "repetitions", f"must be 100 to {MOST_REPETITIONS}, is {repetitions}", ConfigCheck.RANGE
            )
        )
    if issues:
        raise ConfigError(issues)
    points: list[Point] = []
    count = Steps(progress, "numbers of users", len(parties))
    calls = [(n, epsilon, delta, corrupt, repetitions, seed) for n in parties]
    for of in run_shards(executor, _points, calls, "number of users"):
        points += of
        count()
    return Tradeoff(
        epsilon=epsilon,
        delta=delta,
        corrupt=corrupt,
        repetitions=repetitions,
        seed=seed,
        points=tuple(points),
    )


def _points(n: int, epsilon: float, delta: float, corrupt: float, repetitions: int, seed: int) -> list[Point]:
    """Return the noise of each of three methods for n parties: planned and measured deviation."""
    # Not at the top: scipy.
    from smpc_dp.privacy.mechanisms import DiscreteGaussian, Sensitivity
    from smpc_dp.privacy.sampling import NoiseSource

    gopa = _planned(n, epsilon, delta, corrupt)
    step, honest = gopa.encoding.step, gopa.session.honest
    width = gopa.encoding.highest - gopa.encoding.lowest
    alone = DiscreteGaussian.calibrate(
        epsilon, delta, Sensitivity.on_integers("substitution", l2=float(width))
    )
    randomness = SeededRandomnessForSimulation(seed, f"{n} users")
    source = NoiseSource.keyed(randomness.bytes(32))
    local, shares = (np.zeros(repetitions, dtype=np.uint64) for _ in range(2))
    for _ in range(n):
        local += alone.noise(source, repetitions).view(np.uint64)
        gopa.add_noise(shares, randomness)
    curator = alone.noise(source, repetitions).view(np.uint64)
    deviation = step * math.sqrt(alone.variance)
    return [
        Point("local", n, honest, deviation / math.sqrt(n), step * _deviation(local) / n),
        Point("gopa", n, honest, gopa.noise(n, 0).total / n, step * _deviation(shares) / n),
        Point("curator", n, honest, deviation / honest, step * _deviation(curator) / honest),
    ]


def _planned(parties: int, epsilon: float, delta: float, corrupt: float) -> GopaParameters:
    given = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 1 / DEFAULT_STEPS, "dropout": 0.0}
    parameters, issues = check_parameters(
        given | {"epsilon": epsilon, "delta": delta, "corrupt": corrupt}, parties
    )
    if parameters is None:
        raise ConfigError(issues)
    return parameters


def _deviation(noise: RingVector) -> float:
    return float(np.sqrt(np.mean(noise.view(np.int64).astype(np.float64) ** 2)))


def plot(result: Tradeoff, path: Path) -> None:
    """Write the plot: error against parties on log axes, measured points on the lines of theory.

    Errors as of `write_plot`.
    """
    write_plot(path, (7.2, 4.8), lambda axes: _draw(axes, result))


# Line and mark of each method, in colours that differ in lightness too; the curator's lie under GOPA's.
_STYLES: tuple[tuple[Method, str, str, float, str, float, float], ...] = (
    ("local", "local DP: each user's noise suffices alone", "#c2410c", 1.4, "s", 5.5, -0.5),
    ("curator", "trusted curator, over the honest users' values", "#9cc3e6", 7.0, "o", 12.0, -1.0),
    ("gopa", "GOPA: no curator, nobody sees a value", "#0b3d75", 1.4, "o", 5.0, -1.0),
)


def _draw(axes: Axes, result: Tradeoff) -> None:
    for method, label, colour, width, marker, size, slope in _STYLES:
        points = result.of(method)
        parties = np.array([point.parties for point in points])
        # Theory has the slope, the plan for the most parties the constant.
        largest = max(points, key=lambda point: point.parties)
        ends = np.array([parties.min() * 0.8, parties.max() * 1.25])
        theory = largest.planned * (ends / largest.parties) ** slope
        axes.plot(ends, theory, color=colour, linewidth=width, solid_capstyle="butt")
        axes.plot(
            parties,
            [point.measured for point in points],
            linestyle="none",
            marker=marker,
            markersize=size,
            color=colour,
            label=label,
        )
        power = "1/\u221an" if slope == -0.5 else "1/n"
        if method != "gopa":
            axes.annotate(
                f"theory:\n{power}",
                (ends[1], theory[1]),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                color="#404040",
                fontsize=9,
            )
    axes.set(xscale="log", yscale="log", xlabel="users n")
    axes.margins(x=0.09)
    axes.set_ylabel("standard error of the average, due to noise")
    finish_axes(
        axes,
        f"Private average of values in [0, 1] at \u03b5 = {result.epsilon:g}, \u03b4 = {result.delta:g}; "
        f"{result.corrupt:.0%} of the users collude",
        size=10.5,
        loc="lower left",
        title=f"measured, {result.repetitions:,} repetitions",
    )
