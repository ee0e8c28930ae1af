"""`smpc-dp bench pairwise`: what a pair of a pairwise statistic costs, alone, cached, in a batch and in mass.

The circuit is the published `kendall_tau32_laplace`: Kendall's tau of records of two 32-bit integers, with
discrete Laplace noise of epsilon 1. Garbler, evaluator and aggregator are three processes over mutual TLS.
The peers take turns with ours: mpyc, and emp-sh2pc in a program that is compiled elsewhere (`bench.drivers`).
"""

from __future__ import annotations

import json
import platform
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp.circuits.bristol import format_bristol
from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.published.kernels import TAU_COINS
from smpc_dp.published.library import find
from smpc_dp.runtime.pairwise import AGGREGATOR, create_pairwise_session
from smpc_dp_lab.bench.drivers import DriverPeers, Turn
from smpc_dp_lab.bench.figures import Figure, Peer, Report, Target, alternate

CIRCUIT = "kendall_tau32_laplace"
BATCH = 20_000
PARTIES = 246_000
# Evaluations that mpyc makes at once, and what it is.
PEER_BATCH = 50
PEER = "semi-honest with an honest majority, preprocessing included, channels not encrypted"
EMP = "emp_circuit"
EMP_PEER = "semi-honest, channel not encrypted and connected before, the garbler learns the output"
# Fresh pairs of one process; the last one counts, and the first is told too.
FRESH = 4
WORKER_SECONDS = 600
_NAMES = ("garbler", "evaluator", AGGREGATOR)

