"""Plan of learning in rounds of groups: how fast they mix, the noise of an average, and the bound."""

from __future__ import annotations

import msgspec

from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.dual_averaging import inverse_root
from smpc_dp.capabilities.learn.gossip_bounds import GroupMixing, group_terms
from smpc_dp.capabilities.learn.group_steps import group_issues
from smpc_dp.capabilities.learn.methods import AveragerTable, plan_private
from smpc_dp.capabilities.learn.requirements import PrivateAverages
from smpc_dp.errors import ConfigError


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `plan_groups`: noise, participations and error bound of averages over groups of parties.

    Attributes:
        parties, group, steps: n, s and T. seed: of the groups.
        groups: k, of a step. averages: of all steps, of changes. participations: of a party, at most, with
            this seed.
        together: share of the steps of a party in which a given other one is in its group, on average.
        gap: of the mean matrix of a step. pair_gap: that of one pair out of all parties.
        noise: standard deviation of a coordinate of an average; 0 without epsilon.
        distance: bound on the root mean square distance of sums of gradients from their mean.
        centralised, network: C1 and C2 of dual averaging: together a bound on the mean excess, an expectation
            over draws and noise.
        epsilon, delta: of a party, all steps together; None where averages are exact.
    """

    parties: int
    group: int
    steps: int
    seed: int
    groups: int
    averages: int
    participations: int
    together: float
    gap: float
    pair_gap: float
    noise: float
    distance: float
    centralised: float
    network: float
    epsilon: float | None
    delta: float | None


def plan_groups(
    parties: int,
    group: int,
    steps: int,
    *,
    length: int,
    clip: float = 1.0,
    rate: float = 1.0,
    norm: float = 1.0,
    epsilon: float | None = None,
    delta: float | None = None,
    seed: int = 0,
    averager: AveragerTable,
) -> GroupPlan:
    """Return a plan of dual averaging in random groups, for gradients up to `clip`; or ConfigError.

    Args:
        length: coordinates of a model. rate: steps are rate / sqrt(t). norm: of the best model.
        seed: the session's: noise is planned for the most averages that its draws give a party.
        averager: secagg or gopa.

    Raises:
        ConfigError: groups cannot be drawn, exact ones are too small, or no noise suffices.
    """
    issues = group_issues(group, parties, epsilon, delta) + averager.issues(group)
    if epsilon is None:
        issues += averager.exact_issues(group)
    if issues:
        raise ConfigError(issues)
    mixing, draws = GroupMixing(parties, group), GroupDraws(parties, group, seed)
    taken = draws.participations(steps * draws.each)
    noise = 0.0
    if epsilon is not None:
        required = PrivateAverages(length, clip, frozenset({group}), taken, epsilon, delta)
        shares = plan_private(averager, required, parties).plan(group).noise(group, 0)
        noise = 0.0 if shares is None else shares.total / group
    variance = length * noise**2
    terms = group_terms(mixing, norm, clip, inverse_root(rate), steps, variance)
    return GroupPlan(
        parties=parties,
        group=group,
        steps=steps,
        seed=seed,
        groups=mixing.groups,
        averages=steps * mixing.groups,
        participations=int(taken.max()),
        together=(group - 1) / (parties - 1),
        gap=mixing.gap,
        pair_gap=1 / (parties - 1),
        noise=noise,
        distance=mixing.distance(clip, variance),
        centralised=terms.centralised,
        network=terms.network,
        epsilon=epsilon,
        delta=delta,
    )
