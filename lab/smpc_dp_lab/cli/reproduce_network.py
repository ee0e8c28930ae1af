"""`smpc-dp reproduce homomorphic` and `network-sgd`: learning along a network, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from smpc_dp.cli.output import console
from smpc_dp.cli.progress import Bar
from smpc_dp_lab.cli.figure import Epsilons, Json, Plot, hand_over, plot_path


def register(app: typer.Typer) -> None:
    """Add the commands to `smpc-dp reproduce`."""
    app.command("homomorphic")(homomorphic)
    app.command("network-sgd")(network_sgd)


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
    from smpc_dp_lab.bench.homomorphic import homomorphic_deviation, plot

    path = plot_path("homomorphic", plot_file, as_json)
    result = homomorphic_deviation(steps=steps, repetitions=repetitions, seed=seed)
    if hand_over(result, path, plot, as_json):
        return
    table = Table(
        "noise", "deviation", "epsilon(i)", title="mean square deviation of the centroid, last half"
    )
    for curve in result.curves:
        reported = ", ".join(f"{step}: {value:,.4g}" for step, value in curve.epsilon.items())
        table.add_row(curve.noise, f"{curve.final:.4f}", reported)
    show = console()
    show.print(table)
    show.print(
        f"data: {result.data}; graph: {result.edges} edges, mixing gap {result.mixing_gap:.3f} (the paper "
        "prints neither)"
    )
    show.print(f"order {' < '.join(result.ranks)}; the paper: {' < '.join(result.paper)}")
    show.print(f"seed {result.seed}, {result.seconds:.1f} s")
    if path is not None:
        show.print(f"plot: {path}", markup=False)


def network_sgd(
    houses: Annotated[
        Path | None,
        typer.Option(help="California houses, .csv or .csv.gz. Left out: synthetic.", show_default=False),
    ] = None,
    epsilon: Epsilons = None,
    parties: Annotated[int, typer.Option(help="Users of 8 points each, at most 2,000.")] = 2_000,
    steps: Annotated[int, typer.Option(help="Steps T.")] = 20_000,
    delta: Annotated[float, typer.Option(help="Of all data of one user.")] = 1e-6,
    runs: Annotated[int, typer.Option(help="Walks that are averaged.")] = 20,
    seed: Annotated[int, typer.Option(help="Of splits, paths and noise.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Gradient descent by a curator, by a walking token and locally [Bellet 2021, Fig. 4.1].

    Test accuracy with the published script's noise, and with all three under the best accounting. Takes about
    a minute.
    """
    from smpc_dp_lab.bench.network_sgd import EPSILONS, network_sgd, plot

    path = plot_path("network-sgd", plot_file, as_json)
    with Bar("settings", quiet=as_json) as bar:
        result = network_sgd(
            houses,
            epsilons=epsilon or EPSILONS,
            parties=parties,
            steps=steps,
            delta=delta,
            runs=runs,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, plot, as_json):
        return
    columns = (
        "epsilon",
        "sigmas",
        "method",
        "sigma",
        "step size",
        "accuracy",
        "s.d.",
        "reference",
        "objective",
    )
    table = Table(*columns, title=f"test accuracy after {result.steps:,} steps")
    for point in result.points:
        table.add_row(
            f"{point.epsilon:g}",
            point.sigmas,
            point.method,
            f"{point.sigma:.4g}",
            f"{point.step_size:.2g}",
            f"{point.accuracy:.3f}",
            f"{point.deviation:.3f}",
            "" if point.reference is None else f"{point.reference:.2f}",
            f"{point.objective:.3f}",
        )
    show = console()
    show.print(table)
    show.print(
        f"data: {result.data}; without privacy {result.accuracy:.3f}, reference {result.reference_accuracy}"
    )
    show.print(
        "published: three analyses that cannot be compared; fair: substitution of a user's data in all"
    )
    for text in result.warnings:
        show.print(f"warning: {text}", markup=False)
    show.print(f"seed {result.seed}, {result.seconds:.0f} s")
    if path is not None:
        show.print(f"plot: {path}", markup=False)
