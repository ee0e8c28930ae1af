"""The states of an exchange: what runs do is in the tables, steps are pure, and keys are forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from smpc_dp.engine.events import Message
from smpc_dp.engine.party import PartyRole
from smpc_dp.session.exchange import states
from smpc_dp_lab.vectors.exchange_runs import SCENARIOS, ExchangeScenario, new_run
from tests.unit.engine.recorded import Step, assert_in_table, recorded
from tests.unit.engine.test_states import contents


def ran(scenario: ExchangeScenario, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    steps = recorded(monkeypatch)
    new_run(scenario).execute()
    return steps


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_step_is_in_the_table(scenario: ExchangeScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = assert_in_table(ran(scenario, monkeypatch))
    assert ended == len(scenario.names) + 1 - len(scenario.kill)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_delivery_changes_nothing_in_the_state_before(
    scenario: ExchangeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = 0
    for step in ran(scenario, monkeypatch):
        if isinstance(step.before, states.AwaitDelivery) and isinstance(step.event, Message):
            before = step.before.own.copy()
            after = step.run.role.step(step.run.member, step.before, step.event).state
            assert np.array_equal(after.outcome.total, step.after.outcome.total)
            assert np.array_equal(step.before.own, before)
            again += 1
    assert again == len(scenario.names) - len(scenario.kill)


def test_the_vector_of_the_caller_stays_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is drawn in a step, and a step changes nothing."""
    steps = ran(SCENARIOS[0], monkeypatch)
    result = [step for step in steps if isinstance(step.before, states.AwaitStart)]
    assert len(result) == len(SCENARIOS[0].names)
    for step in result:
        name = step.run.name
        ring_vector, _ = SCENARIOS[0].encoding.encode(
            SCENARIOS[0].vectors[SCENARIOS[0].names.index(name)], party=name
        )
        assert np.array_equal(step.before.vector, ring_vector)
        assert not np.array_equal(step.after.own, ring_vector)


def test_what_must_be_forgotten_is_in_no_later_state(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [step for step in ran(SCENARIOS[0], monkeypatch) if step.run.name == SCENARIOS[0].names[0]]
    [waiting] = [step.after for step in steps if isinstance(step.after, states.AwaitStart)]
    [sent] = [step.after for step in steps if isinstance(step.after, states.AwaitDelivery)]
    finished = steps[-1].after
    assert isinstance(finished, states.Finished)
    assert waiting.secret in contents(sent)
    assert waiting.nonce not in contents(sent)
    assert waiting.secret not in contents(finished)


def test_a_party_keeps_the_keys_of_its_senders_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    [edges] = [scenario for scenario in SCENARIOS if scenario.name == "edges"]
    retained = {
        step.run.name: set(step.after.sealing.peer_keys)
        for step in ran(edges, monkeypatch)
        if isinstance(step.after, states.AwaitDelivery)
    }
    assert retained == {"alice": {3}, "bob": {1}, "carol": {1}}


def test_the_step_of_noise_is_the_one_that_releases() -> None:
    releasing = [row.state for row in states.PARTY.rows if row.state.releases]
    assert releasing == [states.AwaitStart]
    assert isinstance(states.PARTY, PartyRole)
