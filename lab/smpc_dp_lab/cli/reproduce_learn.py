"""`smpc-dp reproduce`: personalised models and groups of gossip.

`local-scale`, `personalized-synthetic`, `personalized-iterations`, `moons`, `party-tables`, `movielens` and
`private-boosting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Annotated, Literal

import typer

from smpc_dp.console.workers import with_workers
from smpc_dp_lab.cli.figure import (
    WISCONSIN,
    Columns,
    Epsilons,
    Json,
    Plot,
    Points,
    Quick,
    Seed,
    Wisconsin,
    of_record,
    reproduce,
)

MEAN: Columns = {"accuracy": "accuracy", "deviation": "deviation"}
ACCURACY: Columns = {"method": "method", **MEAN}
PROTECTED: Columns = {"epsilon": "epsilon", "protects a record": "protected"}
Problems = Annotated[int, typer.Option(help="Random problems or splits.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("local-scale")(with_workers(scale))
    app.command("personalized-synthetic")(with_workers(personalized))
    app.command("personalized-iterations")(with_workers(personalized_iterations))
    app.command("moons")(with_workers(moons))
    app.command("party-tables")(with_workers(party_tables))
    app.command("movielens")(with_workers(movielens))
    app.command("private-boosting")(with_workers(private_boosting))


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
    seed: Seed = 1,
    data: Wisconsin = WISCONSIN,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Utility of block gossip against the size of its groups [Bellet 2021, chapter 5].

    From local DP to a trusted curator at the same epsilon and as many participations. Takes two minutes.
    """
    from smpc_dp.capabilities.learn.data import wisconsin
    from smpc_dp_lab.bench.local_scale import SIZES, local_scale, plot

    names = {"local": "local DP", "curator": "trusted curator"}
    columns: Columns = {
        "s": "size",
        "honest": "honest",
        "noise from": lambda point: names.get(point.kind, point.kind),
    }
    columns |= {"steps": "steps", "noise": "noise", "accuracy": "accuracy"}
    columns |= {"s.d.": "spread", "worst": "low", "best": "high"}
    reproduce(
        "local-scale",
        lambda progress: local_scale(
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
            progress=progress,
            executor=executor,
        ),
        plot,
        plot_file,
        as_json,
        lambda result: [
            Points(
                result.of("none", "local", "secagg", "gopa", "curator"),
                columns,
                "test accuracy of the users' own models",
            )
        ],
        lambda result: [
            f"data: {result.data}, {result.parties} users; noise: standard deviation in an average",
            f"seed {result.seed}, {result.repetitions} repetitions, {result.seconds:.0f} s",
        ],
    )


