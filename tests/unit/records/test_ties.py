"""Hazard ratios with Breslow's and Efron's ties: a library's numbers, a slow twin, noise and coverage."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.records import cox
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.cox import NO_FIT, OF_TIES
from smpc_dp.records.partial_likelihood import Fit, RiskSets, Ties, _Step, fitted_partial
from smpc_dp.records.plan import plan_request
from smpc_dp.records.schema import read_schema
from smpc_dp.records.table import read_table
from tests.unit.records.test_comparisons import TRIAL, answers, schema_of, survivors

Floats = NDArray[np.float64]
TIES: tuple[Ties, ...] = ("breslow", "efron")
# Of statsmodels 0.15.0: PHReg(bin, x, status=event, ties=...).fit() of the rows of `binned`, the bin of each
# row for its time, 12 for those beyond all bins: coefficients and standard errors of arm and stages; then the
# same with strata=stage, of arm.
LIBRARY: dict[Ties, tuple[list[float], list[float], float, float]] = {
    "breslow": (
        [-0.45878015, 0.37506921, 0.72189170],
        [0.03979149, 0.05085249, 0.04951841],
        -0.45853958,
        0.03981223,
    ),
    "efron": (
        [-0.49824602, 0.40077060, 0.78258145],
        [0.03979742, 0.05085376, 0.04952219],
        -0.49772784,
        0.03981680,
    ),
}


def binned() -> dict[str, NDArray[Any]]:
    """Return the rows of `TRIAL` of which a third is censored, some within the bins of events."""
    end = 2.0 + 11 * ((np.arange(4000) * 15485863 + 5) % 9949) / 9949
    life = TRIAL["time"]
    return {
        "time": np.minimum(life, end),
        "event": (life <= end) * 1.0,
        "arm": TRIAL["arm"],
        "stage": TRIAL["stage"],
    }


@pytest.mark.parametrize("ties", TIES)
def test_both_are_those_of_a_library_on_the_same_bins(monkeypatch: pytest.MonkeyPatch, ties: Ties) -> None:
    made: list[Fit] = []

    def kept(*given: Any) -> Fit:
        fit = fitted_partial(*given)
        assert fit is not None
        made.append(fit)
        return fit

    monkeypatch.setattr(cox, "fitted_partial", kept)
    values, errors, value, error = LIBRARY[ties]
    found = answers(f"cox_{ties}(time, event ~ arm + stage)", binned())
    assert [one.value for one in found] == pytest.approx(values, rel=1e-6)
    (one,) = answers(f"cox_{ties}(time, event ~ arm) by stage", binned())
    assert one.value == pytest.approx(value, rel=1e-6)
    several, alone = (np.sqrt(np.diag(fit.inverse)) for fit in made)
    assert several == pytest.approx(errors, rel=1e-6)
    assert alone == pytest.approx([error], rel=1e-6)


@pytest.mark.parametrize("ties", TIES)
def test_nothing_is_said_about_a_population(ties: Ties) -> None:
    """In wide bins a hazard ratio of 3 is far from what either has without any noise."""
    rng = np.random.default_rng(2)
    arm = rng.random(5000) < 0.5
    rows = survivors(rng, 5000)
    life = rng.exponential(1 / np.where(arm, 0.3, 0.1))
    rows |= {
        "time": np.minimum(4 * np.floor(life / 4) + 2, 12.0),
        "event": (life < 12) * 1.0,
        "arm": np.where(arm, "new", "old"),
    }
    (one,) = answers(f"cox_{ties}(time, event ~ arm)", rows)
    assert one.value is not None
    assert math.log(3) - one.value > 0.02
    about = (one.sampling_error, one.population_low, one.population_high, one.p_value)
    assert about == (None, None, None, None)
    assert one.note.startswith(OF_TIES)
    (grouped,) = answers("cox(time, event ~ arm)", rows)
    assert None not in (grouped.sampling_error, grouped.population_low, grouped.p_value)


def test_wide_bins_make_both_smaller_than_grouped_times() -> None:
    """The reason why neither is the default; Efron's is nearer."""
    breslow, efron, grouped = (
        answers(f"{kind}(time, event ~ stage)", binned())[-1].value or 0.0
        for kind in ("cox_breslow", "cox_efron", "cox")
    )
    assert 0.85 * grouped < breslow < efron < grouped


