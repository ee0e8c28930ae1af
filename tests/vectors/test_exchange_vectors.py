"""The published vectors of exchanges are what the code produces, and every published fault is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.engine.events import Message, Start
from smpc_dp.wire.abort import ABORT, LEAVE
from smpc_dp.wire.envelope import Envelope
from smpc_dp_lab import vectors
from smpc_dp_lab.vectors.exchange_runs import SCENARIOS, new_run
from smpc_dp_lab.vectors.runs import RecordedRun
from tests.vectors.reasons import check_code, check_reason
from tests.vectors.test_secagg_vectors import assert_refuses, envelope_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "exchange" / "vectors"
NEGATIVE = sorted(PUBLISHED.glob("negative-*.json"))


def test_published_is_generated() -> None:
    assert vectors.check(PUBLISHED, "exchange") == []


def test_every_kind_is_there() -> None:
    files = [json.loads(path.read_bytes()) for path in PUBLISHED.glob("*.json")]
    runs = [content for content in files if content["kind"] == "run"]
    assert sorted(run["name"] for run in runs) == sorted(scenario.name for scenario in SCENARIOS)
    layers = [content["expect"]["layer"] for content in files if content["kind"] == "negative"]
    assert set(layers) == {"envelope", "order", "decoding", "content"}
    assert len(layers) == len(NEGATIVE) >= 30


def replayed(vector: dict[str, Any]) -> tuple[RecordedRun, Envelope, Envelope]:
    """Return fresh machines, the receiver fed up to the fault, the faulty envelope and what it replaces."""
    [scenario] = [scenario for scenario in SCENARIOS if f"run-{scenario.name}.json" == vector["base"]]
    fresh, envelope = new_run(scenario), envelope_of(vector["envelope"])
    expected = [sent for sent in new_run(scenario).execute().sent if sent.receiver == envelope.receiver]
    machine = fresh.parties.get(envelope.receiver, fresh.aggregator)
    machine.handle(Start())
    for earlier in expected[: vector["after"]]:
        machine.handle(Message(earlier))
    return fresh, envelope, expected[vector["after"]]


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_fault_is_refused(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    run, envelope, _ = replayed(vector)
    error = assert_refuses(run, envelope, vector["expect"])
    check_reason(path, str(error))
    check_code(path, error)


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_without_the_fault_it_is_taken(path: Path) -> None:
    run, envelope, good = replayed(json.loads(path.read_bytes()))
    machine = run.parties.get(envelope.receiver, run.aggregator)
    assert not any(answer.step in (ABORT, LEAVE) for answer in machine.handle(Message(good)))
