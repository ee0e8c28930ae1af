"""Compose several releases by privacy loss distributions (dp-accounting), Rényi divergences, or both.

Everything is rounded to the safe side: losses up to a grid of `INTERVAL`, masses that are left out counted
as lost, and `FFT_ERROR` taken off delta for the floating point of the convolutions.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.decimals import summed
from smpc_dp.privacy.accountant.events import (
    AnyDescription,
    Event,
    Gaussian,
    Joint,
    Pure,
    RandomisedResponse,
    Renyi,
    Shift,
    Shifts,
)
from smpc_dp.privacy.accountant.renyi import renyi_delta, renyi_epsilon, total_curve
from smpc_dp.privacy.accountant.work import spend
from smpc_dp.privacy.distributions import hockey_stick, losses
from smpc_dp.privacy.gaussian import GREATEST_MU, gaussian_delta, gaussian_epsilon
from smpc_dp.privacy.guarantee import LEAST_DELTA, check_budget

INTERVAL = 1e-4
# Five times the largest error in double precision that we found against 40 digits, over up to 4,000 releases.
FFT_ERROR = 1e-12
# Losses beyond this are as good as infinite, and their grid would not fit into memory.
GREATEST_LOSS = 200.0
GREATEST_DEVIATION = 50.0
# Extreme losses of less mass than this are counted as infinite.
_CUT = 1e-17
# Standard deviations that a composed distribution is wide, about: only to bound work.
_SPREAD = 16
_SPLITS = (0.5, 0.1, 0.9, 0.01, 0.99, 1e-3, 0.999)


class Composition:
    """Composition of several releases of one party's data; gives upper bounds on total epsilon and delta.

    Holds for a sequence of mechanisms that is fixed in advance; each query may depend on earlier results.
    Where the mechanisms' parameters themselves depend on results, use a ledger of adaptive composition.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = Counter(events)
        neighbours = {(event.relation, event.unit) for event in self._events}
        if len(neighbours) > 1:
            raise ConfigError(
                "releases of different neighbouring relations or units do not add up: convert them first",
                ConfigCheck.CONFLICT,
            )
        self._exact = any(event.exact for event in self._events)

    def epsilon(self, delta: float) -> float:
        """Return the least provable total epsilon at delta, or infinity; ConfigError if 0 < delta < 1e-11."""
        check_budget(0.0, delta)
        if not self._events:
            return 0.0
        if self._exact:
            return math.inf
        if 0 < delta < LEAST_DELTA:
            raise ConfigError(
                f"delta = {delta:g}: the accountant resolves {LEAST_DELTA:g} at least, or exactly 0",
                ConfigCheck.TOO_LARGE,
            )
        candidates = [math.inf, *(total for total, failing in self._simple() if failing <= delta)]
        if delta > 0:
            candidates += [self._single_epsilon(delta), self._renyi_epsilon(delta)]
            if not self._closed_form():
                candidates.append(self._split_epsilon(delta))
        return min(candidates)

    def delta(self, epsilon: float) -> float:
        """Return the least provable total delta at epsilon, rounded up; 1 for exact releases."""
        check_budget(epsilon, 0.0)
        if not self._events:
            return 0.0
        if self._exact:
            return 1.0
        simple = [failing for total, failing in self._simple() if total <= epsilon]
        if 0.0 in simple:
            return 0.0
        candidates = [1.0, *simple, self._single_delta(epsilon), self._renyi_delta(epsilon)]
        distributed, rest, slack = self._distributions()
        if not rest and not self._closed_form():
            candidates.append(distributed.delta(epsilon) + slack)
        return min(candidates)

    def _simple(self) -> list[tuple[float, float]]:
        """Return at most two total (epsilon, delta) pairs by basic composition; none if a bound is missing.

        One pair of the pure bounds, and one of all bounds, if every release has one.
        """
        totals: list[tuple[float, float]] = []
        for pure in (True, False):
            known = [(_least_bound(event, pure), event.slack, count) for event, count in self._events.items()]
            if any(math.isinf(bound[0]) for bound, _, _ in known):
                continue
            epsilon = summed((bound[0], count) for bound, _, count in known)
            failing = [(part, count) for bound, slack, count in known for part in (bound[1], slack) if part]
            totals.append((epsilon, summed(failing)))
        return totals

    def _only(self) -> Event | None:
        """Return the release if there is exactly one, else None."""
        if len(self._events) == 1 and self._events.total() == 1:
            return next(iter(self._events))
        return None

    def _closed_form(self) -> bool:
        """Tell whether there is one release only, with formulas that need no loss distributions."""
        event = self._only()
        return event is not None and all(
            isinstance(known, Gaussian | Pure | Renyi)
            or (isinstance(known, Shift) and known.coordinates == 1)
            or (isinstance(known, RandomisedResponse) and known.values == 1)
            for known in event.descriptions
        )

    def _single_delta(self, epsilon: float) -> float:
        """Return the least delta at epsilon of a single release; 1 if there are several releases."""
        event = self._only()
        if event is None:
            return 1.0
        least = min((_delta_of(known, epsilon) for known in event.descriptions), default=1.0)
        return summed([(event.slack, 1), (least, 1)]) if event.slack else least

    def _single_epsilon(self, delta: float) -> float:
        """Return the least epsilon at delta of a single release; infinite if not provable.

        Infinite for several releases.
        """
        event = self._only()
        if event is None or event.slack >= delta:
            return math.inf
        if self._single_delta(GREATEST_LOSS) > delta:
            return math.inf
        low, high = 0.0, 1.0
        while self._single_delta(high) > delta:
            low, high = high, 2 * high
        if self._single_delta(0.0) <= delta:
            return 0.0
        # To the last digit, so that a plan costs exactly what it was made for.
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if self._single_delta(middle) > delta else (low, middle)
        return high

    def _renyi_epsilon(self, delta: float) -> float:
        """Return total epsilon at delta by Rényi DP; infinite if a release has no Rényi bound."""
        total = total_curve(list(self._events.items()))
        if total is None or total[2] >= delta:
            return math.inf
        orders, divergence, slack = total
        return renyi_epsilon(divergence, orders, delta - slack)

    def _renyi_delta(self, epsilon: float) -> float:
        """Return total delta at epsilon by Rényi DP; 1 if a release has no Rényi bound."""
        total = total_curve(list(self._events.items()))
        if total is None:
            return 1.0
        orders, divergence, slack = total
        return min(1.0, slack + renyi_delta(divergence, orders, epsilon))

    def _split_epsilon(self, delta: float) -> float:
        """Return total epsilon at delta by loss distributions, and Rényi DP for other releases; or infinity.

        The parts may be interleaved by concurrent composition [Lyu 2022; Vadhan and Zhang 2023].
        """
        distributed, rest, slack = self._distributions()
        if slack >= delta:
            return math.inf
        if not rest:
            return distributed.epsilon(delta - slack)
        total = total_curve(rest)
        if total is None or total[2] + slack >= delta:
            return math.inf
        orders, divergence, more = total
        left = delta - slack - more
        return min(
            distributed.epsilon(left * part) + renyi_epsilon(divergence, orders, left * (1 - part))
            for part in _SPLITS
        )

    def _distributions(self) -> tuple[_Losses, list[tuple[Event, int]], float]:
        """Return (composed losses, counted releases with Rényi bounds alone, summed slack in delta)."""
        distributed, rest, slack = _Losses(), [], list[tuple[float, int]]()
        for event, count in self._events.items():
            known = next((known for known in event.descriptions if not isinstance(known, Renyi)), None)
            if known is None:
                rest.append((event, count))
            else:
                distributed.add(known, count)
                slack.append((event.slack, count))
        return distributed, rest, summed(slack)


