"""Personalised models with a learned graph on tables of parties, linear and boosted [Bellet 2021, Table 2.1].

Its data (smartphone activities, vehicle sensors, computer buyers, schools) are read from a given file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from smpc_dp import simulate
from smpc_dp.capabilities.learn.boosting import PersonalizedBoosting
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench.accuracies import Measured
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.linear_tasks import logistic
from smpc_dp_lab.bench.moons_tasks import boosted
from smpc_dp_lab.bench.party_rows import SYNTHETIC, Floats, split, synthetic_parties
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STUMPS, BETA, LOSS_BOUND, RIDGE = 10, 10.0, 4.0, 0.1
# Tuned on other seeds of the stand-in. Updates of a party on average; ticks between two graphs.
UPDATES, EVERY = 50, 100
LINEAR = {"coupling": 0.1, "ridge": RIDGE}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Test accuracy, mean of the parties; deviation: over the splits."""

    method: str
    accuracy: float
    deviation: float


class PartyTables(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `party_tables`: a point for each method, and sizes of the data."""

    points: tuple[Point, ...]
    data: str
    parties: int
    records: int
    problems: int
    seed: int
    seconds: float


def linear(table: Floats) -> Floats:
    """Return the logistic model of a table with the penalty RIDGE |theta|^2 / m, the intercept last."""
    return logistic(np.c_[table[:, :-1], np.ones(len(table))], 2 * table[:, -1] - 1, RIDGE)


def _models(given: list[Floats], seed: int) -> Iterator[tuple[str, Floats]]:
    """Yield each of six methods by name, with the parties' models that it learns."""
    parties, features = len(given), given[0].shape[1] - 1
    common = {"features": features, "sizes": [len(table) for table in given], "seed": 1 + seed}

    def learned(kind: str, updates: int, graph: dict[str, Any], **more: Any) -> Floats:
        drawn = {"steps": 2_000, "peers": min(5, parties - 1)} | graph
        settings = common | {"learner": kind, "ticks": updates * parties, "graph": drawn} | more
        return simulate.learn(settings, given, fidelity="plain").values

    yield "GLOBAL-LINEAR", np.tile(linear(np.concatenate(given)), (parties, 1))
    yield "LOCAL-LINEAR", np.array([linear(table) for table in given])
    bound = max(float(np.linalg.norm(table[:, :-1], axis=1).max()) for table in given)
    slow = {"alone": UPDATES * parties, "every": 10 * EVERY, "density": 3.0, "loss_bound": LOSS_BOUND}
    perso = learned("personalized", 2 * UPDATES, slow, record_bound=bound, **LINEAR)
    yield "PERSO-LINEAR-LEARNED", perso
    margins = [_stumps(features).margins(table) for table in given]
    yield "GLOBAL-BOOST", np.tile(boosted(np.concatenate(margins), BETA, 200), (parties, 1))
    yield "LOCAL-BOOST", np.array([boosted(table, BETA, UPDATES) for table in margins])
    fast = {"alone": 10 * parties, "every": EVERY, "density": 0.3}
    yield "PERSO-BOOST-LEARNED", learned("personalized-boosting", UPDATES, fast, beta=BETA, stumps=STUMPS)


def _stumps(features: int) -> PersonalizedBoosting:
    return PersonalizedBoosting(features=features, sizes=(1, 1), ticks=2, beta=BETA, stumps=STUMPS)


def _right(method: str, test: Floats, model: Floats) -> float:
    """Return the fraction of a test table's labels that a model predicts correctly."""
    if method.partition("-")[2].startswith("BOOST"):
        return float((_stumps(test.shape[1] - 1).margins(test) @ model > 0).mean())
    return float(((np.c_[test[:, :-1], np.ones(len(test))] @ model > 0) == test[:, -1]).mean())


def _accuracies(table: Floats, drawn: int, seed: int) -> list[tuple[str, float]]:
    """Return (method, mean accuracy over the parties) of all methods on one random split."""
    given, tests = split(table, drawn)
    return [
        (method, float(np.mean([_right(method, *of) for of in zip(tests, models, strict=True)])))
        for method, models in _models(given, seed)
    ]


def party_tables(
    table: Floats | None = None,
    *,
    data: str = SYNTHETIC,
    problems: int = 3,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> PartyTables:
    """Measure test accuracies over random splits; `table` as of `read_parties`, None: a synthetic one."""
    refuse(within("problems", problems, 1, 100))
    began, measured, count = time.perf_counter(), Measured(), Steps(progress, "splits", problems)
    given_table = synthetic_parties(seed) if table is None else table
    calls = [(given_table, 1_000 * seed + number, number) for number in range(problems)]
    for accuracies in run_shards(executor, _accuracies, calls, "split"):
        for method, accuracy in accuracies:
            measured.add(accuracy, method=method)
        count()
    return PartyTables(
        points=measured.points(Point),
        data=data,
        parties=len(np.unique(given_table[:, 0])),
        records=len(given_table),
        problems=problems,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def plot(result: PartyTables, path: Path) -> None:
    """Plot the methods' test accuracies as horizontal bars with error bars."""
    points = result.points

    def draw(axes: Axes) -> None:
        names = [point.method for point in points]
        errors = [point.deviation for point in points]
        axes.barh(names, [point.accuracy for point in points], xerr=errors)
        axes.invert_yaxis()
        axes.set(xlabel="test accuracy", xlim=(0.5, 1.0))
        finish_axes(axes, result.data)

    write_plot(path, (7.0, 3.6), draw)
