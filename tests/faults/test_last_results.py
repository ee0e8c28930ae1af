"""An aggregator that sends two results of one run: the next `start` convicts it, and never an honest one."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest
from nacl.signing import VerifyKey

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.check import check_gopa
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.keys import run_identifier
from smpc_dp.engine.phases.last_results import ENTRY_BYTES, HeldResult, SentResults, check_contradiction
from smpc_dp.engine.phases.parameters import MOST_SHOWN, SumParameters, Total
from smpc_dp.errors import Check, PeerFault, TimeoutFault, VerificationError
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, encode_envelope
from smpc_dp_verify.encodings import tuple_hash
from tests.faults.simulated import AGGREGATOR, LENGTH, SimulatedRun, Tamper

PARTIES = 5
NAMES = tuple(f"p{number}" for number in range(1, PARTIES + 1))
NOT_NAMED = "relay does not name the run whose result this party holds"
Retained = dict[str, Any]


def secagg(total: Total = "unchecked", most_shown: int = MOST_SHOWN) -> SumParameters:
    encoding = Encoding.plan(length=LENGTH, lower=-9.0, upper=9.0, precision=1e-3, parties=PARTIES)
    plan = plan_secagg(PARTIES, dropout=0.2, corrupt=0.0)
    return SecAggParameters(encoding, plan, same_survivors=False, total=total, most_shown=most_shown)


def gopa(on_dropout: str) -> SumParameters:
    given = {"length": LENGTH, "lower": -9.0, "upper": 9.0, "epsilon": 4.0, "delta": 1e-5, "dropout": 0.2}
    # Of a checked total there is one alone, unless more collude than planned.
    form = {"on_dropout": on_dropout, "corrupt": 0.0, "total": "unchecked"}
    checked, issues = check_gopa(given | form, PARTIES)
    assert isinstance(checked, SumParameters), issues
    return checked


KINDS: Mapping[str, Callable[[], SumParameters]] = {
    "secagg": secagg,
    "gopa-keep": lambda: gopa("keep"),
    "gopa-roll-back": lambda: gopa("roll-back"),
}
# Of honest aggregators alone: those with checked totals too.
FORMS: Mapping[str, Callable[[], SumParameters]] = {
    **KINDS,
    "secagg-checked": lambda: secagg("checked"),
    "secagg-checkers": lambda: secagg("checked", most_shown=3),
}


def everybody() -> Retained:
    return {AGGREGATOR: SentResults()} | {name: HeldResult() for name in NAMES}


def simulated(request: int, retained: Retained, kind: str = "secagg", run: int = 0) -> SimulatedRun:
    """Return a request of one session, whose members have what earlier ones have left them."""
    parameters = FORMS[kind]()
    return SimulatedRun(PARTIES, parameters=parameters, request=request, run=run or request, last=retained)


def two_totals(scene: SimulatedRun, *victims: str) -> Tamper:
    """Send these parties another result, signed as well."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step not in (m.RESULT, g.AVERAGE) or envelope.receiver not in victims:
            return (envelope,)
        total = bytearray(decode(envelope.body, result_of(envelope), AGGREGATOR).total)
        total[0] ^= 1
        return (scene.change(envelope, total=bytes(total)),)

    return tamper


def result_of(envelope: Envelope) -> Any:
    return m.Result if envelope.step == m.RESULT else g.Average


def lost(name: str, step: str) -> Tamper:
    """Lose a party before it sends `step`, and from then on."""
    silent = False

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        nonlocal silent
        silent = silent or (envelope.sender, envelope.step) == (name, step)
        return () if silent and name in (envelope.sender, envelope.receiver) else (envelope,)

    return tamper


def assert_convicts(evidence: Mapping[str, bytes], scene: SimulatedRun, party: str) -> None:
    """Anybody with the aggregator's key finds that the evidence contradicts itself, by the specification."""
    key = VerifyKey(scene.context.keys[AGGREGATOR])
    check_contradiction(scene.context.keys[AGGREGATOR], evidence)

    def check(
        kind: str, run_id: bytes, step: bytes, body_hash: bytes, signature: bytes
    ) -> tuple[bytes, bytes]:
        bound = evidence[f"{kind} protocol"], evidence[f"{kind} version"]
        parts = (run_id, step, AGGREGATOR.encode(), party.encode(), body_hash)
        key.verify(tuple_hash("envelope", *bound, *parts), signature)
        return bound

    run_id, result = evidence["result run id"], evidence["result"]
    bound = check("result", run_id, evidence["result step"], result, evidence["result signature"])
    assert evidence["result step"] in (b"result", b"average")
    start_run, step, _, _, body, signature = msgspec.msgpack.decode(evidence["message"])
    check("message", start_run, step.encode(), hashlib.sha256(body).digest(), signature)
    named = msgspec.msgpack.decode(body)[4]
    entries = {named[at : at + 32]: named[at + 32 : at + 64] for at in range(0, len(named), 64)}
    assert step == "start"
    assert entries[tuple_hash("last-run", *bound, run_id)] != tuple_hash(
        "last-result", *bound, run_id, result
    )


