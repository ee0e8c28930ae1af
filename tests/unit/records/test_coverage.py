"""How often intervals contain the truth, over repeated releases of the same tables. Seeds are fixed.

The share of 2,000 intervals of level 0.95 has a standard error of 0.49 %. So an exact interval misses 95 % by
1.5 % with a chance of 0.2 % an answer, and is below 93.5 % with one of 0.1 %. Of 100 it has one of 2.2 %: the
thinned series allows three of them on both sides. docs/proofs/records.md has the shares.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.kernels import Field, gini_mean_difference, kendall_tau
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.capabilities.reports.local_auc import LocalAuc
from smpc_dp.capabilities.reports.local_estimate import LocalEstimate
from smpc_dp.engine.registry import checker_of
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.effects import RATIO
from smpc_dp.records.effects_answers import effects as effects_of
from smpc_dp.records.fit import plan_fit
from smpc_dp.records.fit_answers import fitted
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import read_table
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.unit.records import test_effects, test_fit, test_heterogeneity, test_survival
from tests.unit.records.test_release import ASK, SCHEMA, Columns, contains, hospitals, pooled, truth_of
from tests.unit.reports.test_statistics_local_auc import auc_of

THINNED = 100
FULL = 2000
PARTIES = 10
AGE = {"age": {"lower": 0.0, "upper": 100.0, "step": 1.0}}
TABLES = hospitals(7, np.random.default_rng(8).integers(200, 2000, PARTIES))

Noise = Callable[[NoiseSource, int], NDArray[np.int64]]


@dataclass
class Case:
    """Releases of one request over the same tables: the noise of a party, the answers, and what is true.

    `linear`: the beginnings of the names of answers whose level is exact. Local reports have no sum: there
    `exact` is 0, and `noise` draws all reports.
    """

    length: int
    exact: NDArray[np.int64]
    noise: Noise
    answers: Callable[[NDArray[np.int64]], Iterable[Estimate]]
    truth: Callable[[Estimate], float]
    parties: int
    linear: tuple[str, ...] = ()


def of_rows(
    schema: Schema,
    plan: Plan,
    tables: list[Columns],
    truth: Callable[[Estimate], float],
    linear: tuple[str, ...] = (),
    noise: Noise | None = None,
    hide: float = 0.0,
) -> Case:
    read = [read_table(table, schema) for table in tables]
    rows = sum(table.rows for table in read) if schema.rows == "public" else None
    parties = len(tables)
    return Case(
        plan.length,
        np.sum([plan.vector(table) for table in read], axis=0),
        noise or plan.mechanism.share.noise,
        lambda total: estimate(plan, total, parties, rows=rows, hide=hide).estimates,
        truth,
        parties,
        linear,
    )


def planned(schema: Schema, asked: list[str], parties: int, **more: Any) -> Plan:
    given = {"epsilon": 1.0, "delta": 1e-6, "missing": 1, "corrupt": 1} | more
    return plan_request(schema, asked, parties=parties, **given)


def of_hospital(one: Estimate) -> float:
    """Return the value of an estimate of the pooled rows of `TABLES`, also within wards and bins."""
    rows = pooled(TABLES)
    if "age" in one.cell and "ward" not in one.cell:
        low, high = map(float, one.cell["age"].strip("[])").split(", "))
        top = rows["age"] <= high if one.cell["age"].endswith("]") else rows["age"] < high
        return float(np.sum((rows["age"] >= low) & top))
    if "ward" in one.cell and "age" not in one.cell:
        values = rows["bmi"][rows["ward"] == one.cell["ward"]]
        return float(
            {"mean": values.mean(), "variance": values.var(), "count": len(values)}[one.name.split("(")[0]]
        )
    if one.name.startswith("sum"):
        return float(rows["bmi"].sum())
    if one.name.startswith("covariance"):
        first, second = one.name[len("covariance(") : -1].split(", ")
        return float(np.cov(rows[first], rows[second], bias=True)[0, 1])
    return truth_of(one, rows)


def all_kinds(rows: str) -> Case:
    schema = read_schema({**SCHEMA, "rows": rows})
    plan = planned(schema, [*ASK, "sum(bmi)", "covariance(bmi, pressure)"], PARTIES)
    exact_count = ("count",) if rows == "private" else ("count [",)
    return of_rows(schema, plan, TABLES, of_hospital, (*exact_count, "sum", "mean"))


def moments(rows: str) -> Case:
    """Variances, covariances and a correlation with Laplace shares."""
    return with_laplace(rows, ["variance(age)", "covariance(age, pressure)", "correlation(age, pressure)"])


def regression(rows: str) -> Case:
    """A regression and a variance with Laplace shares, at an epsilon at which so many sums have them."""
    return with_laplace(rows, ["regression(pressure ~ age + bmi)", "variance(age)"], epsilon=4.0)


def with_laplace(rows: str, asked: list[str], **more: Any) -> Case:
    schema = read_schema({**SCHEMA, "rows": rows})
    plan = planned(schema, asked, PARTIES, laplace=True, split="balanced", **more)
    assert len(plan.laplace_blocks) == len(plan.blocks)
    return of_rows(schema, plan, TABLES, of_hospital)


def groups(rows: str) -> Case:
    schema = read_schema({**SCHEMA, "rows": rows})
    asked = ["mean(bmi) by ward", "variance(bmi) by ward", "histogram(age, 6)", "count by ward"]
    return of_rows(schema, planned(schema, asked, PARTIES), TABLES, of_hospital, ("count", "mean"))


def one_table(rows: str) -> Case:
    """Discrete Laplace shares."""
    schema = read_schema({**SCHEMA, "rows": rows})
    plan = planned(schema, ["age x ward"], PARTIES, laplace=True)
    assert plan.laplace is not None
    return of_rows(schema, plan, TABLES, of_hospital, ("count",))


def overlapping(rows: str) -> Case:
    """Tables that agree: no row of `TABLES` lacks a ward or an age."""
    columns: dict[str, Any] = {
        "age": {**SCHEMA["columns"]["age"], "missing": False},  # type: ignore[index]
        "ward": {"values": ["a", "b", "c", "d", "e"], "other": "e", "missing": False},
    }
    schema = read_schema({"columns": columns, "max_rows": 4000, "rows": rows})
    plan = planned(schema, ["count", "ward", "age", "age x ward"], PARTIES, laplace=True)

    def truth(one: Estimate) -> float:
        if [*one.cell] == ["ward"]:
            return float((pooled(TABLES)["ward"] == one.cell["ward"]).sum())
        return of_hospital(one)

    case = of_rows(schema, plan, TABLES, truth)
    # of all wards one
    return replace(
        case,
        answers=lambda total: [one for one in case.answers(total) if one.cell.get("ward", "a") == "a"],
    )


def thresholds(law: str) -> Case:
    """Groups of 0 to 40 rows, of which those within the noise are not shown: over all releases."""
    sizes = {"a": 0, "b": 5, "c": 12, "d": 16, "e": 40}
    schema = read_schema({"columns": {**AGE, "ward": {"values": list(sizes)}}, "max_rows": 500})
    source = np.random.default_rng(9)
    ages = {ward: np.round(source.uniform(20, 60, rows)) for ward, rows in sizes.items()}
    wards = [ward for ward, rows in sizes.items() for _ in range(rows)]
    table = {"age": np.concatenate([*ages.values()]), "ward": np.array(wards)}
    empty = {name: column[:0] for name, column in table.items()}
    asked = ["ward"] if law == "laplace" else ["ward", "mean(age) by ward", "variance(age) by ward"]
    of_law: dict[str, Any] = {"laplace": True} if law == "laplace" else {"epsilon": 4.0}
    plan = planned(schema, asked, 3, missing=0, corrupt=0, **of_law)
    assert (plan.laplace is not None) == (law == "laplace")

    def truth(one: Estimate) -> float:
        values = ages[one.cell["ward"]]
        if one.name == "count" or not len(values):
            # of no rows any mean is right
            return float(len(values)) if one.name == "count" else one.low or 0.0
        return float({"mean": values.mean(), "variance": values.var()}[one.name.split("(")[0]])

    return of_rows(schema, plan, [table, empty, empty], truth, hide=3.0)


def reports(which: str) -> Case:
    """Local reports of records that are drawn anew each time: U-statistics of few parties, and of many."""
    parties = 10 if which == "few" else 200
    kernel = gini_mean_difference(Field(0, 1, 0.001))
    plan = LocalPairwise.plan(kernel, 8.0 if which == "few" else 2.0, parties=parties, rounding="randomised")
    rng, seeded = np.random.default_rng(5), SeededRandomnessForSimulation(7, which)
    known = rng.beta(2, 3, 4000)
    mean = float(np.abs(np.subtract.outer(known[:2000], known[2000:])).mean())

    def noise(_: NoiseSource, count: int) -> NDArray[np.int64]:
        return plan.randomise_many(rng.beta(2, 3, count), seeded).astype(np.int64)

    def answers(drawn: NDArray[np.int64]) -> list[Estimate]:
        return [of_reports(plan.estimate(drawn))]

    return Case(parties, np.zeros(parties, dtype=np.int64), noise, answers, lambda _: mean, 1)


def taus(which: str) -> Case:
    """Kendall's tau of two ratings from 1,000 local reports; of ratings, or of three bins of them."""
    rating, rng = Field(0, 5, exact=True), np.random.default_rng(9)
    plan = LocalPairwise.plan(kendall_tau(rating, rating), 3.0, bins=3 if which == "bins" else None)
    seeded = SeededRandomnessForSimulation(7, which)
    first = rng.binomial(5, 0.5, 4000)
    known = np.column_stack([first, np.where(rng.random(4000) < 0.5, first, rng.integers(0, 6, 4000))])
    seen = known // 2 if which == "bins" else known
    levels = 1 + int(seen.max())
    shares = np.bincount(levels * seen[:, 0] + seen[:, 1], minlength=levels**2) / len(seen)
    low, high = np.divmod(np.arange(levels**2), levels)
    signs = np.sign(np.subtract.outer(low, low) * np.subtract.outer(high, high))
    tau = float(shares @ signs @ shares)

    def noise(_: NoiseSource, count: int) -> NDArray[np.int64]:
        return plan.randomise_many(known[rng.integers(0, 4000, count)], seeded).astype(np.int64)

    def answers(drawn: NDArray[np.int64]) -> list[Estimate]:
        return [of_reports(plan.estimate(drawn))]

    return Case(1000, np.zeros(1000, dtype=np.int64), noise, answers, lambda _: tau, 1)


