"""Waits for members in evaluations with output to the aggregator alone: how long, and who is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.circuits.circuit import pack, unpack
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Receive, Send
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.requests import pairwise
from smpc_dp.capabilities.pairs.requests.pairwise import PairwiseMember, create_pairwise_session
from smpc_dp.errors import SmpcError, TimeoutFault
from smpc_dp.transport.blocking import BlockingChannel
from tests.deadlines import HOURS

# Seconds in which the aggregator expects a message, and for which the garbler is silent to it, at work.
LIMIT, PAUSE = 0.5, 1.5
NAMES = ("garbler", "evaluator", "aggregator")


class Wrapped:
    """A role between which and its driver something may happen at each effect."""

    def __init__(self, role: Any) -> None:
        self._role = role

    def __getattr__(self, name: str) -> Any:
        return getattr(self._role, name)

    def before(self, effect: Send | Receive) -> None:
        """Do something before the driver sees an effect."""

    def run(self) -> Effects[Evaluated]:
        effects, answer = self._role.run(), None
        while True:
            try:
                effect = effects.send(answer)
            except StopIteration as stop:
                evaluated: Evaluated = stop.value
                return evaluated
            self.before(effect)
            answer = yield effect


def test_an_aggregator_waits_while_both_sides_work_longer_than_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {"circuit": "add32", "output": "aggregator", "security": "malicious"}
    path = create_pairwise_session(tmp_path, parameters, timeouts=HOURS)
    channels: dict[str, list[BlockingChannel]] = {}
    connect = PairwiseMember.connect

    def connected(member: PairwiseMember) -> dict[str, BlockingChannel]:
        made = connect(member)
        channels[member.identity.name] = list(made.values())
        return made

    monkeypatch.setattr(PairwiseMember, "connect", connected)

    def limit_aggregator(seconds: float) -> None:
        for channel in channels["aggregator"]:
            channel._stream.wait(seconds)

    limited = threading.Event()

    class Aggregator(Wrapped):
        def before(self, _effect: Send | Receive) -> None:
            if self.step == "outputs" and not limited.is_set():
                limit_aggregator(LIMIT)
                limited.set()

    class Garbler(Wrapped):
        paused = False

        def before(self, _effect: Send | Receive) -> None:
            if self.step == "tables" and not self.paused:
                self.paused = True
                limited.wait()
                time.sleep(PAUSE)
                limit_aggregator(HOURS.step)

    def run(name: str) -> Evaluated:
        member = PairwiseMember.load(path, name)
        role = member.role([pack([20 + len(name)], 32)] if member.input_values else [])
        kinds: dict[str, type[Wrapped]] = {"garbler": Garbler, "aggregator": Aggregator}
        wrapped: Any = kinds.get(name, Wrapped)(role)
        return pairwise.evaluate(member, wrapped).evaluated

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(run, NAMES))
    outputs = results[2].outputs
    assert outputs is not None
    assert unpack(outputs[0], 1) == [20 + 7 + 20 + 9]


class Still:
    """A channel on which nothing comes."""

    bytes_sent = bytes_received = 0

    def __init__(self, peer: str, step: str) -> None:
        self._error = TimeoutFault({peer}, step, "no whole frame came")
        self.last: Sequence[Any] = ()

    def receive(self, _limit: int, _ahead: int = 0) -> bytes:
        raise self._error

    def close(self, parts: Sequence[Any]) -> None:
        self.last = parts


class Waiting:
    """A role that waits for the aggregator, which needs a message of the evaluator first."""

    step = "outputs"

    def __init__(self, awaited: tuple[str, ...]) -> None:
        self._awaited = awaited

    def run(self) -> Effects[Evaluated]:
        yield Receive("aggregator", 1, awaited=self._awaited)
        raise AssertionError("something came")

    def farewell(self, _error: SmpcError) -> list[Send]:
        return []


@pytest.mark.parametrize(
    ("awaited", "step", "named"),
    [
        (("evaluator",), "receive", {"aggregator", "evaluator"}),
        ((), "receive", {"aggregator"}),
        # A lost connection says who is lost.
        (("evaluator",), "pair", {"aggregator"}),
    ],
)
def test_who_waits_for_an_aggregator_names_those_too_whom_that_waits_for(
    awaited: tuple[str, ...], step: str, named: set[str]
) -> None:
    role: Any = Waiting(awaited)
    channels: Any = {"aggregator": Still("aggregator", step)}
    with pytest.raises(TimeoutFault) as caught:
        pairwise.drive(role, channels)
    assert caught.value.missing == named
    assert ("who is silent is not known" in str(caught.value)) == (len(named) > 1)


@pytest.mark.parametrize("security", ["semi-honest", "covert", "malicious"])
def test_both_parties_say_that_the_aggregator_waits_for_the_other(tmp_path: Path, security: str) -> None:
    parameters = {"circuit": "add32", "output": "aggregator", "security": security}
    path = create_pairwise_session(tmp_path, parameters, timeouts=HOURS)
    awaited: dict[str, set[tuple[str, ...]]] = {name: set() for name in NAMES}

    class Watched(Wrapped):
        def before(self, effect: Send | Receive) -> None:
            if isinstance(effect, Receive) and effect.sender == "aggregator" and self.step != "hello":
                awaited[self.name].add(effect.awaited)

    def run(name: str) -> None:
        member = PairwiseMember.load(path, name)
        wrapped: Any = Watched(member.role([pack([1], 32)] if member.input_values else []))
        pairwise.evaluate(member, wrapped)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, NAMES))
    assert awaited == {"garbler": {("evaluator",)}, "evaluator": {("garbler",)}, "aggregator": set()}
