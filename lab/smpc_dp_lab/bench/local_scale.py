"""Utility of block gossip against the size s of its groups, at equal epsilon and equal participations.

The local scale of multi-party computation [Bellet 2021, chapter 5]: s - c = 1 is local DP; one group of all
parties with c = 0 has the noise of a trusted curator. Every party takes part equally often whatever s is, so
larger groups mean fewer steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from smpc_dp.capabilities.learn.data import Dataset
from smpc_dp.capabilities.learn.models import Model
from smpc_dp.capabilities.learn.registry import LearnParameters, check_learn
from smpc_dp.capabilities.learn.simulation.learning import Fidelity, learn
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.executors.shards import run_shards
from smpc_dp.secagg.noisy import NoisySumParameters
from smpc_dp_lab.bench.figures import Progress, Steps
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["local", "secagg", "gopa", "curator", "none"]
# Divisors of the parties: then all parties take part equally often.
SIZES = (2, 3, 4, 6, 8, 12, 20, 30, 60, 120)
PARTIES, PARTICIPATIONS, REPETITIONS, TEST = 120, 12, 10, 0.25


class Point(msgspec.Struct, frozen=True):
    """Accuracy of block gossip with groups of one size, over all repetitions, and its noise.

    Attributes:
        kind: "local": c = s - 1 or the smallest group; "curator": all parties with c = 0; "none": no noise.
        size: s. honest: the members whose noise is counted on: s - c, or fewer where an aggregator of a
            sparse graph could leave honest ones out.
        steps: T. noise: standard deviation of each coordinate of one average.
        accuracy: mean over parties and repetitions; spread: standard deviation between repetitions, of the
            mean over parties; low, high: the worst and the best repetition.
    """

    kind: Kind
    size: int
    honest: int
    steps: int
    noise: float
    accuracy: float
    spread: float
    low: float
    high: float


class LocalScale(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `local_scale`: its parameters, and a point for each size and kind of noise."""

    data: str
    parties: int
    participations: int
    epsilon: float
    delta: float
    colluders: int
    rate: float
    repetitions: int
    seed: int
    seconds: float
    points: tuple[Point, ...]

    def of(self, *kinds: Kind) -> list[Point]:
        """Return the points of these kinds of noise, in order of the group's size."""
        return sorted((point for point in self.points if point.kind in kinds), key=lambda point: point.size)


