"""`smpc-dp reproduce`: measure the formulas and figures of papers, with a plot."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from smpc_dp.cli.output import console
from smpc_dp.cli.progress import Bar
from smpc_dp_lab.cli import reproduce_gossip, reproduce_learn, reproduce_network, reproduce_owners
from smpc_dp_lab.cli.figure import Epsilons, Json, Plot, hand_over, plot_path

app = typer.Typer(name="reproduce", help="Measure what a paper states, with a plot.", no_args_is_help=True)

NAMES = {"local": "local DP", "gopa": "GOPA", "curator": "trusted curator"}

reproduce_learn.register(app)
reproduce_gossip.register(app)
reproduce_network.register(app)
reproduce_owners.register(app)


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
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Error of a private average against the number of parties [Bellet 2021, section 4.1].

    Local DP, GOPA and a trusted curator at the same epsilon and delta, as planned and as measured.
    """
    # The benchmarks take a while to load.
    from smpc_dp_lab.bench.tradeoff import PARTIES, REPETITIONS, gopa_tradeoff, plot

    path = plot_path("gopa-tradeoff", plot_file, as_json)
    with Bar("sizes", quiet=as_json) as bar:
        result = gopa_tradeoff(
            epsilon,
            delta,
            parties=parties or PARTIES,
            corrupt=corrupt,
            repetitions=REPETITIONS if repetitions is None else repetitions,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, plot, as_json):
        return
    table = Table("users", "honest", "method", "planned", "measured", title="standard error of the average")
    for point in result.points:
        table.add_row(
            str(point.parties),
            str(point.honest),
            NAMES[point.method],
            f"{point.planned:.4g}",
            f"{point.measured:.4g}",
        )
    console().print(table)
    console().print(f"plot: {path}", markup=False)


@app.command("kendall-tripadvisor")
def kendall(
    epsilon: Epsilons = None,
    parties: Annotated[int, typer.Option(help="Users, an even number.")] = 246_000,
    delta: Annotated[float, typer.Option(help="Of all pairs; the rest has none.")] = 1e-8,
    repetitions: Annotated[int, typer.Option(help="How often everything is drawn anew.")] = 30,
    seed: Annotated[int, typer.Option(help="Of records, pairs, responses and noise.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Error of Kendall's tau against epsilon [Bellet 2021, Fig. 3.7], on synthetic ratings.

    Two-party computation on few pairs and on all, and local DP, as calculated and as measured. Takes about a
    minute.
    """
    from smpc_dp_lab.bench.kendall import EPSILONS, kendall_errors, plot

    path = plot_path("kendall-tripadvisor", plot_file, as_json)
    with Bar("repetitions", quiet=as_json) as bar:
        result = kendall_errors(
            parties=parties,
            epsilons=epsilon or EPSILONS,
            delta=delta,
            repetitions=repetitions,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, plot, as_json):
        return
    table = Table(
        "epsilon",
        "method",
        "P",
        "measured",
        "calculated",
        "any law",
        title="root mean squared error of (tau + 1) / 2",
    )
    for point in sorted(result.points, key=lambda point: (point.epsilon, point.exact)):
        table.add_row(
            f"{point.epsilon:g}",
            point.method,
            "" if point.partners is None else str(point.partners),
            "" if point.measured is None else f"{point.measured:.4f}",
            f"{point.exact:.4f}",
            f"{point.bound:.4f}",
        )
    show = console()
    show.print(table)
    show.print(f"data: {result.data}, tau = {result.tau:.3f}; all pairs are {result.naive_pairs:,}, not run")
    for key, methods in result.ranks.items():
        times = f"local / two-party = {result.advantage[key]:.2g}"
        show.print(f"epsilon {key}: {' < '.join(methods)}; {times}")
    show.print(f"the thesis, epsilon to 2: {' < '.join(result.thesis)}; local / two-party about 10")
    show.print(f"seed {result.seed}, {result.seconds:.0f} s")
    if path is not None:
        show.print(f"plot: {path}")


@app.command("auc")
def auc(
    epsilon: Epsilons = None,
    positives: Annotated[int, typer.Option(help="Records of label 1.")] = 693,
    negatives: Annotated[int, typer.Option(help="Records of label 0.")] = 95_985,
    bins: Annotated[
        list[int] | None,
        typer.Option(help="Of the generic protocol; may be repeated.", show_default=False),
    ] = None,
    levels: Annotated[
        list[int] | None,
        typer.Option(help="Log2 of the bins of the other one; may be repeated.", show_default=False),
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Runs of each protocol.")] = 20,
    seed: Annotated[int, typer.Option(help="Of scores, coins and responses.")] = 1,
    plot_file: Plot = None,
    as_json: Json = False,
) -> None:
    """Error of the AUC under local DP against bins [Bellet 2021, Fig. 3.6], on synthetic scores.

    The generic protocol and hierarchical histograms. Takes about a minute.
    """
    from smpc_dp_lab.bench.local_auc import BINS, EPSILONS, LEVELS, auc_errors, plot

    path = plot_path("auc", plot_file, as_json)
    with Bar("settings", quiet=as_json) as bar:
        result = auc_errors(
            positives=positives,
            negatives=negatives,
            epsilons=epsilon or EPSILONS,
            bins=bins or BINS,
            levels=levels or LEVELS,
            repetitions=repetitions,
            seed=seed,
            progress=bar.show,
        )
    if hand_over(result, path, plot, as_json):
        return
    columns = ("epsilon", "protocol", "bins", "mean", "s.d.", "r.m.s.", "calculated", "Theorem 3.5")
    table = Table(*columns, title="error of the AUC")
    for point in result.points:
        table.add_row(
            f"{point.epsilon:g}",
            point.method,
            str(point.bins),
            *(f"{value:.4f}" for value in (point.mean, point.deviation, point.rms)),
            *("" if value is None else f"{value:.4f}" for value in (point.exact, point.bound)),
        )
    show = console()
    show.print(table)
    show.print(f"data: {result.data}; AUC = {result.auc:.4f}; calculated: without threshold")
    show.print(f"seed {result.seed}, {result.seconds:.0f} s")
    if path is not None:
        show.print(f"plot: {path}")
