"""Proportional hazards with categorical covariates, from one histogram of (stratum, pattern, bin, event).

The likelihood is that of grouped times [Prentice and Gloeckler 1978]: the hazard of a bin is
1 - exp(-exp(a + x.b)), with an intercept a for each bin of each stratum. It is linear in the counts, so at
given coefficients the noise of the score is a weighted sum of the noises of all cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Selector
from smpc_dp.records.intervals import INFINITE, around, is_positive_definite, widest_quantile
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.partial_likelihood import Fit, RiskSets, Ties, fitted_partial
from smpc_dp.records.population import first_order, two_sided
from smpc_dp.records.result import Estimate, lost_note
from smpc_dp.records.schema import Category, Schema
from smpc_dp.records.terms import survival_block

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
NO_FIT = "none: the information on the hazard ratios is within the noise"
# A bin's events are clear of the noise from so many deviations on; otherwise bins share an intercept.
_CLEAR = 3.0
# What the noise deviation of the information may be, over the information.
_MOST_NOISE = 0.25
_STEPS, _LONGEST, _CLOSE, _GREATEST = 100, 1.0, 1e-9, 30.0


FIRST_ORDER = "the interval is to first order"
OF_TIES = "for comparison with a library on the same bins; cox has the population interval"


def cox(
    one: Statistic, noisy: NoisySums, display: Display, *, ties: Ties | None = None
) -> Iterator[Estimate]:
    """Yield the log hazard ratio of each category over the reference category, by Cox regression.

    Without `ties` by the likelihood of grouped times: rows that leave within a bin count for half of it, and
    neighbouring bins whose events together are within the noise have one hazard for each unit of time. With
    `ties` by the partial likelihood whose times are the bins, which wide bins make smaller than hazard ratios
    of the population: with the noise interval alone. Intervals are to first order.
    """
    schema = noisy.schema
    block = survival_block(one, schema)
    size = len(one.by)
    strata, covariates, time = block.selectors[:size], block.selectors[size:-2], block.selectors[-2]
    counts = Counts.of(noisy.sums(block), strata, covariates, time, noisy.deviation(block))
    design, names = _design(covariates, schema)
    # of a lost party nothing but noise is known: to be a reference, or a covariate of the fit
    lost = {each for column, *pair in names if column == schema.party_column for each in pair} & noisy.lost
    if lost:
        fit = None
    elif ties is None:
        fit = fitted(counts.clear, design, np.diff(time.edges))
    else:
        clear = counts.clear
        sets = RiskSets.of(clear.events, clear.leaving, clear.staying, clear.noise)
        fit = fitted_partial(sets, design, ties)
    z, over = widest_quantile(noisy.distribution(block), display.outside), float(counts.rows)
    for index, (column, category, reference) in enumerate(names):
        label = f"log hazard ratio to {column} = {reference}"
        cell, note = {column: category}, FIRST_ORDER if ties is None else f"{OF_TIES}; {FIRST_ORDER}"
        if fit is None:
            yield Estimate.of(
                one, label, "", INFINITE, cell=cell, over=over, note=lost_note(lost) if lost else NO_FIT
            )
            continue
        value = float(fit.value[index])
        noise = math.sqrt(fit.noise[index, index])
        sampled = math.sqrt(fit.inverse[index, index]) if ties is None else None
        both = first_order(value, noise, sampled, display.outside)
        if both is not None and sampled is not None:
            both = replace(both, p_value=two_sided(value / math.hypot(noise, sampled)))
        ends = around(value, noise, z)
        yield Estimate.of(
            one, label, "", ends, cell=cell, value=value, error=noise, sampled=both, over=over, note=note
        )


@dataclass(frozen=True)
class Counts:
    """Noisy counts of events and of rows leaving, by stratum, covariate pattern and time bin, for Cox fits.

    `events`, `leaving`: with and without an event, shape (strata, patterns, bins); `staying`: beyond the
    upper bound of time, shape (strata, patterns); `noise`: the deviation of each.
    """

    events: Floats
    leaving: Floats
    staying: Floats
    noise: float

    @classmethod
    def of(
        cls,
        sums: Floats,
        strata: tuple[Selector, ...],
        covariates: tuple[Selector, ...],
        time: Selector,
        noise: float,
    ) -> Counts:
        """Return the counts for a Cox regression, reshaped from the cells of an opened table."""
        shape = (
            math.prod(each.cells for each in strata),
            math.prod(each.cells for each in covariates),
            time.cells,
            2,
        )
        cells = sums.reshape(shape)
        return cls(cells[:, :, :-1, 1], cells[:, :, :-1, 0], cells[:, :, -1, 0], noise)

    @property
    def rows(self) -> float:
        """The noisy number of rows in all strata."""
        return float(self.events.sum() + self.leaving.sum() + self.staying.sum())

    @property
    def clear(self) -> Counts:
        """The counts without strata whose number of events is not clearly above the noise."""
        noise = self.noise * math.sqrt(math.prod(self.events.shape[1:]))
        clear = self.events.sum(axis=(1, 2)) > max(_CLEAR * noise, 0.5)
        return Counts(self.events[clear], self.leaving[clear], self.staying[clear], self.noise)

    @property
    def survivals(self) -> Floats:
        """Noisy number of rows that survive each time bin; rows that leave within a bin count half."""
        gone = self.events + self.leaving
        later = np.cumsum(gone[:, :, ::-1], axis=2)[:, :, ::-1] - gone
        return np.asarray(later + self.staying[:, :, None] + self.leaving / 2)


def _design(covariates: tuple[Selector, ...], schema: Schema) -> tuple[Floats, list[tuple[str, str, str]]]:
    """Return the indicators of each covariate pattern, and the (column, category, reference) of each."""
    names: list[tuple[str, str, str]] = []
    columns: list[Floats] = []
    patterns = [*itertools.product(*(range(each.cells) for each in covariates))]
    for position, each in enumerate(covariates):
        labels = [cell[each.column] for cell in cell_labels((each,), schema)]
        declared = schema.columns[each.column]
        reference = declared.reference_index if isinstance(declared, Category) else 0
        for category in (index for index in range(each.cells) if index != reference):
            names.append((each.column, labels[category], labels[reference]))
            columns.append(np.array([float(pattern[position] == category) for pattern in patterns]))
    return np.stack(columns, axis=1), names


def intercepts(counts: Counts) -> Indices:
    """Return the index of the baseline-hazard intercept of each bin; sparse neighbouring bins share one.

    Neighbouring bins share one until their events are clear of the noise; what is left joins the one before.
    """
    _, patterns, bins = counts.events.shape
    totals, indices, last = counts.events.sum(axis=1), [], -1
    for stratum in totals:
        own, events, begun = [], 0.0, 0
        for index, total in enumerate(stratum.tolist()):
            events += total
            own.append(last + 1)
            noise = counts.noise * math.sqrt(patterns * (index + 1 - begun))
            if events > max(_CLEAR * noise, 0.5):
                last, events, begun = last + 1, 0.0, index + 1
        if begun < bins and begun > 0:
            own[begun:] = [last] * (bins - begun)
        last = max(last, own[-1])
        indices.append(own)
    return np.array(indices)


def fitted(counts: Counts, design: Floats, widths: Floats) -> Fit | None:
    """Return the fitted Cox regression by Newton steps; None if it fails or noise dominates the information.

    `widths`: of the bins. None without a stratum, if the steps do not end, or if the information is within
    its noise.
    """
    if not counts.events.size:
        return None
    indices, survivals = intercepts(counts), counts.survivals
    exposed, events = _totals(survivals * widths, indices), _totals(counts.events, indices)
    if min(exposed.min(), events.min()) <= 0:
        return None
    start, value = np.log(events / exposed), np.zeros(design.shape[1])
    for _ in range(_STEPS):
        step = _Step.at(counts.events, survivals, (start, value), (design, widths, indices))
        moves = step.moves()
        if moves is None:
            return None
        size_of_step = max(float(np.abs(moves[0]).max()), float(np.abs(moves[1]).max()))
        factor = min(1.0, _LONGEST / max(size_of_step, _LONGEST))
        start, value = start + factor * moves[0], value + factor * moves[1]
        if max(float(np.abs(start).max()), float(np.abs(value).max())) > _GREATEST:
            return None
        if size_of_step < _CLOSE:
            return step.fit(value, counts.noise)
    return None


def _totals(each: Floats, indices: Indices) -> Floats:
    """Return, for each intercept, the sum of a number over patterns and over the bins that share it."""
    return np.asarray(np.bincount(indices.ravel(), each.sum(axis=1).ravel()), np.float64)


@dataclass(frozen=True)
class _Step:
    """One Newton iteration of a Cox fit: gradient, curvature and hazards at the current parameters.

    Attributes:
        hazards: exp(a + x.b) of each bin; by_event: the slope of log(1 - exp(-hazard)) in a.
        bent: the second derivative of it.
        score, weights: the slope of the likelihood in a of each bin, and less its second derivative.
        design: as of `fitted`; indices: of the intercept of each bin.
        of_intercepts: score and weight of each intercept.
    """

    hazards: Floats
    by_event: Floats
    bent: Floats
    score: Floats
    weights: Floats
    design: Floats
    indices: Indices
    of_intercepts: tuple[Floats, Floats]

    @classmethod
    def at(
        cls,
        events: Floats,
        survivals: Floats,
        at: tuple[Floats, Floats],
        model: tuple[Floats, Floats, Indices],
    ) -> _Step:
        """Return the likelihood's derivatives at given intercepts and coefficients of a Cox model."""
        (start, value), (design, widths, indices) = at, model
        logs = (start[indices] + np.log(widths))[:, None, :] + (design @ value)[None, :, None]
        hazards = np.exp(np.minimum(logs, _GREATEST))
        # of hazards so large that all have an event, infinite
        with np.errstate(over="ignore"):
            grown = np.expm1(hazards)
        by_event = hazards / grown
        bent = by_event * (1 - hazards - by_event)
        score, weights = events * by_event - survivals * hazards, survivals * hazards - events * bent
        totals = _totals(score, indices), _totals(weights, indices)
        return cls(hazards, by_event, bent, score, weights, design, indices, totals)

    @property
    def centred(self) -> Floats:
        """The design less its mean in each intercept, shape (strata, patterns, bins, coefficients)."""
        means = self._summed(self.weights) / self.of_intercepts[1][:, None]
        return np.asarray(self.design[None, :, None, :] - means[self.indices][:, None, :, :])

    def _summed(self, each: Floats) -> Floats:
        """Return, for each intercept, the sum of the design's columns weighted by a given number."""
        by_bin = np.einsum("spb,pk->sbk", each, self.design)
        result = np.zeros((len(self.of_intercepts[1]), self.design.shape[1]))
        np.add.at(result, self.indices, by_bin)
        return result

    def moves(self) -> tuple[Floats, Floats] | None:
        """Return the Newton changes of intercepts and coefficients; None if the likelihood is not concave."""
        score, weight = self.of_intercepts
        if weight.min() <= 0 or not np.isfinite(weight).all():
            return None
        information = self.information
        if not is_positive_definite(information):
            return None
        crossed = self._summed(self.weights)
        own = np.einsum("spb,pk->k", self.score, self.design) - crossed.T @ (score / weight)
        value = np.linalg.solve(information, own)
        return (score - crossed @ value) / weight, np.asarray(value)

    @property
    def information(self) -> Floats:
        """The information matrix of the coefficients, with the intercepts profiled out."""
        centred = self.centred
        return np.asarray(np.einsum("spb,spbi,spbj->ij", self.weights, centred, centred))

    def fit(self, value: Floats, noise: float) -> Fit | None:
        """Return the converged coefficients with their errors; None if noise dominates the information."""
        centred, information = self.centred, self.information
        inverse = np.linalg.inv(information)
        values, vectors = np.linalg.eigh(information)
        whitened = (centred @ (vectors / np.sqrt(values))) ** 2
        of_information = self._spread(-self.bent, -self.hazards, whitened)
        if noise * math.sqrt(float((of_information**2).sum(axis=0).max())) > _MOST_NOISE:
            return None
        of_score = self._spread(self.by_event, self.hazards, centred)
        middle = noise**2 * of_score.T @ of_score
        return Fit(value, np.asarray(inverse, np.float64), np.asarray(inverse @ middle @ inverse, np.float64))

    def _spread(self, by_event: Floats, by_survival: Floats, each: Floats) -> Floats:
        """Return how a sum changes if one row is added to each cell of counts, shape (cells, coefficients).

        A row is in the bins before its own; in its own by its event, or, where it leaves there, half.
        """
        passed = by_survival[..., None] * each
        before = np.cumsum(passed, axis=2) - passed
        cells = (by_event[..., None] * each - before, -passed / 2 - before, -passed.sum(axis=2))
        return np.concatenate([cell.reshape(-1, each.shape[-1]) for cell in cells])
