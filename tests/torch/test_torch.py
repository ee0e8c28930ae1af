"""PyTorch models averaged in a plain training loop, over real sockets; tensors and frames as trees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
pytest.importorskip("opacus", reason="needs Opacus: make test-torch")
pytest.importorskip("pandas", reason="needs pandas: make test-torch")

import opacus
import pandas as pd
import torch

import smpc_dp
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError
from smpc_dp.integrations.declared import DeclaredPrivacy
from smpc_dp.integrations.torch import Averaging
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.trees import flatten
from tests.threads import in_thread

PARTIES = ("alice", "bob", "carol", "dave")
REAL: dict[str, object] = {"lower": -8.0, "upper": 8.0, "precision": 1e-7, "dropout": 0.25, "corrupt": 0.0}
FAST = Timeouts(connect=5.0, step=5.0)


def encoding(length: int) -> Encoding:
    return Encoding.plan(length=length, lower=-8.0, upper=8.0, precision=2.0**-20, parties=4)


def model_of(index: int) -> Any:
    """Return a network with a counter of batches, from a seed of its own."""
    generator = torch.Generator().manual_seed(index)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


def train(model: Any, index: int, steps: int, after: Callable[[], None]) -> None:
    """Take plain steps of gradient descent on a party's own rows."""
    generator = torch.Generator().manual_seed(100 + index)
    x = torch.randn(32, 3, generator=generator)
    y = x.sum(1, keepdim=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()
        after()


def floats(model: Any) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items() if value.is_floating_point()}


def plain(steps: int, every: int, weights: list[int]) -> dict[str, Any]:
    """Return what averaging in the clear gives: the same loop, one party after the other."""
    models = [model_of(index) for index in range(4)]
    for begin in range(0, steps, every):
        # The rows are the same in each call, and there is no momentum: a loop may be cut in pieces.
        for index, model in enumerate(models):
            train(model, index, min(every, steps - begin), lambda: None)
        states = [floats(model) for model in models]
        for model in models:
            for name, value in model.state_dict().items():
                if name in states[0]:
                    parts = [weight * state[name] for weight, state in zip(weights, states, strict=True)]
                    value.copy_(sum(parts) / sum(weights))
    return floats(models[0])


def test_a_training_loop_averages_every_few_steps_and_at_its_end(tmp_path: Path) -> None:
    length = sum(value.numel() for value in floats(model_of(0)).values())
    parameters = {**REAL, "length": length, "max_weight": 100}
    path = create_local_session(tmp_path, PARTIES, parameters, timeouts=FAST)
    weights = [10, 20, 30, 40]

    def party(index: int) -> Any:
        model = model_of(index)
        with (
            smpc_dp.sync.connect(path, PARTIES[index]) as session,
            Averaging(model, session, every=2, weight=weights[index]) as averaging,
        ):
            train(model, index, 5, averaging.step)
        assert len(averaging.results) == 3
        assert averaging.results[-1].survivors == PARTIES
        return model

    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    models = [each.result() for each in [in_thread(party, index) for index in range(4)]]
    assert len(serving.result()) == 3
    expected = plain(5, 2, weights)
    for model in models:
        for name, value in floats(model).items():
            # Three roundings to a grid of 1e-7, and float32.
            torch.testing.assert_close(value, expected[name], atol=2e-6, rtol=1e-5)
        assert model.state_dict()["1.num_batches_tracked"].item() == 5


def test_adapters_alone_are_averaged_and_an_error_in_the_block_averages_nothing(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, {**REAL, "length": 5}, timeouts=FAST)
    before = [floats(model_of(index)) for index in range(4)]

    def party(index: int) -> Any:
        model = model_of(index)
        with smpc_dp.sync.connect(path, PARTIES[index]) as session:
            with pytest.raises(ConfigError, match=r"model: \w+: has 37 values to average, vectors have 5"):
                Averaging(model, session, every=1)
            with pytest.raises(ConfigError, match="every: must be at least 1, is 0"):
                Averaging(model, session, every=0)
            averaging = Averaging(model, session, every=2, choose=lambda name: name.startswith("2."))
            with pytest.raises(KeyError), averaging:  # noqa: PT012 - the block is what ends by the error
                averaging.step()
                raise KeyError
            assert averaging.results == []
            with averaging:
                averaging.step()
        return floats(model)

    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    after = [each.result() for each in [in_thread(party, index) for index in range(4)]]
    serving.result()
    for own, state in zip(before, after, strict=True):
        assert torch.equal(state["0.weight"], own["0.weight"])
        mean = sum(each["2.weight"] for each in before) / 4
        torch.testing.assert_close(state["2.weight"], mean, atol=1e-6, rtol=1e-6)


