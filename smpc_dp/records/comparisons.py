"""Comparisons of two groups, and the association of two columns, from noisy sums: tests include the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.cells import spreads
from smpc_dp.records.features import product, selector
from smpc_dp.records.intervals import (
    INFINITE,
    ErrorDistribution,
    scaled,
    shown_ratio,
    within,
)
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.population import (
    Sampling,
    Share,
    chi_square_tail,
    difference,
    equal_shares_p_value,
    ratio,
    transformed,
)
from smpc_dp.records.result import WITHIN_NOISE, Estimate, cell_text, near_zero
from smpc_dp.records.terms import risk_selectors
from smpc_dp.records.welch import NoisyMean, WelchTest

Floats = NDArray[np.float64]
NO_RATIO = "none: a risk is 0 or 1 within the noise"
# Expected counts below this are named.
SPARSE = 5.0
FEW = "approximate: an expected count is below 5"
NO_TABLE = "none: less than two rows or columns are clear of the noise"


def differences(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the difference of a column's means in two groups, first less second, with Welch's test.

    The noise of both means is in the variance.
    """
    schema, (name,) = noisy.schema, one.columns
    column, by = schema.number(name, one.text), [selector(schema, each) for each in one.by]
    first, count = product(schema, name, by=by), product(schema, over=one.columns, by=by)
    second = product(schema, name, name, by=by)
    half, counted = column.width / 2, noisy.deviation(count)
    # in half ranges: fourth powers of the values are within what floats have
    squared = noisy.deviation(second) / second.greatest(schema)
    errors = noisy.deviation(first) / column.steps, counted, squared
    distributions = noisy.distribution(first), noisy.distribution(count)
    groups = [
        NoisyMean(rows, total, variance, error, errors, distributions)
        for rows, total, variance, error in spreads(name, noisy, by)
    ]
    label = f"difference of mean({name}), {_against(one, noisy)}"
    over = sum(group.rows for group in groups)
    if any(group.rows <= max(display.least(counted), 1.0) for group in groups):
        yield Estimate.of(one, label, name, INFINITE, over=over, note=WITHIN_NOISE)
        return
    both = WelchTest(*groups)
    ends = [
        shown_ratio(
            (group.total, errors[0]),
            (group.rows, counted),
            display.least(counted),
            display.outside,
            distributions,
        )
        for group in groups
    ]
    is_clear = not any(near_zero(group.variance, group.variance_error) for group in groups)
    sampled = Sampling(
        half * both.sampling if is_clear else None,
        scaled(both.ends(display.outside, 2.0), half),
        both.p_value(),
    )
    noise_ends = scaled(difference(groups[0].value, ends[0], groups[1].value, ends[1]), half)
    possible = -column.width, column.width
    yield Estimate.of(
        one,
        label,
        name,
        within(noise_ends, *possible),
        value=half * both.difference,
        error=half * both.noise,
        sampled=sampled,
        over=over,
        possible=possible,
    )


def _against(one: Statistic, noisy: NoisySums) -> str:
    """Return the label of a comparison, the names of the two groups joined by a minus sign."""
    cells = cell_labels(tuple(selector(noisy.schema, each) for each in one.by), noisy.schema)
    return " - ".join(cell_text(cell) for cell in cells)


