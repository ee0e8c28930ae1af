"""SGD without replacement on a local and a global model, beside DP-SGD with replacement [Jin, He, Dai, V]."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.learn.averager import PlainExchange
from smpc_dp.learn.data import read_table
from smpc_dp.learn.local_global import LocalGlobal
from smpc_dp.learn.models import Model, bound_features
from smpc_dp.learn.requirements import LearnerContext
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

FEATURES, BATCH, RATE, VISITS, TESTED = 54, 50, 0.1, 5, 10_000
EPSILONS, NODES, EACH = (0.5, 1.0, 2.0, 4.0), (1, 5, 10, 20), 6_000
# Of the threshold policy: the loss above which a node joins the others, and its part of epsilon.
THRESHOLD, POLICY_PART = 0.55, 0.25
STAND_IN = "synthetic, of the shape of Covertype with two classes"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Test accuracy of a method; `protected`: whether epsilon holds for a record, at delta = 1/n^2."""

    method: str
    nodes: int
    epsilon: float | None
    protected: bool
    accuracy: float
    deviation: float


class WithoutReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """What `without_replacement` measured: means of the nodes' accuracies and of the runs."""

    points: tuple[Point, ...]
    data: str
    each: int
    runs: int
    seed: int
    seconds: float


def synthetic_covertype(rows: int, seed: int) -> Floats:
    """Return rows of ten numbers and two one-hot codes of 4 and 40, with a label 0 or 1, as Covertype has."""
    rng = np.random.default_rng([seed, 54])
    numbers = rng.normal(size=(rows, 10)) @ (0.3 * np.ones((10, 10)) + np.eye(10))
    area, soil = rng.choice(4, rows, p=[0.45, 0.05, 0.44, 0.06]), rng.zipf(1.4, rows) % 40
    codes = np.c_[np.eye(4)[area], np.eye(40)[soil]]
    fixed = np.random.default_rng(54)
    score = np.tanh(numbers @ fixed.normal(size=10)) * 2 + codes @ fixed.normal(size=44) * 1.5
    label = rng.random(rows) < 1 / (1 + np.exp(-1.5 * score))
    return np.column_stack([numbers, codes, label])


def read_covertype(path: Path) -> Floats:
    """Read Covertype (UCI), 54 columns and the class from 1 to 7, as class 2 against the others."""
    table = read_table(path)
    if table.shape[1] != FEATURES + 1 or not np.isin(table[:, -1], range(1, 8)).all():
        raise ConfigError.at(str(path), "must be 54 columns and a class from 1 to 7", ConfigCheck.SHAPE)
    return np.column_stack([table[:, :-1], table[:, -1] == 2])


def scaled(table: Floats, public: Floats) -> Floats:
    """Return rows on the unit sphere, after centre and width of public rows."""
    features = (table[:, :-1] - public[:, :-1].mean(axis=0)) / (public[:, :-1].std(axis=0) + 1e-9)
    return np.column_stack([features / np.linalg.norm(features, axis=1, keepdims=True), table[:, -1]])


def naive_deviation(epsilon: float, delta: float, visits: int = VISITS) -> float:
    """Return the paper's noise of with-replacement SGD: the classical bound at epsilon/5 and delta/5.

    In units of the sensitivity. Simple composition: 34.5 for epsilon 1, delta 1/60,000^2, 5 visits.
    """
    return math.sqrt(2 * math.log(1.25 * visits / delta)) * visits / epsilon


def composed_deviation(epsilon: float, delta: float, visits: int = VISITS) -> float:
    """Return the noise that suffices, of as many Gaussian mechanisms: 12.8 there."""
    return math.sqrt(visits) / gaussian_mu(epsilon, delta)


def noise_term(
    rate: float, lipschitz: float, batch: int, epsilon: float, delta: float, dimension: int
) -> float:
    """Return the noise term of Theorem 3, where every step is global; the paper prints it for dimension 1."""
    return 4 * math.log(1.25 / delta) * rate * lipschitz**2 / (batch * epsilon) ** 2 * dimension


def capped_batches(rng: np.random.Generator, nodes: int, each: int) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield random batches of random nodes until records have had their 5 visits, whatever the data are."""
    visits = np.zeros((nodes, each), dtype=np.intp)
    for _ in range(VISITS * visits.size // BATCH):
        node = int(rng.integers(nodes))
        free = np.flatnonzero(visits[node] < VISITS)
        if len(free) >= BATCH:
            chosen = rng.choice(free, BATCH, replace=False)
            visits[node, chosen] += 1
            yield node, chosen


def with_replacement(tables: Sequence[Floats], deviation: float, seed: int) -> Floats:
    """Run DP-SGD with steps 1/sqrt(t); `deviation`: of the noise, in units of the sensitivity 2 L/b."""
    rng, model = np.random.default_rng(seed), np.zeros(FEATURES + 1)
    scale = deviation * 2 * math.sqrt(2) / BATCH
    for number, (node, chosen) in enumerate(capped_batches(rng, len(tables), len(tables[0])), 1):
        x, y = np.c_[tables[node][chosen, :-1], np.ones(BATCH)], tables[node][chosen, -1]
        slope = (0.5 * (1 + np.tanh(x @ model / 2)) - y) @ x / BATCH
        model = model - (slope + rng.normal(0, scale, len(model))) / math.sqrt(number)
    return model


def learner_of(epsilon: float | None, delta: float, rounds: int, **more: Any) -> LocalGlobal:
    """Return the product's learner."""
    budget = {} if epsilon is None else {"epsilon": epsilon, "delta": delta}
    given: dict[str, Any] = {"rate": RATE, "values": "local", **budget, **more}
    return LocalGlobal(features=FEATURES, rounds=rounds, batch=BATCH, record_bound=1.0, **given)


