"""The benchmarks of the two-party engine: garbling, oblivious transfer, and comparisons end to end.

Figures between two processes go over the mutual-TLS channel on loopback, garbler and evaluator on the same
machine. Peers are not built here: they are null unless somebody measures them beside us.
"""

from __future__ import annotations

import json
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from smpc_dp.bench.figures import Figure, Limit, Report, Target, alternate
from smpc_dp.bench.garbling_core import rates
from smpc_dp.circuits.library import find
from smpc_dp.crypto.garble import Mode
from smpc_dp.crypto.ot import CONTEXT_BYTES, Receiver, Sender
from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.protocols.pairwise.params import PairwiseParameters
from smpc_dp.protocols.pairwise.plan import FIELD, Plan
from smpc_dp.runtime.pairwise import create_pairwise_session

AND_BYTES = 32
COMPARISONS = 10_000
WORKER_SECONDS = 300

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class _Bench:
    name: str
    runs: int
    progress: Progress | None

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise ConfigError([Fault("runs", f"must be at least 1, is {self.runs}")])

    def repeat(self, what: str, measure: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """Take `runs` measurements after one that is thrown away."""
        measure()
        taken = []
        for run in range(self.runs):
            taken.append(measure())
            if self.progress is not None:
                self.progress(what, run + 1, self.runs)
        return taken

    def report(self, figures: list[Figure]) -> Report:
        versions = {
            "smpc-dp": version("smpc-dp"),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        return Report(self.name, figures, versions, {"runs": self.runs})


def run_garbling_bench(runs: int = 7, progress: Progress | None = None) -> Report:
    """Measure garbling and evaluation in memory, and evaluations between two processes.

    Raises ConfigError for fewer than 1 runs, LocalError when a measuring process fails.
    """
    bench = _Bench("garbling", runs, progress)
    figures = []
    for circuit, instances, mode, targets in (
        ("less_u64", 1 << 16, Mode.TILE, (110e6, 120e6)),
        ("less_u64", 1 << 16, Mode.UNIQUE, None),
        ("aes128", 1, Mode.UNIQUE, None),
    ):
        plan = Plan(
            find(circuit).build(), PairwiseParameters(circuit, "garbler", "evaluator", instances=instances)
        )
        timed = rates(plan.compiled, instances, mode=mode, runs=max(runs, 21 if instances == 1 else runs))
        note = f"{instances} x {circuit}, one thread, in memory; bound by AES; {_keys(mode)}"
        for place, (what, seconds) in enumerate((("garble", timed.garble), ("evaluate", timed.evaluate))):
            figures.append(
                Figure(
                    f"{what} {circuit} x {instances}, {mode.value} keys",
                    "AND/s",
                    [timed.gates / second for second in seconds],
                    "higher",
                    note,
                    target=None if targets is None else Target("median", targets[place]),
                )
            )
    return bench.report([*figures, *_end_to_end(bench)])


def _end_to_end(bench: _Bench) -> list[Figure]:
    circuit, instances = "mul64", 8192
    gates = find(circuit).build().and_count * instances
    taken = bench.repeat("end to end", lambda: _pair(circuit, instances, "channel evaluate"))
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
        Figure(what, "AND/s", values, "higher", note, target=Target("median", 20e6)),
    ]


def run_ot_bench(runs: int = 7, progress: Progress | None = None) -> Report:
    """Measure the setup and correlated transfers, in memory and over the channel. Errors as above."""
    bench = _Bench("ot", runs, progress)
    count = 1 << 18

    def setup() -> tuple[Sender, Receiver, float]:
        sender = Sender("receiver", bytes(CONTEXT_BYTES), secrets.token_bytes(32), FIELD)
        began = time.perf_counter()
        receiver = Receiver("sender", bytes(CONTEXT_BYTES), secrets.token_bytes(32), FIELD)
        sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
        return sender, receiver, time.perf_counter() - began

    sender, receiver, _ = setup()

    def extension() -> float:
        choices = secrets.token_bytes(count // 8)
        began = time.perf_counter()
        response, _ = receiver.correlated(sender.challenge(count, receiver.extend(count, choices)))
        sender.correlated(response)
        return count / (time.perf_counter() - began)

    extension()
    taken = alternate(bench.runs, {"setup": lambda: setup()[2], "extension": extension})
    over = [run["transfers"] for run in bench.repeat("transfers", lambda: _pair("add32", 1, "transfers"))]
    figures = [
        Figure(
            "setup",
            "s",
            taken["setup"],
            "lower",
            f"128 base transfers and trees of k = {FIELD}, both sides in turn; bound by ristretto255",
        ),
        Figure(
            "correlated transfers in memory",
            "OT/s",
            taken["extension"],
            "higher",
            f"SoftSpoken k = {FIELD} with its check, chunks of {count}, both sides in turn on one thread",
            target=Target("median", 80e6),
        ),
        Figure(
            "correlated transfers over the channel",
            "OT/s",
            over,
            "higher",
            f"chunks of {1 << 18}, one after the other, two processes, mutual TLS on loopback",
            target=Target("median", 50e6),
        ),
    ]
    return bench.report(figures)


def run_compare_bench(runs: int = 7, progress: Progress | None = None) -> Report:
    """Measure comparisons of 16-bit integers by fresh parties: many, and a single one. Errors as above."""
    bench = _Bench("compare", runs, progress)
    many = bench.repeat("many", lambda: _pair("less_u16", COMPARISONS, "evaluate"))
    one = bench.repeat("one", lambda: _pair("less_u16", 1, "evaluate"))
    after = [(run["steps"]["done"] - run["steps"]["labels"]) / COMPARISONS for run in many]
    how = "fresh parties, two processes, mutual TLS on loopback, from open channels to both having the output"
    bound = "bound by the setup of oblivious transfers, and by the operating system finding fresh memory"
    figures = [
        Figure(
            f"{COMPARISONS} comparisons",
            "s",
            [run["steps"]["done"] for run in many],
            "lower",
            f"{how}; {bound}",
            target=Target("median", 0.040),
        ),
        Figure("a comparison after setup", "s", after, "lower", how, target=Target("median", 1.5e-6)),
        Figure(f"{COMPARISONS} comparisons, sent", "bytes", [run["bytes"] for run in many], "lower", how),
        Figure("one comparison", "s", [run["steps"]["done"] for run in one], "lower", how),
        Figure("one comparison, sent", "bytes", [run["bytes"] for run in one], "lower", how),
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
                [sys.executable, "-m", "smpc_dp.bench.pairwise_worker", str(session), name, what],
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


def _keys(mode: Mode) -> str:
    return "a tile's instances share keys" if mode is Mode.TILE else "keys unique to gate and instance"


def _median(values: list[float]) -> float:
    return float(np.median(values))