def test_state_dicts_and_frames_are_trees() -> None:
    state = model_of(0).to(torch.bfloat16).state_dict()
    with pytest.raises(ConfigError, match=r"tree\['1.num_batches_tracked'\]: a: torch.int64 is no leaf"):
        flatten(state, encoding(37), party="a")
    del state["1.num_batches_tracked"]
    tree = flatten(state, encoding(37), party="a")
    assert {leaf.type for leaf in tree.leaves} == {"torch.bfloat16"}
    back = tree.restore(tree.vector)
    assert all(torch.equal(back[name], state[name]) for name in state)
    frame = pd.DataFrame({"b": [1.0, 2.0], "a": np.array([0.5, 0.25], np.float32)}, index=["x", "y"])
    tree = flatten({"f": frame}, encoding(4), party="a")
    assert [(leaf.path, leaf.type) for leaf in tree.leaves] == [
        ("['f']['a']", "pandas.float32"),
        ("['f']['b']", "pandas.float64"),
    ]
    assert tree.restore(tree.vector)["f"].equals(frame)
    with pytest.raises(ConfigError, match=r"tree\['f'\]\['c'\]: a: Series is no leaf"):
        flatten({"f": frame.assign(c=[1, 2])}, encoding(6), party="a")


def create_ledger(folder: Path, name: str, epsilon: float) -> Ledger:
    terms: Any = {"relation": "add-remove", "unit": "record", "epsilon": epsilon, "delta": 1e-5}
    return Ledger.create(folder / f"{name}.ledger", party=name, dataset="rows", **terms)


def make_private(index: int, epsilon: float) -> tuple[Any, ...]:
    """Return a party's engine, model, optimiser and batches, with Opacus' noise for two passes."""
    generator = torch.Generator().manual_seed(index)
    x = torch.randn(200, 3, generator=generator)
    rows = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    model = torch.nn.Linear(3, 1)
    engine = opacus.PrivacyEngine(accountant="rdp")
    return engine, *engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        data_loader=torch.utils.data.DataLoader(rows, batch_size=20),
        target_epsilon=epsilon,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
    )


def test_local_dp_sgd_is_one_entry_of_the_ledger_for_all_averages(tmp_path: Path) -> None:
    """Opacus trains, and its accountant proves what is declared; the ledgers are charged once."""
    path = create_local_session(tmp_path, PARTIES, {**REAL, "length": 4}, timeouts=FAST)
    epsilon = 3.0
    ledgers = [create_ledger(tmp_path, name, epsilon) for name in PARTIES]
    private = [make_private(index, epsilon) for index in range(4)]

    def party(index: int) -> Any:
        name, (engine, model, optimiser, batches) = PARTIES[index], private[index]
        declared = DeclaredPrivacy(ledgers[index].path, name, epsilon, 1e-5, spent=engine.get_epsilon)
        with (
            smpc_dp.sync.connect(path, name) as session,
            Averaging(model, session, every=4, declared=declared) as averaging,
        ):
            for _ in range(2):
                for x, y in batches:
                    optimiser.zero_grad()
                    torch.nn.functional.mse_loss(model(x), y).backward()
                    optimiser.step()
                    averaging.step()
        assert len(averaging.results) == 5
        return floats(model)

    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    models = [each.result() for each in [in_thread(party, index) for index in range(4)]]
    assert len(serving.result()) == 5
    for model, ledger, (engine, *_) in zip(models, ledgers, private, strict=True):
        [entry] = ledger.entries()
        assert entry.event.mechanism == "local DP-SGD, declared by the caller"
        assert 0.9 * epsilon < engine.get_epsilon(1e-5) <= epsilon
        for name, value in model.items():
            assert torch.equal(value, models[0][name])


def test_what_is_not_private_is_not_averaged_as_if_it_were(tmp_path: Path) -> None:
    length = sum(value.numel() for value in floats(model_of(0)).values())
    path = create_local_session(tmp_path, PARTIES, {**REAL, "length": length, "max_weight": 9}, timeouts=FAST)
    ledger = create_ledger(tmp_path, "alice", 1.0)
    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    with smpc_dp.sync.connect(path, "alice") as session, pytest.raises(ConfigError) as raised:
        Averaging(
            model_of(0), session, every=1, declared=DeclaredPrivacy(ledger.path, "alice", 1.0, 1e-5), weight=3
        )
    assert [issue.where for issue in raised.value.issues] == [
        "model['1.running_mean']",
        "model['1.running_var']",
        "max_weight",
    ]
    assert ledger.entries() == ()
    serving.result()
