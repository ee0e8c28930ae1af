"""Fits proportional hazards by the partial likelihood of binned times, with Breslow's or Efron's ties.

As a library does whose times are the bins: at risk in a bin are all rows that have not left before it. Of d
events Efron's sum over l < d of (A - l B/d)/(C - l D/d) is, with digamma functions, one of d, A, B, C and D,
also where noise makes d no integer. docs/proofs/records.md has the formulas, and how noise enters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.intervals import is_positive_definite

Floats = NDArray[np.float64]
Ties = Literal["breslow", "efron"]
# Rows at risk and events are clear of the noise from so many deviations on.
_CLEAR = 3.0
# What the noise deviation of the information may be, over the information.
_MOST_NOISE = 0.25
_STEPS, _LONGEST, _CLOSE, _GREATEST = 100, 1.0, 1e-9, 30.0


@dataclass(frozen=True)
class Fit:
    """Result of a Cox fit: coefficients, inverse information matrix, and covariance that noise brings."""

    value: Floats
    inverse: Floats
    noise: Floats


@dataclass(frozen=True)
class RiskSets:
    """Noisy counts of events and of rows at risk in each time bin, for a partial likelihood.

    Attributes:
        events, at_risk: shape (strata, patterns, bins).
        used: the bins that count, shape (strata, bins): those of a stratum before the first one whose rows at
            risk are within the noise.
        clear: of these the bins whose events are clear of the noise, in which ties are Efron's.
        noise: the deviation of each count of rows.
    """

    events: Floats
    at_risk: Floats
    used: NDArray[np.bool_]
    clear: NDArray[np.bool_]
    noise: float

    @classmethod
    def of(cls, events: Floats, leaving: Floats, staying: Floats, noise: float) -> RiskSets:
        """Return the risk sets of noisy counts.

        `events`, `leaving`: rows with and without an event in each bin, shape (strata, patterns, bins);
        `staying`: rows beyond all bins, shape (strata, patterns).
        """
        _, patterns, bins = events.shape
        at_risk = np.cumsum((events + leaving)[:, :, ::-1], axis=2)[:, :, ::-1] + staying[:, :, None]
        cells = patterns * (2 * (bins - np.arange(bins)) + 1)
        enough = at_risk.sum(axis=1) > np.maximum(_CLEAR * noise * np.sqrt(cells), 0.5)
        used = np.logical_and.accumulate(enough, axis=1)
        clear = used & (events.sum(axis=1) > max(_CLEAR * noise * math.sqrt(patterns), 0.5))
        return cls(events, np.asarray(at_risk, np.float64), used, clear, noise)


def fitted_partial(sets: RiskSets, design: Floats, ties: Ties) -> Fit | None:
    """Return the fitted Cox regression by Newton steps; None if they fail, or noise hides the information.

    `design`: the covariates of each pattern, shape (patterns, coefficients).
    """
    value = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        step = _Step.at(sets, design, value, ties)
        if step is None:
            return None
        move = np.linalg.solve(step.information, step.score)
        size = float(np.abs(move).max())
        value = value + move * min(1.0, _LONGEST / max(size, _LONGEST))
        if float(np.abs(value).max()) > _GREATEST:
            return None
        if size < _CLOSE:
            return step.fit(value)
    return None


@dataclass(frozen=True)
class _Sums:
    """Sums over patterns in each bin, each row weighted by its hazard ratio w: of w, w x and w x x'."""

    weight: Floats
    first: Floats
    second: Floats

    @classmethod
    def of(cls, counts: Floats, ratios: Floats, design: Floats) -> _Sums:
        """Return the sums over rows in `counts`, shape (strata, patterns, bins)."""
        weighted = counts * ratios[:, None]
        return cls(
            np.asarray(weighted.sum(axis=1), np.float64),
            np.einsum("spb,pk->sbk", weighted, design),
            np.einsum("spb,pk,pl->sbkl", weighted, design, design),
        )