Progress = Callable[[str, int, int], None]
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
    faults = []
    if runs < 1:
        faults.append(Fault("runs", f"must be at least 1, is {runs}"))
    if parties < 2:
        faults.append(Fault("parties", f"must be at least 2, is {parties}"))
    if faults:
        raise ConfigError(faults)
    ones: list[dict[str, Measured]] = []
    batches: list[dict[str, Measured]] = []
    wholes: list[Measured] = []
    peers: list[Measured] = []
    rounds = count(1)

    def advance() -> None:
        if progress is not None:
            progress("pairs", next(rounds), runs)

    drivers = DriverPeers(emp, [EMP])
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        path = Path(folder) / f"{CIRCUIT}.txt"
        path.write_bytes(format_bristol(find(CIRCUIT).build()))
        one, many = drivers.turn(EMP, str(path), 1, FRESH), drivers.turn(EMP, str(path), BATCH, 1)
        turns: dict[str, Callable[[], None]] = {
            "one": lambda: ones.append(garbled_session(1)),
            "emp's one": one,
            "batch": lambda: batches.append(garbled_session(BATCH)),
            "emp's batch": many,
            "whole": lambda: wholes.append(_worker_of(["whole", str(parties)])),
            "mpyc": lambda: peers.append(_mpyc(peer_python or sys.executable)),
        }
        alternate(runs, turns, advance)
    figures = [*_of_pairs(ones, peers, one), *_of_batches(batches, peers, many), *_of_wholes(wholes, ones)]
    versions = {
        "smpc-dp": version("smpc-dp"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "openssl": ssl.OPENSSL_VERSION,
        "mpyc": peers[0].get("version"),
        **drivers.versions,
    }
    return Report("pairwise", figures, versions, {"runs": runs, "parties": parties, "batch": BATCH})


def _of_pairs(ones: list[dict[str, Measured]], peers: list[Measured], emp: Turn) -> list[Figure]:
    gates = find(CIRCUIT).build().and_count
    how = (
        f"{CIRCUIT}, three processes, mutual TLS on loopback; processor time of all threads of a side, "
        "from when it has the compiled circuit, keys and TLS contexts; without interpreter start and imports"
    )

    def of(name: str, key: str) -> list[float]:
        return [float(one[name][key]) for one in ones]

    figures = [
        Figure(
            f"fresh pair, {name}",
            "s",
            of(name, "fresh"),
            "lower",
            f"{how}; connecting and the setup of oblivious transfers included, pair {FRESH} of a process",
            emp.peer(f"last {name}", "s", EMP_PEER),
            target=Target("median", 0.025),
        )
        for name in ("garbler", "evaluator")
    ]
    figures += [
        Figure(
            f"first pair of a process, {name}",
            "s",
            of(name, "first"),
            "lower",
            f"{how}; the same of the first pair, all caches cold",
            emp.peer(f"first {name}", "s", EMP_PEER),
            target=Target("median", 0.025),
        )
        for name in ("garbler", "evaluator")
    ]
    figures += [
        Figure(f"fresh pair, {name}: connecting", "s", of(name, "connect"), "lower", f"{how}; TLS alone")
        for name in ("garbler", "evaluator")
    ]
    figures += [
        Figure(
            f"pair with cached setup, {name}",
            "s",
            of(name, "cached"),
            "lower",
            how,
            _peer(peers, "one cpu", f"mpyc, a party of three, {PEER}"),
        )
        for name in ("garbler", "evaluator")
    ]
    sizes = "bytes of messages both sides send, to the aggregator too; without TLS and frames"
    theirs = emp.peer("last sent", "B", EMP_PEER)
    for what, key, goal, peer in (
        ("fresh pair", "bytes", 100e3, theirs),
        ("pair with cached setup", "cached_bytes", None, None),
    ):
        values = [float(one["garbler"][key] + one["evaluator"][key]) for one in ones]
        target = None if goal is None else Target("median", goal)
        figures.append(Figure(f"{what}, sent", "B", values, "lower", sizes, peer, target=target))
    waits = "how often the evaluator waits after it has sent"
    figures += [
        Figure("fresh pair, rounds", "rounds", of("evaluator", "rounds"), "lower", waits),
        Figure("pair with cached setup, rounds", "rounds", of("evaluator", "cached_rounds"), "lower", waits),
        Figure(
            "fresh pair, wall",
            "s",
            of("evaluator", "wall"),
            "lower",
            f"{how}; the clock",
            emp.peer("last wall", "s", EMP_PEER),
        ),
        Figure("pair, AND gates", "AND", [float(gates)], "lower", "of the published circuit"),
    ]
    return figures


def _of_batches(batches: list[dict[str, Measured]], peers: list[Measured], emp: Turn) -> list[Figure]:
    def theirs(key: str, unit: str) -> Peer | None:
        return emp.peer(f"last {key}", unit, EMP_PEER, lambda value: value / BATCH)

    return [
        Figure(
            f"a pair of {BATCH} between two hosts",
            "s",
            [float(batch["evaluator"]["wall"]) / BATCH for batch in batches],
            "lower",
            f"{BATCH} evaluations at once between the same two, the clock, setup and connecting included",
            theirs("wall", "s"),
        ),
        *(
            Figure(
                f"a pair of {BATCH} between two hosts, {name}",
                "s",
                [float(batch[name]["fresh"]) / BATCH for batch in batches],
                "lower",
                "the same, processor time of all threads",
                theirs(name, "s"),
            )
            for name in ("garbler", "evaluator")
        ),
        Figure(
            f"a pair of {BATCH} between two hosts, both sides",
            "s",
            [float(b["garbler"]["fresh"] + b["evaluator"]["fresh"]) / BATCH for b in batches],
            "lower",
            "the same, processor time of garbler and evaluator together",
            _peer(peers, "many cpu", f"mpyc, {PEER_BATCH} at once, three times party 0's", 3),
            target=Target("median", 50e-6),
        ),
        Figure(
            f"a pair of {BATCH} between two hosts, sent",
            "B",
            [float(b["garbler"]["bytes"] + b["evaluator"]["bytes"]) / BATCH for b in batches],
            "lower",
            "the same, bytes of messages",
            theirs("sent", "B"),
        ),
    ]


def _of_wholes(wholes: list[Measured], ones: list[dict[str, Measured]]) -> list[Figure]:
    pairs = int(wholes[0]["pairs"])
    fresh = [
        pairs * sum(float(one[name]["fresh"] - one[name]["cached"]) for name in ("garbler", "evaluator"))
        for one in ones
    ]
    how = (
        "every gate garbled, every transfer extended, every table evaluated, every label checked, by one "
        "thread of one process; one setup of transfers for all"
    )
    # The sizes that the targets were set for.
    goal = Target("median", 60.0) if pairs == PARTIES // 2 else None
    return [
        Figure(
            f"{pairs} pairs in one process",
            "s",
            [float(each["wall"]) for each in wholes],
            "lower",
            how,
            target=goal,
        ),
        Figure(
            f"{pairs} pairs in one process, memory",
            "B",
            [float(each["memory"]) for each in wholes],
            "lower",
            "greatest resident size, the interpreter included",
        ),
        Figure(
            f"{pairs} fresh setups and connections",
            "s",
            fresh,
            "lower",
            "not measured as such: what a fresh pair costs both sides beyond a cached one, times the pairs; "
            "spread over all users",
        ),
    ]


def _peer(peers: list[Measured], key: str, name: str, times: int = 1) -> Peer | None:
    if any("version" not in peer for peer in peers):
        return None
    values = [times * float(peer[key]) for peer in peers]
    return Peer(name, str(peers[0]["version"]), float(np.median(values)))


def _mpyc(python: str) -> Measured:
    """Let mpyc compute the same among three processes on this machine; nothing but "absent" without it."""
    asked = json.dumps({"width": 33, "instances": PEER_BATCH, "coins": TAU_COINS})
    script = str(Path(__file__).with_name("mpyc_worker.py"))
    try:
        # -P: the worker's folder is ours and must not be where mpyc's imports are looked up.
        ended = subprocess.run(
            [python, "-P", script, asked, "-M3"],
            capture_output=True,
            text=True,
            timeout=WORKER_SECONDS,
            check=False,
        )
        # mpyc logs to the same output.
        told: Measured = json.loads((ended.stdout.splitlines() or [""])[-1])
    except OSError as error:
        raise LocalError(f"{python}: cannot be run ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise LocalError(f"mpyc took more than {WORKER_SECONDS} s") from None
    except ValueError:
        raise LocalError(f"{python}: the worker of mpyc ended without an answer") from None
    return told


def garbled_session(instances: int) -> dict[str, Measured]:
    """Run garbler, evaluator and aggregator as processes; return what each measured."""
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        parameters = {
            "circuit": CIRCUIT,
            "instances": instances,
            "output": "aggregator",
            "evaluator_inputs": [3, 4, 5],
        }
        session = str(create_pairwise_session(folder, parameters))
        times = FRESH if instances == 1 else 1
        workers = {name: _start([session, name, str(times)]) for name in _NAMES}
        return _ended(workers)


def _worker_of(arguments: list[str]) -> Measured:
    return _ended({"": _start(arguments)})[""]


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "smpc_dp_lab.bench.statistic_worker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _ended(workers: Mapping[str, subprocess.Popen[str]]) -> dict[str, Measured]:
    try:
        ended = {name: worker.communicate(timeout=WORKER_SECONDS) for name, worker in workers.items()}
    except subprocess.TimeoutExpired:
        raise LocalError(f"a measuring process took more than {WORKER_SECONDS} s") from None
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    if any(worker.returncode for worker in workers.values()):
        lines = "".join(errors for _, errors in ended.values()).strip().splitlines() or ["no message"]
        raise LocalError(f"a measuring process failed: {lines[-1]}")
    return {name: json.loads(output) for name, (output, _) in ended.items()}
