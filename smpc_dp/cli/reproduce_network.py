"""`smpc-dp reproduce homomorphic` and `network-sgd`: learning along a network, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from smpc_dp.cli.live import Bar
from smpc_dp.cli.output import console, print_json
from smpc_dp.cli.reproduce import Epsilons, Json, Plot, app


@app.command("homomorphic")
def homomorphic(
    steps: Annotated[int, typer.Option(help="Steps of the recursion.")] = 200,
    repetitions: Annotated[int, typer.Option(help="Runs that are averaged.")] = 100,
    seed: Annotated[int, typer.Option(help="Of graph, data and noise.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Diffusion with graph-homomorphic and with i.i.d. noise [Vlaski and Sayed 2020, Fig. 1].

    Deviation of the centroid from the optimum, and epsilon(i) with the factor that the paper lacks.
    """
    from smpc_dp.bench.homomorphic import homomorphic_deviation, plot
    from smpc_dp.bench.tradeoff import check_plot

    path = plot_file or (None if as_json else Path("homomorphic.png"))
    if path is not None:
        check_plot(path)
    found = homomorphic_deviation(steps=steps, repetitions=repetitions, seed=seed)
    if path is not None:
        plot(found, path)
    if as_json:
        print_json(msgspec.to_builtins(found) | {"plot": None if path is None else str(path)})
        return
    table = Table("noise", "deviation", "epsilon(i)", title="mean square deviation of the centroid, last half")
    for curve in found.curves:
        told = ", ".join(f"{step}: {value:,.4g}" for step, value in curve.epsilon.items())
        table.add_row(curve.noise, f"{curve.final:.4f}", told)
    show = console()
    show.print(table)
    show.print(
        f"data: {found.data}; graph: {found.edges} edges, mixing gap {found.mixing_gap:.3f} (the paper "
        "prints neither)"
    )
    show.print(f"order {' < '.join(found.ranks)}; the paper: {' < '.join(found.paper)}")
    show.print(f"seed {found.seed}, {found.seconds:.1f} s")
    if path is not None:
        show.print(f"plot: {path}", markup=False)
