"""The second auditor plans a learner's averages by itself, and takes the parameters that the first takes."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.capabilities.learn.registry import LearnParameters, check_learn_as
from smpc_dp.engine.registry import session_protocol
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.learner import read_learner
from smpc_dp_verify.schedule import group_of
from smpc_dp_verify.session import Session
from smpc_dp_verify.terms import Terms, group_digest, read_terms

NAMES = [f"party-{number}" for number in range(8)]
GIVEN: dict[str, Any] = {"learner": "sgd", "features": 2, "steps": 3, "epsilon": 8.0, "delta": 1e-5}
GIVEN |= {"averager": {"method": "gopa", "verifiable": True}}
GROUPS = {"learner": "block-gossip", "group": 4, "seed": 5}
ROUNDS = {"learner": "dual-averaging-groups", "group": 3, "seed": 5}
DIFFUSION = {"learner": "diffusion", "group": 3}
AVERAGER = GIVEN["averager"]
LEARNERS: dict[str, dict[str, Any]] = {
    "one step": {"steps": 1},
    "steps": {},
    "many steps": {"steps": 200, "epsilon": 20.0},
    "a small delta": {"steps": 2, "epsilon": 12.0, "delta": 1e-10},
    "more noise than a Gaussian's": {"steps": 5, "epsilon": 2.0},
    "groups": GROUPS | {"steps": 12},
    "rounds of groups": ROUNDS | {"steps": 4},
    "diffusion": DIFFUSION | {"steps": 2, "clip": 0.5, "model": "softmax", "classes": 3},
    "points": {"weights": "points", "max_points": 100, "clip": 3},
    "softmax": {"model": "softmax", "classes": 3, "ridge": 0.5, "columns": ["x", "y", "label"]},
    "colluders": {"averager": AVERAGER | {"colluders": 3, "missing": 1, "on_dropout": "keep"}},
    "of one coordinate, once": {"model": "own", "features": None, "length": 1, "steps": 1},
    "of one coordinate": {"model": "own", "features": None, "length": 1, "steps": 2},
}


@pytest.fixture(params=[3, session_protocol("learn").version])
def version(request: pytest.FixtureRequest) -> int:
    """Version of the session: one that is for logs alone, and that of new sessions."""
    number: int = request.param
    return number


def given_of(change: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (GIVEN | change).items() if value is not None}


def first(version: int, given: dict[str, Any]) -> LearnParameters | None:
    return check_learn_as(version, given, NAMES)[0]


def second(version: int, given: dict[str, Any], own: int, pair: int) -> Terms:
    session = Session(bytes(32), "learn", version, given, {}, NAMES, "relay", None)
    names, request = NAMES, 2
    if given["learner"] != "sgd" and type(given.get("group")) is int:
        # In a round of two groups the third request is the first private average.
        request = 2 if given["learner"] == "block-gossip" else len(NAMES) // given["group"] + 1
        names = [NAMES[index] for index in group_of(given, len(NAMES), request)[0]]
    return read_terms(session, request, f"average {own:x}/{pair:x} of group {group_digest(names)}")


@pytest.mark.parametrize(
    "name",
    # That of one coordinate takes several seconds; once it is one of those that are played.
    [pytest.param(name, marks=pytest.mark.long if name == "of one coordinate" else ()) for name in LEARNERS],
)
def test_both_plan_the_same_averages(name: str, version: int) -> None:
    given = given_of(LEARNERS[name])
    learned = first(version, given)
    assert learned is not None
    assert learned.average is not None
    planned: Any = learned.average.plan(given.get("group", len(NAMES)))
    own, pair = planned.session.own_variance, planned.session.pair_variance
    terms = second(version, given, own, pair)
    assert (terms.noise.epsilon, terms.noise.delta) == pytest.approx(
        (planned.session.epsilon, planned.session.delta), rel=1e-8
    )
    assert (terms.length, terms.fractional_bits) == (
        planned.encoding.length,
        planned.encoding.fractional_bits,
    )
    for other in ((own - 1, pair), (own + 1, pair), (own, 4 * pair)):
        with pytest.raises(Refused, match="noise"):
            second(version, given, *other)


RIGHT: list[dict[str, Any]] = [
    {"rate": 3, "decay": 2.0, "radius": 5, "seed": 1 << 62, "metric_every": 0, "metric_share": 0.5},
    {"model": "linear", "metric_lower": -1, "metric_upper": 0.0, "weights": "equal", "max_points": 0},
    {"columns": ["a", "b", "c"], "classes": 10_000, "averager": AVERAGER | {"missing": 0}},
    DIFFUSION | {"rate": 2, "ridge": 0.5, "radius": 5, "seed": 7, "topology": "ring"},
    DIFFUSION | {"sizes": []},
    {"averager": AVERAGER | {"mechanism": None, "on_dropout": None}},
    ROUNDS | {"rate": 2, "regulariser": "l2", "weight": 0.5, "radius": 3, "model": "linear"},
]
WRONG: list[dict[str, Any]] = [
    *({"rate": value} for value in (0, -1.0, True, "1", 1e10)),
    *({"steps": value} for value in (0, 1.0, True, 1_000_001, None)),
    *({"seed": value} for value in (-1, (1 << 62) + 1, 0.5)),
    *({"model": value} for value in ("forest", 1, "own")),
    *({"columns": value} for value in ([], ["a", "b"], ["a", "a", "b"], ["a", "", "b"], "abc", [1, 2, 3])),
    *({"averager": AVERAGER | change} for change in ({"colluders": 7}, {"missing": -1}, {"colluders": True})),
    *({"averager": AVERAGER | {"on_dropout": value}} for value in ("roll-back", 1)),
    {"averager": AVERAGER | {"mechanism": "skellam"}},
    {"averager": AVERAGER | {"other": 1}},
    {"averager": AVERAGER | {"method": "secagg"}},
    {"averager": "gopa"},
    {"learner": "diffusion"},
    {"group": 4},
    {"features": None},
    {"features": 1_000_001},
    {"length": 3},
    {"rate": 4.0, "ridge": 0.5},
    {"ridge": 2e6},
    {"radius": 1e-300},
    {"classes": 1},
    {"weights": "points"},
    {"max_points": 5},
    {"metric_every": 1},
    {"metric_share": 1.0},
    {"metric_lower": 1.0},
    *({"epsilon": epsilon} for epsilon in (0, 1000.0)),
    {"delta": 1.0},
    {"delta": None},
    {"delta": 1e-12},
    {"unknown": 1},
    {"learner": "block-gossip", "group": 9.0},
    GROUPS | {"group": 2},
    GROUPS | {"group": 4.0},
    {"learner": "block-gossip"},
    *(DIFFUSION | change for change in ({"rate": 4.0, "ridge": 0.5}, {"noise": "iid"}, {"batches": 2})),
    *(DIFFUSION | change for change in ({"publish": 1.0}, {"topology": "complete"}, {"radius": 0})),
    DIFFUSION | {"sizes": [3] * 8},
    *(ROUNDS | {name: value} for name, value in (("group", 2), ("group", 9), ("group", None), ("clip", 0))),
    *(ROUNDS | change for change in ({"regulariser": "psd"}, {"ridge": 0.1}, {"model": "own"}, {"seed": -1})),
    *(ROUNDS | change for change in ({"epsilon": None}, {"delta": None}, {"steps": 0})),
]


def test_both_draw_the_same_rounds_of_groups(version: int) -> None:
    """Of every request: which group's private average it is, and how often a party is in one."""
    given = given_of(ROUNDS | {"steps": 3})
    learned = first(version, given)
    assert learned is not None
    assert learned.groups is not None
    assert learned.average is not None
    seen = []
    for request in range(14):
        index = learned.average_of(request)
        if index is None or index[0] >= len(learned.groups):
            with pytest.raises(Refused, match="without an average"):
                group_of(given, len(NAMES), request)
            continue
        group, most = group_of(given, len(NAMES), request)
        assert group == learned.groups[index[0]].tolist()
        assert most == learned.average.participations
        seen.append((request, *index))
    assert seen == [(3, 0, 1), (4, 1, 1), (7, 2, 2), (8, 3, 2), (11, 4, 3), (12, 5, 3)]


@pytest.mark.parametrize("change", [*RIGHT, *WRONG], ids=str)
def test_both_take_the_same_parameters_of_a_learner(change: dict[str, Any], version: int) -> None:
    """Also those that change nothing in a log."""
    check_both(version, given_of(change), taken=change not in WRONG)


@pytest.mark.parametrize("name", ["clip", "noise", "publish", "columns", "sizes", "weights", "seed", "group"])
def test_both_take_null_for_the_same_parameters(name: str, version: int) -> None:
    """A log's session is JSON."""
    given = given_of(DIFFUSION) | {name: None}
    check_both(version, given, taken=name in ("clip", "noise", "publish", "columns"))


def check_both(version: int, given: dict[str, Any], *, taken: bool) -> None:
    learned = first(version, given)
    planned: Any = None if learned is None or learned.average is None else learned.average
    assert (planned is not None) == taken
    if planned is None:
        # Not for another noise, which a guess of the variances has.
        with pytest.raises(Refused):
            read_learner(Session(bytes(32), "learn", version, given, {}, NAMES, "relay", None))
    else:
        session = planned.plan(max(planned.plans)).session
        second(version, given, session.own_variance, session.pair_variance)