def risks(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the risk of an event in two groups, and the difference, ratio and odds ratio of both risks.

    The p-value is that of equal risks, the same for all three.
    """
    schema, (name,) = noisy.schema, one.columns
    block = product(schema, by=risk_selectors(one, schema))
    counts = noisy.sums(block).reshape(2, 2).tolist()
    noise, distribution = noisy.deviation(block), noisy.distribution(block)
    shares = [Share(events, rest, noise, distribution) for rest, events in counts]
    cells = cell_labels(block.selectors[:-1], schema)
    outside, hidden = display.outside, [share.rows <= _least(share, display) for share in shares]
    for share, cell, is_hidden in zip(shares, cells, hidden, strict=True):
        yield _risk(one, share, cell, outside, is_hidden=is_hidden)
    over = sum(share.rows for share in shares)
    names = [cell_text(cell) for cell in cells]
    labels = (
        f"risk difference of {name}, {names[0]} - {names[1]}",
        f"risk ratio of {name}, {names[0]} / {names[1]}",
        f"odds ratio of {name}, {names[0]} / {names[1]}",
    )
    if any(hidden):
        for label in labels:
            yield Estimate.of(one, label, "", INFINITE, over=over, note=WITHIN_NOISE)
        return
    tested = equal_shares_p_value(*shares)
    for label, made in zip(labels, (_difference, _ratio, _odds_ratio), strict=True):
        yield made(one, label, shares, outside, tested)


def _least(share: Share, display: Display) -> float:
    """Return the threshold that a group's noisy number of rows must exceed for its risk to be shown."""
    return max(display.least(share.noise * math.sqrt(2)), 0.0)


def _risk(one: Statistic, share: Share, cell: dict[str, str], outside: float, *, is_hidden: bool) -> Estimate:
    """Return the estimated risk of one group with intervals; one without a value if it is to be hidden."""
    label, over = f"risk of {one.columns[0]}", share.rows
    if is_hidden:
        return Estimate.of(one, label, "", (0.0, 1.0), cell=cell, over=over, note=WITHIN_NOISE)
    return Estimate.of(
        one,
        label,
        "",
        share.noise_ends(outside),
        cell=cell,
        value=share.events / share.rows,
        error=share.noise_error,
        sampled=Sampling(_clear_error(share, 1.0), share.population_ends(outside)),
        over=over,
        possible=(0.0, 1.0),
    )


def _clear_error(share: Share, slope: float) -> float | None:
    """Return a share's sampling error times a slope; None if the share's variance is within its noise."""
    moved = abs(1 - 2 * share.value) * share.noise_error / share.rows
    return None if near_zero(share.square, moved) else slope * math.sqrt(share.square)


def _together(errors: list[float | None]) -> float | None:
    """Return the root of the sum of squares of errors, None if one of the errors is not known."""
    known = [each for each in errors if each is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def _difference(
    one: Statistic, label: str, shares: list[Share], outside: float, tested: float | None
) -> Estimate:
    """Return the estimated difference of two groups' risks, first less second, with intervals."""
    first, second = shares
    noise, both = (
        difference(first.value, ends[0], second.value, ends[1])
        for ends in (
            [share.noise_ends(outside) for share in shares],
            [share.population_ends(outside) for share in shares],
        )
    )
    return Estimate.of(
        one,
        label,
        "",
        within(noise, -1.0, 1.0),
        value=first.value - second.value,
        error=math.hypot(first.noise_error, second.noise_error),
        sampled=Sampling(_together([_clear_error(share, 1.0) for share in shares]), both, tested),
        over=first.rows + second.rows,
        possible=(-1.0, 1.0),
    )


def _ratio(one: Statistic, label: str, shares: list[Share], outside: float, tested: float | None) -> Estimate:
    """Return the estimated ratio of two groups' risks, without a value unless both risks are positive."""
    first, second = shares
    over = first.rows + second.rows
    if min(first.value, second.value) <= 0:
        return Estimate.of(one, label, "", (0.0, math.inf), over=over, note=NO_RATIO)
    value = first.value / second.value
    noise, both = (
        ratio(first.value, ends[0], second.value, ends[1])
        for ends in (
            [share.noise_ends(outside) for share in shares],
            [share.population_ends(outside) for share in shares],
        )
    )
    error = value * math.hypot(*(share.noise_error / share.value for share in shares))
    sampled = _together([_clear_error(share, value / share.value) for share in shares])
    both_ends = Sampling(sampled, both, tested)
    return Estimate.of(one, label, "", noise, value=value, error=error, sampled=both_ends, over=over)


def _odds_ratio(
    one: Statistic, label: str, shares: list[Share], outside: float, tested: float | None
) -> Estimate:
    """Return the estimated odds ratio of two groups, without a value if a risk is not inside (0, 1)."""
    first, second = shares
    over = first.rows + second.rows
    if not all(0 < share.value < 1 for share in shares):
        return Estimate.of(one, label, "", (0.0, math.inf), over=over, note=NO_RATIO)
    odds = [_odds(share.value) for share in shares]
    value = odds[0] / odds[1]
    noise, both = (
        ratio(odds[0], transformed(ends[0], _odds), odds[1], transformed(ends[1], _odds))
        for ends in (
            [share.noise_ends(outside) for share in shares],
            [share.population_ends(outside) for share in shares],
        )
    )
    # the slope of the log odds in a share
    slopes = [1 / (share.value * (1 - share.value)) for share in shares]
    error = value * math.hypot(
        *(slope * share.noise_error for slope, share in zip(slopes, shares, strict=True))
    )
    sampled = _together(
        [_clear_error(share, value * slope) for slope, share in zip(slopes, shares, strict=True)]
    )
    both_ends = Sampling(sampled, both, tested)
    return Estimate.of(one, label, "", noise, value=value, error=error, sampled=both_ends, over=over)


def _odds(share: float) -> float:
    """Return share / (1 - share)."""
    return share / (1 - share)


def independence(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the chi-square test of independence of two columns, its p-value allowing for the noise.

    Rows and columns whose totals are within the noise are left out.
    """
    schema = noisy.schema
    block = product(schema, by=[selector(schema, name) for name in one.columns])
    noise, distribution = noisy.deviation(block), noisy.distribution(block)
    counts = noisy.sums(block).reshape([each.cells for each in block.selectors])
    rows, columns = counts.shape
    shown_rows, shown_columns = _clear_of_noise(counts, noise, distribution, display)
    shown = counts[shown_rows][:, shown_columns]
    label = "chi-square, noise included"
    left = rows - int(shown_rows.sum()) + columns - int(shown_columns.sum())
    # what is left out may take another total below 0
    positive = shown.size > 0 and min(shown.sum(axis=0).min(), shown.sum(axis=1).min()) > 0
    if min(shown.shape) < 2 or not positive:
        yield Estimate.of(one, label, "", INFINITE, over=float(counts.sum()), note=NO_TABLE)
        return
    test = association(shown, noise, distribution)
    notes = [f"degrees of freedom: {test.freedom}"]
    notes += [f"rows or columns within the noise that are left out: {left}"] if left else []
    notes += [FEW] if test.least < SPARSE else []
    yield Estimate.of(
        one,
        label,
        "",
        INFINITE,
        value=test.value,
        sampled=Sampling(p_value=test.p_value),
        over=float(shown.sum()),
        note="; ".join(notes),
    )


def _clear_of_noise(
    counts: Floats, noise: float, distribution: ErrorDistribution, display: Display
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows and which columns of a table of noisy counts have totals clear of the noise.

    A total and the residuals from independence have uncorrelated noise. If it is normal they are independent.
    Otherwise a total may be large because of one cell whose residual is large too: what of the largest
    residual may be noise is not counted.
    """
    totals = counts.sum(axis=1), counts.sum(axis=0)
    above = np.zeros_like(counts)
    if not distribution.is_normal and counts.sum() > 0:
        above = np.clip(counts - np.outer(*totals) / counts.sum(), 0.0, max(display.least(noise), 0.0))
    rows, columns = counts.shape
    return (
        totals[0] - above.max(axis=1) > max(display.least(noise * math.sqrt(columns)), 0.0),
        totals[1] - above.max(axis=0) > max(display.least(noise * math.sqrt(rows)), 0.0),
    )


@dataclass(frozen=True)
class Association:
    """Result of a chi-square test of independence: statistic, degrees of freedom, p-value, least expected.

    Without an association `growth` is half the variance of the statistic over its mean, 1 of chi-square, and
    `inflation` its mean over its degrees of freedom.
    """

    value: float
    freedom: int
    p_value: float
    least: float
    growth: float
    inflation: float


def association(counts: Floats, noise: float, distribution: ErrorDistribution) -> Association:
    """Return the chi-square test of a table of noisy counts, whose row and column sums must be positive.

    The residuals from independence, R = M counts with M of full rank on all but the last row and column, have
    the covariance M (diag(E) + noise^2) M', E being the expected counts. R' cov^-1 R is a chi-square number
    if all errors are normal. Those of counts are Poisson numbers, those of the noise may be shares of Laplace
    noise: the kurtosis of both is in the variance of a scaled chi-square distribution of the same mean. With
    f degrees of freedom, a_k the part of R' cov^-1 R that is due to a source of variance 1 in cell k, and
    kappa the excess kurtosis of the noise, that variance is 2f + sum of (E_k + kappa noise^4) a_k^2.

    Expected counts have noise too, from the row and column sums: it raises the mean, to second order.
    """
    total = float(counts.sum())
    by_row, by_column = counts.sum(axis=1) / total, counts.sum(axis=0) / total
    expected = total * np.outer(by_row, by_column)
    of_rows = (np.eye(len(by_row)) - by_row[:, None])[:-1]
    of_columns = (np.eye(len(by_column)) - by_column[:, None])[:-1]
    residuals = (counts - expected)[:-1, :-1].ravel()
    into = np.kron(of_rows, of_columns)
    covariance = (into * (expected.ravel() + noise**2)) @ into.T
    value = float(residuals @ np.linalg.solve(covariance, residuals))
    # of the statistic what is due to the products of any two counts, and to each with variance 1
    products = into.T @ np.linalg.solve(covariance, into)
    parts = np.diag(products)
    kurtosis = (expected.ravel() + distribution.excess_kurtosis * noise**4) * parts**2
    freedom = len(residuals)
    growth = 1 + float(kurtosis.sum()) / (2 * freedom)
    inflation = 1 + _raised(products, expected, noise) / freedom
    tail = chi_square_tail(value / (growth * inflation), freedom / growth)
    return Association(value, freedom, tail, float(expected.min()), growth, inflation)


def _raised(products: Floats, expected: Floats, noise: float) -> float:
    """Return by how much noise in row and column sums raises the mean of a chi-square statistic.

    With H the products of `association` and V the noise covariance of the expected counts it is the sum of
    H_kl^2 V_kl, for the statistic is convex in them; and that of H_kk times the variance of the product of
    the errors of both sums over the total, less that of a sample of rows, for which chi-square allows.
    """
    total, (rows, columns) = float(expected.sum()), expected.shape
    of_row, of_column = expected.sum(axis=1), expected.sum(axis=0)
    slopes = expected.ravel()[:, None] * (
        np.kron(np.diag(1 / of_row), np.ones((columns, columns)))
        + np.kron(np.ones((rows, rows)), np.diag(1 / of_column))
        - 1 / total
    )
    errors = np.outer(of_row + columns * noise**2, of_column + rows * noise**2) - np.outer(of_row, of_column)
    bent = float((products**2 * (slopes @ slopes.T)).sum()) * noise**2
    return bent + float(np.diag(products) @ errors.ravel()) / total**2
