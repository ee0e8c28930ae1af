"""Gossip dual averaging: a score that maximises the AUC of the Wisconsin data [Bellet 2021, Fig. 3.5].

Each patient is a party. As in the paper the runs of the figure are asynchronous with steps 1/sqrt(t); the
terms of Theorem 3.2, which is about the synchronous algorithm, stand beside synchronous runs.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.gosta import COLOURS, NEIGHBOURS, REWIRED
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from smpc_dp.capabilities.learn.dual_averaging import Models
    from smpc_dp.capabilities.learn.schedule import Clock
    from smpc_dp.capabilities.learn.topology import Topology

Floats = NDArray[np.float64]

ITERATIONS, REPETITIONS, TIMES = 30_000, 50, 30
SYNCHRONOUS = 2
# Sizes of the groups of curves beside the figure's, and runs of each at most.
GROUP_SIZES, GROUP_REPETITIONS = (3, 10), 10
# Parties of a run whose objective is computed: it costs as many losses as there are pairs of classes.
SHOWN_PARTIES = 6
_COPIES = 10
GROUP_COLOURS = ("#7c3aed", "#111827")


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of asynchronous dual averaging on one graph: objective, spread and bias by iteration.

    Attributes:
        iterations: t, ascending; the other rows belong to these.
        objective: of the parties' averages, mean over parties and repetitions.
        spread: its standard deviation over the parties, mean over the repetitions.
        bias: mean over the repetitions of |bar epsilon' pi_t(bar z)|, the bias term of the paper's figure.
        auc: of the parties' averages at the end, mean; least_auc: the least of any party looked at.
    """

    graph: str
    edges: int
    spectral_gap: float
    iterations: tuple[int, ...]
    objective: tuple[float, ...]
    spread: tuple[float, ...]
    bias: tuple[float, ...]
    auc: float
    least_auc: float


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of Theorem 3.2 and the errors of synchronous runs on a graph, all at T.

    Attributes:
        excess: of the objective over its minimum, mean over parties and runs.
        centralised, network, bias: C1, C2 and C3 put right; `bias` from samples along the runs.
        printed_network: C2 as the paper prints it; its C3 has the opposite sign.
        holds: whether the excess is at most the sum of the three.
    """

    graph: str
    excess: float
    centralised: float
    network: float
    printed_network: float
    bias: float
    holds: bool


class GroupCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Runs in which each step averages in disjoint random groups, of all patients.

    Attributes:
        size: s. gap: the spectral gap of the mean matrix of a step. steps: of a run.
        averages: of groups, ascending; the other rows belong to these and are as of `Curve`.
    """

    size: int
    gap: float
    steps: int
    averages: tuple[int, ...]
    objective: tuple[float, ...]
    spread: tuple[float, ...]
    bias: tuple[float, ...]
    auc: float
    least_auc: float


class DualAveragingErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `dual_averaging_errors`: its parameters, and curves on graphs and in groups."""

    parties: int
    iterations: int
    repetitions: int
    synchronous: int
    seed: int
    minimum: float
    start: float
    best_auc: float
    data: str
    seconds: float
    curves: tuple[Curve, ...]
    terms: tuple[Terms, ...]
    group_repetitions: int
    groups: tuple[GroupCurve, ...]


class AucObjective:
    """The objective of (3.5) for linear scores, computed from the pairs of the two classes."""

    def __init__(self, records: Floats) -> None:
        """Set the records, shape (n, features + 1), the label, 0 or 1, last; both labels must occur."""
        self.parties = len(records)
        self.is_positive = records[:, -1] > 0.5
        self.positive, self.negative = records[self.is_positive, :-1], records[~self.is_positive, :-1]

    def value(self, theta: Floats) -> float:
        """Return the objective, (1/n^2) times the sum of the pairs' logistic losses, at theta (p,)."""
        return float(np.logaddexp(0.0, self._margins(theta)).sum()) / self.parties**2

    def gradient(self, theta: Floats) -> Floats:
        """Return the objective's gradient at theta, shape (p,)."""
        slope = expit(self._margins(theta))
        summed = slope.sum(axis=0) @ self.negative - slope.sum(axis=1) @ self.positive
        return np.asarray(summed / self.parties**2)

    def auc(self, theta: Floats) -> float:
        """Return the AUC of the linear scores theta'x on the records; ties count a half."""
        margin = self._margins(theta)
        return float(((margin < 0) + 0.5 * (margin == 0)).mean())

    def mean_gradient(self, theta: Floats) -> Floats:
        """Return the mean over u of the gradient of h_u at the party's own theta, shape (n, p), as (p,)."""
        own = theta[self.is_positive]
        slope = expit(own @ self.negative.T - (own * self.positive).sum(axis=1)[:, None])
        summed = slope.sum(axis=0) @ self.negative - slope.sum(axis=1) @ self.positive
        return np.asarray(summed / self.parties**2)

    def minimise(self) -> Floats:
        """Return the model that minimises the objective, shape (p,), by L-BFGS-B."""
        start = np.zeros(self.positive.shape[1])
        options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10}
        result = minimize(self.value, start, jac=self.gradient, method="L-BFGS-B", options=options)
        return np.asarray(result.x)

    @property
    def lipschitz(self) -> float:
        """The constant L_h: the greatest distance between records of the two classes."""
        squares = (self.positive**2).sum(axis=1)[:, None] + (self.negative**2).sum(axis=1)
        return float(np.sqrt(np.max(squares - 2 * self.positive @ self.negative.T)))

    def _margins(self, theta: Floats) -> Floats:
        """Return the score differences, negative less positive, of all pairs of records."""
        return np.asarray((self.negative @ theta)[None, :] - (self.positive @ theta)[:, None])


