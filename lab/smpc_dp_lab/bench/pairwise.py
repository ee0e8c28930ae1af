"""Benchmarks of the two-party engine: garbling, oblivious transfer, and comparisons end to end.

Figures between two processes go over the mutual-TLS channel on loopback, garbler and evaluator on the same
host. The peers are programs that are compiled elsewhere (`bench.drivers`) and run in turns with ours.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any, TypeVar

from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.requests.pairwise import create_pairwise_session
from smpc_dp.crypto.garble import Mode
from smpc_dp.crypto.ot import FIELD_SIZES
from smpc_dp_lab.bench import transfers
from smpc_dp_lab.bench.drivers import DriverPeers, Trial
from smpc_dp_lab.bench.figures import (
    Figure,
    Limit,
    Measure,
    Progress,
    Report,
    Steps,
    Target,
    alternate,
    cost,
    rate,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.garbling_core import rates
from smpc_dp_lab.bench.pair_floor import garbling_seconds
from smpc_dp_lab.bench.workers import together

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

PEERS = Target("ratio_to_peer", 1.0)
FLOOR = Target("ratio_to_limit", 1 / 1.25)

T = TypeVar("T")


class _Bench:
    """Settings of one benchmark, and rounds that take turns with emp's compiled drivers."""

    def __init__(
        self, name: str, runs: int, progress: Progress | None, emp: str | None, drivers: list[str]
    ) -> None:
        refuse(within("runs", runs, 1))
        self.name, self.runs, self.progress = name, runs, progress
        self.emp = DriverPeers(emp, drivers)

    def repeat(self, name: str, measure: Callable[[], T], peer: Trial) -> list[T]:
        """Take `runs` measurements in turns with the peer's, after one that is thrown away."""
        taken: list[T] = []

        def ours() -> None:
            taken.append(measure())

        measure()
        self.alternate(name, {"ours": ours, "peer": peer})
        return taken

    def alternate(self, name: str, measures: dict[str, Measure]) -> dict[str, list[float]]:
        """Take `runs` rounds of all `measures`, and report the progress of each."""
        return alternate(self.runs, measures, Steps(self.progress, name, self.runs))

    def report(self, figures: list[Figure]) -> Report:
        known = versions("numpy", **self.emp.versions)
        return Report(self.name, figures, known, {"runs": self.runs})


