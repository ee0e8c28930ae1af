"""The Grid of a ServerApp whose averages are secure sums: the server is the untrusted aggregator."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues, SmpcError, TimeoutFault
from smpc_dp.integrations.flower.averages import EVALUATE, TRAIN, Answer, Average, SecureAverage
from smpc_dp.integrations.flower.node import TRUSTED
from smpc_dp.integrations.flower.records import answer_of, pack
from smpc_dp.integrations.flower.rounds import Aggregation, Traffic, losses_text, stopped
from smpc_dp.session.stored_requests import Requests

from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict  # isort: skip
from flwr.serverapp import Grid, strategy as strategies  # isort: skip
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords  # isort: skip

# They use the average of all replies alone. FedMedian, FedTrimmedAvg, Krum and others need single replies.
STRATEGIES: tuple[type, ...] = (
    strategies.FedAvg,
    strategies.FedAvgM,
    strategies.FedAdam,
    strategies.FedYogi,
    strategies.FedAdagrad,
    strategies.FedProx,
)
_LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class Terms:
    """Settings of a Flower server with secure averages: of models, of metrics, and the aggregator's key.

    Attributes:
        train: the average of models.
        evaluate: that of evaluation metrics; None: nodes are not asked for any.
        key: the aggregator's identity file; by default `keys/NAME.key` beside each session file.
    """

    train: Average
    evaluate: Average | None = None
    key: str | os.PathLike[str] | None = None


@dataclass(frozen=True)
class SecureRound:
    """Record of one secure average in a Flower run: kind, number, result or error, and lost nodes.

    Attributes:
        kind: "train" or "evaluate"; number: of the request in its session.
        result: of the average; None if it stopped. error: why.
        lost: parties whose data are not in it; lost_nodes: the nodes, and the party of each as far as it has
            said who it is, else "".
        tolerated: what a request tolerates, in words.
        trust: whom the survivors trust with the code of the app.
        seconds: from the first message on, the nodes' own work included.
        traffic: bytes of the protocol, and messages; without the models that nodes were sent to work on.
    """

    kind: str
    number: int
    result: Result | None
    error: str
    lost: tuple[str, ...]
    lost_nodes: Mapping[int, str]
    tolerated: str
    trust: str
    seconds: float
    traffic: Traffic


@dataclass
class _Part:
    """State of one kind of secure average (training or evaluation) in a Flower run: requests and rounds."""

    average: SecureAverage
    requests: Requests
    rounds: list[SecureRound] = field(default_factory=list)

    @property
    def parties(self) -> int:
        """The number of parties in the average's session."""
        return len(self.average.membership.names)


