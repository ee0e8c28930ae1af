"""Coverage of intervals of all answers that may have Laplace noise: of the noise alone, and with sampling.

The exact answers are those of the same sums without noise, which other tests compare with libraries. Samples
are drawn with replacement from 40,000 rows, whose answers are the population's. `test_laplace_moments.py` has
the other intervals of noise and sampling. Seeds are fixed.
"""

from __future__ import annotations

import functools
import math
from collections import Counter

import numpy as np
import pytest

from smpc_dp.records.noisy import laplace_distribution
from smpc_dp.records.result import Estimate
from tests.unit.records.resampled import Population, Release
from tests.unit.records.test_comparisons import ALMOST_NONE, schema_of, survivors
from tests.unit.records.test_laplace_moments import people

FEW, ALL, SIZE = 40, 40_000, 1500
LAPLACE = laplace_distribution(1.0)
# What is asked together, and the noise of a count, in rows.
CASES: dict[str, tuple[str, float]] = {
    "means": ("mean(x); variance(x)", 4.0),
    "means of groups": ("mean(x) by arm; variance(x) by arm", 4.0),
    "covariances": ("covariance(x, y)", 4.0),
    "correlation": ("correlation(x, y)", 1.5),
    "regression": ("regression(y ~ x)", 4.0),
    "regression with categories": ("regression(y ~ x + arm)", 4.0),
    "difference": ("difference(x) by arm", 10.0),
    "survival": ("survival(time, event)", 3.0),
    "log-rank": ("logrank(time, event) by arm", 3.0),
    "Cox": ("cox(time, event ~ arm)", 2.0),
}
# Those whose intervals of noise and sampling no other test with Laplace noise has.
SAMPLED = ("means", "means of groups", "survival", "log-rank", "Cox")
# Releases of the long tests: of answers that are solved for step by step fewer than of the others.
MANY = dict.fromkeys(CASES, 2000) | {"means": 10_000, "difference": 10_000, "Cox": 1000}
# The beginnings of names whose interval of the noise has exactly its level; all others at least.
EXACT = ("mean(",)
# Those that compare hazards, of which none differs; and those whose interval of both has the edges of bins:
# at least its level.
OF_HAZARDS, OF_EDGES = ("observed", "log hazard"), ("median",)


@functools.cache
def population(of_times: bool) -> Population:
    rng = np.random.default_rng(61)
    rows = survivors(rng, ALL) if of_times else people(rng, ALL)
    names = tuple(rows)
    # of times and events the groups are independent: no hazard differs
    return Population.of(rows, schema_of(names), (("time", "event") if of_times else names,))


def of_name(name: str) -> tuple[Population, Release, Release]:
    """Return the population of a case, and releases without and with noise."""
    text, noise = CASES[name]
    known = population("time" in text)
    schema = known.table.schema
    return known, Release(text, schema, ALMOST_NONE), Release(text, schema, noise, LAPLACE)


def label(one: Estimate) -> str:
    return f"{one.name} {sorted(one.cell.items())}" if one.cell else one.name


def missed_by_noise(name: str, releases: int) -> dict[str, float]:
    """Return how often the interval of the noise misses the answer of a sample, by its name."""
    known, exact, release = of_name(name)
    rng = np.random.default_rng(67)
    sums = exact.sums(known.draw(rng, SIZE))
    truth = {label(one): one.value for one in exact.exact(sums)}
    outside: Counter[str] = Counter()
    for _ in range(releases):
        for one in release.answers(sums, rng):
            outside[label(one)] += not _has(one.low, one.high, truth[label(one)])
    return {each: outside[each] / releases for each, value in truth.items() if "z," not in each}


def missed(name: str, releases: int) -> dict[str, float]:
    """Return how often the interval of noise and sampling misses the population's answer, by its name."""
    known, exact, release = of_name(name)
    made = exact.exact(exact.sums(known.table))
    truth = {label(one): 0.0 if one.name.startswith(OF_HAZARDS) else one.value for one in made}
    rng, outside = np.random.default_rng(71), Counter[str]()
    for _ in range(releases):
        for one in release.answers(exact.sums(known.draw(rng, SIZE)), rng):
            if "z," not in one.name:
                assert (one.population_low, one.population_high) != (None, None), one
                outside[label(one)] += not _has(one.population_low, one.population_high, truth[label(one)])
    return {each: outside[each] / releases for each in truth if "z," not in each}


def _has(low: float | None, high: float | None, value: float | None) -> bool:
    return value is None or ((low is None or low <= value) and (high is None or value <= high))


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", CASES)
def test_intervals_seldom_miss(name: str) -> None:
    """Of 40 intervals of level .95 nine or more miss with a chance of 1.6e-4 for each number."""
    assert max(missed_by_noise(name, FEW).values()) <= 8 / FEW
    if name in SAMPLED:
        assert max(missed(name, FEW).values()) <= 8 / FEW


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_intervals_of_laplace_noise_have_their_level(name: str) -> None:
    """Three standard errors of a share: a false alarm of .3 % for each number."""
    apart = 3 * math.sqrt(0.0475 / MANY[name])
    for each, share in missed_by_noise(name, MANY[name]).items():
        assert share <= 0.05 + apart, (each, share)
        assert share >= 0.05 - apart or not each.startswith(EXACT), (each, share)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_intervals_of_noise_and_sampling_have_their_level(name: str) -> None:
    """Three standard errors of a share: a false alarm of .3 % for each number."""
    apart = 3 * math.sqrt(0.0475 / MANY[name])
    for each, share in missed(name, MANY[name]).items():
        assert share <= 0.05 + apart, (each, share)
        assert share >= 0.05 - apart or each.startswith(OF_EDGES), (each, share)