def run_garbling_bench(runs: int = 7, progress: Progress | None = None, emp: str | None = None) -> Report:
    """Measure garbling and evaluation in memory, and evaluations between two processes.

    `emp` is a folder with the peers' drivers; None for no peers.

    Raises ConfigError for fewer than 1 runs, LocalError when a measuring process or a peer's driver fails.
    """
    bench = _Bench("garbling", runs, progress, emp, ["emp_garbling", "emp_sh2pc"])
    figures = []
    for circuit, instances, mode, targets in (
        ("less_u64", 1 << 16, Mode.TILE, (PEERS, PEERS)),
        ("less_u64", 1 << 16, Mode.UNIQUE, None),
        ("aes128", 1, Mode.UNIQUE, (PEERS, PEERS)),
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
    peer = bench.emp.trial("emp_garbling", circuit, instances, keys, repeats)
    taken = bench.repeat(
        f"{circuit} x {instances}, {mode.value} keys",
        lambda: rates(plan.compiled, instances, mode=mode, tile=tile, runs=repeats).per_second(),
        peer,
    )
    note = f"{instances} x {circuit}, one thread, in memory; bound by AES; {_keys(mode, tile)}"
    return [
        rate(
            f"{name} {circuit} x {instances}, {mode.value} keys",
            "AND/s",
            [result[index] for result in taken],
            note,
            peer=peer.peer(name, "AND/s", how),
            target=None if targets is None else targets[index],
        )
        for index, name in enumerate(("garble", "evaluate"))
    ]


def _end_to_end(bench: _Bench) -> list[Figure]:
    circuit, instances = "mul64", 8192
    plan = Plan(
        find(circuit).build(), PairwiseParameters(circuit, "garbler", "evaluator", instances=instances)
    )
    gates = plan.circuit.and_count * instances
    emp = bench.emp.trial("emp_sh2pc", circuit, instances)
    work: list[float] = []

    def measure() -> dict[str, Any]:
        # A block in memory: the side that takes more, a gate.
        block = next(plan.blocks()).count * plan.circuit.and_count
        work.append(max(garbling_seconds(plan, hashes=True)) / block)
        return _pair(circuit, instances, "channel evaluate")

    taken = bench.repeat("end to end", measure, emp)
    values = [gates / run["steps"]["done"] for run in taken]
    limit = Limit.of("channel, 32 bytes an AND", [run["channel"] / AND_BYTES for run in taken])
    note = (
        f"{instances} x {circuit}, two processes, mutual TLS on loopback, tiles share keys, transfers and "
        "outputs included; bound by the cores: TLS and sockets take about 50 ns of CPU an AND on both sides "
        "together, hashing 10, garbling and evaluating 13"
    )
    floor = Limit.of(
        "counted floor: bytes over the channel, then garbling or evaluating and hashing",
        [1 / (AND_BYTES / run["channel"] + median(work)) for run in taken],
    )
    most, name, peer = Target("ratio_to_limit", 0.75), "end to end", emp.peer("rate", "AND/s", PLAIN)
    return [
        rate(f"{name}, of the channel", "AND/s", values, note, limit=limit, target=most),
        rate(f"{name}, of the counted floor", "AND/s", values, note, limit=floor, target=FLOOR),
        rate(name, "AND/s", values, note, peer=peer, target=PEERS),
    ]


def run_ot_bench(runs: int = 7, progress: Progress | None = None, emp: str | None = None) -> Report:
    """Measure setup and correlated oblivious transfers, in memory and between processes."""
    bench = _Bench("ot", runs, progress, emp, ["emp_ot"])
    count = transfers.CHUNKS * transfers.CHUNK
    trials = {k: bench.emp.trial("emp_ot", k, count) for k in FIELD_SIZES}
    figures = transfers.transfer_figures(
        lambda measures: bench.alternate("transfers", measures),
        lambda: _pair("add32", 1, "channel transfers"),
        trials,
    )
    return bench.report([*transfers.setup_figures(runs, trials[2]), *figures])


def run_compare_bench(runs: int = 7, progress: Progress | None = None, emp: str | None = None) -> Report:
    """Measure comparisons of 16-bit integers by new pairs: many together, and a single one."""
    bench = _Bench("compare", runs, progress, emp, ["emp_sh2pc"])
    peer, peer_of_one = (bench.emp.trial("emp_sh2pc", "less_u16", number) for number in (COMPARISONS, 1))
    many = bench.repeat("many", lambda: _pair("less_u16", COMPARISONS, "evaluate"), peer)
    one = bench.repeat("one", lambda: _pair("less_u16", 1, "evaluate"), peer_of_one)
    channel = median(_pair("add32", 1, "channel")["channel"] for _ in range(runs))
    tables = find("less_u16").build().and_count * AND_BYTES

    def after(step: str) -> list[float]:
        return [(run["steps"]["done"] - run["steps"][step]) / COMPARISONS for run in many]

    how = "fresh parties, two processes, mutual TLS on loopback, from open channels to both having the output"
    bound = "bound by the cores: a third is the base transfers, another TLS and sockets"
    setup = (
        "the setup: hellos, base transfers and one label, drawn at random, of each of the evaluator's input "
        "wires, with all checks; after it: everything that depends on an input, garbling, tables and outputs"
    )
    alike = peer.peer("online", "s", f"{PLAIN}; its setup has as much", lambda value: value / COMPARISONS)
    base = f"{how}; random transfers included, hellos and base transfers not"

    def done(name: str, runs: list[dict[str, Any]], beside: Trial, note: str, goal: Target) -> Figure:
        seconds = [run["steps"]["done"] for run in runs]
        floor = Limit.of("bytes sent, over the channel alone", [run["bytes"] / channel for run in runs])
        return cost(name, "s", seconds, note, peer=beside.peer("total", "s", PLAIN), limit=floor, target=goal)

    def sent(name: str, runs: list[dict[str, Any]], beside: Trial) -> Figure:
        return cost(name, "B", [run["bytes"] for run in runs], how, peer=beside.peer("sent", "B", PLAIN))

    name, online = f"{COMPARISONS} comparisons", "a comparison after setup"
    return bench.report(
        [
            done(name, many, peer, f"{how}; {bound}", PEERS),
            cost(
                online,
                "s",
                after("inputs"),
                f"{how}; {setup}",
                peer=alike,
                limit=Limit("tables, over the channel alone", tables / channel),
                target=PEERS,
            ),
            cost("a comparison after the base transfers", "s", after("transfers"), base),
            sent(f"{name}, sent", many, peer),
            done("one comparison", one, peer_of_one, how, PEERS),
            sent("one comparison, sent", one, peer_of_one),
        ]
    )


def _pair(circuit: str, instances: int, title: str) -> dict[str, Any]:
    """Run a fresh pair of processes and return the evaluator's measurements."""
    return pair_of_processes(circuit, instances, title)[1]


def pair_of_processes(circuit: str, instances: int, title: str) -> list[dict[str, Any]]:
    """Run a fresh pair of processes and return the measurements of garbler and evaluator."""
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        session = create_pairwise_session(
            folder, {"circuit": circuit, "instances": instances, "output": "both"}
        )
        calls = [[str(session), name, title] for name in ("garbler", "evaluator")]
        printed = together("pairwise_worker", calls, f"{circuit}: a measuring process", WORKER_SECONDS)
    return [json.loads(reported) for reported in printed]


def _keys(mode: Mode, tile: int) -> str:
    return f"{tile} instances share keys" if mode is Mode.TILE else "keys unique to gate and instance"
