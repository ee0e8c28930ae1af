"""Plan the noise of verifiable averaging: binomial independent noise, whose drawing can be proven.

Proofs of what is used here are in docs/proofs/verifiable-plan.md. Values are whole grid steps, in each
coordinate in a range of R of them or in one of its own, or all together of a squared norm of at most b; each
party adds `bits` fair coins less their mean to each coordinate; pairwise noise is discrete Gaussian of
standard deviation sigma_delta steps. If the honest parties' graph is connected, the whole view shows

- of the honest parties' total, what a binomial of n_H bits coins shows of a shift by R, in every coordinate,
or
  by the width of its own range, or of shifts whose squares sum to D^2 = 4 b;
- of the rest, no more than a Gaussian shows of a shift of mu standard deviations,
  mu^2 <= D^2 r / sigma_delta^2, for r the greatest effective resistance between two honest parties, and
  D^2 = R^2 length, or the sum of the squares of the widths, where there is no bound on the norm,

one after the other. r is at most N - 1, on a path of N honest parties: n_H on the complete graph, where more
need not be counted, all who are honest on one that is drawn. Pairwise noise cancels, so sigma_delta is free:
it is made so large that the second part costs next to nothing on any connected graph. A graph that is drawn
is connected but for a probability that `connected` bounds, and delta includes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.arguments import checks_numbers
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.gopa.connected import disconnected
from smpc_dp.privacy.gopa.reach import Reach
from smpc_dp.privacy.search import first_integer

Rounding = Literal["stochastic", "nearest"]
ROUNDING_VARIANCE: dict[Rounding, float] = {"stochastic": 1 / 4, "nearest": 1 / 12}
"""Of one rounded value, in grid steps: at most, and for a fraction that is uniform."""
ROUNDING_PART = 0.05
"""What rounding may add to the variance that the honest parties' noise needs, where steps are planned."""
PAIRWISE_PART = 1e-3
"""What pairwise noise may take of epsilon and of delta, where sigma_delta is planned."""
TAIL_PART = 1e-3
"""What the bound for a norm may leave out, as a part of delta."""
TRIES = 1000
"""Requests that parties go along with, at most, until one has a result; for the bias."""
# Standard deviations of pairwise noise, in units of what smooths the lattice of the graph's cycles.
_SMOOTHING = 6.0
MAX_STEPS = 1 << 30
MAX_BITS = 1 << 16


class VerifiablePlan(msgspec.Struct, frozen=True):
    """Plan of a verifiable average with GOPA: each party's noise, and the privacy of what is published.

    Variances are in squared grid steps, of the parties' sum.

    Attributes:
        steps: R, grid steps of a value's range; with a bound on the norm of its diameter, 2 sqrt(b); of the
            widest range, if they differ.
        widths: of each coordinate's range, if they differ; None otherwise.
        bound_squared: b, the bound on the sum of a vector's squares, in squared steps; None without.
        bits: secret bits of one party and coordinate.
        sigma_delta: standard deviation of pairwise noise, in grid steps.
        degree, lost: draws of a party, and those of them that it may lose; None: all parties are neighbours.
        delta: of the whole view at epsilon, proven; includes the two below and `disconnected`.
        epsilon_pairwise: what pairwise noise takes of epsilon, with probability 1 - delta_pairwise.
        disconnected: the probability, at most, that the draws do not connect the honest parties.
        variance: of the noise in the sum of all parties, of which the honest ones' is `variance_honest`.
        variance_gaussian: what Gaussian noise of the honest parties would need at the same epsilon and delta.
        variance_rounding: of the parties' rounding, at most if stochastic; if nearest, for uniform fractions.
        error_std: standard deviation of noise and rounding in the average, as a part of R.
        bias: bound on the expected shift of the sum, up or down, that the parties - honest others cause by
            picking which of their noise stays; in steps of each coordinate; see `greatest_bias`.
        relation: which inputs are neighbours.
        assumption: who must be honest.
    """

    parties: int
    honest: int
    length: int
    epsilon: float
    delta_asked: float
    steps: int
    bits: int
    sigma_delta: float
    degree: int | None
    lost: int
    delta: float
    epsilon_pairwise: float
    delta_pairwise: float
    disconnected: float
    rounding: Rounding
    variance: float
    variance_honest: float
    variance_gaussian: float
    variance_rounding: float
    error_std: float
    bias: float
    relation: str
    assumption: str
    bound_squared: int | None = None
    widths: tuple[int, ...] | None = None

    @property
    def reach(self) -> Reach:
        """Bounds on how far one party's vector can change, in grid steps."""
        tail = TAIL_PART * self.delta_asked
        return Reach.of(self.length, self.steps, self.bound_squared, tail, self.widths)

    def release(self) -> Event:
        """Return all that is published as one event for a ledger.

        Whatever the total is, the rest of the view moves the loss by epsilon_pairwise at most, except with
        probability delta_pairwise: what `closeness` and `slack` of a shift allow for.
        """
        total = self.reach.event("verifiable gopa", self.honest, self.bits, self.epsilon_pairwise)
        slack = self.disconnected + self.delta_pairwise + total.slack
        planned = Pure(self.epsilon, max(self.delta, self.delta_asked) - slack)
        return Event(total.mechanism, total.relation, (*total.descriptions, planned), slack)

    def events(self) -> tuple[Event, Event]:
        """Return two events for the privacy ledger: the noisy total, and all else that is seen."""
        pairwise = Pure(self.epsilon_pairwise, self.delta_pairwise)
        return (
            self.reach.event("verifiable gopa, total", self.honest, self.bits),
            Event("verifiable gopa, pairwise noise", "substitution", (pairwise,), self.disconnected),
        )


