"""Tests and intervals about a population, against a library without noise, and by simulation with noise.

The library's numbers are those of scipy 1.17.1 and statsmodels 0.15.0 for the rows of `trial`; where they
have no noise, ours has next to none. In simulations rows and noise are drawn anew each time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.records.ask import read_ask
from smpc_dp.records.comparisons import NO_RATIO, NO_TABLE
from smpc_dp.records.cox import NO_FIT, Counts
from smpc_dp.records.noisy import Display, NoisySums, laplace_distribution
from smpc_dp.records.population import NORMAL_THEORY
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.result import WITHIN_NOISE, Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.survival_times import NOT_REACHED
from smpc_dp.records.table import read_table

Rows = dict[str, NDArray[Any]]
COLUMNS: dict[str, dict[str, Any]] = {
    "x": {"lower": 0.0, "upper": 50.0, "missing": False},
    "y": {"lower": 0.0, "upper": 50.0, "missing": False},
    "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0},
    "time": {"lower": 0.0, "upper": 12.0, "bins": [float(edge) for edge in range(1, 12)]},
    "event": {"lower": 0.0, "upper": 1.0, "step": 1.0},
    "arm": {"values": ["old", "new"]},
    "stage": {"values": ["i", "ii", "iii"]},
}
ALMOST_NONE = 1e-6


@functools.cache
def schema_of(columns: tuple[str, ...]) -> Schema:
    return read_schema({"columns": {name: COLUMNS[name] for name in columns}, "max_rows": 20_000})


def answers(
    text: str,
    rows: Rows,
    noise: float = ALMOST_NONE,
    seed: int | None = None,
    *,
    laplace: bool = False,
) -> list[Estimate]:
    """Return an answer from the exact sums of rows, with noise of this deviation drawn from a seed."""
    schema = schema_of(tuple(rows))
    (one,) = read_ask(text, schema)
    statistic, read = statistic_of(one), read_table(rows, schema)
    rng = np.random.default_rng(seed)
    blocks, laws = {}, {}
    for term in statistic.terms(one, schema):
        for block in term.squares:
            deviation = noise * block.greatest(schema)
            exact = np.array([float(value) for value in block.sums(read)])
            drawn = (
                rng.laplace(0, 1 / math.sqrt(2), len(exact)) if laplace else rng.standard_normal(len(exact))
            )
            blocks[block] = exact + (0.0 if seed is None else deviation * drawn), deviation
            if laplace:
                laws[block] = laplace_distribution(1.0)
    noisy = NoisySums(schema, blocks, laws, 3)
    return [*statistic.estimates(one, noisy, Display(0.05, 3.0))]


def trial(size: int = 4000) -> Rows:
    """Return rows that follow from their numbers alone, as the library had them."""
    index = np.arange(size)
    u, w, v = (
        ((index * factor + add) % modulus) / modulus
        for factor, add, modulus in ((7919, 13, 10007), (104729, 7, 9973), (1299709, 3, 9967))
    )
    arm, stage = index % 2, (index // 2) % 3
    life = -np.log(1 - u * 0.999) / np.exp(-2.0 - 0.5 * arm + 0.4 * (stage == 1) + 0.8 * (stage == 2))
    return {
        "x": 20 + 2 * arm + 15 * v + 5 * w,
        "y": np.minimum(life, np.floor(4 + 8 * w)),
        "ill": (v < 0.3 + 0.1 * arm) * 1.0,
        "time": life,
        "event": np.ones(size),
        "arm": np.array(["old", "new"])[arm],
        "stage": np.array(["i", "ii", "iii"])[stage],
    }


TRIAL = trial()


def ends(one: Estimate) -> tuple[float, float]:
    assert one.population_low is not None
    assert one.population_high is not None
    return one.population_low, one.population_high


def test_a_difference_of_means_is_that_of_welch() -> None:
    (one,) = answers("difference(x) by arm", TRIAL)
    assert one.name == "difference of mean(x), arm = old - arm = new"
    assert one.p_value == pytest.approx(1.2129278e-42, rel=1e-4)
    assert ends(one) == pytest.approx((-2.28554430, -1.71871072), rel=1e-6)
    assert one.standard_error == pytest.approx(0, abs=1e-6)
    assert one.sampling_error == pytest.approx((2.28554430 - 1.71871072) / 2 / 1.960557, rel=1e-5)


def test_risks_and_their_comparisons_are_those_of_a_library() -> None:
    """Wilson's intervals, Newcombe's for the difference; those of ratios are near the usual ones."""
    old, new, *compared = answers("risk(ill) by arm", TRIAL)
    assert (old.value, new.value) == pytest.approx((0.302, 0.4), rel=1e-5)
    assert ends(old) == pytest.approx((0.28227361, 0.32248554), rel=1e-5)
    assert ends(new) == pytest.approx((0.37874111, 0.42164230), rel=1e-5)
    library = [
        ((604 - 800) / 2000, (-0.12728344, -0.06847716), 1e-5),
        (604 / 800, (0.69308901, 0.82244126), 2e-3),
        (604 / 1396 / (800 / 1200), (0.56941222, 0.73970538), 2e-3),
    ]
    for one, (value, interval, close) in zip(compared, library, strict=True):
        assert one.value == pytest.approx(value, rel=1e-5)
        assert ends(one) == pytest.approx(interval, rel=close)
        assert one.p_value == pytest.approx(8.4103883e-11, rel=1e-4)


def test_chi_square_is_that_of_a_library() -> None:
    (one,) = answers("chi_square(arm, stage)", {**TRIAL, "arm": np.where(TRIAL["ill"] > 0, "new", "old")})
    assert one.value == pytest.approx(0.0030437976, rel=1e-4)
    # the tail allows for the kurtosis of counts too
    assert one.p_value == pytest.approx(0.9984792587, abs=1e-4)
    assert one.note == "degrees of freedom: 2"


def test_a_correlation_is_that_of_a_library() -> None:
    (one,) = answers("correlation(x, y)", TRIAL)
    assert one.value == pytest.approx(0.114175746, rel=1e-5)
    assert ends(one) == pytest.approx((0.08347969, 0.14465534), rel=1e-4)
    assert one.p_value == pytest.approx(4.4034e-13, rel=0.05)
    assert one.note == NORMAL_THEORY


@pytest.mark.parametrize("kind", ["correlation", "covariance"])
def test_moments_by_groups_are_those_of_the_rows_of_each_group(kind: str) -> None:
    """By exact sums, and with noise: with half of the rows a group's error is larger."""
    grouped = answers(f"{kind}(x, y) by arm", TRIAL)
    arms = np.asarray(TRIAL["arm"])
    for arm in sorted({*arms}):
        rows = {name: np.asarray(column)[arms == arm] for name, column in TRIAL.items()}
        expected = answers(f"{kind}(x, y)", rows)
        of_arm = [one for one in grouped if one.cell == {"arm": arm}]
        assert [msgspec.structs.replace(one, cell={}, statistic="") for one in of_arm] == [
            msgspec.structs.replace(one, statistic="") for one in expected
        ]
    (all_rows, *_), (noisy, *_) = (answers(f"{kind}(x, y){by}", TRIAL, 1.0, 1) for by in ("", " by arm"))
    assert (noisy.standard_error or 0.0) > 1.5 * (all_rows.standard_error or math.inf)


