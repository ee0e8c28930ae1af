"""Kendall's tau of two ratings: two-party computation on few pairs, on all pairs, and local DP.

[Bellet 2021, Fig. 3.7] has 246,000 records of a public data set, which is not part of this project; here
records are drawn from a distribution on as many pairs of ratings, 36. Errors are those of (tau + 1) / 2,
which has its kernel in [0, 1].
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.kernels import Field, Kernel, kendall_tau
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.executors.shards import run_shards
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.bench.figures import Progress, Steps
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from smpc_dp.capabilities.reports.local import LocalPairwise

Floats = NDArray[np.float64]

PARTIES = 246_000
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
PARTNERS = (1, 2, 4)
REPETITIONS = 30
DELTA = 1e-8
RATINGS = 6
# Marginal chances of the ratings, worst first, and how fast a second rating departs from the first.
_MARGINAL = (0.03, 0.05, 0.08, 0.14, 0.28, 0.42)
_DECAY = 0.9
# The largest zeta_1 and zeta_2 of a kernel in [0, 1], over all distributions.
LARGEST_ZETAS = (0.125, 0.25)
# What the thesis says of its figure, in these names; the composition theorem is the advanced one there.
THESIS_ORDER = ("two-party", "local", "naive, advanced")


class Point(msgspec.Struct, frozen=True):
    """Root mean squared errors of one method at one epsilon: exact, bound for all data, and measured.

    `exact` is calculated for this distribution; `bound` holds for every distribution: the largest zetas, 1/8
    and 1/4, for local DP Theorem 3.3. `measured` is over the repetitions, None for what is too large to run.
    """

    method: str
    epsilon: float
    partners: int | None
    exact: float
    bound: float
    measured: float | None


class Kendall(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `kendall_errors`: its parameters, points, and the order of methods by epsilon.

    `ranks`: by epsilon the methods, least calculated error first; `thesis` the order that it reports.
    `advantage`: by epsilon, the error of local DP over that of the two-party protocol with the best P.
    """

    parties: int
    delta: float
    repetitions: int
    seed: int
    tau: float
    zeta_1: float
    zeta_2: float
    data: str
    seconds: float
    naive_pairs: int
    ranks: dict[str, list[str]]
    thesis: tuple[str, ...]
    advantage: dict[str, float]
    points: tuple[Point, ...]

    def of(self, method: str) -> list[Point]:
        """Return the points of one method, in order of epsilon."""
        return sorted((p for p in self.points if p.method == method), key=lambda p: p.epsilon)


def ratings_distribution() -> Floats:
    """Return the probabilities of the pairs of ratings, (36,): good ones and similar ones are likelier."""
    marginal = np.array(_MARGINAL)
    distance = np.abs(np.subtract.outer(np.arange(RATINGS), np.arange(RATINGS)))
    weights = np.sqrt(np.outer(marginal, marginal)) * np.exp(-_DECAY * distance)
    return np.asarray(weights / weights.sum()).ravel()