class _Losses:
    """Privacy loss distributions of releases, composed; all Gaussian ones are merged into one."""

    def __init__(self) -> None:
        self._counts: Counter[AnyDescription] = Counter()
        self._mu_squared = self._closeness = 0.0

    def add(self, description: AnyDescription, count: int) -> None:
        """Add `count` releases with this description to the composition."""
        if isinstance(description, Joint):
            for part in description.parts:
                self.add(part, count)
        elif isinstance(description, Gaussian):
            self._mu_squared += count * description.mu**2
            self._closeness += count * description.closeness
        elif isinstance(description, Shift):
            single = Shift(description.distribution, description.shares, description.shift)
            self._counts[single] += count * description.coordinates
            self._closeness += count * description.closeness
        elif isinstance(description, Shifts):
            for shift, coordinates in description.moves:
                self._counts[Shift(description.distribution, description.shares, shift)] += (
                    count * coordinates
                )
            self._closeness += count * description.closeness
        elif isinstance(description, RandomisedResponse):
            single_answer = RandomisedResponse(description.categories, description.ratio)
            self._counts[single_answer] += count * description.values
        else:
            self._counts[description] += count

    @property
    def _mu(self) -> float:
        """Mean shift, in standard deviations, of all Gaussian releases combined."""
        return math.sqrt(self._mu_squared) * (1 + 1e-12)

    def delta(self, epsilon: float) -> float:
        """Return total delta at epsilon of the added releases; 1 where it cannot be computed.

        All densities are within e^closeness of the composed ones: see docs/proofs/accounting.md.
        """
        inner, factor = epsilon - self._closeness, math.exp(min(self._closeness, 700))
        if inner < 0 or self._mu > GREATEST_MU:
            return 1.0
        if not self._counts:
            return min(1.0, factor * gaussian_delta(inner, self._mu))
        whole = self._composed()
        if whole is None:
            return 1.0
        return min(1.0, factor * (float(whole.get_delta_for_epsilon(inner)) + FFT_ERROR))

    def epsilon(self, delta: float) -> float:
        """Return the least total epsilon at delta of the releases; infinite where not computable."""
        inner = delta * math.exp(-self._closeness)
        if not 2 * FFT_ERROR < inner < 1 or self._mu > GREATEST_MU:
            return math.inf
        if not self._counts:
            return gaussian_epsilon(inner, self._mu) + self._closeness
        whole = self._composed()
        if whole is None:
            return math.inf
        return float(whole.get_epsilon_for_delta(inner - FFT_ERROR)) * (1 + 1e-12) + self._closeness

    def _composed(self) -> Any:
        """Return the composed privacy loss distribution; None if it would take too much memory."""
        counts = tuple(sorted(self._counts.items(), key=repr))
        known = [(_distribution(one), count) for one, count in counts]
        variance = self._mu_squared + sum(count * spread for (_, spread, _), count in known)
        if not variance <= GREATEST_DEVIATION**2:
            return None
        widest = _SPREAD * math.sqrt(variance) / INTERVAL
        for (_, _, cells), count in known:
            spend(cells + min(cells * count, widest))
        mu = self._mu if self._mu_squared else 0.0
        return _compose(counts, mu)


