"""Split views: the aggregator tells different parties different sets.

Each attack is run twice: on machines whose quorum is one signature, where it gets a victim's vector exactly,
and on machines with the quorum of the plan, where it gets nothing: the certificate is needed, and it works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
import pytest

from smpc_dp.engine.phases import certified_set
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certify import check_certificate
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.privacy.secagg_plan import SecAggPlan, check_plan, plan_secagg
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list, pack_set, unpack_list
from smpc_dp.wire.signing import decode
from tests.faults.malicious import SplitViewAggregator
from tests.faults.simulated import AGGREGATOR, SimulatedRun, only

VICTIM = "p1"

# Eight parties of which three may drop out: t = 4 of 7 holders, at least 5 survivors, q = 5.
EIGHT = plan_secagg(8, dropout=0.375, corrupt=0.0)
ALL_EIGHT = frozenset(range(1, 9))
# The victim is told that 6, 7 and 8 take no part, so it masks with 2 to 5 alone ...
NARROW = frozenset({1, 2, 3, 4, 5})
SPLIT_PARTICIPANTS = {f"p{i}": NARROW if i == 1 else ALL_EIGHT for i in range(1, 9)}
# ... whose masking keys four holders each reveal, each told that three others of them dropped out.
DROPPED = {
    1: (),
    2: (3, 4, 5),
    3: (2, 4, 5),
    4: (2, 3, 5),
    5: (2, 3, 4),
    6: (2, 3, 4),
    7: (3, 4, 5),
    8: (2, 4, 5),
}
SPLIT_SURVIVORS = {f"p{i}": NARROW if i == 1 else ALL_EIGHT - set(dropped) for i, dropped in DROPPED.items()}

# Thirty parties with eight neighbours each: different neighbourhoods can be told different things.
THIRTY = check_plan(30, 8, 5, dropout=0.3, corrupt=0.0)


def without_quorum(plan: SecAggPlan) -> SecAggPlan:
    return msgspec.structs.replace(plan, quorum=1)


def assert_all_refuse(attack: SplitViewAggregator, reason: str, *names: str) -> None:
    assert set(attack.errors) == set(names)
    for error in attack.errors.values():
        assert isinstance(error, PeerFault)
        assert error.culprit == AGGREGATOR
        assert reason in error.reason
    attack.simulated.assert_nothing_revealed()


def neighbourhood_views(attack: SplitViewAggregator) -> dict[str, frozenset[int]]:
    """Tell the holders of each of the victim's neighbours that this neighbour dropped out."""
    simulated, everyone = attack.simulated, frozenset(range(1, 31))
    views = {}
    for name in simulated.names:
        number = simulated.number(name)
        gone = [
            a for a in sorted(attack.neighbours(VICTIM)) if a != number and number in attack.drawn[f"p{a}"]
        ]
        views[name] = everyone - set(gone[: simulated.plan.max_dropouts])
    return views


def test_survivors_without_a_quorum_cost_the_victim_its_vector() -> None:
    simulated = SimulatedRun(30, plan=without_quorum(THIRTY))
    attack = SplitViewAggregator(simulated)
    attack.show_participants(dict.fromkeys(simulated.names, frozenset(range(1, 31))))
    attack.show_survivors(neighbourhood_views(attack))
    assert attack.errors == {}, "each party saw a set that is large enough and holds it"
    np.testing.assert_array_equal(
        attack.open_vector(VICTIM, attack.neighbours(VICTIM)), simulated.grid(VICTIM)
    )


def test_split_survivors_are_refused() -> None:
    simulated = SimulatedRun(30, plan=THIRTY)
    attack = SplitViewAggregator(simulated)
    attack.show_participants(dict.fromkeys(simulated.names, frozenset(range(1, 31))))
    attack.show_survivors(neighbourhood_views(attack))
    assert_all_refuse(attack, f"{THIRTY.quorum} are due", *simulated.names)
    with pytest.raises(ValueError, match="0 of the 5 needed"):
        attack.open_vector(VICTIM, attack.neighbours(VICTIM))


def test_two_neighbourhoods_with_one_majority_learn_one_kind_of_share() -> None:
    """If one of two survivor sets gets its quorum, only those who saw it reveal, and all the same kind."""
    simulated = SimulatedRun(8, plan=EIGHT)
    attack = SplitViewAggregator(simulated)
    attack.show_participants(dict.fromkeys(simulated.names, ALL_EIGHT))
    most, few = ALL_EIGHT - {8}, ALL_EIGHT - {2}
    views = {f"p{i}": few if i in (7, 8) else most for i in range(1, 9)}
    attack.show_survivors(views)
    assert set(attack.errors) == {"p7", "p8"}
    assert all("signatures, 5 are due" in str(error) for error in attack.errors.values())
    assert {e.sender for e in simulated.sent if e.step == m.UNMASK} == {f"p{i}" for i in range(1, 7)}
    assert len(attack.secret("p2", survived=True)) == 32
    with pytest.raises(ValueError, match="0 of the 4 needed"):
        attack.secret("p2", survived=False)


