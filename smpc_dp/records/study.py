"""Forecasts the intervals of a request and the power of its tests, from public assumptions alone.

The answers are computed as after a run, from the sums that an assumed population has on average. So the
widths are those of the intervals that a run prints, by the law of its noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.search import bisect
from smpc_dp.records.answers import DEFAULT_HIDE, noisy_sums
from smpc_dp.records.asked import Statistic
from smpc_dp.records.comparisons import association
from smpc_dp.records.features import Block, Lacking, product, selector
from smpc_dp.records.forecast import Expected, Forecast
from smpc_dp.records.fourth import ROBUST_COSTS, noise_of_fourth
from smpc_dp.records.intervals import NORMAL, normal_quantile, sum_quantile
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.plan import Plan, PlannedError
from smpc_dp.records.population import student_quantile
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.result import Estimate
from smpc_dp.records.sandwich import NAME as SANDWICH
from smpc_dp.records.sandwich import SquaredInfluence, short_text
from smpc_dp.records.schema import Number, Schema
from smpc_dp.records.steps import SteppedPlan
from smpc_dp.records.terms import risk_selectors, survival_block

Floats = NDArray[np.float64]
# Outside of every interval and of what a test accepts; the probability that a test finds an effect.
OUTSIDE, POWER = 0.05, 0.8
# Answers whose forecast needs mean and deviation of their columns; those with an upper bound without.
_ROBUST_MOMENTS = ("robust variance", "robust covariance", "robust correlation")
_OF_MOMENTS = ("variance", "covariance", "correlation", "regression", *_ROBUST_MOMENTS)
_OF_BOUNDS = ("sum", "mean", "difference")
_COX = ("cox", "cox_breslow", "cox_efron")
_OF_COUNTS = {
    "count": "cells of equal size",
    "table": "cells of equal size",
    "histogram": "cells of equal size",
    "risk": "groups of equal size, risks of a half, where it is widest",
    "chi_square": "cells of equal size",
    "quantile": "of the rank, as a share of the rows, for values spread evenly over the bounds",
    "survival": "as many events and departures in each bin of time",
    "logrank": "as many events and departures in each bin of time",
    **dict.fromkeys(_COX, "as many events and departures in each bin of time"),
}
_OF_ROWS = "of the rows that are there, which are no sample"
_OF_CONDITION = "all rows satisfy the condition (--rows N plans for N rows that do)"
_ERRORS = "the noise is 1.96 planned standard errors"
_UNKNOWN = "nothing is promised about sampling: the data decide"
_Z = normal_quantile(OUTSIDE)
_Z_POWER = normal_quantile(2 * (1 - POWER))
# Steps towards the correlation that a test finds, and the strongest one that is promised: noise that hides
# one of .52 hides both variances so well that a power of .72 was measured, and at .8 one of .32.
_STEPS, _STRONGEST = 4, 0.45
_NO_EFFECT = f"the noise hides correlations up to {_STRONGEST:g}: no effect is promised that the test finds"
# Points of the noise of fourth moments at which the power of a robust test is computed, and bisections.
_POINTS, _BISECTIONS = 200, 40


def check_expected(expected: Mapping[str, Expected], schema: Schema, where: str = "--expect") -> None:
    """Raise ConfigError for assumed means and deviations that are impossible within a column's bounds."""
    issues = []
    for name, one in expected.items():
        column, field = schema.columns.get(name), f"{where} {name}"
        if not isinstance(column, Number):
            issues.append(ConfigIssue(field, "is no column of numbers", ConfigCheck.UNKNOWN_NAME))
        elif not column.lower <= one.mean <= column.upper:
            reason = f"the mean must be in [{column.lower:g}, {column.upper:g}], is {one.mean:g}"
            issues.append(ConfigIssue(field, reason, ConfigCheck.RANGE))
        else:
            most = most_deviation(one.mean, column)
            if not most:
                reason = f"the mean {one.mean:g} is a bound: all values would be equal"
                issues.append(ConfigIssue(field, reason, ConfigCheck.RANGE))
            elif column.is_indicator and not math.isclose(one.deviation, most, rel_tol=0.01):
                reason = f"of 0 and 1 the standard deviation is {most:.4g} for this mean: leave it out"
                issues.append(ConfigIssue(field, reason, ConfigCheck.RANGE))
            elif not 0 < one.deviation <= most * (1 + 1e-9):
                reason = (
                    f"the standard deviation must be above 0, and at most {most:.4g} for this mean and these "
                    f"bounds, is {one.deviation:g}"
                )
                issues.append(ConfigIssue(field, reason, ConfigCheck.RANGE))
    if issues:
        raise ConfigError(issues)


