"""The published vectors are what the code produces, and every machine refuses every published fault."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from smpc_dp import errors
from smpc_dp.engine.events import Message, Start
from smpc_dp.engine.phases.certify import check_certificate
from smpc_dp.engine.phases.last_results import check_contradiction
from smpc_dp.engine.phases.messages import Certificate
from smpc_dp.errors import Code
from smpc_dp.wire.abort import ABORT, LEAVE, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_lab import vectors
from smpc_dp_lab.vectors import checked_runs, runs, succinct
from tests.vectors.reasons import CHECKS, REASONS, check_code, check_reason

# What an error says when it comes from the named layer; any other text comes from a check of content.
SAYS = {
    "envelope": r"invalid signature|a message for",
    "order": r"where '.*' is due|of another run|two different messages",
    "decoding": r"malformed \w+: (not the canonical encoding|.*trailing|.*[Ee]xpected)",
}

PUBLISHED = Path(__file__).parents[2] / "protocols" / "secagg" / "vectors"
NEGATIVE = sorted(PUBLISHED.glob("negative-*.json"))
SCENARIOS = (*runs.SCENARIOS, *checked_runs.SCENARIOS)


def test_published_is_generated() -> None:
    assert vectors.check(PUBLISHED) == []


def test_check_sees_every_difference(tmp_path: Path) -> None:
    names = vectors.write(tmp_path)
    assert vectors.check(tmp_path) == []
    (tmp_path / names[0]).unlink()
    (tmp_path / names[1]).write_bytes((tmp_path / names[1]).read_bytes() + b" ")
    (tmp_path / "other.json").write_text("{}")
    assert vectors.check(tmp_path) == [
        f"{names[0]}: is missing",
        "other.json: is not one of the vectors",
        f"{names[1]}: differs from what the code produces",
    ]


def test_every_kind_is_there() -> None:
    kinds = [json.loads(path.read_bytes())["kind"] for path in PUBLISHED.glob("*.json")]
    assert kinds.count("run") == len(SCENARIOS) == 14
    assert kinds.count("negative") == len(NEGATIVE) >= 60
    single = {"derivations", "masks", "shamir", "graph-draws", "encoding", "merkle", "certificates"}
    assert single | {"contradictions"} <= set(kinds)


def envelope_of(raw: dict[str, str]) -> Envelope:
    """Return the envelope that a vector has in hexadecimal."""
    return Envelope(
        bytes.fromhex(raw["run_id"]),
        raw["step"],
        raw["sender"],
        raw["receiver"],
        bytes.fromhex(raw["body"]),
        bytes.fromhex(raw["signature"]),
    )


def replayed(
    vector: dict[str, Any], scenarios: Sequence[runs.Scenario] = SCENARIOS
) -> tuple[runs.RecordedRun, Envelope]:
    """Return fresh machines of the base run, the receiver fed up to the fault, and the faulty envelope."""
    [scenario] = [s for s in scenarios if f"run-{s.name}.json" == vector["base"]]
    sent = runs.new_run(scenario).execute().sent
    fresh = runs.new_run(scenario)
    envelope = envelope_of(vector["envelope"])
    machine = fresh.parties.get(envelope.receiver, fresh.aggregator)
    machine.handle(Start())
    for earlier in [e for e in sent if e.receiver == envelope.receiver][: vector["after"]]:
        machine.handle(Message(earlier))
    return fresh, envelope


def layer_of(text: str) -> str:
    return next((layer for layer, pattern in SAYS.items() if re.search(pattern, text)), "content")


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_fault_is_refused(path: Path) -> None:
    assert_refused(path)


def assert_refused(path: Path, scenarios: Sequence[runs.Scenario] = SCENARIOS) -> None:
    vector = json.loads(path.read_bytes())
    run, envelope = replayed(vector, scenarios)
    error = assert_refuses(run, envelope, vector["expect"])
    check_reason(path, str(error))
    check_code(path, error)


def assert_refuses(run: Any, envelope: Envelope, expect: dict[str, str]) -> errors.SmpcError:
    """The receiver of the envelope, among the machines of `run`, refuses it as a vector says; return how."""
    if envelope.receiver == runs.AGGREGATOR:
        [abort] = [e for e in run.aggregator.handle(Message(envelope)) if e.step == ABORT]
        assert abort.receiver == expect["culprit"]
        reported = decode(abort.body, Abort, runs.AGGREGATOR)
        [*_, why] = run.aggregator.state.inbox.faults
        [*_, error] = run.aggregator.state.inbox.excluded.values()
        assert str(error) == why
        assert layer_of(why) == expect["layer"]
        assert reported == Abort(Code.FAULT, expect["culprit"])
        return cast("errors.SmpcError", error)
    party = run.parties[envelope.receiver]
    with pytest.raises(errors.SmpcError) as raised:
        party.handle(Message(envelope))
    assert type(raised.value).__name__ == expect["error"]
    assert getattr(raised.value, "culprit", "") == expect["culprit"]
    assert layer_of(str(raised.value)) == expect["layer"]
    assert party.finished, "a party that refused goes on"
    assert party.handle(Message(envelope)) == ()
    return raised.value


def test_every_reason_is_of_a_vector() -> None:
    for protocol, reasons in [*REASONS.items(), *CHECKS.items()]:
        for name in reasons:
            assert (PUBLISHED.parents[1] / protocol / "vectors" / f"{name}.json").is_file()


def test_every_negative_vector_has_its_check() -> None:
    for protocol, checks in CHECKS.items():
        folder = PUBLISHED.parents[1] / protocol / "vectors"
        negative = [*folder.glob("*negative-*.json"), *folder.glob("no-certificate-*.json")]
        assert {path.stem for path in negative} == {*checks}


@pytest.mark.thin(4)
@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_without_the_fault_it_is_taken(path: Path) -> None:
    """The vector's own step, unchanged, is accepted in the same place: it is the fault that is refused."""
    assert_taken_without(json.loads(path.read_bytes()))