def personalized(
    dimensions: Annotated[
        list[int] | None,
        typer.Option("--dimension", help="May be repeated. Left out: 20, 50 and 100.", show_default=False),
    ] = None,
    problems: Problems = 10,
    seed: Seed = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Test accuracy of personalised models [Bellet 2021, Fig. 2.1; Bellet and others 2018, Figs 2c, 3, 4].

    Local models, coordinate descent, the paper's noise (NOT private), noise that protects a record, and local
    DP of the records.
    """
    from smpc_dp_lab.bench import personalized as bench
    from smpc_dp_lab.bench.personalized_plot import plot

    chosen: Sequence[int] = dimensions or bench.DIMENSIONS
    epsilons = tuple(bench.UPDATES)
    if quick:
        chosen, epsilons, problems = chosen[:1], (1.0, 30.0), 1
    columns: Columns = {"p": "dimension", "rows": "rows", "records, least": "least", "most": "most"}
    reproduce(
        "personalized-synthetic",
        lambda progress: bench.personalized_synthetic(
            chosen, epsilons, problems=problems, seed=seed, progress=progress, executor=executor
        ),
        plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, columns | {"method": "method"} | PROTECTED | MEAN)],
        lambda result: [
            of_record(f"{bench.DELTA:g}, of local DP 0"),
            f"{result.problems} problems, seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


def personalized_iterations(
    dimension: Annotated[int, typer.Option(help="Of the tasks, p.")] = 100,
    problems: Problems = 5,
    seed: Seed = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Objective and accuracy of personalised models by iterations [Bellet and others 2018, Figs 1, 2a, 2b].

    Coordinate descent beside gossip ADMM; from zero and from a private start, with the paper's noise (NOT
    private) and with noise that protects a record. Takes four minutes.
    """
    from smpc_dp_lab.bench import personalized_iterations as bench
    from smpc_dp_lab.bench.personalized import DELTA

    shown = slice(0, 1) if quick else slice(None)
    columns: Columns = {"figure": "figure", "rows": "rows", "method": "method", "epsilon": "epsilon"}
    columns |= {"T_i": "updates", "protects a record": "protected"}
    columns |= {"start": lambda trace: trace.objective[0], "least": lambda trace: trace.least[0]}
    columns |= {"at iteration": lambda trace: trace.least[1], "end": lambda trace: trace.objective[-1]}
    columns |= {"accuracy, start": lambda trace: trace.accuracy[0], "end ": lambda trace: trace.accuracy[-1]}
    reproduce(
        "personalized-iterations",
        lambda progress: bench.personalized_iterations(
            20 if quick else dimension,
            updates=3 if quick else bench.UPDATES,
            published=bench.PUBLISHED[shown],
            private=bench.PRIVATE[shown],
            problems=1 if quick else problems,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [
            Points(result.points, columns, f"objective and test accuracy, p = {result.dimension}")
        ],
        lambda result: [
            of_record(f"{DELTA:g}"),
            "paper's noise: Laplace of Theorem 1 for an l1 norm of 1, and delta = exp(-5): no epsilon holds",
            f"{result.problems} problems, seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


def moons(
    problems: Problems = 10,
    seed: Seed = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Personalised boosting with a learned graph beside an oracle's [Bellet 2021, section 2.5, Fig. 2.2].

    100 parties in four clusters of rotated moons, with 3 to 15 records each. A problem takes ten seconds.
    """
    from smpc_dp_lab.bench import moons as bench

    columns: Columns = {"graph or model": "method", "accuracy": "accuracy"}
    columns |= {"least": lambda point: min(point.accuracies), "most": lambda point: max(point.accuracies)}
    near: Columns = {"lambda_3": "density", "each keeps": "count", "of all pairs": "share"}
    near |= {"weight left out": "weight", "price": "price", "at most": "bound"}
    reproduce(
        "moons",
        lambda progress: bench.moons(
            problems=1 if quick else problems, seed=seed, progress=progress, executor=executor
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [
            Points(result.points, columns, "test accuracy, mean of the parties"),
            Points(result.near, near, "pairs of near models alone [Remark 2.5], price of equal weights: 1"),
        ],
        lambda result: [
            f"weight of the learned graph within clusters: {result.within:.0%} (equal weights: 29%)",
            f"rank correlation of a party's degree with c_u F_u in it: {result.rank:.2f}",
            f"{result.problems} problems, seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


def party_tables(
    table: Annotated[
        Path | None,
        typer.Option(
            help="A table of numbers: party, features, label 0 or 1. Left out: a synthetic stand-in.",
            show_default=False,
        ),
    ] = None,
    problems: Problems = 3,
    seed: Seed = 1,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Models for all, of each party, and personalised ones [Bellet 2021, Table 2.1].

    Linear and boosted. The data of the table are not part of this project: give a file.
    """
    from smpc_dp_lab.bench import party_tables as bench
    from smpc_dp_lab.bench.party_rows import SYNTHETIC, read_parties

    reproduce(
        "party-tables",
        lambda progress: bench.party_tables(
            None if table is None else read_parties(table),
            data=SYNTHETIC if table is None else table.name,
            problems=problems,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, ACCURACY)],
        lambda result: [
            f"data: {result.data}, {result.parties} parties, {result.records} records",
            f"{result.problems} splits, seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


def movielens(
    ratings: Annotated[
        Path | None,
        typer.Option(
            help="Ratings with the header userId, movieId, rating, timestamp (.csv, .csv.gz), or u.data of "
            "ml-100k. Left out: synthetic ones.",
            show_default=False,
        ),
    ] = None,
    problems: Problems = 5,
    seed: Seed = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Error of personalised models of movie ratings [Bellet and others 2018, Table 1].

    As published, where no epsilon holds, and with features of public parties.
    """
    from smpc_dp_lab.bench import movie_models as bench
    from smpc_dp_lab.bench.ratings import read_ratings, synthetic_ratings

    given = synthetic_ratings(80 if quick else 400, 120, seed) if ratings is None else read_ratings(ratings)
    errors: Columns = {"RMSE": "rmse", "deviation": "deviation"}
    columns: Columns = {"features": "features", "method": "method"}
    low, high = given.table[:, 2].min(), given.table[:, 2].max()
    reproduce(
        "movielens",
        lambda progress: bench.movielens(
            given, problems=1 if quick else problems, seed=seed, progress=progress, executor=executor
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, columns | PROTECTED | errors)],
        lambda result: [
            of_record(f"{bench.DELTA:g}"),
            "as published: no epsilon holds, features and graph are exact functions of the ratings",
            f"a changed rating moves a user's centred ratings: {2 * (high - low):g} B_phi/m in the l1 norm",
            f"data: {result.data}, {result.parties} parties, {result.movies} movies, "
            f"{result.ratings} ratings",
            f"{result.problems} splits, seed {result.seed}, {result.seconds:.0f} s",
        ],
    )


def private_boosting(
    epsilons: Epsilons = None,
    problems: Problems = 5,
    seed: Seed = 1,
    quick: Quick = False,
    plot_file: Plot = None,
    as_json: Json = False,
    executor: Executor | None = None,
) -> None:
    """Accuracy of personalised boosting with private choices, by records and l1 norm [Bellet 2021, 2.2.2].

    No paper has a private one: the figure shows from which size on it learns.
    """
    from smpc_dp_lab.bench import private_boosting as bench

    sizes: Sequence[int] = (100, 1_000) if quick else bench.SIZES
    betas: Sequence[float] = (1.0,) if quick else bench.BETAS
    columns: Columns = {"m": "size", "beta": "beta", "epsilon": "epsilon", "needed lead, of 2": "gap"}
    reproduce(
        "private-boosting",
        lambda progress: bench.private_boosting(
            sizes,
            betas,
            epsilons or bench.EPSILONS,
            problems=1 if quick else problems,
            seed=seed,
            progress=progress,
            executor=executor,
        ),
        bench.plot,
        plot_file,
        as_json,
        lambda result: [Points(result.points, columns | MEAN)],
        lambda result: [
            of_record(f"{bench.DELTA:g}"),
            f"{result.problems} problems, seed {result.seed}, {result.seconds:.0f} s",
        ],
    )
