"""The published vectors of GOPA without an aggregator: runs give every message again, faults are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from nacl.signing import SigningKey

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.direct_states import party
from smpc_dp.capabilities.gopa.plan import Neighbourhood
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.engine.events import Deadline, Event, Message, Start
from smpc_dp.engine.peers import Inbox
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.transport.memory import Faults
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context
from smpc_dp_lab.vectors.direct_runs import SCENARIOS, direct_parameters
from smpc_dp_lab.vectors.runs import RecordingNetwork
from tests.vectors.reasons import check_code, check_reason
from tests.vectors.test_secagg_vectors import envelope_of, layer_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "gopa" / "vectors"
RUNS = sorted(PUBLISHED.glob("direct-run-*.json"))
NEGATIVE = sorted(PUBLISHED.glob("direct-negative-*.json"))


class Drawn:
    """The published draws of one party, in order."""

    def __init__(self, draws: list[str]) -> None:
        self.left = [bytes.fromhex(draw) for draw in draws]

    def bytes(self, n: int) -> bytes:
        drawn = self.left.pop(0)
        assert len(drawn) == n
        return drawn


def machines_of(vector: dict[str, Any]) -> tuple[dict[str, Run[Outcome]], dict[str, Drawn]]:
    """Return fresh machines, made of nothing but what the file holds."""
    session = vector["session"]
    parameters = msgspec.structs.replace(
        direct_parameters(SCENARIOS[0]),
        encoding=msgspec.convert(session["encoding"], Encoding),
        plan=msgspec.structs.replace(plan_secagg(5, dropout=0.2, corrupt=0.0), **session["plan"]),
        session=msgspec.structs.replace(
            direct_parameters(SCENARIOS[0]).session,
            own_variance=session["own_variance"],
            pair_variance=session["pair_variance"],
            neighbourhood=msgspec.convert(session["place"], Neighbourhood),
        ),
    )
    identities = vector["identities"]
    context = Context(
        protocol=session["protocol"],
        version=session["version"],
        session_digest=bytes.fromhex(session["session_digest"]),
        request=session["request"],
        names=tuple(session["names"]),
        aggregator=session["aggregator"],
        keys={name: bytes.fromhex(identity["public_key"]) for name, identity in identities.items()},
        operation=session["question"],
    )
    draws = {name: Drawn(drawn) for name, drawn in vector["randomness"].items()}
    parties = {}
    for name in session["names"]:
        signer = Signer(name, SigningKey(bytes.fromhex(identities[name]["signing_seed"])))
        ring_vector: RingVector = np.array(vector["inputs"][name]["lanes"], parameters.encoding.dtype)
        parties[name] = party(context, parameters, signer, ring_vector, draws[name])
    return parties, draws


def test_every_kind_of_loss_is_there() -> None:
    results = {path.stem.removeprefix("direct-run-"): json.loads(path.read_bytes()) for path in RUNS}
    assert {
        name: (run["result"]["absent"], run["result"]["residual_pairs"]) for name, run in results.items()
    } == {
        "all": ([], 0),
        "forward": ([], 0),
        "lost-before-the-certificate": (["dave"], 0),
        "lost-after-the-certificate": (["dave"], 4),
    }
    assert [
        name for name, run in results.items() if any(m["step"] == "forward" for m in run["messages"])
    ] == ["forward"]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_same_inputs_give_the_same_messages_and_results(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    parties, draws = machines_of(vector)
    network = RecordingNetwork(Faults(kill=vector["kill"]))
    drive(parties.values(), network, vector["session"]["coordinator"], mesh=True)
    assert [
        {
            "step": envelope.step,
            "sender": envelope.sender,
            "receiver": envelope.receiver,
            "body_sha256": hashlib.sha256(envelope.body).hexdigest(),
            "signature": envelope.signature.hex(),
        }
        for envelope in network.sent
    ] == vector["messages"]
    expected = vector["result"]
    assert set(expected["faults"]) == set(parties) - set(vector["kill"])
    for name, faults in expected["faults"].items():
        outcome = parties[name].result
        assert outcome.total.tolist() == expected["fixed_point"]
        assert list(outcome.survivors) == expected["survivors"]
        assert list(outcome.absent) == expected["absent"]
        assert list(outcome.faults) == faults
        assert outcome.noise is not None
        assert outcome.noise.residual_pairs == expected["residual_pairs"]
        assert not draws[name].left, "a draw that the run does not need"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_total_is_the_sum_of_what_was_published(path: Path) -> None:
    """From the page alone: bodies, the sum of x_hat, and what is signed about it."""
    vector = json.loads(path.read_bytes())
    between, names = vector["intermediate"], vector["session"]["names"]
    published = {name: bytes.fromhex(x_hat) for name, x_hat in between["x_hat"].items()}
    for message in vector["messages"]:
        if message["step"] == g.PUBLISH:
            body = b"\x91\xc4\x10" + published[message["sender"]]
            assert hashlib.sha256(body).hexdigest() == message["body_sha256"]
    survivors = vector["result"]["survivors"]
    total = sum(np.frombuffer(published[name], "<u8") for name in survivors)
    assert isinstance(total, np.ndarray)
    # Lanes carry a value minus the least one, as in secure aggregation.
    encoding = vector["session"]["encoding"]
    assert total.view("<i8").tolist() == [
        value - len(survivors) * encoding["lowest"] for value in vector["result"]["fixed_point"]
    ]
    members = pack_set([names.index(name) + 1 for name in survivors], len(names))
    run_id, participants = (bytes.fromhex(between[key]) for key in ("run_id", "participants_digest"))
    context = (b"gopa", (4).to_bytes(8, "big"))
    signed = digest(Label.DIRECT_TOTAL, *context, run_id, participants, members, total.tobytes())
    assert signed.hex() == between["total_digest"]


def replayed(vector: dict[str, Any]) -> tuple[Run[Outcome], list[Envelope]]:
    """Return a fresh machine, fed up to the fault, and what the base run sent to it from there on."""
    base = json.loads((PUBLISHED / vector["base"]).read_bytes())
    parties, _ = machines_of(base)
    network = RecordingNetwork(Faults(kill=base["kill"]))
    drive(parties.values(), network, base["session"]["coordinator"], mesh=True)
    came = [envelope for envelope in network.sent if envelope.receiver == vector["receiver"]]
    machine = machines_of(base)[0][vector["receiver"]]
    machine.handle(Start())
    for envelope in came[: vector["after"]]:
        machine.handle(Message(envelope))
    return machine, came[vector["after"] :]


def envelopes_of(vector: dict[str, Any]) -> list[Envelope]:
    return [envelope_of(raw) for raw in vector["envelopes"]]


def test_every_kind_of_fault_is_there() -> None:
    faults = [json.loads(path.read_bytes())["expect"] for path in NEGATIVE]
    assert len(faults) == 25
    assert {fault["layer"] for fault in faults} == {"envelope", "order", "content"}
    assert {fault["error"] for fault in faults} == {"PeerFault", "TimeoutFault"}
    assert {(fault["ends"], *fault["culprits"]) for fault in faults} == {
        (True, "alice"),
        (True, "carol"),
        (True, "alice", "dave"),
        (True, "carol", "dave"),
        (False, "carol"),
    }


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("direct-negative-"))
def test_fault_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = json.loads(path.read_bytes())
    machine, rest = replayed(vector)
    steps: list[Event] = [Message(e) for e in envelopes_of(vector)]
    if vector["deadline"]:
        steps.append(Deadline())
    if not vector["expect"]["ends"]:
        noted: list[SmpcError | str] = []
        note = Inbox.note

        def keep(inbox: Inbox, fault: SmpcError | str) -> None:
            noted.append(fault)
            note(inbox, fault)

        monkeypatch.setattr(Inbox, "note", keep)
        why = assert_noted(vector, machine, [*steps, *map(Message, rest)])
        check_reason(path, why)
        [error] = {str(fault): fault for fault in noted}.values()
        assert isinstance(error, PeerFault)
        check_code(path, error)
        return
    for step in steps[:-1]:
        machine.handle(step)
    assert not machine.finished, "refused before the fault"
    with pytest.raises(SmpcError) as raised:
        machine.handle(steps[-1])
    error, expect = raised.value, vector["expect"]
    assert type(error).__name__ == expect["error"]
    assert isinstance(error, (PeerFault, TimeoutFault))
    culprits = error.missing if isinstance(error, TimeoutFault) else {error.culprit}
    assert sorted(culprits) == expect["culprits"]
    assert layer_of(str(error)) == expect["layer"]
    check_reason(path, str(error))
    check_code(path, error)
    assert machine.finished, "a party that refused goes on"
    assert machine.handle(Message(rest[-1])) == ()
    with pytest.raises(SmpcError, match="has no result"):
        _ = machine.result


def assert_noted(vector: dict[str, Any], machine: Run[Outcome], steps: Iterable[Event]) -> str:
    """The fault costs the run nothing: the result is the base run's, with a note, which is returned."""
    for step in steps:
        machine.handle(step)
    expected = json.loads((PUBLISHED / vector["base"]).read_bytes())["result"]
    assert machine.result.total.tolist() == expected["fixed_point"]
    assert list(machine.result.survivors) == expected["survivors"]
    [fault] = machine.result.faults
    assert [fault.partition(": ")[0]] == vector["expect"]["culprits"]
    assert layer_of(fault) == vector["expect"]["layer"]
    return fault


@pytest.mark.thin(4)
@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("direct-negative-"))
def test_without_the_fault_it_is_taken(path: Path) -> None:
    """The same machine, given the base run's own messages in the same place, ends with its result."""
    vector = json.loads(path.read_bytes())
    machine, rest = replayed(vector)
    base = json.loads((PUBLISHED / vector["base"]).read_bytes())
    for envelope in rest:
        machine.handle(Message(envelope))
    if not machine.finished:
        assert base["kill"], "what is not lost needs no deadline"
        machine.handle(Deadline())
    assert machine.result.total.tolist() == base["result"]["fixed_point"]
    assert list(machine.result.faults) == base["result"]["faults"][vector["receiver"]]
