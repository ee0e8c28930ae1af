"""A central learner with data owners: its fixed point, its noise, the limit on answers, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.learn.commands.learn import learned_text, model_file
from smpc_dp.capabilities.learn.data_owners import CentralSteps, DataOwners, OwnerAnswers, most_answers
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.errors import ConfigError, PrivacyError, SmpcError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.record_gradients import GradientNoise, grid_bits, plan_gradient_noise
from smpc_dp.privacy.sampling import NoiseSource
from tests.learners import learn_apart

SIZES = [8, 30, 12]
GIVEN: dict[str, Any] = {
    "learner": "data-owners",
    "features": 2,
    "sizes": SIZES,
    "ticks": 40,
    "clip": 50.0,
    "model": "linear",
    "rate": 0.2,
    "ridge": 0.5,
}
PRIVATE = GIVEN | {"clip": 1.0, "epsilons": [1.0, 2.0, 4.0], "delta": 1e-6}


def tables() -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(5)
    result = [np.zeros((0, 3))]
    for owner, size in enumerate(SIZES):
        features = rng.uniform(-1, 1, (size, 2))
        result.append(np.c_[features, features @ [2.0, -1.0] + owner])
    return result


def learner(change: dict[str, Any] | None = None) -> DataOwners:
    checked, issues = check_learn(GIVEN | (change or {}), len(SIZES) + 1)
    assert not issues
    assert checked is not None
    assert isinstance(checked.learner, DataOwners)
    return checked.learner


def minimiser() -> NDArray[np.float64]:
    """Return the minimiser of ridge/2 |theta|^2 + the mean of half the squared errors of all records."""
    whole = np.concatenate(tables())
    x = np.c_[whole[:, :2], np.ones(len(whole))]
    left = x.T @ x / len(x) + 0.5 * np.eye(3)
    return np.asarray(np.linalg.solve(left, x.T @ whole[:, 2] / len(x)))


@pytest.mark.long
def test_a_constant_rate_goes_to_a_ball_around_the_minimiser_that_shrinks_with_it() -> None:
    """40 runs of T = 100/rate at once; the mean square distance is about proportional to the rate."""
    data = tables()
    whole = [np.c_[table[:, :2], np.ones(len(table))] for table in data[1:]]
    curvature = np.array([x.T @ x / len(x) for x in whole])
    slope = np.array([x.T @ table[:, 2] / len(x) for x, table in zip(whole, data[1:], strict=True)])
    best, apart = minimiser(), []
    for rate in (0.1, 0.01):
        steps = CentralSteps(np.array(SIZES) / sum(SIZES), rate, 0.5, 10.0)
        central, local, runs = np.zeros((40, 3)), np.zeros((3, 40, 3)), np.arange(40)
        for owner in np.random.default_rng(2).integers(0, 3, (int(100 / rate), 40)):
            query = steps.query(central, local[owner, runs])
            answer = np.einsum("rij,rj->ri", curvature[owner], query) - slope[owner]
            local[owner, runs], central = steps.move(query, owner, answer)
        apart.append(float(((central - best) ** 2).sum(axis=1).mean()))
    assert apart[1] < 0.2 * apart[0]
    assert apart[1] < 0.001 * float(best @ best)
    given = GIVEN | {"rate": 0.01, "ticks": 8_000}
    learned = simulate.learn(given, data, fidelity="plain")
    assert float(np.linalg.norm(learned.values[0] - best)) < 0.05


def test_each_tick_is_the_step_of_the_paper() -> None:
    """(5) to (7), with the regulariser of the errata, in a loop over the ticks."""
    settings, data = learner(), tables()
    central, local = np.zeros(3), np.zeros((3, 3))
    for i in settings.clock[1]:
        middle = (central + local[i]) / 2
        x = np.c_[data[i + 1][:, :2], np.ones(SIZES[i])]
        answer = x.T @ (x @ middle - data[i + 1][:, 2]) / SIZES[i]
        local[i] = middle - 3 * 0.2 * (0.5 * middle / 6 + SIZES[i] / 50 * answer)
        central = middle - 0.2 * 0.5 / 2 * middle
    learned = simulate.learn(GIVEN | {"answers": 40}, data, fidelity="plain")
    np.testing.assert_allclose(learned.values[0], central, atol=1e-5, rtol=0)


def test_the_step_size_of_the_paper_stays_where_it_began() -> None:
    """Algorithm 1 with rho/T^2: T = 1,000, rho = 1, three owners, f = |theta - 1|^2/2."""
    left = []
    for rate in (1.0 / 1_000**2, 0.05):
        steps = CentralSteps(np.full(3, 1 / 3), rate, 0.0, 10.0)
        central, local = np.zeros(1), np.zeros((3, 1))
        for owner in np.random.default_rng(1).integers(0, 3, 1_000):
            query = steps.query(central, local[owner])
            local[owner], central = steps.move(query, owner, query - 1.0)
        left.append(float((central[0] - 1.0) ** 2))
    assert left[0] == pytest.approx(0.9995, abs=5e-6)
    assert left[1] < 1e-9


def test_the_deviation_is_85_and_the_paper_has_1414_times_the_sensitivity() -> None:
    """T = 1,000, N = 3, epsilon 1, delta 1e-6: its Laplace is planned for 1,000 answers."""
    most = most_answers(1_000, 3)
    assert most == 406
    bits = grid_bits(np.array([1.0]))
    noise = plan_gradient_noise(1.0, 1e-6, [1.0] * most, 1.0, bits)
    assert math.sqrt(noise.variances[0]) / (2 * noise.bound) == pytest.approx(85.1, abs=0.1)
    assert math.sqrt(2) * 1_000 == pytest.approx(1_414, abs=1)


@given(st.integers(1, 10_000), st.integers(1, 200))
@example(1, 18)
def test_a_clock_seldom_exceeds_the_planned_answers(steps: int, owners: int) -> None:
    most = most_answers(steps, owners)
    assert 1 <= most <= steps
    assert most == steps or most > steps / owners + 4 * math.sqrt(steps / owners) - 1


def test_clocks_are_poisson() -> None:
    """20,000 ticks of three owners; six deviations: false alarm below 1e-8, and the seed is fixed."""
    times, owners = learner({"ticks": 20_000}).clock
    gaps = np.diff(times) * 3
    assert abs(gaps.mean() - 1) < 6 / math.sqrt(20_000)
    assert abs(np.mean(gaps > math.log(2)) - 0.5) < 3 / math.sqrt(20_000)
    assert np.abs(np.bincount(owners) / 20_000 - 1 / 3).max() < 6 * math.sqrt(2 / 9 / 20_000)


def test_answers_beyond_the_plan_are_refused_and_said() -> None:
    settings = learner(PRIVATE | {"answers": 5})
    counts = np.bincount(settings.clock[1], minlength=3)
    assert (counts > 5).all()
    learned = simulate.learn(PRIVATE | {"answers": 5}, tables(), fidelity="plain", seed_for_simulation=1)
    assert learned.steps.tolist() == learned.done.tolist() == [15, 5, 5, 5]
    assert learned.failures[0] == f"party 1: {counts[0]} ticks, 5 answers planned: the others are refused"


def test_an_owner_refuses_a_learner_that_asks_too_often() -> None:
    settings = learner(PRIVATE | {"answers": 5})
    answers = OwnerAnswers(settings, np.array([1]), [tables()[1]])
    source = NoiseSource.keyed(bytes(32), b"test")
    for _ in range(5):
        answers.answer(1, np.zeros(3), source)
    with pytest.raises(
        PrivacyError, match="party 1: noise is planned for 5 private vectors, this is one more"
    ):
        answers.answer(1, np.zeros(3), source)


@given(st.integers(0, 2**32), st.floats(1e-6, 1e6), st.sampled_from(["gaussian", "k-norm", "laplace"]))
def test_one_record_moves_an_answer_within_the_planned_sensitivity(
    seed: int, scale: float, mechanism: str
) -> None:
    """Whatever the query; equal noise cancels."""
    rng = np.random.default_rng(seed)
    delta = PRIVATE["delta"] if mechanism == "gaussian" else None
    settings = learner(PRIVATE | {"clip": 1.0, "mechanism": mechanism, "delta": delta})
    first = np.c_[rng.normal(size=(8, 2)) * scale, rng.normal(size=8) * scale]
    second = first.copy()
    second[3] = rng.normal(size=3) * scale
    query = rng.normal(size=3) * scale
    sums = []
    for table in (first, second):
        source = NoiseSource.keyed(bytes(32), b"test")
        answer = OwnerAnswers(settings, np.array([1]), [table]).answer(1, query, source)
        sums.append(np.ldexp(answer, settings.bits))
    moved = np.linalg.norm(sums[0] - sums[1], ord=settings.order)
    assert moved <= 2 * settings.noise[0].bound


def test_an_answer_has_the_noise_of_its_owner() -> None:
    """1,000 answers of each owner's budget; six deviations of chi-squared of 3,000 degrees are .155."""
    settings = learner(PRIVATE | {"ticks": 9_000, "answers": 3_000})
    gaussian = [one for one in settings.noise if isinstance(one, GradientNoise)]
    for party in (1, 3):
        answers = OwnerAnswers(settings, np.array([party]), [tables()[party]])
        source = NoiseSource.keyed(bytes(32), party.to_bytes(1, "big"))
        drawn = np.array([answers.answer(party, np.zeros(3), source) for _ in range(1_000)])
        noise = gaussian[party - 1]
        units = np.ldexp(drawn - drawn.mean(axis=0), settings.bits)
        assert abs(float(np.mean(units**2)) / float(noise.variances[0]) - 1) < 0.16
    planned = [math.sqrt(float(one.variances[0])) * size for one, size in zip(gaussian, SIZES, strict=True)]
    assert planned[0] > 1.8 * planned[1] > 3.2 * planned[2]