@pytest.mark.parametrize(("by", "square"), [("arm", 179.01182578), ("arm x stage", 203.79822694)])
def test_a_log_rank_is_that_of_a_library(by: str, square: float) -> None:
    _, z = answers(f"logrank(time, event) by {by}", TRIAL)
    assert (z.value or 0.0) ** 2 == pytest.approx(square, rel=1e-6)
    assert z.p_value == pytest.approx(math.erfc(math.sqrt(square / 2)), rel=1e-6)


COX = {
    "cox(time, event ~ arm + stage)": (
        [-0.50016305, 0.40396809, 0.79564347],
        [0.03518207, 0.04415034, 0.04370883],
    ),
    "cox(time, event ~ stage) by arm": ([0.40427002, 0.79606110], [0.04416558, 0.04374832]),
}


@pytest.mark.parametrize("text", COX)
def test_hazard_ratios_are_those_of_a_complementary_log_log_model(text: str) -> None:
    """Of a library: a generalised linear model of a row for each row and bin at risk.

    On the same binned times Efron's ties give -0.498518, 0.403291, 0.793186, and Breslow's -0.457971,
    0.376483, 0.729908.
    """
    values, errors = COX[text]
    made = answers(text, TRIAL)
    assert [one.value for one in made] == pytest.approx(values, rel=1e-5)
    assert [one.sampling_error for one in made] == pytest.approx(errors, rel=1e-3)
    efron = [-0.49851817, 0.40329140, 0.79318604][-len(made) :]
    assert [one.value for one in made] == pytest.approx(efron, abs=0.004)


