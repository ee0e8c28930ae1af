"""`smpc-dp plan gopa`: noise and neighbours of private averaging, and how private it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table

from smpc_dp.cli.output import console, print_json


def gopa(
    parties: Annotated[int, typer.Option(help="Users that publish, n.")],
    epsilon: Annotated[float, typer.Option(help="Privacy parameter.")],
    honest_fraction: Annotated[float, typer.Option(help="Fraction that is honest and stays.")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="Asked for; default 10 curator-delta.")] = None,
    curator_delta: Annotated[
        float | None, typer.Option(help="Of the independent noise alone; default delta/10, or 1/n_H^2.")
    ] = None,
    k: Annotated[int | None, typer.Option(help="Users that each one draws, or the degree.")] = None,
    sigma_delta: Annotated[float | None, typer.Option(help="Standard deviation of pairwise noise.")] = None,
    sigma_eta: Annotated[float | None, typer.Option(help="Standard deviation of independent noise.")] = None,
    method: Annotated[
        Literal["exact", "theorem"], typer.Option(help="Certified computation, or Theorem 4.1.")
    ] = "exact",
    graph: Annotated[
        str, typer.Option(help="k-out, complete, ring, random-regular, or a file with `u v` on each line.")
    ] = "k-out",
    graph_seed: Annotated[
        int | None, typer.Option(help="Draw the planned graph from this seed, to plan on it again.")
    ] = None,
    lower: Annotated[float, typer.Option(help="Lower bound of a value.")] = 0.0,
    upper: Annotated[float, typer.Option(help="Upper bound of a value.")] = 1.0,
    radius: Annotated[float | None, typer.Option(help="Bound on a vector's L2 norm, instead.")] = None,
    length: Annotated[int, typer.Option(help="Coordinates of a vector.")] = 1,
    precision: Annotated[float, typer.Option(help="Grid step, at most; 0: continuous noise.")] = 1e-6,
    curious: Annotated[bool, typer.Option(help="Any one honest user may also be curious.")] = False,
    max_dropouts: Annotated[int, typer.Option(help="Honest users whom a relay may choose to leave out.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan private averaging (GOPA): what is given is checked, what is left out is planned.

    Without noise or neighbours given: the least independent noise for curator-delta, the least k for which the
    whole process is proven, and the least pairwise noise for delta.
    """
    # scipy takes half a second to load.
    from smpc_dp.privacy.gopa import GopaRequest, plan_gopa
    from smpc_dp.privacy.gopa.graphs import randomness_of, read_edges
    from smpc_dp.privacy.gopa.request import FAMILIES

    request = GopaRequest(
        parties=parties,
        honest_fraction=honest_fraction,
        epsilon=epsilon,
        delta=delta,
        curator_delta=curator_delta,
        k=k,
        sigma_delta=sigma_delta,
        sigma_eta=sigma_eta,
        method=method,
        graph=graph,
        lower=lower,
        upper=upper,
        radius=radius,
        length=length,
        precision=precision,
        curious=curious,
        max_dropouts=max_dropouts,
    )
    edges = None if graph in FAMILIES else read_edges(Path(graph), parties)
    plan = plan_gopa(request, edges=edges, randomness=randomness_of(graph_seed))
    if as_json:
        print_json(msgspec.to_builtins(plan))
        return
    whole = "not proven" if plan.delta_process is None else f"{plan.delta_process:.4g}"
    curator = "" if plan.curator_error_std is None else f"; a trusted curator: {plan.curator_error_std:.4g}"
    rows = [
        ("delta", f"{plan.delta:.4g}", f"at epsilon = {epsilon:g}, asked for {plan.delta_asked:.4g}"),
        ("delta of the process", whole, plan.delta_process_reason),
        ("k", "-" if plan.k is None else str(plan.k), f"neighbours ({plan.graph})"),
        ("sigma_delta", f"{plan.sigma_delta:.6g}", "pairwise noise, cancels in the sum"),
        ("sigma_eta", f"{plan.sigma_eta:.6g}", "independent noise, stays"),
        ("error", f"{plan.error_std:.4g}", f"standard deviation of the noise in the average{curator}"),
    ]
    table = Table("what", "value", "meaning", title=f"GOPA with {parties} users, by method {method}")
    for row in rows:
        table.add_row(*row)
    console().print(table)
    console().print(f"assumption: {plan.assumption}")
    for line in plan.warnings:
        console().print(f"warning: {line}")