def test_participants_without_a_quorum_cost_the_victim_its_vector() -> None:
    simulated = SimulatedRun(8, plan=without_quorum(EIGHT))
    attack = SplitViewAggregator(simulated)
    attack.show_participants(SPLIT_PARTICIPANTS)
    attack.show_survivors(SPLIT_SURVIVORS)
    assert attack.errors == {}
    np.testing.assert_array_equal(attack.open_vector(VICTIM, NARROW - {1}), simulated.grid(VICTIM))


def test_in_that_session_split_survivors_alone_are_not_enough() -> None:
    """With all seven masks on, four believers in the loss of each are more than there are: 28 > 7 * 3 + 3."""
    beliefs = 4 * (len(ALL_EIGHT) - 1)
    assert beliefs > len(ALL_EIGHT) * EIGHT.max_dropouts
    simulated = SimulatedRun(8, plan=without_quorum(EIGHT))
    attack = SplitViewAggregator(simulated)
    attack.show_participants(dict.fromkeys(simulated.names, ALL_EIGHT))
    attack.show_survivors(SPLIT_SURVIVORS)
    with pytest.raises(ValueError, match="of the 4 needed"):
        attack.open_vector(VICTIM, ALL_EIGHT - {1})


def test_split_participants_are_refused() -> None:
    """The victim refuses, and its masked vector never leaves."""
    simulated = SimulatedRun(8, plan=EIGHT)
    attack = SplitViewAggregator(simulated)
    attack.show_participants(SPLIT_PARTICIPANTS)
    assert_all_refuse(attack, "has 1 signatures, 5 are due", VICTIM)
    assert VICTIM not in attack.masked
    assert m.MASKED not in simulated.steps_of(VICTIM)


def skipping(skipped: str) -> Callable[..., object]:
    """Return a check of certificates that takes anything in one step."""

    def check(context: object, plan: object, run_id: object, step: str, *rest: object) -> object:
        return None if step == skipped else check_certificate(context, plan, run_id, step, *rest)  # type: ignore[arg-type]

    return check


def test_the_survivors_certificate_binds_the_participants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even machines that take any set of participants reveal nothing: the two digests are chained."""
    monkeypatch.setattr(certified_set, "check_certificate", skipping(m.ATTEST_PARTICIPANTS))
    simulated = SimulatedRun(8, plan=EIGHT)
    attack = SplitViewAggregator(simulated)
    attack.show_participants(SPLIT_PARTICIPANTS)
    assert VICTIM in attack.masked
    attack.show_survivors(SPLIT_SURVIVORS)
    assert_all_refuse(attack, "are due", *simulated.names)


def test_with_no_certificate_checked_the_attack_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machines, plan and attack, but for the one check: what the certificates are for."""
    monkeypatch.setattr(certified_set, "check_certificate", lambda *_: None)
    simulated = SimulatedRun(8, plan=EIGHT)
    attack = SplitViewAggregator(simulated)
    attack.show_participants(SPLIT_PARTICIPANTS)
    attack.show_survivors(SPLIT_SURVIVORS)
    np.testing.assert_array_equal(attack.open_vector(VICTIM, NARROW - {1}), simulated.grid(VICTIM))


@pytest.mark.parametrize("step", [m.REVEAL, m.DEAL])
def test_a_party_with_too_few_holders_leaves(step: str) -> None:
    """Told that most of its holders are gone, a victim stops before it deals, or before it masks."""
    plan = check_plan(6, 3, 2, dropout=0.34)
    drawn = unpack_list(SimulatedRun(6, plan=plan).execute().body_of(m.REVEAL, VICTIM).neighbours, 6, VICTIM)
    gone, simulated = drawn[:2], SimulatedRun(6, plan=plan)
    left = pack_set(set(range(1, 7)) - set(gone), 6)

    def fewer(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step == m.NEIGHBOURS:
            return (simulated.without(envelope, gone, revealed=left),)
        deliver = decode(envelope.body, m.Deliver, AGGREGATOR)
        dealers = unpack_list(deliver.dealers, 6, AGGREGATOR)
        retained = [(d, s) for d, s in zip(dealers, deliver.sealed, strict=True) if d not in gone]
        fields = {"dealers": pack_list(d for d, _ in retained), "sealed": [s for _, s in retained]}
        return (simulated.change(envelope, participants=left, **fields),)

    simulated.execute(only(m.NEIGHBOURS if step == m.REVEAL else m.DELIVER, VICTIM, fewer))
    error = simulated.errors[VICTIM]
    assert isinstance(error, TimeoutFault)
    assert (error.step, error.missing) == (step, frozenset(f"p{number}" for number in gone))
    assert {m.MASKED, m.UNMASK}.isdisjoint(simulated.steps_of(VICTIM))
    assert (m.DEAL in simulated.steps_of(VICTIM)) is (step == m.DEAL)
