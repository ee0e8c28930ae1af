"""Diffusion between processes over real sockets: the guarantee, the ledgers, and models that learn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn import diffusion
from smpc_dp.capabilities.learn.commands.learn import learned_text
from smpc_dp.capabilities.learn.models import Model
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy import factorisation
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.local import create_local_session
from tests.command import smpc_dp
from tests.deadlines import HOURS
from tests.processes.learn_supply import supply
from tests.processes.test_learn import everybody

PARTIES = ("ann", "ben", "cat", "dan")
PARAMETERS: dict[str, object] = {
    "learner": "diffusion",
    "features": 2,
    "steps": 6,
    "epsilon": 90.0,
    "rate": 0.5,
    "clip": 1.0,
}
HOMOMORPHIC = PARAMETERS | {"noise": "homomorphic"}
# A path with a chord at one end: not bipartite, and no graph by name.
PLAIN: dict[str, object] = {
    "learner": "diffusion",
    "features": 2,
    "steps": 6,
    "rate": 0.5,
    "noise": "none",
    "topology": [[0, 1], [1, 2], [2, 3], [0, 2]],
    "weights": "max-degree",
}


def tables() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    result = []
    for _ in PARTIES:
        points = rng.normal(size=(40, 2))
        result.append(np.c_[points, points @ [2.0, -1.0] > 0])
    return result


def accuracy(model: np.ndarray) -> float:
    return Model("logistic", 2).accuracy(model, np.concatenate(tables()))


def start(
    folder: Path,
    epsilon: float,
    parameters: dict[str, object] = PARAMETERS,
    data: list[np.ndarray] | None = None,
) -> tuple[Path, Path]:
    path = create_local_session(folder, PARTIES, parameters, protocol="learn", timeouts=HOURS)
    inputs, ledgers = folder / "inputs", folder / "ledgers"
    supply(inputs, ledgers, dict(zip(PARTIES, data or tables(), strict=True)), epsilon, 0.0)
    return path, ledgers


def run(path: Path, ledgers: Path) -> subprocess.CompletedProcess[str]:
    return smpc_dp("run", str(path), "--ledgers", str(ledgers), "--json")


@pytest.mark.long
def test_four_processes_learn_and_are_charged_once(tmp_path: Path) -> None:
    path, ledgers = start(tmp_path, 100.0)
    done = run(path, ledgers)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["parties"]
    text = json.dumps(shown)
    assert "every agent's model" in text
    for name in PARTIES:
        ledger = Ledger.open(ledgers / f"{name}.ledger")
        assert ledger.spent().epsilon == pytest.approx(90.0, rel=1e-3)
    models = [np.array(result["values"][0]) for result in shown.values()]
    assert len(models) == 4
    # Noise of scale 0.07 beside models of norm 1 and more.
    assert min(map(accuracy, models)) > 0.8
    simulated = simulate.learn(PARAMETERS, tables(), fidelity="plain")
    assert min(accuracy(model) for model in simulated.values) > 0.8
    assert simulated.guarantee is not None
    assert simulated.guarantee.epsilon == pytest.approx(90.0, rel=1e-3)


@pytest.mark.long
def test_homomorphic_noise_of_processes_cancels_in_the_average(tmp_path: Path) -> None:
    """All have the same points, but for the labels, and no gradient is clipped: the mean of linear models
    moves as if there were no noise, to the grid.
    """
    points = np.random.default_rng(2).normal(size=(10, 2))
    data = [np.c_[points, points @ [0.5, -0.3] + 0.1 * party] for party in range(4)]
    given = HOMOMORPHIC | {"model": "linear", "steps": 5, "rate": 0.2, "clip": 20.0}
    path, ledgers = start(tmp_path, 100.0, given, data)
    done = run(path, ledgers)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["parties"]
    models = np.array([shown[name]["values"][0] for name in PARTIES])
    exact = {key: value for key, value in given.items() if key not in ("epsilon", "clip")}
    plain = simulate.learn(exact | {"noise": "none"}, data, fidelity="plain").values
    # Noise of scale 1.3, on 2^20 steps; half a step of rounding in each of five.
    assert np.abs(models - plain).max() > 0.1
    assert np.abs(models.mean(axis=0) - plain.mean(axis=0)).max() < 1e-4
    for name in PARTIES:
        assert shown[name]["confidential"] is True
        assert "NOT covered" in shown[name]["claim"]
        assert shown[name]["guarantee"]["epsilon"] == pytest.approx(90.0, rel=1e-3)
        assert Ledger.open(ledgers / f"{name}.ledger").spent().epsilon == pytest.approx(90.0, rel=1e-3)


def test_sockets_have_the_bits_of_the_simulation(tmp_path: Path) -> None:
    path, _ = start(tmp_path, 1.0, PLAIN)
    results, failures = asyncio.run(everybody_in(path))
    assert failures == {}
    for how in ("ideal", "machines"):
        simulated = simulate.learn(PLAIN, tables(), fidelity=how, seed_for_simulation=1)
        for party, result in enumerate(results):
            np.testing.assert_array_equal(result.values[0], simulated.values[party])
            assert result.guarantee is None
            assert "NO PRIVACY between neighbours" in result.claim


def test_correlated_noise_is_charged_for_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each party's ledger, for a record; without the noise sockets have the bits of the simulation."""
    given = PARAMETERS | {
        "noise": "correlated",
        "epsilon": 20.0,
        "delta": 1e-6,
        "sizes": [40] * 4,
        "batches": 3,
    }
    path, _ = start(tmp_path, 1.0, given)
    ledgers = tmp_path / "records"
    supply(tmp_path / "inputs", ledgers, dict(zip(PARTIES, tables(), strict=True)), 25.0, 1e-6, "record")
    monkeypatch.setattr(factorisation, "discrete_gaussian", lambda *given: np.zeros(given[1], np.int64))
    results, failures = asyncio.run(everybody_in(path, ledgers))
    assert failures == {}
    simulated = simulate.learn(given, tables(), seed_for_simulation=1)
    for party, result in enumerate(results):
        np.testing.assert_array_equal(result.values[0], simulated.values[party])
        assert result.guarantee is not None
        assert (result.guarantee.epsilon, result.guarantee.protects) == (20.0, "record")
        spent = Ledger.open(ledgers / f"{PARTIES[party]}.ledger").spent()
        assert spent.epsilon == pytest.approx(20.0, rel=1e-4)


