"""The planner's outputs, refusals and pinned values."""

from __future__ import annotations

import math
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.secagg_plan import (
    SMALL_SESSION,
    SecAggPlan,
    check_plan,
    communication,
    mask_degree,
    plan_secagg,
)
from tests.examples import examples


def faults_at(error: ConfigError) -> dict[str, str]:
    return {fault.where: fault.reason for fault in error.issues}


@pytest.mark.parametrize(
    ("parties", "degree", "threshold", "quorum", "corrupt_holders"),
    [
        (100, 31, 21, 56, 10),
        (1_000, 128, 86, 551, 43),
        (2_000, 145, 97, 1_101, 48),
        (10_000, 166, 111, 5_501, 55),
        (100_000, 181, 121, 55_001, 60),
    ],
)
def test_pinned_plans(parties: int, degree: int, threshold: int, quorum: int, corrupt_holders: int) -> None:
    plan = plan_secagg(parties, dropout=0.1, corrupt=0.1, security=40)
    assert (plan.degree, plan.threshold, plan.quorum) == (degree, threshold, quorum)
    assert plan.corrupt_holders == corrupt_holders
    assert plan.max_corrupt == plan.max_dropouts == parties // 10
    assert plan.min_survivors == parties - parties // 10
    assert plan.failure_bits is not None
    assert plan.failure_bits >= 40
    assert not plan.complete


def test_plan_of_a_thousand_in_full() -> None:
    plan = plan_secagg(1_000)
    events = (plan.holders_log2, plan.shares_log2, plan.graph_log2)
    assert events == pytest.approx((-43.3669040, -40.4676641, -240.9313364), abs=1e-6)
    assert plan.failure_bits == pytest.approx(40.2861896, abs=1e-6)
    assert plan.mask_degree == pytest.approx(256 - 128**2 / 999)
    assert plan.min_honest_in_sum == 451


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, float, float, float]:
    parties = draw(st.integers(3, 400))
    dropout = draw(st.floats(0, 0.35))
    corrupt = draw(st.floats(0, 0.5))
    return parties, dropout, corrupt, draw(st.floats(20, 60))


@settings(max_examples=examples(120))
@given(requests())
def test_every_plan_keeps_its_conditions(request_: tuple[int, float, float, float]) -> None:
    n, dropout, corrupt, security = request_
    c, d = math.floor(corrupt * n + 1e-9), math.floor(dropout * n + 1e-9)
    try:
        plan = plan_secagg(n, dropout=dropout, corrupt=corrupt, security=security)
    except ConfigError:
        # Refused only where too few can sign or too few shares or honest survivors remain.
        assert n - d - c < 2 or 2 * d + c >= n - 2
        return
    k, t = plan.degree, plan.threshold
    assert (plan.max_corrupt, plan.max_dropouts) == (c, d)
    assert 2 * t > k + plan.corrupt_holders
    assert plan.corrupt_holders <= min(c, k)
    assert max(2, plan.corrupt_holders + 1) <= t <= k <= n - 1
    assert 2 * plan.quorum > n + c
    assert plan.quorum <= plan.min_survivors == n - d
    assert 2 <= plan.min_honest_in_sum <= n - c
    assert plan.complete == (k == n - 1)
    assert plan.sufficient
    if plan.complete:
        assert plan.failure_bits is None
        assert t == n - 1 - d
        assert plan.min_honest_in_sum == n - d - c
    bits = [2**x for x in (plan.holders_log2, plan.shares_log2, plan.graph_log2) if x is not None]
    assert sum(bits) <= 2**-security * (1 + 1e-9)
    assert check_plan(n, k, t, dropout=dropout, corrupt=corrupt, security=security) == plan


@settings(max_examples=examples(40))
@given(requests(), st.floats(0, 60))
def test_more_security_never_takes_a_smaller_degree(
    request_: tuple[int, float, float, float], extra: float
) -> None:
    n, dropout, corrupt, security = request_
    try:
        plan = plan_secagg(n, dropout=dropout, corrupt=corrupt, security=security)
        safer = plan_secagg(n, dropout=dropout, corrupt=corrupt, security=security + extra)
    except ConfigError:
        return
    assert safer.degree >= plan.degree


def test_more_dropouts_or_corrupt_parties_never_take_a_smaller_degree() -> None:
    def degrees(**changed: list[float]) -> list[int]:
        ((name, values),) = changed.items()
        return [plan_secagg(2_000, **cast(dict[str, Any], {name: value})).degree for value in values]

    for result in (degrees(dropout=[0, 0.05, 0.1, 0.2, 0.3]), degrees(corrupt=[0, 0.05, 0.1, 0.2, 0.3])):
        assert result == sorted(result)
        assert result[0] < result[-1]


def test_small_sessions_get_the_complete_graph() -> None:
    for n in (3, 8, SMALL_SESSION):
        plan = plan_secagg(n)
        assert plan.complete
        assert plan.degree == n - 1
        assert (plan.holders_log2, plan.shares_log2, plan.graph_log2, plan.failure_bits) == (None,) * 4
    assert not plan_secagg(SMALL_SESSION + 1).complete


def test_complete_graph_where_no_sparse_one_suffices() -> None:
    plan = plan_secagg(100, dropout=0.3, corrupt=0.38)
    assert plan.complete
    assert 2 * plan.threshold > plan.degree + plan.max_corrupt


