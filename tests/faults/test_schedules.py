"""Two thousand seeded schedules of crashes and network faults: each run is right, or says who."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp_lab.bench.roles import Roles, sum_roles

SCHEDULES = 2_000
BATCH = 50
LENGTH = 3


def batches(schedules: int, batch: int, ran: int) -> list[Any]:
    """Return the first schedule of each batch; those after the first `ran` batches are marked `long`."""
    return [
        pytest.param(first, marks=[pytest.mark.long] if first >= ran * batch else [])
        for first in range(0, schedules, batch)
    ]


def parameters(parties: int) -> SecAggParameters:
    return SecAggParameters(
        encoding=Encoding.plan(length=LENGTH, lower=-5.0, upper=5.0, precision=1e-3, parties=parties),
        plan=plan_secagg(parties, dropout=0.35, corrupt=0.13),
    )


def draw_faults(chooser: random.Random, names: Sequence[str]) -> Faults:
    """Draw what goes wrong: from nothing at all to a network that loses every tenth message."""

    def chance() -> float:
        return chooser.choice([0.0, 0.0, 0.005, 0.02, 0.1])

    victims = chooser.sample(names, chooser.choice([0, 0, 1, 1, 2, 3]))
    kill = {name: chooser.randint(1, 8) for name in victims}
    if chooser.random() < 0.05:
        kill[AGGREGATOR] = chooser.randint(1, 8 * len(names))
    return Faults(
        drop=chance(),
        delay=chance(),
        duplicate=chance(),
        corrupt=chance(),
        reorder=chooser.random() < 0.5,
        kill=kill,
    )


def check_error(name: str, error: SmpcError, names: set[str]) -> None:
    if isinstance(error, PeerFault):
        assert error.culprit in names, (name, error)
    elif isinstance(error, TimeoutFault):
        assert error.missing, (name, error)
        assert error.missing <= names, (name, error)
    else:
        pytest.fail(f"{name}: {type(error).__name__} names nobody: {error}")


def check_ends(
    new_run: Roles, vectors: NDArray[np.float64], errors: dict[str, SmpcError], killed: list[str]
) -> bool:
    """Check every machine's end; return whether the aggregator has a sum."""
    names = {*new_run.context.names, AGGREGATOR}
    for name, error in errors.items():
        check_error(name, error, names)
    for machine in new_run.machines:
        assert machine.finished or machine.name in errors or machine.name in killed, f"{machine} hangs"
    failed = {*errors, *killed}
    machines = [new_run.aggregator, *new_run.parties]
    outcomes = {m.name: m.result for m in machines if m.finished and m.name not in failed}
    if AGGREGATOR in errors:
        assert not outcomes, "a party has a result of a run that failed"
    for outcome in outcomes.values():
        rows = [vectors[new_run.context.names.index(name)] for name in outcome.survivors]
        np.testing.assert_array_equal(outcome.total, fixed_point_sum(outcome.encoding, rows))
        assert set(outcome.survivors) | set(outcome.absent) == set(new_run.context.names)
    assert len({outcome.survivors for outcome in outcomes.values()}) <= 1
    return AGGREGATOR in outcomes


@pytest.mark.parametrize("first", batches(SCHEDULES, BATCH, ran=1))
def test_every_schedule_ends_exact_or_names_who(first: int) -> None:
    sums = 0
    for seed in range(first, first + BATCH):
        chooser = random.Random(seed)
        parties = chooser.randint(4, 9)
        vectors = np.random.default_rng(seed).uniform(-5, 5, (parties, LENGTH))
        new_run, _ = sum_roles(parameters(parties), list(vectors), seed_for_simulation=seed)
        network = MemoryNetwork(draw_faults(chooser, new_run.context.names), seed=seed)
        errors = drive(new_run.machines, network, AGGREGATOR)
        sums += check_ends(new_run, vectors, errors, network.killed)
    # Neither "everything fails" nor "nothing ever fails" would be a test.
    assert BATCH // 10 < sums < BATCH