@pytest.mark.parametrize("kind", FORMS)
def test_honest_requests_follow_each_other_in_silence(kind: str) -> None:
    retained, ids = everybody(), set()
    for request in (1, 2, 3):
        scene = simulated(request, retained, kind).execute()
        assert not scene.errors
        assert (m.TOTAL in {e.step for e in scene.sent}) == (kind == "secagg-checkers")
        ids.add(scene.aggregator.run_id)
        starts = [decode(e.body, m.FollowingStart, AGGREGATOR) for e in scene.sent if e.step == m.START]
        assert {len(start.named) for start in starts} == {ENTRY_BYTES if request > 1 else 0}
        assert len({start.named for start in starts}) == 1
    assert len(ids) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_one_victim_convicts_the_aggregator_and_others_go_on(kind: str) -> None:
    retained = everybody()
    first = simulated(1, retained, kind)
    first.execute(two_totals(first, "p2"))
    assert not first.errors
    second = simulated(2, retained, kind).execute()
    assert set(second.errors) == {"p2"}
    second.assert_blames("p2", AGGREGATOR, "names another result than it has sent to this party")
    error = second.errors["p2"]
    assert isinstance(error, PeerFault)
    assert error.check == Check.OTHER_RESULT
    assert_convicts(error.evidence, second, "p2")
    assert m.ADVERTISE not in second.steps_of("p2")
    assert second.aggregator.result.absent == ("p2",)
    # It takes part in no further run, whatever that names.
    third = simulated(3, retained | {AGGREGATOR: SentResults()}, kind).execute()
    again = third.errors["p2"]
    assert isinstance(again, PeerFault)
    # A new one: that of before has frames, with the vectors in them.
    assert again is not error
    assert again.evidence == error.evidence
    assert m.HELLO not in third.steps_of("p2")


def test_a_run_that_had_begun_before_a_refusal_goes_no_further() -> None:
    """Another process of the party has refused meanwhile; the evidence stays what it was."""
    retained = everybody()
    first = simulated(1, retained)
    first.execute(two_totals(first, "p2"))
    second = simulated(2, retained).execute()
    refused = second.errors["p2"]
    assert isinstance(refused, PeerFault)
    third = simulated(3, retained | {"p2": HeldResult(), AGGREGATOR: SentResults()})

    def meanwhile(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.receiver) == (m.START, "p2"):
            third.parties["p2"].member.last.record_refusal(refused.evidence)
        return (envelope,)

    third.execute(meanwhile)
    error = third.errors["p2"]
    assert isinstance(error, PeerFault)
    assert error.evidence == refused.evidence
    assert m.ADVERTISE not in third.steps_of("p2")


def test_a_refusal_holds_bytes_alone() -> None:
    retained = everybody()
    first = simulated(1, retained)
    first.execute(two_totals(first, "p2"))
    simulated(2, retained).execute()
    assert {type(value) for value in retained["p2"].refusal.values()} == {bytes}


def test_no_run_id_comes_again_when_all_parties_send_the_same_nonces() -> None:
    """Colluding parties would have two results of one run, if the aggregator was started anew."""
    ids = set()
    for process in range(2):
        retained = everybody() | {AGGREGATOR: SentResults(SeededRandomnessForSimulation(process, "nonce"))}
        scene = simulated(1, retained, run=1).execute()
        hellos = [decode(e.body, m.Hello, e.sender).nonce for e in scene.sent if e.step == m.HELLO]
        ids.add((scene.aggregator.run_id, *hellos))
    assert len({run_id for run_id, *_ in ids}) == len(ids) == 2
    assert len({tuple(hellos) for _, *hellos in ids}) == 1


