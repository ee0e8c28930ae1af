"""`smpc-dp reproduce`: what a paper says in formulas or figures, measured, with a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from smpc_dp.cli.live import Bar
from smpc_dp.cli.output import console, print_json

app = typer.Typer(name="reproduce", help="Measure what a paper states, with a plot.", no_args_is_help=True)

NAMES = {"local": "local DP", "gopa": "GOPA", "curator": "trusted curator"}


@app.callback()
def _group() -> None:
    pass


@app.command("gopa-tradeoff")
def gopa(
    epsilon: Annotated[float, typer.Option(help="Privacy parameter.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Privacy parameter.")] = 1e-6,
    parties: Annotated[
        list[int] | None,
        typer.Option(help="Users, 5 to 10,000; may be repeated. Left out: 10 to 10,000.", show_default=False),
    ] = None,
    corrupt: Annotated[float, typer.Option(help="Fraction of the users that may collude.")] = 0.1,
    repetitions: Annotated[
        int | None, typer.Option(help="How often noise is drawn. Left out: 2,000.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of that noise.")] = 1,
    plot_file: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            help="The plot: .png, .svg or .pdf. Left out: gopa-tradeoff.png, with --json none.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Error of a private average against the number of users [Bellet 2021, section 4.1].

    Local DP, GOPA and a trusted curator at the same epsilon and delta, as planned and as measured.
    """
    # The benchmarks take a while to load.
    from smpc_dp.bench.tradeoff import PARTIES, REPETITIONS, check_plot, gopa_tradeoff, plot

    path = plot_file or (None if as_json else Path("gopa-tradeoff.png"))
    if path is not None:
        check_plot(path)
    with Bar("sizes", quiet=as_json) as bar:
        found = gopa_tradeoff(
            epsilon,
            delta,
            parties=parties or PARTIES,
            corrupt=corrupt,
            repetitions=REPETITIONS if repetitions is None else repetitions,
            seed=seed,
            progress=bar.show,
        )
    if path is not None:
        plot(found, path)
    if as_json:
        print_json(msgspec.to_builtins(found) | {"plot": None if path is None else str(path)})
        return
    table = Table("users", "honest", "method", "planned", "measured", title="standard error of the average")
    for point in found.points:
        table.add_row(
            str(point.parties),
            str(point.honest),
            NAMES[point.method],
            f"{point.planned:.4g}",
            f"{point.measured:.4g}",
        )
    console().print(table)
    console().print(f"plot: {path}", markup=False)
