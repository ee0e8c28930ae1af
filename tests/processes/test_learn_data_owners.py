"""A central learner and its owners over real sockets: owners are absent, leave, and come later."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.data_owners import DataOwners
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts

NAMES = ("bank", "ann", "ben", "cat")
SIZES = [20, 10, 30]
GIVEN: dict[str, object] = {
    "learner": "data-owners",
    "features": 2,
    "sizes": SIZES,
    "ticks": 24,
    "clip": 1.0,
    "model": "linear",
    "rate": 0.2,
}


def tables() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    result = [np.zeros((0, 3))]
    for size in SIZES:
        points = rng.uniform(-0.5, 0.5, (size, 2))
        result.append(np.c_[points, points @ [1.0, -1.0]])
    return result


def session(folder: Path, change: dict[str, object]) -> Path:
    timeouts = Timeouts(connect=20.0, step=10.0, gather=10.0)
    path = create_local_session(folder, NAMES, GIVEN | change, protocol="learn", timeouts=timeouts)
    (folder / "inputs").mkdir()
    for name, table in zip(NAMES, tables(), strict=True):
        np.save(folder / "inputs" / f"{name}.npy", table)
    return path


async def one(path: Path, name: str, ledger: Path | None = None) -> Learned:
    return await learn(path, name, path.parent / "inputs" / f"{name}.npy", ledger=ledger)


def test_owners_with_budgets_of_their_own_answer_and_are_charged(tmp_path: Path) -> None:
    """Without noise the bits of the simulation; with it each ledger has its owner's epsilon, once."""
    path = session(tmp_path, {"epsilons": [1.0, 2.0, 0.5], "delta": 1e-6})
    for name in NAMES:
        Ledger.create(
            tmp_path / f"{name}.ledger",
            party=name,
            dataset="d",
            relation="substitution",
            epsilon=2.0,
            delta=1e-6,
            unit="record",
        )

    async def everybody() -> list[Learned]:
        serving = asyncio.create_task(serve_learning(path))
        tasks = [one(path, name, tmp_path / f"{name}.ledger") for name in NAMES]
        results = await asyncio.gather(*tasks)
        assert await serving == {}
        return results

    results = asyncio.run(everybody())
    for result, epsilon in zip(results, (2.0, 1.0, 2.0, 0.5), strict=True):
        assert result.failures == ()
        assert result.done.tolist() == result.steps.tolist()
        assert result.guarantee is not None
        assert (result.guarantee.epsilon, result.guarantee.protects) == (epsilon, "record")
        np.testing.assert_array_equal(result.values, results[0].values)
    spent = [Ledger.open(tmp_path / f"{name}.ledger").spent().epsilon for name in NAMES]
    assert spent == pytest.approx([0.0, 1.0, 2.0, 0.5], rel=1e-3)


def test_an_owner_whose_file_has_other_budgets_is_told_which(tmp_path: Path) -> None:
    """The learner and the other owners go on without it, and say so."""
    path = session(tmp_path / "all", {"epsilons": [1.0, 2.0, 0.5], "delta": 1e-6})
    shutil.copytree(path.parent, tmp_path / "own")
    own = tmp_path / "own" / path.name
    own.write_text(path.read_text().replace("[1.0, 2.0, 0.5]", "[1.0, 2.0, 4.0]"))
    assert own.read_text() != path.read_text()

    async def scene() -> tuple[Learned, BaseException | Learned]:
        serving = asyncio.create_task(serve_learning(path, begin_with=3))
        tasks = [one(path if name != "cat" else own, name) for name in NAMES]
        bank, _, _, cat = await asyncio.gather(*tasks, return_exceptions=True)
        await serving
        assert isinstance(bank, Learned), bank
        return bank, cat

    bank, cat = asyncio.run(scene())
    assert isinstance(cat, ConfigError)
    assert "parameters.epsilons: [1.0, 2.0, 4.0] here, [1.0, 2.0, 0.5] there" in str(cat)
    assert any("cat" in text for text in bank.failures)


async def killed(*_arguments: object) -> None:
    """A process that is killed does not tell that it leaves."""


def test_an_owner_leaves_and_comes_again_and_one_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner goes on without their answers, and all who are there at the end have its model."""
    monkeypatch.setattr(AggregatorConnection, "quit", killed)
    path = session(tmp_path, {})
    checked, _ = check_learn(GIVEN, len(NAMES))
    assert checked is not None
    settings = checked.learner
    assert isinstance(settings, DataOwners)

    async def scene() -> tuple[Learned, Learned, Learned]:
        seen, later = asyncio.Event(), asyncio.Event()

        def note(event: Event) -> None:
            for number, mark in ((12, seen), (24, later)):
                if event.request >= number:
                    mark.set()

        serving = asyncio.create_task(
            serve_learning(
                path,
                begin_with=3,
                on_event=note,
            )
        )
        first = asyncio.create_task(one(path, "ann"))
        others = [asyncio.create_task(one(path, name)) for name in ("bank", "ben")]
        await seen.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await later.wait()
        again = await one(path, "ann")
        bank, ben = await asyncio.gather(*others)
        await serving
        return bank, again, ben

    bank, ann, ben = asyncio.run(scene())
    counts = np.bincount(settings.queried, minlength=3)
    assert ben.done.tolist() == [counts[1]]
    assert 0 < ann.done[0] < counts[0]
    assert counts[1] + ann.done[0] <= bank.done[0] < counts[0] + counts[1]
    assert any("cat" in text for text in bank.failures)
    np.testing.assert_array_equal(ann.values, bank.values)
    np.testing.assert_array_equal(ben.values, bank.values)
    assert np.abs(bank.values).max() > 0.01
    whole = simulate.learn(GIVEN, tables(), fidelity="plain")
    assert np.abs(whole.values[0] - bank.values[0]).max() > 1e-3
