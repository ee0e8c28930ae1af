"""The states of a pairwise statistic: what runs do is in the tables, and coins are forgotten."""

from __future__ import annotations

import pytest

from smpc_dp.capabilities.pairs.ustatistic import aggregator as aggregator
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import party as party
from smpc_dp.capabilities.pairs.ustatistic import states as states
from smpc_dp.capabilities.pairs.ustatistic.pairs import CollectDone
from smpc_dp.engine.events import Cancellation, Message, Report, Start
from smpc_dp.errors import Check, LocalError, PeerFault
from smpc_dp_lab.vectors.statistic_runs import AGGREGATOR, NAMES, SCENARIOS, Run, Scenario, find
from tests.unit.engine.recorded import assert_in_table, recorded
from tests.unit.engine.test_states import contents

BESIDE = frozenset({m.PAIR, m.RELAY, m.RELAY_END})


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_step_is_in_the_table(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = recorded(monkeypatch)
    Run(scenario).execute()
    assert assert_in_table(steps, BESIDE) == len(NAMES) - len(scenario.silent) + 1


def test_a_run_has_no_more_steps_than_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = recorded(monkeypatch)
    aggregator = Run(find("again")).execute().aggregator
    seen = dict.fromkeys(step.before.step for step in steps if step.run.name == AGGREGATOR)
    assert len(seen) - 1 == states.AGGREGATOR.most_steps(aggregator.member) == 5


def test_coins_that_are_not_opened_are_forgotten_with_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """A further draw cannot be: nobody has a coin for it."""
    steps = recorded(monkeypatch)
    Run(find("matchings")).execute()
    for name in NAMES:
        mine = [step.after for step in steps if step.run.name == name]
        [first] = [state for state in mine if isinstance(state, party.AwaitStart)]
        [waiting] = [state for state in mine if isinstance(state, party.AwaitDraw)]
        assert waiting.coins == first.coins[1:]
        later = mine[mine.index(waiting) + 1 :]
        assert later
        assert not any(coin in contents(state) for coin in first.coins for state in later)


def test_a_party_reports_its_pairs_once_and_not_before_they_are_drawn() -> None:
    run = Run(find("matchings"))
    ada = run.parties["ada"]
    ada.handle(Start())
    with pytest.raises(LocalError, match="leaves no work to the holder"):
        ada.handle(Report(()))
    run = Run(find("matchings"))
    run.deliver([envelope for each in run.parties.values() for envelope in each.handle(Start())])
    ada = run.parties["ada"]
    assert isinstance(ada.state, party.Evaluating)
    [done] = ada.handle(Report(()))
    assert done.step == m.DONE
    assert isinstance(ada.state, party.AwaitResult)
    with pytest.raises(LocalError, match="leaves no work to the holder"):
        ada.handle(Report(()))


def test_messages_of_pairs_are_ignored_before_there_are_pairs() -> None:
    run = Run(find("matchings"))
    for each in run.parties.values():
        for envelope in each.handle(Start()):
            run.aggregator.handle(Message(envelope))
    before = run.aggregator.state
    assert isinstance(before, aggregator.CollectBegin)
    early = run.wires["ada"].write_pair(run.aggregator.run_id, 0, b"early")
    assert run.aggregator.handle(Message(early)) == ()
    assert run.aggregator.state is before
    assert not before.inbox.faults


def test_a_message_beside_the_steps_is_a_step_of_its_state() -> None:
    """No second one is taken from the same state."""
    run = Run(find("matchings"))
    run.deliver([envelope for each in run.parties.values() for envelope in each.handle(Start())])
    before = run.aggregator.state
    assert isinstance(before, CollectDone)
    matching, garbler, evaluator = next(
        pair for each in run.parties.values() for pair in each.state.evaluations
    )
    first, second = (
        run.wires[name].write_pair(run.aggregator.run_id, matching, b"") for name in (garbler, evaluator)
    )
    run.aggregator.handle(Message(first))
    assert run.aggregator.state.inbox is before.inbox
    with pytest.raises(LocalError, match="a second step from one state"):
        run.aggregator.role.step(run.aggregator.member, before, Message(second))


def test_a_role_that_deviates_takes_other_messages_beside_its_steps() -> None:
    taken: list[int] = []

    def take(_member: object, _state: object, number: int, _envelope: object) -> tuple[()]:
        taken.append(number)
        return ()

    run = Run(find("matchings"))
    run.aggregator.role = states.AGGREGATOR.with_row(CollectDone, beside={m.PAIR: take})
    run.deliver([envelope for each in run.parties.values() for envelope in each.handle(Start())])
    run.deliver([run.wires["cem"].write_pair(run.aggregator.run_id, 7, b"nonsense")])
    assert taken == [3]


def test_a_fault_that_ends_a_step_is_not_that_of_whose_message_came_last() -> None:
    def fail(_member: object, _state: object) -> None:
        raise PeerFault("ada", "found at the end of the step", Check.OTHER_RUN)

    run = Run(find("matchings"))
    run.aggregator.role = states.AGGREGATOR.with_row(aggregator.CollectHello, finish=fail)
    *most, last = [envelope for each in run.parties.values() for envelope in each.handle(Start())]
    for envelope in most:
        run.aggregator.handle(Message(envelope))
    with pytest.raises(PeerFault, match="found at the end") as caught:
        run.aggregator.handle(Message(last))
    assert run.aggregator.finished
    assert not run.aggregator.state.inbox.excluded
    reported = run.aggregator.handle(Cancellation(caught.value))
    assert {envelope.receiver for envelope in reported} == set(NAMES)