# Searches ask for several epsilons of the same releases in a row, and a plan for the delta of the last once
# more. A composed distribution may take megabytes.
@functools.lru_cache(maxsize=4)
def _compose(counts: tuple[tuple[AnyDescription, int], ...], mu: float) -> Any:
    """Return the privacy loss distribution of counted releases and of a Gaussian of shift `mu` (0: none)."""
    whole = _compose_others(counts)
    if mu and whole is not None:
        gaussian = _pld().from_gaussian_mechanism(1 / mu, value_discretization_interval=INTERVAL)
        whole = whole.compose(gaussian)
    return whole


# A search for the Gaussian noise beside other noise composes the other releases once.
@functools.lru_cache(maxsize=2)
def _compose_others(counts: tuple[tuple[AnyDescription, int], ...]) -> Any:
    """Return the composed privacy loss distribution of releases that are not Gaussian; None if none."""
    whole = None
    for description, count in counts:
        single, _, _ = _distribution(description)
        part = single.self_compose(count) if count > 1 else single
        whole = part if whole is None else whole.compose(part)
    return whole


@functools.lru_cache(maxsize=64)
def _distribution(description: AnyDescription) -> tuple[Any, float, int]:
    """Return (a coordinate's pessimistic loss distribution, variance, cells); (None, inf, 0) if too wide.

    The variance is infinite and no distribution is made where the losses are too large.
    """
    match description:
        case Shift(noise, shares, shift):
            loss, log_mass, infinite = losses(noise, shares, shift)
            mass = np.exp(log_mass)
        case RandomisedResponse():
            (loss, mass), infinite = description.distribution.losses(), 0.0
        case Pure(epsilon, delta):
            loss = np.array([epsilon, -epsilon])
            mass, infinite = (1 - delta) / (1 + np.exp(-loss)), delta
        case _:
            raise ConfigError(
                f"{type(description).__name__} has no loss distribution of its own", ConfigCheck.UNSUPPORTED
            )
    order = np.argsort(-loss, kind="stable")
    loss, mass = loss[order], mass[order]
    beyond = (np.cumsum(mass) < _CUT) | (loss > GREATEST_LOSS)
    infinite += math.fsum(mass[beyond])
    loss, mass = loss[~beyond], mass[~beyond]
    if len(loss) == 0 or infinite > 0.5:
        return None, math.inf, 0
    # Raising the losses at the other end is safe, and of as little mass.
    least = loss[np.cumsum(mass[::-1])[::-1] >= _CUT].min()
    loss = np.maximum(loss, max(least, -GREATEST_LOSS))
    variance = float(mass @ (loss - mass @ loss) ** 2)
    cells, index = np.unique(np.ceil(loss / INTERVAL + 1e-6).astype(np.int64), return_inverse=True)
    sums = np.bincount(index, weights=mass) * (1 + 1e-12)
    rounded = dict(zip(cells.tolist(), sums.tolist(), strict=True))
    kind = _pld().PrivacyLossDistribution
    distribution = kind.create_from_rounded_probability(rounded, min(1.0, infinite), INTERVAL)
    return distribution, variance, int(cells[-1] - cells[0]) + 1


