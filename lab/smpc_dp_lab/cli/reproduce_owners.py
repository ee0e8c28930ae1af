"""`smpc-dp reproduce cost-of-privacy` and `without-replacement`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Annotated, Literal

import typer

import smpc_dp
from smpc_dp.console.workers import with_workers
from smpc_dp_lab.cli.figure import (
    Columns,
    Epsilons,
    Json,
    Plot,
    Points,
    Quick,
    Seed,
    of_record,
    reproduce,
)

LENDING = Path(smpc_dp.__file__).parent / "demo/data/lending_club.csv"


def register(app: typer.Typer) -> None:
    """Add the commands to `smpc-dp reproduce`."""
    app.command("cost-of-privacy")(with_workers(cost_of_privacy))
    app.command("without-replacement")(with_workers(without_replacement))


def cost_of_privacy(
    lending: Annotated[
        Path, typer.Option(help="The file of the Lending Club rows.", show_default="of the package")
    ] = LENDING,
    houses: Annotated[
        Path | None,
        typer.Option(
            help="California houses, .csv or .csv.gz, a stand-in for hospitals. Left out: none.",
            show_default=False,
        ),
    ] = None,
    epsilons: Epsilons = None,
    runs: Annotated[int, typer.Option(help="Runs of each setting.")] = 100,
    steps: Annotated[int, typer.Option(help="T, ticks of all owners.")] = 1_000,
    seed: Seed = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Relative fitness of a central learner with data owners [Farokhi and others 2020, Figs 2 to 10].

    The product's noise, the paper's Laplace noise, and the forecast of `smpc-dp plan collaboration`, with a
    constant that is fitted to the medians.
    """
    from smpc_dp.capabilities.learn.data import california_houses, lending_club
    from smpc_dp_lab.bench import cost_of_privacy as bench
    from smpc_dp_lab.bench.cost_plot import plot
    from smpc_dp_lab.bench.owner_runs import DELTA, L1_RATIO

    if quick:
        epsilons, runs, steps = epsilons or [1.0, 10.0], min(runs, 3), min(steps, 200)
    columns: Columns = {"data": "data", "owners": "owners", "n_i": "size"}
    columns |= {"epsilon": lambda point: None if point.mechanism == "none" else point.epsilon}
    columns |= {"noise": "mechanism", "psi": "median", "lower quartile": "low", "upper": "high"}
    reproduce(
        "cost-of-privacy",
        lambda progress: bench.cost_of_privacy(
            lending_club(lending),
            None if houses is None else california_houses(houses),
            epsilons=epsilons or bench.EPSILONS,
            steps=steps,
            runs=runs,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        plot,
        plot_file,
        as_json,
        lambda result: [
            Points(
                result.points,
                columns | {"forecast": "forecast", "alone": lambda point: float(point.alone[0])},
            )
        ],
        lambda result: [
            of_record(f"{DELTA:g}, of laplace 0"),
            f"laplace: for an l1 norm; with this l2 norm T answers cost up to {L1_RATIO:.2f} epsilon",
            "forecast (11): with the least constant with which no gaussian median is above it, no proven "
            "bound",
            "alone: the first owner's own model without noise; the rate is the best of some, not private",
            f"data: {'; '.join(result.sources)}; T = {result.steps}, {result.runs} runs, seed {result.seed}",
            f"{result.seconds:.0f} s",
        ],
    )


def without_replacement(
    data: Annotated[
        Literal["covertype", "mnist"], typer.Option(help="Tables I and II of the paper, in this order.")
    ] = "covertype",
    table: Annotated[
        Path | None,
        typer.Option(
            help="Covertype (54 columns and the class) or MNIST (784 pixels and the digit), .csv or .npy. "
            "Left out: scikit-learn's copy of Covertype where it is, else a synthetic stand-in.",
            show_default=False,
        ),
    ] = None,
    ridge: Annotated[float, typer.Option(help="Lambda; 1e-4: strongly convex, Figs 2, 4.")] = 0.0,
    epsilons: Epsilons = None,
    each: Annotated[int, typer.Option(help="Records of a node.")] = 6_000,
    runs: Annotated[int, typer.Option(help="Draws of shards and noise.")] = 5,
    seed: Seed = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Local and global model without replacement, and DP-SGD with it [Jin, He, Dai, Figs 1 to 4].

    Each with the noise that suffices, and with that of the paper; policies public, threshold and deep-Q.
    """
    from smpc_dp_lab.bench import two_classes
    from smpc_dp_lab.bench import without_replacement as bench

    nodes: Sequence[int] = bench.NODES
    if quick:
        epsilons, each, runs, nodes = epsilons or [1.0], min(each, 2_000), 1, (5, 10)
    rows = two_classes.read(data, table) if table is not None else None
    if rows is None and data == "covertype":
        rows = two_classes.fetched_covertype()
    columns: Columns = {
        "method": "method",
        "nodes": "nodes",
        "epsilon": "epsilon",
        "protects a record": "protected",
    }
    reproduce(
        "without-replacement",
        lambda progress: bench.without_replacement(
            rows,
            kind=data,
            ridge=ridge,
            epsilons=epsilons or bench.EPSILONS,
            nodes=nodes,
            each=each,
            runs=runs,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, columns | {"accuracy": "accuracy", "deviation": "deviation"})],
        lambda result: [
            "deep-Q as published: replay memory and weights carry private losses, NOT DP at any epsilon",
            of_record("1/n^2 for n records of all nodes"),
            "accuracies are of the nodes' own local models: epsilon is of what others see, the global models",
            f"data: {result.data}; {result.each} records a node, ridge {result.ridge:g}",
            f"{result.runs} runs, seed {result.seed}, {result.seconds:.0f} s",
        ],
    )
