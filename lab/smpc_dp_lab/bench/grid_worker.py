"""One round of `SecureGrid` in one process: `python -m ... PARTIES LENGTH [memory]`, by a Python with `flwr`.

Prints JSON: processor time by member and part (`seconds`), or with `memory` what a call of a part held at
once, in bytes (`copied`); seconds by the clock (`wall`), and the largest difference to the plain weighted
average (`error`). Without `flwr` it prints why it is absent.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp.session.local import create_local_session
from smpc_dp_lab.bench.parts import Parts
from smpc_dp_lab.bench.session_worker import LEAF, model_of, parameters_of

SERVER, NODE, APP = "server", "node", "app"
# Of each node; a product with 50 nodes still has 4 bytes.
MAX_WEIGHT = 20


def grid_parameters(length: int) -> dict[str, object]:
    """Return the parameters of a session that averages models of so many values, with secret weights."""
    return parameters_of(length) | {"max_weight": MAX_WEIGHT, "same_survivors": False}


def weight_of(index: int) -> int:
    """Return the secret weight of a node by its number: 1 to MAX_WEIGHT in turn."""
    return 1 + index % MAX_WEIGHT


def measured(parts: Parts) -> None:
    """Replace functions of the package by ones whose time `parts` counts, for parts of a round."""
    from smpc_dp.engine import codec, counter, driver, keyring, result, saved, seal, store
    from smpc_dp.engine.phases import masked_sum, masks, outcomes
    from smpc_dp.integrations.flower import averages, grid, node, records, rounds
    from smpc_dp.session import stored_requests
    from smpc_dp.trees import Tree
    from smpc_dp.wire import signing

    parts.measure_methods("files of the node and its session", node.Node, "load")
    parts.measure_methods("work of the node around its steps", node.Node, "begin", "proceed")
    parts.measure_methods("steps of the protocol", driver.Driver, "act", "cancel")
    parts.measure_methods("steps of the protocol", saved.SavedRun, "begin", "restore", "handle", "finish")
    parts.measure_methods("sorting of messages", rounds.Aggregation, "_events", "_by_node")
    parts.measure_methods("tree flattened", averages.SecureAverage, "template", "flatten")
    parts.measure_methods("values encoded", averages.SecureAverage, "encode")
    parts.measure("vector masked", masked_sum.mask_vector)
    parts.measure("vectors added", masked_sum.add_vector)
    # A node's are within its part.
    parts.measure_methods("masks made and added", masks.Masks, "add_to")
    parts.measure("sum decoded", outcomes.unpack_total, outcomes.outcome)
    parts.measure_methods("sum decoded", result.Result, "of")
    parts.measure_methods("tree restored", Tree, "restore")
    parts.measure_methods("SHA-256 and signatures of messages", signing.Context, "write", "check")
    parts.measure(
        "encoding and decoding of messages",
        *(signing.encode, signing.decode, signing.encode_envelope, signing.decode_envelope),
    )
    parts.measure("records of Flower", *(records.pack, records.unpack, records.reply_of, records.answer_of))
    parts.measure_methods("records of Flower", grid.SecureGrid, "_content")
    parts.measure("digest of the task", averages.task_of)
    parts.measure_methods("encoding of saved states", codec.Codec, "encode")
    parts.measure_methods("decoding of saved states", codec.Codec, "decode")
    parts.measure("decoding of saved states", codec.messages_of)
    parts.measure("digests of saved states", seal.state_digest)
    parts.measure("encryption of saved states", seal.seal_state, seal.open_state)
    parts.measure_methods("database of saved states", store.Store)
    parts.measure_methods("keys and counter of saved states", keyring.KeyRing)
    parts.measure_methods("keys and counter of saved states", counter.FileCounter)
    parts.measure_methods("numbers of requests", stored_requests.Requests)


def nodes_of(folder: Path, session: Path, parties: int) -> dict[int, dict[str, str]]:
    """Write the settings files of all nodes; return each node's Flower configuration by its id."""
    configs = {}
    for index in range(parties):
        home = folder / f"node{index}"
        (home / "counter").mkdir(parents=True)
        file = home / "node.toml"
        file.write_text(
            f'party = "party{index}"\nstate = "state"\ncounter = "counter"\n[train]\nsession = "{session}"\n'
        )
        configs[1 + index] = {"smpc-node": str(file)}
    return configs