class SecureGrid(Grid):  # type: ignore[misc]
    """Replacement of Flower's Grid: a strategy gets one reply, the secure average over all nodes.

    `SecureGrid(grid, terms).start(strategy, ...)` stands for `strategy.start(grid, ...)`, with its arguments.
    The model that the strategy sends goes to all nodes of the roster; no reply of a single node can be had.

    Args:
        grid: Flower's.
        terms: or the path of the session file, where models alone are averaged.

    Attributes:
        rounds: the requests so far.

    Raises:
        ConfigError, LocalError: a session file or the aggregator's key is wrong.
    """

    def __init__(self, grid: Grid, terms: Terms | str | os.PathLike[str]) -> None:
        self._grid = grid
        if not isinstance(terms, Terms):
            terms = Terms(Average(os.fspath(terms)))
        self.rounds: list[SecureRound] = []
        self._parts: dict[str, _Part] = {}
        for kind, average in ((TRAIN, terms.train), (EVALUATE, terms.evaluate)):
            if average is not None:
                loaded = SecureAverage.load(average, None, terms.key, "aggregator")
                membership = loaded.membership
                beside = membership.key_file.with_name(f"{membership.name}.requests")
                self._parts[kind] = _Part(loaded, Requests(beside))
        self._strategy: Any = None
        self._complete = False

    def start(self, strategy: strategies.Strategy, **options: Any) -> strategies.Result:
        """Run a Flower strategy over secure averages, with its own arguments; return its result.

        Raises ConfigError, before anything is sent, for a strategy that needs the replies of single nodes, is
        not known, samples a part of the nodes, or aggregates metrics in its own way.
        """
        check_strategy(strategy, evaluates=EVALUATE in self._parts)
        self._strategy = strategy
        try:
            return strategy.start(grid=self, **options)
        finally:
            self._strategy = None

    def get_node_ids(self) -> Iterable[int]:
        """Wait for all nodes, later for enough; return all connected ids; TimeoutFault if too few come.

        Raises TimeoutFault if fewer than the session needs come within its `connect` seconds.
        """
        part = self._parts[TRAIN]
        last = time.monotonic() + part.average.membership.session.timeouts.connect
        nodes = list(self._grid.get_node_ids())
        while len(nodes) < (part.average.least if self._complete else part.parties):
            if time.monotonic() > last:
                break
            time.sleep(0.5)
            nodes = list(self._grid.get_node_ids())
        self._complete = True
        if len(nodes) < part.average.least:
            reason = f"{len(nodes)} nodes are connected, {part.average.least} are needed"
            raise TimeoutFault(part.average.membership.names, "hello", reason)
        return nodes

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send a strategy's messages to all nodes; return one reply, their average or an error, or none.

        Messages of a kind without an average are not sent.

        Raises ConfigError if it is not called by a strategy that `start` runs, or the messages are not for
        all parties but those that may be lost, or of another type.
        """
        sent = list(messages)
        if not sent:
            return []
        kind = sent[0].metadata.message_type
        if self._strategy is None:
            raise ConfigError.at("strategy", "call SecureGrid.start with it", ConfigCheck.MISSING)
        if kind == EVALUATE and kind not in self._parts:
            return []
        if kind not in self._parts or any(one.metadata.message_type != kind for one in sent):
            raise ConfigError.at("message_type", f"{kind!r} has no secure average", ConfigCheck.UNSUPPORTED)
        least = self._parts[kind].average.least
        if len({one.metadata.dst_node_id for one in sent}) < least:
            reason = f"{len(sent)} nodes are sampled, the roster less the tolerated losses has {least}"
            raise ConfigError.at("fraction_train", reason, ConfigCheck.RANGE)
        return [self._round(kind, sent, timeout)]

    def _round(self, kind: str, messages: Sequence[Message], timeout: float | None) -> Message:
        """Run a secure average over the nodes, record it; return the reply, an error if it stopped."""
        part, first, began = self._parts[kind], messages[0], time.monotonic()
        template = part.average.template(_model(first.content) if kind == TRAIN else {})
        digest = part.average.membership.session.digest
        number = part.requests.next(digest)
        aggregation = Aggregation(
            part.average,
            number,
            template,
            part.requests.fixed(digest, part.parties),
            part.requests.sent(digest),
            self._exchange(kind, number, messages, timeout),
        )
        result, error, lost = None, "", part.average.membership.names
        try:
            outcome = aggregation.execute([one.metadata.dst_node_id for one in messages])
            result, lost = Result.of(outcome, "average"), outcome.absent
        except SmpcError as failure:
            error = stopped(failure, aggregation.refusals)
        survivors = () if result is None else result.survivors
        party_of = {one.metadata.dst_node_id: "" for one in messages} | aggregation.nodes
        done = SecureRound(
            kind,
            number,
            result,
            error,
            tuple(lost),
            {node: name for node, name in party_of.items() if name not in survivors},
            part.average.tolerated,
            _trust({name: aggregation.trust.get(name, TRUSTED) for name in survivors}),
            time.monotonic() - began,
            aggregation.traffic,
        )
        self.rounds.append(done)
        _LOG.info("smpc-dp: %s", _line(done))
        if result is None:
            return Message(Error(code=0, reason=f"secure average stopped: {error}"), reply_to=first)
        average = template.restore(np.asarray(result.value, np.float64), exact=result.noise is None)
        return Message(self._content(kind, average, result.weight), reply_to=first)

    def _content(self, kind: str, average: Mapping[str, Any], weight: int) -> RecordDict:
        """Return the content of the strategy's reply: the averaged arrays and metrics, and the weight."""
        values = {self._strategy.weighted_by_key: weight, **average.get("metrics", {})}
        content = RecordDict({"metrics": MetricRecord(values)})
        if kind == TRAIN:
            arrays = {name: Array(np.asarray(array)) for name, array in average["arrays"].items()}
            content[self._strategy.arrayrecord_key] = ArrayRecord(arrays)
        return content

    def _exchange(
        self, kind: str, number: int, messages: Sequence[Message], timeout: float | None
    ) -> Callable[[Mapping[int, Sequence[bytes]]], Mapping[int, Answer]]:
        """Return a function that sends protocol messages to nodes, and returns their answers."""
        contents = {one.metadata.dst_node_id: one.content for one in messages}
        step = self._parts[kind].average.membership.session.timeouts.step

        def exchange(outgoing: Mapping[int, Sequence[bytes]]) -> Mapping[int, Answer]:
            sent, begins = [], False
            for node, envelopes in outgoing.items():
                begins = begins or not envelopes
                # A new one: strategies send one RecordDict to all nodes.
                records = {} if envelopes else dict(contents[node])
                content = RecordDict(records | pack(envelopes, request=number))
                sent.append(Message(content=content, message_type=kind, dst_node_id=node))
            replies = self._grid.send_and_receive(sent, timeout=timeout if begins else step)
            return {reply.metadata.src_node_id: answer_of(reply) for reply in replies}

        return exchange

    @property
    def run(self) -> Any:
        """The Flower run that the wrapped grid works for."""
        return self._grid.run

    def set_run(self, run: Any) -> None:
        """Set the Flower run that the wrapped grid works for."""
        self._grid.set_run(run)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to a node, made by the wrapped Flower grid."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:  # noqa: ARG002 - Flower's
        """Raise ConfigError always: replies of single nodes cannot be had."""
        raise _single()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:  # noqa: ARG002 - Flower's
        """Raise ConfigError always: replies of single nodes cannot be had."""
        raise _single()


