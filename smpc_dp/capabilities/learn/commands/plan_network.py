"""`smpc-dp plan network`: noise for a token that walks from party to party."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from smpc_dp.console.output import print_plan
from smpc_dp.errors import ConfigCheck, ConfigError


def network(
    parties: Annotated[int, typer.Option(help="Parties n.")],
    epsilon: Annotated[float, typer.Option(help="Budget for all data of one party.")],
    delta: Annotated[float, typer.Option(help="Budget for all data of one party.")],
    topology: Annotated[Literal["ring", "complete"], typer.Option(help="Who may send to whom.")] = "ring",
    task: Annotated[Literal["sum", "histogram", "sgd"], typer.Option(help="What the token carries.")] = "sum",
    method: Annotated[
        Literal["exact", "theorem", "clones"], typer.Option(help="Computed, or a published bound.")
    ] = "exact",
    rounds: Annotated[int, typer.Option(help="Ring: turns K.")] = 1,
    steps: Annotated[int | None, typer.Option(help="Complete graph: steps T.")] = None,
    width: Annotated[float, typer.Option(help="Sums: width of a contribution's interval.")] = 1.0,
    lipschitz: Annotated[float, typer.Option(help="Gradient descent: bound L on a gradient's norm.")] = 1.0,
    categories: Annotated[int, typer.Option(help="Histograms: categories d.")] = 2,
    noise: Annotated[
        Literal["single", "distributed"], typer.Option(help="Ring sums: who adds noise.")
    ] = "single",
    colluding: Annotated[int, typer.Option(help="Parties who pool what they see.")] = 1,
    paths: Annotated[
        Literal["hidden", "neighbours", "known"], typer.Option(help="What they know of a random walk.")
    ] = "neighbours",
    max_contributions: Annotated[
        int | None, typer.Option(help="Known paths: contributions of a party at most.")
    ] = None,
    edge_cap: Annotated[int | None, typer.Option(help="Known paths: uses of an edge at most.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan a computation by a token that walks among the parties: the least noise for network DP.

    A ring (sums, histograms) or a random walk on the complete graph (sums, histograms, gradient descent).
    """
    from smpc_dp.privacy.network.complete import plan_walk
    from smpc_dp.privacy.network.histogram import plan_ring_histogram
    from smpc_dp.privacy.network.ring import plan_ring_sum
    from smpc_dp.privacy.network.walk_histogram import plan_walk_histogram

    if topology == "complete" and steps is None:
        raise ConfigError.at("steps", "the complete graph needs --steps", ConfigCheck.MISSING)
    if topology == "complete" and steps is not None and task == "histogram":
        for name, given in (("max_contributions", max_contributions), ("edge_cap", edge_cap)):
            if given is not None:
                raise ConfigError.at(
                    name, "histograms are planned without such a limit", ConfigCheck.UNSUPPORTED
                )
        if method != "exact":
            raise ConfigError.at(
                "method", f"{method!r} is not exact, for a histogram on this graph", ConfigCheck.CHOICE
            )
        plan = plan_walk_histogram(
            parties, steps, categories, epsilon, delta, colluding=colluding, paths=paths
        )
    elif topology == "complete" and steps is not None:
        plan = plan_walk(
            task,
            parties,
            steps,
            epsilon,
            delta,
            sensitivity=2 * lipschitz if task == "sgd" else width,
            colluding=colluding,
            paths=paths,
            method=method,
            max_contributions=max_contributions,
            edge_cap=edge_cap,
        )
    elif task == "sgd":
        raise ConfigError.at(
            "task", "gradient descent is planned on the complete graph alone", ConfigCheck.UNSUPPORTED
        )
    elif task == "histogram":
        if colluding != 1:
            raise ConfigError.at(
                "colluding", "histograms on the ring are planned for 1 curious party", ConfigCheck.UNSUPPORTED
            )
        plan = plan_ring_histogram(parties, rounds, categories, epsilon, delta, method=method)
    else:
        plan = plan_ring_sum(
            parties,
            rounds,
            epsilon,
            delta,
            sensitivity=width,
            noise=noise,
            colluding=colluding,
            method=method,
        )
    reason = "of one noisy gradient" if plan.task == "sgd" else "of the published result, due to noise"
    rows = [
        ("local", f"{plan.local:.6g}", "the same with every message public (local DP)"),
        ("error", f"{plan.error_std:.6g}", f"standard deviation {reason}"),
        ("proven", "yes" if plan.proven else "no", "whether docs/proofs/planners.md proves it"),
    ]
    if plan.beta is not None:
        rows.insert(0, ("beta", f"{plan.beta:.6g}", "chance of a random answer"))
    if plan.sigma is not None:
        rows.insert(0, ("sigma", f"{plan.sigma:.6g}", "standard deviation of one noise, each coordinate"))
    print_plan(
        plan,
        as_json,
        f"{plan.task}, {plan.topology} graph of {parties} parties",
        rows,
        f"neighbours: {plan.relation}\nassumes: {plan.assumption}",
        *(f"warning: {line}" for line in plan.warnings),
    )
