"""SGD without replacement on a local and a global model, beside DP-SGD with replacement [Jin, He, Dai, V]."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.models import bound_features
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench.accuracies import Accuracy, Measured
from smpc_dp_lab.bench.figures import Progress, Steps, budgets, refuse, within
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, log_ticks, write_plot
from smpc_dp_lab.bench.sgd_methods import accuracy, methods
from smpc_dp_lab.bench.two_classes import STAND_INS, Kind, scaled, synthetic
from smpc_dp_lab.bench.with_replacement import BATCH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

TESTED = 10_000
EPSILONS, NODES, EACH = (0.5, 1.0, 2.0, 4.0), (1, 5, 10, 20), 6_000


class Point(Accuracy, frozen=True, kw_only=True):
    """Test accuracy, mean of the nodes' local models; epsilon is at delta = 1/n^2."""

    nodes: int


class WithoutReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `without_replacement`: means and deviations over the runs."""

    points: tuple[Point, ...]
    data: str
    each: int
    ridge: float
    runs: int
    seed: int
    seconds: float


# Runs whose rows are in memory at a time.
LARGE = 8


def without_replacement(
    table: Floats | None = None,
    *,
    kind: Kind = "covertype",
    ridge: float = 0.0,
    epsilons: Sequence[float] = EPSILONS,
    nodes: Sequence[int] = NODES,
    each: int = EACH,
    runs: int = 5,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> WithoutReplacement:
    """Measure accuracy by epsilon at ten nodes, and by the number of nodes at epsilon 1.

    Args:
        table: as of `two_classes.read`; None: the stand-in of `kind`.
        ridge: 0 for the paper's convex runs, 1e-4 for its strongly convex ones.

    Raises ConfigError for arguments out of range.
    """
    wrong = (
        [] if 0 <= ridge <= 1 else [ConfigIssue("ridge", f"must be 0 to 1, is {ridge}", ConfigCheck.RANGE)]
    )
    refuse(within("each", each, BATCH, 100_000), within("runs", runs, 1, 100), budgets(epsilons), wrong)
    began, measured = time.perf_counter(), Measured()
    plan = [(10, epsilon) for epsilon in epsilons] + [(count, 1.0) for count in nodes if count != 10]
    count = Steps(progress, "settings", len(plan) * runs)
    if table is not None:
        refuse(within("nodes times each", max(many for many, _ in plan) * each + TESTED, 1, len(table)))
    calls = (
        (_drawn(table, many * each + TESTED, drawn), kind, (many, each), epsilon, ridge, noiseless, drawn)
        for many, epsilon in plan
        for noiseless in [(many, epsilon) in ((10, epsilons[0]), (many, 1.0))]
        for drawn in range(seed, seed + runs)
    )
    for reached in run_shards(executor, _accuracies, calls, "run", LARGE):
        for value, key in reached:
            measured.add(value, **key)
        count()
    return WithoutReplacement(
        points=measured.points(Point),
        data=STAND_INS[kind] if table is None else kind,
        each=each,
        ridge=ridge,
        runs=runs,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def _drawn(table: Floats | None, count: int, seed: int) -> Floats | None:
    """Return `count` random rows of the table in random order; None without a table."""
    return None if table is None else table[np.random.default_rng(seed).permutation(len(table))[:count]]


def _accuracies(
    drawn: Floats | None,
    kind: Kind,
    sizes: tuple[int, int],
    epsilon: float,
    ridge: float,
    noiseless: bool,
    seed: int,
) -> list[tuple[float, dict[str, object]]]:
    """Return the accuracy of each method in one run, with the fields of its point.

    `drawn`: the rows, None for the stand-in of `kind`; `sizes`: nodes, and records of each.
    """
    nodes, each = sizes
    rows = synthetic(kind, nodes * each + TESTED, seed) if drawn is None else drawn
    tables, test = _tables(rows, nodes, each)
    of = methods(test.shape[1] - 1, each // BATCH, epsilon, (nodes * each) ** -2.0, ridge)
    if not noiseless:
        del of["noiseless"]
    result: list[tuple[float, dict[str, object]]] = []
    for name, method in of.items():
        key: dict[str, object] = {"method": name, "nodes": nodes, "protected": method.protected}
        key["epsilon"] = None if name == "noiseless" else epsilon
        result.append((accuracy(tables, test, method, seed), key))
    return result


def _tables(drawn: Floats, nodes: int, each: int) -> tuple[list[Floats], Floats]:
    """Return disjoint tables of `each` rows for the nodes, and the test table, all scaled and bounded."""
    rows = bound_features(scaled(drawn, drawn[-TESTED:]), 1.0)
    return [rows[node * each : (node + 1) * each] for node in range(nodes)], rows[-TESTED:]


def plot(result: WithoutReplacement, path: Path) -> None:
    """Write accuracy against epsilon at ten nodes, and against the nodes at epsilon 1."""

    def panel(by: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for index, method in enumerate(dict.fromkeys(point.method for point in result.points)):
                of = [p for p in result.points if p.method == method and (p.nodes == 10 or by == "nodes")]
                if by == "nodes":
                    of = sorted((p for p in of if p.epsilon in (1.0, None)), key=lambda p: p.nodes)
                elif of[0].epsilon is None:
                    axes.axhline(of[0].accuracy, linestyle="--", color=f"C{index}")
                    continue
                positions = [p.nodes if by == "nodes" else (p.epsilon or 0.0) for p in of]
                style = "o-" if all(p.protected or p.epsilon is None for p in of) else "s:"
                label = method if by == "nodes" else None
                axes.plot(positions, [p.accuracy for p in of], style, color=f"C{index}", label=label)
            axes.set(xlabel=by, ylabel="test accuracy")
            log_ticks(axes, (p.nodes if by == "nodes" else p.epsilon for p in result.points if p.epsilon))
            heading = "ten nodes" if by == "epsilon" else "epsilon = 1"
            heading += "; squares: epsilon does not hold"
            finish_axes(axes, heading, fontsize=7, **BESIDE)

        return draw

    title = result.data + (f", ridge {result.ridge:g}" if result.ridge else "")
    write_plot(path, (12.5, 4.5), panel("epsilon"), panel("nodes"), title=title)
