"""Plan of a GOPA session: its noise and graph for the given adversary and privacy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.search import bisect
from smpc_dp.privacy.secagg_plan import SecAggPlan, mask_degree, plan_secagg

if TYPE_CHECKING:
    from smpc_dp.privacy.gopa.own_draws import OwnDraws

# Independent noise above the minimum for any pairwise noise, as a share of its variance.
OWN_SHARE = 1.04
# Possible error of floating point here.
MARGIN = 1 + 1e-9
# Pairwise noise beyond this multiple of a complete graph's is not worth the neighbours that it saves: it
# stays in the average for each lost party. Where it is rolled back it only has to be sampled.
GREATEST_COST, GREATEST_COST_ROLLED_BACK = 6.0, 1e5
# Greatest probability that an honest run ends because a party refuses its neighbourhood, for each of two
# reasons.
REFUSAL = 2.0**-40


class Neighbourhood(msgspec.Struct, frozen=True):
    """Limits on a party's number of neighbours, which the party checks before it sends its vector.

    Attributes:
        least_own: the fewest participants among the parties that it drew: the claim counts on them.
        most_drawn_by: the most parties that may have drawn it; with more, over `max_corrupt` parties are
            corrupt.
    """

    least_own: int
    most_drawn_by: int


class SessionNoise(msgspec.Struct, frozen=True, rename={"neighbourhood": "place"}):
    """Planned noise of a GOPA session, in grid steps: variances of own and pairwise noise, and privacy.

    Attributes:
        epsilon, delta: of each honest party, for everything that the adversary sees in one run.
        mu: of the run as a Gaussian mechanism, at most.
        closeness: the addition of the grid, as in a ledger's `Gaussian`.
        slack: the probability that the drawn graph is worse than that, or with roll-back gives corrupt
            parties too many shares; part of delta.
        own_variance, pair_variance: sigma_eta^2 and sigma_delta^2, the discrete Gaussian's parameters.
        honest: n_H, the fewest honest parties whose noise the claim counts on.
        curator_deviation: standard deviation that a trusted curator adds to the sum, at the same privacy.
        neighbourhood: each party's conditions on its neighbours.
        assumption: the honest parties, the worst case, and when it is fixed.
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
    neighbourhood: Neighbourhood
    assumption: str