COUNTS = tuple[Floats, Floats, Floats]


def some_counts(seed: int) -> COUNTS:
    """Return whole counts of two strata, three patterns and four bins."""
    rng = np.random.default_rng(seed)
    sizes = (2, 3, 4), (2, 3, 4), (2, 3)
    events, leaving, staying = (rng.integers(3, 9, size).astype(np.float64) for size in sizes)
    return events, leaving, staying


DESIGN = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])


def log_likelihood(counts: COUNTS, value: Floats, ties: Ties) -> float:
    """Return the logarithm of the partial likelihood, event by event."""
    events, leaving, staying = counts
    ratios, total = np.exp(DESIGN @ value), 0.0
    for stratum in range(2):
        for index in range(4):
            own = events[stratum, :, index]
            risk = (events + leaving)[stratum, :, index:].sum(axis=1) + staying[stratum]
            total += float(own @ (DESIGN @ value))
            for place in range(round(own.sum())):
                part = place / own.sum() if ties == "efron" else 0.0
                total -= math.log(float((risk - part * own) @ ratios))
    return total


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("seed", range(3))
def test_score_and_information_are_the_slopes_of_the_likelihood(seed: int, ties: Ties) -> None:
    counts, value, apart = some_counts(seed), np.array([0.4, -0.7]), 1e-4
    step = _Step.at(RiskSets.of(*counts, 0.0), DESIGN, value, ties)
    assert step is not None
    for place in range(2):
        moved = apart * np.eye(2)[place]
        ends = [log_likelihood(counts, value + sign * moved, ties) for sign in (1, -1)]
        assert step.score[place] == pytest.approx((ends[0] - ends[1]) / (2 * apart), rel=1e-6)
        steps = [_Step.at(RiskSets.of(*counts, 0.0), DESIGN, value + sign * moved, ties) for sign in (1, -1)]
        assert steps[0] is not None
        assert steps[1] is not None
        slope = (steps[1].score - steps[0].score) / (2 * apart)
        assert step.information[place] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("ties", TIES)
def test_the_noise_is_that_of_moved_counts(ties: Ties) -> None:
    """Slopes of the estimate in each count of each cell, against differences of whole fits."""
    counts, square = some_counts(7), np.zeros((2, 2))
    fit = fitted_partial(RiskSets.of(*counts, 1e-3), DESIGN, ties)
    assert fit is not None
    for part in range(3):
        for cell in range(counts[part].size):
            ends = []
            for sign in (1, -1):
                moved = [each.copy() for each in counts]
                moved[part].ravel()[cell] += sign * 1e-4
                one = fitted_partial(RiskSets.of(moved[0], moved[1], moved[2], 1e-3), DESIGN, ties)
                assert one is not None
                ends.append(one.value)
            slope = (ends[0] - ends[1]) / 2e-4
            square += np.outer(slope, slope)
    assert fit.noise == pytest.approx(1e-6 * square, rel=1e-5)


def test_noisy_counts_have_an_estimate_also_where_events_are_few_or_negative() -> None:
    events, leaving, staying = some_counts(3)
    events[0, 0, 1], events[1, :, 2] = -2.0, (0.4, -0.3, 0.2)
    fit = fitted_partial(RiskSets.of(10 * events, 10 * leaving, 10 * staying, 2.0), DESIGN, "efron")
    assert fit is not None
    assert np.isfinite(fit.noise).all()


