"""Walks over sockets and between processes: the simulation's bits, ledgers, a killed party, bad inputs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned, LearnerContext, Table
from smpc_dp.capabilities.learn.token_learners import WalkLearner, planned_walk
from smpc_dp.errors import ConfigError, PrivacyError, SmpcError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import Launcher, member_command
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.command import smpc_dp
from tests.processes.learn_supply import supply
from tests.tokens import tokens_apart

PARTIES = ("ann", "ben", "cat", "dan")
SUM: dict[str, Any] = {
    "learner": "walk-sum",
    "steps": 12,
    "lower": 0.0,
    "upper": 1.0,
    "epsilon": 20.0,
    "delta": 1e-4,
}
SGD: dict[str, Any] = {"learner": "walk-sgd", "steps": 12, "features": 2, "epsilon": 20.0, "delta": 1e-4}
KNOWN = SGD | {"paths": "known", "record_bound": 4.0, "clip": 4.2, "max_contributions": 3, "edge_cap": 1}
NUMBERS = [np.array([[party / 4]]) for party in range(4)]
POINTS = [np.array([[1.0, party, 0.0], [party, 2.0, 1.0]]) for party in range(4)]


def source(party: int) -> NoiseSource:
    return NoiseSource.keyed(bytes(32), str(party).encode())


def session(folder: Path, settings: dict[str, Any], tables: list[np.ndarray], epsilon: float = 30.0) -> Path:
    timeouts = Timeouts(connect=30.0, step=20.0, gather=20.0)
    path = create_local_session(folder, PARTIES, settings, protocol="learn", timeouts=timeouts)
    supply(folder / "inputs", folder, dict(zip(PARTIES, tables, strict=True)), epsilon, 1e-3)
    return path


async def everybody(path: Path) -> tuple[list[Learned | SmpcError], dict[int, str]]:
    """Run all parties and the aggregator in one loop, over real sockets."""

    async def one(name: str) -> Learned | SmpcError:
        try:
            data, ledger = path.parent / "inputs" / f"{name}.npy", path.parent / f"{name}.ledger"
            return await learn(path, name, data, ledger=ledger)
        except SmpcError as error:
            return error

    serving = asyncio.create_task(serve_learning(path))
    result = await asyncio.gather(*(one(name) for name in PARTIES))
    return result, await serving


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("settings", "tables"), [(SUM, NUMBERS), (SGD, POINTS), (KNOWN, POINTS)], ids=["sum", "sgd", "known"]
)
def test_a_walk_over_sockets_is_the_simulated_one_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], tables: list[np.ndarray]
) -> None:
    """The same randomness for noise and path, in one case through channels and machines, in the other not."""
    run = WalkLearner.run

    async def seeded(self: WalkLearner, context: LearnerContext, data: list[Table]) -> Learned:
        assert context.exchange is not None
        own = context.exchange.here.tolist()
        return await run(self, replace(context, source=source(own[0])) if own else context, data)

    monkeypatch.setattr(WalkLearner, "run", seeded)
    result, failures = asyncio.run(everybody(session(tmp_path, settings, tables)))
    assert failures == {}
    checked, _ = check_learn(settings, 4)
    assert checked is not None
    learner = checked.learner
    assert isinstance(learner, WalkLearner)

    async def simulated() -> list[np.ndarray]:
        indices, protocol = tokens_apart(4), planned_walk(learner, 4)
        results = await asyncio.gather(
            *(learner.run_protocol(protocol, indices[u], tables[u : u + 1], source(u)) for u in range(4))
        )
        return [np.asarray(values) for values, _ in results]

    wanted = asyncio.run(simulated())
    for learned, values in zip(result, wanted, strict=True):
        assert isinstance(learned, Learned), learned
        np.testing.assert_array_equal(learned.values[0], values)
        seen = "the whole path" if "paths" in settings else "from whom and to whom they go"
        assert seen in learned.claim
        assert "the aggregator included" in learned.claim
    for name in PARTIES:
        ledger = Ledger.open(tmp_path / f"{name}.ledger")
        assert len(ledger.entries()) == 1
        assert 15 < (ledger.spent().epsilon or 0) < 21


@pytest.mark.long
def test_processes_walk_and_one_that_is_killed_is_named(tmp_path: Path) -> None:
    path = session(tmp_path, SUM | {"steps": 3000}, NUMBERS)
    outputs = {name: tmp_path / f"{name}.json" for name in PARTIES}
    commands = {
        name: member_command(
            "party",
            str(path),
            *("--as", name, "--input", str(tmp_path / "inputs" / f"{name}.npy")),
            *("--ledger", str(tmp_path / f"{name}.ledger"), "--out", str(outputs[name])),
        )
        for name in PARTIES
    }

    def kill(event: Event) -> None:
        if event.party == "ann" and event.kind == "step" and event.request >= 5:
            launcher.kill("cat")

    launcher = Launcher(kill)

    async def act() -> dict[int, str]:
        serving = asyncio.create_task(serve_learning(path))
        await launcher.run(commands, None)
        return await serving

    failures = asyncio.run(act())
    assert any("cat" in text for text in failures.values())
    for name in PARTIES:
        outcome = launcher.outcomes[name]
        assert not outcome.ok
        assert not outputs[name].exists()
        if name != "cat":
            assert "cat" in outcome.reason, outcome.reason
            # Charged before the first message, so for who saw no result as well.
            assert len(Ledger.open(tmp_path / f"{name}.ledger").entries()) == 1


@pytest.mark.long
def test_smpc_dp_run_walks_between_processes(tmp_path: Path) -> None:
    path = session(tmp_path, SGD, POINTS)
    done = smpc_dp("run", str(path), "--ledgers", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["parties"]
    models = [shown[name]["values"][0] for name in PARTIES]
    assert models == [models[0]] * 4
    assert any(models[0])
    assert shown["ann"]["names"] == ["w0", "w1", "intercept"]
    assert shown["ann"]["guarantee"]["epsilon"] == pytest.approx(20.0)


@pytest.mark.long
def test_a_histogram_on_a_ring_goes_over_sockets(tmp_path: Path) -> None:
    """Twelve values of 1; all get one histogram, whose counts add up."""
    settings = {"learner": "ring-histogram", "rounds": 3, "categories": 3, "epsilon": 20.0, "delta": 1e-4}
    result, failures = asyncio.run(everybody(session(tmp_path, settings, [np.ones((3, 1))] * 4)))
    assert failures == {}
    for learned in result:
        assert isinstance(learned, Learned), learned
        np.testing.assert_array_equal(learned.values, result[0].values)  # type: ignore[union-attr]
        assert learned.values.sum() == pytest.approx(12)
        assert learned.guarantee is not None
    assert all(len(Ledger.open(tmp_path / f"{name}.ledger").entries()) == 1 for name in PARTIES)


def test_a_budget_that_is_too_small_and_data_that_do_not_fit_are_refused_before_the_first_message(
    tmp_path: Path,
) -> None:
    path = session(tmp_path, SUM, NUMBERS, epsilon=10.0)
    data = tmp_path / "inputs" / "ann.npy"
    with pytest.raises(PrivacyError, match="epsilon"):
        asyncio.run(learn(path, "ann", data, ledger=tmp_path / "ann.ledger"))
    np.save(data, np.array([[1.5]]))
    with pytest.raises(ConfigError, match=r"ann: a contribution is outside \[0, 1\]"):
        asyncio.run(learn(path, "ann", data))
    assert not Ledger.open(tmp_path / "ann.ledger").entries()
