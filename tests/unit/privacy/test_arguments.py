"""Planners and calculators name an argument that is no number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.utility import boosting_utility
from smpc_dp.errors import ConfigError
from smpc_dp.privacy import collaboration, gaussian, local_auc, local_pairwise, noisy_choice, pairwise_plan
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.central_pairwise import sum_sensitivity
from smpc_dp.privacy.circuit_noise import laplace_coins
from smpc_dp.privacy.gopa.connected import plan_draws
from smpc_dp.privacy.gopa.lattice import zcdp_delta
from smpc_dp.privacy.gopa.verifiable import plan_verifiable
from smpc_dp.privacy.naive_pairwise import plan_naive
from smpc_dp.privacy.network.ring import plan_ring_sum
from smpc_dp.privacy.record_gradients import plan_gradient_noise
from smpc_dp.privacy.secagg_plan import part_of, plan_secagg

# A function, and arguments in order that it takes.
CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (gaussian.gaussian_delta, {"epsilon": 1.0, "mu": 1.0}),
    (gaussian.gaussian_epsilon, {"delta": 1e-6, "mu": 1.0}),
    (gaussian.gaussian_mu, {"epsilon": 1.0, "delta": 1e-6}),
    (zcdp_delta, {"epsilon": 1.0, "mu": 1.0, "log_ratio": 0.01}),
    (laplace_coins, {"steps": 4, "epsilon": 1.0, "bits": 6}),
    (sum_sensitivity, {"steps": 4, "parties": 3, "partners": 1}),
    (collaboration.plan_collaboration, {"sizes": [10, 20], "epsilons": [1.0, 2.0]}),
    (collaboration.laplace_scale, {"width": 1.0, "steps": 2, "size": 10, "epsilon": 1.0}),
    (collaboration.pooled_noise, {"width": 1.0, "steps": 2, "total": 10, "epsilons": [1.0]}),
    (collaboration.bound_8, {"steps": 2, "total": 10, "epsilons": [1.0], "c_1": 1.0, "c_2": 1.0}),
    (collaboration.bound_10, {"total": 10, "epsilons": [1.0], "c_1": 1.0, "c_2": 1.0}),
    (collaboration.proof_constants, {"owners": 3, "gradient_bound": 1.0, "convexity": 1.0, "rho": 1.0}),
    (local_auc.node_variance, {"parties": 10.0, "levels": 4, "epsilon": 1.0}),
    (local_pairwise.variance_bound, {"parties": 100, "bins": 4, "epsilon": 1.0}),
    (local_pairwise.published_variance_bound, {"parties": 100, "bins": 4, "epsilon": 1.0}),
    (local_pairwise.corollary_bins, {"parties": 100, "epsilon": 1.0, "constant": 1.0}),
    (noisy_choice.plan_choices, {"epsilon": 1.0, "delta": 1e-6, "choices": 3}),
    (pairwise_plan.sampling_error, {"parties": 100, "partners": 2, "zeta_1": 0.1, "zeta_2": 0.25}),
    (pairwise_plan.noise_error, {"parties": 100, "partners": 2, "epsilon": 1.0, "width": 1.0}),
    (pairwise_plan.complete_error, {"parties": 100, "zeta_1": 0.1, "zeta_2": 0.25}),
    (pairwise_plan.best_partners, {"parties": 10, "epsilon": 1.0, "zeta_1": 0.1, "zeta_2": 0.25}),
    (pairwise_plan.plan_pairwise, {"parties": 100, "epsilon": 1.0, "zeta_1": 0.1, "zeta_2": 0.25}),
    (part_of, {"parties": 100, "fraction": 0.1}),
    (plan_draws, {"parties": 1000, "corrupt": 100, "dropouts": 10, "delta": 1e-6}),
    (plan_gradient_noise, {"epsilon": 1.0, "delta": 1e-6, "shares": [1.0], "reach": 1.0, "bits": 20}),
    (plan_naive, {"parties": 100, "epsilon": 1.0, "delta": 1e-6, "zeta_1": 0.1, "zeta_2": 0.25}),
    (
        plan_ring_sum,
        {"parties": 20, "rounds": 2, "epsilon": 1.0, "delta": 1e-6, "sensitivity": 1.0, "colluding": 1},
    ),
    (plan_secagg, {"parties": 20, "dropout": 0.1, "corrupt": 0.1}),
    (plan_verifiable, {"parties": 10, "honest": 8, "epsilon": 1.0, "delta": 1e-5, "length": 1, "lost": 0}),
    (
        boosting_utility,
        {"sizes": [9, 9, 9], "shape": "ring", "beta": 1.0, "coupling": 1.0, "loss": "adaboost"},
    ),
]
WRONG = ("x", None, ["x", "x", "x"])


@pytest.mark.parametrize(("function", "given"), CALLS, ids=lambda one: getattr(one, "__name__", ""))
def test_what_is_no_number_is_named(function: Callable[..., Any], given: dict[str, Any]) -> None:
    for name, value in given.items():
        for wrong in WRONG if not isinstance(value, str) else ():
            with pytest.raises(ConfigError) as caught:
                function(**(given | {name: wrong}))
            # A text in the place of a list may have another length than its neighbours have first.
            assert isinstance(value, list) or [one.where for one in caught.value.issues] == [name]


def test_numbers_of_numpy_are_numbers_and_positions_count() -> None:
    mu = gaussian.gaussian_mu(1.0, 1e-6)
    given: list[Any] = [np.float32(1), np.int64(1)]
    for one in given:
        assert gaussian.gaussian_mu(one, np.float64(1e-6)) == pytest.approx(mu)
    with pytest.raises(ConfigError, match=r"^mu: must be a number of float64, is 'x'$") as caught:
        gaussian.gaussian_delta(1.0, "x")  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(ConfigError, match=r"^mu: must be a number of float64, is 1000"):
        gaussian.gaussian_delta(1.0, 10**400)

    @checks_numbers
    def several(first: int, name: str, *, third: float | None = None) -> str:
        return f"{name} {first / (third or 1.0):g}"

    assert several(1, "a") == "a 1"
    with pytest.raises(ConfigError, match=r"^first: must be a number of float64, is '1'; third: "):
        several("1", "a", third="x")  # type: ignore[arg-type]
    # The function's own errors stay.
    with pytest.raises(ValueError, match="format"):
        checks_numbers(lambda name: f"{name:x}")("a")


def test_integers_of_numpy_are_taken_as_int_which_does_not_overflow() -> None:
    four: Any = np.int64(4)
    assert laplace_coins(four, 1.0, bits=np.int64(6)) == laplace_coins(4, 1.0, 6)  # type: ignore[arg-type]
    sizes: list[Any] = [np.int32(10), np.uint8(20)]
    assert collaboration.plan_collaboration(sizes, [1.0, 2.0]).total == 30
    large: Any = np.int64(1 << 40)
    assert sum_sensitivity(large, 1_000_000) == 999_999 << 40
    assert sum_sensitivity(large, 4, partners=np.int64(2)) == 2 << 40  # type: ignore[arg-type]
    for wrong in (True, np.bool_(True)):
        with pytest.raises(ConfigError, match=r"^bits: "):
            laplace_coins(4, 1.0, wrong)  # type: ignore[arg-type]


RANGES: list[tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = [
    (laplace_coins, {"steps": 4, "epsilon": 1.0, "bits": 6}, {"steps": 0, "epsilon": 1e9, "bits": 14}),
    (laplace_coins, {"steps": 4, "epsilon": 1.0, "bits": 6}, {"epsilon": 1e-300, "bits": 0}),
    (sum_sensitivity, {"steps": 4, "parties": 3, "partners": 1}, {"steps": 0, "parties": 1, "partners": -1}),
    (sum_sensitivity, {"steps": 4, "parties": 3, "public_labels": (1, 2)}, {"public_labels": (-1, 4)}),
    (sum_sensitivity, {"steps": 4, "parties": 3, "public_labels": (1, 2)}, {"public_labels": "xx"}),
    (
        collaboration.laplace_scale,
        {"width": 1.0, "steps": 2, "size": 10, "epsilon": 1.0},
        {"width": 0.0, "steps": 0, "size": 0, "epsilon": 0.0},
    ),
    (
        collaboration.pooled_noise,
        {"width": 1.0, "steps": 2, "total": 10, "epsilons": [1.0]},
        {"width": -1.0, "steps": 0, "total": 0, "epsilons": [0]},
    ),
    (
        collaboration.plan_collaboration,
        {"sizes": [10], "epsilons": [1.0], "steps": 2, "constants": (1.0, 1.0)},
        {"sizes": [0], "epsilons": [1e-200], "steps": 0, "constants": (0.0, 1.0)},
    ),
    (
        collaboration.bound_8,
        {"steps": 2, "total": 10, "epsilons": [1.0], "c_1": 1.0, "c_2": 1.0},
        {"steps": 0, "total": 0, "epsilons": [0], "c_1": -1.0, "c_2": math.inf},
    ),
    (
        collaboration.bound_10,
        {"total": 10, "epsilons": [1.0], "c_1": 1.0, "c_2": 1.0},
        {"total": 0, "epsilons": [101.0], "c_1": math.nan, "c_2": -1.0},
    ),
    (
        collaboration.proof_constants,
        {"owners": 3, "gradient_bound": 1.0, "convexity": 1.0, "rho": 1.0},
        {"owners": 0, "gradient_bound": 0.0, "convexity": 1e-200, "rho": -1.0},
    ),
]


@pytest.mark.parametrize(("function", "given", "wrong"), RANGES)
def test_what_is_out_of_range_is_named_with_its_bound(
    function: Callable[..., Any], given: dict[str, Any], wrong: dict[str, Any]
) -> None:
    function(**given)
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=rf"^{name}: .* is not an? (number|integer)") as caught:
            function(**(given | {name: value}))
        assert {one.where for one in caught.value.issues} == {name}


def test_a_number_beyond_float64_is_refused_by_name() -> None:
    checks = ArgumentChecks()
    checks.require_positive("epsilon", 10**400)
    checks.require_within("share", math.nan, 0.0, 1.0)
    assert [one.where for one in checks] == ["epsilon", "share"]