def test_evidence_of_another_step_or_receiver_or_of_the_same_result_shows_nothing() -> None:
    retained = everybody()
    first = simulated(1, retained)
    first.execute(two_totals(first, "p2"))
    second = simulated(2, retained).execute()
    refused = second.errors["p2"]
    assert isinstance(refused, PeerFault)
    key, good = second.context.keys[AGGREGATOR], refused.evidence
    check_contradiction(key, good)
    [other] = [e for e in first.sent if (e.step, e.receiver) == (m.MERKLE_COMMITMENT, "p2")]
    of_another_step = {"result": hashlib.sha256(other.body).digest(), "result signature": other.signature}
    [start] = [e for e in second.sent if (e.step, e.receiver) == (m.START, "p1")]
    [named] = [e for e in first.sent if (e.step, e.receiver) == (m.RESULT, "p1")]
    same = {"result": hashlib.sha256(named.body).digest(), "result signature": named.signature}
    told = decode(good["message"], Envelope, "")
    # Signed by the aggregator, with the body of a start.
    misplaced = second.write(told, decode(told.body, m.FollowingStart, AGGREGATOR), step=m.MERKLE_COMMITMENT)
    for changed, reason in (
        (of_another_step | {"result step": b"roll"}, "of other messages"),
        (of_another_step, "wrong signature"),
        ({"message": encode_envelope(other)}, "malformed"),
        ({"message": encode_envelope(misplaced)}, "of other messages"),
        ({"message": encode_envelope(start)}, "wrong signature"),
        (same | {"message": encode_envelope(start)}, "does not name another result"),
        ({"message protocol": b"gopa"}, "wrong signature"),
        ({"result run id": bytes(32)}, "wrong signature"),
        ({"message": b""}, "malformed"),
    ):
        with pytest.raises(VerificationError, match=reason):
            check_contradiction(key, {**good, **changed})
    for name in good:
        with pytest.raises(VerificationError, match="malformed"):
            check_contradiction(key, {field: value for field, value in good.items() if field != name})
    with pytest.raises(VerificationError):
        check_contradiction(second.context.keys["p1"], good)


def test_too_many_victims_leave_no_quorum() -> None:
    retained = everybody()
    first = simulated(1, retained)
    first.execute(two_totals(first, "p2", "p4"))
    second = simulated(2, retained).execute()
    assert isinstance(second.errors[AGGREGATOR], TimeoutFault)
    for name in ("p2", "p4"):
        error = second.errors[name]
        assert isinstance(error, PeerFault)
        assert_convicts(error.evidence, second, name)
    assert not any(party.finished and name not in second.errors for name, party in second.parties.items())


def named_to(scene: SimulatedRun, names: Iterable[str], named: bytes) -> Tamper:
    """Name other last results to these parties, in a start of the run that follows from them."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step != m.START or envelope.receiver not in names:
            return (envelope,)
        start = decode(envelope.body, m.FollowingStart, AGGREGATOR)
        run_id = run_identifier(
            scene.context, scene.context.operation, start.present, start.root, (start.nonce, named)
        )
        changed = msgspec.structs.replace(start, named=named)
        return (scene.write(envelope, changed, run_id=run_id),)

    return tamper


def test_a_victim_that_is_named_its_own_result_is_in_another_run() -> None:
    retained = everybody()
    first = simulated(1, retained)
    first.execute(two_totals(first, "p2"))
    own, others = (b"".join(retained[name].held.entry) for name in ("p2", "p1"))
    # Both, one after the other: keys must differ.
    second = simulated(2, retained)
    second.execute(named_to(second, NAMES, b"".join(sorted([own, others]))))
    second.assert_blames("p1", AGGREGATOR, "names last results")
    third = simulated(3, retained)
    third.execute(named_to(third, ("p2",), own))
    assert set(third.errors) == {"p2"}
    assert "p2" not in third.aggregator.result.survivors


@pytest.mark.parametrize("forgets", ["all", "for the victim"])
def test_an_aggregator_that_names_no_result_is_reported_and_not_accused(forgets: str) -> None:
    retained = everybody()
    first = simulated(1, retained)
    first.execute(two_totals(first, "p2"))
    if forgets == "all":
        retained[AGGREGATOR] = SentResults()
    else:
        # The victim holds the result of another run than the one that is named.
        simulated(2, retained).execute(lost("p2", m.HELLO))
        retained[AGGREGATOR]._entries["p2"] = retained[AGGREGATOR]._entries["p1"]
    second = simulated(3, retained)
    warnings = watch_warnings(second)
    second.execute()
    assert not second.errors
    assert warnings == dict.fromkeys(NAMES if forgets == "all" else ("p2",), NOT_NAMED)


def watch_warnings(scene: SimulatedRun) -> dict[str, str]:
    """Collect the warnings of the parties' states."""
    warnings: dict[str, str] = {}
    for name, party in scene.parties.items():

        def handle(event: Any, name: str = name, party: Any = party, original: Any = party.handle) -> Any:
            sent = original(event)
            if party.state.warning:
                warnings[name] = party.state.warning
            return sent

        party.handle = handle  # type: ignore[method-assign]
    return warnings