def test_owners_have_guarantees_of_their_own() -> None:
    learned = simulate.learn(PRIVATE, tables(), fidelity="ideal", seed_for_simulation=1)
    assert learned.guarantee is not None
    assert (learned.guarantee.epsilon, learned.guarantee.protects) == (4.0, "record")
    settings = learner(PRIVATE)
    assert [settings.guarantee(owner).epsilon for owner in range(3)] == [1.0, 2.0, 4.0]  # type: ignore[union-attr]


def test_the_text_of_a_run_has_the_weakest_guarantee_and_its_unit() -> None:
    """Not that of the first party, and not of a party's data as a whole."""
    learned = simulate.learn(PRIVATE, tables(), fidelity="ideal", seed_for_simulation=1)
    shown = [learned.to_json() | {"guarantee": learner(PRIVATE).guarantee(owner)} for owner in range(3)]
    results = {
        name: one | {"guarantee": one["guarantee"].to_json()} for name, one in zip("abc", shown, strict=True)
    }
    text = learned_text(results)
    assert "privacy: (4, 1e-06)-differentially private for each record of a party, all steps" in text
    assert model_file(results)["guarantee"]["epsilon"] == 4.0


def test_the_text_of_a_run_has_how_many_totals_were_checked() -> None:
    """Of all parties that have evidence; no line where they checked none."""
    one = simulate.learn(GIVEN, tables(), fidelity="plain").to_json()
    shown = {
        name: one | {"evidence": evidence}
        for name, evidence in (
            ("a", {"averages": 4, "checked": 3}),
            ("b", {"averages": 2, "checked": 1}),
            ("c", None),
        )
    }
    assert "totals checked: 4 of 6 averages" in learned_text(shown).splitlines()
    assert "totals checked" not in learned_text({"c": shown["c"]})


