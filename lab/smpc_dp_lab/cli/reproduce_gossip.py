"""`smpc-dp reproduce gosta` and `dual-averaging`: gossip with pairwise objectives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from smpc_dp.cli.output import console
from smpc_dp.cli.progress import Bar
from smpc_dp_lab.cli.figure import Json, Plot, hand_over, plot_path


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("gosta")(gosta)
    app.command("dual-averaging")(dual_averaging)


def gosta(
    parties: Annotated[int, typer.Option(help="Users, no prime number.")] = 1_260,
    iterations: Annotated[int, typer.Option(help="Of each run.")] = 60_000,
    repetitions: Annotated[int, typer.Option(help="Runs of each method on each graph.")] = 50,
    seed: Annotated[int, typer.Option(help="Of records, graphs and draws.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Error of a decentralised AUC against iterations [Bellet 2021, Fig. 3.4], on synthetic records.

    GoSta and U2-gossip on three graphs, and the bound of Theorem 3.1. Takes about half a minute.
    """
    from smpc_dp_lab.bench.gosta import gosta_errors, last_rows, plot

    path = plot_path("gosta", plot_file, as_json)
    with Bar("runs", quiet=as_json) as bar:
        result = gosta_errors(
            parties=parties,
            iterations=iterations,
            repetitions=repetitions,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, plot, as_json):
        return
    title = f"relative error of the users' estimates after {result.iterations:,} iterations"
    table = Table("graph", "method", "error", "spread", "Theorem 3.1", "reference", title=title)
    for graph, method, *numbers in last_rows(result):
        table.add_row(graph, method, *("" if value is None else f"{value:.3g}" for value in numbers))
    show = console()
    show.print(table)
    show.print(f"data: {result.data}, AUC = {result.auc:.3f}; the reference has other records of this size")
    show.print(f"Theorem 3.1 above the error at all times: {'yes' if result.bound_holds else 'NO'}")
    show.print(f"seed {result.seed}, {result.seconds:.0f} s")
    if path is not None:
        show.print(f"plot: {path}")


def dual_averaging(
    data: Annotated[Path, typer.Option(help="The file of the Wisconsin (Original) data.")],
    iterations: Annotated[int, typer.Option(help="Of each run.")] = 30_000,
    repetitions: Annotated[int, typer.Option(help="Asynchronous runs on each graph.")] = 50,
    synchronous: Annotated[int, typer.Option(help="Runs beside Theorem 3.2 on each graph.")] = 2,
    seed: Annotated[int, typer.Option(help="Of graph and draws.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Maximise an AUC by gossip dual averaging [Bellet 2021, Fig. 3.5], on the Wisconsin data.

    On a cycle, a Watts-Strogatz graph and the complete graph; and the terms of Theorem 3.2. Takes about a
    minute.
    """
    from smpc_dp.learn.data import wisconsin
    from smpc_dp_lab.bench.dual_averaging import dual_averaging_errors, plot

    path = plot_path("dual-averaging", plot_file, as_json)
    read = wisconsin(data, incomplete=True)
    records = read.table
    with Bar("runs", quiet=as_json) as bar:
        result = dual_averaging_errors(
            records[:, :-1],
            records[:, -1],
            data=f"{read.source}, {len(records)} records, standardised",
            iterations=iterations,
            repetitions=repetitions,
            synchronous=synchronous,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, plot, as_json):
        return
    title = f"asynchronous, after {result.iterations:,} iterations; minimum {result.minimum:.5f}"
    table = Table("graph", "objective", "spread", "bias term", "AUC", "least AUC", title=title)
    for curve in result.curves:
        numbers = (curve.objective[-1], curve.spread[-1], curve.bias[-1])
        table.add_row(
            curve.graph,
            *(f"{value:.3g}" for value in numbers),
            *(f"{value:.4f}" for value in (curve.auc, curve.least_auc)),
        )
    show = console()
    show.print(table)
    title = "synchronous, beside Theorem 3.2"
    table = Table("graph", "excess", "C1", "C2", "C2 as printed", "C3", "holds", title=title)
    for term in result.terms:
        numbers_ = (term.excess, term.centralised, term.network, term.printed_network, term.bias)
        table.add_row(term.graph, *(f"{value:.3g}" for value in numbers_), "yes" if term.holds else "NO")
    show.print(table)
    show.print(
        f"data: {result.data}; objective at 0 is {result.start:.4f}, AUC of the minimum {result.best_auc:.4f}"
    )
    complete = result.curves[-1]
    met = "met" if complete.auc >= result.reference_auc else "MISSED"
    show.print(f"AUC at least {result.reference_auc} on the {complete.graph} graph: {met}")
    show.print(f"seed {result.seed}, {result.seconds:.0f} s")
    if path is not None:
        show.print(f"plot: {path}")
