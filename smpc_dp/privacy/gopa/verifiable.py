"""Plan the noise of verifiable averaging: binomial independent noise, whose drawing can be proven.

Proofs of what is used here are in docs/verifiable-plan.md. In one coordinate, values are whole grid steps in
a range of R of them; each user adds `bits` fair coins less their mean; pairwise noise is discrete Gaussian of
standard deviation sigma_delta steps. If the honest users' graph is connected, the whole view shows

- of the honest users' total, what a binomial of n_H bits coins shows of a shift by R, in every coordinate;
- of the rest, no more than a Gaussian shows of a shift of mu standard deviations,
  mu^2 <= R^2 length r / sigma_delta^2, for r the greatest effective resistance between two honest users,

one after the other. r is at most n_H - 1, on a path. Pairwise noise cancels, so sigma_delta is free: it is
made so large that the second part costs next to nothing on any connected graph. A graph that is drawn is
connected but for a probability that `connected` bounds, and delta includes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Pure, Shift
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.gopa.connected import disconnected
from smpc_dp.privacy.laws import BinomialLaw

Rounding = Literal["stochastic", "nearest"]
ROUNDING_VARIANCE: dict[Rounding, float] = {"stochastic": 1 / 4, "nearest": 1 / 12}
"""Of one rounded value, in grid steps: at most, and for a fraction that is uniform."""
ROUNDING_PART = 0.05
"""What rounding may add to the variance that the honest users' noise needs, where steps are planned."""
PAIRWISE_PART = 1e-3
"""What pairwise noise may take of epsilon and of delta, where sigma_delta is planned."""
# Standard deviations of pairwise noise, in units of what smooths the lattice of the graph's cycles.
_SMOOTHING = 6.0
MAX_STEPS = 1 << 30
MAX_BITS = 1 << 16


