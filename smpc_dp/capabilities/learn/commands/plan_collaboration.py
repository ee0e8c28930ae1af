"""`smpc-dp plan collaboration`: forecast the gain of learning together under differential privacy."""

from __future__ import annotations

from typing import Annotated

import typer

from smpc_dp.console.output import print_plan
from smpc_dp.errors import ConfigCheck, ConfigError


def collaboration(
    sizes: Annotated[str, typer.Option(help="Records of each owner, e.g. 1000,2000,500.")],
    epsilons: Annotated[str, typer.Option(help="Budget of each owner, e.g. 1,0.5,2; or one for all.")],
    steps: Annotated[int, typer.Option(help="Queries to each owner at most, T.")] = 1,
    width: Annotated[float, typer.Option(help="How far a record's entry moves by substitution.")] = 1.0,
    variance: Annotated[float | None, typer.Option(help="Of a record's entry; default width^2 / 12.")] = None,
    c_1: Annotated[float, typer.Option("--c-1", help="Constant of the published bounds.")] = 1.0,
    c_2: Annotated[float, typer.Option("--c-2", help="Constant of the published bounds.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Forecast whether collaboration pays: each owner alone, and all together under differential privacy."""
    from smpc_dp.privacy.collaboration import plan_collaboration

    counts = [int(number) for number in numbers("sizes", sizes, int)]
    budgets = numbers("epsilons", epsilons, float)
    if len(budgets) == 1:
        budgets = budgets * len(counts)
    plan = plan_collaboration(
        counts, budgets, steps=steps, width=width, variance=variance, constants=(c_1, c_2)
    )
    rows = [
        (
            owner.size,
            f"{owner.epsilon:g}",
            *(f"{error:.4g}" for error in (owner.alone, owner.alone_private, owner.together)),
            "yes" if owner.pays else "if private alone" if owner.pays_if_private else "no",
        )
        for owner in plan.owners
    ]
    print_plan(
        plan,
        as_json,
        f"{len(counts)} owners, {plan.total} records, {steps} queries each",
        rows,
        f"published bounds, not proven: (8), (9) {plan.bound_8:.4g}; (10), (11) {plan.bound_10:.4g}",
        f"neighbours: {plan.relation}\nassumes: {plan.assumption}",
        columns=("records", "epsilon", "alone", "alone, private", "together", "pays"),
    )


def numbers(name: str, text: str, kind: type[int] | type[float]) -> list[float]:
    """Return the numbers in a text separated by commas; raise ConfigError naming `name` if one is wrong."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError.at(
            name, f"{text!r} is not a list of numbers separated by commas", ConfigCheck.FORMAT
        ) from None
