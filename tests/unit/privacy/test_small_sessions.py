"""Sessions of few parties: the table of docs/proofs/secagg-plan.md, and what it says of other protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smpc_dp.engine.registry import session_protocol
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.secagg_plan import default_corrupt, default_dropout, part_of, plan_secagg

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
    "records": {
        "max_rows": 100,
        "columns": {"age": {"lower": 0, "upper": 100}, "dose": {"lower": 0, "upper": 9}},
    },
    "ask": ["mean(age)"],
}
STEPS = RECORDS | {"ask": ["regression(dose ~ age)"]}
SGD: dict[str, object] = {"learner": "sgd", "features": 2, "steps": 3, "epsilon": 5.0, "delta": 1e-5}


def planned(protocol: str, parameters: dict[str, object], parties: int, version: int | None = None) -> Any:
    described = session_protocol(protocol)
    names = [f"p{number}" for number in range(parties)] if described.named else parties
    checked, issues = described.checker(version or described.version)(parameters, names)  # type: ignore[misc]
    assert issues == []
    return checked


def test_the_table_has_a_row_for_each_size_up_to_ten_and_for_twenty() -> None:
    assert [int(row[0]) for row in ROWS] == [*range(3, 11), 20]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_table_is_what_sessions_have(row: list[str]) -> None:
    parties = int(row[0])
    before = planned("secagg", SUM, parties, min(session_protocol("secagg").versions)).plan
    plan = planned("secagg", SUM, parties).plan
    assert plan == plan_secagg(parties, dropout=default_dropout(parties), corrupt=default_corrupt(parties))
    assert plan.max_dropouts == before.max_dropouts
    left = parties - plan.max_corrupt, parties - plan.max_corrupt - plan.max_dropouts
    assert row[1:] == [
        str(plan.max_dropouts),
        *map(str, (plan.max_corrupt, plan.quorum, plan.threshold, plan.min_honest_in_sum)),
        *(str(each) if each >= plan.quorum else f"**{each}**" for each in left),
    ]


def by_inequalities(parties: int, lost: int, corrupt: int) -> tuple[int, int]:
    """Return the smallest quorum, and the largest threshold of a complete graph, that the bounds permit."""
    quorums = [q for q in range(parties - lost + 1) if 2 * q > parties + corrupt]
    thresholds = [t for t in range(parties - lost) if 2 * t > parties - 1 + corrupt]
    return min(quorums), max(thresholds)


@pytest.mark.parametrize(("protocol", "parameters"), [("secagg", SUM), ("secagg", NOISY), ("gopa", NOISY)])
def test_quorums_and_thresholds_are_those_of_the_inequalities(
    protocol: str, parameters: dict[str, object]
) -> None:
    """Up to 64 parties, of which everyone is everyone's neighbour, in both versions."""
    before, today = sorted(session_protocol(protocol).versions)
    for parties in range(3, 65):
        lost = max(parties // 10, parties >= 5)
        for version, corrupt in ((before, parties // 10), (today, max(parties // 10, 1))):
            plan = planned(protocol, parameters, parties, version).plan
            assert (plan.max_dropouts, plan.max_corrupt) == (lost, corrupt)
            assert (plan.quorum, plan.threshold) == by_inequalities(parties, lost, corrupt)


@pytest.mark.parametrize("parties", [3, 4, 5, 9, 10, 11])
def test_without_an_aggregator_one_party_counts_as_corrupt_in_any_version(parties: int) -> None:
    before, today = sorted(session_protocol("gopa").versions)
    for version, corrupt in ((before, parties // 10), (today, 1)):
        direct = planned("gopa", NOISY | {"topology": "direct"}, parties, version)
        assert direct.plan.max_corrupt == corrupt
        assert direct.quorum == by_inequalities(parties, direct.plan.max_dropouts, 1)[0]


def test_the_default_of_many_parties_is_a_tenth_of_them() -> None:
    for parties in (10, 11, 19, 20, 101, 9_999, 10_000, 10_001, 65_535, 1_000_000):
        assert part_of(parties, default_corrupt(parties)) == parties // 10
    assert [part_of(parties, default_corrupt(parties)) for parties in range(1, 12)] == [0, 0, *[1] * 9]


def test_the_quorum_grows_with_odd_numbers_of_parties_below_ten() -> None:
    """Sessions of the earlier version keep theirs."""
    before, today = [
        [planned("secagg", SUM, int(row[0]), version).plan.quorum for row in ROWS]
        for version in sorted(session_protocol("secagg").versions)
    ]
    assert before[:7] == [2, 3, 3, 4, 4, 5, 5]
    assert today[:7] == [3, 3, 4, 4, 5, 5, 6]
    assert before[7:] == today[7:]


@pytest.mark.parametrize("row", ROWS[:8], ids=[row[0] for row in ROWS[:8]])
@pytest.mark.parametrize(
    ("protocol", "parameters"),
    [
        ("secagg", NOISY),
        ("secagg", NOISY | {"mechanism": "skellam"}),
        ("gopa", NOISY),
        ("gopa", NOISY | {"on_dropout": "roll-back"}),
        ("gopa", NOISY | {"topology": "direct"}),
        ("gopa", NOISY | {"verifiable": True}),
        ("secagg", RECORDS),
        ("secagg", STEPS),
        ("gopa", RECORDS),
        ("gopa", RECORDS | {"verifiable": True}),
    ],
    ids=[
        "secagg",
        "skellam",
        "gopa",
        "roll-back",
        "direct",
        "verifiable",
        "records",
        "regression",
        "records by gopa",
        "verifiable records",
    ],
)
def test_one_colluding_party_costs_no_noise(
    protocol: str, parameters: dict[str, object], row: list[str]
) -> None:
    parties, versions = int(row[0]), session_protocol(protocol).versions
    first, second = [planned(protocol, parameters, parties, version) for version in sorted(versions)]
    assert second.plan.max_corrupt == 1
    # Every variance of a share is in it, and what of a plan is derived with floating point.
    assert first.planned() == second.planned()
    cost = session_protocol(protocol).cost
    before, today = cost(first, 0), cost(second, 0)
    assert before is not None
    assert today is not None
    assert before.counted == today.counted == int(row[5])
    assert (before.factor, before.answers) == (today.factor, today.answers)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("parameters", [NOISY, RECORDS], ids=["vectors", "records"])
def test_verifiable_averages_say_what_leaves_no_quorum(parameters: dict[str, object], row: list[str]) -> None:
    given, parties = parameters | {"verifiable": True}, int(row[0])
    said = [note for note in planned("gopa", given, parties).notes if note.startswith("exclusions")]
    wrong = "exclusions: a request fails where one party is excluded for a false statement"
    assert said == {
        3: [f"{wrong}: 2 of 3 are left, and 3 must sign"],
        5: [f"{wrong} and 1 lost: 3 of 5 are left, and 4 must sign"],
    }.get(parties, [])
    assert bool(said) == ("**" in "".join(row))
    before = planned("gopa", given, parties, min(session_protocol("gopa").versions)).notes
    assert not [note for note in before if note.startswith("exclusions")]


@pytest.mark.parametrize("corrupt", [None, 0.0, 0.1, 0.2, 0.34])
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.2])
def test_the_fewest_exclusions_that_leave_no_quorum_are_said(corrupt: float | None, dropout: float) -> None:
    """Of all numbers of excluded and lost parties that a plan has, up to 24 parties."""
    given = NOISY | {"verifiable": True, "dropout": dropout}
    given |= {} if corrupt is None else {"corrupt": corrupt}
    for parties in range(6, 25, 3):
        checked = planned("gopa", given, parties)
        quorum, lost = checked.plan.quorum, checked.plan.max_dropouts
        failing = [n for n in range(1, max(checked.plan.max_corrupt, 1) + 1) if parties - n - lost < quorum]
        said = [note.partition(": ")[2] for note in checked.notes if note.startswith("exclusions")]
        assert len(said) == bool(failing)
        if failing:
            gone = "one party is" if failing[0] == 1 else f"{failing[0]} parties are"
            more = f" and {lost} lost" if lost else ""
            left = parties - failing[0] - lost
            assert said == [
                f"a request fails where {gone} excluded for a false statement{more}: {left} of {parties} are "
                f"left, and {quorum} must sign"
            ]


def test_of_more_exclusions_the_fewest_are_said() -> None:
    given = NOISY | {"verifiable": True, "corrupt": 0.34, "dropout": 0.1}
    checked = planned("gopa", given, 12)
    assert (checked.plan.max_corrupt, checked.plan.max_dropouts) == (4, 1)
    wrong = "exclusions: a request fails where 3 parties are excluded for a false statement and 1 lost"
    assert checked.notes[-1] == f"{wrong}: 8 of 12 are left, and 9 must sign"


def test_four_parties_withstand_one_colluding_or_one_lost() -> None:
    assert plan_secagg(4, dropout=0.0, corrupt=0.25).threshold == 3
    assert plan_secagg(4, dropout=0.25, corrupt=0.0).threshold == 2
    with pytest.raises(ConfigError, match="no threshold"):
        plan_secagg(4, dropout=0.25, corrupt=0.25)


@pytest.mark.parametrize(
    ("parties", "given", "where", "reason"),
    [
        (
            4,
            {"dropout": 0.25},
            "corrupt",
            "its default, 0.25: 1 of 4 parties corrupt; lower dropout, or write",
        ),
        (6, {"dropout": 0.34}, "corrupt", "its default, 0.166667: 1 of 6 parties corrupt; lower dropout, or"),
        (5, {"corrupt": 0.4}, "dropout", "its default, 0.2: 1 of 5 parties lost; write dropout = 0.0"),
    ],
)
@pytest.mark.parametrize(("protocol", "parameters"), [("secagg", SUM), ("secagg", RECORDS), ("gopa", NOISY)])
def test_a_default_that_no_plan_permits_is_named(
    protocol: str,
    parameters: dict[str, object],
    parties: int,
    given: dict[str, object],
    where: str,
    reason: str,
) -> None:
    """What is written out is never taken as a choice of the other key."""
    described = session_protocol(protocol)
    checked, issues = described.checker(described.version)(parameters | given, parties)  # type: ignore[misc]
    assert checked is None
    assert [issue.where for issue in issues if reason in issue.reason] == [where]
    assert planned(protocol, parameters | given | {where: 0.0}, parties)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_other_protocols_are_planned_as_the_page_says(row: list[str]) -> None:
    parties, quorum = int(row[0]), int(row[3])
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