def memory_grid(parts: Parts, configs: Mapping[int, Mapping[str, str]], length: int) -> Any:
    """Return a Flower grid that calls each node's app in this process, one after the other."""
    from flwr.app import Array, ArrayRecord, Context, MetricRecord, RecordDict
    from flwr.app import Message as FlowerMessage
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

    from smpc_dp.integrations.flower.mod import secure_mod

    app = ClientApp(mods=[secure_mod])

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        with parts.of(APP):
            index = context.node_id - 1
            arrays = {name: Array(leaf) for name, leaf in model_of(index, length).items()}
            metrics = MetricRecord({"num-examples": weight_of(index)})
            content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
            return FlowerMessage(content, reply_to=message)

    class MemoryGrid(Grid):  # type: ignore[misc]
        """Grid of nodes in this process."""

        run = set_run = create_message = push_messages = pull_messages = None

        def get_node_ids(self) -> Iterable[int]:
            return list(configs)

        def send_and_receive(self, messages: Iterable[Any], **_: Any) -> list[Any]:
            replies = []
            for message in messages:
                node = message.metadata.dst_node_id
                context = Context(
                    run_id=1, node_id=node, node_config=configs[node], state=RecordDict(), run_config={}
                )
                with parts.of(NODE):
                    replies.append(app(message, context))
            return replies

    return MemoryGrid()


def run(parties: int, length: int, *, memory: bool) -> dict[str, object]:
    """Run one round of SecureGrid in this process; return the times and memory of its parts."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    from smpc_dp.integrations.flower import SecureGrid

    # Messages need the ids of a run.
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    names = [f"party{index}" for index in range(parties)]
    initial = ArrayRecord({name: Array(np.zeros_like(leaf)) for name, leaf in model_of(0, length).items()})
    strategy = FedAvg(fraction_evaluate=0.0)
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        session = create_local_session(Path(folder), names, grid_parameters(length))
        configs = nodes_of(Path(folder), session, parties)
        if memory:
            tracemalloc.start()
        parts = Parts(SERVER, memory=memory)
        measured(parts)
        parts.measure_methods("FedAvg", strategy, "aggregate_train", "configure_train")
        secure = SecureGrid(memory_grid(parts, configs, length), str(session))
        begun = time.monotonic()
        parts.begin()
        ended = secure.start(strategy, initial_arrays=initial, num_rounds=1)
        parts.end()
        wall = time.monotonic() - begun
    [done] = secure.rounds
    if done.error:
        raise RuntimeError(done.error)
    return {
        "version": version("flwr"),
        "wall": wall,
        "seconds": _by_member(parts.seconds),
        "copied": _by_member(parts.copied),
        "error": _largest_difference(ended.arrays, parties, length),
    }


def _by_member(values: Mapping[tuple[str, str], float]) -> dict[str, dict[str, float]]:
    result: dict[str, dict[str, float]] = {}
    for (member, part), value in values.items():
        result.setdefault(member, {})[part] = value
    return result


def _largest_difference(average: Any, parties: int, length: int) -> float:
    """Return the largest difference to the plain weighted average, of the first leaf."""
    weights = [weight_of(index) for index in range(parties)]
    leaves = [next(iter(model_of(index, min(length, LEAF)).values())) for index in range(parties)]
    plain = sum((weight * leaf.astype(float) for weight, leaf in zip(weights, leaves, strict=True)), 0.0)
    return float(np.max(np.abs(next(iter(average.values())).numpy() - plain / sum(weights))))


def main(parties: str, length: str, memory: str = "") -> dict[str, object]:
    """Run the worker; return the measurements that are printed, or "absent" if Flower is missing."""
    try:
        importlib.import_module("flwr.app")
    except ImportError as error:
        return {"absent": str(error)}
    return run(int(parties), int(length), memory=bool(memory))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
