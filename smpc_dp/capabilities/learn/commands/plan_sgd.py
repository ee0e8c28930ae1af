"""`smpc-dp plan sgd`: noise of local, central and network DP-SGD, side by side."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from smpc_dp.console.output import print_plan


def sgd(
    parties: Annotated[int, typer.Option(help="Parties n.")] = 2000,
    steps: Annotated[int, typer.Option(help="Gradient steps T.")] = 20_000,
    epsilon: Annotated[float, typer.Option(help="Budget for all data of one party.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Budget for all data of one party.")] = 1e-6,
    lipschitz: Annotated[float, typer.Option(help="Bound L on a gradient's L2 norm.")] = 1.0,
    slack: Annotated[float, typer.Option(help="A party contributes slack T/n times at most.")] = 1.2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan DP-SGD in three settings: local, central, network.

    Compares by the formulas of the paper's script, and under one relation and one kind of accounting.
    """
    from smpc_dp.privacy.dp_sgd import plan_sgd

    plan = plan_sgd(parties, steps, epsilon, delta, lipschitz=lipschitz, slack=slack)
    published = {} if plan.published is None else msgspec.to_builtins(plan.published)
    print_plan(
        plan,
        as_json,
        f"DP-SGD, {parties} parties, {steps} steps",
        [
            *((row.setting, f"{row.sigma:.4g}", row.assumption) for row in plan.rows),
            *(
                (f"published script, {name}", f"{sigma:.4g}", "not comparable, see below")
                for name, sigma in published.items()
            ),
        ],
        f"neighbours: {plan.relation}\npublished script: {plan.published_relation}",
        *(f"warning: {line}" for line in plan.warnings),
        columns=("setting", "sigma", "assumes"),
    )
