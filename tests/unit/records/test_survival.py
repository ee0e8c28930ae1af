"""Survival curves and log-rank statistics against textbook formulas on the exact counts."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import read_schema
from smpc_dp.records.survival import WIDE_BINS, Hazards, _Errors, _Stratum
from smpc_dp.records.table import read_table

ASK = ["survival(time, event) by arm", "logrank(time, event) by arm"]
EDGES = [2.0, 4.0, 6.0, 8.0]
SCHEMA = read_schema(
    {
        "columns": {
            "time": {"lower": 0.0, "upper": 10.0, "bins": EDGES},
            "event": {"lower": 0.0, "upper": 1.0, "step": 1.0},
            "arm": {"values": ["old", "new"]},
        },
        "max_rows": 20_000,
    }
)


def trial(seed: int, size: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    arm = rng.choice(["old", "new"], size)
    life = rng.exponential(np.where(arm == "old", 6.0, 9.0))
    end = rng.uniform(1, 12, size)
    return {"time": np.minimum(life, end), "event": (life <= end).astype(float), "arm": arm}


def plan(epsilon: float) -> Plan:
    return plan_request(SCHEMA, ASK, epsilon=epsilon, delta=1e-6, parties=3, missing=0, corrupt=1)


def textbook(rows: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Return the curves, and observed less expected events and z of the first arm, counting row by row.

    Curves: (1 - (d + c) / R)^(d / (d + c)) for each bin; who is beyond 10 stays.
    """
    bins = np.where(rows["time"] >= 10, 5, np.searchsorted(EDGES, rows["time"], side="right"))
    result: dict[str, float] = {}
    for arm in ("old", "new"):
        alive = 1.0
        for index in range(5):
            risk = np.sum((rows["arm"] == arm) & (bins >= index))
            gone = np.sum((rows["arm"] == arm) & (bins == index))
            events = np.sum((rows["arm"] == arm) & (bins == index) & (rows["event"] == 1))
            alive *= (1 - gone / risk) ** (events / gone)
            result[f"{arm} {index}"] = alive
    difference = variance = 0.0
    for index in range(5):
        old, there = rows["arm"] == "old", bins >= index
        events = (bins == index) & (rows["event"] == 1)
        n, n1, d = there.sum(), (there & old).sum(), events.sum()
        difference += (events & old).sum() - n1 * d / n
        variance += n1 * (n - n1) * d * (n - d) / (n**2 * (n - 1))
    result["difference"], result["z"] = float(difference), float(difference / math.sqrt(variance))
    return result


def test_without_noise_both_are_the_textbook_formulas() -> None:
    rows = trial(1, 6000)
    planned, truth = plan(100.0), textbook(rows)
    answers = estimate(planned, planned.vector(read_table(rows, SCHEMA)), 3)
    curves = [one.value for one in answers.of(ASK[0]) if one.name == "survival"]
    expected = [truth[f"{arm} {index}"] for arm in ("old", "new") for index in range(5)]
    assert curves == pytest.approx(expected, rel=1e-6)
    difference, z = answers.of(ASK[1])
    assert difference.value == pytest.approx(truth["difference"], rel=1e-6)
    assert z.value == pytest.approx(truth["z"], rel=1e-2)


def curve(rows: dict[str, Any], **columns: dict[str, object]) -> list[Estimate]:
    """Return the curve of rows, all of one arm and with nearly no noise."""
    given: dict[str, dict[str, object]] = {
        "time": {"lower": 0.0, "upper": 10.0, "bins": EDGES},
        "event": {"lower": 0.0, "upper": 1.0, "step": 1.0},
    }
    schema = read_schema(
        {"columns": {key: table | columns.get(key, {}) for key, table in given.items()}, "max_rows": 20_000}
    )
    ask = ["survival(time, event)"]
    planned = plan_request(schema, ask, epsilon=100.0, delta=1e-6, parties=3, missing=0, corrupt=1)
    answers = estimate(planned, planned.vector(read_table(rows, schema)), 3).estimates
    return [one for one in answers if one.name == "survival"]


def test_events_beyond_the_upper_bound_are_none_and_rows_at_it_stay() -> None:
    rows = {
        "time": [1.0] * 500 + [25.0] * 500 + [10.0] * 500 + [9.0] * 500,
        "event": [1] * 1000 + [0] * 500 + [1] * 500,
    }
    values = [one.value for one in curve(rows)]
    assert values == pytest.approx([0.75, 0.75, 0.75, 0.75, 0.5], rel=1e-6)
    # an event at the bound is one
    at_bound = {"time": [10.0] * 1000, "event": [1.0] * 400 + [0.0] * 600}
    assert curve(at_bound)[-1].value == pytest.approx(0.6, rel=1e-6)