def most_deviation(mean: float, column: Number) -> float:
    """Return the largest standard deviation of a column within its bounds, given its mean."""
    return math.sqrt(max((mean - column.lower) * (column.upper - mean), 0.0))


def forecasts(
    plan: Plan | SteppedPlan, present: int, rows: int, expected: Mapping[str, Expected]
) -> tuple[Forecast, ...]:
    """Predict interval widths and detectable effects of each answer, before any data are used.

    Cells are taken to have equally many rows, and columns to be independent. A column that is not in
    `expected` has the largest error that its bounds allow.
    """
    if not isinstance(plan, Plan):
        return tuple(_planned(plan.statistic.text, error, _UNKNOWN) for error in plan.errors(present, rows))
    study = _Study(plan, present, rows, expected)
    return tuple(one for statistic in plan.statistics for one in study.forecasts(statistic))


def _planned(text: str, error: PlannedError, reason: str) -> Forecast:
    """Return the prediction for an answer of which only the planned noise is known, not the sampling."""
    noise = None if error.standard_error is None else _Z * error.standard_error
    assumed = "; ".join(part for part in (error.assumed, _ERRORS, reason) if part)
    return Forecast(text=text, name=error.text, noise=noise, assumed=assumed)


@dataclass(frozen=True)
class _Study:
    """Simulated request, with assumed means and deviations of columns, to predict interval widths."""

    plan: Plan
    present: int
    rows: int
    expected: Mapping[str, Expected]

    @property
    def schema(self) -> Schema:
        """The declared columns of the plan that is studied."""
        return self.plan.schema

    def forecasts(self, one: Statistic) -> Iterator[Forecast]:
        """Yield predictions for the numbers of one statistic, each for the cell with the widest interval."""
        for made in self._of_all_rows(one):
            assumed = f"{made.assumed}; {_OF_CONDITION}".removeprefix("; ")
            yield replace(made, assumed=assumed) if one.where else made

    def _of_all_rows(self, one: Statistic) -> Iterator[Forecast]:
        """Yield predictions for one statistic by the method for its kind, ignoring its row condition."""
        numbers = [name for name in one.columns if isinstance(self.schema.columns[name], Number)]
        lacking = ", ".join(name for name in numbers if name not in self.expected)
        if one.kind in _OF_MOMENTS and lacking:
            yield from self._noise_alone(one, f"the rest needs mean and deviation of {lacking}")
        elif one.kind in _OF_COUNTS:
            yield from self._of_counts(one)
        elif one.kind in _OF_MOMENTS:
            yield from self._of_moments(one)
        elif one.kind == SANDWICH:
            yield from self._of_sandwich(one)
        elif one.kind in _OF_BOUNDS:
            yield from self._of_bounds(one)
        else:
            yield from self._noise_alone(one, _UNKNOWN)

    def _noise_alone(self, one: Statistic, reason: str) -> Iterator[Forecast]:
        """Yield predictions of a statistic's planned noise alone, for the reason given."""
        for error in self.plan.errors(self.present, self._public_rows):
            if error.asked == one.text:
                yield _planned(one.text, error, reason)

    @property
    def _public_rows(self) -> int | None:
        """The assumed number of rows if that is public in the schema, else None."""
        return self.rows if self.schema.rows == "public" else None

    def _noisy(self, one: Statistic, expected: Mapping[str, Expected], correlation: float = 0.0) -> NoisySums:
        """Return the sums that the assumed population would give, exact, with the deviations of their noise.

        `correlation`: of any two columns.
        """
        cells = [
            np.round(self._cells(block, expected, correlation) * float(scale))
            for block, (_, scale) in self.plan.offsets.items()
        ]
        total = np.concatenate(cells).astype(np.int64)
        noisy = noisy_sums(self.plan, total, self.present, self._public_rows, self.present)
        return noisy.by_condition[one.where]

    def _cells(self, block: Block, expected: Mapping[str, Expected], correlation: float) -> Floats:
        """Return the assumed population's sum in each cell of a block, rows spread equally over cells."""
        if isinstance(block, Lacking):
            return np.zeros(block.cells)
        if isinstance(block, SquaredInfluence):
            return np.array([block.expected(self._residual(block.powers[0]), self.schema)])
        product_of, spreads = float(block.greatest(self.schema)), 1.0
        for name in {*block.powers}:
            column = self.schema.number(name, name)
            half, middle, spread = column.width / 2, 0.0, 1.0
            if name in expected:
                middle, spread = (expected[name].mean - column.middle) / half, expected[name].deviation / half
            product_of *= _moment(block.powers.count(name), middle, spread)
            spreads *= spread
        if len({*block.powers}) == len(block.powers) == 2:
            product_of += block.greatest(self.schema) * correlation * spreads
        cells = np.full(block.cells, self.rows * product_of / block.cells)
        if block.is_survival:
            # no row of the last cell of time has an event
            cells.reshape(-1, block.selectors[-2].cells, 2)[:, -1] *= (2.0, 0.0)
        return cells

    def _answers(
        self, one: Statistic, expected: Mapping[str, Expected], correlation: float = 0.0
    ) -> list[Estimate]:
        """Return one statistic's estimates for the assumed population, the widest cell's for each name."""
        display, widest = Display(OUTSIDE, DEFAULT_HIDE), dict[str, Estimate]()
        for each in statistic_of(one).estimates(one, self._noisy(one, expected, correlation), display):
            if each.name not in widest or _width(each) > _width(widest[each.name]):
                widest[each.name] = each
        return [*widest.values()]

    def _of_counts(self, one: Statistic) -> Iterator[Forecast]:
        """Yield predictions for statistics of counts, with equally many rows in each cell."""
        for each in self._answers(one, self.expected):
            unused = ", ".join(name for name in one.columns if name in self.expected)
            ignored = f"; what is expected of {unused} is not used" if unused else ""
            made = self._forecast(one, each, f"{_OF_COUNTS[one.kind]}{ignored}")
            if one.kind == "count" and not each.cell:
                made = replace(made, assumed=_OF_ROWS)
            if each.name.startswith(("risk ratio", "odds ratio")):
                # their test is that of the difference
                continue
            if one.kind == "quantile" and made.noise is not None:
                yield self._rank(one, made)
            elif one.kind == "chi_square" and each.value is not None:
                yield replace(made, detected=self._association(one), effect="Cohen's w")
            elif each.name.startswith("risk difference") and each.value is not None:
                yield replace(made, detected=self._risk_difference(one, each), effect="difference of risks")
            elif one.kind == "logrank" and each.sampling_error:
                whole = math.hypot(each.standard_error or 0.0, each.sampling_error)
                ratio = math.exp((_Z + _Z_POWER) * whole / self._log_hazard_slope(one))
                yield replace(made, detected=ratio, effect="hazard ratio")
            elif one.kind in _COX and each.sampling_error:
                whole = math.hypot(each.standard_error or 0.0, each.sampling_error)
                yield replace(made, detected=math.exp((_Z + _Z_POWER) * whole), effect="hazard ratio")
            elif each.p_value is None:
                yield made

    def _of_bounds(self, one: Statistic) -> Iterator[Forecast]:
        """Yield predictions for a sum, mean or difference, the worst within bounds if nothing is assumed.

        The noise is then that of a mean at a bound, and the sample that of rows at both bounds.
        """
        (name,) = one.columns
        column, given = self.schema.number(name, one.text), self.expected.get(name)
        deviation = column.width / 2 if given is None else given.deviation
        assumed = [_OF_ROWS if one.kind == "sum" else _of_column(name, given, deviation)]
        if one.by and one.kind != "sum":
            assumed.append("groups of equal size")
        if one.kind == "mean" and self._square(one) not in self.plan.offsets:
            of_groups = f" by {' x '.join(one.by)}" if one.by else ""
            assumed.append(f"a run states the sampling error if variance({name}){of_groups} is asked too")
        expected = {name: Expected(column.upper, 0.0)} | {**self.expected}
        planned = next(self._noise_alone(one, "")).noise or 0.0
        in_middle = {each.name: each for each in self._answers(one, self.expected)}
        for each in self._answers(one, expected):
            made = self._forecast(one, each, "; ".join(assumed))
            if made.noise is None or one.kind == "sum":
                yield made
                continue
            at_bound = planned * _stretch(in_middle[each.name])
            if given is None:
                # at a bound the interval ends there: its half is no measure
                made = replace(made, noise=at_bound)
            error = deviation * (2 if one.kind == "difference" else 1) / math.sqrt(each.over or math.inf)
            sampling, noise = _Z * error, made.noise or 0.0
            made = replace(made, sampling=sampling, both=math.hypot(noise, sampling), at_bound=at_bound)
            if one.kind == "difference":
                detected = self._difference(each.standard_error or 0.0, error)
                made = replace(made, detected=detected, effect=f"difference in {name}")
            yield made

    def _square(self, one: Statistic) -> Block:
        """Return the description of a column's sum of squares in the statistic's groups."""
        (name,) = one.columns
        block = product(self.schema, name, name, by=[selector(self.schema, each) for each in one.by])
        return replace(block, where=one.where)

    def _of_moments(self, one: Statistic) -> Iterator[Forecast]:
        """Yield predictions for variances, correlations or regressions of columns assumed independent."""
        assumed = "columns independent of each other, as expected"
        if one.kind in _ROBUST_MOMENTS:
            assumed = f"{assumed}, with the fourth moments of normal values; {ROBUST_COSTS}"
        for each in self._answers(one, self.expected):
            groups = ", in groups of equal size" if one.by else ""
            made = self._forecast(one, each, f"{assumed}{groups}")
            if each.p_value is not None:
                detected = self._correlation(one, each)
                if detected is None:
                    made = replace(made, assumed=f"{made.assumed}; {_NO_EFFECT}")
                else:
                    made = replace(made, detected=detected, effect="correlation")
            yield made

    def _of_sandwich(self, one: Statistic) -> Iterator[Forecast]:
        """Yield predictions of robust sampling errors, for residuals of the deviation of the response."""
        name = one.columns[0]
        assumed = f"residuals with the standard deviation of {name}, the same for all rows"
        if name not in self.expected:
            assumed = f"at least: residuals of 0 (the rest needs mean and deviation of {name})"
        for each in self._answers(one, self.expected):
            made = self._forecast(one, each, assumed)
            yield replace(made, text=one.named(short_text(one)), noise=_Z * (each.standard_error or 0.0))

    def _residual(self, name: str) -> float:
        """Return the expected standard deviation of a response in half ranges; 0 where none is given."""
        given = self.expected.get(name)
        return 0.0 if given is None else given.deviation / (self.schema.number(name, name).width / 2)

    def _forecast(self, one: Statistic, each: Estimate, assumed: str) -> Forecast:
        """Return the half widths of an estimate's intervals as a prediction, none if it has no value."""
        if each.value is None:
            return Forecast(text=one.text, name=each.name, assumed=each.note)
        return Forecast(
            text=one.text,
            name=each.name,
            noise=_half(each.low, each.high),
            sampling=None if each.sampling_error is None else _Z * each.sampling_error,
            both=_half(each.population_low, each.population_high),
            assumed=assumed,
        )

    def _rank(self, one: Statistic, made: Forecast) -> Forecast:
        """Return a quantile's prediction rescaled to ranks as shares of the rows, values spread evenly."""
        width = self.schema.number(one.columns[0], one.text).width
        level = float(made.name.rpartition(",")[2].rstrip(") "))
        groups = math.prod(selector(self.schema, each).cells for each in one.by)
        return replace(
            made,
            noise=None if made.noise is None else made.noise / width,
            sampling=_Z * math.sqrt(level * (1 - level) * groups / self.rows),
            both=None if made.both is None else made.both / width,
        )

    def _correlation(self, one: Statistic, each: Estimate) -> float | None:
        """Return the correlation that a test with 80% power detects, None if over 0.45 or hidden by noise.

        The error of the noise depends on the correlation: a few steps find it.
        """
        detected = 0.0
        is_robust = one.kind != "correlation"
        fourth = noise_of_fourth(one, self._noisy(one, self.expected)) if is_robust else 0.0
        for _ in range(_STEPS):
            at = next(made for made in self._answers(one, self.expected, detected) if made.name == each.name)
            if at.standard_error is None or at.over is None:
                return None
            noise = at.standard_error / (1 - detected**2)
            reach = (_Z + _Z_POWER) * math.hypot(noise, 1 / math.sqrt(at.over - 3))
            if is_robust:
                reach = _robust_reach(noise, at.over, fourth)
            detected = math.tanh(reach)
            if detected > _STRONGEST:
                return None
        return detected

    def _difference(self, noise: float, error: float) -> float:
        """Return the difference of two means that Welch's test detects with 80% power."""
        # each of two equal groups has half of the variance
        freedom = (noise**2 + error**2) ** 2 / (error**4 / 2 / (self.rows / 2 - 1))
        return (student_quantile(freedom, OUTSIDE) + _Z_POWER) * math.hypot(noise, error)

    def _risk_difference(self, one: Statistic, each: Estimate) -> float:
        """Return the difference of two risks near a half that a test detects with 80% power."""
        block = product(self.schema, by=risk_selectors(one, self.schema))
        # four counts have the same noise and the same weight
        noise = (each.standard_error or 0.0) / 2, self._noisy(one, self.expected).distribution(block)
        parts = [(1 / math.sqrt(self.rows), NORMAL), *[noise] * 4]
        whole = math.hypot(*(deviation for deviation, _ in parts))
        return whole * (sum_quantile(parts, OUTSIDE) + sum_quantile(parts, 2 * (1 - POWER)))

    def _log_hazard_slope(self, one: Statistic) -> float:
        """Return the log-rank difference of observed and expected events per unit of log hazard ratio.

        Of R rows at risk in both groups a share p has an event in a bin: R/4 (1 - p) times its hazard.
        """
        time = survival_block(one, self.schema).selectors[-2].cells
        later = np.arange(time, 1, -1)
        events = 1 / (2 * later)
        # a cell of time has this part of the rows, for two groups in each stratum together
        at_risk = self.rows * later / time
        return float((at_risk / 4 * (1 - events) * -np.log1p(-events)).sum())

    def _association(self, one: Statistic) -> float:
        """Return the association, as Cohen's w, that a chi-square test of equal cells detects."""
        # Not at the top: it takes long to load, and a plan without such a table does not need it.
        from scipy.special import chndtrinc, gammainccinv

        block = product(self.schema, by=[selector(self.schema, name) for name in one.columns])
        noisy = self._noisy(one, self.expected)
        noise = noisy.deviation(block)
        counts = noisy.sums(block).reshape([each.cells for each in block.selectors])
        test = association(counts, noise, noisy.distribution(block))
        freedom = test.freedom / test.growth
        refused = 2 * gammainccinv(freedom / 2, OUTSIDE)
        apart = test.growth * test.inflation * float(chndtrinc(refused, freedom, 1 - POWER))
        return math.sqrt(apart * (1 + noise**2 * counts.size / self.rows) / self.rows)


