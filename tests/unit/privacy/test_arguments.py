"""Planners and calculators name an argument that is no number, whatever it is, before they compute."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.learn import utility
from smpc_dp.privacy import (
    central_pairwise,
    collaboration,
    dp_sgd,
    factorisation,
    gaussian,
    gossip_plan,
    local_auc,
    local_pairwise,
    naive_pairwise,
    noisy_choice,
    pairwise_plan,
    record_gradients,
    secagg_plan,
)
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.circuit_noise import laplace_coins
from smpc_dp.privacy.gopa import connected, lattice, verifiable
from smpc_dp.privacy.network import complete, histogram, ring, walk_histogram
from smpc_dp.statistics import similarity

MODULES = (
    *(central_pairwise, collaboration, complete, connected, dp_sgd, factorisation, gaussian, gossip_plan),
    *(histogram, lattice, local_auc, local_pairwise, naive_pairwise, noisy_choice, pairwise_plan),
    *(record_gradients, ring, secagg_plan, similarity, utility, verifiable, walk_histogram),
)
CHECKED = [
    function
    for module in MODULES
    for function in vars(module).values()
    if inspect.isfunction(function) and function.__module__ == module.__name__
    if hasattr(function, "__wrapped__")
]
# What a number may be given in the place of, by a program that reads text.
WRONG = ("1", None, True, [1.0], ["1"], 10**400, object())


def numbers(function: Callable[..., Any]) -> list[tuple[str, Any, bool]]:
    """Return the parameters that are numbers, or sequences of them, a value, and whether it may be None."""
    values = {"int": 1, "float": 0.5, "Sequence[int]": [1], "Sequence[float]": [0.5]}
    kinds = {name: one.annotation for name, one in inspect.signature(function).parameters.items()}
    return [
        (name, values[kind.removesuffix(" | None")], kind.endswith(" | None"))
        for name, kind in kinds.items()
        if kind.removesuffix(" | None") in values
    ]


def test_every_planner_is_checked() -> None:
    planners = {
        f"{module.__name__}.{name}"
        for module in MODULES
        for name, function in vars(module).items()
        if name.startswith("plan_") and inspect.isfunction(function) and numbers(function)
        if function.__module__ == module.__name__
    }
    assert planners <= {f"{function.__module__}.{function.__name__}" for function in CHECKED}


@pytest.mark.parametrize("function", CHECKED, ids=lambda function: function.__name__)
def test_what_is_no_number_is_named(function: Callable[..., Any]) -> None:
    taken = numbers(function)
    others = {
        name: None
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    for name, value, optional in taken:
        for wrong in WRONG:
            if (wrong is None and optional) or (wrong == [1.0] and isinstance(value, list)):
                continue
            given = others | {one: right for one, right, _ in taken} | {name: wrong}
            with pytest.raises(ConfigError) as caught:
                function(**given)
            assert [(one.where, one.check) for one in caught.value.issues] == [(name, ConfigCheck.TYPE)]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ["steps", "epsilon", "bits"])
def test_coins_of_what_is_no_number_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        laplace_coins(**({"steps": 4, "epsilon": 1.0, "bits": 6} | {name: wrong}))


def test_numbers_of_numpy_are_numbers_and_positions_count() -> None:
    mu = gaussian.gaussian_mu(1.0, 1e-6)
    given: list[Any] = [np.float32(1), np.int64(1)]
    for one in given:
        assert gaussian.gaussian_mu(one, np.float64(1e-6)) == pytest.approx(mu)
    with pytest.raises(ConfigError, match=r"^mu: must be a number, is 'x'$"):
        gaussian.gaussian_delta(1.0, "x")  # type: ignore[arg-type]

    @checks_numbers
    def several(_first: int, name: str, *, third: float | None = None) -> str:
        return f"{name} {third}"

    assert several(1, "a") == "a None"
    with pytest.raises(ConfigError, match=r"_first: .*; third: "):
        several("1", "a", third="x")  # type: ignore[arg-type]


def test_a_number_beyond_float64_is_refused_by_name() -> None:
    checks = ArgumentChecks()
    checks.require_positive("epsilon", 10**400)
    checks.require_within("share", math.nan, 0.0, 1.0)
    assert [one.where for one in checks] == ["epsilon", "share"]
