"""`smpc-dp reproduce`: learning along a network.

`gosta`, `dual-averaging`, `homomorphic` and `network-sgd`.
"""

from __future__ import annotations

from concurrent.futures import Executor
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.console.workers import with_workers
from smpc_dp_lab.cli.figure import (
    WISCONSIN,
    Columns,
    Epsilons,
    Json,
    Plot,
    Points,
    Seed,
    Wisconsin,
    reproduce,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("gosta")(with_workers(gosta))
    app.command("dual-averaging")(with_workers(dual_averaging))
    app.command("homomorphic")(with_workers(homomorphic))
    app.command("network-sgd")(with_workers(network_sgd))


def gosta(
    parties: Annotated[int, typer.Option(help="Users, no prime number.")] = 1_260,
    iterations: Annotated[int, typer.Option(help="Of each run.")] = 60_000,
    repetitions: Annotated[int, typer.Option(help="Runs of each method on each graph.")] = 50,
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Error of a decentralised AUC against iterations [Bellet 2021, Fig. 3.4], on synthetic records.

    GoSta and U2-gossip on three graphs, and the bound of Theorem 3.1. Takes about half a minute.
    """
    from smpc_dp_lab.bench.gosta import gosta_errors, last_rows, plot

    headings = ("graph", "method", "error", "spread", "Theorem 3.1")
    columns: Columns = {heading: itemgetter(index) for index, heading in enumerate(headings)}
    title = f"relative error of the users' estimates after {iterations:,} iterations"
    reproduce(
        "gosta",
        lambda progress: gosta_errors(
            parties=parties,
            iterations=iterations,
            repetitions=repetitions,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        plot,
        plot_file,
        as_json,
        lambda result: [Points(last_rows(result), columns, title)],
        lambda result: [
            f"data: {result.data}, AUC = {result.auc:.3f}",
            f"Theorem 3.1 above the error at all times: {'yes' if result.bound_holds else 'NO'}",
            f"seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


def dual_averaging(
    data: Wisconsin = WISCONSIN,
    iterations: Annotated[int, typer.Option(help="Of each run.")] = 30_000,
    repetitions: Annotated[int, typer.Option(help="Asynchronous runs on each graph.")] = 50,
    synchronous: Annotated[int, typer.Option(help="Runs beside Theorem 3.2 on each graph.")] = 2,
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Maximise an AUC by gossip dual averaging [Bellet 2021, Fig. 3.5], on the Wisconsin data.

    On a cycle, a Watts-Strogatz graph and the complete graph, in disjoint random groups; and the terms of
    Theorem 3.2. Takes two to three minutes.
    """
    from smpc_dp.capabilities.learn.data import wisconsin
    from smpc_dp_lab.bench.dual_averaging import dual_averaging_errors, plot

    read = wisconsin(data, incomplete=True)
    columns: Columns = {
        "graph": "graph",
        "objective": lambda curve: curve.objective[-1],
        "spread": lambda curve: curve.spread[-1],
        "bias term": lambda curve: curve.bias[-1],
        "of the objective": lambda curve: f"{curve.bias[-1] / curve.objective[-1]:.0%}",
        "AUC": "auc",
        "least AUC": "least_auc",
    }
    in_groups: Columns = {"size": "size", "steps": "steps", "gap": "gap"}
    in_groups |= {name: column for name, column in columns.items() if name != "graph"}
    terms: Columns = {"graph": "graph", "excess": "excess", "C1": "centralised", "C2": "network"}
    terms |= {"C2 as printed": "printed_network", "C3": "bias", "holds": "holds"}
    reproduce(
        "dual-averaging",
        lambda progress: dual_averaging_errors(
            read.table[:, :-1],
            read.table[:, -1],
            data=f"{read.source}, {len(read.table)} records, standardised",
            iterations=iterations,
            repetitions=repetitions,
            synchronous=synchronous,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        plot,
        plot_file,
        as_json,
        lambda result: [
            Points(
                result.curves,
                columns,
                f"asynchronous, after {result.iterations:,} iterations; minimum {result.minimum:.5f}",
            ),
            Points(
                result.groups,
                in_groups,
                f"in disjoint random groups, the same number of averages, {result.group_repetitions} runs",
            ),
            Points(result.terms, terms, "synchronous, beside Theorem 3.2"),
        ],
        lambda result: [
            f"data: {result.data}",
            f"objective at 0 is {result.start:.4f}, AUC of the minimum {result.best_auc:.4f}",
            f"seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


def homomorphic(
    steps: Annotated[int, typer.Option(help="Steps of the recursion.")] = 200,
    repetitions: Annotated[int, typer.Option(help="Runs that are averaged.")] = 100,
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Diffusion with graph-homomorphic and with i.i.d. noise [Vlaski and Sayed 2020, Fig. 1].

    Deviation of the centroid from the optimum, and epsilon(i) with the factor that the paper lacks.
    """
    from smpc_dp_lab.bench.homomorphic import homomorphic_deviation, plot

    columns: Columns = {
        "noise": "noise",
        "deviation": "final",
        "epsilon(i)": lambda curve: ", ".join(f"{step}: {e:,.4g}" for step, e in curve.epsilon.items()),
    }
    reproduce(
        "homomorphic",
        lambda _: homomorphic_deviation(steps=steps, repetitions=repetitions, seed=seed, executor=executor),
        plot,
        plot_file,
        as_json,
        lambda result: [
            Points(
                (*result.curves, result.in_groups),
                columns,
                "mean square deviation of the centroid, last half",
            )
        ],
        lambda result: [
            f"in groups: {result.averages_a_step} secure averages a step, for {result.agents} neighbourhoods "
            "of messages",
            f"data: {result.data}; graph: {result.edges} edges, mixing gap {result.mixing_gap:.3f} (the "
            "paper prints neither)",
            f"order {' < '.join(result.ranks)}; the paper: {' < '.join(result.paper)}",
            f"seed {result.seed}, {result.seconds:.1f} s",
        ],
    )


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
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Gradient descent by a curator, by a walking token and locally [Bellet 2021, Fig. 4.1].

    Test accuracy with the published script's noise, and with all three under the best accounting. Takes about
    a minute.
    """
    from smpc_dp_lab.bench import network_sgd as bench

    columns: Columns = {"epsilon": "epsilon", "sigmas": "sigmas", "method": "method", "sigma": "sigma"}
    columns |= {"step size": "step_size", "accuracy": "accuracy", "s.d.": "deviation"}
    columns |= {"objective": "objective"}
    reproduce(
        "network-sgd",
        lambda progress: bench.network_sgd(
            houses,
            epsilons=epsilon or bench.EPSILONS,
            parties=parties,
            steps=steps,
            delta=delta,
            runs=runs,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, columns, f"test accuracy after {result.steps:,} steps")],
        lambda result: [
            f"data: {result.data}; without privacy {result.accuracy:.3f}",
            "published: three analyses that cannot be compared; fair: substitution of a user's data in all",
            *(f"warning: {text}" for text in result.warnings),
            f"seed {result.seed}, {result.seconds:.0f} s",
        ],
    )
