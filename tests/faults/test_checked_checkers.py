"""Checked totals of many parties: some survivors check for all, and c + 1 of them attest the total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest

from smpc_dp.capabilities.gopa.params import check_parameters as check_gopa
from smpc_dp.encoding import Encoding
from smpc_dp.engine.events import Event, PeersLost
from smpc_dp.engine.phases import checked_total, keys, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.parameters import MOST_SHOWN, SumParameters
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, Code, PeerFault, TimeoutFault
from smpc_dp.privacy.secagg_plan import check_plan, plan_secagg
from smpc_dp.secagg import checkers, states
from smpc_dp.secagg.noisy import check_noisy
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.abort import LEAVE, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import decode
from smpc_dp_lab.bench.roles import sum_roles
from tests.faults.checked_totals import CHECKED, CheckedRun, plus
from tests.faults.simulated import AGGREGATOR, Tamper, by, only

PARTIES, SHOWN = 8, 3
# Of eight parties one may be corrupt and silent, and another lost: four check, and two must attest.
PLAN = plan_secagg(PARTIES, dropout=0.15, corrupt=0.15)
QUORUM, ASKED = 2, 4
WRONG = "the total is not that of the commitments"
UNPROVEN = "certificate of 'attest-total' "


def show_unchecked(aggregator: states.Aggregator, state: states.CollectUnmask) -> Transition:
    """Show the total without the aggregator's own checks."""
    with mock.patch.object(checked_total, "check_total"), mock.patch.object(outcomes, "outcome"):
        return checkers.show_total(aggregator, state)


LYING = checkers.AGGREGATOR.with_row(states.CollectUnmask, finish=show_unchecked)


def exact() -> SumParameters:
    encoding = Encoding.plan(length=3, lower=-9.0, upper=9.0, precision=1e-3, parties=PARTIES)
    return SecAggParameters(encoding, PLAN, total="checked", most_shown=SHOWN)