def _robust_reach(noise: float, count: float, fourth: float) -> float:
    """Return the correlation, on Fisher's scale, that a test with noisy fourth moments finds with 80% power.

    `noise`: the deviation of the correlation's noise on this scale; `fourth`: that of E u^2 v^2, which is 1
    of normal values without a correlation. Within two deviations of 0 the test takes two deviations more.
    """
    if not math.isfinite(fourth):
        return math.inf
    # Not at the top: it takes long to load, and a plan without such a test does not need it.
    from scipy.special import ndtr, ndtri

    square = 1 + fourth * ndtri((np.arange(_POINTS) + 0.5) / _POINTS)
    square = np.maximum(square, 0.0) + np.where(square <= 2 * fourth, 2 * fourth, 0.0)
    refused = _Z * np.sqrt(noise**2 + square / count)
    error = math.hypot(noise, 1 / math.sqrt(count))
    most = float(refused.max()) + 4 * error
    return bisect(lambda at: float(ndtr((at - refused) / error).mean()) < POWER, 0.0, most, _BISECTIONS)[1]


def _moment(power: int, mean: float, deviation: float) -> float:
    """Return the mean of a power up to 4 of normal values, at most that of squares, for values in [-1, 1]."""
    square = mean**2 + deviation**2
    if power < 3:
        return mean if power == 1 else square
    if power == 3:
        return mean**3 + 3 * mean * deviation**2
    return min(mean**4 + 6 * (mean * deviation) ** 2 + 3 * deviation**4, square)


def _of_column(name: str, given: Expected | None, deviation: float) -> str:
    """Return a text saying which mean and deviation of a column are assumed."""
    if given is None:
        return f"at most: standard deviation {deviation:g}, the largest for the bounds of {name}"
    return f"mean {given.mean:g} and standard deviation {deviation:g} of {name}"


def _half(low: float | None, high: float | None) -> float | None:
    """Return half the width of an interval, None if an end is not bounded."""
    return None if low is None or high is None else (high - low) / 2


def _stretch(one: Estimate) -> float:
    """Return the ratio of an estimate's interval width to that of normal noise with its standard error."""
    half = _half(one.low, one.high)
    return 1.0 if half is None or not one.standard_error else half / (_Z * one.standard_error)


def _width(one: Estimate) -> float:
    """Return the width of an estimate's interval, infinite where it is not bounded or no value is shown."""
    half = _half(one.low, one.high)
    return math.inf if half is None or one.value is None else half
