"""The AUC under local DP against the number of bins: the generic protocol and hierarchical histograms.

[Bellet 2021, Fig. 3.6] scores 693 positive and 95,985 negative records of a public data set with a trained
model, which separates them well. Here scores are drawn, as many and well separated; labels are public.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.kernels import Field, auc
from smpc_dp.capabilities.pairs.statistics.exact import auc as exact_auc
from smpc_dp.executors.shards import run_shards
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Method = Literal["generic", "hierarchical"]

POSITIVES, NEGATIVES = 693, 95_985
EPSILONS = (1.0, 2.0, 4.0)
BINS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
LEVELS = (1, 2, 4, 6, 8, 10, 12, 14, 16)
REPETITIONS = 20
# Distance of the labels' mean log-odds, in standard deviations.
SEPARATION = 4.0
GRID = 1e-6


class Point(msgspec.Struct, frozen=True):
    """Errors of one protocol with so many bins, over the repetitions, against the AUC of the scores.

    `mean`, `deviation`: of the absolute errors. `exact`: the root mean squared error as calculated, of
    responses and rounding; for the hierarchical protocol without its threshold, which lowers it, None from
    more than 2^16 bins. `bound`: the root of Theorem 3.5's, for the hierarchical protocol
    and log2 bins <= sqrt(n).
    """

    method: Method
    epsilon: float
    bins: int
    mean: float
    deviation: float
    rms: float
    exact: float | None
    bound: float | None


class AucErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `auc_errors`: its parameters, the AUC without noise, and the points."""

    positives: int
    negatives: int
    repetitions: int
    seed: int
    auc: float
    data: str
    seconds: float
    points: tuple[Point, ...]

    def of(self, method: Method, epsilon: float) -> list[Point]:
        """Return the points of one protocol at one epsilon, by number of bins."""
        return sorted(
            (p for p in self.points if (p.method, p.epsilon) == (method, epsilon)), key=lambda p: p.bins
        )


