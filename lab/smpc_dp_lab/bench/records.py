"""Benchmark of statistics of records: errors, coverage and rates of rejection on real tables.

Rows, sums, plans, shares of noise and answers are the product's own. The messages of a session are left out:
its sum is exact, so it has the vectors that are added up here. The shares of all parties are drawn.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.result import Estimate
from smpc_dp.records.sensitivity import l1_sensitivity, sensitivity_of
from smpc_dp.records.table import read_table
from smpc_dp_lab.bench.figures import (
    Figure,
    Peer,
    Progress,
    Report,
    Steps,
    budgets,
    cost,
    rate,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.peer import OpenDpPeer
from smpc_dp_lab.bench.record_studies import LENDING, PARTIES, Study, houses, lending

EPSILONS = (1.0, 3.0)
DELTA = 1e-6
LEVEL = 0.95
REPETITIONS = 10_000
# Releases of the peer, for each answer alone; its error has a Monte Carlo error of 3.2 % with 500.
PEER_RELEASES = 500
# Rows of each draw of the tests, and of tables of small cells.
DRAWN, FEW = 2_000, 100
# Shares of noise drawn at a time.
AT_ONCE = 1 << 22

_ERROR = (
    "root mean square error of an answer, all asked together in ten parts, over all releases and cells; the "
    "peer has the pooled rows, an equal part of epsilon and delta for each answer, its search for the least "
    "scale, and Laplace or Gaussian noise in our sums, by which is less: its quantiles by the exponential "
    "mechanism are not measured"
)
_PEER = "opendp, pooled rows"
_LOCAL = "the same where each party adds the noise of the peer to its own sums, and these are added up"
_POOLED = "the exact answer of the pooled, clipped rows; of several cells their mean"
_COVERED = (
    "part of the 95 % intervals of the noise that contain the exact answer, over all releases and cells; "
    "those of counts and means have this level, those of others at least"
)
_GIVEN = "the same, of the cells that are shown"
_SHOWN = "part of the cells that are shown"
_REJECTED = (
    "part of tests of level .05 that reject where there is no difference: rows and noise are drawn anew for "
    "each; chi-square may reject less often"
)
_SMALL = (
    f"part of the 95 % intervals of the noise that contain the counts of {FEW} rows, drawn anew each time, "
    "over all releases and cells: at least 95 %"
)
_SMALL_SHOWN = "the same, of the cells that are shown: at least 95 %"
_POPULATION = "part of the 95 % intervals of noise and sampling that contain what is true in the population"


@dataclass
class Seen:
    """Accumulated errors, and interval coverage, of all releases of one answer over all cells."""

    squares: list[float] = field(default_factory=list)
    inside: int = 0
    released: int = 0
    inside_shown: int = 0
    exact: dict[str, float] = field(default_factory=dict)
    unit: str = ""

    def add(self, one: Estimate, exact: float) -> None:
        """Add a released estimate: its squared error, and whether its interval has the exact value."""
        contained = _contains(one.low, one.high, exact)
        self.released += 1
        self.inside += contained
        self.unit = one.unit
        self.exact[f"{one.name} {one.cell}"] = exact
        if one.value is not None:
            self.squares.append((one.value - exact) ** 2)
            self.inside_shown += contained

    @property
    def error(self) -> float:
        """The root mean square error of the released numbers; NaN if none was shown."""
        return math.sqrt(math.fsum(self.squares) / len(self.squares)) if self.squares else math.nan

    @property
    def coverage_of_shown(self) -> float:
        """Percent of the intervals of shown numbers that contain the exact one; 0 where none is shown."""
        return 100 * self.inside_shown / max(1, len(self.squares))


def run_records_bench(
    progress: Progress | None = None,
    *,
    houses_file: Path | None = None,
    epsilons: Sequence[float] = EPSILONS,
    repetitions: int = REPETITIONS,
    peer_python: str | None = None,
    seed: int = 0,
) -> Report:
    """Measure errors beside OpenDP and local noise, coverage, and how often tests reject.

    Args:
        progress: called with what is measured, and how many repetitions are done of how many.
        houses_file: California houses, .csv or .csv.gz; None: the loans of the package alone.
        epsilons: of each request, above 0.
        repetitions: releases of each request, 100 or more.
        peer_python: an interpreter that can import `opendp`; None for our own.
        seed: of rows and noise.

    Raises:
        ConfigError: a number is out of range. LocalError: a file or the peer's interpreter cannot be used.
    """
    refuse(within("repetitions", repetitions, 100), budgets(epsilons))
    tables = [lending(LENDING), *([] if houses_file is None else [houses(houses_file)])]
    figures: list[Figure] = []
    with OpenDpPeer(peer_python) as peer:
        for study, epsilon in itertools.product(tables, epsilons):
            case = f"{study.name}, epsilon {epsilon:g}"
            steps = Steps(progress, case, (3 if study.crossed else 2) * repetitions)
            source = NoiseSource.keyed(seed.to_bytes(32, "big"), case.encode())
            figures += _answers(case, study, epsilon, repetitions, peer, source, steps)
            figures += _tests(case, study, epsilon, repetitions, source, seed, steps)
            if study.crossed:
                figures += _small_cells(case, study, epsilon, repetitions, source, seed, steps)
        known = versions("numpy", "scipy", opendp=peer.version)
    given = {
        "epsilons": list(epsilons),
        "delta": DELTA,
        "parties": PARTIES,
        "repetitions": repetitions,
        "peer_releases": min(repetitions, PEER_RELEASES),
        "rows_of_tests": DRAWN,
        "rows_of_small_cells": FEW,
        "seed": seed,
    }
    return Report("records", figures, known, given)


def planned(study: Study, ask: Sequence[str], epsilon: float, delta: float, rows: int) -> Plan:
    """Return the plan of a private request with a balanced split, for ten parties and `rows` rows."""
    return plan_request(
        study.schema(rows),
        list(ask),
        epsilon=epsilon,
        delta=delta,
        parties=PARTIES,
        laplace=True,
        split="balanced",
    )


def shares(plan: Plan, source: NoiseSource, repetitions: int) -> Iterable[NDArray[np.int64]]:
    """Yield `repetitions` noise vectors, each the sum of one share of every party."""
    each = PARTIES * plan.length
    while repetitions > 0:
        many = min(repetitions, max(1, AT_ONCE // each))
        drawn = plan.mechanism.share.noise(source, many * each)
        yield from drawn.reshape(many, PARTIES, plan.length).sum(axis=1)
        repetitions -= many


def _answers(
    case: str,
    study: Study,
    epsilon: float,
    repetitions: int,
    peer: OpenDpPeer,
    source: NoiseSource,
    steps: Steps,
) -> list[Figure]:
    """Release one request many times; return errors and coverage of each of its answers."""
    plan = planned(study, study.ask, epsilon, DELTA, study.size)
    total = _pooled(plan, study)
    seen: dict[str, Seen] = defaultdict(Seen)
    exact: dict[tuple[str, str], float] = {}
    for noise in shares(plan, source, repetitions):
        _release(plan, total + noise, study, seen, exact)
        steps()
    figures, beside = [], _of_peer(study, epsilon, min(repetitions, PEER_RELEASES), peer, exact)
    for text, one in seen.items():
        pooled, local = beside.get(text, ([], []))
        name, unit = f"{case}, {text}", one.unit
        figures += [
            cost(f"{name}: error", unit, [one.error], _ERROR, peer=Peer.of(_PEER, peer.version, pooled)),
            *(cost(f"{name}: local noise", unit, [value], _LOCAL) for value in local),
            cost(f"{name}: pooled value", unit, [float(np.mean([*one.exact.values()]))], _POOLED),
            rate(f"{name}: coverage", "%", [100 * one.inside / one.released], _COVERED),
            rate(f"{name}: coverage of shown", "%", [one.coverage_of_shown], _GIVEN),
            rate(f"{name}: cells shown", "%", [100 * len(one.squares) / one.released], _SHOWN),
        ]
    return figures


def _pooled(plan: Plan, study: Study) -> NDArray[np.int64]:
    vectors = [plan.vector(part) for part in study.parts(plan.schema)]
    return np.asarray(np.sum(vectors, axis=0), dtype=np.int64)


def _release(
    plan: Plan,
    total: NDArray[np.int64],
    study: Study,
    seen: dict[str, Seen],
    exact: dict[tuple[str, str], float],
) -> None:
    """Add the answers of one release, and the exact ones where they are not known yet."""
    for one in estimate(plan, total, PARTIES, level=LEVEL).estimates:
        label = (one.name, repr(one.cell))
        if label not in exact:
            exact[label] = study.exact(one)
        # coefficients have units of their own
        of_its_own = one.name.startswith(("intercept", "slope"))
        seen[f"{one.statistic}, {one.name}" if of_its_own else one.statistic].add(one, exact[label])


def _of_peer(
    study: Study,
    epsilon: float,
    releases: int,
    peer: OpenDpPeer,
    exact: dict[tuple[str, str], float],
) -> dict[str, tuple[list[float], list[float]]]:
    """Return, by answer, errors with OpenDP's noise added once to pooled sums, and added by each party.

    The sums and what is made of them are the product's: the peer has its mechanisms, its search for their
    scale, and an equal part of the budget for each statistic.
    """
    errors: dict[str, tuple[list[float], list[float]]] = {}
    budget = epsilon / len(study.ask), DELTA / len(study.ask)
    for text in study.ask:
        plan = planned(study, [text], *budget, study.size)
        l1, l2 = l1_sensitivity(plan.blocks, plan.schema).l1, sensitivity_of(plan.blocks, plan.schema).l2
        drawn = peer.noise(l1, l2, *budget, plan.length, releases * PARTIES)
        if drawn is None:
            return {}
        total = _pooled(plan, study)
        of_parties = drawn.reshape(releases, PARTIES, plan.length).sum(axis=1)
        for index, noises in enumerate((drawn[:releases], of_parties)):
            seen: dict[str, Seen] = defaultdict(Seen)
            for noise in noises:
                _release(plan, total + noise, study, seen, exact)
            for name, one in seen.items():
                errors.setdefault(name, ([], []))[index].append(one.error)
    return errors


def _tests(
    case: str,
    study: Study,
    epsilon: float,
    repetitions: int,
    source: NoiseSource,
    seed: int,
    steps: Steps,
) -> list[Figure]:
    """Return how often each test rejects, and each interval contains what is true in the population."""
    plan = planned(study, study.tests, epsilon, DELTA, DRAWN)
    rng = np.random.default_rng([seed, round(1000 * epsilon), study.size])
    table = read_table(study.rows, study.schema(study.size))
    rejected: dict[str, list[bool]] = defaultdict(list)
    inside: dict[str, list[bool]] = defaultdict(list)
    for noise in shares(plan, source, repetitions):
        rows = study.resampled(table, rng, DRAWN)
        for one in estimate(plan, plan.vector(rows) + noise, PARTIES, level=LEVEL).estimates:
            name = f"{one.name} [{one.cell}]" if one.cell else one.name
            true = study.population(one)
            if one.p_value is not None:
                rejected[name].append(one.p_value < 1 - LEVEL)
            if true is not None and one.population_low is not None:
                inside[name].append(_contains(one.population_low, one.population_high, true))
        steps()
    return [
        rate(f"{case}, {name}: {quantity}", "%", [100 * float(np.mean(counted))], note)
        for quantity, note, counts in (
            ("tests that reject", _REJECTED, rejected),
            ("coverage of the population", _POPULATION, inside),
        )
        for name, counted in counts.items()
    ]


def _small_cells(
    case: str,
    study: Study,
    epsilon: float,
    repetitions: int,
    source: NoiseSource,
    seed: int,
    steps: Steps,
) -> list[Figure]:
    """Return coverage of counts of a table of few rows, and how often chi-square rejects of tables shown."""
    first, second = study.crossed
    plan = planned(study, (f"{first} x {second}", f"chi_square({first}, {second})"), epsilon, DELTA, FEW)
    rng = np.random.default_rng([seed, round(1000 * epsilon), FEW])
    table, seen, rejected = read_table(study.rows, study.schema(study.size)), Seen(), list[bool]()
    for noise in shares(plan, source, repetitions):
        rows = study.resampled(table, rng, FEW)
        total = plan.vector(rows)
        exact = estimate(plan, total, PARTIES, level=LEVEL, hide=0.0).estimates
        made = estimate(plan, total + noise, PARTIES, level=LEVEL).estimates
        for true, one in zip(exact, made, strict=True):
            if one.name == "count":
                seen.add(one, round(true.value or 0.0))
            elif one.p_value is not None:
                rejected.append(one.p_value < 1 - LEVEL)
        steps()
    cells = f"{case}, small cells of {first} x {second}"
    return [
        rate(f"{cells}: coverage", "%", [100 * seen.inside / seen.released], _SMALL),
        rate(f"{cells}: coverage of shown", "%", [seen.coverage_of_shown], _SMALL_SHOWN),
        rate(f"{cells}: cells shown", "%", [100 * len(seen.squares) / seen.released], _SHOWN),
        rate(
            f"{case}, chi-square of {FEW} rows: tests that reject",
            "%",
            [100 * float(np.mean(rejected))] if rejected else [0.0],
            _REJECTED,
        ),
    ]


def _contains(low: float | None, high: float | None, true: float) -> bool:
    return (low is None or low <= true) and (high is None or true <= high)
