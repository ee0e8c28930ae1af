"""`smpc-dp plan`: parameters and what they cost, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import typer

from smpc_dp.cli.commands import CommandGroup, Listed

# What `smpc-dp plan --help` lists, in this order.
PLANS: Mapping[str, Listed] = {
    "check": Listed(
        "Look for a violation of the claimed privacy of a mechanism, or of a session's release.",
        "smpc_dp.cli.plan_check",
    ),
    "gopa": Listed(
        "Plan private averaging (GOPA): what is given is checked, what is left out is planned.",
        "smpc_dp.capabilities.gopa.commands.plan_gopa",
    ),
    "pairwise": Listed(
        "Plan a private pairwise statistic: how many partners, what error.",
        "smpc_dp.capabilities.pairs.commands.plan_pairwise",
    ),
    "network": Listed(
        "Plan a computation by a token that walks among the parties: the least noise for network DP.",
        "smpc_dp.capabilities.learn.commands.plan_network",
    ),
    "gossip": Listed(
        "Plan noise that is correlated over the steps of gossip, by matrix factorisation.",
        "smpc_dp.capabilities.learn.commands.plan_gossip",
    ),
    "groups": Listed(
        "Plan learning in rounds of disjoint random groups, whose members average dual variables or models.",
        "smpc_dp.capabilities.learn.commands.plan_groups",
    ),
    "sgd": Listed(
        "Plan DP-SGD in three settings: local, central, network.",
        "smpc_dp.capabilities.learn.commands.plan_sgd",
    ),
    "collaboration": Listed(
        "Forecast whether collaboration pays: each owner alone, and all together under differential privacy.",
        "smpc_dp.capabilities.learn.commands.plan_collaboration",
    ),
    "personalized": Listed(
        "Bound the excess of private coordinate descent by updates [Bellet and others 2018, Theorem 2].",
        "smpc_dp.capabilities.learn.commands.plan_utility",
    ),
    "boosting": Listed(
        "Count the updates that suffice for boosting without noise [Bellet 2021, Prop.",
        "smpc_dp.capabilities.learn.commands.plan_utility",
    ),
    "local-global": Listed(
        "Bound the error of SGD without replacement on a local and a global model [Jin, He, Dai, (9), (10)].",
        "smpc_dp.capabilities.learn.commands.plan_utility",
    ),
    "diffusion": Listed(
        "Bound the error of diffusion with graph-homomorphic noise [Vlaski and Sayed 2020, (28), (31)].",
        "smpc_dp.capabilities.learn.commands.plan_utility",
    ),
    "verifiable": Listed(
        "Plan the noise of verifiable averaging (experimental), beside Gaussian noise.",
        "smpc_dp.capabilities.gopa.commands.plan_verifiable",
    ),
    "session": Listed(
        "Plan a request of a session: its charge, and the errors of its answers.",
        "smpc_dp.cli.plan_session",
    ),
    "budget": Listed(
        "Plan equal requests that share a budget: the epsilon of each, and its noise.",
        "smpc_dp.cli.plan_budget",
    ),
    "secagg": Listed("Plan a secure aggregation: its numbers and its cost.", "smpc_dp.cli.plan_secagg"),
}


class PlanGroup(CommandGroup):
    """Typer group of the command `smpc-dp plan`, whose commands are imported when called."""

    own: ClassVar[Mapping[str, Listed]] = PLANS
    are_all: ClassVar[bool] = True
    are_cut: ClassVar[bool] = True


app = typer.Typer(
    name="plan", cls=PlanGroup, help="Plan a run before anything is sent.", no_args_is_help=True
)
