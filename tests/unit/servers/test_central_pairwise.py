"""Statistics with one noise for all pairs: the table of sensitivities, the planner and the error."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.pairs.garbled.draw import matchings
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    Kernel,
    auc,
    auc_private_labels,
    collision,
    gini_mean_difference,
    kendall_tau,
    variance,
)
from smpc_dp.capabilities.servers.simulation.shared import run_ideal
from smpc_dp.capabilities.servers.statistics.plan import read_answer, statistic_program
from smpc_dp.capabilities.servers.statistics.program import design_pairs
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.central_pairwise import design_central, plan_central, split, sum_sensitivity
from smpc_dp.privacy.pairwise_plan import complete_error
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

SMALL = Field(0, 2)


def records_of(kernel: Kernel) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(field.steps + 1) for field in kernel.fields)))


def greatest_change(kernel: Kernel, parties: int, pairs: Any, movable: int) -> int:
    """By trying all data sets and all substitutions of one record."""
    worst = 0
    for rest in itertools.product(records_of(kernel), repeat=parties - 1):
        sums = []
        for record in records_of(kernel):
            codes = np.array([*rest[:movable], record, *rest[movable:]], np.int64)
            sums.append(int(kernel.integer(codes[pairs[:, 0]], codes[pairs[:, 1]]).sum()))
        worst = max(worst, max(sums) - min(sums))
    return worst


@pytest.mark.parametrize(
    "kernel",
    [
        kendall_tau(Field(0, 1), SMALL),
        gini_mean_difference(SMALL),
        variance(SMALL),
        collision(SMALL),
        auc_private_labels(SMALL),
    ],
    ids=lambda kernel: kernel.name,
)
def test_the_table_of_sensitivities_is_reached_on_all_pairs(kernel: Kernel) -> None:
    for parties in (2, 3, 4):
        pairs = np.stack(np.triu_indices(parties, 1), axis=-1)
        assert greatest_change(kernel, parties, pairs, 0) == sum_sensitivity(kernel.steps, parties)


def test_public_labels_have_the_rarer_ones_sensitivity() -> None:
    kernel = auc(SMALL)
    for public_labels in ([1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]):
        program = statistic_program(kernel, 4, None, public_labels=public_labels)
        pairs = design_pairs(program.terms)
        result = max(greatest_change(kernel, 4, pairs, index) for index in range(4))
        sides = (sum(public_labels), 4 - sum(public_labels))
        assert result == sum_sensitivity(kernel.steps, 4, sides)
        assert Fraction(result, kernel.steps * len(pairs)) == Fraction(1, min(sides))


def test_a_design_of_few_pairs_caps_a_user() -> None:
    kernel = gini_mean_difference(SMALL)
    for partners in (1, 2):
        pairs = matchings(bytes(32), 4, partners).reshape(-1, 2)
        result = max(greatest_change(kernel, 4, pairs, index) for index in range(4))
        # Random matchings may repeat a pair, but nobody has more of them than partners.
        assert result <= sum_sensitivity(kernel.steps, 4, None, partners)


def test_shares_of_a_budget_never_exceed_it() -> None:
    generator = np.random.default_rng(2)
    for epsilon in generator.uniform(1e-4, 10, 200).tolist():
        parts = split(epsilon, [Fraction(3, 4), Fraction(1, 4)])
        assert sum(map(Fraction, parts)) <= Fraction(epsilon)
        (seventh,) = split(epsilon, [Fraction(1, 7)])
        assert 7 * Fraction(seventh) <= Fraction(epsilon)
        assert math.isclose(sum(parts), epsilon)


@pytest.mark.thin(3)
@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
@pytest.mark.parametrize(("parties", "epsilon"), [(20, 1.0), (200, 0.5)])
def test_the_planned_noise_is_the_noise(distribution: Any, parties: int, epsilon: float) -> None:
    """The variance of 1,000 draws; a squared Laplace has variance 5, so 5 deviations are 0.36."""
    kernel = kendall_tau(SMALL, SMALL)
    delta = 1e-5 if distribution == "gaussian" else 0.0
    program = statistic_program(kernel, parties, epsilon, delta, distribution=distribution)
    source = SeededRandomnessForSimulation(1, f"{distribution} {parties}")
    pairs = parties * (parties - 1) // 2
    true = kernel.low + kernel.unit
    values = [
        read_answer(program, [program.noise[0].draw(pairs, source)]).values[0] - true for _ in range(1000)
    ]
    plan = plan_central(parties, epsilon, 0.1, 0.9, delta=delta, distribution=distribution, width=2.0)
    assert abs(np.mean(np.square(values)) / plan.noise_error - 1) < 0.36
    if distribution == "laplace":
        # 2 (2 width / (n epsilon))**2, but for the grid and what the coins give up.
        assert math.isclose(plan.noise_error, 2 * (2 * 2.0 / (parties * epsilon)) ** 2, rel_tol=0.02)


@pytest.mark.long
def test_the_mean_squared_error_is_of_one_over_n_and_one_over_n_epsilon_squared() -> None:
    """300 samples of uniform records each, Gini's mean difference.

    A squared error's deviation is below sqrt(5) times its mean, so 5 deviations of the mean are 0.65 of it.
    """
    kernel = gini_mean_difference(Field(0, 1000))
    # Of uniform values on 0..w: E h = w/3, zeta_1 = w^2/180, zeta_2 = w^2/18, but for the grid.
    width, true = 1000.0, 1000 * 1002 / (3 * 1001)
    for parties, epsilon in ((40, 0.2), (40, 2.0), (160, 0.2), (160, 2.0)):
        plan = plan_central(parties, epsilon, width**2 / 180, width**2 / 18, width=width, steps=1000)
        program = statistic_program(kernel, parties, epsilon)
        source = SeededRandomnessForSimulation(parties, f"{epsilon}")
        errors = []
        for draw in range(300):
            data = np.random.default_rng((parties, draw)).integers(0, 1001, (parties, 1))
            errors.append(read_answer(program, run_ideal(program, data, source)).values[0] - true)
        assert abs(np.mean(np.square(errors)) / plan.mean_squared_error - 1) < 0.65
    # What dominates for little epsilon falls with its square and with that of n.
    one, two = (plan_central(parties, 1e-3, 0.1, 0.9, width=2.0) for parties in (100, 200))
    assert math.isclose(one.noise_error / two.noise_error, 4, rel_tol=0.05)
    assert one.sampling_error == complete_error(100, 0.1, 0.9)


def test_servers_beat_pairs_at_every_size_and_the_more_the_larger_it_is() -> None:
    for epsilon in (0.1, 1.0, 10.0):
        gains = [plan_central(n, epsilon, 0.1, 0.9, width=2.0).gain for n in (10, 100, 1000)]
        assert all(gain is not None and gain > 1 for gain in gains)
        assert gains == sorted(gains, key=lambda gain: gain or 0.0)


@pytest.mark.parametrize("engine", ["program", "ideal"])
def test_simulations_of_servers(engine: Any) -> None:
    generator = np.random.default_rng(4)
    score = generator.integers(0, 100, 60)
    labels = (score + generator.integers(-40, 41, 60) > 50).astype(int)
    public = simulate.pairwise(
        auc(Field(0, 99)), score, 4.0, labels=labels, engine="mpyc", fidelity=engine, seed_for_simulation=1
    )
    private = simulate.pairwise(
        auc_private_labels(Field(0, 99)), (score, labels), 4.0, engine="mpyc", fidelity=engine
    )
    assert private.auc is not None
    # Both estimate the same AUC; noise beyond 14 deviations has a chance of e^-19.
    assert abs(public.value - private.auc) < 14 * (public.noise_error + 4 * private.noise_error)
    assert public.privacy.epsilon == private.privacy.epsilon == 4.0
    assert any("simulation" in reason for reason in public.privacy.not_protected)
    assert public.pairs == labels.sum() * (60 - labels.sum())


def test_bad_questions_are_refused() -> None:
    data = [1, 2, 3, 4]
    kernel = collision(Field(0, 9))
    for change in (
        {"engine": "abacus"},
        {"engine": "mpyc", "fidelity": "gates"},
        {"fidelity": "program"},
        {"engine": "mpyc", "noise": "exponential"},
        {"engine": "mpyc", "noise": "pair_gaussian"},
        {"noise": "pair_laplace"},
        {"engine": "mpyc", "P": 4},
        {"engine": "mpyc", "epsilon": 13.0},
        {"engine": "mpyc", "level": 1.0},
        {"engine": "mpyc", "zetas": (1.0, 0.5)},
    ):
        arguments: dict[str, Any] = {"epsilon": 1.0, **change}
        with pytest.raises(ConfigError):
            simulate.pairwise(kernel, data, **arguments)
    with pytest.raises(ConfigError):
        design_central("uniform", [1], [1], 1.0, 0.0)  # type: ignore[arg-type]
    for delta in (0.0, 1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="delta"):
            design_central("gaussian", [1, 1], [5, 5], 1.0, delta)
    for bad in ({"parties": 2}, {"epsilon": 0}, {"steps": 0}, {"zeta_2": 2.0}, {"partners": -1}):
        with pytest.raises(ConfigError):
            plan_central(**{"parties": 10, "epsilon": 1.0, "zeta_1": 0.1, "zeta_2": 0.2, **bad})  # type: ignore[arg-type]
