"""Seeded schedules of checked totals that some check for all: an aggregator that lies, and lost parties.

Honest parties have the exact sum over the survivors that they certified, or none, and blame nobody but the
aggregator. `make test` plays the first batch.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import numpy as np
import pytest

from smpc_dp.encoding import Encoding
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.state import Transition
from smpc_dp.errors import PeerFault
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg import checkers, states
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import Faults
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_lab.bench.roles import sum_roles
from tests.faults.checked_totals import plus
from tests.faults.test_checked_schedules import CHANGES, Watched, check

# The first has some of each lie; of 25 others there may be none that anybody has to blame.
BATCHES = (range(25), *(range(first, first + 50) for first in range(0, 2_000, 50)))
LIES = ("none", "to checkers", "to all", "two totals")


def false_total(chooser: random.Random, *, some: bool) -> CollectorRole:
    """Show all checkers, or some, another total, or commitments that are wrong."""

    def finish(aggregator: states.Aggregator, state: states.CollectUnmask) -> Transition:
        after = checkers.show_total(aggregator, state)
        sent: list[Envelope] = []
        for envelope in after.messages:
            if some and chooser.random() < 0.5:
                sent.append(envelope)
                continue
            honest = decode(envelope.body, m.CheckedResult, AGGREGATOR)
            false = chooser.choice(CHANGES)(chooser, aggregator, honest)
            number = aggregator.context.number(envelope.receiver)
            sent += aggregator.write(envelope.run_id, m.TOTAL, (number,), false)
        return Transition(after.state, sent)

    return checkers.AGGREGATOR.with_row(states.CollectUnmask, finish=finish)


def false_result(chooser: random.Random) -> CollectorRole:
    """Give each party, or not, another total or sum of the blindings than the checkers attest."""

    def finish(aggregator: states.Aggregator, state: checkers.CollectTotal) -> Transition:
        after = checkers.finish_total(aggregator, state)
        sent: list[Envelope] = []
        for envelope in after.messages:
            honest = decode(envelope.body, m.CertifiedResult, AGGREGATOR)
            lanes = aggregator.parameters.encoding.unpack(honest.total).copy()
            lanes[0] += chooser.randrange(1, 4)
            false = {
                "total": aggregator.parameters.encoding.pack(lanes),
                "blinding": plus(honest.blinding, 1),
            }
            field = chooser.choice(["", *false])
            told = msgspec.structs.replace(honest, **({field: false[field]} if field else {}))
            number = aggregator.context.number(envelope.receiver)
            sent += aggregator.write(envelope.run_id, m.RESULT, (number,), told)
        return Transition(after.state, sent)

    return checkers.AGGREGATOR.with_row(checkers.CollectTotal, finish=finish)


def role_of(lie: str, chooser: random.Random) -> CollectorRole:
    match lie:
        case "to checkers":
            return false_total(chooser, some=False)
        case "two totals":
            return false_total(chooser, some=True)
        case "to all":
            return false_result(chooser)
        case _:
            return checkers.AGGREGATOR


def play(seed: int) -> tuple[str, int, int]:
    """Play one schedule; return the lie, how many have a value, and how many blame the aggregator."""
    chooser = random.Random(seed)
    parties = chooser.randint(6, 9)
    vectors = np.random.default_rng(seed).uniform(-5, 5, (parties, 1))
    encoding = Encoding.plan(length=1, lower=-5.0, upper=5.0, precision=1e-3, parties=parties)
    plan = plan_secagg(parties, dropout=0.17, corrupt=0.17)
    parameters = SecAggParameters(encoding, plan, total="checked", most_shown=5)
    roles, _ = sum_roles(parameters, list(vectors), seed_for_simulation=seed)
    lie = chooser.choice(LIES)
    roles.aggregator.role = role_of(lie, chooser)
    victims = chooser.sample(roles.context.names, chooser.choice([0, 0, 1, 1, 2]))
    faults = Faults(
        delay=chooser.choice([0.0, 0.02]),
        duplicate=chooser.choice([0.0, 0.02]),
        reorder=chooser.random() < 0.5,
        kill={name: chooser.choice([*range(1, 10), 9, 9]) for name in victims},
    )
    network = Watched(faults, seed)
    errors = drive(roles.machines, network, AGGREGATOR)
    values = check(roles, vectors, errors, network.killed)
    blamed = sum(
        isinstance(error, PeerFault) and error.culprit == AGGREGATOR
        for name, error in errors.items()
        if name != AGGREGATOR
    )
    return lie, values, blamed


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(batch, marks=[pytest.mark.long] if number else [], id=f"{batch.start}-{batch.stop}")
        for number, batch in enumerate(BATCHES)
    ],
)
def test_no_false_total_is_accepted_and_no_honest_party_is_blamed(batch: range) -> None:
    values, blamed = Counter[str](), Counter[str]()
    for seed in batch:
        lie, having, blaming = play(seed)
        values[lie] += having
        blamed[lie] += blaming
    assert not values["to checkers"]
    assert values["none"] > 0
    assert not blamed["none"]
    for lie in LIES[1:]:
        assert blamed[lie] > 0, lie
