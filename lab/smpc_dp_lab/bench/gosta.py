"""GoSta beside U2-gossip: error of a decentralised AUC against iterations [Bellet 2021, Fig. 3.4].

The paper's data set is not part of this project; here two Gaussian classes of its size stand in for it.
Scores are by the difference of the class means, as in the paper.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.kernels import auc_private_labels
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench.figures import Progress, Steps
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from smpc_dp.capabilities.learn.gosta import Estimates
    from smpc_dp.capabilities.learn.topology import Topology

Floats = NDArray[np.float64]

PARTIES, ITERATIONS, REPETITIONS, TIMES = 1_260, 60_000, 50, 60
FEATURES, POSITIVE, SHIFT = 23, 0.25, 0.15
# Of a Watts-Strogatz graph: neighbours on the ring, part of the edges that is moved.
NEIGHBOURS, REWIRED = 4, 0.3
GRAPHS = ("complete", "Watts-Strogatz", "odd grid")
METHODS = ("GoSta", "U2-gossip")
# Copies of the network that run at once; more only take memory.
_COPIES = 10


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Relative errors of one gossip method on one graph, by iteration: mean, spread, bias and bound.

    Attributes:
        iterations: t, ascending; error, spread and bound belong to these.
        error: root mean square over the parties of z_u / U - 1, mean over the repetitions.
        spread: standard deviation over the parties of |z_u / U - 1|, mean over the repetitions.
        bias: the same as `error` for the mean of the repetitions, above the expectation's by chance alone.
        bound: Theorem 3.1 on the expectation, in the same unit; None for U2-gossip.
    """

    graph: str
    method: str
    edges: int
    spectral_gap: float
    iterations: tuple[int, ...]
    error: tuple[float, ...]
    spread: tuple[float, ...]
    bias: tuple[float, ...]
    bound: tuple[float, ...] | None


class GostaErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `gosta_errors`: its parameters, the curves, and whether the bound holds.

    `bound_holds`: on every graph, at all times, the bound is above the error of the runs, not only above that
    of their expectation.
    """

    parties: int
    iterations: int
    repetitions: int
    seed: int
    auc: float
    data: str
    seconds: float
    bound_holds: bool
    curves: tuple[Curve, ...]


def graphs_of(parties: int, seed: int) -> list[Topology]:
    """Return the three graphs, the grid as square as the number of parties allows and made odd."""
    from smpc_dp.capabilities.learn import topology

    rows = next(side for side in range(math.isqrt(parties), 0, -1) if parties % side == 0)
    return [
        topology.complete(parties),
        topology.watts_strogatz(parties, NEIGHBOURS, REWIRED, seed),
        topology.grid(rows, parties // rows, odd=True),
    ]


def scored_records(parties: int, seed: int) -> Floats:
    """Return (score, label) of two Gaussian classes in a random order, shape (n, 2)."""
    rng = np.random.default_rng(seed)
    labels = (rng.permutation(parties) < POSITIVE * parties) * 1.0
    features = rng.normal(size=(parties, FEATURES)) + SHIFT * labels[:, None]
    direction = features[labels == 1].mean(axis=0) - features[labels == 0].mean(axis=0)
    return np.column_stack([features @ direction, labels])


def gosta_errors(
    *,
    parties: int = PARTIES,
    iterations: int = ITERATIONS,
    repetitions: int = REPETITIONS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> GostaErrors:
    """Run both methods on three graphs `repetitions` times: same records, other draws.

    Args:
        parties: 12 to 5,000, no prime number (there is a grid). iterations: 60 to 10,000,000.
        repetitions: 1 to 1,000.
        seed: of records, graph and draws.

    Raises:
        ConfigError: a number is out of range.
    """
    from smpc_dp.capabilities.learn.gossip_bounds import gosta_bound

    check_sizes(parties, iterations, repetitions)
    started = time.perf_counter()
    records = scored_records(parties, seed)
    kernel = auc_private_labels().function
    matrix = kernel(records[:, None], records[None])
    target = float(matrix.mean())
    positive = float(records[:, 1].sum())
    curves = []
    graphs = graphs_of(parties, seed)
    starts = range(0, repetitions, _COPIES)
    calls = [
        (parties, seed, index, method, iterations, range(start, min(repetitions, start + _COPIES)))
        for index in range(len(graphs))
        for method in METHODS
        for start in starts
    ]
    count, shards = Steps(progress, "runs", len(calls)), run_shards(executor, _run, calls, "run")
    for graph in graphs:
        for method in METHODS:
            errors: list[Floats] = []
            spreads: list[Floats] = []
            summed = np.zeros((TIMES + 1, parties))
            for result in itertools.islice(shards, len(starts)):
                away = result.values.reshape(len(result.ticks), -1, parties) / target - 1
                errors.append(np.sqrt((away**2).mean(axis=2)))
                spreads.append(np.abs(away).std(axis=2))
                summed[: len(away)] += away.sum(axis=1)
                count()
            bound = None
            if method == "GoSta":
                unit = math.sqrt(parties) * target
                bound = tuple((gosta_bound(graph, matrix, result.ticks) / unit).tolist())
            curves.append(
                Curve(
                    graph=graph.name,
                    method=method,
                    edges=len(graph.edges),
                    spectral_gap=graph.spectral_gap,
                    iterations=tuple(result.ticks.tolist()),
                    error=tuple(np.concatenate(errors, axis=1).mean(axis=1).tolist()),
                    spread=tuple(np.concatenate(spreads, axis=1).mean(axis=1).tolist()),
                    bias=tuple(
                        np.sqrt(((summed[: len(result.ticks)] / repetitions) ** 2).mean(axis=1)).tolist()
                    ),
                    bound=bound,
                )
            )
    return GostaErrors(
        parties=parties,
        iterations=iterations,
        repetitions=repetitions,
        seed=seed,
        auc=target * parties**2 / (2 * positive * (parties - positive)),
        data=f"synthetic: two Gaussian classes in {FEATURES} dimensions, {POSITIVE:.0%} positive",
        seconds=time.perf_counter() - started,
        bound_holds=all(
            error <= bound
            for curve in curves
            if curve.bound is not None
            for error, bound in zip(curve.error, curve.bound, strict=True)
        ),
        curves=tuple(curves),
    )


def _run(parties: int, seed: int, graph: int, method: str, iterations: int, copies: range) -> Estimates:
    """Run several copies of a method at once on one of the graphs; return the parties' estimates."""
    from smpc_dp.capabilities.learn.averager import PlainExchange
    from smpc_dp.capabilities.learn.gosta import gosta, u2_gossip
    from smpc_dp.capabilities.learn.schedule import EdgeClock
    from smpc_dp_lab.bench.many_clocks import ManyClocks

    learner = dict(zip(METHODS, (gosta, u2_gossip), strict=True))[method]
    clock = ManyClocks([EdgeClock(graphs_of(parties, seed)[graph], seed, copy) for copy in copies])
    rows = np.tile(scored_records(parties, seed), (len(copies), 1))
    where, kernel = PlainExchange(parties * len(copies)), auc_private_labels().function
    return asyncio.run(learner(where, rows, kernel, clock, iterations, every=iterations // TIMES))


def check_sizes(parties: int, iterations: int, repetitions: int) -> None:
    """Raise ConfigError unless parties (no prime), iterations and repetitions are in range."""
    issues = []
    if not 12 <= parties <= 5_000 or not any(
        parties % side == 0 for side in range(2, math.isqrt(parties) + 1)
    ):
        issues.append(
            ConfigIssue(
                "parties", f"must be 12 to 5,000 and no prime number, is {parties}", ConfigCheck.RANGE
            )
        )
    if not TIMES <= iterations <= 10_000_000:
        issues.append(
            ConfigIssue("iterations", f"must be {TIMES} to 10,000,000, is {iterations}", ConfigCheck.RANGE)
        )
    if not 1 <= repetitions <= 1_000:
        issues.append(ConfigIssue("repetitions", f"must be 1 to 1,000, is {repetitions}", ConfigCheck.RANGE))
    if issues:
        raise ConfigError(issues)


def plot(result: GostaErrors, path: Path) -> None:
    """Write the plot: relative error against iterations with bands for the spread, and beside it the bounds.

    Errors as of `write_plot`.
    """
    write_plot(
        path,
        (10.4, 5.0),
        lambda axes: _draw_errors(axes, result),
        lambda axes: _draw_bounds(axes, result),
        title=f"AUC by gossip, {result.parties:,} users, {result.repetitions} runs; "
        "relative error of the users' estimates, bands: spread over the users",
    )


COLOURS = ("#0b3d75", "#2f9e8f", "#c2410c")


def _colours(result: GostaErrors) -> dict[str, str]:
    """Return a plot colour for each graph, by name."""
    return dict(zip(dict.fromkeys(curve.graph for curve in result.curves), COLOURS, strict=True))


def _draw_errors(axes: Axes, result: GostaErrors) -> None:
    """Draw the left panel: relative errors with their spread, of both methods on all graphs."""
    lines = {"GoSta": "-", "U2-gossip": "--"}
    for curve in result.curves:
        colour, label = _colours(result)[curve.graph], f"{curve.method}, {curve.graph}"
        error, spread = np.array(curve.error), np.array(curve.spread)
        axes.plot(curve.iterations, error, lines[curve.method], color=colour, linewidth=1.5, label=label)
        low = np.maximum(error - spread, 0)
        axes.fill_between(curve.iterations, low, error + spread, color=colour, alpha=0.10, linewidth=0)
    axes.set(xlabel="iterations t", ylabel="relative error", xlim=(0, result.iterations), ylim=(0, 1))
    finish_axes(axes, "(a) GoSta and U2-gossip", fontsize=9)


def _draw_bounds(axes: Axes, result: GostaErrors) -> None:
    """Draw the right panel: errors and bias of GoSta beside the bound of Theorem 3.1."""
    for curve in result.curves:
        if curve.bound is None:
            continue
        colour, times = _colours(result)[curve.graph], curve.iterations
        axes.plot(times, curve.bound, ":", color=colour, linewidth=1.5)
        axes.plot(times, curve.error, color=colour, linewidth=1.5)
        axes.plot(times, curve.bias, color=colour, linewidth=0.8)
    for line, width, label in ((":", 1.5, "bound"), ("-", 1.5, "runs"), ("-", 0.8, "mean of the runs")):
        axes.plot([], [], line, color="#404040", linewidth=width, label=label)
    axes.set(yscale="log", xscale="log", xlabel="iterations t")
    name = "(b) GoSta and the bound of Theorem 3.1 on its expectation"
    finish_axes(axes, name, fontsize=9, title="colours as in (a)", title_fontsize=9)


def last_rows(result: GostaErrors) -> Sequence[tuple[str, str, float, float, float | None]]:
    """Return (graph, method, error, spread, bound or None) at the last iteration of each curve."""
    return [
        (
            curve.graph,
            curve.method,
            curve.error[-1],
            curve.spread[-1],
            None if curve.bound is None else curve.bound[-1],
        )
        for curve in result.curves
    ]
