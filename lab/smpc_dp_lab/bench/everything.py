"""`smpc-dp bench all`: runs all benchmarks, stores their results and writes one page of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.executors.shards import run_shards
from smpc_dp.report.document import write
from smpc_dp_lab.bench.active import ANDS, EVALUATIONS, run_active_bench
from smpc_dp_lab.bench.checked import LENGTHS, run_checked_bench
from smpc_dp_lab.bench.engines import run_engines_bench
from smpc_dp_lab.bench.executors import REPETITIONS, run_executors_bench
from smpc_dp_lab.bench.figures import Progress, Report, refuse
from smpc_dp_lab.bench.gopa import DIRECT, run_gopa_bench
from smpc_dp_lab.bench.grid import SIZES as GRID_SIZES
from smpc_dp_lab.bench.grid import run_grid_bench
from smpc_dp_lab.bench.growth import SIZES, run_growth_bench
from smpc_dp_lab.bench.learn import run_learn_bench
from smpc_dp_lab.bench.page import load_results, page, store_result
from smpc_dp_lab.bench.pairwise import run_compare_bench, run_garbling_bench, run_ot_bench
from smpc_dp_lab.bench.proofs import run_proofs_bench
from smpc_dp_lab.bench.provenance import observed
from smpc_dp_lab.bench.sampling import run_sampling_bench
from smpc_dp_lab.bench.scenarios import FULL, QUICK, run_scenarios_bench
from smpc_dp_lab.bench.secagg import run_secagg_bench
from smpc_dp_lab.bench.session import run_session_bench
from smpc_dp_lab.bench.statistic import run_statistic_bench
from smpc_dp_lab.bench.wss import LENGTH, PARTIES, run_wss_bench


@dataclass(frozen=True, slots=True)
class Peers:
    """Folders of peers' compiled drivers, interpreters with peers' packages; None: not measured."""

    emp: str | None = None
    proofs: str | None = None
    flower: str | None = None
    opendp: str | None = None
    mpyc: str | None = None
    gosta: str | None = None
    gosta_python: str | None = None


def benchmarks(peers: Peers, progress: Progress | None, *, quick: bool) -> Mapping[str, Callable[[], Report]]:
    """Return all benchmarks by name; together they take a quarter of an hour, `quick` some minutes."""
    runs = 1 if quick else 5
    length = 10_000 if quick else 100_000
    parties = 40 if quick else 100
    grids = ((3, 10_000),) if quick else GRID_SIZES
    few = {of: values[:3] for of, values in SIZES.items()} if quick else SIZES
    return {
        "garbling": lambda: run_garbling_bench(runs, progress, peers.emp),
        "ot": lambda: run_ot_bench(runs, progress, peers.emp),
        "compare": lambda: run_compare_bench(runs, progress, peers.emp),
        "pairwise": lambda: run_statistic_bench(
            runs, progress, 2_000 if quick else 246_000, peers.mpyc, peers.emp
        ),
        "active": lambda: run_active_bench(
            1 if quick else 3,
            progress,
            peers.emp,
            evaluations=200 if quick else EVALUATIONS,
            ands=10_000 if quick else ANDS,
        ),
        "proofs": lambda: run_proofs_bench(runs, progress, peers.proofs),
        "checked": lambda: run_checked_bench(runs, progress, lengths=LENGTHS[:1] if quick else LENGTHS),
        "sampling": lambda: run_sampling_bench(runs, progress, peer_python=peers.opendp),
        "secagg": lambda: run_secagg_bench(parties, length, runs, progress, peer_python=peers.flower),
        "gopa": lambda: run_gopa_bench(
            (100,) if quick else (100, 1_000), 1, progress, direct=DIRECT[:1] if quick else DIRECT
        ),
        "learn": lambda: run_learn_bench(runs, progress, (1_000,), peers.gosta, peers.gosta_python),
        "engines": lambda: run_engines_bench(1, progress, (3,), (30, 100)),
        "session": lambda: run_session_bench(
            5 if quick else 10, 1_000_000 if quick else 10_000_000, 1, progress, peer_python=peers.flower
        ),
        # Without Flower there are no rounds of its grid.
        **(
            {}
            if peers.flower is None
            else {"grid": lambda: run_grid_bench(grids, 1, progress, peer_python=peers.flower)}
        ),
        "wss": lambda: run_wss_bench(
            1 if quick else 3, progress, parties=3 if quick else PARTIES, length=length if quick else LENGTH
        ),
        "growth": lambda: run_growth_bench(1 if quick else 3, progress, few, peer_python=peers.flower),
        "executors": lambda: run_executors_bench(
            1 if quick else 3, progress, repetitions=2 if quick else REPETITIONS
        ),
        "scenarios": lambda: run_scenarios_bench(progress, QUICK if quick else FULL),
    }


def run_all(
    out: Path,
    peers: Peers,
    progress: Progress | None = None,
    *,
    quick: bool = False,
    only: tuple[str, ...] = (),
    executor: Executor | None = None,
) -> list[Report]:
    """Run all benchmarks, or those named, and write results and `index.html` into the folder `out`.

    Each result is stored as soon as it is measured. The page has all results of the folder. An executor runs
    each benchmark as one shard, and must give it a machine of its own; None: this process runs them in turn.

    Raises ConfigError for a name of no benchmark, LocalError if a file cannot be written; otherwise as the
    benchmarks do.
    """
    known = benchmarks(peers, progress, quick=quick)
    names = ", ".join(known)
    refuse(
        [
            ConfigIssue("only", f"must be one of {names}, is {name!r}", ConfigCheck.CHOICE)
            for name in only
            if name not in known
        ]
    )
    reports = []
    chosen = [name for name in known if not only or name in only]
    if executor is None:
        measured: Iterator[Report] = (observed(known[name]) for name in chosen)
    else:
        measured = run_shards(executor, _measure, [(name, peers, quick) for name in chosen], "benchmark")
    for report in measured:
        reports.append(report)
        store_result(out, report)
    write(page(load_results(out)), out / "index.html")
    return reports


def _measure(name: str, peers: Peers, quick: bool) -> Report:
    """Run the benchmark of this name; return its report with commit and other programs' work."""
    return observed(benchmarks(peers, None, quick=quick)[name])