def standardised(features: Floats, labels: Floats) -> Floats:
    """Return records (features, label), missing values at the median, features of mean 0, variance 1.

    Raises:
        ConfigError: shapes do not go together, a label is not 0 or 1, one does not occur, or a feature is
            constant.
    """
    if features.ndim != 2 or labels.shape != (len(features),) or len(labels) < 4:
        raise ConfigError.at(
            "data", f"features {features.shape} and labels {labels.shape}", ConfigCheck.SHAPE
        )
    if not np.isin(labels, (0, 1)).all() or len(np.unique(labels)) < 2:
        raise ConfigError.at("labels", "must be 0 or 1, and both must occur", ConfigCheck.RANGE)
    filled = np.where(np.isnan(features), np.nanmedian(features, axis=0), features)
    spread = filled.std(axis=0)
    if not np.all(np.isfinite(filled)) or np.any(spread == 0):
        raise ConfigError.at("data", "a feature is constant or not finite", ConfigCheck.RANGE)
    return np.column_stack([(filled - filled.mean(axis=0)) / spread, labels])


def dual_averaging_errors(
    features: Floats,
    labels: Floats,
    *,
    data: str,
    iterations: int = ITERATIONS,
    repetitions: int = REPETITIONS,
    synchronous: int = SYNCHRONOUS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> DualAveragingErrors:
    """Run gossip dual averaging on a cycle, a Watts-Strogatz graph and the complete graph.

    Args:
        features: shape (n, p), NaN where missing, n from 12 to 5,000. labels: (n,), 0 or 1.
        data: their description.
        iterations: 60 to 10,000,000. repetitions: asynchronous runs, 1 to 1,000.
        synchronous: runs beside Theorem 3.2, 1 to 1,000.
        seed: of graph, draws and the parties that are looked at.

    Raises:
        ConfigError: a number is out of range, or the data are refused.
    """
    started = time.perf_counter()
    records = standardised(features, labels)
    parties = len(records)
    _check(parties, iterations, repetitions, synchronous)
    aim = AucObjective(records)
    optimum = aim.minimise()
    graphs = _graphs(parties, seed)
    curves, terms = [], []
    in_groups = min(repetitions, GROUP_REPETITIONS)
    starts = range(0, repetitions, _COPIES)
    calls: list[tuple[Any, ...]] = []
    for graph in range(len(graphs)):
        for start in starts:
            copies = range(start, min(repetitions, start + _COPIES))
            calls.append((_run_on_graph, records, graph, seed, copies, iterations, None))
        calls.append((_run_on_graph, records, graph, seed, range(synchronous), iterations, optimum))
    for size in GROUP_SIZES:
        steps = _steps_of(parties, size, iterations)
        calls += [(_run_in_groups, records, size, steps, seed + number) for number in range(in_groups)]
    count = Steps(progress, "runs", len(calls))
    shards = run_shards(executor, _call, calls, "run")

    def take(number: int) -> list[_Run]:
        taken = []
        for run in itertools.islice(shards, number):
            taken.append(run)
            count()
        return taken

    for graph_of_runs in graphs:
        runs = take(len(starts))
        curves.append(_curve(graph_of_runs, runs[-1].ticks, [run.part for run in runs]))
        part = take(1)[0].part
        excess = float(part.objective[-1].mean()) - aim.value(optimum)
        terms.append(_terms(graph_of_runs, optimum, aim.lipschitz, iterations, float(part.full_bias), excess))
    groups = [_group_curve(parties, size, iterations, take(in_groups)) for size in GROUP_SIZES]
    return DualAveragingErrors(
        parties=parties,
        iterations=iterations,
        repetitions=repetitions,
        synchronous=synchronous,
        seed=seed,
        minimum=aim.value(optimum),
        start=aim.value(np.zeros_like(optimum)),
        best_auc=aim.auc(optimum),
        data=data,
        seconds=time.perf_counter() - started,
        curves=tuple(curves),
        terms=tuple(terms),
        group_repetitions=in_groups,
        groups=tuple(groups),
    )


class _Part(msgspec.Struct, frozen=True):
    """Measurements of runs: objective (times, runs, parties), bias (times, runs), final AUC, sampled C3."""

    objective: Floats
    bias: Floats
    auc: Floats
    full_bias: float


class _Run(NamedTuple):
    """Measurements of one run, with the iterations at which they were taken."""

    ticks: NDArray[np.intp]
    part: _Part


def _call(function: Callable[..., _Run], *arguments: Any) -> _Run:
    """Call a picklable function, so that one executor runs shards of two kinds."""
    return function(*arguments)


def _graphs(parties: int, seed: int) -> list[Topology]:
    """Return a cycle, a Watts-Strogatz graph and the complete graph of the parties."""
    from smpc_dp.capabilities.learn import topology

    return [
        topology.ring(parties),
        topology.watts_strogatz(parties, NEIGHBOURS, REWIRED, seed),
        topology.complete(parties),
    ]


def _run_on_graph(
    records: Floats, graph: int, seed: int, copies: range, iterations: int, optimum: Floats | None
) -> _Run:
    """Run copies side by side on one of the graphs: synchronous ones where the optimum is given."""
    from smpc_dp.capabilities.learn.schedule import EdgeClock, PoissonClock
    from smpc_dp_lab.bench.many_clocks import ManyClocks

    on, kind = _graphs(len(records), seed)[graph], PoissonClock if optimum is None else EdgeClock
    clocks: list[Clock] = [kind(on, seed, copy) for copy in copies]
    models = _learn(records, ManyClocks(clocks), len(copies), iterations, synchronous=optimum is not None)
    aim = AucObjective(records)
    return _Run(models.ticks, _look(models, aim, records, len(copies), seed + copies.start, optimum))


def _run_in_groups(records: Floats, size: int, steps: int, seed: int) -> _Run:
    """Run dual averaging in random groups once, and measure its models."""
    models = _learn_in_groups(records, size, steps, seed)
    return _Run(models.ticks, _look(models, AucObjective(records), records, 1, seed))


def _learn(records: Floats, clock: Clock, copies: int, iterations: int, *, synchronous: bool) -> Models:
    """Run gossip dual averaging on all copies of the records; return the recorded models."""
    from smpc_dp.capabilities.learn.averager import PlainExchange
    from smpc_dp.capabilities.learn.dual_averaging import dual_averaging, dual_averaging_asynchronous
    from smpc_dp.capabilities.learn.pairwise_losses import logistic_auc

    learner = dual_averaging if synchronous else dual_averaging_asynchronous
    return asyncio.run(
        learner(
            PlainExchange(len(records) * copies),
            np.tile(records, (copies, 1)),
            logistic_auc().gradient,
            clock,
            iterations,
            dimension=records.shape[1] - 1,
            every=iterations // TIMES,
        )
    )


def _steps_of(parties: int, size: int, averages: int) -> int:
    """Return how many steps make about `averages` averages of groups of this size."""
    from smpc_dp.capabilities.learn.gossip_bounds import GroupMixing

    return max(1, averages // GroupMixing(parties, size).groups)


def _group_curve(parties: int, size: int, averages: int, runs: Sequence[_Run]) -> GroupCurve:
    """Return the curve of one group size: means of objective, spread, bias and AUC over the runs."""
    from smpc_dp.capabilities.learn.gossip_bounds import GroupMixing

    mixing = GroupMixing(parties, size)
    steps, parts = _steps_of(parties, size, averages), [run.part for run in runs]
    objective = np.concatenate([part.objective for part in parts], axis=1)
    auc = np.concatenate([part.auc for part in parts])
    return GroupCurve(
        size=size,
        gap=mixing.gap,
        steps=steps,
        averages=tuple(np.rint(runs[-1].ticks * 2 / size).astype(int).tolist()),
        objective=tuple(objective.mean(axis=(1, 2)).tolist()),
        spread=tuple(objective.std(axis=2).mean(axis=1).tolist()),
        bias=tuple(np.concatenate([part.bias for part in parts], axis=1).mean(axis=1).tolist()),
        auc=float(auc.mean()),
        least_auc=float(auc.min()),
    )


def _learn_in_groups(records: Floats, size: int, steps: int, seed: int) -> Models:
    """Run dual averaging in groups; return the models at `TIMES` steps at most.

    Time is counted in gradients, two to a tick as in asynchronous runs: a step of k groups takes k s/2 ticks,
    adds as many gradients to the mean sum, and steps are 1/sqrt(t).
    """
    from smpc_dp.capabilities.learn.averager import PlainAverager, PlainExchange
    from smpc_dp.capabilities.learn.block_gossip import GroupDraws
    from smpc_dp.capabilities.learn.dual_averaging import (
        Models,
        PassedRecords,
        dual_averaging_in_groups,
        inverse_root,
    )
    from smpc_dp.capabilities.learn.group_steps import GroupRun
    from smpc_dp.capabilities.learn.pairwise_losses import logistic_auc

    parties = len(records)
    draws = GroupDraws(parties, size, seed)
    exchange, gradient = PlainExchange(parties), logistic_auc().gradient
    passing = PassedRecords(exchange, records, gradient, senders=draws.senders(steps))
    run = GroupRun(PlainAverager(parties), None, draws, steps, np.inf, factor=1 / draws.share)
    ticks_a_step = draws.each * size / 2
    measured = np.unique(np.linspace(1, steps, TIMES).round().astype(np.intp))
    recorded: list[tuple[Floats, ...]] = []

    def watch(step: int, averages: Floats, duals: Floats) -> None:
        if step in measured:
            sums = ticks_a_step * duals
            current = -sums / np.sqrt(ticks_a_step * step)
            recorded.append((averages.copy(), current, sums, passing.auxiliary.copy()))

    dimension = records.shape[1] - 1
    step_size = inverse_root(np.sqrt(ticks_a_step))
    asyncio.run(
        dual_averaging_in_groups(run, passing.slopes, dimension=dimension, step_size=step_size, watch=watch)
    )
    average, current, dual, auxiliary = (np.array(rows) for rows in zip(*recorded, strict=True))
    ticks = (measured * ticks_a_step).astype(np.intp)
    return Models(ticks, average, current, dual, auxiliary, "")


def _look(
    models: Models, aim: AucObjective, records: Floats, copies: int, seed: int, optimum: Floats | None = None
) -> _Part:
    """Measure objective, bias term and AUC of recorded models, for a random sample of parties."""
    from smpc_dp.capabilities.learn.pairwise_losses import logistic_auc

    gradient = logistic_auc().gradient
    parties = np.random.default_rng(seed).choice(len(records), SHOWN_PARTIES, replace=False)
    shape = (len(models.ticks), copies, len(records), -1)
    average, current, dual, auxiliary = (
        recorded.reshape(shape)
        for recorded in (models.average, models.current, models.dual, models.auxiliary)
    )
    objective = np.array(
        [[[aim.value(run[party]) for party in parties] for run in moment] for moment in average]
    )
    bias, full = np.zeros(shape[:2]), []
    for index, tick in enumerate(models.ticks):
        for run in range(copies):
            theta = current[index, run]
            taken = gradient(theta, records, auxiliary[index, run]).mean(axis=0)
            wrong = taken - aim.mean_gradient(theta)
            central = -dual[index, run].mean(axis=0) / np.sqrt(tick)
            bias[index, run] = abs(wrong @ central)
            full.append(wrong @ ((0 if optimum is None else optimum) - central))
    auc = np.array([[aim.auc(run[party]) for party in parties] for run in average[-1]])
    return _Part(objective, bias, auc, float(np.mean(full)))


def _curve(graph: Topology, ticks: NDArray[np.intp], parts: list[_Part]) -> Curve:
    """Combine the measurements of all runs on a graph to one curve of means."""
    objective = np.concatenate([part.objective for part in parts], axis=1)
    bias = np.concatenate([part.bias for part in parts], axis=1)
    auc = np.concatenate([part.auc for part in parts])
    return Curve(
        graph=graph.name,
        edges=len(graph.edges),
        spectral_gap=graph.spectral_gap,
        iterations=tuple(ticks.tolist()),
        objective=tuple(objective.mean(axis=(1, 2)).tolist()),
        spread=tuple(objective.std(axis=2).mean(axis=1).tolist()),
        bias=tuple(bias.mean(axis=1).tolist()),
        auc=float(auc.mean()),
        least_auc=float(auc.min()),
    )


def _terms(
    graph: Topology, optimum: Floats, lipschitz: float, iterations: int, bias: float, excess: float
) -> Terms:
    """Return Theorem 3.2's bounds for a graph, beside the measured bias and excess."""
    from smpc_dp.capabilities.learn.dual_averaging import inverse_root
    from smpc_dp.capabilities.learn.gossip_bounds import dual_averaging_terms

    result = dual_averaging_terms(graph, optimum, lipschitz, inverse_root(), iterations)
    return Terms(
        graph=graph.name,
        excess=excess,
        centralised=result.centralised,
        network=result.network,
        printed_network=result.printed_network,
        bias=bias,
        holds=excess <= result.centralised + result.network + bias,
    )


def _check(parties: int, iterations: int, repetitions: int, synchronous: int) -> None:
    """Raise ConfigError unless parties, iterations and repetitions are in range."""
    few = not 12 <= parties <= 5_000
    refuse(
        [ConfigIssue("data", f"must have 12 to 5,000 records, has {parties}", ConfigCheck.RANGE)]
        if few
        else [],
        within("iterations", iterations, TIMES, 10_000_000),
        within("repetitions", repetitions, 1, 1_000),
        within("synchronous", synchronous, 1, 1_000),
    )


def plot(result: DualAveragingErrors, path: Path) -> None:
    """Write the plot: objective with its spread, and the bias term, against iterations.

    Errors as of `write_plot`.
    """
    write_plot(
        path,
        (11.6, 4.6),
        lambda axes: _draw_objective(axes, result),
        lambda axes: _draw_bias(axes, result),
        title=f"AUC maximisation by gossip, {result.parties} users, {result.repetitions} asynchronous runs; "
        "bands: spread over the users",
    )


def _draw_curves(axes: Axes, result: DualAveragingErrors, of: Literal["objective", "bias"]) -> None:
    """Draw `of` against averages: a line for each graph, and for each size of groups."""
    labels = of == "bias"
    for curve, colour in zip(result.curves, COLOURS, strict=True):
        label = curve.graph if labels else None
        axes.plot(curve.iterations, getattr(curve, of), color=colour, linewidth=1.5, label=label)
    for group, colour in zip(result.groups, GROUP_COLOURS, strict=True):
        label = f"groups of {group.size}" if labels else None
        axes.plot(group.averages, getattr(group, of), "--", color=colour, linewidth=1.5, label=label)
    axes.set(yscale="log", xlabel="averages of a pair, or a group")


def _draw_objective(axes: Axes, result: DualAveragingErrors) -> None:
    """Draw the left panel: objective with its spread over the parties, and its minimum."""
    _draw_curves(axes, result, "objective")
    for curve, colour in zip(result.curves, COLOURS, strict=True):
        mean, spread = np.array(curve.objective), np.array(curve.spread)
        low = np.maximum(mean - spread, result.minimum)
        axes.fill_between(curve.iterations, low, mean + spread, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(result.minimum, color="#6b7280", linewidth=1.0, linestyle=":")
    axes.set_ylabel("objective of the users' averages")
    finish_axes(axes, "(a) objective; dotted: its minimum")


def _draw_bias(axes: Axes, result: DualAveragingErrors) -> None:
    """Draw the right panel: the bias term against iterations."""
    _draw_curves(axes, result, "bias")
    axes.set_ylabel("|\u03b5\u0304(t)' \u03c0(z\u0304(t))|")
    finish_axes(axes, "(b) bias term", fontsize=9, **BESIDE)
