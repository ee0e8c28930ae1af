"""Statistics of pairs with security against both sides: plan, delta, coins and claim."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.garbled.relay import CHUNK_BYTES
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.pairs.requests.statistic import plan_maker
from smpc_dp.capabilities.pairs.statistics.compiled import operation_of, plan_statistic
from smpc_dp.capabilities.pairs.statistics.similarity import plan_similarities
from smpc_dp.capabilities.pairs.ustatistic.messages import MAX_PAIR_MESSAGES
from smpc_dp.capabilities.pairs.ustatistic.relay import most_frames
from smpc_dp.capabilities.pairs.ustatistic.result import event_of, privacy_of
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.events import Pure
from smpc_dp.simulate import pairwise
from tests.active_pairs import HUB, NAMES, Pair

TAU = kendall_tau(Field(0, 99), Field(0, 99))
CHEAT = 2.0**-40


def test_each_evaluation_of_a_record_costs_the_delta_of_an_attempt() -> None:
    plan = plan_statistic(TAU, 10, 3.0, partners=3, malicious=True)
    assert event_of(plan).descriptions == (Pure(3.0, 3 * CHEAT),)
    assert privacy_of(plan, 10, "protocol").delta == 3 * CHEAT
    wide = plan_statistic(TAU, 10, 0.8, 1e-6, partners=2, noise="gaussian", malicious=True)
    (pure,) = event_of(wide).descriptions
    assert isinstance(pure, Pure)
    assert pure.delta == math.nextafter(1e-6 + 2 * CHEAT, 1)
    assert event_of(plan_statistic(TAU, 10, 3.0, partners=3)).descriptions == (Pure(3.0),)


def test_each_comparison_of_a_vector_costs_the_delta_of_an_attempt() -> None:
    plan = plan_similarities(4, 5, 8.0, malicious=True)
    assert plan.event().descriptions == (Pure(8.0, 4 * CHEAT),)
    assert plan.guarantee.delta == 4 * CHEAT
    assert "computationally bounded" in plan.guarantee.assumption
    assert plan_similarities(4, 5, 8.0).guarantee.delta == 0


def test_random_bits_of_both_are_coins_and_the_aggregator_makes_the_same_plan() -> None:
    plan = plan_statistic(TAU, 10, 3.0, partners=3, malicious=True)
    evaluation = plan.evaluation("alice", "bob")
    assert isinstance(evaluation, ActivePlan)
    assert len(evaluation.coin_wires) == 2 * plan.noise.joint_bits
    assert evaluation.parameters.output == "aggregator"
    operation = operation_of(TAU, plan, "laplace")
    assert plan_maker([TAU])(operation).digest == plan.digest
    assert plan.digest != plan_statistic(TAU, 10, 3.0, partners=3).digest


@pytest.mark.parametrize("security", ["covert", 1])
def test_the_aggregator_refuses_an_operation_of_an_unknown_security(security: object) -> None:
    plan = plan_statistic(TAU, 10, 3.0, partners=3, malicious=True)
    changed = json.loads(operation_of(TAU, plan, "laplace")) | {"security": security}
    with pytest.raises(ConfigError, match=r"^operation: not a statistic's"):
        plan_maker([TAU])(json.dumps(changed))


def test_copies_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^covert: copies are not for"):
        plan_statistic(TAU, 10, 3.0, partners=3, covert=4, malicious=True)


def test_claim_and_limits_do_not_assume_semi_honest_garblers() -> None:
    privacy = privacy_of(plan_statistic(TAU, 10, 3.0, partners=3, malicious=True), 10, "protocol")
    assert "secure with abort against a malicious garbler or a malicious evaluator" in privacy.claim
    assert not any("semi-honest" in line for line in (*privacy.assumptions, *privacy.not_protected))
    assert any("names nobody" in line for line in privacy.not_protected)


def test_pairs_through_every_gate_estimate_tau_of_concordant_records() -> None:
    # At epsilon 12 there is hardly any noise: concordant records give 1; below 0.4 has odds of 1e-6.
    records = np.array([(index, 10 + index) for index in range(6)])
    result = pairwise(TAU, records, 12.0, 1, security="malicious", seed_for_simulation=3)
    assert result.value == pytest.approx(1.0, abs=0.6)
    assert result.privacy.delta == CHEAT


def test_a_relay_takes_the_frames_of_an_evaluation() -> None:
    # Every message is a frame of its own, and a long one is cut; each direction has its own bound.
    plan = plan_statistic(TAU, 10, 3.0, partners=1, malicious=True)
    frames: Counter[tuple[str, str]] = Counter()

    def count(sender: str, to: str, data: bytes) -> list[bytes]:
        frames[sender, to] += -(-len(data) // CHUNK_BYTES)
        return [data]

    evaluation = plan.evaluation("alice", "bob")
    assert isinstance(evaluation, ActivePlan)
    ends = Pair().evaluate(evaluation, [[0]] * 4, count)
    assert isinstance(ends[HUB], Evaluated)
    # The first frame of each is its key; reports on frames taken are none.
    assert max(frames["alice", "bob"], frames["bob", "alice"]) + 1 < most_frames(plan)
    assert max(frames[name, HUB] for name in NAMES) < MAX_PAIR_MESSAGES // 2