def test_parties_that_send_messages_learn_what_one_process_does() -> None:
    plain = simulate.learn(GIVEN, tables(), fidelity="plain")
    sent = simulate.learn(GIVEN, tables(), fidelity="machines", seed_for_simulation=1)
    np.testing.assert_array_equal(sent.values, plain.values)
    assert sent.steps.tolist() == plain.steps.tolist() == sent.done.tolist()


def test_an_owner_that_dies_is_left_out_from_then_on() -> None:
    owners = learner().queried
    tick = int(np.flatnonzero(owners == 1)[4])
    results = learn_apart(GIVEN, tables(), 1, kill={2: 2 * tick + 2})
    assert isinstance(results[2], SmpcError)
    bank = results[0]
    assert isinstance(bank, Learned)
    assert any("user-2" in text or "party 2" in text or "missing" in text for text in bank.failures)
    assert bank.done[0] == len(owners) - np.sum(owners == 1) + 4
    for party in (1, 3):
        other = results[party]
        assert isinstance(other, Learned)
        np.testing.assert_array_equal(other.values, bank.values)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"sizes": [1, 2]}, "sizes"),
        ({"sizes": [1, 2, 0]}, "sizes"),
        ({"epsilons": [1.0, 2.0], "delta": 1e-6}, "epsilons"),
        ({"epsilons": [1.0, 2.0, 3.0]}, "delta"),
        ({"delta": 1e-6}, "delta"),
        ({"epsilons": [1.0, -2.0, 3.0], "delta": 1e-6}, "epsilons"),
        ({"clip": 1.0, "epsilons": [1e-9] * 3, "delta": 1e-11}, "epsilon"),
        ({"radius": 1e6}, "radius"),
        ({"answers": 0}, "answers"),
        ({"rate": 0.0}, "rate"),
        ({"model": "softmax"}, "model"),
        ({"clip": None}, "clip"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], where: str) -> None:
    checked, issues = check_learn(GIVEN | change, len(SIZES) + 1)
    assert checked is None
    assert where in {issue.where.partition("[")[0] for issue in issues}