def test_bins_after_the_first_without_clear_rows_at_risk_do_not_count() -> None:
    events, leaving, staying = some_counts(4)
    events[0, :, 2:], leaving[0, :, 2:], staying[0] = 0.0, 0.0, 0.0
    events[0, 0, 3] = 1.0
    sets = RiskSets.of(events, leaving, staying, 0.5)
    assert sets.used.tolist() == [[True, True, False, False], [True] * 4]


def test_what_the_noise_hides_has_no_value() -> None:
    """Of 60 rows no bin counts; of 1,500 the noise of the information decides."""
    few, many = ({name: column[:size] for name, column in binned().items()} for size in (60, 1500))
    for ties in TIES:
        near, far = (answers(f"cox_{ties}(time, event ~ arm)", many, noise, 1)[0] for noise in (40.0, 60.0))
        assert (near.value is None, far.value, far.note) == (False, None, NO_FIT)
        made = answers(f"cox_{ties}(time, event ~ arm)", few, 30.0, 1)
        assert {(one.value, one.note, one.p_value) for one in made} == {(None, NO_FIT, None)}


def test_all_three_are_of_one_block_and_share_its_noise() -> None:
    """Beside `cox` they cost nothing: the same vector, and noise of the same deviation."""
    columns = {
        "time": {"lower": 0.0, "upper": 12.0, "bins": [3.0, 6.0, 9.0]},
        "event": {"lower": 0.0, "upper": 1.0, "step": 1.0},
        "arm": {"values": ["old", "new"]},
    }
    schema = read_schema({"columns": columns, "max_rows": 9000})
    asks = ["cox(time, event ~ arm)", *(f"cox_{ties}(time, event ~ arm)" for ties in TIES)]
    plans = [
        plan_request(schema, ask, epsilon=1.0, delta=1e-6, parties=4, missing=0, corrupt=1, split="balanced")
        for ask in (asks[:1], asks)
    ]
    (first,), (second,) = (plan.blocks for plan in plans)
    assert first.block == second.block
    (noise, other) = (plan.deviation_of(first.block, 4) for plan in plans)
    assert noise == pytest.approx(other, rel=1e-9)
    table = read_table({name: binned()[name] for name in columns}, schema)
    made = estimate(plans[1], plans[1].vector(table), 4).estimates
    assert [one.statistic for one in made] == asks
    assert len({one.value for one in made}) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cox_efron(time, event ~ arm) by arm", "a column is there twice"),
        ("cox_breslow(time, arm ~ stage)", "column 'arm' has categories"),
        ("cox_exact(time, event ~ arm)", "'cox_exact' is no statistic"),
        ("cox_efron(time, event)", "~ is expected"),
    ],
)
def test_other_questions_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_ask(text, schema_of(("time", "event", "arm", "stage")))


@functools.cache
def releases(ties: Ties, count: int) -> tuple[Floats, Floats, Floats, float]:
    """Return values, standard errors of noise, and whether intervals of it have the truth, and the truth."""
    rows = survivors(np.random.default_rng(3), 3000)
    text = f"cox_{ties}(time, event ~ arm)"
    truth = answers(text, rows)[0].value or 0.0
    made = [answers(text, rows, 3.0, seed)[0] for seed in range(count)]
    inside = [(one.low or 0.0) <= truth <= (one.high or 0.0) for one in made]
    columns = ([one.value for one in made], [one.standard_error for one in made], inside)
    values, errors, covered = (np.array(column, dtype=np.float64) for column in columns)
    return values, errors, covered, truth


@pytest.mark.parametrize("ties", TIES)
def test_intervals_of_the_noise_have_about_their_level(ties: Ties) -> None:
    """Of 200 intervals of level .95 fewer than 181 have the truth with a chance of 3e-3, all with 4e-5.

    The deviation of 200 normal values is beyond 18 % of the stated one with a chance of 4e-4.
    """
    values, errors, covered, truth = releases(ties, 200)
    assert 181 <= covered.sum() < 200
    assert values.std() == pytest.approx(errors.mean(), rel=0.18)
    assert abs(values.mean() - truth) < 4 * values.std() / math.sqrt(200)
