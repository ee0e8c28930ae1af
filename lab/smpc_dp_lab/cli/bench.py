"""`smpc-dp bench`: measure speed beside peers and limits in the same run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from smpc_dp.console.output import console, print_json
from smpc_dp.console.progress import Bar
from smpc_dp.console.workers import Ray
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.executors.opened import open_executor

if TYPE_CHECKING:
    # Loaded by the commands: all benchmarks together take a while.
    from smpc_dp_lab.bench.figures import Report

STANDARD_PARTIES, STANDARD_LENGTH = 100, 100_000
STANDARD = f"{STANDARD_PARTIES} parties, {STANDARD_LENGTH:,} coordinates"

Runs = Annotated[int, typer.Option(help="Measurements of each figure.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Emp = Annotated[str | None, typer.Option(help="A folder with the compiled drivers of emp's packages.")]
Progressing = Callable[[str, int, int], None]

app = typer.Typer(name="bench", help="Measure, beside peers and limits.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def secagg(
    parties: Annotated[int, typer.Option(help="How many parties.")] = STANDARD_PARTIES,
    length: Annotated[int, typer.Option(help="Coordinates a vector.")] = STANDARD_LENGTH,
    runs: Runs = 5,
    dropout: Annotated[float, typer.Option(help="Fraction that is killed in the dearest place.")] = 0.1,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with flwr, if this one has none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure secure aggregation.

    Beside Flower's SecAgg+ functions and the machine's raw AES-256-CTR rate. The targets count at the size
    that is the default.
    """
    from smpc_dp_lab.bench.secagg import run_secagg_bench

    _show(
        "rounds",
        as_json,
        lambda show: run_secagg_bench(parties, length, runs, show, dropout=dropout, peer_python=peer_python),
    )


@app.command()
def garbling(runs: Runs = 7, emp: Emp = None, as_json: Json = False) -> None:
    """Measure garbling.

    In memory, and end to end between two processes.
    """
    from smpc_dp_lab.bench.pairwise import run_garbling_bench

    _show("rounds", as_json, lambda show: run_garbling_bench(runs, show, emp))


@app.command()
def ot(runs: Runs = 7, emp: Emp = None, as_json: Json = False) -> None:
    """Measure oblivious transfer.

    Its setup, in memory, and over the channel.
    """
    from smpc_dp_lab.bench.pairwise import run_ot_bench

    _show("rounds", as_json, lambda show: run_ot_bench(runs, show, emp))


@app.command()
def compare(runs: Runs = 7, emp: Emp = None, as_json: Json = False) -> None:
    """Measure comparisons.

    Of 16-bit integers between two fresh processes: 10,000, and one.
    """
    from smpc_dp_lab.bench.pairwise import run_compare_bench

    _show("rounds", as_json, lambda show: run_compare_bench(runs, show, emp))