def test_a_learner_with_records_and_an_owner_with_others_are_named() -> None:
    data = tables()
    with pytest.raises(ConfigError, match=r"sizes: party 1 has 7 records, not 8"):
        simulate.learn(GIVEN, [data[0], data[1][:-1], *data[2:]], fidelity="plain")
    with pytest.raises(ConfigError, match=r"sizes: party 0 has 8 records, not 0"):
        simulate.learn(GIVEN, [data[1], *data[1:]], fidelity="plain")


@pytest.mark.parametrize("mechanism", ["k-norm", "laplace"])
def test_owners_with_pure_noise_pay_no_delta(mechanism: str) -> None:
    change = PRIVATE | {"delta": None, "mechanism": mechanism}
    learned = simulate.learn(change, tables(), fidelity="plain", seed_for_simulation=1)
    assert learned.guarantee is not None
    assert (learned.guarantee.epsilon, learned.guarantee.delta) == (max(PRIVATE["epsilons"]), 0.0)
    each = learner(change).requirements(len(SIZES) + 1).own_by_party
    spent = [Composition([event]).epsilon(0.0) for event in each]
    assert spent == [0.0, *PRIVATE["epsilons"]]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"mechanism": "k-norm"}, "delta"),
        ({"mechanism": "k-norm", "epsilons": [], "delta": None}, "mechanism"),
        ({"delta": None}, "delta"),
    ],
)
def test_delta_goes_with_gaussian_noise_alone(change: dict[str, Any], where: str) -> None:
    checked, issues = check_learn(PRIVATE | change, len(SIZES) + 1)
    assert checked is None
    assert where in {issue.where for issue in issues}
