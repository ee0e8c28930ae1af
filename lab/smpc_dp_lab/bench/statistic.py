"""`smpc-dp bench pairwise`: the cost of a pair of a pairwise statistic, alone, cached and in batches.

The circuit is the published `kendall_tau32_laplace`: Kendall's tau of records of two 32-bit integers, with
discrete Laplace noise of epsilon 1. Garbler, evaluator and aggregator are three processes over mutual TLS.
The peers take turns with ours: mpyc, and emp-sh2pc in a program that is compiled elsewhere (`bench.drivers`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.published.kernels import TAU_COINS
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.requests.pairwise import AGGREGATOR, create_pairwise_session
from smpc_dp.errors import LocalError
from smpc_dp_lab.bench import covert
from smpc_dp_lab.bench.drivers import DriverPeers, Trial
from smpc_dp_lab.bench.figures import (
    Figure,
    Limit,
    Peer,
    Progress,
    Report,
    Steps,
    Target,
    alternate,
    cost,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.pairwise import pair_of_processes
from smpc_dp_lab.bench.statistic_worker import COLD
from smpc_dp_lab.bench.workers import together

CIRCUIT = "kendall_tau32_laplace"
BATCH = 20_000
PARTIES = 246_000
# Evaluations that mpyc makes at once, and what it is.
PEER_BATCH = 50
PEER = "semi-honest with an honest majority, preprocessing included, channels not encrypted"
EMP = "emp_circuit"
EMP_PEER = covert.EMP_PEER
# Fresh pairs of one process, and batches: the median of those after the first COLD counts; of pairs the first
# is reported too.
FRESH, BATCHES = 14, 4
# Sessions of emp-sh2pc in one process, of which the first and the last are reported.
EMP_FRESH = 4
WORKER_SECONDS = 600
SIDES = ("garbler", "evaluator")
FLOOR = "counted floor: connections, transfers, gates, hashes, seals, signatures, messages, bytes"
PEERS = Target("ratio_to_peer", 1.0)
_NAMES = (*SIDES, AGGREGATOR)

Measured = Mapping[str, Any]


def run_statistic_bench(
    runs: int = 5,
    progress: Progress | None = None,
    parties: int = PARTIES,
    peer_python: str | None = None,
    emp: str | None = None,
) -> Report:
    """Measure pairs of Kendall's tau with Laplace noise, and a whole statistic in one process.

    `parties` is the size of the whole statistic, P = 1; `peer_python` an interpreter that can import `mpyc`,
    None for our own; without it peers are None. `emp` is a folder with the driver of emp-sh2pc.

    Raises ConfigError for a number out of range, LocalError when a measuring process or a peer fails.
    """
    refuse(within("runs", runs, 1), within("parties", parties, 2))
    ones: list[dict[str, Measured]] = []
    batches: list[dict[str, Measured]] = []
    wholes: list[Measured] = []
    peers: list[Measured] = []
    single: dict[int, list[dict[str, Measured]]] = {copies: [] for copies in covert.COPIES}
    batched: dict[int, list[dict[str, Measured]]] = {copies: [] for copies in (0, *covert.COPIES)}
    channels: list[list[dict[str, Any]]] = []
    drivers = DriverPeers(emp, [EMP])
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        path = Path(folder) / f"{CIRCUIT}.txt"
        path.write_bytes(format_bristol(find(CIRCUIT).build()))
        one, of_batch, many = (
            drivers.trial(EMP, str(path), instances, EMP_FRESH) for instances in (1, covert.BATCH, BATCH)
        )
        trials: dict[str, Callable[[], None]] = {
            "one": lambda: ones.append(garbled_session(1)),
            "emp's one": one,
            "batch": lambda: batches.append(garbled_session(BATCH)),
            "emp's batch": many,
            "emp's smaller batch": of_batch,
            "channel": lambda: channels.append(pair_of_processes("add32", 1, "channel")),
            "whole": lambda: wholes.append(_worker_of(["whole", str(parties)])),
            "mpyc": lambda: peers.append(_mpyc(peer_python or sys.executable)),
        }
        for copies in batched:
            trials |= _covert_trials(copies, single, batched)
        alternate(runs, trials, Steps(progress, "pairs", runs))
    limits = [_floors(channels, pairs) for pairs in (ones, batches)]
    figures = [
        *_of_pairs(ones, peers, one, limits[0]),
        *_of_batches(batches, peers, many, limits[1]),
        *_of_wholes(wholes, ones),
    ]
    emps = {1: one, covert.BATCH: of_batch}
    figures += covert.covert_figures(CIRCUIT, single, batched, emps)
    known = versions("numpy", mpyc=peers[0].get("version"), **drivers.versions)
    return Report("pairwise", figures, known, {"runs": runs, "parties": parties, "batch": BATCH})


def _covert_trials(
    copies: int,
    single: Mapping[int, list[dict[str, Measured]]],
    batched: Mapping[int, list[dict[str, Measured]]],
) -> dict[str, Callable[[], None]]:
    """Return the measurements with so many copies; without any, of a batch alone."""
    trials: dict[str, Callable[[], None]] = {
        f"batch, {copies} copies": lambda: batched[copies].append(garbled_session(covert.BATCH, copies))
    }
    if not copies:
        return trials

    return {
        f"one, {copies} copies": lambda: single[copies].append(garbled_session(1, copies)),
        **trials,
    }


def _floors(channels: list[list[dict[str, Any]]], pairs: list[dict[str, Measured]]) -> dict[str, list[float]]:
    """Return the counted floors of each side: its own, and all bytes over the channel."""
    return {
        name: [
            float(pair[name]["floor"] + both(pair, "bytes") * channel[index]["processor seconds a byte"])
            for channel, pair in zip(channels, pairs, strict=True)
        ]
        for index, name in enumerate(SIDES)
    }


def _of_pairs(
    ones: list[dict[str, Measured]],
    peers: list[Measured],
    emp: Trial,
    floors: Mapping[str, Sequence[float]],
) -> list[Figure]:
    gates = find(CIRCUIT).build().and_count
    how = (
        f"{CIRCUIT}, three processes, mutual TLS on loopback; processor time of all threads of a side, "
        "from when it has the compiled circuit, keys and TLS contexts; without interpreter start and imports"
    )

    def of(name: str, key: str) -> list[float]:
        return [float(one[name][key]) for one in ones]

    goal, theirs = PEERS, _peer(peers, "one cpu", f"mpyc, a party of three, {PEER}")
    repeated = f"median of {FRESH - COLD} pairs of a process"
    fresh = f"{how}; connecting and the setup of oblivious transfers included, {repeated}"
    cold = f"{how}; the same of the first pair, all caches cold"
    # Which figure, of which key, with which note, peer and target; of both sides each.
    kinds: tuple[tuple[str, str, str, Callable[[str], Peer | None], Target | None], ...] = (
        ("fresh pair, {}", "fresh", fresh, lambda name: emp.peer(f"last {name}", "s", EMP_PEER), goal),
        (
            "first pair of a process, {}",
            "first",
            cold,
            lambda name: emp.peer(f"first {name}", "s", EMP_PEER),
            goal,
        ),
        ("fresh pair, {}: connecting", "connect", f"{how}; TLS alone", lambda _: None, None),
        ("pair with cached setup, {}", "cached", how, lambda _: theirs, None),
    )
    limits = {name: Limit.of(FLOOR, floors[name]) for name in SIDES}
    figures = [
        cost(
            title.format(name),
            "s",
            of(name, key),
            note,
            peer=peer(name),
            limit=limits[name] if target else None,
            target=target,
        )
        for title, key, note, peer, target in kinds
        for name in SIDES
    ]
    sizes = "bytes of messages both sides send, to the aggregator too; without TLS and frames"
    waits = "how often the evaluator waits after it has sent"

    def sent(key: str) -> list[float]:
        return [both(one, key) for one in ones]

    spent = "processor time of the counted floors of both sides"
    clock = f"{CIRCUIT}, three processes, the clock; connecting and setup included, base transfers on all "
    last = emp.peer("last sent", "B", EMP_PEER)
    wall = emp.peer("last wall", "s", EMP_PEER)
    return [
        *figures,
        cost("fresh pair, sent", "B", sent("bytes"), sizes, peer=last),
        cost("pair with cached setup, sent", "B", sent("cached_bytes"), sizes),
        cost("fresh pair, rounds", "rounds", of("evaluator", "rounds"), waits),
        cost("pair with cached setup, rounds", "rounds", of("evaluator", "cached_rounds"), waits),
        cost(
            "fresh pair, wall",
            "s",
            of("evaluator", "wall"),
            f"{clock}processors, {repeated}",
            peer=wall,
            limit=Limit.of(spent, [sum(sides) for sides in zip(*floors.values(), strict=True)]),
            target=PEERS,
        ),
        cost("pair, AND gates", "AND", [gates], "of the published circuit"),
    ]


def both(pair: Mapping[str, Measured], key: str) -> float:
    """Return a measurement of garbler and evaluator, added up."""
    return float(sum(pair[name][key] for name in SIDES))


def _of_batches(
    batches: list[dict[str, Measured]],
    peers: list[Measured],
    emp: Trial,
    floors: Mapping[str, Sequence[float]],
) -> list[Figure]:
    def of(title: str, unit: str, values: list[float], note: str, **beside: Any) -> Figure:
        name = f"a pair of {BATCH} between two hosts{title}"
        return cost(name, unit, [value / BATCH for value in values], note, **beside)

    def theirs(key: str, unit: str) -> Peer | None:
        return emp.peer(f"last {key}", unit, EMP_PEER, lambda value: value / BATCH)

    at_once = (
        f"{BATCH} evaluations at once between the same two, the clock, setup and connecting included, "
        f"median of {BATCHES - COLD} batches of a process"
    )
    slower = "counted floor of the side that has more to do: both work at the same time"
    mpyc = _peer(peers, "many cpu", f"mpyc, {PEER_BATCH} at once, three times party 0's", 3)
    return [
        of(
            "",
            "s",
            [batch["evaluator"]["wall"] for batch in batches],
            at_once,
            peer=theirs("wall", "s"),
            limit=Limit.of(slower, [max(sides) / BATCH for sides in zip(*floors.values(), strict=True)]),
            target=PEERS,
        ),
        *(
            of(
                f", {name}",
                "s",
                [batch[name]["fresh"] for batch in batches],
                "the same, processor time of all threads",
                peer=theirs(name, "s"),
                limit=Limit.of(FLOOR, [value / BATCH for value in floors[name]]),
                target=PEERS,
            )
            for name in SIDES
        ),
        of(
            ", both sides",
            "s",
            [both(batch, "fresh") for batch in batches],
            "the same, processor time of garbler and evaluator together",
            peer=mpyc,
        ),
        of(
            ", sent",
            "B",
            [both(batch, "bytes") for batch in batches],
            "the same, bytes of messages",
            peer=theirs("sent", "B"),
        ),
    ]


def _of_wholes(wholes: list[Measured], ones: list[dict[str, Measured]]) -> list[Figure]:
    pairs = int(wholes[0]["pairs"])
    fresh = [pairs * (both(one, "fresh") - both(one, "cached")) for one in ones]
    how = (
        "every gate garbled, every transfer extended, every table evaluated, every label checked, by one "
        "thread of one process; one setup of transfers for all"
    )
    beyond = (
        "not measured as such: what a fresh pair costs both sides beyond a cached one, times the pairs; "
        "spread over all users"
    )
    resident = "greatest resident size, the interpreter included"
    name = f"{pairs} pairs in one process"
    return [
        cost(name, "s", [each["wall"] for each in wholes], how),
        cost(f"{name}, memory", "B", [each["memory"] for each in wholes], resident),
        cost(f"{pairs} fresh setups and connections", "s", fresh, beyond),
    ]


def _peer(peers: list[Measured], key: str, name: str, times: int = 1) -> Peer | None:
    if any("version" not in peer for peer in peers):
        return None
    return Peer.of(name, str(peers[0]["version"]), [times * float(peer[key]) for peer in peers])


def _mpyc(python: str) -> Measured:
    """Run mpyc's computation among three processes on this host; return only "absent" without it."""
    requested = json.dumps({"width": 33, "instances": PEER_BATCH, "coins": TAU_COINS})
    script = str(Path(__file__).with_name("mpyc_worker.py"))
    try:
        # -P: the worker's folder is ours and must not be where mpyc's imports are looked up.
        ended = subprocess.run(
            [python, "-P", script, requested, "-M3"],
            capture_output=True,
            text=True,
            timeout=WORKER_SECONDS,
            check=False,
        )
        # mpyc logs to the same output.
        reported: Measured = json.loads((ended.stdout.splitlines() or [""])[-1])
    except OSError as error:
        raise LocalError(f"{python}: cannot be run ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise LocalError(f"mpyc took more than {WORKER_SECONDS} s") from None
    except ValueError:
        raise LocalError(f"{python}: the worker of mpyc ended without an answer") from None
    return reported


def garbled_session(instances: int, copies: int = 0) -> dict[str, Measured]:
    """Run garbler, evaluator and aggregator as processes; return the measurements of each."""
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        parameters = covert.parameters(CIRCUIT, instances, copies)
        session = str(create_pairwise_session(folder, parameters))
        times = FRESH if instances <= covert.BATCH else BATCHES
        calls = [[session, name, str(times)] for name in _NAMES]
        return dict(zip(_NAMES, _ended(calls), strict=True))


def _worker_of(arguments: list[str]) -> Measured:
    return _ended([arguments])[0]


def _ended(calls: list[list[str]]) -> list[Measured]:
    printed = together("statistic_worker", calls, "a measuring process", WORKER_SECONDS)
    return [json.loads(reported) for reported in printed]