def synthetic_scores(
    positives: int, negatives: int, separation: float, seed: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Return (scores in [0, 1], labels) of a logistic model: log-odds of normals `separation` apart."""
    labels = np.r_[np.ones(positives, dtype=np.int64), np.zeros(negatives, dtype=np.int64)]
    odds = np.random.default_rng(seed).normal(separation * (labels - 0.5))
    return 1 / (1 + np.exp(-odds)), labels


def auc_errors(
    *,
    positives: int = POSITIVES,
    negatives: int = NEGATIVES,
    epsilons: Sequence[float] = EPSILONS,
    bins: Sequence[int] = BINS,
    levels: Sequence[int] = LEVELS,
    repetitions: int = REPETITIONS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> AucErrors:
    """Run both protocols `repetitions` times on the same scores, with every party's report.

    Args:
        positives, negatives: 2 to 10,000,000 each.
        bins: of the generic protocol, equal parts of [0, 1]; levels: log2 of those of the hierarchical one.
        repetitions: 2 to 10,000.
        seed: of scores, coins and responses, which protect nothing here.

    Raises:
        ConfigError: a number is out of range.
    """
    refuse(
        within("positives", positives, 2, 10_000_000),
        within("negatives", negatives, 2, 10_000_000),
        within("repetitions", repetitions, 2, 10_000),
    )
    started = time.perf_counter()
    scores = _scores(positives, negatives, seed)
    calls = [
        (method, epsilon, of, positives, negatives, repetitions, seed)
        for epsilon in epsilons
        for method, all_of in (("generic", bins), ("hierarchical", levels))
        for of in all_of
    ]
    count = Steps(progress, "settings", len(calls))
    result: list[Point] = []
    for point in run_shards(executor, _measure, calls, "setting"):
        result.append(point)
        count()
    return AucErrors(
        positives=positives,
        negatives=negatives,
        repetitions=repetitions,
        seed=seed,
        auc=scores.auc,
        data=f"synthetic: log-odds of two normal laws, {SEPARATION:g} standard deviations apart",
        seconds=time.perf_counter() - started,
        points=tuple(result),
    )


class _Scores(NamedTuple):
    """Scores with their labels, their codes on the grid, and the AUC without noise."""

    field: Field
    scores: Floats
    labels: NDArray[np.int64]
    codes: NDArray[np.int64]
    auc: float


@functools.cache
def _scores(positives: int, negatives: int, seed: int) -> _Scores:
    """Return the synthetic scores with labels and AUC, cached in each process."""
    field = Field(0, 1, GRID, name="score")
    scores, labels = synthetic_scores(positives, negatives, SEPARATION, seed)
    codes = field.codes(scores)
    return _Scores(field, scores, labels, codes, _auc(codes, labels))


def _measure(
    method: Method, epsilon: float, of: int, positives: int, negatives: int, repetitions: int, seed: int
) -> Point:
    """Run a protocol with `of` bins, or with as many levels of them."""
    # Not at the top: scipy.
    from smpc_dp.capabilities.reports.local import LocalPairwise
    from smpc_dp.capabilities.reports.local_auc import LocalAuc

    field, scores, labels, codes, truth = _scores(positives, negatives, seed)
    randomness = SeededRandomnessForSimulation(seed, f"{method} {of} {epsilon}")
    if method == "generic":
        plan = LocalPairwise.plan(auc(field), epsilon, bins=of)
        values = [
            plan.estimate(plan.randomise_many(scores, randomness), labels=labels).value
            for _ in range(repetitions)
        ]
        indices = codes * of // (field.steps + 1)
        response = plan.exact_response_error(*_counts(indices, labels, of))
        exact = math.hypot(response, _auc(indices, labels) - truth)
        return _point("generic", epsilon, of, np.array(values) - truth, exact, None)
    values = []
    for _ in range(repetitions):
        tree = LocalAuc.plan(field, epsilon, levels=of, coins=randomness.bytes(32))
        answers = tree.randomise_many(scores, randomness=randomness)
        values.append(tree.estimate(answers, labels).value)
    return _hierarchical(epsilon, of, np.array(values) - truth, truth, codes, labels, field)


def _hierarchical(
    epsilon: float,
    alpha: int,
    errors: Floats,
    truth: float,
    codes: NDArray[np.int64],
    labels: NDArray[np.int64],
    field: Field,
) -> Point:
    from smpc_dp.privacy.local_auc import exact_variance, published_error_bound

    indices = (codes << alpha) // (field.steps + 1)
    up, down = _counts(indices, labels, 1 << alpha)
    exact = None
    if alpha <= max(LEVELS):
        variance = exact_variance(up, down, epsilon, split="users", ties=0.5)
        exact = math.hypot(math.sqrt(variance), _auc(indices, labels) - truth)
    bound = None
    if alpha**2 <= len(codes):  # the theorem's condition
        bound = math.sqrt(published_error_bound(int(up.sum()), int(down.sum()), alpha, epsilon, "users"))
    return _point("hierarchical", epsilon, 1 << alpha, errors, exact, bound)


def _point(
    method: Method, epsilon: float, bins: int, errors: Floats, exact: float | None, bound: float | None
) -> Point:
    absolute = np.abs(errors)
    return Point(
        method=method,
        epsilon=epsilon,
        bins=bins,
        mean=float(absolute.mean()),
        deviation=float(absolute.std(ddof=1)),
        rms=math.sqrt(float(np.mean(errors**2))),
        exact=exact,
        bound=bound,
    )


def _counts(indices: NDArray[np.int64], labels: NDArray[np.int64], size: int) -> tuple[Floats, Floats]:
    up, down = (np.bincount(indices[labels == label], minlength=size).astype(np.float64) for label in (1, 0))
    return up, down


def _auc(indices: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    return exact_auc(indices[labels == 1], indices[labels == 0])


def plot(result: AucErrors, path: Path) -> None:
    """Write the plot: errors against bins on log axes, a panel for each protocol.

    Errors as of `write_plot`.
    """
    write_plot(
        path,
        (10.4, 4.8),
        lambda axes: _draw(axes, result, "generic", "(a) generic protocol, Algorithm 3.3"),
        lambda axes: _draw(axes, result, "hierarchical", "(b) hierarchical histograms, one bit a user"),
        title=f"Local DP: AUC = {result.auc:.4f} of {result.positives:,} positive and {result.negatives:,} "
        "negative synthetic scores",
        sharey=True,
    )


_COLOURS = ("#c2410c", "#6d28d9", "#0b3d75", "#15803d", "#6b7280")


def _draw(axes: Axes, result: AucErrors, method: Method, title: str) -> None:
    epsilons = sorted({point.epsilon for point in result.points})
    for index, epsilon in enumerate(epsilons):
        colour = _COLOURS[index % len(_COLOURS)]
        points = result.of(method, epsilon)
        # Side by side, where bars would hide each other.
        bins = [
            point.bins * 2 ** (0.012 * len(points) * (index - (len(epsilons) - 1) / 2)) for point in points
        ]
        known = [(point.bins, point.exact) for point in points if point.exact is not None]
        axes.plot(
            [index for index, _ in known],
            [error for _, error in known],
            "-" if method == "generic" else ":",
            color=colour,
            linewidth=1.2,
        )
        means = np.array([point.mean for point in points])
        # A bar to below 0 has no end on a log axis.
        spread = np.array([point.deviation for point in points])
        low = np.minimum(spread, 0.9 * means)
        axes.errorbar(
            bins,
            means,
            yerr=(low, spread),
            fmt="o",
            markersize=5,
            capsize=2.5,
            elinewidth=1,
            color=colour,
            label=f"\u03b5 = {epsilon:g}",
        )
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="bins", ylabel="error of the AUC" if method == "generic" else "")
    # Errors of 1 and more say nothing about an AUC.
    axes.set_ylim(1e-4, 3.0)
    lines = "lines: calculated root mean square" + ("" if method == "generic" else ", no threshold")
    finish_axes(
        axes,
        title,
        fontsize=9,
        loc="upper left" if method == "generic" else "lower right",
        title=f"marks: mean absolute error \u00b1 s.d., {result.repetitions} runs\n{lines}",
        title_fontsize=8.5,
    )