@dataclass(frozen=True)
class _Expected:
    """Sum of covariates that a bin's events have on average, and its slopes, shape (strata, bins, ...).

    Attributes:
        total: the sum.
        by_events: its slope in the number of events.
        by_risk, by_risk_first: its slopes in the sums of w and of w x over the rows at risk.
        by_tied, by_tied_first: its slopes in the sums of w and of w x over the rows with an event.
    """

    total: Floats
    by_events: Floats
    by_risk: Floats
    by_risk_first: Floats
    by_tied: Floats
    by_tied_first: Floats


def _breslow(events: Floats, risk: _Sums) -> _Expected:
    """Return what each event has on average: the mean of the rows at risk."""
    mean = risk.first / risk.weight[..., None]
    rate = events / risk.weight
    none = np.zeros_like(rate)
    return _Expected(events[..., None] * mean, mean, -rate[..., None] * mean, rate, np.zeros_like(mean), none)


def _efron(events: Floats, risk: _Sums, tied: _Sums) -> _Expected:
    """Return what events have on average of which each leaves the rows at risk after the one before."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import digamma, polygamma

    whole, part = risk.weight, tied.weight
    most = events * whole / part
    logs = digamma(most + 1) - digamma(most - events + 1)
    last = polygamma(1, most - events + 1)
    bent = polygamma(1, most + 1) - last
    # the sum of 1 / (C - l D/d), and its slopes in d, C and D
    rate = events / part * logs
    by_events = logs / part + events / part * (bent * whole / part + last)
    by_risk = (events / part) ** 2 * bent
    by_tied = -rate / part - events / part * bent * most / part
    mean = tied.first / part[..., None]
    beyond = risk.first - mean * whole[..., None]
    return _Expected(
        events[..., None] * mean + beyond * rate[..., None],
        mean + beyond * by_events[..., None],
        -mean * rate[..., None] + beyond * by_risk[..., None],
        rate,
        mean / part[..., None] * (whole * rate - events)[..., None] + beyond * by_tied[..., None],
        (events - whole * rate) / part,
    )


@dataclass(frozen=True)
class _Step:
    """One Newton iteration of a partial likelihood: score, information and slopes at given coefficients.

    Attributes:
        ratios: exp(x.b) of each pattern.
        risk: sums over the rows at risk; expected: of the covariates of events. Both are 0 where a bin does
            not count.
    """

    sets: RiskSets
    design: Floats
    ratios: Floats
    risk: _Sums
    expected: _Expected
    score: Floats
    information: Floats

    @classmethod
    def at(cls, sets: RiskSets, design: Floats, value: Floats, ties: Ties) -> _Step | None:
        """Return the derivatives at given coefficients; None where the likelihood is not concave."""
        ratios = np.exp(np.minimum(design @ value, _GREATEST))
        risk, tied = (_Sums.of(each, ratios, design) for each in (sets.at_risk, sets.events))
        if not sets.used.any() or float(risk.weight[sets.used].min()) <= 0:
            return None
        expected = _chosen(sets, risk, tied, ties)
        events = sets.events * sets.used[:, None, :]
        score = np.einsum("spb,pk->k", events, design) - expected.total.sum(axis=(0, 1))
        information = (
            np.einsum("sb,sbkl->kl", expected.by_risk_first, risk.second)
            + np.einsum("sbk,sbl->kl", expected.by_risk, risk.first)
            + np.einsum("sb,sbkl->kl", expected.by_tied_first, tied.second)
            + np.einsum("sbk,sbl->kl", expected.by_tied, tied.first)
        )
        if not is_positive_definite(information):
            return None
        return cls(sets, design, ratios, risk, expected, np.asarray(score), np.asarray(information))

    def fit(self, value: Floats) -> Fit | None:
        """Return the converged coefficients with their errors; None if noise dominates the information."""
        values, vectors = np.linalg.eigh(self.information)
        if self._noise_of_information(vectors / np.sqrt(values)) > _MOST_NOISE:
            return None
        slopes = self._slopes()
        inverse = np.linalg.inv(self.information)
        middle = self.sets.noise**2 * slopes.T @ slopes
        return Fit(value, np.asarray(inverse), np.asarray(inverse @ middle @ inverse))

    def _slopes(self) -> Floats:
        """Return how the score changes if one row is added to each cell of counts, shape (cells, ...)."""
        each, expected = self.design[None, :, None, :], self.expected
        of_risk = -self._weighted(expected.by_risk_first, expected.by_risk)
        own = each - expected.by_events[:, None] - self._weighted(expected.by_tied_first, expected.by_tied)
        return self._spread(own * self.sets.used[:, None, :, None], of_risk)

    def _weighted(self, first: Floats, weight: Floats) -> Floats:
        """Return what a row of each pattern moves that has these slopes in w x and in w."""
        slopes = first[:, None, :, None] * self.design[None, :, None, :] + weight[:, None]
        return np.asarray(self.ratios[None, :, None, None] * slopes)

    def _noise_of_information(self, directions: Floats) -> float:
        """Return the greatest noise deviation of Breslow's information in directions in which it is 1."""
        used = self.sets.used[..., None]
        weight = np.where(used, self.risk.weight[..., None], 1.0)
        means = np.where(used, self.risk.first @ directions / weight, 0.0)
        squares = np.einsum("sbkl,kj,lj->sbj", self.risk.second, directions, directions)
        spreads = np.where(used, squares / weight - means**2, 0.0)
        rates = np.where(self.sets.used, self.sets.events.sum(axis=1), 0.0)[..., None] / weight
        apart = (self.design @ directions)[None, :, None, :] - means[:, None]
        of_risk = self.ratios[None, :, None, None] * rates[:, None] * (apart**2 - spreads[:, None])
        own = np.broadcast_to(spreads[:, None], of_risk.shape)
        slopes = self._spread(own, of_risk)
        return self.sets.noise * math.sqrt(float((slopes**2).sum(axis=0).max()))

    @staticmethod
    def _spread(own: Floats, of_risk: Floats) -> Floats:
        """Return how a sum changes by one row in each cell, given that by an event and by a row at risk.

        Both have the shape (strata, patterns, bins, ...). A row is at risk in all bins up to its own.
        """
        through = np.cumsum(of_risk, axis=2)
        cells = own + through, through, through[:, :, -1]
        return np.concatenate([cell.reshape(-1, own.shape[-1]) for cell in cells])


