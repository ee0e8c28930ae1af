"""Sessions of few parties: the table of docs/proofs/secagg-plan.md, and what it says of other protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smpc_dp.engine.registry import session_protocol
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.secagg_plan import default_dropout, plan_secagg

PAGE = Path(__file__).parents[3] / "docs" / "proofs" / "secagg-plan.md"
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in PAGE.read_text("utf-8").split("## From 3 to 20 parties")[1].splitlines()
    if line[:3].strip("| ").isdigit()
]
SUM: dict[str, object] = {"length": 1, "lower": 0.0, "upper": 9.0, "precision": 0.5}
NOISY = SUM | {"epsilon": 1.0, "delta": 1e-6}
RECORDS: dict[str, object] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "records": {"max_rows": 100, "columns": {"age": {"lower": 0, "upper": 100}}},
    "ask": ["mean(age)"],
}
SGD: dict[str, object] = {"learner": "sgd", "features": 2, "steps": 3, "epsilon": 5.0, "delta": 1e-5}


def planned(protocol: str, parameters: dict[str, object], parties: int) -> Any:
    described = session_protocol(protocol)
    names = [f"p{number}" for number in range(parties)] if described.named else parties
    checked, issues = described.checker(described.version)(parameters, names)  # type: ignore[misc]
    assert issues == []
    return checked


def test_the_table_has_a_row_for_each_size() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(3, 21))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_table_is_what_the_planner_gives(row: list[str]) -> None:
    parties = int(row[0])
    dropout = default_dropout(parties)
    default = plan_secagg(parties, dropout=dropout, corrupt=0.1)
    plan = plan_secagg(parties, dropout=dropout, corrupt=max(0.1, 1 / parties))
    assert plan.max_dropouts == default.max_dropouts
    left = parties - plan.max_corrupt, parties - plan.max_corrupt - plan.max_dropouts
    assert row[1:] == [
        *map(str, (plan.max_dropouts, default.max_corrupt, default.quorum)),
        *map(str, (plan.max_corrupt, plan.quorum, plan.threshold, plan.min_honest_in_sum)),
        *(str(each) if each >= plan.quorum else f"**{each}**" for each in left),
    ]


@pytest.mark.parametrize("row", ROWS[:8], ids=[row[0] for row in ROWS[:8]])
@pytest.mark.parametrize(
    ("protocol", "parameters"),
    [
        ("secagg", NOISY),
        ("gopa", NOISY),
        ("gopa", NOISY | {"verifiable": True}),
        ("secagg", RECORDS),
        ("gopa", RECORDS),
    ],
    ids=["secagg", "gopa", "verifiable", "records", "records by gopa"],
)
def test_one_colluding_party_costs_no_noise(
    protocol: str, parameters: dict[str, object], row: list[str]
) -> None:
    parties = int(row[0])
    cost = session_protocol(protocol).cost
    plans = [parameters, parameters | {"corrupt": max(0.1, 1 / parties)}]
    first, second = [cost(planned(protocol, each, parties), 0) for each in plans]
    assert first is not None
    assert second is not None
    assert first.counted == second.counted == int(row[7])
    assert (first.factor, first.answers) == (second.factor, second.answers)


def test_four_parties_withstand_one_colluding_or_one_lost() -> None:
    assert plan_secagg(4, dropout=0.0, corrupt=0.25).threshold == 3
    assert plan_secagg(4, dropout=0.25, corrupt=0.0).threshold == 2
    with pytest.raises(ConfigError, match="no threshold"):
        plan_secagg(4, dropout=0.25, corrupt=0.25)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_other_protocols_are_planned_as_the_page_says(row: list[str]) -> None:
    parties, quorum = int(row[0]), int(row[5])
    exact = planned("secagg", SUM | {"same_survivors": False}, parties)
    assert exact.tolerated[1] == 0
    direct = planned("gopa", NOISY | {"topology": "direct"}, parties)
    assert direct.quorum == quorum
    groups = {(group.tolerated, group.quorum) for group in planned("learn", SGD, parties).requests}
    assert groups == {((parties, 0, 1), (parties + 1) // 2 + 1)}
    noisy, whole = planned("mpyc", SUM | {"epsilon": 1.0}, parties), planned("mpyc", SUM, parties)
    assert noisy.tolerated == (parties, int(row[1]), parties)
    assert whole.tolerated == (parties, parties // 10, parties)
    assert noisy.quorum == whole.quorum == 0
