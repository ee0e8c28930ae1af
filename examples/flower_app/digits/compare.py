"""Runs the app in Flower's simulation with plain and with secure averages, and prints both side by side.

The last node is lost in the middle of the second round: plain FedAvg goes on without it from there, too.
Run: FLWR_TELEMETRY_ENABLED=0 python -m digits.compare --nodes 4 --rounds 3. Exits with 1 if the models
differ by more than the grid of the secure sums.
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
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from smpc_dp.integrations.flower import Average, SecureGrid, Terms, secure_mod

from .client_app import fit
from .prepare import PARAMETERS, prepare
from .server_app import ERROR
from .task import Arrays, accuracy, initial

# Rounds before the one in which the last node is lost; and messages of a node in one secure round.
BEFORE, STEPS = 1, 9
LOST_AT = 5


class Counted(Grid):  # type: ignore[misc]
    """Grid that counts the bytes of arrays."""

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
    """Return the bytes of the arrays in a message."""
    if message.has_error():
        return 0
    values = (value for record in message.content.values() for value in record.values())
    return sum(len(value.data) for value in values if isinstance(value, Array))


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


@dataclass
class Trial:
    """What a run has come to."""

    arrays: Arrays = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


def execute(nodes: int, mods: list[Any], start: Callable[[Grid, Trial], Any]) -> Trial:
    """Run a strategy in a simulation of its own; the app is the same but for its mods."""
    trial, server, client = Trial(), ServerApp(), ClientApp(mods=mods)
    client.train()(fit)

    def main(grid: Grid, _context: Context) -> None:
        counted, began = Counted(grid), time.monotonic()
        result = start(counted, trial)
        trial.seconds = time.monotonic() - began
        trial.sent, trial.received = counted.sent, counted.received
        trial.arrays = result.arrays.to_numpy_ndarrays()

    server.main()(main)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app=server, client_app=client, num_supernodes=nodes, backend_config=resources)
    return trial


def main() -> None:
    """Run both, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    options: dict[str, Any] = {"num_rounds": arguments.rounds}

    def plain(grid: Grid, _trial: Trial) -> Any:
        # It begins with the nodes that are there; secure averages wait for the roster.
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=arguments.nodes)
        return strategy.start(grid=grid, initial_arrays=ArrayRecord(initial()), **options)

    with tempfile.TemporaryDirectory() as folder:
        session = prepare(Path(folder), arguments.nodes)
        os.environ["SMPC_DP_NODE"] = f"{folder}/{{partition-id}}.toml"

        def secure(grid: Grid, trial: Trial) -> Any:
            averages = SecureGrid(grid, Terms(Average(str(session), ERROR)))
            strategy = FedAvg(fraction_evaluate=0.0)
            result = averages.start(strategy, initial_arrays=ArrayRecord(initial()), **options)
            trial.lost = [", ".join(done.lost) or done.error or "nobody" for done in averages.rounds]
            return result

        trials = {
            name: execute(
                arguments.nodes, [Losing(Path(folder, name), arguments.nodes - 1, after), *mods], start
            )
            for name, after, mods, start in (
                ("plain", BEFORE, [], plain),
                ("secure", BEFORE * STEPS + LOST_AT, [secure_mod], secure),
            )
        }
    for name, trial in trials.items():
        print(
            f"{name}: accuracy {accuracy(trial.arrays):.4f}, {trial.seconds:.1f} s, "
            f"{trial.sent} bytes of arrays sent to nodes, {trial.received} received"
        )
    print(f"lost in each secure round: {'; '.join(trials['secure'].lost)}")
    pairs = zip(trials["plain"].arrays, trials["secure"].arrays, strict=True)
    difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    print(f"greatest difference between the models: {difference:.2g}")
    sys.exit(difference > arguments.rounds * float(str(PARAMETERS["precision"])))


if __name__ == "__main__":
    main()
