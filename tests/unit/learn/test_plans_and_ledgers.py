"""Whatever is planned for an epsilon and a delta can be charged to a ledger of that epsilon and delta."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smpc_dp.capabilities.learn.registry import LEARNERS, LearnParameters, check_learn
from smpc_dp.capabilities.learn.requests.learning import check_budget, own_release
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import PrivacyError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Gaussian, Pure
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.guarantee import Unit
from tests.examples import examples

PARTIES = 12
ALL = ("secagg", "gopa", "local", "mpyc")
DESCENT = {"features": 2, "steps": 6, "rate": 0.1, "clip": 1.0, "seed": 3, "group": 4}
SUM = {"lower": 0.0, "upper": 1.0}
# (learner, its settings but epsilon and delta); ways that differ in their noise.
FAST: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("ring-sum", SUM | {"rounds": 3}),
    ("ring-sum", SUM | {"rounds": 3, "noise": "distributed"}),
    ("ring-sum", SUM | {"rounds": 2, "noise": "distributed", "colluding": 2}),
)


def ledger(epsilon: float, delta: float, unit: Unit = "party") -> Ledger:
    folder = Path(tempfile.mkdtemp())
    return Ledger.create(
        folder / "one.ledger",
        party="ann",
        dataset="data",
        relation="substitution",
        epsilon=epsilon,
        delta=delta,
        unit=unit,
    )


def planned(learner: str, more: Mapping[str, Any]) -> LearnParameters:
    checked, faults = check_learn({"learner": learner} | dict(more), PARTIES)
    assert checked is not None, faults
    return checked


def charge_all(parameters: LearnParameters, epsilon: float, delta: float) -> None:
    """Check a whole run beforehand, then charge one party all that it takes part in."""
    book = ledger(epsilon, delta)
    check_budget(book, parameters, 0)
    events: list[Event] = []
    requirements = parameters.learner.requirements(PARTIES)
    if requirements.average is not None and parameters.average is not None:
        plans = list(parameters.average.plans.values())
        events += [plans[k % len(plans)].event() for k in range(int(requirements.average.participations[0]))]
    if (
        requirements.exchange is not None
        and parameters.exchange is not None
        and parameters.exchange.guarantee
    ):
        events += [parameters.exchange.parameters.event()] * int(requirements.exchange.participations[0])
    own = own_release(parameters, 0)
    events += [] if own is None else [own]
    assert events
    for number, event in enumerate(events):
        spent = book.charge(number.to_bytes(16, "big"), event).spent.epsilon
    assert spent is not None
    assert 0 < spent <= epsilon


budgets = st.tuples(
    st.floats(0.05, 8.0, exclude_min=True), st.sampled_from([1e-9, 1e-6, 3.3e-5, 0.1 / 12345, 1e-3])
)


@pytest.mark.parametrize(("learner", "more"), FAST)
@given(budget=budgets)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_sums_on_a_ring_fit_their_own_ledger(
    learner: str, more: Mapping[str, Any], budget: tuple[float, float]
) -> None:
    epsilon, delta = budget
    charge_all(planned(learner, dict(more) | {"epsilon": epsilon, "delta": delta}), epsilon, delta)


CLEAR = {"steps": 8, "features": 2, "clip": 1.0}
SLOW: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("ring-histogram", {"rounds": 2, "categories": 3}),
    ("walk-sum", SUM | {"steps": 30}),
    ("walk-sum", SUM | {"steps": 30, "paths": "known", "max_contributions": 3}),
    ("walk-histogram", {"steps": 30, "categories": 3}),
    ("walk-sgd", CLEAR),
    ("walk-sgd", CLEAR | {"paths": "known", "record_bound": 2.0, "rate": 0.05, "clip": 3.0}),
    *(
        (kind, DESCENT | {"averager": {"method": method}})
        for kind in ("sgd", "block-gossip")
        for method in ALL
    ),
    ("block-gossip", DESCENT | {"averager": {"method": "secagg", "mechanism": "skellam"}}),
    ("block-gossip", DESCENT | {"averager": {"method": "secagg", "colluders": 0}}),
    ("block-gossip", DESCENT | {"averager": {"method": "gopa", "on_dropout": "roll-back"}}),
    ("block-gossip", DESCENT | {"averager": {"method": "gopa", "verifiable": True}}),
    ("block-gossip", DESCENT | {"group": 2, "averager": {"method": "pair", "colluders": 0}}),
    ("dual-averaging-groups", DESCENT | {"averager": {"method": "secagg"}}),
    ("diffusion", DESCENT | {"averager": {"method": "gopa"}}),
    ("sgd", DESCENT | {"weights": "points", "max_points": 9}),
)


def given_to(learner: str, more: Mapping[str, Any], epsilon: float, delta: float) -> dict[str, Any]:
    chosen = dict(more) | {"epsilon": epsilon, "delta": delta}
    if learner == "sgd":
        # Everybody averages.
        chosen.pop("group", None)
    return chosen


@pytest.mark.thin(3)
@pytest.mark.parametrize("budget", [(1.0, 1e-6), (2.7, 1e-4 / 3)])
@pytest.mark.parametrize(
    ("learner", "more"), SLOW, ids=lambda value: value if isinstance(value, str) else None
)
def test_every_learner_fits_its_own_ledger(
    learner: str, more: Mapping[str, Any], budget: tuple[float, float]
) -> None:
    epsilon, delta = budget
    charge_all(planned(learner, given_to(learner, more, epsilon, delta)), epsilon, delta)


PURE: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("diffusion", {"features": 2, "steps": 5, "noise": "iid"}),
    ("diffusion", {"features": 2, "steps": 5, "noise": "homomorphic"}),
    (
        "gossip-reports",
        {"statistic": "gini_mean_difference", "lower": 0.0, "upper": 1.0, "bins": 5, "ticks": 20, "seed": 1},
    ),
    (
        "dual-averaging-reports",
        {"lower": -3.0, "upper": 4.0, "bins": 5, "features": 2, "ticks": 20, "seed": 1, "labels": "private"},
    ),
)


@pytest.mark.parametrize(("learner", "more"), PURE, ids=[kind for kind, _ in PURE])
@given(epsilon=st.floats(0.05, 8.0))
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_learners_without_delta_fit_a_ledger_without_delta(
    learner: str, more: Mapping[str, Any], epsilon: float
) -> None:
    charge_all(planned(learner, dict(more) | {"epsilon": epsilon}), epsilon, 0.0)


LOCAL = {"rounds": 5, "batch": 10, "record_bound": 1.0, "features": 2}
RECORDS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("personalized", {"sizes": [3, 1, 0] * 4, "ticks": 90, "record_bound": 1.0, "features": 2}),
    ("local-global", LOCAL),
    ("local-global", LOCAL | {"policy": "threshold", "threshold": 0.6, "policy_epsilon": 0.1}),
    ("personalized-boosting", {"sizes": [3, 1, 0] * 4, "ticks": 90, "beta": 1.0, "features": 2}),
    ("data-owners", {"sizes": [3] * 5 + [1] * 6, "ticks": 60, "clip": 1.0, "features": 2}),
)


@pytest.mark.parametrize("budget", [(0.31, 1e-6), (2.7, 1e-4 / 3)])
@pytest.mark.parametrize(("learner", "more"), RECORDS, ids=[kind for kind, _ in RECORDS])
def test_learners_that_protect_a_record_fit_a_ledger_of_records(
    learner: str, more: Mapping[str, Any], budget: tuple[float, float]
) -> None:
    epsilon, delta = budget
    given = {"epsilons": [epsilon] * 11} if learner == "data-owners" else {"epsilon": epsilon}
    parameters = planned(learner, dict(more) | given | {"delta": delta})
    # The first party of data-owners has no data.
    for party in range(learner == "data-owners", PARTIES):
        book = ledger(epsilon, delta, "record")
        check_budget(book, parameters, party)
        event = own_release(parameters, party)
        assert event is not None
        spent = book.charge(bytes(16), event).spent.epsilon
        assert spent is not None
        assert epsilon * 0.999 < spent <= epsilon


def test_no_learner_with_a_claim_is_left_out() -> None:
    """The other two have no privacy between parties, and no ledger with a budget takes them."""
    tried = {learner for learner, _ in (*FAST, *SLOW, *PURE, *RECORDS)}
    assert set(LEARNERS) - tried == {"gossip-clear", "dual-averaging"}


SUMS: Sequence[tuple[str, dict[str, Any]]] = (
    ("secagg", {"mechanism": "discrete-gaussian"}),
    ("secagg", {"mechanism": "skellam"}),
    ("gopa", {"on_dropout": "keep"}),
    ("gopa", {"on_dropout": "roll-back"}),
    ("gopa", {"verifiable": True}),
)


@pytest.mark.thin(5)
@pytest.mark.parametrize(("protocol", "more"), SUMS)
@pytest.mark.parametrize(("parties", "budget"), [(5, (0.31, 1e-6)), (40, (2.7, 1e-4 / 3))])
def test_one_request_of_a_session_fits_its_own_ledger(
    protocol: str, more: dict[str, Any], budget: tuple[float, float], parties: int
) -> None:
    epsilon, delta = budget
    session = {"length": 3, "lower": 0.0, "upper": 1.0, "precision": 0.1, "epsilon": epsilon, "delta": delta}
    if more.get("verifiable"):
        del session["precision"]
    parameters, faults = checker_of(protocol, session_protocol(protocol).version)(session | more, parties)
    assert isinstance(parameters, SumParameters), faults
    spent = ledger(epsilon, delta).charge(bytes(16), parameters.event()).spent.epsilon
    assert spent is not None
    assert spent <= epsilon


def test_two_ring_sums_cost_what_two_gaussian_mechanisms_cost() -> None:
    delta = 1e-6
    parameters = planned("ring-sum", SUM | {"rounds": 3, "epsilon": 1.0, "delta": delta})
    event = own_release(parameters, 0)
    assert event is not None
    [known] = event.descriptions
    assert isinstance(known, Gaussian)
    assert known.mu == pytest.approx(gaussian_mu(1.0, delta), rel=1e-7)
    two = Composition([event] * 2).epsilon(delta)
    gaussian = Event("gaussian", "substitution", (Gaussian(gaussian_mu(1.0, delta)),))
    assert two == pytest.approx(Composition([gaussian] * 2).epsilon(delta), rel=1e-6)
    # Not the 2 epsilon, at twice delta, that pairs of epsilon and delta add up to.
    assert two < 1.5


def test_a_refusal_says_that_delta_is_short() -> None:
    event = Event("pure", "substitution", (Pure(1.0, 2e-6),))
    with pytest.raises(PrivacyError) as refused:
        ledger(1.0, 1e-6).charge(bytes(16), event, "request 7")
    text = str(refused.value)
    assert text.startswith("delta is short: request 7 is refused (unit party, 'pure'; ann, ")
    for part in ("epsilon = 1 ", "delta = 2e-06", "has 1e-06"):
        assert part in text


def test_a_refusal_says_that_epsilon_is_short_and_by_how_much() -> None:
    book = ledger(1.0, 1e-6)
    event = Event("gaussian", "substitution", (Gaussian(gaussian_mu(0.8, 1e-6)),))
    book.charge(bytes(16), event, "request 1")
    with pytest.raises(PrivacyError) as refused:
        book.charge(bytes(15) + b"1", event, "request 2")
    text = str(refused.value)
    both = Composition([event] * 2)
    assert text.startswith("epsilon is short: request 2 is refused (unit party, 'gaussian'; ann, ")
    for part in ("of epsilon = 1 at delta = 1e-06", "0.8 is spent"):
        assert part in text
    assert f"would make it {both.epsilon(1e-6):.6g}" in text
    assert f"delta would have to be {both.delta(1.0):.6g}" in text


def test_a_refused_plan_names_the_first_release_that_does_not_fit() -> None:
    event = Event("pure", "substitution", (Pure(0.3),))
    with pytest.raises(
        PrivacyError, match=r"too small for 9 planned releases: .*planned release 4 of 9 is refused"
    ):
        ledger(1.0, 0.0).check([event] * 9)
    ledger(1.0, 0.0).check([event] * 3)
    ledger(1.0, 0.0).check([])
