"""`smpc-dp bench`: how fast it is, beside its peers and its limit in the same run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from smpc_dp.bench import (
    Report,
    run_compare_bench,
    run_garbling_bench,
    run_ot_bench,
    run_secagg_bench,
)
from smpc_dp.cli.output import console, print_json, progress_console

Progressing = Callable[[str, int, int], None]

app = typer.Typer(name="bench", help="Measure, beside peers and limits.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def secagg(
    parties: Annotated[int, typer.Option(help="How many parties.")] = 100,
    length: Annotated[int, typer.Option(help="Coordinates a vector.")] = 100_000,
    runs: Annotated[int, typer.Option(help="Measurements of each figure.")] = 5,
    dropout: Annotated[float, typer.Option(help="Fraction that is killed in the dearest place.")] = 0.1,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with flwr, if this one has none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Secure aggregation beside Flower's SecAgg+ functions and the machine's raw AES-256-CTR rate."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=progress_console(),
        disable=as_json and not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("starting", total=None)

        def show(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of)

        report = run_secagg_bench(parties, length, runs, show, dropout=dropout, peer_python=peer_python)
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)


Runs = Annotated[int, typer.Option(help="Measurements of each figure.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def garbling(runs: Runs = 7, as_json: Json = False) -> None:
    """Garbling and evaluation in memory, and end to end between two processes."""
    _run(run_garbling_bench, runs, as_json)


@app.command()
def ot(runs: Runs = 7, as_json: Json = False) -> None:
    """Oblivious transfers: setup, in memory, and over the channel."""
    _run(run_ot_bench, runs, as_json)


@app.command()
def compare(runs: Runs = 7, as_json: Json = False) -> None:
    """Comparisons of 16-bit integers between two fresh processes: 10,000, and one."""
    _run(run_compare_bench, runs, as_json)


def _run(bench: Callable[[int, Progressing], Report], runs: int, as_json: bool) -> None:
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=progress_console(),
        disable=as_json and not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("starting", total=None)
        report = bench(
            runs, lambda what, done, of: bar.update(task, description=what, completed=done, total=of)
        )
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)


def _print(report: Report) -> None:
    table = Table("figure", "median", "peer", "× peer", "limit", "of limit", "target met")
    for figure in report.figures:
        table.add_row(
            figure.name,
            _number(figure.median, figure.unit),
            "" if figure.peer is None else f"{figure.peer.name} {_number(figure.peer.median, figure.unit)}",
            "" if figure.ratio_to_peer is None else f"{figure.ratio_to_peer:.3g}",
            ""
            if figure.limit is None
            else f"{figure.limit.name} {_number(figure.limit.median, figure.unit)}",
            "" if figure.ratio_to_limit is None else f"{figure.ratio_to_limit:.2f}",
            "" if figure.met is None else "yes" if figure.met else "NO",
        )
    out = console()
    out.print(table)
    for figure in report.figures:
        out.print(f"{figure.name}: {figure.note}")


def _number(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}"