def trees(which: str) -> Case:
    """The hierarchical AUC of the same scores; `which`: whether nodes below a threshold are left out."""
    rng = np.random.default_rng(6)
    labels = np.arange(3000) % 2
    scores = np.clip(rng.binomial(15, 0.4, 3000) + 2 * labels, 0, 15)
    plan = LocalAuc.plan(Field(0, 15), 4.0, levels=4, coins=bytes(32))
    seeded = SeededRandomnessForSimulation(7, which)

    def noise(_: NoiseSource, count: int) -> NDArray[np.int64]:
        del count
        return plan.randomise_many(scores, randomness=seeded).astype(np.int64)[:, 0]

    def answers(drawn: NDArray[np.int64]) -> list[Estimate]:
        return [
            of_reports(plan.estimate(drawn[:, None], labels, threshold=None if which == "threshold" else 0.0))
        ]

    auc = auc_of(scores, labels, 0.5)
    return Case(len(scores), np.zeros(len(scores), dtype=np.int64), noise, answers, lambda _: auc, 1)


def of_reports(made: LocalEstimate) -> Estimate:
    low, high = made.interval
    return Estimate(
        statistic=made.statistic,
        name=made.statistic,
        cell={},
        value=made.value,
        low=low,
        high=high,
        standard_error=made.standard_error,
        sampling_error=None,
        unit="",
    )


