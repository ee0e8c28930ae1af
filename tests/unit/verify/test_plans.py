"""The second auditor plans noise and drawn graphs by itself, and finds what the sessions plan."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from smpc_dp.learn.block_gossip import GroupDraws
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters, check_parameters
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.schedule import group_of, pcg64
from smpc_dp_verify.session import Session
from smpc_dp_verify.terms import Terms, read_terms

GIVEN: dict[str, Any] = {"verifiable": True, "length": 1, "lower": 0.0, "upper": 1.0}
GIVEN |= {"epsilon": 1.0, "delta": 1e-6}
BOX = {"length": 3, "lower": [0.0, 0.0, -1.0], "upper": [1.0, 2.0, 1.0]}
SESSIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "one coordinate": (10, {}),
    "the least is near": (100, {"epsilon": 0.428, "upper": 10.0, "corrupt": 0.2}),
    "coordinates": (20, {"length": 5, "epsilon": 3.0}),
    "coordinates of their own": (9, BOX | {"delta": 1e-5}),
    "a ball": (12, {"length": 4, "l2_bound": 2.0, "lower": None, "upper": None}),
    "a drawn graph": (100, {"precision": 0.2}),
    "a large one": (300, {"dropout": 0.05, "precision": 0.1}),
}


def planned(name: str) -> tuple[VerifiableParameters, Session]:
    parties, change = SESSIONS[name]
    given = {key: value for key, value in (GIVEN | change).items() if value is not None}
    parameters, issues = check_parameters(given, parties)
    assert isinstance(parameters, VerifiableParameters), issues
    names = [f"party-{number}" for number in range(parties)]
    return parameters, Session(bytes(32), "gopa", 2, given, {}, names, "relay", None)


def second(session: Session, own: int, pair: int) -> Terms:
    return read_terms(session, 1, f"average {own:x}/{pair:x}")


@pytest.mark.parametrize("name", SESSIONS)
def test_both_plan_the_same(name: str) -> None:
    parameters, session = planned(name)
    noise = parameters.session
    terms = second(session, noise.own_variance, noise.pair_variance)
    assert (terms.bits, terms.pair_variance) == (parameters.bits, noise.pair_variance)
    assert terms.most_neighbours == parameters.most_neighbours
    assert (terms.corrupt, terms.least_left(1)) == (parameters.plan.max_corrupt, parameters.least_left(1))
    more = max(noise.own_variance + 2, noise.own_variance * 21 // 20)
    for own in (noise.own_variance - 1, more):
        with pytest.raises(Refused, match="noise"):
            second(session, own, noise.pair_variance)
    for pair in (noise.pair_variance // 4, noise.pair_variance * 4, noise.pair_variance - 1):
        with pytest.raises(Refused, match="pairwise noise"):
            second(session, noise.own_variance, pair)


def test_the_second_draws_the_same_groups() -> None:
    for seed in (0, 1, 1 << 40, (1 << 62) - 1):
        drawn = np.random.PCG64(np.random.SeedSequence([seed, 9])).random_raw(5)
        assert [*islice(pcg64(seed, 9), 5)] == drawn.tolist()
    draws, given = GroupDraws(11, 4, 17), {"learner": "block-gossip", "steps": 9, "group": 4, "seed": 17}
    groups, most = draws.draw(9).tolist(), int(draws.participations(9).max())
    assert [group_of(given, 11, 2 * step) for step in range(1, 10)] == [(group, most) for group in groups]
    for request in (0, 3, 20):
        with pytest.raises(Refused):
            group_of(given, 11, request)
