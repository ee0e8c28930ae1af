"""States and steps of verifiable GOPA: tables, rounds of openings, and what is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.committing import AwaitCommitted
from smpc_dp.capabilities.gopa.verifiable.counting import CollectOpen
from smpc_dp.capabilities.gopa.verifiable.joining import AwaitNeighbours
from smpc_dp.capabilities.gopa.verifiable.publishing import AwaitOpenings, AwaitPublications
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR
from smpc_dp.capabilities.gopa.verifiable.tallying import AwaitTallied
from smpc_dp.engine.events import Event, Message
from smpc_dp.engine.run import Run
from smpc_dp.wire.abort import ABORT
from smpc_dp.wire.envelope import Envelope
from smpc_dp_lab.vectors.verifiable_openings import in_rounds, to_something_else, too_far_out
from smpc_dp_lab.vectors.verifiable_runs import RecordedRun, execute
from tests.unit.engine.test_states import contents

NAME = "ann"


@dataclass
class Taken:
    """One step of a role."""

    run: Run[Any]
    before: Any
    event: Event
    after: Any
    sent: Sequence[Envelope]


def in_two_rounds() -> RecordedRun:
    """Play a run in which an opening of the first and one of the second round are false: there are three."""
    return in_rounds(to_something_else, too_far_out)


def steps(monkeypatch: pytest.MonkeyPatch, playing: Callable[[], RecordedRun]) -> list[Taken]:
    """Play a run, and return all steps of all roles."""
    taken: list[Taken] = []
    step_from = Run.step_from

    def record(run: Run[Any], state: Any, event: Event) -> Sequence[Envelope]:
        sent = tuple(step_from(run, state, event))
        taken.append(Taken(run, state, event, run.state, sent))
        return sent

    monkeypatch.setattr(Run, "step_from", record)
    playing()
    return taken


def number_of(state: Any) -> int:
    """Return the number of the round of openings that a state is of, 1 if there is none."""
    number: int = state.round.number if hasattr(state, "round") else 1
    return number


@pytest.mark.parametrize("playing", [execute, in_two_rounds])
def test_every_step_is_in_the_table(
    monkeypatch: pytest.MonkeyPatch, playing: Callable[[], RecordedRun]
) -> None:
    seen: set[type] = set()
    for step in steps(monkeypatch, playing):
        if not isinstance(step.event, Message) or type(step.after) is type(step.before):
            continue
        row = step.run.role.row(step.before)
        rounds = [number_of(state) for state in (step.before, step.after)]
        reported = {envelope.step for envelope in step.sent} - {ABORT}
        assert type(step.after) in row.next
        assert reported <= {
            v.in_round(name, number) for name in row.sends for number in (1, *rounds) if number
        }
        seen.add(type(step.after))
    assert (AwaitOpenings in seen) == (CollectOpen in seen) == (playing is in_two_rounds)


def test_the_steps_of_a_round_have_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    after = [step.after for step in steps(monkeypatch, in_two_rounds) if step.run.name in (NAME, "relay")]
    steps_of = [
        {state.step for state in after if isinstance(state, kind)} for kind in (AwaitOpenings, CollectOpen)
    ]
    assert steps_of == [{"openings", "openings-2", "openings-3"}, {"open", "open-2", "open-3"}]


def test_at_most_so_many_steps_follow_the_first() -> None:
    relay = execute().relay
    usual = len(v.PARTY_STEPS) - 1
    assert AGGREGATOR.most_steps(relay.member) == usual + 2 * relay.member.parameters.most_false
    assert AGGREGATOR.longest(relay.member) == relay.member.parameters.most_heard_bytes


def test_what_must_be_forgotten_is_in_no_later_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bytes of the secrets, in all fields of all states of a party."""
    after = [step.after for step in steps(monkeypatch, in_two_rounds) if step.run.name == NAME]
    states = {type(state): state for state in reversed(after)}
    committed, joined = states[AwaitCommitted], states[AwaitNeighbours]
    opened = [state for state in after if isinstance(state, AwaitOpenings)][-1]
    secrets = [
        (joined.advertised.mask_secret, AwaitCommitted),
        (committed.secrets.value_blinding, AwaitPublications),
        # Of the secret bits: their blinding. The bits are a byte.
        (committed.secrets.noise_secret[1], AwaitPublications),
        # Delta with a party that was never shown false, by its blinding.
        (next(iter(opened.terms.values()))[1], AwaitTallied),
    ]
    for secret, gone in secrets:
        first = next(index for index, state in enumerate(after) if isinstance(state, gone))
        assert secret in contents(after[first - 1])
        assert not any(secret in contents(state) for state in after[first:])
    assert not hasattr(states[AwaitPublications], "secrets")


def test_a_step_of_a_party_changes_nothing_in_the_state_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same step from the same state gives the same messages, but where random bytes are drawn."""
    drawing = ("Ready", "AwaitStart", "AwaitNeighbours", "AwaitCoinsCertificate")
    for step in steps(monkeypatch, in_two_rounds):
        if step.run.name == NAME and type(step.before).__name__ not in drawing:
            again = step.run.role.step(step.run.member, step.before, step.event)
            assert tuple(again.messages) == tuple(step.sent)
            assert type(again.state) is type(step.after)