@checks_numbers
def plan_verifiable(  # noqa: PLR0913 - each can be given or planned by itself
    *,
    parties: int,
    honest: int,
    epsilon: float,
    delta: float,
    length: int = 1,
    steps: int | Sequence[int] | None = None,
    bits: int | None = None,
    sigma_delta: float | None = None,
    rounding: Rounding = "stochastic",
    degree: int | None = None,
    lost: int = 0,
    corrupt: int | None = None,
    bound_squared: int | None = None,
) -> VerifiablePlan:
    """Plan a verifiable average's noise, or check a given one (None: planned); or raise ConfigError.

    Args:
        parties: parties who publish.
        honest: n_H, those of them who are honest and stay; only their noise counts.
        epsilon: above 1e-100 and below 100.
        delta: asked for; if `bits` and `sigma_delta` are given, the plan may have another.
        length: coordinates, each in a range of `steps`.
        steps: grid steps of the range, or of each coordinate's; planned so that rounding adds at most 5 % to
            the variance.
        bits: even, of one party and coordinate; the least for delta.
        sigma_delta: in grid steps; a power of two that takes at most a thousandth of epsilon and delta.
        rounding: of values to grid steps.
        degree: of the other parties each party draws so many for neighbours; None: all are.
        lost: so many of its draws a party may lose, by anybody's choice; else it leaves.
        corrupt: parties who are, fixed before anybody draws; by default all but `honest`, and 1 at least.
        bound_squared: b, in the place of `steps`: the squares of a vector's values sum to at most this.

    Raises:
        ConfigError: naming what is out of range or cannot be reached.
    """
    corrupt = max(parties - honest, 1) if corrupt is None else corrupt
    steps, widths = _widest(steps, length)
    _refuse_bad(
        (
            ("parties", parties, 2 <= parties <= 1 << 24, "from 2 to 2**24"),
            ("honest", honest, 2 <= honest <= parties, "from 2 to parties"),
            ("epsilon", epsilon, 1e-100 < epsilon < 100, "above 1e-100 and below 100"),
            ("delta", delta, 1e-100 < delta < 1, "above 1e-100 and below 1"),
            ("length", length, 1 <= length <= 4096, "from 1 to 4096"),
            ("steps", steps, steps is None or 1 <= steps <= MAX_STEPS, f"from 1 to {MAX_STEPS}"),
            (
                "bits",
                bits,
                bits is None or (bits > 0 and bits % 2 == 0 and bits * length <= MAX_BITS),
                f"positive, even and at most {MAX_BITS} in all coordinates",
            ),
            (
                "sigma_delta",
                sigma_delta,
                sigma_delta is None or 0 < sigma_delta < 2.0**100,
                "above 0, below 2**100",
            ),
            (
                "bound_squared",
                bound_squared,
                bound_squared is None or (steps is None and 1 <= bound_squared <= (MAX_STEPS // 2) ** 2),
                "in the place of steps, from 1 to the square of half the most",
            ),
        )
    )
    _check_draws(parties, honest, degree, lost, corrupt)
    apart = 0.0 if degree is None else disconnected(parties, degree, corrupt=corrupt, lost=lost)
    mu = gaussian_mu(epsilon, delta)
    if mu == 0:
        raise ConfigError.at(
            "epsilon", f"{epsilon:g} at delta {delta:g} needs more noise than any", ConfigCheck.INFEASIBLE
        )
    if bound_squared is not None:
        steps = 2 * math.isqrt(bound_squared)
    elif steps is None:
        # (steps / mu)^2, the variance that a Gaussian needs, times the part is what rounding has.
        rounded = parties * ROUNDING_VARIANCE[rounding] / ROUNDING_PART
        steps = max(1, math.ceil(mu * math.sqrt(rounded / length)))
        if steps > MAX_STEPS:
            raise ConfigError.at(
                "steps", f"{steps} are needed, at most {MAX_STEPS}: lower epsilon", ConfigCheck.TOO_LARGE
            )
    reach = Reach.of(length, steps, bound_squared, TAIL_PART * delta, widths)
    # On the complete graph any n_H honest parties are connected by themselves, on a drawn one all who stay.
    connected = honest if degree is None else max(honest, parties - corrupt)
    farthest = math.sqrt(reach.squared * (connected - 1))
    given = sigma_delta is not None
    if sigma_delta is None:
        sigma_delta = _sigma_delta(farthest, epsilon, PAIRWISE_PART * delta, connected)
    elif sigma_delta < _smoothing(connected):
        least = _smoothing(connected)
        raise ConfigError.at(
            "sigma_delta", f"{sigma_delta:g} steps; at least {least:g} are needed", ConfigCheck.INFEASIBLE
        )
    delta_pairwise = PAIRWISE_PART * delta
    epsilon_pairwise = _pairwise_epsilon(farthest / sigma_delta, delta_pairwise, length)
    left = delta - delta_pairwise - apart
    if bits is None:
        if left <= 0 and degree is not None:
            reason = f"{degree} draws leave the honest parties unconnected with probability {apart:.2g}"
            raise ConfigError.at("degree", f"{reason}, delta is {delta:g}: draw more", ConfigCheck.INFEASIBLE)
        if left <= 0 or epsilon <= epsilon_pairwise:
            reason = "pairwise noise alone takes it all: raise it" + (", or sigma_delta" if given else "")
            raise ConfigError.at("delta" if left <= 0 else "epsilon", reason, ConfigCheck.INFEASIBLE)
        bits = _least_bits(reach, honest, epsilon - epsilon_pairwise, left, mu)
    total = 1.0
    if epsilon > epsilon_pairwise:
        shown = Composition([reach.event("total", honest, bits)]).delta(epsilon - epsilon_pairwise)
        total = min(1.0, shown + delta_pairwise + apart)
    variance = parties * bits / 4
    variance_rounding = parties * ROUNDING_VARIANCE[rounding]
    return VerifiablePlan(
        parties=parties,
        honest=honest,
        length=length,
        epsilon=epsilon,
        delta_asked=delta,
        steps=steps,
        bits=bits,
        sigma_delta=sigma_delta,
        degree=degree,
        lost=lost,
        delta=total,
        epsilon_pairwise=epsilon_pairwise,
        delta_pairwise=delta_pairwise,
        disconnected=apart,
        rounding=rounding,
        variance=variance,
        variance_honest=honest * bits / 4,
        variance_gaussian=reach.squared / mu**2,
        variance_rounding=variance_rounding,
        error_std=math.sqrt(variance + variance_rounding) / parties / steps,
        bias=greatest_bias(bits, parties - honest),
        relation="substitution of one honest user's vector",
        assumption=(
            f"{honest} parties at least are honest, publish, and keep their pairwise noise secret; the other "
            f"{parties - honest} may collude"
            + ("" if degree is None else f", {corrupt} fixed before anybody draws {degree} neighbours")
        ),
        bound_squared=bound_squared,
        widths=widths,
    )


def greatest_bias(bits: int, corrupt: int, tries: int = TRIES) -> float:
    """Return a bound on the expected shift of the sum by corrupt parties who see their noise first.

    They may have any of themselves excluded, and by withholding a coin have another try, until there is a
    result, but no more than `tries`. What they leave is at most the greatest of `tries` sums of max(0, eta),
    each of mean at most corrupt s/2 and sub-Gaussian with corrupt s^2, s^2 = bits/4
    (protocols/gopa/verifiable.md).
    """
    s = math.sqrt(bits) / 2
    return corrupt * s / 2 + s * math.sqrt(2 * corrupt * math.log(tries))


def _smoothing(honest: int) -> float:
    """Return a deviation of pairwise noise, in grid steps, that makes it nearly Gaussian on the grid.

    With it the distribution of B Delta is Gaussian up to a factor of nearly 1. The lattice of integer flows
    without sources has rank at most (n-1)(n-2)/2, and its dual no vector shorter than 1/sqrt(n).
    """
    rank = max(1, (honest - 1) * (honest - 2) // 2)
    return _SMOOTHING * math.sqrt(honest * rank / (2 * math.pi))


def _cycle_log_ratio() -> float:
    """Return the log of the greatest density ratio between pairwise noise on the grid and a Gaussian.

    It is the bound at rank 1, which is the weakest [Banaszczyk 1993].
    """
    t = _SMOOTHING
    c = t * math.sqrt(2 * math.pi * math.e) * math.exp(-math.pi * t * t)
    return 3 * c / (1 - c)


def _pairwise_epsilon(mu: float, delta: float, length: int) -> float:
    """Return a bound on the epsilon at delta that pairwise noise costs; `mu`: mean shift, in sigmas.

    The loss is sub-Gaussian with mean mu^2/2 and variance mu^2, and the factor is added.
    """
    log_ratio = length * _cycle_log_ratio()
    return mu * mu / 2 + mu * math.sqrt(2 * (math.log(1 / delta) + log_ratio)) + log_ratio


def _sigma_delta(reach: float, epsilon: float, delta: float, honest: int) -> float:
    """Return the least power of two as deviation of pairwise noise that keeps to its part of epsilon."""
    allowed = PAIRWISE_PART * epsilon
    # mu^2/2 + mu w <= allowed
    w = math.sqrt(2 * math.log(1 / delta)) * (1 + 1e-9)
    mu = allowed / (w + math.sqrt(w * w + 2 * allowed))
    return 2.0 ** math.ceil(math.log2(max(reach / mu, _smoothing(honest))))


def _least_bits(reach: Reach, honest: int, epsilon: float, delta: float, mu: float) -> int:
    """Return the least even number of a party's coins per coordinate that meets delta, or ConfigError."""

    def enough(half: int) -> bool:
        """Return whether 2 `half` bits suffice."""
        if reach.ball and reach.rho(honest * 2 * half) > 1e3 * (1 + epsilon):
            return False
        return Composition([reach.event("total", honest, 2 * half)]).delta(epsilon) <= delta

    low, high = 0, max(1, math.ceil(2 * reach.squared / mu**2 / honest))
    while True:
        if 2 * high * reach.length > MAX_BITS:
            reason = (
                f"more than {MAX_BITS} in all coordinates are needed: take fewer steps, or a larger epsilon"
            )
            raise ConfigError.at("bits", reason, ConfigCheck.TOO_LARGE)
        if enough(high):
            break
        low, high = high, high + max(1, high // 4)
    return 2 * first_integer(enough, low, high)


def _widest(steps: int | Sequence[int] | None, length: int) -> tuple[int | None, tuple[int, ...] | None]:
    """Return (widest range or one below 1, all if they differ, else None); ConfigError for a wrong count."""
    if steps is None or isinstance(steps, int):
        return steps, None
    if len(steps) != length:
        raise ConfigError.at("steps", f"{len(steps)} numbers, vectors have {length}", ConfigCheck.SHAPE)
    if least := [width for width in steps if width < 1]:
        return least[0], None
    return max(steps), tuple(steps) if len(set(steps)) > 1 else None


def _check_draws(parties: int, honest: int, degree: int | None, lost: int, corrupt: int) -> None:
    """Raise ConfigError unless the numbers of draws, lost draws and corrupt parties fit together."""
    most = parties - 1 if degree is None else degree
    _refuse_bad(
        (
            ("degree", degree, 1 <= most <= parties - 1, "from 1 to parties - 1"),
            ("lost", lost, 0 <= lost < max(most, 1), "from 0 to below degree"),
            ("corrupt", corrupt, 1 <= corrupt <= max(parties - honest, 1), "from 1 to parties - honest"),
        )
    )


def _refuse_bad(checks: Iterable[tuple[str, object, bool, str]]) -> None:
    """Raise ConfigError naming each argument whose check is false; do nothing if all are true."""
    issues = [
        ConfigIssue(name, f"must be {reason}, is {value}", ConfigCheck.RANGE)
        for name, value, good, reason in checks
        if not good
    ]
    if issues:
        raise ConfigError(issues)
