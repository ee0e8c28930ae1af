"""The second auditor plans noise and drawn graphs by itself, and finds what the sessions plan."""

from __future__ import annotations

import dataclasses
import math
from itertools import islice
from typing import Any

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.learn.block_gossip import GroupDraws
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters, check_parameters
from smpc_dp.protocols.gopa.verifiable.records import VerifiableRecordParameters
from smpc_dp.protocols.registry import PARAMETER_CHECKERS
from smpc_dp_verify.draws import plan_draws
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
    "coordinates": (20, {"length": 4, "epsilon": 0.8, "precision": 0.2}),
    "coordinates of their own": (9, BOX | {"delta": 1e-5}),
    "a ball": (12, {"length": 4, "l2_bound": 2.0, "lower": None, "upper": None}),
    "a drawn graph": (100, {"precision": 0.2}),
    "draws of more than half": (65, {"corrupt": 0.3, "dropout": 0.2, "precision": 0.3}),
    "secure aggregation has all for neighbours": (66, {"corrupt": 0.0, "dropout": 0.485, "precision": 0.5}),
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
    assert terms.noise.most_neighbours == parameters.most_neighbours
    assert (terms.corrupt, terms.least_left(1)) == (parameters.plan.max_corrupt, parameters.least_left(1))
    for own in (noise.own_variance - 1, noise.own_variance + 1):
        with pytest.raises(Refused, match="noise"):
            second(session, own, noise.pair_variance)
    for pair in (noise.pair_variance // 4, noise.pair_variance * 4, noise.pair_variance - 1):
        with pytest.raises(Refused, match="pairwise noise"):
            second(session, noise.own_variance, pair)


AGE = {"max_rows": 7, "columns": {"age": {"lower": 0.0, "upper": 100.0}}}
PERSON = {"unit": "person", "id": "who", "rows_per_person": 5, "parties_per_person": 1}
RECORDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a sum of a row": ({}, {}),
    "a sum of a person": (PERSON, {}),
    "sums of a person in two parties": (
        PERSON | {"rows_per_person": 2, "parties_per_person": 2},
        {"ask": ["count", "mean(age)"]},
    ),
    "an exchanged row": ({"rows": "public"}, {"public_rows": [7] * 6, "ask": "mean(age)"}),
    "moments, most of whose squares are bounded together": ({}, {"ask": ["variance(age)", "mean(age)"]}),
}


@pytest.mark.parametrize("name", RECORDS)
def test_both_plan_the_same_of_records(name: str) -> None:
    records, more = RECORDS[name]
    given = {"verifiable": True, "epsilon": 1.0, "delta": 1e-6, "ask": "sum(age)", **more}
    given |= {"records": AGE | records}
    parameters, issues = PARAMETER_CHECKERS["gopa", 2](given, 6)
    assert isinstance(parameters, VerifiableRecordParameters), issues
    asked = f"{parameters.operations[0]} {parameters.planned()}"
    names = [f"party-{number}" for number in range(6)]
    session = Session(bytes(32), "gopa", 2, given, {}, names, "relay", None)
    terms = read_terms(session, 1, asked)
    noise = parameters.session
    assert (terms.bits, terms.pair_variance) == (parameters.bits, noise.pair_variance)
    low, high = parameters.request.bounds
    assert terms.range == (tuple((low - low.min()).tolist()), tuple((high - low.min()).tolist()))
    assert terms.most_x_hat == parameters.greatest_published
    # Bounds of twice as many rows as max_rows are refused.
    false: dict[str, dict[str, Any]] = {
        "the moves of a unit": {"records": given["records"] | {"max_rows": 3}},
        "a budget": {"budget": {}},
    }
    for reason, change in false.items():
        with pytest.raises(Refused, match=reason):
            read_terms(dataclasses.replace(session, parameters=given | change), 1, asked)


@pytest.mark.parametrize(
    "name", ["one coordinate", "coordinates", "coordinates of their own", "a ball", "a drawn graph"]
)
def test_both_state_the_same_after_exclusions(name: str) -> None:
    parameters, session = planned(name)
    noise, most = parameters.session, parameters.most_false
    terms = second(session, noise.own_variance, noise.pair_variance)
    for excluded in {0, parameters.plan.max_corrupt, most - 1, most, noise.honest + most}:
        first = parameters.epsilon_without(excluded)
        other = terms.noise.epsilon_after(excluded, terms.bits, terms.pair_variance)
        # Convolutions of the first in double precision; all else is the same to the last digits.
        near = 1e-9 if parameters.encoding.box or parameters.encoding.length > 1 else 1e-12
        assert (math.inf if other is None else other) == pytest.approx(first, rel=near)


@pytest.mark.parametrize("parties", [65, 66, 91, 200])
def test_no_graph_is_drawn_where_secure_aggregation_has_all_for_neighbours(parties: int) -> None:
    """docs/proofs/verifiable-plan.md: only then n - c - 2 D < 4, and draws of half of the others are few."""
    complete = set()
    for lost in (0, 1, 5, parties // 4, parties // 2 - 2, (parties - 1) // 2):
        for left in range(1, 8):
            corrupt = parties - 2 * lost - left
            if corrupt < 0 or parties - lost - max(corrupt, 1) < 2:
                continue
            try:
                plan = plan_secagg(parties, dropout=lost / parties, corrupt=corrupt / parties, security=40)
            except ConfigError:
                assert left < 2
                continue
            assert left >= 2
            if plan.complete:
                complete.add(left)
                assert plan_draws(parties, max(corrupt, 1), lost, 0.9) is None
    assert complete
    assert complete <= {2, 3}


RIGHT: list[dict[str, Any]] = [
    {"security": 128},
    {"on_dropout": "keep", "topology": "relay", "max_weight": 0, "kind": "real"},
    {"lower": [0], "upper": 1},
]
WRONG: list[dict[str, Any]] = [
    *({"security": value} for value in (19, 129, "40", True)),
    *({"max_weight": value} for value in (1, False, 0.0)),
    *({"precision": value} for value in (0, True, "1")),
    *({"dropout": value} for value in (-0.1, 0.5, "0")),
    *({"corrupt": value} for value in (-0.1, 1)),
    *({"lower": value} for value in (True, "0", [0, 0], [], 1.0)),
    {"on_dropout": "roll-back"},
    {"topology": "star"},
    {"kind": "complex"},
    {"kind": "integer", "precision": 1},
    {"kind": "integer", "lower": 0.5},
    {"l2_bound": 1.0},
    {"parties": 10},
    {"mechanism": "skellam"},
    {"same_survivors": True},
    {"epsilon": 100},
]


@pytest.mark.parametrize("change", [*RIGHT, *WRONG], ids=str)
def test_both_take_the_same_parameters(change: dict[str, Any]) -> None:
    """Also those that change nothing in a log."""
    parameters, session = planned("one coordinate")
    given = {**session.parameters, **change}
    first, issues = check_parameters(given, 10)
    assert bool(issues) == (change in WRONG)
    noise = parameters.session if first is None else first.session
    changed = dataclasses.replace(session, parameters=given)
    if issues:
        with pytest.raises(Refused):
            second(changed, noise.own_variance, noise.pair_variance)
    else:
        second(changed, noise.own_variance, noise.pair_variance)


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