def test_hazard_ratios_compare_with_the_declared_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMNS["stage"], "reference", "iii")
    schema_of.cache_clear()
    try:
        made = answers("cox(time, event ~ stage)", TRIAL)
    finally:
        schema_of.cache_clear()
    assert [one.name for one in made] == ["log hazard ratio to stage = iii"] * 2
    assert [one.cell for one in made] == [{"stage": "i"}, {"stage": "ii"}]
    monkeypatch.undo()
    second, third = (one.value or 0.0 for one in answers("cox(time, event ~ stage)", TRIAL))
    assert [one.value for one in made] == pytest.approx([-third, second - third], rel=1e-6)


def test_rows_that_leave_count_half_of_their_bin() -> None:
    """With few events in a bin, hazards of two arms of which one is censored three times as often."""
    rng = np.random.default_rng(5)
    arm = rng.integers(0, 2, 20_000)
    life, end = rng.exponential(10 * np.exp(-0.5 * arm)), rng.exponential(np.where(arm == 1, 3.0, 9.0))
    rows = {"time": np.minimum(life, end), "event": (life <= end) * 1.0, "arm": np.array(["old", "new"])[arm]}
    counts = Counts(np.array([[[1.0, 0.0]]]), np.array([[[4.0, 2.0]]]), np.array([[3.0]]), 0.0)
    assert counts.survivals.tolist() == [[[2 + 3 + 4 / 2, 3 + 2 / 2]]]
    (one,) = answers("cox(time, event ~ arm)", rows)
    assert one.value == pytest.approx(0.5, abs=3 * (one.sampling_error or 0.0))


def test_medians_and_restricted_means_of_a_constant_hazard() -> None:
    rows = {"time": -np.log(1 - (np.arange(8000) + 0.5) / 8000) * 6, "event": np.ones(8000)}
    median, mean = answers("survival(time, event)", rows)[-2:]
    assert median.value == pytest.approx(6 * math.log(2), rel=1e-3)
    assert mean.value == pytest.approx(6 * (1 - math.exp(-2)), rel=1e-3)
    assert (median.low, median.high) == (4.0, 5.0)
    # the restricted mean of T has the variance of min(T, 12), over the rows
    cut = np.minimum(rows["time"], 12)
    assert mean.sampling_error == pytest.approx(cut.std() / math.sqrt(8000), rel=0.02)
    many, _ = answers("survival(time, event)", {**rows, "time": rows["time"] * 10})[-2:]
    assert (many.value, many.low, many.high, many.note) == (None, 12.0, None, NOT_REACHED)


def test_what_is_within_the_noise_has_a_note_and_no_value() -> None:
    few = {name: column[:40] for name, column in TRIAL.items()}
    noted = {
        "difference(x) by arm": WITHIN_NOISE,
        "chi_square(arm, stage)": NO_TABLE,
        "cox(time, event ~ arm)": NO_FIT,
        "logrank(time, event) by arm": WITHIN_NOISE,
        "risk(ill) by arm": WITHIN_NOISE,
    }
    for text, note in noted.items():
        made = answers(text, few, 100.0, 1)
        assert {(one.value, one.note, one.p_value) for one in made} == {(None, note, None)}, text
    never = answers("risk(ill) by arm", {**TRIAL, "ill": np.zeros(4000)})
    assert [one.note for one in never[3:]] == [NO_RATIO] * 2


def test_a_difference_and_its_intervals_are_within_the_bounds() -> None:
    """Of groups at opposite bounds: half of the noisy differences are above 50, 2.6 % with their interval."""
    rows = {"x": np.repeat([50.0, 0.0], (50, 60)), "arm": np.repeat(["old", "new"], (50, 60))}
    for seed in range(40):
        (one,) = answers("difference(x) by arm", rows, noise=2.0, seed=seed)
        assert one.value is not None
        assert one.value <= 50
        for low, high in ((one.low, one.high), (one.population_low, one.population_high)):
            assert low is not None
            assert high is not None
            assert -50 <= low <= high <= 50