def curves(law: str) -> Case:
    """Kaplan-Meier curves and the log-rank difference; its z has no interval."""
    table = test_survival.trial(2, 4000)
    known = test_survival.textbook(table)
    names = iter([f"{arm} {index}" for arm in ("old", "new") for index in range(5)])
    kept: dict[str, str] = {}

    def truth(one: Estimate) -> float:
        label = f"{one.name} {one.cell}"
        if label not in kept:
            kept[label] = "difference" if one.statistic.startswith("logrank") else next(names)
        return known[kept[label]]

    schema = test_survival.SCHEMA
    of_law: dict[str, Any] = {"laplace": True, "split": "balanced"} if law == "laplace" else {}
    plan = planned(schema, test_survival.ASK, 3, missing=0, **of_law)
    assert (plan.laplace is not None) == (law == "laplace")
    return Case(
        plan.length,
        plan.vector(read_table(table, schema)),
        plan.mechanism.share.noise,
        lambda total: [
            one for one in estimate(plan, total, 3).estimates if one.name.startswith(("survival", "observed"))
        ],
        truth,
        3,
    )


def sites(rows: str) -> Case:
    """Q and I² of five sites."""
    schema, tables = test_heterogeneity.schema(rows), test_heterogeneity.sites(0.05)
    q, share = test_heterogeneity.textbook(tables)
    plan = planned(schema, ["heterogeneity(v)"], 5, epsilon=2.0, missing=0)
    columns: list[Columns] = [{"v": table} for table in tables]
    return of_rows(schema, plan, columns, lambda one: q if one.name.startswith("Q") else share)


