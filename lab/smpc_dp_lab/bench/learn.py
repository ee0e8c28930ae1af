"""Benchmark of learners in simulation: party-steps per second, beside the authors' own code.

A synchronous tick is a step of every party, an asynchronous one a step of the two parties that meet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp_lab.bench.figures import (
    Figure,
    Measure,
    Peer,
    Progress,
    Report,
    Steps,
    Target,
    alternate,
    rate,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.gosta import scored_records
from smpc_dp_lab.bench.peer import GostaPeer

if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.topology import Topology

SIZES = (1_000, 10_000)
NEIGHBOURS, REWIRED = 10, 0.3
# Ticks a party of ours, as many as in the figures; ticks of the peer, whose speed does not depend on them.
TICKS_PER_PARTY, PEER_TICKS = 50, 3_000
DUAL_TICKS = 1_000
FEATURES = 9
TIMES_PEER = 20.0


def run_learn_bench(
    runs: int = 5,
    progress: Progress | None = None,
    sizes: Sequence[int] = SIZES,
    peer: str | None = None,
    peer_python: str | None = None,
) -> Report:
    """Measure learners in one process, by processor time, schedules included.

    Args:
        runs: measurements of each figure. sizes: parties, 100 to 100,000.
        peer: a folder with the authors' `gossip_solver.py`; None: no peer.
        peer_python: a Python with numpy below 1.23, which that code needs; None: our own.

    Raises:
        ConfigError: a number is out of range. LocalError: `peer_python` cannot be run.
    """
    wrong = not sizes or not all(100 <= parties <= 100_000 for parties in sizes)
    refuse(
        within("runs", runs, 1),
        [ConfigIssue("sizes", "must be 100 to 100,000", ConfigCheck.RANGE)] if wrong else [],
    )
    from smpc_dp.capabilities.learn import topology

    measures: dict[str, Measure] = {}
    with GostaPeer(peer, peer_python) as theirs:
        for parties in sizes:
            graph = topology.watts_strogatz(parties, NEIGHBOURS, REWIRED, 1)
            records = scored_records(parties, 1)
            for task in ("synchronous", "asynchronous"):
                measures[f"GoSta {task}, n = {parties:,}"] = _gosta(graph, records, task)
                measures[f"peer GoSta {task}, n = {parties:,}"] = _peer(theirs, task, parties)
                measures[f"dual averaging {task}, n = {parties:,}"] = _dual(graph, task)
            for name, both in _personalised(graph).items():
                measures[name], measures[f"peer {name}"] = both
        taken = alternate(runs, measures, Steps(progress, "rounds", runs))
    figures = [_figure(name, values, taken, theirs) for name, values in taken.items() if "peer" not in name]
    known = versions("numpy", gosta=theirs.version)
    return Report("learn", figures, known, {"runs": runs, "sizes": list(sizes)})


def _personalised(graph: Topology) -> dict[str, tuple[Measure, Measure]]:
    from smpc_dp_lab.bench.learn_personalized import GRAPH_PARTIES, descent_measures, graph_measures

    return {
        f"coordinate descent, n = {graph.parties:,}": descent_measures(graph),
        f"graph of n = {graph.parties:,}": graph_measures(min(graph.parties, GRAPH_PARTIES)),
    }


def _figure(name: str, values: list[float], taken: dict[str, list[float]], theirs: GostaPeer) -> Figure:
    if name.startswith(("coordinate", "graph")):
        note = (
            "p = 100, ten records a party, Watts-Strogatz graph; one update a party, together where "
            "parties are no neighbours"
            if name.startswith("coordinate")
            else "Algorithm 2.4, five peers, at most 1,000 parties; steps without a common party together"
        )
        loop = Peer.of("a loop in numpy", np.__version__, taken[f"peer {name}"])
        return rate(
            name, "updates/s" if name.startswith("coordinate") else "steps/s", values, note, peer=loop
        )
    gosta = name.startswith("GoSta")
    beside = Peer.of("the authors' gosta", theirs.version, taken.get(f"peer {name}", []))
    if gosta:
        note = (
            f"Watts-Strogatz graph, {TICKS_PER_PARTY} ticks a user, schedule included; the peer is given its "
            f"schedule and the matrix of the kernel. Ours evaluates it for the two who meet and adds up for "
            "the others what does not change, with the same results"
        )
    else:
        ticks = f"{DUAL_TICKS} ticks, or {TICKS_PER_PARTY} a user if asynchronous"
        note = f"logistic AUC, {FEATURES} features, Watts-Strogatz graph, {ticks}; no peer"
    target = Target("ratio_to_peer", TIMES_PEER) if gosta else None
    return rate(name, "user-steps/s", values, note, peer=beside, target=target)


def _rate(run: Callable[[], Coroutine[Any, Any, object]], steps: int) -> float:
    begun = time.process_time()
    asyncio.run(run())
    return steps / (time.process_time() - begun)


def _gosta(graph: Topology, records: np.ndarray[Any, np.dtype[np.float64]], task: str) -> Measure:
    from smpc_dp.capabilities.learn.averager import PlainExchange
    from smpc_dp.capabilities.learn.gosta import gosta, gosta_asynchronous
    from smpc_dp.capabilities.learn.schedule import EdgeClock
    from smpc_dp.capabilities.pairs.kernels import auc_private_labels

    kernel, ticks = auc_private_labels().function, TICKS_PER_PARTY * graph.parties
    learner, width = (gosta, graph.parties) if task == "synchronous" else (gosta_asynchronous, 2)

    def measure() -> float:
        clock = EdgeClock(graph, 1)
        return _rate(
            lambda: learner(PlainExchange(graph.parties), records, kernel, clock, ticks), width * ticks
        )

    return measure


def _peer(theirs: GostaPeer, task: str, parties: int) -> Measure:
    width = parties if task == "synchronous" else 2

    def measure() -> float | None:
        seconds = theirs.seconds(task, parties=parties, ticks=PEER_TICKS)
        return None if seconds is None else width * PEER_TICKS / seconds

    return measure


def _dual(graph: Topology, task: str) -> Measure:
    from smpc_dp.capabilities.learn.averager import PlainExchange
    from smpc_dp.capabilities.learn.dual_averaging import dual_averaging, dual_averaging_asynchronous
    from smpc_dp.capabilities.learn.pairwise_losses import logistic_auc
    from smpc_dp.capabilities.learn.schedule import EdgeClock

    rng = np.random.default_rng(1)
    labels = (np.arange(graph.parties) % 4 == 0) * 1.0
    records = np.column_stack([rng.normal(size=(graph.parties, FEATURES)) + labels[:, None], labels])
    synchronous = task == "synchronous"
    learner, width, ticks = (
        (dual_averaging, graph.parties, DUAL_TICKS)
        if synchronous
        else (dual_averaging_asynchronous, 2, TICKS_PER_PARTY * graph.parties)
    )

    def measure() -> float:
        clock = EdgeClock(graph, 1)
        gradient = logistic_auc().gradient
        return _rate(
            lambda: learner(
                PlainExchange(graph.parties), records, gradient, clock, ticks, dimension=FEATURES
            ),
            width * ticks,
        )

    return measure