def local_scale(  # noqa: PLR0913 - the options of a command
    data: Dataset,
    *,
    epsilon: float = 2.0,
    delta: float = 1e-5,
    parties: int = PARTIES,
    sizes: Sequence[int] = SIZES,
    participations: int = PARTICIPATIONS,
    colluders: int = 1,
    method: Literal["secagg", "gopa"] = "secagg",
    rate: float = 0.5,
    repetitions: int = REPETITIONS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> LocalScale:
    """Learn by block gossip with groups of each size, and test each party's own model.

    Args:
        data: with labels 0 and 1.
        epsilon, delta: for all points of a party, over all of its participations.
        parties: n. sizes: of groups, each a divisor of n. participations: of each party.
        colluders: c in every group; groups of up to c + 1 are local DP.
        repetitions: how often data are split and groups and noise drawn anew.
        seed: of all that.

    Raises:
        ConfigError: what cannot be.
    """
    issues = [
        ConfigIssue("sizes", f"{size} does not divide {parties} users", ConfigCheck.CONFLICT)
        for size in sizes
        if parties % size
    ]
    if repetitions < 2:
        issues.append(ConfigIssue("repetitions", f"must be at least 2, is {repetitions}", ConfigCheck.RANGE))
    if issues:
        raise ConfigError(issues)
    started = time.monotonic()
    settings: list[tuple[Kind, int, int]] = []
    for size in sizes:
        settings += [
            ("none", size, colluders),
            (method if size > colluders + 1 else "local", size, colluders),
        ]
    settings.append(("curator", parties, 0))
    calls = []
    for kind, size, corrupt in settings:
        averager: dict[str, object] = {"method": "local"}
        if size > corrupt + 1:
            averager = {"method": "secagg" if kind == "curator" else method, "colluders": corrupt}
        given = {
            "learner": "block-gossip",
            "features": data.features,
            "steps": participations * parties // size,
            "group": size,
            "epsilon": epsilon,
            "delta": delta,
            "rate": rate,
            "averager": averager,
        }
        calls += [(data, kind, parties, given, seed + 1000 * number) for number in range(repetitions)]
    count = Steps(progress, "repetitions", len(calls))
    done = []
    for reached in run_shards(executor, _repetition, calls, "repetition"):
        done.append(reached)
        count()
    points = []
    for index, (kind, size, _) in enumerate(settings):
        of = done[index * repetitions : (index + 1) * repetitions]
        result, (_, noise, honest) = [accuracy for accuracy, *_ in of], of[-1]
        points.append(
            Point(
                kind,
                size,
                honest,
                participations * parties // size,
                noise,
                float(np.mean(result)),
                float(np.std(result, ddof=1)),
                min(result),
                max(result),
            )
        )
    return LocalScale(
        data=data.source,
        parties=parties,
        participations=participations,
        epsilon=epsilon,
        delta=delta,
        colluders=colluders,
        rate=rate,
        repetitions=repetitions,
        seed=seed,
        seconds=time.monotonic() - started,
        points=tuple(points),
    )


def _repetition(
    data: Dataset, kind: Kind, parties: int, given: Mapping[str, Any], seed: int
) -> tuple[float, float, int]:
    """Return the mean accuracy of the parties' models, the noise of an average and its honest parties."""
    parameters = _planned({**given, "seed": seed}, parties)
    if kind == "curator":
        parameters = _curated(parameters, parties)
    tables, test = data.split(parties, TEST, seed)
    fidelity: Fidelity = "plain" if kind == "none" else "ideal"
    learned = learn(parameters, tables, fidelity=fidelity, seed_for_simulation=seed)
    model = Model("logistic", data.features)
    accuracy = float(np.mean([model.accuracy(weights, test) for weights in learned.values]))
    noise, honest = (0.0, given["group"]) if kind == "none" else _noise(parameters, given["group"])
    return accuracy, noise, honest


def _planned(given: dict[str, object], parties: int) -> LearnParameters:
    checked, issues = check_learn(given, parties)
    if checked is None:
        raise ConfigError(issues)
    return checked


def _curated(parameters: LearnParameters, parties: int) -> LearnParameters:
    """Return the parameters with a trusted curator's noise, divided into equal shares."""
    averaging = parameters.average
    planned = None if averaging is None else averaging.plan(parties)
    if averaging is None or not isinstance(planned, NoisySumParameters):
        raise LocalError("a curator's noise is that of a secure sum")
    variance = Fraction(math.ceil(planned.curator_deviation**2), parties)
    alone = msgspec.structs.replace(planned, variance=variance, honest=parties)
    return replace(parameters, average=replace(averaging, plans={parties: alone}))


def _noise(parameters: LearnParameters, size: int) -> tuple[float, int]:
    """Return the standard deviation of the noise in each coordinate of one average, and the honest shares."""
    noise = None if parameters.average is None else parameters.average.plan(size).noise(size, 0)
    return (0.0, size) if noise is None else (noise.total / size, noise.honest)


def plot(result: LocalScale, path: Path) -> None:
    """Write the plot: accuracy against s, with the spread between repetitions; errors as of `write_plot`."""
    write_plot(path, (7.2, 4.8), lambda axes: _draw(axes, result))


_STYLES: tuple[tuple[tuple[Kind, ...], str, str, str], ...] = (
    (("none",), "no noise, no privacy", "#808080", "--"),
    (("local", "secagg", "gopa"), "secure average of s, noise once for the group", "#0b3d75", "-"),
)


def _draw(axes: Axes, result: LocalScale) -> None:
    for kinds, label, colour, line in _STYLES:
        points = result.of(*kinds)
        axes.errorbar(
            [point.size for point in points],
            [point.accuracy for point in points],
            yerr=[point.spread for point in points],
            color=colour,
            linestyle=line,
            marker="o",
            markersize=4.5,
            capsize=2.5,
            linewidth=1.4,
            label=label,
        )
    for kind, label, marker, colour in (
        ("local", "local DP", "s", "#c2410c"),
        ("curator", "trusted curator, once for all", "D", "#2f7d32"),
    ):
        ends = [point for point in result.points if point.kind == kind]
        axes.errorbar(
            [point.size for point in ends],
            [point.accuracy for point in ends],
            yerr=[point.spread for point in ends],
            color=colour,
            linestyle="none",
            marker=marker,
            markersize=7,
            capsize=2.5,
            zorder=5,
            label=label,
        )
    axes.set(xscale="log", xlabel="users in a group, s", ylabel="test accuracy of the users' own models")
    sizes = sorted({point.size for point in result.points})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    finish_axes(
        axes,
        f"{result.parties} users, {result.participations} participations each, \u03b5 = {result.epsilon:g}, "
        f"\u03b4 = {result.delta:g}, c = {result.colluders}",
        size=10.5,
        loc="lower right",
        title=f"mean and standard deviation, {result.repetitions} repetitions",
    )