def effects(which: str) -> Case:
    """Both requests of random effects over ten sites: the second at a ratio of 1/8."""
    plan, truth = test_effects.planned("private", 1.0), test_effects.textbook(test_effects.sites())
    schema = read_schema(test_effects.settings())
    if which == "second":
        plan = replace(plan, ratio=RATIO // 8)
        sizes = np.array(test_effects.SIZES)
        weights = sizes / (1 + np.maximum(sizes, plan.statistic.least) / 8)
        means = np.array([table.mean() for table in test_effects.sites()])
        truth = {test_effects.NAMES[-1]: float((weights * means).sum() / weights.sum())}
    read = [read_table({"v": table}, schema) for table in test_effects.sites()]
    return Case(
        plan.length,
        np.sum([plan.vector(table) for table in read], axis=0),
        plan.mechanism.share.noise,
        lambda total: effects_of(plan, total, len(read)).estimates,
        lambda one: truth[one.name],
        len(read),
        ("fixed", "random"),
    )


def fit(response: str) -> Case:
    """The last of five private steps, given the noise of those before; `test_fit.py` draws that of all."""
    tables = [test_fit.hospital(seed, 20_000) for seed in (1, 2)]
    schema = read_schema(test_fit.SCHEMA)
    truth = test_fit.reference(test_fit.pooled(tables), response)
    plan = plan_fit(schema, test_fit.FITS[response], steps=5, budget=(4.0, 1e-6), parties=2)
    read = [read_table(table, schema) for table in tables]
    source = NoiseSource.keyed(b"s" * 32, response.encode())
    for _ in range(4):
        noise = plan.mechanism.share.noise(source, 2 * plan.length).reshape(2, -1).sum(axis=0)
        plan = plan.following(fitted(plan, sum(plan.vector(table) for table in read) + noise, range(2)))
    names = ["intercept", "slope of age", "slope of dose"]
    return Case(
        plan.length,
        np.sum([plan.vector(table) for table in read], axis=0),
        plan.mechanism.share.noise,
        lambda total: fitted(plan, total, range(2)).estimates,
        lambda one: truth[names.index(one.name)],
        2,
    )


def verifiable(rows: str) -> Case:
    """Coin flips on a coarse grid."""
    given = {
        "records": {**SCHEMA, "rows": rows},
        "ask": ["count", "mean(age)", "count by ward"],
        "verifiable": True,
    }
    checked, issues = checker_of("gopa", 4)({**given, "epsilon": 1.0, "delta": 1e-6}, PARTIES)
    assert checked is not None, issues
    parameters: Any = checked
    schema = read_schema({**SCHEMA, "rows": rows})
    return of_rows(schema, parameters.request, TABLES, of_hospital, noise=parameters.own_noise)


CASES: dict[str, tuple[Callable[[str], Case], str]] = {
    "all kinds, rows private": (all_kinds, "private"),
    "all kinds, rows public": (all_kinds, "public"),
    "moments, Laplace shares, rows private": (moments, "private"),
    "moments, Laplace shares, rows public": (moments, "public"),
    "a regression, Laplace shares, rows private": (regression, "private"),
    "a regression, Laplace shares, rows public": (regression, "public"),
    "groups and histogram, rows private": (groups, "private"),
    "groups and histogram, rows public": (groups, "public"),
    "one table, Laplace shares": (one_table, "private"),
    "reconciled counts, rows private": (overlapping, "private"),
    "reconciled counts, rows public": (overlapping, "public"),
    "Kaplan-Meier, log-rank": (curves, "gaussian"),
    "Kaplan-Meier, log-rank, Laplace shares": (curves, "laplace"),
    "heterogeneity, rows private": (sites, "private"),
    "heterogeneity, rows public": (sites, "public"),
    "random effects, first request": (effects, "first"),
    "random effects, second request": (effects, "second"),
    "logistic regression": (fit, "ill"),
    "Poisson regression": (fit, "visits"),
    "verifiable, coin flips": (verifiable, "private"),
    "cells and groups at the threshold": (thresholds, "gaussian"),
    "cells at the threshold, Laplace shares": (thresholds, "laplace"),
    "local reports, few parties": (reports, "few"),
    "local reports, many parties": (reports, "many"),
    "local reports, Kendall's tau": (taus, "grid"),
    "local reports, Kendall's tau of bins": (taus, "bins"),
    "local reports, AUC of all nodes": (trees, "all"),
    "local reports, AUC of nodes above the threshold": (trees, "threshold"),
}


def coverage(name: str, repetitions: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return how often each interval contains the truth: of linear answers, and of others."""
    make, argument = CASES[name]
    case = make(argument)
    source = NoiseSource.keyed(hashlib.sha256(name.encode()).digest(), b"coverage")
    inside: Counter[str] = Counter()
    released: Counter[str] = Counter()
    truth: dict[str, float] = {}
    for _ in range(repetitions):
        noise = case.noise(source, case.parties * case.length).reshape(case.parties, -1).sum(axis=0)
        for one in case.answers(case.exact + noise):
            label = f"{one.name} {sorted(one.cell.items())}" if one.cell else one.name
            if label not in truth:
                truth[label] = case.truth(one)
            released[label] += 1
            inside[label] += contains(one, truth[label])
    assert set(released.values()) == {repetitions}
    shares = {label: inside[label] / repetitions for label in released}
    linear = {label: share for label, share in shares.items() if label.startswith(case.linear or ("?",))}
    return linear, {label: share for label, share in shares.items() if label not in linear}


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", CASES)
def test_intervals_are_near_their_level(name: str) -> None:
    """A false alarm an answer: 0.15 %, of a binomial number of 100 with the level 0.95 that is below 88."""
    linear, others = coverage(name, THINNED)
    assert all(abs(share - 0.95) <= 0.075 for share in linear.values()), linear
    assert min(others.values(), default=1.0) >= 0.875, others


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_intervals_have_their_level(name: str) -> None:
    linear, others = coverage(name, FULL)
    assert all(abs(share - 0.95) <= 0.015 for share in linear.values()), linear
    assert min(others.values(), default=1.0) >= 0.935, others
