"""`smpc-dp plan gopa`: noise, neighbours and privacy of private averaging."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smpc_dp.console.options import with_settings
from smpc_dp.console.output import print_plan
from smpc_dp.privacy.gopa_request import FAMILIES, GopaRequest


@with_settings(GopaRequest)
def gopa(
    graph: Annotated[
        str, typer.Option(help=f"{', '.join(FAMILIES)}, or a file with `u v` on each line.")
    ] = "k-out",
    graph_seed: Annotated[
        int | None, typer.Option(help="Draw the planned graph from this seed, to plan on it again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **given: Any,
) -> None:
    """Plan private averaging (GOPA): what is given is checked, what is left out is planned.

    Planned are the least independent noise for curator-delta, the least k for which the whole process is
    proven, and the least pairwise noise for delta.
    """
    # scipy takes half a second to load.
    from smpc_dp.privacy.gopa import plan_gopa
    from smpc_dp.privacy.gopa.graphs import randomness_of, read_edges

    request = GopaRequest(graph=graph, **given)
    edges = None if graph in FAMILIES else read_edges(Path(graph), request.parties)
    plan = plan_gopa(request, edges=edges, randomness=randomness_of(graph_seed))
    whole = "not proven" if plan.delta_process is None else f"{plan.delta_process:.4g}"
    curator = "" if plan.curator_error_std is None else f"; a trusted curator: {plan.curator_error_std:.4g}"
    rows = [
        ("delta", f"{plan.delta:.4g}", f"at epsilon = {request.epsilon:g}, asked for {plan.delta_asked:.4g}"),
        ("delta of the process", whole, plan.delta_process_reason),
        ("k", "-" if plan.k is None else plan.k, f"neighbours ({plan.graph})"),
        ("sigma_delta", f"{plan.sigma_delta:.6g}", "pairwise noise, cancels in the sum"),
        ("sigma_eta", f"{plan.sigma_eta:.6g}", "independent noise, stays"),
        ("error", f"{plan.error_std:.4g}", f"standard deviation of the noise in the average{curator}"),
    ]
    print_plan(
        plan,
        as_json,
        f"GOPA with {request.parties} parties, by method {request.method}",
        rows,
        f"assumption: {plan.assumption}",
        *(f"warning: {line}" for line in plan.warnings),
    )