def _chosen(sets: RiskSets, risk: _Sums, tied: _Sums, ties: Ties) -> _Expected:
    """Return what events have on average by the chosen rule for ties; 0 where a bin does not count."""
    events = sets.events.sum(axis=1)
    rules = [(sets.used, _breslow(_at(events, sets.used), _filled(risk, sets.used)))]
    if ties == "efron":
        with np.errstate(divide="ignore", invalid="ignore"):
            left = events * risk.weight / tied.weight - events
        # of few events that noise hides both rules say the same
        clear = sets.clear & (tied.weight > 0) & (left > -1)
        rules.append((clear, _efron(_at(events, clear), *(_filled(one, clear) for one in (risk, tied)))))
    names = ("total", "by_events", "by_risk", "by_risk_first", "by_tied", "by_tied_first")
    chosen = {}
    for name in names:
        result = np.zeros_like(getattr(rules[0][1], name))
        for where, rule in rules:
            each = getattr(rule, name)
            result = np.where(where if each.ndim == where.ndim else where[..., None], each, result)
        chosen[name] = result
    return _Expected(**chosen)


def _at(events: Floats, where: NDArray[np.bool_]) -> Floats:
    """Return numbers of events, 1 in bins that are not used: any number that raises no error."""
    return np.where(where, events, 1.0)


def _filled(sums: _Sums, where: NDArray[np.bool_]) -> _Sums:
    """Return sums with a weight of 1 in bins that are not used."""
    return _Sums(np.where(where, sums.weight, 1.0), sums.first, sums.second)
