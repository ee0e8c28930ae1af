"""A budget that several requests share: what each may cost, what all of them cost, what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.engine.result import Result
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts

BUDGET = {"epsilon": 2.0, "delta": 1e-6, "requests": 10}
SUM: dict[str, Any] = {"length": 2, "lower": 0.0, "upper": 1.0, "dropout": 0.0, "corrupt": 0.0}
RECORDS: dict[str, Any] = {
    "ask": ["count"],
    "records": {"max_rows": 100, "columns": {"age": {"lower": 0.0, "upper": 100.0}}},
}


def planned(protocol: str, parameters: dict[str, Any], parties: int = 5) -> SumParameters:
    checked, issues = checker_of(protocol, session_protocol(protocol).version)(parameters, parties)
    assert isinstance(checked, SumParameters), issues
    return checked


@pytest.mark.parametrize(
    ("protocol", "more"),
    [("secagg", SUM), ("secagg", {**SUM, "mechanism": "skellam"}), ("gopa", SUM), ("secagg", RECORDS)],
    ids=["gaussian", "skellam", "gopa", "records"],
)
def test_all_requests_together_fit_and_waste_little(protocol: str, more: dict[str, Any]) -> None:
    event = planned(protocol, {**more, "budget": BUDGET}).event()
    together = Composition([event] * 10)
    assert together.delta(2.0) <= 1e-6
    # 5 % more noise than needed at most, in epsilon: Skellam's loss distribution is rounded.
    assert together.epsilon(1e-6) > 0.9 * 2.0
    # Far more than a tenth of epsilon for each.
    assert Composition([event]).epsilon(1e-6) > 2 * 0.2


def test_one_request_has_the_whole_budget() -> None:
    event = planned("secagg", {**SUM, "budget": {**BUDGET, "requests": 1}}).event()
    alone = planned("secagg", {**SUM, "epsilon": 2.0, "delta": 1e-6}).event()
    assert Composition([event]).epsilon(1e-6) == pytest.approx(Composition([alone]).epsilon(1e-6), rel=1e-4)


@pytest.mark.parametrize(
    ("parameters", "where", "reason"),
    [
        ({**SUM, "budget": BUDGET, "epsilon": 1.0}, "epsilon", "which states it"),
        ({**SUM, "budget": {**BUDGET, "requests": 0}}, "budget.requests", "must be"),
        ({**SUM, "budget": {**BUDGET, "rounds": 3}}, "budget.rounds", "unknown key"),
        ({**SUM, "budget": {"epsilon": 1.0, "requests": 3}}, "budget.delta", "is missing"),
        ({**SUM, "budget": 3}, "budget", "is not a table"),
        ({**SUM, "budget": BUDGET, "max_weight": 3, "kind": "integer"}, "kind", "must be 'real'"),
        ({**RECORDS, "epsilon": 100.5, "delta": 1e-6}, "epsilon", "from 1e-09 to 100"),
        (
            {**RECORDS, "budget": {**BUDGET, "epsilon": 999.0, "requests": 3}},
            "budget.epsilon",
            "of a request",
        ),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, Any], where: str, reason: str) -> None:
    checked, issues = checker_of("secagg", 2)(parameters, 5)
    assert checked is None
    assert any(issue.where == where and reason in issue.reason for issue in issues), issues


async def test_results_say_what_is_left_and_the_next_request_is_refused(tmp_path: Path) -> None:
    names = ("alice", "bob", "carol")
    budget = {**BUDGET, "requests": 2}
    path = create_local_session(
        tmp_path, names, {**SUM, "budget": budget}, timeouts=Timeouts(connect=20.0, step=20.0, gather=10.0)
    )

    async def party(name: str) -> tuple[list[Result], smpc_dp.PrivacyError]:
        async with smpc_dp.connect(path, party=name) as session:
            results = [await session.average([0.5, 0.5]) for _ in range(2)]
            with pytest.raises(smpc_dp.PrivacyError) as refused:
                await session.average([0.5, 0.5])
            return results, refused.value

    serving = asyncio.create_task(smpc_dp.serve(path))
    ended = await asyncio.gather(*map(party, names))
    await serving
    for name, (results, refused) in zip(names, ended, strict=True):
        first, second = (result.privacy.budget for result in results)
        assert first is not None
        assert second is not None
        assert (first.requests, first.left, second.requests, second.left) == (1, 1, 2, 0)
        assert first.spent == first.epsilon == second.epsilon
        assert second.spent is not None
        assert 1.9 < second.spent <= 2.0 == second.budget
        assert f"{name}: request 3 is refused" in str(refused)
        assert "epsilon is short" in str(refused)
