"""`smpc-dp reproduce`: measure the formulas and figures of papers, with a plot."""

from __future__ import annotations

from concurrent.futures import Executor
from operator import attrgetter
from typing import Annotated

import typer

from smpc_dp.console.workers import with_workers
from smpc_dp_lab.cli import reproduce_gossip, reproduce_learn, reproduce_owners
from smpc_dp_lab.cli.figure import Columns, Epsilons, Json, Plot, Points, Seed, reproduce

app = typer.Typer(name="reproduce", help="Measure what a paper states, with a plot.", no_args_is_help=True)

NAMES = {"local": "local DP", "gopa": "GOPA", "curator": "trusted curator"}

reproduce_learn.register(app)
reproduce_gossip.register(app)
reproduce_owners.register(app)


@app.callback()
def _group() -> None:
    pass


@app.command("gopa-tradeoff")
@with_workers
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
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Error of a private average against the number of parties [Bellet 2021, section 4.1].

    Local DP, GOPA and a trusted curator at the same epsilon and delta, as planned and as measured.
    """
    # The benchmarks take a while to load.
    from smpc_dp_lab.bench import tradeoff as bench

    columns: Columns = {
        "users": "parties",
        "honest": "honest",
        "method": lambda point: NAMES[point.method],
    }
    columns |= {"planned": "planned", "measured": "measured"}
    reproduce(
        "gopa-tradeoff",
        lambda progress: bench.gopa_tradeoff(
            epsilon,
            delta,
            parties=parties or bench.PARTIES,
            corrupt=corrupt,
            repetitions=bench.REPETITIONS if repetitions is None else repetitions,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, columns, "standard error of the average")],
        lambda _: [],
    )


@app.command("kendall-tripadvisor")
@with_workers
def kendall(
    epsilon: Epsilons = None,
    parties: Annotated[int, typer.Option(help="Users, an even number.")] = 246_000,
    delta: Annotated[float, typer.Option(help="Of all pairs; the rest has none.")] = 1e-8,
    repetitions: Annotated[int, typer.Option(help="How often everything is drawn anew.")] = 30,
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Error of Kendall's tau against epsilon [Bellet 2021, Fig. 3.7], on synthetic ratings.

    Two-party computation on few pairs and on all, and local DP, as calculated and as measured. Takes about a
    minute.
    """
    from smpc_dp_lab.bench import kendall as bench

    columns: Columns = {"epsilon": "epsilon", "method": "method", "P": "partners", "measured": "measured"}
    columns |= {"calculated": "exact", "any law": "bound"}
    reproduce(
        "kendall-tripadvisor",
        lambda progress: bench.kendall_errors(
            parties=parties,
            epsilons=epsilon or bench.EPSILONS,
            delta=delta,
            repetitions=repetitions,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [
            Points(
                sorted(result.points, key=attrgetter("epsilon", "exact")),
                columns,
                "root mean squared error of (tau + 1) / 2",
            )
        ],
        lambda result: [
            f"data: {result.data}, tau = {result.tau:.3f}; all pairs are {result.naive_pairs:,}, not run",
            *(
                f"epsilon {key}: {' < '.join(methods)}; local / two-party = {result.advantage[key]:.2g}"
                for key, methods in result.ranks.items()
            ),
            f"the thesis, epsilon to 2: {' < '.join(result.thesis)}; local / two-party about 10",
            f"seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


@app.command("auc")
@with_workers
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
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Error of the AUC under local DP against bins [Bellet 2021, Fig. 3.6], on synthetic scores.

    The generic protocol and hierarchical histograms. Takes about a minute.
    """
    from smpc_dp_lab.bench import local_auc as bench

    columns: Columns = {"epsilon": "epsilon", "protocol": "method", "bins": "bins", "mean": "mean"}
    columns |= {"s.d.": "deviation", "r.m.s.": "rms", "calculated": "exact", "Theorem 3.5": "bound"}
    reproduce(
        "auc",
        lambda progress: bench.auc_errors(
            positives=positives,
            negatives=negatives,
            epsilons=epsilon or bench.EPSILONS,
            bins=bins or bench.BINS,
            levels=levels or bench.LEVELS,
            repetitions=repetitions,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, columns, "error of the AUC")],
        lambda result: [
            f"data: {result.data}; AUC = {result.auc:.4f}; calculated: without threshold",
            f"seed {result.seed}, {result.seconds:.0f} s",
        ],
    )
