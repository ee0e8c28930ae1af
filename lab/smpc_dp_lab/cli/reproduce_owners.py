"""`smpc-dp reproduce cost-of-privacy`, `without-replacement` and `private-boosting`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from smpc_dp.cli.output import console
from smpc_dp.cli.progress import Bar
from smpc_dp_lab.cli.figure import Epsilons, Json, Plot, hand_over, plot_path

LENDING = Path("smpc_dp/demo/data/lending_club.csv")
Quick = Annotated[bool, typer.Option("--quick", help="A few settings and runs: seconds.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `smpc-dp reproduce`."""
    app.command("cost-of-privacy")(cost_of_privacy)
    app.command("without-replacement")(without_replacement)
    app.command("private-boosting")(private_boosting)


def cost_of_privacy(
    lending: Annotated[Path, typer.Option(help="The file of the Lending Club rows.")] = LENDING,
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
    seed: Annotated[int, typer.Option(help="Of clocks and noise.")] = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Relative fitness of a central learner with data owners [Farokhi and others 2020, Figs 2 to 10].

    The product's noise, the paper's Laplace noise, and the forecast of `smpc-dp plan collaboration`.
    """
    from smpc_dp.learn.data import california_houses, lending_club
    from smpc_dp_lab.bench import cost_of_privacy as bench

    path = plot_path("cost-of-privacy", plot_file, as_json)
    if quick:
        epsilons, runs, steps = epsilons or [1.0, 10.0], min(runs, 3), min(steps, 200)
    with Bar("settings", quiet=as_json) as bar:
        result = bench.cost_of_privacy(
            lending_club(lending),
            None if houses is None else california_houses(houses),
            epsilons=epsilons or bench.EPSILONS,
            steps=steps,
            runs=runs,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, bench.plot, as_json):
        return
    table = Table("data", "owners", "n_i", "epsilon", "noise", "psi", "quartiles", "forecast", "alone")
    for point in result.points:
        table.add_row(
            point.data,
            str(point.owners),
            str(point.size),
            "" if point.mechanism == "none" else f"{point.epsilon:g}",
            point.mechanism,
            f"{point.median:.3g}",
            f"{point.low:.3g} to {point.high:.3g}",
            f"{point.forecast:.3g}",
            f"{point.alone:.3g}",
        )
    show = console()
    show.print(table)
    show.print("alone: the first owner's own model without noise; the rate is the best of some, not private")
    show.print(
        f"data: {'; '.join(result.sources)}; T = {result.steps}, {result.runs} runs, seed {result.seed}"
    )
    show.print(f"{result.seconds:.0f} s; plot: {path}", markup=False)


def without_replacement(
    covertype: Annotated[
        Path | None,
        typer.Option(
            help="Covertype (UCI) as .csv: 54 columns and the class. Left out: a synthetic stand-in.",
            show_default=False,
        ),
    ] = None,
    epsilons: Epsilons = None,
    each: Annotated[int, typer.Option(help="Records of a node.")] = 6_000,
    runs: Annotated[int, typer.Option(help="Draws of shards and noise.")] = 5,
    seed: Annotated[int, typer.Option(help="Of those.")] = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Local and global model without replacement, and DP-SGD with it [Jin, He, Dai, Figs 1 and 2, Table I].

    Each with the noise that suffices, and with that of the paper; policies public and threshold.
    """
    from smpc_dp_lab.bench import without_replacement as bench

    path = plot_path("without-replacement", plot_file, as_json)
    nodes: Sequence[int] = bench.NODES
    if quick:
        epsilons, each, runs, nodes = epsilons or [1.0], min(each, 2_000), 1, (5, 10)
    table = None if covertype is None else bench.read_covertype(covertype)
    with Bar("settings", quiet=as_json) as bar:
        result = bench.without_replacement(
            table,
            epsilons=epsilons or bench.EPSILONS,
            nodes=nodes,
            each=each,
            runs=runs,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, bench.plot, as_json):
        return
    shown = Table("method", "nodes", "epsilon", "protects a record", "accuracy", "deviation")
    for point in result.points:
        shown.add_row(
            point.method,
            str(point.nodes),
            "" if point.epsilon is None else f"{point.epsilon:g}",
            "yes" if point.protected else "NO",
            f"{point.accuracy:.3f}",
            f"{point.deviation:.3f}",
        )
    show = console()
    show.print(shown)
    show.print(f"data: {result.data}; {result.each} records a node, {result.runs} runs, seed {result.seed}")
    show.print(f"{result.seconds:.0f} s; plot: {path}", markup=False)


def private_boosting(
    epsilons: Epsilons = None,
    problems: Annotated[int, typer.Option(help="Random problems of each setting.")] = 5,
    seed: Annotated[int, typer.Option(help="Of those.")] = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Accuracy of personalised boosting with private choices, by records and l1 norm [Bellet 2021, 2.2.2].

    No paper has a private one: the figure shows from which size on it learns.
    """
    from smpc_dp_lab.bench import private_boosting as bench

    path = plot_path("private-boosting", plot_file, as_json)
    sizes: Sequence[int] = bench.SIZES
    betas: Sequence[float] = bench.BETAS
    if quick:
        sizes, betas, problems = (100, 1_000), (1.0,), 1
    with Bar("settings", quiet=as_json) as bar:
        result = bench.private_boosting(
            sizes, betas, epsilons or bench.EPSILONS, problems=problems, seed=seed, progress=bar.show
        )
    if hand_over(result, path, bench.plot, as_json):
        return
    table = Table("m", "beta", "epsilon", "needed lead, of 2", "accuracy", "deviation")
    for point in result.points:
        table.add_row(
            str(point.size),
            f"{point.beta:g}",
            "" if point.epsilon is None else f"{point.epsilon:g}",
            "" if point.gap is None else f"{point.gap:.2g}",
            f"{point.accuracy:.3f}",
            f"{point.deviation:.3f}",
        )
    show = console()
    show.print(table)
    show.print(
        f"{result.problems} problems, seed {result.seed}, {result.seconds:.0f} s; plot: {path}", markup=False
    )