def test_a_lost_party_is_named_the_result_that_it_has() -> None:
    """It is not in the run of request 2; the others have that one's result, and it has that of request 1."""
    retained = everybody()
    assert not simulated(1, retained).execute().errors
    simulated(2, retained).execute(lost("p2", m.MASKED))
    third = simulated(3, retained)
    warnings = watch_warnings(third)
    third.execute()
    assert (third.errors, warnings) == ({}, {})
    starts = [decode(e.body, m.FollowingStart, AGGREGATOR) for e in third.sent if e.step == m.START]
    assert {len(start.named) for start in starts} == {2 * ENTRY_BYTES}


def test_a_party_without_a_result_accepts() -> None:
    retained = everybody()
    first = simulated(1, retained)
    first.execute(two_totals(first, "p2"))
    retained["p2"] = HeldResult()
    second = simulated(2, retained)
    warnings = watch_warnings(second)
    second.execute()
    assert (second.errors, warnings) == ({}, {})


@pytest.mark.parametrize(
    "named",
    [
        bytes(ENTRY_BYTES - 1),
        bytes(ENTRY_BYTES + 32),
        bytes(2 * ENTRY_BYTES),
        b"\2" * ENTRY_BYTES + b"\1" * ENTRY_BYTES,
        b"".join(bytes([number]) * ENTRY_BYTES for number in range(PARTIES + 1)),
    ],
    ids=["short", "half", "equal", "descending", "too-many"],
)
def test_last_results_that_are_malformed_are_refused(named: bytes) -> None:
    scene = simulated(1, everybody())
    scene.execute(named_to(scene, ("p3",), named))
    scene.assert_blames("p3", AGGREGATOR, "names last results")
    assert m.ADVERTISE not in scene.steps_of("p3")


def test_there_are_at_most_as_many_last_results_as_parties_present() -> None:
    scene = simulated(1, everybody())
    too_many = b"".join(bytes([number]) * ENTRY_BYTES for number in range(PARTIES))
    gone, naming = lost("p5", m.HELLO), named_to(scene, ("p3",), too_many)
    scene.execute(lambda envelope: (sent for each in gone(envelope) for sent in naming(each)))
    scene.assert_blames("p3", AGGREGATOR, "names last results")
    assert m.ADVERTISE not in scene.steps_of("p3")


def test_last_results_are_bound_by_the_run_id() -> None:
    scene = simulated(1, everybody())
    scene.execute(
        lambda e: (scene.change(e, named=bytes(64)),) if (e.step, e.receiver) == (m.START, "p3") else (e,)
    )
    scene.assert_blames("p3", AGGREGATOR, "not for the run that its nonces give")


def test_no_schedule_convicts_an_honest_aggregator() -> None:
    """Lost parties, members that start anew, results that only some get, numbers that come again."""
    chooser, compared = random.Random(41), 0
    retained, number = everybody(), 1
    for run in range(1, 12):
        scene = simulated(number, retained, chooser.choice([*FORMS]), run)
        steps = [m.HELLO, m.ADVERTISE, m.REVEAL, m.ATTEST_PARTICIPANTS, m.MASKED, m.UNMASK, g.PUBLISH]
        hand = lost(chooser.choice(NAMES), chooser.choice(steps))
        unheard = chooser.sample(NAMES, chooser.randint(0, PARTIES))

        def tamper(
            envelope: Envelope, hand: Tamper = hand, unheard: list[str] = unheard
        ) -> Iterable[Envelope]:
            ends = envelope.step in (m.RESULT, g.AVERAGE) and envelope.receiver in unheard
            return () if ends else hand(envelope)

        keys = {name: retained[name].held.entry[0] for name in NAMES if retained[name].held}
        scene.execute(tamper)
        assert not [e for e in scene.errors.values() if isinstance(e, PeerFault) and e.evidence]
        named = {
            e.receiver: decode(e.body, m.FollowingStart, "").named for e in scene.sent if e.step == m.START
        }
        compared += sum(key in named.get(name, b"") for name, key in keys.items())
        for name in (*NAMES, AGGREGATOR):
            if chooser.random() < 0.1:
                retained[name] = SentResults() if name == AGGREGATOR else HeldResult()
        number = 1 if chooser.random() < 0.1 else number + chooser.randint(0, 2)
    # Of 55: the others hold nothing, are lost, or are named the result of another run.
    assert compared >= 10
