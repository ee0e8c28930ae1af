"""Objective and accuracy of personalised models along the iterations [Bellet et al. 2018, Figs 1, 2a, 2b].

With the paper's noise, which protects nothing here (rows of the cube have gradients of l1 norm far above 1),
and with the product's, on rows of norm 1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.coordinate_descent import (
    PersonalizedObjective,
    Watch,
    descend,
    independent_ticks,
)
from smpc_dp.capabilities.learn.warm_start import WarmStart, plan_local, propagated_models
from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy.record_gradients import grid_bits, plan_gradient_noise
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench.descents import descended
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.gossip_admm import VECTORS, GossipAdmm
from smpc_dp_lab.bench.linear_tasks import PARTIES, Floats, Problem, Rows, problem
from smpc_dp_lab.bench.personalized import (
    ADMM_PENALTY,
    COUPLING,
    DELTA,
    PRIVATE_COUPLING,
    objective_of,
    papers_models,
)
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, write_plot
from smpc_dp_lab.bench.published_ratings import DELTA as PAPER_DELTA
from smpc_dp_lab.bench.published_ratings import split_epsilon

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Literal["1", "2a", "2b"]
Method = Literal["CD", "gossip ADMM", "paper's noise", "private CD"]

DIMENSION, PROBLEMS = 100, 5
# Updates of a party (ticks of a party, on average, of gossip ADMM) without noise.
UPDATES = 30
# Of the paper's noise, and of the product's: epsilon of a record, and T_i, updates of a party.
PUBLISHED: Sequence[tuple[float, int]] = ((0.15, 2), (1.0, 2), (0.15, 5), (1.0, 5))
PRIVATE: Sequence[tuple[float, int]] = ((1.0, 2), (10.0, 2), (1.0, 10), (10.0, 10))
# Of the paper's private start, beside the epsilon of the updates.
START_EPSILON = 0.05


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the problems, after so many iterations of all parties; rows are as of `linear_tasks.Rows`.

    Attributes:
        updates: T_i, of each party; `epsilon` is split evenly over them.
        protected: whether epsilon holds for a record, at delta 1e-5.
        vectors: sent along edges until then. objective: M of the models, of thesis (2.1). accuracy: on test
            records, mean of the parties.
    """

    figure: Panel
    rows: Rows
    method: Method
    epsilon: float | None
    updates: int
    protected: bool
    iterations: tuple[int, ...]
    vectors: tuple[float, ...]
    objective: tuple[float, ...]
    accuracy: tuple[float, ...]

    @property
    def least(self) -> tuple[float, int]:
        """The least objective, and after how many iterations it is reached."""
        index = int(np.argmin(self.objective))
        return self.objective[index], self.iterations[index]