def assert_taken_without(vector: dict[str, Any], scenarios: Sequence[runs.Scenario] = SCENARIOS) -> None:
    run, faulty = replayed(vector, scenarios)
    [scenario] = [s for s in scenarios if f"run-{s.name}.json" == vector["base"]]
    sent = [e for e in runs.new_run(scenario).execute().sent if e.receiver == faulty.receiver]
    machine = run.parties.get(faulty.receiver, run.aggregator)
    answers = machine.handle(Message(sent[vector["after"]]))
    assert not any(answer.step in (ABORT, LEAVE) for answer in answers)


CONTRADICTIONS = json.loads((PUBLISHED / "contradictions.json").read_bytes())


@pytest.mark.parametrize("case", CONTRADICTIONS["cases"], ids=lambda case: case["name"])
def test_contradictions(case: dict[str, Any]) -> None:
    """Evidence of two results of a run convicts the aggregator, and other evidence does not."""
    evidence = {field: bytes.fromhex(value) for field, value in case["evidence"].items()}
    expected = contextlib.nullcontext() if case["good"] else pytest.raises(errors.VerificationError)
    with expected:
        check_contradiction(bytes.fromhex(CONTRADICTIONS["public_key"]), evidence)


CERTIFICATES = json.loads((PUBLISHED / "certificates.json").read_bytes())


@pytest.mark.parametrize("case", CERTIFICATES["cases"], ids=lambda case: case["name"])
def test_certificates(case: dict[str, Any]) -> None:
    """Both forms of the good certificate are taken, and every fault is the aggregator's."""
    context, _ = succinct.setup()
    missing, parties = CERTIFICATES["missing"], CERTIFICATES["parties"]
    certificate = decode(bytes.fromhex(case["body"]), Certificate, runs.AGGREGATOR)
    requested = (
        context,
        CERTIFICATES["quorum"],
        bytes.fromhex(CERTIFICATES["run_id"]),
        CERTIFICATES["step"],
        bytes.fromhex(CERTIFICATES["set_digest"]),
        frozenset(range(1, parties + 1)) - frozenset(missing),
        certificate,
    )
    if case["good"]:
        assert len(check_certificate(*requested).signatures) >= len(CERTIFICATES["places"])
        return
    with pytest.raises(errors.PeerFault, match="certificate") as raised:
        check_certificate(*requested)
    assert raised.value.culprit == runs.AGGREGATOR
