"""`smpc-dp simulate`: many parties in one process."""

from __future__ import annotations

import resource
import time
from typing import Annotated

import numpy as np
import typer

from smpc_dp import simulate as simulation
from smpc_dp.cli.live import Bar
from smpc_dp.cli.output import console, print_json
from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.protocols.secagg.messages import PARTY_STEPS

app = typer.Typer(name="simulate", help="Run many parties in one process.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def average(
    parties: Annotated[int, typer.Option(help="How many parties.")] = 100,
    length: Annotated[int, typer.Option(help="Coordinates a vector.")] = 1_000,
    dropout: Annotated[float, typer.Option(help="Fraction that is killed at random steps.")] = 0.0,
    corrupt: Annotated[float, typer.Option(help="Fraction that the plan assumes to collude.")] = 0.1,
    security: Annotated[float, typer.Option(help="Statistical security in bits.")] = 40,
    seed: Annotated[
        int | None, typer.Option("--seed-for-simulation", help="Make the run reproducible.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads that the aggregator removes masks with.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Average random vectors, and compare with the plain average.

    The vectors are uniform in [-1, 1]; the secure aggregation of all parties runs in this process.
    """
    simulation.check_size(parties, length, threads, seed)
    values = np.random.default_rng(seed).uniform(-1.0, 1.0, (parties, length))
    begun = time.perf_counter()
    with Bar("steps", quiet=as_json) as bar:

        def show(step: str, waiting: int) -> None:
            if step == "done":
                bar.show(step, len(PARTY_STEPS), len(PARTY_STEPS))
            else:
                bar.show(f"{step} ({waiting} parties)", PARTY_STEPS.index(step), len(PARTY_STEPS))

        result = simulation.average(
            values,
            lower=-1.0,
            upper=1.0,
            dropout=dropout,
            planned_dropout=max(dropout, 0.1),
            corrupt=corrupt,
            security=security,
            threads=threads,
            seed_for_simulation=seed,
            progress=show,
        )
    seconds = time.perf_counter() - begun
    encoding = Encoding.plan(length=length, lower=-1.0, upper=1.0, precision=1e-6, parties=parties)
    absent = set(result.absent)
    names = sorted(absent.union(result.survivors))
    survivors = [values[place] for place, name in enumerate(names) if name not in absent]
    exact = bool((fixed_point_sum(encoding, survivors) == result.fixed_point).all())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if as_json:
        print_json(
            {
                "exact": exact,
                "parties": parties,
                "survivors": len(result.survivors),
                "length": length,
                "seconds": seconds,
                "peak_bytes": peak,
            }
        )
    else:
        console().print(
            f"{len(result.survivors)} of {parties} parties survived; the result "
            f"{'equals' if exact else 'DIFFERS FROM'} the fixed-point sum of their vectors; "
            f"{seconds:.1f} s, peak memory {peak / 1e9:.2f} GB"
        )
    if not exact:
        raise typer.Exit(1)
