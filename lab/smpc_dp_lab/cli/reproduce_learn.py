"""`smpc-dp reproduce local-scale`, `personalized-synthetic` and `moons`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from smpc_dp.cli.output import console
from smpc_dp.cli.progress import Bar
from smpc_dp_lab.cli.figure import Json, Plot, hand_over, plot_path

DATA = Path("examples/data/breast_cancer_wisconsin_original.csv")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("local-scale")(scale)
    app.command("personalized-synthetic")(personalized)
    app.command("moons")(moons)


def scale(
    epsilon: Annotated[float, typer.Option(help="For all points of a user, all steps together.")] = 2.0,
    delta: Annotated[float, typer.Option(help="Likewise.")] = 1e-5,
    parties: Annotated[int, typer.Option(help="Users.")] = 120,
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--size", help="Of groups, a divisor of the users; may be repeated.", show_default=False
        ),
    ] = None,
    participations: Annotated[int, typer.Option(help="Of each user, whatever the size.")] = 12,
    colluders: Annotated[int, typer.Option(help="In a group; groups of up to one more are local DP.")] = 1,
    method: Annotated[Literal["secagg", "gopa"], typer.Option(help="Whose noise it is.")] = "secagg",
    rate: Annotated[float, typer.Option(help="Step size.")] = 0.5,
    repetitions: Annotated[int, typer.Option(help="Splits, schedules and noises.")] = 10,
    seed: Annotated[int, typer.Option(help="Of those.")] = 1,
    data: Annotated[Path, typer.Option(help="The file of the Wisconsin (Original) data.")] = DATA,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Utility of block gossip against the size of its groups [Bellet 2021, chapter 5].

    From local DP to a trusted curator at the same epsilon and as many participations. Takes two minutes.
    """
    from smpc_dp.learn.data import wisconsin
    from smpc_dp_lab.bench.local_scale import SIZES, local_scale, plot

    path = plot_path("local-scale", plot_file, as_json)
    with Bar("runs", quiet=as_json) as bar:
        result = local_scale(
            wisconsin(data),
            epsilon=epsilon,
            delta=delta,
            parties=parties,
            sizes=sizes or SIZES,
            participations=participations,
            colluders=colluders,
            method=method,
            rate=rate,
            repetitions=repetitions,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, plot, as_json):
        return
    columns = ("s", "honest", "noise from", "steps", "noise", "accuracy", "s.d.", "worst", "best")
    table = Table(*columns, title="test accuracy of the users' own models")
    for point in result.of("none", "local", "secagg", "gopa", "curator"):
        table.add_row(
            str(point.size),
            str(point.honest),
            {"local": "local DP", "curator": "trusted curator"}.get(point.kind, point.kind),
            str(point.steps),
            f"{point.noise:.3g}",
            *(f"{value:.3f}" for value in (point.accuracy, point.spread, point.low, point.high)),
        )
    show = console()
    show.print(table)
    show.print(f"data: {result.data}, {result.parties} users; noise: standard deviation in an average")
    show.print(f"seed {result.seed}, {result.repetitions} repetitions, {result.seconds:.0f} s")
    if path is not None:
        show.print(f"plot: {path}", markup=False)


def personalized(
    dimensions: Annotated[
        list[int] | None,
        typer.Option("--dimension", help="May be repeated. Left out: 20, 50 and 100.", show_default=False),
    ] = None,
    problems: Annotated[int, typer.Option(help="Random problems; 2 take a minute.")] = 10,
    seed: Annotated[int, typer.Option(help="Of those.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Test accuracy of personalised models [Bellet 2021, Fig. 2.1; Bellet and others 2018, Fig. 2].

    Local models, coordinate descent, the paper's noise (NOT private), and noise that protects a record.
    """
    from smpc_dp_lab.bench.personalized import DIMENSIONS, personalized_synthetic, plot

    path = plot_path("personalized-synthetic", plot_file, as_json)
    with Bar("problems", quiet=as_json) as bar:
        result = personalized_synthetic(
            dimensions or DIMENSIONS, problems=problems, seed=seed, progress=bar.show
        )
    if hand_over(result, path, plot, as_json):
        return
    table = Table("p", "rows", "method", "epsilon", "protects a record", "accuracy", "deviation")
    for point in result.points:
        table.add_row(
            str(point.dimension),
            point.rows,
            point.method,
            "" if point.epsilon is None else f"{point.epsilon:g}",
            "yes" if point.protected else "NO",
            f"{point.accuracy:.3f}",
            f"{point.deviation:.3f}",
        )
    console().print(table)
    console().print(f"{result.problems} problems, seed {result.seed}, {result.seconds:.0f} s; plot: {path}")


def moons(
    problems: Annotated[int, typer.Option(help="Random problems; each takes ten seconds.")] = 10,
    seed: Annotated[int, typer.Option(help="Of those.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Personalised boosting with a learned graph beside an oracle's [Bellet 2021, section 2.5, Fig. 2.2].

    100 parties in four clusters of rotated moons, with 3 to 15 records each.
    """
    from smpc_dp_lab.bench import moons as bench

    path = plot_path("moons", plot_file, as_json)
    with Bar("problems", quiet=as_json) as bar:
        result = bench.moons(problems=problems, seed=seed, progress=bar.show)
    if hand_over(result, path, bench.plot, as_json):
        return
    table = Table("graph or model", "accuracy", "least", "most", title="test accuracy, mean of the parties")
    for point in result.points:
        shown = (point.accuracy, min(point.accuracies), max(point.accuracies))
        table.add_row(point.method, *(f"{value:.3f}" for value in shown))
    console().print(table)
    console().print(f"weight of the learned graph within clusters: {result.within:.0%} (equal weights: 29%)")
    console().print(f"{result.problems} problems, seed {result.seed}, {result.seconds:.0f} s; plot: {path}")
