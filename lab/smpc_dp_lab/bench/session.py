"""`smpc-dp bench session`: one average of a large model in a session, each member a process of this host."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp_lab.bench.figures import Figure, Limit, Progress, Report, Steps, cost, refuse, versions, within
from smpc_dp_lab.bench.workers import together

WORKER_SECONDS = 1_800.0
PRECISION = 1e-6
HOW = "processes of one host, mutual TLS on loopback; a dict of float32 arrays in [-1, 1]"


def run_session_bench(parties: int, length: int, runs: int = 1, progress: Progress | None = None) -> Report:
    """Measure `session.average(tree)`; raise ConfigError for a size, LocalError where a process fails."""
    refuse(
        within("parties", parties, 3, 1_000), within("length", length, 1, 1 << 26), within("runs", runs, 1)
    )
    advance = Steps(progress, "averages", runs)
    measured = []
    for _ in range(runs):
        measured.append(_average(parties, length))
        advance()
    aggregators = [run[0] for run in measured]
    members = [run[1:] for run in measured]

    def most(key: str) -> list[float]:
        return [max(party[key] for party in run) for run in members]

    plain = [run[0]["plain_bytes"] for run in members]
    limit = Limit.of("the vector alone, in the bytes of its element", plain)
    figures: list[Figure] = [
        cost(
            "average of a tree: wall time",
            "s",
            most("seconds"),
            f"{HOW}; of the slowest party, after connecting",
        ),
        cost(
            "party: processor time",
            "s",
            most("cpu"),
            f"{HOW}; the most of a party, import and connecting too",
        ),
        cost("aggregator: processor time", "s", [run["cpu"] for run in aggregators], HOW),
        cost("party: sent", "B", most("sent"), f"{HOW}; the most of a party", limit=limit),
        cost("party: received", "B", most("received"), f"{HOW}; the most of a party"),
        cost("party: peak memory", "B", most("peak"), f"{HOW}; resident, the model and its average included"),
        cost("aggregator: peak memory", "B", [run["peak"] for run in aggregators], f"{HOW}; resident"),
        cost("largest difference to the plain average", "", most("error"), f"{HOW}; float32 has 6e-8 near 1"),
    ]
    parameters = {"parties": parties, "length": length, "precision": PRECISION, "runs": runs}
    return Report("session", figures, versions("numpy"), parameters)


def _average(parties: int, length: int) -> list[dict[str, float]]:
    """Run one average; return the measurements of the aggregator and of each party."""
    names = [f"party{index}" for index in range(parties)]
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        parameters = {"length": length, "lower": -1.0, "upper": 1.0, "precision": PRECISION, "corrupt": 0.0}
        timeouts = Timeouts(connect=300.0, gather=300.0, step=300.0)
        path = str(create_local_session(Path(folder), names, parameters, timeouts=timeouts))
        calls = [[path, "", "0", "0"], *([path, name, str(length), str(parties)] for name in names)]
        printed = together("session_worker", calls, "a member", WORKER_SECONDS)
    return [json.loads(output) for output in printed]