def test_the_noise_is_in_the_variance_of_differences_risks_and_tables() -> None:
    """Of exact sums that are said to have noise: the statistic is what both errors together leave."""
    for text, place in (("difference(x) by arm", 0), ("risk(ill) by arm", 2)):
        one = answers(text, TRIAL, 40.0)[place]
        whole = math.hypot(one.standard_error or 0.0, one.sampling_error or 0.0)
        assert (one.standard_error or 0.0) > (one.sampling_error or 0.0)
        assert one.p_value == pytest.approx(math.erfc(abs(one.value or 0.0) / whole / math.sqrt(2)), rel=0.25)
    rows = {**TRIAL, "stage": np.where((TRIAL["arm"] == "old") & (TRIAL["ill"] > 0), "i", TRIAL["stage"])}
    exact, noisy = (answers("chi_square(arm, stage)", rows, noise)[0] for noise in (ALMOST_NONE, 40.0))
    # counts of about 670 have a variance of 1,600 more
    assert 0.2 < (noisy.value or 0.0) / (exact.value or 1.0) < 0.4


def test_hazard_ratios_whose_information_is_within_the_noise_are_none() -> None:
    """The steps end, but the noise deviation of the information is above a quarter of it."""
    rows = {name: column[:1500] for name, column in TRIAL.items()}
    near, far = (answers("cox(time, event ~ arm)", rows, noise, 5)[0] for noise in (20.0, 30.0))
    assert (near.value is None, far.value, far.note) == (False, None, NO_FIT)


def test_rows_of_a_table_within_the_noise_are_left_out() -> None:
    rows = {**TRIAL, "stage": np.where(TRIAL["stage"] == "iii", "ii", TRIAL["stage"])}
    (one,) = answers("chi_square(arm, stage)", rows, 2.0, 3)
    assert one.note == "degrees of freedom: 1; rows or columns within the noise that are left out: 1"
    assert one.p_value is not None


def survivors(rng: np.random.Generator, size: int) -> Rows:
    """Return lives of one law in both arms and in all stages, a third of which are censored."""
    life, end = rng.exponential(8.0, size), rng.uniform(3, 18, size)
    return {
        "time": np.minimum(life, end),
        "event": (life <= end) * 1.0,
        "arm": rng.choice(["old", "new"], size, p=[0.4, 0.6]),
        "stage": rng.choice(["i", "ii", "iii"], size, p=[0.5, 0.3, 0.2]),
    }


def independent(rng: np.random.Generator, size: int) -> Rows:
    """Return rows whose columns do not depend on each other."""
    return {
        "x": np.minimum(50, rng.gamma(2, 6, size)),
        "y": np.minimum(50, rng.gamma(3, 5, size)),
        "ill": (rng.random(size) < 0.15) * 1.0,
        "arm": rng.choice(["old", "new"], size, p=[0.3, 0.7]),
        "stage": rng.choice(["i", "ii", "iii"], size, p=[0.6, 0.3, 0.1]),
    }


Draw = Callable[[np.random.Generator, int], Rows]
# What is asked, of which rows, how many, the noise of a count, and whether it is Laplace noise.
NULL: dict[str, tuple[str, Draw, int, float, bool]] = {
    "difference, small noise": ("difference(x) by arm", independent, 200, 1.0, False),
    "difference, large noise": ("difference(x) by arm", independent, 600, 15.0, False),
    "difference, Laplace noise": ("difference(x) by arm", independent, 600, 15.0, True),
    "risks": ("risk(ill) by arm", independent, 600, 5.0, False),
    "risks, Laplace noise": ("risk(ill) by arm", independent, 600, 15.0, True),
    "chi-square": ("chi_square(arm, stage)", independent, 600, 3.0, False),
    "chi-square, Laplace noise": ("chi_square(arm, stage)", independent, 600, 12.0, True),
    "correlation": ("correlation(x, y)", independent, 600, 3.0, False),
    "correlation, Laplace noise": ("correlation(x, y)", independent, 1500, 10.0, True),
    "log-rank": ("logrank(time, event) by arm", survivors, 600, 3.0, False),
    "log-rank, Laplace noise": ("logrank(time, event) by arm", survivors, 600, 5.0, True),
    "log-rank, stratified": ("logrank(time, event) by arm x stage", survivors, 1500, 3.0, False),
    "Cox": ("cox(time, event ~ arm)", survivors, 1500, 2.0, False),
    "Cox, Laplace noise": ("cox(time, event ~ arm)", survivors, 1500, 3.0, True),
    "Cox, two covariates": ("cox(time, event ~ arm + stage)", survivors, 3000, 2.0, False),
}