@app.command()
def active(
    runs: Runs = 3,
    evaluations: Annotated[int, typer.Option(help="Evaluations of a batch.")] = 20_000,
    ands: Annotated[int, typer.Option(help="AND gates of the large batch, about.")] = 1_000_000,
    emp: Annotated[
        str | None,
        typer.Option(help="A folder with the compiled drivers of emp-ag2pc: emp_ag2pc and emp_ag2pc_dev."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure evaluations that are secure against both sides.

    Beside semi-honest ones: a fresh pair of Kendall's tau, a batch of them, and a large batch. Both sides run
    in this process. The targets count at the sizes that are the defaults, which take minutes.
    """
    from smpc_dp_lab.bench.active import run_active_bench

    _show(
        "rounds",
        as_json,
        lambda show: run_active_bench(runs, show, emp, evaluations=evaluations, ands=ands),
    )


@app.command()
def proofs(
    runs: Runs = 5,
    drivers: Annotated[
        str | None, typer.Option(help="A folder with the compiled drivers of other crates' range proofs.")
    ] = None,
    parties: Annotated[
        list[int] | None,
        typer.Option(help="Make and audit logs of so many users; may be repeated. 10,000 take minutes."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure commitments and proofs.

    Range proofs beside other crates', a party of a verifiable average at lengths 1, 10 and 100, and audits.
    """
    from smpc_dp_lab.bench.proofs import run_proofs_bench

    _show("rounds", as_json, lambda show: run_proofs_bench(runs, show, drivers, parties=parties or ()))


@app.command()
def checked(
    runs: Runs = 5,
    lengths: Annotated[
        list[int] | None,
        typer.Option(
            "--length",
            help="Elements of a vector; may be repeated. Left out: 10,000, 100,000 and 1,000,000.",
            show_default=False,
        ),
    ] = None,
    widths: Annotated[
        list[int] | None,
        typer.Option(
            "--width",
            help="Bits of an element, 8 to 64; may be repeated. Left out: 16, 32, 48 and 64.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure checked totals.

    Commitments to vectors and checks of their sum, beside the additions of points that they take and sums of
    multiples by curve25519-dalek; sums with checked totals, beside unchecked ones.
    """
    from smpc_dp_lab.bench.checked import LENGTHS, WIDTHS, run_checked_bench

    _show(
        "rounds",
        as_json,
        lambda show: run_checked_bench(runs, show, lengths=lengths or LENGTHS, widths=widths or WIDTHS),
    )


@app.command()
def sampling(
    runs: Runs = 7,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with opendp, if this one has none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the exact samplers.

    Beside OpenDP's exact ones, and numpy's, which are neither exact nor cryptographic.
    """
    from smpc_dp_lab.bench.sampling import run_sampling_bench

    _show("rounds", as_json, lambda show: run_sampling_bench(runs, show, peer_python=peer_python))


@app.command()
def gopa(
    parties: Annotated[
        list[int] | None,
        typer.Option(
            help="Users, 10 to 10,000; may be repeated. Left out: 100 and 1,000.", show_default=False
        ),
    ] = None,
    length: Annotated[int, typer.Option(help="Coordinates a vector.")] = 1,
    runs: Runs = 1,
    lost: Annotated[int, typer.Option(help="Users that the plans may lose, at most a tenth of them.")] = 10,
    dropout: Annotated[float, typer.Option(help="Fraction that two plans may lose instead.")] = 0.01,
    direct: Annotated[
        list[int] | None,
        typer.Option(
            help="Users without an aggregator, 3 to 256; may be repeated. Left out: 10, 50, 100 and 256.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure private averaging (GOPA).

    Costs of a party by the number of parties, beside secure sums on the sparse and on the complete graph.
    """
    from smpc_dp_lab.bench.gopa import DIRECT, run_gopa_bench

    _show(
        "runs",
        as_json,
        lambda show: run_gopa_bench(
            parties or (100, 1_000),
            runs,
            show,
            length=length,
            lost=lost,
            dropout=dropout,
            direct=direct or DIRECT,
        ),
    )


@app.command()
def pairwise(
    parties: Annotated[int, typer.Option(help="Users of the statistic in one process.")] = 246_000,
    runs: Runs = 5,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with mpyc, if this one has none.")
    ] = None,
    emp: Emp = None,
    as_json: Json = False,
) -> None:
    """Measure pairwise statistics.

    Kendall's tau with noise: a pair alone, with cached setup, in a batch, and all pairs of many parties.
    """
    from smpc_dp_lab.bench.statistic import run_statistic_bench

    _show("rounds", as_json, lambda show: run_statistic_bench(runs, show, parties, peer_python, emp))


@app.command()
def engines(
    runs: Runs = 3,
    servers: Annotated[
        list[int] | None, typer.Option(help="A number of servers, odd; several times for several.")
    ] = None,
    parties: Annotated[
        list[int] | None, typer.Option(help="Users n of an error's figure; several times for several.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the same noisy kernel by both engines.

    By a garbled circuit between two, and on shares among servers: time, bytes, rounds, and the error at equal
    epsilon against n.
    """
    from smpc_dp_lab.bench.engines import run_engines_bench

    _show(
        "measurements",
        as_json,
        lambda show: run_engines_bench(runs, show, servers or (3, 5, 7), parties or (30, 100, 1_000, 10_000)),
    )


@app.command()
def session(
    parties: Annotated[int, typer.Option(help="How many parties.")] = 10,
    length: Annotated[int, typer.Option(help="Values of the model.")] = 10_000_000,
    runs: Runs = 1,
    before: Annotated[
        str | None, typer.Option(help="A folder with another checkout, compiled, measured in turns.")
    ] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="A round of Flower's SecureGrid by part instead, all in one process; --peer-python has flwr "
            "and what this package needs.",
        ),
    ] = False,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with flwr, if this one has none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure an average of a model in a session.

    Each member is a process of this host: time, bytes, peak memory. Beside the least that the machine can do
    with, Flower's SecAgg+ functions, and a plain average over TCP. At the default size all together need some
    gigabytes.
    """
    from smpc_dp_lab.bench.grid import run_grid_bench
    from smpc_dp_lab.bench.session import run_session_bench

    if grid:
        if before is not None:
            raise ConfigError.at("before", "is not measured with --grid", ConfigCheck.CONFLICT)
        size = (parties, length)
        _show("rounds", as_json, lambda show: run_grid_bench([size], runs, show, peer_python=peer_python))
        return
    _show(
        "averages",
        as_json,
        lambda show: run_session_bench(parties, length, runs, show, before=before, peer_python=peer_python),
    )


@app.command()
def wss(
    runs: Runs = 3,
    parties: Annotated[int, typer.Option(help="How many parties.")] = 10,
    length: Annotated[int, typer.Option(help="Coordinates of a vector.")] = 1_000_000,
    as_json: Json = False,
) -> None:
    """Measure channels over HTTPS.

    The same secure sum with the aggregator at host:port, at wss://, and behind a relay that ends TLS.
    """
    from smpc_dp_lab.bench.wss import run_wss_bench

    _show("sums", as_json, lambda show: run_wss_bench(runs, show, parties=parties, length=length))


@app.command()
def state(
    runs: Runs = 5,
    parties: Annotated[int, typer.Option(help="How many parties.")] = 100,
    length: Annotated[int, typer.Option(help="Coordinates of a vector.")] = 10_000,
    requests: Annotated[int, typer.Option(help="Sums of a session.")] = 2,
    as_json: Json = False,
) -> None:
    """Measure sessions with saved states.

    The same secure sums without a state, with a state and a counter, and with a state alone.
    """
    from smpc_dp_lab.bench.state import run_state_bench

    _show(
        "sessions",
        as_json,
        lambda show: run_state_bench(runs, show, parties=parties, length=length, requests=requests),
    )


@app.command()
def many(
    parties: Annotated[
        list[int] | None,
        typer.Option(
            help="How many clients; may be repeated. Left out: 200, 1,000, 5,000 and 10,000.",
            show_default=False,
        ),
    ] = None,
    length: Annotated[int, typer.Option(help="Coordinates of a vector.")] = 1_000,
    kill: Annotated[float, typer.Option(help="Fraction that is killed, at random steps.")] = 0.05,
    slow: Annotated[bool, typer.Option("--slow", help="One client sends just above the least rate.")] = False,
    flood: Annotated[
        bool, typer.Option("--flood", help="Strangers connect, and one client sends large wrong messages.")
    ] = False,
    churn: Annotated[
        bool, typer.Option("--churn", help="Clients leave and come back, in a request and between two.")
    ] = False,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Nobody checks the total.")] = False,
    seed: Annotated[int, typer.Option(help="Of vectors and kills.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder whose results-many.json gets each size when it ends.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a sum of many clients.

    200 clients a process, each with its own connection, and one aggregator, all on this host: time, bytes,
    memory and descriptors for each number of clients, and how they grow.
    """
    from smpc_dp_lab.bench.many import PARTIES, Trouble, run_many_bench

    _show(
        "sums",
        as_json,
        lambda show: run_many_bench(
            parties or PARTIES,
            length,
            show,
            killed=kill,
            seed=seed,
            total="unchecked" if unchecked else None,
            trouble=Trouble(slow=slow, flood=flood, churn=churn),
            out=out,
        ),
    )


@app.command()
def records(
    houses: Annotated[
        Path | None,
        typer.Option(
            help="California houses, .csv or .csv.gz. Left out: the loans of the package alone.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Of a request; may be repeated. Left out: 1 and 3.", show_default=False),
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Releases of each request.")] = 10_000,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with opendp, if this one has none.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of rows and noise.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results-records.json.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure errors, coverage and tests of statistics of records.

    Ten parts of real tables: beside OpenDP on the pooled rows, noise of each party, and the exact answers.
    """
    from smpc_dp_lab.bench.page import store_result
    from smpc_dp_lab.bench.records import EPSILONS, run_records_bench

    report = _show(
        "releases",
        as_json,
        lambda show: run_records_bench(
            show,
            houses_file=houses,
            epsilons=epsilon or EPSILONS,
            repetitions=repetitions,
            peer_python=peer_python,
            seed=seed,
        ),
    )
    if out is not None:
        store_result(out, report)


@app.command()
def learn(
    runs: Runs = 5,
    parties: Annotated[
        list[int] | None,
        typer.Option(
            help="Users, 100 to 100,000; may be repeated. Left out: 1,000 and 10,000.", show_default=False
        ),
    ] = None,
    peer: Annotated[
        str | None, typer.Option(help="A folder with gossip_solver.py of the authors' gosta code.")
    ] = None,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with numpy below 1.23, which that code needs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure learners in simulation.

    Party-steps a second of GoSta, beside its authors' code, and of gossip dual averaging; updates of
    personalised models and steps of a learned graph, beside loops in numpy.
    """
    from smpc_dp_lab.bench.learn import run_learn_bench

    _show(
        "rounds",
        as_json,
        lambda show: run_learn_bench(runs, show, parties or (1_000, 10_000), peer, peer_python),
    )


@app.command()
def growth(
    runs: Runs = 1,
    peer_python: Annotated[
        str | None, typer.Option(help="An interpreter with flwr, if this one has none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how the cost of a secure sum grows with parties, length and degree.

    Beside Flower's SecAgg+ functions and the machine's raw AES-256-CTR rate.
    """
    from smpc_dp_lab.bench.growth import run_growth_bench

    _show("sizes", as_json, lambda show: run_growth_bench(runs, show, peer_python=peer_python))


@app.command()
def executors(
    runs: Runs = 3,
    workers: Annotated[
        int | None, typer.Option(help="Processes. Left out: one for each processor.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure runs of a simulated average in several processes, beside one process."""
    from smpc_dp_lab.bench.executors import run_executors_bench

    _show("rounds", as_json, lambda show: run_executors_bench(runs, show, workers=workers))


@app.command()
def scenarios(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer parties.")] = False,
    as_json: Json = False,
) -> None:
    """Measure what users ask: ten hospitals, a hundred phones, a thousand, Kendall's tau, an audit.

    Sessions over mutual TLS on loopback: one party and the aggregator are processes of their own, the other
    parties share some. The log that is audited comes from a simulation.
    """
    from smpc_dp_lab.bench.scenarios import FULL, QUICK, run_scenarios_bench

    _show("scenarios", as_json, lambda show: run_scenarios_bench(show, QUICK if quick else FULL))


@app.command(name="all")
def everything(
    out: Annotated[Path, typer.Option(help="Folder for the results and index.html.")],
    only: Annotated[
        list[str] | None, typer.Option(help="One of the benchmarks; may be repeated. Left out: all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One round each, at small sizes.")] = False,
    emp: Emp = None,
    drivers: Annotated[
        str | None, typer.Option(help="A folder with the compiled drivers of other crates' range proofs.")
    ] = None,
    flower: Annotated[str | None, typer.Option(help="An interpreter with flwr.")] = None,
    opendp: Annotated[str | None, typer.Option(help="An interpreter with opendp.")] = None,
    mpyc: Annotated[str | None, typer.Option(help="An interpreter with mpyc.")] = None,
    gosta: Annotated[str | None, typer.Option(help="A folder with the authors' gosta code.")] = None,
    gosta_python: Annotated[
        str | None, typer.Option(help="An interpreter with numpy below 1.23, for that code.")
    ] = None,
    ray: Ray = None,
) -> None:
    """Measure everything, and write one page of all results.

    With --ray each benchmark has a node of the cluster for itself, and its result says which kind. On one
    machine they run one after the other: they would disturb each other.
    """
    from smpc_dp_lab.bench.everything import Peers, run_all

    peers = Peers(emp, drivers, flower, opendp, mpyc, gosta, gosta_python)
    opened = nullcontext() if ray is None else open_executor(ray=ray, alone=True)
    with Bar("rounds", quiet=False) as bar, opened as executor:
        reports = run_all(out, peers, bar.show, quick=quick, only=tuple(only or ()), executor=executor)
    for report in reports:
        console().print(f"[bold]{report.bench}[/bold]")
        _print(report)


def _show(unit: str, as_json: bool, bench: Callable[[Progressing], Report]) -> Report:
    """Run a benchmark with a progress display, print its report, and return it."""
    from smpc_dp_lab.bench.provenance import observed

    with Bar(unit, quiet=as_json) as bar:
        report = observed(lambda: bench(bar.show))
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)
    return report


def _print(report: Report) -> None:
    from smpc_dp_lab.bench.figures import shown

    out = console()
    # What the columns beside the name need; the name is wrapped.
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("figure", overflow="fold", min_width=16)
    for heading in ("median", "peer", "× peer", "limit", "of limit", "target"):
        table.add_column(heading, justify="right", no_wrap=True)
    for figure in report.figures:
        table.add_row(
            figure.name,
            shown(figure.median, figure.unit),
            "" if figure.peer is None else shown(figure.peer.median, figure.unit),
            "" if figure.ratio_to_peer is None else f"{figure.ratio_to_peer:.3g}",
            "" if figure.limit is None else shown(figure.limit.median, figure.unit),
            "" if figure.ratio_to_limit is None else f"{figure.ratio_to_limit:.2f}",
            "" if figure.met is None else "met" if figure.met else "MISSED",
        )
    out.print(table)
    out.print()
    if report.bench == "secagg":
        out.print(f"Targets count at the standard size: {STANDARD}.")
    notes: dict[str, list[str]] = {}
    for figure in report.figures:
        beside = [
            f"peer: {figure.peer.name} {figure.peer.version}" if figure.peer is not None else "",
            f"limit: {figure.limit.name}" if figure.limit is not None else "",
        ]
        note = "; ".join([figure.note.rstrip("."), *filter(None, beside)])
        notes.setdefault(note, []).append(figure.name)
    for note, names in notes.items():
        # Figures of several sizes share a note, and what follows the colon of their names.
        kinds = dict.fromkeys(name.rpartition(": ")[2] for name in names)
        out.print(f"{', '.join(kinds)}: {note}.", markup=False)
