"""Gossip between processes: every learner has the bits of its simulation, and says what stopped it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.requests.learning import learn
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.capabilities.learn.simulation.learning import learn as simulated_learn
from smpc_dp.errors import Code, ConfigError, PrivacyError, TimeoutFault
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.mechanisms.randomised_response import KaryRandomisedResponse
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.wire.abort import TEXTS
from tests.command import smpc_dp
from tests.deadlines import HOURS
from tests.processes.test_learn import everybody
from tests.processes.test_learn_diffusion import everybody_in

PARTIES = ("ann", "bob", "cho", "dan")
# A path with a chord at one end: not bipartite, and no graph by name.
EDGES = [[0, 1], [1, 2], [2, 3], [0, 2]]
NAMED = [[PARTIES[end] for end in edge] for edge in EDGES]
DESCENT: dict[str, Any] = {"features": 2, "ticks": 10, "seed": 3, "topology": EDGES}
ESTIMATE: dict[str, Any] = {"lower": -3.0, "upper": 4.0, "ticks": 8, "seed": 3, "topology": EDGES}
CLEAR = {"learner": "dual-averaging", "record_bound": 5.0} | DESCENT
# Reports lie with a chance below 1e-20.
CELLS = {"bins": 5, "epsilon": 60.0}
REPORTS = {"learner": "dual-averaging-reports", "lower": -3.0, "upper": 4.0} | CELLS | DESCENT
RNG = np.random.default_rng(1)
LABELS = np.array([0.0, 1.0, 0.0, 1.0])
DATA = [np.append(RNG.normal(size=2) + label, label)[None] for label in LABELS]
SCORES = [table[:, [0, 2]] for table in DATA]


def session(
    folder: Path, parameters: dict[str, Any], tables: list[np.ndarray], timeouts: Timeouts = HOURS
) -> Path:
    path = create_local_session(folder, PARTIES, parameters, protocol="learn", timeouts=timeouts)
    (folder / "inputs").mkdir(exist_ok=True)
    for name, table in zip(PARTIES, tables, strict=True):
        np.save(folder / "inputs" / f"{name}.npy", table)
    return path


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("parameters", "tables"),
    [
        (CLEAR | {"clock": "synchronous"}, DATA),
        (CLEAR | {"loss": "metric", "rate": 0.1}, DATA),
        (REPORTS, DATA),
        (REPORTS | {"loss": "metric", "labels": "public", "clock": "synchronous"}, DATA),
        ({"learner": "gossip-clear", "statistic": "auc", "positives": 2} | ESTIMATE, SCORES),
        (
            {"learner": "gossip-clear", "statistic": "kendall_tau", "clock": "synchronous"} | ESTIMATE,
            [table[:, :2] for table in DATA],
        ),
        (
            {"learner": "gossip-reports", "statistic": "auc", "positives": 2, "method": "u2"}
            | {"clock": "synchronous"}
            | CELLS
            | ESTIMATE,
            SCORES,
        ),
    ],
    ids=["auc", "metric", "auc-reports", "metric-reports", "gosta", "gosta-synchronous", "u2-reports"],
)
def test_sockets_have_the_bits_of_the_simulation(
    tmp_path: Path, parameters: dict[str, Any], tables: list[np.ndarray]
) -> None:
    path = session(tmp_path, parameters, tables)
    results, failures = asyncio.run(everybody(path, PARTIES))
    assert failures == {}
    simulated = simulated_learn(parameters, tables, fidelity="ideal", seed_for_simulation=1)
    for party, name in enumerate(PARTIES):
        result = results[name]
        assert isinstance(result, Learned), result
        np.testing.assert_array_equal(result.values[0], simulated.values[party])
        assert result.guarantee == simulated.guarantee
        assert result.names == simulated.names
    assert np.abs(simulated.values).max() > 0


@pytest.mark.parametrize(
    ("parameters", "tables"),
    [
        (REPORTS | {"epsilon": 1.0}, DATA),
        (
            {"learner": "gossip-reports", "statistic": "auc", "positives": 2, "labels": "public"}
            | CELLS
            | ESTIMATE
            | {"epsilon": 1.0},
            SCORES,
        ),
    ],
    ids=["descent", "estimate"],
)
def test_equal_reports_give_equal_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], tables: list[np.ndarray]
) -> None:
    """At epsilon 1 most reports are lies: here each party's own, in its process or in the simulation."""

    def lie(response: KaryRandomisedResponse, values: np.ndarray, _source: NoiseSource) -> np.ndarray:
        task = asyncio.current_task()
        assert task is not None
        parties = [PARTIES.index(task.get_name())] if len(values) == 1 else range(len(values))
        return np.array(
            [(value + party) % response.categories for value, party in zip(values, parties, strict=True)]
        )

    monkeypatch.setattr(KaryRandomisedResponse, "release", lie)
    path = session(tmp_path, parameters, tables)
    results, _ = asyncio.run(everybody_in(path, names=PARTIES))
    simulated = simulated_learn(parameters, tables)
    for party, result in enumerate(results):
        np.testing.assert_array_equal(result.values[0], simulated.values[party])
        assert result.guarantee is not None
        assert result.guarantee.epsilon == pytest.approx(1.0)