def check_strategy(strategy: object, *, evaluates: bool = False) -> None:
    """Raise ConfigError, with all reasons, if a Flower strategy cannot work with one averaged reply."""
    name = type(strategy).__name__
    if type(strategy) not in STRATEGIES:
        known = ", ".join(one.__name__ for one in STRATEGIES)
        reason = f"{name} may need the replies of single nodes, which do not exist; {known} do not"
        raise ConfigError.at("strategy", reason, ConfigCheck.UNSUPPORTED)
    chosen: Any = strategy
    issues = Issues()
    if chosen.fraction_train < 1:
        issues.append(_fraction("fraction_train", chosen.fraction_train))
    if evaluates and 0 < chosen.fraction_evaluate < 1:
        issues.append(_fraction("fraction_evaluate", chosen.fraction_evaluate))
    for key in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
        if getattr(chosen, key) is not aggregate_metricrecords:
            reason = f"{name}: is for the metrics of single nodes, which do not exist"
            issues.add_issue(key, reason, ConfigCheck.UNSUPPORTED)
    issues.raise_issues()


def _fraction(key: str, value: float) -> ConfigIssue:
    """Return the fault that a strategy samples a fraction of the nodes instead of all."""
    reason = f"must be 1, is {value}: a server that chooses nodes surrounds one with its own"
    return ConfigIssue(key, reason, ConfigCheck.RANGE)


def _model(content: RecordDict) -> dict[str, Any]:
    """Return the model's arrays in a task's content; raise ConfigError unless it has one ArrayRecord."""
    records = list(content.array_records.values())
    if len(records) != 1:
        reason = f"the strategy sends {len(records)} ArrayRecords, one is needed"
        raise ConfigError.at("arrays", reason, ConfigCheck.SHAPE)
    return {name: array.numpy() for name, array in records[0].items()}


def _single() -> ConfigError:
    """Return the ConfigError for asking for the reply of a single node."""
    reason = "replies of single nodes do not exist: only averages"
    return ConfigError.at("grid", reason, ConfigCheck.UNSUPPORTED)


def _trust(trust: Mapping[str, str]) -> str:
    """Return text on whom the surviving nodes trust with the app's code."""
    trusting = [name for name, text in trust.items() if text == TRUSTED]
    if trusting or not trust:
        return f"{TRUSTED} by {', '.join(trusting) or 'all'}"
    return "; ".join(sorted(set(trust.values())))


def _line(done: SecureRound) -> str:
    """Return one line of text on how a secure average ended."""
    text = f"{done.kind} request {done.number}"
    lost = losses_text(done.lost_nodes, done.tolerated)
    if done.result is None:
        return f"{text} stopped: {done.error}{lost}"
    without = f", without {', '.join(done.lost)}" if done.lost else ""
    return f"{text}: average over {len(done.result.survivors)} parties{without}{lost}; {done.trust}"