def _methods(epsilon: float, delta: float, rounds: int) -> dict[str, tuple[bool, LocalGlobal | float]]:
    """Return, by name, whether a method protects a record, and the learner or the noise."""
    part = {"policy": "threshold", "threshold": THRESHOLD, "policy_epsilon": POLICY_PART * epsilon}
    classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon * gaussian_mu(epsilon, delta)
    naive, composed = naive_deviation(epsilon, delta), composed_deviation(epsilon, delta)
    return {
        "global": (True, learner_of(epsilon, delta, rounds)),
        "half global": (True, learner_of(epsilon, delta, rounds, chance=0.5)),
        "threshold": (True, learner_of(epsilon, delta, rounds, **part)),
        # The classical bound has that much more noise than it takes: as much as a smaller epsilon.
        "global, classical": (classical >= 1, learner_of(epsilon / classical, delta, rounds)),
        "with replacement": (True, composed),
        "with replacement, as published": (naive >= composed, naive),
    }


def without_replacement(
    table: Floats | None = None,
    *,
    epsilons: Sequence[float] = EPSILONS,
    nodes: Sequence[int] = NODES,
    each: int = EACH,
    runs: int = 5,
    seed: int = 1,
    progress: Progress | None = None,
) -> WithoutReplacement:
    """Measure accuracy by epsilon at ten nodes, and by the number of nodes at epsilon 1.

    `table`: Covertype as of `read_covertype`; None: the stand-in. Raises ConfigError.
    """
    refuse(within("each", each, BATCH, 100_000), within("runs", runs, 1, 100))
    began, rounds = time.perf_counter(), each // BATCH
    plan = [(10, epsilon) for epsilon in epsilons] + [(count, 1.0) for count in nodes if count != 10]
    measured: dict[tuple[str, int, float | None, bool], list[float]] = {}
    count = Steps(progress, "settings", len(plan) * runs)
    for many, epsilon in plan:
        for run in range(runs):
            tables, test = _shards(table, many, each, seed + run)
            methods = _methods(epsilon, (many * each) ** -2.0, rounds)
            if (many, epsilon) in ((10, epsilons[0]), (many, 1.0)):
                methods["noiseless"] = (False, learner_of(None, 0.5, rounds))
            for name, (protected, how) in methods.items():
                key = (name, many, None if name == "noiseless" else epsilon, protected)
                measured.setdefault(key, []).append(_accuracy(tables, test, how, seed + run))
            count()
    points = [
        Point(
            method=method,
            nodes=many,
            epsilon=epsilon,
            protected=protected,
            accuracy=float(np.mean(values)),
            deviation=float(np.std(values)),
        )
        for (method, many, epsilon, protected), values in measured.items()
    ]
    took = time.perf_counter() - began
    name = STAND_IN if table is None else "Covertype, class 2 against the others"
    return WithoutReplacement(points=tuple(points), data=name, each=each, runs=runs, seed=seed, seconds=took)


def _shards(table: Floats | None, nodes: int, each: int, seed: int) -> tuple[list[Floats], Floats]:
    """Return disjoint tables of the nodes, and a test table, whose centre and width are public."""
    needed = nodes * each + TESTED
    if table is None:
        drawn = synthetic_covertype(needed, seed)
    else:
        refuse(within("nodes times each", needed, 1, len(table)))
        drawn = table[np.random.default_rng(seed).permutation(len(table))[:needed]]
    rows = bound_features(scaled(drawn, drawn[-TESTED:]), 1.0)
    return [rows[node * each : (node + 1) * each] for node in range(nodes)], rows[-TESTED:]


def _accuracy(tables: list[Floats], test: Floats, how: LocalGlobal | float, seed: int) -> float:
    if isinstance(how, float):
        models = with_replacement(tables, how, seed)[None]
    else:
        # Not by `simulate.learn`: a node alone has nobody to send to.
        context = LearnerContext(
            exchange=PlainExchange(len(tables)), source=NoiseSource.keyed(bytes(32), seed.to_bytes(8, "big"))
        )
        models = asyncio.run(how.run(context, tables)).values
    return float(np.mean([Model("logistic", FEATURES).accuracy(model, test) for model in models]))


def plot(result: WithoutReplacement, path: Path) -> None:
    """Write accuracy against epsilon at ten nodes, and against the nodes at epsilon 1."""

    def panel(by: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for index, method in enumerate(dict.fromkeys(point.method for point in result.points)):
                of = [p for p in result.points if p.method == method and (p.nodes == 10 or by == "nodes")]
                if by == "nodes":
                    of = sorted((p for p in of if p.epsilon in (1.0, None)), key=lambda p: p.nodes)
                elif of[0].epsilon is None:
                    axes.axhline(of[0].accuracy, linestyle="--", color="grey", label=method)
                    continue
                positions = [p.nodes if by == "nodes" else (p.epsilon or 0.0) for p in of]
                style = "o-" if all(p.protected or p.epsilon is None for p in of) else "s:"
                axes.plot(positions, [p.accuracy for p in of], style, color=f"C{index}", label=method)
            axes.set(xlabel=by, ylabel="test accuracy", xscale="log")
            finish_axes(axes, "ten nodes" if by == "epsilon" else "epsilon = 1", fontsize=7)

        return draw

    write_plot(path, (11, 4.5), panel("epsilon"), panel("nodes"), title=result.data)