@pytest.mark.long
def test_processes_learn_what_the_simulation_learns(tmp_path: Path) -> None:
    path = session(tmp_path, CLEAR | {"topology": NAMED}, DATA)
    done = smpc_dp("run", str(path), "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["parties"]
    simulated = simulated_learn(CLEAR, DATA, fidelity="machines", seed_for_simulation=1)
    for name, row in zip(PARTIES, simulated.values, strict=True):
        np.testing.assert_array_equal(results[name]["values"][0], row)
        assert "NO PRIVACY" in results[name]["claim"]
        assert results[name]["guarantee"] is None


def test_a_descent_that_diverges_stops_its_user_who_says_where(tmp_path: Path) -> None:
    """Labels of a party decide whether its first gradient is 0; nobody ends with a number."""
    far = CLEAR | {"regulariser": "none", "rate": 1e6, "record_bound": 1e6, "ticks": 60}
    tables = [table * np.array([1e5, 1e5, 1.0]) for table in DATA]
    path = session(tmp_path, far, tables, Timeouts(connect=30.0, gather=30.0, step=5.0))
    results, _ = asyncio.run(everybody(path, PARTIES))
    claimed = [result for result in results.values() if isinstance(result, ConfigError)]
    named = r"rate: the run diverges: theta of [a-d]\w+ exceeds 1e\+08 at tick \d+; take smaller steps"
    with pytest.raises(ConfigError, match=named):
        raise claimed[0]
    assert all(isinstance(result, (ConfigError, TimeoutFault)) for result in results.values()), results
    others = [result for result in results.values() if isinstance(result, TimeoutFault)]
    assert others
    for result in others:
        assert f": {TEXTS[Code.OWN]}" in str(result)
        assert "theta" not in str(result)


@pytest.mark.parametrize(
    ("parameters", "tables", "named"),
    [
        (CLEAR, DATA, "messages that nothing protects"),
        (
            {"learner": "gossip-clear", "statistic": "auc", "positives": 2} | ESTIMATE,
            SCORES,
            "nothing protects",
        ),
        (REPORTS, DATA, "of epsilon = 59"),
    ],
    ids=["clear", "estimate", "reports"],
)
def test_a_ledger_refuses_before_anything_is_sent(
    tmp_path: Path, parameters: dict[str, Any], tables: list[np.ndarray], named: str
) -> None:
    """Nobody listens: who came so far as to connect would fail otherwise."""
    path = session(tmp_path, parameters, tables)
    budget = Ledger.create(
        tmp_path / "ann.ledger",
        party="ann",
        dataset="records",
        relation="substitution",
        epsilon=59.0,
        delta=0.0,
    )
    with pytest.raises(PrivacyError, match=named):
        asyncio.run(learn(path, "ann", tmp_path / "inputs" / "ann.npy", ledger=tmp_path / "ann.ledger"))
    assert budget.entries() == ()


def test_bad_sessions_are_refused_when_they_are_written(tmp_path: Path) -> None:
    for parameters in (CLEAR, REPORTS):
        with pytest.raises(ConfigError, match="topology: the graph is disconnected: 2 components"):
            session(tmp_path, parameters | {"topology": [[0, 1], [2, 3]]}, DATA)
        with pytest.raises(ConfigError, match=r"parameters.topology\[1\]: 'eve' is no party"):
            session(tmp_path, parameters | {"topology": [["ann", "bob"], ["bob", "eve"]]}, DATA)
        with pytest.raises(ConfigError, match="topology"):
            session(tmp_path, parameters | {"topology": [["ann", 1.5], []]}, DATA)