def kendall_errors(
    *,
    parties: int = PARTIES,
    epsilons: Sequence[float] = EPSILONS,
    delta: float = DELTA,
    repetitions: int = REPETITIONS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Kendall:
    """Run the protocols on fresh records `repetitions` times, and compute their theoretical errors.

    Local DP: every party's report, by the library's own response. Two-party: the ideal functionality on drawn
    matchings with exact discrete noise. All pairs are too many to run, and are calculated, at (epsilon,
    delta); all else has delta = 0.

    Args:
        parties: even, 10 to 10,000,000.
        repetitions: 2 to 10,000; a measured error is off by a fraction 1/sqrt(2 repetitions), typically.
        seed: of records, pairs, responses and noise, which protect nothing here.

    Raises:
        ConfigError: a number is out of range.
    """
    _check(parties, repetitions, epsilons)
    started = time.perf_counter()
    setting = _setting(tuple(epsilons))
    squares: dict[_Run, list[float]] = {}
    count = Steps(progress, "repetitions", repetitions)
    calls = [(tuple(epsilons), parties, seed, number) for number in range(repetitions)]
    for errors in run_shards(executor, _measure, calls, "repetition"):
        for key, square in errors.items():
            squares.setdefault(key, []).append(square)
        count()
    result = [*_run_points(setting, parties, squares), *_naive_points(setting, parties, delta, epsilons)]
    return Kendall(
        parties=parties,
        delta=delta,
        repetitions=repetitions,
        seed=seed,
        tau=setting.tau,
        zeta_1=setting.zetas[0],
        zeta_2=setting.zetas[1],
        data="synthetic: independent pairs of ratings 0..5",
        seconds=time.perf_counter() - started,
        naive_pairs=parties * (parties - 1) // 2,
        ranks={f"{epsilon:g}": list(_least(result, epsilon)) for epsilon in epsilons},
        thesis=THESIS_ORDER,
        advantage={
            f"{epsilon:g}": _least(result, epsilon)["local"] / _least(result, epsilon)["two-party"]
            for epsilon in epsilons
        },
        points=tuple(result),
    )


# Method, epsilon and partners.
_Run = tuple[str, float, int | None]


@dataclass(frozen=True)
class _Setting:
    """The kernel, the distribution of records, local DP at each epsilon, and the exact tau and zetas."""

    kernel: Kernel
    distribution: Floats
    local: Mapping[float, LocalPairwise]
    tau: float
    zetas: tuple[float, float]

    @classmethod
    def of(cls, epsilons: Sequence[float]) -> _Setting:
        # Not at the top: scipy.
        from smpc_dp.capabilities.reports.local import LocalPairwise
        from smpc_dp.privacy.local_pairwise import zetas

        field = Field(0, RATINGS - 1, exact=True)
        kernel = kendall_tau(field, field)
        distribution = ratings_distribution()
        local = {epsilon: LocalPairwise.plan(kernel, epsilon) for epsilon in epsilons}
        matrix = local[epsilons[0]].quantiser.matrix(kernel)
        zeta_1, zeta_2 = (value / kernel.width**2 for value in zetas(matrix, distribution))
        return cls(kernel, distribution, local, float(distribution @ matrix @ distribution), (zeta_1, zeta_2))


@functools.cache
def _setting(epsilons: tuple[float, ...]) -> _Setting:
    """Return the kernel, distribution and exact values for these epsilons, cached in a process."""
    return _Setting.of(epsilons)


def _check(parties: int, repetitions: int, epsilons: Sequence[float]) -> None:
    issues = []
    if not 10 <= parties <= 10_000_000 or parties % 2:
        issues.append(
            ConfigIssue("parties", f"must be even, 10 to 10,000,000, is {parties}", ConfigCheck.RANGE)
        )
    if not 2 <= repetitions <= 10_000:
        issues.append(ConfigIssue("repetitions", f"must be 2 to 10,000, is {repetitions}", ConfigCheck.RANGE))
    if not epsilons:
        issues.append(ConfigIssue("epsilon", "give at least one", ConfigCheck.RANGE))
    if issues:
        raise ConfigError(issues)


def _measure(epsilons: tuple[float, ...], parties: int, seed: int, repetition: int) -> dict[_Run, float]:
    """Run the protocols once; return squared errors of tau by method, epsilon and partners."""
    from smpc_dp.privacy.sampling import NoiseSource
    from smpc_dp_lab.bench.ideal_pairs import noisy_mean

    setting = _setting(epsilons)
    kernel = setting.kernel
    points = next(iter(setting.local.values())).quantiser.points()
    squares: dict[_Run, float] = {}
    rng = np.random.default_rng([seed, repetition])
    cumulative = np.cumsum(setting.distribution)
    chosen = np.minimum(np.searchsorted(cumulative, rng.random(parties), "right"), len(points) - 1)
    records = points[chosen]
    codes = kernel.codes(records)
    matchings = np.stack([rng.permutation(parties) for _ in range(max(PARTNERS))])
    for epsilon, local in setting.local.items():
        randomness = SeededRandomnessForSimulation(seed, f"{repetition} {epsilon}")
        answers = local.randomise_many(records, randomness)
        error = local.estimate(answers).value - setting.tau
        squares["local", epsilon, None] = error**2
        source = NoiseSource.keyed(randomness.bytes(32))
        for partners in PARTNERS:
            error = noisy_mean(kernel, codes, matchings[:partners], epsilon, source) - setting.tau
            squares["two-party", epsilon, partners] = error**2
    return squares


def _run_points(setting: _Setting, parties: int, squares: Mapping[_Run, Sequence[float]]) -> Iterator[Point]:
    """Yield the points of the methods that were run, with their theoretical errors."""
    from smpc_dp.privacy.local_pairwise import published_variance_bound
    from smpc_dp.privacy.pairwise_plan import plan_pairwise
    from smpc_dp_lab.bench.ideal_pairs import noisy_mean_variance

    kernel, distribution = setting.kernel, setting.distribution
    for (method, epsilon, partners), values in squares.items():
        measured = math.sqrt(float(np.mean(values))) / kernel.width
        if partners is None:
            exact = setting.local[epsilon].exact_error(distribution, parties) / kernel.width
            bound = math.sqrt(published_variance_bound(parties, len(distribution), epsilon))
        else:
            own = (zeta * kernel.width**2 for zeta in setting.zetas)
            variance = noisy_mean_variance(kernel, parties, epsilon, partners, *own)
            exact = math.sqrt(variance) / kernel.width
            for_all_distributions = plan_pairwise(parties, epsilon, *LARGEST_ZETAS, partners=partners)
            bound = math.sqrt(for_all_distributions.mean_squared_error)
        yield Point(method, epsilon, partners, exact, bound, measured)


def _naive_points(
    setting: _Setting, parties: int, delta: float, epsilons: Sequence[float]
) -> Iterator[Point]:
    """Yield the computed points of all pairs, which are too many to run."""
    from smpc_dp.privacy.naive_pairwise import CompositionTheorem, plan_naive

    for composition in get_args(CompositionTheorem):
        for epsilon in epsilons:
            exact, bound = (
                math.sqrt(
                    plan_naive(parties, epsilon, delta, *zetas, composition=composition).mean_squared_error
                )
                for zetas in (setting.zetas, LARGEST_ZETAS)
            )
            yield Point(f"naive, {composition}", epsilon, None, exact, bound, None)


def _least(points: Sequence[Point], epsilon: float) -> dict[str, float]:
    """Return the computed errors by method, the least first; the best P stands for the two-party protocol."""
    least: dict[str, float] = {}
    for point in points:
        if point.epsilon == epsilon:
            least[point.method] = min(point.exact, least.get(point.method, math.inf))
    return dict(sorted(least.items(), key=lambda item: item[1]))


def plot(result: Kendall, path: Path) -> None:
    """Write the plot: error against epsilon on log axes, measured points on calculated lines.

    Errors as of `write_plot`.
    """
    write_plot(path, (7.6, 5.2), lambda axes: _draw(axes, result))


# Method, partners, label, colour, line and mark.
_STYLES: tuple[tuple[str, int | None, str, str, str, str], ...] = (
    ("local", None, "local DP, 36 categories", "#c2410c", "-", "s"),
    ("naive, advanced", None, "all pairs, advanced composition (calculated)", "#6b7280", "--", ""),
    ("naive, optimal", None, "all pairs, optimal composition (calculated)", "#6b7280", "-", ""),
    ("two-party", 1, "two-party, P = 1", "#0b3d75", "-", "o"),
    ("two-party", 2, "two-party, P = 2", "#2f7fc1", "-", "^"),
    ("two-party", 4, "two-party, P = 4", "#7fb8e0", "-", "D"),
)


def _draw(axes: Axes, result: Kendall) -> None:
    for method, partners, label, colour, line, marker in _STYLES:
        points = [point for point in result.of(method) if point.partners == partners]
        epsilons = [point.epsilon for point in points]
        axes.plot(epsilons, [point.exact for point in points], line, color=colour, linewidth=1.4)
        axes.plot([], [], line, color=colour, linewidth=1.4, marker=marker, markersize=5.5, label=label)
        if marker:
            measured = [point.measured or math.nan for point in points]
            axes.plot(epsilons, measured, linestyle="none", marker=marker, markersize=5.5, color=colour)
        if method == "local":
            bounds = [point.bound for point in points]
            axes.plot(
                epsilons, bounds, ":", color=colour, linewidth=1.4, label="local DP, Theorem 3.3's bound"
            )
    axes.set(xscale="log", yscale="log", xlabel="\u03b5")
    epsilons = sorted({point.epsilon for point in result.points})
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_ylabel("root mean squared error of (\u03c4 + 1) / 2")
    finish_axes(
        axes,
        f"Kendall's \u03c4 of {result.parties:,} synthetic pairs of ratings, \u03c4 = {result.tau:.2f}; "
        f"\u03b4 = 0, for all pairs {result.delta:g}",
        size=10.5,
        fontsize=9,
        title=f"lines: calculated; marks: {result.repetitions} repetitions",
        title_fontsize=9,
    )
