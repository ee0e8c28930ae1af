"""A learned graph of personalised models beside an oracle's, on rotated moons [Bellet 2021, section 2.5]."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from smpc_dp import simulate
from smpc_dp.capabilities.learn.boosting import PersonalizedBoosting
from smpc_dp.capabilities.learn.graph_descent import pair_costs
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.moons_tasks import (
    ANGLES,
    CLUSTERS,
    EDGE,
    FEATURES,
    PARTIES,
    boosted,
    problem,
    true_angles,
)
from smpc_dp_lab.bench.near_pairs import NearPairs, near_pairs
from smpc_dp_lab.bench.plots import write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

STUMPS = 10
# Tuned once, on other seeds.
BETA, LOCAL_BETA, COUPLING, DENSITY = 10.0, 10.0, 1.0, 0.3
# Updates of a party on average; of the first graph's local models; steps of each graph; between two graphs.
UPDATES, ALONE, STEPS, EVERY, PEERS = 50, 10, 2_000, 100, 5
# Of Remark 2.5: lambda_3, and how many pairs each party keeps.
DENSITIES, COUNTS = (0.03, DENSITY, 3.0), (5, 10, 20, 40)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Test accuracies of a method: the mean over the parties, by problem."""

    method: str
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """The mean of the test accuracies over all problems."""
        return float(np.mean(self.accuracies))


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A party of the learned graph of the first problem: its rotation in degrees, c_u, F_u and d_u."""

    angle: float
    confidence: float
    loss: float
    degree: float


class Moons(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `moons`; graphs are of the first problem, shape (n, n), parties by cluster.

    Attributes:
        within: the share of the learned weight within clusters, mean over the problems.
        rank: Spearman's correlation of c_u F_u with the degree in the learned graph, mean over the problems.
        near: what graphs of near models alone would cost, for the models of the first problem.
    """

    points: tuple[Point, ...]
    within: float
    rank: float
    nodes: tuple[Node, ...]
    near: tuple[NearPairs, ...]
    oracle: list[list[float]]
    learned: list[list[float]]
    problems: int
    seed: int
    seconds: float


def settings(given: list[Floats], seed: int, weights: Floats | None) -> dict[str, Any]:
    """Return the parameters of a learner with a known graph, or with one that it learns."""
    result = {"features": FEATURES, "sizes": [len(table) for table in given], "ticks": UPDATES * PARTIES}
    result |= {"beta": BETA, "stumps": STUMPS, "lower": -EDGE, "upper": EDGE, "seed": seed}
    result |= {"coupling": COUPLING}
    if weights is None:
        graph = {"alone": ALONE * PARTIES, "every": EVERY, "steps": STEPS, "peers": PEERS, "density": DENSITY}
        return result | {"graph": graph}
    first, second = np.nonzero(np.triu(weights))
    edges = [[int(one), int(other)] for one, other in zip(first, second, strict=True)]
    return result | {"topology": edges, "weights": weights[first, second].tolist()}


class _Problem(NamedTuple):
    """Results of one problem: mean accuracies by method; of the learned graph the weight within clusters."""

    accuracies: dict[str, float]
    within: float
    oracle: Floats
    learned: Floats
    nodes: tuple[Node, ...]
    models: Floats


def _problem(seed: int, number: int) -> _Problem:
    """Learn models for one drawn problem by all methods, and return their test accuracies."""
    own = np.repeat(np.arange(len(CLUSTERS)), CLUSTERS)
    given, tests, oracle = problem(1_000 * seed + number)
    kind = msgspec.convert(settings(given, 1 + number, None), PersonalizedBoosting)
    margins = [kind.margins(table) for table in given]

    def learn(weights: Floats | None) -> Learned:
        parameters = {"learner": kind.kind} | settings(given, 1 + number, weights)
        return simulate.learn(parameters, given, fidelity="plain")

    learned = learn(None)
    graph = np.asarray(learned.graph)
    models = {
        "local": np.array([boosted(table, LOCAL_BETA, UPDATES) for table in margins]),
        "global": np.tile(boosted(np.concatenate(margins), BETA, 200), (PARTIES, 1)),
        "oracle": learn(oracle).values,
        "learned": learned.values,
    }
    tested = [kind.margins(table) for table in tests]
    return _Problem(
        {
            method: float(
                np.mean([(table @ model > 0).mean() for table, model in zip(tested, of, strict=True)])
            )
            for method, of in models.items()
        },
        float(graph[own[:, None] == own].sum() / graph.sum()),
        oracle,
        graph,
        _nodes(1_000 * seed + number, margins, learned.values, graph),
        learned.values,
    )