def test_floats_do_not_lose_a_party() -> None:
    assert 0.29 * 100 < 29
    assert plan_secagg(100, corrupt=0.29).max_corrupt == 29
    assert plan_secagg(30, corrupt=1 / 3, dropout=0).max_corrupt == 10
    assert plan_secagg(100, corrupt=0.2999).max_corrupt == 29


@pytest.mark.parametrize(
    ("arguments", "where", "says"),
    [
        ({"parties": 2}, "parties", "3..1000000"),
        ({"parties": 1_000_001}, "parties", "3..1000000"),
        ({"parties": 10.0}, "parties", "3..1000000"),
        ({"parties": True}, "parties", "3..1000000"),
        ({"dropout": 0.5}, "dropout", "[0, 0.5)"),
        ({"dropout": -0.01}, "dropout", "[0, 0.5)"),
        ({"dropout": math.nan}, "dropout", "[0, 0.5)"),
        ({"dropout": "0.1"}, "dropout", "[0, 0.5)"),
        ({"corrupt": 1.0}, "corrupt", "[0, 1)"),
        ({"corrupt": math.inf}, "corrupt", "[0, 1)"),
        ({"security": 19.9}, "security", "[20, 128]"),
        ({"security": 129}, "security", "[20, 128]"),
        ({"security": False}, "security", "[20, 128]"),
        ({"dropout": 0.4, "corrupt": 0.3}, "dropout", "needs 66 signatures"),
        ({"parties": 10, "dropout": 0, "corrupt": 0.9}, "corrupt", "hides nobody"),
        ({"parties": 4, "dropout": 0.25, "corrupt": 0.25}, "corrupt", "2 t > 3 + 1"),
    ],
)
def test_refusals_name_the_parameter_and_the_bound(
    arguments: dict[str, object], where: str, says: str
) -> None:
    requested = msgspec.convert({"parties": 100} | arguments, dict[str, object])
    with pytest.raises(ConfigError) as caught:
        plan_secagg(**requested)  # type: ignore[arg-type]
    assert says in faults_at(caught.value)[where]


def test_all_faults_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_secagg(1, dropout=0.7, corrupt=-1, security=0)
    assert set(faults_at(caught.value)) == {"parties", "dropout", "corrupt", "security"}


@pytest.mark.parametrize(
    ("degree", "threshold", "where"),
    [
        (1, 2, "degree"),
        (100, 60, "degree"),
        (30, 15, "threshold"),
        (30, 31, "threshold"),
        (2, 1, "threshold"),
    ],
)
def test_check_plan_refuses_what_cannot_be_a_plan(degree: int, threshold: int, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_plan(100, degree, threshold)
    assert where in faults_at(caught.value)


def test_check_plan_reports_an_insufficient_plan() -> None:
    plan = plan_secagg(1_000)
    for k, t in ((plan.degree - 1, plan.threshold), (plan.degree, plan.threshold - 1), (64, 43)):
        worse = check_plan(1_000, k, t)
        assert not worse.sufficient
        assert worse.failure_bits is not None
        assert 0 <= worse.failure_bits < 40
    assert check_plan(1_000, 140, 94).sufficient


def test_mask_degree_is_the_mean_of_the_union_graph() -> None:
    for n, k in ((7, 2), (50, 11), (9, 8)):
        pair = 1 - (1 - k / (n - 1)) ** 2
        assert mask_degree(n, k) == pytest.approx((n - 1) * pair)
    assert mask_degree(9, 8) == 8


def test_communication_adds_up() -> None:
    plan = plan_secagg(1_000)
    bytes_ = communication(plan, 10_000, 8)
    for direction in ("up", "down"):
        parts = dict(bytes_[direction])
        total = parts.pop("total")
        assert total == sum(parts.values())
        assert all(part > 0 for part in parts.values())
    assert bytes_["up"]["masked"] == bytes_["down"]["result"] == 80_000
    assert bytes_["up"]["deal"] == 32 + 177 * plan.degree
    # A set as bits, the root, and a path to one of 1,000 leaves.
    assert 32 * 9 <= bytes_["down"]["start"] - (1 + 125 + 32) == bytes_["down"]["roll"] - 158 <= 32 * 10
    # 159 of 900 signatures show that 551 are good; 551 would be 35 kB.
    assert 64 * 159 < bytes_["down"]["certificates"] / 2 < 64 * plan.quorum * 2 / 3
    assert bytes_["work"] == {"masks": 241, "mask_bytes": 241 * 80_000}
    longer = communication(plan, 20_000, 8)
    assert longer["up"]["total"] - bytes_["up"]["total"] == 80_000


def test_a_smaller_degree_always_sends_less() -> None:
    totals = []
    for degree in (20, 40, 98, 99):
        parts = communication(check_plan(100, degree, degree), 10, 8)
        totals.append((parts["up"]["total"], parts["down"]["total"]))
    assert totals == sorted(totals)
    assert len(set(totals)) == 4


@pytest.mark.parametrize(("length", "size", "where"), [(0, 8, "length"), (5, 0, "element_bytes")])
def test_communication_refuses_impossible_vectors(length: int, size: int, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        communication(plan_secagg(8), length, size)
    assert where in faults_at(caught.value)


def test_plan_survives_json() -> None:
    for plan in (plan_secagg(8), plan_secagg(200)):
        assert msgspec.json.decode(msgspec.json.encode(plan), type=SecAggPlan) == plan