def plan_session(
    plan: SecAggPlan,
    *,
    diameter: float,
    length: int,
    epsilon: float,
    delta: float,
    roll_back: bool,
    hiding: float = 0.0,
) -> tuple[SecAggPlan, SessionNoise]:
    """Return the plan with a graph, and the least noise on it for epsilon and delta; or raise ConfigError.

    Args:
        plan: of a secure sum with as many parties, dropouts and corrupt parties; its quorum is kept.
        diameter: the L2 distance of the two farthest vectors, in steps.
        length: coordinates of a vector.
        roll_back: whether shares are dealt, so that the degree must do for them as well.
        hiding: on the complete graph, the standard error with which, beyond the sum, a coordinate of one
            party is seen by whoever knows those of all others; in steps, at least. Pairwise noise is planned
            for it, and then makes independent noise above the minimum needless.

    The adversary has c corrupt parties, or one curious one if c = 0 [Bellet 2021, Remark 4.1], and picks up
    to
    D honest parties to be lost: of n parties n_H = n - D - max(c, 1) honest ones are left. On the complete
        graph that is the worst case over all choices; on a sparse one corrupt parties are fixed before
        anybody draws, the aggregator may hide from parties who drew them, and delta includes the chance of
        a bad graph (docs/proofs/gopa-plan.md).

    Raises:
        ConfigError: naming the parameter that leaves too few honest parties, a graph about which nothing is
            proven, or too coarse a grid.
    """
    # Not at the top: every session imports this module, few need scipy.
    from smpc_dp.privacy.gopa.exact import complete_entry
    from smpc_dp.privacy.gopa.lattice import smoothing_for

    honest = plan.parties - plan.max_dropouts - max(plan.max_corrupt, 1)
    if honest < 2:
        gone = f"{plan.max_dropouts} may drop out and {max(plan.max_corrupt, 1)} be curious"
        reason = f"of {plan.parties} parties {gone}: {honest} bring noise that counts, 2 are due"
        raise ConfigError.at("roster", reason, ConfigCheck.INFEASIBLE)
    mu = gaussian_mu(epsilon, delta)
    if mu == 0:
        raise ConfigError.at(
            "epsilon", f"{epsilon:g} at delta {delta:g} needs more noise than any", ConfigCheck.INFEASIBLE
        )
    deviation = MARGIN * diameter / mu
    own = OWN_SHARE * deviation**2 / honest
    proven = None
    if not plan.complete:
        plan, proven = _sparse(plan, delta, roll_back)
    slack = 0.0 if proven is None else proven.failure
    if roll_back:
        slack += _both_opened(plan)
    if slack >= delta:
        raise _too_many_bad_draws(slack, delta)
    most = gaussian_mu(epsilon, (delta - slack) / MARGIN) / diameter / MARGIN
    counted, connected = honest, None
    if proven is None:
        least_pair = hiding**2 / honest
        if least_pair:
            own = _least_own(honest, own / OWN_SHARE, own, least_pair, most)
        # complete_entry(n, s) = (1 - 1/n) / (s + n), solved for s = own / pair
        room = most**2 - 1 / (honest * own)
        pair = max(((1 - 1 / honest) / room - own) / honest, 1.0 / honest, least_pair)
    else:
        ways = [
            (way.entry / room, way)
            for way in proven.spreads
            if (room := most**2 - 1 / ((honest - way.spared) * own)) > 0
        ]
        if not ways:
            raise _too_many_bad_draws(slack, delta)
        pair, connected = min(ways, key=lambda way: way[0])
        counted -= connected.spared
    own_variance, pair_variance = math.ceil(own) + 1, math.ceil(pair)
    # s^2 of the grid is subtracted from the independent noise later, so it is added before.
    for _ in range(2):
        smoothing = smoothing_for(
            step=1.0,
            sigma_eta=math.sqrt(own_variance),
            sigma_delta=math.sqrt(pair_variance),
            parties=plan.parties,
            edges=plan.parties * (plan.parties - 1) // 2,
            # A term of one end alone adds to the spectrum as much as an edge to no party.
            greatest=plan.parties * (1.0 if plan.complete else 2.0),
            length=length,
        )
        own_variance = math.ceil(own + smoothing.s**2) + 1
    own_left = own_variance - smoothing.s**2
    entry = complete_entry(honest, own_left / pair_variance) if connected is None else connected.entry
    theta = 1 / (counted * own_left) + entry / pair_variance
    mu = diameter * math.sqrt(theta) * MARGIN
    reached = smoothing.delta(epsilon, mu) + slack
    if reached > delta:
        raise ConfigError.at(
            "precision", "the grid is too coarse for the noise: make it finer", ConfigCheck.INFEASIBLE
        )
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
        neighbourhood=_neighbourhood(plan, roll_back),
        assumption=assumption(plan, honest, luck_of(slack)),
    )


def _least_own(honest: int, low: float, high: float, pair: float, most: float) -> float:
    """Return about the least own variance from `low` with theta < most^2 at this `pair`; `high` if none."""

    def fails(own: float) -> bool:
        theta = 1 / (honest * own) + complete_entry(honest, own / pair) / pair
        return theta > (most * (1 - 1e-9)) ** 2

    # Not at the top: every session imports this module, few need scipy.
    from smpc_dp.privacy.gopa.exact import complete_entry

    return bisect(fails, low, high, 50)[1]


def _too_many_bad_draws(slack: float, delta: float) -> ConfigError:
    """Return the error that badly connected random graphs take too large a part of delta."""
    reason = (
        f"bad draws of neighbours have {slack:.1g} of delta, {delta:g}: more bits, or a larger delta, are due"
    )
    return ConfigError.at("security", reason, ConfigCheck.INFEASIBLE)


def _both_opened(plan: SecAggPlan) -> float:
    """Return a bound on the probability that shares open both a party's self-mask and pairwise terms."""
    logs = (plan.holders_log2, plan.graph_log2)
    return math.fsum(math.exp2(log) for log in logs if log is not None)


