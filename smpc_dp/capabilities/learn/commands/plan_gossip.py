"""`smpc-dp plan gossip`: Gaussian noise for gradient descent by gossip, and what single parties see."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from smpc_dp.console.output import print_plan


def gossip(
    parties: Annotated[int, typer.Option(help="Parties n.")],
    steps: Annotated[int, typer.Option(help="Steps T, at most 1,000.")],
    epsilon: Annotated[float, typer.Option(help="Budget for one record, of all messages.")],
    delta: Annotated[float, typer.Option(help="Budget for one record, of all messages.")],
    batches: Annotated[int, typer.Option(help="Batches of a party's records, used in cyclic order.")] = 1,
    topology: Annotated[Literal["ring", "complete"], typer.Option(help="Who sends to whom.")] = "ring",
    observer: Annotated[list[int] | None, typer.Option(help="Parties who pool what they see.")] = None,
    contributions: Annotated[
        Literal["convex", "fixed"],
        typer.Option(help="For observers: unclipped gradients of convex losses, or no function of messages."),
    ] = "convex",
    noise: Annotated[str, typer.Option(help="Gaussian alone is accounted for.")] = "gaussian",
    routes: Annotated[str, typer.Option(help="Known ones alone are accounted for.")] = "known",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan noise that is correlated over the steps of gossip, by matrix factorisation.

    For a record that moves its party's update by 1 (L2) when its batch is used. All messages are seen by all.
    """
    from smpc_dp.capabilities.learn.pairing_schedule import graph_of
    from smpc_dp.privacy.gossip_plan import plan_gossip

    weights = graph_of(topology, parties).metropolis()
    plan = plan_gossip(
        weights,
        steps,
        batches,
        epsilon,
        delta,
        observers=tuple(observer or ()),
        contributions=contributions,
        noise=noise,
        routes=routes,
    )
    rows = [
        ("mu", f"{plan.mu:.6g}", "Gaussian DP of all messages: what a ledger is charged"),
        ("even", f"{plan.even:.6g}", "standard deviation of independent noise, the same at each step"),
        ("fresh", f"{plan.fresh[0]:.6g} to {plan.fresh[-1]:.6g}", "of the correlated noise's fresh part"),
        ("even error", f"{plan.even_error:.6g}", "variance in a model's coordinate, mean over the steps"),
        ("error", f"{plan.error:.6g}", f"with correlated noise: {plan.error / plan.even_error:.3f} of it"),
        *(
            (f"distance {one.distance}", f"{one.epsilon:.6g}", f"epsilon of party {one.party}, even noise")
            for one in plan.seen
        ),
    ]
    print_plan(
        plan,
        as_json,
        f"gossip of {parties} parties, {steps} steps",
        rows,
        f"neighbours: {plan.relation}",
        *(["towards the observers alone, not charged, and for continuous noise"] if plan.seen else []),
    )