@pytest.mark.parametrize("missing", [True, False])
def test_a_row_without_time_or_event_counts_nowhere(missing: bool) -> None:
    rows = {
        "time": [3.0] * 1000 + [7.0] * 1000 + [None] * 500,
        "event": [1.0] * 500 + [None] * 500 + [0] * 1500,
    }
    second = curve(rows, time={"missing": missing}, event={"missing": missing})[1]
    assert second.value == pytest.approx(2 / 3, rel=1e-6)
    assert second.over == pytest.approx(1500, rel=1e-3)


def test_another_value_of_an_indicator_is_missing() -> None:
    read = read_table({"time": [1.0] * 4, "event": [0, 1, 2, 0.5], "arm": ["old"] * 4}, SCHEMA)
    assert read.given["event"].tolist() == [True, True, False, False]
    assert read.dropped.missing == {"event": 2}
    assert read.dropped.clipped == {}


def test_curves_of_constant_hazards_are_consistent_and_their_errors_right() -> None:
    """60 samples of 4,000 rows, four of ten censored within a bin.

    A mean is beyond four of its deviations with a chance of 6e-5, a deviation of 60 samples beyond 35 % of
    the stated one with one of 2e-4: false alarms below 2e-3 together.
    """
    rng, values, stated = np.random.default_rng(8), [], []
    for _ in range(60):
        life, end = rng.exponential(8.0, 4000), rng.exponential(3.0, 4000)
        answers = curve({"time": np.minimum(life, end), "event": (life <= end) * 1.0})
        values.append([one.value or 0.0 for one in answers])
        stated.append([one.sampling_error or 0.0 for one in answers])
    truth = np.exp(-np.array([*EDGES, 10.0]) / 8.0)
    deviations = np.std(values, axis=0)
    assert (np.abs(np.mean(values, axis=0) - truth) < 4 * deviations / math.sqrt(60)).all()
    assert deviations == pytest.approx(np.mean(stated, axis=0), rel=0.35)


def test_a_bin_that_most_leave_is_named() -> None:
    rows = {"time": [1.0] * 3000 + [5.0] * 1000, "event": [0.0] * 2000 + [1.0] * 1000 + [0.0] * 1000}
    assert {one.note for one in curve(rows)[:2]} == {WIDE_BINS}


@pytest.mark.long
@pytest.mark.slow
def test_intervals_have_at_least_their_level() -> None:
    """400 releases; an interval of exactly 95 % is below 91.5 % of them with a chance of 0.1 %."""
    rows = trial(2, 4000)
    planned, truth = plan(1.0), textbook(rows)
    exact = planned.vector(read_table(rows, SCHEMA))
    expected = [truth[f"{arm} {index}"] for arm in ("old", "new") for index in range(5)]
    source = NoiseSource.keyed(hashlib.sha256(b"survival").digest(), b"coverage")
    inside: Counter[str] = Counter()
    for _ in range(400):
        noise = planned.mechanism.share.noise(source, 3 * planned.length).reshape(3, -1).sum(axis=0)
        answers = estimate(planned, exact + noise, 3)
        for one, value in zip(
            [*(each for each in answers.of(ASK[0]) if each.name == "survival"), answers.of(ASK[1])[0]],
            [*expected, truth["difference"]],
            strict=True,
        ):
            assert one.low is not None
            assert one.high is not None
            inside[f"{one.name} {one.cell}"] += one.low <= value <= one.high
    assert len(inside) == 11
    assert min(inside.values()) >= 0.915 * 400, inside


def test_the_noise_of_curves_and_of_the_difference_is_that_of_repeated_releases() -> None:
    """The deviation of 400 releases is within 15 % of the stated one: false alarms below 1e-4 each, of 5."""
    rows = trial(3, 4000)
    planned = plan(1.0)
    exact = planned.vector(read_table(rows, SCHEMA))
    source = NoiseSource.keyed(hashlib.sha256(b"difference").digest(), b"noise")
    values, stated = [], []
    for _ in range(400):
        noise = planned.mechanism.share.noise(source, 3 * planned.length).reshape(3, -1).sum(axis=0)
        answers = estimate(planned, exact + noise, 3)
        chosen = (answers.of(ASK[1])[0], *answers.of(ASK[0])[:4])
        assert all(one.value is not None and one.standard_error is not None for one in chosen)
        values.append([one.value or 0.0 for one in chosen])
        stated.append([one.standard_error or 0.0 for one in chosen])
    assert np.std(values, axis=0) == pytest.approx(np.mean(stated, axis=0), rel=0.15)


