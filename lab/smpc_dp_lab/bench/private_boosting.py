"""Personalised boosting with private choices: which sizes and norms it learns from [Bellet 2021, 2.2.2]."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.learn.boosting import PersonalizedBoosting, score_sensitivity
from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy.noisy_choice import plan_choices
from smpc_dp_lab.bench.accuracies import Measured
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTIES, FEATURES, STUMPS, UPDATES, TESTED, FLIPPED = 10, 5, 9, 10, 2_000, 0.05
SIZES, BETAS, EPSILONS, DELTA = (30, 100, 300, 1_000, 3_000), (0.5, 1.0, 2.0, 4.0), (1.0, 10.0), 1e-6


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Mean test accuracy; `gap`: by how much the weighted margin of the best must lead to be chosen, of 2."""

    size: int
    beta: float
    epsilon: float | None
    gap: float | None
    accuracy: float
    deviation: float


class PrivateBoosting(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `private_boosting`; deviations are over the problems."""

    points: tuple[Point, ...]
    problems: int
    seed: int
    seconds: float


def tables(seed: int, size: int) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return records and test records of parties on a ring, whose tasks turn slowly from one to the next."""
    rng = np.random.default_rng(seed)
    given: list[NDArray[np.float64]] = []
    tests: list[NDArray[np.float64]] = []
    for party in range(PARTIES):
        angle = 2 * math.pi * party / PARTIES / 4
        for records, result, flipped in ((size, given, FLIPPED), (TESTED, tests, 0.0)):
            x = rng.uniform(-1, 1, (records, FEATURES))
            # A sum of a step and a curve: stumps fit it, no line does.
            score = math.cos(angle) * np.sign(x[:, 0] - 0.2) + math.sin(angle) * (np.abs(x[:, 1]) * 2 - 1)
            result.append(np.c_[x, (score > 0) ^ (rng.random(records) < flipped)])
    return given, tests


def needed_gap(size: int, beta: float, epsilon: float) -> float:
    """Return the lead at which the best of 2K candidates is chosen as often as all others together."""
    each = plan_choices(epsilon, DELTA, UPDATES).each
    return 2 * score_sensitivity(size, beta) * math.log(2 * FEATURES * STUMPS) / each


def accuracy(size: int, beta: float, epsilon: float | None, seed: int) -> float:
    """Return the parties' mean test accuracy of private boosting on one drawn problem."""
    given, tests = tables(seed, size)
    settings: dict[str, Any] = {"features": FEATURES, "sizes": [size] * PARTIES, "ticks": UPDATES * PARTIES}
    settings |= {"beta": beta, "stumps": STUMPS, "topology": "ring", "coupling": 0.1, "seed": seed}
    settings |= {} if epsilon is None else {"epsilon": epsilon, "delta": DELTA}
    learner = msgspec.convert(settings, PersonalizedBoosting)
    models = simulate.learn(
        {"learner": "personalized-boosting"} | settings, given, fidelity="plain", seed_for_simulation=seed
    ).values
    return float(
        np.mean(
            [(learner.margins(test) @ model > 0).mean() for test, model in zip(tests, models, strict=True)]
        )
    )


def private_boosting(
    sizes: Sequence[int] = SIZES,
    betas: Sequence[float] = BETAS,
    epsilons: Sequence[float] = EPSILONS,
    *,
    problems: int = 5,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> PrivateBoosting:
    """Measure test accuracies by size, norm and epsilon; raise ConfigError for arguments out of range."""
    refuse(within("problems", problems, 1, 100), *(within("size", size, 1, 100_000) for size in sizes))
    began, measured = time.perf_counter(), Measured()
    count = Steps(progress, "problems", len(sizes) * len(betas) * (1 + len(epsilons)) * problems)
    calls = [
        (size, beta, epsilon, 1_000 * seed + number)
        for size in sizes
        for beta in betas
        for epsilon in (None, *epsilons)
        for number in range(problems)
    ]
    reached = run_shards(executor, accuracy, calls, "problem")
    for (size, beta, epsilon, _), value in zip(calls, reached, strict=True):
        gap = None if epsilon is None else needed_gap(size, beta, epsilon)
        measured.add(value, size=size, beta=beta, epsilon=epsilon, gap=gap)
        count()
    took = time.perf_counter() - began
    return PrivateBoosting(points=measured.points(Point), problems=problems, seed=seed, seconds=took)


def plot(result: PrivateBoosting, path: Path) -> None:
    """Write accuracy against the records of a party, a panel for each epsilon."""

    def panel(epsilon: float | None) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for beta in sorted({point.beta for point in result.points}):
                of = [p for p in result.points if (p.beta, p.epsilon) == (beta, epsilon)]
                # One legend, beside the last panel.
                label = f"beta = {beta:g}" if epsilon == epsilons[-1] else None
                axes.plot([p.size for p in of], [p.accuracy for p in of], "o-", label=label)
            axes.set(xscale="log", xlabel="records of a party", ylabel="test accuracy")
            heading = "no privacy" if epsilon is None else f"epsilon = {epsilon:g} of a record"
            finish_axes(axes, heading, fontsize=8, **BESIDE)

        return draw

    epsilons = list(dict.fromkeys(point.epsilon for point in result.points))
    write_plot(
        path, (4.0 * len(epsilons), 4.0), *map(panel, epsilons), title="Personalised boosting", sharey=True
    )
