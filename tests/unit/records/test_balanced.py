"""A balanced split: against a slow optimiser, its joint privacy, and intervals of Laplace noise."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

import smpc_dp
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Gaussian, Joint, Pure, Shift, Shifts
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.distributions import DiscreteLaplaceDistribution
from smpc_dp.privacy.gaussian import gaussian_delta
from smpc_dp.privacy.mechanisms.mixed_shares import MixedShare
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.features import Lacking
from smpc_dp.records.intervals import ErrorDistribution, normal_quantile, shown_ratio, sum_quantile
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.record_audit import audit_records
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import l1_moves
from smpc_dp.records.table import read_table
from smpc_dp.secagg.records import RecordSumParameters, check_records
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.unit.records.brute_force import features, rows_of

COLUMNS: dict[str, Any] = {
    "x": {"lower": -1.0, "upper": 1.0, "step": 0.5},
    "y": {"lower": 0.0, "upper": 4.0, "step": 1.0},
    "ward": {"values": ["a", "b", "c"]},
}
RECORDS = {"columns": COLUMNS, "max_rows": 1000, "rows_expected": 3000}
EPSILON, DELTA = 1.0, 1e-6


def schema(**more: Any) -> Schema:
    return read_schema(RECORDS | more)


def planned(ask: list[str], rows: str = "private", **more: Any) -> Plan:
    given: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "parties": 4, "laplace": True}
    return plan_request(schema(rows=rows), ask, **(given | {"split": "balanced"} | more))


def ratios(plan: Plan) -> dict[str, float]:
    """Return the error of each answer over that which it has alone, with all shares counted."""
    alone: dict[str, float | None] = {}
    for one in plan.statistics:
        alone |= {error.text: error.standard_error for error in planned([one.text]).errors(4)}
    return {error.text: (error.standard_error or 0) / (alone[error.text] or 1) for error in plan.errors(4)}


def exact_delta(scales: list[float], mu: float, epsilon: float) -> float:
    """Return delta of one or two Laplace noises of these losses beside a Gaussian shift, by quadrature."""
    if not scales:
        gap = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        return float(gap)
    first, *rest = scales
    inner = quad(
        lambda loss: math.exp(-(first - loss) / 2) / 4 * exact_delta(rest, mu, epsilon - loss),
        *(-first, first),
        limit=50 if rest else 200,
        epsrel=1e-6,
    )[0]
    ends = exact_delta(rest, mu, epsilon - first), exact_delta(rest, mu, epsilon + first)
    return ends[0] / 2 + math.exp(-first) / 2 * ends[1] + float(inner)


@pytest.mark.long
def test_the_split_is_that_of_a_slow_optimiser() -> None:
    """A count with Laplace noise beside a heterogeneity: each part of epsilon, and the mu that it leaves."""
    plan = planned(["count", "heterogeneity(x)"])
    alone_count = math.sqrt(2)
    alone_other = planned(["heterogeneity(x)"]).worst({})

    def largest(part: float) -> float:
        room = brentq(lambda mu: exact_delta([part], mu, EPSILON) - DELTA, 1e-4, 0.237, xtol=1e-6)
        return max(math.sqrt(2) / part / alone_count, 0.2367 / float(room))

    slow = min(largest(part) for part in np.linspace(0.05, 0.95, 91).tolist())
    assert alone_other > 0
    result = ratios(plan)
    assert plan.is_mixed
    assert max(result.values()) == pytest.approx(slow, rel=0.02)
    assert min(result.values()) == pytest.approx(max(result.values()), rel=0.03)


@pytest.mark.long
def test_no_other_choice_of_laplace_noise_is_better() -> None:
    """All choices for three groups of answers, each planned as if the others could not have it.

    Of the last two answers, which share a column, all choices for one group.
    """
    from smpc_dp.records.registered import statistic_of
    from smpc_dp.records.split import balanced_weights, split_with_laplace
    from smpc_dp.records.terms import with_lacking

    known, plan = schema(), planned(["count", "ward", "mean(x)", "variance(y)", "covariance(x, y)"])
    blocks = [one.block for one in plan.blocks]
    best = [statistic_of(one).any_noise for one in plan.statistics]
    answers = with_lacking([statistic_of(one).terms(one, known) for one in plan.statistics], best)
    weights = balanced_weights(answers, known, {}, EPSILON, DELTA, best)

    def largest(eligible: list[bool]) -> float:
        return split_with_laplace(answers, blocks, known, weights, EPSILON, DELTA, eligible).largest

    assert all(best)
    others = itertools.product((False, True), repeat=4)
    assert largest(best) <= min(largest([*other, other[-1]]) for other in others) * 1.002


@pytest.mark.thin(2)
@pytest.mark.parametrize("ask", [["count", "heterogeneity(x)"], ["count", "ward", "heterogeneity(x)"]])
def test_the_joint_noise_is_as_private_as_it_says_and_no_more(ask: list[str]) -> None:
    """Delta by quadrature, of continuous noise: below what is asked for by less than a part in 12."""
    plan = planned(ask)
    share = plan.shares.share
    assert isinstance(share, MixedShare)
    scale = float(share.laplace.scale)
    mu = share.gaussian.sensitivity.l2 / math.sqrt(plan.shares.honest * float(plan.variance))
    exact = exact_delta([move / scale for move in share.moves or ()], mu, EPSILON)
    assert 0.92 * DELTA < exact < 1.001 * DELTA
    assert plan.mechanism.delta(EPSILON) <= DELTA


def test_the_accountant_composes_the_parts_of_a_joint_release() -> None:
    def epsilon(*known: Any) -> float:
        return Composition([Event("sums", "add-remove", known)]).epsilon(1e-6)

    both = Joint((Gaussian(0.3), Gaussian(0.4)))
    assert epsilon(both) == pytest.approx(epsilon(Gaussian(0.5)), rel=1e-9)
    noise = DiscreteLaplaceDistribution(Fraction(1000))
    joint = Joint((Gaussian(0.1), Shifts(noise, 1, ((500, 1),))))
    assert epsilon(joint) < epsilon(Joint((Gaussian(0.1), Pure(0.5))))
    assert epsilon(joint) > max(epsilon(Gaussian(0.1)), epsilon(Shift(noise, 1, 500)))
    whole, mu = 0.9, 0.2
    first = 1 / (1 + math.exp(-0.5))
    closed = first * gaussian_delta(whole - 0.5, mu) + (1 - first) * gaussian_delta(whole + 0.5, mu)
    found = Composition([Event("sums", "add-remove", (Joint((Gaussian(mu), Pure(0.5))),))]).delta(whole)
    assert closed <= found <= 1.01 * closed
    assert both.two_steps_apart() == Joint((Gaussian(0.6), Gaussian(0.8)))


def test_a_ledger_charges_both_kinds_of_noise_as_one_release(tmp_path: Path) -> None:
    event = planned(["count", "heterogeneity(x)"]).event()
    ledger = Ledger.create(
        tmp_path / "a.ledger",
        **{"party": "a", "dataset": "d", "relation": "add-remove", "unit": "record"},  # type: ignore[arg-type]
        epsilon=1.5,
        delta=1e-6,
    )
    receipt = ledger.charge(b"r" * 16, event, "records")
    assert receipt.spent.epsilon == pytest.approx(EPSILON, rel=1e-3)


def test_each_block_moves_in_one_coordinate_and_no_further_than_is_said() -> None:
    known, plan = schema(), planned(["count", "mean(x) by ward", "ward", "variance(y)"])
    blocks = list(plan.blocks)
    moves = l1_moves(blocks, known)
    assert moves is not None
    assert any(isinstance(one.block, Lacking) for one in blocks)
    furthest = [0] * len(blocks)
    for row in rows_of(known):
        values, at, moved = features(blocks, known, row), 0, []
        for one in blocks:
            cells = values[at : at + one.block.cells]
            assert sum(value != 0 for value in cells) <= 1
            moved.append(max(math.ceil(abs(value)) for value in cells))
            at += one.block.cells
        furthest = list(map(max, furthest, sorted(moved, reverse=True)))
    assert [one for one in furthest if one] == sorted(moves, reverse=True)
    for more in (
        {"rows": "public"},
        {"unit": "person", "id": "who", "rows_per_person": 2, "parties_per_person": 1},
    ):
        assert l1_moves(blocks, schema(**more)) is None


@pytest.mark.thin(2)
@pytest.mark.parametrize("rows", ["public", "private"])
def test_answers_asked_together_have_one_ratio_to_their_errors_alone(rows: str) -> None:
    ask = ["ward", "histogram(x, 4)", "mean(x)", "median(y)"]
    plan = planned(ask, rows)
    assert len(plan.laplace_blocks) == len(plan.blocks)
    errors = {one.text: one.relative for one in plan.errors(4, 3000)}
    alone = {ask[at]: planned([ask[at]], rows).errors(4, 3000)[0].relative for at in range(4)}
    parts = [errors[text] / alone[text] for text in ask]  # type: ignore[operator]
    assert parts == pytest.approx([4.0] * 4, rel=0.02)
    weighted = planned(ask, rows, weights={"ward": 4.0}).errors(4, 3000)[0].relative
    assert weighted == pytest.approx(errors["ward"] * 2.5 / 4, rel=0.02)  # type: ignore[operator]


def test_one_mean_has_half_the_noise_of_gaussian_shares() -> None:
    normal = planned(["mean(x)"], split="range").errors(4)[0].standard_error
    assert planned(["mean(x)"]).errors(4)[0].standard_error == pytest.approx((normal or 0) / 2.1, rel=0.01)


@pytest.mark.parametrize("outside", [0.3, 0.05, 1e-4, 1e-9])
def test_a_sum_of_two_laplace_noises_has_its_quantile(outside: float) -> None:
    """In closed form; a sum with normal noise lies between both; of one alone it is that of its noise."""
    one = ErrorDistribution(1.0)
    a, b = 0.8 / math.sqrt(2), 0.6 / math.sqrt(2)
    z = sum_quantile([(0.8, one), (0.6, one)], outside)
    exact = (a * a * math.exp(-z / a) - b * b * math.exp(-z / b)) / (a * a - b * b)
    assert exact == pytest.approx(outside, rel=1e-3)
    ends = sorted((normal_quantile(outside), one.quantile(outside)))
    mixed = sum_quantile([(0.8, ErrorDistribution()), (0.6, one)], outside)
    assert ends[0] * 0.99 < mixed < ends[1]
    assert sum_quantile([(3.0, one), (0.0, one)], outside) == one.quantile(outside)
    assert sum_quantile([(3.0, ErrorDistribution())], outside) == normal_quantile(outside)


def test_a_quantile_too_far_out_for_the_integral_is_a_bound() -> None:
    one = ErrorDistribution(1.0)
    z = sum_quantile([(0.8, one), (0.6, one)], 1e-12)
    a, b = 0.8 / math.sqrt(2), 0.6 / math.sqrt(2)
    exact = (a * a * math.exp(-z / a) - b * b * math.exp(-z / b)) / (a * a - b * b)
    assert 1e-14 < exact <= 1e-12


@pytest.mark.long
@pytest.mark.parametrize("rows", ["private", "public"])
def test_intervals_of_laplace_noise_have_their_level(rows: str) -> None:
    """Of 400 releases at least 95 % less 4.4 %: four standard errors, false alarms of 1.5e-4 an answer.

    Where the interval is exact, also at most 95 % plus 4 %: false alarms of 3e-6 an answer. Seeds are fixed.
    """
    known = schema(rows=rows)
    ask = ["ward", "median(y)"]
    plan = planned([*ask, "sum(y)", "mean(x)", "mean(x) by ward"] if rows == "private" else ask, rows)
    assert len(plan.laplace_blocks) == len(plan.blocks)
    source = np.random.default_rng(8)
    table = {
        "x": np.where(source.random(900) < 0.2, np.nan, source.integers(-2, 3, 900) / 2),
        "y": np.array([0.0] * 300 + [1.0] * 100 + [3.0] * 500),
        "ward": source.choice(["a", "b", "c"], 900, p=[0.6, 0.35, 0.05]),
    }
    exact = 4 * plan.vector(read_table(table, known))
    truth = {"quantile(y, 0.5)": 3.0}
    if rows == "private":
        truth |= {"sum(y)": 4 * table["y"].sum(), "mean(x)": np.nanmean(table["x"])}
    for ward in "abc":
        chosen = table["ward"] == ward
        truth[f"count {ward}"] = 4.0 * chosen.sum()
        if rows == "private":
            truth[f"mean(x) {ward}"] = np.nanmean(table["x"][chosen])
    inside: Counter[str] = Counter()
    noise_of, releases = NoiseSource.keyed(hashlib.sha256(rows.encode()).digest()), 400
    share = plan.laplace
    assert share is not None
    noise = np.sum([share.noise(noise_of, releases * plan.length).reshape(releases, -1) for _ in range(4)], 0)
    for row in noise:
        for one in estimate(
            plan, exact + row, 4, rows=3600 if rows == "public" else None, hide=0.0
        ).estimates:
            name = f"{one.name} {one.cell.get('ward', '')}".strip()
            low, high = one.low, one.high
            inside[name] += (low is None or low <= truth[name]) and (high is None or truth[name] <= high)
    assert inside.keys() == truth.keys()
    assert all(number / releases >= 0.95 - 0.044 for number in inside.values()), inside
    narrow = {"sum(y)", *(f"count {ward}" for ward in "abc")} & truth.keys()
    assert all(inside[name] / releases <= 0.95 + 0.04 for name in narrow), inside


def test_a_ratio_near_its_threshold_has_an_interval_of_both_sums() -> None:
    one = ErrorDistribution(1.0)
    distributions = one, one
    near = shown_ratio((2.0, 1.0), (20.0, 1.0), 15.0, 0.05, distributions)
    far = shown_ratio((2.0, 1.0), (20.0, 1.0), 3.0, 0.05, distributions)
    assert near[0] < far[0] < 0.1 < far[1] < near[1] < 1.0
    assert shown_ratio((2.0, 1.0), (3.1, 1.0), 3.0, 0.05, distributions) == (-1.0, 1.0)
    clear = shown_ratio((0.0, 1.0), (1000.0, 1.0), 3.0, 0.05, distributions)
    assert clear[1] * 1000 == pytest.approx(-math.log(0.05) / math.sqrt(2), rel=1e-3)


@pytest.mark.thin(2)
@pytest.mark.parametrize("laplace", [False, True])
def test_an_audit_finds_a_missing_share_of_either_noise(
    laplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right release is refuted with probability 0.002 at most; the seed is fixed."""
    given = {"ask": ["ward", "heterogeneity(x)"], "epsilon": 1.0, "delta": 1e-6, "split": "balanced"}
    given |= {"records": RECORDS, "dropout": 0.0, "corrupt": 0.0}
    parameters, issues = check_records(given, 4)
    assert isinstance(parameters, RecordSumParameters), issues
    assert parameters.mechanism == "discrete-gaussian-and-laplace"
    source = SeededRandomnessForSimulation(2, "audit")
    right = audit_records(parameters, 10_000, source)
    assert not right.violations
    assert right.variance == pytest.approx(1.0, abs=0.05)
    draw, share = RecordSumParameters.own_noise, parameters.request.mechanism.share
    assert isinstance(share, MixedShare)
    calls = itertools.count()

    def left_out(self: RecordSumParameters, source: NoiseSource, count: int) -> np.ndarray[Any, Any]:
        noise = draw(self, source, count)
        if next(calls) % 3 == 0:
            noise[np.tile(share.is_laplace == laplace, count // len(share.is_laplace))] = 0
        return noise

    monkeypatch.setattr(RecordSumParameters, "own_noise", left_out)
    assert audit_records(parameters, 10_000, source).violations


def test_a_session_with_both_kinds_of_noise_has_answers() -> None:
    source = np.random.default_rng(3)
    tables = [
        {"x": source.uniform(-1, 1, 500), "y": source.uniform(0, 4, 500), "ward": ["a"] * 500}
        for _ in range(4)
    ]
    answers = smpc_dp.simulate.statistics(
        tables,
        ["count", "ward", "heterogeneity(x)"],
        schema=RECORDS,
        epsilon=1.0,
        delta=1e-6,
        split="balanced",
        corrupt=0.0,
        seed_for_simulation=1,
    )
    assert answers.guarantee is not None
    assert "discrete Gaussian" in answers.guarantee.mechanism
    assert "discrete Laplace" in answers.guarantee.mechanism
    [count], [q, _] = answers.of("count"), answers.of("heterogeneity(x)")
    assert (count.noise, q.noise) == ("laplace", "normal")
    # Twelve standard deviations; the seed is fixed.
    assert count.value == pytest.approx(2000, abs=60)
    assert count.standard_error == pytest.approx(math.sqrt(2) * 3 * math.sqrt(4 / 3), rel=0.1)


def test_ten_parties_have_the_errors_that_the_guide_says() -> None:
    """Counts beside a regression: an equal part of epsilon each would be 1.02 times the error and more.

    The largest ratio to an error alone is that of the regression.
    """
    columns = {
        "age": {"lower": 18.0, "upper": 98.0},
        "bmi": {"lower": 15.0, "upper": 45.0},
        "pressure": {"lower": 80.0, "upper": 200.0},
    }
    ask = ["count", "mean(age)", "histogram(age, 10)", "quantile(age, 0.25, 0.5, 0.75)"]
    ask.append("regression(pressure ~ age + bmi)")
    known = read_schema({"columns": columns, "max_rows": 2000, "rows_expected": 10_000})
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "parties": 10, "corrupt": 1, "laplace": True}
    plan = plan_request(known, ask, **given, split="balanced")
    errors = {one.text: one.standard_error or 0 for one in plan.errors(10)}
    equal = 5 * math.sqrt(2)
    assert errors["count"] == pytest.approx(errors["histogram(age, 10)"], rel=0.01)
    assert errors["count"] < 0.875 * equal
    alone = plan_request(known, ask[-1], **given, split="balanced").errors(10)[0].standard_error or 0
    assert errors[ask[-1]] < 4.2 * alone
    assert errors["count"] < 1.1 * 4 * math.sqrt(2)
    normal = plan_request(known, ask, **given).errors(10)[0].standard_error or 0
    assert normal > 10 * errors["count"]
