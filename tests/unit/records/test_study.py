"""What a plan expects of a study, against the answers of simulated studies.

Rows, or the noise, or both are drawn anew each time, and answered as after a run.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.records.answers import DEFAULT_HIDE, noisy_sums
from smpc_dp.records.fit import plan_fit
from smpc_dp.records.forecast import Expected, Forecast
from smpc_dp.records.noisy import Display
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.result import WITHIN_NOISE, Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.study import check_expected, forecasts
from smpc_dp.records.table import read_table

Rows = dict[str, NDArray[Any]]
COLUMNS: dict[str, dict[str, Any]] = {
    "x": {"lower": 0.0, "upper": 50.0, "missing": False},
    "y": {"lower": 0.0, "upper": 50.0, "missing": False},
    "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0, "missing": False},
    "time": {"lower": 0.0, "upper": 5.0, "bins": [1.0, 2.0, 3.0, 4.0], "missing": False},
    "event": {"lower": 0.0, "upper": 1.0, "step": 1.0, "missing": False},
    "arm": {"lower": 0.0, "upper": 1.0, "step": 1.0, "bins": [0.5], "missing": False},
    "stage": {"lower": 0.0, "upper": 2.0, "step": 1.0, "bins": [0.5, 1.5], "missing": False},
}
PARTIES, ROWS = 10, 2000
EXPECTED = {"x": Expected(30.0, 6.0), "y": Expected(20.0, 5.0), "arm": Expected(0.5, 0.5)}


def schema_of(ask: str, **more: Any) -> Schema:
    """Return the schema of x and the columns that are asked for."""
    columns = {
        name: COLUMNS[name] | more.get(name, {}) for name in COLUMNS if name in re.findall(r"\w+", f"{ask} x")
    }
    return read_schema({"columns": columns, "max_rows": ROWS, "rows_expected": ROWS})


@functools.cache
def planned(ask: str, epsilon: float = 2.0, parties: int = PARTIES, *, laplace: bool = False) -> Plan:
    return plan_request(
        schema_of(ask),
        ask,
        epsilon=epsilon,
        delta=1e-6,
        parties=parties,
        missing=1,
        corrupt=1,
        laplace=laplace,
        split="balanced",
    )


def forecast(plan: Plan, rows: int = ROWS, **more: Any) -> dict[str, Forecast]:
    made = forecasts(plan, plan.shares.parties, rows, more.get("expected", EXPECTED))
    return {one.name: one for one in made}


def answers(plan: Plan, rows: Rows, rng: np.random.Generator, *, noise: bool = True) -> dict[str, Estimate]:
    """Return the answers about rows, the widest cell of each last, with the noise of a run."""
    table = read_table({name: rows[name] for name in plan.schema.columns}, plan.schema)
    total = plan.vector(table).astype(np.float64)
    for block, (offset, _) in plan.offsets.items():
        variance = PARTIES * float(plan.variance_of(block))
        drawn = math.sqrt(variance) * rng.standard_normal(block.cells)
        if plan.laplace is not None and block in plan.laplace_blocks:
            shape = PARTIES / plan.laplace.parts
            two = rng.standard_gamma(shape, (2, block.cells))
            drawn = math.sqrt(variance / (2 * shape)) * (two[0] - two[1])
        total[offset : offset + block.cells] += drawn if noise else 0.0
    noisy = noisy_sums(plan, np.rint(total).astype(np.int64), PARTIES, None, PARTIES)
    display = Display(0.05, DEFAULT_HIDE)
    made = (each for one in plan.statistics for each in statistic_of(one).estimates(one, noisy, display))
    return {one.name: one for one in made}


def people(rng: np.random.Generator) -> Rows:
    """Return rows of the assumed population; what is not drawn is a column of its least value."""
    rows: Rows = {
        "x": rng.normal(30.0, 6.0, ROWS),
        "y": rng.normal(20.0, 5.0, ROWS),
        "ill": rng.integers(0, 2, ROWS) * 1.0,
        "arm": np.arange(ROWS) % 2 * 1.0,
        "stage": rng.integers(0, 3, ROWS) * 1.0,
    }
    return rows | {"time": np.zeros(ROWS), "event": np.zeros(ROWS)}


def in_arms(rng: np.random.Generator, effect: float) -> Rows:
    rows = people(rng)
    return rows | {"x": rows["x"] + effect * (rows["arm"] == 0)}


def risks(rng: np.random.Generator, effect: float) -> Rows:
    rows = people(rng)
    chance = 0.5 + effect * np.where(rows["arm"] == 0, 0.5, -0.5)
    return rows | {"ill": (rng.random(ROWS) < chance) * 1.0}


def associated(rng: np.random.Generator, effect: float) -> Rows:
    """Return rows with this Cohen's w between arm and stage, in four of six cells."""
    moved = effect * math.sqrt(6 / 4) / 6 * np.array([1, -1, 0, -1, 1, 0])
    cell = rng.choice(6, ROWS, p=1 / 6 + moved)
    return people(rng) | {"arm": cell // 3 * 1.0, "stage": cell % 3 * 1.0}


def correlated(rng: np.random.Generator, effect: float) -> Rows:
    first, second = rng.standard_normal((2, ROWS))
    second = effect * first + math.sqrt(1 - effect**2) * second
    return people(rng) | {"x": 30 + 6 * first, "y": 20 + 5 * second}


def leaving(rng: np.random.Generator, effect: float) -> Rows:
    """Return times with this ratio of the hazards of both arms, and equally many departures in each bin."""
    times, events, arms = [], [], []
    for arm, root in ((0.0, math.sqrt(effect)), (1.0, 1 / math.sqrt(effect))):
        left = ROWS // 2
        for at in range(5):
            # of the rows at risk, in both arms together
            rate = 1 / (2 * (6 - at))
            died = rng.binomial(left, 1 - (1 - rate) ** root)
            gone = rng.binomial(left - died, rate / (1 - rate))
            times += [at + 0.5] * (died + gone)
            events += [1.0] * died + [0.0] * gone
            left -= died + gone
        times += [5.0] * left
        events += [0.0] * left
        arms += [arm] * (ROWS // 2)
    return people(rng) | {"time": np.array(times), "event": np.array(events), "arm": np.array(arms)}


ROBUST = "correlation(x, y, robust)"
ARMS = "arm = [0, 0.5) - arm = [0.5, 1]"
TESTS: Mapping[str, tuple[Callable[[np.random.Generator, float], Rows], str]] = {
    "difference(x) by arm": (in_arms, f"difference of mean(x), {ARMS}"),
    "risk(ill) by arm": (risks, f"risk difference of ill, {ARMS}"),
    "chi_square(arm, stage)": (associated, "chi-square, noise included"),
    "correlation(x, y)": (correlated, "correlation(x, y)"),
    ROBUST: (correlated, ROBUST),
    "logrank(time, event) by arm": (leaving, "observed - expected events"),
    "cox(time, event ~ arm)": (leaving, "log hazard ratio to arm = [0, 0.5)"),
}


def power(text: str, repetitions: int, seed: int, *, laplace: bool = False, epsilon: float = 2.0) -> float:
    """Return how often the test of an answer finds the effect that the plan promises to find."""
    plan, (draw, name) = planned(text, epsilon, laplace=laplace), TESTS[text]
    effect, rng, count = forecast(plan)[name].detected, np.random.default_rng(seed), 0
    assert effect is not None
    for _ in range(repetitions):
        given = answers(plan, draw(rng, effect), rng).values()
        count += min((one.p_value for one in given if one.p_value is not None), default=1.0) < 0.05
    return count / repetitions


POWERS = [(text, False) for text in TESTS if text != ROBUST] + [
    ("risk(ill) by arm", True),
    ("chi_square(arm, stage)", True),
]


def check_power(text: str, repetitions: int, seed: int, **more: Any) -> None:
    """Fail if a test does not find its effect with probability .8, or .03 from it: first order."""
    margin = 0.03 + 4 * math.sqrt(0.8 * 0.2 / repetitions)
    assert power(text, repetitions, seed, **more) == pytest.approx(0.8, abs=margin)


@pytest.mark.thin(7)
@pytest.mark.parametrize(("text", "laplace"), POWERS)
def test_a_test_finds_its_promised_effect_in_eight_of_ten_studies(text: str, laplace: bool) -> None:
    """A false alarm for each test that has its power is below 1e-4: four standard errors."""
    check_power(text, 150, 1, laplace=laplace)


@pytest.mark.long
@pytest.mark.parametrize(("text", "laplace"), POWERS)
def test_the_power_of_each_test_is_near_that_of_the_plan(text: str, laplace: bool) -> None:
    """As above, with four standard errors of .036."""
    check_power(text, 2000, 2, laplace=laplace)


# Epsilons at which the noise of the fourth moments is 5.4, 1.6 and .5 times their own size.
ROBUST_EPSILONS = (2.0, 8.0, 30.0)


@pytest.mark.thin(3)
@pytest.mark.parametrize("epsilon", ROBUST_EPSILONS)
def test_a_robust_test_finds_its_effect_whatever_the_noise_of_fourth_moments(epsilon: float) -> None:
    """A false alarm for each test that has its power is below 1e-4: four standard errors."""
    check_power(ROBUST, 150, 1, epsilon=epsilon)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", ROBUST_EPSILONS)
def test_the_power_of_a_robust_test_is_near_that_of_the_plan(epsilon: float) -> None:
    """As above, with four standard errors of .036."""
    check_power(ROBUST, 2000, 2, epsilon=epsilon)


def test_a_plan_says_why_it_promises_no_correlation() -> None:
    for text in ("correlation(x, y)", ROBUST):
        (one,) = forecasts(planned(text, 2.0), PARTIES, 740 if text != ROBUST else 800, EXPECTED)
        assert (one.detected, one.effect) == (None, "")
        assert "the noise hides correlations up to 0.45: no effect is promised" in one.assumed


# Answers, and whether the interval for the noise alone is no wider than its level needs.
WIDTHS = {
    "count": True,
    "sum(x)": True,
    "mean(x)": True,
    "mean(x) by stage": True,
    "count by stage": True,
    "risk(ill) by arm": True,
    "difference(x) by arm": True,
    "variance(x)": False,
    "covariance(x, y)": False,
    "correlation(x, y)": False,
    "regression(x ~ y + arm)": False,
}


def check_widths(text: str, repetitions: int, seed: int) -> None:
    """Fail if a width is not that of the drawn answers: of a normal number 1.96 deviations.

    The deviation of N numbers has a relative error of 1 over the root of 2 N, and more if
    they are not normal: six of these, and 3 % for what holds to first order.
    """
    plan, rng = planned(text), np.random.default_rng(seed)
    fixed, made = people(rng), forecast(plan)
    assert made
    assert all((one.both is None) == (text in ("count", "sum(x)")) for one in made.values())
    drawn = [
        (
            answers(plan, fixed, rng),
            answers(plan, rows := people(rng), rng, noise=False),
            answers(plan, rows, rng),
        )
        for _ in range(repetitions)
    ]
    margin = 0.03 + 6 / math.sqrt(2 * repetitions)
    for name, one in made.items():
        widths = (one.noise if WIDTHS[text] else None, one.sampling, one.both)
        assert one.noise is not None
        for at, width in enumerate(widths):
            values = [each[at][name].value for each in drawn]
            if width is not None:
                deviation = float(np.std([value for value in values if value is not None]))
                assert width / 1.96 == pytest.approx(deviation, rel=margin), (name, at)


@pytest.mark.thin(6)
@pytest.mark.parametrize("text", WIDTHS)
def test_widths_are_those_of_drawn_answers(text: str) -> None:
    """A false alarm for each width is below 1e-6, for numbers that are nearly normal."""
    check_widths(text, 100, 1)


@pytest.mark.long
@pytest.mark.parametrize("text", WIDTHS)
def test_widths_are_close_to_those_of_many_drawn_answers(text: str) -> None:
    """As above, with a margin of 13 %."""
    check_widths(text, 2000, 2)


def test_intervals_for_the_noise_alone_are_those_of_a_run() -> None:
    """Of answers whose noise is wider than its level needs, and of Laplace noise."""
    asked = ("survival(time, event) by arm", "arm x stage", "quantile(x, 0.25)")
    rng, compared = np.random.default_rng(3), dict.fromkeys(asked, 0)
    for text in asked:
        plan = planned(text, laplace=text == "arm x stage")
        given = people(rng) | {"x": rng.uniform(0, 50, ROWS), "time": rng.uniform(0, 6, ROWS)}
        scale = 50 if text.startswith("quantile") else 1
        for name, one in answers(plan, given | {"event": rng.integers(0, 2, ROWS) * 1.0}, rng).items():
            expected = forecast(plan)[name].noise
            if one.low is not None and one.high is not None and expected is not None:
                # edges of quantiles lie 1/256 apart
                half = (one.high - one.low) / 2 / scale
                assert half == pytest.approx(expected, rel=0.25, abs=2.1 / 256), name
                compared[text] += 1
    assert min(compared.values()) > 0


EVERYTHING = (
    "count; mean(x) by arm; difference(x) by arm; risk(ill) by arm; correlation(x, y); "
    "chi_square(arm, stage); cox(time, event ~ arm)"
)


def test_more_rows_and_more_epsilon_make_each_interval_narrower() -> None:
    few, many, exact = (
        forecast(planned(EVERYTHING, epsilon=epsilon), rows=rows)
        for rows, epsilon in ((20_000, 2.0), (30_000, 2.0), (20_000, 4.0))
    )
    assert [one.text for one in few.values() if one.detected is not None] == [
        "difference(x) by arm",
        "risk(ill) by arm",
        "correlation(x, y)",
        "chi_square(arm, stage)",
        "cox(time, event ~ arm)",
    ]
    for name, one in few.items():
        assert one.detected is None or one.detected > max(many[name].detected or 0, exact[name].detected or 0)
        assert one.noise is None or one.noise > (exact[name].noise or 0)
        if one.both is not None:
            assert one.both > max(many[name].both or 0, exact[name].both or 0)


def test_a_column_of_which_nothing_is_expected_has_the_largest_errors() -> None:
    plan = planned("mean(x); difference(x) by arm", 8.0)
    most = forecast(plan, expected={})
    for mean, deviation in ((30.0, 6.0), (1.0, 7.0), (49.0, 2.0), (25.0, 25.0)):
        for name, one in forecast(plan, expected={"x": Expected(mean, deviation)}).items():
            assert one.noise is not None
            assert one.both is not None
            assert one.noise <= (most[name].noise or 0) * 1.01
            assert one.both <= (most[name].both or 0) * 1.01
            assert (one.detected or 0) <= (most[name].detected or 0) * 1.01


def test_laplace_noise_at_a_bound_is_that_of_a_run() -> None:
    """The interval of a run for a mean near a bound; 1.96 standard errors would be 4 % less at least."""
    plan = planned("mean(x)", laplace=True)
    assert plan.laplace is not None
    most = forecast(plan, expected={})["mean(x)"].noise
    near = forecast(plan, expected={"x": Expected(49.9, 0.1)})["mean(x)"].noise
    assert most is not None
    assert most == pytest.approx(near, rel=0.02)


def test_the_noise_of_a_mean_is_in_proportion_to_the_width_of_its_bounds() -> None:
    wide, narrow = (
        plan_request(
            schema_of("mean(x)", x={"lower": lower, "upper": upper}),
            "mean(x)",
            epsilon=2.0,
            delta=1e-6,
            parties=PARTIES,
        )
        for lower, upper in ((0.0, 50.0), (12.5, 37.5))
    )
    first, second = (forecast(plan, expected={})["mean(x)"].at_bound for plan in (wide, narrow))
    assert first is not None
    assert second == pytest.approx(first / 2, rel=0.02)


@pytest.mark.parametrize(
    "ask",
    [
        EVERYTHING,
        "survival(time, event) by arm; logrank(time, event) by arm; cox(time, event ~ arm + stage)",
        "sum(x); variance(x); covariance(x, y); regression(x ~ y); heterogeneity(x)",
        "histogram(x, 4); median(x); arm x stage; count where x > 5; risk(ill) by arm where x > 5",
    ],
)
def test_each_answer_is_in_the_plan(ask: str) -> None:
    plan = planned(ask)
    made = forecasts(plan, PARTIES, 20_000, EXPECTED)
    assert list(dict.fromkeys(one.text for one in made)) == [one.text for one in plan.statistics]
    assert all(one.noise is not None or one.text.startswith("chi_square") for one in made)


@pytest.mark.parametrize(
    ("ask", "unused"),
    [("risk(ill) by arm", "ill"), ("quantile(x, 0.5)", "x"), ("mean(x)", ""), ("mean(x) where y > 5", "")],
)
def test_a_plan_says_what_is_expected_in_vain_and_that_all_rows_satisfy_a_condition(
    ask: str, unused: str
) -> None:
    given = {"x": Expected(30.0, 6.0), "ill": Expected(0.1, 0.3)}
    for one in forecast(planned(ask), expected=given).values():
        assert (f"what is expected of {unused} is not used" in one.assumed) == bool(unused)
        assert ("all rows satisfy the condition (--rows N" in one.assumed) == ("where" in ask)


def test_nothing_is_promised_without_the_moments_of_a_column() -> None:
    (one,) = forecasts(planned("correlation(x, y)"), PARTIES, ROWS, {"x": EXPECTED["x"]})
    assert (one.sampling, one.both, one.detected) == (None, None, None)
    assert one.assumed.endswith("the rest needs mean and deviation of y")
    (other,) = forecasts(planned("heterogeneity(x)"), PARTIES, ROWS, EXPECTED)
    assert (other.sampling, other.both, other.detected) == (None, None, None)
    assert other.assumed.endswith("nothing is promised about sampling: the data decide")


def test_the_noise_of_a_regression_without_moments_has_its_unit() -> None:
    """Slope of x on y, 25 of x for each 10 of y: half ranges."""
    known = schema_of("regression(x ~ y)", y={"upper": 20.0})
    plan = plan_request(known, "regression(x ~ y)", epsilon=2.0, delta=1e-6, parties=PARTIES)
    (one,) = forecasts(plan, PARTIES, ROWS, {})
    assert one.assumed.startswith(
        "of a coefficient of numbers scaled to [-1, 1], in half ranges of x; columns that are not correlated"
    )
    slope = forecast(plan, expected={"x": Expected(25.0, 12.5), "y": Expected(10.0, 5.0)})["slope of y"].noise
    assert slope == pytest.approx((one.noise or 0.0) * 25.0 / 10.0, rel=0.5)


def test_the_noise_of_a_regression_by_steps_has_its_unit() -> None:
    known = schema_of("logistic(ill ~ y)")
    plan = plan_fit(known, "logistic(ill ~ y)", steps=5, budget=(2.0, 1e-6), parties=PARTIES)
    (one,) = forecasts(plan, PARTIES, ROWS, {})
    assert one.assumed.startswith("of a coefficient of numbers scaled to [-1, 1]; probabilities about 0.3")


def test_numbers_of_one_text_are_forecast_with_their_own_question() -> None:
    made = forecasts(planned("correlation(x, y); correlation(x, y, robust)"), PARTIES, ROWS, {})
    assert [(one.text, one.name) for one in made] == [
        ("correlation(x, y)", "correlation(x, y)"),
        ("correlation(x, y, robust)", "correlation(x, y, robust)"),
    ]


def test_no_strong_correlation_is_promised() -> None:
    """The noise of both variances is then too large for a first order: the test would find it too rarely."""
    plan = planned("correlation(x, y)")
    made = [forecast(plan, rows)["correlation(x, y)"] for rows in (ROWS, 850, 740)]
    assert [one.detected is not None for one in made] == [True, True, False]
    assert all(one.noise is not None for one in made)


def test_an_answer_within_its_noise_has_no_forecast() -> None:
    (one,) = forecasts(planned("mean(x)"), PARTIES, 2, EXPECTED)
    assert (one.noise, one.both, one.assumed) == (None, None, WITHIN_NOISE)


@pytest.mark.parametrize(
    ("name", "expected", "reason"),
    [
        ("x", Expected(60.0, 1.0), "the mean must be in [0, 50], is 60"),
        ("x", Expected(math.nan, 1.0), "the mean must be in [0, 50], is nan"),
        ("x", Expected(25.0, 25.1), "at most 25 for this mean and these bounds, is 25.1"),
        ("x", Expected(25.0, 0.0), "must be above 0, and at most 25"),
        ("x", Expected(50.0, 0.0), "the mean 50 is a bound: all values would be equal"),
        ("ill", Expected(0.0, 0.0), "the mean 0 is a bound: all values would be equal"),
        ("x", Expected(25.0, math.nan), "must be above 0, and at most 25"),
        ("ill", Expected(0.5, 0.1), "of 0 and 1 the standard deviation is 0.5 for this mean: leave it out"),
        ("z", Expected(25.0, 1.0), "is no column of numbers"),
    ],
)
def test_what_the_bounds_of_a_column_do_not_allow_is_refused(
    name: str, expected: Expected, reason: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)) as raised:
        check_expected({name: expected}, schema_of("mean(x) risk(ill)"))
    assert raised.value.issues[0].where == f"--expect {name}"