def with_degree(plan: SecAggPlan, degree: int, *, roll_back: bool) -> SecAggPlan:
    """Return the plan with this number of drawn neighbours; with roll-back, at least what shares need."""
    n = plan.parties
    if roll_back:
        return plan_secagg(
            n, dropout=plan.dropout, corrupt=plan.corrupt, security=plan.security, least_degree=degree
        )
    return msgspec.structs.replace(
        plan, degree=degree, complete=degree == n - 1, mask_degree=mask_degree(n, degree)
    )


def complete_neighbourhood(plan: SecAggPlan) -> Neighbourhood:
    """Return the limits on a party's number of neighbours in a complete graph, for planned losses."""
    others = plan.parties - 1
    return Neighbourhood(others - plan.max_dropouts, others)


def _neighbourhood(plan: SecAggPlan, roll_back: bool) -> Neighbourhood:
    """Return limits on neighbours that an honest party misses only with probability `REFUSAL`.

    This holds if losses do not depend on the draws.
    """
    from smpc_dp.privacy.gopa.own_draws import most_drawn_by

    if plan.complete:
        return complete_neighbourhood(plan)
    others = plan.parties - 1
    honest = most_drawn_by(others, plan.degree / others, REFUSAL / plan.parties)
    return Neighbourhood(plan.degree - _lost(plan, roll_back), min(honest + plan.max_corrupt, others))


def _lost(plan: SecAggPlan, roll_back: bool) -> int:
    """Return the number of parties that a party drew as neighbours and that may be lost.

    With roll-back it is that of all losses: some are lost after the vector is sent.
    """
    from smpc_dp.privacy.gopa.own_draws import lost_draws

    if roll_back:
        return plan.max_dropouts
    return lost_draws(plan.parties, plan.max_dropouts, plan.degree, REFUSAL)


def luck_of(slack: float) -> str:
    """Return the claim's words on how much of delta covers bad draws of neighbours; "" if none."""
    return f"; delta includes {slack:.1g} for bad draws of neighbours in each attempt" if slack else ""


def assumption(plan: SecAggPlan, honest: int, luck: str, adversary: str = "the aggregator") -> str:
    """Return the sentence of a claim that says which parties must be honest, and against whom.

    `luck`: the words about draws of neighbours; `adversary`: who may exclude parties.
    """
    corrupt = (
        f"at most {plan.max_corrupt} of {plan.parties} parties are corrupt"
        if plan.max_corrupt
        else f"no two of {plan.parties} parties collude"
    )
    fixed = "whichever they are" if plan.complete else "fixed before anybody draws neighbours"
    return (
        f"{corrupt}, {fixed}; {adversary} may make any {plan.max_dropouts} others vanish: {honest} honest "
        f"parties bring noise that counts{luck}"
    )


def _sparse(plan: SecAggPlan, delta: float, roll_back: bool) -> tuple[SecAggPlan, OwnDraws | None]:
    """Return the plan with the fewest proven neighbours and the proof; else the complete graph and None.

    None: the complete graph, of which there is nothing to prove.
    """
    # A party that draws half of the others has three quarters of them as neighbours: then it may as well have
    # all.
    most = (plan.parties - 1) // 2

    def tried(degree: int) -> tuple[SecAggPlan, OwnDraws | None]:
        new = with_degree(plan, degree, roll_back=roll_back)
        return new, _proof(new, delta, roll_back) if new.degree <= most else None

    low, high = 1, 2
    while (result := tried(high))[1] is None:
        if high == most:
            return with_degree(plan, plan.parties - 1, roll_back=roll_back), None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        better = tried(middle)
        if better[1] is None:
            low = middle
        else:
            high, result = middle, better
    return result


def _proof(plan: SecAggPlan, delta: float, roll_back: bool) -> OwnDraws | None:
    """Return the proof that a plan's drawn graph connects well enough; None if it fails or costs too much."""
    # Not at the top: every session imports this module, few need scipy.
    from smpc_dp.privacy.gopa.own_draws import own_draws

    proven = own_draws(
        plan.parties,
        plan.degree,
        corrupt=max(plan.max_corrupt, 1),
        removed=plan.max_dropouts,
        lost=_lost(plan, roll_back),
        delta=delta,
    )
    greatest = GREATEST_COST_ROLLED_BACK if roll_back else GREATEST_COST
    return proven if proven and plan.degree * proven.least_entry <= greatest else None
