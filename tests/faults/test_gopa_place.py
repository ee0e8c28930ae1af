"""A party's place in GOPA's graph: what it refuses of a relay, or of more corrupt parties than planned."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.params import GopaParameters, OnDropout, check_parameters
from smpc_dp.capabilities.gopa.plan import Neighbourhood, plan_session
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases import key_graph
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Code, ConfigError, PrivacyError
from smpc_dp.privacy.secagg_plan import check_plan, plan_secagg
from smpc_dp.wire.abort import LEAVE, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import unpack_list
from smpc_dp.wire.signing import decode
from tests.faults.simulated import AGGREGATOR, LENGTH, SimulatedRun, by, only

VICTIM = "p1"
PARTIES, DRAWN = 16, 5
MODES: tuple[OnDropout, ...] = ("keep", "roll-back")


def sparse_row(
    on_dropout: OnDropout = "keep", *, least_own: int = 3, most_drawn_by: int = PARTIES - 1
) -> SimulatedRun:
    """Sixteen parties that draw five each, four may be lost: sparser than any plan, with the same checks."""
    given: dict[str, object] = {"length": LENGTH, "lower": -9.0, "upper": 9.0, "epsilon": 1.0, "delta": 1e-6}
    parameters, faults = check_parameters(given | {"corrupt": 0.0, "on_dropout": on_dropout}, PARTIES)
    assert parameters is not None, faults
    neighbourhood = Neighbourhood(least_own=least_own, most_drawn_by=most_drawn_by)
    plan = check_plan(PARTIES, DRAWN, 3, dropout=0.25, corrupt=0.0)
    assert plan.max_dropouts == 4
    return SimulatedRun(
        PARTIES,
        parameters=replace(
            parameters, plan=plan, session=replace(parameters.session, neighbourhood=neighbourhood)
        ),
    )


def drawn_by(simulated: SimulatedRun, name: str) -> list[str]:
    """Return whom a party drew."""
    numbers = unpack_list(simulated.body_of(m.REVEAL, name).neighbours, len(simulated.names), name)
    return [simulated.names[number - 1] for number in numbers]


def lost(on_dropout: OnDropout, *, of_the_victims: int) -> set[str]:
    """Return three parties of whom the victim drew so many, and nobody else that stays drew three."""
    scout = sparse_row(on_dropout).execute()
    draws = {name: set(drawn_by(scout, name)) for name in scout.names}
    for chosen in itertools.combinations(scout.names[1:], 3):
        gone = set(chosen)
        if len(draws[VICTIM] & gone) == of_the_victims and all(
            len(draws[name] & gone) < 3 for name in scout.names[1:] if name not in gone
        ):
            return gone
    raise AssertionError("no such three")


def assert_refused(simulated: SimulatedRun, reason: str) -> None:
    error = simulated.errors[VICTIM]
    assert isinstance(error, PrivacyError), error
    assert reason in str(error)
    assert not {g.PUBLISH, m.DEAL, m.MASKED, m.ATTEST_PARTICIPANTS} & set(simulated.steps_of(VICTIM))
    assert simulated.body_of(LEAVE, VICTIM) == Abort(Code.NEIGHBOURHOOD)
    assert VICTIM in simulated.aggregator.result.absent


@pytest.mark.parametrize("on_dropout", MODES)
def test_relay_drops_just_the_neighbours_of_one_victim(on_dropout: OnDropout) -> None:
    """Three of sixteen are lost, which the plan allows, but they are three of the victim's five."""
    gone = lost(on_dropout, of_the_victims=3)
    simulated = sparse_row(on_dropout)
    simulated.execute(
        lambda envelope: () if envelope.sender in gone and envelope.step == m.REVEAL else (envelope,)
    )
    assert_refused(
        simulated,
        "p1: 2 of the 5 parties that it drew take part, its epsilon counts on 3",
    )
    assert simulated.aggregator.result.absent == tuple(sorted({VICTIM, *gone}, key=simulated.names.index))


@pytest.mark.parametrize("on_dropout", MODES)
def test_others_lost_do_not_make_a_user_refuse(on_dropout: OnDropout) -> None:
    """The control: as many are lost, and two of them are the victim's."""
    gone = lost(on_dropout, of_the_victims=2)
    simulated = sparse_row(on_dropout)
    simulated.execute(
        lambda envelope: () if envelope.sender in gone and envelope.step == m.REVEAL else (envelope,)
    )
    assert VICTIM in simulated.aggregator.result.survivors


