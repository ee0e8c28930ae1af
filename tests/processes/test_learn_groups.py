"""Learners in rounds of disjoint groups over real sockets: who is charged, who is lost, logs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import ALONE
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.errors import SmpcError
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.log_session import is_scope
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts, load_session
from smpc_dp_verify.run import Audit as SecondAudit

NAMES = ("ann", "bob", "cas", "dan", "eve", "fay", "gus")
DUAL: dict[str, Any] = {
    "learner": "dual-averaging-groups",
    "features": 2,
    "steps": 3,
    "group": 3,
    "seed": 2,
    "rate": 2.0,
}
DIFFUSION: dict[str, Any] = DUAL | {"learner": "diffusion", "rate": 0.5}
REPORTS: dict[str, Any] = {"learner": "dual-averaging-reports", "features": 2, "lower": -4.0, "upper": 4.0}
REPORTS |= {"bins": 4, "epsilon": 6.0, "ticks": 3, "group": 3, "seed": 2}
PRIVATE: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
VERIFIABLE: dict[str, Any] = {"averager": {"method": "gopa", "verifiable": True}}
TIMEOUTS = Timeouts(connect=30.0, gather=30.0, step=20.0)


def table(party: int) -> np.ndarray:
    drawn = np.random.default_rng(party).normal(size=(8, 2))
    return np.column_stack([drawn, (drawn[:, 0] > 0).astype(float)])


def session(folder: Path, given: dict[str, Any], names: tuple[str, ...] = NAMES) -> Path:
    path = create_local_session(folder, names, given, protocol="learn", timeouts=TIMEOUTS)
    for party, name in enumerate(names):
        np.save(folder / f"{name}.npy", table(party))
        Ledger.create(
            folder / f"{name}.ledger",
            party=name,
            dataset="d",
            relation="substitution",
            epsilon=8.0,
            delta=1e-5,
        )
    return path


async def everybody(
    path: Path, names: tuple[str, ...], *, ledgers: bool = False, begin_with: int | None = None
) -> tuple[dict[str, Learned], dict[int, str]]:
    """Run these parties and the aggregator in one loop; return what they learned, and failed requests."""

    async def one(name: str) -> Learned | SmpcError:
        ledger = path.parent / f"{name}.ledger" if ledgers else None
        try:
            return await learn(path, name, path.parent / f"{name}.npy", ledger=ledger)
        except SmpcError as error:
            return error

    serving = asyncio.create_task(serve_learning(path, begin_with=begin_with))
    results = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
    failures = await serving
    learned = {name: result for name, result in results.items() if isinstance(result, Learned)}
    assert len(learned) == len(results), results
    return learned, failures


@pytest.mark.thin(2)
@pytest.mark.parametrize("given", [DIFFUSION, DUAL], ids=["diffusion", "dual averaging"])
def test_processes_learn_exactly_what_a_simulation_learns(tmp_path: Path, given: dict[str, Any]) -> None:
    results, failures = asyncio.run(everybody(session(tmp_path, given), NAMES))
    assert failures == {}
    tables = [table(party) for party in range(len(NAMES))]
    simulated = simulate.learn(given, tables)
    machines = simulate.learn(given, tables, fidelity="machines")
    assert np.abs(simulated.values).max() > 0.1
    for party, name in enumerate(NAMES):
        np.testing.assert_allclose(results[name].values[0], simulated.values[party], atol=1e-9, rtol=0)
        np.testing.assert_array_equal(results[name].values[0], machines.values[party])
        assert results[name].done[0] == results[name].steps[0] == simulated.steps[party]
        assert results[name].guarantee is None
        assert "NOT DIFFERENTIALLY PRIVATE" in results[name].claim


@pytest.mark.thin(2)
@pytest.mark.parametrize("private", [True, False])
def test_a_lost_party_stops_the_steps_of_its_groups_alone(tmp_path: Path, private: bool) -> None:
    """Those in a group with it leave the step out; the other group of the round goes on.

    Each is charged for the private averages that it had alone: who is missing is known before.
    """
    path = session(tmp_path, DUAL | (PRIVATE if private else {}))
    lost = 6
    results, failures = asyncio.run(everybody(path, NAMES[:lost], ledgers=private, begin_with=lost))
    groups = list(GroupDraws(7, 3, 2).rounds(3))
    hit = [group == group[lost] if group[lost] > ALONE else np.zeros(7, bool) for group in groups]
    requests = 2 if private else 1
    assert len(failures) == requests * sum(one.any() for one in hit) > 0
    assert all("gus" in reason for reason in failures.values())
    for party, name in enumerate(NAMES[:lost]):
        missed = sum(bool(one[party]) for one in hit)
        planned = sum(group[party] > ALONE for group in groups)
        assert results[name].steps[0] == planned
        assert results[name].done[0] == planned - missed
        assert all("gus" in reason for reason in results[name].failures)
        assert bool(results[name].failures) == bool(missed)
        guarantee = results[name].guarantee
        assert (guarantee is not None) == private
        if private:
            assert guarantee is not None
            assert guarantee.epsilon == 8.0
            ledger = Ledger.open(tmp_path / f"{name}.ledger")
            assert len(ledger.entries()) == planned - missed
            spent = ledger.spent().epsilon
            assert spent is not None
            assert 0 < spent <= 8.0


def test_reports_are_passed_on_in_groups_without_a_lost_party(tmp_path: Path) -> None:
    """One report is charged, whatever comes of it; a group with the lost party leaves its step out."""
    path = session(tmp_path, REPORTS)
    for party, name in enumerate(NAMES):
        np.save(tmp_path / f"{name}.npy", table(party)[:1])
    lost = 6
    results, failures = asyncio.run(everybody(path, NAMES[:lost], ledgers=True, begin_with=lost))
    groups = list(GroupDraws(7, 3, 2).rounds(3))
    hit = [group == group[lost] if group[lost] > ALONE else np.zeros(7, bool) for group in groups]
    # Reports are passed on among the others; an average of the group fails.
    assert len(failures) == sum(one.any() for one in hit) > 0
    for party, name in enumerate(NAMES[:lost]):
        planned = sum(group[party] > ALONE for group in groups)
        missed = sum(bool(one[party]) for one in hit)
        assert results[name].done[0] == planned - missed
        assert bool(results[name].failures) == bool(missed)
        ledger = Ledger.open(tmp_path / f"{name}.ledger")
        assert len(ledger.entries()) == (planned > 0)
        guarantee = results[name].guarantee
        assert guarantee is not None
        assert guarantee.epsilon == pytest.approx(6.0)


@pytest.mark.thin(2)
@pytest.mark.parametrize("given", [DUAL, DIFFUSION], ids=["dual averaging", "diffusion"])
def test_logs_of_rounds_are_audited(tmp_path: Path, given: dict[str, Any]) -> None:
    names = NAMES[:6]
    path = session(tmp_path, given | PRIVATE | VERIFIABLE | {"steps": 1}, names)
    _, failures = asyncio.run(everybody(path, names))
    assert failures == {}
    logs = sorted((tmp_path / "board").glob("request-*.jsonl"))
    assert [log.name.split("-")[1] for log in logs] == ["3", "4"]
    for log, group in zip(logs, GroupDraws(6, 3, 2).draw(2), strict=True):
        run = json.loads(log.read_bytes().partition(b"\n")[0])["run_id"]
        report = audit(log, session=path, run=run)
        assert report.ok, report
        assert report.verdict is not None
        assert report.verdict.counted == tuple(names[party] for party in group)
        second = SecondAudit(log.read_text("utf-8").splitlines(), frozenset())
        assert tuple(second.counted) == report.verdict.counted
    loaded, listed = load_session(path), sorted((tmp_path / "board").glob("group-*.jsonl"))
    scopes = [json.loads(log.read_bytes().partition(b"\n")[0])["scope"] for log in listed]
    assert len(scopes) == 2
    assert all(is_scope(loaded, scope) for scope in scopes)
