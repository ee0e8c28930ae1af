"""Whatever code a kernel has, its circuit is made apart from the noise, and cut to its range."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.kernels import Field, Kernel, gini_mean_difference
from smpc_dp.capabilities.pairs.kernels import compiled as kernels
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel, evaluate, isolated
from smpc_dp.capabilities.pairs.kernels.named import is_known
from smpc_dp.capabilities.pairs.requests.statistic import plan_maker
from smpc_dp.capabilities.pairs.statistics.compiled import operation_of, plan_statistic
from smpc_dp.errors import ConfigError, LocalError

GRID = Field(0, 9)
KNOWN = gini_mean_difference(GRID)


def kernel(gadget: Callable[..., Any], steps: int = KNOWN.steps) -> Kernel:
    return replace(KNOWN, name="own", definition=None, gadget=gadget, steps=steps)


def known(builder: Any, x: Any, y: Any) -> Any:
    assert KNOWN.gadget is not None
    return KNOWN.gadget(builder, x, y)


def with_output(builder: Any, x: Any, y: Any) -> Any:
    builder.output(x[0])
    return known(builder, x, y)


def with_input(builder: Any, x: Any, y: Any) -> Any:
    builder.input(8)
    return known(builder, x, y)


def failing(*_: object) -> Any:
    raise OwnError("secret")


class OwnError(Exception):
    pass


class Nameless(Kernel):
    def terms(self) -> dict[str, Any]:
        raise OwnError("secret")


@pytest.mark.parametrize("gadget", [with_output, with_input])
def test_a_circuit_with_other_inputs_or_outputs_is_refused(gadget: Callable[..., Any]) -> None:
    """The noise hides the one output alone."""
    with pytest.raises(ConfigError):
        plan_statistic(kernel(gadget), 4, 1.0)


def test_the_range_of_any_kernel_holds() -> None:
    """Noise is scaled to it."""
    circuit = compile_kernel(isolated(kernel(known, steps=1)), None)
    codes = np.arange(10)[:, None]
    assert evaluate(circuit, codes[:, None], codes).max() == 1
    plan = plan_statistic(kernel(known, steps=1), 4, 1.0)
    assert plan.circuit.digest == compile_kernel(isolated(kernel(known, steps=1)), plan.noise).digest


def test_noise_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def remembering(builder: Any, x: Any, y: Any) -> Any:
        made.append(builder)
        return known(builder, x, y)

    plan = plan_statistic(kernel(remembering), 4, 1.0)
    assert len(made) == 1
    assert sum(made[0].build().inputs) == 2 * GRID.bits
    assert sum(plan.circuit.inputs) > 2 * GRID.bits
    monkeypatch.setattr(kernels, "MOST_GATES", 4)
    with pytest.raises(ConfigError, match="more than 4 gates"):
        isolated(kernel(lambda *given: known(*given)))


def test_what_a_gadget_raises_ends_the_request_alone_and_its_text_stays_here() -> None:
    with pytest.raises(LocalError, match=r"^OwnError$"):
        isolated(kernel(failing))
    operation = operation_of(kernel(known), plan_statistic(kernel(known), 4, 1.0), "laplace")
    for gadget in (failing, lambda *_: None, lambda *_: (1 << 40,)):
        make = plan_maker([kernel(gadget)])
        with pytest.raises(ConfigError) as caught:
            make(json.dumps(json.loads(operation)))
        assert "secret" not in str(caught.value)
    nameless = Nameless(**{one.name: getattr(KNOWN, one.name) for one in fields(KNOWN)})
    with pytest.raises(ConfigError, match=r"OwnError$"):
        plan_maker([replace(nameless, name="own")])(operation)


class Again(Kernel):
    """A kernel that sets its gadget whenever it is made."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gadget", with_output)


def test_a_kernel_of_another_class_has_no_way_around() -> None:
    again = Again(**{one.name: getattr(KNOWN, one.name) for one in fields(KNOWN)} | {"name": "own"})
    with pytest.raises(ConfigError, match="2 outputs, not one"):
        plan_statistic(again, 4, 1.0)


def test_a_kernel_is_known_by_its_circuit() -> None:
    """Another definition under a name of this package has its own circuit, cut to the range."""
    assert is_known(KNOWN)
    wider = replace(KNOWN, definition=gini_mean_difference(Field(0, 15)).definition, gadget=None)
    assert not is_known(wider)
    plan = plan_statistic(wider, 4, 1.0)
    assert plan.circuit.digest == compile_kernel(isolated(wider), plan.noise).digest
    assert plan_statistic(KNOWN, 4, 1.0).circuit.digest == compile_kernel(KNOWN, plan.noise).digest


def test_the_range_is_that_of_before_the_gadget_ran() -> None:
    given: list[Kernel] = []

    def growing(builder: Any, x: Any, y: Any) -> Any:
        object.__setattr__(given[0], "steps", 127)
        return known(builder, x, y)

    given.append(kernel(growing, steps=1))
    circuit = compile_kernel(isolated(given[0]), None)
    assert evaluate(circuit, np.array([[0]]), np.array([[9]])).tolist() == [1]
