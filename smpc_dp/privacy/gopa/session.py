"""The noise of one GOPA session: from its graph, quorum and privacy to two variances on the grid."""

from __future__ import annotations

import math

import msgspec

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.secagg_plan import SecAggPlan

# Own noise above the least that any pairwise noise would allow, as a share of its variance.
OWN_SHARE = 1.04
# Rounding: a discrete Gaussian is taken for a continuous one of this much less variance, in squared steps.
SMOOTHING = 16


class SessionNoise(msgspec.Struct, frozen=True):
    """The noise of a session, in grid steps.

    Attributes:
        epsilon, delta: of each honest user, for everything that the adversary sees in one run.
        mu: of the Gaussian mechanism that this is, at most; closeness: what the grid adds, see `lattice`.
        own_variance, pair_variance: sigma_eta^2 and sigma_delta^2, the discrete Gaussian's parameters.
        honest: n_H, the fewest honest users whose noise the claim counts on.
        curator_deviation: standard deviation that a trusted curator adds to the sum, at the same privacy.
        assumption: who is honest, and what is worst case.
    """

    epsilon: float
    delta: float
    mu: float
    closeness: float
    own_variance: int
    pair_variance: int
    honest: int
    curator_deviation: float
    assumption: str


def plan_session(plan: SecAggPlan, diameter: float, epsilon: float, delta: float) -> SessionNoise:
    """Return the least noise for `plan` (a complete graph) and vectors of L2 diameter `diameter` in steps.

    The adversary has c corrupt users, or one curious one if c = 0, and picks up to D honest users to be lost:
    of n users n_H = n - D - max(c, 1) honest ones are left, all neighbours of each other, wherever the noise
    counts. The covariance of what they publish is sigma_eta^2 I + sigma_delta^2 L, so

        mu^2 = diameter^2 (1 / (n_H sigma_eta^2) + (1 - 1 / n_H) / (sigma_eta^2 + n_H sigma_delta^2)).

    Raises ConfigError naming the parameter that leaves too few honest users or too coarse a grid.
    """
    honest = plan.parties - plan.max_dropouts - max(plan.max_corrupt, 1)
    if honest < 2:
        raise ConfigError(
            [
                Fault(
                    "roster",
                    f"of {plan.parties} users {plan.max_dropouts} may drop out and "
                    f"{max(plan.max_corrupt, 1)} be curious: {honest} bring noise that counts, 2 are due",
                )
            ]
        )
    if not plan.complete:
        raise ConfigError([Fault("roster", "gopa on a sparse graph is planned from 65 users on: not yet")])
    # A little more than the least: what follows is floating point.
    deviation = (1 + 1e-9) * diameter / gaussian_mu(epsilon, delta)
    own = OWN_SHARE * deviation**2 / honest
    pair = ((1 - 1 / honest) / ((1 - 1 / OWN_SHARE) / deviation**2) - own) / honest
    own_variance, pair_variance = math.ceil(own) + SMOOTHING, math.ceil(max(pair, 1.0))
    if own_variance < plan.parties * SMOOTHING:
        raise ConfigError([Fault("precision", "the grid is too coarse for the noise: make it finer")])
    smooth = own_variance - SMOOTHING
    theta = 1 / (honest * smooth) + (1 - 1 / honest) / (smooth + honest * pair_variance)
    return SessionNoise(
        mu=diameter * math.sqrt(theta) * (1 + 1e-12),
        closeness=0.0,
        epsilon=epsilon,
        delta=delta,
        own_variance=own_variance,
        pair_variance=pair_variance,
        honest=honest,
        curator_deviation=deviation,
        assumption=(
            f"at most {plan.max_corrupt} of {plan.parties} users are corrupt, in the worst choice, and the "
            f"relay may make the worst {plan.max_dropouts} others vanish: {honest} honest users bring noise"
        ),
    )
