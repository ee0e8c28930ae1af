"""A central learner with data owners: the cost of privacy, measured beside its forecast.

[Farokhi, Wu, Smith, Kaafar: The Cost of Privacy in Asynchronous Differentially-Private Machine Learning]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import msgspec
import numpy as np

from smpc_dp.capabilities.learn.data import Dataset
from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy.collaboration import bound_10
from smpc_dp_lab.bench.figures import Progress, Steps, budgets, refuse, within
from smpc_dp_lab.bench.owner_runs import Mechanism, Owners, descend, owners_of

EPSILONS, SIZES, OWNERS, SHARED = (0.1, 0.3, 1.0, 3.0, 10.0), (300, 1_000, 2_600), (3, 6, 12), 600
# Rates that are tried for each point with TUNED runs of their own; the best median is taken: not private.
RATES, TUNED = (0.03, 0.1, 0.3, 1.0, 3.0, 5.0, 7.0, 10.0), 20
# Rows at the end of the file that count as public: scales, principal components and bounds come from them.
PUBLIC = {"lending": 2_000, "houses": 3_000}
# Of the 86 hospitals' stand-in.
HOSPITALS = tuple(range(60, 318, 3))


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """psi = f(theta)/f(theta*) - 1 after T ticks, over the runs; forecast: psi without noise + (11)."""

    data: str
    owners: int
    size: float
    epsilon: float
    mechanism: Mechanism
    rate: float
    low: float
    median: float
    high: float
    forecast: float
    alone: tuple[float, ...]
    trace: tuple[tuple[int, float, float, float], ...]


class CostOfPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `cost_of_privacy`; constants: c of (11) by data, fitted to the Gaussian medians."""

    points: tuple[Point, ...]
    constants: dict[str, float]
    hospitals: tuple[int, ...]
    sources: tuple[str, ...]
    steps: int
    runs: int
    seed: int
    seconds: float


def _point(
    name: str, data: Owners, epsilon: float, mechanism: Mechanism, steps: int, runs: int, seed: int
) -> Point:
    tried = descend(data, epsilon, mechanism, RATES, steps, min(runs, TUNED), seed + 1_000)[-1][1]
    rate = RATES[int(np.argmin(np.median(tried, axis=1)))]
    seen = descend(data, epsilon, mechanism, [rate], steps, runs, seed)
    quartiles = [(tick, *np.quantile(psi, (0.25, 0.5, 0.75)).tolist()) for tick, psi in seen]
    fits = data.fitness(data.best())
    return Point(
        data=name,
        owners=len(data.sizes),
        size=float(data.sizes.mean()),
        epsilon=epsilon,
        mechanism=mechanism,
        rate=rate,
        low=quartiles[-1][1],
        median=quartiles[-1][2],
        high=quartiles[-1][3],
        forecast=0.0,
        alone=tuple((fits[:-1] / fits[-1] - 1).tolist()),
        trace=tuple(quartiles),
    )


def cost_of_privacy(
    lending: Dataset,
    houses: Dataset | None = None,
    *,
    epsilons: Sequence[float] = EPSILONS,
    steps: int = 1_000,
    runs: int = 100,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> CostOfPrivacy:
    """Measure psi by epsilon, size and number of owners; raise ConfigError for arguments out of range."""
    refuse(within("steps", steps, 10, 100_000), within("runs", runs, 1, 10_000), budgets(epsilons))
    began = time.perf_counter()
    settings: list[tuple[str, Dataset, tuple[int, ...]]]
    settings = [("lending", lending, (size,) * 3) for size in SIZES]
    settings += [("lending", lending, (SHARED,) * owners) for owners in OWNERS]
    if houses is not None:
        # In the file neighbours stand side by side: an owner would be a region.
        order = np.random.default_rng(len(HOSPITALS)).permutation(len(houses.table))
        houses = replace(houses, table=houses.table[order], source=f"{houses.source}, in random order")
        settings.append(("houses", houses, HOSPITALS))
    mechanisms: tuple[Mechanism, ...] = ("none", "gaussian", "laplace")
    calls = [
        (name, data, epsilon, mechanism, steps, runs, seed)
        for name, source, sizes in settings
        for data in [owners_of(source, PUBLIC[name], sizes)]
        for epsilon in epsilons
        for mechanism in (mechanisms if epsilon == epsilons[0] else mechanisms[1:])
    ]
    count, points = Steps(progress, "settings", len(calls)), []
    for point in run_shards(executor, _point, calls, "setting"):
        points.append(point)
        count()
    constants, forecast = _forecast(points)
    return CostOfPrivacy(
        points=forecast,
        constants=constants,
        hospitals=HOSPITALS,
        sources=tuple(one.source for one in (lending, houses) if one is not None),
        steps=steps,
        runs=runs,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def _forecast(points: Sequence[Point]) -> tuple[dict[str, float], tuple[Point, ...]]:
    """Return the constant of (11) of each data set, and the points with their forecasts."""
    plain = {(p.data, p.owners, p.size): p.median for p in points if p.mechanism == "none"}

    def unit(point: Point) -> float:
        return bound_10(round(point.owners * point.size), [point.epsilon] * point.owners, 0.0, 1.0)

    constants = {point.data: 0.0 for point in points}
    for p in points:
        if p.mechanism == "gaussian":
            excess = p.median - plain[p.data, p.owners, p.size]
            constants[p.data] = max(constants[p.data], excess / unit(p))

    def expected(p: Point) -> float:
        noise = 0.0 if p.mechanism == "none" else constants[p.data] * unit(p)
        return plain[p.data, p.owners, p.size] + noise

    return constants, tuple(msgspec.structs.replace(p, forecast=expected(p)) for p in points)