class PersonalizedIterations(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `personalized_iterations`: a trace for each run, and its parameters."""

    points: tuple[Trace, ...]
    dimension: int
    problems: int
    seed: int
    seconds: float


def objective_value(objective: PersonalizedObjective, tasks: Problem, models: Floats) -> float:
    """Return M(Theta) = sum_u d_u c_u F_u + lambda_1/2 sum_{u<v} w_uv |theta_u - theta_v|^2."""
    own = tasks.losses(models) + objective.ridges * (models**2).sum(axis=1)
    pulls = objective.degrees @ (models**2).sum(axis=1) - ((objective.weights @ models) * models).sum()
    return float((objective.degrees * objective.confidence) @ own + objective.coupling / 2 * pulls)


@dataclass
class _Seen:
    """Objective and accuracy of one run, each time that as many updates were made as there are parties."""

    objective: PersonalizedObjective
    tasks: Problem
    rows: list[tuple[int, float, float, float]] = field(default_factory=list)

    def add(self, iterations: int, vectors: float, models: Floats) -> None:
        """Record objective and mean accuracy of the models after so many iterations and messages."""
        value = objective_value(self.objective, self.tasks, models)
        self.rows.append((iterations, vectors, value, float(self.tasks.accuracies(models).mean())))

    def watch(self, wakes: NDArray[np.intp]) -> Watch:
        """Return a callback for `descend` that records measurements once in n updates."""
        runs = independent_ticks(wakes, self.objective.weights)
        made = np.cumsum([len(ticks) for ticks in runs])
        neighbours = np.diff(self.objective.weights.indptr)
        sent = np.cumsum([neighbours[wakes[ticks]].sum() for ticks in runs])

        def look(done: int, models: Floats) -> None:
            before = 0 if done == 1 else int(made[done - 2])
            if made[done - 1] // PARTIES > before // PARTIES:
                self.add(int(made[done - 1]) // PARTIES * PARTIES, float(sent[done - 1]), models)

        return look


@dataclass(frozen=True)
class PublishedNoise:
    """Mean gradients with Laplace noise of Theorem 1's scale, 2/(epsilon_t m): NOT private on these rows."""

    tasks: Problem
    epsilon: float
    rng: np.random.Generator

    def mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return the mean gradients of parties at their models, with Laplace noise."""
        scale = 2 / (self.epsilon * self.tasks.sizes[rows][:, None])
        return self.tasks.mean(models, rows) + self.rng.laplace(scale=scale, size=models.shape)

    def contributions(
        self, models: Floats, rows: NDArray[np.intp], factor: Floats, bits: int
    ) -> NDArray[np.int64]:
        """Return each party's sum of clipped gradients times its factor, without the paper's noise."""
        return self.tasks.contributions(models, rows, factor, bits)


def _wakes(updates: int, seed: int) -> NDArray[np.intp]:
    """Return the random order in which parties update, each `updates` times."""
    return np.random.default_rng([seed, 11]).permutation(np.repeat(np.arange(PARTIES), updates))


def _private(seen: _Seen, epsilon: float, updates: int, seed: int, *, warm: bool) -> None:
    """Run coordinate descent with the noise of the product, from zero or from its private start."""
    objective, tasks, length = seen.objective, seen.tasks, seen.tasks.features.shape[2]
    start = WarmStart() if warm else None
    shares = [1.0] * updates
    if start is not None:
        shares = [start.share, *[(1 - start.share) / updates] * updates]
    bits, source = grid_bits(objective.reaches), NoiseSource.keyed(bytes(32), seed.to_bytes(8, "big"))
    noise = [plan_gradient_noise(epsilon, DELTA, shares, float(one), bits) for one in objective.reaches]
    exchange, wakes = PlainExchange(PARTIES), _wakes(updates, seed)

    async def run() -> None:
        first = None
        if start is not None:
            plan = plan_local(start, objective, length, (1.0, 1.0), 1.0, noise)
            first = await propagated_models(exchange, objective, plan, tasks, length, bits, noise, source)
        seen.add(0, 0.0, np.zeros((PARTIES, length)) if first is None else first)
        look = seen.watch(wakes)
        await descend(
            exchange,
            objective,
            tasks,
            length,
            wakes,
            bits,
            start=first,
            noise=noise,
            source=source,
            watch=look,
        )

    asyncio.run(run())


class Run(NamedTuple):
    """Settings of one run: figure, kind of rows, method, epsilon, and updates of a party."""

    figure: Panel
    rows: Rows
    method: Method
    epsilon: float | None
    updates: int


def _descended(seen: _Seen, run: Run, start: Floats, seed: int) -> None:
    """Run coordinate descent and record it: without noise, or with the paper's Laplace noise."""
    tasks, wakes, length = seen.tasks, _wakes(run.updates, seed), seen.tasks.features.shape[2]
    seen.add(0, 0.0, start)
    gradients: Problem | PublishedNoise = tasks
    if run.epsilon is not None:
        each = split_epsilon(run.epsilon, run.updates, PAPER_DELTA)
        gradients = PublishedNoise(tasks, each, np.random.default_rng([seed, 7]))
    descended(seen.objective, gradients, length, wakes, seed, start=start, watch=seen.watch(wakes))


def _runs(
    updates: int, published: Sequence[tuple[float, int]], private: Sequence[tuple[float, int]]
) -> Iterator[Run]:
    """Yield the settings of all runs that the figures show."""
    yield Run("1", "cube", "CD", None, updates)
    yield Run("1", "cube", "gossip ADMM", None, updates)
    panels: tuple[Panel, ...] = ("2a", "2b")
    budgets: tuple[tuple[Rows, Method, Sequence[tuple[float, int]]], ...]
    budgets = ("cube", "paper's noise", published), ("unit", "private CD", private)
    for panel in panels:
        for rows, method, of in budgets:
            # Our private start depends on the epsilon, so there is no one start for a run without noise.
            if of and (panel, rows) != ("2b", "unit"):
                yield Run(panel, rows, "CD", None, max(count for _, count in of))
            for epsilon, count in of:
                yield Run(panel, rows, method, epsilon, count)


def _trace(run: Run, tasks: dict[Rows, Problem], local: Floats, seed: int) -> _Seen:
    """Run one method with one setting; return objective and accuracy recorded along the iterations."""
    panel, rows, method, epsilon, updates = run
    objective = objective_of(tasks[rows], rows, COUPLING[rows] if rows == "cube" else PRIVATE_COUPLING)
    if rows == "cube":
        # The steps of the paper, 1/L_i of the records; p/4, of any records of the cube, is 20 times as large.
        objective = replace(objective, smoothness=tasks[rows].smoothness())
    seen = _Seen(objective, tasks[rows])
    if method == "gossip ADMM":
        admm = GossipAdmm(tasks[rows], seen.objective, local, ADMM_PENALTY, seed)
        seen.add(0, 0.0, local)
        for done in range(1, updates + 1):
            seen.add(done * PARTIES, float(VECTORS * done * PARTIES), admm.run(PARTIES))
    elif method == "private CD" and epsilon is not None:
        _private(seen, epsilon, updates, seed, warm=panel == "2b")
    else:
        start = np.zeros_like(local)
        if panel == "1":
            start = local
        elif panel == "2b":
            start = papers_models(tasks[rows], local, seed, START_EPSILON)
        _descended(seen, run, start, seed)
    return seen


def _rows(run: Run, dimension: int, seed: int, number: int) -> NDArray[np.float64]:
    """Run one setting on one problem; return its recorded measurements as an array."""
    tasks: dict[Rows, Problem] = {rows: problem(1_000 * seed + number, dimension, rows) for rows in COUPLING}
    return np.array(_trace(run, tasks, tasks["cube"].local(), number).rows)


def personalized_iterations(
    dimension: int = DIMENSION,
    *,
    updates: int = UPDATES,
    published: Sequence[tuple[float, int]] = PUBLISHED,
    private: Sequence[tuple[float, int]] = PRIVATE,
    problems: int = PROBLEMS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> PersonalizedIterations:
    """Measure coordinate descent, with and without noise, and gossip ADMM by iteration.

    Args:
        updates: of a party, without noise. published, private: epsilon and updates of a party, of the paper's
            noise and of the product's.

    Raises:
        ConfigError: an argument is out of range.
    """
    refuse(
        within("problems", problems, 1, 100),
        within("dimension", dimension, 2, 1_000),
        within("updates", updates, 1, 1_000),
    )
    began, runs = time.perf_counter(), list(_runs(updates, published, private))
    count = Steps(progress, "runs", problems * len(runs))
    measured: dict[Run, list[NDArray[np.float64]]] = {run: [] for run in runs}
    calls = [(run, dimension, seed, number) for number in range(problems) for run in runs]
    for (run, *_), rows in zip(calls, run_shards(executor, _rows, calls, "run"), strict=True):
        measured[run].append(rows)
        count()
    points = []
    for run in runs:
        iterations, vectors, objective, accuracy = np.mean(measured[run], axis=0).T.tolist()
        points.append(
            Trace(
                figure=run.figure,
                rows=run.rows,
                method=run.method,
                epsilon=run.epsilon,
                updates=run.updates,
                protected=run.method == "private CD",
                iterations=tuple(map(int, iterations)),
                vectors=tuple(vectors),
                objective=tuple(objective),
                accuracy=tuple(accuracy),
            )
        )
    return PersonalizedIterations(
        points=tuple(points),
        dimension=dimension,
        problems=problems,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


_TITLES = {
    ("1", "cube"): "from local models [Fig. 1]",
    ("2a", "cube"): "from zero, paper's noise: NOT private [Fig. 2a]",
    ("2b", "cube"): "from its private start [Fig. 2b]",
    ("2a", "unit"): "from zero, epsilon holds for a record",
    ("2b", "unit"): "from our private start",
}


def plot(result: PersonalizedIterations, path: Path) -> None:
    """Write objective and accuracy against iterations, a pair of panels for each figure and kind of rows."""

    def panel(
        traces: list[Trace], of: Literal["objective", "accuracy"], along: Literal["iterations", "vectors"]
    ) -> Callable[[Axes], None]:
        # An epsilon has one colour, with a run without noise beside it or not.
        lines = list(dict.fromkeys([("CD", None), *((one.method, one.epsilon) for one in traces)]))

        def draw(axes: Axes) -> None:
            for trace in traces:
                label = trace.method if trace.epsilon is None else f"epsilon = {trace.epsilon:g}"
                label += "" if trace.epsilon is None else f", T_i = {trace.updates}"
                colour = f"C{lines.index((trace.method, trace.epsilon))}"
                style = "--" if trace.epsilon is None else "-" if trace.updates > 2 else ":"
                axes.plot(getattr(trace, along), getattr(trace, of), style, color=colour, label=label)
            axes.set(xlabel="vectors sent" if along == "vectors" else "iterations", ylabel=of)
            axes.set(yscale="log" if of == "objective" else "linear")
            finish_axes(axes, _TITLES[traces[0].figure, traces[0].rows], size=9, fontsize=7, **BESIDE)
            legend = axes.get_legend()
            if of == "objective" and legend is not None:
                # The panel to the right has the same lines.
                legend.remove()

        return draw

    panels = []
    for figure, rows in _TITLES:
        traces = [one for one in result.points if (one.figure, one.rows) == (figure, rows)]
        if not traces:
            continue
        if figure == "1":
            panels += [panel(traces, "objective", "vectors"), panel(traces, "accuracy", "vectors")]
        panels += [panel(traces, "objective", "iterations"), panel(traces, "accuracy", "iterations")]
    title = f"Personalised models along the iterations, p = {result.dimension}, {result.problems} problems"
    write_plot(path, (17.0, 3.6), *panels, title=title, across=4)