def moons(
    *,
    problems: int = 10,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Moons:
    """Measure test accuracies with the oracle's graph, a learned one, one model for all, and local ones.

    Raises ConfigError for arguments out of range.
    """
    refuse(within("problems", problems, 1, 100))
    began, count = time.perf_counter(), Steps(progress, "problems", problems)
    results: list[_Problem] = []
    for result in run_shards(executor, _problem, [(seed, number) for number in range(problems)], "problem"):
        results.append(result)
        count()
    order, first = ("oracle", "learned", "global", "local"), results[0]
    return Moons(
        points=tuple(
            Point(method=name, accuracies=tuple(one.accuracies[name] for one in results)) for name in order
        ),
        within=float(np.mean([one.within for one in results])),
        rank=float(np.mean([_rank(one.nodes) for one in results])),
        nodes=first.nodes,
        near=_near(first.models, first.nodes),
        oracle=first.oracle.tolist(),
        learned=first.learned.tolist(),
        problems=problems,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def _nodes(seed: int, margins: list[Floats], models: Floats, graph: Floats) -> tuple[Node, ...]:
    """Return the parties of a learned graph, with the losses (2.4) of their models."""
    most = max(map(len, margins))
    return tuple(
        Node(
            angle=float(angle),
            confidence=len(own) / most,
            loss=float(np.logaddexp.reduce(-(own @ model))),
            degree=float(weights.sum()),
        )
        for angle, own, model, weights in zip(true_angles(seed)[0], margins, models, graph, strict=True)
    )


def _near(models: Floats, nodes: tuple[Node, ...]) -> tuple[NearPairs, ...]:
    """Return, by density and count, how much worse a learned graph of near models alone is."""
    costs = pair_costs(models, np.array([one.confidence * one.loss for one in nodes]), COUPLING)
    return near_pairs(costs, models, DENSITIES, COUNTS, scale=COUPLING)


def _rank(nodes: tuple[Node, ...]) -> float:
    return float(spearmanr([one.confidence * one.loss for one in nodes], [one.degree for one in nodes])[0])


def plot(result: Moons, path: Path) -> None:
    """Write the weights of the oracle's and of the learned graph, that graph's nodes, and the accuracies."""

    def graph(name: str, weights: list[list[float]]) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            shown = np.array(weights)
            # The square root shows small weights too.
            image = axes.imshow(np.sqrt(shown / shown.max()), cmap="Greys", vmin=0, vmax=1)
            label = "weight over the largest one, square-root scale"
            bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, label=label)
            ticks = (0, 0.01, 0.1, 0.25, 0.5, 1)
            bar.set_ticks(np.sqrt(ticks).tolist(), labels=[f"{tick:g}" for tick in ticks])
            for edge in np.cumsum(CLUSTERS)[:-1] - 0.5:
                axes.axhline(edge, color="C3", linewidth=0.6)
                axes.axvline(edge, color="C3", linewidth=0.6)
            axes.set(title=f"{name} [Fig. 2.2, left]", xlabel="party, by cluster", ylabel="party, by cluster")

        return draw

    def accuracies(axes: Axes) -> None:
        axes.boxplot([point.accuracies for point in result.points], widths=0.6)
        axes.set_xticks(range(1, 1 + len(result.points)), [point.method for point in result.points])
        axes.set_ylabel("test accuracy")
        axes.set_title(f"{result.problems} problems")

    panels = (
        graph("oracle", result.oracle),
        graph("learned", result.learned),
        lambda axes: _draw_nodes(axes, result),
        accuracies,
    )
    write_plot(path, (15.0, 6.6), *panels, title="Graphs of personalised boosting on rotated moons", across=2)


def _draw_nodes(axes: Axes, result: Moons) -> None:
    """Draw the learned graph: size by confidence, colour by loss, labels by rotation, edges by weight."""
    from matplotlib.collections import LineCollection

    weights, nodes = np.array(result.learned), result.nodes
    # A spiral for each cluster, those of the greatest degree in its middle.
    own, at = np.repeat(np.arange(len(CLUSTERS)), CLUSTERS), np.zeros((len(nodes), 2))
    for cluster, degrees in enumerate(ANGLES):
        members = np.flatnonzero(own == cluster)
        ranks = np.argsort(np.argsort([-nodes[one].degree for one in members]))
        phases, reach = ranks * 2.4, 0.16 * np.sqrt(ranks)
        middle = 1.3 * np.array([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))])
        at[members] = middle + reach[:, None] * np.c_[np.cos(phases), np.sin(phases)]
    first, second = np.nonzero(np.triu(weights))
    strong = (weights[first, second] / weights.max()) ** 0.5
    lines = LineCollection(
        np.stack([at[first], at[second]], axis=1).tolist(),
        colors=[(0.2, 0.2, 0.2, float(one)) for one in strong],
        linewidths=0.8,
    )
    axes.add_collection(lines)
    losses = np.array([one.loss for one in nodes])
    sizes = [90 + 170 * one.confidence for one in nodes]
    dots = axes.scatter(
        at[:, 0], at[:, 1], s=sizes, c=losses, cmap="RdYlGn_r", edgecolors="black", linewidths=0.4, zorder=2
    )
    axes.figure.colorbar(dots, ax=axes, shrink=0.8, label="local loss F_u")
    # Black on bright nodes and white on dark ones, by the luminance of ITU-R BT.709.
    bright = np.atleast_2d(dots.to_rgba(losses))[:, :3] @ [0.2126, 0.7152, 0.0722] > 0.4
    for (x, y), one, is_bright in zip(at, nodes, bright, strict=True):
        colour = "black" if is_bright else "white"
        axes.annotate(f"{one.angle:.0f}", (x, y), ha="center", va="center", fontsize=6, color=colour)
    axes.set_axis_off()
    axes.set_title("learned; size: confidence, label: degrees [Fig. 2.2, right]")
