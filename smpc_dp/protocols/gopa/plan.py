"""The noise and the graph of one GOPA session: from who may do what, and its privacy, to numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.secagg_plan import SecAggPlan, mask_degree, plan_secagg

if TYPE_CHECKING:
    from smpc_dp.privacy.gopa.process import Connected

# Own noise above the least that any pairwise noise would allow, as a share of its variance.
OWN_SHARE = 1.04
# What floating point may lose here.
MARGIN = 1 + 1e-9


class SessionNoise(msgspec.Struct, frozen=True):
    """The noise of a session, in grid steps.

    Attributes:
        epsilon, delta: of each honest user, for everything that the adversary sees in one run.
        mu: of the Gaussian mechanism that the run is, at most.
        closeness: what the grid adds to it, as in a ledger's `Gaussian`.
        slack: the probability that the drawn graph is worse than that; part of delta.
        own_variance, pair_variance: sigma_eta^2 and sigma_delta^2, the discrete Gaussian's parameters.
        honest: n_H, the fewest honest users whose noise the claim counts on.
        curator_deviation: standard deviation that a trusted curator adds to the sum, at the same privacy.
        assumption: who is honest, what is worst case, and when that is fixed.
    """

    epsilon: float
    delta: float
    mu: float
    closeness: float
    slack: float
    own_variance: int
    pair_variance: int
    honest: int
    curator_deviation: float
    assumption: str


def plan_session(
    plan: SecAggPlan, *, diameter: float, length: int, epsilon: float, delta: float, roll_back: bool
) -> tuple[SecAggPlan, SessionNoise]:
    """Return the graph of a session, and the least noise on it.

    Args:
        plan: of a secure sum with as many users, dropouts and corrupt users; its quorum is kept.
        diameter: the L2 distance of the two farthest vectors, in steps.
        length: coordinates of a vector.
        roll_back: whether shares are dealt, so that the degree must do for them as well.

    The adversary has c corrupt users, or one curious one if c = 0 [Bellet 2021, Remark 4.1], and picks up to
    D honest users to be lost: of n users n_H = n - D - max(c, 1) honest ones are left. On the complete graph
    that is the worst case over all choices; on a sparse one corrupt users are fixed before anybody draws, and
    delta includes the chance of a bad graph (docs/gopa-plan.md).

    Raises:
        ConfigError: naming the parameter that leaves too few honest users, a graph about which nothing is
            proven, or too coarse a grid.
    """
    # Not at the top: every session imports this module, few need scipy.
    from smpc_dp.privacy.gopa.exact import complete_entry
    from smpc_dp.privacy.gopa.lattice import smoothing_for

    honest = plan.parties - plan.max_dropouts - max(plan.max_corrupt, 1)
    if honest < 2:
        gone = f"{plan.max_dropouts} may drop out and {max(plan.max_corrupt, 1)} be curious"
        what = f"of {plan.parties} users {gone}: {honest} bring noise that counts, 2 are due"
        raise ConfigError([Fault("roster", what)])
    deviation = MARGIN * diameter / gaussian_mu(epsilon, delta)
    own = OWN_SHARE * deviation**2 / honest
    connected = None
    if not plan.complete:
        degree, connected = _sparse(plan, delta) or (plan.parties - 1, None)
        plan = with_degree(plan, degree, roll_back=roll_back)
    if plan.complete:
        connected = None
    slack = 0.0 if connected is None else connected.failure
    room = (gaussian_mu(epsilon, (delta - slack) / MARGIN) / diameter / MARGIN) ** 2 - 1 / (honest * own)
    if connected is None:
        # complete_entry(n, s) = (1 - 1/n) / (s + n), solved for s = own / pair
        pair = max((1 - 1 / honest) / room - own, 1.0) / honest
    else:
        entry = connected.worst_entry()
        pair = entry / room
    own_variance, pair_variance = math.ceil(own) + 1, math.ceil(pair)
    # s^2 of the grid comes out of the own noise, so it goes in before.
    for _ in range(2):
        smoothing = smoothing_for(
            step=1.0,
            sigma_eta=math.sqrt(own_variance),
            sigma_delta=math.sqrt(pair_variance),
            users=plan.parties,
            edges=plan.parties * (plan.parties - 1) // 2,
            greatest=float(plan.parties),
            length=length,
        )
        own_variance = math.ceil(own + smoothing.s**2) + 1
    own_left = own_variance - smoothing.s**2
    if connected is None:
        entry = complete_entry(honest, own_left / pair_variance)
    theta = 1 / (honest * own_left) + entry / pair_variance
    mu = diameter * math.sqrt(theta) * MARGIN
    reached = smoothing.delta(epsilon, mu) + slack
    if reached > delta:
        raise ConfigError([Fault("precision", "the grid is too coarse for the noise: make it finer")])
    return plan, SessionNoise(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        closeness=2 * smoothing.log_ratio,
        slack=slack,
        own_variance=own_variance,
        pair_variance=pair_variance,
        honest=honest,
        curator_deviation=deviation,
        assumption=_assumption(plan, honest, slack),
    )


def with_degree(plan: SecAggPlan, degree: int, *, roll_back: bool) -> SecAggPlan:
    """Return the plan with this degree; with roll-back at least this one, that does for the shares too."""
    n = plan.parties
    if roll_back:
        return plan_secagg(
            n, dropout=plan.dropout, corrupt=plan.corrupt, security=plan.security, least_degree=degree
        )
    return msgspec.structs.replace(
        plan, degree=degree, complete=degree == n - 1, mask_degree=mask_degree(n, degree)
    )


def _assumption(plan: SecAggPlan, honest: int, slack: float) -> str:
    corrupt = (
        f"at most {plan.max_corrupt} of {plan.parties} users are corrupt"
        if plan.max_corrupt
        else f"no two of {plan.parties} users collude"
    )
    fixed = "whichever they are" if plan.complete else "fixed before anybody draws neighbours"
    luck = f"; delta includes {slack:.1g} for a badly connected draw" if slack else ""
    return (
        f"{corrupt}, {fixed}; the relay may make any {plan.max_dropouts} others vanish: {honest} honest "
        f"users bring noise that counts{luck}"
    )


def _sparse(plan: SecAggPlan, delta: float) -> tuple[int, Connected] | None:
    """Return the smallest degree that is proven to connect well, and the proof; None: the complete graph.

    Well connected enough: less pairwise noise would be saved by more neighbours than by half as many again.
    """
    from smpc_dp.privacy.gopa.process import Connected, process

    honest = plan.parties - plan.max_corrupt
    removed = plan.max_dropouts + (plan.max_corrupt == 0)

    def proof(degree: int) -> Connected | None:
        proven = process(plan.parties, honest, degree, removed=removed, delta=delta)
        if isinstance(proven, str):
            return None
        good = [
            c for c in proven.choices if c.failure < delta / 2 and c.gap * (c.neighbour_degree - removed) >= 1
        ]
        return min(good, key=Connected.worst_entry, default=None)

    low, high = 1, 2
    found: Connected | None = None
    while high < plan.parties - 1 and (found := proof(high)) is None:
        low, high = high, 2 * high
    if found is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        tried = proof(middle)
        if tried is None:
            low = middle
        else:
            high, found = middle, tried
    return high, found
