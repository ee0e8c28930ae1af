"""Published faults of pairwise statistics: each machine refuses each, and takes the run without it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.garbled.relay import SealedConnection
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.party import Evaluating
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.pairs.ustatistic.wire import PairWire
from smpc_dp.engine.events import Message, Report, Start
from smpc_dp.engine.run import Run
from smpc_dp.errors import PeerFault, SmpcError, VerificationError
from smpc_dp.wire.abort import ABORT
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, decode_envelope
from smpc_dp_lab.vectors import statistic_runs as runs
from smpc_dp_lab.vectors.runs import Recording
from tests.vectors.reasons import check_code, check_reason

PUBLISHED = Path(__file__).parents[2] / "protocols" / "pairwise" / "vectors"
NEGATIVE = sorted(PUBLISHED.glob("statistic-negative-*.json"))
FRAMES = [path for path in NEGATIVE if json.loads(path.read_bytes())["kind"] == "statistic-negative-frame"]
MESSAGES = [path for path in NEGATIVE if path not in FRAMES]

# What an error says when it comes from the named layer; any other text comes from a check of content.
SAYS = {
    "envelope": r"invalid signature",
    "order": r"sent '.*' where '.*' is due|of another run|for somebody else|for the run|two different",
    "decoding": r"malformed \w+: ",
}


def ids(path: Path) -> str:
    return path.stem.removeprefix("statistic-negative-")


@cache
def ran(base: str) -> runs.Run:
    return runs.Run(runs.find(base.removeprefix("statistic-run-").removesuffix(".json"))).execute()


def sent_to(base: str, receiver: str) -> list[Envelope]:
    messages = json.loads((PUBLISHED / base).read_bytes())["messages"]
    return [
        decode_envelope(bytes.fromhex(message["bytes"]), message["sender"])
        for message in messages
        if message["receiver"] == receiver
    ]


def take(party: Run[StatisticResult], wire: PairWire, envelope: Envelope) -> None:
    if envelope.step == m.PAIR:
        wire.open_pair(party.run_id, envelope)
    elif envelope.step in (m.RELAY, m.RELAY_END):
        wire.open_relay(party.run_id, envelope)
    else:
        party.handle(Message(envelope))


def refusal(base: str, arriving: Iterable[Envelope], receiver: str) -> tuple[int, SmpcError | None]:
    """Feed a fresh machine; return how much it took, and what it refused."""
    run = runs.Run(runs.find(base.removeprefix("statistic-run-").removesuffix(".json")))
    done = 0
    if receiver != runs.AGGREGATOR:
        party = run.parties[receiver]
        party.handle(Start())
        for done, envelope in enumerate(arriving):
            try:
                take(party, run.wires[receiver], envelope)
                if envelope.step == m.MATCHED:
                    finish(party, ran(base))
            except SmpcError as error:
                return done, error
        return done + 1, None
    for done, envelope in enumerate(arriving):
        for answer in run.aggregator.handle(Message(envelope)):
            if answer.step == ABORT:
                [*_, fault] = run.aggregator.state.inbox.excluded.values()
                assert isinstance(fault, PeerFault)
                return done, PeerFault(answer.receiver, run.aggregator.state.inbox.faults[-1], fault.check)
    return done + 1, None


def finish(party: Run[StatisticResult], run: runs.Run) -> None:
    """Say what the party has said of its pairs: what comes next is the estimate."""
    if isinstance(party.state, Evaluating) and any(
        (envelope.sender, envelope.step) == (party.name, m.DONE) for envelope in run.sent
    ):
        party.handle(Report(()))


def layer_of(text: str) -> str:
    return next((layer for layer, pattern in SAYS.items() if re.search(pattern, text)), "content")


def test_there_are_many() -> None:
    layers = [json.loads(path.read_bytes())["expect"]["layer"] for path in MESSAGES]
    assert set(layers) == {*SAYS, "content"}
    assert len(MESSAGES) >= 45
    assert len(FRAMES) >= 9


@pytest.mark.parametrize("path", MESSAGES, ids=ids)
def test_message_is_refused(path: Path) -> None:
    vector: dict[str, Any] = json.loads(path.read_bytes())
    fields = vector["envelope"]
    envelope = Envelope(
        bytes.fromhex(fields["run_id"]),
        fields["step"],
        fields["sender"],
        fields["receiver"],
        bytes.fromhex(fields["body"]),
        bytes.fromhex(fields["signature"]),
    )
    base, after = vector["base"], vector["after"]
    [receiver] = {name for name in receivers(vector)}
    good = sent_to(base, receiver)
    index, error = refusal(base, [*good[:after], envelope], receiver)
    assert error is not None, "the fault is not refused"
    assert (index, type(error).__name__) == (after, vector["expect"]["error"])
    assert getattr(error, "culprit", "") == vector["expect"]["culprit"]
    assert layer_of(str(error)) == vector["expect"]["layer"], str(error)
    check_reason(path, str(error))
    check_code(path, error)
    if envelope not in good:
        taken, error = refusal(base, good[: after + 1], receiver)
        assert (taken, error) == (after + 1, None)


def receivers(vector: dict[str, Any]) -> Iterable[str]:
    """Who gets the fault: the aggregator of parties' messages, else the receiver in the base run."""
    if vector["envelope"]["sender"] != runs.AGGREGATOR:
        return [runs.AGGREGATOR]
    if vector["name"] == "relay-for-another":
        return ["ben"]
    return [vector["envelope"]["receiver"]]


@pytest.mark.parametrize("path", FRAMES, ids=ids)
def test_frame_is_refused(path: Path) -> None:
    vector: dict[str, Any] = json.loads(path.read_bytes())
    frames = [
        message.content
        for envelope in sent_to(vector["base"], vector["receiver"])
        if envelope.step == m.RELAY
        and (message := decode(envelope.body, m.Relay, runs.AGGREGATOR)).matching == vector["matching"]
        and message.content
    ]

    def feed(*arriving: bytes) -> None:
        run = ran(vector["base"])
        [evaluation] = [each for each in run.evaluations if vector["receiver"] in each.pair]
        context = run.pair_context(vector["receiver"], evaluation.matching, evaluation.pair)
        source = Recording(run.source(vector["receiver"], f"relay {evaluation.matching}"))
        line = SealedConnection(context, run.signers[vector["receiver"]], source)
        line.meet(arriving[0])
        for frame in arriving[1:]:
            line.open(frame)

    feed(*frames[: vector["after"] + 1])
    with pytest.raises(VerificationError) as refused:
        feed(*frames[: vector["after"]], bytes.fromhex(vector["frame"]))
    check_reason(path, str(refused.value))
    check_code(path, refused.value)
