"""`smpc-dp plan budget`: what each of several equal requests may cost, so that all fit into one budget."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import typer

from smpc_dp.console.output import print_struct, print_table
from smpc_dp.errors import ConfigError


class PlannedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """JSON output: equal requests that share a budget, with each one's epsilon and relative noise."""

    requests: int
    epsilon: float
    delta: float
    request_epsilon: float
    mu: float
    pure_request_epsilon: float
    noise: float
    sum_of_epsilons: float


def budget(
    rounds: Annotated[int, typer.Option(help="Requests R.")],
    epsilon: Annotated[float, typer.Option(help="Of all requests together.")],
    delta: Annotated[float, typer.Option(help="Of all requests together, and of each.")] = 1e-6,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan equal requests that share a budget: the epsilon of each, and its noise.

    For Gaussian noise, whose requests compose exactly, as `[parameters.budget]` of a session file splits it;
    tables, counts and sums of records have discrete Laplace noise of epsilon/R each where that is smaller,
    which `plan session` says.
    """
    from smpc_dp.privacy.budget import Budget, checked_budget, request_epsilons, too_little
    from smpc_dp.privacy.gaussian import gaussian_mu

    whole: Budget = checked_budget({"epsilon": epsilon, "delta": delta, "requests": rounds})
    each = next(request_epsilons(whole), None)
    if each is None:
        raise ConfigError([too_little(whole)])
    mu = gaussian_mu(each, delta)
    if as_json:
        print_struct(
            PlannedBudget(
                requests=rounds,
                epsilon=epsilon,
                delta=delta,
                request_epsilon=each,
                mu=mu,
                pure_request_epsilon=epsilon / rounds,
                noise=gaussian_mu(epsilon, delta) / mu,
                sum_of_epsilons=rounds * each,
            )
        )
        return
    rows = [
        (
            "epsilon of a request",
            f"{each:.6g}",
            f"at delta = {delta:g}; their sum would be {rounds * each:.4g}",
        ),
        ("noise of a request", f"{gaussian_mu(epsilon, delta) / mu:.4g}", "times that of one request"),
        (
            "with discrete Laplace noise",
            f"{epsilon / rounds:.6g}",
            "epsilon of a request, and no delta: for few requests of tables",
        ),
        (
            "noise of the mean of all",
            f"{gaussian_mu(epsilon, delta) / mu / math.sqrt(rounds):.4g}",
            "as above",
        ),
    ]
    print_table(f"{rounds} requests, epsilon = {epsilon:g} together", ("what", "value", "meaning"), rows)
