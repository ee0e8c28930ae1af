"""`smpc-dp plan verifiable`: noise and privacy of verifiable averaging."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from smpc_dp.console.output import print_plan


def verifiable(
    parties: Annotated[int, typer.Option(help="Parties that publish, n.")],
    epsilon: Annotated[float, typer.Option(help="Privacy parameter.")],
    delta: Annotated[float, typer.Option(help="Asked for, of the whole view.")],
    honest: Annotated[int | None, typer.Option(help="Of them honest and staying; default all.")] = None,
    length: Annotated[int, typer.Option(help="Coordinates of a vector.")] = 1,
    steps: Annotated[
        list[int] | None, typer.Option(help="Grid steps of a value's range; or once for each coordinate.")
    ] = None,
    bound_squared: Annotated[
        int | None,
        typer.Option(help="In its place: what a vector's squares sum to at most, in squared steps."),
    ] = None,
    bits: Annotated[int | None, typer.Option(help="Secret bits of a party and coordinate, even.")] = None,
    sigma_delta: Annotated[float | None, typer.Option(help="Pairwise noise, in grid steps.")] = None,
    rounding: Annotated[
        Literal["stochastic", "nearest"], typer.Option(help="Of values to grid steps.")
    ] = "stochastic",
    degree: Annotated[
        int | None, typer.Option(help="Of the others each draws so many neighbours; default all.")
    ] = None,
    lost: Annotated[int, typer.Option(help="So many of its draws a party may lose.")] = 0,
    corrupt: Annotated[
        int | None, typer.Option(help="Parties fixed before anybody draws; default all but honest.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan the noise of verifiable averaging (experimental), beside Gaussian noise.

    What is given is checked, what is left out is planned.
    """
    # scipy takes half a second to load.
    from smpc_dp.privacy.gopa.verifiable import plan_verifiable

    count = len(steps or ())
    plan = plan_verifiable(
        parties=parties,
        honest=parties if honest is None else honest,
        epsilon=epsilon,
        delta=delta,
        length=count if length == 1 and count else length,
        steps=steps[0] if steps and count == 1 else steps or None,
        bits=bits,
        sigma_delta=sigma_delta,
        rounding=rounding,
        degree=degree,
        lost=lost,
        corrupt=corrupt,
        bound_squared=bound_squared,
    )
    rows = [
        ("delta", f"{plan.delta:.4g}", f"at epsilon = {epsilon:g}, asked for {plan.delta_asked:.4g}"),
        (
            "steps",
            str(plan.steps),
            ("grid steps of a value's range" if plan.widths is None else "grid steps of the widest range")
            if bound_squared is None
            else f"across the ball of squared norms up to {bound_squared}",
        ),
        ("bits", str(plan.bits), "secret bits of one party and coordinate"),
        ("sigma_delta", f"{plan.sigma_delta:.6g}", "steps of pairwise noise, cancels in the sum"),
        ("variance", f"{plan.variance_honest:.6g}", "of the honest parties' noise, squared steps"),
        ("Gaussian", f"{plan.variance_gaussian:.6g}", "what theirs would need if it were Gaussian"),
        ("rounding", f"{plan.variance_rounding:.6g}", f"of all parties' values, {plan.rounding}"),
        ("error", f"{plan.error_std:.4g}", "standard deviation in the average, as a part of these steps"),
        (
            "bias",
            f"{plan.bias:.4g}",
            f"steps by which {parties - plan.honest} cheats move the sum, expected, at most",
        ),
    ]
    if degree is not None:
        rows.append(("disconnected", f"{plan.disconnected:.4g}", "probability, at most; part of delta"))
    title = f"verifiable average of {parties} parties"
    print_plan(plan, as_json, title, rows, f"neighbours: {plan.relation}", f"assumption: {plan.assumption}")
