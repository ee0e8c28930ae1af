"""Runs the app in Flower's simulation with plain averages, Flower's SecAgg+ and ours, side by side.

The last node is lost in the middle of the last round, of which plain FedAvg leaves it out, too.
SecAgg+ exists for Flower's legacy API alone, so that the nodes' part is written for that, too.
Run: FLWR_TELEMETRY_ENABLED=0 python -m digits.compare --nodes 4 --rounds 3. Exits with 1 if the models
differ by more than the grid of the secure sums. Memory is the peak of the server's process, and the highest
one of the processes that nodes take turns in (Linux).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.client import Client, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_PARAMS_RECORD
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from smpc_dp.integrations.flower import Average, SecureGrid, Terms, secure_mod

from .client_app import fit
from .prepare import PARAMETERS, prepare
from .server_app import ERROR
from .task import Arrays, accuracy, initial, rows_of, train

# Messages of a node in a round, and those that the last node answers in the last one, before it is lost: it
# has shared its secrets, and does not send its masked vector.
SECURE, SECAGG = (9, 5), (4, 2)


class Counted(Grid):  # type: ignore[misc]
    """Grid that counts the bytes of arrays, masked vectors, keys and shares."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.sent = self.received = 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        outgoing = list(messages)
        self.sent += sum(map(_bytes, outgoing))
        replies = list(self._grid.send_and_receive(outgoing, timeout=timeout))
        self.received += sum(map(_bytes, replies))
        return replies

    def get_node_ids(self) -> Iterable[int]:
        return list(self._grid.get_node_ids())

    @property
    def run(self) -> Any:
        return self._grid.run

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        return self._grid.create_message(*arguments, **options)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return list(self._grid.push_messages(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return list(self._grid.pull_messages(message_ids))


def _bytes(message: Message) -> int:
    """Return the bytes of the arrays, and of other binary values, in a message."""
    if message.has_error():
        return 0
    return sum(_length(value) for record in message.content.values() for value in record.values())


def _length(value: Any) -> int:
    if isinstance(value, Array):
        return len(value.data)
    if isinstance(value, list):
        return sum(map(_length, value))
    return len(value) if isinstance(value, bytes) else 0


def peak() -> int:
    """Return the highest resident memory of this process, in bytes."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@dataclass
class Measuring:
    """Mod that writes the peak memory of its process to a file of the folder."""

    folder: Path

    def __call__(self, message: Message, context: Context, call_next: Any) -> Message:
        reply: Message = call_next(message, context)
        (self.folder / str(os.getpid())).write_text(str(peak()))
        return reply


@dataclass
class Losing:
    """Mod of a node that fails from one of its messages on, which it counts in a file."""

    file: Path
    partition: int
    after: int

    def __call__(self, message: Message, context: Context, call_next: Any) -> Message:
        if int(context.node_config["partition-id"]) == self.partition:
            with self.file.open("ab") as counted:
                counted.write(b".")
            if self.file.stat().st_size > self.after:
                raise ConnectionError("this node is lost")
        reply: Message = call_next(message, context)
        return reply


class LegacyNode(NumPyClient):  # type: ignore[misc]
    """The nodes' part as Flower's legacy API has it."""

    def __init__(self, context: Context) -> None:
        partition, partitions = (context.node_config[key] for key in ("partition-id", "num-partitions"))
        self._rows = rows_of(int(partition), int(partitions))

    def fit(self, parameters: Arrays, config: Any) -> tuple[Arrays, int, dict[str, Any]]:  # noqa: ARG002 - Flower's
        """Train from the server's model on the node's rows."""
        arrays, error = train(parameters, *self._rows)
        return arrays, len(self._rows[1]), {"error": error}


def legacy_node(context: Context) -> Client:
    """Return the node of a legacy ClientApp."""
    return LegacyNode(context).to_client()


@dataclass
class Trial:
    """What a run has come to."""

    arrays: Arrays = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    server_peak: int = 0


# Runs all rounds, given the grid and the server's context, and returns the arrays of the model.
Start = Callable[[Grid, Context, Trial], Arrays]


def execute(nodes: int, client: ClientApp, start: Start) -> Trial:
    """Run in a simulation of its own."""
    trial, server = Trial(), ServerApp()

    def main(grid: Grid, context: Context) -> None:
        # The peak of this process begins anew (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")
        counted, began = Counted(grid), time.monotonic()
        trial.arrays = start(counted, context, trial)
        trial.seconds, trial.server_peak = time.monotonic() - began, peak()
        trial.sent, trial.received = counted.sent, counted.received

    server.main()(main)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app=server, client_app=client, num_supernodes=nodes, backend_config=resources)
    return trial


def app(mods: list[Any]) -> ClientApp:
    """Return the app with these mods."""
    client = ClientApp(mods=mods)
    client.train()(fit)
    return client


def start_plain(nodes: int, rounds: int, first: Arrays) -> Start:
    """Plain FedAvg."""

    def start(grid: Grid, _context: Context, _trial: Trial) -> Arrays:
        # It begins with the nodes that are there; secure averages wait for the roster.
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(first), num_rounds=rounds)
        return list(result.arrays.to_numpy_ndarrays())

    return start


def start_secagg(nodes: int, rounds: int, first: Arrays) -> Start:
    """FedAvg with SecAgg+, which loses as many nodes as ours, and clips at its own default bounds."""

    def start(grid: Grid, context: Context, _trial: Trial) -> Arrays:
        strategy = LegacyFedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=nodes,
            min_available_clients=nodes,
            initial_parameters=ndarrays_to_parameters(first),
        )
        legacy = LegacyContext(context, ServerConfig(num_rounds=rounds), strategy)
        secagg = SecAggPlusWorkflow(nodes, nodes - 1, max_weight=float(str(PARAMETERS["max_weight"])))
        DefaultWorkflow(fit_workflow=secagg)(grid, legacy)
        return list(legacy.state.array_records[MAIN_PARAMS_RECORD].to_numpy_ndarrays())

    return start


def start_secure(session: Path, rounds: int, first: Arrays) -> Start:
    """FedAvg over secure averages."""

    def start(grid: Grid, _context: Context, trial: Trial) -> Arrays:
        averages = SecureGrid(grid, Terms(Average(str(session), ERROR)))
        strategy = FedAvg(fraction_evaluate=0.0)
        result = averages.start(strategy, initial_arrays=ArrayRecord(first), num_rounds=rounds)
        trial.lost = [", ".join(done.lost) or done.error or "nobody" for done in averages.rounds]
        return list(result.arrays.to_numpy_ndarrays())

    return start


def main() -> None:
    """Run all, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--padding", type=int, default=0, help="so many more values in the model")
    arguments = parser.parse_args()
    nodes, rounds, padding = arguments.nodes, arguments.rounds, arguments.padding
    first = initial(padding)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        session = prepare(folder, nodes, padding)
        os.environ["SMPC_DP_NODE"] = f"{folder}/{{partition-id}}.toml"

        def mods(name: str, steps: int, lost_at: int) -> list[Any]:
            (folder / name).mkdir()
            after = (rounds - 1) * steps + lost_at
            return [Measuring(folder / name), Losing(folder / f"{name}-messages", nodes - 1, after)]

        plain, secagg, secure = mods("plain", 1, 0), mods("SecAgg+", *SECAGG), mods("secure", *SECURE)
        legacy = ClientApp(client_fn=legacy_node, mods=[*secagg, secaggplus_mod])
        trials = {
            "plain": execute(nodes, app(plain), start_plain(nodes, rounds, first)),
            "SecAgg+": execute(nodes, legacy, start_secagg(nodes, rounds, first)),
            "secure": execute(nodes, app([*secure, secure_mod]), start_secure(session, rounds, first)),
        }
        node_peaks = {
            name: max(int(file.read_text()) for file in (folder / name).iterdir()) for name in trials
        }
    for name, trial in trials.items():
        pairs = zip(trials["plain"].arrays, trial.arrays, strict=True)
        difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
        print(
            f"{name}: accuracy {accuracy(trial.arrays):.4f}, {trial.seconds:.1f} s, greatest difference from "
            f"plain {difference:.2g}, {trial.sent} bytes sent to nodes, {trial.received} received, peak "
            f"memory {trial.server_peak >> 20} MiB of the server, {node_peaks[name] >> 20} MiB of a node"
        )
    print(f"lost in each secure round: {'; '.join(trials['secure'].lost)}")
    sys.exit(difference > rounds * float(str(PARAMETERS["precision"])))


if __name__ == "__main__":
    main()