def collude(index: int, parties: int, degree: int, randomness: Randomness) -> tuple[int, ...]:
    """Draw those that follow, the victim left out; parties from the fifth on draw the victim too."""
    del randomness
    following = [2 + (index - 1 + step) % (parties - 1) for step in range(degree)]
    return tuple(sorted(following if index < 5 else [1, *following[1:]]))


@pytest.mark.parametrize("on_dropout", MODES)
def test_more_colluders_than_planned_draw_one_victim(
    on_dropout: OnDropout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_graph, "draw_neighbours", collude)
    simulated = sparse_row(on_dropout, most_drawn_by=11).execute()
    assert_refused(
        simulated,
        "p1: 12 parties drew it, at most 11 would with 0 corrupt ones",
    )
    assert simulated.aggregator.result.absent == (VICTIM,)


def test_as_many_as_planned_may_draw_one_victim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_graph, "draw_neighbours", collude)
    simulated = sparse_row(most_drawn_by=12).execute()
    assert simulated.aggregator.result.absent == ()


def test_relay_hides_from_the_victim_who_drew_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot take the terms of the victim's own draws: those are in what it publishes, all five."""
    calls: list[int] = []
    original = GopaParameters.add_pair_terms

    def overhear(
        parameters: GopaParameters,
        ring_vector: RingVector,
        seeds: list[bytes],
        signs: list[int],
        threads: int = 1,
    ) -> None:
        calls.append(len(seeds))
        original(parameters, ring_vector, seeds, signs, threads)

    monkeypatch.setattr(GopaParameters, "add_pair_terms", overhear)
    simulated = sparse_row()

    def hide(envelope: Envelope) -> Iterable[Envelope]:
        message = decode(envelope.body, m.Neighbours, AGGREGATOR)
        own = {simulated.number(name) for name in drawn_by(simulated, VICTIM)}
        others = {item.party for item in message.advertisements} - own
        assert others
        return (simulated.without(envelope, others, openings=[]),)

    simulated.execute(only(m.NEIGHBOURS, VICTIM, hide))
    assert g.PUBLISH in simulated.steps_of(VICTIM)
    assert DRAWN in calls
    # What it left one-sided stays in the total: the relay has spoilt its own average.
    off = simulated.aggregator.result.total - sum(simulated.grid(name) for name in simulated.names)
    deviation = PARTIES**0.5 * float(simulated.parameters.session.own_variance) ** 0.5  # type: ignore[attr-defined]
    assert (np.abs(off) > 0).all()
    assert np.abs(off).max() > deviation


def test_relay_withholds_a_key_of_the_victims_own_draw() -> None:
    simulated = sparse_row()
    simulated.execute(
        only(
            m.NEIGHBOURS,
            VICTIM,
            lambda envelope: (
                simulated.change(
                    envelope,
                    advertisements=decode(envelope.body, m.Neighbours, AGGREGATOR).advertisements[1:],
                ),
            ),
        )
    )
    simulated.assert_blames(VICTIM, AGGREGATOR, "advertisements are not those of")


def test_too_few_honest_users_for_the_plan() -> None:
    """Told when parameters are checked; a run that loses too many stops (see test_gopa.py)."""
    given: dict[str, object] = {"length": LENGTH, "lower": -9.0, "upper": 9.0, "epsilon": 1.0, "delta": 1e-6}
    _, faults = check_parameters(given | {"dropout": 0.25, "corrupt": 0.5}, 4)
    assert any("honest" in fault.reason for fault in faults), faults
    plan = replace(plan_secagg(10), max_dropouts=8)
    with pytest.raises(ConfigError, match="1 bring noise that counts, 2 are due"):
        plan_session(plan, diameter=1e6, length=1, epsilon=1.0, delta=1e-6, roll_back=False)


def test_publication_of_a_user_that_is_out_does_not_count() -> None:
    """A party that the relay has excluded may still speak; the total is without it."""
    simulated = sparse_row()

    def late(envelope: Envelope) -> Iterable[Envelope]:
        bad = replace(envelope, signature=bytes(64))
        return bad, envelope

    simulated.execute(by(g.PUBLISH, "p2", late))
    assert simulated.aggregator.result.absent == ("p2",)