def p_values(name: str, repetitions: int) -> Iterator[float]:
    text, draw, size, noise, laplace = NULL[name]
    rng = np.random.default_rng(17)
    for seed in range(repetitions):
        tested = [one.p_value for one in answers(text, draw(rng, size), noise, seed, laplace=laplace)]
        known = [one for one in tested if one is not None]
        assert known, name
        yield known[0]


def rejected(name: str, repetitions: int) -> float:
    return float(np.mean([each < 0.05 for each in p_values(name, repetitions)]))


# Repetitions in `make test`, and those that levels are stated for.
FEW, MANY = 40, 10_000


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", NULL)
def test_tests_reject_seldom_without_a_difference(name: str) -> None:
    """Of 40 tests of level .05 eight or more reject with a chance of 7e-4; the seed is fixed."""
    assert rejected(name, FEW) <= 7 / FEW


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", NULL)
def test_tests_reject_as_often_as_they_say(name: str) -> None:
    """Three standard errors of a share of 10,000 are .0065: a false alarm of .3 % for each test."""
    assert rejected(name, MANY) == pytest.approx(0.05, abs=0.0065)


def test_without_the_noise_in_its_variance_a_test_would_reject_often() -> None:
    """The library's test on the same noisy counts, of risks: what tests with noise are for."""
    text, draw, size, noise, _ = NULL["risks, Laplace noise"]
    rng, often = np.random.default_rng(17), 0
    for seed in range(FEW):
        *_, one, _, _ = answers(text, draw(rng, size), noise, seed, laplace=True)
        assert one.value is not None
        # Where the noise hides it, about what it is of these rows.
        often += abs(one.value) > 1.96 * (one.sampling_error or 0.03)
    assert often >= 10


# What is true in the population of `independent` and `survivors`: for a part of a name, in order.
POPULATION: dict[str, tuple[str, Draw, float, dict[str, float]]] = {
    "difference": ("difference(x) by arm", independent, 5.0, {"difference": 0.0}),
    "risks": (
        "risk(ill) by arm",
        independent,
        5.0,
        {"risk of": 0.15, "risk difference": 0.0, "risk ratio": 1.0, "odds ratio": 1.0},
    ),
    "quantiles": ("quantile(y, 0.25, 0.5)", independent, 2.0, {"0.25": 8.6365, "0.5": 13.3703}),
    "correlation": ("correlation(x, y)", independent, 3.0, {"correlation": 0.0}),
    "survival": (
        "survival(time, event)",
        survivors,
        3.0,
        {"median": 8 * math.log(2), "restricted": 8 * (1 - math.exp(-1.5))},
    ),
    "Cox": ("cox(time, event ~ arm)", survivors, 2.0, {"log hazard": 0.0}),
}


def missed(name: str, repetitions: int) -> dict[str, float]:
    """Return how often the interval of noise and sampling is beside the truth, of each number."""
    text, draw, noise, known = POPULATION[name]
    rng, outside = np.random.default_rng(23), dict.fromkeys(known, 0)
    for seed in range(repetitions):
        rows = draw(rng, 1500)
        seen = set()
        for one in answers(text, rows, noise, seed):
            part = next((each for each in known if each in one.name), None)
            if part is None or part in seen:
                continue
            seen.add(part)
            low, high = one.population_low, one.population_high
            assert (low, high) != (None, None), (name, part)
            outside[part] += not (
                (low is None or low <= known[part]) and (high is None or known[part] <= high)
            )
        assert seen == {*known}
    return {part: count / repetitions for part, count in outside.items()}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", POPULATION)
def test_intervals_of_a_population_seldom_miss_it(name: str) -> None:
    """Of 40 intervals of level .95 eight or more miss with a chance of 7e-4; the seed is fixed."""
    assert max(missed(name, FEW).values()) <= 7 / FEW


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", POPULATION)
def test_intervals_of_a_population_have_their_level(name: str) -> None:
    """Three standard errors, a false alarm of .3 % for each number.

    The intervals of quantiles and medians are of edges, so they miss less often.
    """
    shares = missed(name, MANY)
    assert max(shares.values()) <= 0.0565, shares
    assert name in ("quantiles", "survival") or min(shares.values()) >= 0.0435, shares