def _pld() -> Any:
    """Return dp-accounting's module of privacy loss distributions, imported at the first use."""
    # Not at the top: it takes half a second to load, and only sums of several releases need it.
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def _least_bound(event: Event, pure: bool) -> tuple[float, float]:
    """Return a release's least stated (epsilon, delta) bound, with `pure` of delta 0; (inf, 0) if none.

    Infinite if there is none.
    """
    bounds = [(math.inf, 0.0)]
    for known in event.descriptions:
        if isinstance(known, Pure) and not (pure and known.delta):
            bounds.append((known.epsilon, known.delta))
        elif isinstance(known, RandomisedResponse):
            bounds.append((known.values * abs(math.log(known.ratio)) * (1 + 1e-15), 0.0))
    return min(bounds)


def _delta_of(description: AnyDescription, epsilon: float) -> float:
    """Return an upper bound on delta at epsilon for one release, where there is a formula; else 1."""
    match description:
        case Pure(whole, delta):
            return _pure_delta(whole, delta, epsilon) if whole > epsilon else delta
        case Gaussian(mu, closeness) if mu <= GREATEST_MU and epsilon >= closeness:
            return min(1.0, math.exp(closeness) * gaussian_delta(epsilon - closeness, mu))
        case Shift(distribution, shares, shift, 1, _, closeness) if epsilon >= closeness:
            return min(
                1.0, math.exp(closeness) * hockey_stick(distribution, shares, shift, epsilon - closeness)
            )
        case RandomisedResponse(values=1):
            return description.distribution.delta(epsilon)
        case _:
            return 1.0


def _pure_delta(whole: float, delta: float, epsilon: float) -> float:
    """Return delta at `epsilon` < `whole` of a (whole, delta)-DP release in the worst case [KOV 2015]."""
    gain = -math.expm1(epsilon - whole) / (1 + math.exp(-whole))
    return min(1.0, (delta + (1 - delta) * gain) * (1 + 1e-12))