def releases(rows: dict[str, NDArray[Any]], label: bytes, count: int) -> list[list[Estimate]]:
    """Return the curve of the first arm, the log-rank difference and z of so many releases at epsilon 1."""
    planned = plan(1.0)
    exact, result = planned.vector(read_table(rows, SCHEMA)), []
    source = NoiseSource.keyed(hashlib.sha256(label).digest(), b"noise")
    for _ in range(count):
        noise = planned.mechanism.share.noise(source, 3 * planned.length).reshape(3, -1).sum(axis=0)
        answers = estimate(planned, exact + noise, 3)
        result.append([*answers.of(ASK[0])[:5], *answers.of(ASK[1])])
    return result


@functools.cache
def without_events() -> list[list[Estimate]]:
    """Return 200 releases of rows without an event."""
    return releases({**trial(4, 4000), "event": np.zeros(4000)}, b"no event", 200)


def test_a_sampling_error_within_its_noise_is_none() -> None:
    """Without an event the variances are 0: above two deviations of noise with a chance of .023 each.

    Of 200 releases more than 16 of one number are, of six, with a chance of 6e-5; the seed is fixed.
    """
    known = [[one.sampling_error is not None for one in each] for each in without_events()]
    assert np.sum(known, axis=0).max() <= 16


def test_a_log_rank_without_an_event_has_a_value_and_its_z_is_normal() -> None:
    """Of 200 normal z the mean is beyond .28, their deviation beyond 20 %, with a chance of 1e-4 each."""
    pairs = [each[-2:] for each in without_events()]
    for difference, z in pairs:
        assert difference.value is not None
        assert difference.standard_error is not None
        assert difference.low is not None
        assert difference.high is not None
        assert difference.low <= difference.value <= difference.high
        assert z.value is not None
        assert difference.note == "the interval of the noise is wider than its level needs"
    z_values = np.array([z.value for _, z in pairs], dtype=np.float64)
    assert abs(z_values.mean()) < 0.28
    assert z_values.std() == pytest.approx(1, rel=0.2)


def test_a_sampling_error_clear_of_its_noise_is_that_without_noise() -> None:
    """Means of 200 releases within 2 %; errors of the noise in them are below 10 % each, 0.7 % of a mean."""
    rows = trial(5, 12_000)
    planned = plan(100.0)
    without = estimate(planned, planned.vector(read_table(rows, SCHEMA)), 3)
    expected = [one.sampling_error for one in (*without.of(ASK[0])[:5], without.of(ASK[1])[0])]
    noisy = [[one.sampling_error for one in each[:6]] for each in releases(rows, b"events", 200)]
    means = np.array(noisy, dtype=np.float64).mean(axis=0)
    assert means == pytest.approx(np.array(expected, dtype=np.float64), rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_the_noise_of_a_sampling_variance_is_that_of_moved_counts(seed: int) -> None:
    """Slopes by each count of each bin, against differences of the whole."""
    rng = np.random.default_rng(seed)
    first, second = (Hazards(rng.uniform(50, 90, 4), rng.uniform(50, 90, 4), 200.0, 3.0) for _ in range(2))

    def joint(one: Hazards, other: Hazards) -> Hazards:
        counts = one.events + other.events, one.leaving + other.leaving, one.staying + other.staying
        return Hazards(*counts, 3.0 * math.sqrt(2))

    def curve_square(one: Hazards, _: Hazards) -> float:
        return (_Errors(one).sampling(3, 1.0) or 0.0) ** 2

    def mantel(one: Hazards, other: Hazards) -> float:
        return _Stratum(one, joint(one, other)).mantel[0]

    of_curve, of_difference = _Errors(first)._moved(_Errors(first)._changes, 3), joint(first, second)
    for of, spread in ((curve_square, of_curve), (mantel, _Stratum(first, of_difference).mantel[1])):
        square = 0.0
        for moved in range(2):
            for count in range(9):
                step = 1e-3 * np.eye(9)[count]
                ends = []
                for sign in (1, -1):
                    pair = [first, second]
                    one = pair[moved]
                    pair[moved] = Hazards(
                        one.events + sign * step[:4],
                        one.leaving + sign * step[4:8],
                        one.staying + sign * step[8],
                        one.noise,
                    )
                    ends.append(of(*pair))
                square += ((ends[0] - ends[1]) / 2e-3) ** 2
        assert spread == pytest.approx(3.0 * math.sqrt(square), rel=1e-3)