def test_the_sampling_error_of_means_of_groups_needs_their_squares() -> None:
    """As those of a library: the deviation of a group over the root of its rows."""
    schema = schema_of(tuple(TRIAL))
    asked = read_ask("mean(x) by arm; variance(x) by arm", schema)
    blocks = {
        block: (np.array([float(value) for value in block.sums(read_table(TRIAL, schema))]), ALMOST_NONE)
        for one in asked
        for term in statistic_of(one).terms(one, schema)
        for block in term.squares
    }
    noisy = NoisySums(schema, blocks, {}, 3)
    old, new = statistic_of(asked[0]).estimates(asked[0], noisy, Display(0.05, 3.0))
    for one, arm in ((old, "old"), (new, "new")):
        values = TRIAL["x"][TRIAL["arm"] == arm]
        error = values.std() / math.sqrt(len(values))
        assert one.sampling_error == pytest.approx(error, rel=1e-4)
        assert ends(one) == pytest.approx(
            (values.mean() - 1.959964 * error, values.mean() + 1.959964 * error), rel=1e-4
        )
    for one in statistic_of(asked[1]).estimates(asked[1], noisy, Display(0.05, 3.0)):
        assert one.sampling_error == pytest.approx((one.value or 0.0) * math.sqrt(2 / 2000), rel=1e-4)
        assert one.note == NORMAL_THEORY


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("difference(x)", "needs two groups"),
        ("difference(x) by stage", "needs two groups"),
        ("difference(x) by arm x stage", "needs two groups"),
        ("risk(x) by arm", "must be 0 or 1"),
        ("chi_square(arm, x)", "needs `bins`"),
        ("chi_square(arm, stage, time)", "needs two columns"),
        ("logrank(time, event) by stage x arm", "needs two groups"),
        ("cox(time, event ~ x)", "needs `bins`"),
        ("cox(time, event ~ arm) by arm", "twice"),
        ("difference(x) by arm where arm = old", "its condition leaves one group alone of the two by 'arm'"),
        ("risk(ill) by arm where arm != old", "leaves one group alone"),
        ("logrank(time, event) by arm where arm = new", "leaves one group alone"),
        ("chi_square(arm, stage) where arm = old", "leaves one group alone of the two by 'arm'"),
        ("chi_square(arm, stage) where stage = ii", "leaves one group alone of the 3 by 'stage'"),
        ("cox(time, event ~ arm) where x > 1 and arm = new", "leaves one group alone of the two by 'arm'"),
        ("cox_efron(time, event ~ stage) where stage != i", "leaves 2 groups of the 3 by 'stage'"),
        ("regression(x ~ arm) where arm = old", "leaves one group alone of the two by 'arm'"),
        ("regression(x ~ arm * ill) where ill = 1", "its condition leaves one value of 'ill'"),
    ],
)
def test_what_cannot_be_compared_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_ask(text, schema_of(tuple(TRIAL)))


@pytest.mark.parametrize(
    "text",
    [
        "chi_square(arm, stage) where stage != i",
        "cox(time, event ~ arm) where stage = ii",
        "regression(x ~ arm + ill) where x > 1 and stage = ii",
        "regression(ill ~ arm) where ill = 1",
        "logrank(time, event) by arm x stage where stage = ii",
    ],
)
def test_conditions_that_leave_what_an_answer_compares_are_accepted(text: str) -> None:
    assert read_ask(text, schema_of(tuple(TRIAL)))[0].where


@pytest.mark.parametrize(
    ("condition", "both"),
    [("g < 5", False), ("g >= 5", False), ("g <= 5", True), ("g != 2 and g < 6", True), ("y > 8", True)],
)
def test_a_condition_on_the_groups_leaves_rows_in_both(condition: str, both: bool) -> None:
    columns: dict[str, Any] = {
        "y": {"lower": 0.0, "upper": 9.0},
        "g": {"lower": 0.0, "upper": 9.0, "step": 1.0, "bins": [5.0]},
    }
    known, text = read_schema({"columns": columns, "max_rows": 9}), f"difference(y) by g where {condition}"
    if both:
        assert read_ask(text, known)[0].where
    else:
        with pytest.raises(ConfigError, match="its condition leaves one group alone of the two by 'g'"):
            read_ask(text, known)
