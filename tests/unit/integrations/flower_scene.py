"""Nodes and an aggregator of secure averages in one process, each message from the nodes' saved states."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.engine.result import Outcome, Result
from smpc_dp.errors import SmpcError
from smpc_dp.integrations.flower.averages import TRAIN, Answer, Average, SecureAverage, task_of
from smpc_dp.integrations.flower.node import Contribution, Node
from smpc_dp.integrations.flower.rounds import Aggregation
from smpc_dp.session.local import create_local_session
from smpc_dp.session.stored_requests import Requests

PARTIES = ("alice", "bob", "carol", "dave")
REAL: dict[str, object] = {
    "length": 6,
    "lower": -8.0,
    "upper": 8.0,
    "precision": 1e-6,
    "max_weight": 100,
    "dropout": 0.25,
    "corrupt": 0.0,
}
METRICS = {"loss": (0.0, 10.0)}

# (node, request number, messages) -> the answer of the node, or None: it is lost.
Interfere = Callable[["Scene", int, int, Sequence[bytes]], Answer | None]


def no_hash() -> str:
    raise AssertionError("no app is pinned")


class Scene:
    """A session with a node file for each party; nodes are numbered from 10 on."""

    def __init__(
        self,
        folder: Path,
        parameters: Mapping[str, object] | None = None,
        metrics: Mapping[str, tuple[float, float]] = METRICS,
        **options: str | bool,
    ) -> None:
        self.folder, self.metrics = folder, dict(metrics)
        chosen = {key: value for key, value in (REAL | dict(parameters or {})).items() if value is not None}
        self.session = create_local_session(folder, PARTIES, chosen)
        for name in PARTIES:
            (folder / name / "counter").mkdir(parents=True)
            declared = "\n".join(f"{key} = [{low}, {high}]" for key, (low, high) in metrics.items())
            extra = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
            text = (
                f'party = "{name}"\nstate = "state"\ncounter = "counter"\n{extra}\n'
                f'[train]\nsession = "../session.toml"\n[train.metrics]\n{declared}\n'
            )
            (folder / name / "node.toml").write_text(text)
        self.server = SecureAverage.load(
            Average(str(self.session), self.metrics), "aggregator", role="aggregator"
        )
        self.requests = Requests(folder / "aggregator.requests")
        self.nodes = {10 + index: name for index, name in enumerate(PARTIES)}
        self.task = task_of(TRAIN, [b"round 1"])
        self.answers: list[tuple[str, Answer]] = []

    @property
    def scope(self) -> bytes:
        return self.server.membership.session.digest

    def node(self, name: str) -> Node:
        """Load a node as a new process does."""
        return Node.load(self.folder / name / "node.toml", no_hash)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        start = PARTIES.index(name)
        return {
            "weight": np.arange(start, start + 4, dtype=np.float32).reshape(2, 2) / 4,
            "bias": np.array([start / 3]),
        }

    def work(self, name: str) -> Contribution:
        """Return what a node has trained, with 10, 20, ... examples and a metric that nobody declared."""
        index = PARTIES.index(name)
        examples = 10 * (index + 1)
        return Contribution(
            self.arrays(name), {"num-examples": examples, "loss": float(index), "secret": 7.0}
        )

    def answer(self, node: int, number: int, messages: Sequence[bytes]) -> Answer:
        """Answer as the node's next process does: with the code of an error, and no word of it."""
        name = self.nodes[node]
        try:
            opened = self.node(name)
            if not messages:
                answer = opened.begin(TRAIN, number, self.task, lambda: self.work(name))
            else:
                answer = opened.proceed(TRAIN, number, messages)
        except SmpcError as error:
            answer = Answer(code=error.code, note=str(error))
        self.answers.append((name, answer))
        return answer

    def aggregation(self, interfere: Interfere | None = None, number: int | None = None) -> Aggregation:
        chosen = self.requests.next(self.scope) if number is None else number

        def exchange(outgoing: Mapping[int, Sequence[bytes]]) -> Mapping[int, Answer]:
            answers = {}
            for node, messages in outgoing.items():
                handle = interfere or Scene.answer
                answer = handle(self, node, chosen, messages)
                if answer is not None:
                    answers[node] = answer
            return answers

        template = self.server.template(self.arrays("alice"))
        fixed = self.requests.fixed(self.scope, len(PARTIES))
        return Aggregation(self.server, chosen, template, fixed, self.requests.sent(self.scope), exchange)

    def execute(self, interfere: Interfere | None = None) -> Outcome:
        return self.aggregation(interfere).execute(list(self.nodes))

    def tree(self, outcome: Outcome) -> Any:
        template = self.server.template(self.arrays("alice"))
        return template.restore(np.asarray(Result.of(outcome, "average").value, np.float64))

    def expected(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the weighted averages of what these nodes have trained."""
        weights = [10 * (PARTIES.index(name) + 1) for name in names]
        return {
            key: np.average([self.arrays(name)[key] for name in names], axis=0, weights=weights)
            for key in ("weight", "bias")
        } | {"loss": float(np.average([PARTIES.index(name) for name in names], weights=weights))}
