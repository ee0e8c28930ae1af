"""`smpc-dp plan groups`: how fast rounds of groups mix, their noise, and the bound that follows."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from smpc_dp.console.output import print_plan


def groups(
    parties: Annotated[int, typer.Option(help="Parties n.")],
    group: Annotated[int, typer.Option(help="Members of a group, s.")],
    steps: Annotated[int, typer.Option(help="Steps T.")],
    length: Annotated[int, typer.Option(help="Coordinates of a model.")] = 1,
    epsilon: Annotated[float | None, typer.Option(help="Of a party, all steps; left out: exact.")] = None,
    delta: Annotated[float | None, typer.Option(help="Of a party, all steps together.")] = None,
    clip: Annotated[float, typer.Option(help="Bound on a gradient's L2 norm.")] = 1.0,
    rate: Annotated[float, typer.Option(help="Steps are rate / sqrt(t).")] = 1.0,
    norm: Annotated[float, typer.Option(help="L2 norm of the best model.")] = 1.0,
    method: Annotated[Literal["secagg", "gopa"], typer.Option(help="Of the averages.")] = "secagg",
    colluders: Annotated[int, typer.Option(help="Of all parties, s - 2 at most.")] = 1,
    missing: Annotated[int, typer.Option(help="Of a group, may be absent.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The session's, of the groups.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan learning in rounds of disjoint random groups, whose members average dual variables or models.

    Spectral gap of the mean matrix, noise of an average, and the bound on dual averaging that follows.
    """
    from smpc_dp.capabilities.learn.group_plan import plan_groups
    from smpc_dp.capabilities.learn.methods import AveragerTable

    plan = plan_groups(
        parties,
        group,
        steps,
        length=length,
        clip=clip,
        rate=rate,
        norm=norm,
        epsilon=epsilon,
        delta=delta,
        seed=seed,
        averager=AveragerTable(method=method, colluders=colluders, missing=missing),
    )
    rows = [
        (
            "groups",
            plan.groups,
            f"a step; {plan.participations} averages of a party at most, with seed {plan.seed}",
        ),
        (
            "together",
            f"{plan.together:.6g}",
            "of a party's steps are with a given other one: `colluders` counts all who collude",
        ),
        ("gap", f"{plan.gap:.6g}", "a step multiplies mean squared distances by 1 minus it, exactly"),
        ("gap an average", f"{plan.gap / plan.groups:.6g}", f"of a pair it is {plan.pair_gap:.6g}"),
        ("noise", f"{plan.noise:.6g}", "standard deviation of a coordinate of an average"),
        (
            "distance",
            f"{plan.distance:.6g}",
            "of sums of gradients from their mean, root mean square, at most",
        ),
        (
            "C1",
            f"{plan.centralised:.6g}",
            "of the bound on the objective's excess: as if all sums were their mean",
        ),
        (
            "C2",
            f"{plan.network:.6g}",
            "the rest of it, by their distance; C1 + C2 holds for the mean over parties",
        ),
    ]
    claim = (
        "NOT DIFFERENTIALLY PRIVATE: averages are exact"
        if plan.epsilon is None
        else f"({plan.epsilon:g}, {plan.delta:g})-DP for each party's data, all steps together"
    )
    print_plan(
        plan,
        as_json,
        f"{plan.steps} steps of {plan.parties} parties in groups of {plan.group}",
        rows,
        claim,
        "the bound is on an expectation over draws and noise, where no party is lost, for convex objectives "
        f"with gradients never longer than {clip:g} and no regulariser, or a ball with the best model in it",
    )