class VerifiablePlan(msgspec.Struct, frozen=True):
    """What the users add, and what that shows; variances are in squared grid steps, of the users' sum.

    Attributes:
        steps: R, grid steps of a value's range.
        bits: secret bits of one user and coordinate.
        sigma_delta: standard deviation of pairwise noise, in grid steps.
        degree, lost: draws of a user, and those of them that it may lose; None: all users are neighbours.
        delta: of the whole view at epsilon, proven; includes the two below and `disconnected`.
        epsilon_pairwise: what pairwise noise takes of epsilon, with probability 1 - delta_pairwise.
        disconnected: the probability, at most, that the draws do not connect the honest users.
        variance: of the noise in the sum of all users, of which the honest ones' is `variance_honest`.
        variance_gaussian: what Gaussian noise of the honest users would need at the same epsilon and delta.
        variance_rounding: of the users' rounding, at most if stochastic; if nearest, for uniform fractions.
        error_std: standard deviation of noise and rounding in the average, as a part of the range.
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
    relation: str
    assumption: str

    def release(self) -> Event:
        """Return the whole view as one release.

        Whatever the total is, the rest of the view moves the loss by epsilon_pairwise at most, but with
        probability delta_pairwise: what `closeness` and `slack` of a shift allow for.
        """
        slack = self.disconnected + self.delta_pairwise
        shift = _shift(self.honest, self.bits, self.steps, self.length, self.epsilon_pairwise)
        planned = Pure(self.epsilon, max(self.delta, self.delta_asked) - slack)
        return Event("verifiable gopa", "substitution", (shift, planned), slack)

    def events(self) -> tuple[Event, Event]:
        """Return what the privacy ledger enters: the total, and the rest of the view."""
        pairwise = Pure(self.epsilon_pairwise, self.delta_pairwise)
        return (
            _total(self.honest, self.bits, self.steps, self.length),
            Event("verifiable gopa, pairwise noise", "substitution", (pairwise,), self.disconnected),
        )


def plan_verifiable(
    *,
    parties: int,
    honest: int,
    epsilon: float,
    delta: float,
    length: int = 1,
    steps: int | None = None,
    bits: int | None = None,
    sigma_delta: float | None = None,
    rounding: Rounding = "stochastic",
    degree: int | None = None,
    lost: int = 0,
    corrupt: int | None = None,
) -> VerifiablePlan:
    """Plan or check the noise; what is None is planned.

    Args:
        parties: users who publish.
        honest: n_H, those of them who are honest and stay; only their noise counts.
        epsilon: above 1e-100 and below 100.
        delta: asked for; if `bits` and `sigma_delta` are given, the plan may have another.
        length: coordinates, each in a range of `steps`. A bound on the norm is not planned for.
        steps: grid steps of the range; planned so that rounding adds at most 5 % to the variance.
        bits: even, of one user and coordinate; the least for delta.
        sigma_delta: in grid steps; a power of two that takes at most a thousandth of epsilon and delta.
        rounding: of values to grid steps.
        degree: of the other users each user draws so many for neighbours; None: all are.
        lost: so many of its draws a user may lose, by anybody's choice; else it leaves.
        corrupt: users who are, fixed before anybody draws; by default all but `honest`, and 1 at least.

    Raises:
        ConfigError: naming what is out of range or cannot be reached.
    """
    corrupt = max(parties - honest, 1) if corrupt is None else corrupt
    _check(parties, honest, epsilon, delta, length, steps, bits, sigma_delta)
    _check_draws(parties, honest, degree, lost, corrupt)
    apart = 0.0 if degree is None else disconnected(parties, degree, corrupt=corrupt, lost=lost)
    mu = gaussian_mu(epsilon, delta)
    if steps is None:
        # (steps / mu)^2, the variance that a Gaussian needs, times the part is what rounding has.
        rounded = parties * ROUNDING_VARIANCE[rounding] / ROUNDING_PART
        steps = max(1, math.ceil(mu * math.sqrt(rounded / length)))
        if steps > MAX_STEPS:
            raise ConfigError([Fault("steps", f"{steps} are needed, at most {MAX_STEPS}: lower epsilon")])
    reach = steps * math.sqrt(length * (honest - 1))
    if sigma_delta is None:
        sigma_delta = _sigma_delta(reach, epsilon, PAIRWISE_PART * delta, honest)
    elif sigma_delta < _smoothing(honest):
        least = _smoothing(honest)
        raise ConfigError([Fault("sigma_delta", f"{sigma_delta:g} steps; at least {least:g} are needed")])
    delta_pairwise = PAIRWISE_PART * delta
    epsilon_pairwise = _pairwise_epsilon(reach / sigma_delta, delta_pairwise, length)
    left = delta - delta_pairwise - apart
    if bits is None:
        if left <= 0 and degree is not None:
            what = f"{degree} draws leave the honest users unconnected with probability {apart:.2g}"
            raise ConfigError([Fault("degree", f"{what}, delta is {delta:g}: draw more")])
        if left <= 0 or epsilon <= epsilon_pairwise:
            raise ConfigError([Fault("delta", "nothing is left for the noise: raise sigma_delta or delta")])
        bits = _least_bits(honest, steps, length, epsilon - epsilon_pairwise, left, mu)
    total = 1.0
    if epsilon > epsilon_pairwise:
        shown = Composition([_total(honest, bits, steps, length)]).delta(epsilon - epsilon_pairwise)
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
        variance_gaussian=length * (steps / mu) ** 2,
        variance_rounding=variance_rounding,
        error_std=math.sqrt(variance + variance_rounding) / parties / steps,
        relation="substitution of one honest user's vector",
        assumption=(
            f"{honest} users at least are honest, publish, and keep their pairwise noise secret; the other "
            f"{parties - honest} may collude"
            + ("" if degree is None else f", {corrupt} fixed before anybody draws {degree} neighbours")
        ),
    )


def _total(honest: int, bits: int, steps: int, length: int) -> Event:
    """A binomial in every coordinate, each moved by the whole range at worst."""
    shift = _shift(honest, bits, steps, length)
    return Event("verifiable gopa, total", "substitution", (shift,))


def _shift(honest: int, bits: int, steps: int, length: int, closeness: float = 0.0) -> Shift:
    return Shift(BinomialLaw(bits), honest, steps, length, length, closeness)


def _smoothing(honest: int) -> float:
    """Steps of sigma_delta with which the law of B Delta is Gaussian but for a factor of next to 1.

    The lattice of integer flows without sources has rank at most (n-1)(n-2)/2, and its dual no vector
    shorter than 1/sqrt(n).
    """
    rank = max(1, (honest - 1) * (honest - 2) // 2)
    return _SMOOTHING * math.sqrt(honest * rank / (2 * math.pi))


def _cycle_log_ratio() -> float:
    """log((1 + e)/(1 - e)) for e = C/(1 - C), the bound at rank 1, which is the weakest [Banaszczyk 1993]."""
    t = _SMOOTHING
    c = t * math.sqrt(2 * math.pi * math.e) * math.exp(-math.pi * t * t)
    return 3 * c / (1 - c)


def _pairwise_epsilon(mu: float, delta: float, length: int) -> float:
    """Epsilon at delta of loss that is sub-Gaussian with mean mu^2/2 and variance mu^2, and the factor."""
    log_ratio = length * _cycle_log_ratio()
    return mu * mu / 2 + mu * math.sqrt(2 * (math.log(1 / delta) + log_ratio)) + log_ratio


def _sigma_delta(reach: float, epsilon: float, delta: float, honest: int) -> float:
    """The least power of two that smooths, with which pairwise noise takes its part of epsilon at most."""
    allowed = PAIRWISE_PART * epsilon
    # mu^2/2 + mu w <= allowed
    w = math.sqrt(2 * math.log(1 / delta)) * (1 + 1e-9)
    mu = allowed / (w + math.sqrt(w * w + 2 * allowed))
    return 2.0 ** math.ceil(math.log2(max(reach / mu, _smoothing(honest))))


def _least_bits(honest: int, steps: int, length: int, epsilon: float, delta: float, mu: float) -> int:
    """The least even number of bits for delta, found from the Gaussian's variance upwards."""

    def enough(half: int) -> bool:
        return Composition([_total(honest, 2 * half, steps, length)]).delta(epsilon) <= delta

    low, high = 0, max(1, math.ceil(2 * length * (steps / mu) ** 2 / honest))
    while True:
        if 2 * high * length > MAX_BITS:
            what = (
                f"more than {MAX_BITS} in all coordinates are needed: take fewer steps, or a larger epsilon"
            )
            raise ConfigError([Fault("bits", what)])
        if enough(high):
            break
        low, high = high, high + max(1, high // 4)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return 2 * high


def _check(
    parties: int,
    honest: int,
    epsilon: float,
    delta: float,
    length: int,
    steps: int | None,
    bits: int | None,
    sigma_delta: float | None,
) -> None:
    checks = (
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
    )
    _refuse_bad(checks)


def _check_draws(parties: int, honest: int, degree: int | None, lost: int, corrupt: int) -> None:
    most = parties - 1 if degree is None else degree
    _refuse_bad(
        (
            ("degree", degree, 1 <= most <= parties - 1, "from 1 to parties - 1"),
            ("lost", lost, 0 <= lost < max(most, 1), "from 0 to below degree"),
            ("corrupt", corrupt, 1 <= corrupt <= max(parties - honest, 1), "from 1 to parties - honest"),
        )
    )


def _refuse_bad(checks: Iterable[tuple[str, object, bool, str]]) -> None:
    faults = [Fault(name, f"must be {what}, is {value}") for name, value, good, what in checks if not good]
    if faults:
        raise ConfigError(faults)
