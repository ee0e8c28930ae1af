"""Averages of a model of PyTorch after a restart, without PyTorch: a stand-in has the four calls it needs."""

from __future__ import annotations

import contextlib
import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import smpc_dp


class Tensor(np.ndarray[Any, Any]):
    """Array with the methods of a tensor that an average calls."""

    def numel(self) -> int:
        return self.size

    def is_floating_point(self) -> bool:
        return True

    def copy_(self, other: Tensor) -> None:
        self[...] = other


class Others:
    """A session in which most others average for the third time, after six steps; a party joins next."""

    length, party = 3, "alice"

    def __init__(self, max_weight: int, label: str | None = "step 6", following: int = 4) -> None:
        self.max_weight, self._label, self._following = max_weight, label, following
        self.calls: list[tuple[str, int | None, int | None]] = []

    def average(self, state: Any, *, label: str, number: int | None, weight: int | None, **_: Any) -> Any:
        self.calls.append((label, number, weight))
        if len(self.calls) == 1:
            raise smpc_dp.OtherRequestError("alice", 1, label, 3, self._label, self._following)
        return SimpleNamespace(tree={name: tensor + 1 for name, tensor in state.items()})


@pytest.fixture
def averaging(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch: Any = ModuleType("torch")
    torch.no_grad, torch.__spec__ = contextlib.nullcontext, ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    name = "smpc_dp.integrations.torch"
    monkeypatch.delitem(sys.modules, name, raising=False)
    made = importlib.import_module(name).Averaging
    monkeypatch.delitem(sys.modules, name)
    return made


def model() -> Any:
    state = {"w": np.zeros(3).view(Tensor)}
    return SimpleNamespace(state_dict=lambda: state)


@pytest.mark.parametrize(
    ("label", "following", "expected"),
    [("step 6", 4, "step 8"), ("step 6", 3, "step 6"), (None, 4, "step 8")],
)
def test_a_process_that_was_started_anew_first_takes_the_model_of_the_average_that_it_can_join(
    averaging: Any, label: str | None, following: int, expected: str
) -> None:
    """The others have made six steps, and average every two; its old model has no weight in theirs."""
    own, others = model(), Others(100, label, following)
    averages = averaging(own, others, every=2, weight=30)
    averages.step()
    with pytest.raises(smpc_dp.OtherRequestError):
        averages.step()
    for _ in range(4):
        averages.step()
    after = f"step {int(expected.removeprefix('step ')) + 2}"
    assert others.calls == [("step 2", None, 30), (expected, following, 0), (after, None, 30)]
    assert own.state_dict()["w"].tolist() == [2.0] * 3


def test_without_weights_a_model_that_has_missed_an_average_is_in_no_later_one(averaging: Any) -> None:
    others = Others(0)
    averages = averaging(model(), others, every=1)
    with pytest.raises(smpc_dp.OtherRequestError):
        averages.step()
    for _ in range(2):
        with pytest.raises(smpc_dp.ConfigError, match="max_weight: alice: has missed an average"):
            averages.step()
    assert others.calls == [("step 1", None, None)]