def planned(check: Callable[..., Any], **more: object) -> SumParameters:
    given: dict[str, object] = {
        "length": 3,
        "lower": -9.0,
        "upper": 9.0,
        "precision": 1e-3,
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    given |= {"dropout": 0.15, "corrupt": 0.15, "total": "checked"}
    parameters, issues = check(given | more, PARTIES)
    assert parameters is not None, issues
    changed: SumParameters = msgspec.structs.replace(parameters, most_shown=SHOWN)
    return changed


KINDS: Mapping[str, Callable[[], SumParameters]] = {
    "exact": exact,
    "noisy": lambda: planned(check_noisy),
    "gopa": lambda: planned(check_gopa, on_dropout="roll-back"),
}


OF_MANY: Mapping[str, type[msgspec.Struct]] = {
    **CHECKED,
    m.TOTAL: m.CheckedResult,
    m.ATTEST_TOTAL: m.Attestation,
    m.RESULT: m.CertifiedResult,
}


class ManyRun(CheckedRun):
    """A run in which some check the total for all."""

    def __init__(self, kind: str = "exact", **more: Any) -> None:
        super().__init__(PARTIES, parameters=KINDS[kind](), **more)

    def change(self, envelope: Envelope, **fields: Any) -> Envelope:
        message = decode(envelope.body, OF_MANY[envelope.step], envelope.sender)
        return self.write(envelope, msgspec.structs.replace(message, **fields))

    def execute(self, tamper: Tamper = lambda envelope: (envelope,)) -> ManyRun:
        super().execute(tamper)
        return self

    @property
    def checkers(self) -> list[str]:
        """The parties that were shown the total and all commitments, in roster order."""
        return [e.receiver for e in self.sent if e.step == m.TOTAL]

    @property
    def others(self) -> list[str]:
        return [name for name in self.names if name not in self.checkers]

    def shown(self) -> m.CheckedResult:
        """What the checkers were shown."""
        first = next(e for e in self.sent if e.step == m.TOTAL)
        return decode(first.body, m.CheckedResult, AGGREGATOR)

    def digest(self, total: bytes, blinding: bytes) -> bytes:
        """What checkers attest of a total of this run."""
        state = self.parties["p1"].state
        survivors = next(e for e in self.sent if e.step == m.ATTEST_SURVIVORS)
        attested = decode(survivors.body, m.Attestation, "").set_digest
        return keys.total_digest(self.context, state.run_id, attested, total, blinding)

    def attest(self, name: str, digest: bytes, step: str = m.ATTEST_TOTAL) -> bytes:
        """Return a party's signature of a digest, as it sends it."""
        run_id = self.aggregator.state.run_id
        message = m.Attestation(digest)
        return self.context.write(self.signers[name], run_id, step, (AGGREGATOR,), message)[0].signature

    def certified(self, digest: bytes, *signers: str) -> m.Certificate:
        """Return a list of these parties' signatures of a digest."""
        numbers = [self.number(name) for name in signers]
        return m.Certificate(
            pack_set(numbers, PARTIES), b"".join(self.attest(name, digest) for name in signers)
        )


def run_with_result(
    change: Callable[[ManyRun, m.CertifiedResult], m.CertifiedResult],
    receivers: Callable[[ManyRun], Iterable[str]] = lambda run: run.names,
    **more: Any,
) -> ManyRun:
    """Run with an aggregator that is honest but for the result of some."""
    simulated = ManyRun(**more)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step != m.RESULT or envelope.receiver not in receivers(simulated):
            return (envelope,)
        honest = decode(envelope.body, m.CertifiedResult, AGGREGATOR)
        return (simulated.write(envelope, change(simulated, honest)),)

    simulated.execute(tamper)
    return simulated


# Honest runs


@pytest.mark.parametrize("kind", KINDS)
def test_all_have_the_total_that_some_have_checked(kind: str) -> None:
    simulated = ManyRun(kind).execute()
    assert not simulated.errors
    assert len(simulated.checkers) == ASKED
    totals = [party.result.total.tolist() for party in simulated.parties.values()]
    assert totals == [simulated.aggregator.result.total.tolist()] * PARTIES
    assert all(party.result.evidence.checked is True for party in simulated.parties.values())
    if kind == "exact":
        simulated.assert_sum()


def test_only_checkers_see_commitments_and_nobody_else_answers() -> None:
    simulated = ManyRun().execute()
    points = [simulated.body_of(m.MASKED, name).point for name in simulated.names]
    seen = {
        e.receiver for e in simulated.sent for point in points if e.sender == AGGREGATOR and point in e.body
    }
    assert seen == {*simulated.checkers}
    assert [e.sender for e in simulated.sent if e.step == m.ATTEST_TOTAL] == simulated.checkers


@pytest.mark.parametrize("step", [m.REVEAL, m.MASKED, m.UNMASK])
def test_who_is_lost_before_does_not_check(step: str) -> None:
    simulated = ManyRun()
    simulated.execute(by(step, "p4", lambda _: ()))
    assert len(simulated.checkers) == ASKED - 1
    assert "p4" not in simulated.checkers
    assert {*simulated.errors} <= {"p4"}


@pytest.mark.parametrize("kind", KINDS)
def test_checkers_are_silent(kind: str) -> None:
    """As many as may be corrupt, and one that is lost besides: the others attest the total."""
    simulated, lost = ManyRun(kind), list[str]()

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step == m.ATTEST_TOTAL and len(lost) < PLAN.max_corrupt + PLAN.max_dropouts:
            lost.append(envelope.sender)
        return () if envelope.step == m.ATTEST_TOTAL and envelope.sender in lost else (envelope,)

    simulated.execute(tamper)
    assert {*simulated.errors} == {*lost}
    assert {simulated.reported(name).code for name in lost} == {Code.LATE}
    assert all(simulated.parties[name].finished for name in simulated.names)


def test_the_signature_of_a_checker_that_leaves_counts() -> None:
    """Two attest the total and leave, two are silent: nobody who signed is left."""
    simulated, signed = ManyRun(), list[str]()

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step != m.ATTEST_TOTAL or len(signed) == QUORUM:
            return () if envelope.step == m.ATTEST_TOTAL else (envelope,)
        signed.append(envelope.sender)
        return (envelope, simulated.write(envelope, Abort(Code.STOPPED), step=LEAVE))

    simulated.execute(tamper)
    assert {*simulated.errors} == {*simulated.checkers}
    for name in simulated.others:
        assert simulated.parties[name].result.evidence.checked is True


def test_a_checker_that_refuses_leaves() -> None:
    """The aggregator hears it at once."""
    simulated = ManyRun()

    def change(envelope: Envelope) -> Iterable[Envelope]:
        shown = decode(envelope.body, m.CheckedResult, AGGREGATOR)
        false = simulated.change(envelope, blinding=plus(shown.blinding, 1))
        return (false if envelope.receiver == simulated.checkers[0] else envelope,)

    simulated.execute(only(m.TOTAL, None, change))
    name = simulated.checkers[0]
    assert simulated.steps_of(name)[-1] == LEAVE
    assert {*simulated.errors} == {name}


def test_with_too_few_checkers_nobody_else_has_a_total() -> None:
    """More are lost than planned: the run ends, and names them."""
    simulated, lost = ManyRun(), list[str]()

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step != m.ATTEST_TOTAL:
            return (envelope,)
        lost.append(envelope.sender)
        return (envelope,) if len(lost) == 1 else ()

    simulated.execute(tamper)
    assert m.RESULT not in {envelope.step for envelope in simulated.sent}
    error = simulated.errors[AGGREGATOR]
    assert isinstance(error, TimeoutFault)
    assert (error.missing, error.step, error.number) == (frozenset(lost[1:]), m.ATTEST_TOTAL, QUORUM)
    assert "1 of 4 checkers are left, 2 are needed" in str(error)
    assert {*simulated.errors} == {AGGREGATOR, *simulated.names}
    for name in simulated.names:
        assert isinstance(simulated.errors[name], TimeoutFault)


def test_with_too_few_left_to_check_no_total_is_opened() -> None:
    """Two holders' shares open all secrets, but three parties must be able to attest what comes out."""
    encoding = Encoding.plan(length=3, lower=-9.0, upper=9.0, precision=1e-3, parties=12)
    plan = check_plan(12, 3, 2, dropout=0.2, corrupt=0.2)
    assert plan.check_quorum > plan.threshold
    parameters = SecAggParameters(encoding, plan, total="checked", most_shown=SHOWN)
    simulated = CheckedRun(12, parameters=parameters)
    simulated.execute(
        only(m.UNMASK, None, lambda envelope: (envelope,) if envelope.sender in ("p1", "p2") else ())
    )
    assert m.TOTAL not in {envelope.step for envelope in simulated.sent}
    error = simulated.errors[AGGREGATOR]
    assert isinstance(error, TimeoutFault)
    assert (error.step, error.number) == (m.UNMASK, plan.check_quorum)


def test_a_total_that_enough_have_attested_stands_though_all_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is nobody left to send it to; the aggregator has it."""
    simulated = ManyRun()
    handle = simulated.aggregator.handle

    def losing(event: Event) -> Sequence[Envelope]:
        messages = list(handle(event))
        state = simulated.aggregator.state
        if isinstance(state, checkers.CollectTotal) and len(state.signed) == QUORUM:
            messages += handle(PeersLost(tuple(simulated.names)))
        return messages

    monkeypatch.setattr(simulated.aggregator, "handle", losing)
    simulated.execute()
    assert simulated.aggregator.result.survivors == tuple(simulated.names)
    assert {*simulated.errors} == {*simulated.names}


@pytest.mark.parametrize("lost", [m.ATTEST_TOTAL, m.UNMASK])
def test_sums_over_the_same_survivors_go_on_when_one_is_lost_that_was_added(lost: str) -> None:
    """The first of two requests fixes the survivors; in the second one is lost when its vector is in."""
    fixed = {name: FixedSurvivors() for name in (*ManyRun().names, AGGREGATOR)}
    ManyRun(fixed=fixed).execute()
    simulated = ManyRun(fixed=fixed, request=2, run=2)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        first = simulated.checkers[0] if lost == m.ATTEST_TOTAL and simulated.checkers else "p4"
        return () if (envelope.step, envelope.sender) == (lost, first) else (envelope,)

    simulated.execute(tamper)
    assert len(simulated.errors) == 1
    assert AGGREGATOR not in simulated.errors


# An aggregator that lies


@pytest.mark.parametrize(
    "fields",
    [
        lambda run, shown: {"total": run.pack([1 + run.total_of(shown)[0], *run.total_of(shown)[1:]])},
        lambda _, shown: {"blinding": plus(shown.blinding, 1)},
        lambda _, shown: {"openings": shown.openings[m.OPENING_BYTES :]},
        lambda _, shown: {"openings": shown.openings[:-1] + bytes([shown.openings[-1] ^ 1])},
    ],
)
def test_a_checker_refuses_what_is_false(fields: Callable[..., dict[str, object]]) -> None:
    simulated = ManyRun()

    def change(envelope: Envelope) -> Iterable[Envelope]:
        shown = decode(envelope.body, m.CheckedResult, AGGREGATOR)
        return (simulated.change(envelope, **fields(simulated, shown)),)

    simulated.execute(only(m.TOTAL, None, change))
    for name in simulated.checkers:
        simulated.assert_blames(name, AGGREGATOR, "")
    assert not [e for e in simulated.sent if e.step in (m.ATTEST_TOTAL, m.RESULT)]
    assert {*simulated.names} <= {*simulated.errors}


def test_a_checker_refuses_a_total_out_of_range() -> None:
    """What a corrupt party has committed to may be anything; the total opens, and is impossible."""
    simulated = ManyRun()
    far = np.array([1_000_000, 5, 5], simulated.encoding.dtype)
    machine = simulated.parties["p4"]
    machine._state = msgspec.structs.replace(machine.state, vector=far)
    simulated.aggregator.role = LYING
    simulated.execute()
    checking = [name for name in simulated.checkers if name != "p4"]
    assert len(checking) >= QUORUM
    for name in checking:
        error = simulated.errors[name]
        assert isinstance(error, PeerFault)
        assert (error.culprit, error.check) == (AGGREGATOR, Check.OUT_OF_BOUNDS)
    assert m.ATTEST_TOTAL not in {e.step for e in simulated.sent if e.sender in checking}


def other_total(run: CheckedRun, result: m.CertifiedResult) -> bytes:
    """A total that is greater by one, as it travels."""
    first, *rest = (int(element) for element in run.encoding.unpack(result.total))
    return run.pack([first + 1, *rest])


@pytest.mark.parametrize("field", ["total", "blinding"])
@pytest.mark.parametrize("who", ["checkers", "others"])
def test_another_total_than_the_checkers_were_shown(who: str, field: str) -> None:
    """The certificate of the true one does not certify it; a checker knows that it is another."""

    def change(run: ManyRun, result: m.CertifiedResult) -> m.CertifiedResult:
        other = {"total": other_total(run, result), "blinding": plus(result.blinding, 1)}[field]
        return msgspec.structs.replace(result, **{field: other})

    simulated = run_with_result(change, lambda run: getattr(run, who))
    lied_to = getattr(simulated, who)
    reason = {"checkers": "sent another total than it had shown", "others": UNPROVEN}[who]
    for name in lied_to:
        simulated.assert_blames(name, AGGREGATOR, reason)
    assert {*simulated.errors} == {*lied_to}


def colluding(*signers: str) -> ManyRun:
    """Run with an aggregator and parties that sign a false total, and give it to all others."""

    def change(run: ManyRun, result: m.CertifiedResult) -> m.CertifiedResult:
        total = other_total(run, result)
        certificate = run.certified(run.digest(total, result.blinding), *signers)
        return m.CertifiedResult(total, result.blinding, certificate)

    return run_with_result(change, lambda run: [name for name in run.others if name not in signers])


def test_the_aggregator_and_as_many_as_may_be_corrupt_sign_a_false_total() -> None:
    simulated = colluding("p8")
    assert PLAN.max_corrupt == 1
    lied_to = {*simulated.others} - {"p8"}
    for name in lied_to:
        simulated.assert_blames(name, AGGREGATOR, UNPROVEN + "has 1 signatures, 2 are due")
    assert {*simulated.errors} == lied_to


def test_one_more_corrupt_party_than_planned_can_do_it() -> None:
    """The quorum is sharp: of c + 1 signers one must be honest."""
    simulated = colluding("p7", "p8")
    assert not simulated.errors
    totals = {tuple(simulated.parties[name].result.total) for name in simulated.names}
    assert len(totals) == 2


def with_certificate(make: Callable[[ManyRun, bytes], m.Certificate]) -> ManyRun:
    """Run with another certificate of the true total for all; `make` is given the digest of the total."""

    def change(run: ManyRun, result: m.CertifiedResult) -> m.CertifiedResult:
        digest = run.digest(result.total, result.blinding)
        return msgspec.structs.replace(result, certificate=make(run, digest))

    return run_with_result(change)


def of_other_survivors(run: ManyRun, _: bytes) -> m.Certificate:
    shown, run_id = run.shown(), run.aggregator.state.run_id
    other = keys.total_digest(run.context, run_id, bytes(32), shown.total, shown.blinding)
    return run.certified(other, "p1", "p2", "p3")


def of_another_run(_run: ManyRun, _: bytes) -> m.Certificate:
    """What the checkers of an earlier request have signed."""
    earlier = ManyRun(request=2, run=2).execute()
    sent = next(e for e in earlier.sent if e.step == m.RESULT)
    return decode(sent.body, m.CertifiedResult, AGGREGATOR).certificate


def of_another_step(run: ManyRun, digest: bytes) -> m.Certificate:
    shown = run.certified(digest, "p1", "p2")
    signatures = b"".join(run.attest(name, digest, m.ATTEST_SURVIVORS) for name in ("p1", "p2"))
    return msgspec.structs.replace(shown, signatures=signatures)


def twice(run: ManyRun, digest: bytes) -> m.Certificate:
    return msgspec.structs.replace(run.certified(digest, "p1", "p2"), signatures=run.attest("p1", digest) * 2)


@pytest.mark.parametrize("make", [of_other_survivors, of_another_run, of_another_step, twice])
def test_a_certificate_of_something_else(make: Callable[[ManyRun, bytes], m.Certificate]) -> None:
    simulated = with_certificate(make)
    for name in simulated.names:
        simulated.assert_blames(name, AGGREGATOR, UNPROVEN)


def test_a_certificate_of_parties_that_are_no_survivors() -> None:
    simulated = ManyRun()

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.sender) == (m.MASKED, "p8"):
            return ()
        if envelope.step != m.RESULT:
            return (envelope,)
        result = decode(envelope.body, m.CertifiedResult, AGGREGATOR)
        certificate = simulated.certified(simulated.digest(result.total, result.blinding), "p1", "p8")
        return (simulated.change(envelope, certificate=certificate),)

    simulated.execute(tamper)
    for name in simulated.names[:-1]:
        simulated.assert_blames(name, AGGREGATOR, UNPROVEN + "is signed by parties outside of the set")


def test_no_checkers_where_all_check() -> None:
    """The same message in a session of few: each party has to be shown all commitments as its result."""
    simulated = CheckedRun(4)

    def change(envelope: Envelope) -> Iterable[Envelope]:
        honest = decode(envelope.body, m.CheckedResult, AGGREGATOR)
        return (simulated.write(envelope, honest, step=m.TOTAL),)

    simulated.execute(only(m.RESULT, None, change))
    simulated.assert_all_refuse("sent 'total' where 'result' is due")


def test_two_totals_for_one_checker_are_evidence() -> None:
    simulated = ManyRun()

    def change(envelope: Envelope) -> Iterable[Envelope]:
        shown = decode(envelope.body, m.CheckedResult, AGGREGATOR)
        return (envelope, simulated.change(envelope, blinding=plus(shown.blinding, 1)))

    simulated.execute(only(m.TOTAL, None, change))
    for name in simulated.checkers:
        error = simulated.errors[name]
        assert isinstance(error, PeerFault)
        assert (error.culprit, error.check) == (AGGREGATOR, Check.EQUIVOCATION)
        assert "first signature" in error.evidence


# Parties that lie


def test_who_attests_another_total_is_excluded() -> None:
    simulated = ManyRun()

    def change(envelope: Envelope) -> Iterable[Envelope]:
        changed = simulated.change(envelope, set_digest=bytes(32))
        return (changed if envelope.sender == simulated.checkers[0] else envelope,)

    simulated.execute(only(m.ATTEST_TOTAL, None, change))
    liar = simulated.checkers[0]
    assert simulated.reported(liar).code == Code.FAULT
    assert {*simulated.errors} == {liar}
    simulated.assert_out(liar, "attests another")


def test_who_attests_without_being_asked_is_excluded() -> None:
    simulated, told = ManyRun(), list[str]()

    def change(envelope: Envelope) -> Iterable[Envelope]:
        more: list[Envelope] = []
        if not told:
            told.append(simulated.others[0])
            message = decode(envelope.body, m.Attestation, envelope.sender)
            more = [simulated.write(envelope, message, sender=told[0])]
        return (*more, envelope)

    simulated.execute(only(m.ATTEST_TOTAL, None, change))
    simulated.assert_out(told[0], "attests a total that it was not shown")
    assert {*simulated.errors} == {told[0]}


# Which survivors check, and how many


def test_as_many_check_that_a_quorum_stays_when_all_planned_dropouts_are_among_them() -> None:
    parameters = exact()
    run_ids = [number.to_bytes(32, "big") for number in range(PARTIES)]
    everybody = range(1, PARTIES + 1)
    chosen = [checked_total.checkers_of(parameters, run_id, everybody) for run_id in run_ids]
    assert {len({*each}) for each in chosen} == {ASKED}
    # From run to run others: in as many runs as there are parties each checks as often.
    assert {sum(party in each for each in chosen) for party in everybody} == {ASKED}
    for left, count in (([1, 2, 4, 5, 6, 7, 8], ASKED - 1), ([3, 4, 5, 6], ASKED - 1), ([3, 5], 2), ([5], 1)):
        assert all(
            len({*each}) == count and {*each} <= {*left}
            for each in (checked_total.checkers_of(parameters, run_id, left) for run_id in run_ids)
        )


def test_a_dropped_vector_is_found_by_the_checkers() -> None:
    simulated = ManyRun()

    def accept(aggregator: Any, state: states.CollectMasked, party: int, envelope: Envelope) -> Any:
        before = state.added.total.copy()
        item = states.accept_masked(aggregator, state, party, envelope)
        if party == 3:
            state.added.total[:] = before
        return item

    simulated.aggregator.role = LYING.with_row(states.CollectMasked, accept=accept)
    simulated.execute()
    for name in simulated.checkers:
        simulated.assert_blames(name, AGGREGATOR, WRONG)
    assert {*simulated.names} <= {*simulated.errors}


class Counting(MemoryNetwork):
    """A network that counts the messages of each step."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults, 1)
        self.steps = Counter[str]()

    def send(self, envelope: Envelope) -> None:
        self.steps[envelope.step] += 1
        super().send(envelope)


@pytest.mark.slow
@pytest.mark.long
def test_more_than_ten_thousand_parties() -> None:
    """The smallest session in which some check for all; a minute of processor time, half a gigabyte.

    With a plan that is far too weak: few neighbours, one corrupt party in 500, and one in 1,000 lost.
    """
    parties = MOST_SHOWN + 1
    encoding = Encoding.plan(length=1, lower=0, upper=1, precision=None, parties=parties)
    plan = plan_secagg(parties, dropout=0.001, corrupt=0.002, security=20)
    parameters = SecAggParameters(encoding, plan, total="checked")
    vectors = np.arange(parties)[:, None] % 2
    roles, _ = sum_roles(parameters, list(vectors), seed_for_simulation=1)
    network = Counting(Faults(kill={"party-00001": 6}))
    errors = drive(roles.machines, network, roles.aggregator.name)
    assert {*errors} <= {"party-00001"}
    assert network.steps[m.TOTAL] == plan.checkers(1) == 50
    survivors = parties - 1
    assert network.steps[m.RESULT] == survivors
    for party in roles.parties[1:]:
        assert party.result.total.tolist() == [int(vectors[1:].sum())]
