"""The benchmarks of the two-party engine: garbling, oblivious transfer, and comparisons end to end.

Figures between two processes go over the mutual-TLS channel on loopback, garbler and evaluator on the same
machine. The peers are programs that are compiled elsewhere (`bench.drivers`) and run in turns with ours.
"""

from __future__ import annotations

import json
import platform
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

import numpy as np

from smpc_dp.crypto.garble import Mode
from smpc_dp.crypto.ot import FIELD_SIZES
from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.protocols.pairwise.params import PairwiseParameters
from smpc_dp.protocols.pairwise.plan import Plan
from smpc_dp.published.library import find
from smpc_dp.runtime.pairwise import create_pairwise_session
from smpc_dp_lab.bench import transfers
from smpc_dp_lab.bench.drivers import DriverPeers, Turn
from smpc_dp_lab.bench.figures import Figure, Limit, Measure, Report, Target, alternate
from smpc_dp_lab.bench.garbling_core import rates

AND_BYTES = 32
COMPARISONS = 10_000
WORKER_SECONDS = 300
SHORT_REPEATS = 21
# What the peers are, beside what we are.
PLAIN = "semi-honest, channel not encrypted"
# How the peer is told to key its hash, and what that means.
PEER_KEYS = {
    Mode.TILE: ("default", "a key for every 4 gates, its default"),
    Mode.UNIQUE: ("unique", "a key for each hash"),
}

Progress = Callable[[str, int, int], None]
T = TypeVar("T")


