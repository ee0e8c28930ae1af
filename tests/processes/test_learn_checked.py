"""Learners whose groups check the totals of their averages, over real sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import AverageEvidence, Learned
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases import checked_total
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.session.local import create_local_session
from smpc_dp.session.requests import AggregatorLostError
from smpc_dp.session.session_file import Timeouts

NAMES = ("ann", "bob", "cas", "dan", "eve", "fay", "gus")
GROUPS: dict[str, Any] = {"learner": "dual-averaging-groups", "features": 2, "steps": 2, "group": 3}
GROUPS |= {"seed": 2, "rate": 2.0}
ALL: dict[str, Any] = {"learner": "sgd", "features": 2, "steps": 2, "rate": 0.5, "clip": 1.0, "seed": 2}
PRIVATE: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
CHECKED: dict[str, Any] = {"averager": {"total": "checked"}}
GOPA: dict[str, Any] = {"averager": {"method": "gopa", "on_dropout": "roll-back", "total": "checked"}}
FALSE = "aggregator: the total is not that of the commitments"
TIMEOUTS = Timeouts(connect=30.0, gather=30.0, step=20.0)


def table(party: int) -> np.ndarray:
    drawn = np.random.default_rng(party).normal(size=(8, 2))
    return np.column_stack([drawn, (drawn[:, 0] > 0).astype(float)])


async def everybody(folder: Path, given: dict[str, Any]) -> dict[str, Learned | AggregatorLostError]:
    """Run all parties and the aggregator in one loop; return what they learned, or that it is gone."""
    path = create_local_session(folder, NAMES, CHECKED | given, protocol="learn", timeouts=TIMEOUTS)
    for party, name in enumerate(NAMES):
        np.save(folder / f"{name}.npy", table(party))

    async def one(name: str) -> Learned | AggregatorLostError:
        try:
            return await learn(path, name, folder / f"{name}.npy")
        except AggregatorLostError as error:
            return error

    serving = asyncio.create_task(serve_learning(path))
    results = dict(zip(NAMES, await asyncio.gather(*map(one, NAMES)), strict=True))
    assert await serving == {}
    return results


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many totals each party has checked, and found right."""
    counted: Counter[str] = Counter()
    original = checked_total.check_result

    def check(member: Any, *arguments: Any) -> None:
        original(member, *arguments)
        counted[member.name] += 1

    monkeypatch.setattr(checked_total, "check_result", check)
    return counted


@pytest.mark.parametrize(("private", "requests"), [({}, 1), (PRIVATE | GOPA, 2)])
def test_each_member_of_a_group_checks_each_of_its_averages(
    tmp_path: Path, accepted: Counter[str], private: dict[str, Any], requests: int
) -> None:
    """With epsilon a step has two averages: of public models, and of what is private."""
    results = asyncio.run(everybody(tmp_path, GROUPS | private))
    for name, learned in results.items():
        assert isinstance(learned, Learned)
        assert learned.failures == ()
        assert accepted[name] == requests * learned.done[0]
        averages = int(requests * learned.done[0])
        assert learned.evidence == AverageEvidence(averages, checked=averages)
        assert f"totals checked: {averages} of {averages} averages" in str(learned)
        assert "every party checks the total" in learned.claim
    assert accepted.total() == requests * 2 * 6


@pytest.mark.parametrize(("given", "requests"), [(GROUPS, 1), (ALL, 2)], ids=["groups", "all"])
def test_exact_averages_are_those_of_unchecked_totals(
    tmp_path: Path, given: dict[str, Any], requests: int
) -> None:
    """Of steps of all parties the models are averaged too."""
    tables = [table(party) for party in range(len(NAMES))]
    simulated = simulate.learn(given, tables)
    assert np.abs(simulated.values).max() > 0.1
    checked = simulate.learn(given | CHECKED, tables, fidelity="machines")
    assert simulated.evidence is None
    averages = int(requests * checked.done.sum())
    assert checked.evidence == AverageEvidence(averages, checked=averages)
    results = asyncio.run(everybody(tmp_path, given))
    for party, learned in enumerate(results.values()):
        assert isinstance(learned, Learned)
        np.testing.assert_array_equal(learned.values[0], checked.values[party])
        averages = int(requests * learned.done[0])
        assert learned.evidence == AverageEvidence(averages, checked=averages)
        np.testing.assert_allclose(checked.values[party], simulated.values[party], atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "given", [GROUPS, ALL | PRIVATE, ALL | PRIVATE | GOPA], ids=["groups, exact", "all, noisy", "all, gopa"]
)
def test_no_party_takes_a_step_with_a_false_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: Counter[str], given: dict[str, Any]
) -> None:
    """The aggregator adds one to the first element of each total that it sends.

    Parties that it has served already may have closed the session when another one is at its last step.
    """
    original = checked_total.checked_result

    def lie(parameters: SumParameters, total: RingVector, *more: Any) -> m.CheckedResult:
        honest, changed = original(parameters, total, *more), total.copy()
        changed[0] += 1
        return msgspec.structs.replace(honest, total=parameters.encoding.pack(changed))

    monkeypatch.setattr(checked_total, "checked_result", lie)
    results = asyncio.run(everybody(tmp_path, given))
    for learned in results.values():
        if isinstance(learned, AggregatorLostError):
            assert str(learned).endswith(FALSE)
            continue
        assert learned.done[0] == 0
        assert set(learned.failures) == {FALSE}
        assert not learned.values.any()
        assert learned.evidence == AverageEvidence(0, 0)
    assert not accepted