async def everybody_in(
    path: Path, ledgers: Path | None = None, names: tuple[str, ...] = PARTIES
) -> tuple[list[Learned], dict[int, str]]:
    """Run all parties in tasks of their names."""
    serving = asyncio.create_task(serve_learning(path))

    def one(name: str) -> Coroutine[Any, Any, Learned]:
        ledger = None if ledgers is None else ledgers / f"{name}.ledger"
        return learn(path, name, path.parent / "inputs" / f"{name}.npy", ledger=ledger)

    tasks = [asyncio.create_task(one(name), name=name) for name in names]
    return await asyncio.gather(*tasks), await serving


@pytest.mark.parametrize(
    "parameters", [PARAMETERS, HOMOMORPHIC, HOMOMORPHIC | {"publish": 20.0}], ids=["iid", "hom", "published"]
)
def test_equal_noise_gives_equal_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any]
) -> None:
    """Each party's draws injected, in its own task or side by side in the simulation."""
    calls: Counter[str] = Counter()

    def draws(_source: NoiseSource, count: int, scale: Fraction) -> np.ndarray:
        task = asyncio.current_task()
        assert task is not None
        name = task.get_name()
        calls[name] += 1
        parties = [PARTIES.index(name)] if name in PARTIES else range(4)
        rows = [
            np.random.default_rng([party, calls[name]]).laplace(0, float(scale), count // len(parties))
            for party in parties
        ]
        return np.rint(np.concatenate(rows)).astype(np.int64)

    monkeypatch.setattr(diffusion, "discrete_laplace", draws)
    path, ledgers = start(tmp_path, 120.0, parameters)
    results, _ = asyncio.run(everybody_in(path, ledgers))
    simulated = simulate.learn(parameters, tables())
    total = 90.0 + parameters.get("publish", 0.0)
    for party, result in enumerate(results):
        np.testing.assert_array_equal(result.values[0], simulated.values[party])
        assert result.guarantee == simulated.guarantee
        assert result.guarantee is not None
        assert result.guarantee.epsilon == pytest.approx(total, rel=1e-3)
        spent = Ledger.open(ledgers / f"{PARTIES[party]}.ledger").spent().epsilon
        assert spent == pytest.approx(total, rel=1e-3)
        assert result.confidential == (parameters is HOMOMORPHIC)
        text = learned_text({PARTIES[party]: result.to_json()})
        assert ("confidential: what each party has learned is its own" in text) == result.confidential
    assert calls["ann"] == 6 + ("publish" in parameters)


def test_a_ledger_that_does_not_reach_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """Nobody listens: who came so far as to connect would fail otherwise."""
    path, ledgers = start(tmp_path / "iid", 80.0)
    with pytest.raises(PrivacyError, match="80"):
        asyncio.run(learn(path, "ann", path.parent / "inputs" / "ann.npy", ledger=ledgers / "ann.ledger"))
    assert not Ledger.open(ledgers / "ann.ledger").spent().epsilon
    path, ledgers = start(tmp_path / "published", 100.0, HOMOMORPHIC | {"publish": 11.0})
    with pytest.raises(PrivacyError, match=r"this release, 101 by itself"):
        asyncio.run(learn(path, "ann", path.parent / "inputs" / "ann.npy", ledger=ledgers / "ann.ledger"))
    path, ledgers = start(tmp_path / "plain", 100.0, PLAIN)
    with pytest.raises(PrivacyError, match="messages that nothing protects"):
        asyncio.run(learn(path, "ann", path.parent / "inputs" / "ann.npy", ledger=ledgers / "ann.ledger"))


def test_a_rate_that_diverges_stops_everybody_with_step_and_bound(tmp_path: Path) -> None:
    path, _ = start(tmp_path, 1.0, PLAIN | {"model": "linear", "rate": 30.0, "steps": 50})
    results, _ = asyncio.run(everybody(path, PARTIES))
    claimed = [result for result in results.values() if isinstance(result, ConfigError)]
    named = r"rate: the descent diverges: at step \d \w{3} has a coordinate of \S+, the bound is 1e\+03; take"
    with pytest.raises(ConfigError, match=named):
        raise claimed[0]
    assert not any(isinstance(result, Learned) for result in results.values())


def test_settings_are_checked() -> None:
    for change, named in (
        ({"rate": 2.0, "ridge": 1.0}, "must be at most 1"),
        ({"epsilon": 1e-3, "steps": 5_000}, "too much noise"),
        ({"epsilon": 0.2, "steps": 100_000}, "too much noise"),
        ({"epsilon": 1_000.0}, "epsilon"),
        ({"epsilon": 1e-6, "steps": 100_000}, "epsilon: 1e-06 is too small for 100000 steps"),
        ({"topology": "grid"}, "topology"),
        ({"topology": [[0, 1], [2, 3]]}, "topology: the graph is disconnected: 2 components"),
        ({"topology": [[0, 4]]}, "topology[0]: 0, 4 leads out of 0..3"),
        ({"noise": "none"}, 'epsilon: is of noise, which is "none"'),
        ({"noise": "laplace"}, "noise"),
        ({"publish": 1.0}, "publish: is of homomorphic noise"),
        ({"noise": "homomorphic", "publish": 1e-8}, "publish: 1e-08 is too small for 6 steps"),
    ):
        _, faults = check_learn(PARAMETERS | change, 4)
        assert any(named in str(fault) for fault in faults), (change, faults)
    assert check_learn(PARAMETERS, 2)[1]
    unset = {key: value for key, value in PARAMETERS.items() if key != "epsilon"}
    assert str(check_learn(unset, 4)[1][0]) == "epsilon: is missing"
    with pytest.raises(ConfigError, match="party 1"):
        simulate.learn(PARAMETERS, [tables()[0], np.zeros((3, 2)), *tables()[2:]])


@pytest.mark.long
def test_a_confidential_result_is_written_for_its_party_alone(tmp_path: Path) -> None:
    path, _ = start(tmp_path, 1.0, HOMOMORPHIC)
    out = tmp_path / "ann.json"
    # Whoever could read it before cannot any more.
    out.touch(mode=0o644)
    command = [sys.executable, "-m", "smpc_dp", "party", str(path), "--as"]
    others = [
        subprocess.Popen([*command, name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in ("aggregator", *PARTIES[1:])
    ]
    done = subprocess.run(
        [*command, "ann", "--out", str(out)], capture_output=True, text=True, timeout=300, check=False
    )
    for other in others:
        other.wait(60)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_mode & 0o777 == 0o600
    result = json.loads(out.read_text("utf-8"))
    assert result["confidential"] is True
    learned = Learned("diffusion", np.array([[7.5]]), ("a",), np.array([1]), np.array([1]), confidential=True)
    assert "7.5" not in repr(learned)