@dataclass(slots=True)
class _Bench:
    name: str
    runs: int
    progress: Progress | None
    emp: DriverPeers

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise ConfigError([Fault("runs", f"must be at least 1, is {self.runs}")])

    def repeat(self, what: str, measure: Callable[[], T], peer: Turn) -> list[T]:
        """Take `runs` measurements in turns with the peer's, after one that is thrown away."""
        taken: list[T] = []

        def ours() -> None:
            taken.append(measure())

        measure()
        self.alternate(what, {"ours": ours, "peer": peer})
        return taken

    def alternate(self, what: str, measures: dict[str, Measure]) -> dict[str, list[float]]:
        """Take `runs` rounds of all `measures`, and tell the progress of each."""
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            if self.progress is not None:
                self.progress(what, done, self.runs)

        return alternate(self.runs, measures, advance)

    def report(self, figures: list[Figure]) -> Report:
        versions = {
            "smpc-dp": version("smpc-dp"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "openssl": ssl.OPENSSL_VERSION,
            **self.emp.versions,
        }
        return Report(self.name, figures, versions, {"runs": self.runs})


def run_garbling_bench(runs: int = 7, progress: Progress | None = None, emp: str | None = None) -> Report:
    """Measure garbling and evaluation in memory, and evaluations between two processes.

    `emp` is a folder with the peers' drivers; None for no peers.

    Raises ConfigError for fewer than 1 runs, LocalError when a measuring process or a peer's driver fails.
    """
    bench = _Bench("garbling", runs, progress, DriverPeers(emp, ["emp_garbling", "emp_sh2pc"]))
    figures = []
    for circuit, instances, mode, targets in (
        ("less_u64", 1 << 16, Mode.TILE, (Target("median", 110e6), Target("median", 120e6))),
        ("less_u64", 1 << 16, Mode.UNIQUE, None),
        ("aes128", 1, Mode.UNIQUE, (Target("ratio_to_peer", 1.0), Target("ratio_to_peer", 1.0))),
    ):
        figures += _in_memory(bench, circuit, instances, mode, targets)
    return bench.report([*figures, *_end_to_end(bench)])


def _in_memory(
    bench: _Bench, circuit: str, instances: int, mode: Mode, targets: tuple[Target, Target] | None
) -> list[Figure]:
    plan = Plan(
        find(circuit).build(), PairwiseParameters(circuit, "garbler", "evaluator", instances=instances)
    )
    # Short ones are repeated, by the peer as well: their median is one measurement.
    repeats = 1 if instances > 1 else SHORT_REPEATS
    keys, how = PEER_KEYS[mode]
    tile = plan.compiled.suggest_tile(instances)
    peer = bench.emp.turn("emp_garbling", circuit, instances, keys, repeats)
    taken = bench.repeat(
        f"{circuit} x {instances}, {mode.value} keys",
        lambda: rates(plan.compiled, instances, mode=mode, tile=tile, runs=repeats).per_second(),
        peer,
    )
    return [
        Figure(
            f"{what} {circuit} x {instances}, {mode.value} keys",
            "AND/s",
            [rate[place] for rate in taken],
            "higher",
            f"{instances} x {circuit}, one thread, in memory; bound by AES; {_keys(mode, tile)}",
            peer.peer(what, "AND/s", how),
            target=None if targets is None else targets[place],
        )
        for place, what in enumerate(("garble", "evaluate"))
    ]


def _end_to_end(bench: _Bench) -> list[Figure]:
    circuit, instances = "mul64", 8192
    gates = find(circuit).build().and_count * instances
    emp = bench.emp.turn("emp_sh2pc", circuit, instances)
    taken = bench.repeat("end to end", lambda: _pair(circuit, instances, "channel evaluate"), emp)
    values = [gates / run["steps"]["done"] for run in taken]
    limit = Limit("channel, 32 bytes an AND", _median([run["channel"] / AND_BYTES for run in taken]))
    note = (
        f"{instances} x {circuit}, two processes, mutual TLS on loopback, tiles share keys, transfers and "
        "outputs included; bound by the cores: TLS and sockets take about 50 ns of CPU an AND on both sides "
        "together, hashing 10, garbling and evaluating 13"
    )
    what = "end to end"
    return [
        Figure(
            f"{what}, of the channel",
            "AND/s",
            values,
            "higher",
            note,
            None,
            limit,
            Target("ratio_to_limit", 0.5),
        ),
        Figure(
            what,
            "AND/s",
            values,
            "higher",
            note,
            emp.peer("rate", "AND/s", PLAIN),
            target=Target("median", 20e6),
        ),
    ]


def run_ot_bench(runs: int = 7, progress: Progress | None = None, emp: str | None = None) -> Report:
    """Measure the setup and correlated transfers, in memory and over the channel. Errors as above."""
    bench = _Bench("ot", runs, progress, DriverPeers(emp, ["emp_ot"]))
    count = transfers.CHUNKS * transfers.CHUNK
    turns = {k: bench.emp.turn("emp_ot", k, count) for k in FIELD_SIZES}
    figures = transfers.transfer_figures(
        lambda measures: bench.alternate("transfers", measures),
        lambda: _pair("add32", 1, "channel transfers"),
        turns,
    )
    return bench.report([*transfers.setup_figures(runs, turns[2]), *figures])


def run_compare_bench(runs: int = 7, progress: Progress | None = None, emp: str | None = None) -> Report:
    """Measure comparisons of 16-bit integers by fresh parties: many, and a single one. Errors as above."""
    bench = _Bench("compare", runs, progress, DriverPeers(emp, ["emp_sh2pc"]))
    peer, peer_of_one = (bench.emp.turn("emp_sh2pc", "less_u16", number) for number in (COMPARISONS, 1))
    many = bench.repeat("many", lambda: _pair("less_u16", COMPARISONS, "evaluate"), peer)
    one = bench.repeat("one", lambda: _pair("less_u16", 1, "evaluate"), peer_of_one)

    def after(step: str) -> list[float]:
        return [(run["steps"]["done"] - run["steps"][step]) / COMPARISONS for run in many]

    how = "fresh parties, two processes, mutual TLS on loopback, from open channels to both having the output"
    bound = "bound by the cores: a third is the base transfers, another TLS and sockets"
    setup = (
        "the setup: hellos, base transfers and one label, drawn at random, of each of the evaluator's input "
        "wires, with all checks; after it: everything that depends on an input, garbling, tables and outputs"
    )
    figures = [
        Figure(
            f"{COMPARISONS} comparisons",
            "s",
            [run["steps"]["done"] for run in many],
            "lower",
            f"{how}; {bound}",
            peer.peer("total", "s", PLAIN),
            target=Target("median", 0.040),
        ),
        Figure(
            "a comparison after setup",
            "s",
            after("inputs"),
            "lower",
            f"{how}; {setup}",
            peer.peer("online", "s", f"{PLAIN}; its setup has as much", lambda value: value / COMPARISONS),
            target=Target("median", 1.5e-6),
        ),
        Figure(
            "a comparison after the base transfers",
            "s",
            after("transfers"),
            "lower",
            f"{how}; random transfers included, hellos and base transfers not",
        ),
        Figure(
            f"{COMPARISONS} comparisons, sent",
            "B",
            [run["bytes"] for run in many],
            "lower",
            how,
            peer.peer("sent", "B", PLAIN),
        ),
        Figure(
            "one comparison",
            "s",
            [run["steps"]["done"] for run in one],
            "lower",
            how,
            peer_of_one.peer("total", "s", PLAIN),
        ),
        Figure(
            "one comparison, sent",
            "B",
            [run["bytes"] for run in one],
            "lower",
            how,
            peer_of_one.peer("sent", "B", PLAIN),
        ),
    ]
    return bench.report(figures)


def _pair(circuit: str, instances: int, what: str) -> dict[str, Any]:
    """Run a fresh pair of processes and return what the evaluator measured."""
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        session = create_pairwise_session(
            folder, {"circuit": circuit, "instances": instances, "output": "both"}
        )
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "smpc_dp_lab.bench.pairwise_worker", str(session), name, what],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in ("garbler", "evaluator")
        ]
        try:
            ended = [worker.communicate(timeout=WORKER_SECONDS) for worker in workers]
        except subprocess.TimeoutExpired:
            raise LocalError(f"{circuit}: a measuring process took more than {WORKER_SECONDS} s") from None
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    if any(worker.returncode for worker in workers):
        lines = "".join(errors for _, errors in ended).strip().splitlines() or ["no message"]
        raise LocalError(f"{circuit}: a measuring process failed: {lines[-1]}")
    measured: dict[str, Any] = json.loads(ended[1][0])
    return measured


def _keys(mode: Mode, tile: int) -> str:
    return f"{tile} instances share keys" if mode is Mode.TILE else "keys unique to gate and instance"


def _median(values: list[float]) -> float:
    return float(np.median(values))
