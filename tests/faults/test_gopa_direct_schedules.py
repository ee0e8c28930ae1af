"""Hundreds of seeded schedules of crashes and network faults without a relay: one total for all, or who."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.direct_params import DirectParameters, check_parameters
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import RingVector, fixed_point_sum
from smpc_dp.errors import PeerFault, SmpcError
from smpc_dp.session.memory.drive import drive
from smpc_dp.transport.memory import Faults, MemoryNetwork
from tests.faults.direct_roles import DirectRoles, direct_roles
from tests.faults.test_schedules import batches, check_error

SCHEDULES = 400
BATCH = 25
LENGTH = 2


def parameters(parties: int) -> DirectParameters:
    given: dict[str, object] = {"length": LENGTH, "lower": -5.0, "upper": 5.0, "epsilon": 1.0, "delta": 1e-6}
    given |= {"dropout": 0.3, "corrupt": 0.13, "topology": "direct"}
    planned, faults = check_parameters(given, parties)
    assert isinstance(planned, DirectParameters), faults
    return planned


def draw_faults(chooser: random.Random, names: Sequence[str], coordinator: str) -> Faults:
    """Draw what goes wrong: from nothing at all to a network that loses every fiftieth message."""

    def chance() -> float:
        return chooser.choice([0.0, 0.0, 0.002, 0.005, 0.02])

    victims = chooser.sample([name for name in names if name != coordinator], chooser.choice([0, 0, 1, 1, 2]))
    kill = {name: chooser.randint(1, 7 * len(names)) for name in victims}
    if chooser.random() < 0.1:
        kill[coordinator] = chooser.randint(1, 9 * len(names))
    return Faults(
        drop=chance(),
        delay=chance(),
        duplicate=chance(),
        corrupt=chance(),
        reorder=chooser.random() < 0.5,
        kill=kill,
    )


def check_ends(
    new_run: DirectRoles, vectors: NDArray[np.float64], errors: dict[str, SmpcError], killed: list[str]
) -> int:
    """Check every machine's end; return how many have a total."""
    names = set(new_run.context.names)
    for name, error in errors.items():
        check_error(name, error, names)
    for party in new_run.parties:
        assert party.finished or party.name in errors or party.name in killed, f"{party} hangs"
    outcomes = [u.result for u in new_run.parties if u.finished and u.name not in {*errors, *killed}]
    for outcome in outcomes:
        assert outcome.noise is not None
        assert outcome.survivors == outcomes[0].survivors
        assert outcome.evidence.participants.set_digest == outcomes[0].evidence.participants.set_digest
        np.testing.assert_array_equal(outcome.total, outcomes[0].total)
        rows = [vectors[new_run.context.names.index(name)] for name in outcome.survivors]
        off = outcome.total - fixed_point_sum(outcome.encoding, rows)
        if outcome.noise.residual_pairs == 0:
            assert not off.any(), "without own noise what parties share cancels to the last bit"
        # Ten standard deviations of the noise that stays, in some 10^3 coordinates: 2e-20.
        assert (np.abs(off) * outcome.encoding.step < 10 * outcome.noise.total).all()
    return len(outcomes)


@pytest.mark.parametrize("first", batches(SCHEDULES, BATCH, ran=1))
def test_every_schedule_ends_in_one_total_or_names_who(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(_parameters: GopaParameters, _ring_vector: RingVector, _randomness: Randomness) -> None:
        return

    monkeypatch.setattr(GopaParameters, "add_noise", silence)
    totals = alone = 0
    for seed in range(first, first + BATCH):
        chooser = random.Random(seed)
        parties = chooser.randint(5, 9)
        vectors = np.random.default_rng(seed).uniform(-5, 5, (parties, LENGTH))
        new_run = direct_roles(
            parameters(parties), list(vectors), request=chooser.randint(1, 20), seed_for_simulation=seed
        )
        coordinator = new_run.coordinator.name
        faults = draw_faults(chooser, new_run.context.names, coordinator)
        network = MemoryNetwork(faults, seed=seed)
        errors = drive(new_run.parties, network, coordinator, mesh=True)
        if not faults.corrupt:
            liars = [error for error in errors.values() if isinstance(error, PeerFault)]
            assert not liars, "a network that only loses messages makes nobody a liar"
        ended = check_ends(new_run, vectors, errors, network.killed)
        totals += ended > 0
        alone += 0 < ended < parties
    # Neither "everything fails" nor "nothing ever fails" would be a test.
    assert BATCH // 4 < totals < BATCH
    assert alone > 0
