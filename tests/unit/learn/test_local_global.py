"""Local and global model without replacement: steps, sensitivities, thresholds, guarantee, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.local_global import _LOSS_BITS, LocalGlobal, LocalGlobalRun
from smpc_dp.capabilities.learn.models import Model, bound_features
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.errors import Check, ConfigError, PeerFault, PrivacyError
from smpc_dp.privacy.above_threshold import ThresholdPlan
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Renyi
from smpc_dp.privacy.sampling import NoiseSource
from tests.examples import examples

PARTIES = 3
GIVEN: dict[str, Any] = {
    "learner": "local-global",
    "features": 4,
    "rounds": 6,
    "batch": 10,
    "record_bound": 1.0,
    "rate": 0.8,
    "ridge": 0.01,
    "radius": 5.0,
}
PRIVATE = GIVEN | {"epsilon": 1.0, "delta": 1e-6}
THRESHOLD = PRIVATE | {"policy": "threshold", "threshold": 0.6, "policy_epsilon": 0.4}
# 1/(2 mu), mu = (1 + 1)/4 + 0.01.
LARGEST = 1 / 1.02


def tables(seed: int = 1, records: int = 60) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(PARTIES):
        features = rng.normal(size=(records, 4))
        result.append(np.c_[features, features @ [1.0, -1.0, 0.5, 0.0] > 0.2])
    return result


def learner(change: dict[str, Any] | None = None) -> LocalGlobal:
    checked, issues = check_learn(GIVEN | (change or {}), PARTIES)
    assert not issues
    assert checked is not None
    assert isinstance(checked.learner, LocalGlobal)
    return checked.learner


@pytest.mark.parametrize("chance", [1.0, 0.4])
def test_each_step_is_that_of_the_paper(chance: float) -> None:
    """Algorithm 1 with (5) and (6), in a loop over the batches; each record is used once."""
    planned = learner({"chance": chance})
    data = [bound_features(table, 1.0) for table in tables()]
    public, shared, local = planned.public_steps(PARTIES), np.zeros(5), np.zeros((PARTIES, 5))
    for t in range(6):
        for m in range(PARTIES):
            batch = data[m][10 * t : 10 * t + 10]
            x, y = np.c_[batch[:, :4], np.ones(10)], batch[:, 4]
            at = shared if public[t, m] else local[m]
            slope = x.T @ (1 / (1 + np.exp(-x @ at)) - y) / 10 + 0.01 * at
            if public[t, m]:
                shared = (shared + local[m]) / 2 - 0.8 * slope
                local[m] = shared
            else:
                local[m] = local[m] - 1.6 * slope
    for values, expected in (("global", np.tile(shared, (3, 1))), ("local", local)):
        learned = simulate.learn(GIVEN | {"chance": chance, "values": values}, tables(), fidelity="plain")
        np.testing.assert_allclose(learned.values, expected, atol=2e-5, rtol=0)
        assert learned.confidential == (values == "local")
    assert public.all() == (chance == 1.0)
    assert public.any()


def window(planned: LocalGlobal, table: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """Return a global step after five local ones, in grid steps, and the losses that are compared."""
    source = NoiseSource.keyed(bytes(32), b"test")
    run = LocalGlobalRun(planned, PlainExchange(1), [bound_features(table, 1.0)], source)
    losses, size = [], planned.batch
    for number in range(5):
        batch = run._data[0][size * number : size * (number + 1)]
        scores = (2 * batch[:, -1] - 1) * (batch[:, :-1] @ run._local[0])
        mean = float(np.minimum(np.logaddexp(0, -scores), planned.loss_bound).mean())
        losses.append(math.floor(math.ldexp(mean, _LOSS_BITS)))
        run._step(0, number, False)
    joined = run._joined(0, run._data[0][5 * size : 6 * size])
    return np.ldexp(joined, planned.bits), losses


@given(
    st.integers(0, 2**32),
    st.integers(0, 59),
    st.sampled_from([0.05, 0.8, LARGEST]),
    st.sampled_from([1, 2, 10]),
)
@settings(max_examples=examples(60), deadline=None)
def test_one_record_moves_a_window_within_the_planned_sensitivity(
    seed: int, index: int, rate: float, batch: int
) -> None:
    """The global step by at most 2 B, each loss by at most that of the threshold, whatever the record."""
    index, same = index % (6 * batch), {"rate": rate, "batch": batch}
    private, exact = learner(THRESHOLD | same), learner(same | {"chance": 0.5})
    assert private.bits == exact.bits
    first = tables(seed)[0]
    second = first.copy()
    rng = np.random.default_rng(seed)
    # The longest record against its opposite moves most.
    second[index] = [*(-first[index, :4] * 100), rng.integers(0, 2)]
    first[index] *= [100, 100, 100, 100, 1]
    (one, losses), (two, others) = window(exact, first), window(exact, second)
    noise, comparison = private.noise, private.comparison
    assert noise is not None
    assert comparison is not None
    assert float(np.linalg.norm(one - two)) <= 2 * noise.bound
    assert max(abs(a - b) for a, b in zip(losses, others, strict=True)) <= comparison.sensitivity


def test_the_sensitivity_is_nearly_reached() -> None:
    """One batch of one record: two opposite ones move the first step by almost 2 eta L/b, and no more."""
    change = {"rounds": 1, "batch": 1, "ridge": 0.0, "radius": 100.0}
    exact, private = learner(change), learner(PRIVATE | change)
    noise = private.noise
    assert noise is not None
    moved = []
    for label in (0.0, 1.0):
        run = LocalGlobalRun(
            exact, PlainExchange(1), [np.array([[1.0, 0.0, 0.0, 0.0, label]])], NoiseSource.system()
        )
        run._shared[0] = np.array([0.0, 0.0, 0.0, 0.0, 0.0])
        moved.append(run._joined(0, run._data[0]))
    apart = float(np.linalg.norm(np.ldexp(moved[0] - moved[1], exact.bits)))
    # At the model 0 the slope is half of L.
    assert 0.49 * 2 * noise.bound < apart < 0.51 * 2 * noise.bound


def test_the_rate_may_be_its_bound() -> None:
    """As calculated, and as the refusal shows it; 1 where mu is 1/2 and hypot would be above sqrt(2)."""
    assert learner({"rate": 1.0, "ridge": 0.0}).rate == 1.0
    for bound, ridge in ((1.0, 0.01), (0.7, 0.0), (3.0, 1e-4)):
        given = {"record_bound": bound, "ridge": ridge}
        largest = 1 / (2 * ((bound**2 + 1) / 4 + ridge))
        assert learner(given | {"rate": largest}).rate == largest
        _, issues = check_learn(GIVEN | given | {"rate": largest * 1.001}, PARTIES)
        (reason,) = (issue.reason for issue in issues)
        shown = float(reason.partition("= ")[2].partition(",")[0])
        assert learner(given | {"rate": shown}).rate == shown


def test_a_threshold_has_no_more_noise_than_a_loss_can_move() -> None:
    """Batches of one: another record moves a clipped loss by its bound at most, whatever the rate."""
    one, ten = learner(THRESHOLD | {"batch": 1}).comparison, learner(THRESHOLD).comparison
    assert one is not None
    assert ten is not None
    assert one.sensitivity == pytest.approx(math.ldexp(2.0, _LOSS_BITS), rel=1e-6)
    # Of ten: a later loss at a model that has moved by 4 eta L/b, with slopes of L (1 - e^-2) at most.
    later = 4 * 0.8 * 2.0 / 10 * (1 - math.exp(-2))
    assert ten.sensitivity == pytest.approx(math.ldexp(later, _LOSS_BITS), rel=1e-4)


def test_the_sensitivity_has_no_part_of_the_ridge() -> None:
    assert learner({"ridge": 0.0}).sensitivity == learner({"ridge": 0.1}).sensitivity
    assert learner().sensitivity == pytest.approx(2 * 0.8 * math.sqrt(2) / 10)


def test_a_global_step_has_the_planned_noise() -> None:
    """2,000 steps; six deviations of chi-squared of 10,000 degrees are .085; the seed is fixed."""
    planned = learner(PRIVATE)
    noise = planned.noise
    assert noise is not None
    run = LocalGlobalRun(planned, PlainExchange(1), [tables()[0]], NoiseSource.keyed(bytes(32), b"test"))
    drawn = np.array([run._joined(0, run._data[0][:10]) for _ in range(2_000)])
    units = np.ldexp(drawn - drawn.mean(axis=0), planned.bits)
    assert abs(float(np.mean(units**2)) / float(noise.variances[0]) - 1) < 0.09


def laplace(scale: float, reach: int) -> NDArray[np.float64]:
    masses = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return np.asarray(masses / masses.sum())


def chance_of_yes(query: int, level: int, sensitivity: int, epsilon: float) -> float:
    """Return P(query + Lap(4 D/epsilon) >= level + Lap(2 D/epsilon)) by summing both distributions."""
    reach = math.ceil(160 * sensitivity / epsilon)
    both = np.convolve(laplace(4 * sensitivity / epsilon, reach), laplace(2 * sensitivity / epsilon, reach))
    return float(both[2 * reach + level - query :].sum())


def test_a_threshold_answers_with_the_planned_chances() -> None:
    """4,000 instances; the deviation of a chance is below .008: six of them, and the seed is fixed."""
    plan = ThresholdPlan(epsilon=1.0, threshold=0.5, sensitivity=3, bits=6)
    source = NoiseSource.keyed(bytes(32), b"test")
    for query in (20, 32, 50):
        said = np.mean([plan.begin(source)(query) for _ in range(4_000)])
        assert abs(said - chance_of_yes(query, 32, 3, 1.0)) < 0.048
        # Neighbouring queries: within e^epsilon, and far from it for one query.
        ratio = chance_of_yes(query + 3, 32, 3, 1.0) / chance_of_yes(query, 32, 3, 1.0)
        assert 1 < ratio < math.e


def test_a_window_ends_with_a_yes() -> None:
    plan = ThresholdPlan(epsilon=1.0, threshold=0.5, sensitivity=1, bits=6)
    window = plan.begin(NoiseSource.keyed(bytes(32), b"test"))
    assert window(10_000)
    with pytest.raises(PrivacyError, match="a new window needs a new one"):
        window(0)


def test_each_window_has_a_threshold_of_its_own() -> None:
    planned = learner(THRESHOLD)
    run = LocalGlobalRun(planned, PlainExchange(1), [tables()[0]], NoiseSource.keyed(bytes(32), b"test"))
    seen = set()
    for number in range(6):
        run._step(0, number, False)
        if run._windows[0] is None:
            np.testing.assert_array_equal(run._local[0], run._shared[0])
        else:
            seen.add(id(run._windows[0]))
    assert seen


def test_the_threshold_asks_for_help_where_the_loss_is_large() -> None:
    """Without noise: at the start every loss is ln 2; with a threshold below it the first step is global."""
    for threshold, moved in ((0.7, False), (0.6, True)):
        given = GIVEN | {"policy": "threshold", "threshold": threshold, "rounds": 1}
        learned = simulate.learn(given, tables(), fidelity="plain")
        assert bool(np.abs(learned.values).max() > 0) == moved


@pytest.mark.parametrize("given", [PRIVATE, PRIVATE | {"chance": 0.3}, THRESHOLD])
def test_a_private_run_says_what_it_protects_and_charges_that(given: dict[str, Any]) -> None:
    learned = simulate.learn(given, tables(), fidelity="ideal", seed_for_simulation=1)
    assert learned.guarantee is not None
    assert (learned.guarantee.epsilon, learned.guarantee.protects) == (1.0, "record")
    event = learner(given).requirements(PARTIES).own
    assert event is not None
    assert event.unit == "record"
    assert 0.999 < Composition([event]).epsilon(1e-6) <= 1.0
    [known] = [one for one in event.descriptions if isinstance(one, Renyi)]
    noise = learner(given).noise
    assert noise is not None
    assert known.lines[0].slope == pytest.approx(noise.rho + (0.08 if given is THRESHOLD else 0.0))


def test_noise_does_not_grow_with_the_rounds() -> None:
    """Batches are disjoint; the slack for floating point is all that grows."""
    few, many = (learner(PRIVATE | {"rounds": rounds}).noise for rounds in (1, 10_000))
    assert few is not None
    assert many is not None
    assert float(many.variances[0]) == pytest.approx(float(few.variances[0]), rel=1e-3)


@pytest.mark.parametrize("given", [GIVEN | {"chance": 0.5}, THRESHOLD])
def test_parties_that_send_messages_learn_what_one_process_does(given: dict[str, Any]) -> None:
    plain = simulate.learn(given, tables(), fidelity="plain", seed_for_simulation=1)
    sent = simulate.learn(given, tables(), fidelity="machines", seed_for_simulation=1)
    np.testing.assert_array_equal(sent.values, np.tile(sent.values[0], (PARTIES, 1)))
    if "epsilon" not in given:
        np.testing.assert_array_equal(sent.values, plain.values)
    assert sent.guarantee == plain.guarantee


def test_it_learns() -> None:
    data = tables(2, 2_000)
    given = GIVEN | {"rounds": 40, "batch": 50, "epsilon": 3.0, "delta": 1e-6, "ridge": 0.0}
    learned = simulate.learn(given, data, fidelity="plain", seed_for_simulation=1)
    whole = bound_features(np.concatenate(data), 1.0)
    assert Model("logistic", 4).accuracy(learned.values[0], whole) > 0.85


async def test_a_global_model_out_of_bounds_is_a_fault_of_its_sender() -> None:
    run = LocalGlobalRun(learner(), PlainExchange(PARTIES), tables(), NoiseSource.system())
    run._shared[1] = 100.0
    with pytest.raises(PeerFault) as raised:
        await run._hand_on(1, [2])
    assert (raised.value.culprit, raised.value.check) == ("party 1", Check.OUT_OF_BOUNDS)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"rate": 1.0}, "rate"),
        ({"policy": "deep-q"}, "policy"),
        ({"policy": "threshold"}, "threshold"),
        ({"threshold": 0.5}, "threshold"),
        ({"policy": "threshold", "threshold": 0.5, "chance": 0.5}, "chance"),
        ({"chance": 0.0}, "chance"),
        ({"epsilon": 1.0}, "delta"),
        (PRIVATE | {"policy": "threshold", "threshold": 0.5}, "policy_epsilon"),
        (PRIVATE | {"policy_epsilon": 0.5}, "policy_epsilon"),
        (THRESHOLD | {"policy_epsilon": 1.0}, "policy_epsilon"),
        (PRIVATE | {"epsilon": 1e-9, "delta": 1e-11}, "epsilon"),
        ({"radius": 1e6}, "radius"),
        ({"batch": 0}, "batch"),
        ({"record_bound": None}, "record_bound"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], where: str) -> None:
    checked, issues = check_learn(GIVEN | change, PARTIES)
    assert checked is None
    assert where in {issue.where.partition("[")[0] for issue in issues}


def test_a_party_with_too_few_records_is_named() -> None:
    data = tables()
    data[1] = data[1][:-1]
    with pytest.raises(ConfigError, match=r"party 1: 59 records, 6 batches of 10 need 60"):
        simulate.learn(GIVEN, data, fidelity="plain")
